//! Figures 13 C and D: lookups against updates, over designs, on an SSD and on a disk.
//!
//! Each design's tree is laid down, then takes inserts, three quarters of what it had; a lookup costs what it does on average at the end
//! of each part of them, because tiered trees have more runs at one time than at another. Both sides look up in the same tree, whose
//! filters are written again for each ([`super::grown`]).
//!
//! An update costs the pages that flushes and merges read and write for it, counted; times what the device takes for a page, as the
//! paper's model has it. (Our merges read and write many pages at once: they cost less time than that.) Then lookups that find
//! nothing are timed on the device.

use crate::chart::{Axis, Chart, Panel, Point as At, Series, Style};
use shamba_model::allocation::Allocation;
use shamba_model::cost::{
    Costs, CpuTimes, DataSet, Device as ModelDevice, FilterBits, Plan, Situation, Workload, predict_merging,
};
use shamba_model::updates::Merging;
use shamba_model::{Design, MergePolicy};

use super::grown::{Grown, Life, Lived, PAGE_BYTES, Reads};
use super::point::{Mean, affordable, both, percent, saved};
use super::setup::{BITS_PER_KEY, Filters, HDD, LOOKUPS, SSD, lookups_counted};
use crate::table::{Cell, row};
use crate::{Device, Experiment, Finding, Kind, Lab, Paper, Parameter, Scale, Table, Verdict};

/// Write buffers of data: a little fewer than fill nine levels at T = 2.
const BUFFERS: u64 = 800;
/// In the legend.
const UPDATES: &str = "updates (one tree)";
const CLAIM: &str = "For any merge policy and size ratio Monkey's lookups cost less, up to 50 %; or at the same lookups updates up to 70 % less.";

pub(super) const C: Experiment = Experiment {
    id: "monkey-fig13c",
    paper: Paper::Monkey,
    kind: Kind::Measured,
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

/// From cheap lookups to cheap updates; T = 2 is leveling and tiering in one.
fn designs() -> Vec<(MergePolicy, f64)> {
    let leveled = [10.0, 6.0, 4.0, 3.0, 2.0].map(|ratio| (MergePolicy::Leveling, ratio));
    let tiered = [3.0, 4.0, 6.0, 10.0].map(|ratio| (MergePolicy::Tiering, ratio));
    leveled.into_iter().chain(tiered).collect()
}

fn name((policy, ratio): (MergePolicy, f64)) -> String {
    match policy {
        MergePolicy::Leveling if ratio == 2.0 => "2".to_owned(),
        MergePolicy::Leveling => format!("L{ratio}"),
        _ => format!("T{ratio}"),
    }
}

/// How many entries, and the bytes of each.
pub(super) fn sizes(scale: Scale) -> (u64, u64) {
    if scale == Scale::Tiny {
        return (1 << 14, 64);
    }
    scale.pick((1 << 15, 1_024), (1 << 18, 1_024), (1 << 20, 1_024))
}

/// Inserts that are counted. Half as many come before them.
pub(super) fn inserts(scale: Scale) -> u64 {
    sizes(scale).0 / 2
}

/// So much of the data that the inserts still fit into as many levels.
pub(super) fn buffer_of(scale: Scale) -> u64 {
    let (entries, entry_bytes) = sizes(scale);
    entries * entry_bytes / BUFFERS
}

/// What is not the paper's: it has 1,024 buffers of 1 KB entries.
pub(super) fn told_sizes(scale: Scale) -> String {
    let (entries, entry_bytes) = sizes(scale);
    format!(
        "Laid down: {entries} entries of {entry_bytes} bytes, {BUFFERS} write buffers for the paper's 1,024."
    )
}

fn parameters(scale: Scale, device: Device) -> Vec<Parameter> {
    vec![
        Parameter::varied("design", designs().into_iter().map(name)),
        Parameter::fixed("device", device.name()),
        Parameter::fixed("entries", sizes(scale).0),
        Parameter::fixed("inserts", inserts(scale)),
        Parameter::fixed("entry bytes", sizes(scale).1),
        Parameter::fixed("buffer bytes", buffer_of(scale)),
        Parameter::fixed("buffers of data", BUFFERS),
        Parameter::fixed("bits per key", BITS_PER_KEY),
        Parameter::fixed("empty fraction", 1),
        Parameter::fixed("lookups timed a trial, at most", LOOKUPS),
    ]
}

/// One side of one design.
struct Point {
    design: String,
    /// Of an insert, counted: the same on both sides, as they have one tree.
    update_pages: f64,
    reads: Reads,
    costs: Costs,
    shape: [Cell; 4],
}

fn run(lab: &mut Lab<'_>, device: Device) -> Result<Finding, String> {
    let read_ns = device.read_ns().unwrap_or(0);
    let (size, inserts) = (sizes(lab.scale), inserts(lab.scale));
    let grown_size = (size.0 + inserts, size.1);
    let mut points = Vec::new();
    for design in designs() {
        let plan = Design::new(design.0, design.1, buffer_of(lab.scale), BITS_PER_KEY);
        let dearest = expected_of(&plan, Filters::Uniform, grown_size, read_ns)?;
        let life = Life {
            device,
            inserts: inserts / u64::from(lab.repeats),
            lookups: affordable(lab.scale, read_ns, dearest.zero_result_lookup_ios_exact),
            ranges: 0,
            lookups_counted: lookups_counted(lab.scale) / 2,
        };
        let mut tree = Grown::lay(lab, plan, size)?;
        tree.insert(inserts / 2, None)?;
        let Lived { update_pages, sides } = tree.live(lab, &life, &Filters::PAIR)?;
        let update_pages = Mean::of(&update_pages).mean;
        for reads in sides {
            let comparable = reads.levels >= tree.levels;
            points.push(Point {
                design: name(design),
                update_pages,
                costs: expected_of(&plan, reads.filters, grown_size, read_ns)?,
                shape: [reads.levels.into(), reads.runs.into(), comparable.into(), true.into()],
                reads,
            });
        }
    }
    let side = |filters: Filters| -> Vec<(f64, f64)> {
        let of_it = points.iter().filter(|point| point.reads.filters == filters);
        of_it.map(|point| (point.update_pages, point.reads.ios())).collect()
    };
    let [uniform, monkey] = Filters::PAIR.map(side);
    let lookups = uniform.iter().zip(&monkey).map(|(uniform, monkey)| saved(uniform.1, monkey.1));
    let lookups: Vec<f64> = lookups.collect();
    let (least, most) =
        (lookups.iter().copied().fold(1.0, f64::min), lookups.iter().copied().fold(0.0, f64::max));
    let updates = most_updates_saved(&uniform, &monkey);
    let verdict = both(verdict_of(most, 0.5), verdict_of(updates, 0.7));
    // That it is better with some designs and not with all is a part of the claim.
    let verdict = if least <= 0.0 && verdict == Verdict::Confirmed { Verdict::Partly } else { verdict };
    let why = match verdict {
        Verdict::Confirmed => String::new(),
        _ => format!(
            "In a tree that lives the small levels are often empty or partly full, and uniform bits lose less there than in a full one; what can \
             be traded depends on where the costs of {} designs happen to lie.",
            uniform.len()
        ),
    };
    let note = format!(
        "Emulated {}. {} Both sides read one tree, with other filters. L: leveling, T: tiering, with the size ratio. Updates: pages that flushes and merges read and write for an insert, \
         counted, times what the device takes for one. \
         Bars: one standard deviation. {BITS_PER_KEY} bits per key, all lookups empty. Model: equations 7 and 56 for the levels there are, and merges as the \
         engine makes them.",
        device.name(),
        told_sizes(lab.scale)
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

/// What the model says of a design.
fn expected_of(design: &Design, filters: Filters, size: (u64, u64), read_ns: u64) -> Result<Costs, String> {
    let situation = situation(size, read_ns as f64, [1.0, 1.0, 0.0]);
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
pub(super) fn situation(
    (entries, entry_bytes): (u64, u64),
    read_ns: f64,
    [empty_lookups, updates, ranges]: [f64; 3],
) -> Situation {
    Situation {
        data: DataSet { entries, entry_bytes: entry_bytes as f64, page_bytes: PAGE_BYTES },
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
            point.reads.filters.name(),
            point.update_pages,
            point.update_pages * read_ns as f64 / 1e3,
            Mean::of(&point.reads.lookup_us).mean,
            Mean::of(&point.reads.lookup_us).std,
            point.reads.ios(),
            point.reads.bits_per_key,
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

/// Lookups and updates design by design, with the model's, and both against each other.
fn chart(points: &[Point], read_ns: u64, note: &str) -> Chart {
    let us = read_ns as f64 / 1e3;
    let of = |filters: Filters| points.iter().filter(move |point| point.reads.filters == filters);
    let lookups = |filters: Filters| {
        let at = of(filters).enumerate().map(|(place, point)| {
            let Mean { mean, std } = Mean::of(&point.reads.lookup_us);
            At::between(place as f64, mean, (mean - std).max(mean / 10.0), mean + std)
        });
        Series::new(filters.name(), Style::Line, at.collect())
    };
    let modelled = |filters: Filters| {
        let at = of(filters).enumerate();
        let at = at.map(|(place, point)| (place as f64, point.costs.zero_result_lookup_ios_exact * us));
        Series::model(format!("{}, model", filters.name()), at)
    };
    let traded = |filters: Filters| {
        let at =
            of(filters).map(|point| At::new(point.update_pages * us, Mean::of(&point.reads.lookup_us).mean));
        Series::new(filters.name(), Style::Markers, at.collect())
    };
    // Both sides have one tree, so one of them tells its updates.
    let updates = |of_point: &dyn Fn(&Point) -> f64| -> Vec<(f64, f64)> {
        let of_tree = of(Filters::Uniform).enumerate();
        of_tree.map(|(place, point)| (place as f64, of_point(point) * us)).collect()
    };
    let counted = updates(&|point| point.update_pages).into_iter().map(|(x, y)| At::new(x, y));
    let by_design = || Axis::categories("design", of(Filters::Uniform).map(|point| point.design.clone()));
    let panel = |title: &str, x: Axis, y: &str, series: Vec<Series>| Panel {
        title: title.to_owned(),
        x,
        y: Axis::log(y),
        series,
    };
    Chart {
        title: "The trade-off between lookups and updates".to_owned(),
        claim: CLAIM.to_owned(),
        note: note.to_owned(),
        panels: vec![
            panel(
                "lookups",
                by_design(),
                "lookup latency [us]",
                Filters::PAIR.map(lookups).into_iter().chain(Filters::PAIR.map(modelled)).collect(),
            ),
            panel(
                "updates",
                by_design(),
                "update: counted pages [us]",
                vec![
                    Series::new(UPDATES, Style::Line, counted.collect()),
                    Series::model(
                        format!("{UPDATES}, model"),
                        updates(&|point| point.costs.merged_update_ios),
                    ),
                ],
            ),
            panel(
                "against each other",
                Axis::log("update: counted pages [us]"),
                "lookup latency [us]",
                Filters::PAIR.map(traded).to_vec(),
            ),
        ],
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
