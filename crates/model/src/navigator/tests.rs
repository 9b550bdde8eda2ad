//! The search against all designs of a fine grid and against the closed forms; bounds, ties, and
//! the whole input space.

use super::*;
use crate::cost::predict_merging;
use crate::cost::tests::{any_count, any_float, any_situation};
use crate::cost::{CpuTimes, DataSet, Device, FilterBits, Workload};
use crate::design::Design;
use crate::miss_ratio::MissRatioCurve;
use proptest::prelude::*;

/// The setting in which designs are compared: 10 million entries of 116 bytes, memory 2 % of that,
/// and 100 us a page.
fn situation(mix: [f64; 4]) -> Situation {
    let [empty_lookups, found_lookups, updates, ranges] = mix;
    Situation {
        data: DataSet { entries: 10_000_000, entry_bytes: 116.0, page_bytes: 4096 },
        workload: Workload { empty_lookups, found_lookups, updates, ranges, range_selectivity: 1e-6 },
        device: Device { read_ns: 1e5, write_ns: 1e5, cpu: CpuTimes::NONE },
        locality: MissRatioCurve::EVEN,
    }
}

fn memory(memory_bytes: u64) -> Bounds {
    Bounds { memory_bytes, max_lookup_ios: None, max_update_ios: None }
}

/// Without ties and without room to grow, so that only the cost counts.
const PLAIN: Options = Options { growth: 1.0, tie: 0.0, fluid: false, sensitivity: false, ..Options::ENGINE };

/// The minimum cost of all designs of a grid over buffer sizes, whatever number of levels they
/// give.
fn brute_force(situation: &Situation, bounds: &Bounds, options: &Options) -> f64 {
    let fences = situation.data.pages() * options.fence_bytes_per_page;
    let most = bounds.memory_bytes as f64 - fences;
    let largest = (most / options.buffers).min(options.largest_buffer_bytes(bounds.memory_bytes) as f64);
    let ratios = (8..=160).map(|quarters| f64::from(quarters) / 4.0);
    let entries = situation.data.entries as f64;
    let mut least = f64::INFINITY;
    for size_ratio in ratios {
        for step in 0..80 {
            let buffer = options.smallest_buffer_bytes as f64
                * (largest / options.smallest_buffer_bytes as f64).powf(f64::from(step) / 79.0);
            let rest = most - buffer.floor() * options.buffers;
            for tenths in 0..=10 {
                let filters = (rest * f64::from(tenths) / 10.0).min(64.0 * entries / 8.0);
                for policy in MergePolicy::ALL {
                    let plan = Plan {
                        design: Design::new(policy, size_ratio, buffer as u64, 1.0),
                        filters: FilterBits::Bytes(filters),
                        allocation: options.allocation,
                        cache_bytes: if options.block_cache { (rest - filters) as u64 } else { 0 },
                        levels: None,
                    };
                    let costs = predict_merging(situation, &plan, options.merging).unwrap();
                    let keeps = |cost: f64, bound: Option<f64>| bound.is_none_or(|bound| cost <= bound);
                    if keeps(costs.lookup_reads, bounds.max_lookup_ios)
                        && keeps(costs.merged_update_ios, bounds.max_update_ios)
                    {
                        least = least.min(costs.cost_ns_per_op);
                    }
                }
            }
        }
    }
    least
}

#[test]
fn no_design_of_a_fine_grid_is_better() {
    for (mix, memory_bytes, options) in [
        ([0.1, 0.0, 0.9, 0.0], 23_200_000, PLAIN),
        ([0.9, 0.0, 0.1, 0.0], 23_200_000, PLAIN),
        ([0.2, 0.5, 0.2, 0.1], 100_000_000, PLAIN),
        ([0.0, 0.9, 0.1, 0.0], 600_000_000, PLAIN),
        ([0.5, 0.0, 0.5, 0.0], 12_000_000, Options { merging: Merging::FileByFile, ..PLAIN }),
        ([0.3, 0.3, 0.4, 0.0], 23_200_000, Options { tie: 0.0, sensitivity: false, ..Options::PAPER }),
    ] {
        let situation = situation(mix);
        let bounds = memory(memory_bytes);
        let best = navigate(&situation, &bounds, &options).unwrap().costs.cost_ns_per_op;
        let least = brute_force(&situation, &bounds, &options);
        assert!(best <= least * 1.002, "{mix:?} in {memory_bytes}: {best} ns, the grid has {least}");
    }
}

#[test]
fn a_robust_design_is_the_best_in_its_worst_mix() {
    for mix in [[0.33, 0.33, 0.33, 0.01], [0.01, 0.01, 0.97, 0.01], [0.25; 4], [0.5, 0.0, 0.5, 0.0]] {
        let situation = situation(mix);
        let bounds = memory(23_200_000);
        let with = |uncertainty| navigate(&situation, &bounds, &Options { uncertainty, ..PLAIN }).unwrap();
        let nominal = with(0.0);
        assert_eq!(nominal.worst, None);
        let mut last = nominal.costs.cost_ns_per_op;
        for uncertainty in [0.1, 0.5, 1.0, 3.0] {
            let robust = with(uncertainty);
            let worst = robust.worst.unwrap();
            assert_eq!(robust.costs.worst(&situation.workload, uncertainty), Ok(worst));
            let of_nominal = nominal.costs.worst(&situation.workload, uncertainty).unwrap();
            assert!(worst.cost <= of_nominal.cost * 1.002, "{mix:?} {uncertainty}: {worst:?} {of_nominal:?}");
            assert!(
                worst.cost >= last * (1.0 - 2e-3),
                "{mix:?} {uncertainty}: a wider neighbourhood costs no less"
            );
            assert!(robust.why.contains("worst mix"), "{}", robust.why);
            for other in &robust.alternatives {
                let theirs = other.costs.worst(&situation.workload, uncertainty).unwrap();
                let times = theirs.cost / worst.cost;
                assert!((other.times_the_cost / times - 1.0).abs() < 1e-9, "{other:?}");
                assert!(!other.keeps_bounds || times > 1.0 - 2e-3, "{mix:?} {uncertainty}: {other:?}");
            }
            last = worst.cost;
        }
    }
}

#[test]
fn bounds_are_kept_at_the_least_cost() {
    let situation = situation([0.5, 0.0, 0.5, 0.0]);
    let free = navigate(&situation, &memory(23_200_000), &PLAIN).unwrap();
    for (lookups, updates) in [
        (Some(free.costs.lookup_reads * 0.5), None),
        (None, Some(free.costs.merged_update_ios * 0.8)),
        (Some(free.costs.lookup_reads * 0.8), Some(free.costs.merged_update_ios * 1.3)),
    ] {
        let bounds = Bounds { max_lookup_ios: lookups, max_update_ios: updates, ..memory(23_200_000) };
        let bound = navigate(&situation, &bounds, &PLAIN).unwrap();
        assert!(bound.costs.lookup_reads <= lookups.unwrap_or(f64::MAX));
        assert!(bound.costs.merged_update_ios <= updates.unwrap_or(f64::MAX));
        assert!(bound.costs.cost_ns_per_op >= free.costs.cost_ns_per_op);
        let least = brute_force(&situation, &bounds, &PLAIN);
        assert!(bound.costs.cost_ns_per_op <= least * 1.01, "{} {least}", bound.costs.cost_ns_per_op);
    }
}

#[test]
fn the_bound_on_updates_is_of_merging_as_it_is_counted() {
    let half = situation([0.5, 0.0, 0.5, 0.0]);
    for merging in [Merging::WholeLevels, Merging::FileByFile, Merging::Following] {
        let options = Options { merging, ..PLAIN };
        let free = navigate(&half, &memory(23_200_000), &options).unwrap();
        let bounds =
            Bounds { max_update_ios: Some(free.costs.merged_update_ios * 0.8), ..memory(23_200_000) };
        let found = navigate(&half, &bounds, &options).unwrap();
        for costs in [&free.costs, &found.costs] {
            let of_time = costs.update_ns / half.device.read_ns;
            assert!((costs.merged_update_ios / of_time - 1.0).abs() < 1e-9, "{merging:?}: {costs:?}");
            assert!(
                merging != Merging::WholeLevels || costs.merged_update_ios == costs.update_ios,
                "{costs:?}"
            );
        }
        assert!(found.costs.merged_update_ios <= bounds.max_update_ios.unwrap());
    }
}

#[test]
fn a_policy_that_breaks_a_bound_is_told_with_what_it_takes() {
    let data = DataSet { entries: 100_000_000, ..situation([0.5, 0.0, 0.5, 0.0]).data };
    let half = Situation { data, ..situation([0.5, 0.0, 0.5, 0.0]) };
    let bounds = Bounds { max_update_ios: Some(0.11), ..memory(256 << 20) };
    let found = navigate(&half, &bounds, &PLAIN).unwrap();
    let policies = |found: &Navigation| {
        let told = [found.plan].into_iter().chain(found.alternatives.iter().map(|other| other.plan));
        let mut told: Vec<String> =
            told.filter_map(|plan| plan.design.policy()).map(|p| p.to_string()).collect();
        told.extend(found.absent.iter().map(|absent| absent.policy.to_string()));
        told.sort();
        told.dedup();
        told
    };
    assert_eq!(policies(&found).len(), 3, "{found:?}");
    let broken: Vec<&Alternative> = found.alternatives.iter().filter(|other| !other.keeps_bounds).collect();
    assert!(!broken.is_empty(), "{found:?}");
    for other in broken {
        assert!(other.costs.merged_update_ios > 0.11, "{other:?}");
        assert!(
            other.why.starts_with("takes 0.")
                && other.why.ends_with("I/Os per update, more than the 0.11 allowed")
        );
    }
    // The two closest figures are still told apart.
    let leveled = navigate(&half, &memory(256 << 20), &PLAIN).unwrap();
    let tight = leveled.alternatives.iter().map(|other| &other.costs).chain([&leveled.costs]);
    let space = tight.map(|costs| costs.space_amplification).fold(0.0, f64::max);
    let found =
        navigate(&half, &memory(256 << 20), &Options { max_space: space * (1.0 - 1e-9), ..PLAIN }).unwrap();
    assert_eq!(policies(&found).len(), 3, "{found:?}");
    // No buffer fits for which a level would have as few runs as its limit.
    let little = Options { fence_bytes_per_page: 0.0, ..PLAIN };
    let huge = Situation { data: DataSet { entries: 1 << 60, ..data }, ..half };
    for memory_bytes in (20..70).map(|shift| 1u64 << shift.min(63)) {
        if let Ok(found) = navigate(&huge, &memory(memory_bytes), &little) {
            assert_eq!(policies(&found).len(), 3, "{found:?}");
            assert!(found.absent.iter().all(|absent| absent.why.contains("runs")));
        }
    }
}

#[test]
fn space_is_kept_within_its_bound() {
    let writes = situation([0.1, 0.0, 0.9, 0.0]);
    let with = |max_space| navigate(&writes, &memory(23_200_000), &Options { max_space, ..Options::ENGINE });
    let free = with(f64::INFINITY).unwrap();
    assert!(free.costs.space_amplification > 3.0, "writes alone ask for tiering: {free:?}");
    let mut last = free.costs.throughput_per_s;
    for bound in [4.0, 2.0, 1.2] {
        let kept = with(bound).unwrap();
        assert!(kept.costs.space_amplification <= bound, "{bound}: {kept:?}");
        assert!(kept.costs.throughput_per_s <= last * 1.02, "a tighter bound buys nothing");
        last = kept.costs.throughput_per_s;
    }
    assert_eq!(with(1.0).unwrap().costs.levels, 1, "whatever it costs");
    let little = Options { max_space: 1.0, ..Options::ENGINE };
    let error = navigate(&writes, &memory(3_000_000), &little).unwrap_err();
    assert!(error.contains("amplification of at most 1") && error.contains("comes closest"), "{error}");
    assert!(with(0.5).unwrap_err().contains("at least 1") && with(f64::NAN).is_err());
}

#[test]
fn what_cannot_be_had_is_said_with_what_can() {
    let situation = situation([0.5, 0.2, 0.3, 0.0]);
    let refused = |bounds: Bounds| navigate(&situation, &bounds, &Options::ENGINE).unwrap_err();
    let lookups = Bounds { max_lookup_ios: Some(0.1), ..memory(23_200_000) };
    let error = refused(lookups);
    assert!(
        error.contains("a lookup with at most 0.1 I/Os") && error.contains("the minimum is 0.2"),
        "{error}"
    );
    let error = refused(Bounds { max_update_ios: Some(0.001), ..memory(23_200_000) });
    assert!(error.contains("an update with at most 0.001 I/Os") && error.contains("tiering"), "{error}");
    // Each bound can be kept alone, but not both.
    let both = Bounds { max_lookup_ios: Some(0.295), max_update_ios: Some(0.07), ..memory(23_200_000) };
    let error = refused(both);
    assert!(error.contains("both bounds") && error.contains("at least"), "{error}");
    let error = refused(memory(200_000));
    assert!(error.contains("200000 bytes is too small") && error.contains("131072"), "{error}");
    for (bounds, part) in [
        (Bounds { max_lookup_ios: Some(f64::NAN), ..memory(1 << 30) }, "a lookup"),
        (Bounds { max_update_ios: Some(-1.0), ..memory(1 << 30) }, "an update"),
    ] {
        assert!(refused(bounds).contains(part));
    }
    for (options, part) in [
        (Options { buffers: 0.0, ..Options::ENGINE }, "byte of the buffer"),
        (Options { growth: f64::NAN, ..Options::ENGINE }, "room to grow"),
        (Options { fence_bytes_per_page: -1.0, ..Options::ENGINE }, "fences"),
        (Options { tie: 2.0, ..Options::ENGINE }, "tie"),
        (Options { uncertainty: -0.1, ..Options::ENGINE }, "uncertainty"),
        (Options { smallest_buffer_bytes: 0, ..Options::ENGINE }, "smallest buffer"),
    ] {
        assert!(navigate(&situation, &memory(1 << 30), &options).unwrap_err().contains(part));
    }
}

#[test]
fn a_tie_goes_to_the_simpler_design() {
    // Memory for all the data: every design answers lookups for free, and without updates all are
    // equal.
    let reads = navigate(&situation([1.0, 0.0, 0.0, 0.0]), &memory(1 << 40), &Options::ENGINE);
    let default = reads.unwrap().plan.design;
    assert_eq!((default.policy(), default.size_ratio), (Some(MergePolicy::Leveling), 10.0));
    for mix in [[0.1, 0.0, 0.9, 0.0], [0.5, 0.3, 0.2, 0.0], [0.9, 0.0, 0.1, 0.0], [0.2, 0.2, 0.5, 0.1]] {
        let situation = situation(mix);
        let tied = navigate(&situation, &memory(23_200_000), &Options::ENGINE).unwrap();
        let plain = Options { tie: 0.0, sensitivity: false, ..Options::ENGINE };
        let fastest = navigate(&situation, &memory(23_200_000), &plain).unwrap();
        assert!(tied.costs.cost_ns_per_op <= fastest.costs.cost_ns_per_op * 1.01);
        // The fastest of all and of every other policy is reported with its reason, fastest first.
        let times: Vec<f64> = tied.alternatives.iter().map(|other| other.times_the_cost).collect();
        assert!(times.is_sorted() && times.len() >= 2, "{times:?}");
        for other in &tied.alternatives {
            assert!(other.why.contains("slower") || other.why.contains("a tie"), "{}", other.why);
        }
        assert!(tied.why.contains("fastest design") || tied.why.contains("simpler than"), "{}", tied.why);
    }
}

#[test]
fn memory_is_not_overspent() {
    for (mix, memory_bytes) in [
        ([0.1, 0.0, 0.9, 0.0], 8_000_000),
        ([0.3, 0.6, 0.1, 0.0], 23_200_000),
        ([0.5, 0.1, 0.3, 0.1], 1 << 33),
    ] {
        let best = navigate(&situation(mix), &memory(memory_bytes), &Options::ENGINE).unwrap();
        let spent = best.plan.design.buffer_bytes as f64 * 2.0
            + best.costs.filter_bytes
            + best.plan.cache_bytes as f64
            + best.costs.fence_bytes;
        assert!(spent <= memory_bytes as f64 + 8.0, "{spent} of {memory_bytes}");
        best.plan.design.validate().unwrap();
        // Ten percent more data does not need another level.
        let design = &best.plan.design;
        let grown = DataSet { entries: 10_990_000, ..situation(mix).data };
        assert_eq!(grown.levels(design).unwrap(), best.costs.levels);
    }
}

#[test]
fn the_buffer_is_one_that_the_engine_would_use() {
    let writes = situation([0.1, 0.0, 0.9, 0.0]);
    for memory_bytes in [24u64 << 20, 64 << 20, 256 << 20, 1 << 30] {
        let found = navigate(&writes, &memory(memory_bytes), &Options::ENGINE).unwrap();
        let all = [found.plan].into_iter().chain(found.alternatives.iter().map(|other| other.plan));
        for plan in
            all.chain(found.sensitivity.iter().filter(|row| row.input != Input::Memory).flat_map(|row| {
                [row.halved, row.doubled].into_iter().flatten().map(|response| response.plan)
            }))
        {
            assert!(plan.design.buffer_bytes <= memtable_bytes_max(memory_bytes), "{memory_bytes}: {plan:?}");
        }
    }
    // Too little memory for the rule: the smallest buffer is still allowed.
    let little = Situation { data: DataSet { entries: 1000, ..writes.data }, ..writes };
    navigate(&little, &memory(200 << 10), &Options::ENGINE).unwrap();
}

#[test]
fn a_cache_that_serves_repeats_gets_memory_that_filters_would_have_had() {
    let asked = situation([0.3, 0.6, 0.1, 0.0]);
    let zipf = MissRatioCurve::zipf(0.99, asked.data.entries, asked.data.entries_per_page()).unwrap();
    let skewed = Situation { locality: zipf, ..asked };
    for memory_bytes in [24u64 << 20, 64 << 20] {
        let of =
            |situation: &Situation| navigate(situation, &memory(memory_bytes), &Options::ENGINE).unwrap();
        let (even, uneven) = (of(&asked), of(&skewed));
        assert!(uneven.plan.cache_bytes > even.plan.cache_bytes, "{memory_bytes}: {uneven:?}");
        // The design for even lookups does worse on these than the design chosen for them.
        let kept = predict_merging(&skewed, &even.plan, Options::ENGINE.merging).unwrap();
        assert!(uneven.costs.cost_ns_per_op < kept.cost_ns_per_op, "{memory_bytes}");
        let (skewed_ns, even_ns) = (kept.lookup_ns, even.costs.lookup_ns);
        let has_cache = even.plan.cache_bytes > 0;
        assert!(if has_cache { skewed_ns < even_ns } else { skewed_ns == even_ns }, "{skewed_ns} {even_ns}");
        assert_eq!(even.costs.cache_miss_ratio, 1.0 - even.costs.cached_share);
        assert!(uneven.costs.cache_miss_ratio < 1.0 - uneven.costs.cached_share);
    }
}

#[test]
fn fences_that_memory_cannot_hold_are_read() {
    // 280,000 pages have 6.8 MB of fences.
    let situation = situation([0.2, 0.7, 0.1, 0.0]);
    let reads = |memory_bytes| {
        let best = navigate(&situation, &memory(memory_bytes), &PLAIN).unwrap();
        assert!(best.costs.found_lookup_ios < 3.0, "{}", best.costs.found_lookup_ios);
        best.costs.lookup_reads
    };
    // With 4 MB, 2 MB are fences: most searches first read a page of them.
    let (little, enough) = (reads(4_000_000), reads(16_000_000));
    assert!(little > enough + 0.7 * 0.6, "{little} {enough}");
}

#[test]
fn words_and_sensitivity_make_no_difference_of_a_tie() {
    let mixes = [
        [0.1, 0.0, 0.9, 0.0],
        [0.5, 0.0, 0.5, 0.0],
        [0.9, 0.0, 0.1, 0.0],
        [0.2, 0.2, 0.5, 0.1],
        [0.0, 0.02, 0.98, 0.0],
    ];
    for (mix, memory_bytes) in
        mixes.into_iter().flat_map(|mix| [12_000_000, 23_200_000, 90_000_000].map(|m| (mix, m)))
    {
        let found = navigate(&situation(mix), &memory(memory_bytes), &Options::ENGINE).unwrap();
        if let Some((best, rest)) = found.why.split_once(" is simpler than ") {
            let (other, _) = rest.split_once(", which is ").unwrap();
            assert!(best != other && !found.why.contains("only 0 %"), "{}", found.why);
        }
        for row in &found.sensitivity {
            for response in [row.halved, row.doubled].into_iter().flatten() {
                let (best, kept) = (response.throughput_per_s, response.kept_throughput_per_s.unwrap_or(0.0));
                assert!(kept <= best, "{mix:?} in {memory_bytes}: {row:?}");
                assert!(
                    !response.changes || best > kept * (1.0 + Options::ENGINE.tie),
                    "{mix:?} in {memory_bytes}: {row:?}"
                );
            }
        }
    }
}

#[test]
fn sensitivity_points_the_right_way() {
    let best = navigate(&situation([0.5, 0.1, 0.4, 0.0]), &memory(23_200_000), &Options::ENGINE).unwrap();
    let of = |input| best.sensitivity.iter().find(|row| row.input == input);
    assert!(of(Input::Ranges).is_none(), "there are none");
    let elasticity = |input| of(input).unwrap().elasticity.unwrap();
    assert!(elasticity(Input::Entries) < 0.0 && elasticity(Input::ReadTime) < 0.0);
    assert!(elasticity(Input::Memory) > 0.0 && elasticity(Input::WriteTime) < 0.0);
    // All time is the device's, and at least half of it is writes.
    let time = elasticity(Input::ReadTime) + elasticity(Input::WriteTime);
    assert!((time + 1.0).abs() < 0.05, "{time}");
    let memory = of(Input::Memory).unwrap();
    let doubled = memory.doubled.unwrap();
    // Keeping the design leaves the added memory unused; choosing again loses nothing.
    assert!(doubled.kept_throughput_per_s.unwrap() <= doubled.throughput_per_s * 1.01);
    assert!(memory.halved.unwrap().kept_throughput_per_s.is_none(), "it does not fit");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn any_input_gives_a_design_or_a_reason(
        situation in any_situation(), memory_bytes in any_count(),
        max_lookup_ios in prop::option::of(any_float()), max_update_ios in prop::option::of(any_float()),
        buffers in prop_oneof![3 => 1.0..4.0f64, 1 => any_float()], growth in prop_oneof![3 => 1.0..2.0f64, 1 => any_float()],
        fence_bytes_per_page in prop_oneof![3 => 0.0..100.0f64, 1 => any_float()],
        smallest_buffer_bytes in prop_oneof![3 => 1024u64..1 << 20, 1 => any_count()],
        block_cache: bool, sensitivity: bool,
    ) {
        let options = Options {
            buffers, growth, fence_bytes_per_page, smallest_buffer_bytes, block_cache, sensitivity, ..Options::ENGINE
        };
        let bounds = Bounds { memory_bytes, max_lookup_ios, max_update_ios };
        check(&situation, &bounds, &options)?;
    }

    #[test]
    fn any_sensible_input_gives_a_design_or_a_reason(
        entries in 1u64..1 << 50, entry_bytes in 1.0..1e6f64, page_bits in 9u32..20,
        mix in prop::array::uniform4(prop_oneof![1 => Just(0.0), 3 => 0.0..100.0f64]), range_selectivity in 0.0..1.0f64,
        read_ns in 10.0..1e8f64, write_ns in 0.0..1e8f64, memory_share in 1e-6..4.0f64,
        max_lookup_ios in prop::option::of(0.0..3.0f64), max_update_ios in prop::option::of(0.0..3.0f64),
        (block_cache, uncertainty) in (any::<bool>(), prop_oneof![2 => Just(0.0), 1 => 0.0..4.0f64]),
    ) {
        let [empty_lookups, found_lookups, updates, ranges] = mix;
        let situation = Situation {
            data: DataSet { entries, entry_bytes, page_bytes: 1 << page_bits },
            workload: Workload { empty_lookups, found_lookups, updates, ranges, range_selectivity },
            device: Device { read_ns, write_ns, cpu: CpuTimes::NONE },
            locality: MissRatioCurve::EVEN,
        };
        let memory_bytes = (situation.data.bytes() * memory_share) as u64;
        let options = Options { block_cache, uncertainty, sensitivity: false, ..Options::ENGINE };
        check(&situation, &Bounds { memory_bytes, max_lookup_ios, max_update_ios }, &options)?;
    }
}

/// Checks that the answer is a design within its bounds, or an error.
fn check(situation: &Situation, bounds: &Bounds, options: &Options) -> Result<(), TestCaseError> {
    match navigate(situation, bounds, options) {
        Ok(best) => {
            prop_assert!(best.plan.design.validate().is_ok());
            prop_assert!(best.costs.cost_ns_per_op.is_finite() && best.costs.throughput_per_s > 0.0);
            prop_assert!(best.costs.lookup_reads <= bounds.max_lookup_ios.unwrap_or(f64::MAX));
            prop_assert!(best.costs.merged_update_ios <= bounds.max_update_ios.unwrap_or(f64::MAX));
            for other in &best.alternatives {
                prop_assert!(
                    !other.why.is_empty() && !other.why.contains("NaN") && !other.why.contains("inf"),
                    "{}",
                    other.why
                );
            }
            for row in &best.sensitivity {
                prop_assert!(row.elasticity.is_none_or(f64::is_finite));
            }
            // The search is deterministic.
            let again = navigate(situation, bounds, options);
            prop_assert_eq!(again.as_ref().map(|again| &again.plan), Ok(&best.plan));
        }
        Err(why) => prop_assert!(!why.is_empty() && !why.contains("NaN bytes")),
    }
    Ok(())
}
