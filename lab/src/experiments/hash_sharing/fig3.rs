//! Figure 3: false-positive rate of one digest and its rotation, over bits per key.

use shamba_filter::fpr::standard_fpr;

use super::hashes::{Hash, SEVEN};
use super::raw_fpr::{ABSENT_KEYS, KEY_BYTES, KEYS, Way, rate};
use crate::experiment::Experiment;
use crate::lab::Lab;
use crate::paper::{Kind, Method, Paper};
use crate::picture::{Column, Panel};
use crate::rows::{Rows, View, row};
use crate::scale::{Parameter, Scale};
use crate::verdict::{Bound::Within, Predicate, Unit::Ratio};

/// Bits per key, and the probes that the paper has for them.
const POINTS: [(u32, u8); 5] = [(1, 1), (4, 3), (7, 5), (10, 7), (13, 9)];
const WAYS: [(&str, Way); 3] = [
    ("k functions", Way::Different(&SEVEN)),
    ("MD5 rotated", Way::Single(Hash::Md5)),
    ("MM64 rotated", Way::Single(Hash::Murmur64)),
];
/// Curves that overlap in a figure with a logarithmic axis differ by less than this.
const OVERLAPPING: (f64, f64) = (0.9, 1.1);

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "hash-sharing-fig3",
    paper: Paper::HashSharing,
    kind: Kind::Measured,
    method: Method::Counted,
    place: "Fig 3",
    title: "false-positive rate of one digest and its rotation over bits per key",
    claim: "One digest with bit rotation has the false-positive rate of as many hash functions, and that of theory.",
    parameters,
    measure,
    predicates: &[
        Predicate::direction(
            "rate of MM64 rotated over theory's, mean over bits per key",
            Ratio,
            Within(OVERLAPPING.0, OVERLAPPING.1),
            |rows| departure(rows, "MM64 rotated"),
        ),
        Predicate::size(
            "rate of MD5 rotated over theory's, mean over bits per key",
            Ratio,
            Within(OVERLAPPING.0, OVERLAPPING.1),
            |rows| departure(rows, "MD5 rotated"),
        ),
        Predicate::size(
            "rate of MM64 rotated over that of k functions, at 10 bits per key",
            Ratio,
            Within(OVERLAPPING.0, OVERLAPPING.1),
            |rows| {
                let at = |way: &str| rows.of("hashes", way).of("bits_per_key", 10u32).number("fpr");
                Some(at("MM64 rotated")? / at("k functions")?)
            },
        ),
    ],
    panels: &[Panel::lines(
        Column::linear("bits_per_key", "filter bits per key"),
        Column::log("fpr", "false positives [%]").times(100.0),
        &["hashes"],
    )
    .with_model("theory")],
    note: "Standard Bloom filters of 10,000 keys, 100,000 absent keys asked. The paper has seven functions: k functions end at 7 \
           probes. Model: theory of a standard Bloom filter.",
    reason: Experiment::no_reason,
};

fn filters(scale: Scale) -> u64 {
    scale.count(2, 20, 20)
}

fn parameters(scale: Scale) -> Vec<Parameter> {
    vec![
        Parameter::varied("bits per key (probes)", POINTS.map(|(bits, probes)| format!("{bits} ({probes})"))),
        Parameter::varied("hashes", WAYS.map(|(name, _)| name)),
        Parameter::fixed("keys", KEYS),
        Parameter::fixed("empty lookups a filter", ABSENT_KEYS),
        Parameter::fixed("filters a seed", filters(scale)),
        Parameter::fixed("key bytes", KEY_BYTES),
    ]
}

fn departure(rows: &View<'_>, way: &str) -> Option<f64> {
    rows.of("hashes", way).mean("over_theory")
}

fn measure(lab: &mut Lab<'_>) -> Result<Rows, String> {
    let mut rows = Rows::default();
    for (name, way) in WAYS {
        for (bits, probes) in POINTS {
            if matches!(way, Way::Different(_)) && usize::from(probes) > SEVEN.len() {
                continue;
            }
            lab.at(format_args!("{name}, {bits} bits per key"));
            let fpr = rate(way, (f64::from(bits), probes), 1, filters(lab.scale), lab.seed);
            let theory = standard_fpr(f64::from(bits), probes);
            let over_theory = fpr / theory;
            rows.push(row! {
                hashes: name,
                bits_per_key: bits,
                probes: u32::from(probes),
                fpr: fpr,
                theory: theory,
                over_theory: over_theory,
            });
        }
    }
    Ok(rows)
}
