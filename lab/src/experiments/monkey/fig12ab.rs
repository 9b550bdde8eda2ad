//! Figures 12 A and B: empty lookups in trees of increasing depth, by the number and by the size of
//! entries.
//!
//! With uniform bits each level adds its false positives; with Monkey's, each upper level adds
//! less.

use super::point::{Place, measure, panels, saved, side, time_saved};
use super::setup::{
    BITS_PER_KEY, BUFFERS, ENTRY_BYTES, Filters, SSD_GROWING, Size, buffer_bytes, entries, fixed,
};
use crate::prelude::*;

/// Entry sizes with the same number of entries, so that the number of levels grows with the size.
const ENTRIES_BYTES: [usize; 4] = [32, 128, 512, 2_048];
/// "Flat": from half the levels on, less than this growth.
const FLAT: f64 = 1.2;
/// "Up to 60 % lower."
const UP_TO: f64 = 0.6;

pub(super) const A: Experiment = Experiment {
    id: "monkey-fig12a",
    paper: Paper::Monkey,
    kind: Kind::Measured,
    method: Method::Timed,
    place: "Fig 12 A",
    title: "I/Os and latency of empty lookups over the number of entries",
    claim: "Monkey's latency stays flat as data grows, the state of the art's grows with the levels: up to 60 % lower.",
    parameters: |scale| {
        let own = [Parameter::varied("entries", counts(scale))];
        own.into_iter().chain(fixed(scale, &["entries", "levels"])).collect()
    },
    measure: |lab| {
        let buffer = buffer_bytes(lab.scale);
        let sizes = counts(lab.scale)
            .into_iter()
            .map(|count| Ok((count as f64, Size::new(count, ENTRY_BYTES, buffer)?)));
        run(lab, &sizes.collect::<Result<Vec<_>, String>>()?)
    },
    predicates: &[
        Predicate::direction("I/Os saved in the deepest tree", Saved, AtLeast(0.0), |rows| {
            saved(&deepest(rows), Filters::Uniform, Filters::Zero)
        }),
        Predicate::direction("latency saved in the deepest tree", Saved, AtLeast(0.0), |rows| {
            time_saved(&deepest(rows), Filters::Uniform, Filters::Zero)
        }),
        Predicate::direction(
            "growth of I/Os from half the levels on, uniform bits' over Monkey's",
            Ratio,
            AtLeast(1.0),
            |rows| Some(growth(rows, Filters::Uniform)? / growth(rows, Filters::Zero)?),
        ),
        Predicate::size("growth of Monkey's I/Os from half the levels on", Ratio, AtMost(FLAT), |rows| {
            growth(rows, Filters::Zero)
        }),
        Predicate::size("I/Os saved in the deepest tree", Saved, AtLeast(UP_TO), |rows| {
            saved(&deepest(rows), Filters::Uniform, Filters::Zero)
        }),
    ],
    panels: &panels(Column::log("size", "entries")),
    note: "T = 2, 5 bits per key, all lookups empty, emulated SSD of 360 us a read. Model: equations 56 and 7, of which 7 is the limit of many \
           levels.",
    reason: |rows| {
        let model = |filters| side(&deepest(rows), filters).mean("model_ios").unwrap_or(f64::NAN);
        let saved = 100.0 * (1.0 - model(Filters::Zero) / model(Filters::Uniform));
        format!("The paper's own equations save {saved:.0} % of the I/Os of this tree.")
    },
};

pub(super) const B: Experiment = Experiment {
    id: "monkey-fig12b",
    place: "Fig 12 B",
    title: "I/Os and latency of empty lookups over the size of entries",
    claim: "Larger entries make more levels: Monkey's latency stays flat, the state of the art's grows; the shape of Fig 12 A.",
    parameters: |scale| {
        let own = [Parameter::varied("entry bytes", ENTRIES_BYTES)];
        own.into_iter().chain(fixed(scale, &["entry bytes", "levels"])).collect()
    },
    measure: |lab| {
        let (count, buffer) = (entries(lab.scale), buffer_bytes(lab.scale));
        let sizes =
            ENTRIES_BYTES.into_iter().map(|bytes| Ok((bytes as f64, Size::new(count, bytes, buffer)?)));
        run(lab, &sizes.collect::<Result<Vec<_>, String>>()?)
    },
    panels: &panels(Column::log("size", "entry [bytes]")),
    ..A
};

/// From 4 buffers, one level, increasing by factors of 4: the paper begins with 2^12 entries and a
/// buffer of 2^10.
fn counts(scale: Scale) -> Vec<u64> {
    let all = entries(scale);
    (0..=BUFFERS.ilog2() - 2).rev().step_by(2).map(|halvings| all >> halvings).collect()
}

fn deepest<'a>(rows: &View<'a>) -> View<'a> {
    let most = rows.numbers("size").into_iter().fold(0.0, f64::max);
    rows.of("size", most)
}

/// The reads of the deepest tree over those of the first with half its levels.
fn growth(rows: &View<'_>, filters: Filters) -> Option<f64> {
    let of = side(rows, filters);
    let (levels, reads) = (of.points("size", "levels"), of.points("size", "reads"));
    let deepest = levels.last()?.1;
    let half = levels.iter().position(|(_, levels)| 2.0 * levels >= deepest)?;
    Some(reads.last()?.1 / reads.get(half)?.1)
}

fn run(lab: &mut Lab<'_>, sizes: &[(f64, Size)]) -> Result<Rows, String> {
    let mut rows = Rows::default();
    for (number, (at, size)) in sizes.iter().enumerate() {
        let (paper, bits) = (size.paper_tree()?, BITS_PER_KEY * size.entries as f64);
        let place = Place {
            x: ("size", *at),
            // Latencies are the I/Os times the device's time: those of the deepest tree are enough.
            device: (number + 1 == sizes.len()).then_some(SSD_GROWING),
            questions: Questions::uniform(1.0, 1),
            bits: (BITS_PER_KEY, 1.0),
            model_ios: &|filters| filters.model_ios(&paper, bits, 1.0),
        };
        rows.extend(measure(lab, *size, &Filters::PAIR, &place)?);
    }
    Ok(rows)
}
