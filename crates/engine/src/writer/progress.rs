//! Background work as writers see it: they wake it, wait for it, and give up when it keeps failing.
//!
//! [`Background`] is implemented by the part that runs flushes and compactions. It is connected
//! once, when the database is composed.
//!
//! A wait ends when the work is done, when it keeps failing, at its deadline, or when no background
//! work has made progress for a bound ([`ProgressWatch`]): then a device does not answer.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use shamba_key::KeyspaceId;

use crate::error::{Error, ErrorKind, Result};

/// Consecutive failures of flushes or compactions after which a waiter gets the error.
pub(crate) const WAITER_FAILURES_MAX: u32 = 3;

/// Watches the progress of background work during a wait.
#[derive(Debug)]
pub(crate) struct ProgressWatch {
    /// `None`: for ever.
    bound_us: Option<u64>,
    mark: u64,
    since_us: u64,
}

impl ProgressWatch {
    /// Begins at `now_us`, when the counters of the work have this `mark`
    /// ([`crate::metrics::WorkCounters::progress_mark`]). Without progress for `bound` the wait is
    /// over; 0 is for ever.
    pub fn new(mark: u64, now_us: u64, bound: Duration) -> Self {
        let bound_us = Some(u64::try_from(bound.as_micros()).unwrap_or(u64::MAX)).filter(|us| *us > 0);
        Self { bound_us, mark, since_us: now_us }
    }

    /// The error that ends the wait, if there was no progress for too long.
    ///
    /// # Errors
    /// `Stalled`.
    pub fn check(&mut self, mark: u64, now_us: u64) -> Result<()> {
        if mark != self.mark {
            (self.mark, self.since_us) = (mark, now_us);
        }
        let idle_us = now_us.saturating_sub(self.since_us);
        if self.bound_us.is_none_or(|bound_us| idle_us < bound_us) {
            return Ok(());
        }
        let context = format!("background work has made no progress for {} ms", idle_us / 1_000);
        Err(Error::new(ErrorKind::Stalled, context))
    }
}

/// Background work that a writer may wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Flush,
    /// The compactions of a keyspace; `None`: of all.
    Merge(Option<KeyspaceId>),
}

/// Failures of one kind of background work.
#[derive(Clone, Default, Debug)]
pub(crate) struct Failures {
    /// The last error; `None` after a success, and when there is no such work.
    pub error: Option<Error>,
    /// Consecutive failures, for the back-off.
    pub failures: u32,
    /// Number of the last failure of this kind of work; 0 before the first.
    pub last: u32,
}

impl Failures {
    /// Records the failure of this number.
    pub fn add(&mut self, error: Error, number: u32) {
        self.error = Some(error);
        self.failures = self.failures.saturating_add(1);
        self.last = number;
        assert!(self.failures <= self.last, "there are more failures in a row than in all");
    }

    /// Records the failure after the last one, where all of this kind are recorded here.
    pub fn add_next(&mut self, error: Error) {
        self.add(error, self.last.saturating_add(1));
    }

    /// Records a success, or that the work is no longer needed.
    pub fn end(&mut self) {
        (self.error, self.failures) = (None, 0);
    }

    /// Whether a waiter should give up: the last `max` tries failed, at least one of them since it
    /// began to wait, when the last one had the number `last_before`. Earlier failures alone do not
    /// count: the disk may have recovered.
    pub fn should_give_up(&self, last_before: u32, max: u32) -> bool {
        self.failures >= max && self.last > last_before
    }
}

/// Returns the failures that hold up a kind of work now.
pub(crate) type FailuresNow<'a> = &'a dyn Fn(Work) -> Failures;

/// The flushes and compactions of a database.
pub(crate) trait Background: Send + Sync {
    /// Wakes the workers: there is work, such as a generation that was sealed. The back-off of
    /// failed compactions goes on.
    fn wake(&self);

    /// Wakes the workers, so that failed work is tried again at once.
    fn retry(&self);

    /// Runs all due work on this thread, in an environment without threads.
    fn run_inline(&self);

    /// The failures that hold up `work` now.
    fn failures(&self, work: Work) -> Failures;

    /// Number of the last failure of such work.
    fn last_failure(&self, work: Work) -> u32 {
        self.failures(work).last
    }

    /// Calls `look`, and again after progress or after the time that it returned, until it returns
    /// `None`. Progress between a call of `look` and the wait after it ends the wait.
    fn wait_for_progress(&self, look: &mut dyn FnMut(FailuresNow<'_>) -> Option<Duration>);

    /// Waits until `done`, which flushes bring about. Runs them on this thread where there are no
    /// workers.
    ///
    /// # Errors
    /// The failure that prevents it.
    fn wait_for_flushes(&self, done: &dyn Fn() -> bool) -> Result<()>;

    /// Drops all requests for work on a keyspace that was dropped.
    fn forget(&self, keyspace: KeyspaceId);
}

/// The connection to background work.
#[derive(Default)]
pub(crate) struct BackgroundLink(OnceLock<Weak<dyn Background>>);

impl BackgroundLink {
    /// Sets the background work; later calls have no effect.
    pub fn connect(&self, background: Weak<dyn Background>) {
        let _ = self.0.set(background);
    }

    /// The background work; `None` before [`Self::connect`], and when the database is gone.
    pub fn get(&self) -> Option<Arc<dyn Background>> {
        self.0.get()?.upgrade()
    }

    /// [`Background::wake`], if there is background work.
    pub fn wake(&self) {
        if let Some(background) = self.get() {
            background.wake();
        }
    }

    /// [`Background::run_inline`], if there is background work.
    pub fn run_inline(&self) {
        if let Some(background) = self.get() {
            background.run_inline();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn a_wait_is_over_when_nothing_has_moved_for_the_bound() {
        let mut watch = ProgressWatch::new(7, 1_000, Duration::from_millis(10));
        assert!(watch.check(7, 10_999).is_ok());
        assert!(watch.check(8, 10_999).is_ok(), "progress");
        assert!(watch.check(8, 20_998).is_ok());
        let over = watch.check(8, 20_999).expect_err("ten milliseconds later");
        assert_eq!((over.kind(), over.context().contains("10 ms")), (ErrorKind::Stalled, true), "{over}");
        assert!(watch.check(9, 99_000).is_ok(), "it can be waited for again");
        assert!(ProgressWatch::new(7, 0, Duration::ZERO).check(7, u64::MAX).is_ok(), "for ever");
    }

    #[test]
    fn a_waiter_gives_up_after_failures_of_its_own_time() {
        let mut failures = Failures::default();
        for number in 0..WAITER_FAILURES_MAX {
            assert!(!failures.should_give_up(0, WAITER_FAILURES_MAX), "after {number} failures");
            failures.add_next(Error::new(ErrorKind::Io, "broken"));
        }
        assert!(failures.should_give_up(0, WAITER_FAILURES_MAX));
        let before = failures.last;
        assert!(!failures.should_give_up(before, WAITER_FAILURES_MAX), "none since it began to wait");
        failures.end();
        failures.add_next(Error::new(ErrorKind::Io, "broken again"));
        assert!(!failures.should_give_up(before, WAITER_FAILURES_MAX), "one since the success");
    }

    /// Background work that counts how often it is woken and run.
    #[derive(Default)]
    struct Counted {
        wakes: AtomicU32,
        runs: AtomicU32,
    }

    impl Background for Counted {
        fn wake(&self) {
            self.wakes.fetch_add(1, Ordering::Relaxed);
        }

        fn run_inline(&self) {
            self.runs.fetch_add(1, Ordering::Relaxed);
        }

        fn failures(&self, _work: Work) -> Failures {
            Failures::default()
        }

        fn retry(&self) {}

        fn wait_for_progress(&self, _look: &mut dyn FnMut(FailuresNow<'_>) -> Option<Duration>) {}

        fn wait_for_flushes(&self, _done: &dyn Fn() -> bool) -> Result<()> {
            Ok(())
        }

        fn forget(&self, _keyspace: KeyspaceId) {}
    }

    #[test]
    fn a_connection_wakes_and_runs_background_work_while_it_lives() {
        let (link, counted) = (BackgroundLink::default(), Arc::new(Counted::default()));
        let weak: Weak<Counted> = Arc::downgrade(&counted);
        link.connect(weak);
        let counts = || (counted.wakes.load(Ordering::Relaxed), counted.runs.load(Ordering::Relaxed));
        link.wake();
        assert_eq!(counts(), (1, 0));
        link.run_inline();
        assert_eq!(counts(), (1, 1));
        drop(counted);
        assert!(link.get().is_none());
        link.wake();
    }

    #[test]
    fn without_background_work_a_wake_up_has_no_effect() {
        let link = BackgroundLink::default();
        link.wake();
        link.run_inline();
        assert!(link.get().is_none());
    }
}
