//! What one digest saves over the share of empty lookups on one device: what Figures 13 and 14 have in common.

use shamba_figures::Axis;

use super::gains::{DIGESTS, Gain, chart, percent, table};
use crate::lab::lookups::Questions;
use crate::lab::table::Cell;
use crate::lab::tree::{Spec, Tree};
use crate::lab::{Device, Finding, Lab, Parameter, Scale, Verdict};

const EMPTY_FRACTIONS: [f64; 5] = [0.0, 0.25, 0.5, 0.75, 1.0];
const KEY_BYTES: usize = 512;
const ENTRY_BYTES: usize = 1_024;
const SIZE_RATIO: f64 = 10.0;
const LEVELS: u32 = 5;

fn entries(scale: Scale) -> u64 {
    scale.pick(55_555, 444_440, 22_000_000)
}

pub(super) fn parameters(scale: Scale, device: Device) -> Vec<Parameter> {
    vec![
        Parameter::varied("empty fraction", EMPTY_FRACTIONS),
        Parameter::varied("digest", DIGESTS.map(|(_, name)| name)),
        Parameter::fixed("device", device.name()),
        Parameter::fixed("key bytes", KEY_BYTES),
        Parameter::fixed("entry bytes", ENTRY_BYTES),
        Parameter::fixed("entries", entries(scale)),
        Parameter::fixed("size ratio", SIZE_RATIO),
        Parameter::fixed("levels", LEVELS),
        Parameter::fixed("bits per key", 10),
    ]
}

fn measure(lab: &mut Lab<'_>, device: Device) -> Result<Vec<Gain>, String> {
    let mut gains = Vec::new();
    for (digest, name) in DIGESTS {
        let spec = Spec {
            digest,
            ..Spec::leveled(entries(lab.scale), (KEY_BYTES, ENTRY_BYTES), SIZE_RATIO, LEVELS)
        };
        let tree = Tree::lay(lab, "empty-share", spec, device)?;
        for empty_fraction in EMPTY_FRACTIONS {
            let questions = Questions::uniform(empty_fraction, lab.scale.count(8_000, 100_000, 1_000_000));
            let at = (name, empty_fraction, Cell::from(empty_fraction));
            gains.push(Gain::measure(lab, &tree, device, &questions, at)?);
        }
        tree.discard(lab)?;
    }
    Ok(gains)
}

/// The note below both pictures.
const NOTE: &str = "T = 10, 5 levels, keys of 512 B, entries of 1 KB, 10 bits per key. Model: Equation 8 with the time that a hash takes here.";

/// What is found on `device`, where the paper has `wanted` of the time saved when every lookup finds nothing.
pub(super) fn finding(
    lab: &mut Lab<'_>,
    device: Device,
    wanted: f64,
    (title, claim, why): (&str, &str, &str),
) -> Result<Finding, String> {
    let gains = measure(lab, device)?;
    let of_paper: Vec<f64> =
        gains.iter().filter(|gain| gain.series == DIGESTS[0].1).map(|gain| gain.gain().median).collect();
    let verdict = verdict(&of_paper, wanted);
    let text: Vec<String> = of_paper.into_iter().map(percent).collect();
    Ok(Finding {
        ours: format!(
            "With none, a quarter, half, three quarters and all of the lookups empty: {}, with the paper's hash function.",
            text.join(", ")
        ),
        verdict,
        why: if verdict == Verdict::Confirmed { String::new() } else { why.to_owned() },
        table: table("empty_fraction", &gains),
        chart: chart(title, claim, NOTE, Axis::linear("share of lookups that find nothing"), &gains),
    })
}

/// Confirmed if the gain grows to what the paper has; partly if it grows to a quarter of it.
fn verdict(gains: &[f64], wanted: f64) -> Verdict {
    match (gains.first(), gains.last()) {
        (Some(first), Some(last)) if last > first && *last >= wanted => Verdict::Confirmed,
        (Some(first), Some(last)) if last > first && *last >= wanted / 4.0 => Verdict::Partly,
        _ => Verdict::NotHere,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verdict_follows_the_gains() {
        assert_eq!(verdict(&[0.0, 0.4], 0.4), Verdict::Confirmed);
        assert_eq!(verdict(&[0.0, 0.2], 0.4), Verdict::Partly);
        assert_eq!(verdict(&[0.4, 0.4], 0.4), Verdict::NotHere);
        assert_eq!(verdict(&[], 0.4), Verdict::NotHere);
    }
}
