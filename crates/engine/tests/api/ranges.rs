//! Tests of what is asked of whole ranges: keys without values, ends, estimates, split points,
//! deletion by prefix, and the same methods on every handle.

use std::collections::BTreeMap;
use std::sync::Arc;

use shamba::env::{Env, MemFs, Rng, SeededRng};
use shamba::merge::Append;
use shamba::{Db, KeyspaceOptions, PrefixRange, ReadOptions, Result, Slice};

fn open(seed: u64) -> Db {
    open_with(seed, 64 << 10)
}

fn open_with(seed: u64, write_buffer_bytes: u64) -> Db {
    let env = Env::deterministic(Arc::new(MemFs::new()), seed);
    let appending = KeyspaceOptions::new().merge_operator(Append::separated_by(","));
    let builder = Db::builder("/db").env(env).write_buffer(write_buffer_bytes);
    let builder = builder.memory_budget((8 << 20).max(8 * write_buffer_bytes));
    builder.keyspace("default", appending).open().expect("opens")
}

fn all(keys: impl Iterator<Item = Result<Slice>>) -> Vec<Vec<u8>> {
    keys.map(|key| key.expect("readable").into_vec()).collect()
}

#[test]
fn keys_are_those_of_the_entries_and_read_no_value() {
    for seed in 0..40 {
        println!("seed {seed}");
        let db = open(seed);
        let rng = SeededRng::new(seed);
        let below = |sides: u64| rng.next_u64() % sides;
        let mut model: BTreeMap<Vec<u8>, ()> = BTreeMap::new();
        for _ in 0..400 {
            let key = vec![b'a' + below(20) as u8, b'a' + below(20) as u8];
            match below(20) {
                0..8 => {
                    let bytes = [3, 900, 2_000, 40_000][below(4) as usize];
                    db.put(&key, vec![7; bytes]).expect("put");
                    model.insert(key, ());
                }
                8..12 => {
                    db.merge(&key, "x").expect("merged");
                    model.insert(key, ());
                }
                12..16 => {
                    db.delete(&key).expect("deleted");
                    model.remove(&key);
                }
                16 => {
                    db.delete_prefix(&key[..1]).expect("deleted");
                    model.retain(|other, ()| other[0] != key[0]);
                }
                17 => db.flush().expect("flushed"),
                18 if below(4) == 0 => db.compact().expect("compacted"),
                _ => {}
            }
            if below(10) == 0 {
                let (from, to) = (vec![b'a' + below(20) as u8], vec![b'a' + below(22) as u8]);
                let due: Vec<Vec<u8>> = match from < to {
                    true => model.range(from.clone()..to.clone()).map(|(key, ())| key.clone()).collect(),
                    false => Vec::new(),
                };
                assert_eq!(all(db.keys(&from..&to)), due);
                let mut backward = all(db.keys(&from..&to).rev());
                backward.reverse();
                assert_eq!(backward, due);
                let (mut keys, mut front, mut back) = (db.keys(&from..&to), Vec::new(), Vec::new());
                loop {
                    let is_front = below(2) == 0;
                    match if is_front { keys.next() } else { keys.next_back() } {
                        Some(key) if is_front => front.push(key.expect("readable").into_vec()),
                        Some(key) => back.push(key.expect("readable").into_vec()),
                        None => break,
                    }
                }
                front.extend(back.into_iter().rev());
                assert_eq!(front, due, "from both ends");
            }
        }
        let key_of = |entry: Option<(Slice, Slice)>| entry.map(|(key, _)| key.into_vec());
        assert_eq!(key_of(db.first().expect("readable")), model.keys().next().cloned());
        assert_eq!(key_of(db.last().expect("readable")), model.keys().next_back().cloned());
    }
}

#[test]
fn large_values_are_not_read_for_their_keys() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("db");
    let open = || Db::builder(&path).memory_budget(8 << 20).open().expect("opens");
    let db = open();
    for number in 0..20u8 {
        db.put([number], vec![number; 100_000]).expect("put");
    }
    db.compact().expect("compacted");
    db.close().expect("closed");
    // The first value is damaged. Who does not read it does not notice.
    let tables = std::fs::read_dir(&path).expect("a directory").map(|entry| entry.expect("readable").path());
    let table =
        tables.filter(|file| file.extension().is_some_and(|name| name == "sst")).min().expect("a table");
    let mut bytes = std::fs::read(&table).expect("readable");
    bytes[20_000] ^= 1;
    std::fs::write(&table, bytes).expect("writable");
    let db = open();
    assert_eq!((all(db.keys(..)).len(), all(db.keys(..).rev()).len()), (20, 20));
    assert_eq!(db.first().expect_err("it reads the value").kind(), shamba::ErrorKind::Corruption);
    let mut cursor = db.key_cursor();
    assert!(cursor.seek([0]).expect("sought") && cursor.next().expect("moved"));
    db.put([1], "newer").expect("put");
    assert_eq!(cursor.key(), Some(&[1][..]));
    assert_eq!(cursor.value().expect("read").as_deref(), Some(&[1; 100_000][..]), "as of its begin");
    assert!(cursor.prev().expect("moved"));
    assert_eq!(cursor.value().expect_err("damaged").kind(), shamba::ErrorKind::Corruption);
    assert!(!cursor.prev().expect("moved") && cursor.value().expect("none").is_none());
    // With bounds, over a snapshot.
    let options = shamba::ReadOptions::new().lower_bound([5]).upper_bound([7]);
    let mut cursor = db.snapshot().with(&options).key_cursor();
    let mut keys = Vec::new();
    while cursor.next().expect("moved") {
        keys.extend(cursor.key().map(<[u8]>::to_vec));
    }
    assert_eq!(keys, [[5], [6]]);
}

#[test]
fn estimates_are_near_and_parts_are_about_equal() {
    for (what, in_tables, tables) in
        [("in tables", 100, 1..100), ("in memtables", 1_000, 0..1), ("in both", 50, 1..100)]
    {
        // Nothing is flushed but by compactions.
        let db = open_with(2, 16 << 20);
        let key = |number: u32| format!("key{number:06}");
        // Three versions of a third of the keys.
        for number in 0..20_000u32 {
            for _ in 0..if number < 6_000 { 3 } else { 1 } {
                db.put(key(number), [number as u8; 40]).expect("put");
            }
            if number / 200 == in_tables && number % 200 == 0 {
                db.compact().expect("compacted");
            }
        }
        if in_tables == 100 {
            db.compact().expect("compacted");
        }
        assert!(tables.contains(&db.tables().len()), "{what}: {} tables", db.tables().len());
        let count = db.approximate_count(key(8_000)..key(12_000)).expect("open");
        assert!((3_600..=4_400).contains(&count), "{what}: {count} of 4,000 entries");
        let (part, whole) = (
            db.approximate_size(key(8_000)..key(12_000)).expect("open"),
            db.approximate_size(..).expect("open"),
        );
        assert!(part > 0 && part < whole, "{what}: {part} of {whole} bytes");
        assert_eq!(db.approximate_size("x"..).expect("open"), 0, "{what}");
        assert_eq!(db.approximate_count(key(5)..key(5)).expect("open"), 0, "{what}");
        for parts in [1, 2, 3, 7, 16] {
            let points = db.split_points(.., parts).expect("open");
            assert_eq!(points.len(), parts - 1, "{what}: {points:?}");
            assert!(points.is_sorted(), "{what}: {points:?}");
            let starts = [Vec::new()].into_iter().chain(points.iter().cloned());
            let ends = points.iter().cloned().chain([b"z".to_vec()]);
            for (start, end) in starts.zip(ends) {
                let bytes = db.approximate_size(&start..&end).expect("open");
                let (bytes, due) = (bytes as f64, whole as f64 / parts as f64);
                assert!(
                    (0.7..1.4).contains(&(bytes / due)),
                    "{what}, {parts} parts: {bytes} instead of {due}"
                );
            }
        }
        let within = db.split_points(key(100)..key(200), 4).expect("open");
        assert!(within.iter().all(|point| *point > key(100).into_bytes() && *point < key(200).into_bytes()));
        assert_eq!(db.split_points("x".., 4).expect("open"), Vec::<Vec<u8>>::new());
    }
}

#[test]
fn keyspaces_and_snapshots_read_with_options_and_ingest() {
    let db = open(3);
    let space = db.keyspace("space").expect("made");
    db.put("a", "default").expect("put");
    assert_eq!(space.ingest([("a", "1"), ("b", "2"), ("c", "3")]).expect("ingested"), 3);
    let snapshot = db.snapshot();
    space.delete("b").expect("deleted");
    let bounded = ReadOptions::new().lower_bound("b").fill_cache(false);
    assert_eq!(all(space.with(&bounded).keys(..)), [b"c"]);
    assert_eq!(all(snapshot.keyspace(&space).with(&bounded).keys(..)), [&b"b"[..], b"c"]);
    assert_eq!(all(db.with(&bounded).keys(..)), Vec::<Vec<u8>>::new());
    assert_eq!(space.with(&bounded).get("a").expect("readable").as_deref(), Some(&b"1"[..]));
    assert_eq!(
        snapshot.keyspace(&space).with(&bounded).get("b").expect("readable").as_deref(),
        Some(&b"2"[..])
    );
}

#[test]
fn a_prefix_is_deleted_alone_by_every_handle() {
    let db = open(4);
    let space = db.keyspace("space").expect("made");
    let fill = || {
        for key in [&b"a"[..], b"ab", b"ab\xff\xff", b"ac", b"b", b"\xff", b"\xff\xff"] {
            db.put(key, "1").expect("put");
            space.put(key, "1").expect("put");
        }
    };
    let rest: Vec<Vec<u8>> =
        vec![b"a".to_vec(), b"ac".to_vec(), b"b".to_vec(), b"\xff".to_vec(), b"\xff\xff".to_vec()];
    fill();
    db.delete_prefix("ab").expect("deleted");
    assert_eq!(all(db.keys(..)), rest);
    assert_eq!(space.keys(..).count(), 7);
    space.delete_prefix("ab").expect("deleted");
    assert_eq!(all(space.keys(..)), rest);
    fill();
    let mut batch = db.batch();
    batch.delete_prefix("ab").delete_prefix_in(&space, b"\xff").put("abc", "after");
    batch.commit().expect("committed");
    assert_eq!(all(db.keys(PrefixRange::of("ab"))), [b"abc"]);
    assert_eq!(space.keys(PrefixRange::of(b"\xff")).count(), 0);
    assert_eq!(space.keys(..).count(), 5);
    fill();
    let mut transaction = db.transaction();
    transaction.delete_prefix("a").expect("deleted");
    transaction.delete_prefix_in(&space, "").expect("deleted");
    transaction.commit().expect("nothing else writes");
    assert_eq!(all(db.keys(..)), [&b"b"[..], b"\xff", b"\xff\xff"]);
    assert_eq!(space.first().expect("readable"), None);
}
