//! Tests of lookups of many keys whose index partitions and blocks are not in memory: they are read
//! together, by the operating system or by threads, and give what single lookups give.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

use shamba::env::{Clock, Effect, Env, FaultFs, FaultRule, Layer, MemFs, OpKind, RandomFile, Vfs};
use shamba::{Compression, Db, ErrorKind, Residency, Result};

pub(super) const KEYS: u32 = 6_000;

/// The runs of [`filled`].
const RUNS: u32 = 3;

/// A clock on which every read of a file takes long: it moves on whenever it is read.
#[derive(Debug, Default)]
struct SlowReads(AtomicU64);

impl Clock for SlowReads {
    fn now_us(&self) -> u64 {
        self.now_ns() / 1_000
    }

    fn now_ns(&self) -> u64 {
        self.0.fetch_add(50_000, Ordering::Relaxed)
    }

    fn unix_ms(&self) -> u64 {
        0
    }

    fn sleep_us(&self, us: u64) {
        std::thread::sleep(std::time::Duration::from_micros(us));
    }

    fn wait_ns(&self, _: u64) {}
}

pub(super) fn slow(vfs: Arc<dyn Vfs>) -> Env {
    Env { vfs, clock: Arc::new(SlowReads::default()), ..Env::real() }
}

pub(super) fn key(number: u32) -> String {
    format!("key {number:08}")
}

/// A database of several runs, in which a key may be deleted or written again, and which keeps
/// nothing of its tables in memory but what `residency` says.
pub(super) fn filled(env: Env, path: &Path, residency: Residency, compression: Compression) -> Db {
    filled_with(env, path, residency, compression, (4096, 0))
}

/// As [`filled`], with data blocks of `block_bytes` (with small ones each index has several
/// partitions), and a block cache of `cache_bytes`.
pub(super) fn filled_with(
    env: Env,
    path: &Path,
    residency: Residency,
    compression: Compression,
    (block_bytes, cache_bytes): (usize, u64),
) -> Db {
    let builder =
        Db::builder(path).env(env).memory_budget(4 << 20).compression(compression).bits_per_key(2.0);
    let builder = builder.experimental(|e| {
        e.block_bytes(block_bytes)
            .auto_compaction(false)
            .filter_residency(residency)
            .cache_limit(cache_bytes)
            .resident_limit(0)
    });
    let db = builder.info_log(false).open().expect("opened");
    for run in 0..RUNS {
        for (number, value) in written_in(run) {
            let written = match value {
                Some(value) => db.put(key(number), value),
                None => db.delete(key(number)),
            };
            written.expect("written");
        }
        db.flush().expect("flushed");
    }
    db
}

/// The writes of all runs, in order: the number of a key, and its value or `None` for a deletion.
pub(super) fn written() -> impl Iterator<Item = (u32, Option<String>)> {
    (0..RUNS).flat_map(written_in)
}

fn written_in(run: u32) -> impl Iterator<Item = (u32, Option<String>)> {
    (run..KEYS).step_by(run as usize + 1).map(move |number| {
        let is_deleted = (number + run) % 11 == 0;
        (number, (!is_deleted).then(|| format!("{run} {number} {}", "v".repeat(100))))
    })
}

/// Looks up groups of keys: some near each other, some absent.
fn compare(db: &Db, seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    for _ in 0..60 {
        let near = rng.u32(..KEYS);
        let keys: Vec<String> = (0..rng.usize(..100))
            .map(|_| match rng.u8(..4) {
                0 => key(near + rng.u32(..50)),
                1 => key(rng.u32(..KEYS)) + "?",
                _ => key(rng.u32(..KEYS)),
            })
            .collect();
        let together = db.multi_get(&keys).expect("readable");
        for (key, value) in keys.iter().zip(together) {
            assert_eq!(value, db.get(key).expect("readable"), "{key:?}, seed {seed}");
        }
    }
}

/// Calls `check` with a filled database of each kind, and a seed. `block_bytes` as in
/// [`filled_with`].
pub(super) fn of_each_kind(block_bytes: usize, check: impl Fn(&Db, u64)) {
    let residencies = [Residency::Budgeted, Residency::Cached, Residency::Pinned];
    for (seed, residency) in (0..).zip(residencies) {
        for compression in [Compression::None, Compression::Lz4] {
            for is_real in [false, true] {
                let dir = tempfile::tempdir().expect("a directory");
                let env = if is_real { slow(Env::real().vfs) } else { slow(Arc::new(MemFs::new())) };
                println!("{residency:?}, {compression:?}, real files: {is_real}");
                let db = filled_with(env, dir.path(), residency, compression, (block_bytes, 0));
                check(&db, seed);
                db.close().expect("closed");
            }
        }
    }
}

#[test]
fn keys_read_together_have_the_values_of_single_lookups() {
    of_each_kind(4096, compare);
}

/// A file system that records which threads read from tables, once for each read.
#[derive(Clone, Debug)]
pub(super) struct Readers {
    below: Arc<dyn Vfs>,
    threads: Arc<Mutex<Vec<String>>>,
}

impl Default for Readers {
    fn default() -> Self {
        Self { below: Arc::new(MemFs::new()), threads: Arc::default() }
    }
}

impl Readers {
    /// Forgets the reads.
    pub(super) fn clear(&self) {
        self.threads.lock().expect("no panic").clear();
    }

    /// The number of threads that have read.
    pub(super) fn threads(&self) -> usize {
        self.threads.lock().expect("no panic").iter().collect::<BTreeSet<_>>().len()
    }

    /// The number of reads.
    pub(super) fn reads(&self) -> usize {
        self.threads.lock().expect("no panic").len()
    }
}

#[derive(Debug)]
struct ReadersFile(Arc<dyn RandomFile>, Readers);

impl Layer for Readers {
    fn below(&self) -> &dyn Vfs {
        self.below.as_ref()
    }

    fn over_reads(&self, below: Arc<dyn RandomFile>) -> Arc<dyn RandomFile> {
        Arc::new(ReadersFile(below, self.clone()))
    }
}

impl RandomFile for ReadersFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let reader: ThreadId = std::thread::current().id();
        self.1.threads.lock().expect("no panic").push(format!("{reader:?}"));
        // Long enough for other threads to begin.
        std::thread::sleep(std::time::Duration::from_millis(1));
        self.0.read_at(offset, buf)
    }

    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
}

#[test]
fn absent_partitions_are_read_once_and_by_several_threads() {
    let fs = Readers::default();
    let db = filled(slow(Arc::new(fs.clone())), Path::new("/db"), Residency::Budgeted, Compression::None);
    db.compact().expect("compacted");
    db.get(key(1)).expect("a read is measured");
    fs.clear();
    let before = db.stats();
    // Of 32 neighbours at most two index partitions and a few blocks.
    let near: Vec<String> = (1_000..1_032).map(key).collect();
    db.multi_get(&near).expect("readable");
    let stats = db.stats().since(&before);
    assert!((1..=2).contains(&stats.reads.index.count), "{} partitions", stats.reads.index.count);
    assert!((1..=6).contains(&stats.reads.data.count), "{} blocks", stats.reads.data.count);
    let far: Vec<String> = (0..KEYS).step_by(200).map(key).collect();
    db.multi_get(&far).expect("readable");
    let threads = fs.threads();
    assert!(threads > 2, "{threads} threads have read");
    db.close().expect("closed");
}

#[test]
fn a_failed_read_among_many_is_an_error_or_made_again() -> Result<()> {
    let faults = Arc::new(FaultFs::new(Arc::new(MemFs::new()), 1));
    let db = filled(slow(faults.clone()), Path::new("/db"), Residency::Budgeted, Compression::None);
    let keys: Vec<String> = (0..KEYS).step_by(97).map(key).collect();
    let expected = db.multi_get(&keys)?;
    let mut failed = 0;
    for nth in 0.. {
        faults.clear_rules();
        let before = faults.faults_injected();
        faults.add_rule(FaultRule::nth(nth, Effect::Eio).on(&[OpKind::Read]).at_path(".sst"));
        match db.multi_get(&keys) {
            Ok(values) => assert_eq!(values, expected, "read {nth}"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Io, "read {nth}");
                failed += 1;
            }
        }
        if faults.faults_injected() == before {
            break;
        }
    }
    faults.clear_rules();
    assert!(failed > 10, "{failed} reads of index partitions failed");
    assert_eq!(db.multi_get(&keys)?, expected);
    db.close()
}
