//! Tests of compactions that seeks and passed tombstones pay for, and of their rate.

use std::path::Path;

use shamba_env::{ManualClock, MemFs};
use shamba_key::KeyspaceId;
use shamba_tree::compaction::policy::Reason;

use super::super::next::Step;
use super::super::*;
use super::alone::{Alone, alone};
use crate::catalog::DEFAULT_KEYSPACE;
use crate::database::Db;

/// A scheduler that compacts by itself, with tables of the default size, and its clock.
fn automatic() -> (Alone, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new());
    let env = Env { clock: Arc::clone(&clock) as _, ..Env::deterministic(Arc::new(MemFs::new()), 1) };
    let settings = Settings { memory_budget_bytes: 64 << 20, ..Settings::default() };
    (alone(env, settings, None), clock)
}

#[test]
fn seeks_pay_for_draining_level_0_while_writes_go_on() {
    let (alone, clock) = automatic();
    (0..2).for_each(|_| alone.add_run(DEFAULT_KEYSPACE, 0..200));
    clock.advance_us(1_000_000);
    assert!(alone.scheduler.next_step().is_none(), "two runs are not due, and nobody reads");
    let keyspace = alone.keyspace(DEFAULT_KEYSPACE);
    for _ in 0..20 {
        (0..1_000).for_each(|_| keyspace.statistics().count_seek());
        clock.advance_us(1_000_000);
        keyspace.statistics().fold_in_time(&keyspace.load().version, clock.now_us());
    }
    let step = alone.next();
    let Step::Begin(job, _) = &step else { panic!("a compaction") };
    assert_eq!((job.job.reason, job.job.target_level), (Reason::Reads, 1));
    drop(keyspace);
    alone.scheduler.run(step).expect("done");
    alone.finish();
    assert!(alone.keyspace(DEFAULT_KEYSPACE).load().version.level(0).is_empty());
}

#[test]
fn tombstones_that_scans_pass_are_collected() {
    let (alone, clock) = automatic();
    alone.add_run(DEFAULT_KEYSPACE, 0..200);
    alone.scheduler.background.state.lock().requests.add_full(KeyspaceId::DEFAULT);
    alone.finish();
    alone.delete_run(0..150);
    clock.advance_us(1_000_000);
    assert!(alone.scheduler.next_step().is_none(), "nobody reads");
    let meta = {
        let version = Arc::clone(&alone.keyspace(DEFAULT_KEYSPACE).load().version);
        Arc::clone(&version.level(0)[0].tables()[0].meta)
    };
    assert_eq!(meta.deletes, 150);
    meta.statistics.add_tombstones_passed(1 << 20);
    clock.advance_us(1_000_000);
    let step = alone.next();
    let Step::Begin(job, _) = &step else { panic!("a compaction") };
    assert_eq!(job.job.reason, Reason::Tombstones);
    alone.scheduler.run(step).expect("done");
    alone.finish();
    let version = Arc::clone(&alone.keyspace(DEFAULT_KEYSPACE).load().version);
    assert_eq!(version.tables().map(|(_, _, table)| table.meta.deletes).sum::<u64>(), 0);
    assert_eq!(version.tables().map(|(_, _, table)| table.meta.entries).sum::<u64>(), 50);
}

/// A queue: put at the tail, delete at the head, scan from the start. The scans pass the tombstones
/// of the head, and pay for collecting them. Time passes by the step, so the result is the same on
/// every machine.
#[test]
fn a_queue_keeps_few_tombstones_in_tables() {
    let clock = Arc::new(shamba_env::ManualClock::new());
    let env = Env { clock: Arc::clone(&clock) as _, ..Env::deterministic(Arc::new(MemFs::new()), 1) };
    let db = Db::builder(Path::new("/db")).env(env).info_log(false).write_buffer(64 << 10).open();
    let db = db.expect("opened");
    let core = db.core();
    let keyspace = core.catalog.keyspace(KeyspaceId::DEFAULT).expect("the default one");
    let in_tables = || {
        let version = Arc::clone(&keyspace.load().version);
        version.tables().map(|(_, _, table)| table.meta.deletes).sum::<u64>()
    };
    let (mut tail, mut largest) = (0u64, 0);
    for head in 0..30_000u64 {
        while tail < head + 100 {
            db.put(tail.to_be_bytes(), [7; 100]).expect("put");
            tail += 1;
        }
        let first = db.iter().next().expect("the queue is not empty").expect("read");
        assert_eq!(first.0[..], head.to_be_bytes());
        db.delete(head.to_be_bytes()).expect("deleted");
        clock.advance_us(1_000);
        if head % 500 == 0 {
            crate::statistics::fold(&core.catalog, clock.now_us());
            core.scheduler.run_inline();
            if head > 10_000 {
                largest = largest.max(in_tables());
            }
        }
    }
    assert!(db.stats().flushes > 50, "{} flushes", db.stats().flushes);
    assert!(largest <= 1_000, "{largest} tombstones in tables");
}

/// Few entries are a slice that ends before its first check of the rate.
#[test]
fn a_compaction_of_few_entries_keeps_the_rate() {
    let clock = Arc::new(ManualClock::new());
    let env = Env { clock: Arc::clone(&clock) as _, ..Env::deterministic(Arc::new(MemFs::new()), 1) };
    let settings = Settings { rate_limit_bytes_per_s: 100, ..super::alone::settings() };
    let alone = alone(env, settings, None);
    (0..2).for_each(|_| alone.add_run(DEFAULT_KEYSPACE, 0..20));
    clock.advance_us(1_000_000);
    let begun_us = clock.now_us();
    alone.request_full();
    alone.finish();
    let lasted_us = clock.now_us() - begun_us;
    assert!(lasted_us >= 1_000_000, "20 keys at 100 B/s, but for the burst: {lasted_us} us");
}
