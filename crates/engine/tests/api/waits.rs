//! Tests of the calls that wait for background work, under faults that stay: each call ends with
//! the cause, and succeeds once the fault is gone.

use std::sync::Arc;
use std::time::Duration;

use shamba::env::{Effect, Env, FaultFs, FaultRule, MemFs, OpKind};
use shamba::{Db, ErrorKind, Result, TreeDesign};

use super::support::os_error;

const ENOSPC: i32 = 28;
const EIO: i32 = 5;
const EMFILE: i32 = 24;

/// The faults, all on tables: what every flush and compaction needs fails.
const FAULTS: [(Effect, OpKind, i32); 4] = [
    (Effect::Eio, OpKind::SyncAll, EIO),
    (Effect::Enospc, OpKind::Append, ENOSPC),
    (Effect::Emfile, OpKind::Create, EMFILE),
    // A table is opened for reading once it is written.
    (Effect::Emfile, OpKind::OpenRead, EMFILE),
];

/// The outcome of a call while no table can be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Expected {
    /// It needs one.
    Fails,
    /// Depending on what is to be done.
    Either,
    /// It waits for no table.
    Succeeds,
}

/// A call with its name.
type Call = (&'static str, fn(&Db) -> Result<()>, Expected);

const CALLS: [Call; 10] = [
    ("flush", |db| db.flush(), Expected::Fails),
    ("compact", |db| db.compact(), Expected::Fails),
    ("compact_range", |db| db.compact_range("a".."b"), Expected::Fails),
    ("put", fill, Expected::Fails),
    ("checkpoint", |db| db.checkpoint("/copy"), Expected::Fails),
    ("wait_idle", wait_for_flushes, Expected::Fails),
    ("rewrite_filters", |db| db.rewrite_filters().map(|_| ()), Expected::Either),
    ("ingest", |db| db.ingest([("ingested", "value")]).map(|_| ()), Expected::Fails),
    ("drop_keyspace", |db| db.drop_keyspace("other"), Expected::Either),
    ("redesign", |db| db.redesign(&larger(db)), Expected::Succeeds),
];

/// Waits for flushes that are due.
fn wait_for_flushes(db: &Db) -> Result<()> {
    // Until a write waits for them.
    let _ = fill(db);
    db.wait_idle()
}

/// A design that compactions have to make.
fn larger(db: &Db) -> TreeDesign {
    let mut target = db.tree_design();
    target.design.size_ratio += 1.0;
    target
}

/// Writes until a write fails.
fn fill(db: &Db) -> Result<()> {
    for number in 0..2_000u32 {
        db.put(format!("filled/{number:06}"), [0; 200])?;
    }
    Ok(())
}

#[test]
fn every_call_ends_with_the_cause_and_succeeds_when_it_is_gone() {
    for ((effect, operation, code), (name, call, expected)) in
        FAULTS.into_iter().flat_map(|fault| CALLS.map(|call| (fault, call)))
    {
        let what = format!("{name} with {effect:?} at {operation:?}");
        let faults = FaultFs::new(Arc::new(MemFs::new()), 1);
        let env = Env { vfs: Arc::new(faults.clone()), ..Env::real() };
        let open = || {
            let db = Db::builder("/db").env(env.clone()).info_log(false).write_buffer(8 << 10);
            db.experimental(|e| e.max_immutable_memtables(1)).open().expect("opened")
        };
        let db = open();
        let other = db.keyspace("other").expect("made");
        for number in 0..20u32 {
            db.put(format!("a{number}"), "value").expect("put");
            other.put(format!("b{number}"), "value").expect("put");
        }
        drop(other);
        faults.add_rule(FaultRule::nth(0, effect).on(&[operation]).at_path(".sst").sticky());
        let outcome = call(&db);
        match &outcome {
            Ok(()) => assert_ne!(expected, Expected::Fails, "{what}: it succeeded"),
            Err(error) => {
                assert_ne!(expected, Expected::Succeeds, "{what}: {error:?}");
                assert_eq!(os_error(error), Some(code), "{what}: {error:?}");
                let kind = if code == ENOSPC { ErrorKind::NoSpace } else { ErrorKind::Io };
                assert_eq!(error.kind(), kind, "{what}: {error:?}");
            }
        }
        assert_eq!(db.get("a7").expect("reads go on").as_deref(), Some(&b"value"[..]), "{what}");
        faults.clear_rules();
        if outcome.is_err() {
            // Until the next attempt, writes get the error of the last one where the disk was full.
            let works = |_| {
                call(&db).is_ok() || {
                    std::thread::sleep(Duration::from_millis(10));
                    false
                }
            };
            assert!((0..1_000).any(works), "{what}: it fails although the fault is gone");
        }
        db.put("after", "value").unwrap_or_else(|error| panic!("{what}, a write: {error:?}"));
        db.flush().unwrap_or_else(|error| panic!("{what}, a flush: {error:?}"));
        db.close().unwrap_or_else(|error| panic!("{what}, close: {error:?}"));
        let db = open();
        for number in 0..20u32 {
            assert!(db.contains_key(format!("a{number}")).expect("get"), "{what}");
        }
        assert!(db.contains_key("after").expect("get"), "{what}");
        assert!(db.verify().expect("checked").is_clean(), "{what}");
    }
}

/// A database that is closed while nothing can be written ends, and loses nothing.
#[test]
fn a_close_ends_while_no_table_can_be_written() {
    for (effect, operation, _) in FAULTS {
        let faults = FaultFs::new(Arc::new(MemFs::new()), 1);
        let env = Env { vfs: Arc::new(faults.clone()), ..Env::real() };
        let open = || Db::builder("/db").env(env.clone()).info_log(false).write_buffer(8 << 10).open();
        let db = open().expect("opened");
        db.put("a", "value").expect("put");
        faults.add_rule(FaultRule::nth(0, effect).on(&[operation]).at_path(".sst").sticky());
        let _ = fill(&db);
        // It may report what failed.
        let _ = db.close();
        faults.clear_rules();
        let db = open().expect("opened again");
        assert!(db.contains_key("a").expect("get"), "{effect:?} at {operation:?}");
    }
}

/// A close waits for the call that the device has not answered, and then ends; nothing is lost.
#[test]
fn a_close_ends_when_a_device_answers_late() {
    let faults = FaultFs::new(Arc::new(MemFs::new()), 1);
    let env = Env { vfs: Arc::new(faults.clone()), ..Env::real() };
    let open = || {
        let builder = Db::builder("/db").env(env.clone()).info_log(false).write_buffer(8 << 10);
        builder.experimental(|e| e.wait_timeout(Duration::from_millis(20))).open().expect("opened")
    };
    let db = open();
    db.put("a", "value").expect("put");
    let slow = Effect::LatencyUs(200_000);
    faults.add_rule(FaultRule::nth(0, slow).on(&[OpKind::Create]).at_path(".sst").sticky());
    let begun = db.flush().expect_err("the flush waits for the device");
    assert_eq!(begun.kind(), ErrorKind::Stalled, "{begun:?}");
    db.close().expect("the device has answered");
    faults.clear_rules();
    assert!(open().contains_key("a").expect("get"));
}

/// A device that takes long for each call: a call that waits for background work ends when that
/// makes no progress for the time of `wait-timeout`.
#[test]
fn calls_that_wait_end_on_a_device_that_does_not_answer() {
    for (name, call, expected) in CALLS {
        let faults = FaultFs::new(Arc::new(MemFs::new()), 1);
        let env = Env { vfs: Arc::new(faults.clone()), ..Env::real() };
        let timeout = Duration::from_millis(50);
        let db = Db::builder("/db")
            .env(env)
            .info_log(false)
            .write_buffer(8 << 10)
            .experimental(|e| e.wait_timeout(timeout).max_immutable_memtables(1))
            .open()
            .expect("opened");
        let other = db.keyspace("other").expect("made");
        db.put("a7", "value").expect("put");
        other.put("b", "value").expect("put");
        drop(other);
        let slow = Effect::LatencyUs(400_000);
        faults.add_rule(FaultRule::nth(0, slow).on(&[OpKind::Create]).at_path(".sst").sticky());
        // Work that such a call waits for, and does not do itself.
        let begun = db.flush().expect_err("the flush waits for the device");
        assert_eq!(begun.kind(), ErrorKind::Stalled, "{name}: {begun:?}");
        match call(&db) {
            // What a call writes itself, the device ends.
            Ok(()) => assert!(
                expected != Expected::Fails || ["flush", "ingest"].contains(&name),
                "{name}: it succeeded"
            ),
            Err(error) => {
                assert_ne!(expected, Expected::Succeeds, "{name}: {error:?}");
                assert_eq!(error.kind(), ErrorKind::Stalled, "{name}: {error:?}");
                assert!(error.chain().to_string().contains("no progress"), "{name}: {error:?}");
            }
        }
        assert!(db.contains_key("a7").expect("reads go on"), "{name}");
        faults.clear_rules();
        // It goes on by itself.
        assert!((0..600).any(|_| db.flush().is_ok()), "{name}: flushes end");
        db.close().unwrap_or_else(|error| panic!("{name}, close: {error:?}"));
    }
}
