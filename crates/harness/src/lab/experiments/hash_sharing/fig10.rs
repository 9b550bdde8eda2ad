//! Figure 10: what one digest saves when requests are skewed.

use super::gains::{DIGESTS, Gain, chart, percent, table};
use crate::dist::Distribution;
use crate::lab::lookups::Questions;
use crate::lab::table::Cell;
use crate::lab::tree::{Spec, Tree};
use crate::lab::{Device, Experiment, Finding, Lab, Paper, Parameter, Scale, Verdict};
use shamba_figures::Axis;

const KEY_BYTES: [usize; 4] = [32, 128, 512, 1_024];
const ENTRY_BYTES: usize = 2_048;
const SIZE_RATIO: f64 = 10.0;
const LEVELS: u32 = 5;

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "hash-sharing-fig10",
    paper: Paper::HashSharing,
    place: "Fig 10",
    title: "gain of skewed empty lookups over the length of keys",
    claim: "With Zipfian lookups the gain exceeds 60 % at 1 KB, as few of the keys asked for are false positives: 0.08 % against 0.8 % with uniform ones.",
    parameters,
    run,
};

fn entries(scale: Scale) -> u64 {
    scale.pick(55_555, 444_440, 11_000_000)
}

fn parameters(scale: Scale) -> Vec<Parameter> {
    vec![
        Parameter::varied("key bytes", KEY_BYTES),
        Parameter::varied("digest", DIGESTS.map(|(_, name)| name)),
        Parameter::varied("lookups", ["uniform", "zipf 0.99"]),
        Parameter::fixed("device", Device::Pcie.name()),
        Parameter::fixed("entry bytes", ENTRY_BYTES),
        Parameter::fixed("entries", entries(scale)),
        Parameter::fixed("size ratio", SIZE_RATIO),
        Parameter::fixed("levels", LEVELS),
        Parameter::fixed("bits per key", 10),
        Parameter::fixed("empty fraction", 1),
    ]
}

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    let mut gains = Vec::new();
    for (digest, name) in DIGESTS {
        for key_bytes in KEY_BYTES {
            let spec = Spec {
                digest,
                ..Spec::leveled(entries(lab.scale), (key_bytes, ENTRY_BYTES), SIZE_RATIO, LEVELS)
            };
            let tree = Tree::lay(lab, "fig10", spec, Device::Pcie)?;
            for (distribution, how) in [(Distribution::Uniform, "uniform"), (Distribution::Zipf, "zipf")] {
                let lookups = lab.scale.count(10_000, 100_000, 1_000_000);
                let questions = Questions { distribution, ..Questions::uniform(1.0, lookups) };
                let at = (format!("{name}, {how}"), key_bytes as f64, Cell::from(key_bytes));
                gains.push(Gain::measure(lab, &tree, Device::Pcie, &questions, (&at.0, at.1, at.2))?);
            }
            tree.discard(lab)?;
        }
    }
    let longest = |how: &str| {
        let of = gains.iter().filter(|gain| gain.x == 1_024.0 && gain.series.ends_with(how));
        of.map(|gain| gain.gain().median).fold(f64::NEG_INFINITY, f64::max)
    };
    let positives = |how: &str| {
        let of: Vec<f64> = gains
            .iter()
            .filter(|gain| gain.series.ends_with(how))
            .map(|gain| {
                let stats = &gain.baseline.stats;
                stats.false_positives as f64 / stats.filters_consulted.max(1) as f64
            })
            .collect();
        of.iter().sum::<f64>() / of.len().max(1) as f64
    };
    let (zipf, uniform) = (longest("zipf"), longest("uniform"));
    let verdict = match zipf {
        gain if gain >= 0.5 => Verdict::Confirmed,
        gain if gain > uniform && gain > 0.05 => Verdict::Partly,
        _ => Verdict::NotHere,
    };
    Ok(Finding {
        ours: format!(
            "At keys of 1 KB at most {} with Zipfian lookups and {} with uniform ones; {:.2} % of the filters' answers are false positives with Zipfian, {:.2} % with \
             uniform lookups.",
            percent(zipf),
            percent(uniform),
            100.0 * positives("zipf"),
            100.0 * positives("uniform")
        ),
        verdict,
        why: match verdict {
            Verdict::Confirmed => String::new(),
            _ => "Skewed lookups ask for few different keys, and it is chance whether the hottest of them are false positives: the paper's tenth of the rate is one such draw, \
                  not a property of skew."
                .to_owned(),
        },
        table: table("key_bytes", &gains),
        chart: chart(
            "What one digest saves of an empty lookup: skewed lookups",
            EXPERIMENT.claim,
            "T = 10, 5 levels, entries of 2 KB, 10 bits per key, emulated PCIe SSD of 10 us. Model: Equation 8, which knows no skew.",
            Axis::log("key [bytes]"),
            &gains,
        ),
    })
}
