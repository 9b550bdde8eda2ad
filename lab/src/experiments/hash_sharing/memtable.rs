//! This engine's addition: lookups in the memtable by key order and by the digest.
//!
//! The memtable's key order takes a logarithmic number of comparisons, each with an unpredictable
//! memory access. The digest that a lookup computes for its filters also finds entries in an index,
//! in about one step. Both stores have the same entries, written in the same random order; only
//! `memtable_index` differs.

use std::path::Path;
use std::sync::Arc;

use shamba::Db;
use shamba::env::{Env, MemFs, Vfs};
use shamba_workload::Permutation;

use crate::items::{Items, KEY_BYTES};
use crate::lookups::compare;
use crate::prelude::*;

const ENTRY_BYTES: u64 = 116;
/// Divisors of the maximum number of entries.
const PARTS: [u64; 3] = [64, 8, 1];
const SIDES: [(&str, bool); 2] = [("the order", false), ("the index of digests", true)];
const KEYS: [(&str, f64); 2] = [("absent", 1.0), ("there", 0.0)];
const X: Column = Column::log("entries", "entries of the memtable");
const NS: Column = Column::from_zero("ns", "time of a lookup [ns]");

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "hash-sharing-memtable",
    paper: Paper::HashSharing,
    kind: Kind::Ours,
    method: Method::Timed,
    place: "ours",
    title: "lookups in the memtable, by its order and by the digest",
    claim: "(Ours) The digest that a lookup has for its filters finds entries of the memtable, too, faster than the memtable's order does, the more the more entries there are.",
    parameters,
    measure,
    predicates: &[
        Predicate::direction("time saved with the fewest entries, keys there", Saved, AtLeast(0.0), |rows| {
            ends(rows, "there").map(|ends| ends.0)
        }),
        Predicate::direction("time saved with the most entries, keys there", Saved, AtLeast(0.0), |rows| {
            ends(rows, "there").map(|ends| ends.1)
        }),
        Predicate::direction("time saved with the most entries, keys absent", Saved, AtLeast(0.0), |rows| {
            ends(rows, "absent").map(|ends| ends.1)
        }),
        Predicate::direction(
            "saving with the most entries less that with the fewest, keys there",
            Plain("points"),
            AtLeast(0.0),
            |rows| ends(rows, "there").map(|(first, last)| 100.0 * (last - first)),
        ),
        Predicate::direction(
            "saving with the most entries less that with the fewest, keys absent",
            Plain("points"),
            AtLeast(0.0),
            |rows| ends(rows, "absent").map(|(first, last)| 100.0 * (last - first)),
        ),
    ],
    panels: &[
        Panel::lines(X, NS, &["found_by"]).titled("keys absent", &[("keys", "absent")]),
        Panel::lines(X, NS, &["found_by"]).titled("keys there", &[("keys", "there")]),
    ],
    note: "Keys of 32 B, entries of 116 B, written in random order, nothing flushed.",
    reason: Experiment::no_reason,
};

fn entries(scale: Scale) -> u64 {
    scale.count(128 << 10, 1 << 20, 4 << 20)
}

fn lookups(scale: Scale) -> u64 {
    scale.count(40_000, 400_000, 2_000_000)
}

fn parameters(scale: Scale) -> Vec<Parameter> {
    vec![
        Parameter::varied("entries", PARTS.map(|part| entries(scale) / part)),
        Parameter::varied("found by", SIDES.map(|(name, _)| name)),
        Parameter::varied("keys", KEYS.map(|(name, _)| name)),
        Parameter::fixed("digest", "XXH3 (ours)"),
        Parameter::fixed("key bytes", KEY_BYTES),
        Parameter::fixed("entry bytes", ENTRY_BYTES),
        Parameter::fixed("order of writes", "random"),
        Parameter::fixed("lookups", lookups(scale)),
    ]
}

/// The time that the index saves with the fewest entries and with the most.
fn ends(rows: &View<'_>, keys: &str) -> Option<(f64, f64)> {
    let of = |side: usize| rows.of("keys", keys).of("found_by", SIDES[side].0).points("entries", "ns");
    let saved: Vec<f64> =
        of(0).into_iter().zip(of(1)).map(|(order, index)| 1.0 - index.1 / order.1).collect();
    Some((*saved.first()?, *saved.last()?))
}

/// A store whose memtable holds all of `items` without becoming full.
fn store(items: Items, memtable_index: bool) -> Result<Db, String> {
    let said = |error: shamba::Error| error.chain().to_string();
    let files: Arc<dyn Vfs> = Arc::new(MemFs::new());
    let buffer_bytes = 4 * items.bytes() + (16 << 20);
    let builder = Db::builder(Path::new("/memtable")).env(Env { vfs: files, ..Env::real() });
    let builder =
        builder.memory_budget(2 * buffer_bytes).write_buffer(buffer_bytes).experimental(|e| e.no_wal(true));
    let db =
        builder.experimental(|e| e.memtable_index(memtable_index)).info_log(false).open().map_err(said)?;
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

fn measure(lab: &mut Lab<'_>) -> Result<Rows, String> {
    let mut rows = Rows::default();
    for part in PARTS {
        let items = Items { count: entries(lab.scale) / part, entry_bytes: ENTRY_BYTES, seed: lab.seed };
        lab.at(format_args!("{} entries", items.count));
        let dbs = SIDES.map(|(_, index)| store(items, index)).into_iter().collect::<Result<Vec<_>, _>>()?;
        for (keys, empty_fraction) in KEYS {
            let questions = Questions::uniform(empty_fraction, lookups(lab.scale));
            let sides = compare(lab, &items, &dbs.iter().collect::<Vec<_>>(), &questions)?;
            for (side, (name, _)) in sides.into_iter().zip(SIDES) {
                rows.push(row!(entries: items.count, found_by: name, keys: keys, ns: side.ns));
            }
        }
    }
    Ok(rows)
}
