//! Figures 13 A and B: lookups over the share of found ones, and over the level of the key.

use super::point::{Place, measure, panels, saved, side, time_saved};
use super::setup::{BITS_PER_KEY, Filters, SSD, Size, fixed};
use crate::prelude::*;

const HITS_PERCENT: [f64; 6] = [0.0, 20.0, 40.0, 70.0, 90.0, 100.0];
/// A lead of this part of the reads is clear.
const CLEAR: f64 = 0.02;
/// Share of hits from which the paper sees a difference between its two allocations.
const HITS_FROM: f64 = 70.0;
/// Deepest level at which the paper's curves of Monkey are flat, with almost no unnecessary reads.
const FLAT_TO: f64 = 6.0;
const FLAT_READS: f64 = 0.1;
/// Maximum number of looked-up items.
const AMONG: usize = 1 << 16;

pub(super) const A: Experiment = Experiment {
    id: "monkey-fig13a",
    paper: Paper::Monkey,
    kind: Kind::Measured,
    method: Method::Timed,
    place: "Fig 13 A",
    title: "I/Os and latency over the share of lookups that find",
    claim: "Monkey is ahead at any share of hits; filters made for the share of hits win over those made for empty lookups from 70 % on.",
    parameters: |scale| {
        let own = [
            Parameter::varied("lookups that find [%]", HITS_PERCENT),
            Parameter::fixed("device", SSD.name()),
        ];
        own.into_iter().chain(fixed(scale, &["empty fraction"])).collect()
    },
    measure: over_hits,
    predicates: &[
        Predicate::direction("reads saved by Monkey, zero, at least", Saved, AtLeast(0.0), |rows| {
            HITS_PERCENT
                .iter()
                .filter_map(|hits| at(rows, *hits, Filters::Uniform, Filters::Zero))
                .reduce(f64::min)
        }),
        Predicate::direction("latency saved by Monkey, zero, at 70 % hits", Saved, AtLeast(0.0), |rows| {
            time_saved(&rows.of("hits_percent", HITS_FROM), Filters::Uniform, Filters::Zero)
        }),
        Predicate::size("reads that general saves zero at 70 % hits", Saved, AtLeast(CLEAR), |rows| {
            at(rows, HITS_FROM, Filters::Zero, Filters::General)
        }),
        Predicate::size("reads that general saves zero at 40 % hits", Saved, AtMost(CLEAR), |rows| {
            at(rows, 40.0, Filters::Zero, Filters::General)
        }),
    ],
    panels: &panels(Column::linear("hits_percent", "lookups that find their key [%]")),
    note: "T = 2, 9 levels, 5 bits per key, emulated SSD of 290 us a read. Model: equations 13, 56, 7 and 19, all hits in the last level.",
    reason: |_| {
        "Filters made for hits take the last level's bits, which is worth the more the more lookups end there.".to_owned()
    },
};

pub(super) const B: Experiment = Experiment {
    id: "monkey-fig13b",
    place: "Fig 13 B",
    title: "I/Os and latency of lookups that find over the level of the key",
    claim: "The state of the art gets slower with each level above the key; Monkey stays flat up to level 6, and filters made for hits are ahead beyond.",
    parameters: |scale| {
        let levels = Size::usual(scale).map_or(0, |size| size.levels);
        let own = [
            Parameter::varied("level of the key", 1..=levels),
            Parameter::fixed("device", SSD.name()),
            Parameter::fixed("empty fraction", 0),
        ];
        own.into_iter().chain(fixed(scale, &["empty fraction"])).collect()
    },
    measure: over_levels,
    predicates: &[
        Predicate::direction(
            "uniform bits: reads more for each level above the key",
            Plain("reads"),
            AtLeast(0.0),
            |rows| slope(&side(rows, Filters::Uniform).points("level", "reads")),
        ),
        Predicate::size(
            "Monkey, zero: reads in vain for a key on level 6",
            Plain("reads"),
            AtMost(FLAT_READS),
            |rows| Some(side(&rows.of("level", FLAT_TO), Filters::Zero).number("reads")? - 1.0),
        ),
        Predicate::direction(
            "reads that general saves zero for a key on the last level",
            Saved,
            AtLeast(0.0),
            |rows| {
                let deepest = rows.numbers("level").into_iter().fold(0.0, f64::max);
                saved(&rows.of("level", deepest), Filters::Zero, Filters::General)
            },
        ),
    ],
    panels: &panels(Column::linear("level", "level of the key")),
    note: "T = 2, 9 levels, 5 bits per key, emulated SSD of 290 us a read. Model: one page and the false-positive rates of the levels above.",
    reason: Experiment::no_reason,
    ..A
};

fn at(rows: &View<'_>, hits: f64, base: Filters, idea: Filters) -> Option<f64> {
    saved(&rows.of("hits_percent", hits), base, idea)
}

fn over_hits(lab: &mut Lab<'_>) -> Result<Rows, String> {
    let size = Size::usual(lab.scale)?;
    let (paper, bits) = (size.paper_tree()?, BITS_PER_KEY * size.entries as f64);
    let mut rows = Rows::default();
    for hits in HITS_PERCENT {
        let empty_fraction = 1.0 - hits / 100.0;
        let place = Place {
            x: ("hits_percent", hits),
            device: (hits == HITS_FROM).then_some(SSD),
            questions: Questions::uniform(empty_fraction, 1),
            bits: (BITS_PER_KEY, empty_fraction),
            model_ios: &|filters| filters.model_ios(&paper, bits, empty_fraction),
        };
        rows.extend(measure(lab, size, &Filters::ALL, &place)?);
    }
    Ok(rows)
}

fn over_levels(lab: &mut Lab<'_>) -> Result<Rows, String> {
    let size = Size::usual(lab.scale)?;
    let (paper, bits) = (size.paper_tree()?, BITS_PER_KEY * size.entries as f64);
    let mut rows = Rows::default();
    for level in 1..=size.levels {
        let among = size.tree(lab, Filters::Uniform, BITS_PER_KEY, 0.0)?.items_of(level, AMONG);
        let above = level as usize - 1;
        let place = Place {
            x: ("level", f64::from(level)),
            device: (level == size.levels).then_some(SSD),
            questions: Questions { among, ..Questions::uniform(0.0, 1) },
            bits: (BITS_PER_KEY, 0.0),
            // The key's own run, and the false positives of the filters above it.
            model_ios: &|filters| {
                let fprs = filters.model_fprs(&paper, bits, BITS_PER_KEY, 0.0)?;
                Ok(1.0 + paper.zero_result_cost(fprs.get(..above).unwrap_or(&fprs)))
            },
        };
        rows.extend(measure(lab, size, &Filters::ALL, &place)?);
    }
    Ok(rows)
}
