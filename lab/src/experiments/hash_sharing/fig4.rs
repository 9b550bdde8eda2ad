//! Figure 4: what a lookup in one filter takes with one hash and with seven, over the length of keys.

use std::hint::black_box;

use crate::chart::{Axis, Chart, Panel, Point, Series, Style};
use shamba_filter::sim::raw::{RawFilter, RawProbing};

use super::claims::{Claim, Held, judge};
use super::hashes::{Hash, SEVEN, keys};
use crate::lookups::Spread;
use crate::table::row;
use crate::{Experiment, Finding, Kind, Lab, Paper, Parameter, Scale, Table};

const KEY_BYTES: [usize; 7] = [8, 16, 32, 64, 128, 256, 512];
const KEYS: usize = 10_000;
const PROBES: u8 = 7;
/// Lookups between two looks at the clock.
const BATCH: usize = 250;
/// "By far": so many times cheaper.
const BY_FAR: f64 = 5.0;

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "hash-sharing-fig4",
    paper: Paper::HashSharing,
    kind: Kind::Measured,
    place: "Fig 4",
    title: "time of a lookup in one filter over the length of keys",
    claim: "One MM64 with rotation is by far the cheapest, and the gap to seven hash functions or MD5 grows with the key.",
    parameters,
    run,
};

fn parameters(_: Scale) -> Vec<Parameter> {
    vec![
        Parameter::varied("key bytes", KEY_BYTES),
        Parameter::varied("hashes", ["7 functions", "MD5 rotated", "MM64 rotated", "XXH3 rotated"]),
        Parameter::fixed("keys", KEYS),
        Parameter::fixed("bits per key", 10),
        Parameter::fixed("probes", PROBES),
        Parameter::fixed("empty fraction", 1),
    ]
}

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    let ways: [(&str, &[Hash]); 4] = [
        ("7 functions", &SEVEN),
        ("MD5 rotated", &[Hash::Md5]),
        ("MM64 rotated", &[Hash::Murmur64]),
        ("XXH3 rotated", &[Hash::Xxh3]),
    ];
    let mut table = Table::new(&["hashes", "key_bytes", "lookup_ns", "lookup_least_ns", "lookup_most_ns"]);
    let mut curves: Vec<(&str, Vec<(usize, Spread)>)> =
        ways.iter().map(|(name, _)| (*name, Vec::new())).collect();
    for key_bytes in KEY_BYTES {
        lab.at(format_args!("keys of {key_bytes} bytes"));
        let inside = keys(KEYS, key_bytes, lab.seed);
        let outside = keys(KEYS, key_bytes, !lab.seed);
        let filters: Vec<RawFilter> = ways.iter().map(|(_, hashes)| filled(&inside, hashes)).collect();
        let mut times = vec![Vec::new(); ways.len()];
        for _ in 0..lab.repeats {
            for ((filter, (_, hashes)), times) in filters.iter().zip(ways).zip(&mut times) {
                times.push(lookup_ns(filter, hashes, &outside));
            }
        }
        for (((name, _), times), (_, curve)) in ways.iter().zip(times).zip(&mut curves) {
            let spread = Spread::of(times);
            table.row(row![*name, key_bytes, spread.median, spread.least, spread.most]);
            curve.push((key_bytes, spread));
        }
    }
    let at = |name: &str, key_bytes: usize| {
        let curve = curves.iter().find(|(known, _)| *known == name).map_or(&[][..], |(_, curve)| curve);
        curve.iter().find(|(bytes, _)| *bytes == key_bytes).map_or(0.0, |(_, spread)| spread.median)
    };
    let gap = |bytes: usize| at("7 functions", bytes) / at("MM64 rotated", bytes);
    let by_length = |name: &str| KEY_BYTES.map(|bytes| (at("MM64 rotated", bytes), at(name, bytes)));
    let (verdict, why) = judge(
        &[claim("7 functions", &by_length("7 functions")), claim("MD5", &by_length("MD5 rotated"))],
        String::new,
    );
    let series = curves.iter().map(|(name, curve)| {
        let points = curve
            .iter()
            .map(|(bytes, spread)| Point::between(*bytes as f64, spread.median, spread.least, spread.most));
        Series::new(*name, Style::Line, points.collect())
    });
    Ok(Finding {
        ours: format!(
            "Seven functions take {:.0} times what one MM64 does with keys of 8 bytes and {:.0} times with 512: {:.0} against {:.0} ns; XXH3 takes {:.0} ns.",
            gap(8),
            gap(512),
            at("7 functions", 512),
            at("MM64 rotated", 512),
            at("XXH3 rotated", 512)
        ),
        verdict,
        why,
        table,
        chart: Chart {
            title: "A lookup in one filter".to_owned(),
            claim: EXPERIMENT.claim.to_owned(),
            note: "A standard filter of 10,000 keys, 10 bits per key, 7 probes, keys that are not there."
                .to_owned(),
            panels: vec![Panel {
                title: String::new(),
                x: Axis::log("key [bytes]"),
                y: Axis::log("time of a lookup [ns]"),
                series: series.collect(),
            }],
        },
    })
}

/// That MM64 is cheaper than `name` with keys of every length, by far with the longest, and by more the longer the key. Of each length what both
/// take.
fn claim(name: &str, by_length: &[(f64, f64)]) -> Claim {
    let ratio = |(ours, theirs): &(f64, f64)| theirs / ours.max(f64::MIN_POSITIVE);
    let (Some(first), Some(last)) = (by_length.first(), by_length.last()) else {
        return Claim::new(Held::Not, "nothing was measured");
    };
    let grows = last.1 - last.0 > first.1 - first.0;
    let text = format!(
        "MM64 takes {:.0} ns and {name} {:.0} with the shortest keys, {:.0} and {:.0} with the longest",
        first.0, first.1, last.0, last.1
    );
    match by_length.iter().all(|times| ratio(times) > 1.0) {
        true if ratio(last) >= BY_FAR && grows => Claim::new(Held::Fully, text),
        true => Claim::new(Held::InPart, text),
        false => Claim::new(Held::Not, text),
    }
}

fn filled(keys: &[Vec<u8>], hashes: &[Hash]) -> RawFilter {
    let probing = if hashes.len() > 1 { RawProbing::Independent } else { RawProbing::Rotation };
    let mut filter = RawFilter::new(keys.len(), 10.0, PROBES, probing);
    for key in keys {
        let digests: Vec<u64> = hashes.iter().map(|hash| hash.hash(key, 0)).collect();
        filter.insert(&digests);
    }
    filter
}

/// What one lookup takes. All digests are made first, as the code that the paper compares with does.
fn lookup_ns(filter: &RawFilter, hashes: &[Hash], keys: &[Vec<u8>]) -> f64 {
    let mut digests = [0; SEVEN.len()];
    let digests = &mut digests[..hashes.len()];
    let mut maybe = 0u32;
    let ns = Spread::median_ns(keys.len() / BATCH, BATCH, |batch| {
        for key in keys.iter().skip(batch * BATCH).take(BATCH) {
            for (digest, hash) in digests.iter_mut().zip(hashes) {
                *digest = hash.hash(black_box(key), 0);
            }
            maybe += u32::from(filter.may_contain(digests));
        }
    });
    black_box(maybe);
    ns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cheapest_is_cheaper_everywhere_by_far_and_ever_more() {
        let held = |times: [(f64, f64); 2]| claim("others", &times).held;
        assert_eq!(held([(10.0, 60.0), (100.0, 900.0)]), Held::Fully);
        assert_eq!(held([(10.0, 60.0), (100.0, 300.0)]), Held::InPart);
        assert_eq!(held([(10.0, 900.0), (100.0, 800.0)]), Held::InPart);
        assert_eq!(held([(10.0, 9.0), (100.0, 900.0)]), Held::Not);
    }
}
