//! Back-pressure: when a write is slowed down, stalled, or refused.
//!
//! [`pressure`] is a pure function of the backlog and its limits. [`Core::make_room`] acts on it
//! before a write joins a commit group. Between the soft and the hard limit of level 0 a write is
//! delayed for each of its bytes. At the hard limit it stalls, and fails with `Stalled` when the
//! caller's deadline passes. Reads never wait.
//!
//! A writer that waits for a flush or a compaction that fails three times in a row gets the error
//! with its cause. The background threads go on trying, so writes resume without a reopen.
//!
//! The delays accumulate, and a writer sleeps once they reach a millisecond. A thread that asks for
//! less sleeps longer than it asked for: one short sleep per write would slow writers in steps of
//! 50 microseconds and more, whatever the intended delay.

use std::time::Duration;

use crate::background::WAITER_FAILURES_MAX;
use crate::core::{BackgroundState, Core, Work};
use crate::error::{Error, ErrorKind, Result};
use crate::event::Event;
use crate::metrics::WorkCounters;
use shamba_env::lock;

/// Work that has not been done yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Backlog {
    /// Sealed memtables not yet flushed.
    pub immutables: u32,
    /// Level-0 runs of the keyspace that has most of them.
    pub l0_runs: u32,
}

/// Limits of the backlog.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub immutables: u32,
    pub l0_slowdown_runs: u32,
    pub l0_stop_runs: u32,
}

/// The reason that a writer gets which waits for `work`.
fn reason(work: Work) -> &'static str {
    match work {
        Work::Flush => "flushes of sealed memtables are behind",
        Work::Merge => "level 0 is full",
    }
}

/// The effect of the backlog on a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pressure {
    /// Go on.
    None,
    /// Go on, with a delay for each byte.
    Slow { ns_per_byte: u16 },
    /// Wait until some of this work is done.
    Stop(Work),
}

/// Delay per byte halfway between the soft and the hard limit: a write of 100 bytes is delayed by 2
/// us.
const NS_PER_BYTE: u32 = 10;
/// Bytes that are added to the length of each write when its delay is computed.
const WRITE_BYTES: u64 = 64;
/// Longest single sleep, for a large batch.
const SLEEP_US_MAX: u64 = 100_000;

/// The back-pressure for `backlog`: a stop at a hard limit. Between the soft and the hard limit of
/// level 0 the delay per byte grows without bound toward the hard limit, so that writes slow down
/// to the throughput of compaction before they stall.
pub(crate) fn pressure(backlog: Backlog, limits: Limits) -> Pressure {
    if backlog.immutables >= limits.immutables {
        return Pressure::Stop(Work::Flush);
    }
    if backlog.l0_runs >= limits.l0_stop_runs {
        return Pressure::Stop(Work::Merge);
    }
    if backlog.l0_runs <= limits.l0_slowdown_runs {
        return Pressure::None;
    }
    let over = backlog.l0_runs - limits.l0_slowdown_runs;
    let left = limits.l0_stop_runs - backlog.l0_runs;
    let ns_per_byte = (NS_PER_BYTE.saturating_mul(over) / left).max(1);
    Pressure::Slow { ns_per_byte: u16::try_from(ns_per_byte).unwrap_or(u16::MAX) }
}

impl Core {
    fn backlog(&self, state: &BackgroundState) -> Backlog {
        let keyspaces = self.catalog.keyspaces();
        let runs = keyspaces.values().map(|keyspace| keyspace.load().version.level(0).len()).max();
        Backlog { immutables: state.immutables.len() as u32, l0_runs: runs.unwrap_or(0) as u32 }
    }

    fn limits(&self) -> Limits {
        let (merges, l0) = (self.settings.auto_compaction, self.settings.l0());
        Limits {
            immutables: self.settings.immutable_memtables,
            // Without automatic compaction nothing drains level 0: its size is then the caller's
            // choice.
            l0_slowdown_runs: if merges { l0.soft_runs } else { u32::MAX },
            l0_stop_runs: if merges { l0.hard_runs } else { u32::MAX },
        }
    }

    /// Waits until a write of `bytes` may go on.
    ///
    /// # Errors
    /// - `Stalled` after the deadline.
    /// - `NoSpace` when the flush or compaction that it waits for fails for lack of space, and no
    ///   deadline was set or it has passed.
    /// - The error of that flush or compaction after [`WAITER_FAILURES_MAX`] failures in a row, the
    ///   last of them while this write waited.
    /// - `ReadOnly` or `Closed` when the database became so while the write waited.
    pub fn make_room(&self, bytes: usize, deadline_ms: Option<u64>) -> Result<()> {
        let room = &self.background.room;
        if let Some(ns_per_byte) = room.ns_per_byte() {
            if ns_per_byte > 0 {
                self.slow_down(ns_per_byte, bytes, deadline_ms);
            }
            return Ok(());
        }
        let changes = room.changes();
        let mut state = lock(&self.background.state);
        match pressure(self.backlog(&state), self.limits()) {
            Pressure::None => {
                room.set_ns_per_byte(changes, 0);
                return Ok(());
            }
            Pressure::Slow { ns_per_byte } => {
                room.set_ns_per_byte(changes, ns_per_byte);
                drop(state);
                self.slow_down(u64::from(ns_per_byte), bytes, deadline_ms);
                return Ok(());
            }
            Pressure::Stop(work) => {
                drop(state); // A listener may ask for statistics, which take this lock.
                WorkCounters::add(&self.telemetry.work().stalls, 1);
                self.telemetry.emit(&Event::StallBegin { reason: reason(work).into() });
                state = lock(&self.background.state);
                let trouble = state.trouble(work, self.is_inline());
                let is_full = trouble.error.as_ref().is_some_and(|cause| cause.kind() == ErrorKind::NoSpace);
                if trouble.failures >= WAITER_FAILURES_MAX && !is_full {
                    // The work is tried again at once: the writer gets the result of that try,
                    // without the back-off before it. Not on a full disk: there writes need not
                    // wait for a try, and each one would start another.
                    self.background.wake.notify_all();
                }
            }
        }
        let failures_before = (state.flush_failures.failures_total, state.compaction_failures.failures_total);
        let begin_us = self.env.clock.now_us();
        let deadline_us = deadline_ms.map(|ms| begin_us.saturating_add(ms.saturating_mul(1_000)));
        let outcome = loop {
            if self.is_inline() {
                // No thread will do the work: try it once more here, then return the reason.
                drop(state);
                self.run_background_inline();
                state = lock(&self.background.state);
            }
            if let Err(error) = self.lifecycle.check_writable() {
                break Err(error);
            }
            let Pressure::Stop(work) = pressure(self.backlog(&state), self.limits()) else {
                break Ok(());
            };
            let failures_before = match work {
                Work::Flush => failures_before.0,
                Work::Merge => failures_before.1,
            };
            let (reason, trouble) = (reason(work), state.trouble(work, self.is_inline()));
            let gives_up = self.is_inline() || trouble.should_give_up(failures_before, WAITER_FAILURES_MAX);
            let now_us = self.env.clock.now_us();
            let over = deadline_us.is_some_and(|deadline_us| now_us >= deadline_us);
            let is_full = |cause: &Error| cause.kind() == ErrorKind::NoSpace;
            match trouble.error.clone() {
                Some(cause) if is_full(&cause) && (over || deadline_us.is_none()) => {
                    break Err(Error::with_source(ErrorKind::NoSpace, "no space for the write", cause));
                }
                // On a full disk a writer with a deadline waits until the deadline.
                Some(cause) if gives_up && (self.is_inline() || !is_full(&cause)) => {
                    break Err(Error::with_source(
                        cause.kind(),
                        format!("the write cannot continue: {reason}"),
                        cause,
                    ));
                }
                cause if over => {
                    let waited = format!("waited {} ms: {reason}", (now_us - begin_us) / 1_000);
                    break Err(match cause {
                        Some(cause) => Error::with_source(ErrorKind::Stalled, waited, cause),
                        None => Error::new(ErrorKind::Stalled, waited),
                    });
                }
                _ if self.is_inline() => break Err(Error::new(ErrorKind::Stalled, reason)),
                _ => {}
            }
            // Progress wakes the writer; the time-out is for the deadline and for a lost wake-up.
            let wait_us =
                deadline_us.map_or(100_000, |deadline_us| (deadline_us - now_us).clamp(100, 100_000));
            let waited = self.background.progress.wait_timeout(state, Duration::from_micros(wait_us));
            state = waited.map_or_else(|poison| poison.into_inner().0, |(state, _)| state);
        };
        drop(state);
        let duration_us = self.env.clock.now_us().saturating_sub(begin_us);
        WorkCounters::add(&self.telemetry.work().stall_us, duration_us);
        self.telemetry.emit(&Event::StallEnd { duration_us });
        outcome
    }

    /// Delays a write by `ns_per_byte` for each of its bytes. Sleeps only when the accumulated
    /// delay is long enough, and not beyond the deadline.
    fn slow_down(&self, ns_per_byte: u64, bytes: usize, deadline_ms: Option<u64>) {
        let owed_us = self.background.room.owe(ns_per_byte.saturating_mul(bytes as u64 + WRITE_BYTES));
        let most_us = deadline_ms.map_or(SLEEP_US_MAX, |ms| ms.saturating_mul(1_000).min(SLEEP_US_MAX));
        let us = owed_us.min(most_us);
        if us > 0 {
            WorkCounters::add(&self.telemetry.work().stalls, 1);
            WorkCounters::add(&self.telemetry.work().stall_us, us);
            if !self.is_inline() {
                self.env.clock.sleep_us(us);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { immutables: 2, l0_slowdown_runs: 4, l0_stop_runs: 8 };

    #[test]
    fn pressure_rises_from_nothing_over_a_price_to_a_stop() {
        let at = |immutables, l0_runs| pressure(Backlog { immutables, l0_runs }, LIMITS);
        assert_eq!(at(0, 4), Pressure::None);
        let mut last = 0;
        for runs in 5..8 {
            let Pressure::Slow { ns_per_byte } = at(1, runs) else { panic!("a price at {runs} runs") };
            assert!(ns_per_byte > last);
            last = ns_per_byte;
        }
        assert_eq!(at(0, 8), Pressure::Stop(Work::Merge));
        assert_eq!(at(2, 0), Pressure::Stop(Work::Flush));
        let wide = Limits { l0_slowdown_runs: 1, l0_stop_runs: u32::MAX, ..LIMITS };
        let at = |l0_runs| pressure(Backlog { immutables: 0, l0_runs }, wide);
        assert_eq!(at(2), Pressure::Slow { ns_per_byte: 1 });
        assert_eq!(at(u32::MAX - 1), Pressure::Slow { ns_per_byte: u16::MAX });
    }
}
