//! Lifecycle: whether the database can be used and written to.
//!
//! A database is open until it is closed. A failure after which the disk's contents are unknown
//! turns writes off until the next open; the first such failure is kept as the cause. Reads go on.
//!
//! Invariant: `closed` and `has_failed` only ever change from false to true.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crate::error::{Error, ErrorKind, Result};
use crate::event::Event;
use crate::lock_order;
use crate::ranked::Ranked;
use crate::telemetry::Telemetry;

/// Called after writes were turned off, without a lock.
type FailureHook = Box<dyn Fn() + Send + Sync>;

/// The state of a database between its open and its close.
pub(crate) struct Lifecycle {
    read_only: bool,
    /// Shared with the keyspaces, whose handles check it.
    closed: Arc<AtomicBool>,
    has_failed: AtomicBool,
    /// The cause that turned writes off. Set once, together with `has_failed`.
    failure: Ranked<Option<Error>>,
    on_failure: OnceLock<FailureHook>,
    telemetry: Arc<Telemetry>,
}

impl Lifecycle {
    /// A database that has just been opened.
    pub fn new(read_only: bool, telemetry: Arc<Telemetry>) -> Self {
        Self {
            read_only,
            closed: Arc::default(),
            has_failed: AtomicBool::new(false),
            failure: Ranked::new(lock_order::FAILURE, None),
            on_failure: OnceLock::new(),
            telemetry,
        }
    }

    /// Sets what is called after writes were turned off; later calls have no effect.
    pub fn on_failure(&self, hook: FailureHook) {
        let _ = self.on_failure.set(hook);
    }

    /// Whether the database was opened read-only.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// The flag that is set once the database is closed.
    pub fn closed_flag(&self) -> &Arc<AtomicBool> {
        &self.closed
    }

    /// Whether the database is closed.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Marks the database closed; false if it was closed already.
    pub fn close(&self) -> bool {
        !self.closed.swap(true, Ordering::AcqRel)
    }

    /// Whether the database is open.
    ///
    /// # Errors
    /// `Closed`.
    pub fn check_open(&self) -> Result<()> {
        if self.is_closed() { Err(Error::closed()) } else { Ok(()) }
    }

    /// Whether the database can be written to.
    ///
    /// # Errors
    /// `Closed`; `ReadOnly` if it was opened so, or after a failure, with its cause.
    pub fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        if self.read_only {
            return Err(Error::new(ErrorKind::ReadOnly, "the database was opened read-only"));
        }
        if !self.has_failed.load(Ordering::Acquire) {
            return Ok(());
        }
        let cause = self.failure();
        debug_assert!(cause.is_some(), "writes are off without a cause");
        let cause = cause.unwrap_or_else(Error::closed);
        Err(Error::with_source(
            ErrorKind::ReadOnly,
            "writes are off after a failure; reopen the database",
            cause,
        ))
    }

    /// Whether a failure has turned writes off.
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }

    /// # Errors
    /// The failure that turned writes off.
    pub fn check_not_failed(&self) -> Result<()> {
        self.failure().map_or(Ok(()), Err)
    }

    /// The failure that turned writes off.
    pub fn failure(&self) -> Option<Error> {
        self.failure.lock().clone()
    }

    /// Turns writes off until the database is opened again. The first cause is kept.
    pub fn fail(&self, cause: &Error) {
        let is_first = {
            let mut failure = self.failure.lock();
            let is_first = failure.is_none();
            failure.get_or_insert_with(|| cause.clone());
            self.has_failed.store(true, Ordering::Release);
            is_first
        };
        if is_first {
            let text = format!("writes are off until reopen: {}", cause.chain());
            self.telemetry.emit(Event::BackgroundError(text));
        }
        if let Some(hook) = self.on_failure.get() {
            hook();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::AtomicU32;

    use shamba_env::{Env, MemFs};

    use super::*;
    use crate::telemetry::Observers;

    fn lifecycle(read_only: bool) -> Lifecycle {
        let env = Env::deterministic(Arc::new(MemFs::new()), 1);
        let observers = Observers { listener: None, info_log: false, times_lookups: false };
        Lifecycle::new(read_only, Arc::new(Telemetry::new(&env, Path::new("/"), observers, 1)))
    }

    fn refusal(lifecycle: &Lifecycle) -> Option<ErrorKind> {
        lifecycle.check_writable().err().map(|error| error.kind())
    }

    #[test]
    fn the_first_failure_turns_writes_off_and_is_the_cause() {
        let lifecycle = lifecycle(false);
        let calls = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&calls);
        lifecycle.on_failure(Box::new(move || _ = counted.fetch_add(1, Ordering::Relaxed)));
        assert_eq!(refusal(&lifecycle), None);
        lifecycle.fail(&Error::new(ErrorKind::Io, "the first"));
        lifecycle.fail(&Error::new(ErrorKind::NoSpace, "the second"));
        assert_eq!(refusal(&lifecycle), Some(ErrorKind::ReadOnly));
        assert_eq!(lifecycle.failure().map(|error| error.kind()), Some(ErrorKind::Io));
        assert_eq!(calls.load(Ordering::Relaxed), 2, "waiters look again after each");
        assert!(lifecycle.check_open().is_ok(), "reads go on");
    }

    #[test]
    fn a_database_closes_once() {
        let lifecycle = lifecycle(true);
        assert_eq!(refusal(&lifecycle), Some(ErrorKind::ReadOnly));
        assert!(lifecycle.close() && !lifecycle.close());
        assert_eq!(refusal(&lifecycle), Some(ErrorKind::Closed));
    }
}
