//! Figure 10: what one digest saves when requests are skewed.

use super::claims::{Claim, Held, judge};
use super::gains::{DIGESTS, Gain, chart, percent, table};
use super::over_keys::OverKeys;
use crate::chart::Axis;
use crate::lookups::{Questions, Spread};
use crate::table::Cell;
use crate::{Device, Experiment, Finding, Kind, Lab, Paper, Parameter, Scale};
use shamba_workload::Distribution;

const KEY_BYTES: [usize; 4] = [32, 128, 512, 1_024];
const DISTRIBUTIONS: [(Distribution, &str); 2] =
    [(Distribution::Uniform, "uniform"), (Distribution::Zipf, "zipf")];

/// The paper's rate of Zipfian lookups is 0.08 % and that of uniform ones 0.8 %; up to this ratio it is about a tenth.
const RATE_RATIO: f64 = 0.15;

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "hash-sharing-fig10",
    paper: Paper::HashSharing,
    kind: Kind::Measured,
    place: "Fig 10",
    title: "gain of skewed empty lookups over the length of keys",
    claim: "With Zipfian lookups the gain exceeds 60 % at 1 KB, as few of the keys asked for are false positives: 0.08 % against 0.8 % with uniform ones.",
    parameters,
    run,
};

fn trees(scale: Scale) -> OverKeys {
    OverKeys {
        name: "fig10",
        keys_bytes: &KEY_BYTES,
        entry_bytes: 2_048,
        entries: scale.pick(55_555, 444_440, 11_000_000),
        lookups: scale.count(10_000, 100_000, 1_000_000),
    }
}

fn parameters(scale: Scale) -> Vec<Parameter> {
    trees(scale).parameters([
        Parameter::varied("lookups", ["uniform", "zipf 0.99"]),
        Parameter::fixed("device", Device::Pcie.name()),
    ])
}

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    let mut gains = Vec::new();
    let trees = trees(lab.scale);
    trees.each(lab, Device::Pcie, |lab, tree, (name, key_bytes)| {
        for (distribution, how) in DISTRIBUTIONS {
            let questions = Questions { distribution, ..Questions::uniform(1.0, trees.lookups) };
            let series = format!("{name}, {how}");
            let at = (series.as_str(), key_bytes as f64, Cell::from(key_bytes));
            gains.push(Gain::measure(lab, tree, Device::Pcie, &questions, at)?);
        }
        Ok(())
    })?;
    let longest = |how: &str| {
        let mut of = gains.iter().filter(|gain| gain.x == 1_024.0 && gain.series.starts_with(DIGESTS[0].1));
        of.find(|gain| gain.series.ends_with(how)).ok_or("no keys of 1 KB")
    };
    let positives = |how: &str| {
        let of = gains.iter().filter(|gain| gain.series.ends_with(how)).map(Gain::false_positives);
        Spread::of(of.collect())
    };
    let (skewed, even) = (longest("zipf")?, longest("uniform")?);
    let (zipf, uniform) = (skewed.gain().median, even.gain().median);
    let (skewed_rate, even_rate) = (positives("zipf"), positives("uniform"));
    let range = |rate: Spread| {
        format!("{:.2} % ({:.2} to {:.2})", 100.0 * rate.median, 100.0 * rate.least, 100.0 * rate.most)
    };
    let rates = format!(
        "false positives are {} of the filters' answers with Zipfian lookups and {} with uniform ones",
        range(skewed_rate),
        range(even_rate)
    );
    let fewer = match skewed_rate.median / even_rate.median.max(f64::MIN_POSITIVE) {
        ratio if ratio <= RATE_RATIO => Held::Fully,
        ratio if ratio < 1.0 && skewed_rate.most < even_rate.least => Held::InPart,
        _ => Held::Not,
    };
    let (verdict, why) = judge(
        &[
            Claim::at_least("with Zipfian lookups and keys of 1 KB the gain is", zipf, 0.6),
            Claim::is(
                zipf > uniform,
                format!(
                    "it is no higher than with uniform ones, {} against {}",
                    percent(zipf),
                    percent(uniform)
                ),
            ),
            Claim::new(fewer, format!("{rates} over {} trees, not a tenth", gains.len() / 2)),
        ],
        || skewed.because(),
    );
    Ok(Finding {
        ours: format!(
            "At keys of 1 KB {} with Zipfian lookups and {} with uniform ones, with the paper's hash function; {rates}, the median tree and all.",
            percent(zipf),
            percent(uniform),
        ),
        verdict,
        why,
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
