//! What one digest saves over the share of empty lookups on one device: what Figures 13 and 14 have in common.

use crate::chart::Axis;

use super::claims::{Claim, judge, noise};
use super::gains::{DIGESTS, Gain, chart, percent, table};
use crate::lookups::{Questions, Spread};
use crate::table::Cell;
use crate::tree::{Spec, Tree};
use crate::{Device, Finding, Lab, Parameter, Scale};

const EMPTY_FRACTIONS: [f64; 5] = [0.0, 0.25, 0.5, 0.75, 1.0];
const KEY_BYTES: usize = 512;
const ENTRY_BYTES: usize = 1_024;
const SIZE_RATIO: f64 = 10.0;
const LEVELS: u32 = 5;
const SLOW_NS: u64 = 50_000;

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
            // A lookup that finds its key on a slow device is all reading.
            let is_slow = empty_fraction < 1.0 && device.read_ns().is_some_and(|ns| ns > SLOW_NS);
            let lookups = lab.scale.count(if is_slow { 4_000 } else { 8_000 }, 100_000, 1_000_000);
            let questions = Questions::uniform(empty_fraction, lookups);
            let at = (name, empty_fraction, Cell::from(empty_fraction));
            gains.push(Gain::measure(lab, &tree, device, &questions, at)?);
        }
        tree.discard(lab)?;
    }
    Ok(gains)
}

/// The note below both pictures.
const NOTE: &str = "T = 10, 5 levels, keys of 512 B, entries of 1 KB, 10 bits per key. Model: Equation 8 with the time that a hash takes here and the rate of such filters.";

/// A gain of no more than this share, or than repeats scatter, is none.
const NOTHING: f64 = 0.03;

/// What the paper has of the time saved.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claimed {
    /// When every lookup finds its key; none if the paper has nothing there, within [`NOTHING`].
    pub none_empty: Option<f64>,
    /// When none does.
    pub all_empty: f64,
}

/// What is found on `device`, beside what the paper has.
pub(super) fn finding(
    lab: &mut Lab<'_>,
    device: Device,
    claimed: Claimed,
    (title, claim): (&str, &str),
) -> Result<Finding, String> {
    let gains = measure(lab, device)?;
    let of_paper: Vec<&Gain> = gains.iter().filter(|gain| gain.series == DIGESTS[0].1).collect();
    let [none, .., all] = of_paper[..] else { return Err("no shares of empty lookups".to_owned()) };
    let (verdict, why) = judge(&claims(none.gain(), all.gain(), claimed), || all.because());
    let text: Vec<String> = of_paper.iter().map(|gain| percent(gain.gain().median)).collect();
    Ok(Finding {
        ours: format!(
            "With none, a quarter, half, three quarters and all of the lookups empty: {}, with the paper's hash function.",
            text.join(", ")
        ),
        verdict,
        why,
        table: table("empty_fraction", &gains),
        chart: chart(title, claim, NOTE, Axis::linear("share of lookups that find nothing"), &gains),
    })
}

/// The gain is the paper's when all lookups are empty, it has grown to that, and it is the paper's when none is.
fn claims(none: Spread, all: Spread, claimed: Claimed) -> Vec<Claim> {
    let at_none = match claimed.none_empty {
        Some(share) => Claim::at_least("if none is empty", none.median, share),
        None => Claim::is(
            none.median.abs() <= NOTHING.max(noise(&[none])),
            format!("if none is empty it is {}, where the paper has nothing", percent(none.median)),
        ),
    };
    vec![
        Claim::at_least("if all lookups are empty the gain is", all.median, claimed.all_empty),
        Claim::grows("with the share of empty lookups it", none, all),
        at_none,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Verdict;

    #[test]
    fn the_verdict_follows_the_gains() {
        let spread = |median: f64| Spread { median, least: median - 0.01, most: median + 0.01 };
        let verdict = |none: f64, all: f64, none_empty: Option<f64>| {
            let claimed = Claimed { none_empty, all_empty: 0.4 };
            judge(&claims(spread(none), spread(all), claimed), String::new).0
        };
        assert_eq!(verdict(0.0, 0.4, None), Verdict::Confirmed);
        assert_eq!(verdict(0.02, 0.4, None), Verdict::Confirmed);
        assert_eq!(
            [0.1, -0.1].map(|none| verdict(none, 0.4, None)),
            [Verdict::Partly; 2],
            "not from nothing"
        );
        assert_eq!(verdict(0.0, 0.4, Some(0.1)), Verdict::Partly);
        assert_eq!(verdict(0.0, 0.2, None), Verdict::Partly);
        assert_eq!(verdict(0.4, 0.4, None), Verdict::Partly);
        assert_eq!(verdict(0.0, 0.05, None), Verdict::NotHere);
    }
}
