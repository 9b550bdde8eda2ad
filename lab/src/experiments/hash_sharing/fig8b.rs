//! Figure 8b: time that one digest saves of empty lookups, over the number of levels.

use super::gains::{DIGESTS, NEAR_MODEL, SHORT, because, beyond_llc, gain, of_paper, over_llc, over_model};
use crate::prelude::*;
use crate::tree::{Spec, Tree};

const LEVELS: [u32; 4] = [8, 10, 12, 14];
const SIZE_RATIO: f64 = 2.0;

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "hash-sharing-fig8b",
    paper: Paper::HashSharing,
    kind: Kind::Measured,
    method: Method::Timed,
    place: "Fig 8b",
    title: "time saved on empty lookups over the number of levels",
    claim: "The gain grows slowly with the number of levels and comes near a limit (Equation 9).",
    parameters,
    measure,
    predicates: &[
        Predicate::direction("gain with 14 levels less that with 8", Plain("points"), AtLeast(0.0), |rows| {
            Some(100.0 * (of(rows, 14)? - of(rows, 8)?))
        }),
        // "Slowly": the gain grows by less than the levels do.
        Predicate::size("gain with 14 levels over that with 8", Ratio, AtMost(14.0 / 8.0), |rows| {
            Some(of(rows, 14)? / of(rows, 8)?)
        }),
        Predicate::size(
            "gain with 14 levels over Equation 8's",
            Ratio,
            Within(NEAR_MODEL.0, NEAR_MODEL.1),
            |rows| over_model(&of_paper(rows).of("depth", 14u32)),
        ),
        Predicate::size(
            "growth a level from 11 to 14 less that from 8 to 11: a limit",
            Plain("points"),
            AtMost(0.0),
            |rows| {
                let middle = f64::midpoint(of(rows, 10)?, of(rows, 12)?);
                Some(100.0 * ((of(rows, 14)? - middle) - (middle - of(rows, 8)?)) / 3.0)
            },
        ),
    ],
    panels: &[Panel::lines(
        Column::linear("depth", "levels"),
        Column::percent("gain", "time saved by one digest [%]"),
        &["digest"],
    )
    .with_model("gain_model")],
    note: "T = 2, 10 bits per key, emulated PCIe SSD of 10 us, the same entries in any number of levels. Keys of 512 B, entries of 1 KB; at \
           the default scale 56 B and 64 B, so many that filters exceed the last-level cache four times. A filter has a line of 512 bits at \
           least, so that the smallest ones have fewer false positives than their bits say. Model: Equation 8 with the times of a hash, a \
           probe and a page here.",
    reason: |rows| because(&of_paper(rows).of("depth", 14u32)),
};

/// The same at every depth, so that the number of levels is all that differs.
fn entries(scale: Scale) -> u64 {
    scale.count(98_298, beyond_llc(10.0), 22_900_000)
}

/// Keys and entries; short ones at the default scale, so that there are enough of them.
fn sizes(scale: Scale) -> (usize, usize) {
    scale.pick((512, 1_024), SHORT, (512, 1_024))
}

fn parameters(scale: Scale) -> Vec<Parameter> {
    vec![
        Parameter::varied("levels", LEVELS),
        Parameter::varied("digest", DIGESTS.map(|(_, name)| name)),
        Parameter::fixed("device", Device::Pcie.name()),
        Parameter::fixed("size ratio", SIZE_RATIO),
        Parameter::fixed("entries", entries(scale)),
        Parameter::fixed("key bytes", sizes(scale).0),
        Parameter::fixed("entry bytes", sizes(scale).1),
        Parameter::fixed("bits per key", 10),
        Parameter::fixed("empty fraction", 1),
        over_llc(entries(scale), 10.0),
    ]
}

fn of(rows: &View<'_>, levels: u32) -> Option<f64> {
    of_paper(rows).of("depth", levels).number("gain")
}

fn measure(lab: &mut Lab<'_>) -> Result<Rows, String> {
    let mut rows = Rows::default();
    for (digest, name) in DIGESTS {
        for levels in LEVELS {
            lab.at(format_args!("{name}, {levels} levels"));
            let spec =
                Spec { digest, ..Spec::leveled(entries(lab.scale), sizes(lab.scale), SIZE_RATIO, levels) };
            let tree = Tree::lay(lab, "fig8b", spec, Device::Pcie)?;
            let questions = Questions::uniform(1.0, lab.scale.count(5_000, 100_000, 1_000_000));
            rows.push(row!(digest: name, depth: levels).and(gain(lab, &tree, Device::Pcie, &questions)?));
        }
    }
    Ok(rows)
}
