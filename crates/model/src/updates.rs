//! Updates and ranges: the number of times an entry is merged, and the runs that a range lookup
//! visits.
//!
//! An entry on a level of capacity C with at most r runs is merged into the level's active run
//! until that run holds C / r. Arrivals are C / T each, so a run takes T / r of them and each entry
//! is written, on average,
//!
//! ```text
//! (T - 1) / (r + 1)      times per level: (T-1)/2 with one run, (T-1)/T with T - 1
//! ```
//!
//! Each time it is read and written once, in pages of B entries. Sources: Monkey (TODS 2018),
//! equations 10 and 11; Dayan and Idreos (SIGMOD 2018) for any K and Z.
//!
//! Not here: lookups ([`crate::monkey`]); trees under a compaction policy (crate `shamba`,
//! `compaction/simulate.rs`).

/// The runs that a design allows on its levels, its size ratio and its number of levels: all that
/// write costs depend on.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MergeShape {
    /// T.
    pub size_ratio: f64,
    /// K: runs on each level except the last.
    pub inner_runs: f64,
    /// Z: runs on the last level.
    pub last_runs: f64,
    /// L.
    pub levels: u32,
}

/// How a level of one run is compacted into the next, and thus how full that level is when files
/// arrive on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Merging {
    /// The whole level at once, as the papers assume: the level below is half full on average.
    #[default]
    WholeLevels,
    /// File by file, when the level exceeds a constant capacity (`Sizing::Manual`). Inner levels
    /// therefore *stay* full, and each file is merged with T times its size.
    FileByFile,
    /// File by file, with capacities that follow the last level's size (`Sizing::Auto`). A level is
    /// T times the one above only when a new level is about to open, and half of that on average.
    Following,
}

/// Merges of an entry on a level of one run that is `times` as large as the level above. An
/// arriving file is merged with `times` its size: a factor of `times + 1` without a choice of
/// files. The policy moves the file of a level that overlaps least with the next, which reduces the
/// factor to the share `least_shared`.
fn merges_onto(times: f64, least_shared: f64) -> f64 {
    least_shared * (times + 1.0)
}

/// Overlap of the least overlapping files relative to the mean, on levels that stay full. Measured
/// on trees of three and four levels with T from 2 to 10; the engine's simulator checks it.
const LEAST_SHARED_FULL: f64 = 0.7;
/// The same on levels that follow the last one.
const LEAST_SHARED_FOLLOWING: f64 = 0.75;
/// The same for a last level of one run below tiered ones that follow it: whole levels arrive, at
/// least 1 / T of its size.
const LEAST_SHARED_WHOLE: f64 = 0.65;

/// Merges of an entry on a level of at most `runs` runs: (T - 1) / (runs + 1). More than T - 1 runs
/// never accumulate, because the next arrival would exceed the level's capacity.
pub fn merges_per_level(size_ratio: f64, runs: f64) -> f64 {
    (size_ratio - 1.0) / (runs.min(size_ratio - 1.0) + 1.0)
}

/// Merges of an entry on an inner level that is `size_ratio` times the one above. Below a tiered
/// level, a level of one run receives whole levels, like a last level.
pub(crate) fn merges_on_inner(size_ratio: f64, runs: f64, has_tiered_above: bool, merging: Merging) -> f64 {
    match merging {
        Merging::FileByFile if runs <= 1.0 => merges_onto(size_ratio, LEAST_SHARED_FULL),
        Merging::Following if runs <= 1.0 && has_tiered_above => merges_onto(size_ratio, LEAST_SHARED_WHOLE),
        Merging::Following if runs <= 1.0 => merges_onto(size_ratio / 2.0, LEAST_SHARED_FOLLOWING),
        _ => merges_per_level(size_ratio, runs),
    }
}

/// Merges of an entry on a last level that is `size_ratio` times the one above.
pub(crate) fn merges_on_last(size_ratio: f64, runs: f64, has_tiered_above: bool, merging: Merging) -> f64 {
    match merging {
        Merging::Following if runs <= 1.0 && has_tiered_above => merges_onto(size_ratio, LEAST_SHARED_WHOLE),
        // A whole run arrives, and all runs are merged into one when the level has room for it. A
        // last level whose capacity follows no other level is not moved down to make that room.
        Merging::Following if has_tiered_above => 1.0 + merges_per_level(size_ratio, runs),
        _ => merges_per_level(size_ratio, runs),
    }
}

impl MergeShape {
    /// Merges of an entry from the buffer to the last level: the sum of [`merges_per_level`],
    /// except on inner levels of one run, and on a last level below tiered levels that follow it,
    /// where `merging` decides.
    pub fn merges_per_entry(&self, merging: Merging) -> f64 {
        let has_tiered_above = self.inner_runs > 1.0 && self.levels > 1;
        let inner = merges_on_inner(self.size_ratio, self.inner_runs, false, merging);
        let last = merges_on_last(self.size_ratio, self.last_runs, has_tiered_above, merging);
        f64::from(self.inner_levels()) * inner + last
    }

    /// Equation 10: W: the I/Os of an update, in reads. Each merge reads a page of
    /// `entries_per_page` entries and writes one, which costs `write_per_read` (phi) reads.
    pub fn update_ios(&self, entries_per_page: f64, write_per_read: f64) -> f64 {
        self.merges_per_entry(Merging::WholeLevels) / entries_per_page * (1.0 + write_per_read)
    }

    /// Bytes that flushes and compactions write per byte flushed. The log is not included: it
    /// writes each byte once more.
    pub fn write_amplification(&self, merging: Merging) -> f64 {
        1.0 + self.merges_per_entry(merging)
    }

    /// Number of runs, all of which a range lookup visits.
    pub fn run_count(&self) -> f64 {
        f64::from(self.inner_levels()) * self.inner_runs + self.last_runs
    }

    /// Equation 11: Q: the I/Os of a range lookup that reads the share `selectivity` of all pages:
    /// those pages, and one per run.
    pub fn range_ios(&self, data_pages: f64, selectivity: f64) -> f64 {
        selectivity * data_pages + self.run_count()
    }

    /// Bytes of the tree per byte of live data, with the maximum number of obsolete entries: the
    /// newest version of each key is on the last level, in one of its runs, and `last_level_share`
    /// of all entries are there.
    pub fn space_amplification(&self, last_level_share: f64) -> f64 {
        self.last_runs / last_level_share
    }

    fn inner_levels(&self) -> u32 {
        self.levels.saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(inner_runs: f64, last_runs: f64) -> MergeShape {
        MergeShape { size_ratio: 4.0, inner_runs, last_runs, levels: 5 }
    }

    #[test]
    fn equations_10_and_11_for_the_papers_policies() {
        // L / B * (T-1)/2 * (1 + phi), and (T-1)/T; s N / B + L, and L (T-1).
        assert_eq!(shape(1.0, 1.0).update_ios(30.0, 2.0), 5.0 / 30.0 * 1.5 * 3.0);
        assert_eq!(shape(3.0, 3.0).update_ios(30.0, 2.0), 5.0 / 30.0 * 0.75 * 3.0);
        assert_eq!(shape(1.0, 1.0).range_ios(1000.0, 0.01), 15.0);
        assert_eq!(shape(3.0, 3.0).range_ios(1000.0, 0.01), 25.0);
        // T = 2.5 has room for T - 1 runs, whatever K.
        assert_eq!(merges_per_level(2.5, 2.0), 1.5 / 2.5);
        // Lazy leveling merges like tiering, but on the last level like leveling.
        assert_eq!(shape(3.0, 1.0).merges_per_entry(Merging::WholeLevels), 4.0 * 0.75 + 1.5);
        assert_eq!(shape(3.0, 1.0).run_count(), 13.0);
        for merging in [Merging::WholeLevels, Merging::FileByFile] {
            assert_eq!(shape(3.0, 1.0).write_amplification(merging), 5.5);
        }
        // A last level below tiered levels that follow it is four times an arrival, not twice.
        assert_eq!(shape(3.0, 1.0).write_amplification(Merging::Following), 1.0 + 4.0 * 0.75 + 0.65 * 5.0);
        // All runs of a tiered last level are merged in place.
        assert_eq!(shape(3.0, 3.0).write_amplification(Merging::Following), 1.0 + 4.0 * 0.75 + 1.75);
        // Four inner levels that stay full, and one that fills up.
        assert_eq!(shape(1.0, 1.0).write_amplification(Merging::WholeLevels), 8.5);
        assert_eq!(shape(1.0, 1.0).write_amplification(Merging::FileByFile), 1.0 + 4.0 * 3.5 + 1.5);
        assert_eq!(shape(1.0, 1.0).write_amplification(Merging::Following), 1.0 + 4.0 * 2.25 + 1.5);
    }

    #[test]
    fn space_is_what_the_levels_above_and_the_runs_beside_may_waste() {
        // Three quarters of the entries are on the last level.
        assert_eq!(shape(3.0, 1.0).space_amplification(0.75), 4.0 / 3.0);
        assert_eq!(shape(3.0, 3.0).space_amplification(0.75), 4.0);
    }
}
