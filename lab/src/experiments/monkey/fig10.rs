//! Figure 10, by the model: throughput of partly found lookups, with three allocations of bits.

use super::setup::{ENTRY_BYTES, Filters, SIZE_RATIO, Size, buffer_bytes, entries};
use crate::prelude::*;

const BITS: [f64; 5] = [1.0, 2.0, 4.0, 6.0, 10.0];
const HITS_PERCENT: [f64; 11] = [0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 100.0];
/// Tolerance of "up to".
const NEAR: f64 = 0.05;
/// Shares that differ by less are equal.
const ROUNDED: f64 = 1e-9;
const X: Column = Column::linear("hits_percent", "lookups that find their key [%]");

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "monkey-fig10",
    paper: Paper::Monkey,
    kind: Kind::Computed,
    method: Method::Counted,
    place: "Fig 10",
    title: "throughput of lookups over the share that find, model",
    claim: "Filters made for the share of hits win up to some 20 % over those made for empty lookups; these beat the state of the art by up to 60 %, those by up to 80 %.",
    parameters: |_| {
        vec![
            Parameter::varied("lookups that find [%]", HITS_PERCENT),
            Parameter::varied("bits per key", BITS),
            Parameter::fixed("size ratio", SIZE_RATIO),
            Parameter::fixed("levels", Size::usual(Scale::Paper).map_or(0, |size| size.levels)),
            Parameter::fixed("entries", entries(Scale::Paper)),
        ]
    },
    measure,
    predicates: &[
        Predicate::direction("general over zero, at least", Share, AtLeast(-ROUNDED), |rows| {
            least(rows, "over_zero")
        }),
        Predicate::direction("general over zero, mean", Share, AtLeast(ROUNDED), |rows| {
            rows.mean("over_zero")
        }),
        Predicate::direction("zero over the state of the art, mean", Share, AtLeast(ROUNDED), |rows| {
            rows.mean("zero_over")
        }),
        Predicate::size("general over zero, at most", Share, Within(0.2 - NEAR, 0.2 + NEAR), |rows| {
            most(rows, "over_zero")
        }),
        Predicate::size(
            "zero over the state of the art, at most",
            Share,
            Within(0.6 - NEAR, 0.6 + NEAR),
            |rows| most(rows, "zero_over"),
        ),
        Predicate::size(
            "general over the state of the art, at most",
            Share,
            Within(0.8 - NEAR, 0.8 + NEAR),
            |rows| most(rows, "general_over"),
        ),
    ],
    panels: &[
        Panel::lines(X, Column::from_zero("throughput_zero", "throughput, 1 = Monkey, general"), &["bits"])
            .drawn(Style::Dashes)
            .titled("Monkey, zero", &[]),
        Panel::lines(
            X,
            Column::from_zero("throughput_uniform", "throughput, 1 = Monkey, general"),
            &["bits"],
        )
        .drawn(Style::Dashes)
        .titled("state of the art", &[]),
    ],
    note: "Computed: equations 13, 56, 7 and 19; T = 2, 9 levels. Throughput against that of filters made for the share of hits, at the same bits \
           per key.",
    reason: |_| {
        "The paper does not say how many levels its curves have: the more, the further the state of the art falls behind. Here there are those of \
         its experiments, 9."
            .to_owned()
    },
};

fn most(rows: &View<'_>, column: &str) -> Option<f64> {
    rows.numbers(column).into_iter().reduce(f64::max)
}

fn least(rows: &View<'_>, column: &str) -> Option<f64> {
    rows.numbers(column).into_iter().reduce(f64::min)
}

fn measure(_: &mut Lab<'_>) -> Result<Rows, String> {
    let size = Size::new(entries(Scale::Paper), ENTRY_BYTES, buffer_bytes(Scale::Paper))?;
    let (tree, count) = (size.paper_tree()?, entries(Scale::Paper) as f64);
    let mut rows = Rows::default();
    for bits in BITS {
        for hits in HITS_PERCENT {
            let ios = |filters: Filters| filters.model_ios(&tree, bits * count, 1.0 - hits / 100.0);
            let (uniform, zero, general) =
                (ios(Filters::Uniform)?, ios(Filters::Zero)?, ios(Filters::General)?);
            rows.push(row! {
                bits: format!("{bits} bits per key"),
                bits_per_key: bits,
                hits_percent: hits,
                uniform_ios: uniform,
                zero_ios: zero,
                general_ios: general,
                throughput_zero: general / zero,
                throughput_uniform: general / uniform,
                over_zero: 1.0 - general / zero,
                zero_over: 1.0 - zero / uniform,
                general_over: 1.0 - general / uniform,
            });
        }
    }
    Ok(rows)
}
