//! Telemetry: what happened, how often, and how long it took.
//!
//! [`Telemetry`] owns the counters of lookups and of background work, the timer of lookups, the
//! warnings, and the way of events to the listener and the info log. Every other part may use it;
//! it uses none. Its locks are leaves. Where an event may happen under a lock, the events of the
//! thread are held before that lock is taken ([`hold_events`]).

mod events;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use shamba_env::Env;
use shamba_tree::counters::LookupCounters;
use shamba_tree::lookup::timer::Timer;

use self::events::Events;
pub(crate) use self::events::{call_unlocked, hold_events};
use crate::error::{Error, ErrorKind};
use crate::event::{Event, EventListener};
use crate::lock_order;
use crate::metrics::WorkCounters;
use crate::ranked::Ranked;

/// Maximum number of different warnings that are remembered; a listener gets all of them.
const WARNINGS_MAX: usize = 1_000;

/// Counters, timers, warnings and events of an open database.
pub(crate) struct Telemetry {
    lookups: LookupCounters,
    work: WorkCounters,
    events: Events,
    warnings: Ranked<Vec<String>>,
    times_lookups: AtomicBool,
    timer: Timer,
}

/// How a database is observed from the outside.
pub(crate) struct Observers {
    /// Receives every event.
    pub listener: Option<Arc<dyn EventListener>>,
    /// Whether events are written to the info log.
    pub info_log: bool,
    /// Whether the phases of lookups are timed.
    pub times_lookups: bool,
}

impl Telemetry {
    /// The telemetry of the database in `dir`. `seed` chooses the lookups that are sampled.
    pub fn new(env: &Env, dir: &Path, observers: Observers, seed: u64) -> Self {
        let Observers { listener, info_log, times_lookups } = observers;
        Self {
            lookups: LookupCounters::new(seed),
            work: WorkCounters::default(),
            events: Events::new(env, dir, listener, info_log),
            warnings: Ranked::new(lock_order::WARNINGS, Vec::new()),
            times_lookups: AtomicBool::new(times_lookups),
            timer: Timer::new(Arc::clone(&env.clock)),
        }
    }

    /// The counters of lookups.
    pub fn lookups(&self) -> &LookupCounters {
        &self.lookups
    }

    /// The counters of writes and of background work.
    pub fn work(&self) -> &WorkCounters {
        &self.work
    }

    /// Passes an event to the listener and the info log.
    pub fn emit(&self, event: Event) {
        self.events.emit(event);
    }

    /// Reports a problem that affects no answer, and remembers it.
    pub fn warn(&self, text: String) {
        {
            let mut warnings = self.warnings.lock();
            if warnings.len() < WARNINGS_MAX && !warnings.contains(&text) {
                warnings.push(text.clone());
            }
        }
        self.emit(Event::Warning(text));
    }

    /// The remembered warnings, each once.
    pub fn warnings(&self) -> Vec<String> {
        self.warnings.lock().clone()
    }

    /// Reports and counts an error of background work. Work that a close has interrupted has not
    /// failed: the log still has its entries.
    pub fn background_error(&self, what: &str, error: &Error) {
        if error.kind() == ErrorKind::Closed {
            return;
        }
        WorkCounters::add(&self.work.background_errors, 1);
        self.emit(Event::BackgroundError(format!("{what}: {}", error.chain())));
    }

    /// Turns the timing of the phases of lookups on or off.
    pub fn set_timers(&self, on: bool) {
        self.times_lookups.store(on, Ordering::Relaxed);
    }

    /// Whether the phases of lookups are timed.
    #[inline]
    pub fn times_lookups(&self) -> bool {
        self.times_lookups.load(Ordering::Relaxed)
    }

    /// The timer of lookups.
    #[inline]
    pub fn timer(&self) -> &Timer {
        &self.timer
    }
}

#[cfg(test)]
mod tests {
    use shamba_env::MemFs;

    use super::*;

    fn telemetry() -> Telemetry {
        let env = Env::deterministic(Arc::new(MemFs::new()), 1);
        let observers = Observers { listener: None, info_log: false, times_lookups: false };
        Telemetry::new(&env, Path::new("/"), observers, 1)
    }

    #[test]
    fn a_warning_is_remembered_once_and_their_number_is_bounded() {
        let telemetry = telemetry();
        for number in 0..2 * WARNINGS_MAX {
            telemetry.warn(format!("warning {number}"));
            telemetry.warn("warning 0".into());
        }
        let warnings = telemetry.warnings();
        assert_eq!(warnings.len(), WARNINGS_MAX);
        assert_eq!(warnings.iter().filter(|text| *text == "warning 0").count(), 1);
    }

    #[test]
    fn work_that_a_close_interrupted_is_no_error() {
        let telemetry = telemetry();
        telemetry.background_error("flush", &Error::closed());
        assert_eq!(telemetry.work().background_errors.load(Ordering::Relaxed), 0);
        telemetry.background_error("flush", &Error::invalid("broken"));
        assert_eq!(telemetry.work().background_errors.load(Ordering::Relaxed), 1);
    }
}
