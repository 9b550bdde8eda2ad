//! Bad input: wrong options, wrong directories, foreign and newer files, keys and values beyond
//! their limits.
//!
//! Each returns an error of the right kind that names the problem, changes nothing and loses
//! nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use shamba::env::{Env, MemFs, Vfs, append_all, read_file};
use shamba::{
    Builder, Compression, Db, DigestKind, Durability, ErrorKind, MergePolicy, ReadOptions, WriteOptions,
};
use shamba_tests::vectors::Vector;

const HOME: &str = "/db";

fn world() -> (MemFs, Env) {
    let fs = MemFs::new();
    (fs.clone(), Env::deterministic(Arc::new(fs), 1))
}

fn builder(env: &Env) -> Builder {
    Db::builder(HOME).env(env.clone()).info_log(false)
}

/// A closed database with two pairs in a table, one of them with its value in a value file.
fn world_with_a_table() -> (MemFs, Env) {
    let (fs, env) = world();
    let db = builder(&env).experimental(|e| e.value_threshold(100)).open().expect("create");
    db.put("k", "v").expect("put");
    db.put("long", "v".repeat(100)).expect("put");
    db.flush().expect("flush");
    db.close().expect("close");
    (fs, env)
}

/// Changes the last file with `part` in its name; returns its name, its path and its new bytes.
fn changed(fs: &MemFs, part: &str, change: impl FnOnce(&mut [u8])) -> (String, PathBuf, Vec<u8>) {
    let list = fs.list(Path::new(HOME)).expect("list");
    let name = list.iter().rfind(|entry| entry.name.contains(part)).expect("a file").name.clone();
    let path = Path::new(HOME).join(&name);
    let mut bytes = read_file(fs, &path).expect("read");
    change(&mut bytes);
    fs.unlink(&path).expect("unlink");
    append_all(&mut *fs.create(&path).expect("create"), &bytes).expect("append");
    (name, path, bytes)
}

fn refused<T>(result: shamba::Result<T>, kind: ErrorKind, names: &[&str]) {
    let Err(error) = result else { panic!("accepted, though {names:?} should be refused as {kind}") };
    assert_eq!(error.kind(), kind, "{error:?}");
    for name in names {
        assert!(error.to_string().contains(name), "the error does not name {name:?}: {error}");
    }
}

#[test]
fn options_fixed_at_creation_cannot_change() {
    let (_, env) = world();
    let db =
        builder(&env).experimental(|e| e.digest(DigestKind::Rapid).digest_seed(17)).open().expect("create");
    db.put("k", "v").expect("put");
    db.close().expect("close");
    refused(
        builder(&env).experimental(|e| e.digest(DigestKind::City64)).open(),
        ErrorKind::Invalid,
        &["digest", "rapid", "city64"],
    );
    refused(
        builder(&env).experimental(|e| e.digest_seed(18)).open(),
        ErrorKind::Invalid,
        &["seed", "17", "18"],
    );
    // The same options again, or none, are accepted; nothing was lost in between.
    drop(
        builder(&env).experimental(|e| e.digest(DigestKind::Rapid).digest_seed(17)).open().expect("the same"),
    );
    let db = builder(&env).open().expect("not given");
    assert_eq!(db.get("k").expect("get").as_deref(), Some(b"v".as_slice()));
}

#[test]
fn options_are_recorded_at_creation_and_on_request() {
    let (_, env) = world();
    drop(builder(&env).size_ratio(3.0).merge_policy(MergePolicy::Tiering).open().expect("create"));
    let db = builder(&env).bits_per_key(7.5).open().expect("for this open");
    assert_eq!(db.design().bits_per_key, 7.5);
    db.close().expect("close");
    let unchanged = builder(&env).open().expect("none given").design();
    assert_ne!(unchanged.bits_per_key, 7.5);
    drop(builder(&env).bits_per_key(7.5).record().open().expect("one option changes"));
    let design = builder(&env).open().expect("none given").design();
    assert_eq!(design.size_ratio, 3.0);
    assert_eq!(design.bits_per_key, 7.5);
    assert_eq!(design.policy(), Some(MergePolicy::Tiering));
}

#[test]
fn options_out_of_bounds_are_invalid() {
    let (fs, env) = world();
    refused(builder(&env).size_ratio(1.5).open(), ErrorKind::Invalid, &["1.5"]);
    refused(builder(&env).size_ratio(f64::NAN).open(), ErrorKind::Invalid, &[]);
    refused(builder(&env).experimental(|e| e.inner_runs(0)).open(), ErrorKind::Invalid, &[]);
    refused(builder(&env).bits_per_key(-1.0).open(), ErrorKind::Invalid, &["-1"]);
    refused(builder(&env).bits_per_key(f64::INFINITY).open(), ErrorKind::Invalid, &[]);
    refused(builder(&env).experimental(|e| e.block_bytes(1)).open(), ErrorKind::Invalid, &["1"]);
    refused(builder(&env).experimental(|e| e.block_bytes(1 << 20)).open(), ErrorKind::Invalid, &["1 MiB"]);
    refused(builder(&env).memory_budget(1 << 10).open(), ErrorKind::Invalid, &["1 KiB"]);
    refused(
        builder(&env).experimental(|e| e.l0_slowdown_runs(9).l0_stop_runs(3)).open(),
        ErrorKind::Invalid,
        &["9", "3"],
    );
    refused(builder(&env).compression(Vec::new()).open(), ErrorKind::Invalid, &["compression"]);
    refused(
        builder(&env).experimental(|e| e.no_wal(true)).durability(Durability::Sync).open(),
        ErrorKind::Invalid,
        &["no-wal"],
    );
    for (name, value) in
        [("size-ratio", "many"), ("policy", "best"), ("digest", "sha1"), ("hash-sharing", "maybe")]
    {
        refused(builder(&env).set_option(name, value), ErrorKind::Invalid, &[name]);
    }
    refused(builder(&env).set_option("no-such-option", "1"), ErrorKind::Invalid, &["no-such-option"]);
    let left = fs.list(Path::new(HOME)).map(|entries| entries.len()).unwrap_or(0);
    assert!(left <= 1, "refused options leave {left} files behind");
}

#[test]
fn options_by_name_do_what_their_methods_do() {
    let (_, env) = world();
    let named = [
        ("size-ratio", "4"),
        ("policy", "lazy-leveling"),
        ("write-buffer", "65536"),
        ("bits-per-key", "3.5"),
    ];
    let mut builder = builder(&env);
    for (name, value) in named {
        builder = builder.set_option(name, value).expect("a known option");
    }
    let design = builder.open().expect("open").design();
    assert_eq!((design.size_ratio, design.bits_per_key, design.buffer_bytes), (4.0, 3.5, 65_536));
    assert_eq!(design.policy(), Some(MergePolicy::LazyLeveling));
}

#[test]
fn no_log_and_a_promise_do_not_mix() {
    let (_, env) = world();
    let db = builder(&env).experimental(|e| e.no_wal(true)).open().expect("open");
    let sync = WriteOptions::new().durability(Durability::Sync);
    refused(db.put_with("k", "v", sync), ErrorKind::Invalid, &[]);
    let mut batch = db.batch();
    batch.put("k", "v");
    refused(batch.commit_with(Durability::Sync), ErrorKind::Invalid, &[]);
    assert_eq!(db.get("k").expect("get"), None, "a refused write is not there");
}

#[test]
fn where_a_database_is_and_is_not() {
    let (fs, env) = world();
    let missing = builder(&env).create_if_missing(false).open();
    refused(missing, ErrorKind::NotFound, &[HOME]);
    // A read-only open does not create.
    refused(builder(&env).read_only(true).open(), ErrorKind::NotFound, &[HOME]);
    assert!(!fs.exists(Path::new(HOME)).expect("exists"), "nothing was made");
    drop(builder(&env).open().expect("create"));
    refused(builder(&env).experimental(|e| e.error_if_exists(true)).open(), ErrorKind::Invalid, &[HOME]);
}

#[test]
fn a_read_only_database_never_writes() {
    let (fs, env) = world();
    let db = Vector::plain(MergePolicy::Leveling).builder(Path::new(HOME), &env).open().expect("create");
    for number in 0..40 {
        db.put(format!("{number:02}"), "value").expect("put");
    }
    drop(db);
    // The next open for writing handles leftovers of a crash.
    for left_over in ["CURRENT.tmp", "STATISTICS.tmp", "000777.sst", "MANIFEST-000778", "000779.values"] {
        fs.create(&Path::new(HOME).join(left_over)).expect("create");
    }
    let image = |fs: &MemFs| {
        let names = fs.list(Path::new(HOME)).expect("list");
        let bytes = |name: &str| read_file(fs, &Path::new(HOME).join(name)).expect("read");
        names.iter().map(|entry| (entry.name.clone(), bytes(&entry.name))).collect::<Vec<_>>()
    };
    let before = image(&fs);
    let db = builder(&env).read_only(true).open().expect("open");
    assert_eq!(db.iter().count(), 40, "the log is replayed into memory");
    refused(db.put("k", "v"), ErrorKind::ReadOnly, &[]);
    refused(db.delete_range(..), ErrorKind::ReadOnly, &[]);
    refused(db.flush(), ErrorKind::ReadOnly, &[]);
    refused(db.compact(), ErrorKind::ReadOnly, &[]);
    refused(db.keyspace("new"), ErrorKind::ReadOnly, &[]);
    assert!(db.verify().expect("verify").problems.is_empty());
    db.close().expect("close");
    assert!(before == image(&fs), "a read-only open changed a file");
}

#[test]
fn foreign_and_newer_files_are_refused_and_kept() {
    let cases: [(&[u8], u32, ErrorKind); 2] =
        [(b"NOTOURS!", 1, ErrorKind::Corruption), (b"", 2, ErrorKind::Unsupported)];
    for (magic, version, kind) in cases {
        for part in [".sst", ".values"] {
            let (fs, env) = world_with_a_table();
            let (name, path, bytes) = changed(&fs, part, |bytes| {
                bytes[..magic.len()].copy_from_slice(magic);
                bytes[8..12].copy_from_slice(&version.to_le_bytes());
            });
            let opened = builder(&env).open().and_then(|db| db.get("k"));
            refused(opened, kind, &[&name]);
            assert_eq!(read_file(&fs, &path).expect("read"), bytes, "a refused file is left as it is");
        }
    }
}

/// Every kind of file states required features; an unknown one may mean anything.
#[test]
fn unknown_required_features_are_refused_and_nothing_is_changed() {
    // The position of the field: in tables after the version and four reserved bytes.
    for (part, at) in [(".sst", 16), (".values", 16), (".log", 12), ("MANIFEST", 12), ("CURRENT", 12)] {
        for byte in 0..8 {
            let (fs, env) = world_with_a_table();
            let (name, path, bytes) = changed(&fs, part, |bytes| bytes[at + byte] |= 0x80);
            let image = || fs.list(Path::new(HOME)).expect("list");
            let before = image();
            refused(builder(&env).open(), ErrorKind::Unsupported, &[&name]);
            assert_eq!(image(), before, "{name}");
            assert_eq!(read_file(&fs, &path).expect("read"), bytes, "a refused file is left as it is");
        }
    }
}

#[test]
fn keys_and_values_have_limits() {
    let (_, env) = world();
    let db = builder(&env).compression(Compression::Lz4).open().expect("create");
    let longest = vec![b'k'; 65_535];
    db.put(&longest, "v").expect("the longest key");
    db.put("", "").expect("the shortest pair");
    let too_long = vec![b'k'; 65_536];
    refused(db.put(&too_long, "v"), ErrorKind::Invalid, &["65535"]);
    refused(db.delete(&too_long), ErrorKind::Invalid, &["65535"]);
    let mut batch = db.batch();
    batch.put("good", "1").put(&too_long, "v");
    refused(batch.commit(), ErrorKind::Invalid, &["65535"]);
    assert_eq!(db.get("good").expect("get"), None, "a refused batch leaves no part");
    db.flush().expect("flush");
    assert_eq!(db.get(&longest).expect("get").as_deref(), Some(b"v".as_slice()));
    assert_eq!(db.get("").expect("get").as_deref(), Some(b"".as_slice()));
    refused(db.get(&too_long), ErrorKind::Invalid, &["65535"]);
    assert_eq!(db.range(&too_long[..]..).count(), 0, "a bound may be longer than a key");
}

#[test]
fn ingest_takes_only_ascending_pairs() {
    let (_, env) = world();
    let db = builder(&env).open().expect("create");
    db.put("a", "old").expect("put");
    refused(db.ingest([("b", "1"), ("a", "2")]), ErrorKind::Invalid, &[]);
    refused(db.ingest([("a", "1"), ("a", "2")]), ErrorKind::Invalid, &[]);
    assert_eq!(db.iter().count(), 1, "a refused ingest leaves nothing");
    assert_eq!(db.get("a").expect("get").as_deref(), Some(b"old".as_slice()));
    let kept = db.snapshot();
    db.ingest([("a", "new"), ("b", "1")]).expect("ascending");
    assert_eq!(db.get("a").expect("get").as_deref(), Some(b"new".as_slice()));
    assert_eq!(kept.get("a").expect("get").as_deref(), Some(b"old".as_slice()), "the snapshot is older");
}

#[test]
fn a_checkpoint_goes_only_where_nothing_is() {
    let (fs, env) = world();
    let db = builder(&env).open().expect("create");
    db.put("k", "v").expect("put");
    fs.create_dir_all(Path::new("/taken")).expect("mkdir");
    append_all(&mut *fs.create(Path::new("/taken/file")).expect("create"), b"precious").expect("append");
    let result = db.checkpoint("/taken");
    assert!(result.is_err(), "a checkpoint over other files");
    assert_eq!(read_file(&fs, Path::new("/taken/file")).expect("read"), b"precious");
    assert_eq!(fs.list(Path::new("/taken")).expect("list").len(), 1, "a failed checkpoint leaves nothing");
}

#[test]
fn keyspaces_are_apart() {
    let (_, env) = world();
    let db = builder(&env).open().expect("create");
    let users = db.keyspace("users").expect("keyspace");
    users.put("k", "theirs").expect("put");
    db.put("k", "ours").expect("put");
    let hashed = db.hash_key("k");
    assert_eq!(users.get_hashed(&hashed).expect("get").as_deref(), Some(b"theirs".as_slice()));
    users.delete_range(..).expect("delete_range");
    assert_eq!(db.get("k").expect("get").as_deref(), Some(b"ours".as_slice()));
    refused(db.drop_keyspace("nobody"), ErrorKind::Invalid, &["nobody"]);
    db.drop_keyspace("users").expect("drop");
    assert!(users.get("k").is_err(), "a dropped keyspace answers no more");
    assert_eq!(db.keyspace("users").expect("made anew").iter().count(), 0);
}

#[test]
fn readers_keep_to_their_bounds() {
    let (_, env) = world();
    let db = builder(&env).open().expect("create");
    for key in ["a", "b", "c", "d"] {
        db.put(key, key).expect("put");
    }
    let mut options = ReadOptions::default();
    options.lower_bound = Some(b"b".to_vec());
    options.upper_bound = Some(b"d".to_vec());
    let keys = |iter: shamba::Iter| iter.map(|pair| pair.expect("scan").0.to_vec()).collect::<Vec<_>>();
    assert_eq!(keys(db.with(&options).iter()), [b"b", b"c"]);
    assert_eq!(keys(db.with(&options).range("c"..)), [b"c"]);
    let mut cursor = db.with(&options).cursor();
    cursor.seek_to_last().expect("seek");
    assert_eq!(cursor.key(), Some(b"c".as_slice()));
    cursor.seek("a").expect("seek");
    assert_eq!(cursor.key(), Some(b"b".as_slice()));
}
