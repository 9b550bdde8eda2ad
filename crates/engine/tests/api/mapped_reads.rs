//! Tests of tables that are read from mapped files: the same answers, and errors instead of a
//! signal where a page is lost.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use shamba::{Compression, Db, ErrorKind, Result};

const KEYS: u32 = 8_000;

fn key(number: u32) -> String {
    format!("key {number:08}")
}

/// A database that keeps no block in memory.
fn open(path: &Path, compression: Compression) -> Result<Db> {
    let builder = Db::builder(path).memory_budget(4 << 20).compression(compression);
    builder.experimental(|e| e.map_reads(true).cache_limit(0).auto_compaction(false)).open()
}

fn filled(path: &Path, compression: Compression) -> Result<(Db, BTreeMap<String, String>)> {
    let db = open(path, compression)?;
    let mut model = BTreeMap::new();
    for run in 0..3 {
        for number in (run..KEYS).step_by(run as usize + 1) {
            if number % 13 == run {
                db.delete(key(number))?;
                model.remove(&key(number));
            } else {
                let value = format!("{run} {number} {}", "v".repeat(number as usize % 200));
                db.put(key(number), &value)?;
                model.insert(key(number), value);
            }
        }
        db.flush()?;
    }
    Ok((db, model))
}

#[test]
fn mapped_tables_give_what_was_written() -> Result<()> {
    for compression in [Compression::None, Compression::Lz4] {
        let dir = tempfile::tempdir().expect("a directory");
        let (db, model) = filled(dir.path(), compression)?;
        let keys: Vec<String> = (0..KEYS + 10).step_by(3).map(key).collect();
        for (key, value) in keys.iter().zip(db.multi_get(&keys)?) {
            assert_eq!(value.as_deref(), model.get(key).map(String::as_bytes), "{key}");
            assert_eq!(value, db.get(key)?);
        }
        let forward = db.iter().collect::<Result<Vec<_>>>()?;
        assert!(
            forward
                .iter()
                .map(|(key, value)| (&key[..], &value[..]))
                .eq(model.iter().map(|(key, value)| (key.as_bytes(), value.as_bytes())))
        );
        let mut back = db.iter().rev().collect::<Result<Vec<_>>>()?;
        back.reverse();
        assert_eq!(back, forward);
        db.compact()?;
        assert_eq!(db.iter().collect::<Result<Vec<_>>>()?, forward);
        assert!(db.verify()?.is_clean());
        db.close()?;
    }
    Ok(())
}

/// Another process truncates a table, and puts the bytes back later.
#[test]
fn lost_pages_are_errors_of_the_reads_that_meet_them() -> Result<()> {
    let dir = tempfile::tempdir().expect("a directory");
    let (db, model) = filled(dir.path(), Compression::None)?;
    db.compact()?;
    let tables = std::fs::read_dir(dir.path()).expect("listed").map(|entry| entry.expect("an entry").path());
    let tables: Vec<PathBuf> = tables.filter(|path| path.extension().is_some_and(|is| is == "sst")).collect();
    let all_right = |db: &Db| {
        model
            .iter()
            .all(|(key, value)| db.get(key).is_ok_and(|found| found.as_deref() == Some(value.as_bytes())))
    };
    assert!(!tables.is_empty() && all_right(&db));
    for table in &tables {
        let bytes = std::fs::read(table).expect("read");
        let file = OpenOptions::new().write(true).open(table).expect("opened");
        file.set_len(bytes.len() as u64 / 3).expect("truncated");
        let (mut right, mut lost) = (0, 0);
        for (key, value) in &model {
            match db.get(key) {
                Ok(found) => {
                    assert_eq!(found.as_deref(), Some(value.as_bytes()), "{key}");
                    right += 1;
                }
                Err(error) => {
                    assert!(matches!(error.kind(), ErrorKind::Io | ErrorKind::Corruption), "{error}");
                    lost += 1;
                }
            }
        }
        assert!(right > 0 && lost > 0, "{right} right, {lost} lost");
        assert!(db.iter().any(|entry| entry.is_err()));
        let mut file = OpenOptions::new().write(true).open(table).expect("opened");
        file.write_all(&bytes).expect("written");
        assert!(all_right(&db), "the bytes are there again");
    }
    db.close()
}
