//! The setting of the model-only figures: 512 GB in entries of 16 bytes, T = 4, a buffer of 2 MB.
//!
//! All costs are from [`shamba_model::cost::predict`], by the paper's closed forms.

use shamba_model::allocation::Allocation;
use shamba_model::cost::{Costs, CpuTimes, DataSet, Device, FilterBits, Plan, Situation, Workload, predict};
use shamba_model::miss_ratio::MissRatioCurve;
use shamba_model::{Design, MergePolicy};

use crate::scale::Parameter;

pub(super) const ENTRIES: u64 = 1 << 35;
pub(super) const ENTRY_BYTES: f64 = 16.0;
pub(super) const PAGE_BYTES: u64 = 4_096;
pub(super) const SIZE_RATIO: f64 = 4.0;
pub(super) const BUFFER_BYTES: u64 = 2 << 20;
pub(super) const GIB: f64 = (1u64 << 30) as f64;
/// The paper's merge policies.
pub(super) const POLICIES: [MergePolicy; 2] = [MergePolicy::Leveling, MergePolicy::Tiering];
/// The state of the art, and Monkey.
pub(super) const SIDES: [(Allocation, &str); 2] =
    [(Allocation::Uniform, "state of the art"), (Allocation::Monkey, "Monkey")];

/// This number of entries of this size under a mix of empty lookups and updates; a write costs the
/// same as a read.
pub(super) fn situation_of(
    (entries, entry_bytes): (u64, f64),
    empty_lookups: f64,
    updates: f64,
) -> Situation {
    Situation {
        data: DataSet { entries, entry_bytes, page_bytes: PAGE_BYTES },
        workload: Workload {
            empty_lookups,
            found_lookups: 0.0,
            updates,
            ranges: 0.0,
            range_selectivity: 0.0,
        },
        device: Device { read_ns: 100_000.0, write_ns: 100_000.0, cpu: CpuTimes::NONE },
        locality: MissRatioCurve::EVEN,
    }
}

/// The paper's data.
pub(super) fn situation(empty_lookups: f64, updates: f64) -> Situation {
    situation_of((ENTRIES, ENTRY_BYTES), empty_lookups, updates)
}

/// Costs of a design with this size of filters.
///
/// # Errors
/// Errors of the model.
pub(super) fn costs(
    situation: &Situation,
    (policy, size_ratio): (MergePolicy, f64),
    buffer_bytes: u64,
    filters: FilterBits,
    allocation: Allocation,
) -> Result<Costs, String> {
    let design = Design::new(policy, size_ratio, buffer_bytes, 0.0);
    predict(situation, &Plan { design, filters, allocation, cache_bytes: 0, levels: None })
}

/// Fixed parameters, but for those that `varied` names.
pub(super) fn fixed(varied: &[&str]) -> Vec<Parameter> {
    let all = [
        Parameter::fixed("entries", ENTRIES),
        Parameter::fixed("entry bytes", ENTRY_BYTES),
        Parameter::fixed("page bytes", PAGE_BYTES),
        Parameter::fixed("size ratio", SIZE_RATIO),
        Parameter::fixed("buffer bytes", BUFFER_BYTES),
    ];
    all.into_iter().filter(|one| !varied.contains(&one.name)).collect()
}
