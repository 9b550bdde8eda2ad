//! Tests of the options that a keyspace has for itself: compression, filter bits, sizes of blocks
//! and tables, and the merge policy.

use std::collections::BTreeMap;
use std::sync::Arc;

use shamba::env::{Env, MemFs};
use shamba::{Compression, Db, ErrorKind, Keyspace, KeyspaceOptions, MergePolicy};

fn open(fs: &MemFs) -> Db {
    let env = Env::deterministic(Arc::new(fs.clone()), 5);
    let db = Db::builder("/db").env(env).write_buffer(64 << 10).bits_per_key(10.0);
    db.size_ratio(4.0).experimental(|e| e.file_size(16 << 10)).open().expect("opens")
}

/// Writes 2,000 compressible values of 100 bytes into a keyspace, and compacts it.
fn fill(keyspace: &Keyspace) {
    for number in 0..2_000u32 {
        let key = number.wrapping_mul(0x9e37_79b9).to_be_bytes();
        keyspace.put(key, format!("{number:04}").repeat(25)).expect("put");
    }
    keyspace.compact().expect("compacted");
}

/// Bytes, tables, and mean filter bits of a keyspace.
fn shape(keyspace: &Keyspace) -> (u64, usize, f64) {
    let (stats, tables) = (keyspace.stats(), keyspace.tables());
    let entries: u64 = tables.iter().map(|table| table.entries).sum();
    let bits: f64 = tables.iter().map(|table| table.bits_per_key * table.entries as f64).sum();
    (stats.levels.iter().map(|level| level.bytes).sum(), tables.len(), bits / entries as f64)
}

fn read_all(keyspace: &Keyspace) {
    for number in 0..2_000u32 {
        let key = number.wrapping_mul(0x9e37_79b9).to_be_bytes();
        let value = keyspace.get(key).expect("get").expect("there");
        assert_eq!(value, format!("{number:04}").repeat(25).as_bytes(), "{number}");
    }
}

#[test]
fn tables_are_built_as_the_keyspace_says_and_others_as_the_database_does() {
    let fs = MemFs::new();
    let db = open(&fs);
    let plain = db.keyspace("plain").expect("made");
    let make = |name, options| db.keyspace_with(name, options).expect("made");
    let compressed = make("compressed", KeyspaceOptions::new().compression(Compression::Lz4));
    let few_bits = make("few bits", KeyspaceOptions::new().bits_per_key(3.0));
    let large = make("large tables", KeyspaceOptions::new().file_size(64 << 10));
    let small_blocks = make("small blocks", KeyspaceOptions::new().block_bytes(256));
    for keyspace in [&plain, &compressed, &few_bits, &large, &small_blocks] {
        fill(keyspace);
        read_all(keyspace);
    }
    let (bytes, tables, bits) = shape(&plain);
    assert!(shape(&compressed).0 < bytes / 2, "{} of {bytes} bytes", shape(&compressed).0);
    assert!((bits - 10.0).abs() < 2.0, "{bits} bits per key");
    let own_bits = shape(&few_bits).2;
    assert!((own_bits - 3.0).abs() < 1.0, "{own_bits} bits per key of 3");
    let own_tables = shape(&large).1;
    assert!(own_tables <= tables / 2, "{own_tables} tables, {tables} where they are smaller");
    // Small blocks leave more gaps and have a larger index.
    assert!(shape(&small_blocks).0 > bytes, "{:?}, {bytes}", shape(&small_blocks));
    db.check_invariants().expect("the trees are sound");
}

#[test]
fn a_tree_follows_the_policy_of_its_keyspace() {
    let fs = MemFs::new();
    let db = open(&fs);
    let leveled = db.keyspace("leveled").expect("made");
    let tiered = KeyspaceOptions::new().merge_policy(MergePolicy::Tiering);
    let tiered = db.keyspace_with("tiered", tiered).expect("made");
    let mut most = [0, 0];
    for round in 0..40u32 {
        for (at, keyspace) in [&leveled, &tiered].into_iter().enumerate() {
            for number in 0..200u32 {
                keyspace.put((number * 40 + round).to_be_bytes(), [7; 100]).expect("put");
            }
            db.flush().expect("flushed");
            db.wait_idle().expect("idle");
            let stats = keyspace.stats();
            let runs = stats.levels.iter().filter(|level| level.level > 0).map(|level| level.runs).max();
            most[at] = most[at].max(runs.unwrap_or(0));
        }
        db.check_invariants().unwrap_or_else(|error| panic!("round {round}: {error}"));
    }
    assert!(most[0] <= 1 && most[1] > 1, "most runs of a level: {most:?}");
}

#[test]
fn options_are_recorded_and_change_in_an_open_database() {
    let fs = MemFs::new();
    let db = open(&fs);
    let options = KeyspaceOptions::new().compression([Compression::None, Compression::Lz4]).bits_per_key(4.0);
    db.keyspace_with("logs", options).expect("made");
    db.close().expect("closed");
    let db = open(&fs);
    let logs = db.keyspace("logs").expect("there");
    assert_eq!(
        logs.own_options(),
        [("compression", "none,lz4".to_owned()), ("bits-per-key", "4".to_owned())]
    );
    fill(&logs);
    let (bytes, _, bits) = shape(&logs);
    assert!(bits < 5.0, "{bits} bits per key");
    // Changed, and one left to the database again.
    let options =
        KeyspaceOptions::new().bits_per_key(14.0).set_option("compression", "database").expect("a name");
    let logs = db.keyspace_with("logs", options).expect("changed");
    assert_eq!(logs.own_options(), [("bits-per-key", "14".to_owned())]);
    fill(&logs);
    let (more_bytes, _, more_bits) = shape(&logs);
    assert!(more_bytes > bytes && more_bits > 12.0, "{more_bytes} bytes, {more_bits} bits per key");
    read_all(&logs);
    drop(logs);
    db.close().expect("closed");
    let db = open(&fs);
    assert_eq!(db.keyspace("logs").expect("there").own_options(), [("bits-per-key", "14".to_owned())]);
    assert!(db.keyspace("default").expect("there").own_options().is_empty());
}

#[test]
fn options_of_an_open_are_recorded_and_bad_ones_name_the_keyspace() {
    let fs = MemFs::new();
    let env = || Env::deterministic(Arc::new(fs.clone()), 5);
    let open = |options| Db::builder("/db").env(env()).keyspace("default", options).open();
    let db = open(KeyspaceOptions::new().block_bytes(512)).expect("opens");
    db.put("k", "v").expect("put");
    db.close().expect("closed");
    let bad = KeyspaceOptions::new().block_bytes(1 << 20);
    let refused = open(bad.clone()).expect_err("blocks of a MiB");
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert!(refused.to_string().contains("\"default\": block-size must be"), "{refused}");
    let db = open(KeyspaceOptions::new()).expect("opens");
    assert_eq!(db.keyspace("default").expect("there").own_options(), [("block-size", "512".to_owned())]);
    let refused = db.keyspace_with("default", bad).expect_err("blocks of a MiB");
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    for (name, value) in [("sync", "always"), ("block-size", "1048576"), ("policy", "best")] {
        let refused = KeyspaceOptions::new().set_option(name, value).expect_err(value);
        assert!(refused.kind() == ErrorKind::Invalid && refused.to_string().contains(name), "{refused}");
    }
    db.close().expect("closed");
    // They hold for an open that cannot record them.
    let reader = Db::builder("/db").env(env()).read_only(true).open().expect("opens");
    let options = KeyspaceOptions::new().set_option("block-size", "database").expect("a name");
    assert!(reader.keyspace_with("default", options).expect("given").own_options().is_empty());
    drop(reader);
    let db = open(KeyspaceOptions::new()).expect("opens");
    assert_eq!(db.keyspace("default").expect("there").own_options(), [("block-size", "512".to_owned())]);
}

/// Random writes and reads in keyspaces whose options change all the time.
#[test]
fn contents_do_not_depend_on_options() {
    for seed in 0..4 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let fs = MemFs::new();
        let mut db = open(&fs);
        let mut model = [BTreeMap::<u16, u32>::new(), BTreeMap::new()];
        for step in 0..3_000u32 {
            let at = rng.usize(..2);
            let name = ["one", "two"][at];
            let keyspace = db.keyspace(name).expect("there");
            let key = rng.u16(..500);
            match rng.u32(..200) {
                0 => db.flush().expect("flushed"),
                1 => keyspace.compact().expect("compacted"),
                2 => {
                    drop(keyspace);
                    db.close().expect("closed");
                    db = open(&fs);
                }
                3..=9 => {
                    let (option, values): (&str, &[&str]) = *rng
                        .choice(&[
                            ("compression", &["none", "lz4", "lz4,none", "database"][..]),
                            ("bits-per-key", &["0", "5.5", "16", "database"][..]),
                            ("block-size", &["64", "1000", "4096", "database"][..]),
                            ("file-size", &["4096", "100000", "database"][..]),
                            ("policy", &["leveling", "tiering", "lazy-leveling", "database"][..]),
                        ])
                        .expect("some");
                    let value = rng.choice(values).expect("some");
                    let options = KeyspaceOptions::new().set_option(option, value).expect("a name");
                    db.keyspace_with(name, options).expect("given");
                }
                10..=40 => {
                    keyspace.delete(key.to_be_bytes()).expect("delete");
                    model[at].remove(&key);
                }
                41..=60 => {
                    let found = keyspace.get(key.to_be_bytes()).expect("get");
                    let expected = model[at].get(&key).map(|value| value.to_be_bytes().repeat(9));
                    assert_eq!(found.as_deref(), expected.as_deref(), "seed {seed}, step {step}, key {key}");
                }
                _ => {
                    keyspace.put(key.to_be_bytes(), step.to_be_bytes().repeat(9)).expect("put");
                    model[at].insert(key, step);
                }
            }
        }
        for (at, name) in ["one", "two"].into_iter().enumerate() {
            let found = db.keyspace(name).expect("there").iter().map(|pair| {
                let (key, value) = pair.expect("an entry");
                (u16::from_be_bytes([key[0], key[1]]), value.to_vec())
            });
            let expected = model[at].iter().map(|(key, value)| (*key, value.to_be_bytes().repeat(9)));
            assert!(found.eq(expected), "seed {seed}, keyspace {name}");
        }
        db.check_invariants().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

/// Tables are small by the size that their keyspace has, not by that of the database: otherwise
/// every table of this one would be compacted again for ever.
#[test]
fn tables_of_the_size_of_their_keyspace_are_left_alone() {
    let env = Env::deterministic(Arc::new(MemFs::new()), 6);
    let db = Db::builder("/db").env(env).open().expect("opens");
    let tables = db.keyspace_with("tables", KeyspaceOptions::new().file_size(64 << 10)).expect("made");
    for number in 0..8_000u32 {
        tables.put(number.wrapping_mul(0x9e37_79b9).to_be_bytes(), [number as u8; 100]).expect("put");
    }
    tables.compact().expect("compacted");
    db.wait_idle().expect("idle");
    assert!(tables.tables().len() >= 8, "{} tables", tables.tables().len());
    let before = db.stats().bytes_compacted;
    tables.compact().expect("compacted");
    assert_eq!(db.stats().bytes_compacted, before, "there is nothing to do");
}

/// A build without a kind of compression, or one that does not know a value, leaves it recorded.
#[test]
fn a_change_of_one_option_leaves_the_others_recorded() {
    let fs = MemFs::new();
    let db = open(&fs);
    db.keyspace_with("one", KeyspaceOptions::new().bits_per_key(4.0)).expect("made");
    db.keyspace_with("one", KeyspaceOptions::new().block_bytes(512)).expect("changed");
    db.close().expect("closed");
    let own = open(&fs).keyspace("one").expect("there").own_options();
    assert_eq!(own, [("bits-per-key", "4".to_owned()), ("block-size", "512".to_owned())]);
}

#[test]
fn a_checkpoint_of_one_keyspace_has_its_options_and_nothing_of_the_others() {
    let fs = MemFs::new();
    let db = open(&fs);
    db.put("of the default", "1").expect("put");
    let options = KeyspaceOptions::new().compression(Compression::Lz4).value_threshold(64);
    let kept = db.keyspace_with("kept", options).expect("made");
    fill(&kept);
    kept.put("in the memtable", "2").expect("put");
    db.keyspace("other").expect("made").put("a", "3").expect("put");
    kept.checkpoint("/copy").expect("copied");
    db.keyspace("default").expect("there").checkpoint("/of default").expect("copied");

    let open_copy = |dir: &str| {
        let env = Env::deterministic(Arc::new(fs.clone()), 5);
        Db::builder(dir).env(env).open().expect("opens")
    };
    let copy = open_copy("/copy");
    assert_eq!(copy.keyspaces(), ["default", "kept"]);
    assert_eq!(copy.iter().count(), 0, "the default keyspace is empty");
    let of_copy = copy.keyspace("kept").expect("there");
    assert_eq!(of_copy.own_options(), kept.own_options());
    read_all(&of_copy);
    assert_eq!(of_copy.get("in the memtable").expect("get").as_deref(), Some(&b"2"[..]));
    copy.put("new", "in the copy").expect("put");
    let report = copy.verify().expect("checked");
    assert!(report.problems.is_empty(), "{report:?}");
    assert_eq!(db.get("new").expect("get"), None, "the copy is a database of its own");

    let copy = open_copy("/of default");
    assert_eq!((copy.keyspaces(), copy.iter().count()), (vec!["default".to_owned()], 1));
    db.drop_keyspace("kept").expect("dropped");
    assert_eq!(kept.checkpoint("/gone").map_err(|error| error.kind()), Err(ErrorKind::Invalid));
}

#[test]
fn options_of_one_keyspace_that_are_given_twice_are_refused_and_nothing_is_created() {
    let fs = MemFs::new();
    let builder = || {
        let env = Env::deterministic(Arc::new(fs.clone()), 5);
        Db::builder("/db").env(env).keyspace("users", KeyspaceOptions::new().bits_per_key(4.0))
    };
    let again = KeyspaceOptions::new().compression(Compression::Lz4);
    let error = builder().keyspace("other", again.clone()).keyspace("users", again.clone()).open();
    let error = error.map(drop).expect_err("one of them would have no effect");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("\"users\" are given twice"), "{error}");
    assert!(!shamba::env::Vfs::exists(&fs, "/db".as_ref()).expect("asked"));
    builder().keyspace("other", again).open().expect("opens");
}
