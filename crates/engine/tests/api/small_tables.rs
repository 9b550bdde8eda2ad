//! Tests of sessions that write little: their small tables do not accumulate, and opening stays
//! cheap.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use shamba::{Builder, Db};
use shamba_env::{Env, Layer, MemFs, RandomFile, Vfs, write_file_synced};

/// Thresholds for small and for full tables under the smallest budget, in bytes.
const SMALL_BYTES: u64 = 512 << 10;
const FULL_BYTES: u64 = 2 << 20;

/// More compactions than a tree of a few levels needs once nothing is written to it.
const COMPACTIONS_MAX: u64 = 20;

/// A file system that counts reads.
#[derive(Debug)]
struct Counted {
    below: MemFs,
    reads: Arc<Reads>,
}

#[derive(Debug, Default)]
struct Reads {
    calls: AtomicU64,
    bytes: AtomicU64,
}

impl Layer for Counted {
    fn below(&self) -> &dyn Vfs {
        &self.below
    }

    fn over_reads(&self, file: Arc<dyn RandomFile>) -> Arc<dyn RandomFile> {
        Arc::new(CountedFile { file, reads: Arc::clone(&self.reads) })
    }
}

#[derive(Debug)]
struct CountedFile {
    file: Arc<dyn RandomFile>,
    reads: Arc<Reads>,
}

impl RandomFile for CountedFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let bytes = self.file.read_at(offset, buf)?;
        self.reads.calls.fetch_add(1, Ordering::Relaxed);
        self.reads.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(bytes)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
}

impl Reads {
    /// Returns and resets the number of calls and bytes.
    fn take(&self) -> (u64, u64) {
        (self.calls.swap(0, Ordering::Relaxed), self.bytes.swap(0, Ordering::Relaxed))
    }
}

/// An environment in memory, and its read counters.
fn counted() -> (Env, Arc<Reads>) {
    let reads = Arc::<Reads>::default();
    let below = MemFs::new();
    (Env::deterministic(Arc::new(Counted { below, reads: Arc::clone(&reads) }), 5), reads)
}

fn builder(env: &Env) -> Builder {
    Db::builder("/db").env(env.clone()).memory_budget(4 << 20).info_log(false)
}

fn tables(db: &Db) -> u64 {
    db.stats().levels.iter().map(|level| level.tables).sum()
}

fn check(db: &Db, model: &BTreeMap<String, Vec<u8>>) -> shamba::Result<()> {
    for (key, value) in model {
        assert_eq!(db.get(key)?.as_deref(), Some(&value[..]), "{key}");
    }
    let all = db.iter().collect::<shamba::Result<Vec<_>>>()?;
    assert!(
        all.iter()
            .map(|(key, value)| (&key[..], &value[..]))
            .eq(model.iter().map(|(key, value)| (key.as_bytes(), value.as_slice())))
    );
    Ok(())
}

/// Runs sessions that each write one key. The keys ascend, so that no compaction of overlapping
/// keys joins the tables.
///
/// An open may make at most `opens.0` reads with `opens.1` bytes in total; in this environment
/// compactions run inside the open.
fn sessions(count: u32, value_bytes: usize, flushes: bool, opens: (u64, u64)) -> shamba::Result<()> {
    let (env, reads) = counted();
    let mut model = BTreeMap::new();
    let mut most = (0, 0);
    for session in 0..count {
        reads.take();
        let db = builder(&env).open()?;
        let opened = reads.take();
        most = (opened.0.max(most.0), opened.1.max(most.1));
        let (key, value) = (format!("key{session:08}"), vec![session as u8; value_bytes]);
        db.put(&key, &value)?;
        model.insert(key, value);
        if flushes {
            db.flush()?;
        }
        if session % 97 == 0 {
            check(&db, &model)?;
        }
        // Every third session ends like a killed process.
        if session % 3 > 0 {
            db.close()?;
        }
    }
    let db = builder(&env).open()?;
    check(&db, &model)?;
    let data_bytes = u64::from(count) * value_bytes as u64;
    assert!(tables(&db) < 10 + data_bytes / SMALL_BYTES, "{} tables after {count} sessions", tables(&db));
    assert!(most.0 <= opens.0 && most.1 <= opens.1, "{most:?} reads and bytes at an open");
    db.compact()?;
    // Tables of at least half the full size are no longer merged.
    assert!(tables(&db) <= 1 + 2 * data_bytes / FULL_BYTES, "{} tables after a compaction", tables(&db));
    check(&db, &model)?;
    db.close()
}

#[test]
fn two_thousand_sessions_of_one_small_key_leave_few_tables() -> shamba::Result<()> {
    sessions(2_000, 10, false, (60, 512 << 10))
}

#[test]
fn two_thousand_sessions_that_flush_leave_few_tables() -> shamba::Result<()> {
    sessions(2_000, 10, true, (200, 1 << 20))
}

#[test]
fn sessions_that_outgrow_the_copied_log_tail_leave_few_tables() -> shamba::Result<()> {
    // A compaction reads up to sixteen small tables, and reads its outputs again to verify them.
    sessions(300, 20_000, false, (600, 2 * 16 * SMALL_BYTES))
}

#[test]
fn many_keyspaces_that_each_session_writes_to_keep_the_database_open() -> shamba::Result<()> {
    let (env, _) = counted();
    let mut model = BTreeMap::new();
    for session in 0..8 {
        let db = builder(&env).open()?;
        for keyspace in 0..200 {
            let key = format!("key{session}");
            db.keyspace(&format!("keyspace{keyspace}"))?.put(&key, format!("{session}-{keyspace}"))?;
            model.insert((keyspace, key), format!("{session}-{keyspace}"));
        }
        db.close()?;
    }
    let db = builder(&env).open()?;
    let files = env.vfs.list(Path::new("/db")).expect("listed");
    let tables = files.iter().filter(|file| file.name.ends_with(".sst")).count();
    assert_eq!(tables, 0, "all of it stays in the log");
    for ((keyspace, key), value) in &model {
        let found = db.keyspace(&format!("keyspace{keyspace}"))?.get(key)?;
        assert_eq!(found.as_deref(), Some(value.as_bytes()), "{keyspace} {key}");
    }
    db.close()
}

#[test]
fn compact_joins_tables_that_an_older_build_left() -> shamba::Result<()> {
    let (env, _) = counted();
    let open =
        |merges| builder(&env).memory_budget(64 << 20).experimental(|e| e.auto_compaction(merges)).open();
    let mut model = BTreeMap::new();
    let db = open(false)?;
    for number in 0..300 {
        let (key, value) = (format!("key{number:08}"), vec![7; 10]);
        db.put(&key, &value)?;
        model.insert(key, value);
        db.flush()?;
    }
    assert_eq!(tables(&db), 300);
    db.compact()?;
    assert_eq!(tables(&db), 1);
    check(&db, &model)?;
    db.close()
}

#[test]
fn a_database_without_a_log_keeps_what_it_replays_in_tables() -> shamba::Result<()> {
    let (env, _) = counted();
    let db = builder(&env).open()?;
    db.put("a", "1")?;
    drop(db);
    let db = builder(&env).experimental(|e| e.no_wal(true)).open()?;
    assert_eq!(tables(&db), 1, "nothing else could bring it back");
    db.put("b", "2")?;
    drop(db);
    let db = builder(&env).open()?;
    assert_eq!(db.get("a")?.as_deref(), Some(&b"1"[..]));
    assert_eq!(db.get("b")?, None, "it was in memory only");
    db.close()
}

#[test]
fn a_copied_log_tail_of_a_dropped_keyspace_is_repaired_without_a_manifest() -> shamba::Result<()> {
    let (env, _) = counted();
    let db = builder(&env).open()?;
    db.put("before", "1")?;
    db.keyspace("dropped")?.put("gone", "2")?;
    db.put("between", "3")?;
    db.keyspace("dropped")?.put("gone", "4")?;
    db.drop_keyspace("dropped")?;
    db.close()?;
    let db = builder(&env).open()?;
    db.put_with("after", "5", shamba::Durability::Sync)?;
    db.close()?;
    let dir = Path::new("/db");
    for file in env.vfs.list(dir).expect("listed") {
        if file.name.starts_with("MANIFEST") {
            let path = dir.join(file.name);
            env.vfs.unlink(&path).expect("removed");
            write_file_synced(env.vfs.as_ref(), &path, b"not a manifest").expect("written");
        }
    }
    let report = shamba::repair(&env, dir, Path::new("/repaired"))?;
    let db = Db::builder("/repaired").env(env).open()?;
    for (key, value) in [("before", "1"), ("between", "3"), ("after", "5")] {
        let found = db.keyspaces().iter().find_map(|name| db.keyspace(name).ok()?.get(key).ok()?);
        assert_eq!(found.as_deref(), Some(value.as_bytes()), "{key}: {report:?}");
    }
    db.close()
}

/// Under a small budget memory ends tables of short entries before they are a quarter full: the
/// same tables would be made of them for ever.
#[test]
fn tables_that_memory_keeps_small_are_not_combined_again_and_again() -> shamba::Result<()> {
    let env = Env { vfs: Arc::new(MemFs::new()), ..Env::real() };
    let db = Db::builder("/db").env(env).info_log(false).memory_budget(4 << 20).open()?;
    for number in 0..300_000u32 {
        db.put(number.to_be_bytes(), [0; 4])?;
    }
    db.flush()?;
    // Not `wait_idle`, which would wait for ever, too.
    let mut looks = vec![db.stats().compactions];
    while looks.len() < 16 || looks[looks.len() - 16] < looks[looks.len() - 1] {
        std::thread::sleep(Duration::from_millis(100));
        looks.push(db.stats().compactions);
        assert!(looks[looks.len() - 1] < looks[0] + COMPACTIONS_MAX, "compactions go on: {looks:?}");
    }
    let tables = db.stats().levels.iter().map(|level| level.tables).sum::<u64>();
    assert!(tables >= 8, "{tables} tables: memory did not end them");
    db.close()
}
