//! Observed reuse of data blocks: a spatial sample of the references of lookups ([`ReuseSampler`]).
//!
//! Every lookup of a block multiplies its key and compares the product with a threshold; that is all for blocks that
//! are not sampled. References to sampled blocks go to the sampler, behind a lock that nobody waits for: a reference
//! that meets it taken is only counted, and the next one stands for it.
//!
//! Not here: scans, whose blocks mostly pass through the cache once; the total of references, which the caller counts.

use std::sync::atomic::{AtomicU64, Ordering};

use shamba_env::sync::{Mutex, MutexGuard, PoisonError};
use shamba_model::miss_ratio::{MissRatioCurve, ReuseSampler};

use super::BlockCache;
use super::slab::BlockKey;
use crate::ledger::{Ledger, LedgerPart};

/// The sample of a cache.
#[derive(Default)]
pub(super) struct Reuse {
    /// Blocks whose hash lies below are sampled; 0: none.
    below: AtomicU64,
    sampler: Mutex<Option<Sample>>,
    skipped: AtomicU64,
}

struct Sample {
    sampler: ReuseSampler,
    charged_bytes: u64,
}

impl Sample {
    /// Charges what the sampler has grown by.
    fn charge(&mut self, ledger: &Ledger) {
        let bytes = self.sampler.bytes() as u64;
        if bytes > self.charged_bytes {
            ledger.charge(LedgerPart::TableMeta, bytes - self.charged_bytes);
            self.charged_bytes = bytes;
        }
    }
}

impl Reuse {
    fn locked(&self) -> MutexGuard<'_, Option<Sample>> {
        self.sampler.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn release(&self, ledger: &Ledger) {
        if let Some(sample) = self.locked().take() {
            ledger.release(LedgerPart::TableMeta, sample.charged_bytes);
        }
    }
}

impl BlockCache {
    /// Samples the references of lookups to data blocks, at most so many blocks.
    #[must_use]
    pub fn observing_reuse(self, tracked_max: usize) -> Self {
        let mut sample = Sample { sampler: ReuseSampler::new(tracked_max), charged_bytes: 0 };
        sample.charge(&self.shelf.ledger);
        self.reuse.below.store(sample.sampler.below(), Ordering::Relaxed);
        *self.reuse.locked() = Some(sample);
        self
    }

    /// A lookup is about to look into the block, wherever it is.
    #[inline]
    pub(crate) fn referenced(&self, key: BlockKey) {
        let hash = ReuseSampler::hash(key.0);
        if hash < self.reuse.below.load(Ordering::Relaxed) {
            self.sampled(hash);
        }
    }

    #[cold]
    fn sampled(&self, hash: u64) {
        let Ok(mut sample) = self.reuse.sampler.try_lock() else {
            self.reuse.skipped.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let Some(sample) = sample.as_mut() else { return };
        let (tracked, below) = (sample.sampler.tracked(), sample.sampler.below());
        let skipped = match self.reuse.skipped.load(Ordering::Relaxed) {
            0 => 0,
            _ => self.reuse.skipped.swap(0, Ordering::Relaxed),
        };
        let now_below = sample.sampler.note_for(hash, skipped);
        if now_below != below {
            self.reuse.below.store(now_below, Ordering::Relaxed);
        }
        if sample.sampler.tracked() != tracked {
            sample.charge(&self.shelf.ledger);
        }
    }

    /// Says how many references of lookups to data blocks there have been in all: a counter that only rises.
    pub fn count_references(&self, references: u64) {
        if let Some(sample) = self.reuse.locked().as_mut() {
            sample.sampler.count_references(references);
        }
    }

    /// The observed curve for data of so many blocks; `None` while too little was seen.
    pub fn reuse_curve(&self, data_blocks: f64) -> Option<MissRatioCurve> {
        self.reuse.locked().as_ref()?.sampler.curve(data_blocks)
    }

    /// The share of observed references that a cache of so many blocks misses; `None` while too little was seen.
    pub fn reuse_miss_ratio(&self, blocks: f64) -> Option<f64> {
        self.reuse.locked().as_ref()?.sampler.miss_ratio(blocks)
    }
}
