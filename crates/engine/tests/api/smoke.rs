//! Tests of the public surface end to end, on real files and on files in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use shamba::env::{Env, MemFs};
use shamba::{Db, Durability, ErrorKind, MergePolicy, Sizing};

#[test]
fn what_is_put_is_there_after_close_and_after_a_drop() -> shamba::Result<()> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("db");
    let db = Db::open(&path)?;
    db.put("k", "v")?;
    db.put("", "the empty key")?;
    db.put("gone", "soon")?;
    db.delete("gone")?;
    assert_eq!(db.get("k")?.as_deref(), Some(&b"v"[..]));
    assert_eq!(Db::open(&path).map(|_| ()).map_err(|error| error.kind()), Err(ErrorKind::Locked));
    db.close()?;
    for close in [false, true] {
        let db = Db::open(&path)?;
        assert_eq!(db.get("k")?.as_deref(), Some(&b"v"[..]));
        assert_eq!(db.get("")?.as_deref(), Some(&b"the empty key"[..]));
        assert_eq!(db.get("gone")?, None);
        db.put("round", if close { "closed" } else { "dropped" })?;
        if close {
            db.close()?;
        }
    }
    let db = Db::open_read_only(&path)?;
    assert_eq!(db.get("round")?.as_deref(), Some(&b"closed"[..]));
    assert_eq!(db.put("a", "b").map_err(|error| error.kind()), Err(ErrorKind::ReadOnly));
    assert!(db.verify()?.is_clean());
    Ok(())
}

/// A few thousand writes with tiny limits under each policy: every key is right, in both directions
/// and after a reopen.
#[test]
fn small_trees_under_every_policy_answer_like_a_sorted_map() -> shamba::Result<()> {
    for policy in MergePolicy::ALL {
        for (threads, sizing) in [false, true].into_iter().flat_map(|t| Sizing::ALL.map(|sizing| (t, sizing)))
        {
            let env = Env::deterministic(Arc::new(MemFs::new()), 7);
            let env = if threads { Env { vfs: env.vfs, ..Env::real() } } else { env };
            let open = || {
                Db::builder("/db")
                    .env(env.clone())
                    .merge_policy(policy)
                    .experimental(|e| e.sizing(sizing).file_size(2 << 10).block_bytes(256))
                    .size_ratio(3.0)
                    .write_buffer(4 << 10)
                    .info_log(false)
                    .open()
            };
            let db = open()?;
            let mut model = BTreeMap::new();
            let mut rng = fastrand::Rng::with_seed(11);
            for i in 0..6_000u32 {
                let key = format!("key{:04}", rng.u32(..2_000));
                if rng.u32(..5) == 0 {
                    db.delete(&key)?;
                    model.remove(&key);
                } else {
                    db.put(&key, format!("value{i}"))?;
                    model.insert(key, format!("value{i}"));
                }
            }
            db.wait_idle()?;
            let least_levels = if sizing == Sizing::Auto { 1 } else { 2 };
            assert!(db.stats().deepest_level >= least_levels, "{}", db.describe());

            db.check_invariants().expect("invariants hold");
            let check = |db: &Db| -> shamba::Result<()> {
                let forward = db.iter().collect::<shamba::Result<Vec<_>>>()?;
                let expected: Vec<_> =
                    model.iter().map(|(k, v)| (k.as_bytes().to_vec(), v.as_bytes().to_vec())).collect();
                let got: Vec<_> = forward.iter().map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
                assert_eq!(got, expected, "{policy}, {sizing}, threads {threads}");
                let mut backward = db.iter().rev().collect::<shamba::Result<Vec<_>>>()?;
                backward.reverse();
                assert_eq!(backward, forward);
                for i in 0..2_000 {
                    let key = format!("key{i:04}");
                    assert_eq!(db.get(&key)?.as_deref(), model.get(&key).map(|v| v.as_bytes()), "{key}");
                }
                Ok(())
            };
            check(&db)?;
            db.close()?;
            let db = open()?;
            check(&db)?;
            assert_eq!(db.stats().hashes_per_get(), 1.0);
            db.compact()?;
            check(&db)?;
            assert_eq!(db.stats().runs, 1, "{}", db.describe());
            assert!(db.verify()?.is_clean());
            db.put_with("last", "one", Durability::Sync)?;
        }
    }
    Ok(())
}

#[test]
fn a_directory_with_somebodys_files_does_not_become_a_database() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    std::fs::write(dir.path().join("LOG"), "mine").expect("a file");
    let refused = Db::open(dir.path()).map(|_| ()).map_err(|error| error.kind());
    assert_eq!(refused, Err(ErrorKind::Invalid));
    let names: Vec<_> = std::fs::read_dir(dir.path()).expect("a directory").collect();
    assert_eq!(names.len(), 1, "nothing was added");
}

#[test]
fn a_tree_is_laid_down_from_its_deepest_level_up() {
    let dir = tempfile::tempdir().expect("a directory");
    let db =
        shamba::Db::builder(dir.path()).experimental(|e| e.auto_compaction(false)).open().expect("opens");
    let pairs = |from: u32, value: &'static str| {
        (from..1_000).step_by(7).map(move |number| (number.to_be_bytes(), value))
    };
    assert_eq!(db.place(3, pairs(0, "oldest")).expect("placed"), 143);
    db.place(2, pairs(0, "older")).expect("placed");
    db.place(2, pairs(3, "old")).expect("another run of the level");
    let refused = db.place(3, pairs(0, "below")).expect_err("below newer ones");
    assert_eq!(refused.kind(), shamba::ErrorKind::Invalid);
    assert!(refused.to_string().contains("level 2"), "{refused}");
    assert!(db.place(65, pairs(0, "too deep")).is_err());
    db.put(0u32.to_be_bytes(), "new").expect("put");
    db.flush().expect("flushed");
    assert!(db.place(1, pairs(0, "below")).is_err(), "below what was flushed");
    let stats = db.stats();
    assert_eq!((stats.deepest_level, stats.runs), (3, 4));
    let get = |key: u32| db.get(key.to_be_bytes()).expect("read").map(|value| value.to_vec());
    assert_eq!(get(0).as_deref(), Some(&b"new"[..]));
    assert_eq!(get(7).as_deref(), Some(&b"older"[..]));
    assert_eq!(get(3).as_deref(), Some(&b"old"[..]));
    assert!(get(1).is_none());
    db.check_invariants().expect("a tree that could have grown");
    db.compact().expect("merged");
    assert_eq!(db.iter().count(), 143 + 143);
    assert_eq!(get(7).as_deref(), Some(&b"older"[..]));
}
