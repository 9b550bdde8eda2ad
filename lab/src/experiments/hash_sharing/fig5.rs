//! Figure 5: lookups in a filter of seven units, one hash and its rotation beside double hashing.

use std::hint::black_box;

use crate::chart::{Axis, Chart, Panel, Point, Series, Style};
use shamba_filter::sim::raw::{RawFilter, RawProbing};

use super::claims::{Claim, Held, judge};
use super::hashes::{Hash, keys};
use crate::lookups::Spread;
use crate::table::row;
use crate::{Experiment, Finding, Kind, Lab, Paper, Parameter, Scale, Table};

const KEY_BYTES: [usize; 6] = [16, 32, 64, 128, 256, 512];
const KEYS: usize = 10_000;
const UNITS: usize = 7;
/// Lookups between two looks at the clock.
const BATCH: usize = 250;
const WAYS: [(&str, Hash, Option<Hash>); 4] = [
    ("MM64, rotation", Hash::Murmur64, None),
    ("XX + MM64", Hash::Xx64, Some(Hash::Murmur64)),
    ("CRC + MM64", Hash::Crc32c, Some(Hash::Murmur64)),
    ("CITY + MM64", Hash::City64, Some(Hash::Murmur64)),
];

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "hash-sharing-fig5",
    paper: Paper::HashSharing,
    kind: Kind::Measured,
    place: "Fig 5",
    title: "time of a lookup in a filter of seven units over the length of keys",
    claim: "One hash with rotation takes down to a third of the time that double hashing takes, the more so the longer the key.",
    parameters,
    run,
};

fn parameters(_: Scale) -> Vec<Parameter> {
    vec![
        Parameter::varied("key bytes", KEY_BYTES),
        Parameter::varied("hashes", WAYS.map(|(name, ..)| name)),
        Parameter::fixed("units, one probe each", UNITS),
        Parameter::fixed("keys", KEYS),
        Parameter::fixed("bits per key", 10),
        Parameter::fixed("empty fraction", 1),
    ]
}

/// The digests of a key's units: the hash and multiples of its rotation, or of another hash, on top of it.
#[inline]
fn unit_digest(base: u64, step: u64, unit: usize) -> u64 {
    base.wrapping_add((unit as u64).wrapping_mul(step))
}

fn step_of(base: u64, second: Option<Hash>, key: &[u8]) -> u64 {
    second.map_or(base << 17 | base >> 15, |second| second.hash(key, 0))
}

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    let mut table = Table::new(&["hashes", "key_bytes", "lookup_ns", "lookup_least_ns", "lookup_most_ns"]);
    let mut series: Vec<Series> =
        WAYS.iter().map(|(name, ..)| Series::new(*name, Style::Line, Vec::new())).collect();
    let (mut ratios, mut longest) = (Vec::new(), Vec::new());
    for key_bytes in KEY_BYTES {
        lab.at(format_args!("keys of {key_bytes} bytes"));
        let inside = keys(KEYS, key_bytes, lab.seed);
        let outside = keys(KEYS, key_bytes, !lab.seed);
        let filters: Vec<Vec<RawFilter>> =
            WAYS.iter().map(|(_, hash, second)| filled(&inside, *hash, *second)).collect();
        let mut times = vec![Vec::new(); WAYS.len()];
        for _ in 0..lab.repeats {
            for ((units, (_, hash, second)), times) in filters.iter().zip(WAYS).zip(&mut times) {
                times.push(lookup_ns(units, hash, second, &outside));
            }
        }
        let spreads: Vec<Spread> = times.into_iter().map(Spread::of).collect();
        for ((spread, (name, ..)), series) in spreads.iter().zip(WAYS).zip(&mut series) {
            table.row(row![name, key_bytes, spread.median, spread.least, spread.most]);
            series.points.push(Point::between(key_bytes as f64, spread.median, spread.least, spread.most));
        }
        let slowest = spreads[1..].iter().map(|spread| spread.median).fold(0.0, f64::max);
        ratios.push(slowest / spreads[0].median);
        longest = spreads;
    }
    let most = ratios.iter().copied().fold(0.0, f64::max);
    let (verdict, why) = judge(&claims(&ratios), || {
        let times: Vec<String> = WAYS
            .iter()
            .zip(&longest)
            .map(|((name, ..), spread)| format!("{name} {:.0} ns", spread.median))
            .collect();
        format!("With keys of 512 bytes: {}.", times.join(", "))
    });
    Ok(Finding {
        ours: format!("The slowest double hashing takes up to {most:.1} times what one MM64 with rotation does; {:.1} times at 16 bytes.", ratios[0]),
        verdict,
        why,
        table,
        chart: Chart {
            title: "A lookup in a filter of seven units".to_owned(),
            claim: EXPERIMENT.claim.to_owned(),
            note: "ElasticBF as the paper has it: seven filters of one probe each over the same 10,000 keys, 10 bits per key together; keys that are not there.".to_owned(),
            panels: vec![Panel {
                title: String::new(),
                x: Axis::log("key [bytes]"),
                y: Axis::from_zero("time of a lookup [ns]"),
                series,
            }],
        },
    })
}

/// The paper's ratio, and that it grows with the key; of each length how many times as long the slowest double hashing takes.
fn claims(ratios: &[f64]) -> Vec<Claim> {
    let most = ratios.iter().copied().fold(0.0, f64::max);
    let held = match most {
        most if most >= 2.95 => Held::Fully,
        most if most >= 1.3 => Held::InPart,
        _ => Held::Not,
    };
    vec![
        Claim::new(held, format!("double hashing takes up to {most:.1} times as long, not 3 times")),
        Claim::is(ratios.last() > ratios.first(), "not the more so the longer the key"),
    ]
}

fn filled(keys: &[Vec<u8>], hash: Hash, second: Option<Hash>) -> Vec<RawFilter> {
    let unit = || RawFilter::new(keys.len(), 10.0 / UNITS as f64, 1, RawProbing::Independent);
    let mut units: Vec<RawFilter> = (0..UNITS).map(|_| unit()).collect();
    for key in keys {
        let base = hash.hash(key, 0);
        let step = step_of(base, second, key);
        for (number, unit) in units.iter_mut().enumerate() {
            unit.insert(&[unit_digest(base, step, number)]);
        }
    }
    units
}

fn lookup_ns(units: &[RawFilter], hash: Hash, second: Option<Hash>, keys: &[Vec<u8>]) -> f64 {
    let mut maybe = 0u32;
    let ns = Spread::median_ns(keys.len() / BATCH, BATCH, |batch| {
        for key in keys.iter().skip(batch * BATCH).take(BATCH) {
            let key = black_box(key);
            let base = hash.hash(key, 0);
            let step = step_of(base, second, key);
            let says_maybe =
                |(number, unit): (usize, &RawFilter)| unit.may_contain(&[unit_digest(base, step, number)]);
            maybe += u32::from(units.iter().enumerate().all(says_maybe));
        }
    });
    black_box(maybe);
    ns
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Verdict;

    #[test]
    fn the_verdict_follows_the_ratios() {
        let verdict = |ratios: &[f64]| judge(&claims(ratios), String::new).0;
        assert_eq!(verdict(&[1.5, 3.1]), Verdict::Confirmed);
        assert_eq!(verdict(&[3.1, 1.5]), Verdict::Partly);
        assert_eq!(verdict(&[1.2, 2.0]), Verdict::Partly);
        assert_eq!(verdict(&[1.2, 1.1]), Verdict::NotHere);
    }
}
