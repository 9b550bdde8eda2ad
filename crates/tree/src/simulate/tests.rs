//! Simulator tests: every policy reaches its shape and terminates, despite crashes and changes of
//! design.

use super::*;
use crate::compaction::forecast::forecast;
use shamba_model::MergePolicy;
use shamba_model::updates::{MergeShape, Merging};
use std::ops::RangeInclusive;

pub(super) const BUFFER_BYTES: u64 = 1600;

pub(super) fn design(policy: MergePolicy, size_ratio: f64) -> Design {
    Design::new(policy, size_ratio, BUFFER_BYTES, 10.0)
}

/// Panics with everything needed to reproduce a violation.
fn must(simulation: &mut Simulation, step: impl FnOnce(&mut Simulation) -> Result<(), String>) {
    if let Err(why) = step(simulation) {
        panic!("{:?}\nafter {:?}\n{why}", simulation.settings, simulation.report);
    }
}

fn flush_and_settle(simulation: &mut Simulation) -> Result<(), String> {
    simulation.flush()?;
    simulation.run_due_jobs()
}

/// Write amplification by Monkey's equation 10, plus the flush, which the equation leaves out.
fn theory(design: &Design, levels: u32) -> f64 {
    let shape = MergeShape {
        size_ratio: design.size_ratio,
        inner_runs: f64::from(design.inner_runs),
        last_runs: f64::from(design.last_runs),
        levels,
    };
    shape.write_amplification(Merging::WholeLevels)
}

/// Grows trees of five levels under `policy`, with integer and fractional size ratios. Each has the
/// required shape after every flush and every key at the end, and its write amplification is within
/// these factors of theory.
fn grows_in_shape(policy: MergePolicy, factors: RangeInclusive<f64>) {
    for size_ratio in [2.0, 2.5, 3.0, 3.7, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0] {
        let mut simulation = Simulation::new(SimulationSettings::new(design(policy, size_ratio), 42));
        while simulation.version.deepest_level() < 5 {
            must(&mut simulation, flush_and_settle);
        }
        must(&mut simulation, |simulation| simulation.check_all_keys());
        let amplification = simulation.report.write_amplification();
        let factor = amplification / theory(&simulation.settings.design, 5);
        assert!(
            factors.contains(&factor),
            "{policy}, T={size_ratio}: writes each byte {amplification:.2} times, {factor:.2} of theory"
        );
    }
}

// Files of levels that stay full move one by one, each onto T times its size: at most twice the
// cost of whole levels, half full on average, in the equation. With small T the rewrite of the
// moved file itself weighs more.
#[test]
fn leveling_grows_in_shape() {
    grows_in_shape(MergePolicy::Leveling, 1.0..=2.0);
}

#[test]
fn tiering_grows_in_shape() {
    grows_in_shape(MergePolicy::Tiering, 0.8..=2.0);
}

#[test]
fn lazy_leveling_grows_in_shape() {
    grows_in_shape(MergePolicy::LazyLeveling, 0.8..=2.0);
}

#[test]
fn tiering_counts_like_an_odometer() {
    // With T = 4 three runs stay on a level, and the fourth arrival moves all of them to the next:
    // digits to base 4.
    let mut simulation = Simulation::new(SimulationSettings::new(design(MergePolicy::Tiering, 4.0), 1));
    for flushes in 1..=255u32 {
        must(&mut simulation, flush_and_settle);
        let digits: u32 = (0..4).map(|level| flushes >> (2 * level) & 3).sum();
        assert_eq!(simulation.version.run_count(), digits as usize, "{}", simulation.version);
    }
}

/// A random design, not only one of the classical policies.
fn any_design(simulation: &Simulation) -> Design {
    let random = |bound: u64| simulation.rng.next_u64() % bound;
    Design {
        size_ratio: 2.0 + random(40) as f64 / 10.0,
        inner_runs: 1 + random(4) as u32,
        last_runs: 1 + random(4) as u32,
        buffer_bytes: BUFFER_BYTES / 2 * (1 + random(3)),
        bits_per_key: 0.0,
    }
}

fn auto(design: Design, seed: u64) -> SimulationSettings {
    SimulationSettings {
        sizing: Sizing::Auto,
        l0_compaction_trigger: 4,
        ..SimulationSettings::new(design, seed)
    }
}

/// Write amplification of `flushes` buffers with a drain at the end, and the number of runs after
/// it.
fn fill(settings: SimulationSettings, flushes: u32) -> (f64, usize) {
    let mut simulation = Simulation::new(settings);
    for _ in 0..flushes {
        must(&mut simulation, flush_and_settle);
    }
    must(&mut simulation, Simulation::drain);
    must(&mut simulation, |simulation| simulation.check_all_keys());
    (simulation.report.write_amplification(), simulation.version.run_count())
}

#[test]
fn auto_fills_with_a_fraction_of_manuals_writes() {
    let leveling = design(MergePolicy::Leveling, 10.0);
    // (buffers, maximum bytes written per byte including the flush, maximum runs at the end)
    for (flushes, most, runs) in [(20, 4.5, 1), (43, 6.0, 1), (100, 9.0, 2), (400, 11.5, 2)] {
        let (amplification, left) = fill(auto(leveling, 42), flushes);
        let (manual, _) = fill(SimulationSettings::new(leveling, 42), flushes);
        assert!(
            amplification <= most && amplification <= manual * 0.7,
            "{flushes} buffers: each byte written {amplification:.2} times, manual {manual:.2}"
        );
        assert!(left <= runs, "{flushes} buffers: {left} runs");
    }
}

#[test]
fn auto_writes_less_where_levels_are_leveled() {
    for policy in MergePolicy::ALL {
        // With tiered levels it may be more. The last level is always T times the one above, where
        // manual sizing has it anywhere from empty to that, and the final drain is one more
        // compaction.
        let most = if policy == MergePolicy::Leveling { 0.7 } else { 1.7 };
        for size_ratio in [2.0, 2.5, 4.0, 7.0, 10.0] {
            let design = design(policy, size_ratio);
            let (amplification, _) = fill(auto(design, 7), 150);
            let (manual, _) = fill(SimulationSettings::new(design, 7), 150);
            assert!(
                amplification <= manual * most,
                "{policy}, T={size_ratio}: each byte written {amplification:.2} times, manual {manual:.2}"
            );
        }
    }
}

#[test]
fn auto_keeps_the_last_level_t_times_the_others() {
    for size_ratio in [2.0, 3.5, 10.0] {
        let mut simulation = Simulation::new(auto(design(MergePolicy::Leveling, size_ratio), 3));
        let batch_bytes = (4 * BUFFER_BYTES) as f64;
        for _ in 0..1_000 {
            must(&mut simulation, flush_and_settle);
            let version = &simulation.version;
            let last = version.deepest_level();
            let held = version.level_bytes(last) as f64;
            let inner: u64 = (1..last).map(|level| version.level_bytes(level)).sum();
            // A geometric series, or one batch where the last level is small.
            let most = (held / (size_ratio - 1.0)).max(f64::from(last - last.min(1)) * batch_bytes);
            assert!(inner as f64 <= most, "T={size_ratio}: {inner} bytes above {held}\n{version}");
            assert!(held <= batch_bytes * size_ratio.powi(last as i32) || last == 0);
        }
        must(&mut simulation, |simulation| simulation.check_all_keys());
    }
}

#[test]
fn auto_closes_levels_when_the_data_shrinks() {
    let settings = SimulationSettings { key_count: 4_000, ..auto(design(MergePolicy::Leveling, 4.0), 9) };
    let mut simulation = Simulation::new(settings);
    for _ in 0..400 {
        must(&mut simulation, flush_and_settle);
    }
    let large = simulation.version.level_bytes(simulation.version.deepest_level());
    assert!(simulation.version.deepest_level() > 1, "{}", simulation.version);
    simulation.settings.delete_one_in = 1;
    for _ in 0..4_000 {
        must(&mut simulation, flush_and_settle);
    }
    must(&mut simulation, Simulation::drain);
    must(&mut simulation, |simulation| simulation.check_all_keys());
    assert!(simulation.version.bytes() < large / 8 && simulation.version.run_count() <= 1);
}

/// Settings that differ from seed to seed in sizes, designs and bounds.
pub(super) fn random_settings(seed: u64) -> SimulationSettings {
    SimulationSettings {
        sizing: Sizing::ALL[(seed % 2) as usize],
        l0_compaction_trigger: 1 + (seed % 3) as u32,
        table_entries: 24,
        slice_bytes: 6_000,
        key_count: 300 + 700 * (seed % 5),
        delete_one_in: 4,
        flush_one_in: [0, 1, 3][(seed / 2 % 3) as usize],
        long_bytes: [u64::MAX, 4_000, 12_000][(seed / 3 % 3) as usize],
        small_bytes: [0, 300, 600][(seed / 5 % 3) as usize],
        ..SimulationSettings::new(design(MergePolicy::ALL[(seed % 3) as usize], 3.0), seed)
    }
}

/// Flushes, compactions, crashes in the middle of them, full compactions and new designs, in random
/// order.
fn lives(seed: u64) -> Report {
    let crash_one_in = [2 + seed % 4, 40][(seed / 7 % 2) as usize];
    let settings = SimulationSettings { crash_one_in, ..random_settings(seed) };
    let mut simulation = Simulation::new(settings);
    for _ in 0..120 {
        match simulation.rng.next_u64() % 16 {
            0 => simulation.settings.design = any_design(&simulation),
            1 => must(&mut simulation, Simulation::compact),
            2 => must(&mut simulation, Simulation::drain),
            3 if seed.is_multiple_of(5) => {
                simulation.settings.sizing = Sizing::ALL[(simulation.rng.next_u64() % 2) as usize];
            }
            3..8 => must(&mut simulation, Simulation::flush),
            _ => must(&mut simulation, flush_and_settle),
        }
    }
    must(&mut simulation, Simulation::run_due_jobs);
    must(&mut simulation, |simulation| simulation.check_all_keys());
    simulation.report
}

#[test]
fn any_life_keeps_order_and_shape() {
    let mut total = Report::default();
    for seed in 0..60 {
        let report = lives(seed);
        total.merges += report.merges;
        total.moves += report.moves;
        total.crashes += report.crashes;
    }
    // The runs must have exercised enough jobs.
    assert!(total.merges > 2_000 && total.moves > 500 && total.crashes > 500, "{total:?}");
}

/// Keys are overwritten repeatedly: the data does not grow, and tiering must keep its low write
/// amplification.
#[test]
fn tiering_writes_little_where_the_data_does_not_grow() {
    let steady = |policy| {
        let settings = SimulationSettings {
            sizing: Sizing::Auto,
            l0_compaction_trigger: 4,
            table_entries: 24,
            key_count: 84 * 16,
            ..SimulationSettings::new(design(policy, 10.0), 7)
        };
        let mut simulation = Simulation::new(settings);
        let (mut bytes, mut flushes) = (0, 0);
        let mut before = Report::default();
        for flush in 0..84 * 12 {
            if flush == 84 * 4 {
                before = simulation.report.clone();
            }
            must(&mut simulation, flush_and_settle);
            if flush >= 84 * 4 {
                bytes += simulation.version.bytes();
                flushes += 1;
            }
        }
        let Report { written_bytes, flushed_bytes, .. } = simulation.report;
        let written =
            (written_bytes - before.written_bytes) as f64 / (flushed_bytes - before.flushed_bytes) as f64;
        let space = bytes as f64 / (f64::from(flushes) * 84.0 * BUFFER_BYTES as f64);
        (written, space, simulation.version.deepest_level())
    };
    let [(leveled, ..), (tiered, space, deepest), _] = MergePolicy::ALL.map(steady);
    assert!(tiered * 2.0 < leveled, "written {tiered:.2} times by tiering, {leveled:.2} by leveling");
    assert!(space < 4.0, "{space:.2} bytes for each of the data");
    assert!(deepest <= 3, "level {deepest}: it must not go down with each merge");
}

#[test]
fn a_crash_after_every_slice_still_ends() {
    for (policy, sizing) in MergePolicy::ALL.into_iter().flat_map(|policy| Sizing::ALL.map(|s| (policy, s))) {
        let settings = SimulationSettings {
            sizing,
            crash_one_in: 1,
            slice_bytes: 3_000,
            ..SimulationSettings::new(design(policy, 3.0), 7)
        };
        let mut simulation = Simulation::new(settings);
        for _ in 0..200 {
            must(&mut simulation, flush_and_settle);
        }
        must(&mut simulation, Simulation::drain);
        must(&mut simulation, Simulation::compact);
        must(&mut simulation, |simulation| simulation.check_all_keys());
    }
}

#[test]
fn sorted_input_is_never_rewritten_by_leveling() {
    // With ordered input, any rewrite shows in the counters.
    let mut simulation = Simulation::new(SimulationSettings::new(design(MergePolicy::Leveling, 4.0), 3));
    for _ in 0..300 {
        must(&mut simulation, |simulation| {
            simulation.flush_ascending()?;
            simulation.run_due_jobs()
        });
    }
    assert!(simulation.version.deepest_level() >= 4);
    assert_eq!((simulation.report.merges, simulation.report.write_amplification()), (0, 1.0));
    let mut simulation = Simulation::new(auto(design(MergePolicy::Leveling, 4.0), 3));
    for _ in 0..300 {
        must(&mut simulation, |simulation| {
            simulation.flush_ascending()?;
            simulation.run_due_jobs()
        });
    }
    assert!(simulation.version.deepest_level() >= 2);
    assert_eq!((simulation.report.merges, simulation.report.write_amplification()), (0, 1.0));
}

/// Compares the forecast of a change of the design with the compactions that follow. No key is
/// written twice, so nothing is dropped.
#[test]
fn a_forecast_is_what_the_merges_then_write() {
    let (mut forecast_bytes, mut written_bytes, mut changes) = (0.0, 0.0, 0);
    for seed in 0..24u64 {
        let policy = MergePolicy::ALL[seed as usize % 3];
        let sizing = if seed % 2 == 0 {
            auto as fn(Design, u64) -> SimulationSettings
        } else {
            SimulationSettings::new
        };
        let mut simulation = Simulation::new(sizing(design(policy, 2.0 + seed as f64 % 5.0), seed));
        for _ in 0..60 + seed {
            must(&mut simulation, flush_and_settle);
        }
        must(&mut simulation, Simulation::drain);
        simulation.settings.design = any_design(&simulation);
        let table_bytes = simulation.settings.entry_bytes * simulation.settings.table_entries as u64;
        let ahead = forecast(&simulation.version, &simulation.rules(true), table_bytes);
        assert!(ahead.is_whole, "seed {seed}");
        assert_eq!(ahead.tree_bytes, simulation.version.bytes());
        let before = simulation.report.written_bytes;
        must(&mut simulation, Simulation::drain);
        let (ahead_bytes, done_bytes) =
            (ahead.written_bytes as f64, (simulation.report.written_bytes - before) as f64);
        assert_eq!(ahead_bytes == 0.0, done_bytes == 0.0, "seed {seed}: {ahead_bytes} and {done_bytes}");
        assert!(
            (ahead_bytes - done_bytes).abs() <= done_bytes * 0.3 + 5.0 * table_bytes as f64,
            "seed {seed}: {ahead_bytes} were foreseen, {done_bytes} written, {:?}",
            simulation.settings
        );
        forecast_bytes += ahead_bytes;
        written_bytes += done_bytes;
        changes += u32::from(done_bytes > 0.0);
        let again = forecast(&simulation.version, &simulation.rules(true), table_bytes);
        assert_eq!(again.written_bytes, 0, "seed {seed}: a tree at rest needs nothing");
    }
    assert!(changes >= 12, "{changes} changes needed a merge");
    let ratio = forecast_bytes / written_bytes;
    println!("{changes} changes: forecast over written {ratio:.3}");
    assert!((0.9..1.1).contains(&ratio), "{ratio}");
}
