//! The slide "Lookup cost under memory pressure": bytes and pages that the state of the art reads
//! with decreasing memory.

use super::approaches::STATE_OF_THE_ART;
use super::pressure::{EMPTY, MEMORY, NOTE, PAGES, SHARES, parameters, rows};
use super::trees::Extent;
use crate::experiment::Experiment;
use crate::paper::{Kind, Method, Paper};
use crate::picture::{Column, Panel};
use crate::rows::{View, last_over_first};
use crate::verdict::{Bound::AtLeast, Predicate, Unit::Ratio};

/// "Rapidly": with a tenth of the memory at least this many times the bytes.
const RAPIDLY: f64 = 2.0;

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "shamba-pressure",
    paper: Paper::ModularFilters,
    kind: Kind::Measured,
    method: Method::Counted,
    place: "slide \"Lookup cost under memory pressure\"",
    title: "bytes read by a lookup of the state of the art over memory",
    claim: "As the available memory decreases, the bytes read by a query increase rapidly.",
    parameters: |scale| parameters(Extent::at(scale), &[STATE_OF_THE_ART], &SHARES, &EMPTY),
    measure: |lab| {
        let extent = Extent::at(lab.scale);
        rows(lab, extent, &[STATE_OF_THE_ART], &SHARES, &EMPTY)
    },
    predicates: &[
        Predicate::direction(
            "bytes with a tenth of the memory over those without pressure, keys there",
            Ratio,
            AtLeast(1.0),
            |rows| rise(rows, 0.0),
        ),
        Predicate::size(
            "bytes with a tenth of the memory over those without pressure, keys there",
            Ratio,
            AtLeast(RAPIDLY),
            |rows| rise(rows, 0.0),
        ),
        Predicate::size(
            "bytes with a tenth over those without pressure, half absent",
            Ratio,
            AtLeast(RAPIDLY),
            |rows| rise(rows, 0.5),
        ),
        Predicate::size(
            "bytes with a tenth over those without pressure, all absent",
            Ratio,
            AtLeast(RAPIDLY),
            |rows| rise(rows, 1.0),
        ),
    ],
    panels: &[
        Panel::lines(
            MEMORY,
            Column { times: 1.0 / 1024.0, ..Column::from_zero("read_bytes", "KiB read a lookup") },
            &["empty_fraction"],
        )
        .titled("bytes, by the share of empty lookups", &[]),
        Panel::lines(MEMORY, PAGES, &["empty_fraction"]).titled("pages", &[]),
        Panel::lines(MEMORY, super::pressure::READS, &["empty_fraction"]).titled("reads", &[]),
    ],
    note: NOTE,
    reason: Experiment::no_reason,
};

fn rise(rows: &View<'_>, empty_fraction: f64) -> Option<f64> {
    let points = rows.of("empty_fraction", empty_fraction).points("memory_share", "read_bytes");
    last_over_first(&points).map(|fall| 1.0 / fall)
}
