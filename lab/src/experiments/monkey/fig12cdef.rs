//! Figures 12 C to F: empty and found lookups over filter bits per key, on an SSD and on a disk.
//!
//! Without bits all sides read every run. The compared quantity is the number of bits with which
//! Monkey has as few unnecessary reads as uniform bits of ten, on the counted curves; between
//! points the logarithm is interpolated linearly, as for a Bloom filter. I/Os do not depend on the
//! device: those of D and F are those of C and E; their latencies are measured on each.

use super::point::{Place, measure, panels, saved, side, time_saved};
use super::setup::{Filters, HDD, SSD, Size, fixed};
use crate::prelude::*;

const BITS: [f64; 7] = [0.0, 2.0, 4.0, 5.0, 6.0, 8.0, 10.0];
/// "Some 6", and "some 4": within three quarters of a bit.
const SOME: f64 = 0.75;
const EMPTY_BITS: f64 = 6.0;
const HITS_BITS: f64 = 4.0;

pub(super) const C: Experiment = Experiment {
    id: "monkey-fig12c",
    paper: Paper::Monkey,
    kind: Kind::Measured,
    method: Method::Timed,
    place: "Fig 12 C",
    title: "I/Os and latency of empty lookups over bits per key, SSD",
    claim: "Monkey with some 6 bits per key is as fast as the state of the art with 10; without bits both are alike.",
    parameters: |scale| parameters(scale, 1.0, SSD),
    measure: |lab| run(lab, 1.0, SSD),
    predicates: &[
        Predicate::direction(
            "bits of Monkey for the reads of uniform 10",
            Plain("bits"),
            AtMost(10.0),
            |rows| equal_bits(rows, Filters::Zero, 0.0),
        ),
        Predicate::direction("latency saved at 6 bits", Saved, AtLeast(0.0), |rows| {
            time_saved(&rows.of("bits_per_key", EMPTY_BITS), Filters::Uniform, Filters::Zero)
        }),
        Predicate::size(
            "bits of Monkey for the reads of uniform 10",
            Plain("bits"),
            AtMost(EMPTY_BITS + SOME),
            |rows| equal_bits(rows, Filters::Zero, 0.0),
        ),
        Predicate::size("reads saved without bits", Saved, Within(-0.01, 0.01), |rows| {
            saved(&rows.of("bits_per_key", 0.0), Filters::Uniform, Filters::Zero)
        }),
    ],
    panels: &panels(Column::linear("bits_per_key", "filter bits per key")),
    note: "T = 2, 9 levels, all lookups empty. Model: equations 56 and 7.",
    reason: |rows| model_reason(rows, Filters::Zero, 0.0),
};

pub(super) const D: Experiment = Experiment {
    id: "monkey-fig12d",
    place: "Fig 12 D",
    title: "I/Os and latency of empty lookups over bits per key, HDD",
    parameters: |scale| parameters(scale, 1.0, HDD),
    measure: |lab| run(lab, 1.0, HDD),
    ..C
};

pub(super) const E: Experiment = Experiment {
    id: "monkey-fig12e",
    place: "Fig 12 E",
    title: "I/Os and latency of lookups that find over bits per key, SSD",
    claim: "Monkey with some 4 bits per key is as fast as the state of the art with 10; for hits, filters made for hits are some 10 % faster.",
    parameters: |scale| parameters(scale, 0.0, SSD),
    measure: |lab| run(lab, 0.0, SSD),
    predicates: &[
        Predicate::direction(
            "bits of Monkey, general, for the reads of uniform 10",
            Plain("bits"),
            AtMost(10.0),
            |rows| equal_bits(rows, Filters::General, 1.0),
        ),
        Predicate::direction("latency saved by general at 4 bits", Saved, AtLeast(0.0), |rows| {
            time_saved(&rows.of("bits_per_key", HITS_BITS), Filters::Uniform, Filters::General)
        }),
        Predicate::direction("reads that general saves zero, at 4 bits", Saved, AtLeast(0.0), |rows| {
            saved(&rows.of("bits_per_key", HITS_BITS), Filters::Zero, Filters::General)
        }),
        Predicate::size(
            "bits of Monkey, general, for the reads of uniform 10",
            Plain("bits"),
            AtMost(HITS_BITS + SOME),
            |rows| equal_bits(rows, Filters::General, 1.0),
        ),
        Predicate::size("reads that general saves zero, at most", Saved, Within(0.07, 0.13), most_saved),
    ],
    note: "T = 2, 9 levels, all lookups find. Model: equations 56, 9 and 19.",
    reason: |rows| model_reason(rows, Filters::General, 1.0),
    ..C
};

pub(super) const F: Experiment = Experiment {
    id: "monkey-fig12f",
    place: "Fig 12 F",
    title: "I/Os and latency of lookups that find over bits per key, HDD",
    parameters: |scale| parameters(scale, 0.0, HDD),
    measure: |lab| run(lab, 0.0, HDD),
    ..E
};

fn parameters(scale: Scale, empty_fraction: f64, device: Device) -> Vec<Parameter> {
    let own = [
        Parameter::varied("bits per key", BITS),
        Parameter::fixed("device", device.name()),
        Parameter::fixed("empty fraction", empty_fraction),
    ];
    own.into_iter().chain(fixed(scale, &["bits per key", "empty fraction"])).collect()
}

fn run(lab: &mut Lab<'_>, empty_fraction: f64, device: Device) -> Result<Rows, String> {
    let size = Size::usual(lab.scale)?;
    let paper = size.paper_tree()?;
    let sides = if empty_fraction == 1.0 { &Filters::PAIR[..] } else { &Filters::ALL[..] };
    let mut rows = Rows::default();
    for bits_per_key in BITS {
        let bits = bits_per_key * size.entries as f64;
        let timed = if empty_fraction == 1.0 { EMPTY_BITS } else { HITS_BITS };
        let place = Place {
            x: ("bits_per_key", bits_per_key),
            device: (bits_per_key == timed).then_some(device),
            questions: Questions::uniform(empty_fraction, 1),
            bits: (bits_per_key, empty_fraction),
            model_ios: &|filters| filters.model_ios(&paper, bits, empty_fraction),
        };
        rows.extend(measure(lab, size, sides, &place)?);
    }
    Ok(rows)
}

/// Bits with which `idea` has as few unnecessary page reads as uniform bits of ten; a found lookup
/// needs one read.
fn equal_bits_of(rows: &View<'_>, column: &str, idea: Filters, needed: f64) -> Option<f64> {
    let wasted = |filters| -> Vec<(f64, f64)> {
        let curve = side(rows, filters).points("bits_per_key", column);
        curve.into_iter().map(|(bits, reads)| (bits, (reads - needed).max(1e-9).ln())).collect()
    };
    let usual = wasted(Filters::Uniform).last()?.1;
    reaches(&wasted(idea), usual)
}

fn equal_bits(rows: &View<'_>, idea: Filters, needed: f64) -> Option<f64> {
    equal_bits_of(rows, "reads", idea, needed)
}

fn model_reason(rows: &View<'_>, idea: Filters, needed: f64) -> String {
    let bits = equal_bits_of(
        &rows.of("seed", rows.values("seed").first().cloned().unwrap_or_default()),
        "model_ios",
        idea,
        needed,
    );
    let told = bits.map_or("more than 10".to_owned(), |bits| format!("{bits:.1}"));
    format!(
        "The paper's own equations say {told} bits for this tree: where curves look alike on an axis that begins at 0, they still differ by their factor."
    )
}

fn most_saved(rows: &View<'_>) -> Option<f64> {
    let of = |bits: &f64| saved(&rows.of("bits_per_key", *bits), Filters::Zero, Filters::General);
    BITS.iter().filter_map(of).reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_read_off_where_the_logarithm_runs_straight() {
        let mut rows = Rows::default();
        for (filters, bits, reads) in [
            (Filters::Uniform, 0.0, 9.0),
            (Filters::Uniform, 10.0, 0.1),
            (Filters::Zero, 0.0, 9.0),
            (Filters::Zero, 2.0, 1.0),
            (Filters::Zero, 4.0, 0.01),
        ] {
            rows.push(row!(filters: filters.name(), bits_per_key: bits, reads: reads));
        }
        let bits = equal_bits(&rows.view(), Filters::Zero, 0.0).expect("on the curve");
        assert!((bits - 3.0).abs() < 1e-9, "{bits}");
    }
}
