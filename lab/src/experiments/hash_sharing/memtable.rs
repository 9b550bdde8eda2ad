//! Ours: the memtable's index, which the lookup's digest is looked up in.
//!
//! Entries that are not flushed yet lie in the memtable's order, which takes a logarithm of comparisons to search, each of them a step to memory
//! that nothing foretold. The digest that a lookup has for its filters anyway also finds them in an index, in about one step. Both
//! stores have the same entries, written in the same random order; only `memtable_index` differs. Nothing is flushed, so there is no level
//! and no filter.

use std::path::Path;
use std::sync::Arc;

use crate::chart::{Axis, Chart, Panel, Point, Series, Style};
use shamba::Db;
use shamba::env::{Env, MemFs, Vfs};

use super::claims::{Claim, Held, judge};
use super::gains::percent;
use crate::items::{Items, KEY_BYTES};
use crate::lookups::{Questions, Spread, compare};
use crate::table::row;
use crate::{Experiment, Finding, Kind, Lab, Paper, Parameter, Scale, Table};
use shamba_workload::Permutation;

const ENTRY_BYTES: u64 = 116;
/// Entries of the memtable, the most of them first divided by these.
const PARTS: [u64; 3] = [64, 8, 1];
/// How entries are found.
const SIDES: [(&str, bool); 2] = [("the order", false), ("the index of digests", true)];
const EMPTY: [f64; 2] = [1.0, 0.0];

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "hash-sharing-memtable",
    paper: Paper::HashSharing,
    kind: Kind::Ours,
    place: "ours",
    title: "lookups in the memtable, by its order and by the digest",
    claim: "(Ours) The digest that a lookup has for its filters finds entries of the memtable, too, faster than the memtable's order does, the more the more entries there are.",
    parameters,
    run,
};

fn entries(scale: Scale) -> u64 {
    scale.count(256 << 10, 1 << 20, 4 << 20)
}

fn parameters(scale: Scale) -> Vec<Parameter> {
    vec![
        Parameter::varied("entries", PARTS.map(|part| entries(scale) / part)),
        Parameter::varied("switched on", SIDES.map(|(name, _)| name)),
        Parameter::varied("empty fraction", EMPTY),
        Parameter::fixed("digest", "XXH3 (ours)"),
        Parameter::fixed("key bytes", KEY_BYTES),
        Parameter::fixed("entry bytes", ENTRY_BYTES),
        Parameter::fixed("order of writes", "random"),
        Parameter::fixed("lookups a repeat", lookups(scale)),
    ]
}

fn lookups(scale: Scale) -> u64 {
    scale.count(100_000, 400_000, 2_000_000)
}

/// A store whose memtable holds all of `items`, and never is full.
fn store(items: Items, memtable_index: bool) -> Result<Db, String> {
    let said = |error: shamba::Error| error.chain().to_string();
    let files: Arc<dyn Vfs> = Arc::new(MemFs::new());
    let buffer_bytes = 4 * items.bytes() + (16 << 20);
    let builder = Db::builder(Path::new("/memtable")).env(Env { vfs: files, ..Env::real() });
    let builder = builder.memory_budget(2 * buffer_bytes).write_buffer(buffer_bytes).no_wal(true);
    let db = builder.memtable_index(memtable_index).info_log(false).open().map_err(said)?;
    let order = Permutation::new(items.count, items.seed);
    let mut value = Vec::new();
    for number in 0..items.count {
        let item = order.at(number);
        items.value(item, &mut value);
        db.put(items.key(item, false), &value).map_err(said)?;
    }
    match db.stats().runs {
        0 => Ok(db),
        runs => Err(format!("the memtable was flushed: there are {runs} runs")),
    }
}

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    let mut table = Table::new(&[
        "entries",
        "switched_on",
        "empty_fraction",
        "lookup_ns",
        "lookup_least_ns",
        "lookup_most_ns",
        "saved_share",
    ]);
    let mut series: Vec<Vec<Series>> =
        EMPTY.map(|_| SIDES.map(|(name, _)| Series::new(name, Style::Line, Vec::new())).into()).into();
    // For each share of empty lookups, over the entries.
    let mut saved: [Vec<Spread>; EMPTY.len()] = Default::default();
    for part in PARTS {
        let items = Items { count: entries(lab.scale) / part, entry_bytes: ENTRY_BYTES, seed: lab.seed };
        lab.at(format_args!("{} entries", items.count));
        let dbs = SIDES.map(|(_, index)| store(items, index)).into_iter().collect::<Result<Vec<_>, _>>()?;
        for (place, empty_fraction) in EMPTY.into_iter().enumerate() {
            let questions = Questions::uniform(empty_fraction, lookups(lab.scale));
            let sides = compare(lab, &items, &dbs.iter().collect::<Vec<_>>(), &questions)?;
            saved[place].push(sides[1].gain_over(&sides[0]));
            for (side, (name, _)) in SIDES.into_iter().enumerate() {
                let (ns, gain) = (sides[side].ns, sides[side].gain_over(&sides[0]));
                table
                    .row(row![items.count, name, empty_fraction, ns.median, ns.least, ns.most, gain.median,]);
                let point = Point::between(items.count as f64, ns.median, ns.least, ns.most);
                series[place][side].points.push(point);
            }
        }
    }
    let (verdict, why) = judge(&claims(&saved), String::new);
    let told = |place: usize| {
        let each: Vec<String> = saved[place].iter().map(|saved| percent(saved.median)).collect();
        each.join(", ")
    };
    let titles = ["lookups that find nothing", "lookups that find their key"];
    let panel = |(title, series): (&str, Vec<Series>)| Panel {
        title: title.to_owned(),
        x: Axis::log("entries of the memtable"),
        y: Axis::from_zero("time of a lookup [ns]"),
        series,
    };
    Ok(Finding {
        ours: format!(
            "With {} entries the index saves {} of the time of lookups that find nothing, and {} of those that find their key.",
            PARTS.map(|part| (entries(lab.scale) / part).to_string()).join(", "),
            told(0),
            told(1)
        ),
        verdict,
        why,
        table,
        chart: Chart {
            title: "The memtable by its order, and by the digest".to_owned(),
            claim: EXPERIMENT.claim.to_owned(),
            note: "Keys of 32 B, entries of 116 B, written in random order, nothing flushed.".to_owned(),
            panels: titles.into_iter().zip(series).map(panel).collect(),
        },
    })
}

/// It saves everywhere, and more the more entries there are.
fn claims(saved: &[Vec<Spread>; EMPTY.len()]) -> Vec<Claim> {
    let least = saved.iter().flatten().map(|saved| saved.least).fold(f64::INFINITY, f64::min);
    let most = saved.iter().flatten().map(|saved| saved.median).fold(f64::NEG_INFINITY, f64::max);
    let text = format!("it saves at least {} in every repeat, and {} at most", percent(least), percent(most));
    let held = match (least, most) {
        (least, _) if least > 0.0 => Held::Fully,
        (_, most) if most > 0.0 => Held::InPart,
        _ => Held::Not,
    };
    let rises = |(what, saved): (&str, &Vec<Spread>)| Claim::rises(what, saved);
    let named = ["what empty lookups are spared", "what lookups that find are spared"].into_iter().zip(saved);
    std::iter::once(Claim::new(held, text)).chain(named.map(rises)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Verdict;

    #[test]
    fn it_must_save_everywhere_and_more_with_more_entries() {
        let of = |gains: [f64; 3]| -> Vec<Spread> {
            gains.map(|median| Spread { median, least: median - 0.01, most: median + 0.01 }).into()
        };
        let verdict = |empty, found| judge(&claims(&[of(empty), of(found)]), String::new).0;
        assert_eq!(verdict([0.1, 0.3, 0.5], [0.1, 0.2, 0.3]), Verdict::Confirmed);
        assert_eq!(verdict([0.5, 0.3, 0.1], [0.1, 0.2, 0.3]), Verdict::Partly);
        assert_eq!(verdict([0.1, 0.3, 0.5], [-0.1, 0.2, 0.3]), Verdict::Partly);
        assert_eq!(verdict([-0.1, -0.2, -0.3], [-0.1, -0.2, -0.3]), Verdict::NotHere);
    }
}
