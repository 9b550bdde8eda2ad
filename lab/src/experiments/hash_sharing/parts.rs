//! This engine's additions: optimizations that a shared digest enables, besides the saved hashes.
//!
//! With XXH3 and short keys, hashing is a negligible part of a lookup. A digest that is known in
//! advance enables more: filters of all runs are prefetched before the first is tested, tags in
//! data blocks find an entry without key comparisons, and a call for many keys prefetches the lines
//! of all of them before it tests one. These are switched on one after the other, on otherwise
//! equal trees.

use shamba::{Db, DigestKind};

use super::gains::{beyond_llc, filters_over_llc, over_llc};
use crate::lookups::{compare, warm};
use crate::prelude::*;
use crate::tree::{Spec, Tree};

const SIZES: (usize, usize) = (16, 116);
const SIZE_RATIO: f64 = 4.0;
const LEVELS: u32 = 6;
/// A budget that holds all blocks, so that the cost of memory is measured, not of a device.
const BUDGET_BYTES: u64 = 4 << 30;
/// The step, its switches, and whether blocks have tags.
type Step = (&'static str, &'static [(&'static str, &'static str)], bool);
const STEPS: [Step; 5] = [
    ("nothing", &[("hash-sharing", "off"), ("prefetch", "off")], false),
    ("one digest", &[("prefetch", "off")], false),
    ("and prefetch", &[], false),
    ("and block tags", &[], true),
    ("and 32 keys a call", &[], true),
];
const MANY: usize = 4;
const KEYS_A_CALL: usize = 32;
/// "Next to nothing" of a lookup's time.
const NEXT_TO_NOTHING: f64 = 0.05;

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "hash-sharing-parts",
    paper: Paper::HashSharing,
    kind: Kind::Ours,
    method: Method::Timed,
    place: "ours",
    title: "what one digest saves, and what it makes possible, with short keys",
    claim: "(Ours) With XXH3 and keys of 16 bytes hashing itself is next to nothing; the gain of one digest is what it makes possible: prefetched filters, tags in blocks, many keys a call.",
    parameters,
    measure,
    predicates: &[
        Predicate::direction(
            "found: saved by prefetch and tags beyond one digest",
            Saved,
            AtLeast(0.0),
            |rows| saved(rows, "keys there", "one digest", "and block tags"),
        ),
        Predicate::direction("absent: saved by 32 keys a call beyond one key", Saved, AtLeast(0.0), |rows| {
            saved(rows, "keys absent", "and block tags", "and 32 keys a call")
        }),
        Predicate::size("absent: saved by prefetch beyond one digest", Saved, AtLeast(0.0), |rows| {
            saved(rows, "keys absent", "one digest", "and prefetch")
        }),
        Predicate::size("absent: saved by one digest alone", Saved, AtMost(NEXT_TO_NOTHING), |rows| {
            saved(rows, "keys absent", "nothing", "one digest")
        }),
        Predicate::size("found: saved by one digest alone", Saved, AtMost(NEXT_TO_NOTHING), |rows| {
            saved(rows, "keys there", "nothing", "one digest")
        }),
    ],
    panels: &[Panel::lines(
        Column::names("switched_on", "switched on"),
        Column::from_zero("ns", "time of a lookup [ns]"),
        &["keys"],
    )
    .drawn(Style::Bars)],
    note: "Each step has those before it, too. XXH3, 6 levels, T = 4, 10 bits per key, every block in memory. At the default scale entries \
           have 32 B, so many that filters exceed the last-level cache four times.",
    reason: |rows| {
        let times = rows.mean("filters_over_llc").unwrap_or_default();
        format!(
            "All filters together are {times:.2} times the last-level cache: prefetching saves where they do not fit."
        )
    },
};

/// Entries and their bytes.
fn size(scale: Scale) -> (u64, (usize, usize)) {
    (scale.count(250_000, beyond_llc(10.0), 10_000_000), scale.pick(SIZES, (16, 32), SIZES))
}

fn parameters(scale: Scale) -> Vec<Parameter> {
    let (entries, (key_bytes, entry_bytes)) = size(scale);
    vec![
        Parameter::varied("switched on", STEPS.map(|(name, ..)| name)),
        Parameter::varied("keys", ["absent", "there"]),
        Parameter::fixed("digest", "XXH3 (ours)"),
        Parameter::fixed("blocks", "all in memory"),
        Parameter::fixed("key bytes", key_bytes),
        Parameter::fixed("entry bytes", entry_bytes),
        Parameter::fixed("entries", entries),
        Parameter::fixed("size ratio", SIZE_RATIO),
        Parameter::fixed("levels", LEVELS),
        Parameter::fixed("bits per key", 10),
        over_llc(entries, 10.0),
    ]
}

fn saved(rows: &View<'_>, keys: &str, from: &str, to: &str) -> Option<f64> {
    let ns = |step: &str| rows.of("keys", keys).of("switched_on", step).number("ns");
    Some(1.0 - ns(to)? / ns(from)?)
}

fn measure(lab: &mut Lab<'_>) -> Result<Rows, String> {
    let (entries, sizes) = size(lab.scale);
    let mut spec = Spec::leveled(entries, sizes, SIZE_RATIO, LEVELS);
    spec.digest = DigestKind::Xxh3;
    let untagged = Tree::lay(lab, "untagged", Spec { block_tags: false, ..spec }, Device::Memory)?;
    let tagged = Tree::lay(lab, "tagged", spec, Device::Memory)?;
    let mut rows = Rows::default();
    for (empty_fraction, keys) in [(1.0, "keys absent"), (0.0, "keys there")] {
        lab.at(keys);
        let open = |(_, switches, has_tags): &Step| {
            let tree = if *has_tags { &tagged } else { &untagged };
            tree.open_within(Device::Memory, BUDGET_BYTES, switches, |builder| builder)
        };
        let dbs = STEPS.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        let sides: Vec<&Db> = dbs.iter().collect();
        let lookups = lab.scale.count(30_000, 400_000, 2_000_000);
        let questions = Questions {
            in_one_call: Some((MANY, KEYS_A_CALL)),
            ..Questions::uniform(empty_fraction, lookups)
        };
        warm(lab, (&tagged, 0), &sides, &questions)?;
        for (side, (step, ..)) in compare(lab, &tagged, &sides, &questions)?.into_iter().zip(STEPS) {
            let values = row! {
                switched_on: step,
                keys: keys,
                ns: side.ns,
                hashes: side.per_lookup(side.stats.hashes),
                filters_over_llc: filters_over_llc(entries, spec.bits.per_key),
            };
            rows.push(values.and(side.io()).and(side.shape(LEVELS, u64::from(LEVELS))));
        }
    }
    Ok(rows)
}
