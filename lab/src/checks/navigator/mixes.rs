//! The mixes of operations that designs are compared on.

use shamba_model::cost::Workload;

/// Shares of operations, which add up to 1.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Mix {
    /// Name, in output lines, files and figures.
    pub name: &'static str,
    /// Lookups that find nothing.
    pub empty_lookups: f64,
    /// Lookups that find.
    pub found_lookups: f64,
    /// Overwrites of a key that is there.
    pub updates: f64,
    /// Ranges of a few entries.
    pub ranges: f64,
    /// Whether the choice must be half as fast again as the default here, or it is only told.
    pub is_judged: bool,
}

/// Lookups that find nothing with updates, from 10/90 to 90/10; then lookups that find, and short
/// ranges.
pub const MIXES: [Mix; 9] = [
    Mix::judged("lookups 10, updates 90", 0.1),
    Mix::judged("lookups 30, updates 70", 0.3),
    Mix::judged("lookups 50, updates 50", 0.5),
    Mix::judged("lookups 70, updates 30", 0.7),
    Mix::judged("lookups 90, updates 10", 0.9),
    Mix::told("hits 50, updates 50", [0.0, 0.5, 0.5, 0.0]),
    Mix::told("hits 90, updates 10", [0.0, 0.9, 0.1, 0.0]),
    Mix::told("ranges 50, updates 50", [0.0, 0.0, 0.5, 0.5]),
    Mix::told("ranges 90, updates 10", [0.0, 0.0, 0.1, 0.9]),
];

impl Mix {
    const fn judged(name: &'static str, empty_lookups: f64) -> Self {
        let updates = 1.0 - empty_lookups;
        Self { name, empty_lookups, found_lookups: 0.0, updates, ranges: 0.0, is_judged: true }
    }

    const fn told(name: &'static str, shares: [f64; 4]) -> Self {
        let [empty_lookups, found_lookups, updates, ranges] = shares;
        Self { name, empty_lookups, found_lookups, updates, ranges, is_judged: false }
    }

    /// As the model takes it: each update counts `updates_times`.
    pub(super) fn workload(&self, updates_times: f64, range_selectivity: f64) -> Workload {
        Workload {
            empty_lookups: self.empty_lookups,
            found_lookups: self.found_lookups,
            updates: self.updates * updates_times,
            ranges: self.ranges,
            range_selectivity,
        }
    }
}
