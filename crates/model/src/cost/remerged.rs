//! Costs of a tree whose compactions are counted by the caller.
//!
//! The closed forms count compactions for levels of one size ratio. Another engine may compact by
//! other rules, for instance RocksDB's universal compaction with its bound on space amplification.
//! Lookups and ranges of such a tree depend only on its runs and stay as predicted;
//! [`Costs::with_merges`] replaces everything that depends on the number of compactions.
//!
//! Not here: how often such an engine rewrites an entry (the caller counts it).

use super::checked::finite;
use super::{Costs, Situation};
use crate::input;

impl Costs {
    /// Returns the costs with `merges_per_entry` rewrites of each entry and this space
    /// amplification; everything else stays the same.
    ///
    /// `situation` must be the one that the costs were predicted for.
    ///
    /// # Errors
    /// A number of rewrites or a space amplification that is negative or not finite, or results
    /// that exceed the range of a float.
    pub fn with_merges(
        self,
        situation: &Situation,
        merges_per_entry: f64,
        space_amplification: f64,
    ) -> Result<Self, String> {
        input::not_negative("the merges of an entry", merges_per_entry)?;
        input::not_negative("the space amplification", space_amplification)?;
        let Situation { data, workload, device, .. } = situation;
        let pages = merges_per_entry / data.entries_per_page();
        let update_ns = pages * (device.read_ns + device.write_ns);
        let update_ios = pages * (1.0 + device.write_per_read());
        let updates = workload.shares().updates;
        let cost_ns_per_op = self.cost_ns_per_op + updates * (update_ns - self.update_ns);
        let costs = Self {
            update_ios,
            merged_update_ios: update_ios,
            update_ns,
            write_amplification: 1.0 + merges_per_entry,
            space_amplification,
            operation_ios: self.operation_ios + updates * (update_ios - self.update_ios),
            cost_ns_per_op,
            throughput_per_s: (1e9 / cost_ns_per_op).min(f64::MAX),
            ..self
        };
        finite(costs)
    }
}

#[cfg(test)]
mod tests {
    use crate::allocation::Allocation;
    use crate::cost::{CpuTimes, DataSet, Device, FilterBits, Plan, Situation, Workload, predict};
    use crate::miss_ratio::MissRatioCurve;
    use crate::{Design, MergePolicy};

    #[test]
    fn only_what_depends_on_merges_changes() {
        let situation = Situation {
            data: DataSet { entries: 10_000_000, entry_bytes: 100.0, page_bytes: 4096 },
            workload: Workload {
                empty_lookups: 1.0,
                found_lookups: 1.0,
                updates: 2.0,
                ranges: 1.0,
                range_selectivity: 0.0,
            },
            device: Device { read_ns: 1e5, write_ns: 2e5, cpu: CpuTimes::NONE },
            locality: MissRatioCurve::EVEN,
        };
        let plan = Plan {
            design: Design::new(MergePolicy::Tiering, 4.0, 1 << 20, 10.0),
            filters: FilterBits::PerKey(10.0),
            allocation: Allocation::Uniform,
            cache_bytes: 0,
            levels: None,
        };
        let costs = predict(&situation, &plan).unwrap();
        let merges = costs.write_amplification - 1.0;
        let same = costs.clone().with_merges(&situation, merges, costs.space_amplification).unwrap();
        assert_eq!((same.levels, same.runs, same.lookup_ns), (costs.levels, costs.runs, costs.lookup_ns));
        for (now, then) in [
            (same.update_ios, costs.update_ios),
            (same.merged_update_ios, costs.merged_update_ios),
            (same.update_ns, costs.update_ns),
            (same.operation_ios, costs.operation_ios),
            (same.throughput_per_s, costs.throughput_per_s),
        ] {
            assert!((now / then - 1.0).abs() < 1e-9, "{now}, not {then}");
        }
        let twice = costs.clone().with_merges(&situation, 2.0 * merges, 1.5).unwrap();
        assert!((twice.update_ns / costs.update_ns - 2.0).abs() < 1e-9);
        let more_ns = twice.cost_ns_per_op - costs.cost_ns_per_op;
        assert!((more_ns / (0.4 * costs.update_ns) - 1.0).abs() < 1e-9, "updates are two operations of five");
        assert_eq!((twice.space_amplification, twice.range_ios), (1.5, costs.range_ios));
        for bad in [-1.0, f64::NAN, f64::INFINITY] {
            assert!(costs.clone().with_merges(&situation, bad, 1.0).is_err());
            assert!(costs.clone().with_merges(&situation, 1.0, bad).is_err());
        }
    }
}
