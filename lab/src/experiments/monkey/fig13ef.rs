//! Figures 13 E and F: operations a second of designs that are chosen, for mixes of lookups or short ranges with inserts.
//!
//! Four stores with the same memory for write buffer and filters: the state of the art (T = 2, uniform bits), Monkey's filters in
//! the same design, merge policy and size ratio chosen beside that, and the division of the memory too (the navigator's). Choices are the
//! model's. It is told what a page of a merge costs here, which is less than a page of a lookup because merges move many at once:
//! as measured of the state of the art. Stores of one design have one tree, whose filters are written again for each
//! ([`super::grown`]).
//!
//! What a lookup and a range take is timed for each design on the emulated device, at several times of its life; what an insert takes are
//! the pages that flushes and merges move for it, counted, times what such a page takes, as timed on the device for the state of the
//! art. Operations a second of a mix are those parts in their shares, as in the paper's equations 21 and 22. (A mix for itself would have to
//! run until even the largest merges have come often enough.)

use crate::chart::{Axis, Chart, Panel, Point as At, Series, Style};
use shamba_model::allocation::Allocation;
use shamba_model::cost::{FilterBits, Plan, Situation, predict_merging};
use shamba_model::navigator::{Bounds, Options, navigate};
use shamba_model::updates::Merging;
use shamba_model::{Design, MergePolicy};

use super::fig13cd::{buffer_of, inserts, situation, sizes, told_sizes};
use super::grown::{Grown, Inserts, Life, Lived, Reads};
use super::point::{Mean, affordable, percent};
use super::setup::{BITS_PER_KEY, Filters, SIZE_RATIO, SSD, lookups_counted};
use crate::table::row;
use crate::{Experiment, Finding, Kind, Lab, Paper, Parameter, Scale, Table, Verdict};

const READS_PERCENT: [f64; 5] = [10.0, 30.0, 50.0, 70.0, 90.0];
/// No write buffer is chosen that is smaller, but the usual one.
const BUFFER_BYTES_LEAST: u64 = 512 << 10;
/// The part of the inserts that are timed on the device.
const TIMED_PART: u64 = 4;
const SIZE_RATIOS: [f64; 9] = [2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0];
/// A choice adds if it makes so much of what was before it.
const ADDS: f64 = 1.02;
const CLAIM_LOOKUPS: &str = "Each choice adds throughput; with all of them it is at least 50 % above the state of the art's at any mix of lookups and updates.";
const CLAIM_RANGES: &str = "For short ranges with updates, where filters help nobody, the chosen design is up to some 50 % above the state of the art.";

pub(super) const E: Experiment = Experiment {
    id: "monkey-fig13e",
    paper: Paper::Monkey,
    kind: Kind::Measured,
    place: "Fig 13 E",
    title: "throughput over the share of lookups, chosen designs",
    claim: CLAIM_LOOKUPS,
    parameters: |scale| parameters(scale, false),
    run: |lab| run(lab, false),
};

pub(super) const F: Experiment = Experiment {
    id: "monkey-fig13f",
    place: "Fig 13 F",
    title: "throughput over the share of short ranges, chosen designs",
    claim: CLAIM_RANGES,
    parameters: |scale| parameters(scale, true),
    run: |lab| run(lab, true),
    ..E
};

/// Who takes part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Store {
    Art,
    Filters,
    Adaptive,
    Navigable,
}

impl Store {
    const ALL: [Self; 4] = [Self::Art, Self::Filters, Self::Adaptive, Self::Navigable];
    /// Filters help no range.
    const OF_RANGES: [Self; 2] = [Self::Art, Self::Navigable];

    fn name(self) -> &'static str {
        match self {
            Self::Art => "state of the art",
            Self::Filters => "Monkey's filters",
            Self::Adaptive => "+ merging",
            Self::Navigable => "+ memory: all chosen",
        }
    }

    fn filters(self) -> Filters {
        if self == Self::Art { Filters::Uniform } else { Filters::Zero }
    }

    /// The design for a situation.
    ///
    /// # Errors
    /// What the model says.
    fn design(self, situation: &Situation, usual: Design) -> Result<Design, String> {
        match self {
            Self::Art | Self::Filters => Ok(usual),
            Self::Adaptive => {
                let mut best: Option<(f64, Design)> = None;
                for policy in [MergePolicy::Leveling, MergePolicy::Tiering] {
                    for ratio in SIZE_RATIOS {
                        let design = Design::new(policy, ratio, usual.buffer_bytes, usual.bits_per_key);
                        let plan = Plan {
                            design,
                            filters: FilterBits::PerKey(design.bits_per_key),
                            allocation: Allocation::Monkey,
                            cache_bytes: 0,
                            levels: None,
                        };
                        let cost = predict_merging(situation, &plan, Merging::FileByFile)?.cost_ns_per_op;
                        if best.is_none_or(|(least, _)| cost < least) {
                            best = Some((cost, design));
                        }
                    }
                }
                Ok(best.map_or(usual, |(_, design)| design))
            }
            Self::Navigable => {
                let entries = situation.data.entries as f64;
                let memory_bytes = usual.buffer_bytes + (usual.bits_per_key * entries / 8.0) as u64;
                let bounds = Bounds { memory_bytes, max_lookup_ios: None, max_update_ios: None };
                // What each flush costs whatever it writes is not in the model.
                let least = (usual.buffer_bytes / 4).max(BUFFER_BYTES_LEAST).min(usual.buffer_bytes);
                let options = Options {
                    sensitivity: false,
                    merging: Merging::FileByFile,
                    smallest_buffer_bytes: least,
                    ..Options::PAPER
                };
                let plan = navigate(situation, &bounds, &options)?.plan;
                let bits_per_key = match plan.filters {
                    FilterBits::PerKey(bits) => bits,
                    FilterBits::Bytes(bytes) => bytes * 8.0 / entries,
                };
                Ok(Design { bits_per_key, ..plan.design })
            }
        }
    }
}

fn parameters(scale: Scale, of_ranges: bool) -> Vec<Parameter> {
    let reads = if of_ranges { "short ranges [% of operations]" } else { "empty lookups [% of operations]" };
    let stores = if of_ranges { &Store::OF_RANGES[..] } else { &Store::ALL[..] };
    vec![
        Parameter::varied(reads, READS_PERCENT),
        Parameter::varied("store", stores.iter().map(|store| store.name())),
        Parameter::fixed("device", SSD.name()),
        Parameter::fixed("inserts", inserts(scale)),
        Parameter::fixed("entries", sizes(scale).0),
        Parameter::fixed("entry bytes", sizes(scale).1),
        Parameter::fixed("buffers of data", sizes(scale).0 * sizes(scale).1 / buffer_of(scale)),
        Parameter::fixed(
            "buffer and filters [bytes]",
            buffer_of(scale) + (BITS_PER_KEY * sizes(scale).0 as f64 / 8.0) as u64,
        ),
        Parameter::fixed("usual size ratio", SIZE_RATIO),
        Parameter::fixed("usual bits per key", BITS_PER_KEY),
    ]
}

/// One store at one mix.
struct Point {
    store: Store,
    reads_percent: f64,
    design: Design,
    per_s: Mean,
    insert_us: f64,
    read_us: f64,
    levels: u32,
    runs: u64,
    comparable: bool,
}

/// What a design's operations take, with the filters of the stores that have it.
struct Known {
    design: Design,
    levels: u32,
    lived: Lived,
}

impl Known {
    fn reads(&self, filters: Filters) -> Option<&Reads> {
        self.lived.sides.iter().find(|reads| reads.filters == filters)
    }
}

/// The mix of a point, the store and its design.
type Chosen = (f64, Store, Design);

fn run(lab: &mut Lab<'_>, of_ranges: bool) -> Result<Finding, String> {
    let size = sizes(lab.scale);
    let read_ns = SSD.read_ns().unwrap_or(0) as f64;
    let usual = Design::new(MergePolicy::Leveling, SIZE_RATIO, buffer_of(lab.scale), BITS_PER_KEY);
    let stores = if of_ranges { &Store::OF_RANGES[..] } else { &Store::ALL[..] };
    let page_ns = merge_page_ns(lab, usual)?;
    let mut chosen: Vec<Chosen> = Vec::new();
    for reads_percent in READS_PERCENT {
        let reads = reads_percent / 100.0;
        // The model has one price for pages; so updates count for as many as their pages are dear.
        let updates = (1.0 - reads) * page_ns / read_ns;
        let (lookups, ranges) = if of_ranges { (0.0, reads) } else { (reads, 0.0) };
        let situation = situation(size, read_ns, [lookups, updates, ranges]);
        for &store in stores {
            chosen.push((reads_percent, store, store.design(&situation, usual)?));
        }
    }
    let mut known: Vec<Known> = Vec::new();
    for (_, _, design) in &chosen {
        if known.iter().all(|one| one.design != *design) {
            known.push(know(lab, *design, &sides_of(*design, &chosen), of_ranges)?);
        }
    }
    let mut points = Vec::new();
    for (reads_percent, store, design) in chosen {
        let known = known.iter().find(|one| one.design == design);
        let known = known.and_then(|known| Some((known, known.reads(store.filters())?)));
        let (Known { levels, lived, .. }, read) =
            known.ok_or_else(|| format!("{design} was not measured"))?;
        let reads = reads_percent / 100.0;
        let reads_us = if of_ranges { &read.range_us } else { &read.lookup_us };
        let insert_us: Vec<f64> = lived.update_pages.iter().map(|pages| pages * page_ns / 1e3).collect();
        let parts = reads_us.iter().zip(&insert_us);
        let per_s: Vec<f64> =
            parts.map(|(read, insert)| 1e6 / (reads * read + (1.0 - reads) * insert)).collect();
        points.push(Point {
            store,
            reads_percent,
            design,
            per_s: Mean::of(&per_s),
            insert_us: Mean::of(&insert_us).mean,
            read_us: Mean::of(reads_us).mean,
            levels: read.levels,
            runs: read.runs,
            comparable: read.levels >= *levels,
        });
    }
    let times = |store: Store| -> Vec<f64> {
        let of = |store| points.iter().filter(move |point| point.store == store);
        of(store).zip(of(Store::Art)).map(|(point, art)| point.per_s.mean / art.per_s.mean).collect()
    };
    let all = times(Store::Navigable);
    let least = all.iter().copied().fold(f64::INFINITY, f64::min);
    let most = all.iter().copied().fold(0.0, f64::max);
    // What each choice makes of it, on average over the mixes.
    let mean = |store| Mean::of(&times(store)).mean;
    let adds = [Store::Filters, Store::Adaptive, Store::Navigable].map(mean);
    let verdict =
        if of_ranges { verdict_of_ranges(least, most) } else { verdict_of_lookups(least, most, adds) };
    let why = match verdict {
        Verdict::Confirmed => String::new(),
        _ => format!(
            "{}In a tree that lives with T = 2 the small levels are often empty, and uniform bits lose less there than in a full one; a page of a \
             merge costs {:.0} us here, of a lookup {:.0} us, and the memory to divide is small.",
            if of_ranges { String::new() } else { told_idle(adds) },
            page_ns / 1e3,
            read_ns / 1e3
        ),
    };
    let more = match adds {
        _ if of_ranges => String::new(),
        [filters, merging, all] => format!(
            " On average Monkey's filters alone reach {filters:.2} times, with merging {merging:.2} times, with all {all:.2} times."
        ),
    };
    let designs: Vec<String> = points
        .iter()
        .filter(|point| point.store == Store::Navigable)
        .map(|point| {
            format!(
                "{} %: {} T {:.1}, {:.1} bits, buffer {} KiB",
                point.reads_percent,
                point.design.policy().map_or("fluid", MergePolicy::name),
                point.design.size_ratio,
                point.design.bits_per_key,
                point.design.buffer_bytes >> 10
            )
        })
        .collect();
    let note = format!(
        "Computed from measured parts, no throughput of a mix that ran: reads timed on an emulated SSD of 290 us for each read and write of a file, \
         whatever its length, and pages of inserts counted. {} All chosen: {}.",
        told_sizes(lab.scale),
        designs.join("; ")
    );
    Ok(Finding {
        ours: format!(
            "Computed from measured parts, with all chosen {} to {} of the state of the art's throughput.{more}",
            percent(least),
            percent(most)
        ),
        verdict,
        why,
        table: table(&points, of_ranges),
        chart: chart(&points, stores, of_ranges, &note),
    })
}

/// What a page of a merge takes on the device, in nanoseconds: of the state of the art, inserts alone.
fn merge_page_ns(lab: &mut Lab<'_>, usual: Design) -> Result<f64, String> {
    let mut tree = Grown::lay(lab, usual, sizes(lab.scale))?;
    tree.insert(inserts(lab.scale) / 2, None)?;
    lab.at("timing inserts");
    let Inserts { us, pages } = tree.insert(inserts(lab.scale) / TIMED_PART, Some(SSD))?;
    Ok(us * 1e3 / pages.max(1e-9))
}

/// Whose filters a design is measured with: those of the stores that have it.
fn sides_of(design: Design, chosen: &[Chosen]) -> Vec<Filters> {
    let mut sides = Vec::new();
    for (_, store, _) in chosen.iter().filter(|(_, _, of_store)| *of_store == design) {
        if !sides.contains(&store.filters()) {
            sides.push(store.filters());
        }
    }
    sides
}

/// Lets a tree of the design live, and times what is asked of it with the filters of each side.
fn know(lab: &mut Lab<'_>, design: Design, sides: &[Filters], of_ranges: bool) -> Result<Known, String> {
    let mut tree = Grown::lay(lab, design, sizes(lab.scale))?;
    let read_ns = SSD.read_ns().unwrap_or(0);
    let life = Life {
        device: SSD,
        inserts: inserts(lab.scale) / u64::from(lab.repeats),
        lookups: if of_ranges { 0 } else { 3 * affordable(lab.scale, read_ns, 0.5) },
        // A range reads a page of each run at least.
        ranges: if of_ranges { affordable(lab.scale, read_ns, f64::from(tree.levels)) } else { 0 },
        lookups_counted: lookups_counted(lab.scale) / 2,
    };
    tree.insert(inserts(lab.scale) / 2, None)?;
    let lived = tree.live(lab, &life, sides)?;
    Ok(Known { design, levels: tree.levels, lived })
}

/// What each choice makes of those before it; `adds`: what filters, merging and memory make of the state of the art, each with those before.
fn each_adds([filters, merging, memory]: [f64; 3]) -> [bool; 3] {
    [filters, merging / filters, memory / merging].map(|times| times >= ADDS)
}

/// Which choices add nothing.
fn told_idle(adds: [f64; 3]) -> String {
    let names = ["filters", "merging", "the division of memory"];
    let idle = names.into_iter().zip(each_adds(adds)).filter(|(_, adds)| !adds);
    let idle: Vec<&str> = idle.map(|(name, _)| name).collect();
    if idle.is_empty() { String::new() } else { format!("Nothing is added by {}. ", idle.join(" and ")) }
}

fn verdict_of_lookups(least: f64, most: f64, adds: [f64; 3]) -> Verdict {
    match (least, most) {
        (least, _) if least >= 1.5 && each_adds(adds) == [true; 3] => Verdict::Confirmed,
        (_, most) if most >= 1.2 => Verdict::Partly,
        _ => Verdict::NotHere,
    }
}

fn verdict_of_ranges(least: f64, most: f64) -> Verdict {
    match (least, most) {
        (least, most) if most >= 1.45 && least >= 0.98 => Verdict::Confirmed,
        (_, most) if most >= 1.1 => Verdict::Partly,
        _ => Verdict::NotHere,
    }
}

fn table(points: &[Point], of_ranges: bool) -> Table {
    let mut table = Table::new(&[
        "store",
        if of_ranges { "ranges_percent" } else { "lookups_percent" },
        "operations_per_s_of_parts",
        "operations_per_s_std",
        "insert_us_of_counted_pages",
        "read_us",
        "policy",
        "size_ratio",
        "buffer_bytes",
        "bits_per_key",
        "levels",
        "runs",
        "comparable",
        "emulated",
    ]);
    for Point { store, reads_percent, design, per_s, insert_us, read_us, levels, runs, comparable } in points
    {
        table.row(row![
            store.name(),
            *reads_percent,
            per_s.mean,
            per_s.std,
            *insert_us,
            *read_us,
            design.policy().map_or("fluid", MergePolicy::name),
            design.size_ratio,
            design.buffer_bytes,
            design.bits_per_key,
            *levels,
            *runs,
            *comparable,
            true,
        ]);
    }
    table
}

fn chart(points: &[Point], stores: &[Store], of_ranges: bool, note: &str) -> Chart {
    let series = stores.iter().map(|store| {
        let at = points.iter().filter(|point| point.store == *store).map(|point| {
            let Mean { mean, std } = point.per_s;
            At::between(point.reads_percent, mean, mean - std, mean + std)
        });
        Series::new(store.name(), Style::Line, at.collect())
    });
    let (reads, claim) =
        if of_ranges { ("short ranges", CLAIM_RANGES) } else { ("empty lookups", CLAIM_LOOKUPS) };
    Chart {
        title: format!("Throughput of chosen designs, {reads} with inserts"),
        claim: claim.to_owned(),
        note: format!("{note} Bars: one standard deviation."),
        panels: vec![Panel {
            title: String::new(),
            x: Axis::linear(format!("{reads} [% of operations]")),
            y: Axis::from_zero("operations a second, computed from measured parts"),
            series: series.collect(),
        }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_follow_the_figures() {
        assert_eq!(verdict_of_lookups(1.6, 3.0, [1.1, 1.5, 2.0]), Verdict::Confirmed);
        assert_eq!(verdict_of_lookups(1.6, 3.0, [0.9, 1.5, 2.0]), Verdict::Partly);
        assert_eq!(verdict_of_lookups(1.6, 3.0, [1.1, 1.5, 1.45]), Verdict::Partly);
        assert_eq!(told_idle([1.1, 1.5, 1.45]), "Nothing is added by the division of memory. ");
        assert_eq!(told_idle([1.1, 1.5, 2.0]), "");
        assert_eq!(verdict_of_lookups(0.9, 1.1, [1.1, 1.1, 1.1]), Verdict::NotHere);
        assert_eq!(verdict_of_ranges(1.0, 1.5), Verdict::Confirmed);
        assert_eq!(verdict_of_ranges(0.5, 1.5), Verdict::Partly);
    }

    #[test]
    fn a_design_is_measured_with_the_filters_of_its_stores() {
        let usual = Design::new(MergePolicy::Leveling, 2.0, 32 << 10, 5.0);
        let other = Design { size_ratio: 4.0, ..usual };
        let chosen = [
            (10.0, Store::Art, usual),
            (10.0, Store::Filters, usual),
            (90.0, Store::Art, usual),
            (90.0, Store::Navigable, other),
        ];
        assert_eq!(sides_of(usual, &chosen), Filters::PAIR);
        assert_eq!(sides_of(other, &chosen), [Filters::Zero]);
    }

    #[test]
    fn every_store_has_a_design() {
        let usual = Design::new(MergePolicy::Leveling, 2.0, 32 << 10, 5.0);
        for store in Store::ALL {
            let design =
                store.design(&situation((1 << 18, 256), 290_000.0, [0.5, 0.05, 0.0]), usual).expect("one");
            assert_eq!(design.validate(), Ok(()));
        }
    }
}
