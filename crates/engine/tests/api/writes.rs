//! Tests of writes: errors with their causes, batches kept after a failure, back-pressure while
//! background work fails, the order within a batch, and the calls that create keyspaces and reject
//! keys.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use shamba::env::{Effect, Env, FaultFs, FaultRule, MemFs, OpKind, SlowFs, Vfs};
use shamba::{Builder, Db, Durability, ErrorKind, EventListener, Result, WriteOptions};

use super::support::{Warnings, os_error};

const EIO: i32 = 5;

fn inline(vfs: Arc<dyn Vfs>) -> Env {
    Env::deterministic(vfs, 1)
}

fn threaded(vfs: Arc<dyn Vfs>) -> Env {
    Env { vfs, ..Env::real() }
}

fn builder(env: &Env) -> Builder {
    Db::builder("/db").env(env.clone()).info_log(false)
}

fn kind<T>(result: Result<T>) -> std::result::Result<(), ErrorKind> {
    result.map(|_| ()).map_err(|error| error.kind())
}

/// Writes until a write fails. Returns that error and adds the number of acknowledged writes to
/// `acked`.
fn fill(db: &Db, acked: &mut u32) -> shamba::Error {
    loop {
        match db.put(format!("{acked:06}"), [0; 200]) {
            Ok(()) => *acked += 1,
            Err(error) => return error,
        }
        assert!(*acked < 100_000, "writes go on though nothing can be flushed");
    }
}

#[test]
fn a_writer_gets_the_error_of_table_syncs_that_fail_in_a_row_and_writes_resume() -> Result<()> {
    for make_env in [inline, threaded] {
        let faults = FaultFs::new(Arc::new(MemFs::new()), 1);
        let env = make_env(Arc::new(faults.clone()));
        let open =
            || builder(&env).write_buffer(8 << 10).experimental(|e| e.max_immutable_memtables(1)).open();
        let db = open()?;
        faults.add_rule(FaultRule::nth(0, Effect::Eio).on(&[OpKind::SyncAll]).at_path(".sst").sticky());
        let mut acked = 0;
        let error = fill(&db, &mut acked);
        assert_eq!((error.kind(), os_error(&error)), (ErrorKind::Io, Some(EIO)), "{error:?}");
        let text = error.chain().to_string();
        assert!(text.contains("flushes of sealed memtables are behind") && text.contains(".sst"), "{text}");
        if !env.spawner.is_inline() {
            assert!(faults.faults_injected() >= 3, "one failure may pass: {}", faults.faults_injected());
        }
        // While the disk fails, each write waits until an attempt of the flush fails. The attempt
        // for the first write may have met its fault already, that for the second has not.
        let before = faults.faults_injected();
        for _ in 0..2 {
            let again = db.put("refused", "").expect_err("the disk still fails");
            assert_eq!((again.kind(), os_error(&again)), (ErrorKind::Io, Some(EIO)), "{again:?}");
        }
        assert!(faults.faults_injected() > before);
        let hasty = db.put_with("refused", "", WriteOptions::new().deadline_ms(0)).expect_err("no time");
        assert!(matches!(hasty.kind(), ErrorKind::Stalled | ErrorKind::Io), "{hasty:?}");
        assert_eq!(os_error(&hasty), Some(EIO), "what kept it waiting is told: {hasty:?}");
        assert_eq!(db.get("000000")?.as_deref(), Some(&[0; 200][..]), "reads go on");
        faults.clear_rules();
        // An attempt that began before the disk recovered may still fail after the write began to
        // wait.
        db.put("after", "").or_else(|_| db.put("after", "")).expect("writes resume by themselves");
        db.wait_idle()?;
        drop(db);
        let db = open()?;
        for number in 0..acked {
            assert!(db.contains_key(format!("{number:06}"))?, "acknowledged write {number} of {acked}");
        }
        assert!(db.contains_key("after")? && !db.contains_key("refused")?);
        assert!(!db.contains_key(format!("{acked:06}"))?, "the write that failed is not there");
        assert_eq!(db.iter().count() as u32, acked + 1);
    }
    Ok(())
}

/// Also if a new keyspace has the name of the one that was dropped.
#[test]
fn a_batch_with_operations_on_a_dropped_keyspace_does_nothing() -> Result<()> {
    let db = builder(&inline(Arc::new(MemFs::new()))).open()?;
    for is_made_again in [false, true] {
        let emails = db.create_keyspace("emails")?;
        let mut batch = db.batch();
        batch.put("a", "1").put_in(&emails, "x", "2");
        db.drop_keyspace("emails")?;
        if is_made_again {
            db.create_keyspace("emails")?;
        }
        let refused = batch.commit().expect_err("the keyspace is gone");
        assert!(refused.kind() == ErrorKind::Invalid && refused.to_string().contains("emails"), "{refused}");
        assert_eq!((batch.len(), db.contains_key("a")?), (2, false));
        batch.clear();
        batch.put("b", "1");
        batch.commit()?;
    }
    assert!(db.contains_key("b")? && db.keyspace("emails")?.iter().next().is_none());
    Ok(())
}

#[test]
fn a_failed_commit_leaves_the_batch_to_be_tried_again() -> Result<()> {
    let faults = FaultFs::new(Arc::new(MemFs::new()), 1);
    let env = inline(Arc::new(faults.clone()));
    let db = builder(&env).write_buffer(8 << 10).experimental(|e| e.max_immutable_memtables(1)).open()?;
    let users = db.create_keyspace("users")?;
    let mut batch = db.batch();
    batch.put("a", "1").put_in(&users, "b", "2").delete("c");
    // The log runs out of space.
    faults.add_rule(FaultRule::nth(0, Effect::Enospc).on(&[OpKind::Append]).at_path(".log"));
    assert_eq!(kind(batch.commit()), Err(ErrorKind::NoSpace));
    assert_eq!((batch.len(), db.contains_key("a")?, users.contains_key("b")?), (3, false, false));
    batch.commit()?;
    assert!(batch.is_empty() && db.contains_key("a")? && users.contains_key("b")?);
    // No flush succeeds, and the deadline of the write is short.
    faults.add_rule(FaultRule::nth(0, Effect::Eio).on(&[OpKind::SyncAll]).at_path(".sst").sticky());
    let mut acked = 0;
    fill(&db, &mut acked);
    batch.put("a", "2");
    assert!(batch.commit_with(WriteOptions::new().deadline_ms(0)).is_err());
    assert_eq!((batch.len(), db.get("a")?.as_deref()), (1, Some(&b"1"[..])));
    faults.clear_rules();
    batch.commit()?;
    assert_eq!((batch.len(), db.get("a")?.as_deref()), (0, Some(&b"2"[..])));
    // A durability that the database does not support.
    let db =
        Db::builder("/other").env(env.clone()).info_log(false).experimental(|e| e.no_wal(true)).open()?;
    let mut batch = db.batch();
    batch.put("a", "1");
    assert_eq!(kind(batch.commit_with(Durability::Sync)), Err(ErrorKind::Invalid));
    assert_eq!(batch.len(), 1);
    batch.commit()?;
    assert!(batch.is_empty() && db.contains_key("a")?);
    Ok(())
}

#[test]
fn a_wrong_operation_is_told_by_each_commit_until_the_batch_is_cleared() -> Result<()> {
    let db = builder(&inline(Arc::new(MemFs::new()))).open()?;
    let mut batch = db.batch();
    batch.put("good", "1").put(vec![0; 65_536], "too long").put("later", "2");
    for _ in 0..2 {
        let error = batch.commit().expect_err("one operation cannot be done");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert_eq!((batch.len(), batch.error().is_some(), db.iter().count()), (2, true, 0));
    }
    batch.clear();
    assert!(batch.is_empty() && batch.error().is_none());
    batch.put("good", "1");
    batch.commit()?;
    assert_eq!(db.iter().count(), 1);
    Ok(())
}

/// Later operations of a batch override earlier ones. A range delete removes keys from before the
/// batch and from earlier puts of the batch.
#[test]
fn operations_of_a_batch_take_effect_in_their_order() -> Result<()> {
    const KEYS: u8 = 12;
    let key = |number: u8| vec![b'a' + number];
    let mut rng = fastrand::Rng::with_seed(23);
    for round in 0..60 {
        let db = builder(&inline(Arc::new(MemFs::new()))).open()?;
        let mut model = BTreeMap::new();
        let mut batch = db.batch();
        let (mut overwritten, mut put_after_range) = (0, 0);
        for step in 0..40u8 {
            let operations = rng.usize(1..30);
            for number in 0..operations {
                let (first, second) = (rng.u8(..KEYS), rng.u8(..=KEYS));
                match rng.u8(..8) {
                    0 => {
                        batch.delete_range(key(first)..key(second));
                        let before = model.len();
                        model.retain(|held: &Vec<u8>, _| !(key(first)..key(second)).contains(held));
                        put_after_range += usize::from(model.len() < before);
                    }
                    1 => {
                        batch.delete(key(first));
                        model.remove(&key(first));
                    }
                    _ => {
                        let value = vec![step, number as u8];
                        batch.put(key(first), &value);
                        overwritten += usize::from(model.insert(key(first), value).is_some());
                    }
                }
            }
            batch.commit()?;
            if rng.u8(..5) == 0 {
                db.flush()?;
            }
            let found: BTreeMap<Vec<u8>, Vec<u8>> = db
                .iter()
                .map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())))
                .collect::<Result<_>>()?;
            assert_eq!(found, model, "round {round}, batch {step}");
            for number in 0..KEYS {
                let value = db.get(key(number))?.map(|value| value.to_vec());
                assert_eq!(value.as_ref(), model.get(&key(number)), "round {round}, batch {step}");
            }
        }
        assert!(overwritten > 50 && put_after_range > 5, "{overwritten} {put_after_range}");
    }
    Ok(())
}

#[test]
fn every_write_takes_a_durability_or_options() -> Result<()> {
    let db = builder(&inline(Arc::new(MemFs::new()))).open()?;
    let options =
        WriteOptions::new().durability(Durability::Sync).deadline(std::time::Duration::from_secs(1));
    assert_eq!((options.durability, options.deadline_ms), (Some(Durability::Sync), Some(1_000)));
    db.put_with("a", "1", Durability::Buffered)?;
    assert!(db.stats().unsynced_bytes > 0);
    db.put_with("b", "1", options)?;
    assert_eq!(db.stats().unsynced_bytes, 0);
    db.delete_with("a", Durability::NoSync)?;
    assert!(db.stats().unsynced_bytes > 0);
    let by_reference: &WriteOptions = &options;
    db.delete_range_with("b".."c", by_reference)?;
    assert_eq!((db.stats().unsynced_bytes, db.iter().count()), (0, 0));
    Ok(())
}

#[test]
fn keyspaces_are_created_only_by_calls_that_say_so() -> Result<()> {
    let env = inline(Arc::new(MemFs::new()));
    let db = builder(&env).open()?;
    assert!(db.get_keyspace("users")?.is_none());
    assert_eq!(db.keyspaces(), ["default"]);
    db.create_keyspace("users")?.put("k", "v")?;
    let exists = db.create_keyspace("users").expect_err("it is there");
    assert_eq!(exists.kind(), ErrorKind::Invalid);
    assert!(exists.to_string().contains("\"users\" already exists"), "{exists}");
    let users = db.get_keyspace("users")?.expect("it is there");
    assert_eq!(users.get("k")?.as_deref(), Some(&b"v"[..]));
    assert_eq!(kind(db.create_keyspace("default")), Err(ErrorKind::Invalid));
    assert!(db.get_keyspace("default")?.is_some());
    assert_eq!(kind(db.get_keyspace("")), Err(ErrorKind::Invalid));
    db.keyspace("users")?;
    db.keyspace("orders")?;
    assert_eq!(db.keyspaces(), ["default", "orders", "users"]);
    let clone = db.clone();
    db.close()?;
    assert_eq!(kind(clone.get_keyspace("users")), Err(ErrorKind::Closed));
    drop((clone, users));
    let db = builder(&env).read_only(true).open()?;
    assert!(db.get_keyspace("users")?.is_some() && db.keyspace("users").is_ok());
    let error = db.keyspace("user").expect_err("a typo");
    assert_eq!(error.kind(), ErrorKind::ReadOnly);
    assert!(error.to_string().contains("no keyspace \"user\""), "{error}");
    Ok(())
}

#[test]
fn a_key_that_is_too_long_is_invalid_to_reads_as_to_writes_and_a_bound_is_not() -> Result<()> {
    let db = builder(&inline(Arc::new(MemFs::new()))).open()?;
    let (longest, long) = (vec![b'k'; 65_535], vec![b'k'; 65_536]);
    db.put(&longest, "v")?;
    for flushed in [false, true] {
        if flushed {
            db.flush()?;
        }
        assert!(db.contains_key(&longest)? && db.get_hashed(&db.hash_key(&longest))?.is_some());
        let mut buffer = Vec::new();
        let refused = [
            kind(db.get(&long)),
            kind(db.get_with(&long, <[u8]>::len)),
            kind(db.get_into(&long, &mut buffer)),
            kind(db.contains_key(&long)),
            kind(db.multi_get([&longest, &long])),
            kind(db.get_hashed(&db.hash_key(&long))),
            kind(db.explain(&long)),
            kind(db.snapshot().get(&long)),
            kind(db.put(&long, "")),
            kind(db.delete(&long)),
            kind(db.delete_range(&long[..]..)),
        ];
        assert_eq!(refused, [Err(ErrorKind::Invalid); 11]);
        // A bound may exceed the maximum length of a key.
        assert_eq!((db.range(&long[..]..).count(), db.range(..&long[..]).count()), (0, 1));
        assert_eq!(db.prefix(&long).count(), 0);
        let mut cursor = db.cursor();
        assert!(!cursor.seek(&long)? && cursor.seek_for_prev(&long)?);
        assert_eq!(cursor.key(), Some(&longest[..]));
    }
    Ok(())
}

#[test]
fn a_missing_database_is_not_found() -> Result<()> {
    let env = inline(Arc::new(MemFs::new()));
    for directory in ["does not exist", "contains none"] {
        for builder in [builder(&env).read_only(true), builder(&env).create_if_missing(false)] {
            let error = builder.open().expect_err("there is none");
            assert_eq!(error.kind(), ErrorKind::NotFound, "{error:?}");
            assert!(error.to_string().contains("/db") && error.to_string().contains(directory), "{error}");
            assert_eq!(io::Error::from(error).kind(), io::ErrorKind::NotFound);
        }
        env.vfs.create_dir_all(Path::new("/db")).expect("made");
    }
    Ok(())
}

#[test]
fn a_drop_that_loses_buffered_writes_is_told() -> Result<()> {
    for (durability, ends, warned) in [
        (Durability::Buffered, "drop", true),
        (Durability::Buffered, "sync", false),
        (Durability::Buffered, "close", false),
        (Durability::NoSync, "drop", false),
    ] {
        let env = inline(Arc::new(MemFs::new()));
        let warnings = Arc::new(Warnings::default());
        let listener = Arc::clone(&warnings) as Arc<dyn EventListener>;
        let db = builder(&env).durability(durability).event_listener(listener).open()?;
        db.put("k", "v")?;
        match ends {
            "close" => db.close()?,
            "sync" => {
                db.sync()?;
                drop(db);
            }
            _ => drop(db),
        }
        let told = warnings.0.lock().expect("no panic").clone();
        assert_eq!(told.iter().any(|text| text.contains("Buffered writes are lost")), warned, "{told:?}");
        assert_eq!(builder(&env).open()?.contains_key("k")?, !warned, "{durability:?}, {ends}");
    }
    Ok(())
}

/// A write without a deadline of its own has that of the database.
#[test]
fn writes_have_the_deadline_of_the_database() {
    let real = Env::real();
    let slow = SlowFs::new(Arc::new(MemFs::new()), Arc::clone(&real.clock), 0, 20_000_000);
    let env = Env { vfs: Arc::new(slow), ..real };
    let db = Db::builder("/db")
        .env(env)
        .write_buffer(8 << 10)
        .write_deadline(std::time::Duration::from_millis(5))
        .experimental(|e| e.max_immutable_memtables(1))
        .durability(Durability::Buffered)
        .open()
        .expect("opened");
    let refused = (0..2_000_u32).find_map(|number| db.put(number.to_be_bytes(), [0; 1_000]).err());
    let refused = refused.expect("flushes take longer than 5 ms");
    assert_eq!(refused.kind(), ErrorKind::Stalled, "{refused:?}");
    db.put_with("patient", "", WriteOptions::new().deadline_ms(60_000)).expect("it waits");
}

/// An ingest adds a run, so it waits for compactions as other writes do.
#[test]
fn ingests_wait_while_compactions_are_behind() {
    let db = Db::builder("/db")
        .env(Env { vfs: Arc::new(MemFs::new()), ..Env::real() })
        .write_deadline(std::time::Duration::from_millis(20))
        .experimental(|e| e.rate_limit_bytes_per_s(1).l0_slowdown_runs(3).l0_stop_runs(4))
        .open()
        .expect("opened");
    // All ranges overlap, so no compaction is a move: the first one takes days at its rate.
    let ingest = |value: u32| db.ingest((0..100).map(|key: u32| (key.to_be_bytes(), value.to_be_bytes())));
    let added = (0..20).take_while(|value| ingest(*value).is_ok()).count();
    let refused = ingest(20).expect_err("compactions are behind");
    assert_eq!(refused.kind(), ErrorKind::Stalled, "{refused:?}");
    assert!((4..20).contains(&added), "{added} runs");
    assert_eq!(
        db.get(7_u32.to_be_bytes()).expect("read").as_deref(),
        Some(&(added as u32 - 1).to_be_bytes()[..])
    );
}

/// A device that takes seconds for each call: every call that waits for background work ends.
#[test]
fn no_call_waits_for_ever_on_a_device_that_does_not_answer() {
    let real = Env::real();
    let faults = FaultFs::new(Arc::new(MemFs::new()), 1);
    let env = Env { vfs: Arc::new(faults.clone()), ..real };
    let timeout = std::time::Duration::from_millis(50);
    let db = Db::builder("/db")
        .env(env)
        .write_buffer(8 << 10)
        .experimental(|e| e.wait_timeout(timeout).max_immutable_memtables(1))
        .durability(Durability::Buffered)
        .open()
        .expect("opened");
    db.put("a", "1").expect("put");
    let second = Effect::LatencyUs(1_000_000);
    faults.add_rule(FaultRule::nth(0, second).on(&[OpKind::Create]).at_path(".sst").sticky());
    let stalled = |what: &str, outcome: shamba::Result<()>| {
        let error = outcome.expect_err(what);
        assert_eq!(error.kind(), ErrorKind::Stalled, "{what}: {error:?}");
        assert!(error.chain().to_string().contains("no progress"), "{what}: {error:?}");
    };
    stalled("flush", db.flush());
    stalled("wait_idle", db.wait_idle());
    let refused = (0..100_u32).find_map(|number| db.put(number.to_be_bytes(), [0; 1_000]).err());
    stalled("put", refused.map_or(Ok(()), Err));
    faults.clear_rules();
    // It goes on by itself: a call that waits long enough succeeds.
    let patient = WriteOptions::new().deadline_ms(60_000);
    db.put_with("b", "2", patient).expect("it waits");
    assert!((0..600).any(|_| db.flush().is_ok()), "flushes end");
    assert!(db.contains_key("a").expect("get") && db.contains_key("b").expect("get"));
}
