//! The paper's expected workloads, its benchmark set of observed ones, and its space of tunings.
//!
//! Ten million entries of 1 KB in pages of four; memory of 10 bits for each entry and 1 MiB for
//! write buffer and filters; leveling or tiering with a whole size ratio. A write costs as much as
//! a read. Sources: the paper's section on its benchmark, and the configuration of its authors'
//! programs (BU-DiSC/endure).

use shamba_model::allocation::Allocation;
use shamba_model::cost::{CpuTimes, DataSet, Device, FilterBits, Plan, Situation, Workload, predict};
use shamba_model::miss_ratio::MissRatioCurve;
use shamba_model::robust::{OPERATIONS, worst};
use shamba_model::{Design, MergePolicy};

/// A mix or the costs of empty lookups, found lookups, updates and ranges.
pub(super) type Four = [f64; OPERATIONS];

pub(super) const ENTRIES: u64 = 10_000_000;
pub(super) const BITS_PER_ENTRY: f64 = 10.0;
pub(super) const BUFFER_BYTES_MIN: u64 = 1 << 20;
/// Values of rho. The paper has those from 0 to 4 in steps of a quarter.
pub(super) const RHOS: [f64; 9] = [0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0];

/// The paper's 15 expected workloads by kind. Each has at least 1 % of all operations, so that
/// divergences are finite. Shares of empty lookups, found lookups, ranges and writes there; here
/// updates come before ranges.
pub(super) const EXPECTED: [(&str, Four); 15] = [
    ("uniform", [0.25, 0.25, 0.25, 0.25]),
    ("unimodal", [0.97, 0.01, 0.01, 0.01]),
    ("unimodal", [0.01, 0.97, 0.01, 0.01]),
    ("unimodal", [0.01, 0.01, 0.01, 0.97]),
    ("unimodal", [0.01, 0.01, 0.97, 0.01]),
    ("bimodal", [0.49, 0.49, 0.01, 0.01]),
    ("bimodal", [0.49, 0.01, 0.01, 0.49]),
    ("bimodal", [0.49, 0.01, 0.49, 0.01]),
    ("bimodal", [0.01, 0.49, 0.01, 0.49]),
    ("bimodal", [0.01, 0.49, 0.49, 0.01]),
    ("bimodal", [0.01, 0.01, 0.49, 0.49]),
    ("trimodal", [0.33, 0.33, 0.01, 0.33]),
    ("trimodal", [0.33, 0.33, 0.33, 0.01]),
    ("trimodal", [0.33, 0.01, 0.33, 0.33]),
    ("trimodal", [0.01, 0.33, 0.33, 0.33]),
];

/// Observed workloads: four counts up to 10,000, each equally likely, in proportion to their sum.
pub(super) fn observed(count: u64, seed: u64) -> Vec<Four> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut one = || {
        let counts = [(); OPERATIONS].map(|()| f64::from(rng.u32(..=10_000)));
        let sum: f64 = counts.iter().sum();
        counts.map(|count| count / sum.max(1.0))
    };
    (0..count).map(|_| one()).collect()
}

/// The mean cost of an operation of a mix.
pub(super) fn cost(mix: &Four, costs: &Four) -> f64 {
    mix.iter().zip(costs).map(|(share, cost)| share * cost).sum()
}

/// The paper's situation, with one nanosecond an I/O.
pub(super) fn situation(mix: Four) -> Situation {
    Situation {
        data: DataSet { entries: ENTRIES, entry_bytes: 1_024.0, page_bytes: 4_096 },
        workload: Workload::of_rates(mix, 0.0),
        device: Device { read_ns: 1.0, write_ns: 1.0, cpu: CpuTimes::NONE },
        locality: MissRatioCurve::EVEN,
    }
}

pub(super) fn memory_bytes() -> u64 {
    BUFFER_BYTES_MIN + (BITS_PER_ENTRY * ENTRIES as f64 / 8.0) as u64
}

/// A tuning and the I/Os of its operations.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tuning {
    pub design: Design,
    pub costs: Four,
}

/// All tunings of the paper's space that are not dominated in every operation. Filters are Monkey's
/// for empty lookups, as in the paper.
///
/// # Errors
/// Errors of the model.
pub(super) fn space() -> Result<Vec<Tuning>, String> {
    let situation = situation([1.0, 0.0, 0.0, 0.0]);
    let memory = memory_bytes();
    let mut all = Vec::new();
    for policy in [MergePolicy::Leveling, MergePolicy::Tiering] {
        for ratio in 2..=100 {
            for step in 0..=40 {
                let bits_per_key = BITS_PER_ENTRY * f64::from(step) / 40.0;
                let filter_bytes = bits_per_key * ENTRIES as f64 / 8.0;
                let buffer_bytes = memory - filter_bytes as u64;
                let design = Design::new(policy, f64::from(ratio), buffer_bytes, bits_per_key);
                let plan = Plan {
                    design,
                    filters: FilterBits::Bytes(filter_bytes),
                    allocation: Allocation::Monkey,
                    cache_bytes: 0,
                    levels: None,
                };
                all.push(Tuning { design, costs: predict(&situation, &plan)?.operations_ns() });
            }
        }
    }
    let is_beaten = |tuning: &Tuning| {
        all.iter().any(|other| {
            let pairs = || other.costs.iter().zip(&tuning.costs);
            pairs().all(|(its, mine)| its <= mine) && pairs().any(|(its, mine)| its < mine)
        })
    };
    Ok(all.iter().filter(|tuning| !is_beaten(tuning)).copied().collect())
}

/// The best tuning of a space for a mix and rho.
///
/// # Errors
/// A space without tunings; errors of the model.
pub(super) fn best(space: &[Tuning], mix: &Four, rho: f64) -> Result<Tuning, String> {
    let mut best: Option<(f64, Tuning)> = None;
    for tuning in space {
        let worst = worst(&tuning.costs, mix, rho)?.cost;
        if best.as_ref().is_none_or(|(least, _)| worst < *least) {
            best = Some((worst, *tuning));
        }
    }
    best.map(|(_, tuning)| tuning).ok_or_else(|| "a space without tunings".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expected_and_observed_workloads_are_mixes() {
        let seed = 11;
        for mix in EXPECTED.iter().map(|(_, mix)| *mix).chain(observed(500, seed)) {
            assert!((mix.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{mix:?}, seed {seed}");
        }
        assert!(EXPECTED.iter().all(|(_, mix)| mix.iter().all(|share| *share >= 0.01)));
        assert_ne!(observed(5, seed), observed(5, seed + 1));
    }

    #[test]
    fn a_nominal_tuning_is_the_best_of_all_for_its_mix() {
        let space = space().expect("tunings");
        for (_, mix) in EXPECTED {
            let nominal = best(&space, &mix, 0.0).expect("one");
            let robust = best(&space, &mix, 1.0).expect("one");
            assert!(cost(&mix, &nominal.costs) <= cost(&mix, &robust.costs) * (1.0 + 1e-12));
            let at_worst = |tuning: &Tuning| worst(&tuning.costs, &mix, 1.0).expect("a mix").cost;
            assert!(at_worst(&robust) <= at_worst(&nominal));
        }
    }
}
