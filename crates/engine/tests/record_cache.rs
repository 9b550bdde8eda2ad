//! The record cache: which lookups it answers, and that whatever changes a key's newest entry in the
//! tables takes the record with it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use shamba::env::{Env, MemFs};
use shamba::{Builder, Db, Design, ErrorKind, MergePolicy, Result, TreeDesign};

fn builder(env: &Env) -> Builder {
    Db::builder("/db")
        .env(env.clone())
        .info_log(false)
        .memory_budget(16 << 20)
        .experimental(|e| e.record_cache(1 << 20))
}

/// Files in memory, with threads.
fn in_memory() -> Env {
    Env { vfs: Arc::new(MemFs::new()), ..Env::real() }
}

fn open() -> Db {
    builder(&in_memory()).open().expect("a new database")
}

/// Reads until the cache answers: once to be noticed, once to be recorded.
fn warmed(db: &Db, key: &str) -> Option<Vec<u8>> {
    let mut value = None;
    for _ in 0..3 {
        value = db.get(key).expect("read").map(|value| value.to_vec());
    }
    value
}

fn put(db: &Db, key: &str, value: &str) {
    db.put(key, value).expect("written");
}

/// Whether the cache answers a lookup of the key.
fn is_cached(db: &Db, key: &str) -> bool {
    db.explain(key).expect("explained").to_string().contains("record cache")
}

fn flushed(pairs: &[(&str, &str)]) -> Db {
    let db = open();
    pairs.iter().for_each(|(key, value)| put(&db, key, value));
    db.flush().expect("flushed");
    db
}

#[test]
fn a_key_that_is_read_repeatedly_is_answered() {
    let db = flushed(&[("a", "1"), ("b", "2")]);
    for (read, hits) in [(1, 0), (2, 0), (3, 1), (4, 2)] {
        assert_eq!(db.get("a").expect("read").as_deref(), Some(&b"1"[..]));
        assert_eq!(db.stats().record_hits, hits, "after read {read}");
    }
    assert_eq!(db.multi_get(["a", "b", "c"]).expect("read").iter().flatten().count(), 2);
    assert_eq!(db.stats().record_hits, 3);
    assert!(is_cached(&db, "a") && !is_cached(&db, "b"));
    assert!(db.contains_key("a").expect("read"));
}

#[test]
fn memtables_come_first() {
    let db = flushed(&[("a", "old")]);
    warmed(&db, "a");
    put(&db, "a", "new");
    assert_eq!(warmed(&db, "a").as_deref(), Some(&b"new"[..]));
    db.delete("a").expect("deleted");
    assert_eq!(warmed(&db, "a"), None);
}

#[test]
fn a_range_tombstone_in_a_memtable_hides_records() {
    let db = flushed(&[("a", "1"), ("b", "1")]);
    ["a", "b"].iter().for_each(|key| _ = warmed(&db, key));
    db.delete_range("a".."b").expect("deleted");
    assert_eq!(warmed(&db, "a"), None);
    assert_eq!(warmed(&db, "b").as_deref(), Some(&b"1"[..]));
}

#[test]
fn a_flush_replaces_records() {
    let db = flushed(&[("put", "1"), ("deleted", "1"), ("in a range", "1"), ("kept", "1")]);
    let keys = ["put", "deleted", "in a range", "kept", "absent"];
    keys.iter().for_each(|key| _ = warmed(&db, key));
    put(&db, "put", "2");
    put(&db, "absent", "2");
    db.delete("deleted").expect("deleted");
    db.delete_range("in".."in b").expect("deleted");
    db.flush().expect("flushed");
    assert!(is_cached(&db, "kept"), "what the flush does not bring stays");
    let values = keys.map(|key| warmed(&db, key).map(|value| String::from_utf8_lossy(&value).into_owned()));
    assert_eq!(values, [Some("2"), None, None, Some("1"), Some("2")].map(|value| value.map(str::to_owned)));
    db.compact().expect("compacted");
    let after = keys.map(|key| warmed(&db, key).map(|value| String::from_utf8_lossy(&value).into_owned()));
    assert_eq!(after, values, "after the tombstones are gone");
}

#[test]
fn an_ingest_replaces_records() {
    let db = flushed(&[("a", "1"), ("b", "1")]);
    warmed(&db, "a");
    db.ingest([("a", "2"), ("c", "2")]).expect("ingested");
    assert_eq!(warmed(&db, "a").as_deref(), Some(&b"2"[..]));
    assert_eq!(warmed(&db, "c").as_deref(), Some(&b"2"[..]));
}

#[test]
fn a_snapshot_reads_its_own_state() {
    let db = flushed(&[("a", "1"), ("b", "1")]);
    let before = db.snapshot();
    put(&db, "a", "2");
    db.delete("b").expect("deleted");
    db.flush().expect("flushed");
    let after = db.snapshot();
    ["a", "b"].iter().for_each(|key| _ = warmed(&db, key));
    for _ in 0..3 {
        assert_eq!(before.get("a").expect("read").as_deref(), Some(&b"1"[..]));
        assert_eq!(before.get("b").expect("read").as_deref(), Some(&b"1"[..]));
        assert_eq!(after.get("a").expect("read").as_deref(), Some(&b"2"[..]));
        assert_eq!(after.get("b").expect("read").as_deref(), None);
    }
    assert_eq!(warmed(&db, "a").as_deref(), Some(&b"2"[..]), "no record of a snapshot's state");
}

#[test]
fn keyspaces_do_not_share_records() {
    let db = flushed(&[("a", "1")]);
    warmed(&db, "a");
    let other = db.create_keyspace("other").expect("created");
    other.put("a", "2").expect("written");
    db.flush().expect("flushed");
    for _ in 0..3 {
        assert_eq!(other.get("a").expect("read").as_deref(), Some(&b"2"[..]));
    }
    db.drop_keyspace("other").expect("dropped");
    let again = db.create_keyspace("other").expect("created");
    for _ in 0..3 {
        assert_eq!(again.get("a").expect("read"), None);
    }
    assert_eq!(warmed(&db, "a").as_deref(), Some(&b"1"[..]));
}

#[test]
fn its_memory_is_part_of_the_budget() {
    let db = open();
    let memory = db.memory();
    let part = memory.parts.iter().find(|(part, _)| part == "record cache");
    assert_eq!(part.map(|(_, bytes)| *bytes), Some(1 << 20));
    drop(db);
    let refused = builder(&in_memory()).experimental(|e| e.record_cache(12 << 20)).open();
    let error = refused.err().expect("more than half of the budget");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("record-cache (12 MiB)"), "{error}");
}

/// One thread writes both keys of a pair in one batch, with ascending numbers, and flushes. Readers
/// of pairs must never see different numbers, nor a number after a larger one.
#[test]
fn batches_stay_whole_and_readers_never_go_back() {
    const PAIRS: usize = 16;
    let db = open();
    let pair = |number: usize| [format!("left {number}"), format!("right {number}")];
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..2usize {
            let (db, is_done) = (&db, &is_done);
            scope.spawn(move || {
                let mut last: BTreeMap<usize, u64> = BTreeMap::new();
                let mut number = reader;
                while !is_done.load(Ordering::Acquire) {
                    number = (number * 5 + 1) % PAIRS; // Every pair in turn.
                    let values = db.multi_get(pair(number)).expect("read");
                    let values = values.iter().map(|value| value.as_deref().map(number_of));
                    let values: Vec<_> = values.collect();
                    assert_eq!(values[0], values[1], "pair {number}");
                    let single = db.get(&pair(number)[reader]).expect("read").as_deref().map(number_of);
                    let before = last.insert(number, single.unwrap_or(0)).unwrap_or(0);
                    assert!(
                        values[0].unwrap_or(0) >= before && single >= values[0],
                        "pair {number} went back"
                    );
                }
            });
        }
        for round in 1..=600u64 {
            let number = (round as usize * 7) % PAIRS;
            let mut batch = db.batch();
            pair(number).iter().for_each(|key| _ = batch.put(key, round.to_be_bytes()));
            batch.commit().expect("written");
            if round % 5 == 0 {
                db.flush().expect("flushed");
            }
        }
        is_done.store(true, Ordering::Release);
    });
    assert!(db.stats().record_hits > 0, "no lookup was answered by the cache");
}

fn number_of(value: &[u8]) -> u64 {
    u64::from_be_bytes(value.try_into().expect("eight bytes"))
}

/// A redesign moves every entry, and changes no newest one.
#[test]
fn records_outlive_a_redesign() -> Result<()> {
    let db = open();
    (0..2000).try_for_each(|number| db.put(format!("key {number}"), format!("{number}")))?;
    db.flush()?;
    warmed(&db, "key 7");
    let design = Design::new(MergePolicy::Tiering, 4.0, 1 << 20, 6.5);
    db.redesign(&TreeDesign { design, ..db.tree_design() })?;
    db.wait_idle()?;
    assert!(is_cached(&db, "key 7"));
    assert_eq!(warmed(&db, "key 7").as_deref(), Some(&b"7"[..]));
    Ok(())
}
