//! Back-pressure: when a write is slowed, stopped, or refused.
//!
//! [`pressure`] is a pure function of what waits; [`Core::make_room`] acts on it before a write joins a
//! commit group: a short sleep between the soft and the hard limit of level 0, a wait above it, and
//! `Stalled` when the caller's deadline passes. Reads never wait.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::core::{BackgroundState, Core, lock};
use crate::error::{Error, ErrorKind, Result};
use crate::event::Event;
use crate::metrics::WorkCounters;

/// What waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Backlog {
    /// Sealed memtables not yet flushed.
    pub immutables: u32,
    /// Runs in the fullest level 0.
    pub inbox_runs: u32,
}

/// What may wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub immutables: u32,
    pub inbox_soft_runs: u32,
    pub inbox_hard_runs: u32,
}

/// Remembers that nothing waits, so that a write in good weather looks at one number and takes no lock.
///
/// Whatever may raise the pressure calls [`Room::changed`] afterwards: a memtable was sealed, a version
/// installed.
#[derive(Default)]
pub(crate) struct Room {
    /// Counts the changes.
    changes: AtomicU64,
    /// The count at which a writer found no pressure, plus one.
    free_at: AtomicU64,
}

impl Room {
    /// Something that the pressure depends on is another now.
    pub fn changed(&self) {
        self.changes.fetch_add(1, Ordering::Release);
    }

    fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    fn is_free(&self) -> bool {
        self.free_at.load(Ordering::Relaxed) == self.changes().wrapping_add(1)
    }

    /// There was no pressure by what was seen after `changes` was read.
    fn set_free(&self, changes: u64) {
        self.free_at.store(changes.wrapping_add(1), Ordering::Relaxed);
    }
}

/// What a writer should do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pressure {
    /// Go on.
    None,
    /// Sleep this long first.
    Delay { us: u64 },
    /// Wait until something is done.
    Stop { reason: &'static str },
}

/// The longest delay of one write between the soft and the hard limit.
const DELAY_US_MAX: u64 = 1_000;

/// What `backlog` means for a writer: stop at a hard limit; between soft and hard a delay that doubles with
/// each run, so that writers slow down smoothly instead of hitting a wall.
pub(crate) fn pressure(backlog: Backlog, limits: Limits) -> Pressure {
    if backlog.immutables >= limits.immutables {
        return Pressure::Stop { reason: "sealed memtables wait for their flush" };
    }
    if backlog.inbox_runs >= limits.inbox_hard_runs {
        return Pressure::Stop { reason: "level 0 is full" };
    }
    if backlog.inbox_runs <= limits.inbox_soft_runs {
        return Pressure::None;
    }
    let over = backlog.inbox_runs - limits.inbox_soft_runs;
    let span = (limits.inbox_hard_runs - limits.inbox_soft_runs).min(10);
    Pressure::Delay { us: DELAY_US_MAX >> span.saturating_sub(over) }
}

impl Core {
    fn backlog(&self, state: &BackgroundState) -> Backlog {
        let keyspaces = self.keyspaces.load();
        let runs = keyspaces.values().map(|keyspace| keyspace.load().version.level(0).len()).max();
        Backlog { immutables: state.immutables.len() as u32, inbox_runs: runs.unwrap_or(0) as u32 }
    }

    fn limits(&self) -> Limits {
        let (merges, inbox) = (self.settings.auto_compaction, self.settings.inbox());
        Limits {
            immutables: self.settings.immutable_memtables,
            // Without merges level 0 has no way to drain: its size is then the caller's choice.
            inbox_soft_runs: if merges { inbox.soft_runs } else { u32::MAX },
            inbox_hard_runs: if merges { inbox.hard_runs } else { u32::MAX },
        }
    }

    /// Waits until a write may go on.
    ///
    /// # Errors
    /// `Stalled` after the deadline; `NoSpace` when flushes fail for lack of space and no deadline was set or
    /// it has passed; `ReadOnly` or `Closed` when the database became so while waiting.
    pub fn make_room(&self, deadline_ms: Option<u64>) -> Result<()> {
        if self.background.room.is_free() {
            return Ok(());
        }
        let changes = self.background.room.changes();
        let mut state = lock(&self.background.state);
        match pressure(self.backlog(&state), self.limits()) {
            Pressure::None => {
                self.background.room.set_free(changes);
                return Ok(());
            }
            Pressure::Delay { us } => {
                drop(state);
                WorkCounters::add(&self.work.stalls, 1);
                WorkCounters::add(&self.work.stall_us, us);
                if !self.is_inline() {
                    self.env.clock.sleep_us(us);
                }
                return Ok(());
            }
            Pressure::Stop { reason } => {
                drop(state); // A listener may ask for statistics, which take this lock.
                WorkCounters::add(&self.work.stalls, 1);
                self.events.emit(&Event::StallBegin { reason: reason.into() });
                state = lock(&self.background.state);
            }
        }
        let begin_us = self.env.clock.now_us();
        let deadline_us = deadline_ms.map(|ms| begin_us.saturating_add(ms.saturating_mul(1_000)));
        let outcome = loop {
            if self.is_inline() {
                // No thread will ever make room: try once more here, then say why not.
                drop(state);
                self.run_background_inline();
                state = lock(&self.background.state);
            }
            if let Err(error) = self.check_writable() {
                break Err(error);
            }
            let Pressure::Stop { reason } = pressure(self.backlog(&state), self.limits()) else {
                break Ok(());
            };
            let failed = state.flush_error.clone().or_else(|| state.merge_error.clone());
            let now_us = self.env.clock.now_us();
            let over = deadline_us.is_some_and(|deadline_us| now_us >= deadline_us);
            match failed {
                Some(cause) if cause.kind() == ErrorKind::NoSpace && (over || deadline_us.is_none()) => {
                    break Err(Error::with_source(ErrorKind::NoSpace, "no room for the write", cause));
                }
                Some(cause) if self.is_inline() => {
                    break Err(Error::with_source(
                        cause.kind(),
                        format!("the write cannot go on: {reason}"),
                        cause,
                    ));
                }
                _ if over => {
                    let waited_ms = (now_us - begin_us) / 1_000;
                    break Err(Error::new(ErrorKind::Stalled, format!("waited {waited_ms} ms: {reason}")));
                }
                _ if self.is_inline() => break Err(Error::new(ErrorKind::Stalled, reason)),
                _ => {}
            }
            // Woken by progress; the time-out is for the deadline and for a lost wake-up.
            let wait_us =
                deadline_us.map_or(100_000, |deadline_us| (deadline_us - now_us).clamp(100, 100_000));
            let waited = self.background.progress.wait_timeout(state, Duration::from_micros(wait_us));
            state = waited.map_or_else(|poison| poison.into_inner().0, |(state, _)| state);
        };
        drop(state);
        let duration_us = self.env.clock.now_us().saturating_sub(begin_us);
        WorkCounters::add(&self.work.stall_us, duration_us);
        self.events.emit(&Event::StallEnd { duration_us });
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { immutables: 2, inbox_soft_runs: 4, inbox_hard_runs: 8 };

    #[test]
    fn pressure_rises_from_nothing_over_delays_to_a_stop() {
        let at = |immutables, inbox_runs| pressure(Backlog { immutables, inbox_runs }, LIMITS);
        assert_eq!(at(0, 4), Pressure::None);
        let mut last = 0;
        for runs in 5..8 {
            let Pressure::Delay { us } = at(1, runs) else { panic!("a delay at {runs} runs") };
            assert!(us > last && us <= DELAY_US_MAX);
            last = us;
        }
        assert!(matches!(at(0, 8), Pressure::Stop { .. }));
        assert!(matches!(at(2, 0), Pressure::Stop { .. }));
    }

    #[test]
    fn room_is_free_until_something_changes_also_while_a_writer_looks() {
        let room = Room::default();
        assert!(!room.is_free(), "nobody has looked yet");
        let changes = room.changes();
        room.set_free(changes);
        assert!(room.is_free());
        room.changed();
        assert!(!room.is_free());
        let changes = room.changes();
        room.changed();
        room.set_free(changes);
        assert!(!room.is_free(), "it changed after the writer began to look");
    }
}
