//! A flag for work that one thread does at a time, and that others skip.
//!
//! Nobody waits for it, so it has no place in the order of locks.

use crate::sync::atomic::{AtomicBool, Ordering};

/// Set while a thread does the work.
#[derive(Default)]
pub(crate) struct BusyFlag(AtomicBool);

/// The right to do the work, until it is dropped.
#[must_use]
pub(crate) struct Busy<'a>(&'a AtomicBool);

impl BusyFlag {
    /// Begins the work; `None` while another call does it.
    pub fn begin(&self) -> Option<Busy<'_>> {
        let is_free = !self.0.swap(true, Ordering::Acquire);
        is_free.then(|| Busy(&self.0))
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_also_after_a_panic() {
        let flag = BusyFlag::default();
        let work = flag.begin().expect("nobody works");
        assert!(flag.begin().is_none(), "one does");
        drop(work);
        let failed = std::panic::catch_unwind(|| {
            let _work = flag.begin().expect("the first one has ended");
            panic!("the work fails");
        });
        assert!(failed.is_err() && flag.begin().is_some());
    }
}
