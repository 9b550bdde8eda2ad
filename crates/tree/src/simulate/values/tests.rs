//! Simulated value files: exact counts whatever happens, and the bound of the space while nothing
//! is due.

use shamba_env::Rng as _;
use shamba_model::Sizing;

use super::super::SimulationSettings;
use super::super::parallel::Parallel;
use super::super::tests::{design, random_settings};
use super::*;
use shamba_model::MergePolicy;

fn values(bytes: u64, space: f64) -> Option<SimulatedValues> {
    let rules = ValueRules {
        space,
        files_max: 4_096,
        file_bytes: 256 * bytes,
        has_one_last_run: true,
        is_off: false,
    };
    Some(SimulatedValues { bytes, rules })
}

/// Checks the space of a tree for which no job is due. Returns it as a multiple of the live bytes.
fn check_space(simulation: &Simulation) -> Result<f64, String> {
    let space = simulation.settings.values.map_or(1.0, |values| values.rules.space);
    let version = &simulation.version;
    let (totals, tables) = (version.value_totals(), version.bytes());
    let stored = (tables + totals.stored_bytes()) as f64;
    let referenced = (tables + totals.bytes()) as f64;
    let live = (tables + simulation.live_value_bytes()) as f64;
    // Without levels nothing is collected.
    let is_over = match version.single_last_run() {
        _ if version.deepest_level() == 0 => false,
        Some(_) => stored > space * live + 1.0,
        None => stored > space * referenced + 1.0,
    };
    if is_over {
        return Err(format!("{stored} of {live} live and {referenced} referenced bytes\n{version}"));
    }
    Ok(stored / live)
}

/// A simulation with workers, and the largest space while nothing was due.
struct Life {
    simulation: Simulation,
    parallel: Parallel,
    space: f64,
}

impl Life {
    fn new(settings: SimulationSettings, workers: usize) -> Self {
        Self { simulation: Simulation::new(settings), parallel: Parallel::new(workers), space: 0.0 }
    }

    fn must(&mut self, step: impl FnOnce(&mut Self) -> Result<(), String>) {
        if let Err(why) = step(self) {
            panic!("{:?}\nafter {:?}\n{why}", self.simulation.settings, self.simulation.report);
        }
    }

    fn run_due_jobs(&mut self, is_draining: bool) {
        self.must(|life| {
            life.parallel.run_due_jobs(&mut life.simulation, is_draining)?;
            life.space = life.space.max(check_space(&life.simulation)?);
            Ok(())
        });
    }

    fn flush(&mut self) {
        self.must(|life| life.simulation.flush());
    }
}

/// Overwrites and deletes, jobs in parallel, crashes in the middle of them, full compactions.
#[test]
fn counts_are_exact_and_the_space_is_bounded_whatever_happens() {
    let (mut collections, mut crashes, mut single, mut space) = (0, 0, 0, 0.0f64);
    for seed in 0..60 {
        println!("seed {seed}");
        let settings = SimulationSettings {
            key_count: [60, 300, 2_000][(seed % 3) as usize],
            crash_one_in: [0, 5, 40][(seed / 3 % 3) as usize],
            values: values([30, 1_000][(seed / 2 % 2) as usize], [1.1, 1.25, 2.0][(seed / 5 % 3) as usize]),
            ..random_settings(seed)
        };
        let mut life = Life::new(settings, 1 + (seed % 4) as usize);
        for _ in 0..60 {
            match life.simulation.rng.next_u64() % 16 {
                0 => {
                    life.parallel.request_full();
                    life.run_due_jobs(false);
                }
                1 => life.run_due_jobs(true),
                2..6 => life.flush(),
                _ => {
                    life.flush();
                    life.run_due_jobs(false);
                    single += usize::from(life.simulation.version.single_last_run().is_some());
                }
            }
        }
        life.run_due_jobs(false);
        life.must(|life| life.simulation.check_all_keys());
        collections += life.parallel.report.collections;
        crashes += life.simulation.report.crashes;
        space = space.max(life.space);
    }
    println!("{collections} collections, {crashes} crashes, {single} times one last run, space {space:.3}");
    assert!(collections > 300 && crashes > 100 && single > 500);
}

/// Values and key entries that are written for each put, next to the simulation of decision 42. It
/// has 3.05 and 12.8 for data of 64 flushes and a space of 1.25.
#[test]
fn overwrites_cost_about_what_the_decision_says() {
    let (flush_entries, value_bytes, entry_bytes) = (64, 1_000, 20);
    for (space, values_max) in [(1.15, 6.0), (1.25, 3.5), (2.0, 1.4)] {
        let settings = SimulationSettings {
            sizing: Sizing::Auto,
            l0_compaction_trigger: 4,
            flush_entries,
            entry_bytes,
            table_entries: 256,
            slice_bytes: entry_bytes * 4_096,
            key_count: 64 * flush_entries,
            values: values(value_bytes, space),
            ..SimulationSettings::new(design(MergePolicy::Leveling, 4.0), 42)
        };
        let mut life = Life::new(settings, 1);
        let mut run = || {
            life.space = 0.0;
            for _ in 0..4 * 64 {
                life.flush();
                life.run_due_jobs(false);
            }
            (life.simulation.value_bytes_written(), life.simulation.report.written_bytes)
        };
        let (before, after) = (run(), run());
        let per_put = |bytes: u64, each: u64| bytes as f64 / (4 * 64 * flush_entries * each) as f64;
        let values = per_put(after.0 - before.0, value_bytes);
        let keys = per_put(after.1 - before.1, entry_bytes);
        let files = life.simulation.version.value_totals().files().len();
        println!(
            "A {space}: {values:.2} values and {keys:.1} keys per put, space {:.3}, {files} files",
            life.space
        );
        assert!(values > 1.0 && values < values_max, "A {space}: {values} values per put");
        assert!(keys < 28.0 && files < 200, "A {space}: {keys} keys per put, {files} files");
    }
}

#[test]
fn a_full_compaction_leaves_little_waste() {
    let settings = SimulationSettings {
        key_count: 500,
        values: values(100, 16.0),
        ..SimulationSettings::new(design(MergePolicy::Tiering, 4.0), 3)
    };
    let mut life = Life::new(settings, 2);
    for _ in 0..200 {
        life.flush();
    }
    life.run_due_jobs(false);
    let dead = |life: &Life| {
        let totals = life.simulation.version.value_totals();
        1.0 - totals.bytes() as f64 / totals.stored_bytes() as f64
    };
    assert!(dead(&life) > 0.3, "{}", dead(&life));
    life.parallel.request_full();
    life.run_due_jobs(false);
    assert_eq!(life.simulation.version.run_count(), 1);
    assert!(dead(&life) < 0.125, "{}", dead(&life));
}
