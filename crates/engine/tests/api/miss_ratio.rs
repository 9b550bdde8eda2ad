//! Tests of the observed miss ratio of the block cache: against an exact simulation of the same
//! references, and against reads.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use shamba::env::{Env, MemFs};
use shamba::{Db, Residency};

/// One entry takes most of a block of 4 KiB, so that each block holds one key.
const VALUE_BYTES: usize = 2_800;
const BLOCK_BYTES: u64 = 4_096;
const KEYS: usize = 6_000;
const LOOKUPS: u64 = 120_000;
const SHARES: [f64; 3] = [0.1, 0.3, 0.6];
const SEED: u64 = 5;

fn key(number: usize) -> [u8; 8] {
    (number as u64).to_be_bytes()
}

/// A stream of keys with Zipf popularity, scattered over the key space.
struct Stream {
    rng: fastrand::Rng,
    sums: Vec<f64>,
    scattered: Vec<usize>,
}

impl Stream {
    fn new(alpha: f64) -> Self {
        println!("seed {SEED}");
        let mut rng = fastrand::Rng::with_seed(SEED);
        let mut scattered: Vec<usize> = (0..KEYS).collect();
        rng.shuffle(&mut scattered);
        let mut sum = 0.0;
        let sums = (1..=KEYS).map(|rank| {
            sum += (rank as f64).powf(-alpha);
            sum
        });
        Self { sums: sums.collect(), rng, scattered }
    }

    fn next(&mut self) -> usize {
        let drawn = self.rng.f64() * self.sums[KEYS - 1];
        self.scattered[self.sums.partition_point(|sum| *sum < drawn).min(KEYS - 1)]
    }
}

/// A database of all keys in one run, with a cache of `cache_bytes` bytes that admits every block
/// it misses.
fn database_of(cache_bytes: u64, value_bytes: usize, block_bytes: usize) -> Db {
    let env = Env::deterministic(Arc::new(MemFs::new()), 1);
    let db =
        Db::builder("/db").env(env).experimental(|e| e.filter_residency(Residency::Pinned).count_ios(true));
    let db =
        db.experimental(|e| e.cache_limit(cache_bytes).block_bytes(block_bytes)).memory_budget(256 << 20);
    let db = db.experimental(|e| e.large_values(64 << 10, 32 << 10)).open().expect("open");
    let mut rng = fastrand::Rng::with_seed(SEED);
    for number in 0..KEYS {
        let value: Vec<u8> = std::iter::repeat_with(|| rng.u8(..)).take(value_bytes).collect();
        db.put(key(number), value).expect("put");
    }
    db.compact().expect("compact");
    db
}

/// A database with a cache of `cache_blocks` blocks of 4 KiB, of one key each.
fn database(cache_blocks: f64) -> Db {
    database_of((cache_blocks * BLOCK_BYTES as f64) as u64, VALUE_BYTES, BLOCK_BYTES as usize)
}

/// The exact miss ratios of LRU caches over the second half of a stream.
fn simulated(alpha: f64) -> Vec<f64> {
    let miss_ratio = |share: f64| {
        let (mut stream, mut last, mut by_time) = (Stream::new(alpha), HashMap::new(), BTreeMap::new());
        let mut misses = 0;
        for now in 0..LOOKUPS {
            let key = stream.next();
            let before = last.insert(key, now);
            misses += u64::from(before.is_none() && now >= LOOKUPS / 2);
            if let Some(before) = before {
                by_time.remove(&before);
            }
            by_time.insert(now, key);
            if last.len() > (share * KEYS as f64) as usize {
                let (_, oldest) = by_time.pop_first().expect("not empty");
                last.remove(&oldest);
            }
        }
        misses as f64 / (LOOKUPS / 2) as f64
    };
    SHARES.into_iter().map(miss_ratio).collect()
}

#[test]
fn the_observed_miss_ratio_is_that_of_an_exact_simulation() {
    for alpha in [0.6, 0.99] {
        let exact = simulated(alpha);
        let (db, mut stream) = (database(0.0), Stream::new(alpha));
        assert_eq!(db.miss_ratio(1 << 20), None, "nothing was looked up");
        for number in 0..LOOKUPS {
            assert!(db.get(key(stream.next())).expect("get").is_some());
            if number % 10_000 == 0 {
                // The background observer does the same periodically.
                db.miss_ratio(0);
            }
        }
        for (share, exact) in SHARES.into_iter().zip(exact) {
            let bytes = (share * KEYS as f64 * BLOCK_BYTES as f64) as u64;
            let observed = db.miss_ratio(bytes).expect("enough was looked up");
            println!("Zipf {alpha}, {share} of the blocks: {observed:.4}, exactly {exact:.4}");
            assert!((observed / exact - 1.0).abs() < 0.15, "{alpha} {share}: {observed} {exact}");
            // The tolerance is small enough to distinguish skewed from uniform keys.
            assert!(((1.0 - share) / exact - 1.0).abs() > 0.02 * alpha, "{alpha} {share}: {exact}");
        }
        assert!(db.miss_ratio(0).expect("seen") > 0.95 && db.miss_ratio(u64::MAX).expect("seen") < 0.1);
        let memory = db.memory();
        assert!(memory.peak_bytes <= memory.budget_bytes, "{memory}");
    }
}

#[test]
fn the_observed_miss_ratio_foretells_reads_also_of_multi_get() {
    let (share, alpha) = (0.3, 0.99);
    let (db, mut stream) = (database(share * KEYS as f64), Stream::new(alpha));
    let mut look_up = |lookups: usize| {
        let before = db.stats();
        for _ in 0..lookups / 40 {
            for _ in 0..20 {
                db.get(key(stream.next())).expect("get");
            }
            let keys: Vec<[u8; 8]> = (0..20).map(|_| key(stream.next())).collect();
            db.multi_get(&keys).expect("multi_get");
        }
        db.stats().since(&before)
    };
    look_up(80_000);
    let bytes = (share * KEYS as f64 * BLOCK_BYTES as f64) as u64;
    let predicted = db.miss_ratio(bytes).expect("enough was looked up");
    let stats = look_up(40_000);
    let measured = stats.reads.data.count as f64 / stats.lookups as f64;
    println!("predicted {predicted:.4}, measured {measured:.4}");
    assert!((predicted / measured - 1.0).abs() < 0.15, "{predicted} {measured}");
    assert!(((1.0 - share) / measured - 1.0).abs() > 0.3, "even lookups would read more: {measured}");
}

#[test]
fn the_observed_miss_ratio_counts_the_frames_of_blocks_of_other_sizes() {
    // One key per block: blocks of 300 bytes, which take a frame of 4 KiB, and of 10,000 bytes,
    // which take 12 KiB.
    for (value_bytes, block_bytes, frame_bytes) in [(300, 512, 4_096), (10_000, 4_096, 12_288)] {
        let cache_bytes = (0.3 * KEYS as f64 * f64::from(frame_bytes)) as u64;
        let (db, mut stream) = (database_of(cache_bytes, value_bytes, block_bytes), Stream::new(0.99));
        let mut look_up = |lookups: usize| {
            let before = db.stats();
            for _ in 0..lookups {
                db.get(key(stream.next())).expect("get");
            }
            db.stats().since(&before)
        };
        look_up(80_000);
        let predicted = |cache_bytes| db.miss_ratio(cache_bytes).expect("enough was looked up");
        let expected = predicted(cache_bytes);
        let stats = look_up(40_000);
        let measured = stats.reads.data.count as f64 / stats.lookups as f64;
        println!("blocks of {value_bytes} bytes: predicted {expected:.4}, measured {measured:.4}");
        assert!((expected / measured - 1.0).abs() < 0.15, "{value_bytes}: {expected} {measured}");
        // The prediction if a block took only its own bytes (a block of 512), or one page (a block
        // of 10,000).
        let wrong = predicted(if value_bytes < 4_096 { cache_bytes * 8 } else { cache_bytes * 3 });
        assert!((wrong / measured - 1.0).abs() > 0.3, "{value_bytes}: {wrong} {measured}");
    }
}
