//! The record cache: which lookups it answers, and that every change of a key's newest entry in the
//! tables erases its record.
//!
//! Not here: the cache without a database (`shamba-tree`, `records::tests`); crashes, faults and
//! random options (the suites in `tests`, some of whose option vectors have a record cache).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use shamba::env::{Env, MemFs};
use shamba::{Budget, Builder, Db, Design, ErrorKind, MergePolicy, Outcome, Place, Result, TreeDesign};

const MIB: u64 = 1 << 20;

/// Without filters, so that every lookup of a key in the range of a table asks the cache.
fn builder(env: &Env) -> Builder {
    Db::builder("/db")
        .env(env.clone())
        .info_log(false)
        .memory_budget(16 * MIB)
        .bits_per_key(0.0)
        .experimental(|e| e.record_cache(MIB))
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
    db.explain(key).expect("explained").steps.iter().any(|step| step.place == Place::Records)
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
    let searches = || db.stats().reads.data.count + db.stats().cache_hits;
    for (read, hits) in [(1, 0), (2, 0), (3, 1), (4, 2)] {
        let before = searches();
        assert_eq!(db.get("a").expect("read").as_deref(), Some(&b"1"[..]));
        assert_eq!(db.stats().record_hits, hits, "after read {read}");
        assert_eq!(searches() - before, u64::from(read <= 2), "blocks that read {read} searched");
    }
    let before = searches();
    assert_eq!(db.multi_get(["a", "b", "c"]).expect("read").iter().flatten().count(), 2);
    assert_eq!((db.stats().record_hits, searches() - before), (3, 1), "only \"b\" is searched for");
    assert!(is_cached(&db, "a") && !is_cached(&db, "b"));
    // Explanations ask as lookups do.
    assert_eq!(db.stats().record_hits, 4);
    assert!(db.contains_key("a").expect("read"));
    assert_eq!(db.stats().record_hits, 5);
}

#[test]
fn many_keys_at_once_are_recorded_too() {
    let db = flushed(&[("a", "1"), ("b", "2"), ("c", "3")]);
    db.delete("b").expect("deleted");
    db.flush().expect("flushed");
    for hits in [0, 0, 3, 6] {
        let values = db.multi_get(["a", "b", "c"]).expect("read");
        assert_eq!(
            values.iter().map(Option::as_deref).collect::<Vec<_>>(),
            [Some(&b"1"[..]), None, Some(&b"3"[..])]
        );
        assert_eq!(db.stats().record_hits, hits);
    }
}

#[test]
fn an_absence_is_recorded_where_no_filter_denies_the_key() {
    let db = flushed(&[("a", "1"), ("deleted", "1"), ("z", "1")]);
    db.delete("deleted").expect("deleted");
    db.flush().expect("flushed");
    for key in ["absent", "deleted"] {
        assert_eq!(warmed(&db, key), None);
    }
    assert_eq!(db.stats().record_hits, 2);
    let outcomes = ["absent", "deleted"].map(|key| {
        let explained = db.explain(key).expect("explained");
        let step = explained.steps.iter().find(|step| step.place == Place::Records);
        (explained.outcome.clone(), step.and_then(|step| step.found))
    });
    assert_eq!(outcomes, [(Outcome::Absent, None), (Outcome::Deleted, Some((4, true)))]);
    put(&db, "absent", "2");
    put(&db, "deleted", "2");
    db.flush().expect("flushed");
    for key in ["absent", "deleted"] {
        assert_eq!(warmed(&db, key).as_deref(), Some(&b"2"[..]), "{key}");
    }
}

#[test]
fn explain_shows_the_answer_and_the_tables_that_were_not_searched() {
    let db = flushed(&[("a", "1")]);
    warmed(&db, "a");
    let explained = db.explain("a").expect("explained");
    let text = explained.to_string();
    assert!(text.contains("record cache: has the newest entry of the tables; nothing read"), "{text}");
    assert!(text.contains("found the entry of sequence 1") && !text.contains("searched:"), "{text}");
    assert!(matches!(&explained.outcome, Outcome::Found { value } if value.as_ref() == b"1"));
    db.delete_range("a".."b").expect("deleted");
    assert_eq!(db.explain("a").expect("explained").outcome, Outcome::Deleted);
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
    flush_replaces_records(0);
}

/// With more entries in the memtable than records, a flush looks for each record in the memtable.
#[test]
fn a_flush_of_many_keys_replaces_records() {
    flush_replaces_records(100);
}

/// `others` keys without a record are flushed as well.
fn flush_replaces_records(others: usize) {
    let db = flushed(&[("put", "1"), ("deleted", "1"), ("in a range", "1"), ("kept", "1")]);
    // All keys stay in the range of the tables, so that lookups come to the cache.
    ["a", "z"].iter().for_each(|key| put(&db, key, "1"));
    db.flush().expect("flushed");
    let keys = ["put", "deleted", "in a range", "kept", "missing"];
    keys.iter().for_each(|key| _ = warmed(&db, key));
    put(&db, "put", "2");
    put(&db, "missing", "2");
    (0..others).for_each(|number| put(&db, &format!("other {number}"), "2"));
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
    // The maximum, with which the other parts have the least.
    let db = builder(&in_memory()).experimental(|e| e.record_cache(8 * MIB)).open().expect("a new database");
    assert_eq!(record_bytes(&db), 8 * MIB);
    let key = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    for round in 0..2 {
        (0..30_000).for_each(|number| db.put(key(number), [round; 200]).expect("written"));
        for number in (0..30_000).chain(0..30_000).chain(0..30_000) {
            assert_eq!(db.get(key(number)).expect("read").as_deref(), Some(&[round; 200][..]));
        }
    }
    db.compact().expect("compacted");
    assert!(db.stats().record_hits > 30_000, "{} hits", db.stats().record_hits);
    let memory = db.memory();
    assert_eq!(record_bytes(&db), 8 * MIB);
    assert!(memory.peak_bytes <= memory.budget_bytes, "{memory}");
}

/// Bytes that the ledger has for the cache.
fn record_bytes(db: &Db) -> u64 {
    let parts = db.memory().parts;
    parts.iter().find(|(part, _)| part == "record cache").expect("a part of the ledger").1
}

/// A shared budget grants a part of all, of which the sample is a small part.
#[test]
fn a_database_with_a_shared_budget_has_a_sample() {
    for total_bytes in [16 * MIB, 32 * MIB, 256 * MIB] {
        let env = Env::deterministic(Arc::new(MemFs::new()), 1);
        let budget = Budget::new(total_bytes);
        let db = Db::builder("/db").env(env).info_log(false).budget(&budget).open().expect("opened");
        assert!(record_bytes(&db) >= 64 << 10, "{}", db.memory());
        let env = Env::deterministic(Arc::new(MemFs::new()), 2);
        let second = Db::builder("/db").env(env).info_log(false).budget(&budget).open().expect("opened");
        for round in 0..40_000u32 {
            for db in [&db, &second] {
                let key = (round % 1_000).to_be_bytes();
                db.put(key, [1; 100]).expect("written");
                assert!(db.get(key).expect("read").is_some());
            }
        }
        for db in [&db, &second] {
            assert!(record_bytes(db) >= 64 << 10, "{total_bytes}: {}", db.memory());
        }
    }
}

/// Those of this open alone must fit: another program may have a smaller budget.
#[test]
fn a_recorded_size_is_reduced_under_another_budget() {
    let env = in_memory();
    let of = |budget_bytes| Db::builder("/db").env(env.clone()).info_log(false).memory_budget(budget_bytes);
    let wide = of(64 * MIB).experimental(|e| e.record_cache(16 * MIB)).record().open().expect("opened");
    assert_eq!(record_bytes(&wide), 16 * MIB);
    drop(wide);
    assert_eq!(record_bytes(&of(16 * MIB).open().expect("opened")), 8 * MIB);
    // A given size is measured by the budget in force, recorded or not.
    drop(of(1 << 30).record().open().expect("opened"));
    let recorded = Db::builder("/db").env(env.clone()).info_log(false);
    drop(recorded.experimental(|e| e.record_cache(300 * MIB)).open().expect("half of the recorded budget"));
    let budget = Budget::new(1 << 30);
    let shared = Db::builder("/other").env(env.clone()).info_log(false).budget(&budget);
    let shared = shared.experimental(|e| e.record_cache(300 * MIB)).open().expect("opened");
    assert_eq!(record_bytes(&shared), 300 * MIB);
}

#[test]
fn its_memory_follows_the_grant_of_a_shared_budget() {
    let env = Env::deterministic(Arc::new(MemFs::new()), 1);
    let budget = Budget::new(16 * MIB);
    let open = |name: &str| {
        let builder = Db::builder(name).env(env.clone()).info_log(false).budget(&budget);
        builder.experimental(|e| e.record_cache(5 * MIB)).open().expect("a new database")
    };
    let first = open("/first");
    assert_eq!(record_bytes(&first), 5 * MIB);
    let second = open("/second");
    for number in 0..4_000u32 {
        for db in [&first, &second] {
            db.put(number.to_be_bytes(), [1; 100]).expect("written");
            assert!(db.get((number / 8).to_be_bytes()).expect("read").is_some());
        }
    }
    for db in [&first, &second] {
        let memory = db.memory();
        assert!(record_bytes(db) <= memory.budget_bytes / 2, "{memory}");
        assert!(memory.ledger_bytes <= memory.budget_bytes, "{memory}");
    }
    assert!(record_bytes(&first) < 5 * MIB && record_bytes(&second) > 0, "{}", first.memory());
}

#[test]
fn a_bad_size_is_refused_by_name() {
    for (bytes, text) in [
        (12 * MIB, "record-cache (12 MiB) must be at most half of memory-budget (16 MiB)"),
        (1 << 10, "record-cache (1 KiB) must be 0 or at least 64 KiB"),
    ] {
        let refused = builder(&in_memory()).experimental(|e| e.record_cache(bytes)).open();
        let error = refused.map(drop).expect_err("a bad size");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(text), "{error}");
    }
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

/// Random writes of all kinds, flushes and compactions without threads, against maps: one of the
/// newest state, and one of each snapshot.
#[test]
fn answers_are_those_of_the_oracle() {
    let seed = std::env::var("SHAMBA_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(30);
    println!("SHAMBA_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let env = Env::deterministic(Arc::new(MemFs::new()), seed);
    // Few filter bits and a small cache: absences are recorded, and records dropped.
    let builder = builder(&env).write_buffer(16 << 10).bits_per_key(2.0);
    let db = builder.experimental(|e| e.record_cache(64 << 10)).open().expect("a new database");
    let key = |number: u32| format!("key {number:04}");
    let mut oracle: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let mut snapshots = Vec::new();
    for step in 0..40_000u32 {
        // Most reads are of a few keys, so that they are recorded between two flushes.
        let number = if random.u32(0..4) == 0 { random.u32(0..1000) } else { random.u32(0..40) * 25 };
        match random.u32(0..1000) {
            0..60 => {
                let value = vec![step as u8; random.usize(0..300)];
                db.put(key(number), &value).expect("written");
                oracle.insert(key(number), value);
            }
            60..70 => {
                db.delete(key(number)).expect("deleted");
                oracle.remove(&key(number));
            }
            70..73 => {
                let end = number + random.u32(1..60);
                db.delete_range(key(number)..key(end)).expect("deleted");
                oracle.retain(|other, _| !(key(number)..key(end)).contains(other));
            }
            73..76 => {
                let pairs: Vec<_> = (number..number + 3).map(|number| (key(number), b"ingested")).collect();
                db.ingest(pairs.clone()).expect("ingested");
                oracle.extend(pairs.into_iter().map(|(key, value)| (key, value.to_vec())));
            }
            76..80 => db.flush().expect("flushed"),
            80 => db.compact().expect("compacted"),
            81..84 => snapshots.push((db.snapshot(), oracle.clone())),
            84..88 if !snapshots.is_empty() => _ = snapshots.swap_remove(random.usize(..snapshots.len())),
            88..250 => {
                let keys: Vec<_> = (0..4).map(|next| key((number + next * 25) % 1000)).collect();
                let values = db.multi_get(&keys).expect("read");
                for (key, value) in keys.iter().zip(values) {
                    let expected = oracle.get(key).map(Vec::as_slice);
                    assert_eq!(value.as_deref(), expected, "step {step}, {key}");
                }
            }
            250..350 if !snapshots.is_empty() => {
                let (snapshot, oracle) = &snapshots[random.usize(..snapshots.len())];
                let value = snapshot.get(key(number)).expect("read");
                let expected = oracle.get(&key(number)).map(Vec::as_slice);
                assert_eq!(value.as_deref(), expected, "step {step}, key {number} of a snapshot");
            }
            _ => {
                let expected = oracle.get(&key(number)).map(Vec::as_slice);
                let value = db.get(key(number)).expect("read");
                assert_eq!(value.as_deref(), expected, "step {step}, key {number}");
            }
        }
    }
    let hits = db.stats().record_hits;
    assert!(hits > 2_000, "{hits} answers of the record cache");
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
