//! Reuse distances of a stream of references, by spatial sampling in bounded memory (SHARDS).
//!
//! Waldspurger, Park, Garthwaite and Ahmad, *Efficient MRC Construction with SHARDS* (FAST 2015): a block is sampled
//! when the hash of its name lies below a threshold, and then every reference to it is. With a sampling rate R, the
//! reuse distance of a sampled reference (the number of distinct blocks that were referenced since the last reference
//! to the same block) is the number of distinct *sampled* blocks over R. The miss ratio of LRU with c blocks is the
//! share of references with a distance of c or more, first references included.
//!
//! *Bounded memory*: when more than `tracked_max` blocks are sampled, the one with the largest hash is dropped and the
//! threshold becomes its hash. A sampled reference weighs 1 / R at its time.
//!
//! *Skew*: a hot block is in the sample with all of its references or with none. So weights are not divided by their
//! sum but by the true number of references, which the caller counts; the difference goes to distance 0, where hot
//! blocks are (the paper's SHARDS-adj).
//!
//! Positions in time are leaves of a Fenwick tree which counts the sampled blocks by their last reference. When all
//! positions are used, blocks are numbered anew in the same order.
//!
//! Not thread-safe; not here: what looks at every reference ([`ReuseSampler::hash`] and a comparison).

use std::collections::{BinaryHeap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

use super::MissRatioCurve;

/// 2^64 over the golden ratio: consecutive block numbers spread evenly.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
/// One block in so many is sampled at most: more would cost readers more than the figures gain.
const SAMPLED_IN_MIN: u64 = 8;
/// Buckets of reuse distances, four an octave: as far as 2^40 blocks.
const BUCKETS: usize = 160;
const BUCKETS_PER_OCTAVE: f64 = 4.0;
/// Sampled references below which a curve would be mostly chance.
const SAMPLED_MIN: u64 = 512;
/// The weights of the past are halved when references exceed this many for each block that is referenced,
const REFERENCES_PER_BLOCK: f64 = 8.0;
/// but not below this many.
const REFERENCES_MIN: f64 = 65_536.0;
/// Positions for each block that may be tracked: half of them are free after blocks are numbered anew.
const POSITIONS_PER_BLOCK: usize = 2;
/// Memory of a tracked block at most: 78 bytes of a hash table (which grows when more than half of its room is taken by
/// blocks and the rest by removed ones), 16 of a heap that has just grown, positions.
const BYTES_PER_BLOCK: usize = 104;
/// A slot of the hash table: the hash, the position and its padding, a control byte.
const BYTES_PER_SLOT: usize = 17;

/// The position of the last reference of each sampled block, by its hash.
type Positions = HashMap<u64, u32, BuildHasherDefault<Folded>>;

/// Hashes of blocks lie below a threshold: their high bits come to where a hash table looks.
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

/// A fixed-size sample of a reference stream.
#[derive(Clone, Debug)]
pub struct ReuseSampler {
    tracked_max: usize,
    /// Blocks whose hash lies below are sampled.
    below: u64,
    last: Positions,
    /// The hashes of the sampled blocks, the largest on top.
    largest: BinaryHeap<u64>,
    /// A Fenwick tree over positions: 1 where a block was last referenced.
    counts: Vec<u32>,
    next: u32,
    /// Weights of references by their distance.
    weights: Vec<f64>,
    /// The weight of first references.
    first: f64,
    /// Sampled references since the last halving, and half of those before.
    sampled: u64,
    /// All references of the same time, as the caller counts them, and the caller's last count.
    references: f64,
    counted: u64,
}

impl ReuseSampler {
    /// An empty sample of at most `tracked_max` blocks (at least 16).
    pub fn new(tracked_max: usize) -> Self {
        Self {
            tracked_max: tracked_max.clamp(16, 1 << 24),
            below: u64::MAX / SAMPLED_IN_MIN,
            last: Positions::default(),
            largest: BinaryHeap::new(),
            counts: Vec::new(),
            next: 0,
            weights: vec![0.0; BUCKETS],
            first: 0.0,
            sampled: 0,
            references: 0.0,
            counted: 0,
        }
    }

    /// The hash of a block's name, for [`Self::note`]. No two names have the same.
    #[inline]
    pub fn hash(name: u64) -> u64 {
        name.wrapping_mul(MULTIPLIER)
    }

    /// Hashes below this are sampled. It only falls.
    pub fn below(&self) -> u64 {
        self.below
    }

    /// The share of blocks that is sampled.
    pub fn rate(&self) -> f64 {
        self.below as f64 / 2f64.powi(64)
    }

    /// Takes the reference to a block in, if it is sampled, and returns the threshold as [`Self::below`] does.
    pub fn note(&mut self, hash: u64) -> u64 {
        self.note_for(hash, 0)
    }

    /// The same for a reference that stands for `skipped` others, of sampled blocks, which could not be noted.
    pub fn note_for(&mut self, hash: u64, skipped: u64) -> u64 {
        if hash >= self.below {
            return self.below;
        }
        let rate = self.rate();
        let weight = (skipped as f64 + 1.0) / rate;
        self.sampled += 1;
        if self.next as usize >= self.counts.len() {
            self.number_anew();
        }
        let position = self.next;
        self.next += 1;
        match self.last.insert(hash, position) {
            Some(before) => {
                self.add(before, -1);
                // Those after it; the block itself is in none of the positions now.
                let between = self.last.len() as u32 - 1 - self.up_to(before);
                let bucket = bucket_of((f64::from(between) + 0.5) / rate);
                self.weights[bucket] += weight;
            }
            None => {
                self.largest.push(hash);
                self.first += weight;
            }
        }
        self.add(position, 1);
        if self.last.len() > self.tracked_max {
            if let Some(hash) = self.largest.pop() {
                if let Some(position) = self.last.remove(&hash) {
                    self.add(position, -1);
                }
                self.below = hash;
            }
        }
        self.below
    }

    /// Says how many references there have been in all, sampled or not, by a counter that only rises. Where there are
    /// many for each block the past loses half of its weight.
    pub fn count_references(&mut self, counter: u64) {
        self.references += counter.saturating_sub(self.counted) as f64;
        self.counted = counter;
        if self.references > (self.blocks() * REFERENCES_PER_BLOCK).max(REFERENCES_MIN) {
            self.references /= 2.0;
            self.sampled /= 2;
            self.first /= 2.0;
            self.weights.iter_mut().for_each(|weight| *weight /= 2.0);
        }
    }

    /// The number of distinct blocks that were referenced, estimated.
    pub fn blocks(&self) -> f64 {
        self.last.len() as f64 / self.rate()
    }

    /// Blocks that are tracked.
    pub fn tracked(&self) -> usize {
        self.last.len()
    }

    /// The share of references that an LRU cache of so many blocks misses; `None` while too few were sampled or
    /// counted ([`Self::count_references`]) to tell.
    pub fn miss_ratio(&self, blocks: f64) -> Option<f64> {
        if self.sampled < SAMPLED_MIN || self.references <= 0.0 {
            return None;
        }
        if blocks < 1.0 {
            return Some(1.0);
        }
        let place = (blocks.max(0.0) + 1.0).log2() * BUCKETS_PER_OCTAVE;
        let (bucket, part) = (place as usize, place.fract());
        let beyond: f64 = self.weights.iter().skip(bucket + 1).sum();
        let within = self.weights.get(bucket).map_or(0.0, |weight| weight * (1.0 - part));
        Some(((self.first + beyond + within) / self.references).clamp(0.0, 1.0))
    }

    /// The curve for data of so many blocks; `None` while too little is known.
    pub fn curve(&self, data_blocks: f64) -> Option<MissRatioCurve> {
        self.miss_ratio(0.0)?;
        Some(MissRatioCurve::from_fn(|share| self.miss_ratio(share * data_blocks).unwrap_or(1.0)))
    }

    /// The bytes that it holds, about; never more than [`Self::bytes_max`].
    pub fn bytes(&self) -> usize {
        // A hash table is filled to seven eighths.
        let slots = (self.last.capacity() * 8 / 7).next_power_of_two();
        let held = slots * BYTES_PER_SLOT
            + self.largest.capacity() * size_of::<u64>()
            + self.counts.capacity() * size_of::<u32>();
        size_of::<Self>() + BUCKETS * size_of::<f64>() + held
    }

    /// The bytes of a full sample of `tracked_max` blocks.
    pub fn bytes_max(tracked_max: usize) -> usize {
        size_of::<Self>() + BUCKETS * size_of::<f64>() + (tracked_max + 1) * BYTES_PER_BLOCK
    }

    /// Numbers the blocks from 0 in the order of their last references; makes room first while the tree is small.
    fn number_anew(&mut self) {
        let mut by_position: Vec<(u32, u64)> = self.last.iter().map(|(hash, at)| (*at, *hash)).collect();
        by_position.sort_unstable();
        let most = self.tracked_max * POSITIONS_PER_BLOCK;
        let wanted = (by_position.len() * 2 * POSITIONS_PER_BLOCK).clamp(64.min(most), most);
        if wanted > self.counts.len() {
            self.counts = vec![0; wanted];
        }
        self.counts.fill(0);
        for (position, (_, hash)) in (0..).zip(&by_position) {
            self.last.insert(*hash, position);
            self.add(position, 1);
        }
        self.next = by_position.len() as u32;
    }

    /// Adds 1 or -1 at a position.
    fn add(&mut self, position: u32, change: i32) {
        let mut at = position as usize;
        while let Some(count) = self.counts.get_mut(at) {
            *count = count.wrapping_add_signed(change);
            at |= at + 1;
        }
    }

    /// The blocks that were last referenced at a position or before.
    fn up_to(&self, position: u32) -> u32 {
        let (mut sum, mut end) = (0, position as usize + 1);
        while end > 0 {
            sum += self.counts.get(end - 1).copied().unwrap_or(0);
            end &= end - 1;
        }
        sum
    }
}

fn bucket_of(distance: f64) -> usize {
    (((distance + 1.0).log2() * BUCKETS_PER_OCTAVE) as usize).min(BUCKETS - 1)
}
