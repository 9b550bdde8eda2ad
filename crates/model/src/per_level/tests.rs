//! Equal levels against the fluid tree; the search against the navigator and against random trees.

use super::*;
use crate::cost::{CpuTimes, DataSet, Device, Plan as FluidPlan, Workload, predict_held};
use crate::design::Design;
use crate::miss_ratio::MissRatioCurve;
use proptest::prelude::*;

fn situation(mix: [f64; 4], cpu: CpuTimes) -> Situation {
    let [empty_lookups, found_lookups, updates, ranges] = mix;
    Situation {
        data: DataSet { entries: 10_000_000, entry_bytes: 116.0, page_bytes: 4096 },
        workload: Workload { empty_lookups, found_lookups, updates, ranges, range_selectivity: 1e-6 },
        device: Device { read_ns: 1e5, write_ns: 1e5, cpu },
        locality: MissRatioCurve::EVEN,
    }
}

fn memory(memory_bytes: u64) -> Bounds {
    Bounds { memory_bytes, max_lookup_ios: None, max_update_ios: None }
}

const OPTIONS: Options = Options { growth: 1.0, sensitivity: false, max_space: 2.0, ..Options::ENGINE };

proptest! {
    #[test]
    fn equal_levels_cost_what_the_fluid_tree_does(
        size_ratio in 2.0..40.0f64, inner_runs in 1u32..12, last_runs in 1u32..12, count in 1u32..9,
        bits in 0.0..20.0f64, cached in 0.0..1.0f64, held in 0.0..=1.0f64,
        mix in prop::array::uniform4(0.01..1.0f64),
        merging in prop::sample::select(vec![Merging::WholeLevels, Merging::FileByFile, Merging::Following]),
        uncertainty in prop_oneof![Just(0.0), 0.0..2.0f64],
    ) {
        let situation = situation(mix, CpuTimes::ENGINE);
        let entries = situation.data.entries as f64;
        let cache_bytes = (cached * situation.data.bytes()) as u64;
        let fluid = FluidPlan {
            design: Design { size_ratio, inner_runs, last_runs, ..Design::default() },
            filters: crate::cost::FilterBits::PerKey(bits),
            allocation: crate::allocation::Allocation::Monkey,
            cache_bytes,
            levels: Some(count),
        };
        let level = |at| Level { size_ratio, runs: fluid.design.runs_allowed(at, count) };
        let plan = PerLevelPlan {
            levels: (1..=count).map(level).collect(),
            buffer_bytes: fluid.design.buffer_bytes,
            filter_bytes: bits * entries / 8.0,
            cache_bytes,
        };
        let expected = predict_held(&situation, &fluid, merging, held).unwrap();
        let found = predict(&situation, &plan, merging, held, uncertainty).unwrap();
        let near = |a: f64, b: f64| (a - b).abs() <= 1e-6 * a.abs().max(b.abs()).max(1e-9);
        for (mine, its) in found.operations_ns.iter().zip(&expected.operations_ns()) {
            prop_assert!(near(*mine, *its), "{found:?} {expected:?}");
        }
        let worst = expected.worst(&situation.workload, uncertainty).unwrap().cost;
        prop_assert!(near(found.cost_ns_per_op, worst));
        prop_assert!(near(found.lookup_reads, expected.lookup_reads));
        prop_assert!(near(found.update_ios, expected.merged_update_ios));
        prop_assert!(near(found.space_amplification, expected.space_amplification));
        prop_assert_eq!(found.runs, expected.runs);
    }

    #[test]
    fn any_plan_has_costs_or_a_reason(
        levels in prop::collection::vec((0.0..2_000.0f64, 0u32..2_000), 0..66),
        filter_bytes in prop_oneof![-1.0..1.0f64, 0.0..1e300f64],
        cache_bytes: u64, held in -0.1..1.1f64, uncertainty in -0.1..9.0f64,
    ) {
        let levels = levels.into_iter().map(|(size_ratio, runs)| Level { size_ratio, runs }).collect();
        let plan = PerLevelPlan { levels, buffer_bytes: 1 << 20, filter_bytes, cache_bytes };
        match predict(&situation([0.25; 4], CpuTimes::NONE), &plan, Merging::Following, held, uncertainty) {
            Ok(costs) => prop_assert!(costs.operations_ns.iter().all(|cost| cost.is_finite() && *cost >= 0.0)),
            Err(why) => prop_assert!(!why.is_empty()),
        }
    }
}

#[test]
fn the_search_is_never_worse_than_one_ratio_and_no_random_tree_is_better() {
    let mut rng = numbers(7);
    for (mix, memory_bytes) in [
        ([0.5, 0.0, 0.5, 0.0], 23_200_000),
        ([0.1, 0.2, 0.6, 0.1], 60_000_000),
        ([0.0, 0.0, 0.5, 0.5], 23_200_000),
    ] {
        for merging in [Merging::WholeLevels, Merging::Following] {
            let (situation, bounds) = (situation(mix, CpuTimes::ENGINE), memory(memory_bytes));
            let options = Options { merging, ..OPTIONS };
            let found = best(&situation, &bounds, &options, 16).unwrap();
            let one = found.navigation.costs.cost_ns_per_op;
            assert!((found.fluid.cost_ns_per_op / one - 1.0).abs() < 1e-6, "{found:?}");
            assert!(found.costs.cost_ns_per_op <= found.fluid.cost_ns_per_op && found.gain() >= 0.0);
            assert!(found.costs.space_amplification <= options.max_space);
            let (fences, held) = held_fences(&situation, &bounds, &options);
            let spent = found.plan.buffer_bytes as f64 * options.buffers
                + found.plan.filter_bytes
                + found.plan.cache_bytes as f64
                + fences;
            assert!(spent <= memory_bytes as f64 + 16.0, "{spent} of {memory_bytes}");
            let search =
                Search { situation: &situation, bounds: &bounds, options: &options, runs_max: 16, held };
            for _ in 0..3_000 {
                let count = 1 + (rng() * 6.0) as usize;
                let level = |_| {
                    let size_ratio = 2.0 * 20f64.powf(rng());
                    Level { size_ratio, runs: 1 + (rng() * f64::from(runs_max(size_ratio).min(16))) as u32 }
                };
                let levels = (0..count).map(level).collect();
                let Some((_, costs)) = search.at(&State { levels, bits_per_key: 16.0 }) else { continue };
                let random = costs.cost_ns_per_op;
                assert!(random >= found.costs.cost_ns_per_op * 0.995, "{mix:?}: {random} is below {found:?}");
            }
        }
    }
}

/// Pseudo-random numbers from 0 to 1, reproducible from the seed.
fn numbers(seed: u64) -> impl FnMut() -> f64 {
    let mut state = seed;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 53) as f64
    }
}
