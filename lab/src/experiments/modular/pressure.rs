//! Lookups under memory pressure: pages and reads of an approach with an amount of memory.
//!
//! Every measurement opens the tree anew, so that none benefits from an earlier one. It is warmed
//! in rounds, each of which is a window of the engine's planning, until the cache has turned over
//! and skipping and residency have settled; then the clock stops and pages are counted. All
//! approaches get the same keys. A measurement that several figures show is made once per seed.

use std::sync::Arc;

use super::approaches::{Approach, STATE_OF_THE_ART};
use super::trees::{Asked, Extent, LEVELS, PlanClock, tree};
use crate::lab::Lab;
use crate::lookups::{count, io};
use crate::picture::{Column, Panel};
use crate::rows::{Row, Rows, View, reaches, row};
use crate::scale::{Parameter, Scale};
use crate::verdict::Known;

/// Shares of the memory of all filters and indexes, from severe pressure to none.
pub(super) const SHARES: [f64; 4] = [0.1, 0.2, 0.4, 1.0];
/// Share of memory where it is constant.
pub(super) const FIXED_SHARE: f64 = 0.4;
/// Shares of empty lookups.
pub(super) const EMPTY: [f64; 3] = [0.0, 0.5, 1.0];
pub(super) const EMPTY_SHARES: [f64; 5] = [0.0, 0.25, 0.5, 0.75, 1.0];
/// Memory up to this share is pressure, and up to the next one severe pressure.
pub(super) const PRESSURE_MAX: f64 = 0.75;
pub(super) const SEVERE_MAX: f64 = 0.25;

pub(super) const MEMORY: Column =
    Column { times: 100.0, ..Column::log("memory_share", "memory [% of filters + indexes]") };
pub(super) const PAGES: Column = Column::from_zero("pages", "pages of 4 KiB read a lookup");
pub(super) const READS: Column = Column::from_zero("reads", "reads a lookup");
pub(super) const NOTE: &str = "T = 4, 5 levels, keys of 32 bytes, files of 65,536 entries, 10 bits per key, uniform lookups. \
    Filters, indexes and data blocks share the memory.";

/// Pages over memory with keys absent, half absent and there, then reads with half of them absent.
pub(super) const OVER_MEMORY: [Panel; 3] = [
    Panel::lines(MEMORY, PAGES, &["approach"])
        .titled("pages, half of the keys absent", &[("empty_fraction", "0.5")]),
    Panel::lines(MEMORY, PAGES, &["approach"]).titled("pages, all keys absent", &[("empty_fraction", "1")]),
    Panel::lines(MEMORY, READS, &["approach"]).titled("reads, half absent", &[("empty_fraction", "0.5")]),
];
/// Pages and reads over the share of empty lookups.
pub(super) const OVER_EMPTY: [Panel; 2] = [
    Panel::lines(Column::linear("empty_fraction", "share of empty lookups"), PAGES, &["approach"])
        .titled("pages", &[]),
    Panel::lines(Column::linear("empty_fraction", "share of empty lookups"), READS, &["approach"])
        .titled("reads", &[]),
];

/// Parameters of a comparison.
pub(super) fn parameters(
    extent: Extent,
    approaches: &[Approach],
    shares: &[f64],
    empty: &[f64],
) -> Vec<Parameter> {
    let of = |name, values: &[f64]| match values {
        [only] => Parameter::fixed(name, only),
        several => Parameter::varied(name, several),
    };
    let own = [
        Parameter::varied("approach", super::approaches::names(approaches)),
        of("memory, share of filters and indexes", shares),
        of("empty fraction", empty),
    ];
    own.into_iter().chain(extent.parameters()).collect()
}

/// Measures every approach with every share of memory and of empty lookups.
///
/// # Errors
/// Errors of the engine, and a wrong answer.
pub(super) fn rows(
    lab: &mut Lab<'_>,
    extent: Extent,
    approaches: &[Approach],
    shares: &[f64],
    empty: &[f64],
) -> Result<Rows, String> {
    let asked: Vec<Asked> = empty.iter().copied().map(Asked::uniform).collect();
    rows_of(lab, extent, approaches, shares, &asked)
}

/// The same with other lookups than uniform ones.
///
/// # Errors
/// Errors of the engine, and a wrong answer.
pub(super) fn rows_of(
    lab: &mut Lab<'_>,
    extent: Extent,
    approaches: &[Approach],
    shares: &[f64],
    asked: &[Asked],
) -> Result<Rows, String> {
    let mut rows = Rows::default();
    // An experiment of the tiny scale only has to run to its end: a curve needs two points.
    let shares = match (lab.scale, shares) {
        (Scale::Tiny, [first, .., last]) => &[*first, *last],
        _ => shares,
    };
    for asked in asked {
        for approach in approaches {
            for share in shares {
                rows.push((*reading(lab, extent, approach, *share, *asked)?).clone());
            }
        }
    }
    Ok(rows)
}

fn reading(
    lab: &mut Lab<'_>,
    extent: Extent,
    approach: &Approach,
    share: f64,
    asked: Asked,
) -> Result<std::rc::Rc<Row>, String> {
    let (empty_fraction, distribution) = (asked.empty_fraction, asked.distribution.name());
    // Memory is a share of the baseline's filters and indexes on every side.
    let whole_bytes = tree(lab, extent, &STATE_OF_THE_ART)?.whole_bytes();
    let name = approach.name;
    lab.once(format!("modular reading {extent:?} {name} {share} {empty_fraction} {distribution}"), |lab| {
        let laid = tree(lab, extent, approach)?;
        lab.at(format_args!(
            "{name}, {:.0} % of the memory, {empty_fraction} empty, {distribution}",
            100.0 * share
        ));
        let clock = Arc::new(PlanClock::default());
        let bytes = (share * whole_bytes as f64) as u64;
        let place = (laid.device(), asked);
        let (db, memory_bytes) = laid.open_with(lab, place, bytes, &approach.switches(), Some(&clock))?;
        let plans = approach.skipping != "none" || approach.residency != "cached";
        let warming = asked.questions(lab.scale.count(2_000, 10_000, 40_000));
        let rounds = approach.warm_rounds;
        for round in 0..lab.scale.count(rounds, rounds, rounds) {
            crate::lookups::warm(lab, (&laid.tree, round), &[&db], &warming)?;
            if plans {
                clock.end_window();
            }
        }
        let questions = asked.questions(lab.scale.count(5_000, 50_000, 200_000));
        let stats = count(lab, &laid.tree, &db, &questions)?;
        let per_lookup = |count: u64| count as f64 / stats.lookups.max(1) as f64;
        let place = row! {
            approach: name,
            entry_bytes: extent.entry_bytes,
            memory_share: share,
            empty_fraction: empty_fraction,
            distribution: distribution,
            memory_bytes: memory_bytes,
            bits_per_key: laid.bits_per_key(),
            filters_over_indexes: laid.filter_bytes as f64 / laid.index_bytes.max(1) as f64,
            modules_asked: per_lookup(stats.modules_tested),
            modules_skipped: per_lookup(stats.modules_skipped),
            levels: stats.deepest_level,
            comparable: stats.deepest_level >= LEVELS && stats.runs >= u64::from(LEVELS),
        };
        Ok(place.and(io(&stats)))
    })
}

/// The share of the baseline's pages that an approach saves, as the geometric mean over the rows'
/// shares of memory and of empty lookups.
pub(super) fn saved(rows: &View<'_>, idea: &str) -> Option<f64> {
    saved_of(rows, STATE_OF_THE_ART.name, idea)
}

/// The same against another baseline.
pub(super) fn saved_of(rows: &View<'_>, baseline: &str, idea: &str) -> Option<f64> {
    let baselines = rows.of("approach", baseline);
    let ratio = |row: &&Row| {
        let is_its = |other: &Row| {
            ["memory_share", "empty_fraction", "entry_bytes"]
                .iter()
                .all(|name| row.text(name) == other.text(name))
        };
        Some((row.number("pages")? / baselines.filter(is_its).number("pages")?).ln())
    };
    let ratios: Option<Vec<f64>> = rows.of("approach", idea).0.iter().map(ratio).collect();
    let ratios = ratios.filter(|ratios| !ratios.is_empty())?;
    Some(1.0 - (ratios.iter().sum::<f64>() / ratios.len() as f64).exp())
}

/// Rows under pressure.
pub(super) fn pressed<'a>(rows: &View<'a>, share_max: f64) -> View<'a> {
    rows.filter(|row| row.number("memory_share").is_some_and(|share| share <= share_max))
}

/// Ratio of memory for the same number of pages, at an amount of the baseline's memory.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct MemoryRatio {
    pub baseline_share: f64,
    pub ratio: f64,
    /// A lower bound where the approach reads fewer pages even with its smallest amount, an upper
    /// one where it reads more even with its largest.
    pub known: Known,
}

impl MemoryRatio {
    /// The row of an approach's ratio; `keys` says which lookups it is of.
    pub fn row(&self, approach: &Approach, keys: &str) -> Row {
        row! {
            shows: "ratio",
            approach: approach.name,
            keys: keys.to_owned(),
            memory_share: self.baseline_share,
            memory_ratio: self.ratio,
            known: self.known.sign(),
        }
    }
}

/// The ratios at the baseline's amounts of memory from 10 to 100 %, at one share of empty lookups.
pub(super) fn memory_ratios(rows: &View<'_>, idea: &str, empty_fraction: f64) -> Vec<MemoryRatio> {
    memory_ratios_of(&rows.of("empty_fraction", empty_fraction), STATE_OF_THE_ART.name, idea, (0.1, 1.0))
}

/// The ratios to this baseline in rows of one kind of lookups, at the baseline's shares of memory
/// from the first to the second one.
pub(super) fn memory_ratios_of(
    rows: &View<'_>,
    baseline: &str,
    idea: &str,
    (least, most): (f64, f64),
) -> Vec<MemoryRatio> {
    let curve = |name: &str| -> Vec<(f64, f64)> {
        let points = rows.of("approach", name).points("memory_share", "pages");
        points.into_iter().map(|(share, pages)| (share.ln(), pages)).collect()
    };
    let (baseline, idea) = (curve(baseline), curve(idea));
    let (Some(first), Some(last)) = (idea.first(), idea.last()) else { return Vec::new() };
    let ratio = |(ln_share, pages): &(f64, f64)| {
        let baseline_share = ln_share.exp();
        let (at, known) = match reaches(&idea, *pages) {
            Some(at) => (at, Known::Exactly),
            None if first.1 < *pages => (first.0, Known::AtLeast),
            None => (last.0, Known::AtMost),
        };
        MemoryRatio { baseline_share, ratio: (ln_share - at).exp(), known }
    };
    let is_asked = |(ln_share, _): &&(f64, f64)| (least * 0.99..=most * 1.001).contains(&ln_share.exp());
    baseline.iter().filter(is_asked).map(ratio).collect()
}

/// The median of [`memory_ratios`]; bounds count as their value.
pub(super) fn median_ratio(rows: &View<'_>, idea: &str, empty_fraction: f64) -> Option<f64> {
    median_of(&memory_ratios(rows, idea, empty_fraction))
}

/// The median of these ratios; bounds count as their value.
pub(super) fn median_of(ratios: &[MemoryRatio]) -> Option<f64> {
    let ratios: Vec<f64> = ratios.iter().map(|one| one.ratio).collect();
    (!ratios.is_empty()).then(|| crate::lookups::median(ratios))
}

/// Whether the median is a bound: it is a lower one if it grew with lower bounds that grow.
pub(super) fn median_known(rows: &View<'_>, idea: &str, empty_fraction: f64) -> Known {
    known_of(&memory_ratios(rows, idea, empty_fraction))
}

/// The same of these ratios.
pub(super) fn known_of(ratios: &[MemoryRatio]) -> Known {
    let median_with = |bound: Known, in_its_place: f64| {
        let of = |one: &MemoryRatio| if one.known == bound { in_its_place } else { one.ratio };
        crate::lookups::median(ratios.iter().map(of).collect())
    };
    let median = crate::lookups::median(ratios.iter().map(|one| one.ratio).collect());
    // Ratios that are equal but for rounding are no bounds of one another.
    let near = 1e-9 * median;
    let (high, low) = (median_with(Known::AtLeast, f64::INFINITY), median_with(Known::AtMost, 0.0));
    Known::of(high > median + near, low < median - near)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(points: &[(&'static str, f64, f64)]) -> Rows {
        let mut rows = Rows::default();
        for (approach, share, pages) in points {
            rows.push(row!(approach: *approach, memory_share: *share, empty_fraction: 0.5, pages: *pages));
        }
        rows
    }

    /// Rows of an approach that reads `pages` with any memory, and of a baseline that reads from 2
    /// to 8.
    fn rows_of_bounds(baseline: &'static str, pages: f64) -> Rows {
        let of_baseline = [(baseline, 0.1, 8.0), (baseline, 0.3, 6.0), (baseline, 0.9, 2.0)];
        let points: Vec<_> =
            of_baseline.into_iter().chain([("idea", 0.1, pages), ("idea", 0.9, pages)]).collect();
        rows(&points)
    }

    #[test]
    fn a_third_of_the_memory_is_a_ratio_of_three() {
        let baseline = STATE_OF_THE_ART.name;
        let rows = rows(&[
            (baseline, 0.1, 8.0),
            (baseline, 0.3, 6.0),
            (baseline, 0.9, 2.0),
            ("idea", 0.1, 6.0),
            ("idea", 0.3, 2.0),
            ("idea", 0.9, 1.0),
        ]);
        let ratios = memory_ratios(&rows.view(), "idea", 0.5);
        let told: Vec<(f64, Known)> =
            ratios.iter().map(|one| ((one.ratio * 100.0).round() / 100.0, one.known)).collect();
        assert_eq!(told, [(1.0, Known::AtLeast), (3.0, Known::Exactly), (3.0, Known::Exactly)]);
        // The lower bound could grow beyond the others, and the median stays.
        assert_eq!(median_known(&rows.view(), "idea", 0.5), Known::Exactly);
        assert_eq!(median_known(&rows_of_bounds(baseline, 1.0).view(), "idea", 0.5), Known::AtLeast);
        assert_eq!(median_known(&rows_of_bounds(baseline, 9.0).view(), "idea", 0.5), Known::AtMost);
        assert!((median_ratio(&rows.view(), "idea", 0.5).expect("a ratio") - 3.0).abs() < 1e-9);
        assert_eq!(median_ratio(&rows.view(), "idea", 1.0), None);
        let saves = saved(&rows.view(), "idea").expect("both sides");
        assert!((saves - (1.0 - (0.75f64 * (1.0 / 3.0) * 0.5).cbrt())).abs() < 1e-9, "{saves}");
        assert_eq!(pressed(&rows.view(), 0.3).0.len(), 4);
    }
}
