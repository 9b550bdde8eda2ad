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

use shamba::env::sync::time;
use shamba::env::{Env, MemFs, Vfs};
use shamba::merge::AddU64;
use shamba::{Builder, Db, KeyspaceOptions, MergePolicy};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, MaxSteps, Runner};

/// Steps after which threads are considered to be in an endless loop: some hundred times what a
/// scenario needs.
const STEPS_MAX: usize = 5_000_000;
/// The engine's calls need more than the default stack of a task.
const STACK_BYTES: usize = 512 << 10;
/// Changes of priority in a PCT schedule.
const PRIORITY_CHANGES: usize = 3;

/// Runs `scenario` under `schedules` schedules determined by `seed`.
///
/// # Panics
/// If the scenario panics or deadlocks.
pub fn run(seed: u64, schedules: usize, scenario: fn()) {
    let by_chance = RandomScheduler::new_from_seed(seed, schedules.div_ceil(2));
    under(by_chance, scenario);
    if schedules > 1 {
        under(PctScheduler::new_from_seed(seed, PRIORITY_CHANGES, schedules / 2), scenario);
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
