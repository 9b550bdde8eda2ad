//! Figures 13 C and D: lookups against updates, over designs, on an SSD and on a disk.
//!
//! Each design's tree is laid down full, then as many entries are inserted as the scale has time for, at most as many as there were.
//! An update costs the pages that flushes and merges read and write for it, counted; times what the device takes for a page, as the
//! paper's model has it. (Our merges read and write many pages at once: they cost less time than that.) Then lookups that find
//! nothing are timed on the device.

use shamba::Stats;
use shamba_figures::{Axis, Chart, Panel, Point as At, Series, Style};
use shamba_model::allocation::Allocation;
use shamba_model::cost::{
    Costs, CpuTimes, DataSet, Device as ModelDevice, FilterBits, Plan, Situation, Workload, predict_merging,
};
use shamba_model::updates::Merging;
use shamba_model::{Design, MergePolicy};

use super::grown::Grown;
use super::point::{Mean, affordable, both, percent, saved};
use super::setup::{BITS_PER_KEY, BUFFERS, ENTRY_BYTES, Filters, HDD, LOOKUPS, SSD, entries};
use crate::lab::table::{Cell, row};
use crate::lab::{Device, Experiment, Finding, Lab, Paper, Parameter, Scale, Table, Verdict};

pub(super) const PAGE_BYTES: u64 = 4_096;
const CLAIM: &str = "For any merge policy and size ratio Monkey's lookups cost less, up to 50 %; or at the same lookups updates up to 70 % less.";

pub(super) const C: Experiment = Experiment {
    id: "monkey-fig13c",
    paper: Paper::Monkey,
    place: "Fig 13 C",
    title: "lookups against updates over designs, SSD",
    claim: CLAIM,
    parameters: |scale| parameters(scale, SSD),
    run: |lab| run(lab, SSD),
};

pub(super) const D: Experiment = Experiment {
    id: "monkey-fig13d",
    place: "Fig 13 D",
    title: "lookups against updates over designs, HDD",
    parameters: |scale| parameters(scale, HDD),
    run: |lab| run(lab, HDD),
    ..C
};

/// From cheap lookups to cheap updates.
fn designs(scale: Scale) -> Vec<(MergePolicy, f64)> {
    let leveled: &[f64] =
        scale.pick(&[10.0, 4.0][..], &[10.0, 6.0, 4.0, 3.0][..], &[10.0, 6.0, 4.0, 3.0][..]);
    let tiered: &[f64] = scale.pick(&[4.0, 8.0][..], &[3.0, 4.0, 6.0, 10.0][..], &[3.0, 4.0, 6.0, 10.0][..]);
    let of = |policy| move |ratio: &f64| (policy, *ratio);
    let leveled = leveled.iter().map(of(MergePolicy::Leveling));
    leveled.chain([(MergePolicy::Leveling, 2.0)]).chain(tiered.iter().map(of(MergePolicy::Tiering))).collect()
}

fn name((policy, ratio): (MergePolicy, f64)) -> String {
    match policy {
        MergePolicy::Leveling if ratio == 2.0 => "2".to_owned(),
        MergePolicy::Leveling => format!("L{ratio}"),
        _ => format!("T{ratio}"),
    }
}

/// Growing takes long: a quarter of the usual tree at the smallest scale.
pub(super) fn count(scale: Scale) -> u64 {
    entries(scale) / scale.pick(4, 2, 1)
}

fn inserts(scale: Scale) -> u64 {
    count(scale) / scale.pick(2, 1, 1)
}

/// A thousandth of the data.
pub(super) fn buffer_of(scale: Scale) -> u64 {
    count(scale) * ENTRY_BYTES as u64 / BUFFERS
}

fn parameters(scale: Scale, device: Device) -> Vec<Parameter> {
    vec![
        Parameter::varied("design", designs(scale).into_iter().map(name)),
        Parameter::fixed("device", device.name()),
        Parameter::fixed("entries", count(scale)),
        Parameter::fixed("inserts", inserts(scale)),
        Parameter::fixed("entry bytes", ENTRY_BYTES),
        Parameter::fixed("buffer bytes", buffer_of(scale)),
        Parameter::fixed("bits per key", BITS_PER_KEY),
        Parameter::fixed("empty fraction", 1),
        Parameter::fixed("lookups timed a trial, at most", LOOKUPS),
    ]
}

/// One side of one design.
struct Point {
    design: String,
    filters: Filters,
    update_pages: f64,
    lookup_us: Mean,
    ios: f64,
    bits_per_key: f64,
    costs: Costs,
    shape: [Cell; 4],
}

fn run(lab: &mut Lab<'_>, device: Device) -> Result<Finding, String> {
    let read_ns = device.read_ns().unwrap_or(0);
    let (entries, inserts) = (count(lab.scale), inserts(lab.scale));
    let mut points = Vec::new();
    for design in designs(lab.scale) {
        let mut grown = Vec::new();
        let plan = Design::new(design.0, design.1, buffer_of(lab.scale), BITS_PER_KEY);
        for filters in Filters::PAIR {
            let tree = Grown::lay(lab, plan, filters, entries)?;
            let db = tree.open(None)?;
            lab.at(format_args!("inserting {inserts} entries, {}, {}", name(design), filters.name()));
            let before = db.stats();
            tree.insert(&db, 0, inserts)?;
            db.flush().and_then(|()| db.wait_idle()).map_err(|error| error.to_string())?;
            let pages = pages_of(&db.stats().since(&before)) / inserts as f64;
            db.close().map_err(|error| error.to_string())?;
            grown.push((tree, pages));
        }
        let open = |(tree, _): &(Grown, f64)| tree.open_to_read(device);
        let open: Vec<shamba::Db> = grown.iter().map(open).collect::<Result<_, _>>()?;
        let dearest = expected_of(&plan, Filters::Uniform, entries + inserts, read_ns)?;
        let timed = affordable(lab.scale, read_ns, dearest.zero_result_lookup_ios_exact);
        let mut us = [Vec::new(), Vec::new()];
        lab.at(format_args!("looking up, {}: {timed} lookups a trial", name(design)));
        for trial in 0..lab.repeats {
            for ((side, (tree, _)), db) in us.iter_mut().zip(&grown).zip(&open) {
                let ns = tree.look_up(db, timed, lab.seed ^ u64::from(trial) << 8)?;
                side.push(ns as f64 / timed as f64 / 1e3);
            }
        }
        for (((tree, pages), _), us) in grown.iter().zip(&open).zip(&us) {
            let counted = tree.open_to_read(Device::Memory)?;
            tree.look_up(&counted, LOOKUPS, lab.seed)?;
            let stats = counted.stats();
            let reads = stats.data_reads + stats.index_reads + stats.filter_reads;
            let (bits, of) = stats.levels.iter().fold((0.0, 0), |(bits, of), level| {
                (bits + level.bits_per_key * level.entries as f64, of + level.entries)
            });
            points.push(Point {
                design: name(design),
                filters: tree.filters,
                update_pages: *pages,
                lookup_us: Mean::of(us),
                ios: reads as f64 / stats.lookups.max(1) as f64,
                bits_per_key: bits / of.max(1) as f64,
                costs: expected_of(&plan, tree.filters, entries + inserts, read_ns)?,
                shape: [
                    stats.deepest_level.into(),
                    stats.runs.into(),
                    (stats.deepest_level >= tree.levels).into(),
                    true.into(),
                ],
            });
        }
    }
    let side = |filters: Filters| -> Vec<(f64, f64)> {
        points
            .iter()
            .filter(|point| point.filters == filters)
            .map(|point| (point.update_pages, point.ios))
            .collect()
    };
    let [uniform, monkey] = Filters::PAIR.map(side);
    let lookups = uniform.iter().zip(&monkey).map(|(uniform, monkey)| saved(uniform.1, monkey.1));
    let lookups: Vec<f64> = lookups.collect();
    let (least, most) =
        (lookups.iter().copied().fold(1.0, f64::min), lookups.iter().copied().fold(0.0, f64::max));
    let updates = most_updates_saved(&uniform, &monkey);
    let verdict = both(verdict_of(most, 0.5), verdict_of(updates, 0.7));
    let verdict = if least < 0.0 { Verdict::NotHere } else { verdict };
    let why = match verdict {
        Verdict::Confirmed => String::new(),
        _ => format!(
            "How much can be traded depends on where two designs' costs happen to lie: of {} designs the curve has few points to trade between.",
            uniform.len()
        ),
    };
    let note = format!(
        "Emulated {}. Updates: pages that flushes and merges read and write for an insert, counted, times what the device takes for one. \
         From left to right: {}. {BITS_PER_KEY} bits per key, all lookups empty. Model: equations 7 and 56 for the levels there are, and merges as the \
         engine makes them.",
        device.name(),
        designs(lab.scale).into_iter().map(name).rev().collect::<Vec<_>>().join(", ")
    );
    Ok(Finding {
        ours: format!(
            "Monkey spares from {} to {} of a lookup's I/Os at the same design, or at most {} of an update's pages at no dearer lookups.",
            percent(least),
            percent(most),
            percent(updates)
        ),
        verdict,
        why,
        table: table(&points, read_ns),
        chart: chart(&points, read_ns, &note),
    })
}

/// Pages that flushes and merges read and wrote.
pub(super) fn pages_of(stats: &Stats) -> f64 {
    (stats.bytes_flushed + stats.bytes_merged + stats.bytes_merge_read) as f64 / PAGE_BYTES as f64
}

/// What the model says of a design.
fn expected_of(design: &Design, filters: Filters, entries: u64, read_ns: u64) -> Result<Costs, String> {
    let situation = situation(entries, read_ns as f64, [1.0, 1.0, 0.0]);
    let plan = Plan {
        design: *design,
        filters: FilterBits::PerKey(design.bits_per_key),
        allocation: if filters == Filters::Uniform { Allocation::Uniform } else { Allocation::Monkey },
        cache_bytes: 0,
        levels: None,
    };
    predict_merging(&situation, &plan, Merging::FileByFile)
}

/// These entries, on a device of so many nanoseconds a page, with rates of empty lookups, updates and short ranges.
pub(super) fn situation(entries: u64, read_ns: f64, [empty_lookups, updates, ranges]: [f64; 3]) -> Situation {
    Situation {
        data: DataSet { entries, entry_bytes: ENTRY_BYTES as f64, page_bytes: PAGE_BYTES },
        workload: Workload { empty_lookups, found_lookups: 0.0, updates, ranges, range_selectivity: 1e-5 },
        device: ModelDevice { read_ns, write_ns: read_ns, cpu: CpuTimes::NONE },
    }
}

/// The most of a baseline design's update cost that another design with the idea spares whose lookups cost no more.
fn most_updates_saved(baseline: &[(f64, f64)], idea: &[(f64, f64)]) -> f64 {
    let of = |(update, lookup): &(f64, f64)| {
        let as_good = idea.iter().filter(|(_, other)| other <= lookup).map(|(update, _)| *update);
        saved(*update, as_good.fold(*update, f64::min))
    };
    baseline.iter().map(of).fold(0.0, f64::max)
}

fn verdict_of(share: f64, claimed: f64) -> Verdict {
    match share {
        share if share >= 0.8 * claimed => Verdict::Confirmed,
        share if share >= 0.2 * claimed => Verdict::Partly,
        _ => Verdict::NotHere,
    }
}

fn table(points: &[Point], read_ns: u64) -> Table {
    let mut table = Table::new(&[
        "design",
        "filters",
        "update_pages_counted",
        "update_us_of_counted_pages",
        "lookup_mean_us",
        "lookup_std_us",
        "ios_per_lookup_counted",
        "bits_per_key_written",
        "model_update_ios",
        "model_lookup_ios",
        "levels",
        "runs",
        "comparable",
        "emulated",
    ]);
    for point in points {
        let [levels, runs, comparable, emulated] = point.shape.clone();
        table.row(row![
            point.design.clone(),
            point.filters.name(),
            point.update_pages,
            point.update_pages * read_ns as f64 / 1e3,
            point.lookup_us.mean,
            point.lookup_us.std,
            point.ios,
            point.bits_per_key,
            point.costs.merged_update_ios,
            point.costs.zero_result_lookup_ios_exact,
            levels,
            runs,
            comparable,
            emulated,
        ]);
    }
    table
}

fn chart(points: &[Point], read_ns: u64, note: &str) -> Chart {
    let us = read_ns as f64 / 1e3;
    let of = |filters: Filters| points.iter().filter(move |point| point.filters == filters);
    // In order of their updates, as a curve from left to right.
    let ordered = |mut points: Vec<At>| {
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        points
    };
    let measured = Filters::PAIR.map(|filters| {
        let at = of(filters).map(|point| {
            let Mean { mean, std } = point.lookup_us;
            At::between(point.update_pages * us, mean, (mean - std).max(mean / 10.0), mean + std)
        });
        Series::new(filters.name(), Style::Line, ordered(at.collect()))
    });
    let models = Filters::PAIR.map(|filters| {
        let at = of(filters).map(|point| {
            At::new(point.costs.merged_update_ios * us, point.costs.zero_result_lookup_ios_exact * us)
        });
        Series::new(format!("{}, model", filters.name()), Style::Dashes, ordered(at.collect()))
    });
    Chart {
        title: "The trade-off between lookups and updates".to_owned(),
        claim: CLAIM.to_owned(),
        note: note.to_owned(),
        panels: vec![Panel {
            title: String::new(),
            x: Axis::log("update: counted pages [us]"),
            y: Axis::log("lookup latency [us]"),
            series: measured.into_iter().chain(models).collect(),
        }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn updates_are_traded_at_no_dearer_lookups() {
        let baseline = [(10.0, 0.3), (6.0, 0.5), (2.0, 2.0)];
        let idea = [(10.0, 0.15), (6.0, 0.28), (2.0, 1.0)];
        assert!((most_updates_saved(&baseline, &idea) - 0.4).abs() < 1e-12);
        assert_eq!(most_updates_saved(&baseline, &baseline), 0.0);
    }

    #[test]
    fn verdicts_follow_the_figures() {
        assert_eq!(
            [0.45, 0.2, 0.05].map(|share| verdict_of(share, 0.5)),
            [Verdict::Confirmed, Verdict::Partly, Verdict::NotHere]
        );
    }
}
