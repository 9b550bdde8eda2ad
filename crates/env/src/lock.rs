//! Locking a mutex whose data is valid at every step.
//!
//! A panic while such a lock is held leaves nothing half changed, so the poison flag is ignored and
//! the panic of one thread does not spread to all others.

use crate::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// Locks `mutex` and ignores poison.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As [`lock`]; `None` while another thread holds the lock.
pub fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poison)) => Some(poison.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
