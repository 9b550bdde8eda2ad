//! Tests of values too long to be held in memtables: kept in the log, streamed into tables, and
//! read back in every way.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use shamba::env::{Effect, Env, FaultFs, FaultRule, MemFs, OpKind, Vfs};
use shamba::{Builder, Db, Durability, ErrorKind, Result};

const DIR: &str = "/db";
/// A quarter of it is 16 KiB. A value above that stays in the log if its batch does not fit one
/// frame of 64 KiB.
const WRITE_BUFFER: u64 = 64 << 10;

fn builder(env: &Env) -> Builder {
    Db::builder(DIR).env(env.clone()).write_buffer(WRITE_BUFFER).info_log(false)
}

fn memory() -> Env {
    Env::deterministic(Arc::new(MemFs::new()), 1)
}

/// A value whose bytes depend on their position.
fn value(bytes: usize, salt: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at / 251 + at + salt * 7) as u8).collect()
}

/// Lengths around every boundary: of chunks in tables, of log frames, and of the threshold for
/// staying in the log.
fn lengths() -> Vec<usize> {
    let around =
        [16 << 10, WRITE_BUFFER as usize / 4, 65_500, 65_529, 64 << 10, 2 * 65_529, 128 << 10, 1 << 20];
    let mut lengths = vec![0, 1, 3 << 20];
    lengths.extend(around.iter().flat_map(|at| [at - 1, *at, at + 1, at + 12]));
    lengths.sort_unstable();
    lengths.dedup();
    lengths
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Checks that every kind of read agrees with the model.
fn check(db: &Db, model: &Model, what: &str) -> Result<()> {
    for (key, wanted) in model {
        assert!(db.get(key)?.as_deref() == Some(&wanted[..]), "{what}: get {}", key.escape_ascii());
        let mut buffer = Vec::new();
        assert!(db.get_into(key, &mut buffer)? && buffer == *wanted, "{what}: get_into");
        assert_eq!(db.get_with(key, <[u8]>::len)?, Some(wanted.len()), "{what}: get_with");
        assert!(db.contains_key(key)?, "{what}: contains_key");
    }
    let keys: Vec<_> = model.keys().collect();
    let found = db.multi_get(&keys)?;
    assert!(
        found.iter().zip(model.values()).all(|(found, wanted)| found.as_deref() == Some(&wanted[..])),
        "{what}"
    );
    let forward = db.iter().map(|pair| pair.map(|(key, value)| (key.into_vec(), value.into_vec())));
    assert!(forward.collect::<Result<Vec<_>>>()?.into_iter().eq(model.clone()), "{what}: forward");
    let backward = db.iter().rev().map(|pair| pair.map(|(key, value)| (key.into_vec(), value.into_vec())));
    let mut backward = backward.collect::<Result<Vec<_>>>()?;
    backward.reverse();
    assert!(backward.into_iter().eq(model.clone()), "{what}: backward");
    let mut cursor = db.cursor();
    for (key, wanted) in model.iter().step_by(3) {
        assert!(cursor.seek(key)? && cursor.value() == Some(wanted), "{what}: seek");
        assert!(cursor.seek_for_prev(key)? && cursor.value() == Some(wanted), "{what}: seek_for_prev");
    }
    let report = db.verify()?;
    assert!(report.is_clean(), "{what}: {:?}", report.problems);
    db.check_invariants().map_err(|detail| panic!("{what}: {detail}"))
}

fn files(env: &Env, suffix: &str) -> usize {
    let names = env.vfs.list(Path::new(DIR)).expect("the directory");
    names.iter().filter(|entry| entry.name.ends_with(suffix)).count()
}

fn table_bytes(env: &Env) -> u64 {
    let names = env.vfs.list(Path::new(DIR)).expect("the directory");
    let tables = names.iter().filter(|entry| entry.name.ends_with(".sst"));
    tables
        .map(|entry| {
            env.vfs.open_read(&Path::new(DIR).join(&entry.name)).expect("open").len().expect("length")
        })
        .sum()
}

fn put_all(db: &Db) -> Result<Model> {
    let mut model = Model::new();
    for (number, bytes) in lengths().into_iter().enumerate() {
        let (key, value) = (format!("key{number:03}").into_bytes(), value(bytes, number));
        db.put(&key, &value)?;
        model.insert(key, value);
    }
    Ok(model)
}

#[test]
fn values_of_every_length_come_back_from_memory_tables_and_log() -> Result<()> {
    for no_wal in [false, true] {
        for durability in [Durability::NoSync, Durability::Buffered] {
            if no_wal && durability != Durability::NoSync {
                continue;
            }
            let env = memory();
            // No automatic rotation: at first everything is in one memtable.
            let open = |env: &Env| {
                let builder = builder(env)
                    .durability(durability)
                    .experimental(|e| e.no_wal(no_wal).max_wal_bytes(1 << 30));
                builder.experimental(|e| e.auto_compaction(false)).write_buffer(WRITE_BUFFER)
            };
            let db = open(&env).open()?;
            let model = put_all(&db)?;
            let what = format!("no_wal {no_wal}, {durability:?}");
            check(&db, &model, &format!("{what}: new"))?;
            if !no_wal {
                drop(db);
                let db = open(&env).read_only(true).open()?;
                check(&db, &model, &format!("{what}: replayed read-only"))?;
                drop(db);
                let db = open(&env).open()?;
                check(&db, &model, &format!("{what}: replayed"))?;
                let _ = db;
            } else {
                db.flush()?;
                drop(db);
            }
            let db = open(&env).open()?;
            check(&db, &model, &format!("{what}: flushed"))?;
            db.compact()?;
            check(&db, &model, &format!("{what}: compacted"))?;
            db.checkpoint("/copy")?;
            db.close()?;
            let copy = Db::builder("/copy").env(env.clone()).info_log(false).open()?;
            check(&copy, &model, &format!("{what}: checkpoint"))?;
        }
    }
    Ok(())
}

/// Length of a value that stays in the log.
const LONG: usize = 200_000;

#[test]
fn what_values_lie_in_goes_when_they_are_in_tables() -> Result<()> {
    for no_wal in [false, true] {
        let env = memory();
        let db = builder(&env)
            .experimental(|e| e.no_wal(no_wal).auto_compaction(false).max_wal_bytes(1 << 30))
            .open()?;
        for salt in 0..5 {
            db.put(format!("key{salt}"), value(LONG, salt))?;
        }
        let snapshot = db.snapshot();
        let mut from_before = snapshot.iter();
        assert!(from_before.next().transpose()?.is_some());
        assert_eq!((files(&env, ".val"), files(&env, ".log")), (usize::from(no_wal), 1));
        db.flush()?;
        db.put("key2", value(LONG, 9))?;
        db.flush()?;
        assert_eq!((files(&env, ".val"), files(&env, ".log")), (0, 1), "no_wal {no_wal}");
        // An iterator that began on memtables continues on tables.
        let rest: Vec<_> = from_before.collect::<Result<_>>()?;
        assert_eq!(rest.len(), 4);
        assert!(rest.iter().zip(1..).all(|((_, found), salt)| found[..] == value(LONG, salt)));
        drop((snapshot, db));
        let db = builder(&env).experimental(|e| e.no_wal(no_wal)).open()?;
        assert!(db.get("key2")?.as_deref() == Some(&value(LONG, 9)[..]));
    }
    Ok(())
}

#[test]
fn a_file_of_values_that_a_crash_left_is_removed() -> Result<()> {
    let env = memory();
    let db = builder(&env).experimental(|e| e.no_wal(true)).open()?;
    db.put("flushed", "1")?;
    db.flush()?;
    db.put("lost", value(LONG, 1))?;
    assert_eq!(files(&env, ".val"), 1);
    drop(db);
    let db = builder(&env).experimental(|e| e.no_wal(true)).open()?;
    assert_eq!(files(&env, ".val"), 0);
    assert!(db.get("lost")?.is_none() && db.get("flushed")?.is_some());
    // Its number is not reused while the file exists.
    db.put("again", value(LONG, 2))?;
    assert!(db.get("again")?.as_deref() == Some(&value(LONG, 2)[..]));
    Ok(())
}

#[test]
fn old_versions_of_long_values_are_kept_for_snapshots_and_else_never_read() -> Result<()> {
    let env = memory();
    let db = builder(&env).experimental(|e| e.auto_compaction(false).max_wal_bytes(1 << 30)).open()?;
    let mut snapshots = Vec::new();
    for version in 0..6 {
        db.put("key", value(LONG, version))?;
        db.put("other", format!("{version}"))?;
        if version % 2 == 0 {
            snapshots.push((version, db.snapshot()));
        }
        if version == 3 {
            db.flush()?;
        }
    }
    let check_all = |what: &str| -> Result<()> {
        for (version, snapshot) in &snapshots {
            assert!(snapshot.get("key")?.as_deref() == Some(&value(LONG, *version)[..]), "{what}: {version}");
            let mut back = snapshot.iter().rev();
            assert_eq!(back.next().transpose()?.map(|(key, _)| key.into_vec()), Some(b"other".to_vec()));
            let (key, found) = back.next().transpose()?.expect("one more");
            assert!(key == "key" && found[..] == value(LONG, *version), "{what}: {version} backward");
        }
        assert!(db.get("key")?.as_deref() == Some(&value(LONG, 5)[..]), "{what}");
        Ok(())
    };
    check_all("in memory and a table")?;
    db.flush()?;
    check_all("in tables")?;
    db.compact()?;
    check_all("merged")?;
    let kept = table_bytes(&env);
    drop(snapshots);
    db.compact()?;
    db.delete("key")?;
    db.compact()?;
    assert!(db.get("key")?.is_none() && table_bytes(&env) < kept / 4);
    Ok(())
}

/// Flips a byte of the newest file with this suffix, `from_end` bytes before its end.
fn damage(env: &Env, suffix: &str, from_end: u64) {
    let names = env.vfs.list(Path::new(DIR)).expect("the directory");
    let newest = names.iter().filter(|entry| entry.name.ends_with(suffix)).map(|entry| &entry.name).max();
    let path = Path::new(DIR).join(newest.expect("a file"));
    let mut bytes = shamba::env::read_file(env.vfs.as_ref(), &path).expect("read");
    let at = bytes.len() - from_end as usize;
    bytes[at] ^= 0x20;
    let mut file = env.vfs.open_append(&path).expect("opened");
    file.truncate(0).expect("emptied");
    shamba::env::append_all(file.as_mut(), &bytes).expect("written");
}

#[test]
fn damage_to_a_value_is_reported_and_spares_the_others() -> Result<()> {
    for (suffix, no_wal, structure) in
        [(".log", false, "log frame"), (".val", true, "log frame"), (".sst", false, "value chunk")]
    {
        let env = memory();
        let db = builder(&env)
            .experimental(|e| e.no_wal(no_wal).auto_compaction(false).max_wal_bytes(1 << 30))
            .open()?;
        for salt in 0..3 {
            db.put(format!("key{salt}"), value(LONG, salt))?;
        }
        db.put("small", "1")?;
        let mut from_end = LONG as u64 / 2;
        if suffix == ".sst" {
            db.flush()?;
            from_end = LONG as u64;
        }
        damage(&env, suffix, from_end);
        let error = db.get("key2").expect_err("damaged");
        let damage = error.damage().expect("a place");
        assert_eq!((error.kind(), damage.structure), (ErrorKind::Corruption, structure));
        assert!(damage.file.to_string_lossy().ends_with(suffix));
        assert!(db.multi_get(["key2"]).is_err() && db.iter().any(|pair| pair.is_err()), "{suffix}");
        assert!(db.iter().rev().any(|pair| pair.is_err()), "{suffix}");
        for salt in 0..2 {
            assert!(db.get(format!("key{salt}"))?.as_deref() == Some(&value(LONG, salt)[..]), "{suffix}");
        }
        assert_eq!(db.get("small")?.as_deref(), Some(&b"1"[..]));
        if suffix == ".sst" {
            let report = db.verify()?;
            assert_eq!(report.problems.len(), 1, "{:?}", report.problems);
            assert_eq!(report.problems[0].structure, "value chunk");
        } else {
            // An unreadable value is not flushed as something else.
            assert_eq!(db.flush().expect_err("damaged").kind(), ErrorKind::Corruption);
            assert_eq!(files(&env, ".sst"), 0);
        }
    }
    Ok(())
}

#[test]
fn a_full_disk_takes_nothing_of_a_value_and_what_came_before_stays() -> Result<()> {
    for (no_wal, suffix) in [(false, ".log"), (true, ".val")] {
        let mut struck = 0;
        for nth in 0..12 {
            let faults = Arc::new(FaultFs::new(Arc::new(MemFs::new()), 1));
            let env = Env::deterministic(Arc::clone(&faults) as Arc<dyn Vfs>, 1);
            let db = builder(&env)
                .experimental(|e| e.no_wal(no_wal).auto_compaction(false).max_wal_bytes(1 << 30))
                .open()?;
            db.put("before", "1")?;
            db.put("long before", value(LONG, 1))?;
            faults.add_rule(FaultRule::nth(nth, Effect::Enospc).on(&[OpKind::Append]).at_path(suffix));
            let failed = db.put("long", value(LONG, 2));
            let is_struck = faults.faults_injected() > 0;
            faults.clear_rules();
            assert_eq!(failed.is_err(), is_struck, "{suffix} {nth}: {failed:?}");
            struck += u64::from(is_struck);
            if let Err(error) = failed {
                assert_eq!(error.kind(), ErrorKind::NoSpace, "{suffix} {nth}");
                assert!(db.get("long")?.is_none());
            }
            db.put("after", value(LONG, 3))?;
            let check_all = |db: &Db, what: &str| -> Result<()> {
                assert!(
                    db.get("long before")?.as_deref() == Some(&value(LONG, 1)[..]),
                    "{suffix} {nth} {what}"
                );
                assert!(db.get("after")?.as_deref() == Some(&value(LONG, 3)[..]), "{suffix} {nth} {what}");
                assert_eq!(db.get("long")?.is_none(), is_struck, "{suffix} {nth} {what}");
                assert!(db.get("before")?.is_some());
                Ok(())
            };
            check_all(&db, "at once")?;
            if no_wal {
                db.flush()?;
            }
            drop(db);
            let db = builder(&env).experimental(|e| e.no_wal(no_wal)).open()?;
            check_all(&db, "after a kill")?;
            assert!(db.verify()?.is_clean());
        }
        assert!(struck >= 2, "{suffix}: {struck}");
    }
    Ok(())
}

#[test]
fn batches_mix_long_values_with_everything_else() -> Result<()> {
    for no_wal in [false, true] {
        let env = memory();
        let open = |env: &Env| {
            builder(env)
                .experimental(|e| e.no_wal(no_wal).auto_compaction(false).max_wal_bytes(1 << 30))
                .open()
        };
        let db = open(&env)?;
        let other = db.keyspace("other")?;
        db.put("gone", "1")?;
        let mut batch = db.batch();
        batch.put("a", value(LONG, 1)).put_in(&other, "a", value(20_000, 2)).put("b", value(17_000, 3));
        batch.delete("gone").put_in(&other, "c", value(LONG, 4)).put("a", value(LONG, 5)).put("d", "small");
        batch.commit()?;
        drop(batch);
        let check_all = |db: &Db, what: &str| -> Result<()> {
            let other = db.keyspace("other")?;
            assert!(
                db.get("a")?.as_deref() == Some(&value(LONG, 5)[..]),
                "{what}: the last write of a key counts"
            );
            assert!(db.get("b")?.as_deref() == Some(&value(17_000, 3)[..]), "{what}");
            assert!(other.get("a")?.as_deref() == Some(&value(20_000, 2)[..]), "{what}");
            assert!(other.get("c")?.as_deref() == Some(&value(LONG, 4)[..]), "{what}");
            assert!(db.get("gone")?.is_none() && db.get("d")?.as_deref() == Some(&b"small"[..]), "{what}");
            Ok(())
        };
        check_all(&db, "at once")?;
        // Values of a dropped keyspace are discarded, and those of other keyspaces are kept.
        let mut batch = db.batch();
        batch.put_in(&db.keyspace("dropped")?, "x", value(LONG, 6)).put("e", value(LONG, 7));
        batch.commit()?;
        drop(batch);
        db.drop_keyspace("dropped")?;
        assert!(db.get("e")?.as_deref() == Some(&value(LONG, 7)[..]));
        if no_wal {
            db.flush()?;
        }
        drop((other, db));
        let db = open(&env)?;
        check_all(&db, "after a kill")?;
        assert!(db.get("e")?.as_deref() == Some(&value(LONG, 7)[..]));
    }
    Ok(())
}

#[test]
fn long_values_come_in_by_ingest_and_are_explained() -> Result<()> {
    let env = memory();
    let db = builder(&env).open()?;
    let pairs = (0..4).map(|salt| (format!("key{salt}"), value(LONG + salt, salt)));
    assert_eq!(db.ingest(pairs)?, 4);
    db.put("key2", value(LONG, 9))?;
    for (key, wanted) in
        [("key1", value(LONG + 1, 1)), ("key2", value(LONG, 9)), ("key3", value(LONG + 3, 3))]
    {
        assert!(db.get(key)?.as_deref() == Some(&wanted[..]), "{key}");
        let explained = db.explain(key)?.to_string();
        assert!(explained.contains(&format!("found, a value of {} bytes", wanted.len())), "{explained}");
    }
    assert!(db.verify()?.is_clean());
    Ok(())
}
