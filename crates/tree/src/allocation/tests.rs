//! Tests of the allocation: computed examples, and comparison with the best allocation in simulated
//! trees.

use shamba_filter::measured;
use shamba_model::allocation::{FilterLoad, Measured, RateCurve, false_positives_per_second};
use shamba_model::{Design, MergePolicy, Sizing};

use super::*;
use crate::simulate::{Simulation, SimulationSettings};
use shamba_key::KeyspaceId;

fn rule(allocation: Allocation) -> Rule {
    Rule { allocation, ..Rule::NEW }
}

fn tree(text: &str, entries_of: impl Fn(u64) -> u64) -> Version {
    let version: Version = text.parse().expect("notation");
    // The notation gives bytes; the entries are derived from them.
    let changes = version.runs().flat_map(|(level, run)| {
        let entries_of = &entries_of;
        run.tables().iter().map(move |table| {
            let meta =
                crate::version::TableMeta { entries: entries_of(table.live_bytes), ..table_meta(table) };
            let table = TableUse::whole(Arc::new(meta));
            crate::version::Change::Add { level, run: run.id, age: run.age, table }
        })
    });
    let edit = crate::version::VersionEdit { keyspace: KeyspaceId(0), changes: changes.collect() };
    Version::empty().apply(&edit).expect("a tree")
}

fn table_meta(table: &TableUse) -> crate::version::TableMeta {
    let meta = &table.meta;
    crate::version::TableMeta {
        id: meta.id,
        birth: meta.birth,
        file_bytes: table.live_bytes,
        entries: 0,
        deletes: 0,
        range_deletes: 0,
        smallest: meta.smallest.clone(),
        upper: meta.upper.clone(),
        smallest_seq: meta.smallest_seq,
        largest_seq: meta.largest_seq,
        bits_per_key: 10.0,
        reader: Default::default(),
        oldest_tombstone: Default::default(),
        older_versions: Default::default(),
        expiring: Default::default(),
        values: Default::default(),
        statistics: Default::default(),
    }
}

fn flushed(rule: Rule, version: &Version, keys: &str, entries: u64) -> f64 {
    let keys: KeyRange = keys.parse().expect("a range");
    let table = NewTable { entries, keys, empty_probes: 0.0, earlier_entries: 0 };
    Surroundings::of_flush(rule, version, entries).bits_per_key(&table)
}

#[test]
fn a_young_run_gets_more_the_smaller_it_is() {
    let version = tree("L1: r1@1[1:a..m 500, 2:m..z 500]\n", |bytes| bytes * 1000);
    let uniform = flushed(rule(Allocation::Uniform), &version, "b..y", 100_000);
    assert_eq!(uniform, 10.0);
    for allocation in [Allocation::Monkey, Allocation::Workload] {
        let bits: Vec<f64> = [1_000_000, 100_000, 10_000]
            .map(|entries| flushed(rule(allocation), &version, "b..y", entries))
            .to_vec();
        assert!((bits[0] - 10.0).abs() < 0.1, "{allocation}: alike is alike: {bits:?}");
        assert!(bits[1] > 13.0 && bits[1] < bits[2] && bits[2] <= BITS_PER_KEY_MAX, "{allocation}: {bits:?}");
    }
}

#[test]
fn the_first_flush_gets_the_mean_and_no_bits_are_no_filter() {
    for allocation in Allocation::ALL {
        let bits = flushed(rule(allocation), &Version::empty(), "a..z", 1_000);
        assert!((bits - 10.0).abs() < 1e-2, "{allocation}: {bits}");
        let none = Rule { budget: Budget::BitsPerKey(0.0), ..rule(allocation) };
        assert_eq!(flushed(none, &Version::empty(), "a..z", 1_000), 0.0);
        let sum = Rule { budget: Budget::Bits(8_000), ..rule(allocation) };
        assert!((flushed(sum, &Version::empty(), "a..z", 1_000) - 8.0).abs() < 1e-2);
        assert!(flushed(sum, &Version::empty(), "a..z", 10) <= BITS_PER_KEY_MAX, "what is of use, no more");
    }
}

#[test]
fn a_table_that_will_sink_gets_what_it_will_rest_with() {
    let version = tree("L1: r2@2[3:f..k 100]\nL2: r1@1[1:a..m 500, 2:m..t 500]\n", |bytes| bytes * 1000);
    let monkey = rule(Allocation::Monkey);
    let overlapping = flushed(monkey, &version, "b..p", 10_000);
    let beyond = flushed(monkey, &version, "x..z", 10_000);
    let to_level_1 = flushed(monkey, &version, "n..p", 10_000);
    assert!(overlapping > to_level_1 && to_level_1 > beyond + 2.0, "{overlapping} {to_level_1} {beyond}");
    assert!((beyond - 10.0).abs() < 1.0, "as the last run: {beyond}");
    // Keys that only grow: one run in several pieces, all of which get the mean.
    let growing = tree("L0: r3@3[3:p..q 100] r2@2[2:n..o 100]\nL1: r1@1[1:a..m 500]\n", |bytes| bytes * 1000);
    assert!((flushed(monkey, &growing, "x..z", 100_000) - 10.0).abs() < 1e-2);
}

#[test]
fn a_key_that_is_found_needs_no_filter_on_the_way_down_to_it() {
    let version = tree("L1: r1@1[1:a..z 1000]\n", |bytes| bytes * 1000);
    let found = LookupWindow { lookups: 1e6, found: 1e6, ..LookupWindow::default() };
    let with = |window| flushed(Rule { window, ..rule(Allocation::Monkey) }, &version, "b..y", 100_000);
    assert!(
        with(found) > with(LookupWindow::default()) + 1.0,
        "{} {}",
        with(found),
        with(LookupWindow::default())
    );
}

#[test]
fn what_is_asked_for_gets_more_than_what_is_not() {
    let version = tree("L1: r1@1[1:a..m 500, 2:m..z 500]\n", |bytes| bytes * 1000);
    for (table, empty) in version.tables().map(|(_, _, table)| table).zip([100_000.0, 10.0]) {
        table.meta.statistics.begin_with(Probes::new(empty, 0.0, 0.0));
    }
    let window = LookupWindow { lookups: 100_010.0, ..LookupWindow::default() };
    let bits = wanted(Rule { window, ..rule(Allocation::Workload) }, &version);
    assert!(bits[0] > bits[1] + 2.0 && bits[1] > 0.0, "{bits:?}");
    assert!((bits[0] + bits[1] - 20.0).abs() < 1e-2, "the mean is kept: {bits:?}");
    let even = wanted(Rule { window, ..rule(Allocation::Monkey) }, &version);
    assert_eq!(even[0], even[1]);
    assert!(is_stale(10.0, bits[0]) || is_stale(10.0, bits[1]) || (bits[0] - 10.0).abs() <= 2.5, "{bits:?}");
}

#[test]
fn bits_too_few_for_a_filter_go_to_the_others() {
    let version =
        tree("L1: r3@3[3:b..y 10]\nL2: r2@2[2:b..y 100]\nL3: r1@1[1:a..z 1000]\n", |bytes| bytes * 1000);
    let entries = [10.0, 100.0, 1000.0];
    let mut without = 0;
    for mean in [0.2, 0.5, 1.0, 1.3, 2.0, 3.0, 10.0] {
        for allocation in [Allocation::Monkey, Allocation::Workload] {
            let rule = Rule { budget: Budget::BitsPerKey(mean), ..rule(allocation) };
            let bits = wanted(rule, &version);
            let written = bits.iter().zip(entries).map(|(bits, entries)| bits * entries).sum::<f64>();
            let seen = format!("{allocation}, {mean}: {bits:?}");
            assert!(bits.iter().all(|bits| *bits == 0.0 || *bits >= BITS_PER_KEY_MIN), "{seen}");
            assert!((written / 1110.0 / mean - 1.0).abs() < 0.01, "all of it is given: {seen}");
            without += usize::from(bits.contains(&0.0));
        }
    }
    assert!(without > 1, "some run went without");
}

#[test]
fn of_loads_with_too_few_the_poorer_half_goes_first() {
    let loads: Vec<FilterLoad> =
        (0..4).map(|at| FilterLoad { entries: 100, empty_probes_per_second: f64::from(at) }).collect();
    // 240 bits for all loads: the larger of the small shares are enough once the smallest are
    // removed.
    let solve = |asking: &[FilterLoad]| -> Result<Vec<u64>, String> {
        let sum: f64 = asking.iter().map(|load| load.empty_probes_per_second).sum();
        Ok(asking.iter().map(|load| (240.0 * load.empty_probes_per_second / sum) as u64).collect())
    };
    let shares = worth_their_probes(&loads, solve).expect("shares");
    assert_eq!(shares, [0.0, 0.0, 0.0, 2.4], "{shares:?}");
    assert!(worth_their_probes(&loads, |_| Err("no".to_owned())).is_err());
    assert_eq!(worth_their_probes(&loads, |asking| Ok(vec![0; asking.len()])).expect("none"), [0.0; 4]);
}

/// Mean bits per key of a tree, and the cost of its false positives relative to the best
/// allocation.
fn mean_and_excess(version: &Version, rule: Rule) -> (f64, f64) {
    let surroundings = Surroundings::at_rest(rule, version);
    let weights = Allocation::Monkey.loads(&surroundings.sites, Lookups::default()).expect("loads");
    let entries: Vec<u64> = version.tables().map(|(_, _, table)| live_entries(table)).collect();
    let loads: Vec<FilterLoad> = weights;
    let written: Vec<u64> = version
        .tables()
        .zip(&entries)
        .map(|((_, _, table), entries)| (table.meta.bits_per_key * *entries as f64) as u64)
        .collect();
    let all: u64 = entries.iter().sum();
    let mean = written.iter().sum::<u64>() as f64 / all as f64;
    let curve =
        Measured::from_fn(|bits| measured::fpr(rule.layout, bits), BITS_PER_KEY_MAX).expect("a curve");
    assert!(curve.fpr(10.0) < 0.011);
    let best = allocate(&loads, &curve, all * 10, Limits::default()).expect("shares");
    let cost = |bits: &[u64]| false_positives_per_second(&loads, bits, &curve);
    (mean, cost(&written) / cost(&best.bits) - 1.0)
}

/// Grows a tree and returns the worst values once it has two levels: the largest deviation of the
/// mean, the mean excess and the worst excess.
fn grown(allocation: Allocation, policy: MergePolicy, size_ratio: f64, sizing: Sizing) -> (f64, f64, f64) {
    let rule = rule(allocation);
    let design = Design::new(policy, size_ratio, 1600, 10.0);
    let settings = SimulationSettings { rule: Some(rule), sizing, ..SimulationSettings::new(design, 11) };
    let mut simulation = Simulation::new(settings);
    let flushes = if size_ratio < 4.0 { 120 } else { 400 };
    let (mut farthest, mut excess, mut worst) = (0.0f64, Vec::new(), 0.0f64);
    for _ in 0..flushes {
        simulation.flush().and_then(|()| simulation.run_due_jobs()).unwrap_or_else(|why| panic!("{why}"));
        if simulation.version.deepest_level() < 2 {
            continue;
        }
        let (mean, over) = mean_and_excess(&simulation.version, rule);
        farthest = farthest.max((mean / 10.0 - 1.0).abs());
        worst = worst.max(over);
        excess.push(over);
    }
    (farthest, excess.iter().sum::<f64>() / excess.len() as f64, worst)
}

#[test]
fn trees_that_grow_stay_near_the_best() {
    for policy in [MergePolicy::Leveling, MergePolicy::Tiering, MergePolicy::LazyLeveling] {
        for size_ratio in [2.0, 10.0] {
            for sizing in [Sizing::Manual, Sizing::Auto] {
                let uniform = grown(Allocation::Uniform, policy, size_ratio, sizing);
                assert!(uniform.0 < 1e-9, "uniform is exact: {uniform:?}");
                let monkey = grown(Allocation::Monkey, policy, size_ratio, sizing);
                // Each run of a tiered level was built when the tree was smaller.
                let is_tiered = policy != MergePolicy::Leveling && size_ratio > 2.0;
                let (mean, excess) = if is_tiered { (0.25, 0.1) } else { (0.08, 0.1) };
                let seen = format!("{policy}, T={size_ratio}, {sizing}: {monkey:?}, uniform {uniform:?}");
                assert!(monkey.0 < mean && monkey.1 < excess, "{seen}");
                assert!(monkey.1 < uniform.1 / 2.0, "{seen}");
            }
        }
    }
}
