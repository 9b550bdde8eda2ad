//! Sampled probes of one table, and the tombstones that scans passed in it; shared by every version
//! that contains the table.

use std::sync::atomic::{AtomicU64, Ordering};

use shamba_env::lock;

use super::rates::{Decay, Probes};
use crate::sync::Mutex;

/// Sampled probes and seeks of one table.
#[derive(Debug, Default)]
pub struct TableStatistics {
    /// Since the last fold.
    empty: AtomicU64,
    found: AtomicU64,
    false_positives: AtomicU64,
    seeks: AtomicU64,
    /// Decayed, up to the last fold.
    folded: Mutex<Probes>,
    /// Tombstones that scans passed since the open: all of them, neither sampled nor decayed.
    tombstones_passed: AtomicU64,
}

impl TableStatistics {
    /// The current figures, in sampled probes.
    pub fn probes(&self) -> Probes {
        let folded = lock(&self.folded);
        let fresh = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
        let lookups = Probes::new(fresh(&self.empty), fresh(&self.found), fresh(&self.false_positives));
        *folded + lookups.with_seeks(fresh(&self.seeks))
    }

    /// Counts a sampled seek.
    pub fn note_seek(&self) {
        self.seeks.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds tombstones that a scan passed.
    pub fn add_tombstones_passed(&self, tombstones: u64) {
        self.tombstones_passed.fetch_add(tombstones, Ordering::Relaxed);
    }

    /// Tombstones that scans have passed in the table since the open.
    pub fn tombstones_passed(&self) -> u64 {
        self.tombstones_passed.load(Ordering::Relaxed)
    }

    /// Decays the figures up to the last fold, adds the newer ones, and multiplies the sum by
    /// `share`.
    pub fn fold(&self, fading: Decay, share: f64) {
        debug_assert!((0.0..=1.0).contains(&share), "a table keeps the share {share} of its figures");
        let mut folded = lock(&self.folded);
        let fresh = |counter: &AtomicU64| counter.swap(0, Ordering::Relaxed) as f64;
        let lookups = Probes::new(fresh(&self.empty), fresh(&self.found), fresh(&self.false_positives));
        *folded = (folded.decayed(fading) + lookups.with_seeks(fresh(&self.seeks))).scaled(share);
    }

    /// Keeps `share` of the figures: the remainder went to another table.
    pub fn keep(&self, share: f64) {
        self.fold(Decay::NONE, share);
    }

    /// Replaces the figures up to the last fold.
    pub fn restate(&self, restated: impl FnOnce(Probes) -> Probes) {
        let mut folded = lock(&self.folded);
        *folded = restated(*folded);
    }

    /// Sets the initial figures.
    pub fn begin_with(&self, probes: Probes) {
        *lock(&self.folded) = probes;
    }

    /// Counts a sampled lookup that searched the table and found its key or not; `filtered`: after
    /// the filter had said "maybe".
    pub fn count_searched(&self, filtered: bool, found: bool) {
        if found {
            self.count_found();
            return;
        }
        self.count_empty();
        if filtered {
            self.count_false_positive();
        }
    }

    /// Counts a sampled lookup that found its key here.
    pub fn count_found(&self) {
        self.found.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a sampled lookup of a key that is not here.
    pub fn count_empty(&self) {
        self.empty.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a filter that answered "maybe" for a key that is not here.
    pub fn count_false_positive(&self) {
        self.false_positives.fetch_add(1, Ordering::Relaxed);
    }
}
