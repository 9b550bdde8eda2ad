//! Tests that the read statistics agree with the calls to the file system: number, bytes and pages,
//! by kind.

use std::io;
use std::sync::{Arc, Mutex};

use shamba::env::{Env, Layer, MemFs, RandomFile, Vfs};
use shamba::{Compression, Db, KeyspaceOptions, Prefix, ReadOptions, Reads, ReadsByKind, Residency, Stats};

/// Length of a page, in bytes.
const PAGE_BYTES: u64 = 4_096;
const ENTRIES: u32 = 4_000;
/// One in this many entries has a large value, stored in chunks.
const LARGE_EVERY: u32 = 50;

/// A file system that records the offset and length of reads.
#[derive(Clone, Debug)]
struct Noting {
    below: Arc<dyn Vfs>,
    reads: Arc<Mutex<Vec<(u64, u64)>>>,
}

#[derive(Debug)]
struct NotingFile {
    below: Arc<dyn RandomFile>,
    reads: Arc<Mutex<Vec<(u64, u64)>>>,
}

impl Layer for Noting {
    fn below(&self) -> &dyn Vfs {
        self.below.as_ref()
    }

    fn over_reads(&self, below: Arc<dyn RandomFile>) -> Arc<dyn RandomFile> {
        Arc::new(NotingFile { below, reads: Arc::clone(&self.reads) })
    }
}

impl RandomFile for NotingFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.reads.lock().expect("no panic").push((offset, buf.len() as u64));
        self.below.read_at(offset, buf)
    }

    fn len(&self) -> io::Result<u64> {
        self.below.len()
    }
}

impl Noting {
    /// The reads since the last call, computed independently of the engine.
    fn take(&self) -> Reads {
        let mut sum = Reads::default();
        for (offset, bytes) in self.reads.lock().expect("no panic").drain(..) {
            sum.count += 1;
            sum.bytes += bytes;
            sum.pages += bytes.div_ceil(PAGE_BYTES);
            sum.pages_touched += (offset / PAGE_BYTES..(offset + bytes).div_ceil(PAGE_BYTES)).count() as u64;
        }
        sum
    }
}

fn key(number: u32) -> String {
    format!("key {number:08}")
}

fn value(number: u32) -> Vec<u8> {
    let bytes = if number % LARGE_EVERY == 0 { 20_000 } else { 100 };
    // The bytes must not be highly compressible.
    (0..bytes).map(|at| (at as u32 ^ number).wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect()
}

/// Looks up existing and absent keys, singly and together.
fn look_up(db: &Db) {
    for number in (0..ENTRIES).step_by(3) {
        assert_eq!(db.get(key(number)).expect("get").as_deref(), Some(&value(number)[..]), "{number}");
        assert!(db.get(key(number) + "?").expect("get").is_none(), "{number}");
    }
    let several: Vec<String> = (0..ENTRIES).step_by(7).map(key).collect();
    let found = db.multi_get(&several).expect("multi_get");
    assert!(found.iter().all(Option::is_some));
}

/// Short scans in both directions, with values and without, and scans of everything.
fn scan(db: &Db, is_whole: bool) {
    for number in (0..ENTRIES - 2).step_by(41) {
        let seen: Vec<_> = db.range(key(number)..).take(2).map(|entry| entry.expect("readable")).collect();
        assert!(seen[1].0 == key(number + 1).as_bytes() && *seen[1].1 == *value(number + 1), "{number}");
        assert_eq!(db.range(..=key(number)).rev().take(2).count(), 2.min(number as usize + 1));
        assert_eq!(db.keys(key(number)..).take(2).count(), 2);
    }
    if is_whole {
        assert_eq!(db.iter().count(), ENTRIES as usize);
        assert_eq!(db.keys(..).rev().count(), ENTRIES as usize);
    }
}

/// The statistics of lookups with this residency, after a comparison with the recorded reads of
/// lookups and of scans.
fn cost(residency: Residency, compression: Compression) -> Stats {
    let fs = Noting { below: Arc::new(MemFs::new()), reads: Arc::default() };
    let env = Env::deterministic(Arc::new(fs.clone()), 1);
    let db =
        Db::builder("/db").env(env).experimental(|e| e.filter_residency(residency)).compression(compression);
    let db = db
        .experimental(|e| e.cache_limit(0).large_values(16 << 10, 8 << 10).statistics(false))
        .memory_budget(4 << 20);
    let db = db.open().expect("open");
    for number in 0..ENTRIES {
        db.put(key(number), value(number)).expect("put");
    }
    // Before the flush, large values are only in the log.
    fs.take();
    let before = db.stats();
    look_up(&db);
    let in_log = db.stats().since(&before);
    assert_eq!(in_log.reads.all(), fs.take(), "{residency:?} {compression:?}, before the flush");
    db.compact().expect("compact");
    let before = db.stats();
    fs.take();
    look_up(&db);
    let stats = db.stats().since(&before);
    assert_eq!(stats.reads.all(), fs.take(), "{residency:?} {compression:?}");
    let of = |kind: Reads| kind.count > 0 && kind.bytes >= kind.count && kind.pages_touched >= kind.pages;
    assert!(of(stats.reads.data) && of(stats.reads.value), "{:?}", stats.reads);
    assert_eq!(stats.range_reads, ReadsByKind::default(), "lookups are no scans");
    for is_whole in [false, true] {
        let before = db.stats();
        scan(&db, is_whole);
        let scans = db.stats().since(&before);
        let (reads, asked) = (scans.range_reads.all(), fs.take());
        assert_eq!(scans.reads, ReadsByKind::default(), "scans are no lookups");
        if is_whole {
            // Each block that is read ahead counts as a read.
            assert!(
                reads.count > asked.count && reads.bytes <= asked.bytes,
                "{reads:?}, asked for {asked:?}"
            );
        } else {
            assert_eq!(reads, asked, "{residency:?} {compression:?}, short scans");
        }
        assert!(of(scans.range_reads.data) && of(scans.range_reads.value), "{:?}", scans.range_reads);
        assert_eq!(scans.range_reads.index.count > 0, residency == Residency::Cached);
        assert_eq!(scans.range_cache_hits, 0, "the cache holds nothing");
    }
    stats
}

#[test]
fn the_statistics_count_what_the_file_system_is_asked_for() {
    for compression in [Compression::None, Compression::Lz4] {
        let pinned = cost(Residency::Pinned, compression);
        assert_eq!((pinned.reads.filter, pinned.reads.index), (Reads::default(), Reads::default()));
        // With a cache that holds nothing, each use of a filter slice or index partition is a read.
        let cached = cost(Residency::Cached, compression);
        assert!(cached.reads.filter.count >= cached.lookups / 2, "{:?}", cached.reads);
        assert!(cached.reads.index.count > 0, "{:?}", cached.reads);
    }
}

/// Without read-ahead each block that a scan reads is a read of its own.
#[test]
fn scans_count_blocks_in_the_cache_filters_and_values_in_files() {
    let fs = Noting { below: Arc::new(MemFs::new()), reads: Arc::default() };
    let env = Env::deterministic(Arc::new(fs.clone()), 1);
    let options = KeyspaceOptions::new().value_threshold(1_000).prefix(Prefix::Delimited(b' '));
    let db = Db::builder("/db").env(env).memory_budget(32 << 20).keyspace("default", options);
    let db = db.experimental(|e| e.filter_residency(Residency::Cached)).open().expect("open");
    for number in 0..ENTRIES {
        db.put(key(number), value(number)).expect("put");
    }
    db.compact().expect("compact");
    db.wait_idle().expect("idle");
    fs.take();
    let scan = || {
        let before = db.stats();
        let reader = db.with(&ReadOptions::new().readahead_bytes(0));
        assert_eq!(reader.iter().count(), ENTRIES as usize);
        assert_eq!(reader.prefix("key ").take(10).count(), 10);
        assert_eq!(reader.prefix("another ").count(), 0);
        let scans = db.stats().since(&before);
        assert_eq!(scans.range_reads.all(), fs.take(), "{:?}", scans.range_reads);
        assert_eq!(scans.range_values, u64::from(ENTRIES / LARGE_EVERY) + 1, "one more for the prefix");
        scans
    };
    let first = scan();
    assert!(first.range_reads.value.count > 0 && first.range_reads.filter.count > 0, "{first:?}");
    let second = scan();
    assert!(second.range_cache_hits > first.range_cache_hits, "{} hits", second.range_cache_hits);
    assert!(second.range_reads.data.count < first.range_reads.data.count / 2, "{:?}", second.range_reads);
}
