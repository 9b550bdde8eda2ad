//! Simulated fill: the policy's write amplification and run counts, level by level.
//!
//! For comparison with formulas and with the engine's counters; the engine itself does not use it.

use shamba_model::{Design, Sizing};

use super::{Simulation, SimulationSettings};

/// A fill of a tree: each flush is followed by all compactions that it makes due.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FillPlan {
    /// Size ratio T, runs K and Z, and the buffer, from which the capacities follow.
    pub design: Design,
    /// Source of the capacities.
    pub sizing: Sizing,
    /// Runs in level 0 that make a compaction due.
    pub l0_compaction_trigger: u32,
    /// Entries of a flush.
    pub flush_entries: u64,
    /// Bytes of an entry in a table; at least 1.
    pub entry_bytes: u64,
    /// Bytes of a full table.
    pub table_bytes: u64,
    /// Number of flushes.
    pub flushes: u32,
    /// Seed of the keys.
    pub seed: u64,
}

/// Result of a fill.
#[derive(Clone, PartialEq, Debug)]
pub struct Filled {
    /// Bytes written by flushes and compactions, per byte flushed.
    pub write_amplification: f64,
    /// The same for compactions into each level, level 0 first.
    pub merged_per_level: Vec<f64>,
    /// Mean number of runs of each level after a flush and its compactions, level 0 first.
    pub mean_runs_per_level: Vec<f64>,
    /// Maximum number of runs of each level at those times.
    pub runs_max_per_level: Vec<usize>,
    /// The deepest level at the end.
    pub deepest_level: u32,
}

/// Simulates a plan.
///
/// # Errors
/// Description of a violated rule.
pub fn fill(plan: &FillPlan) -> Result<Filled, String> {
    let entry_bytes = plan.entry_bytes.max(1);
    let table_entries = (plan.table_bytes / entry_bytes).max(1);
    let mut simulation = Simulation::new(SimulationSettings {
        sizing: plan.sizing,
        l0_compaction_trigger: plan.l0_compaction_trigger,
        flush_entries: plan.flush_entries.max(1),
        entry_bytes,
        table_entries: table_entries as usize,
        slice_bytes: plan.table_bytes.saturating_mul(4),
        ..SimulationSettings::new(plan.design, plan.seed)
    });
    let (mut sums, mut most): (Vec<usize>, Vec<usize>) = (Vec::new(), Vec::new());
    for _ in 0..plan.flushes {
        simulation.flush()?;
        simulation.run_due_jobs()?;
        for level in 0..=simulation.version.deepest_level() {
            let (at, runs) = (level as usize, simulation.version.level(level).len());
            if sums.len() <= at {
                sums.push(0);
                most.push(0);
            }
            sums[at] += runs;
            most[at] = most[at].max(runs);
        }
    }
    let report = &simulation.report;
    let flushed = report.flushed_bytes.max(1) as f64;
    Ok(Filled {
        write_amplification: report.write_amplification(),
        merged_per_level: report.merged_bytes.iter().map(|bytes| *bytes as f64 / flushed).collect(),
        mean_runs_per_level: sums.iter().map(|sum| *sum as f64 / f64::from(plan.flushes)).collect(),
        runs_max_per_level: most,
        deepest_level: simulation.version.deepest_level(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use shamba_model::MergePolicy;
    use shamba_model::monkey::levels_closed;
    use shamba_model::updates::{MergeShape, Merging, merges_per_level};

    const BUFFER_BYTES: u64 = 1_200;
    const ENTRY_BYTES: u64 = 100;

    /// A fill of a tree of `levels` that are nearly full.
    fn filled(design: Design, levels: u32) -> Filled {
        let buffers: f64 = (1..=levels).map(|level| design.size_ratio.powi(level as i32)).sum();
        let plan = FillPlan {
            design,
            sizing: Sizing::Manual,
            l0_compaction_trigger: 1,
            flush_entries: BUFFER_BYTES / ENTRY_BYTES,
            entry_bytes: ENTRY_BYTES,
            table_bytes: 4 * BUFFER_BYTES,
            flushes: (buffers * 0.95) as u32,
            seed: 42,
        };
        fill(&plan).unwrap_or_else(|why| panic!("{plan:?}\n{why}"))
    }

    fn shape(design: &Design, levels: u32) -> MergeShape {
        MergeShape {
            size_ratio: design.size_ratio,
            inner_runs: f64::from(design.inner_runs),
            last_runs: f64::from(design.last_runs),
            levels,
        }
    }

    fn fluid(size_ratio: f64, inner_runs: u32, last_runs: u32) -> Design {
        Design { size_ratio, inner_runs, last_runs, buffer_bytes: BUFFER_BYTES, bits_per_key: 0.0 }
    }

    #[test]
    fn the_policy_writes_what_the_model_says() {
        let classical = [2.0, 4.0, 10.0].into_iter().flat_map(|size_ratio| {
            MergePolicy::ALL.map(|policy| Design::new(policy, size_ratio, BUFFER_BYTES, 0.0))
        });
        for design in classical.chain([fluid(4.0, 2, 1), fluid(10.0, 2, 1), fluid(10.0, 3, 3)]) {
            let levels = if design.size_ratio > 4.0 { 3 } else { 4 };
            let filled = filled(design, levels);
            let model = shape(&design, levels).write_amplification(Merging::FileByFile);
            let factor = filled.write_amplification / model;
            assert!((0.7..=1.3).contains(&factor), "{design}: {factor:.2} of {model:.2}, {filled:?}");
            // Tiered levels that tables pass through write as often as the equation says. Leveled
            // ones that stay full write more than whole levels would, and at most T + 1 times.
            let (t, k) = (design.size_ratio, f64::from(design.inner_runs));
            for level in 2..levels as usize {
                let merged = filled.merged_per_level[level];
                let (least, most) = match design.inner_runs {
                    1 => ((t - 1.0) / 2.0, t + 1.0),
                    _ => (merges_per_level(t, k) * 0.6, merges_per_level(t, k) * 1.6),
                };
                assert!((least..=most).contains(&merged), "{design}, level {level}: {filled:?}");
            }
        }
    }

    #[test]
    fn automatic_sizing_writes_what_the_model_says() {
        let classical = [2.0, 3.5, 4.0, 10.0].into_iter().flat_map(|size_ratio| {
            MergePolicy::ALL.map(|policy| Design::new(policy, size_ratio, BUFFER_BYTES, 0.0))
        });
        for design in classical {
            for l0_compaction_trigger in [1, 4] {
                let plan = FillPlan {
                    design,
                    sizing: Sizing::Auto,
                    l0_compaction_trigger,
                    flush_entries: BUFFER_BYTES / ENTRY_BYTES,
                    entry_bytes: ENTRY_BYTES,
                    table_bytes: 4 * BUFFER_BYTES,
                    flushes: 500,
                    seed: 42,
                };
                let filled = fill(&plan).unwrap_or_else(|why| panic!("{plan:?}\n{why}"));
                let data_bytes = f64::from(plan.flushes) * BUFFER_BYTES as f64;
                let levels = levels_closed(data_bytes, BUFFER_BYTES, design.size_ratio).expect("a design");
                let model = shape(&design, levels).write_amplification(Merging::Following);
                let factor = filled.write_amplification / model;
                // Batches of four flushes are compacted less often at the top.
                assert!((0.65..=1.45).contains(&factor), "{design}: {factor:.2} of {model:.2}, {filled:?}");
            }
        }
    }

    #[test]
    fn levels_have_their_runs_and_no_more() {
        for design in [fluid(4.0, 1, 1), fluid(4.0, 3, 3), fluid(10.0, 9, 1), fluid(10.0, 3, 3)] {
            let filled = filled(design, 3);
            let most = &filled.runs_max_per_level;
            assert_eq!(most[0], 0, "a manual inbox empties at once");
            for level in 1..=filled.deepest_level {
                // While a level was the last it had at most Z runs, and K since.
                let allowed = design.inner_runs.max(design.last_runs) as usize;
                assert!(most[level as usize] <= allowed, "{design}: {filled:?}");
            }
            // A tiered level is full when the next tables arrive and empty after it: K / 2 runs on
            // average. A leveled one has its one run.
            let mean = filled.mean_runs_per_level[1];
            let expected = match design.inner_runs {
                1 => 1.0,
                runs => f64::from(runs) / 2.0,
            };
            assert!(
                (mean / expected - 1.0).abs() < 0.35,
                "{design}: {mean} runs on level 1, {expected} expected"
            );
        }
    }
}
