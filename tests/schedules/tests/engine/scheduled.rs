//! Suite H, the whole engine: writers, readers, flushes, compactions and close under random
//! schedules.
//!
//! `shamba` here is the engine's own sources over locks and threads that shuttle's scheduler
//! controls (`tests/schedules/env`). One thread runs at a time, and at each lock, wait and file
//! operation the scheduler decides which one continues. A scenario is run under thousands of
//! schedules. Half of them are uniformly random; half have few changes of priority (PCT), which
//! finds bugs that need a rare order of few steps. Files are in memory and time passes when it is
//! read, so a schedule is determined by its seed.
//!
//! Besides wrong answers it finds deadlocks, and lost wake-ups, since waits with a long limit have
//! no limit here.
//!
//! Not here: memory orders, and exhaustive exploration (`tests/loom`); power cuts and faults with
//! concurrent threads (`crash_threads`, `stress`).

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use shamba::env::sync::time;
use shamba::env::{Env, MemFs, Vfs};
use shamba::merge::AddU64;
use shamba::{Builder, Db, KeyspaceOptions, MergePolicy};
use shamba_tests::seed::mixed;
use shuttle::scheduler::{PctScheduler, RandomScheduler, Schedule, Scheduler, Task, TaskId};
use shuttle::{Config, MaxSteps, Runner};

/// Steps after which threads are considered to be in an endless loop: some hundred times what a
/// scenario needs.
const STEPS_MAX: usize = 5_000_000;
/// The engine's calls need more than the default stack of a task.
const STACK_BYTES: usize = 512 << 10;
/// Changes of priority in a PCT schedule.
const PRIORITY_CHANGES: usize = 3;

/// Runs `scenario` under `schedules` schedules determined by `seed`. Returns a hash of all choices
/// of the schedulers: equal for equal runs.
///
/// # Panics
/// If the scenario panics or deadlocks.
pub fn run(seed: u64, schedules: usize, scenario: fn()) -> u64 {
    let choices = Arc::new(AtomicU64::new(seed));
    let by_chance = RandomScheduler::new_from_seed(seed, schedules.div_ceil(2));
    under(Noting { scheduler: by_chance, choices: Arc::clone(&choices) }, scenario);
    if schedules > 1 {
        let pct = PctScheduler::new_from_seed(seed, PRIORITY_CHANGES, schedules / 2);
        under(Noting { scheduler: pct, choices: Arc::clone(&choices) }, scenario);
    }
    choices.load(Ordering::Relaxed)
}

/// A scheduler whose choices are hashed.
struct Noting<S> {
    scheduler: S,
    choices: Arc<AtomicU64>,
}

impl<S: Scheduler> Scheduler for Noting<S> {
    fn new_execution(&mut self) -> Option<Schedule> {
        self.scheduler.new_execution()
    }

    fn next_task(&mut self, tasks: &[&Task], current: Option<TaskId>, is_yielding: bool) -> Option<TaskId> {
        let next = self.scheduler.next_task(tasks, current, is_yielding);
        let choice = next.map_or(u64::MAX, |next| (tasks.len() as u64) << 32 | usize::from(next) as u64);
        self.choices.store(mixed(self.choices.load(Ordering::Relaxed), choice), Ordering::Relaxed);
        next
    }

    fn next_u64(&mut self) -> u64 {
        self.scheduler.next_u64()
    }
}

fn under(scheduler: impl Scheduler + 'static, scenario: fn()) {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.max_steps = MaxSteps::FailAfter(STEPS_MAX);
    config.silence_warnings = true;
    Runner::new(scheduler, config).run(move || {
        time::reset();
        scenario();
    });
}

/// Files of a new database.
pub fn files() -> Arc<dyn Vfs> {
    Arc::new(MemFs::new())
}

/// Opens the database on `vfs` read-only, which changes nothing there.
///
/// # Errors
/// If the open fails.
pub fn read_only(vfs: &Arc<dyn Vfs>) -> shamba::Result<Db> {
    Db::builder(Path::new("/db"))
        .env(Env::scheduled(Arc::clone(vfs), 7))
        .info_log(false)
        .read_only(true)
        .open()
}

/// Opens the database on `vfs`, with limits so small that a few writes are flushed and compacted.
///
/// # Errors
/// If the open fails.
pub fn open(vfs: &Arc<dyn Vfs>, policy: MergePolicy) -> shamba::Result<Db> {
    builder(vfs, policy).open()
}

/// As [`open`], with a record cache.
///
/// # Errors
/// If the open fails.
pub fn open_with_records(vfs: &Arc<dyn Vfs>) -> shamba::Result<Db> {
    builder(vfs, MergePolicy::Tiering).experimental(|e| e.record_cache(64 << 10)).open()
}

/// As [`open`], with counters in the default keyspace.
///
/// # Errors
/// If the open fails.
pub fn open_counting(vfs: &Arc<dyn Vfs>) -> shamba::Result<Db> {
    let counting = KeyspaceOptions::new().merge_operator(AddU64);
    builder(vfs, MergePolicy::Tiering).keyspace("default", counting).open()
}

/// The options of [`open`], for scenarios that have more of them.
pub fn builder(vfs: &Arc<dyn Vfs>, policy: MergePolicy) -> Builder {
    Db::builder(Path::new("/db"))
        .env(Env::scheduled(Arc::clone(vfs), 7))
        .info_log(false)
        .memory_budget(8 << 20)
        .write_buffer(1 << 10)
        .experimental(|e| e.file_size(4 << 10).block_bytes(512))
        .size_ratio(2.0)
        .merge_policy(policy)
        .experimental(|e| e.sizing(shamba::Sizing::Manual))
        .background_threads(2)
}
