//! Figures 13 and 14: time that one digest saves over the share of empty lookups, on an SSD and on
//! a RAM disk.

use super::gains::{DIGESTS, NEAR_MODEL, because, gain, of_paper, over_llc, over_model};
use crate::prelude::*;
use crate::tree::{Spec, Tree};

const EMPTY_FRACTIONS: [f64; 5] = [0.0, 0.25, 0.5, 0.75, 1.0];
const SIZES: (usize, usize) = (512, 1_024);
const SIZE_RATIO: f64 = 10.0;
const LEVELS: u32 = 5;
/// Device latency above which reading dominates a found lookup.
const SLOW_NS: u64 = 50_000;
/// "Nothing", in the paper's words.
const NOTHING: f64 = 0.03;

pub(super) const FIG13: Experiment = Experiment {
    id: "hash-sharing-fig13",
    paper: Paper::HashSharing,
    kind: Kind::Measured,
    method: Method::Timed,
    place: "Fig 13",
    title: "time saved over the share of empty lookups on an SSD",
    claim: "On an SSD the gain grows from nothing to 17 % as lookups find nothing.",
    parameters: |scale| parameters(scale, Device::Ssd),
    measure: |lab| measure(lab, Device::Ssd),
    predicates: &[
        Predicate::direction(
            "gain with only empty lookups less that with none",
            Plain("points"),
            AtLeast(0.0),
            growth,
        ),
        Predicate::size("gain with no empty lookup", Saved, Within(-NOTHING, NOTHING), |rows| {
            at(rows, 0.0).number("gain")
        }),
        Predicate::size(
            "gain with only empty lookups over Equation 8's",
            Ratio,
            Within(NEAR_MODEL.0, NEAR_MODEL.1),
            |rows| over_model(&at(rows, 1.0)),
        ),
    ],
    panels: &[Panel::lines(
        Column::linear("empty_fraction", "share of lookups that find nothing"),
        Column::percent("gain", "time saved by one digest [%]"),
        &["digest"],
    )
    .with_model("gain_model")],
    note: "T = 10, 5 levels, keys of 512 B, entries of 1 KB, 10 bits per key. Model: Equation 8 with the times of a hash, a probe and a page here.",
    reason: |rows| because(&at(rows, 1.0)),
};

pub(super) const FIG14: Experiment = Experiment {
    id: "hash-sharing-fig14",
    place: "Fig 14",
    title: "time saved over the share of empty lookups on a RAM disk",
    claim: "On a RAM disk the gain grows from 10 % to over 40 % as lookups find nothing.",
    parameters: |scale| parameters(scale, Device::Memory),
    measure: |lab| measure(lab, Device::Memory),
    predicates: &[
        Predicate::direction(
            "gain with only empty lookups less that with none",
            Plain("points"),
            AtLeast(0.0),
            growth,
        ),
        Predicate::direction("gain with no empty lookup", Saved, AtLeast(0.0), |rows| {
            at(rows, 0.0).number("gain")
        }),
        Predicate::size(
            "gain with no empty lookup over Equation 8's",
            Ratio,
            Within(NEAR_MODEL.0, NEAR_MODEL.1),
            |rows| over_model(&at(rows, 0.0)),
        ),
        Predicate::size(
            "gain with only empty lookups over Equation 8's",
            Ratio,
            Within(NEAR_MODEL.0, NEAR_MODEL.1),
            |rows| over_model(&at(rows, 1.0)),
        ),
    ],
    ..FIG13
};

fn entries(scale: Scale) -> u64 {
    scale.pick(55_555, 444_440, 22_000_000)
}

fn parameters(scale: Scale, device: Device) -> Vec<Parameter> {
    vec![
        Parameter::varied("empty fraction", EMPTY_FRACTIONS),
        Parameter::varied("digest", DIGESTS.map(|(_, name)| name)),
        Parameter::fixed("device", device.name()),
        Parameter::fixed("key bytes", SIZES.0),
        Parameter::fixed("entry bytes", SIZES.1),
        Parameter::fixed("entries", entries(scale)),
        Parameter::fixed("size ratio", SIZE_RATIO),
        Parameter::fixed("levels", LEVELS),
        Parameter::fixed("bits per key", 10),
        over_llc(entries(scale), 10.0),
    ]
}

fn at<'a>(rows: &View<'a>, empty_fraction: f64) -> View<'a> {
    of_paper(rows).of("empty_fraction", empty_fraction)
}

fn growth(rows: &View<'_>) -> Option<f64> {
    Some(100.0 * (at(rows, 1.0).number("gain")? - at(rows, 0.0).number("gain")?))
}

fn measure(lab: &mut Lab<'_>, device: Device) -> Result<Rows, String> {
    let mut rows = Rows::default();
    for (digest, name) in DIGESTS {
        let tree = lab.once(format!("empty share {name}"), |lab| {
            let spec = Spec { digest, ..Spec::leveled(entries(lab.scale), SIZES, SIZE_RATIO, LEVELS) };
            Tree::lay(lab, "empty-share", spec, Device::Memory)
        })?;
        for empty_fraction in EMPTY_FRACTIONS {
            lab.at(format_args!("{name}, {empty_fraction} of the lookups empty"));
            let is_slow = empty_fraction < 1.0 && device.read_ns().is_some_and(|ns| ns > SLOW_NS);
            let lookups = lab.scale.count(if is_slow { 1_000 } else { 5_000 }, 100_000, 1_000_000);
            let questions = Questions::uniform(empty_fraction, lookups);
            let place = row!(digest: name, empty_fraction: empty_fraction);
            rows.push(place.and(gain(lab, &tree, device, &questions)?));
        }
    }
    Ok(rows)
}
