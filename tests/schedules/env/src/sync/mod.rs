//! `shamba_env::sync` over shuttle: at each lock, wait and file the scheduler decides who goes on.
//!
//! *Waiting with a time limit.* A scheduler has no time. A short limit ([`FOREVER`]) may be over at any moment: such a wait
//! lets the others go on and comes back, with the clock moved on. A long one is there in case a wake-up is lost, or for
//! work that can wait: here it never ends by itself, so that a lost wake-up is a deadlock, which shuttle reports, and not half a
//! second's delay that nobody sees.
//!
//! Atomics are the standard library's. Threads are switched at locks only, which the engine takes often enough; what atomics do
//! between themselves is explored by `tests/loom`.

pub mod thread;
pub mod time;

pub use shuttle::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};

use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// Atomics that protocols are made of.
pub mod atomic {
    pub use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
}

/// One schedule after the other is run, of the engine as it is.
pub const IS_EXPLORED: bool = false;

/// From here on a time limit is none.
const FOREVER: Duration = Duration::from_millis(50);

/// A lock.
#[derive(Debug, Default)]
pub struct Mutex<T>(shuttle::sync::Mutex<T>);

/// A lock that is held.
#[derive(Debug)]
pub struct MutexGuard<'a, T> {
    guard: shuttle::sync::MutexGuard<'a, T>,
    mutex: &'a Mutex<T>,
}

impl<T> Mutex<T> {
    /// A lock that nobody holds.
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

    /// The lock, if nobody holds it.
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

    /// What it guards.
    ///
    /// # Errors
    /// As in the standard library.
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.0.get_mut()
    }

    /// What it guarded.
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

/// How a wait with a time limit ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Whether by the limit.
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

/// A condition to wait for.
#[derive(Debug, Default)]
pub struct Condvar(shuttle::sync::Condvar);

impl Condvar {
    /// One that nobody waits for.
    pub const fn new() -> Self {
        Self(shuttle::sync::Condvar::new())
    }

    /// Lets go of the lock until somebody notifies.
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

    /// Lets go of the lock until somebody notifies or the limit is over.
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

    /// Wakes one who waits.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all who wait.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}
