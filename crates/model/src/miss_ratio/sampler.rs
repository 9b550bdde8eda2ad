//! Miss ratios of a stream of references, from reuse times of a spatial sample in bounded memory.
//!
//! *Sampling*: Waldspurger, Park, Garthwaite and Ahmad, *Efficient MRC Construction with SHARDS*
//! (FAST 2015). A block is sampled when the hash of its name is below a threshold; then every
//! reference to it is sampled. A sampled reference has the weight 1 / R, where R is the sampling
//! rate at its time.
//!
//! *Reuse times*: Hu et al., *Kinetic Modeling of Data Eviction in Cache* (USENIX ATC 2016). A
//! reuse time is the number of references since the last reference to the same block, here the sum
//! of the weights of the sampled ones. P(t) is the share of references with a reuse time above t; a
//! reference to an untracked block has an infinite one. (Where distinct blocks are counted, its
//! time is the one since the sample began: it may have been referenced before.) In T references,
//! the sum of P(t) for t from 0 to T distinct blocks are referenced. An LRU cache of c blocks keeps
//! a block for the T at which that sum is c, so its miss ratio is P(T). A reference thus costs one
//! hash table lookup and two additions. (A tree that counts distinct blocks is exact for any order
//! of references, but the sample then added three times as much to the cost of a lookup.)
//!
//! *Sizes*: a block takes a number of pages. The sum above is weighted by pages, so a cache's size
//! is in pages, too.
//!
//! *Bounded memory*: when more than `tracked_max` blocks are sampled, the one with the largest hash
//! is dropped and the threshold becomes its hash. Blocks that were not referenced for a long time
//! are dropped, too, so that blocks of deleted tables do not displace live ones.
//!
//! *Skew*: a hot block is in the sample with all of its references or with none. So the weights of
//! misses are divided not by the sum of weights but by the true number of references, which the
//! caller counts; the difference counts as hits in a cache of any size (the paper's SHARDS-adj).
//!
//! Not thread-safe. Not here: the check of every reference ([`ReuseSampler::hash`] and a
//! comparison).

use std::collections::{BinaryHeap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

use super::MissRatioCurve;

/// 2^64 divided by the golden ratio: consecutive block numbers spread evenly.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
/// At most one block in this many is sampled. A sampled reference takes some 210 instructions and a
/// lookup 3,300, so one in 8 costs 0.8 % of it. With one in 16 or 32, miss ratios of a database of
/// 6,000 blocks were off by more than 15 %.
const SAMPLED_IN_MIN: u64 = 8;
/// Buckets of reuse times, four per octave: up to 2^40 references.
const BUCKETS: usize = 160;
const BUCKETS_PER_OCTAVE: u64 = 4;
/// Minimum number of sampled references for a curve; below it the curve is mostly noise.
const SAMPLED_MIN: u64 = 512;
/// The weights are halved when references exceed this many per referenced block,
const REFERENCES_PER_BLOCK: f64 = 8.0;
/// but not before this many references.
const REFERENCES_MIN: f64 = 65_536.0;
/// Number of halvings after which an unreferenced block is dropped. With skewed lookups a cache
/// keeps a block for longer than the lookups of a few halvings.
const HALVINGS_UNREFERENCED_MAX: f64 = 16.0;
/// Maximum memory of a tracked block: 78 bytes of a hash table (which grows when blocks take more
/// than half of its slots and removed ones the rest), 16 of a heap that has just grown.
const BYTES_PER_BLOCK: usize = 96;
/// A slot of the hash table: the hash, the time, a control byte.
const BYTES_PER_SLOT: usize = 17;

/// The time of the last reference of each sampled block, by its hash.
type Times = HashMap<u64, u64, BuildHasherDefault<Folded>>;

/// A hasher for names that are hashes below a threshold: it moves their high bits to where a hash
/// table looks.
#[derive(Clone, Copy, Default)]
struct Folded(u64);

impl Hasher for Folded {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, hash: u64) {
        let mixed = self.0 ^ hash;
        self.0 = (mixed ^ (mixed >> 32)).wrapping_mul(MULTIPLIER);
    }
}

/// Weighted counts of references and of the pages of their blocks. First references count in the
/// pages only.
#[derive(Clone, Copy, Default, Debug)]
struct Weights {
    references: f64,
    pages: f64,
}

impl Weights {
    fn add(&mut self, weight: f64, pages: f64) {
        self.references += weight;
        self.pages += weight * pages;
    }

    fn halve(&mut self) {
        self.references /= 2.0;
        self.pages /= 2.0;
    }
}

/// A fixed-size sample of a reference stream.
#[derive(Clone, Debug)]
pub struct ReuseSampler {
    tracked_max: usize,
    /// Threshold: blocks whose hash is below it are sampled.
    below: u64,
    /// References that a sampled one represents: 1 / R.
    weight: f64,
    last: Times,
    /// The hashes of the sampled blocks, the largest on top.
    largest: BinaryHeap<u64>,
    /// The weight of all sampled references: the clock of reuse times.
    now: f64,
    /// Weights of references by their reuse time.
    weights: Vec<Weights>,
    /// The weight of first references.
    first: f64,
    /// Sampled references since the last halving, plus half of those before.
    sampled: u64,
    /// All references of the same period, as the caller counts them, and the caller's last count.
    references: f64,
    counted: u64,
}

impl ReuseSampler {
    /// An empty sample of at most `tracked_max` blocks (at least 16).
    pub fn new(tracked_max: usize) -> Self {
        let mut sampler = Self {
            tracked_max: tracked_max.clamp(16, 1 << 24),
            below: 0,
            weight: 0.0,
            last: Times::default(),
            largest: BinaryHeap::new(),
            now: 0.0,
            weights: vec![Weights::default(); BUCKETS],
            first: 0.0,
            sampled: 0,
            references: 0.0,
            counted: 0,
        };
        sampler.set_below(u64::MAX / SAMPLED_IN_MIN);
        sampler
    }

    fn set_below(&mut self, below: u64) {
        self.below = below;
        self.weight = 1.0 / self.rate();
    }

    /// The hash of a block's name, under which the sampler knows it. It is injective.
    #[inline]
    pub fn hash(name: u64) -> u64 {
        name.wrapping_mul(MULTIPLIER)
    }

    /// Hashes below this are sampled. It never increases.
    pub fn below(&self) -> u64 {
        self.below
    }

    /// The share of blocks that are sampled.
    pub fn rate(&self) -> f64 {
        self.below.max(1) as f64 / 2f64.powi(64)
    }

    /// Records a reference to a block of `pages`, if it is sampled, and returns the threshold as
    /// [`Self::below`] does. The reference also represents `skipped` other references of sampled
    /// blocks, which could not be recorded.
    pub fn note_for(&mut self, hash: u64, pages: u32, skipped: u64) -> u64 {
        if hash >= self.below {
            return self.below;
        }
        let (weight, pages) = (self.weight * (skipped as f64 + 1.0), f64::from(pages));
        self.sampled += 1;
        self.now += weight;
        let now = self.now as u64;
        match self.last.insert(hash, now) {
            Some(before) => {
                // The middle of the references that this one represents.
                let time = now.saturating_sub(before).saturating_sub((weight / 2.0) as u64);
                self.weights[bucket_of(time)].add(weight, pages);
            }
            None => {
                self.first += weight;
                self.weights[bucket_of(now)].pages += weight * pages;
                self.largest.push(hash);
                if self.last.len() > self.tracked_max {
                    if let Some(hash) = self.largest.pop() {
                        self.last.remove(&hash);
                        self.set_below(hash);
                    }
                }
            }
        }
        self.below
    }

    /// Reports the total number of references, sampled or not, by a counter that only increases.
    /// When there are many per block, all weights are halved.
    pub fn count_references(&mut self, counter: u64) {
        self.references += counter.saturating_sub(self.counted) as f64;
        self.counted = counter;
        let references_max = (self.blocks() * REFERENCES_PER_BLOCK).max(REFERENCES_MIN);
        if self.references > references_max {
            self.references /= 2.0;
            self.sampled /= 2;
            self.first /= 2.0;
            self.weights.iter_mut().for_each(Weights::halve);
            let since = (self.now - references_max * HALVINGS_UNREFERENCED_MAX) as u64;
            self.last.retain(|_, time| *time >= since);
            self.largest = self.last.keys().copied().collect();
        }
    }

    /// The estimated number of distinct blocks that were referenced.
    pub fn blocks(&self) -> f64 {
        self.last.len() as f64 / self.rate()
    }

    /// The number of tracked blocks.
    pub fn tracked(&self) -> usize {
        self.last.len()
    }

    /// The share of references that miss in an LRU cache of `pages`; `None` while too few were
    /// sampled or counted ([`Self::count_references`]).
    pub fn miss_ratio(&self, pages: f64) -> Option<f64> {
        if self.sampled < SAMPLED_MIN || self.references <= 0.0 {
            return None;
        }
        if pages < 1.0 {
            return Some(1.0);
        }
        let mut all = Weights { references: self.first, pages: 0.0 };
        self.weights.iter().for_each(|of| {
            all.references += of.references;
            all.pages += of.pages;
        });
        // Pages that are referenced within the times up to here, and references with longer times.
        let (mut held, mut longer, mut from) = (0.0, all, 0);
        for (weights, to) in self.weights.iter().zip((1..).map(bucket_start)) {
            let pages_per_time = (longer.pages - weights.pages / 2.0).max(0.0) / all.references;
            let held_within = (to - from) as f64 * pages_per_time;
            if held + held_within >= pages {
                let part = if held_within > 0.0 { (pages - held) / held_within } else { 0.0 };
                longer.references -= weights.references * part;
                break;
            }
            held += held_within;
            longer.references -= weights.references;
            longer.pages -= weights.pages;
            from = to;
        }
        Some((longer.references.max(self.first) / self.references).clamp(0.0, 1.0))
    }

    /// The curve for data of `data_pages`; `None` while too few references were sampled or counted.
    pub fn curve(&self, data_pages: f64) -> Option<MissRatioCurve> {
        self.miss_ratio(0.0)?;
        Some(MissRatioCurve::from_fn(|share| self.miss_ratio(share * data_pages).unwrap_or(1.0)))
    }

    /// The approximate number of bytes held; at most [`Self::bytes_max`].
    pub fn bytes(&self) -> usize {
        // A hash table is filled to at most seven eighths.
        let slots = (self.last.capacity() * 8 / 7).next_power_of_two();
        let held = slots * BYTES_PER_SLOT + self.largest.capacity() * size_of::<u64>();
        size_of::<Self>() + BUCKETS * size_of::<Weights>() + held
    }

    /// The bytes of a full sample of `tracked_max` blocks.
    pub fn bytes_max(tracked_max: usize) -> usize {
        size_of::<Self>() + BUCKETS * size_of::<Weights>() + (tracked_max + 1) * BYTES_PER_BLOCK
    }
}

/// The bucket of a reuse time: its octave, and a quarter of that.
fn bucket_of(time: u64) -> usize {
    let time = time.clamp(1, 1 << 60);
    let octave = u64::from(time.ilog2());
    let quarter = ((time - (1 << octave)) * BUCKETS_PER_OCTAVE) >> octave;
    ((octave * BUCKETS_PER_OCTAVE + quarter) as usize).min(BUCKETS - 1)
}

/// The minimum time of a bucket; 0 for the first.
fn bucket_start(bucket: u64) -> u64 {
    let octave = bucket / BUCKETS_PER_OCTAVE;
    ((BUCKETS_PER_OCTAVE + bucket % BUCKETS_PER_OCTAVE) << octave) / BUCKETS_PER_OCTAVE
}
