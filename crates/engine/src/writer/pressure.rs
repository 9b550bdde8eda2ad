//! Back-pressure: when a write is slowed down, stalled, or refused.
//!
//! [`pressure`] is a pure function of the backlog and its limits. [`BackPressure::admit`] acts on
//! it before a write joins a commit group. Between the soft and the hard limit of level 0, and of
//! sealed memtables, a write is delayed for each of its bytes. At a hard limit it stalls, and fails
//! with `Stalled` when the caller's deadline passes. Reads never wait.
//!
//! A writer that waits for a flush or a compaction that fails three times in a row gets the error
//! with its cause. The background threads go on trying, so writes resume without a reopen. Without
//! a deadline it gets `Stalled` when no background work has made progress for `wait-timeout`.
//!
//! The delays accumulate, and a writer sleeps once they reach a millisecond. A thread that asks for
//! less sleeps longer than it asked for: one short sleep per write would slow writers in steps of
//! 50 microseconds and more, whatever the intended delay.

use std::sync::Arc;
use std::time::Duration;

use shamba_env::{Clock, Env};
use shamba_key::KeyspaceId;

use super::progress::{Background, BackgroundLink, Failures, ProgressWatch, WAITER_FAILURES_MAX, Work};
use super::room::Room;
use super::sealed::SealedGenerations;
use crate::catalog::Catalog;
use crate::error::{Error, ErrorKind, Result};
use crate::event::Event;
use crate::lifecycle::Lifecycle;
use crate::metrics::WorkCounters;
use crate::options::settings::Settings;
use crate::telemetry::Telemetry;

/// Work that has not been done yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Backlog {
    /// Sealed memtables not yet flushed.
    pub immutables: u32,
    /// Level-0 runs of the keyspace that has most of them, of those that compactions may run in.
    pub l0_runs: u32,
    /// That keyspace.
    pub fullest: Option<KeyspaceId>,
}

/// Limits of the backlog.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub immutables: u32,
    /// Delay per byte while writes stop at the next sealed memtable.
    pub last_memtable_ns_per_byte: u32,
    pub l0_slowdown_runs: u32,
    pub l0_stop_runs: u32,
}

/// The reason that a writer gets which waits for `work`.
fn reason(work: Work) -> &'static str {
    match work {
        Work::Flush => "flushes of sealed memtables are behind",
        Work::Merge(_) => "level 0 is full",
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

/// Time that one writer takes to fill the last memtable before writes stop. While compactions run,
/// a flush of a memtable of 4 MiB takes 50 to 110 ms, and one in twenty 200 to 300 ms.
const LAST_MEMTABLE_NS: u64 = 200_000_000;
/// Smaller memtables are treated as one of this size: their flush takes as long, and a write is not
/// to be delayed for many times that.
const LAST_MEMTABLE_BYTES_MIN: u64 = 1 << 20;
/// Delay per byte halfway between the soft and the hard limit of level 0: a write of 100 bytes is
/// delayed by 2 us.
const NS_PER_BYTE: u32 = 10;
/// Bytes that are added to the length of each write when its delay is computed.
const WRITE_BYTES: u64 = 64;
/// Longest single sleep, for a large batch.
const SLEEP_US_MAX: u64 = 100_000;
/// A stalled write looks again after this long, or earlier for its deadline,
const WAIT_US_MAX: u64 = 100_000;
/// but not before this long.
const WAIT_US_MIN: u64 = 100;

/// The back-pressure for `backlog`: a stop at a hard limit. Between the soft and the hard limit of
/// level 0 the delay per byte grows without bound toward the hard limit, so that writes slow down
/// to the throughput of compactions before they stall. Before the last memtable it is constant; a
/// single sealed memtable, which is being flushed, never slows writes down.
pub(crate) fn pressure(backlog: Backlog, limits: Limits) -> Pressure {
    if backlog.immutables >= limits.immutables {
        return Pressure::Stop(Work::Flush);
    }
    if backlog.l0_runs >= limits.l0_stop_runs {
        return Pressure::Stop(Work::Merge(backlog.fullest));
    }
    let is_last = backlog.immutables > 1 && backlog.immutables + 1 == limits.immutables;
    let flushes = if is_last { limits.last_memtable_ns_per_byte } else { 0 };
    let merges = delay((backlog.l0_runs, limits.l0_slowdown_runs, limits.l0_stop_runs), NS_PER_BYTE);
    match merges.max(u16::try_from(flushes).unwrap_or(u16::MAX)) {
        0 => Pressure::None,
        ns_per_byte => Pressure::Slow { ns_per_byte },
    }
}

/// The delay per byte for a backlog that is below its hard limit; 0 up to the soft limit, and
/// `half_ns_per_byte` halfway between the two.
fn delay((backlog, soft, hard): (u32, u32, u32), half_ns_per_byte: u32) -> u16 {
    debug_assert!(backlog < hard, "a write is slowed down that should stop");
    let over = backlog.saturating_sub(soft);
    let left = hard.saturating_sub(backlog).max(1);
    let ns_per_byte = half_ns_per_byte.saturating_mul(over) / left;
    u16::try_from(ns_per_byte.max(u32::from(over > 0))).unwrap_or(u16::MAX)
}

/// The back-pressure of a database: applied to each write before it joins a commit group.
pub(super) struct BackPressure {
    room: Room,
    settings: Arc<Settings>,
    clock: Arc<dyn Clock>,
    /// Whether background work runs on the caller's thread.
    is_inline: bool,
    catalog: Arc<Catalog>,
    sealed: Arc<SealedGenerations>,
    background: Arc<BackgroundLink>,
    lifecycle: Arc<Lifecycle>,
    telemetry: Arc<Telemetry>,
}

/// A write that waits at a hard limit.
struct Waiter {
    begin_us: u64,
    deadline_us: Option<u64>,
    /// Numbers of the last failures of flushes and of compactions before the wait.
    last_before: (u32, u32),
    /// The progress since then.
    watch: ProgressWatch,
}

fn is_full(cause: &Error) -> bool {
    cause.kind() == ErrorKind::NoSpace
}

impl BackPressure {
    /// The back-pressure by the generations in `sealed` and by level 0 of the trees in `catalog`.
    pub fn new(
        env: &Env,
        settings: Arc<Settings>,
        catalog: Arc<Catalog>,
        (sealed, background): (Arc<SealedGenerations>, Arc<BackgroundLink>),
        (lifecycle, telemetry): (Arc<Lifecycle>, Arc<Telemetry>),
    ) -> Self {
        Self {
            room: Room::default(),
            settings,
            clock: Arc::clone(&env.clock),
            is_inline: env.spawner.is_inline(),
            catalog,
            sealed,
            background,
            lifecycle,
            telemetry,
        }
    }

    /// Notes that the backlog or its limits may have changed.
    pub fn changed(&self) {
        self.room.changed();
    }

    fn backlog(&self) -> Backlog {
        let keyspaces = self.catalog.keyspaces();
        // A keyspace that is not compacted into levels would slow writers down for ever.
        let compacted = keyspaces.values().filter(|keyspace| keyspace.has_levels());
        let runs = compacted.map(|keyspace| (keyspace.load().version.level(0).len(), keyspace.id));
        let fullest = runs.max_by_key(|(runs, _)| *runs);
        Backlog {
            immutables: self.sealed.len() as u32,
            l0_runs: fullest.map_or(0, |(runs, _)| runs) as u32,
            fullest: fullest.map(|(_, id)| id),
        }
    }

    fn limits(&self) -> Limits {
        let (merges, l0) = (self.settings.auto_compaction, self.settings.l0());
        let memtable_bytes = self.settings.memtable_bytes().max(LAST_MEMTABLE_BYTES_MIN);
        Limits {
            immutables: self.settings.immutable_memtables,
            // From 1 to 200.
            last_memtable_ns_per_byte: LAST_MEMTABLE_NS.div_ceil(memtable_bytes) as u32,
            // Without automatic compaction nothing drains level 0: its size is then the caller's
            // choice.
            l0_slowdown_runs: if merges { l0.soft_runs } else { u32::MAX },
            l0_stop_runs: if merges { l0.hard_runs } else { u32::MAX },
        }
    }

    /// Waits until a write of `bytes` may go on.
    ///
    /// # Errors
    /// - `Stalled` after the deadline; without one, when background work has made no progress for
    ///   `wait-timeout`.
    /// - `NoSpace` when the flush or compaction that it waits for fails for lack of space, and no
    ///   deadline was set or it has passed.
    /// - The error of that flush or compaction after [`WAITER_FAILURES_MAX`] failures in a row, the
    ///   last of them while this write waited.
    /// - `ReadOnly` or `Closed` when the database became so while the write waited.
    pub fn admit(&self, bytes: usize, deadline_ms: Option<u64>) -> Result<()> {
        if let Some(ns_per_byte) = self.room.ns_per_byte() {
            if ns_per_byte > 0 {
                self.slow_down(ns_per_byte, bytes, deadline_ms);
            }
            return Ok(());
        }
        let changes = self.room.changes();
        match pressure(self.backlog(), self.limits()) {
            Pressure::None => self.room.set_ns_per_byte(changes, 0),
            Pressure::Slow { ns_per_byte } => {
                self.room.set_ns_per_byte(changes, ns_per_byte);
                self.slow_down(u64::from(ns_per_byte), bytes, deadline_ms);
            }
            Pressure::Stop(work) => return self.stall(work, deadline_ms),
        }
        Ok(())
    }

    /// Waits at a hard limit, which `work` lowers.
    fn stall(&self, work: Work, deadline_ms: Option<u64>) -> Result<()> {
        let background = self.background.get().ok_or_else(Error::closed)?;
        WorkCounters::add(&self.telemetry.work().stalls, 1);
        self.telemetry.emit(Event::StallBegin { reason: reason(work).into() });
        let trouble = background.failures(work);
        if trouble.failures >= WAITER_FAILURES_MAX && !trouble.error.as_ref().is_some_and(is_full) {
            // The work is tried again at once: the writer gets the result of that try, without the
            // back-off before it. Not on a full disk: there writes need not wait for a try, and
            // each one would start another.
            background.retry();
        }
        let last_before = (background.last_failure(Work::Flush), background.last_failure(Work::Merge(None)));
        let begin_us = self.clock.now_us();
        let deadline_us = deadline_ms.map(|ms| begin_us.saturating_add(ms.saturating_mul(1_000)));
        let watch =
            ProgressWatch::new(self.telemetry.work().progress_mark(), begin_us, self.settings.wait_timeout);
        let mut waiter = Waiter { begin_us, deadline_us, last_before, watch };
        let outcome = self.wait(background.as_ref(), &mut waiter);
        let duration_us = self.clock.now_us().saturating_sub(begin_us);
        WorkCounters::add(&self.telemetry.work().stall_us, duration_us);
        self.telemetry.emit(Event::StallEnd { duration_us });
        outcome
    }

    fn wait(&self, background: &dyn Background, waiter: &mut Waiter) -> Result<()> {
        if self.is_inline {
            // No thread will do the work: it is tried once more here, then the reason is returned.
            background.run_inline();
        }
        let mut outcome = Ok(());
        background.wait_for_progress(&mut |failures| {
            let next = self.look(waiter, failures);
            next.unwrap_or_else(|error| {
                outcome = Err(error);
                None
            })
        });
        outcome
    }

    /// Whether the write can go on: `None` if so, otherwise the time until it must look again.
    fn look(&self, waiter: &mut Waiter, failures: &dyn Fn(Work) -> Failures) -> Result<Option<Duration>> {
        self.lifecycle.check_writable()?;
        let Pressure::Stop(work) = pressure(self.backlog(), self.limits()) else { return Ok(None) };
        let last_before = match work {
            Work::Flush => waiter.last_before.0,
            Work::Merge(_) => waiter.last_before.1,
        };
        let (reason, trouble) = (reason(work), failures(work));
        let gives_up = self.is_inline || trouble.should_give_up(last_before, WAITER_FAILURES_MAX);
        let now_us = self.clock.now_us();
        let over = waiter.deadline_us.is_some_and(|deadline_us| now_us >= deadline_us);
        match trouble.error {
            Some(cause) if is_full(&cause) && (over || waiter.deadline_us.is_none()) => {
                return Err(Error::with_source(ErrorKind::NoSpace, "no space for the write", cause));
            }
            // On a full disk a writer with a deadline waits until the deadline.
            Some(cause) if gives_up && (self.is_inline || !is_full(&cause)) => {
                let context = format!("the write cannot continue: {reason}");
                return Err(Error::with_source(cause.kind(), context, cause));
            }
            cause if over => {
                let waited_ms = now_us.saturating_sub(waiter.begin_us) / 1_000;
                let waited = format!("waited {waited_ms} ms: {reason}");
                return Err(match cause {
                    Some(cause) => Error::with_source(ErrorKind::Stalled, waited, cause),
                    None => Error::new(ErrorKind::Stalled, waited),
                });
            }
            _ if self.is_inline => return Err(Error::new(ErrorKind::Stalled, reason)),
            _ if waiter.deadline_us.is_none() => {
                waiter.watch.check(self.telemetry.work().progress_mark(), now_us)?;
            }
            _ => {}
        }
        // Progress wakes the writer; the time-out is for the deadline and for a lost wake-up.
        let wait_us = waiter.deadline_us.map_or(WAIT_US_MAX, |deadline_us| {
            deadline_us.saturating_sub(now_us).clamp(WAIT_US_MIN, WAIT_US_MAX)
        });
        Ok(Some(Duration::from_micros(wait_us)))
    }

    /// Delays a write by `ns_per_byte` for each of its bytes. Sleeps only when the accumulated
    /// delay is long enough, and not beyond the deadline.
    fn slow_down(&self, ns_per_byte: u64, bytes: usize, deadline_ms: Option<u64>) {
        let owed_us = self.room.owe(ns_per_byte.saturating_mul(bytes as u64 + WRITE_BYTES));
        let most_us = deadline_ms.map_or(SLEEP_US_MAX, |ms| ms.saturating_mul(1_000).min(SLEEP_US_MAX));
        let us = owed_us.min(most_us);
        if us > 0 {
            WorkCounters::add(&self.telemetry.work().stalls, 1);
            WorkCounters::add(&self.telemetry.work().stall_us, us);
            if !self.is_inline {
                self.clock.sleep_us(us);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;
    use std::sync::atomic::{AtomicU32, Ordering};

    use shamba_env::{InlineSpawner, ManualClock, MemFs, Spawner, ThreadSpawner, lock};
    use shamba_key::{KeyspaceId, LogNo, SeqNo};
    use shamba_table::{Charge, LedgerPart};

    use super::super::progress::FailuresNow;
    use super::super::sealed::Generation;
    use super::*;
    use crate::sync::Mutex;
    use crate::testing::Parts;

    const LIMITS: Limits =
        Limits { immutables: 2, last_memtable_ns_per_byte: 40, l0_slowdown_runs: 4, l0_stop_runs: 8 };

    #[test]
    fn pressure_rises_from_nothing_over_a_price_to_a_stop() {
        let at = |immutables, l0_runs| pressure(Backlog { immutables, l0_runs, fullest: None }, LIMITS);
        assert_eq!(at(0, 4), Pressure::None);
        let mut last = 0;
        for runs in 5..8 {
            let Pressure::Slow { ns_per_byte } = at(1, runs) else { panic!("a price at {runs} runs") };
            assert!(ns_per_byte > last);
            last = ns_per_byte;
        }
        assert_eq!(at(0, 8), Pressure::Stop(Work::Merge(None)));
        assert_eq!(at(2, 0), Pressure::Stop(Work::Flush));
        let three = Limits { immutables: 3, ..LIMITS };
        let at_three = |immutables, l0_runs| pressure(Backlog { immutables, l0_runs, fullest: None }, three);
        assert_eq!(at_three(1, 4), Pressure::None, "one is being flushed");
        assert_eq!(at_three(2, 0), Pressure::Slow { ns_per_byte: 40 });
        assert_eq!(at_three(2, 5), at_three(2, 0), "the larger delay");
        assert_eq!(at_three(3, 0), Pressure::Stop(Work::Flush));
        let wide = Limits { l0_slowdown_runs: 1, l0_stop_runs: u32::MAX, ..LIMITS };
        let at = |l0_runs| pressure(Backlog { immutables: 0, l0_runs, fullest: None }, wide);
        assert_eq!(at(2), Pressure::Slow { ns_per_byte: 1 });
        assert_eq!(at(u32::MAX - 1), Pressure::Slow { ns_per_byte: u16::MAX });
    }

    /// Background work that makes no progress: what has failed fails once more during each wait.
    struct Idle {
        failures: Mutex<Failures>,
        wakes: AtomicU32,
        clock: Arc<ManualClock>,
    }

    impl Background for Idle {
        fn wake(&self) {
            panic!("a writer that waits for failed work wants another try");
        }

        fn retry(&self) {
            self.wakes.fetch_add(1, Ordering::Relaxed);
        }

        fn run_inline(&self) {}

        fn failures(&self, work: Work) -> Failures {
            if work == Work::Flush { lock(&self.failures).clone() } else { Failures::default() }
        }

        fn wait_for_progress(&self, look: &mut dyn FnMut(FailuresNow<'_>) -> Option<Duration>) {
            let failed = lock(&self.failures).error.clone();
            failed.into_iter().for_each(|error| lock(&self.failures).add_next(error));
            for _ in 0..100 {
                let Some(wait) = look(&|work| self.failures(work)) else { return };
                self.clock.sleep_us(wait.as_micros() as u64);
            }
            panic!("the wait has no end");
        }

        fn wait_for_flushes(&self, _done: &dyn Fn() -> bool) -> Result<()> {
            Ok(())
        }

        fn forget(&self, _keyspace: KeyspaceId) {}
    }

    /// Back-pressure over one sealed generation, which is the most that the settings allow, and
    /// whose flush has failed some times in a row.
    struct Stopped {
        pressure: BackPressure,
        idle: Arc<Idle>,
        clock: Arc<ManualClock>,
        telemetry: Arc<Telemetry>,
    }

    fn stopped(spawner: impl Spawner + 'static, failed: &[ErrorKind]) -> Stopped {
        let clock = Arc::new(ManualClock::new());
        let env = Env {
            clock: Arc::clone(&clock) as _,
            spawner: Arc::new(spawner),
            ..Env::deterministic(Arc::new(MemFs::new()), 1)
        };
        let wait_timeout = Duration::from_millis(150);
        let settings = Settings { immutable_memtables: 1, wait_timeout, ..Settings::default() };
        let parts = Parts::within(env, settings, None);
        let sealed = Arc::new(SealedGenerations::default());
        sealed.seal(Generation {
            appended_bytes: 0,
            log: None,
            log_files: Vec::new(),
            next_log: LogNo(1),
            members: Vec::new(),
            last_seq: SeqNo(1),
            bytes: 0,
            oldest_tombstone_ms: None,
            _charge: Charge::new(parts.memory.ledger(), LedgerPart::Memtables, 0),
        });
        let mut failures = Failures::default();
        failed.iter().for_each(|kind| failures.add_next(Error::new(*kind, "planned")));
        let idle = Arc::new(Idle {
            failures: Mutex::new(failures),
            wakes: AtomicU32::new(0),
            clock: Arc::clone(&clock),
        });
        let background = Arc::new(BackgroundLink::default());
        let weak: Weak<Idle> = Arc::downgrade(&idle);
        background.connect(weak);
        let Parts { env, settings, catalog, lifecycle, telemetry, .. } = parts;
        let told = (lifecycle, Arc::clone(&telemetry));
        let pressure = BackPressure::new(&env, settings, catalog, (sealed, background), told);
        Stopped { pressure, idle, clock, telemetry }
    }

    impl Stopped {
        /// The kind and the text of the error of a write, and the milliseconds that it has waited.
        fn refusal(&self, deadline_ms: Option<u64>) -> (ErrorKind, String, u64) {
            let begin_us = self.clock.now_us();
            let error = self.pressure.admit(1, deadline_ms).expect_err("writes are stopped");
            let waited_us = self.clock.now_us() - begin_us;
            (error.kind(), error.context().to_owned(), waited_us / 1_000)
        }

        /// Number and total time of the stalls and delays.
        fn stalls(&self) -> (u64, u64) {
            let work = self.telemetry.work();
            (work.stalls.load(Ordering::Relaxed), work.stall_us.load(Ordering::Relaxed))
        }
    }

    #[test]
    fn a_stalled_write_has_failing_work_tried_at_once_except_on_a_full_disk() {
        for (failed, wakes) in [
            (&[][..], 0),
            (&[ErrorKind::Io; 2], 0),
            (&[ErrorKind::Io; 3], 1),
            (&[ErrorKind::Io; 4], 1),
            (&[ErrorKind::NoSpace; 2], 0),
            (&[ErrorKind::NoSpace; 3], 0),
        ] {
            let stopped = stopped(ThreadSpawner::new(), failed);
            stopped.pressure.admit(1, Some(0)).expect_err("writes are stopped");
            assert_eq!(stopped.idle.wakes.load(Ordering::Relaxed), wakes, "after {failed:?}");
        }
    }

    #[test]
    fn a_stalled_write_waits_for_its_deadline_or_as_long_as_there_may_be_progress() {
        let idle = stopped(ThreadSpawner::new(), &[]);
        let waited = "waited 250 ms: flushes of sealed memtables are behind".to_owned();
        assert_eq!(idle.refusal(Some(250)), (ErrorKind::Stalled, waited, 250), "beyond wait-timeout");
        assert_eq!(idle.stalls(), (1, 250_000));
        let stuck = "background work has made no progress for 200 ms".to_owned();
        assert_eq!(idle.refusal(None), (ErrorKind::Stalled, stuck, 200));
        assert_eq!(idle.stalls(), (2, 450_000));

        // Nobody would make progress, so it does not wait.
        let inline = stopped(InlineSpawner::new(), &[]);
        for deadline_ms in [None, Some(250)] {
            let behind = "flushes of sealed memtables are behind".to_owned();
            assert_eq!(inline.refusal(deadline_ms), (ErrorKind::Stalled, behind, 0), "{deadline_ms:?}");
        }
    }

    #[test]
    fn a_stalled_write_gives_up_on_failing_work_but_waits_for_space_until_its_deadline() {
        let failing = stopped(ThreadSpawner::new(), &[ErrorKind::Io; 2]);
        let failed = "the write cannot continue: flushes of sealed memtables are behind";
        assert_eq!(failing.refusal(Some(250)), (ErrorKind::Io, failed.to_owned(), 0));
        assert_eq!(failing.refusal(None), (ErrorKind::Io, failed.to_owned(), 0));
        let full = stopped(ThreadSpawner::new(), &[ErrorKind::NoSpace; 2]);
        let space = "no space for the write";
        assert_eq!(full.refusal(Some(250)), (ErrorKind::NoSpace, space.to_owned(), 250));
        assert_eq!(full.refusal(None), (ErrorKind::NoSpace, space.to_owned(), 0));
    }

    #[test]
    fn a_slowed_write_sleeps_for_each_byte_and_a_constant_once_that_is_long_enough() {
        for is_inline in [false, true] {
            let slow = match is_inline {
                false => stopped(ThreadSpawner::new(), &[]),
                true => stopped(InlineSpawner::new(), &[]),
            };
            let room = &slow.pressure.room;
            let mut total_us = 0;
            let mut admit = |(stalls, us), bytes, deadline_ms| {
                total_us += us;
                slow.pressure.admit(bytes, deadline_ms).expect("writes go on");
                assert_eq!(slow.stalls(), (stalls, total_us), "{bytes} bytes");
                // On the only thread a sleep would let no work go on.
                assert_eq!(slow.clock.now_us(), if is_inline { 0 } else { total_us }, "{bytes} bytes");
            };
            room.set_ns_per_byte(room.changes(), 1_000);
            // 64 bytes are added to the length.
            admit((1, 1_000), 936, None);
            admit((1, 0), 935, None);
            admit((2, 1_063), 0, None);
            // At most a tenth of a second, and not beyond the deadline.
            admit((3, 100_000), 1 << 20, None);
            admit((4, 5_000), 1 << 20, Some(5));
            admit((4, 0), 1 << 20, Some(0));
            room.set_ns_per_byte(room.changes(), 0);
            admit((4, 0), 1 << 20, None);
        }
    }
}
