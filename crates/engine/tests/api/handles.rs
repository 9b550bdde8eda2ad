//! Tests of the rule for handles: each keeps the database open and locked, and returns `Closed`
//! after `close`.

use std::sync::Arc;
use std::time::Duration;

use shamba::{Batch, Cursor, Db, ErrorKind, Iter, KeyCursor, Keyspace, Reader, Snapshot, Workers};
use shamba_env::{Env, LockKind, MemFs};

fn env() -> Env {
    Env::deterministic(Arc::new(MemFs::new()), 1)
}

fn open(env: &Env) -> shamba::Result<Db> {
    Db::builder("/db").env(env.clone()).open()
}

/// A database with two keys in each of two keyspaces.
fn filled(env: &Env) -> shamba::Result<Db> {
    let db = open(env)?;
    let users = db.keyspace("users")?;
    for key in ["a", "b"] {
        db.put(key, "1")?;
        users.put(key, "2")?;
    }
    Ok(db)
}

fn is_locked(env: &Env) -> bool {
    match open(env) {
        Ok(db) => {
            drop(db);
            false
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
            let text = error.to_string();
            assert!(text.contains("in this process already"), "{text}");
            true
        }
    }
}

/// Checks that the handle which `of` creates outlives the `Db`, works, and alone keeps the lock.
fn keeps_open<H>(of: impl Fn(&Db) -> H, works: impl Fn(&mut H)) -> shamba::Result<()> {
    let env = env();
    let mut handle = {
        let db = filled(&env)?;
        of(&db)
    };
    works(&mut handle);
    assert!(is_locked(&env), "the handle must keep the database locked");
    drop(handle);
    assert!(!is_locked(&env), "the last handle must free the lock");
    Ok(())
}

#[test]
fn every_handle_keeps_the_database_open_and_locked() -> shamba::Result<()> {
    keeps_open(Db::clone, |db| assert!(db.contains_key("a").expect("read")))?;
    keeps_open(
        |db| db.keyspace("users").expect("there"),
        |users: &mut Keyspace| {
            assert!(users.contains_key("a").expect("read"));
        },
    )?;
    keeps_open(Db::snapshot, |snapshot: &mut Snapshot| assert!(snapshot.contains_key("a").expect("read")))?;
    keeps_open(
        |db| db.with(&Default::default()),
        |reader: &mut Reader| {
            assert!(reader.contains_key("a").expect("read"));
        },
    )?;
    keeps_open(Db::batch, |batch: &mut Batch| batch.put("c", "3").commit().expect("written"))?;
    keeps_open(Db::iter, |iter: &mut Iter| assert_eq!(iter.by_ref().count(), 2))?;
    keeps_open(
        |db| db.keyspace("users").expect("there").range("b"..),
        |iter: &mut Iter| {
            assert_eq!(iter.next_back().expect("an entry").expect("read").0.as_ref(), b"b");
        },
    )?;
    keeps_open(Db::cursor, |cursor: &mut Cursor| assert!(cursor.seek("b").expect("sought")))?;
    keeps_open(Db::key_cursor, |cursor: &mut KeyCursor| {
        assert!(cursor.seek("b").expect("sought") && cursor.value().expect("read").is_some());
    })
}

#[test]
fn every_handle_answers_closed_after_close() -> shamba::Result<()> {
    let env = env();
    let db = filled(&env)?;
    let (clone, users, snapshot, reader) =
        (db.clone(), db.keyspace("users")?, db.snapshot(), db.with(&Default::default()));
    let (mut batch, mut begun, mut untouched, mut cursor) = (db.batch(), db.iter(), db.iter(), db.cursor());
    batch.put("c", "3");
    assert!(begun.next().expect("an entry").is_ok());
    let mut keys = db.key_cursor();
    assert!(cursor.seek_to_first()? && keys.seek_to_first()?);
    db.close()?;
    assert!(!is_locked(&env), "close frees the lock whatever handles there are");
    let closed = |what: &str, outcome: Result<(), shamba::Error>| {
        let kind = outcome.err().map(|error| error.kind());
        assert_eq!(kind, Some(ErrorKind::Closed), "{what}");
    };
    closed("get", clone.get("a").map(drop));
    closed("multi_get", clone.multi_get(["a"]).map(drop));
    closed("put", clone.put("a", "2"));
    closed("delete_range", clone.delete_range(..));
    closed("keyspace", clone.keyspace("new").map(drop));
    closed("flush", clone.flush());
    closed("keyspace get", users.get("a").map(drop));
    closed("keyspace put", users.put("a", "2"));
    closed("snapshot", snapshot.get("a").map(drop));
    closed("reader", reader.get("a").map(drop));
    closed("batch", batch.commit());
    closed("begun iterator", begun.next().expect("an error").map(drop));
    assert!(begun.next().is_none(), "an error ends an iterator");
    closed("iterator", untouched.next().expect("an error").map(drop));
    closed("iterator, backwards", clone.iter().next_back().expect("an error").map(drop));
    closed("cursor", cursor.next().map(drop));
    closed("new cursor", clone.cursor().seek("a").map(drop));
    closed("key cursor", keys.value().map(drop));
    closed("new key cursor", clone.key_cursor().seek("a").map(drop));
    closed("close", clone.close());
    Ok(())
}

#[test]
fn handles_that_are_left_do_not_touch_the_next_open() -> shamba::Result<()> {
    let env = env();
    let db = filled(&env)?;
    let (iter, snapshot) = (db.iter(), db.snapshot());
    db.close()?;
    let next = open(&env)?;
    drop((iter, snapshot));
    assert!(is_locked(&env), "the lock is the new open's");
    assert!(next.contains_key("a")?);
    next.close()
}

#[test]
fn an_open_can_wait_for_the_lock() -> shamba::Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let db = Db::open(dir.path())?;
    let error = Db::builder(dir.path()).open_timeout(Duration::from_millis(20)).open().expect_err("locked");
    assert_eq!(error.kind(), ErrorKind::Locked);
    assert!(error.to_string().contains("waited 20 ms"), "{error}");
    let waiting = std::thread::spawn({
        let path = dir.path().to_owned();
        move || Db::builder(path).open_timeout(Duration::from_secs(60)).open().map(drop)
    });
    db.put("a", "1")?;
    db.close()?;
    waiting.join().expect("no panic")
}

#[test]
fn an_open_waits_for_who_makes_the_database() -> shamba::Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let lock = Env::real().vfs.lock(&dir.path().join("LOCK"), LockKind::Exclusive).expect("the lock");
    let error = Db::builder(dir.path()).open_timeout(Duration::from_millis(20)).open().expect_err("locked");
    assert_eq!(error.kind(), ErrorKind::Locked);
    assert!(error.to_string().contains("waited 20 ms"), "{error}");
    drop(lock);
    Db::builder(dir.path()).open_timeout(Duration::from_millis(20)).open()?.close()
}

#[test]
fn a_real_lock_says_that_this_process_has_it() -> shamba::Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let db = Db::open(dir.path())?;
    let error = Db::open(dir.path()).expect_err("locked");
    assert!(error.to_string().contains("in this process already"), "{error}");
    let error = Db::open_read_only(dir.path()).expect_err("locked");
    assert!(error.to_string().contains("in this process already"), "{error}");
    db.close()?;
    Db::open(dir.path())?.close()
}

#[test]
fn a_database_closes_while_another_one_goes_on_with_the_same_threads() {
    fn fill(db: &Db, from: u32) {
        for number in from..from + 2_000 {
            db.put(number.to_be_bytes(), [7; 100]).expect("put");
        }
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let workers = Workers::new(1);
    let open = |name: &str| {
        let builder = Db::builder(dir.path().join(name)).memory_budget(4 << 20).workers(&workers);
        builder.write_buffer(64 << 10).open().expect("open")
    };
    let (stays, goes) = (open("stays"), open("goes"));
    for round in 0..5 {
        fill(&stays, round * 1_000);
        fill(&goes, round * 1_000);
    }
    goes.close().expect("closed");
    fill(&stays, 10_000);
    stays.wait_idle().expect("idle");
    stays.compact().expect("compacted");
    assert_eq!(stays.iter().count(), 6_000 + 2_000);
    stays.close().expect("closed");
    assert_eq!(open("goes").iter().count(), 6_000);
}
