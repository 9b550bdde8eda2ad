//! The slides on partitioned indexes and filters, on Monkey, and on larger indexes.

use super::approaches::{
    Approach, EQ, EQ_F, MONKEY, MONKEY_EQ, MONKEY_EQ_F, PARTITIONED, PARTITIONED_EQ, PARTITIONED_EQ_F,
    PARTITIONED_EQ_P, STATE_OF_THE_ART,
};
use super::pressure::{
    MEMORY, NOTE, OVER_MEMORY, PAGES, PRESSURE_MAX, READS, SEVERE_MAX, SHARES, parameters, pressed, rows,
    saved, saved_of,
};
use super::trees::Extent;
use crate::experiment::Experiment;
use crate::lab::Lab;
use crate::paper::{Kind, Method, Paper};
use crate::picture::Panel;
use crate::rows::{Rows, View};
use crate::scale::{Parameter, Scale};
use crate::verdict::{
    Bound::AtLeast,
    Predicate,
    Unit::{Plain, Saved},
};

const EMPTY: [f64; 2] = [0.5, 1.0];
const WITH_PARTITIONS: [Approach; 5] =
    [STATE_OF_THE_ART, PARTITIONED, PARTITIONED_EQ, PARTITIONED_EQ_P, PARTITIONED_EQ_F];
const WITH_MONKEY: [Approach; 4] = [STATE_OF_THE_ART, MONKEY, MONKEY_EQ, MONKEY_EQ_F];
const WITH_INDEXES: [Approach; 3] = [STATE_OF_THE_ART, EQ, EQ_F];
/// The slide has the second size; with the last, indexes are larger than filters.
const ENTRY_BYTES: [usize; 3] = [64, 128, 256];

pub(super) const PARTITIONS: Experiment = Experiment {
    id: "shamba-partitioned",
    paper: Paper::ModularFilters,
    kind: Kind::Measured,
    method: Method::Counted,
    place: "slide \"SHaMBa with Partitioned Index/Filter\"",
    title: "pages of a lookup with partitioned filters and indexes, with and without modules",
    claim: "SHaMBa boosts partitioned indexes and filters under severe memory pressure.",
    parameters: |scale| parameters(Extent::at(scale), &WITH_PARTITIONS, &SHARES, &EMPTY),
    measure: |lab| {
        let extent = Extent::at(lab.scale);
        rows(lab, extent, &WITH_PARTITIONS, &SHARES, &EMPTY)
    },
    predicates: &[
        Predicate::direction(
            "pages saved of partitioned ones by eq-F under severe pressure, half absent",
            Saved,
            AtLeast(0.0),
            |rows| severe(rows, PARTITIONED, PARTITIONED_EQ_F, 0.5),
        ),
        Predicate::direction(
            "pages saved of partitioned ones by eq-F under severe pressure, all absent",
            Saved,
            AtLeast(0.0),
            |rows| severe(rows, PARTITIONED, PARTITIONED_EQ_F, 1.0),
        ),
    ],
    panels: &OVER_MEMORY,
    note: NOTE,
    reason: Experiment::no_reason,
};

pub(super) const ON_MONKEY: Experiment = Experiment {
    id: "shamba-monkey",
    place: "slide \"SHaMBa with Monkey\"",
    title: "pages of a lookup with Monkey's bits, with and without modules",
    claim: "SHaMBa further improves the performance of Monkey.",
    parameters: |scale| parameters(Extent::at(scale), &WITH_MONKEY, &SHARES, &EMPTY),
    measure: |lab| {
        let extent = Extent::at(lab.scale);
        rows(lab, extent, &WITH_MONKEY, &SHARES, &EMPTY)
    },
    predicates: &[
        Predicate::direction(
            "pages saved of Monkey's by eq-F under pressure, half absent",
            Saved,
            AtLeast(0.0),
            |rows| {
                saved_of(
                    &pressed(&rows.of("empty_fraction", 0.5), PRESSURE_MAX),
                    MONKEY.name,
                    MONKEY_EQ_F.name,
                )
            },
        ),
        Predicate::direction(
            "pages saved of Monkey's by eq-F under pressure, all absent",
            Saved,
            AtLeast(0.0),
            |rows| {
                saved_of(
                    &pressed(&rows.of("empty_fraction", 1.0), PRESSURE_MAX),
                    MONKEY.name,
                    MONKEY_EQ_F.name,
                )
            },
        ),
    ],
    ..PARTITIONS
};

const BY_ENTRY: Panel = Panel::lines(MEMORY, PAGES, &["approach"]);

pub(super) const LARGER_INDEX: Experiment = Experiment {
    id: "shamba-larger-index",
    place: "slide \"SHaMBa with larger index\"",
    title: "pages of a lookup with small and large indexes beside the filters, all keys absent",
    claim: "SHaMBa performs best when filters are larger than indexes.",
    parameters: larger_index_parameters,
    measure: larger_index,
    predicates: &[
        Predicate::direction(
            "pages saved by eq-F under pressure with entries of 64 B",
            Saved,
            AtLeast(0.0),
            |rows| of_entry(rows, 64),
        ),
        Predicate::direction(
            "saving with entries of 64 B beyond that with 128 B",
            Plain("points"),
            AtLeast(0.0),
            |rows| Some(100.0 * (of_entry(rows, 64)? - of_entry(rows, 128)?)),
        ),
        Predicate::size(
            "saving with entries of 128 B beyond that with 256 B",
            Plain("points"),
            AtLeast(0.0),
            |rows| Some(100.0 * (of_entry(rows, 128)? - of_entry(rows, 256)?)),
        ),
    ],
    panels: &[
        BY_ENTRY.titled("entries of 64 B", &[("entry_bytes", "64")]),
        BY_ENTRY.titled("128 B", &[("entry_bytes", "128")]),
        BY_ENTRY.titled("256 B", &[("entry_bytes", "256")]),
        Panel::lines(MEMORY, READS, &["approach"]).titled("reads, 64 B", &[("entry_bytes", "64")]),
    ],
    ..PARTITIONS
};

fn severe(rows: &View<'_>, baseline: Approach, idea: Approach, empty_fraction: f64) -> Option<f64> {
    let rows = pressed(&rows.of("empty_fraction", empty_fraction), SEVERE_MAX);
    saved_of(&rows, baseline.name, idea.name)
}

/// Files have the same number of entries for any entry size, so that filters have one size.
fn with_entries(scale: Scale, entry_bytes: usize) -> Extent {
    let extent = Extent::at(scale);
    let times = entry_bytes as u64 / 64;
    Extent { entries: extent.entries / times, entry_bytes, file_bytes: extent.file_bytes * times }
}

fn larger_index_parameters(scale: Scale) -> Vec<Parameter> {
    let mut all = parameters(Extent::at(scale), &WITH_INDEXES, &SHARES, &[1.0]);
    all.retain(|one| !["entry bytes", "entries", "file bytes"].contains(&one.name));
    all.push(Parameter::varied("entry bytes", ENTRY_BYTES));
    all.push(Parameter::varied("entries", ENTRY_BYTES.map(|bytes| with_entries(scale, bytes).entries)));
    all
}

fn larger_index(lab: &mut Lab<'_>) -> Result<Rows, String> {
    let mut all = Rows::default();
    for entry_bytes in ENTRY_BYTES {
        let extent = with_entries(lab.scale, entry_bytes);
        let measured = rows(lab, extent, &WITH_INDEXES, &SHARES, &[1.0])?;
        all.extend(measured.view().0.into_iter().cloned());
    }
    Ok(all)
}

fn of_entry(rows: &View<'_>, entry_bytes: usize) -> Option<f64> {
    saved(&pressed(&rows.of("entry_bytes", entry_bytes), PRESSURE_MAX), EQ_F.name)
}
