//! Tests of judgements, on synthetic databases.

use super::*;
use shamba_filter::{FilterLayout, Modules};
use shamba_model::miss_ratio::MissRatioCurve;
use shamba_model::monkey::bloom_fpr;
use shamba_model::{Design, MergePolicy};

fn design(policy: MergePolicy, size_ratio: f64) -> TreeDesign {
    let design = Design::new(policy, size_ratio, 2 << 20, 10.0);
    TreeDesign { design, ..TreeDesign::default() }
}

fn asked(puts: f64, empty_lookups: f64, found_lookups: f64, ranges: f64) -> Workload {
    let base = Workload { seconds: 4.0, moved_bytes: 1e9, moved_ns: 12e9, ..Workload::default() };
    Workload { puts, empty_lookups, found_lookups, ranges, range_entries: ranges * 12.0, ..base }
}

/// Ten million entries of 116 bytes, a budget of 64 MiB.
fn scene(workload: Workload) -> Scene {
    Scene {
        workload,
        updates_per_s: workload.per_second(workload.updates()),
        entries: 10_000_000,
        bytes: 1_160_000_000,
        memory_bytes: 56 << 20,
        buffer_bytes: (256 << 10, 8 << 20),
        batch_runs: 4.0,
        merging: Merging::Following,
        read_ns: 2_000.0,
        move_ns_per_byte: 12.0,
        shared_digest: true,
        uncertainty: 0.0,
        in_force: design(MergePolicy::Leveling, 10.0),
        layout: FilterLayout::Blocked,
        locality: MissRatioCurve::EVEN,
    }
}

/// A tree of `runs` runs; the oldest holds nine tenths of the entries.
fn tree(runs: u64) -> Vec<RealRun> {
    let newer = (1..runs).map(|_| RealRun { entries: 1_000_000 / runs, fpr: bloom_fpr(14.0) });
    newer.chain([RealRun { entries: 9_000_000, fpr: bloom_fpr(9.5) }]).collect()
}

#[test]
fn what_is_mostly_written_wants_runs_and_what_is_read_wants_none() {
    let best_policy = |workload: Workload| {
        let scene = scene(workload);
        let judged = scene.candidates().unwrap().into_iter().map(|candidate| {
            // As many runs as the design allows, or as few as it can have.
            let runs = if candidate.design.last_runs > 1 { 12 } else { 3 };
            (scene.judge(&candidate, &tree(runs)).unwrap().operation_ns, candidate)
        });
        judged.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, best)| best.design).unwrap()
    };
    let written = best_policy(asked(400_000.0, 0.0, 0.0, 0.0));
    assert!(written.inner_runs > 1, "{written}");
    for read in [asked(0.0, 4e5, 0.0, 0.0), asked(0.0, 0.0, 4e5, 0.0), asked(0.0, 0.0, 0.0, 4e4)] {
        let best = best_policy(read);
        assert_eq!((best.inner_runs, best.last_runs), (1, 1), "{best}");
    }
}

#[test]
fn a_workload_that_swings_is_judged_by_its_worst_mix() {
    // Nearly all operations are writes, so tiering is best; but some windows contain ranges.
    let mean = asked(396_000.0, 0.0, 0.0, 4_000.0);
    let best = |uncertainty| {
        let scene = Scene { uncertainty, ..scene(mean) };
        let judged = scene.candidates().unwrap().into_iter().map(|candidate| {
            let runs = if candidate.design.last_runs > 1 { 12 } else { 3 };
            (scene.judge(&candidate, &tree(runs)).unwrap(), candidate.design)
        });
        judged.min_by(|a, b| a.0.worst_operation_ns.total_cmp(&b.0.worst_operation_ns)).unwrap()
    };
    let (nominal, robust) = (best(0.0), best(2.0));
    assert_eq!(nominal.0.worst_operation_ns, nominal.0.operation_ns);
    assert!(nominal.1.last_runs > 1, "{}", nominal.1);
    assert!(robust.1.last_runs < nominal.1.last_runs, "{} instead of {}", robust.1, nominal.1);
    assert!(robust.0.operation_ns >= nominal.0.operation_ns, "the price of an uncertainty");
    // Without an uncertainty nothing differs.
    let scene = scene(mean);
    let judged = scene.judge(&design(MergePolicy::LazyLeveling, 6.0), &tree(5)).unwrap();
    let uncertain =
        Scene { uncertainty: 0.3, ..scene }.judge(&design(MergePolicy::LazyLeveling, 6.0), &tree(5)).unwrap();
    assert_eq!(Prediction { worst_operation_ns: judged.worst_operation_ns, ..uncertain }, judged);
    assert!(uncertain.worst_operation_ns > judged.worst_operation_ns);
}

#[test]
fn candidates_are_few_distinct_and_within_bounds() {
    for workload in [asked(1e6, 0.0, 0.0, 0.0), asked(0.0, 1e6, 1.0, 0.0), asked(1e3, 1e3, 1e3, 1e3)] {
        let scene = scene(workload);
        let candidates = scene.candidates().unwrap();
        assert!((3..20).contains(&candidates.len()), "{candidates:?}");
        for candidate in &candidates {
            candidate.design.validate().unwrap();
            assert!(candidate.design.buffer_bytes <= scene.buffer_bytes.1);
            assert!(candidate.design.last_runs <= 10 && candidate.design.bits_per_key <= 16.0, "{candidate}");
        }
        for (at, one) in candidates.iter().enumerate() {
            assert!(candidates[at + 1..].iter().all(|other| !is_alike(one, other)), "{candidates:?}");
        }
    }
}

#[test]
fn judgements_are_finite_whatever_was_seen() {
    let mut rng = fastrand::Rng::with_seed(7);
    for _ in 0..200 {
        let mut some = |most: i32| if rng.bool() { 0.0 } else { 10f64.powi(rng.i32(..most)) * rng.f64() };
        let workload = asked(some(9), some(9), some(9), some(6));
        let entries = 1 + some(10) as u64;
        let scene = Scene {
            entries,
            bytes: (entries as f64 * (1.0 + some(4))) as u64,
            read_ns: 1.0 + some(7),
            move_ns_per_byte: 0.01 + some(4),
            uncertainty: some(2),
            ..scene(workload)
        };
        let judged = scene.judge(&design(MergePolicy::Tiering, 4.0), &tree(1 + some(2) as u64)).unwrap();
        assert!(judged.operation_ns.is_finite() && judged.operation_ns > 0.0, "{scene:?}: {judged:?}");
        assert!(judged.worst_operation_ns.is_finite(), "{scene:?}: {judged:?}");
        assert!(judged.worst_operation_ns >= judged.operation_ns * (1.0 - 1e-9), "{scene:?}: {judged:?}");
    }
}

fn looked(size_ratio: f64, gain: f64, break_even_s: f64, written_bytes: u64) -> Looked {
    let better = Better {
        design: design(MergePolicy::Tiering, size_ratio),
        then: Prediction { worst_operation_ns: 1_000.0 * (1.0 - gain), ..Prediction::default() },
        gain,
        written_bytes,
        seconds: 1.0,
        break_even_s,
    };
    Looked { score: better.then.worst_operation_ns, writes_too_much: written_bytes > 1_000, better }
}

#[test]
fn only_what_pays_is_advised_and_else_it_is_said_why_nothing_is() {
    let ratio = |looked: Vec<Looked>| choose(looked, None).map(|better| better.design.design.size_ratio);
    assert_eq!(ratio(vec![looked(4.0, 0.3, 10.0, 5), looked(8.0, 0.5, 10.0, 5)]), Ok(8.0));
    assert_eq!(
        ratio(vec![looked(4.0, 0.3, 10.0, 5), looked(8.0, 0.5, 1e4, 5)]),
        Ok(4.0),
        "paid for too late"
    );
    assert_eq!(
        ratio(vec![looked(4.0, 0.3, 10.0, 5), looked(8.0, 0.5, 9.0, 2_000)]),
        Ok(4.0),
        "writes too much"
    );
    assert_eq!(ratio(vec![looked(4.0, 0.5, 10.0, 5), looked(8.0, 0.505, 9.0, 900)]), Ok(4.0), "a tie");
    let favourite = design(MergePolicy::Tiering, 8.0);
    let tied = vec![looked(4.0, 0.5, 10.0, 5), looked(8.0, 0.505, 9.0, 900)];
    assert_eq!(choose(tied, Some(&favourite)).map(|better| better.design), Ok(favourite));
    for (looked, why) in [
        (vec![], "no other design"),
        (vec![looked(4.0, 0.09, 1.0, 1)], "saves more than 9 %"),
        (vec![looked(4.0, 0.3, 400.0, 1)], "pay off only after 400 s"),
        (vec![looked(4.0, 0.3, 1.0, 1_001)], "more than the data itself"),
    ] {
        let error = choose(looked, None).unwrap_err();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn what_is_overwritten_is_no_data() {
    let runs = [(10, 1_000), (90, 9_000), (50, 5_000)];
    assert_eq!(distinct(&runs, 0.0), (150, 15_000), "every entry is new");
    assert_eq!(distinct(&runs, 1.0), (90, 9_000), "every entry makes an older one obsolete");
    assert_eq!(distinct(&runs, 0.5), (120, 12_000));
    assert_eq!(distinct(&[], 0.5), (0, 0));
}

#[test]
fn lookups_that_repeat_cost_less_and_move_memory_to_the_cache() {
    let even = scene(asked(0.0, 0.0, 2e5, 10.0));
    let zipf = MissRatioCurve::zipf(0.99, even.entries, 35.0).unwrap();
    let skewed = Scene { locality: zipf, ..even };
    let of = |scene: &Scene| scene.judge(&scene.in_force, &tree(3)).unwrap();
    let (before, after) = (of(&even), of(&skewed));
    assert!(after.lookup_reads < before.lookup_reads * 0.8, "{} {}", after.lookup_reads, before.lookup_reads);
    assert!(after.operation_ns < before.operation_ns);
    assert_eq!((after.range_ns, after.update_ns), (before.range_ns, before.update_ns));
    // A smaller write buffer leaves more to the cache, which saves more where lookups repeat.
    let smaller = |scene: &Scene| {
        let design = Design::new(MergePolicy::Leveling, 10.0, 256 << 10, 10.0);
        let small = scene.judge(&TreeDesign { design, ..scene.in_force }, &tree(3)).unwrap();
        of(scene).lookup_reads - small.lookup_reads
    };
    assert!(smaller(&skewed) > smaller(&even) && smaller(&even) > 0.0);
}

#[test]
fn filters_count_with_the_rate_of_their_layout() {
    let blocked = Scene { read_ns: 80_000.0, ..scene(asked(0.0, 4e5, 0.0, 0.0)) };
    let ribbon = Scene { layout: FilterLayout::Ribbon(Modules::equal(1).expect("one")), ..blocked };
    // Writes replace the tree, so that the steady one counts.
    let [blocked, ribbon] = [blocked, ribbon].map(|scene| Scene { updates_per_s: 1e6, ..scene });
    let target = design(MergePolicy::Leveling, 10.0);
    let reads = |scene: &Scene, target: &TreeDesign| scene.judge(target, &tree(3)).unwrap().lookup_reads;
    let saved = reads(&blocked, &target) / reads(&ribbon, &target);
    // Rates of 0.96 % and 0.19 %, and the prior's lookups, which find their key.
    assert!((2.0..5.0).contains(&saved), "{saved} times");
    // The same reads with three quarters of the bits.
    let fewer = Design { bits_per_key: 7.41, ..target.design };
    let saved = reads(&blocked, &target) / reads(&ribbon, &TreeDesign { design: fewer, ..target });
    assert!((0.9..1.1).contains(&saved), "{saved} times");
}
