//! `shamba_env::sync` over shuttle: at each lock, wait and file operation the scheduler decides
//! which thread continues.
//!
//! *Waits with a time limit.* A scheduler has no time. A short limit (below [`FOREVER`]) may expire
//! at any moment: such a wait yields to other threads and returns, with the clock advanced. A long
//! limit guards against a lost wake-up, or delays unimportant work. Here it never expires. A lost
//! wake-up is therefore a deadlock, which shuttle reports, instead of an unnoticed delay of half a
//! second.
//!
//! Atomics are the standard library's. Threads are switched only at locks, which the engine takes
//! often enough; `tests/loom` explores interleavings of atomics.

pub mod thread;
pub mod time;

pub use shuttle::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};

use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// State of one thread of a schedule.
pub use shuttle::thread_local;

/// Atomics that synchronization protocols use.
pub mod atomic {
    pub use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
}

/// Schedules are run one after the other, with the engine unchanged.
pub const IS_EXPLORED: bool = false;

/// Minimum time limit that never expires.
const FOREVER: Duration = Duration::from_millis(50);

/// A lock.
#[derive(Debug, Default)]
pub struct Mutex<T>(shuttle::sync::Mutex<T>);

/// A held lock.
#[derive(Debug)]
pub struct MutexGuard<'a, T> {
    guard: shuttle::sync::MutexGuard<'a, T>,
    mutex: &'a Mutex<T>,
}

impl<T> Mutex<T> {
    /// An unlocked lock.
    pub const fn new(value: T) -> Self {
        Self(shuttle::sync::Mutex::new(value))
    }

    /// Waits for the lock.
    ///
    /// # Errors
    /// As in the standard library.
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        match self.0.lock() {
            Ok(guard) => Ok(MutexGuard { guard, mutex: self }),
            Err(poison) => Err(PoisonError::new(MutexGuard { guard: poison.into_inner(), mutex: self })),
        }
    }

    /// Takes the lock if it is free.
    ///
    /// # Errors
    /// As in the standard library.
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Ok(MutexGuard { guard, mutex: self }),
            Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
            Err(TryLockError::Poisoned(poison)) => {
                Err(TryLockError::Poisoned(PoisonError::new(MutexGuard {
                    guard: poison.into_inner(),
                    mutex: self,
                })))
            }
        }
    }

    /// The guarded value.
    ///
    /// # Errors
    /// As in the standard library.
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.0.get_mut()
    }

    /// Unwraps the guarded value.
    ///
    /// # Errors
    /// As in the standard library.
    pub fn into_inner(self) -> LockResult<T> {
        self.0.into_inner()
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

/// The end of a wait with a time limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Whether the limit expired.
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

/// A condition variable.
#[derive(Debug, Default)]
pub struct Condvar(shuttle::sync::Condvar);

impl Condvar {
    /// A condition variable without waiters.
    pub const fn new() -> Self {
        Self(shuttle::sync::Condvar::new())
    }

    /// Releases the lock until a notification.
    ///
    /// # Errors
    /// As in the standard library.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        let MutexGuard { guard, mutex } = guard;
        match self.0.wait(guard) {
            Ok(guard) => Ok(MutexGuard { guard, mutex }),
            Err(poison) => Err(PoisonError::new(MutexGuard { guard: poison.into_inner(), mutex })),
        }
    }

    /// Releases the lock until a notification or until the limit expires.
    ///
    /// # Errors
    /// As in the standard library.
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        limit: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        let is_over = limit < FOREVER;
        let waited = if is_over {
            let mutex = guard.mutex;
            drop(guard);
            time::pass(limit);
            mutex.lock()
        } else {
            self.wait(guard)
        };
        match waited {
            Ok(guard) => Ok((guard, WaitTimeoutResult(is_over))),
            Err(poison) => Err(PoisonError::new((poison.into_inner(), WaitTimeoutResult(is_over)))),
        }
    }

    /// Wakes one waiter.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all waiters.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}
