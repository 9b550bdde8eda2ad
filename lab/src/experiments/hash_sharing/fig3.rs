//! Figure 3: the false-positive rate of one digest and its rotation, over bits per key.

use crate::chart::{Axis, Chart, Panel, Point, Series, Style};
use shamba_filter::fpr::standard_fpr;

use super::claims::{Claim, Held, judge};
use super::hashes::{Hash, SEVEN};
use super::raw_fpr::{Way, rate};
use crate::table::row;
use crate::{Experiment, Finding, Kind, Lab, Paper, Parameter, Scale, Table};

/// Bits per key, and the probes that the paper has for them.
const POINTS: [(u32, u8); 5] = [(1, 1), (4, 3), (7, 5), (10, 7), (13, 9)];
/// Curves that overlap in a figure with a logarithmic axis differ by less.
const NEAR: f64 = 0.1;
/// And what differs by more is another rate.
const FAR: f64 = 0.5;

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "hash-sharing-fig3",
    paper: Paper::HashSharing,
    kind: Kind::Measured,
    place: "Fig 3",
    title: "false-positive rate of one digest and its rotation over bits per key",
    claim: "One digest with bit rotation has the false-positive rate of as many hash functions, and that of theory.",
    parameters,
    run,
};

fn filters(scale: Scale) -> u64 {
    scale.count(3, 20, 20)
}

fn parameters(scale: Scale) -> Vec<Parameter> {
    vec![
        Parameter::varied("bits per key (probes)", POINTS.map(|(bits, probes)| format!("{bits} ({probes})"))),
        Parameter::varied("hashes", ["k functions", "MD5 rotated", "MM64 rotated"]),
        Parameter::fixed("keys", 10_000),
        Parameter::fixed("empty lookups a filter", 100_000),
        Parameter::fixed("filters", filters(scale)),
        Parameter::fixed("key bytes", super::raw_fpr::KEY_BYTES),
    ]
}

/// That a curve is theory's: beyond chance it departs from it by `beyond` of the rate at most.
fn overlaps(name: &str, beyond: f64) -> Claim {
    let text = format!("{name} departs from theory by {:.0} % of the rate beyond chance", 100.0 * beyond);
    match beyond {
        beyond if beyond <= NEAR => Claim::new(Held::Fully, text),
        beyond if beyond <= FAR => Claim::new(Held::InPart, text),
        _ => Claim::new(Held::Not, text),
    }
}

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    let ways: [(&str, Way); 3] = [
        ("k functions", Way::Different(&SEVEN)),
        ("MD5 rotated", Way::Single(Hash::Md5)),
        ("MM64 rotated", Way::Single(Hash::Murmur64)),
    ];
    let mut table =
        Table::new(&["hashes", "bits_per_key", "probes", "fpr", "error", "theory", "departure_share"]);
    let mut series = Vec::new();
    let mut furthest = Vec::new();
    for (name, way) in ways {
        let (mut points, mut departures, mut beyond): (_, Vec<f64>, f64) = (Vec::new(), Vec::new(), 0.0);
        for (bits, probes) in POINTS {
            if matches!(way, Way::Different(_)) && usize::from(probes) > SEVEN.len() {
                continue;
            }
            lab.at(format_args!("{name}, {bits} bits per key"));
            let found = rate(way, (f64::from(bits), probes), 1, filters(lab.scale), lab.seed);
            let theory = standard_fpr(f64::from(bits), probes);
            let departure = found.fpr / theory - 1.0;
            let noise = 3.0 * found.error / theory;
            beyond = beyond.max(departure.abs() - noise);
            departures.push(departure);
            table.row(row![name, bits, u32::from(probes), found.fpr, found.error, theory, departure]);
            let percent = |fpr: f64| 100.0 * fpr;
            let (low, high) = (found.fpr - 2.0 * found.error, found.fpr + 2.0 * found.error);
            points.push(Point::between(f64::from(bits), percent(found.fpr), percent(low), percent(high)));
        }
        series.push(Series::new(name, Style::Line, points));
        furthest.push((name, beyond, departures.iter().sum::<f64>() / departures.len().max(1) as f64));
    }
    let theory =
        POINTS.map(|(bits, probes)| (f64::from(bits), 100.0 * standard_fpr(f64::from(bits), probes)));
    series.push(Series::model("theory", theory));
    let means: Vec<String> =
        furthest.iter().map(|(name, _, mean)| format!("{name} {:+.0} %", 100.0 * mean)).collect();
    let claims: Vec<Claim> = furthest.iter().rev().map(|(name, beyond, _)| overlaps(name, *beyond)).collect();
    let (verdict, why) = judge(&claims, String::new);
    Ok(Finding {
        ours: format!("In the mean over bits per key the rate departs from theory by: {}.", means.join(", ")),
        verdict,
        why,
        table,
        chart: Chart {
            title: "False positives with one digest".to_owned(),
            claim: EXPERIMENT.claim.to_owned(),
            note: "Standard Bloom filters of 10,000 keys, 100,000 keys asked that are not there; bars: two standard errors. Nine functions there are not: k functions end at 7 probes.".to_owned(),
            panels: vec![Panel {
                title: String::new(),
                x: Axis::linear("filter bits per key"),
                y: Axis::log("false positives [%]"),
                series,
            }],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Verdict;

    #[test]
    fn another_rate_is_not_theorys() {
        let verdict = |beyond: f64| judge(&[overlaps("a way", beyond)], String::new).0;
        assert_eq!(
            [verdict(0.05), verdict(0.2), verdict(0.6)],
            [Verdict::Confirmed, Verdict::Partly, Verdict::NotHere]
        );
    }
}
