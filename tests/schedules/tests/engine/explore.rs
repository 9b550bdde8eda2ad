//! Runs a scenario under all its schedules, and counts the work that they did.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use shamba::Db;
use shamba_tests::seed::{self, mixed};
use shamba_tests::tally::Tally;
use shamba_tests::{pool, runner};

use crate::scheduled::run;

/// Default number of schedules of a scenario.
pub const SCHEDULES: u64 = 1_000;
/// Default number of schedules of a scenario of one part of the engine.
pub const SCHEDULES_FEW: u64 = 150;
/// Number of schedules from one seed, which are reproduced together after a failure.
const AT_ONCE: u64 = 50;

/// The name of the count of followers' batches: the purpose of group commit.
pub const FOLLOWERS: &str = "batches that another writer wrote";
/// The name of the count of lookups that the record cache answered.
pub const RECORD_HITS: &str = "answers of the record cache";
/// The name of the count of entries that a compaction filter changed.
pub const FILTERED: &str = "entries that a filter changed";
/// The name of the count of tables that the limits of a FIFO keyspace dropped.
pub const DROPPED: &str = "tables that limits dropped";

/// The name of the count of entries that flushes and compactions dropped, as they had expired.
pub const EXPIRED: &str = "expired entries that were dropped";
/// The name of the count of runs that scans left out by their prefix filters.
pub const LEFT_OUT: &str = "runs that prefix filters left out";

/// Total work of all schedules of a scenario, by name.
pub struct Done(Mutex<BTreeMap<&'static str, u64>>);

impl Done {
    /// No work.
    pub const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// Adds to a count.
    pub fn add(&self, name: &'static str, count: u64) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(name).or_default() += count;
    }

    /// Adds the work of a database.
    pub fn note(&self, db: &Db) {
        let stats = db.stats();
        self.add("flushes", stats.flushes);
        self.add("compactions", stats.compactions);
        self.add("stalls", stats.stalls);
        self.add(FOLLOWERS, stats.batches - stats.commit_groups);
        self.add(RECORD_HITS, stats.record_hits);
        self.add(FILTERED, stats.entries_filtered);
        self.add(DROPPED, stats.tables_dropped);
        self.add(EXPIRED, stats.entries_expired);
        self.add(LEFT_OUT, stats.prefix_runs_skipped);
    }

    fn tally(&self) -> Tally {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Tally::of(&counts.iter().map(|(name, count)| (*name, *count)).collect::<Vec<_>>())
    }
}

/// Runs a scenario under `SHAMBA_SCHEDULES` schedules, by default `schedules`, or those of one seed
/// (`SHAMBA_VECTOR`). `name` is the test, with its module. `least` is the minimum of each count per
/// hundred schedules; it is not checked for one seed.
pub fn explore(name: &str, schedules: u64, scenario: fn(), done: &Done, least: &[(&str, u64)]) {
    let base = seed::base(0x5c4e_d01e);
    let schedules = seed::number("SHAMBA_SCHEDULES").unwrap_or(schedules);
    let part = |number: usize| {
        let at_once = AT_ONCE.min(schedules) as usize;
        runner::caught(|| {
            run(mixed(base, number as u64), at_once, scenario);
            Ok(())
        })
        .map_err(|error| {
            let test = format!("{name} -- --exact --nocapture");
            format!("{error}\nagain: SHAMBA_SEED={base} SHAMBA_SCHEDULES={schedules} SHAMBA_VECTOR={number} cargo test -p shamba-schedules {test}")
        })
    };
    let parts = schedules.div_ceil(AT_ONCE);
    if let Some(number) = seed::only_vector() {
        return part(number).unwrap_or_else(|error| panic!("{error}"));
    }
    pool::run(parts as usize, part).unwrap_or_else(|error| panic!("{error}"));
    let schedules = parts * AT_ONCE.min(schedules);
    let mut tally = done.tally();
    tally.add("schedules", schedules);
    let (_, of_test) = name.rsplit_once("::").unwrap_or(("", name));
    tally.tell(&format!("schedules-{of_test}"), &format!("suite H, the whole engine, seed {base}"));
    let least: Vec<(&str, u64)> =
        least.iter().map(|(name, least)| (*name, schedules * least / 100)).collect();
    tally.require(&least);
}
