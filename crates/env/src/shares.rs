//! A value that many threads keep alive for a moment, without a count for which they contend.
//!
//! A clone of an [`Arc`] writes to one cache line. Threads that do this for every short scan pass
//! that line from core to core, and on many cores the scan itself costs less. A [`Shares`] gives
//! each of a few groups of threads a [`Share`], which has a count of its own and keeps the value.
//!
//! Invariant: the value is dropped when the `Shares` and everything that [`Shares::share`] returned
//! are dropped, by the last of them.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use crate::thread::thread_number;

/// Number of groups of threads over which shared state is spread: more than the number of cores on
/// which short scans are useful.
pub const THREAD_GROUPS: usize = 32;

/// A value of which each group of threads has a share.
#[derive(Debug)]
pub struct Shares<T> {
    value: Arc<T>,
    by_thread: [OnceLock<Arc<Share<T>>>; THREAD_GROUPS],
}

/// The share of one group of threads. Two cache lines, because processors prefetch lines in pairs.
#[derive(Debug)]
#[repr(align(128))]
pub struct Share<T>(Arc<T>);

impl<T> Shares<T> {
    /// The only owner of `value`.
    pub fn new(value: T) -> Self {
        Self { value: Arc::new(value), by_thread: [const { OnceLock::new() }; THREAD_GROUPS] }
    }

    /// The value, if no share was given yet.
    pub fn sole_mut(&mut self) -> Option<&mut T> {
        Arc::get_mut(&mut self.value)
    }

    /// The share of this thread. It keeps the value while it lives.
    pub fn share(&self) -> Arc<Share<T>> {
        let own = &self.by_thread[thread_number() % THREAD_GROUPS];
        Arc::clone(own.get_or_init(|| Arc::new(Share(Arc::clone(&self.value)))))
    }
}

impl<T> Deref for Shares<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> Deref for Share<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_lives_as_long_as_its_last_share() {
        let shares = Shares::new(Arc::new(7));
        let value = Arc::downgrade(&shares);
        let (own, again) = (shares.share(), shares.share());
        assert!(Arc::ptr_eq(&own, &again), "a thread has one share");
        drop((own, again));
        let of_other = std::thread::scope(|scope| scope.spawn(|| shares.share()).join().expect("no panic"));
        assert!(!Arc::ptr_eq(&shares.share(), &of_other), "threads count in different places");
        drop(shares);
        assert_eq!(value.strong_count(), 1, "a share keeps the value");
        assert_eq!(***of_other, 7);
        drop(of_other);
        assert_eq!(value.strong_count(), 0);
    }
}
