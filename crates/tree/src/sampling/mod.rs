//! Sampled lookup statistics of each table: lookups that found their key, empty ones, false
//! positives, and seeks.
//!
//! One lookup in about 64 is *sampled* (a thread-local countdown, [`crate::counters`]). It runs the
//! same code as any other, with a recorder ([`crate::lookup::sampler::Sampler`]) that adds the
//! result at each table to the table's `TableStatistics`. These live as long as the file and are
//! shared by every version that contains it. A lookup that is not sampled pays only for the
//! countdown.
//!
//! Seeks are sampled at the same rate, by a countdown of each scan. A sampled seek is counted at
//! the first table that it searches in each run. It probes no filter, but searches an index.
//!
//! Old figures decay by the number of sampled lookups of the keyspace, not by time
//! ([`crate::statistics::rates`]): a night without lookups says nothing about the next day. When
//! the hit rate changes, the figures are adjusted (`shift`). The memory worker does this, so it
//! does not happen where there is none. The lookups per second are tracked separately, by time; the
//! rate of a table is the product.
//!
//! The outputs of a compaction inherit the figures of its inputs ([`inherit`]). All statistics are
//! kept across restarts in a file of their own, best effort: its loss is harmless.
//!
//! Units: everything counted here is in *sampled* lookups and probes, decayed; only rates "per
//! second" cover all lookups.
//!
//! Not here: uses of the figures ([`crate::allocation`]).

pub mod inherit;
mod shift;

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};

use shamba_env::{lock, try_lock};

use self::shift::{Oscillation, Shift};
use crate::statistics::LookupWindow;
use crate::statistics::rates::{Decay, Samples};
use crate::sync::Mutex;
use crate::version::{TableUse, Version};

/// Interval between folds in sampled lookups: short enough that each decay step is small, long
/// enough that the walk over all tables has no measurable cost.
const FOLD_EVERY: u64 = 1 << 12;
const _: () = assert!(FOLD_EVERY > 0, "counters are folded after some samples");
/// Maximum age of the rates per second in microseconds: [`TreeStatistics::fold_in_time`] refreshes
/// older ones.
const FOLD_AFTER_US: u64 = 1_000_000;

/// Sampled lookups and seeks of a keyspace's whole tree.
#[derive(Debug, Default)]
pub struct TreeStatistics {
    /// Sampled lookups of this process that no memtable answered.
    lookups: AtomicU64,
    /// The part of `lookups` that a table answered.
    found: AtomicU64,
    /// Sampled seeks of this process.
    seeks: AtomicU64,
    folded: Mutex<Folded>,
}

/// Counter values at one moment.
#[derive(Clone, Copy, Default, Debug)]
struct Counted {
    lookups: u64,
    found: u64,
    seeks: u64,
}

impl Counted {
    /// Samples since `earlier`.
    fn since(self, earlier: Self) -> Samples {
        let since = |now: u64, earlier: u64| now.saturating_sub(earlier) as f64;
        Samples {
            lookups: since(self.lookups, earlier.lookups),
            found: since(self.found, earlier.found),
            seeks: since(self.seeks, earlier.seeks),
        }
    }
}

/// Decayed, up to the last fold.
#[derive(Debug, Default)]
struct Folded {
    window: LookupWindow,
    /// Counters at the last fold.
    counted: Counted,
    /// Counters at the start of the samples that are checked for a shift.
    looked: Counted,
    /// Time since which these samples contradict the older ones.
    contradicted_since_us: Option<u64>,
    restated: Oscillation,
}

impl Folded {
    /// The window at these counter values.
    fn window_at(&self, counted: Counted, now_us: u64) -> LookupWindow {
        self.window.next(counted.since(self.counted), now_us)
    }
}

impl TreeStatistics {
    /// Counts a sampled lookup that no memtable answered; true when a fold is due.
    fn count(&self, found: bool) -> bool {
        self.found.fetch_add(u64::from(found), Ordering::Relaxed);
        (self.lookups.fetch_add(1, Ordering::Relaxed) + 1) % FOLD_EVERY == 0
    }

    /// Adds a sampled lookup, which no memtable answered; `found`: a table did.
    pub fn add_sample(&self, found: bool, version: &Version, now_us: impl FnOnce() -> u64) {
        if self.count(found) {
            self.fold(version, now_us());
        }
    }

    /// Counts a sampled lookup, which no memtable answered, without a fold: that is done in time
    /// ([`Self::fold_in_time`]).
    pub fn count_lookup(&self, found: bool) {
        let _ = self.count(found);
    }

    /// Counts a sampled seek.
    pub fn count_seek(&self) {
        self.seeks.fetch_add(1, Ordering::Relaxed);
    }

    /// Folds if the last fold is at least `FOLD_AFTER_US` ago; the rates per second then cover
    /// all the time since.
    pub fn fold_in_time(&self, version: &Version, now_us: u64) {
        let folded_us = lock(&self.folded).window.as_of_us;
        if now_us.saturating_sub(folded_us) >= FOLD_AFTER_US {
            self.fold(version, now_us);
        }
    }

    /// Lookups sampled since the open that no memtable answered.
    pub fn sampled(&self) -> u64 {
        self.lookups.load(Ordering::Relaxed)
    }

    fn counted(&self) -> Counted {
        let found = self.found.load(Ordering::Relaxed);
        let seeks = self.seeks.load(Ordering::Relaxed);
        Counted { lookups: self.lookups.load(Ordering::Relaxed), found, seeks }
    }

    /// The current figures.
    pub fn window(&self, now_us: u64) -> LookupWindow {
        self.window_and(now_us, || ()).0
    }

    /// The current figures, and the result of `also`, which runs under the same lock.
    pub fn window_and<T>(&self, now_us: u64, also: impl FnOnce() -> T) -> (LookupWindow, T) {
        let folded = lock(&self.folded);
        (folded.window_at(self.counted(), now_us), also())
    }

    /// Continues with figures of an earlier process.
    pub fn begin_with(&self, window: LookupWindow) {
        lock(&self.folded).window = window;
    }

    /// Decays old figures, here and at the tables of `version`, unless another thread does so.
    fn fold(&self, version: &Version, now_us: u64) {
        if let Some(mut folded) = try_lock(&self.folded) {
            self.fold_into(&mut folded, version, now_us);
        }
    }

    fn fold_into(&self, folded: &mut Folded, version: &Version, now_us: u64) {
        let counted = self.counted();
        debug_assert!(
            counted.lookups >= folded.counted.lookups && counted.seeks >= folded.counted.seeks,
            "counters went back from {:?} to {counted:?}",
            folded.counted
        );
        let fading = Decay::after(counted.since(folded.counted));
        folded.window = folded.window_at(counted, now_us);
        folded.counted = counted;
        distinct_tables(version).for_each(|table| table.meta.statistics.fold(fading, 1.0));
    }

    /// Detects a workload shift: the hit rate since the last check differs from the older one, and
    /// has done so for `shift::SHIFT_DURATION_MIN_US`.
    pub fn detect_shift(&self, now_us: u64) -> Option<Shift> {
        let mut folded = lock(&self.folded);
        let counted = self.counted();
        let Samples { lookups, found, .. } = counted.since(folded.looked);
        debug_assert!(lookups >= 0.0 && found >= 0.0, "{found} of {lookups} lookups found their key");
        if lookups < shift::SAMPLES_MIN {
            return None;
        }
        let window = folded.window_at(counted, now_us);
        let seen = |weight| Shift::seen(window, (lookups, found), weight);
        let Some(shift) = seen(folded.restated.weight(now_us)) else {
            if seen(1.0).is_some() {
                folded.restated = folded.restated.still(now_us);
            }
            folded.contradicted_since_us = None;
            if lookups >= shift::SAMPLES_WINDOW_MAX {
                folded.looked = counted;
            }
            return None;
        };
        // A shorter contradiction is a burst.
        let since_us = *folded.contradicted_since_us.get_or_insert(now_us);
        (now_us.saturating_sub(since_us) >= shift::SHIFT_DURATION_MIN_US).then_some(shift)
    }

    /// Adjusts the figures, here and at the tables of `version`, after a shift. The caller ensures
    /// that no figures are given meanwhile to tables that are not in `version` yet.
    pub fn restate(&self, shift: Shift, version: &Version, now_us: u64) {
        let mut folded = lock(&self.folded);
        folded.restated = folded.restated.again(now_us);
        folded.looked = self.counted();
        folded.contradicted_since_us = None;
        self.fold_into(&mut folded, version, now_us);
        folded.window = shift.of_window(folded.window);
        debug_assert!(
            folded.window.found <= folded.window.lookups,
            "more lookups found their key than there were"
        );
        let entries: u64 = version.tables().map(|(_, _, table)| table.meta.entries).sum();
        for table in distinct_tables(version) {
            let of_tree = table.meta.entries as f64 / entries.max(1) as f64;
            table.meta.statistics.restate(|probes| shift.of_table(probes, of_tree));
        }
    }
}

/// The tables of the version, one for each file: runs that share a file share its figures.
fn distinct_tables(version: &Version) -> impl Iterator<Item = &TableUse> {
    let mut seen = HashSet::new();
    version.tables().map(|(_, _, table)| table).filter(move |table| seen.insert(table.meta.id))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::iter::testing::{Op, Store};

    #[test]
    fn old_figures_decay_by_half_after_the_half_life_in_sampled_lookups() {
        let store = Store::new();
        store.write(Op::Put(b"a".to_vec(), b"1".to_vec()));
        store.rotate();
        store.flush();
        let version = Arc::clone(&store.newest_view().version);
        let table = Arc::clone(&store.first_run(0)[0].meta);
        let tree = TreeStatistics::default();
        let fold = |lookups: u64| {
            tree.lookups.fetch_add(lookups, Ordering::Relaxed);
            tree.fold(&version, 0);
        };
        (0..1_000).for_each(|_| table.statistics.count_empty());
        fold(0);
        let known = table.statistics.probes();
        assert_eq!(known.empty, 1_000.0, "nothing has decayed yet");
        fold(1 << 17);
        let decayed = table.statistics.probes();
        assert!((decayed.empty / known.empty - 0.5).abs() < 1e-9, "{known:?} {decayed:?}");
    }
}
