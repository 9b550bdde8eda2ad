//! Readings as a table, as curves, and held against each other.

use crate::chart::{Axis, Chart, Panel, Point, Series, Style};

use super::approaches::Approach;
use super::measure::{Reading, Setting};
use crate::checks::curves::ratio::{self, Ratio, memory_ratio};
use crate::lookups::Spread;
use crate::table::row;
use crate::{Table, Verdict};

/// Where memory is short: shares of what all filters and indexes take.
pub(super) const SHARES: [f64; 6] = [0.1, 0.2, 0.35, 0.5, 0.75, 1.2];
/// Above this share there is no pressure.
pub(super) const PRESSURE_MOST: f64 = 0.75;
/// Up to this share it is severe.
pub(super) const SEVERE_MOST: f64 = 0.35;
/// Time that is spared counts from here on.
pub(super) const FASTER: f64 = 0.05;
/// What is saved counts as something from here on, and as what the slides mean from there on.
pub(super) const SAVES_SOMETHING: f64 = 0.02;
pub(super) const SAVES: f64 = 0.1;

/// What stands below every figure over memory.
pub(super) const MEMORY_NOTE: &str = "Memory is what filters, indexes and data blocks have together, in parts of what all filters and indexes \
    take. T = 4, 5 levels, keys of 32 bytes, 10 bits per key, uniform lookups. Dashed: the best that could be held, by the model. Bars: least and most \
    of the repeats.";

/// All readings.
pub(super) fn table(readings: &[Reading]) -> Table {
    let mut table = Table::new(&[
        "approach",
        "layout",
        "allocation",
        "residency",
        "skipping",
        "device",
        "entries",
        "entry_bytes",
        "file_bytes",
        "memory_share",
        "memory_bytes",
        "empty_fraction",
        "ios_per_get",
        "ios_least",
        "ios_most",
        "ios_model",
        "filter_ios_per_get",
        "index_ios_per_get",
        "data_ios_per_get",
        "read_bytes_per_get",
        "modules_per_get",
        "modules_skipped_per_get",
        "false_positives_per_get",
        "ns_per_get",
        "ns_least",
        "ns_most",
        "levels",
        "runs",
        "comparable",
        "emulated",
    ]);
    for reading in readings {
        let (approach, stats) = (&reading.approach, &reading.stats);
        table.row(row![
            approach.name,
            approach.layout,
            approach.allocation.name(),
            approach.residency,
            approach.skipping,
            reading.setting.device.name(),
            reading.extent.entries,
            reading.extent.entry_bytes,
            reading.extent.file_bytes,
            reading.setting.memory_share,
            reading.memory_bytes,
            reading.setting.empty_fraction,
            reading.ios.median,
            reading.ios.least,
            reading.ios.most,
            reading.model_ios,
            reading.per_lookup(stats.reads.filter.count),
            reading.per_lookup(stats.reads.index.count),
            reading.per_lookup(stats.reads.data.count),
            reading.read_bytes.median,
            reading.per_lookup(stats.modules_tested),
            reading.per_lookup(stats.modules_skipped),
            reading.per_lookup(stats.false_positives),
            reading.ns().map(|ns| ns.median),
            reading.ns().map(|ns| ns.least),
            reading.ns().map(|ns| ns.most),
            stats.deepest_level,
            stats.runs,
            reading.is_comparable(),
            stats.emulated,
        ]);
    }
    table
}

/// Across a figure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Over {
    Memory,
    Empty,
}

impl Over {
    fn of(self, reading: &Reading) -> f64 {
        match self {
            Self::Memory => 100.0 * reading.setting.memory_share,
            Self::Empty => 100.0 * reading.setting.empty_fraction,
        }
    }

    fn axis(self) -> Axis {
        match self {
            Self::Memory => Axis::log("memory [% of all filters and indexes]"),
            Self::Empty => Axis::linear("lookups of absent keys [%]"),
        }
    }
}

/// A panel of I/Os, with the models of the approaches that are named.
pub(super) fn io_panel<'a>(
    title: &str,
    over: Over,
    readings: impl Iterator<Item = &'a Reading> + Clone,
    models: &[&str],
) -> Panel {
    let curve = |approach: &Approach, style: Style| {
        let of_it = readings.clone().filter(|reading| reading.approach.name == approach.name);
        let points = of_it.map(|reading| match style {
            Style::Dashes => Point::new(over.of(reading), reading.model_ios),
            _ => Point::between(over.of(reading), reading.ios.median, reading.ios.least, reading.ios.most),
        });
        points.collect::<Vec<_>>()
    };
    let approaches = approaches(readings.clone());
    let measured = approaches.iter().map(|one| Series::new(one.name, Style::Line, curve(one, Style::Line)));
    let modelled = approaches
        .iter()
        .filter(|one| models.contains(&one.name))
        .map(|one| Series::new(format!("{}, model", one.name), Style::Dashes, curve(one, Style::Dashes)));
    Panel {
        title: title.to_owned(),
        x: over.axis(),
        y: Axis::from_zero("I/Os a lookup"),
        series: measured.chain(modelled).collect(),
    }
}

/// A panel of the time of lookups over the share of empty ones.
pub(super) fn time_panel<'a>(title: &str, readings: impl Iterator<Item = &'a Reading> + Clone) -> Panel {
    let of = |approach: &Approach| {
        let of_it = readings.clone().filter(|reading| reading.approach.name == approach.name);
        let points = of_it.filter_map(|reading| {
            let Spread { median, least, most } = reading.ns()?;
            Some(Point::between(Over::Empty.of(reading), median / 1e3, least / 1e3, most / 1e3))
        });
        Series::new(approach.name, Style::Line, points.collect())
    };
    Panel {
        title: title.to_owned(),
        x: Over::Empty.axis(),
        y: Axis::from_zero("time of a lookup [us]"),
        series: approaches(readings.clone()).iter().map(of).collect(),
    }
}

/// Each approach once, in the order in which they were compared.
pub(super) fn approaches<'a>(readings: impl Iterator<Item = &'a Reading>) -> Vec<Approach> {
    let mut approaches: Vec<Approach> = Vec::new();
    for reading in readings {
        if approaches.iter().all(|known| known.name != reading.approach.name) {
            approaches.push(reading.approach);
        }
    }
    approaches
}

/// A chart of I/Os over memory, a panel for each share of empty lookups.
pub(super) fn memory_chart(
    title: &str,
    claim: &str,
    note: &str,
    readings: &[Reading],
    models: &[&str],
) -> Chart {
    let mut shares: Vec<f64> = Vec::new();
    for reading in readings {
        if !shares.contains(&reading.setting.empty_fraction) {
            shares.push(reading.setting.empty_fraction);
        }
    }
    let panel = |share: &f64| {
        let of_it = readings.iter().filter(|reading| reading.setting.empty_fraction == *share);
        let title = if shares.len() > 1 { empty_title(*share) } else { String::new() };
        io_panel(&title, Over::Memory, of_it, models)
    };
    Chart {
        title: title.to_owned(),
        claim: claim.to_owned(),
        note: note.to_owned(),
        panels: shares.iter().map(panel).collect(),
    }
}

/// `half of the keys absent`.
pub(super) fn empty_title(share: f64) -> String {
    match share {
        s if s <= 0.0 => "all keys there".to_owned(),
        s if s >= 1.0 => "all keys absent".to_owned(),
        s => format!("{:.0} % of the keys absent", 100.0 * s),
    }
}

/// The I/Os of one approach beside those of another, under the same settings.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Saved {
    /// On the geometric mean, where memory is short.
    pub mean: f64,
    pub least: f64,
    pub most: f64,
}

/// What `idea` saves of the I/Os of `baseline`: under pressure, with this share of empty lookups (all shares if there is none).
pub(super) fn saved(readings: &[Reading], baseline: &str, idea: &str, empty_fraction: Option<f64>) -> Saved {
    let pairs = under_pressure(readings, baseline, idea, empty_fraction);
    saved_of(pairs.map(|(baseline, idea)| (baseline.median, idea.median)))
}

/// The mean share that `idea` saves of `baseline`'s I/Os if it always did as in its worst repeat, and the baseline as in its best. What is not
/// above 0 is within noise.
pub(super) fn saved_surely(
    readings: &[Reading],
    baseline: &str,
    idea: &str,
    empty_fraction: Option<f64>,
) -> f64 {
    let pairs = under_pressure(readings, baseline, idea, empty_fraction);
    saved_of(pairs.map(|(baseline, idea)| (baseline.least, idea.most))).mean
}

/// The I/Os of (baseline, idea) at each point where memory is short.
fn under_pressure<'a>(
    readings: &'a [Reading],
    baseline: &'a str,
    idea: &'a str,
    empty_fraction: Option<f64>,
) -> impl Iterator<Item = (Spread, Spread)> + 'a {
    let ios = move |reading: &Reading| {
        let is_it = |other: &&Reading| other.approach.name == baseline && other.setting == reading.setting;
        readings.iter().find(is_it).map(|found| found.ios)
    };
    let is_wanted = move |reading: &&Reading| {
        reading.approach.name == idea
            && reading.setting.memory_share <= PRESSURE_MOST
            && empty_fraction.is_none_or(|share| reading.setting.empty_fraction == share)
    };
    readings.iter().filter(is_wanted).filter_map(move |reading| Some((ios(reading)?, reading.ios)))
}

fn saved_of(pairs: impl Iterator<Item = (f64, f64)>) -> Saved {
    let parts: Vec<f64> = pairs
        .filter(|(baseline, idea)| *baseline > 0.0 && *idea > 0.0)
        .map(|(baseline, idea)| idea / baseline)
        .collect();
    if parts.is_empty() {
        return Saved { mean: 0.0, least: 0.0, most: 0.0 };
    }
    let mean = (parts.iter().map(|part| part.ln()).sum::<f64>() / parts.len() as f64).exp();
    let (least, most) =
        parts.iter().fold((f64::INFINITY, 0.0f64), |(least, most), part| (least.min(*part), most.max(*part)));
    Saved { mean: 1.0 - mean, least: 1.0 - most, most: 1.0 - least }
}

/// The share of time that `idea` saves of `baseline`'s under the setting that is wanted: of each repeat, then the median. Nothing where that
/// was not timed.
pub(super) fn time_saved(
    readings: &[Reading],
    baseline: &str,
    idea: &str,
    is_wanted: impl Fn(&Setting) -> bool,
) -> Spread {
    let ns = |name: &str| {
        let is_it = |reading: &&Reading| reading.approach.name == name && is_wanted(&reading.setting);
        readings.iter().find(is_it).map_or(&[][..], |reading| &reading.repeats_ns)
    };
    Spread::of_gains(ns(idea), ns(baseline))
}

/// The verdict if the gain is sure; nothing is shown by what is within noise.
pub(super) fn if_sure(is_sure: bool, verdict: Verdict) -> Verdict {
    if is_sure { verdict } else { Verdict::NotHere }
}

/// What is said of a gain that is not sure, or of a loss.
pub(super) const NOT_SURE: &str =
    "Not surely better: in its worst repeat the variant is no better than the baseline in its best.";

/// What it means for a claim that something saves I/Os.
pub(super) fn verdict(saved: Saved) -> Verdict {
    match saved.mean {
        mean if mean >= SAVES => Verdict::Confirmed,
        mean if mean >= SAVES_SOMETHING || saved.most >= SAVES => Verdict::Partly,
        _ => Verdict::NotHere,
    }
}

/// How many times the memory of `idea` the baseline needs for as few I/Os.
///
/// # Errors
/// Where nothing was measured of one of them.
pub(super) fn times_the_memory(
    readings: &[Reading],
    baseline: &str,
    idea: &str,
    empty_fraction: f64,
) -> Result<Ratio, String> {
    let median = |ios: Spread| ios.median;
    ratio_of(readings, (baseline, median), (idea, median), empty_fraction)
}

/// The same with the worst repeats of `idea` against the best ones of the baseline.
///
/// # Errors
/// Where nothing was measured of one of them.
pub(super) fn surely_times_the_memory(
    readings: &[Reading],
    baseline: &str,
    idea: &str,
    empty_fraction: f64,
) -> Result<Ratio, String> {
    ratio_of(readings, (baseline, |ios| ios.least), (idea, |ios| ios.most), empty_fraction)
}

/// An approach, and which of its repeats count.
type Curve<'a> = (&'a str, fn(Spread) -> f64);

fn ratio_of(
    readings: &[Reading],
    baseline: Curve<'_>,
    idea: Curve<'_>,
    empty_fraction: f64,
) -> Result<Ratio, String> {
    let curve = |(name, ios): Curve<'_>| {
        let of_it = readings.iter().filter(|reading| {
            reading.approach.name == name && reading.setting.empty_fraction == empty_fraction
        });
        let point = |reading: &Reading| ratio::Point {
            memory_bytes: reading.memory_bytes as f64,
            reads: ios(reading.ios),
        };
        let mut curve: Vec<ratio::Point> = of_it.map(point).collect();
        curve.sort_by(|a, b| a.memory_bytes.total_cmp(&b.memory_bytes));
        curve
    };
    memory_ratio(&curve(baseline), &curve(idea)).ok_or_else(|| {
        format!("nothing to compare {} with {} by at {empty_fraction} empty lookups", idea.0, baseline.0)
    })
}

/// `1.3 (2.0 where most; lower bound)`: as the report's head explains it.
pub(super) fn told_times(ratio: &Ratio) -> String {
    let Ratio { mean, most, more_at, less_at, .. } = *ratio;
    let bound = match (more_at, less_at) {
        (0, 0) => "",
        (_, 0) => "; lower bound",
        (0, _) => "; upper bound",
        _ => "; bounds on both sides",
    };
    format!("{mean:.1} ({most:.1} where most{bound})")
}

/// `12 %`, `-3 %`.
pub(super) fn percent(share: f64) -> String {
    let rounded = (100.0 * share).round();
    format!("{} %", if rounded == 0.0 { 0.0 } else { rounded })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_saved_is_a_mean_of_shares() {
        let saved = saved_of([(2.0, 1.0), (1.0, 0.5), (0.0, 0.0)].into_iter());
        assert!((saved.mean - 0.5).abs() < 1e-12 && saved.least == 0.5 && saved.most == 0.5);
        let worse = saved_of([(1.0, 2.0)].into_iter());
        assert_eq!((worse.mean, verdict(worse)), (-1.0, Verdict::NotHere));
        assert_eq!(verdict(saved), Verdict::Confirmed);
        assert_eq!(verdict(Saved { mean: 0.05, least: 0.0, most: 0.08 }), Verdict::Partly);
        assert_eq!(verdict(Saved { mean: -0.01, least: -0.3, most: 0.2 }), Verdict::Partly);
        assert_eq!(verdict(saved_of(std::iter::empty())), Verdict::NotHere);
    }

    #[test]
    fn percents_have_no_digits_and_no_negative_zero() {
        assert_eq!(
            ["-0.001", "0.126", "-0.031"].map(|n| percent(n.parse().expect("a number"))),
            ["0 %", "13 %", "-3 %"]
        );
    }
}
