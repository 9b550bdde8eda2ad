//! A mutex with a rank: a thread that holds one may wait only for one of a higher rank.
//!
//! If all threads keep to that, no two of them can wait for each other. Builds with debug
//! assertions check it at every lock, on the thread that takes it, whether or not another thread is
//! in its way; so a test finds a wrong order that never happened to deadlock. [`Ranked::try_lock`]
//! never waits and may be called in any order. Release builds hold and do no more than a mutex.
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
    place: held::Place,
    mutex: Mutex<T>,
}

impl<T> Ranked<T> {
    /// A mutex of this rank.
    pub fn new(rank: Rank, value: T) -> Self {
        Self { place: held::Place::new(rank), mutex: Mutex::new(value) }
    }

    /// Waits for the lock.
    ///
    /// # Panics
    /// In builds with debug assertions, if this thread holds a lock of the same or a higher rank.
    #[inline]
    pub fn lock(&self) -> RankedGuard<'_, T> {
        self.place.check();
        RankedGuard { guard: lock(&self.mutex), _held: held::Held::new(self.place) }
    }

    /// Takes the lock; `None` while another thread holds it.
    #[inline]
    pub fn try_lock(&self) -> Option<RankedGuard<'_, T>> {
        let guard = try_lock(&self.mutex)?;
        Some(RankedGuard { guard, _held: held::Held::new(self.place) })
    }
}

impl<T> fmt::Debug for Ranked<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ranked").finish_non_exhaustive()
    }
}

/// Holds the lock until it is dropped.
pub struct RankedGuard<'a, T> {
    guard: MutexGuard<'a, T>,
    _held: held::Held,
}

impl<T> RankedGuard<'_, T> {
    /// Releases the lock, waits until `condition` is signalled, and takes the lock again.
    #[must_use]
    pub fn wait(self, condition: &Condvar) -> Self {
        let Self { guard, _held } = self;
        Self { guard: condition.wait(guard).unwrap_or_else(PoisonError::into_inner), _held }
    }

    /// As [`Self::wait`], for at most this time; true if the time is over.
    #[must_use]
    pub fn wait_timeout(self, condition: &Condvar, timeout: Duration) -> (Self, bool) {
        let Self { guard, _held } = self;
        let (guard, waited) = condition.wait_timeout(guard, timeout).unwrap_or_else(PoisonError::into_inner);
        (Self { guard, _held }, waited.timed_out())
    }
}

impl<T> Deref for RankedGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for RankedGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

/// Panics in builds with debug assertions if this thread holds a ranked lock: `what` could wait for
/// one.
#[inline]
pub fn assert_unlocked(what: &str) {
    held::assert_none(what);
}

/// Calls code of the user while this thread holds locks. The order of the locks that `code` takes
/// is not checked: they may be those of another database.
#[inline]
pub fn beyond_ranks<R>(code: impl FnOnce() -> R) -> R {
    let _set_aside = held::SetAside::new();
    code()
}

/// The locks that a thread holds, in builds with debug assertions.
#[cfg(debug_assertions)]
mod held {
    use std::cell::RefCell;

    use super::Rank;
    use crate::sync::{IS_EXPLORED, thread_local};

    thread_local! {
        static RANKS: RefCell<Vec<Rank>> = const { RefCell::new(Vec::new()) };
    }

    /// The rank of a lock.
    #[derive(Clone, Copy)]
    pub struct Place(Rank);

    impl Place {
        pub fn new(rank: Rank) -> Self {
            Self(rank)
        }

        /// Panics if the thread holds a lock that must not be held while it waits for this one.
        /// Threads of a loom exploration share one thread of the system: there is nothing to check.
        pub fn check(self) {
            if IS_EXPLORED {
                return;
            }
            let Self(rank) = self;
            let wrong =
                RANKS.try_with(|ranks| ranks.borrow().iter().find(|held| held.order >= rank.order).copied());
            if let Ok(Some(held)) = wrong {
                panic!(
                    "the lock of {} ({}) is taken while that of {} ({}) is held",
                    rank.name, rank.order, held.name, held.order
                );
            }
        }
    }

    /// Panics if the thread holds any lock.
    pub fn assert_none(what: &str) {
        let last = RANKS.try_with(|ranks| ranks.borrow().last().copied());
        if let Ok(Some(held)) = last {
            panic!("{what} while the lock of {} ({}) is held", held.name, held.order);
        }
    }

    /// A lock that the thread holds.
    pub struct Held(Rank);

    impl Held {
        pub fn new(Place(rank): Place) -> Self {
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

    /// The locks that the thread held before, until this is dropped.
    pub struct SetAside(Vec<Rank>);

    impl SetAside {
        pub fn new() -> Self {
            Self(RANKS.try_with(RefCell::take).unwrap_or_default())
        }
    }

    impl Drop for SetAside {
        fn drop(&mut self) {
            let before = std::mem::take(&mut self.0);
            // A lock that the code has not released is held together with those from before.
            let _ = RANKS.try_with(|ranks| ranks.borrow_mut().splice(..0, before).for_each(drop));
        }
    }
}

/// Nothing is checked in release builds.
#[cfg(not(debug_assertions))]
mod held {
    use super::Rank;

    #[derive(Clone, Copy)]
    pub struct Place;

    impl Place {
        #[inline]
        pub fn new(_: Rank) -> Self {
            Self
        }

        #[inline]
        pub fn check(self) {}
    }

    #[inline]
    pub fn assert_none(_: &str) {}

    pub struct Held;

    impl Held {
        #[inline]
        pub fn new(_: Place) -> Self {
            Self
        }
    }

    pub struct SetAside;

    impl SetAside {
        #[inline]
        pub fn new() -> Self {
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

    /// The message with which calling `body` finds a wrong order.
    fn refusal(body: impl FnOnce()) -> Option<String> {
        let panic = catch_unwind(AssertUnwindSafe(body)).err()?;
        Some(panic.downcast_ref::<String>().expect("a formatted message").clone())
    }

    #[cfg(debug_assertions)]
    fn is_refused(body: impl FnOnce()) -> bool {
        refusal(body).is_some()
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
    #[cfg(debug_assertions)]
    fn a_wrong_order_names_both_locks() {
        let (low, high) = (Ranked::new(LOW, 1), Ranked::new(HIGH, 2));
        let message = refusal(|| {
            let _high = high.try_lock().expect("nobody holds it");
            drop(low.lock());
        });
        let expected = "the lock of the low one (1) is taken while that of the high one (2) is held";
        assert_eq!(message.as_deref(), Some(expected));
        let message = refusal(|| {
            let _low = low.lock();
            assert_unlocked("the user is called");
        });
        let expected = "the user is called while the lock of the low one (1) is held";
        assert_eq!(message.as_deref(), Some(expected));
        assert_unlocked("nothing is held");
    }

    #[test]
    #[cfg(debug_assertions)]
    fn locks_of_user_code_have_an_order_of_their_own() {
        let (low, high) = (Ranked::new(LOW, 1), Ranked::new(HIGH, 2));
        let guard = high.lock();
        assert!(!is_refused(|| drop(beyond_ranks(|| low.lock()))));
        assert!(is_refused(|| beyond_ranks(|| {
            let _low = low.lock();
            drop(low.lock());
        })));
        assert!(is_refused(|| drop(low.lock())), "locks from before are held again, also after a panic");
        drop(guard);
        assert!(!is_refused(|| drop(low.lock())));
    }

    #[test]
    #[cfg(not(debug_assertions))]
    fn a_release_build_holds_no_more_than_a_mutex() {
        assert_eq!(size_of::<Ranked<u64>>(), size_of::<Mutex<u64>>());
        assert_eq!(size_of::<RankedGuard<'_, u64>>(), size_of::<MutexGuard<'_, u64>>());
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
    fn a_wait_ends_by_the_signal_or_by_the_time() {
        let (value, condition) = (Ranked::new(LOW, 0), Condvar::new());
        let (guard, is_over) = value.lock().wait_timeout(&condition, Duration::from_millis(1));
        assert!(is_over);
        drop(guard);
        std::thread::scope(|scope| {
            let mut guard = value.lock();
            scope.spawn(|| {
                *value.lock() += 1;
                condition.notify_all();
            });
            while *guard == 0 {
                guard = guard.wait(&condition);
            }
        });
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
                guard = guard.wait_timeout(&condition, Duration::from_millis(10)).0;
            }
            *guard += 1;
        });
        assert_eq!(*value.lock(), 2);
    }
}
