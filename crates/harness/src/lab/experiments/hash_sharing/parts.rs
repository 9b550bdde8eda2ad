//! Ours: what one digest makes possible, beside what it saves.
//!
//! With XXH3 and short keys hashing is next to nothing of a lookup. A digest that is there before anything else is looked at allows more: the
//! filters of all runs are asked for in memory before the first is tested, and tags in data blocks find an entry without comparing
//! keys. Each is switched on by itself here, on trees that are otherwise the same.

use shamba::DigestKind;
use shamba_figures::{Axis, Chart, Panel, Point, Series, Style};

use crate::lab::lookups::{Questions, Side, compare};
use crate::lab::table::row;
use crate::lab::tree::{Spec, Tree};
use crate::lab::{Device, Experiment, Finding, Lab, Paper, Parameter, Scale, Table, Verdict};

const KEY_BYTES: usize = 16;
const ENTRY_BYTES: usize = 116;
const SIZE_RATIO: f64 = 4.0;
const LEVELS: u32 = 6;
/// A budget that holds all blocks: what memory costs, not what a device does.
const BUDGET_BYTES: u64 = 2 << 30;

/// A step: its name, the switches of the open, whether blocks have tags.
type OnStep = (&'static str, &'static [(&'static str, &'static str)], bool);

/// What is switched on besides what the ones before have.
const STEPS: [OnStep; 4] = [
    ("nothing", &[("hash-sharing", "off"), ("prefetch", "off")], false),
    ("one digest", &[("prefetch", "off")], false),
    ("and prefetch", &[], false),
    ("and block tags", &[], true),
];

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "hash-sharing-parts",
    paper: Paper::HashSharing,
    place: "ours",
    title: "what one digest saves, and what it makes possible, with short keys",
    claim: "(Ours) With XXH3 and keys of 16 bytes hashing itself is next to nothing; the gain of one digest is what it makes possible: prefetched filters and tags in blocks.",
    parameters,
    run,
};

fn entries(scale: Scale) -> u64 {
    scale.count(400_000, 2_000_000, 10_000_000)
}

fn parameters(scale: Scale) -> Vec<Parameter> {
    vec![
        Parameter::varied("switched on", STEPS.map(|(name, ..)| name)),
        Parameter::varied("empty fraction", [1, 0]),
        Parameter::fixed("digest", "XXH3 (ours)"),
        Parameter::fixed("blocks", "all in memory"),
        Parameter::fixed("key bytes", KEY_BYTES),
        Parameter::fixed("entry bytes", ENTRY_BYTES),
        Parameter::fixed("entries", entries(scale)),
        Parameter::fixed("size ratio", SIZE_RATIO),
        Parameter::fixed("levels", LEVELS),
        Parameter::fixed("bits per key", 10),
    ]
}

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    let mut spec = Spec::leveled(entries(lab.scale), (KEY_BYTES, ENTRY_BYTES), SIZE_RATIO, LEVELS);
    spec.digest = DigestKind::Xxh3;
    let untagged = Tree::lay(lab, "untagged", Spec { block_tags: false, ..spec }, Device::Memory)?;
    let tagged = Tree::lay(lab, "tagged", spec, Device::Memory)?;
    let mut table = Table::new(&[
        "switched_on",
        "empty_fraction",
        "lookup_ns",
        "lookup_least_ns",
        "lookup_most_ns",
        "saved_share",
        "hashes_per_get",
        "levels",
        "runs",
        "comparable",
        "emulated",
    ]);
    let mut series = Vec::new();
    let mut savings = Vec::new();
    for (empty_fraction, name) in [(1.0, "lookups that find nothing"), (0.0, "lookups that find their key")] {
        lab.at(name);
        let open = |(_, switches, tags): &OnStep| {
            let tree = if *tags { &tagged } else { &untagged };
            tree.open_within(Device::Memory, BUDGET_BYTES, switches, |builder| builder)
        };
        let dbs = STEPS.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        let sides: Vec<&shamba::Db> = dbs.iter().collect();
        let lookups = lab.scale.count(60_000, 400_000, 2_000_000);
        let questions = Questions::uniform(empty_fraction, lookups);
        // Once over, so that blocks are where they will be.
        let warm = Questions { lookups: 2 * lookups, ..questions.clone() };
        compare(lab, &tagged, &sides, &warm)?;
        let found: Vec<Side> = compare(lab, &tagged, &sides, &questions)?;
        let mut points = Vec::new();
        let mut saved_of = Vec::new();
        for (place, (side, (step, ..))) in found.iter().zip(STEPS).enumerate() {
            let saved = side.gain_over(&found[0]).median;
            let [levels, runs, comparable, emulated] = side.shape(LEVELS, u64::from(LEVELS));
            table.row(row![
                step,
                empty_fraction,
                side.ns.median,
                side.ns.least,
                side.ns.most,
                saved,
                side.per_lookup(side.stats.hashes),
                levels,
                runs,
                comparable,
                emulated,
            ]);
            points.push(Point::between(place as f64, side.ns.median, side.ns.least, side.ns.most));
            saved_of.push(saved);
        }
        savings.push(saved_of);
        series.push(Series::new(name, Style::Bars, points));
    }
    untagged.discard(lab)?;
    tagged.discard(lab)?;
    let at =
        |kind: usize, step: usize| savings.get(kind).and_then(|of| of.get(step)).copied().unwrap_or_default();
    let (hashing, all) = (at(0, 1).max(at(1, 1)), at(0, 3).max(at(1, 3)));
    let verdict = match (hashing, all) {
        (hashing, all) if all > hashing && all > 0.05 => Verdict::Confirmed,
        (_, all) if all > 0.0 => Verdict::Partly,
        _ => Verdict::NotHere,
    };
    let percent = |share: f64| format!("{:.0} %", 100.0 * share);
    Ok(Finding {
        ours: format!(
            "Empty lookups: {} saved by one digest alone, {} with prefetch. Lookups that find: {} and {}, {} with tags.",
            percent(at(0, 1)),
            percent(at(0, 2)),
            percent(at(1, 1)),
            percent(at(1, 2)),
            percent(at(1, 3))
        ),
        verdict,
        why: match verdict {
            Verdict::Confirmed => String::new(),
            _ => "At this size all filters are in the processor's caches, where there is nothing to ask for ahead of time: see the larger scales.".to_owned(),
        },
        table,
        chart: Chart {
            title: "What one digest saves, and what it makes possible".to_owned(),
            claim: EXPERIMENT.claim.to_owned(),
            note: "Each step has what is left of it, too. Keys of 16 B, XXH3, 6 levels, T = 4, 10 bits per key, every block in memory.".to_owned(),
            panels: vec![Panel {
                title: String::new(),
                x: Axis::categories("switched on", STEPS.map(|(name, ..)| name)),
                y: Axis::from_zero("time of a lookup [ns]"),
                series,
            }],
        },
    })
}
