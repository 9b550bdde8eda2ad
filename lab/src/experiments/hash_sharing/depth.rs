//! Equations 6 and 7: hashing time over the number of levels, and of runs per level.
//!
//! Hashes are counted by the engine, and timed by the slope of the saving over the number of
//! filters: lookups that hash per filter against lookups that hash once, with no other difference.
//! If the slope is one whole hash, hashing time does not depend on the number of filters. Sixteen
//! bits per key keep false positives few.

use shamba::DigestKind;

use super::gains::{gain, over_llc};
use crate::layered::Shape;
use crate::prelude::*;
use crate::tree::{Spec, Tree};

const SIZES: (usize, usize) = (1_024, 1_088);
const BITS_PER_KEY: f64 = 16.0;
const LEVELS: [u32; 5] = [1, 4, 8, 11, 14];
const RUNS: [u32; 4] = [1, 4, 7, 10];
/// Time of a hash within a lookup relative to its time alone: lower, because the CPU overlaps it
/// with other work.
const WHOLE_HASH: (f64, f64) = (0.75, 1.25);
/// "No longer depends": hashing time grows by less than this part of its former growth,
const LITTLE: f64 = 0.5;
/// and by at most this factor.
const SAME: f64 = 1.25;
const NS: Column = Column::from_zero("ns", "time of a lookup [ns]");

pub(super) const OVER_LEVELS: Experiment = Experiment {
    id: "hash-sharing-levels",
    paper: Paper::HashSharing,
    kind: Kind::Ours,
    method: Method::Timed,
    place: "Eq 7",
    title: "hashing from 1 to 14 levels",
    claim: "With one digest hashing no longer depends on the number of levels.",
    parameters: |scale| parameters(Parameter::varied("levels", LEVELS), first_level(scale) * ((1 << 14) - 1)),
    measure: |lab| {
        let shapes = LEVELS.map(|levels| {
            let entries = first_level(lab.scale) * ((1 << levels) - 1);
            (levels, entries, Shape { size_ratio: 2.0, levels, inner_runs: 1, last_runs: 1 })
        });
        measure(lab, &shapes)
    },
    predicates: &[
        Predicate::direction(
            "hashing from the fewest filters to the most, growth with one digest over that without",
            Ratio,
            AtMost(LITTLE),
            |rows| Some(hashing_growth(rows, "hash_ns_shared")? / hashing_growth(rows, "hash_ns_baseline")?),
        ),
        Predicate::size(
            "hashing from the fewest filters to the most, growth with one digest",
            Ratio,
            AtMost(SAME),
            |rows| hashing_growth(rows, "hash_ns_shared"),
        ),
        Predicate::direction(
            "time saved for each filter more, over a hash",
            Plain(""),
            AtLeast(0.0),
            saved_per_filter,
        ),
        Predicate::size(
            "time saved for each filter more, over a hash",
            Plain(""),
            Within(WHOLE_HASH.0, WHOLE_HASH.1),
            saved_per_filter,
        ),
    ],
    panels: &[
        Panel::lines(Column::linear("depth", "levels, or runs a level"), NS, &["side"]).titled("time", &[]),
        Panel::lines(
            Column::linear("depth", "levels, or runs a level"),
            Column::from_zero("hashes", "hashes a lookup"),
            &["side"],
        )
        .titled("hashes", &[]),
    ],
    note: "Keys of 1 KB, MM64, 16 bits per key, files in memory, only empty lookups.",
    reason: Experiment::no_reason,
};

pub(super) const OVER_RUNS: Experiment = Experiment {
    id: "hash-sharing-runs",
    place: "Eq 6",
    title: "hashing from 1 to 10 runs a level",
    claim: "With one digest hashing no longer depends on the number of runs of a tiered tree either.",
    parameters: |scale| parameters(Parameter::varied("runs a level", RUNS), entries(scale)),
    measure: |lab| {
        let entries = entries(lab.scale);
        let shape = |runs| Shape { size_ratio: 4.0, levels: 5, inner_runs: runs, last_runs: runs };
        measure(lab, &RUNS.map(|runs| (runs, entries, shape(runs))))
    },
    ..OVER_LEVELS
};

fn first_level(scale: Scale) -> u64 {
    scale.pick(3, 20, 100)
}

fn entries(scale: Scale) -> u64 {
    scale.pick(34_100, 341_000, 3_410_000)
}

fn parameters(varied: Parameter, entries: u64) -> Vec<Parameter> {
    vec![
        varied,
        Parameter::fixed("entries, at most", entries),
        Parameter::fixed("device", Device::Memory.name()),
        Parameter::fixed("key bytes", SIZES.0),
        Parameter::fixed("entry bytes", SIZES.1),
        Parameter::fixed("digest", "MM64 (the paper's)"),
        Parameter::fixed("bits per key", BITS_PER_KEY),
        Parameter::fixed("empty fraction", 1),
        over_llc(entries, BITS_PER_KEY),
    ]
}

/// Hashing time of a lookup in the tree with the most filters, relative to that with the fewest.
fn hashing_growth(rows: &View<'_>, column: &str) -> Option<f64> {
    last_over_first(&rows.of("side", "one digest").points("filters", column))
}

fn saved_per_filter(rows: &View<'_>) -> Option<f64> {
    let hashing = rows.of("side", "a hash a filter");
    Some(slope(&hashing.points("filters", "saved_ns"))? / hashing.mean("hash_ns")?)
}

fn measure(lab: &mut Lab<'_>, shapes: &[(u32, u64, Shape)]) -> Result<Rows, String> {
    let mut rows = Rows::default();
    for (depth, entries, shape) in shapes {
        lab.at(format_args!("{depth} levels or runs"));
        let mut spec =
            Spec { shape: *shape, ..Spec::leveled(*entries, SIZES, shape.size_ratio, shape.levels) };
        spec.digest = DigestKind::Murmur64A;
        spec.bits.per_key = BITS_PER_KEY;
        let tree = Tree::lay(lab, "depth", spec, Device::Memory)?;
        let questions = Questions::uniform(1.0, lab.scale.count(8_000, 200_000, 1_000_000));
        let found = gain(lab, &tree, Device::Memory, &questions)?;
        let of = |column: &str| found.number(column);
        let saved_ns = Option::zip(of("baseline_ns"), of("shared_ns")).map(|(base, shared)| base - shared);
        for (side, ns, hashes) in [
            ("a hash a filter", of("baseline_ns"), of("hashes")),
            ("one digest", of("shared_ns"), of("hashes_shared")),
        ] {
            rows.push(
                row!(side: side, depth: *depth, ns: ns, hashes: hashes, saved_ns: saved_ns).and(Row(found
                    .0
                    .iter()
                    .filter(|(name, _)| *name != "hashes")
                    .cloned()
                    .collect())),
            );
        }
    }
    Ok(rows)
}
