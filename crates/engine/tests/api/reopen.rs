//! Reopening after the process ended without a close: replayed entries are flushed after the open,
//! and no promise of the new log covers them before.

use std::path::Path;
use std::sync::Arc;

use shamba::env::{CrashPolicy, Effect, Env, FaultFs, FaultRule, FsyncFailure, MemFs, OpKind, SimFs, Vfs};
use shamba::{Builder, Db, Durability, ErrorKind, Result};

/// Half of it is the longest tail that an open copies to the new log.
const BUFFER: u64 = 64 << 10;
/// Batches of two entries; together longer than that, and shorter than the write buffer.
const BATCHES: usize = 90;

fn builder(env: &Env, buffer: u64) -> Builder {
    let builder = Db::builder("/db").env(env.clone()).write_buffer(buffer).info_log(false);
    builder.experimental(|e| e.max_immutable_memtables(4))
}

fn env_of(vfs: Arc<dyn Vfs>, seed: u64) -> Env {
    Env::deterministic(vfs, seed)
}

/// Without threads, an open runs the flushes before it returns. They fail until the rules are
/// cleared, as if they had not begun.
fn hold_flushes(faults: &FaultFs) {
    faults.add_rule(FaultRule::nth(0, Effect::Enospc).on(&[OpKind::Append]).at_path(".sst").sticky());
}

fn faulty(inner: Arc<dyn Vfs>) -> (Arc<FaultFs>, Env) {
    let faults = Arc::new(FaultFs::new(inner, 1));
    let env = env_of(Arc::clone(&faults) as Arc<dyn Vfs>, 1);
    (faults, env)
}

/// A database of [`BATCHES`] batches whose process has ended without a close. From here on flushes
/// fail.
fn killed() -> Result<(Arc<FaultFs>, Env)> {
    let (faults, env) = faulty(Arc::new(MemFs::new()));
    let db = builder(&env, BUFFER).open()?;
    put_batches(&db, 0, BATCHES, Durability::NoSync)?;
    drop(db);
    hold_flushes(&faults);
    Ok((faults, env))
}

fn files(env: &Env, ending: &str) -> usize {
    let names = env.vfs.list(Path::new("/db")).expect("the directory is there");
    names.iter().filter(|entry| entry.name.ends_with(ending)).count()
}

/// Writes batches `from` to `to` of two entries each.
fn put_batches(db: &Db, from: usize, to: usize, durability: Durability) -> Result<()> {
    for number in from..to {
        let mut batch = db.batch();
        batch.put(format!("a{number:05}"), [b'v'; 200]).put(format!("b{number:05}"), [b'w'; 200]);
        batch.commit_with(durability)?;
    }
    Ok(())
}

/// The number of batches in a database that holds whole batches without a gap.
fn batches(db: &Db) -> usize {
    let keys: Vec<String> =
        db.iter().map(|entry| String::from_utf8(entry.expect("read").0.to_vec()).expect("text")).collect();
    let count = keys.len() / 2;
    let expected = ["a", "b"].iter().flat_map(|letter| (0..count).map(move |at| format!("{letter}{at:05}")));
    assert!(keys.iter().eq(expected.collect::<Vec<_>>().iter()), "half a batch, or a gap: {keys:?}");
    count
}

#[test]
fn an_open_returns_before_replayed_entries_are_in_tables() -> Result<()> {
    let (faults, env) = killed()?;
    // As often as one likes, with nothing written in between.
    for _ in 0..3 {
        let db = builder(&env, BUFFER).open()?;
        assert_eq!((files(&env, ".sst"), batches(&db)), (0, BATCHES));
    }
    // A close ends the log cleanly, so it flushes first. Then the old logs are obsolete.
    let db = builder(&env, BUFFER).open()?;
    assert_eq!(files(&env, ".log"), 5, "the old logs are needed");
    faults.clear_rules();
    db.close()?;
    assert_eq!((files(&env, ".sst"), files(&env, ".log")), (1, 1));
    let db = builder(&env, BUFFER).open()?;
    assert_eq!(batches(&db), BATCHES);
    Ok(())
}

#[test]
fn a_close_that_cannot_flush_says_so_and_loses_nothing() -> Result<()> {
    let (faults, env) = killed()?;
    let db = builder(&env, BUFFER).open()?;
    // What is buffered in the process is written all the same.
    put_batches(&db, BATCHES, BATCHES + 1, Durability::Buffered)?;
    assert_eq!(db.close().map_err(|error| error.kind()), Err(ErrorKind::NoSpace));
    faults.clear_rules();
    let db = builder(&env, BUFFER).open()?;
    assert_eq!(batches(&db), BATCHES + 1);
    db.close()
}

/// An ingest logs an operation that changes nothing, of which a memtable has no entry.
#[test]
fn the_entry_of_an_ingest_in_the_log_is_no_memtable_to_flush() -> Result<()> {
    let env = env_of(Arc::new(MemFs::new()), 1);
    let db = builder(&env, BUFFER).open()?;
    db.ingest([("ingested", "1")])?;
    let other = db.keyspace("other")?;
    for number in 0..2 * BATCHES {
        other.put(format!("{number:05}"), [b'v'; 200])?;
    }
    drop((db, other));
    let db = builder(&env, BUFFER).open()?;
    assert_eq!(files(&env, ".sst"), 2, "of the ingest and of the flush");
    assert_eq!(db.get("ingested")?.as_deref(), Some(&b"1"[..]));
    assert_eq!(db.keyspace("other")?.iter().count(), 2 * BATCHES);
    Ok(())
}

#[test]
fn after_a_close_a_synced_write_does_not_wait_for_the_flush() -> Result<()> {
    let (faults, env) = faulty(Arc::new(MemFs::new()));
    let db = builder(&env, BUFFER).open()?;
    put_batches(&db, 0, BATCHES, Durability::NoSync)?;
    db.close()?;
    hold_flushes(&faults);
    let db = builder(&env, BUFFER).open()?;
    put_batches(&db, BATCHES, BATCHES + 1, Durability::Sync)?;
    assert_eq!((files(&env, ".sst"), batches(&db)), (0, BATCHES + 1));
    Ok(())
}

/// The process is killed and the database opened again, three times; then the power fails after any
/// call. What a synced write promised is there, batches are whole, and the open finds no
/// corruption.
#[test]
fn a_power_loss_after_reopens_loses_nothing_that_was_synced() -> Result<()> {
    // One generation, several, and more than are kept in memory.
    for buffer in [BUFFER, 30 << 10, 8 << 10] {
        let disk = SimFs::new();
        let (faults, env) = faulty(Arc::new(disk.clone()));
        // Batches that are durable after a call.
        let mut durable = vec![(0, 0)];
        let mut written = 0;
        let db = builder(&env, BUFFER).open()?;
        put_batches(&db, 0, BATCHES, Durability::NoSync)?;
        written += BATCHES;
        drop(db);
        let first = disk.op_count();
        for round in 0..3 {
            if buffer > 8 << 10 {
                hold_flushes(&faults);
            }
            let db = builder(&env, buffer).open()?;
            assert_eq!(batches(&db), written);
            put_batches(&db, written, written + 2, Durability::NoSync)?;
            written += 2;
            faults.clear_rules();
            if round > 0 {
                put_batches(&db, written, written + 1, Durability::Sync)?;
                written += 1;
                durable.push((disk.op_count(), written));
                put_batches(&db, written, written + 40, Durability::NoSync)?;
                written += 40;
            }
            drop(db);
        }
        for call in first..=disk.op_count() {
            let promised =
                durable.iter().rev().find(|(at, _)| *at <= call).map_or(0, |(_, batches)| *batches);
            let sampled = disk.policies_for(call, 7);
            let one = sampled.get(call as usize % sampled.len().max(1)).cloned();
            for policy in [Some(CrashPolicy::None), Some(CrashPolicy::All), one].into_iter().flatten() {
                let image = disk.crash(call, &policy);
                let opened = builder(&env_of(Arc::new(image), 2), buffer).open();
                let db =
                    opened.unwrap_or_else(|error| panic!("buffer {buffer}, {call}, {policy:?}: {error}"));
                let found = batches(&db);
                assert!(found >= promised, "buffer {buffer}, {call}, {policy:?}: {found} of {promised}");
            }
        }
    }
    Ok(())
}

/// The process before saw a sync fail, after which the cached pages of its log are not what is on
/// the disk. A later sync of the same file would succeed, and prove nothing.
#[test]
fn a_log_whose_sync_failed_is_not_trusted_by_the_next_process() -> Result<()> {
    let disk = SimFs::new();
    let (faults, env) = faulty(Arc::new(disk.clone()));
    let db = builder(&env, BUFFER).open()?;
    put_batches(&db, 0, BATCHES, Durability::NoSync)?;
    disk.fail_sync(disk.sync_count(), FsyncFailure::Drop);
    let failed = put_batches(&db, BATCHES, BATCHES + 1, Durability::Sync);
    assert_eq!(failed.map_err(|error| error.kind()), Err(ErrorKind::Io));
    drop(db);
    hold_flushes(&faults);
    let db = builder(&env, BUFFER).open()?;
    let found = batches(&db);
    assert!(found >= BATCHES, "the system's cache still has them");
    faults.clear_rules();
    put_batches(&db, found, found + 1, Durability::Sync)?;
    let image = disk.crash(disk.op_count(), &CrashPolicy::None);
    let db = builder(&env_of(Arc::new(image), 2), BUFFER).open()?;
    assert_eq!(batches(&db), found + 1);
    Ok(())
}

#[test]
fn without_space_for_tables_a_synced_write_fails_and_others_go_on() -> Result<()> {
    let (faults, env) = killed()?;
    let db = builder(&env, BUFFER).open()?;
    put_batches(&db, BATCHES, BATCHES + 1, Durability::NoSync)?;
    let refused = put_batches(&db, BATCHES + 1, BATCHES + 2, Durability::Sync);
    assert_eq!(refused.map_err(|error| error.kind()), Err(ErrorKind::NoSpace));
    assert_eq!(batches(&db), BATCHES + 1, "a write that failed is not visible");
    faults.clear_rules();
    put_batches(&db, BATCHES + 1, BATCHES + 2, Durability::Sync)?;
    assert_eq!(batches(&db), BATCHES + 2);
    db.close()?;
    let db = builder(&env, BUFFER).open()?;
    assert_eq!(batches(&db), BATCHES + 2);
    Ok(())
}
