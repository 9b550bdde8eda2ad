//! The slides on the number of modules: 1, 2, 3 and 7 equal ones, over memory and over the share of
//! empty lookups, without skipping and with full skipping.

use super::approaches::{Approach, EQ, EQ_F, ONE_F, SEVEN, SEVEN_F, STATE_OF_THE_ART, THREE, THREE_F};
use super::pressure::{
    EMPTY_SHARES, FIXED_SHARE, NOTE, OVER_EMPTY, OVER_MEMORY, PRESSURE_MAX, SHARES, parameters, pressed,
    rows, saved,
};
use super::trees::Extent;
use crate::experiment::Experiment;
use crate::lab::Lab;
use crate::paper::{Kind, Method, Paper};
use crate::rows::{Rows, View};
use crate::scale::{Parameter, Scale};
use crate::verdict::{
    Bound::{AtLeast, AtMost},
    Predicate,
    Unit::{Plain, Ratio, Saved},
};

const NONE: [Approach; 4] = [STATE_OF_THE_ART, EQ, THREE, SEVEN];
const FULL: [Approach; 5] = [STATE_OF_THE_ART, ONE_F, EQ_F, THREE_F, SEVEN_F];
const ALL: [Approach; 8] = [STATE_OF_THE_ART, EQ, THREE, SEVEN, ONE_F, EQ_F, THREE_F, SEVEN_F];
const EMPTY: [f64; 2] = [0.5, 1.0];
/// Differences below this share of pages count as none.
const NONE_SHARE: f64 = 0.02;

pub(super) const NO_SKIPPING: Experiment = Experiment {
    id: "shamba-modules-no-skipping",
    paper: Paper::ModularFilters,
    kind: Kind::Measured,
    method: Method::Counted,
    place: "slides \"Impact of number of modules\", no skipping, over memory",
    title: "pages of a lookup with 1, 2, 3 and 7 modules over memory",
    claim: "Without skipping, modules enhance lookups of absent keys under memory pressure; smaller modules are more beneficial.",
    parameters: |scale| over_memory_parameters(scale, &NONE),
    measure: |lab| over_memory(lab, &NONE),
    predicates: &[
        Predicate::direction(
            "pages saved by 2 modules under pressure, all keys absent",
            Saved,
            AtLeast(0.0),
            |rows| absent(rows, EQ),
        ),
        Predicate::direction(
            "pages saved by 7 modules under pressure, all keys absent",
            Saved,
            AtLeast(0.0),
            |rows| absent(rows, SEVEN),
        ),
        Predicate::size(
            "steps to more modules (2, 3, 7) that save less, all keys absent",
            Plain(""),
            AtMost(0.0),
            |rows| steps_down(&[absent(rows, EQ)?, absent(rows, THREE)?, absent(rows, SEVEN)?]),
        ),
    ],
    panels: &OVER_MEMORY,
    note: NOTE,
    reason: Experiment::no_reason,
};

pub(super) const NO_SKIPPING_EMPTY: Experiment = Experiment {
    id: "shamba-modules-no-skipping-empty",
    place: "slides \"Impact of number of modules\", no skipping, over the empty share",
    title: "pages of a lookup with 1, 2, 3 and 7 modules over the share of empty lookups",
    claim: "Without skipping, modules enhance empty lookups, the more so the smaller they are; they are of no use for keys that are there.",
    parameters: |scale| over_empty_parameters(scale, &NONE),
    measure: |lab| over_empty(lab, &NONE),
    predicates: &[
        Predicate::direction("pages saved by 7 modules, all keys absent", Saved, AtLeast(0.0), |rows| {
            at_empty(rows, SEVEN, 1.0)
        }),
        Predicate::direction(
            "saving of 7 modules, all keys absent, beyond that of 2",
            Plain("points"),
            AtLeast(0.0),
            |rows| Some(100.0 * (at_empty(rows, SEVEN, 1.0)? - at_empty(rows, EQ, 1.0)?)),
        ),
        Predicate::size("pages saved by 2 modules, all keys there", Saved, AtMost(NONE_SHARE), |rows| {
            at_empty(rows, EQ, 0.0)
        }),
    ],
    panels: &OVER_EMPTY,
    ..NO_SKIPPING
};

pub(super) const FULL_SKIPPING: Experiment = Experiment {
    id: "shamba-modules-full-skipping",
    place: "slides \"Impact of number of modules\", full skipping, over memory",
    title: "pages of a lookup with 1, 2, 3 and 7 modules, skipped or not, over memory",
    claim: "Skipping modules reduces the impact of the number of modules.",
    parameters: |scale| over_memory_parameters(scale, &ALL),
    measure: |lab| over_memory(lab, &ALL),
    predicates: &[
        Predicate::direction(
            "distance of the curves of 1, 2, 3 and 7 modules, with skipping over without",
            Ratio,
            AtMost(1.0),
            |rows| impact(&pressed(rows, PRESSURE_MAX)),
        ),
        Predicate::direction(
            "pages saved by 2 modules with full skipping under pressure",
            Saved,
            AtLeast(0.0),
            |rows| saved(&pressed(rows, PRESSURE_MAX), EQ_F.name),
        ),
    ],
    ..NO_SKIPPING
};

pub(super) const FULL_SKIPPING_EMPTY: Experiment = Experiment {
    id: "shamba-modules-full-skipping-empty",
    place: "slides \"Impact of number of modules\", full skipping, over the empty share",
    title: "pages of a lookup with 1, 2, 3 and 7 modules, skipped or not, over the share of empty lookups",
    parameters: |scale| over_empty_parameters(scale, &ALL),
    measure: |lab| over_empty(lab, &ALL),
    predicates: &[
        Predicate::direction(
            "distance of the curves of 1, 2, 3 and 7 modules, with skipping over without",
            Ratio,
            AtMost(1.0),
            impact,
        ),
        Predicate::direction(
            "pages saved by 2 modules with full skipping, half of the keys absent",
            Saved,
            AtLeast(0.0),
            |rows| at_empty(rows, EQ_F, 0.5),
        ),
    ],
    panels: &OVER_EMPTY,
    ..FULL_SKIPPING
};

fn over_memory_parameters(scale: Scale, approaches: &[Approach]) -> Vec<Parameter> {
    parameters(Extent::at(scale), approaches, &SHARES, &EMPTY)
}

fn over_empty_parameters(scale: Scale, approaches: &[Approach]) -> Vec<Parameter> {
    parameters(Extent::at(scale), approaches, &[FIXED_SHARE], &EMPTY_SHARES)
}

fn over_memory(lab: &mut Lab<'_>, approaches: &[Approach]) -> Result<Rows, String> {
    rows(lab, Extent::at(lab.scale), approaches, &SHARES, &EMPTY)
}

fn over_empty(lab: &mut Lab<'_>, approaches: &[Approach]) -> Result<Rows, String> {
    rows(lab, Extent::at(lab.scale), approaches, &[FIXED_SHARE], &EMPTY_SHARES)
}

fn absent(rows: &View<'_>, approach: Approach) -> Option<f64> {
    saved(&pressed(&rows.of("empty_fraction", 1.0), PRESSURE_MAX), approach.name)
}

fn at_empty(rows: &View<'_>, approach: Approach, empty_fraction: f64) -> Option<f64> {
    saved(&rows.of("empty_fraction", empty_fraction), approach.name)
}

/// Number of steps with a decrease beyond random variation.
fn steps_down(saved: &[f64]) -> Option<f64> {
    Some(saved.windows(2).filter(|pair| pair[1] < pair[0] - NONE_SHARE).count() as f64)
}

/// Spread of the curves with skipping relative to that of the curves without: each is the mean over
/// points of the logarithm of the largest over the smallest number of pages.
fn impact(rows: &View<'_>) -> Option<f64> {
    let distance = |approaches: &[Approach]| {
        let mut widths = Vec::new();
        for share in rows.values("memory_share") {
            for empty in rows.values("empty_fraction") {
                let here = rows.of("memory_share", share.as_str()).of("empty_fraction", empty.as_str());
                let pages: Option<Vec<f64>> =
                    approaches.iter().map(|one| here.of("approach", one.name).number("pages")).collect();
                let pages = pages?;
                let least = pages.iter().copied().fold(f64::INFINITY, f64::min);
                widths.push((pages.iter().copied().fold(0.0, f64::max) / least).ln());
            }
        }
        Some(widths.iter().sum::<f64>() / widths.len() as f64)
    };
    Some(distance(&FULL[1..])? / distance(&NONE)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::row;

    #[test]
    fn the_impact_of_the_number_is_how_far_apart_curves_lie() {
        assert_eq!(steps_down(&[0.1, 0.095, 0.05, 0.3]), Some(1.0));
        let mut all = Rows::default();
        for (approach, pages) in ALL.iter().zip([8.0, 4.0, 4.0, 2.0, 4.0, 4.0, 3.0, 2.0]) {
            all.push(row!(approach: approach.name, memory_share: 0.1, empty_fraction: 1.0, pages: pages));
        }
        let impact = impact(&all.view()).expect("all are there");
        assert!((impact - 0.5).abs() < 1e-9, "ln 2 over ln 4: {impact}");
    }
}
