//! Mnemosyne: *Dynamic Workload-Aware BF Tuning via Accurate Statistics in LSM trees* (SIGMOD
//! 2025).

mod fig11;
mod fig12;
mod fig4;
mod store;

use shamba::{Allocation, Db};
use shamba_workload::Distribution;

use crate::lookups::io;
use crate::prelude::*;
use crate::tree::written_bits_per_key;

/// In the order of the paper.
pub(super) static ALL: &[Experiment] = &[fig4::EXPERIMENT, fig11::EXPERIMENT, fig12::EXPERIMENT];

const DISTRIBUTIONS: [Distribution; 2] = [Distribution::Uniform, Distribution::Normal];
/// Memory counts as equal if the written bits deviate from the requested ones by at most this part.
const OFF_MAX: f64 = 0.1;
const UNIFORM: &str = "uniform bits";
const BY_RUN: &str = "by run (Mnemosyne)";
const BY_FILE: &str = "by file (Mnemosyne+)";

fn name(allocation: Allocation) -> &'static str {
    match allocation {
        Allocation::Uniform => UNIFORM,
        Allocation::Monkey => BY_RUN,
        Allocation::Workload => BY_FILE,
    }
}

/// A point of a figure: bits per key and lookups.
struct Place<'a> {
    bits: f64,
    questions: &'a Questions,
    levels: u32,
}

impl Place<'_> {
    /// The point, the reads and pages of its lookups, and those of unnecessary data blocks: all but
    /// one per found lookup.
    fn row(&self, filters: &'static str, db: &Db, stats: &shamba::Stats) -> Row {
        let tree = db.stats();
        let written = written_bits_per_key(&tree);
        let needless = stats.reads.data.count.saturating_sub(stats.found);
        let place = row! {
            bits: self.bits,
            distribution: self.questions.distribution.name(),
            empty_fraction: self.questions.empty_fraction,
            filters: filters,
            unnecessary: needless as f64 / stats.lookups.max(1) as f64,
            bits_written: written,
            levels: tree.deepest_level,
            // A tree under writes may temporarily have one level less.
            comparable: tree.deepest_level + 1 >= self.levels,
        };
        place.and(io(stats))
    }
}

/// `idea` relative to `base` in a column, at each point where both have the requested memory.
/// Points at which `idea` is 0 have no ratio: the saving there is not counted.
fn ratios(rows: &View<'_>, column: &str, base: &str, idea: &str) -> Vec<f64> {
    let is_equal =
        |row: &Row| Some((row.number("bits_written")? / row.number("bits")? - 1.0).abs() <= OFF_MAX);
    let bases = rows.of("filters", base);
    let ratio = |row: &&Row| {
        let is_here = |other: &Row| {
            ["bits", "distribution", "empty_fraction", "window"]
                .iter()
                .all(|at| other.text(at) == row.text(at))
        };
        let base = *bases.filter(is_here).0.first()?;
        let are_equal = is_equal(row)? && is_equal(base)?;
        let ratio = row.number(column)? / base.number(column)?;
        (are_equal && ratio.is_finite() && ratio > 0.0).then_some(ratio)
    };
    rows.of("filters", idea).0.iter().filter_map(ratio).collect()
}

/// The geometric mean of [`ratios`].
fn mean_ratio(rows: &View<'_>, column: &str, base: &str, idea: &str) -> Option<f64> {
    let ratios = ratios(rows, column, base, idea);
    (!ratios.is_empty()).then(|| (ratios.iter().map(|one| one.ln()).sum::<f64>() / ratios.len() as f64).exp())
}

/// The share saved of a column, of one distribution.
fn saved(rows: &View<'_>, distribution: Distribution, column: &str, base: &str, idea: &str) -> Option<f64> {
    Some(1.0 - mean_ratio(&rows.of("distribution", distribution.name()), column, base, idea)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_are_compared_place_by_place_at_equal_memory() {
        let mut rows = Rows::default();
        let mut side = |filters: &'static str, bits: f64, written: f64, unnecessary: f64| {
            let place = row!(filters: filters, bits: bits, distribution: "normal", empty_fraction: 0.5);
            rows.push(place.and(row!(bits_written: written, unnecessary: unnecessary)));
        };
        side(UNIFORM, 4.0, 4.0, 0.4);
        side(BY_RUN, 4.0, 3.9, 0.2);
        side(UNIFORM, 6.0, 6.1, 0.2);
        side(BY_RUN, 6.0, 7.0, 0.0001);
        let view = rows.view();
        assert_eq!(ratios(&view, "unnecessary", UNIFORM, BY_RUN), [0.5]);
        let half = saved(&view, Distribution::Normal, "unnecessary", UNIFORM, BY_RUN).expect("a place");
        assert!((half - 0.5).abs() < 1e-9, "{half}");
        assert_eq!(saved(&view, Distribution::Uniform, "unnecessary", UNIFORM, BY_RUN), None);
    }
}
