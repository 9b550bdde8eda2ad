//! Curves against simulations: LRU and CLOCK caches of blocks whose entries have Zipf popularities
//! in random positions.

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;

use super::sampler::ReuseSampler;
use super::*;

const ENTRIES: u64 = 200_000;
const ENTRIES_PER_BLOCK: u64 = 20;
const BLOCKS: usize = (ENTRIES / ENTRIES_PER_BLOCK) as usize;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn part(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// References to blocks by lookups of keys in random positions.
struct Stream {
    random: Random,
    /// Cumulative popularities by rank, and the block of each rank.
    sums: Vec<f64>,
    blocks: Vec<u32>,
}

impl Stream {
    fn new(alpha: f64, seed: u64) -> Self {
        let mut random = Random(seed);
        let mut sum = 0.0;
        let sums = (1..=ENTRIES)
            .map(|rank| {
                sum += (rank as f64).powf(-alpha);
                sum
            })
            .collect();
        let mut blocks: Vec<u32> = (0..ENTRIES).map(|at| (at / ENTRIES_PER_BLOCK) as u32).collect();
        for at in (1..blocks.len()).rev() {
            let other = (random.next() % (at as u64 + 1)) as usize;
            blocks.swap(at, other);
        }
        Self { random, sums, blocks }
    }

    fn next(&mut self) -> u32 {
        let drawn = self.random.part() * self.sums[self.sums.len() - 1];
        let rank = self.sums.partition_point(|sum| *sum < drawn).min(self.blocks.len() - 1);
        self.blocks[rank]
    }
}

/// A cache that is simulated exactly.
trait Cache {
    /// Whether the block was cached; it is cached afterwards.
    fn hits(&mut self, block: u32) -> bool;
}

struct Lru {
    capacity: usize,
    now: u64,
    last: HashMap<u32, u64>,
    by_time: BTreeMap<u64, u32>,
}

impl Cache for Lru {
    fn hits(&mut self, block: u32) -> bool {
        self.now += 1;
        let before = self.last.insert(block, self.now);
        if let Some(before) = before {
            self.by_time.remove(&before);
        }
        self.by_time.insert(self.now, block);
        if self.last.len() > self.capacity {
            if let Some((_, oldest)) = self.by_time.pop_first() {
                self.last.remove(&oldest);
            }
        }
        before.is_some()
    }
}

/// As in the engine: admitted with a clear reference bit, which a hit sets.
struct Clock {
    capacity: usize,
    frames: Vec<(u32, bool)>,
    places: HashMap<u32, usize>,
    hand: usize,
}

impl Cache for Clock {
    fn hits(&mut self, block: u32) -> bool {
        if let Some(place) = self.places.get(&block) {
            self.frames[*place].1 = true;
            return true;
        }
        if self.frames.len() < self.capacity {
            self.places.insert(block, self.frames.len());
            self.frames.push((block, false));
            return false;
        }
        while self.frames[self.hand].1 {
            self.frames[self.hand].1 = false;
            self.hand = (self.hand + 1) % self.capacity;
        }
        self.places.remove(&self.frames[self.hand].0);
        self.frames[self.hand] = (block, false);
        self.places.insert(block, self.hand);
        self.hand = (self.hand + 1) % self.capacity;
        false
    }
}

const SHARES: [f64; 3] = [0.05, 0.2, 0.5];

fn caches() -> Vec<(f64, &'static str, Box<dyn Cache>)> {
    let mut caches: Vec<(f64, &'static str, Box<dyn Cache>)> = Vec::new();
    for share in SHARES {
        let capacity = (share * BLOCKS as f64) as usize;
        let lru = Lru { capacity, now: 0, last: HashMap::new(), by_time: BTreeMap::new() };
        let clock = Clock { capacity, frames: Vec::new(), places: HashMap::new(), hand: 0 };
        caches.push((share, "LRU", Box::new(lru)));
        caches.push((share, "CLOCK", Box::new(clock)));
    }
    caches
}

/// Number of references before misses are counted, and during the count.
const WARM: u64 = 200_000;
const COUNTED: u64 = 200_000;

/// Misses of simulated caches over a stream, which is also passed to `see`.
fn simulated(stream: &mut Stream, mut see: impl FnMut(u32)) -> Vec<(f64, &'static str, f64)> {
    let mut caches: Vec<_> =
        caches().into_iter().map(|(share, kind, cache)| (share, kind, cache, 0)).collect();
    for number in 0..WARM + COUNTED {
        let block = stream.next();
        see(block);
        for (_, _, cache, misses) in &mut caches {
            *misses += u64::from(!cache.hits(block) && number >= WARM);
        }
    }
    let ratio = |misses: u64| misses as f64 / COUNTED as f64;
    caches.into_iter().map(|(share, kind, _, misses)| (share, kind, ratio(misses))).collect()
}

/// The largest relative error of a curve.
fn worst(curve: &MissRatioCurve, simulated: &[(f64, &'static str, f64)], kind: &str) -> f64 {
    let of_kind = simulated.iter().filter(|(_, of, _)| *of == kind);
    of_kind.map(|(share, _, misses)| (curve.miss_ratio(*share) / misses - 1.0).abs()).fold(0.0, f64::max)
}

const ALPHAS: [f64; 4] = [0.6, 0.8, 0.99, 1.2];

#[test]
fn the_analytic_curve_is_that_of_simulated_caches() {
    for (seed, alpha) in (1..).zip(ALPHAS) {
        let simulated = simulated(&mut Stream::new(alpha, seed), |_| {});
        let curve = MissRatioCurve::zipf(alpha, ENTRIES, ENTRIES_PER_BLOCK as f64).expect("a curve");
        let (lru, clock) = (worst(&curve, &simulated, "LRU"), worst(&curve, &simulated, "CLOCK"));
        println!("seed {seed}, Zipf {alpha}: off by {lru:.3} (LRU) and {clock:.3} (CLOCK)");
        assert!(lru < 0.04 && clock < 0.06, "seed {seed}, Zipf {alpha}: {lru} {clock}");
        // The bound distinguishes curves: those of even lookups and of another exponent are outside
        // it.
        let other = MissRatioCurve::zipf(alpha + 0.2, ENTRIES, ENTRIES_PER_BLOCK as f64).expect("a curve");
        for wrong in [MissRatioCurve::EVEN, other] {
            assert!(worst(&wrong, &simulated, "LRU") > 0.06, "seed {seed}, Zipf {alpha}");
        }
    }
}

#[test]
fn a_bounded_sample_has_the_curve_of_the_stream() {
    const TRACKED_MAX: usize = 1_000;
    for (seed, alpha) in (11..).zip(ALPHAS) {
        let mut sampler = ReuseSampler::new(TRACKED_MAX);
        // The same number of references, sampled one by one instead of block by block.
        let (mut in_time, mut random) = (ReuseSampler::new(TRACKED_MAX), Random(seed));
        let mut count = 0;
        let simulated = simulated(&mut Stream::new(alpha, seed), |block| {
            count += 1;
            let hash = ReuseSampler::hash(u64::from(block) | 7 << 32);
            sampler.note_for(hash, 1, 0);
            if random.next() < in_time.below() {
                in_time.note_for(hash >> 5, 1, 0);
            }
            assert!(sampler.tracked() <= TRACKED_MAX);
            if count % 1_000 == 0 {
                sampler.count_references(count);
                in_time.count_references(count);
                assert!(sampler.bytes() <= ReuseSampler::bytes_max(TRACKED_MAX), "{}", sampler.bytes());
            }
        });
        // The sampler starts with one block in 8, of which there are 1,250.
        assert!(sampler.rate() < 0.11, "the threshold was lowered: {}", sampler.rate());
        let blocks = sampler.blocks() / BLOCKS as f64;
        println!("rate {:.4}, share of the blocks {blocks:.3}", sampler.rate());
        assert!((blocks - 1.0).abs() < 0.15, "{blocks}");
        let curve = sampler.curve(BLOCKS as f64).expect("enough was seen");
        let (lru, clock) = (worst(&curve, &simulated, "LRU"), worst(&curve, &simulated, "CLOCK"));
        println!("seed {seed}, Zipf {alpha}: off by {lru:.3} (LRU) and {clock:.3} (CLOCK)");
        for (share, kind, misses) in &simulated {
            println!("  {kind} {share}: {misses:.4}, curve {:.4}", curve.miss_ratio(*share));
        }
        assert!(lru < 0.1 && clock < 0.1, "seed {seed}, Zipf {alpha}: {lru} {clock}");
        let wrong = in_time.curve(BLOCKS as f64).expect("enough was seen");
        assert!(worst(&wrong, &simulated, "LRU") > 0.1, "seed {seed}, Zipf {alpha}: sampled in time");
    }
}

#[test]
fn a_sample_of_every_distance_is_exact() {
    // Four blocks that all hash below the threshold, in turn: the distance is 3 each time.
    let mut sampler = ReuseSampler::new(100);
    let names: Vec<u64> = (1..).filter(|name| ReuseSampler::hash(*name) < sampler.below()).take(4).collect();
    for _ in 0..250 {
        for name in &names {
            sampler.note_for(ReuseSampler::hash(*name), 1, 0);
        }
    }
    sampler.count_references(1_000 * 8);
    // 4 times 8 blocks; the resolution is four sizes per octave.
    assert!(sampler.miss_ratio(20.0).expect("seen") > 0.98);
    assert!(sampler.miss_ratio(40.0).expect("seen") < 0.01);
    // References counted beyond the sample's weights are taken as hits.
    sampler.count_references(1_000 * 16);
    assert!((sampler.miss_ratio(20.0).expect("seen") - 0.5).abs() < 0.02);
}

#[test]
fn blocks_of_several_pages_count_as_their_pages() {
    let names = |first: u64| {
        let below = ReuseSampler::new(1).below();
        (first..).map(ReuseSampler::hash).filter(move |hash| *hash < below)
    };
    // In turn: 40 blocks of one page, then 10 of six.
    let mut sampler = ReuseSampler::new(100);
    let blocks: Vec<(u64, u32)> = names(1).zip([1; 40].into_iter().chain([6; 10])).collect();
    for _ in 0..100 {
        for (hash, pages) in &blocks {
            sampler.note_for(*hash, *pages, 0);
        }
    }
    sampler.count_references(5_000 * 8);
    let miss_ratio = |pages: f64| sampler.miss_ratio(pages * 8.0).expect("seen");
    assert!(
        miss_ratio(80.0) > 0.98 && miss_ratio(125.0) < 0.02,
        "{} {}",
        miss_ratio(80.0),
        miss_ratio(125.0)
    );
}

#[test]
fn blocks_that_are_gone_do_not_lower_the_threshold() {
    let mut sampler = ReuseSampler::new(1_000);
    let below = sampler.below();
    let mut count = 0;
    // Compactions replace all blocks repeatedly.
    for generation in 0..20u64 {
        let name = |at| generation << 32 | at;
        let sampled = (0..5_000).map(|at| ReuseSampler::hash(name(at))).filter(|hash| *hash < below);
        let sampled: Vec<u64> = sampled.collect();
        assert!((500..750).contains(&sampled.len()), "{}", sampled.len());
        for _ in 0..300 {
            for hash in &sampled {
                sampler.note_for(*hash, 1, 0);
            }
            count += 5_000;
            sampler.count_references(count);
        }
    }
    assert!(sampler.below() > below / 4, "{} of {below}", sampler.below());
    assert!((4_500.0..30_000.0).contains(&sampler.blocks()), "{}", sampler.blocks());
}

#[test]
fn the_past_fades() {
    let (mut sampler, mut count) = (ReuseSampler::new(1_000), 0);
    let names = |least: u64| {
        let below = ReuseSampler::new(1).below();
        (least..).filter(move |name| ReuseSampler::hash(*name) < below)
    };
    // Every block once, then only two of them.
    for name in names(0).take(5_000) {
        sampler.note_for(ReuseSampler::hash(name), 1, 0);
    }
    count += 5_000 * 8;
    sampler.count_references(count);
    assert!(sampler.miss_ratio(1e6).expect("seen") > 0.9);
    assert_eq!(sampler.tracked(), 1_000);
    let two: Vec<u64> = names(0).take(2).collect();
    for _ in 0..20 {
        for _ in 0..5_000 {
            for name in &two {
                sampler.note_for(ReuseSampler::hash(*name), 1, 0);
            }
        }
        count += 10_000 * 8;
        sampler.count_references(count);
    }
    assert!(sampler.miss_ratio(1e6).expect("seen") < 0.05);
}

#[test]
fn little_is_no_curve_and_bad_input_is_refused() {
    let mut sampler = ReuseSampler::new(0);
    assert_eq!(sampler.curve(1e3), None);
    for _ in 0..511 {
        sampler.note_for(0, 1, 0);
    }
    sampler.count_references(511);
    assert_eq!(sampler.curve(1e3), None);
    sampler.note_for(0, 1, 0);
    sampler.count_references(512);
    assert!(sampler.curve(1e3).is_some());
    for (alpha, entries, per_page, named) in [
        (-0.1, 1, 1.0, "exponent"),
        (f64::NAN, 1, 1.0, "exponent"),
        (11.0, 1, 1.0, "exponent"),
        (1.0, 0, 1.0, "no entries"),
        (1.0, 1, 0.0, "entries per page"),
        (1.0, 1, f64::INFINITY, "entries per page"),
    ] {
        let error = MissRatioCurve::zipf(alpha, entries, per_page).expect_err("bad");
        assert!(error.contains(named), "{error}");
    }
    assert_eq!(MissRatioCurve::zipf(0.0, 1, 1.0), Ok(MissRatioCurve::EVEN));
}

#[test]
fn even_curves_are_straight_and_hostile_ones_are_tamed() {
    let even = MissRatioCurve::EVEN;
    assert_eq!((even.miss_ratio(0.0), even.miss_ratio(0.3), even.miss_ratio(2.0)), (1.0, 0.7, 0.0));
    let drawn = MissRatioCurve::from_fn(|share| 1.0 - share);
    for share in [0.0, 1e-9, 1e-5, 0.1, 0.3, 0.7, 0.999, 1.0] {
        assert!((drawn.miss_ratio(share) - (1.0 - share)).abs() < 1e-12, "{share}");
    }
    let hostile = MissRatioCurve::from_fn(|share| if share > 0.5 { f64::NAN } else { 7.0 - 20.0 * share });
    assert_eq!((hostile.miss_ratio(0.0), hostile.miss_ratio(0.1), hostile.miss_ratio(1.0)), (1.0, 1.0, 0.0));
    // Nearly even: the bisection ends at the straight line.
    let nearly = MissRatioCurve::zipf(1e-9, 1 << 20, 1.0).expect("a curve");
    assert!((nearly.miss_ratio(0.5) - 0.5).abs() < 0.01);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn analytic_curves_fall_from_one_and_skew_never_costs(
        alpha in 0.0..10.0f64, shift in 0..64u32, bits: u64, per_page in 1e-3..1e4f64, share in 0.0..=1.0f64,
    ) {
        let curve = MissRatioCurve::zipf(alpha, (bits >> shift).max(1), per_page).expect("a curve");
        let points = curve.points();
        prop_assert!(points.windows(2).all(|two| two[0].0 < two[1].0 && two[0].1 >= two[1].1));
        prop_assert!(points.iter().all(|(_, missed)| (0.0..=1.0).contains(missed)));
        prop_assert!(curve.miss_ratio(share) <= 1.0 - share + 0.02, "{}", curve.miss_ratio(share));
    }
}
