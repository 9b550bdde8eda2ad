//! Observed reuse of data blocks: a spatial sample of the references of lookups ([`ReuseSampler`]).
//!
//! Every lookup of a block hashes the block's key with a multiplication and compares the product
//! with a threshold; blocks that are not sampled cost nothing more. References to sampled blocks
//! are passed to the sampler under a `try_lock`. A reference that finds the lock taken is only
//! counted, and the count is added to the weight of the next sampled reference.
//!
//! A block counts as the pages that it takes in the cache: one page if it is short, several if it
//! holds one long entry. So the miss ratio of a capacity in bytes is correct for every block size.
//!
//! Not here: scans, whose blocks mostly pass through the cache once; the total of references, which
//! the caller counts.

use std::sync::atomic::{AtomicU64, Ordering};

use shamba_env::sync::{Mutex, MutexGuard, PoisonError};
use shamba_model::miss_ratio::{MissRatioCurve, ReuseSampler};

use super::slab::{BlockKey, FRAME_OVERHEAD_BYTES, FRAME_SIZE, STRIDE_BYTES};
use crate::ledger::{Ledger, LedgerPart};

/// The reuse sample of a cache.
#[derive(Default)]
pub(super) struct Reuse {
    /// Blocks whose hash is below this threshold are sampled; 0: none.
    below: AtomicU64,
    sampler: Mutex<Option<Sample>>,
    skipped: AtomicU64,
}

struct Sample {
    sampler: ReuseSampler,
    charged_bytes: u64,
}

impl Sample {
    /// Charges the sampler's growth.
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

    /// Begins to sample, tracking at most `tracked_max` blocks. The sampler's memory is charged to
    /// `ledger`, here and whenever it grows.
    pub(super) fn observe(&self, tracked_max: usize, ledger: &Ledger) {
        let mut sample = Sample { sampler: ReuseSampler::new(tracked_max), charged_bytes: 0 };
        sample.charge(ledger);
        self.below.store(sample.sampler.below(), Ordering::Relaxed);
        debug_assert!(self.locked().is_none(), "references are sampled already");
        *self.locked() = Some(sample);
    }

    /// Notes a lookup's reference to a block of `payload_bytes`. Short enough for a section.
    #[inline]
    pub(super) fn referenced(&self, key: BlockKey, payload_bytes: usize, ledger: &Ledger) {
        let hash = ReuseSampler::hash(key.0);
        if hash < self.below.load(Ordering::Relaxed) {
            self.sampled(hash, payload_bytes, ledger);
        }
    }

    #[cold]
    fn sampled(&self, hash: u64, payload_bytes: usize, ledger: &Ledger) {
        let Ok(mut sample) = self.sampler.try_lock() else {
            self.skipped.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let Some(sample) = sample.as_mut() else { return };
        let (tracked, below) = (sample.sampler.tracked(), sample.sampler.below());
        let skipped = match self.skipped.load(Ordering::Relaxed) {
            0 => 0,
            _ => self.skipped.swap(0, Ordering::Relaxed),
        };
        let now_below = sample.sampler.note_for(hash, frame_pages(payload_bytes), skipped);
        if now_below != below {
            self.below.store(now_below, Ordering::Relaxed);
        }
        if sample.sampler.tracked() != tracked {
            sample.charge(ledger);
        }
    }

    /// Sets the total number of references of lookups to data blocks.
    pub(super) fn count_references(&self, references: u64) {
        if let Some(sample) = self.locked().as_mut() {
            sample.sampler.count_references(references);
        }
    }

    /// The miss-ratio curve over the capacity as a share of `data_bytes`; `None` while the sample
    /// is too small.
    pub(super) fn curve(&self, data_bytes: u64) -> Option<MissRatioCurve> {
        self.locked().as_ref()?.sampler.curve(capacity_pages(data_bytes))
    }

    /// The share of references that a cache of `capacity_bytes` misses; `None` while the sample is
    /// too small.
    pub(super) fn miss_ratio(&self, capacity_bytes: u64) -> Option<f64> {
        self.locked().as_ref()?.sampler.miss_ratio(capacity_pages(capacity_bytes))
    }
}

/// Pages that a block takes in the cache: one frame if it is shorter, whole pages if it is longer.
fn frame_pages(payload_bytes: usize) -> u32 {
    u32::try_from(payload_bytes.div_ceil(FRAME_SIZE).max(1)).unwrap_or(u32::MAX)
}

/// Pages of blocks that a cache of `bytes` holds.
fn capacity_pages(bytes: u64) -> f64 {
    bytes as f64 / (STRIDE_BYTES + FRAME_OVERHEAD_BYTES) as f64
}
