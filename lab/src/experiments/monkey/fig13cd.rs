//! Figures 13 C and D: lookups against updates, over designs, on an SSD and on a disk.
//!
//! Each design's tree is built, then executes inserts; the cost of a lookup is the mean over the
//! ends of equal parts of them, because the number of runs of tiered trees varies. Both sides look
//! up in the same tree, whose filters are rewritten for each. The cost of an update is the pages
//! that flushes and compactions read and write for it, that of a lookup its reads; each times the
//! device's page time, as in the paper's model. So D has the counts of C with the disk's time.

use shamba_model::allocation::Allocation;
use shamba_model::cost::{
    Costs, CpuTimes, DataSet, Device as ModelDevice, FilterBits, Plan, Situation, Workload, predict_merging,
};
use shamba_model::miss_ratio::MissRatioCurve;
use shamba_model::updates::Merging;
use shamba_model::{Design, MergePolicy};

use super::grown::{Grown, range_selectivity};
use super::setup::{BITS_PER_KEY, Filters, HDD, SSD, lookups_counted};
use crate::io_tally::PAGE_BYTES;
use crate::lookups::io;
use crate::prelude::*;

/// Write buffers of data, where they are long enough: slightly fewer than fill nine levels at T =
/// 2.
const BUFFERS: u64 = 800;
/// A smaller write buffer has too few entries to overlap all files of the next level; with this one
/// every flush rewrites that level for any size ratio.
const BUFFER_BYTES_MIN: u64 = 256 << 10;
/// Number of parts of the inserts, at the end of each of which lookups are counted.
const PARTS: u64 = 2;

pub(super) const C: Experiment = Experiment {
    id: "monkey-fig13c",
    paper: Paper::Monkey,
    kind: Kind::Measured,
    method: Method::Counted,
    place: "Fig 13 C",
    title: "lookups against updates over designs, SSD",
    claim: "For any merge policy and size ratio Monkey's lookups cost less, up to 50 %; or at the same lookups updates up to 70 % less.",
    parameters: |scale| parameters(scale, SSD),
    measure: |lab| measure(lab, SSD),
    predicates: &[
        Predicate::direction("reads saved at the same design, mean", Saved, AtLeast(0.0), |rows| {
            let saved = saved(rows)?;
            Some(saved.iter().sum::<f64>() / saved.len() as f64)
        }),
        Predicate::direction("designs at which Monkey reads more", Plain("designs"), AtMost(0.5), |rows| {
            Some(saved(rows)?.iter().filter(|saved| **saved < 0.0).count() as f64)
        }),
        Predicate::size("reads saved at the same design, at most", Saved, AtLeast(0.5), |rows| {
            saved(rows)?.into_iter().reduce(f64::max)
        }),
        Predicate::size(
            "pages of an update saved at no more reads, at most",
            Saved,
            AtLeast(0.7),
            updates_saved,
        ),
    ],
    panels: &[
        Panel::lines(
            Column::log("update_ms", "cost of an update [ms]"),
            Column::log("lookup_ms", "cost of a lookup [ms]"),
            &["filters"],
        )
        .with_model("model_lookup_ms")
        .drawn(Style::Markers)
        .titled("cost", &[]),
        Panel::lines(
            Column::log("update_ms", "cost of an update [ms]"),
            Column::from_zero("pages", "pages of a lookup"),
            &["filters"],
        )
        .drawn(Style::Markers)
        .titled("pages", &[]),
        Panel::lines(
            Column::log("update_ms", "cost of an update [ms]"),
            Column::from_zero("reads", "reads of a lookup"),
            &["filters"],
        )
        .drawn(Style::Markers)
        .titled("reads", &[]),
    ],
    note: "Both sides read one tree, with other filters. Costs: pages, counted, times what the device takes for one. 5 bits per key, all lookups \
           empty. Model: equations 7 and 56 for the levels there are, and merges as the engine makes them.",
    reason: |_| {
        "In a tree that takes writes the small levels are often empty or partly full, and uniform bits lose less there than in a full one; what can be \
         traded depends on where the costs of a few designs happen to lie."
            .to_owned()
    },
};

pub(super) const D: Experiment = Experiment {
    id: "monkey-fig13d",
    place: "Fig 13 D",
    title: "lookups against updates over designs, HDD",
    parameters: |scale| parameters(scale, HDD),
    measure: |lab| measure(lab, HDD),
    ..C
};

/// From cheap lookups to cheap updates; T = 2 is leveling and tiering in one.
fn designs(scale: Scale) -> Vec<(MergePolicy, f64)> {
    let ratios: &[f64] =
        scale.pick(&[4.0, 8.0][..], &[3.0, 4.0, 6.0, 8.0, 10.0], &[3.0, 4.0, 6.0, 8.0, 10.0]);
    let leveled = ratios.iter().rev().map(|ratio| (MergePolicy::Leveling, *ratio));
    let tiered = ratios.iter().map(|ratio| (MergePolicy::Tiering, *ratio));
    leveled.chain([(MergePolicy::Leveling, 2.0)]).chain(tiered).collect()
}

fn name((policy, ratio): (MergePolicy, f64)) -> String {
    match policy {
        MergePolicy::Leveling if ratio == 2.0 => "2".to_owned(),
        MergePolicy::Leveling => format!("L{ratio}"),
        _ => format!("T{ratio}"),
    }
}

/// Entries, and the bytes of each.
fn sizes(scale: Scale) -> (u64, u64) {
    if scale == Scale::Tiny {
        return (1 << 13, 64);
    }
    scale.pick((1 << 18, 256), (1 << 18, 1_024), (1 << 20, 1_024))
}

/// Share of the data, so that the inserts still fit in the same number of levels.
pub(super) fn buffer_of(scale: Scale) -> u64 {
    /// The engine's smallest write buffer, which the tiny scale meets.
    const TINY_BYTES_MIN: u64 = 1 << 10;
    let (entries, entry_bytes) = sizes(scale);
    let least = if scale == Scale::Tiny { TINY_BYTES_MIN } else { BUFFER_BYTES_MIN };
    (entries * entry_bytes / BUFFERS).max(least)
}

fn parameters(scale: Scale, device: Device) -> Vec<Parameter> {
    let (entries, entry_bytes) = sizes(scale);
    vec![
        Parameter::varied("design", designs(scale).into_iter().map(name)),
        Parameter::fixed("device", device.name()),
        Parameter::fixed("entries", entries),
        Parameter::fixed("inserts", entries / 2),
        Parameter::fixed("entry bytes", entry_bytes),
        Parameter::fixed("buffer bytes", buffer_of(scale)),
        Parameter::fixed("buffers of data", entries * entry_bytes / buffer_of(scale)),
        Parameter::fixed("bits per key", BITS_PER_KEY),
        Parameter::fixed("empty fraction", 1),
    ]
}

fn saved(rows: &View<'_>) -> Option<Vec<f64>> {
    let of = |filters: Filters| rows.of("filters", filters.name()).numbers("reads");
    let pairs = of(Filters::Uniform).into_iter().zip(of(Filters::Zero));
    let saved: Vec<f64> = pairs.map(|(uniform, monkey)| 1.0 - monkey / uniform).collect();
    (!saved.is_empty()).then_some(saved)
}

/// Largest share of an update's pages that a design with Monkey's filters saves over one with
/// uniform ones without more reads of lookups.
fn updates_saved(rows: &View<'_>) -> Option<f64> {
    let of = |filters: Filters| -> Vec<(f64, f64)> {
        rows.of("filters", filters.name()).points("update_pages", "reads")
    };
    let (uniform, monkey) = (of(Filters::Uniform), of(Filters::Zero));
    let of_design = |(pages, reads): &(f64, f64)| {
        let as_cheap = monkey.iter().filter(|(_, other)| other <= reads).map(|(pages, _)| *pages);
        as_cheap.reduce(f64::min).map(|least| 1.0 - least / pages)
    };
    uniform.iter().filter_map(of_design).reduce(f64::max)
}

/// The situation of lookups, updates and ranges in these shares.
pub(super) fn situation(
    (entries, entry_bytes): (u64, u64),
    read_ns: f64,
    [lookups, updates, ranges]: [f64; 3],
) -> Situation {
    Situation {
        data: DataSet { entries, entry_bytes: entry_bytes as f64, page_bytes: PAGE_BYTES },
        workload: Workload {
            empty_lookups: lookups,
            found_lookups: 0.0,
            updates,
            ranges,
            range_selectivity: range_selectivity(entries),
        },
        device: ModelDevice { read_ns, write_ns: read_ns, cpu: CpuTimes::NONE },
        locality: MissRatioCurve::EVEN,
    }
}

/// The model's costs of a design.
pub(super) fn expected(situation: &Situation, design: &Design, filters: Filters) -> Result<Costs, String> {
    let plan = Plan {
        design: *design,
        filters: FilterBits::PerKey(design.bits_per_key),
        allocation: if filters == Filters::Uniform { Allocation::Uniform } else { Allocation::Monkey },
        cache_bytes: 0,
        levels: None,
    };
    predict_merging(situation, &plan, Merging::FileByFile)
}

/// Counts, the same on every device.
fn counts(lab: &mut Lab<'_>) -> Result<Rows, String> {
    let size = sizes(lab.scale);
    let inserts = size.0 / 2;
    let mut rows = Rows::default();
    for design in designs(lab.scale) {
        let plan = Design::new(design.0, design.1, buffer_of(lab.scale), BITS_PER_KEY);
        let mut tree = Grown::lay(lab, plan, Filters::Uniform, size)?;
        tree.insert(inserts / 2)?;
        let mut update_pages = 0.0;
        let mut stats: Vec<Option<shamba::Stats>> = vec![None, None];
        for part in 0..PARTS {
            lab.at(format_args!("{}, part {part} of its life", name(design)));
            update_pages += tree.insert(inserts / PARTS)? / PARTS as f64;
            for (at, filters) in Filters::PAIR.into_iter().enumerate() {
                tree.rewrite_filters(filters)?;
                let found = tree.look_up(lookups_counted(lab.scale) / 2, lab.seed ^ part << 8)?;
                stats[at] = Some(match stats[at].take() {
                    None => found,
                    Some(before) => joined(before, &found),
                });
            }
        }
        for (filters, stats) in Filters::PAIR.into_iter().zip(stats) {
            let stats = stats.ok_or("no part of a life")?;
            let situation = situation((size.0 + inserts, size.1), 1.0, [1.0, 1.0, 0.0]);
            let costs = expected(&situation, &plan, filters)?;
            let values = row! {
                design: name(design),
                filters: filters.name(),
                update_pages: update_pages,
                model_update_pages: costs.merged_update_ios,
                model_reads: costs.zero_result_lookup_ios_exact,
                levels: stats.deepest_level,
                runs: stats.runs,
                level_entries: joined_by_level(&stats, |level| format!("{}", level.entries)),
                level_bits: joined_by_level(&stats, |level| format!("{:.1}", level.bits_per_key)),
                comparable: stats.deepest_level >= tree.levels,
            };
            rows.push(values.and(io(&stats)));
        }
    }
    Ok(rows)
}

/// A figure of each level that holds something, deepest last.
fn joined_by_level(stats: &shamba::Stats, of: impl Fn(&shamba::LevelStats) -> String) -> String {
    let levels: Vec<String> = stats.levels.iter().filter(|level| level.entries > 0).map(of).collect();
    levels.join(" ")
}

/// Counters of lookups of two instances together.
fn joined(mut stats: shamba::Stats, more: &shamba::Stats) -> shamba::Stats {
    stats.lookups += more.lookups;
    let pairs = [
        (&mut stats.reads.filter, more.reads.filter),
        (&mut stats.reads.index, more.reads.index),
        (&mut stats.reads.data, more.reads.data),
        (&mut stats.reads.value, more.reads.value),
    ];
    for (all, more) in pairs {
        *all = all.plus(more);
    }
    stats
}

fn measure(lab: &mut Lab<'_>, device: Device) -> Result<Rows, String> {
    let counted = lab.once("monkey designs", counts)?;
    let page_ms = device.read_ns().unwrap_or(0) as f64 / 1e6;
    let mut rows = Rows::default();
    rows.extend(counted.view().0.into_iter().map(|row| {
        let of = |column: &str| row.number(column).map(|pages| pages * page_ms);
        let (update_ms, lookup_ms, model_lookup_ms) = (of("update_pages"), of("reads"), of("model_reads"));
        row!(update_ms: update_ms, lookup_ms: lookup_ms, model_lookup_ms: model_lookup_ms, emulated: true)
            .and(row.clone())
    }));
    Ok(rows)
}
