//! Tests of a budget too small to keep all tables open: some stay closed, no operation is refused,
//! and every answer is the same.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use shamba::{Builder, Db, ErrorKind};
use shamba_env::{Effect, Env, FaultFs, FaultRule, MemFs, OpKind};

/// Number of tables; open, they take more than half of the smallest budget.
const TABLES: u64 = 2_500;

fn builder(env: &Env) -> Builder {
    Db::builder("/db")
        .env(env.clone())
        .info_log(false)
        .experimental(|e| e.auto_compaction(false).file_size(2 << 20))
}

fn key(number: u64) -> String {
    format!("key{number:08}")
}

/// Creates a database whose level 0 has one run of many small tables, with one even-numbered key
/// per table.
fn filled(env: &Env) -> shamba::Result<BTreeMap<String, Vec<u8>>> {
    // One table per entry: an ingest cuts tables by size, and each value fills a table.
    let db = builder(env).memory_budget(64 << 20).experimental(|e| e.file_size(1 << 10)).open()?;
    let model: BTreeMap<String, Vec<u8>> =
        (0..TABLES).map(|number| (key(2 * number), vec![number as u8; 2_000])).collect();
    db.ingest(&model)?;
    let tables: u64 = db.stats().levels.iter().map(|level| level.tables).sum();
    assert!(tables >= TABLES * 3 / 4, "{tables} tables");
    db.close()?;
    Ok(model)
}

fn check(db: &Db, model: &BTreeMap<String, Vec<u8>>, step: usize) -> shamba::Result<()> {
    for number in (0..2 * TABLES).step_by(step) {
        let key = key(number);
        let wanted = model.get(&key).map(Vec::as_slice);
        assert_eq!(db.get(&key)?.as_deref(), wanted, "{key}");
        assert_eq!(db.contains_key(&key)?, wanted.is_some(), "{key}");
    }
    let keys: Vec<String> = (0..2 * TABLES).step_by(step).map(key).collect();
    let found = db.multi_get(&keys)?;
    assert!(
        keys.iter().zip(&found).all(|(key, value)| value.as_deref() == model.get(key).map(Vec::as_slice))
    );
    let same = |(key, value): &(shamba::Slice, shamba::Slice), (wanted, of): (&String, &Vec<u8>)| {
        key.as_ref() == wanted.as_bytes() && value.as_ref() == &of[..]
    };
    let forward = db.iter().collect::<shamba::Result<Vec<_>>>()?;
    assert!(forward.len() == model.len() && forward.iter().zip(model).all(|(entry, of)| same(entry, of)));
    let back = db.iter().rev().collect::<shamba::Result<Vec<_>>>()?;
    assert!(
        back.len() == model.len() && back.iter().zip(model.iter().rev()).all(|(entry, of)| same(entry, of))
    );
    Ok(())
}

#[test]
fn a_small_budget_keeps_tables_closed_and_refuses_nothing() -> shamba::Result<()> {
    let env = Env::deterministic(Arc::new(MemFs::new()), 1);
    let mut model = filled(&env)?;
    for read_only in [true, false] {
        let db = builder(&env).memory_budget(4 << 20).read_only(read_only).open()?;
        let stats = db.stats();
        assert!((TABLES / 10..TABLES).contains(&stats.tables_closed), "{} closed", stats.tables_closed);
        check(&db, &model, 7)?;
        assert!(db.stats().table_opens > stats.table_opens, "closed tables are opened for their lookups");
        assert!(db.explain(key(0))?.to_string().contains("level"), "{}", db.explain(key(0))?);
        assert!(db.verify()?.is_clean());
        let memory = db.memory();
        // The peak includes views and versions, about 600 bytes per table, and the tables that one
        // walk opens, in addition to the tables that stay open.
        assert!(memory.peak_bytes <= 6 << 20, "{} bytes at most", memory.peak_bytes);
    }
    // Writes and compactions still work, and compactions merge the tables.
    let db = builder(&env).memory_budget(4 << 20).open()?;
    for number in (0..TABLES).step_by(100) {
        db.delete(key(2 * number))?;
        db.put(key(2 * number + 1), "odd")?;
        model.remove(&key(2 * number));
        model.insert(key(2 * number + 1), b"odd".to_vec());
    }
    check(&db, &model, 11)?;
    db.flush()?;
    check(&db, &model, 11)?;
    db.compact()?;
    check(&db, &model, 11)?;
    assert_eq!(db.stats().tables_closed, 0, "full tables are few");
    db.close()
}

#[test]
fn many_keys_of_a_closed_table_open_it_a_few_times() -> shamba::Result<()> {
    const KEYS: u64 = 20_000;
    let env = Env::deterministic(Arc::new(MemFs::new()), 1);
    let model = filled(&env)?;
    let db = builder(&env).memory_budget(4 << 20).open()?;
    let is_closed = |number: &u64| {
        let before = db.stats().table_opens;
        let found = db.get(key(2 * number)).expect("get");
        assert_eq!(found.as_deref(), Some(&model[&key(2 * number)][..]));
        db.stats().table_opens > before
    };
    let number = (0..TABLES).find(is_closed).expect("a closed table");
    let before = db.stats().table_opens;
    let found = db.multi_get((0..KEYS).map(|_| key(2 * number)))?;
    assert!(found.iter().all(|value| value.as_deref() == Some(&model[&key(2 * number)][..])));
    let opened = db.stats().table_opens - before;
    // The same tables are opened for each part of the keys: the one in this run, and others that
    // may contain the key.
    assert!((1..=KEYS / 100).contains(&opened), "opened {opened} times for {KEYS} keys");
    assert!(db.memory().peak_bytes <= 6 << 20, "{} bytes at most", db.memory().peak_bytes);
    db.close()
}

#[test]
fn enough_memory_keeps_every_table_open() -> shamba::Result<()> {
    let env = Env::deterministic(Arc::new(MemFs::new()), 1);
    let model = filled(&env)?;
    let db = builder(&env).memory_budget(64 << 20).open()?;
    check(&db, &model, 13)?;
    assert_eq!((db.stats().tables_closed, db.stats().table_opens), (0, 0));
    db.close()
}

#[test]
fn range_tombstones_of_small_tables_hide_what_they_hid() -> shamba::Result<()> {
    let env = Env::deterministic(Arc::new(MemFs::new()), 1);
    let mut model = filled(&env)?;
    let db = builder(&env).memory_budget(64 << 20).open()?;
    db.delete_range(key(100)..key(300))?;
    model.retain(|other, _| *other < key(100) || *other >= key(300));
    db.flush()?;
    db.close()?;
    let db = builder(&env).memory_budget(4 << 20).open()?;
    assert!(db.stats().tables_closed > 0);
    check(&db, &model, 3)?;
    db.close()
}

#[test]
fn damage_and_read_errors_of_closed_tables_are_told() -> shamba::Result<()> {
    let files = MemFs::new();
    let faults = Arc::new(FaultFs::new(Arc::new(files), 1));
    let env = Env::deterministic(faults.clone(), 1);
    let model = filled(&env)?;
    let db = builder(&env).memory_budget(4 << 20).open()?;
    faults.add_rule(FaultRule::storm(1.0, Effect::Eio).on(&[OpKind::OpenRead, OpKind::Read]).at_path(".sst"));
    let failed = (0..TABLES).filter(|number| match db.get(key(2 * number)) {
        Ok(value) => {
            assert!(value.is_some(), "a read error is no absence");
            false
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Io, "{error}");
            assert!(error.to_string().contains(".sst"), "{error}");
            true
        }
    });
    assert!(failed.count() > 100);
    faults.clear_rules();
    check(&db, &model, 17)?;
    drop(db);
    // A missing file is found at the open, whether or not the table would stay closed.
    let lost = env
        .vfs
        .list(Path::new("/db"))
        .expect("listed")
        .into_iter()
        .find(|entry| entry.name.ends_with(".sst"));
    env.vfs.unlink(&Path::new("/db").join(lost.expect("a table").name)).expect("removed");
    let error = builder(&env).memory_budget(4 << 20).open().expect_err("a table is lost");
    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    Ok(())
}

#[test]
fn threads_read_while_merges_replace_closed_tables() -> shamba::Result<()> {
    let env = Env::deterministic(Arc::new(MemFs::new()), 1);
    let model = filled(&env)?;
    let mut threaded = Env::real();
    threaded.vfs = Arc::clone(&env.vfs);
    let db = builder(&threaded).memory_budget(4 << 20).experimental(|e| e.auto_compaction(true)).open()?;
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2).map(|_| scope.spawn(|| check(&db, &model, 5))).collect();
        db.compact()?;
        readers.into_iter().try_for_each(|reader| reader.join().expect("no panic"))
    })?;
    check(&db, &model, 9)?;
    db.close()
}
