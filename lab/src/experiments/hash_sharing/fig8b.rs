//! Figure 8b: what one digest saves of empty lookups, over the number of levels.

use super::claims::{Claim, Held, judge, noise};
use super::gains::{DIGESTS, Gain, chart, percent, table};
use crate::chart::Axis;
use crate::lookups::{Questions, Spread};
use crate::table::Cell;
use crate::tree::{Spec, Tree};
use crate::{Device, Experiment, Finding, Kind, Lab, Paper, Parameter, Scale};

const LEVELS: [u32; 4] = [8, 10, 12, 14];
const SIZE_RATIO: f64 = 2.0;
const KEY_BYTES: usize = 512;
const ENTRY_BYTES: usize = 1_024;

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "hash-sharing-fig8b",
    paper: Paper::HashSharing,
    kind: Kind::Measured,
    place: "Fig 8b",
    title: "gain of empty lookups over the number of levels",
    claim: "The gain grows slowly with the number of levels and comes near a limit (Equation 9).",
    parameters,
    run,
};

/// Entries of the smallest level: every level doubles them. A filter has a line of 512 bits at least: with few entries the smallest ones have fewer
/// false positives than their bits say, and shallow trees consist of them.
fn first_level(scale: Scale) -> u64 {
    scale.pick(12, 51, 1_400)
}

fn parameters(scale: Scale) -> Vec<Parameter> {
    vec![
        Parameter::varied("levels", LEVELS),
        Parameter::varied("digest", DIGESTS.map(|(_, name)| name)),
        Parameter::fixed("device", Device::Pcie.name()),
        Parameter::fixed("size ratio", SIZE_RATIO),
        Parameter::fixed("entries of the first level", first_level(scale)),
        Parameter::fixed("key bytes", KEY_BYTES),
        Parameter::fixed("entry bytes", ENTRY_BYTES),
        Parameter::fixed("bits per key", 10),
        Parameter::fixed("empty fraction", 1),
    ]
}

/// The gain grows, there is one, its growth is small beside it and does not quicken.
fn claims(gains: &[Spread]) -> Vec<Claim> {
    let at =
        |place: usize| gains.get(place).copied().unwrap_or(Spread { median: 0.0, least: 0.0, most: 0.0 });
    let (first, middle, last) = (at(0), at(gains.len() / 2), at(gains.len().saturating_sub(1)));
    let noise = noise(gains);
    // The middle is at 12 of 8 to 14 levels: two thirds of the way.
    let (early, late) = ((middle.median - first.median) / 2.0, last.median - middle.median);
    let growth = last.median - first.median;
    let text = format!(
        "the gain goes from {} to {}, with repeats up to {:.1} points from the median",
        percent(first.median),
        percent(last.median),
        100.0 * noise
    );
    vec![
        Claim::new(held(first, last, noise), text),
        Claim::is(
            growth <= first.median.max(0.0) / 2.0 + noise,
            format!("the gain grows by {}, which is not slowly", percent(growth)),
        ),
        Claim::is(
            late <= early + noise,
            format!(
                "from 12 to 14 levels it grows by {:.1} points, by two before by {:.1}: no limit is near",
                100.0 * late,
                100.0 * early
            ),
        ),
    ]
}

/// Whether a gain grows: it must be one, a tenth of it more or less is steady, and so is what repeats differ by.
fn held(first: Spread, last: Spread, noise: f64) -> Held {
    let growth = last.median - first.median;
    match first.median.max(last.median) {
        gain if gain <= noise => Held::Not,
        _ if growth > noise => Held::Fully,
        gain if growth >= -noise.max(gain / 10.0) => Held::InPart,
        _ => Held::Not,
    }
}

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    let mut gains = Vec::new();
    for (digest, name) in DIGESTS {
        for levels in LEVELS {
            let entries = first_level(lab.scale) * ((1 << levels) - 1);
            let spec =
                Spec { digest, ..Spec::leveled(entries, (KEY_BYTES, ENTRY_BYTES), SIZE_RATIO, levels) };
            let tree = Tree::lay(lab, "fig8b", spec, Device::Pcie)?;
            let questions = Questions::uniform(1.0, lab.scale.count(10_000, 100_000, 1_000_000));
            let at = (name, f64::from(levels), Cell::from(levels));
            gains.push(Gain::measure(lab, &tree, Device::Pcie, &questions, at)?);
            tree.discard(lab)?;
        }
    }
    let of: Vec<&Gain> = gains.iter().filter(|gain| gain.series == DIGESTS[0].1).collect();
    let [first, .., last] = of[..] else { return Err("no levels".to_owned()) };
    let spreads: Vec<Spread> = of.iter().map(|gain| gain.gain()).collect();
    let rate = |gain: &Gain| 100.0 * gain.false_positives();
    let model = |gain: &Gain| gain.model_as_measured.map_or_else(|| "nothing".to_owned(), percent);
    let (verdict, why) = judge(&claims(&spreads), || {
        format!(
            "With {} levels {:.2} % of the filters' answers are false positives, with {} {:.2} %: by Equation 8 with these rates the gain goes from {} to {}. Of a lookup hashing takes \
             {} and {}, blocks that are read in vain {} and {}. {}",
            first.x_value,
            rate(first),
            last.x_value,
            rate(last),
            model(first),
            model(last),
            percent(first.parts.hash),
            percent(last.parts.hash),
            percent(first.parts.data),
            percent(last.parts.data),
            last.because()
        )
    });
    let text: Vec<String> = spreads.iter().map(|gain| percent(gain.median)).collect();
    Ok(Finding {
        ours: format!("With 8, 10, 12 and 14 levels {} with the paper's hash function.", text.join(", ")),
        verdict,
        why,
        table: table("levels", &gains),
        chart: chart(
            "What one digest saves of an empty lookup",
            EXPERIMENT.claim,
            "T = 2, keys of 512 B, entries of 1 KB, 10 bits per key, emulated PCIe SSD of 10 us. Model: Equation 8.",
            Axis::linear("levels"),
            &gains,
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Verdict;

    #[test]
    fn a_gain_that_falls_is_no_growth() {
        let verdict = |gains: [f64; 4]| {
            let spread = |median: f64| Spread { median, least: median - 0.004, most: median + 0.004 };
            judge(&claims(&gains.map(spread)), String::new).0
        };
        assert_eq!(verdict([0.10, 0.11, 0.118, 0.12]), Verdict::Confirmed);
        assert_eq!(verdict([0.14, 0.10, 0.07, 0.04]), Verdict::NotHere);
        assert_eq!(verdict([0.10, 0.10, 0.10, 0.10]), Verdict::Partly);
        assert_eq!(verdict([0.42, 0.42, 0.41, 0.40]), Verdict::Partly);
        assert_eq!(verdict([0.10, 0.11, 0.12, 0.30]), Verdict::Partly);
        assert_eq!(verdict([0.001, 0.002, 0.002, 0.003]), Verdict::NotHere);
    }
}
