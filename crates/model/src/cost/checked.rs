//! Checked and normalized input of the cost model, and the check that its output is finite.
//!
//! Not here: the bounds of the design's knobs ([`Design::validate`]).

use super::{Costs, CpuTimes, DataSet, Device, FilterBits, LookupWork, Situation, Workload};
use crate::Design;
use crate::input;
use crate::monkey::levels_closed;

/// Shares of a workload's operations; their sum is 1.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct OperationShares {
    /// Lookups, found or not.
    pub lookups: f64,
    /// Updates.
    pub updates: f64,
    /// Range lookups.
    pub ranges: f64,
}

impl Situation {
    /// Checks that every figure is a finite number within its bounds.
    ///
    /// # Errors
    /// The figure that is not, and its bounds.
    pub fn validate(&self) -> Result<(), String> {
        self.data.validate()?;
        self.workload.validate()?;
        self.device.validate()
    }
}

impl DataSet {
    fn validate(&self) -> Result<(), String> {
        if self.entries == 0 {
            return Err("no entries: the cost of a design without data is undefined".to_owned());
        }
        input::positive("the bytes of an entry", self.entry_bytes)?;
        if self.page_bytes == 0 {
            return Err("the bytes of a page must be at least 1, not 0".to_owned());
        }
        input::positive("the bytes of the data", self.bytes())?;
        input::positive("the pages of the data", self.pages())?;
        input::positive("the entries of a page", self.entries_per_page())
    }

    /// N E: bytes of all entries.
    pub fn bytes(&self) -> f64 {
        self.entries as f64 * self.entry_bytes
    }

    /// B: entries per page; below 1 if an entry takes several pages.
    pub fn entries_per_page(&self) -> f64 {
        self.page_bytes as f64 / self.entry_bytes
    }

    /// N / B.
    pub fn pages(&self) -> f64 {
        self.bytes() / self.page_bytes as f64
    }

    /// L: the number of levels that this data needs under `design`, by equation 1.
    ///
    /// # Errors
    /// A design out of bounds.
    pub fn levels(&self, design: &Design) -> Result<u32, String> {
        levels_closed(self.bytes(), design.buffer_bytes, design.size_ratio)
    }
}

impl Workload {
    fn validate(&self) -> Result<(), String> {
        for (what, rate) in [
            ("empty lookups", self.empty_lookups),
            ("found lookups", self.found_lookups),
            ("updates", self.updates),
            ("range lookups", self.ranges),
        ] {
            input::not_negative(what, rate)?;
        }
        if self.largest() == 0.0 {
            return Err(
                "the workload has no operations: set a share of lookups, updates or ranges".to_owned()
            );
        }
        input::share("the selectivity of ranges", self.range_selectivity)
    }

    fn largest(&self) -> f64 {
        self.empty_lookups.max(self.found_lookups).max(self.updates).max(self.ranges)
    }

    /// Whether the workload has any lookups.
    pub fn has_lookups(&self) -> bool {
        self.empty_lookups > 0.0 || self.found_lookups > 0.0
    }

    /// The share of lookups that find nothing, 1 / (v + 1); 1 without any lookups.
    pub fn empty_fraction(&self) -> f64 {
        // Divided by the larger first: the sum of large rates could be infinite.
        let larger = self.empty_lookups.max(self.found_lookups);
        if larger == 0.0 {
            return 1.0;
        }
        let (empty, found) = (self.empty_lookups / larger, self.found_lookups / larger);
        empty / (empty + found)
    }

    /// Share of each kind of operation.
    pub fn shares(&self) -> OperationShares {
        let largest = self.largest();
        let of = |rate: f64| if largest > 0.0 { rate / largest } else { 0.0 };
        let lookups = of(self.empty_lookups) + of(self.found_lookups);
        let (updates, ranges) = (of(self.updates), of(self.ranges));
        let all = (lookups + updates + ranges).max(1.0);
        OperationShares { lookups: lookups / all, updates: updates / all, ranges: ranges / all }
    }
}

impl Device {
    fn validate(&self) -> Result<(), String> {
        input::positive("the time of a read", self.read_ns)?;
        input::not_negative("the time of a write", self.write_ns)?;
        input::not_negative("the time of a hash", self.cpu.hash_ns)?;
        input::not_negative("the time of a probe", self.cpu.probe_ns)?;
        input::not_negative("the time of a search", self.cpu.search_ns)
    }

    /// phi: the cost of writing a page, in reads.
    pub fn write_per_read(&self) -> f64 {
        self.write_ns / self.read_ns
    }
}

impl CpuTimes {
    /// The hashes of a lookup that probes `filters` filters, counted as in the engine: the memtable
    /// needs at least one.
    pub fn hashes(&self, filters: f64) -> f64 {
        if self.shared_digest { 1.0 } else { filters.max(1.0) }
    }

    /// CPU time of a lookup.
    pub fn lookup_ns(&self, work: LookupWork) -> f64 {
        self.hashes(work.filters) * self.hash_ns
            + work.filters * self.probe_ns
            + work.searches * self.search_ns
    }
}

impl FilterBits {
    /// M_filt in bits, for `entries` entries.
    ///
    /// # Errors
    /// An amount that is NaN, infinite or negative.
    pub fn bits(self, entries: u64) -> Result<f64, String> {
        let (what, amount, bits) = match self {
            Self::PerKey(bits) => ("the filters' bits per key", bits, bits * entries as f64),
            Self::Bytes(bytes) => ("the filters' bytes", bytes, bytes * 8.0),
        };
        input::not_negative(what, amount)?;
        input::not_negative("the filters' bits", bits)?;
        Ok(bits)
    }
}

/// Returns the costs if all of them are finite.
pub(crate) fn finite(costs: Costs) -> Result<Costs, String> {
    let figures = [
        ("the filters' bytes", costs.filter_bytes),
        ("the fences' bytes", costs.fence_bytes),
        ("the I/Os of an empty lookup", costs.zero_result_lookup_ios),
        ("the exact I/Os of an empty lookup", costs.zero_result_lookup_ios_exact),
        ("the I/Os of a found lookup", costs.nonzero_result_lookup_ios),
        ("the exact I/Os of a found lookup", costs.nonzero_result_lookup_ios_exact),
        ("the I/Os of a lookup", costs.mixed_lookup_ios),
        ("the exact I/Os of a lookup", costs.mixed_lookup_ios_exact),
        ("the I/Os of an evenly drawn lookup", costs.found_lookup_ios),
        ("the I/Os of an update", costs.update_ios),
        ("the I/Os of an update as levels merge", costs.merged_update_ios),
        ("the I/Os of a range lookup", costs.range_ios),
        ("the I/Os of an operation", costs.operation_ios),
        ("write amplification", costs.write_amplification),
        ("space amplification", costs.space_amplification),
        ("the processor's part of a lookup", costs.cpu_ns_per_lookup),
        ("the reads of a lookup", costs.lookup_reads),
        ("the time of a lookup", costs.lookup_ns),
        ("the time of an update", costs.update_ns),
        ("the time of a range lookup", costs.range_ns),
        ("the time of an operation", costs.cost_ns_per_op),
        ("the throughput", costs.throughput_per_s),
    ];
    let per_level = [&costs.fpr_per_level, &costs.bits_per_key_per_level];
    let per_level = per_level.into_iter().flatten().map(|figure| ("a level's filter", *figure));
    for (what, figure) in figures.into_iter().chain(per_level) {
        if !(0.0..f64::INFINITY).contains(&figure) {
            return Err(format!(
                "{what} would be {figure}: the input is beyond what a float can compute with"
            ));
        }
    }
    Ok(costs)
}
