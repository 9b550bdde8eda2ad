//! A mutex with a rank: a thread that holds one may wait only for one of a higher rank.
//!
//! If all threads keep to that, no two of them can wait for each other. Builds with debug
//! assertions check it at every lock, on the thread that takes it, whether or not another thread is
//! in its way; so a test finds a wrong order that never happened to deadlock. [`Ranked::try_lock`]
//! never waits and may be called in any order. Release builds hold no more than a mutex.
//!
//! Poison is ignored, as by [`crate::lock`].

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use crate::lock::{lock, try_lock};
use crate::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The place of a lock in the order in which locks are taken, and its name for messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rank {
    /// Locks are taken in ascending order; two of the same place are never held together.
    pub order: u8,
    /// Name of the guarded state.
    pub name: &'static str,
}

/// A mutex that checks the order of locks in builds with debug assertions.
pub struct Ranked<T> {
    rank: Rank,
    mutex: Mutex<T>,
}

impl<T> Ranked<T> {
    /// A mutex of this rank.
    pub fn new(rank: Rank, value: T) -> Self {
        Self { rank, mutex: Mutex::new(value) }
    }

    /// Waits for the lock.
    ///
    /// # Panics
    /// In builds with debug assertions, if this thread holds a lock of the same or a higher rank.
    pub fn lock(&self) -> RankedGuard<'_, T> {
        held::check(self.rank);
        RankedGuard { guard: Some(lock(&self.mutex)), _held: held::Held::new(self.rank) }
    }

    /// Takes the lock; `None` while another thread holds it.
    pub fn try_lock(&self) -> Option<RankedGuard<'_, T>> {
        let guard = try_lock(&self.mutex)?;
        Some(RankedGuard { guard: Some(guard), _held: held::Held::new(self.rank) })
    }
}

impl<T> fmt::Debug for Ranked<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ranked").field("rank", &self.rank).finish_non_exhaustive()
    }
}

/// Holds the lock until it is dropped.
pub struct RankedGuard<'a, T> {
    /// `None` only while it waits.
    guard: Option<MutexGuard<'a, T>>,
    _held: held::Held,
}

impl<T> RankedGuard<'_, T> {
    /// Releases the lock, waits until `condition` is signalled or the time is over, and takes the
    /// lock again.
    #[must_use]
    pub fn wait_timeout(mut self, condition: &Condvar, timeout: Duration) -> Self {
        self.guard = self.guard.take().map(|guard| {
            let waited = condition.wait_timeout(guard, timeout);
            waited.map_or_else(|poison| PoisonError::into_inner(poison).0, |(guard, _)| guard)
        });
        self
    }
}

impl<T> Deref for RankedGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.guard.as_ref().expect("a guard that can be used holds the lock")
    }
}

impl<T> DerefMut for RankedGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.guard.as_mut().expect("a guard that can be used holds the lock")
    }
}

/// The locks that a thread holds, in builds with debug assertions.
#[cfg(debug_assertions)]
mod held {
    use std::cell::RefCell;

    use super::Rank;
    use crate::sync::IS_EXPLORED;

    thread_local! {
        static RANKS: RefCell<Vec<Rank>> = const { RefCell::new(Vec::new()) };
    }

    /// Panics if the thread holds a lock that must not be held while it waits for one of `rank`.
    /// Threads of an explored schedule share one thread of the system: there is nothing to check.
    pub fn check(rank: Rank) {
        if IS_EXPLORED {
            return;
        }
        let wrong = RANKS.with_borrow(|ranks| ranks.iter().find(|held| held.order >= rank.order).copied());
        if let Some(held) = wrong {
            panic!(
                "the lock of {} ({}) is taken while that of {} ({}) is held",
                rank.name, rank.order, held.name, held.order
            );
        }
    }

    /// A lock that the thread holds.
    pub struct Held(Rank);

    impl Held {
        pub fn new(rank: Rank) -> Self {
            if !IS_EXPLORED {
                let _ = RANKS.try_with(|ranks| ranks.borrow_mut().push(rank));
            }
            Self(rank)
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            if IS_EXPLORED {
                return;
            }
            let _ = RANKS.try_with(|ranks| {
                let mut ranks = ranks.borrow_mut();
                if let Some(at) = ranks.iter().rposition(|held| *held == self.0) {
                    ranks.remove(at);
                }
            });
        }
    }
}

/// Nothing is checked in release builds.
#[cfg(not(debug_assertions))]
mod held {
    use super::Rank;

    #[inline]
    pub fn check(_: Rank) {}

    pub struct Held;

    impl Held {
        #[inline]
        pub fn new(_: Rank) -> Self {
            Self
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    const LOW: Rank = Rank { order: 1, name: "the low one" };
    const HIGH: Rank = Rank { order: 2, name: "the high one" };

    /// Whether calling `body` finds a wrong order.
    fn is_refused(body: impl FnOnce()) -> bool {
        catch_unwind(AssertUnwindSafe(body)).is_err()
    }

    #[test]
    #[cfg(debug_assertions)]
    fn locks_are_taken_in_ascending_order_only() {
        let (low, high) = (Ranked::new(LOW, 1), Ranked::new(HIGH, 2));
        assert!(!is_refused(|| {
            let first = low.lock();
            assert_eq!(*first + *high.lock(), 3);
            drop(first);
            assert_eq!(*low.lock(), 1);
        }));
        assert!(is_refused(|| {
            let _high = high.lock();
            drop(low.lock());
        }));
        assert!(is_refused(|| {
            let _low = low.lock();
            drop(low.lock());
        }));
        assert!(
            !is_refused(|| {
                let _low = low.lock();
                drop(high.lock());
            }),
            "an order that was refused leaves nothing behind"
        );
    }

    #[test]
    fn a_lock_that_does_not_wait_may_be_taken_in_any_order() {
        let (low, high) = (Ranked::new(LOW, 1), Ranked::new(HIGH, 2));
        let _high = high.lock();
        let mut first = low.try_lock().expect("nobody holds it");
        *first += 1;
        assert!(low.try_lock().is_none());
        drop(first);
        assert_eq!(low.try_lock().map(|value| *value), Some(2));
    }

    #[test]
    fn a_wait_gives_the_lock_up_and_has_it_again() {
        let (value, condition) = (Ranked::new(LOW, 0), Condvar::new());
        std::thread::scope(|scope| {
            let mut guard = value.lock();
            scope.spawn(|| {
                *value.lock() += 1;
                condition.notify_all();
            });
            while *guard == 0 {
                guard = guard.wait_timeout(&condition, Duration::from_millis(10));
            }
            *guard += 1;
        });
        assert_eq!(*value.lock(), 2);
    }
}
