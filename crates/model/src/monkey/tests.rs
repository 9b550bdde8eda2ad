//! The paper's figures, closed and exact forms against each other, and invalid input.

use super::*;
use crate::allocation::{Limits, Site, Theory, solve};
use proptest::prelude::*;

const GIB_BITS: f64 = 8.0 * (1u64 << 30) as f64;

fn tree(policy: MergePolicy, size_ratio: f64, levels: u32) -> PaperTree {
    PaperTree::new(policy, size_ratio, levels, 1 << 35).unwrap()
}

fn leveled(size_ratio: f64, levels: u32) -> PaperTree {
    tree(MergePolicy::Leveling, size_ratio, levels)
}

#[track_caller]
fn near(value: f64, expected: f64, within: f64) {
    assert!((value - expected).abs() <= within, "{value} is not {expected}");
}

#[test]
fn the_tree_of_figure_7() {
    assert_eq!(levels_closed(((1u64 << 35) * 16) as f64, 2 << 20, 4.0), Ok(9));
    let tree = leveled(4.0, 9);
    // GiB of filters, unfiltered levels, R closed, R exact, R uniform.
    for (gib, unfiltered, closed, exact, uniform) in [
        (0.0, 9, 9.0, 9.0, 9.0),
        (1.0, 1, 2.30908, 2.30883, 7.98138),
        (4.0, 0, 1.30908, 1.30902, 5.56653),
        (8.0, 0, 0.80967, 0.80963, 3.44292),
        (16.0, 0, 0.30974, 0.30972, 1.31707),
        (35.0, 0, 0.03161, 0.03161, 0.13443),
    ] {
        let bits = gib * GIB_BITS;
        assert_eq!(tree.unfiltered_levels(bits), unfiltered, "{gib} GiB");
        near(tree.zero_result_cost_closed(bits).unwrap(), closed, 5e-6);
        near(tree.zero_result_cost_exact(bits).unwrap(), exact, 5e-6);
        near(tree.zero_result_cost_uniform(bits).unwrap(), uniform, 5e-6);
    }
}

#[test]
fn exact_costs_and_the_bits_that_uniform_filters_need_for_them() {
    for (size_ratio, levels, bits_per_key, exact, uniform, uniform_bits) in [
        (10.0, 5, 5.0, 0.129874, 0.452564, 7.60),
        (10.0, 5, 10.0, 0.011755, 0.040963, 12.60),
        (4.0, 7, 6.0, 0.118411, 0.391877, 8.49),
        (2.0, 10, 8.0, 0.085002, 0.214158, 9.92),
    ] {
        let tree = leveled(size_ratio, levels);
        let bits = bits_per_key * tree.entries;
        let cost = tree.zero_result_cost_exact(bits).unwrap();
        near(cost, exact, 5e-7);
        near(tree.zero_result_cost_uniform(bits).unwrap(), uniform, 5e-7);
        near(bloom_bits_per_key(cost / f64::from(levels)), uniform_bits, 0.005);
    }
    let fprs = leveled(10.0, 5).best_fprs_exact(10.0 * (1u64 << 35) as f64, 1.0).unwrap();
    for (fpr, expected) in fprs.iter().zip([1.06e-6, 1.06e-5, 1.06e-4, 1.06e-3, 1.06e-2]) {
        near(fpr / expected, 1.0, 0.005);
    }
}

#[test]
fn mixed_lookups() {
    let bits = 10.0 * (1u64 << 35) as f64;
    // v, the non-zero-result lookups per zero-result lookup, and Z.
    for (policy, costs) in [
        (MergePolicy::Leveling, [(0.0, 0.017340), (1.0, 0.510310), (9.0, 0.903084)]),
        (MergePolicy::Tiering, [(0.0, 0.052019), (1.0, 0.538379), (9.0, 0.926164)]),
    ] {
        let tree = tree(policy, 4.0, 12);
        for (v, expected) in costs {
            let empty_fraction = 1.0 / (v + 1.0);
            let closed = tree.mixed_cost_closed(bits, empty_fraction).unwrap();
            near(closed, expected, 5e-7);
            near(tree.mixed_cost_exact(bits, empty_fraction).unwrap(), closed, 2e-6);
            // [14] to [17] are the rates that give this cost by [13] and need these bits.
            let fprs = tree.mixed_fprs_closed(closed, empty_fraction);
            near(tree.mixed_cost(&fprs, empty_fraction), closed, 1e-8);
            near(tree.filter_bits_closed(&fprs) / bits, 1.0, 1e-5);
        }
    }
}

#[test]
fn at_the_thresholds_the_last_level_loses_its_filter() {
    for policy in [MergePolicy::Leveling, MergePolicy::Tiering] {
        let tree = tree(policy, 4.0, 9);
        near(tree.mixed_threshold_bits(1.0), tree.threshold_bits(), 1.0);
        for empty_fraction in [1.0, 0.5, 0.1] {
            let threshold = tree.mixed_threshold_bits(empty_fraction);
            let closed = tree.mixed_cost_closed(threshold, empty_fraction).unwrap();
            near(tree.mixed_fprs_closed(closed, empty_fraction)[8], 1.0, 1e-9);
            assert!(tree.mixed_cost_closed(threshold * 0.999, empty_fraction).is_err());
            near(tree.best_fprs_exact(threshold, empty_fraction).unwrap()[8], 1.0, 1e-3);
        }
    }
    // No empty probe ever reaches the last level: it gets no filter at any price.
    let tree = leveled(4.0, 9);
    assert_eq!(tree.mixed_threshold_bits(0.0), f64::INFINITY);
    assert_eq!(tree.best_fprs_exact(1e12, 0.0).unwrap()[8], 1.0);
}

#[test]
fn found_lookups_and_the_last_level() {
    let tree = leveled(4.0, 3);
    near(tree.found_cost(&[0.1, 0.2, 0.3]), 1.3, 1e-12);
    near(tree.mixed_cost(&[0.1, 0.2, 0.3], 0.5), 0.5 * 1.3 + 0.5 * 0.6, 1e-12);
    // With T = 2 tiering is leveling.
    let (leveled, tiered) = (leveled(2.0, 6), super::tests::tree(MergePolicy::Tiering, 2.0, 6));
    for empty_fraction in [0.0, 0.3, 1.0] {
        assert_eq!(leveled.last_level_weight(empty_fraction), tiered.last_level_weight(empty_fraction));
        assert_eq!(
            leveled.mixed_cost_exact(1e11, empty_fraction),
            tiered.mixed_cost_exact(1e11, empty_fraction)
        );
    }
}

#[test]
fn levels_grow_with_the_data_and_round_up() {
    assert_eq!(levels_closed(0.0, 1 << 20, 10.0), Ok(1));
    // N E / M_buf * (T-1) / T is exactly T^3, and then slightly more.
    assert_eq!(levels_closed(8_000.0, 500, 2.0), Ok(3));
    assert_eq!(levels_closed(8_001.0, 500, 2.0), Ok(4));
    assert_eq!(levels_closed(u64::MAX as f64, 1, 2.0), Ok(63));
}

#[test]
fn bad_input_is_refused_with_its_reason() {
    for runs in [(0.5, 1.0), (1.0, f64::NAN), (1e9, 1.0)] {
        assert!(PaperTree::fluid(4.0, runs, 5, 100).unwrap_err().contains("runs"));
    }
    assert!(levels_closed(f64::NAN, 1, 2.0).unwrap_err().contains("data"));
    for size_ratio in [f64::NAN, 1.9, -1.0, f64::INFINITY] {
        let error = PaperTree::new(MergePolicy::Leveling, size_ratio, 5, 100).unwrap_err();
        assert!(error.contains(&size_ratio.to_string()), "{error}");
        assert_eq!(levels_closed(1e9, 1 << 20, size_ratio).unwrap_err(), error);
    }
    assert!(levels_closed(1.0, 0, 2.0).unwrap_err().contains("buffer"));
    for levels in [0, MAX_LEVELS + 1] {
        assert!(PaperTree::new(MergePolicy::Leveling, 4.0, levels, 100).unwrap_err().contains("levels"));
    }
    assert!(PaperTree::new(MergePolicy::Leveling, 4.0, 5, 0).unwrap_err().contains("entries"));
    let tree = leveled(4.0, 5);
    for bits in [f64::NAN, -1.0, f64::INFINITY] {
        for cost in [tree.zero_result_cost_closed(bits), tree.zero_result_cost_uniform(bits)] {
            assert!(cost.unwrap_err().contains("filter bits"));
        }
        assert!(tree.mixed_cost_exact(bits, 0.5).unwrap_err().contains("filter bits"));
    }
    assert!(tree.mixed_cost_exact(1e9, 1.5).unwrap_err().contains("empty fraction"));
}

/// The policy of an index.
fn policy(number: usize) -> MergePolicy {
    MergePolicy::ALL[number % 3]
}

proptest! {
    #[test]
    fn rates_and_bits_of_this_l_belong_together(
        size_ratio in 2.0..20.0f64, levels in 1u32..12, number in 0..3usize, bits_per_key in 0.0..30.0f64,
    ) {
        let tree = tree(policy(number), size_ratio, levels);
        let sum: f64 = (1..=levels).map(|level| tree.level_entries(level)).sum();
        prop_assert!((sum / tree.entries - 1.0).abs() < 1e-12);

        // The closed form of the multiplier and the one rule's bisection agree.
        let empty_fraction = (bits_per_key * 7.0).fract();
        let site = |level| Site {
            entries: tree.level_entries(level),
            weight: tree.runs(level) * tree.weight(level, empty_fraction),
        };
        let sites: Vec<Site> = (1..=levels).map(site).collect();
        let bits = bits_per_key * tree.entries;
        let solved = solve(&sites, &Theory, bits, Limits::NONE);
        for (direct, solved) in tree.best_bits_per_key_exact(bits, empty_fraction).unwrap().iter().zip(solved) {
            prop_assert!((direct - solved).abs() <= 1e-6 * solved + 1e-6, "{direct} {solved}");
        }

        // The one rule and [32], [33] agree where they agree on the levels without a filter.
        let bits = bits_per_key * tree.entries;
        let fprs = tree.best_fprs_exact(bits, 1.0).unwrap();
        prop_assert!((tree.filter_bits_exact(&fprs) - bits).abs() <= 1e-9 * bits + 1e-3);
        let unfiltered = fprs.iter().filter(|fpr| **fpr == 1.0).count() as u32;
        let cost = tree.zero_result_cost(&fprs);
        if unfiltered < levels {
            for (fpr, expected) in fprs.iter().zip(tree.fprs_exact(cost, unfiltered)) {
                prop_assert!((fpr - expected).abs() <= 1e-6 * expected + 1e-12, "{fpr} {expected}");
            }
        }
        // Never worse than the same bits everywhere, nor than no filters.
        prop_assert!(cost <= tree.zero_result_cost_uniform(bits).unwrap() * (1.0 + 1e-9));
        prop_assert!(cost <= tree.run_count() * (1.0 + 1e-12));
    }

    #[test]
    fn closed_forms_are_the_limit_of_many_levels(
        size_ratio in 2.0..12.0f64, number in 0..3usize, bits_per_key in 3.5..15.0f64,
    ) {
        let tree = tree(policy(number), size_ratio, 40);
        let bits = bits_per_key * tree.entries;
        let closed = tree.zero_result_cost_closed(bits).unwrap();
        prop_assert!((tree.zero_result_cost_exact(bits).unwrap() / closed - 1.0).abs() < 1e-6);
        prop_assert!((tree.mixed_cost_closed(bits, 1.0).unwrap() / closed - 1.0).abs() < 1e-9);
        let fprs = tree.fprs_closed(closed, 0);
        prop_assert!((tree.zero_result_cost(&fprs) / closed - 1.0).abs() < 1e-6);
        prop_assert!((tree.filter_bits_closed(&fprs) / bits - 1.0).abs() < 1e-6);
    }
}
