//! The record cache's memory: a fixed capacity, or a share of the divided memory.
//!
//! A share begins with its floor, at which the cache covers one key in [`RECORDS_COVER`] and so is
//! a model of a larger one: lookups hardly notice it, and it tells what a step of memory would
//! save. With more than its floor it covers every key. A cache that costs more than it saves, in
//! two windows running, returns to its floor.
//!
//! Invariant: it covers every key unless it has a share that is its floor.

use std::sync::Arc;

use shamba_model::memory::constants::{RECORDS_COVER, RECORDS_MAX_PART};
use shamba_model::memory::{self, RecordLookups};
use shamba_table::{Charge, Ledger, LedgerPart};
use shamba_tree::records::{Asked, RecordCache};

use super::budget::Member;
use crate::options::settings::Settings;

/// A sample that its shards need takes at most this part of the largest share.
const SAMPLE_MAX_PART: u64 = 8;

/// The record cache of a database and its memory.
pub(super) struct RecordMemory {
    settings: Arc<Settings>,
    cache: Arc<RecordCache>,
}

impl RecordMemory {
    /// The record cache of an open with these settings.
    pub fn new(settings: &Arc<Settings>, member: Option<&Member>, ledger: &Arc<Ledger>) -> Self {
        let bytes_max = if settings.record_share_bytes_max() > 0 {
            member.map_or(settings.budget_bytes(), Member::total_bytes) / RECORDS_MAX_PART
        } else {
            settings.record_cache_bytes.unwrap_or(0)
        };
        let cache = RecordCache::new(Charge::new(ledger, LedgerPart::Records, 0), to_usize(bytes_max));
        let records = Self { settings: Arc::clone(settings), cache: Arc::new(cache) };
        records.set_capacity(if records.is_shared() {
            records.sample_bytes()
        } else {
            settings.record_bytes()
        });
        records
    }

    /// The cache.
    pub fn cache(&self) -> &Arc<RecordCache> {
        &self.cache
    }

    /// Whether it has a share of the divided memory.
    pub fn is_shared(&self) -> bool {
        self.settings.record_share_bytes_max() > 0
    }

    /// Its floor: what it has as a sample.
    fn sample_bytes(&self) -> u64 {
        let bytes_max = self.settings.record_share_bytes_max();
        let bytes = memory::record_sample_bytes(self.settings.budget_bytes(), bytes_max);
        // There are as many shards as all of a shared budget would need, and each needs a little.
        match self.cache.least_bytes() {
            least if least <= bytes_max / SAMPLE_MAX_PART => bytes.max(least),
            _ => bytes,
        }
    }

    /// Bytes that it holds, used or not.
    pub fn capacity_bytes(&self) -> u64 {
        self.cache.capacity_bytes() as u64
    }

    /// Bytes that it holds as a share of the divided memory.
    pub fn shared_bytes(&self) -> u64 {
        if self.is_shared() { self.capacity_bytes() } else { 0 }
    }

    /// The capacity that it should have under the present budget.
    pub fn fitting_bytes(&self) -> u64 {
        if !self.is_shared() {
            self.settings.record_bytes()
        } else if self.cache.is_sample() {
            self.sample_bytes()
        } else {
            self.capacity_bytes().min(self.settings.record_share_bytes_max())
        }
    }

    /// The capacity to set for a share that was decided; `None` if the present one is near enough.
    pub fn bytes_for_share(&self, share_bytes: u64) -> Option<u64> {
        let share_bytes = share_bytes.max(self.sample_bytes());
        let becomes_sample = share_bytes == self.sample_bytes();
        let is_other =
            memory::is_capacity_changed(self.settings.budget_bytes(), self.capacity_bytes(), share_bytes);
        (becomes_sample != self.cache.is_sample() || is_other).then_some(share_bytes)
    }

    /// Sets its capacity, for which there must be room. With a share that is its floor it covers
    /// one key in [`RECORDS_COVER`].
    pub fn set_capacity(&self, bytes: u64) {
        let is_sample = self.is_shared() && bytes <= self.sample_bytes();
        self.cache.set_capacity(to_usize(bytes), if is_sample { RECORDS_COVER } else { 1 });
    }

    /// Frees `missing_bytes` of its share, and a little more. False if it has nothing beyond its
    /// floor.
    pub fn shrink(&self, missing_bytes: u64) -> bool {
        let (capacity_bytes, sample_bytes) = (self.shared_bytes(), self.sample_bytes());
        if capacity_bytes <= sample_bytes {
            return false;
        }
        let shed_bytes = memory::shed_bytes(self.settings.budget_bytes(), missing_bytes);
        self.set_capacity(capacity_bytes.saturating_sub(shed_bytes).max(sample_bytes));
        true
    }

    /// The lookups that asked since `last`, which becomes the present count.
    pub fn lookups(&self, last: &mut Asked) -> RecordLookups {
        let (asked, repeat_bytes) = self.cache.asked();
        let Asked { lookups, hits, repeats, repeat_reads } = asked.since(std::mem::replace(last, asked));
        let is_sample = self.cache.is_sample();
        RecordLookups { asked: lookups, hits, repeats, repeat_reads, repeat_bytes, is_sample }
    }
}

fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
