//! Plans against exhaustive search, against Monkey, and on bad input.

use super::*;
use crate::allocation::{FilterLoad, Limits, Theory, allocate};
use crate::monkey::bloom_fpr;
use proptest::prelude::*;

fn file(empty_per_second: f64, found_per_second: f64, search_ns: f64, modules: &[(u64, f64)]) -> FileModules {
    FileModules {
        probes: FileProbes { empty_per_second, found_per_second },
        search_ns,
        modules: modules.iter().map(|&(bytes, fpr)| Module { bytes, slices: 1, fpr }).collect(),
    }
}

/// The maximum saving of any choice of first modules within the budget, by trying all.
fn exhaustive(files: &[FileModules], probe_ns: f64, budget_bytes: u64) -> f64 {
    let Some((file, others)) = files.split_first() else {
        return 0.0;
    };
    let fprs: Vec<f64> = file.modules.iter().map(|module| module.fpr).collect();
    let saved = file.probes.searches_saved_per_second(&fprs).unwrap();
    let reaching = file.probes.reaching_per_second(&fprs).unwrap();
    let (mut best, mut bytes, mut net) = (exhaustive(others, probe_ns, budget_bytes), 0, 0.0);
    for (at, module) in file.modules.iter().enumerate() {
        bytes += module.bytes;
        net += saved[at] * file.search_ns - reaching[at] * probe_ns;
        if bytes > budget_bytes {
            break;
        }
        best = f64::max(best, net + exhaustive(others, probe_ns, budget_bytes - bytes));
    }
    best
}

#[test]
fn the_best_modules_per_byte_are_loaded_first() {
    let files =
        [file(100.0, 0.0, 1.0, &[(10, 0.1), (10, 0.1)]), file(1.0, 99.0, 1.0, &[(10, 0.1), (10, 0.1)])];
    let planner = ResidencyPlanner::new(&files, 0.0).unwrap();
    // 90, 9, 0.9 and 0.09 searches a second.
    for (budget, slices, saved) in [
        (9, [[0, 0], [0, 0]], 0.0),
        (10, [[1, 0], [0, 0]], 90.0),
        (29, [[1, 1], [0, 0]], 99.0),
        (30, [[1, 1], [1, 0]], 99.9),
        (99, [[1, 1], [1, 1]], 99.99),
    ] {
        let plan = planner.plan(budget);
        assert_eq!((plan.slices, plan.bytes), (slices.map(Vec::from).to_vec(), (budget / 10 * 10).min(40)));
        assert!((plan.saved_ns_per_second - saved).abs() < 1e-9);
    }
    // A probe that costs more than it saves gets no memory: only the first file's modules pay.
    let planner = ResidencyPlanner::new(&files, 0.5).unwrap();
    assert_eq!(planner.plan(99).slices, [[1, 1], [0, 0]]);
    assert_eq!(planner.savings().useful_bytes(), 20);
}

#[test]
fn a_module_that_does_not_fit_comes_in_slices() {
    let mut files = [file(10.0, 0.0, 1.0, &[(100, 0.5), (100, 0.5)]), file(1.0, 0.0, 1.0, &[(7, 0.5)])];
    files[0].modules[0].slices = 4;
    files[0].modules[1].slices = 8;
    let planner = ResidencyPlanner::new(&files, 0.0).unwrap();
    // 13 bytes a slice of the second module. The remaining bytes hold the other file.
    let plan = planner.plan(100 + 2 * 13 + 9);
    assert_eq!(plan.slices, [vec![4, 2], vec![1]]);
    assert_eq!((plan.bytes, plan.saved_ns_per_second), (133, 5.0 + 2.5 * 2.0 / 8.0 + 0.5));
    assert_eq!(planner.plan(60).slices, [vec![2, 0], vec![1]]);
}

#[test]
fn modules_that_pay_only_together_are_loaded_together() {
    // A first module that does not pay alone, before a good one; each alone would be skipped.
    let files = [file(100.0, 0.0, 10.0, &[(10, 0.99), (10, 0.01)])];
    let planner = ResidencyPlanner::new(&files, 1.0).unwrap();
    assert_eq!(planner.plan(19).slices, [[0, 0]]);
    assert_eq!(planner.plan(20).slices, [[1, 1]]);
}

#[test]
fn even_lookups_make_monkey_of_it() {
    // Levels of 100, 1,000 and 10,000 keys; modules of a quarter of a bit per key (a "byte" here),
    // in slices of 100 of them.
    let levels = [100u64, 1_000, 10_000];
    let module =
        |entries: u64| Module { bytes: entries, slices: (entries / 100) as u32, fpr: bloom_fpr(0.25) };
    let mut files = levels.map(|_| file(1.0, 0.0, 1.0, &[]));
    for (file, entries) in files.iter_mut().zip(levels) {
        file.modules = vec![module(entries); 100];
    }
    let planner = ResidencyPlanner::new(&files, 0.0).unwrap();
    let loads: Vec<FilterLoad> =
        levels.iter().map(|entries| FilterLoad { entries: *entries, empty_probes_per_second: 1.0 }).collect();
    for bits_per_key in [1, 2, 5, 10] {
        let total_bits = 11_100 * bits_per_key;
        let plan = planner.plan(total_bits * 4);
        let shares = allocate(&loads, &Theory, total_bits, Limits::default()).unwrap();
        for ((entries, bits), slices) in levels.iter().zip(&shares.bits).zip(&plan.slices) {
            let resident = f64::from(slices.iter().sum::<u32>()) * 100.0 / *entries as f64 * 0.25;
            let allocated = *bits as f64 / *entries as f64;
            assert!((allocated - resident).abs() <= 0.25, "{allocated} {resident}");
        }
    }
}

#[test]
fn what_is_resident_stays_while_it_is_worth_about_as_much() {
    let files = |first, second| [first, second].map(|empty| file(empty, 0.0, 1.0, &[(10, 0.1), (10, 0.1)]));
    let plan = |files: &[FileModules]| ResidencyPlanner::new(files, 0.0).unwrap();
    let resident = plan(&files(11.0, 10.0)).plan(10);
    assert_eq!(resident.slices, [[1, 0], [0, 0]]);
    for (second, slices) in [(13.0, [[1, 0], [0, 0]]), (15.0, [[0, 0], [1, 0]])] {
        let planner = plan(&files(11.0, second));
        assert_eq!(planner.plan(10).slices, [[0, 0], [1, 0]]);
        assert_eq!(planner.keeping(&resident, 0.3).unwrap().plan(10).slices, slices);
    }
    let refused = |files: &[FileModules], margin| plan(files).keeping(&resident, margin).unwrap_err();
    assert!(refused(&files(1.0, 1.0), f64::NAN).contains("margin"));
    assert!(refused(&files(1.0, 1.0)[..1], 0.3).contains("other files"));
    assert!(refused(&files(1.0, 1.0).map(|_| file(1.0, 1.0, 1.0, &[(9, 0.5)])), 0.3).contains("other files"));
}

#[test]
fn bad_input_is_refused_with_its_reason() {
    for (bytes, slices) in [(0, 1), (5, 0), (5, 6)] {
        let mut files = [file(1.0, 1.0, 1.0, &[(1, 0.5), (1, 0.5)])];
        (files[0].modules[1].bytes, files[0].modules[1].slices) = (bytes, slices);
        let error = ResidencyPlanner::new(&files, 0.0).unwrap_err();
        assert!(error.contains("file 0: module 1") && error.contains("slices"), "{error}");
    }
    for bad in [f64::NAN, -1.0, f64::INFINITY] {
        let refused = |files: &[FileModules], probe_ns| ResidencyPlanner::new(files, probe_ns).unwrap_err();
        assert!(refused(&[], bad).contains("probe"));
        assert!(refused(&[file(bad, 0.0, 1.0, &[])], 0.0).contains("file 0: empty probes"));
        assert!(refused(&[file(1.0, bad, 1.0, &[])], 0.0).contains("find their key"));
        assert!(refused(&[file(1.0, 1.0, bad, &[])], 0.0).contains("cost of a search"));
        assert!(refused(&[file(1.0, 1.0, 1.0, &[(9, bad)])], 0.0).contains("module 0"));
    }
    assert!(ResidencyPlanner::new(&[file(1e300, 0.0, 1e300, &[(9, 0.5)])], 0.0).is_err());
}

/// Files of one to three modules.
fn files(module_bytes: impl Strategy<Value = u64>) -> impl Strategy<Value = Vec<FileModules>> {
    let modules = prop::collection::vec((module_bytes, 0.0..=1.0f64), 1..4);
    let one = (0.0..100.0f64, 0.0..100.0f64, 0.1..10.0f64, modules);
    prop::collection::vec(
        one.prop_map(|(empty, found, search_ns, modules)| file(empty, found, search_ns, &modules)),
        1..5,
    )
}

proptest! {
    #[test]
    fn with_modules_of_one_size_and_rate_no_plan_is_better(
        files in files(Just(4)), fpr in 0.0..1.0f64, budget in 0u64..60, probe_ns in 0.0..2.0f64,
    ) {
        let mut files = files;
        for module in files.iter_mut().flat_map(|file| &mut file.modules) {
            module.fpr = fpr;
        }
        let best = exhaustive(&files, probe_ns, budget);
        let plan = ResidencyPlanner::new(&files, probe_ns).unwrap().plan(budget);
        prop_assert!((plan.saved_ns_per_second - best).abs() < 1e-9, "{} {best}", plan.saved_ns_per_second);
    }

    #[test]
    fn at_each_step_of_the_curve_no_plan_is_better_and_between_none_by_more_than_it(
        files in files(1u64..12), budget in 0u64..80, probe_ns in 0.0..2.0f64,
    ) {
        let planner = ResidencyPlanner::new(&files, probe_ns).unwrap();
        let mut bytes = 0;
        for step in &planner.steps {
            bytes += step.holding.bytes;
            let plan = planner.plan(bytes);
            prop_assert_eq!(plan.bytes, bytes);
            prop_assert!((plan.saved_ns_per_second - exhaustive(&files, probe_ns, bytes)).abs() < 1e-9);
        }
        let plan = planner.plan(budget);
        prop_assert!(plan.bytes <= budget);
        let best = exhaustive(&files, probe_ns, budget);
        let bound = planner.savings().saved_ns_per_second(budget);
        prop_assert!(plan.saved_ns_per_second <= best + 1e-9 && best <= bound + 1e-9);
        let largest = planner.steps.iter().map(|step| step.holding.saved_ns_per_second).fold(0.0, f64::max);
        prop_assert!(bound - plan.saved_ns_per_second <= largest + 1e-9);
    }

    #[test]
    fn keeping_what_is_resident_costs_no_more_than_the_margin(
        files in files(Just(4)), other in prop::collection::vec(0.0..100.0f64, 5), budget in 0u64..60,
        fpr in 0.0..1.0f64, margin in 0.0..1.0f64,
    ) {
        let mut files = files;
        for module in files.iter_mut().flat_map(|file| &mut file.modules) {
            module.fpr = fpr;
        }
        let mut before = files.clone();
        for (file, empty_per_second) in before.iter_mut().zip(other) {
            file.probes.empty_per_second = empty_per_second;
        }
        let resident = ResidencyPlanner::new(&before, 0.0).unwrap().plan(budget);
        let planner = ResidencyPlanner::new(&files, 0.0).unwrap();
        let best = planner.plan(budget);
        let kept = planner.keeping(&resident, margin).unwrap().plan(budget);
        prop_assert!(kept.bytes <= budget);
        prop_assert!(kept.saved_ns_per_second * (1.0 + margin) >= best.saved_ns_per_second - 1e-9);
    }

    #[test]
    fn sliced_plans_are_within_a_slice_of_the_curve(
        files in files(100u64..1_000), budget in 0u64..10_000, slices in 1u32..16,
    ) {
        let mut files = files;
        for module in files.iter_mut().flat_map(|file| &mut file.modules) {
            (module.slices, module.fpr) = (slices, 0.3);
            module.bytes = 960;
        }
        let planner = ResidencyPlanner::new(&files, 0.0).unwrap();
        let plan = planner.plan(budget);
        let bound = planner.savings().saved_ns_per_second(budget);
        let best = planner.steps.first().map_or(0.0, |step| step.holding.per_byte());
        let slice = 960u64.div_ceil(u64::from(slices));
        prop_assert!(plan.bytes <= budget && bound - plan.saved_ns_per_second <= best * slice as f64 + 1e-9);
        for (file, slices) in files.iter().zip(&plan.slices) {
            for (at, resident) in slices.iter().enumerate().filter(|(_, resident)| **resident > 0) {
                prop_assert!(*resident <= file.modules[at].slices);
                let before = file.modules[..at].iter().zip(slices);
                prop_assert!(before.into_iter().all(|(module, resident)| module.slices == *resident));
            }
        }
    }
}
