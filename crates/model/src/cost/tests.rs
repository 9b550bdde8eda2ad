//! The test vectors, costs term by term, and the whole input space.

use super::*;
use crate::MergePolicy;
use crate::miss_ratio::MissRatioCurve;
use proptest::prelude::*;

const EMPTY_LOOKUPS: Workload =
    Workload { empty_lookups: 1.0, found_lookups: 0.0, updates: 0.0, ranges: 0.0, range_selectivity: 0.0 };
/// A device in counting mode: reads and writes cost 1, CPU work nothing.
const COUNTING: Device = Device { read_ns: 1.0, write_ns: 1.0, cpu: CpuTimes::NONE };

/// The tree of Monkey's figure 7: 512 GiB.
fn figure_7() -> (Situation, Plan) {
    let data = DataSet { entries: 1 << 35, entry_bytes: 16.0, page_bytes: 4096 };
    let situation =
        Situation { data, workload: EMPTY_LOOKUPS, device: COUNTING, locality: MissRatioCurve::EVEN };
    (situation, plan(MergePolicy::Leveling, 4.0, 2 << 20, FilterBits::PerKey(1.0)))
}

fn plan(policy: MergePolicy, size_ratio: f64, buffer_bytes: u64, filters: FilterBits) -> Plan {
    Plan {
        design: Design::new(policy, size_ratio, buffer_bytes, 10.0),
        filters,
        allocation: Allocation::Monkey,
        cache_bytes: 0,
        levels: None,
    }
}

#[track_caller]
fn near(value: f64, expected: f64, within: f64) {
    assert!((value - expected).abs() <= within, "{value} is not {expected}");
}

#[test]
fn the_tree_of_figure_7() {
    let (situation, plan) = figure_7();
    for (gib, unfiltered_levels, closed, exact, uniform) in [
        (0.0, 9, 9.0, 9.0, 9.0),
        (1.0, 1, 2.30908, 2.30883, 7.98138),
        (4.0, 0, 1.30908, 1.30902, 5.56653),
        (8.0, 0, 0.80967, 0.80963, 3.44292),
        (16.0, 0, 0.30974, 0.30972, 1.31707),
        (35.0, 0, 0.03161, 0.03161, 0.13443),
    ] {
        let filters = FilterBits::Bytes(gib * (1u64 << 30) as f64);
        let monkey = predict(&situation, &Plan { filters, ..plan }).unwrap();
        assert_eq!((monkey.levels, monkey.unfiltered_levels), (9, unfiltered_levels), "{gib} GiB");
        near(monkey.zero_result_lookup_ios, closed, 5e-6);
        near(monkey.zero_result_lookup_ios_exact, exact, 5e-6);
        near(monkey.lookup_reads, exact, 5e-6);
        let plan = Plan { filters, allocation: Allocation::Uniform, ..plan };
        let uniform_costs = predict(&situation, &plan).unwrap();
        near(uniform_costs.zero_result_lookup_ios, uniform, 5e-6);
        near(uniform_costs.zero_result_lookup_ios_exact, uniform, 5e-6);
        near(uniform_costs.nonzero_result_lookup_ios, uniform * 8.0 / 9.0 + 1.0, 5e-6);
    }
}

#[test]
fn mixed_lookups_for_the_papers_shares() {
    let (situation, plan) = figure_7();
    for (policy, costs) in [
        (MergePolicy::Leveling, [(0.0, 0.017340), (1.0, 0.510310), (9.0, 0.903084)]),
        (MergePolicy::Tiering, [(0.0, 0.052019), (1.0, 0.538379), (9.0, 0.926164)]),
    ] {
        for (found_lookups, expected) in costs {
            let situation = Situation { workload: Workload { found_lookups, ..EMPTY_LOOKUPS }, ..situation };
            let design = Design::new(policy, 4.0, 2 << 20, 10.0);
            let plan = Plan { design, filters: FilterBits::PerKey(10.0), levels: Some(12), ..plan };
            let costs = predict(&situation, &plan).unwrap();
            near(costs.mixed_lookup_ios, expected, 5e-7);
            near(costs.mixed_lookup_ios_exact, expected, 2e-6);
            // The same from its parts: [13].
            let empty_fraction = 1.0 / (found_lookups + 1.0);
            let runs = plan.design.last_runs as f64;
            let found =
                costs.zero_result_lookup_ios_exact + 1.0 - costs.fpr_per_level[11] * (runs + 1.0) / 2.0;
            let parts = empty_fraction * costs.zero_result_lookup_ios_exact + (1.0 - empty_fraction) * found;
            near(costs.mixed_lookup_ios_exact, parts, 1e-12);
        }
    }
}

#[test]
fn lazy_leveling_costs_what_its_levels_do() {
    // Dostoevsky: sum of K p_i for i < L, and Z p_L; (L-1)/B (T-1)/(K+1) + (T-1)/(B (Z+1)).
    let (situation, plan) = figure_7();
    let design = Design::new(MergePolicy::LazyLeveling, 4.0, 2 << 20, 10.0);
    let plan = Plan { design, filters: FilterBits::PerKey(10.0), ..plan };
    let costs = predict(&situation, &plan).unwrap();
    let fprs = &costs.fpr_per_level;
    let sum = fprs[..8].iter().sum::<f64>() * 3.0 + fprs[8];
    near(costs.zero_result_lookup_ios_exact, sum, 1e-12);
    near(costs.zero_result_lookup_ios / sum, 1.0, 1e-4);
    near(costs.update_ios, (8.0 * 0.75 + 1.5) / 256.0 * 2.0, 1e-12);
    assert_eq!((costs.runs, costs.range_ios), (25, 25.0));
    // Between the two others, as in the paper: lookups near leveling's, updates nearer to
    // tiering's.
    let of = |policy| {
        let design = Design::new(policy, 4.0, 2 << 20, 10.0);
        predict(&situation, &Plan { design, ..plan }).unwrap()
    };
    let (leveling, tiering) = (of(MergePolicy::Leveling), of(MergePolicy::Tiering));
    assert!(leveling.zero_result_lookup_ios < costs.zero_result_lookup_ios);
    assert!(costs.zero_result_lookup_ios < tiering.zero_result_lookup_ios / 2.0);
    assert!(tiering.update_ios < costs.update_ios && costs.update_ios < leveling.update_ios);
}

#[test]
fn time_is_pages_and_computing_and_the_cache_spares_its_share() {
    let (mut situation, plan) = figure_7();
    situation.workload = Workload {
        empty_lookups: 2.0,
        found_lookups: 6.0,
        updates: 8.0,
        ranges: 4.0,
        range_selectivity: 1e-9,
    };
    let cpu = CpuTimes { hash_ns: 20.0, probe_ns: 10.0, search_ns: 300.0, shared_digest: true };
    situation.device = Device { read_ns: 100_000.0, write_ns: 50_000.0, cpu };
    let cached = Plan { cache_bytes: 1 << 38, ..plan };
    let costs = predict(&situation, &cached).unwrap();
    assert_eq!(costs.cached_share, 0.5);
    let all = predict(&situation, &plan).unwrap();
    near(costs.lookup_reads, all.lookup_reads / 2.0, 1e-12);
    let cpu_ns = 20.0 + all.filters_per_lookup * 10.0 + all.lookup_reads * 300.0;
    near(costs.cpu_ns_per_lookup, cpu_ns, 1e-6);
    near(costs.lookup_ns, costs.lookup_reads * 1e5 + cpu_ns, 1e-6);
    near(costs.update_ns, costs.update_ios * 1e5, 1e-6);
    near(costs.range_ns, costs.range_ios * 5e4 + 9.0 * 300.0, 1e-6);
    let cost = 0.4 * costs.lookup_ns + 0.4 * costs.update_ns + 0.2 * costs.range_ns;
    near(costs.cost_ns_per_op / cost, 1.0, 1e-12);
    near(costs.throughput_per_s * cost, 1e9, 1e-3);
    let theta = 0.4 * all.mixed_lookup_ios + 0.4 * all.update_ios + 0.2 * all.range_ios;
    near(all.operation_ios, theta, 1e-12);
    // A cache larger than the data, and a hash for every filter.
    let whole = predict(&situation, &Plan { cache_bytes: u64::MAX, ..plan }).unwrap();
    assert_eq!((whole.cached_share, whole.lookup_reads), (1.0, 0.0));
    // Skewed lookups hit the same cache more often; ranges do not.
    let skewed = Situation { locality: MissRatioCurve::from_fn(|share| (1.0 - share).powi(3)), ..situation };
    let repeated = predict(&skewed, &cached).unwrap();
    near(repeated.cache_miss_ratio, 0.125, 1e-12);
    near(repeated.lookup_reads, all.lookup_reads / 8.0, 1e-12);
    near(repeated.empty_lookup_reads, all.zero_result_lookup_ios_exact / 8.0, 1e-12);
    near(repeated.found_lookup_reads, all.found_lookup_ios / 8.0, 1e-12);
    assert_eq!((repeated.range_ns, repeated.update_ns), (costs.range_ns, costs.update_ns));
    assert!(repeated.cost_ns_per_op < costs.cost_ns_per_op);
    assert_eq!(predict(&skewed, &plan).unwrap().lookup_ns, all.lookup_ns);
    situation.device.cpu.shared_digest = false;
    let hashing = predict(&situation, &plan).unwrap();
    assert_eq!(hashing.hashes_per_lookup, hashing.filters_per_lookup);
    near(hashing.cpu_ns_per_lookup - all.cpu_ns_per_lookup, (hashing.filters_per_lookup - 1.0) * 20.0, 1e-6);
}

#[test]
fn bad_input_is_refused_with_its_reason() {
    let (good, plan) = figure_7();
    let refused = |change: &dyn Fn(&mut Situation, &mut Plan), part: &str| {
        let (mut situation, mut plan) = (good, plan);
        change(&mut situation, &mut plan);
        let error = predict(&situation, &plan).unwrap_err();
        assert!(error.contains(part), "{error}");
    };
    refused(&|situation, _| situation.data.entries = 0, "no entries");
    refused(&|situation, _| situation.data.page_bytes = 0, "page");
    refused(&|situation, _| situation.workload.empty_lookups = 0.0, "no operations");
    refused(&|situation, _| situation.device.read_ns = 0.0, "time of a read");
    refused(&|_, plan| plan.levels = Some(0), "levels");
    refused(&|_, plan| plan.levels = Some(65), "levels");
    refused(&|_, plan| plan.design.size_ratio = 1.0, "size_ratio");
    refused(&|_, plan| plan.design.buffer_bytes = 0, "write_buffer");
    for bad in [f64::NAN, -1.0, f64::INFINITY] {
        refused(&|situation, _| situation.data.entry_bytes = bad, "bytes of an entry");
        refused(&|situation, _| situation.workload.empty_lookups = bad, "empty lookups");
        refused(&|situation, _| situation.workload.found_lookups = bad, "found lookups");
        refused(&|situation, _| situation.workload.updates = bad, "updates");
        refused(&|situation, _| situation.workload.ranges = bad, "range lookups");
        refused(&|situation, _| situation.workload.range_selectivity = bad, "selectivity");
        refused(&|situation, _| situation.device.read_ns = bad, "time of a read");
        refused(&|situation, _| situation.device.write_ns = bad, "time of a write");
        refused(&|situation, _| situation.device.cpu.hash_ns = bad, "time of a hash");
        refused(&|situation, _| situation.device.cpu.probe_ns = bad, "time of a probe");
        refused(&|situation, _| situation.device.cpu.search_ns = bad, "time of a search");
        refused(&|_, plan| plan.filters = FilterBits::PerKey(bad), "filters' bits per key");
        refused(&|_, plan| plan.filters = FilterBits::Bytes(bad), "filters' bytes");
    }
}

/// Any float, most of them outside the valid range.
pub(crate) fn any_float() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => 0.0..1000.0f64,
        1 => any::<u64>().prop_map(f64::from_bits),
        1 => prop::sample::select(vec![
            0.0, -0.0, 1.0, -1.0, 5e-324, 1e-310, 1e300, f64::MAX, f64::INFINITY, f64::NAN, 1e-300,
        ]),
        2 => (-300..300i32).prop_map(|exponent| 10f64.powi(exponent)),
    ]
}

/// Any number of bytes or entries.
pub(crate) fn any_count() -> impl Strategy<Value = u64> {
    prop_oneof![
        2 => any::<u64>(),
        1 => prop::sample::select(vec![0, 1, 2, 1 << 20, u64::MAX]),
        4 => (0..64u32, any::<u64>()).prop_map(|(shift, bits)| bits >> shift),
    ]
}

prop_compose! {
    /// Any situation, valid or not.
    pub(crate) fn any_situation()(
        entries in any_count(), page_bytes in any_count(), entry_bytes in any_float(),
        rates in prop::array::uniform4(any_float()), range_selectivity in prop_oneof![0.0..=1.0f64, any_float()],
        times in prop::array::uniform5(any_float()), shared_digest: bool, steepness in any_float(),
    ) -> Situation {
        let [empty_lookups, found_lookups, updates, ranges] = rates;
        let [read_ns, write_ns, hash_ns, probe_ns, search_ns] = times;
        let cpu = CpuTimes { hash_ns, probe_ns, search_ns, shared_digest };
        Situation {
            data: DataSet { entries, entry_bytes, page_bytes },
            workload: Workload { empty_lookups, found_lookups, updates, ranges, range_selectivity },
            device: Device { read_ns, write_ns, cpu },
            locality: MissRatioCurve::from_fn(|share| (1.0 - share).powf(steepness)),
        }
    }
}

prop_compose! {
    /// Any plan, valid or not.
    fn any_plan()(
        size_ratio in prop_oneof![4 => 2.0..1024.0f64, 4 => 2.0..20.0f64, 1 => any_float()],
        inner_runs in prop_oneof![0..1030u32, 1..4u32], last_runs in prop_oneof![0..1030u32, 1..4u32],
        buffer_bytes in any_count(), amount in any_float(), per_key: bool, allocation in 0..3usize,
        cache_bytes in any_count(), levels in prop::option::of(0..70u32),
    ) -> Plan {
        Plan {
            design: Design { size_ratio, inner_runs, last_runs, buffer_bytes, bits_per_key: 10.0 },
            filters: if per_key { FilterBits::PerKey(amount) } else { FilterBits::Bytes(amount) },
            allocation: Allocation::ALL[allocation],
            cache_bytes,
            levels,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn costs_are_numbers_or_errors(situation in any_situation(), plan in any_plan()) {
        // `predict` returns an error for a cost that is not finite; check the plausibility of the
        // others.
        match predict(&situation, &plan) {
            Ok(costs) => {
                prop_assert_eq!(costs.fpr_per_level.len(), costs.levels as usize);
                prop_assert!(costs.fpr_per_level.iter().all(|fpr| (0.0..=1.0).contains(fpr)));
                prop_assert!(costs.zero_result_lookup_ios_exact <= costs.runs as f64 * (1.0 + 1e-9));
                prop_assert!(costs.update_ios >= 0.0 && costs.space_amplification >= 1.0 - 1e-9);
                prop_assert!((0.0..=1.0).contains(&costs.cached_share));
                prop_assert!((0.0..=1.0).contains(&costs.cache_miss_ratio));
            }
            Err(why) => prop_assert!(!why.is_empty()),
        }
    }

    #[test]
    fn more_filters_never_cost_more_and_monkey_never_more_than_uniform(
        policy in 0..3usize, size_ratio in 2.0..30.0f64, bits in 0.0..20.0f64, more in 0.0..5.0f64,
        found_lookups in 0.0..5.0f64, entries in 1u64..1 << 50,
    ) {
        let (mut situation, plan) = figure_7();
        situation.data.entries = entries;
        situation.workload.found_lookups = found_lookups;
        let design = Design::new(MergePolicy::ALL[policy], size_ratio, 1 << 20, 10.0);
        let of = |bits, allocation| {
            let plan = Plan { design, filters: FilterBits::PerKey(bits), allocation, ..plan };
            predict(&situation, &plan).unwrap().mixed_lookup_ios_exact
        };
        let monkey = of(bits, Allocation::Monkey);
        prop_assert!(of(bits + more, Allocation::Monkey) <= monkey * (1.0 + 1e-9));
        prop_assert!(monkey <= of(bits, Allocation::Uniform) * (1.0 + 1e-9));
    }
}
