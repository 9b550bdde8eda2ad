//! The work of one lookup in given runs: filters probed, runs searched.
//!
//! Runs are given in groups of equal runs, newest first. An empty lookup probes every filter and
//! searches every run without a filter or with a false positive. A lookup that finds its key does
//! the same above the run that holds the key, and in half of the other runs of that group, and then
//! searches the run. Keys that are found are drawn evenly over the entries. Monkey's equation 13
//! instead assumes all of them on the last level. In the limit of many levels with T = 10 the
//! difference is a tenth of the false positives.
//!
//! Not here: the rates of the filters ([`crate::monkey`], [`crate::allocation`]).

/// A group of equal runs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RunGroup {
    /// Number of runs.
    pub runs: f64,
    /// Total entries of the group.
    pub entries: f64,
    /// The false-positive rate of each filter; 1 for runs without one.
    pub fpr: f64,
}

/// The expected work of one lookup.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct LookupWork {
    /// Filters probed.
    pub filters: f64,
    /// Runs searched: one data page each.
    pub searches: f64,
}

impl LookupWork {
    /// The work multiplied by `share`.
    fn times(self, share: f64) -> Self {
        Self { filters: self.filters * share, searches: self.searches * share }
    }

    fn plus(self, other: Self) -> Self {
        Self { filters: self.filters + other.filters, searches: self.searches + other.searches }
    }

    /// The mean of two kinds of lookups, the share `fraction` of the first.
    pub fn mix(first: Self, second: Self, fraction: f64) -> Self {
        first.times(fraction).plus(second.times(1.0 - fraction))
    }
}

impl RunGroup {
    /// The work of passing one of the runs without finding the key.
    fn passed(&self) -> LookupWork {
        let filters = if self.fpr < 1.0 { 1.0 } else { 0.0 };
        LookupWork { filters, searches: self.fpr }
    }
}

/// A lookup that finds nothing.
pub fn empty_lookup(groups: &[RunGroup]) -> LookupWork {
    groups.iter().fold(LookupWork::default(), |work, group| work.plus(group.passed().times(group.runs)))
}

/// A lookup that finds its key, drawn evenly over all entries.
pub fn found_lookup(groups: &[RunGroup]) -> LookupWork {
    let all: f64 = groups.iter().map(|group| group.entries).sum();
    let (mut above, mut work) = (LookupWork::default(), LookupWork::default());
    for group in groups {
        let own = LookupWork { searches: 1.0, ..group.passed() };
        let beside = group.passed().times((group.runs - 1.0) / 2.0);
        let share = if all > 0.0 { group.entries / all } else { 0.0 };
        work = work.plus(above.plus(beside).plus(own).times(share));
        above = above.plus(group.passed().times(group.runs));
    }
    work
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MergePolicy;
    use crate::monkey::PaperTree;

    fn near(value: f64, expected: f64, within: f64) {
        assert!((value - expected).abs() <= within, "{value} is not {expected}");
    }

    #[test]
    fn a_lookup_step_by_step() {
        let groups = [
            RunGroup { runs: 3.0, entries: 25.0, fpr: 0.1 },
            RunGroup { runs: 1.0, entries: 75.0, fpr: 1.0 },
        ];
        assert_eq!(empty_lookup(&groups), LookupWork { filters: 3.0, searches: 0.1 * 3.0 + 1.0 });
        let found = found_lookup(&groups);
        near(found.filters, 0.25 * 2.0 + 0.75 * 3.0, 1e-12);
        near(found.searches, 0.25 * 1.1 + 0.75 * 1.3, 1e-12);
        assert_eq!(found_lookup(&[]), LookupWork::default());
    }

    #[test]
    fn the_filters_probed_are_those_of_hash_sharing_and_the_searches_monkeys() {
        // Leveling with equal filters and many levels: the paper on hash sharing takes the same
        // limit.
        let tree = PaperTree::new(MergePolicy::Leveling, 10.0, 12, 1 << 40).unwrap();
        let group = |level| RunGroup { runs: 1.0, entries: tree.level_entries(level), fpr: 0.00819 };
        let groups: Vec<RunGroup> = (1..=12).map(group).collect();
        // With leveling it probes L - (1-e) / (T-1) filters.
        let filters = 12.0 - (1.0 - 0.25) / (10.0 - 1.0);
        let work = LookupWork::mix(empty_lookup(&groups), found_lookup(&groups), 0.25);
        near(work.filters, filters, 1e-9);
        // Monkey assumes all found keys on the last level, which is 1 / (T-1) filters more.
        let fprs = [0.00819; 12];
        near(empty_lookup(&groups).searches, tree.zero_result_cost(&fprs), 1e-12);
        near(found_lookup(&groups).searches, tree.found_cost(&fprs) - 0.00819 / 9.0, 1e-9);
    }
}
