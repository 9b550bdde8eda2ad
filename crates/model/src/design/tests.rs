//! Knobs, names, bounds, capacities, and the stored form.

use super::*;

/// Size ratios from 2 to 10, integer and fractional.
fn size_ratios() -> impl Iterator<Item = f64> {
    (0..=160).map(|step| 2.0 + f64::from(step) * 0.05).chain([std::f64::consts::E, 10.0 / 3.0, 7.000_000_1])
}

#[test]
fn policies_set_the_runs_and_are_recognised() {
    for size_ratio in size_ratios() {
        let tiered = (size_ratio.ceil() as u32 - 1).max(1);
        for (policy, runs) in [
            (MergePolicy::Leveling, (1, 1)),
            (MergePolicy::Tiering, (tiered, tiered)),
            (MergePolicy::LazyLeveling, (tiered, 1)),
        ] {
            let design = Design::new(policy, size_ratio, 1 << 20, 10.0);
            assert_eq!((design.inner_runs, design.last_runs), runs, "{policy} at T = {size_ratio}");
            assert_eq!(design.validate(), Ok(()));
            let named = if size_ratio > 2.0 { policy } else { MergePolicy::Leveling };
            assert_eq!(design.policy(), Some(named), "T = {size_ratio}");
        }
    }
    assert_eq!(Design { inner_runs: 5, last_runs: 2, ..Design::default() }.policy(), None);
}

#[test]
fn policy_names_round_trip() {
    for policy in MergePolicy::ALL {
        assert_eq!(policy.to_string().parse(), Ok(policy));
    }
    let error = "levelling".parse::<MergePolicy>().unwrap_err();
    assert!(error.contains("levelling") && error.contains("lazy-leveling"), "{error}");
}

#[test]
fn runs_allowed_are_k_above_z_on_the_last_level() {
    let lazy = Design::new(MergePolicy::LazyLeveling, 5.0, 1 << 20, 10.0);
    assert_eq!([1, 2, 3].map(|level| lazy.runs_allowed(level, 3)), [4, 4, 1]);
    // Levels below the deepest count as the last.
    assert_eq!(lazy.runs_allowed(4, 3), 1);
    assert_eq!(lazy.runs_allowed(1, 0), 1);
}

#[test]
fn capacities_grow_by_the_size_ratio() {
    let design = Design::new(MergePolicy::Leveling, 10.0, 1 << 20, 10.0);
    assert_eq!([1, 2, 3].map(|level| design.level_capacity_bytes(level)), [10 << 20, 100 << 20, 1000 << 20]);
    let fractional = Design::new(MergePolicy::Leveling, 2.5, 1000, 0.0);
    assert_eq!(
        [1, 2, 3, 4].map(|level| fractional.level_capacity_bytes(level)),
        [2500, 6250, 15_625, 39_063]
    );
    for size_ratio in size_ratios() {
        let design = Design::new(MergePolicy::Tiering, size_ratio, 4096, 10.0);
        let mut before = 4096;
        for level in 1..=MAX_LEVELS {
            let capacity = design.level_capacity_bytes(level);
            assert!(capacity > before || capacity == u64::MAX, "T = {size_ratio}, level {level}");
            before = capacity;
        }
        assert_eq!(design.level_capacity_bytes(MAX_LEVELS), u64::MAX);
        assert_eq!(design.level_capacity_bytes(u32::MAX), u64::MAX);
    }
}

#[test]
fn levels_are_the_fewest_that_hold_the_data() {
    let design = Design::new(MergePolicy::Leveling, 2.0, 1024, 10.0);
    // Level 1 holds 2 KiB, levels 1 and 2 hold 6 KiB, 1 to 3 hold 14 KiB.
    for (total_bytes, levels) in
        [(0, 1), (1, 1), (2048, 1), (2049, 2), (6144, 2), (6145, 3), (14_336, 3), (14_337, 4)]
    {
        assert_eq!(design.levels_for(total_bytes), levels, "{total_bytes}");
    }
    for size_ratio in size_ratios() {
        let design = Design::new(MergePolicy::Leveling, size_ratio, 1 << 16, 10.0);
        let mut held = 0u64;
        for level in 1..=12 {
            held += design.level_capacity_bytes(level);
            assert_eq!(design.levels_for(held), level, "T = {size_ratio}");
            assert_eq!(design.levels_for(held + 1), level + 1, "T = {size_ratio}");
        }
        assert!(design.levels_for(u64::MAX) <= MAX_LEVELS);
    }
    // Not a valid design, but the function still returns.
    assert_eq!(Design { buffer_bytes: 0, ..design }.levels_for(1), MAX_LEVELS);
}

#[test]
fn every_bound_is_named() {
    let good = Design::default();
    assert_eq!(good.validate(), Ok(()));
    for (bad, option) in [
        (Design { size_ratio: 1.99, ..good }, "size_ratio"),
        (Design { size_ratio: f64::NAN, ..good }, "size_ratio"),
        (Design { size_ratio: f64::INFINITY, ..good }, "size_ratio"),
        (Design { size_ratio: 1024.5, ..good }, "size_ratio"),
        (Design { inner_runs: 0, ..good }, "inner_runs"),
        (Design { last_runs: 0, ..good }, "last_runs"),
        (Design { last_runs: 1025, ..good }, "last_runs"),
        (Design { buffer_bytes: 1023, ..good }, "write_buffer"),
        (Design { buffer_bytes: u64::MAX, ..good }, "write_buffer"),
        (Design { bits_per_key: -0.1, ..good }, "bits_per_key"),
        (Design { bits_per_key: 64.5, ..good }, "bits_per_key"),
        (Design { bits_per_key: f64::NAN, ..good }, "bits_per_key"),
    ] {
        let error = bad.validate().unwrap_err();
        assert!(error.starts_with(option) && error.contains("must be from"), "{error}");
    }
    for edge in [
        Design { size_ratio: 2.0, buffer_bytes: 1024, bits_per_key: 0.0, ..good },
        Design {
            size_ratio: 1024.0,
            inner_runs: 1024,
            last_runs: 1024,
            buffer_bytes: 1 << 40,
            bits_per_key: 64.0,
        },
    ] {
        assert_eq!(edge.validate(), Ok(()));
    }
}

#[test]
fn designs_print_their_policy_or_their_runs() {
    assert_eq!(Design::default().to_string(), "leveling, T=10, buffer 67108864 bytes, 10 bits per key");
    let fluid = Design { size_ratio: 4.5, inner_runs: 3, last_runs: 2, ..Design::default() };
    assert!(fluid.to_string().starts_with("fluid K=3 Z=2, T=4.5, "), "{fluid}");
}
