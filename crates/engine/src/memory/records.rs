//! The record cache's memory: a fixed capacity, or a share of the divided memory.
//!
//! A share begins with its floor, at which the cache covers one key in [`RECORDS_COVER`] and so is
//! a model of a larger one: lookups hardly notice it, and it tells what a step of memory would
//! save. With more than its floor it covers every key. A cache that costs more than it saves, in
//! two windows running, returns to its floor.
//!
//! Invariant: it covers every key unless it has a share that is its floor.

use std::sync::Arc;

use shamba_model::memory::{self, RecordLookups, constants::RECORDS_COVER};
use shamba_table::{Charge, Ledger, LedgerPart};
use shamba_tree::records::{Asked, RecordCache};

use super::MemoryManager;
use super::budget::Member;
use crate::options::settings::Settings;

fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// The record cache of an open with these settings.
pub(super) fn new_cache(settings: &Settings, member: Option<&Member>, ledger: &Arc<Ledger>) -> RecordCache {
    let share_bytes_max = settings.record_share_bytes_max();
    let bytes_max = if share_bytes_max > 0 {
        let total_bytes = member.map_or(settings.budget_bytes(), Member::total_bytes);
        total_bytes / memory::constants::RECORDS_MAX_PART
    } else {
        settings.record_cache_bytes.unwrap_or(0)
    };
    let records = RecordCache::new(Charge::new(ledger, LedgerPart::Records, 0), to_usize(bytes_max));
    if share_bytes_max > 0 {
        let sample_bytes = memory::record_sample_bytes(settings.budget_bytes(), share_bytes_max);
        records.set_cover(RECORDS_COVER);
        records.set_capacity(to_usize(sample_bytes));
    } else {
        records.set_capacity(to_usize(settings.record_bytes()));
    }
    records
}

impl MemoryManager {
    /// Bytes of the record cache that are a share of the divided memory.
    pub(super) fn shared_record_bytes(&self) -> u64 {
        let is_shared = self.settings.record_share_bytes_max() > 0;
        if is_shared { self.ledger.bytes(LedgerPart::Records) } else { 0 }
    }

    /// Fits the record cache to the present budget.
    pub(super) fn fit_records(&self) {
        let bytes_max = self.settings.record_share_bytes_max();
        if bytes_max > 0 {
            self.set_record_share((self.records.capacity_bytes() as u64).min(bytes_max));
        } else if self.settings.record_bytes() != self.records.capacity_bytes() as u64 {
            self.set_record_capacity(self.settings.record_bytes());
        }
    }

    /// Follows a decision: the cache has this share from now on.
    pub(super) fn set_record_share(&self, bytes: u64) {
        let budget_bytes = self.settings.budget_bytes();
        let sample_bytes = memory::record_sample_bytes(budget_bytes, self.settings.record_share_bytes_max());
        let bytes = bytes.max(sample_bytes);
        let is_sample = bytes == sample_bytes;
        self.records.set_cover(if is_sample { RECORDS_COVER } else { 1 });
        let capacity_bytes = self.records.capacity_bytes() as u64;
        if is_sample || memory::is_capacity_changed(budget_bytes, capacity_bytes, bytes) {
            self.set_record_capacity(bytes);
        }
    }

    fn set_record_capacity(&self, bytes: u64) {
        let _room = self.make_room(bytes.saturating_sub(self.records.capacity_bytes() as u64));
        self.records.set_capacity(to_usize(bytes));
    }

    /// Lets the record cache free `missing_bytes` of its share, and a little more. False if it has
    /// nothing beyond its floor.
    pub(super) fn shrink_records(&self, missing_bytes: u64) -> bool {
        let bytes_max = self.settings.record_share_bytes_max();
        let capacity_bytes = self.records.capacity_bytes() as u64;
        let budget_bytes = self.settings.budget_bytes();
        let sample_bytes = memory::record_sample_bytes(budget_bytes, bytes_max);
        if bytes_max == 0 || capacity_bytes <= sample_bytes {
            return false;
        }
        let left_bytes = capacity_bytes.saturating_sub(memory::shed_bytes(budget_bytes, missing_bytes));
        self.records.set_capacity(to_usize(left_bytes.max(sample_bytes)));
        true
    }

    /// The lookups that asked the record cache since `last`, which becomes the present count.
    pub(super) fn record_lookups(&self, last: &mut Asked) -> RecordLookups {
        let (asked, repeat_bytes) = self.records.asked();
        let Asked { lookups, hits, repeats, repeat_reads } = asked.since(std::mem::replace(last, asked));
        let is_sample = self.records.is_sample();
        RecordLookups { asked: lookups, hits, repeats, repeat_reads, repeat_bytes, is_sample }
    }
}
