//! Figures 4 and 5: time of a lookup in one filter over the key length: one hash against seven, and
//! one hash with rotation against double hashing in a filter of seven units.

use std::hint::black_box;

use shamba_filter::sim::raw::{RawFilter, RawProbing};

use super::gains::over_llc;
use super::hashes::{Hash, SEVEN, keys};
use crate::lookups::median_ns;
use crate::prelude::*;

const KEY_BYTES: [usize; 7] = [8, 16, 32, 64, 128, 256, 512];
const KEYS: usize = 10_000;
const PROBES: u8 = 7;
const UNITS: usize = 7;
/// Lookups between two looks at the clock.
const BATCH: usize = 250;
/// "By far" cheaper: this many times.
const BY_FAR: f64 = 5.0;
const HASHES: [(&str, &[Hash]); 4] = [
    ("7 functions", &SEVEN),
    ("MD5 rotated", &[Hash::Md5]),
    ("MM64 rotated", &[Hash::Murmur64]),
    ("XXH3 rotated", &[Hash::Xxh3]),
];
const UNIT_HASHES: [(&str, Hash, Option<Hash>); 4] = [
    ("MM64, rotation", Hash::Murmur64, None),
    ("XX + MM64", Hash::Xx64, Some(Hash::Murmur64)),
    ("CRC + MM64", Hash::Crc32c, Some(Hash::Murmur64)),
    ("CITY + MM64", Hash::City64, Some(Hash::Murmur64)),
];
const PANEL: Panel = Panel::lines(
    Column::log("key_bytes", "key [bytes]"),
    Column::log("ns", "time of a lookup [ns]"),
    &["hashes"],
);

pub(super) const FIG4: Experiment = Experiment {
    id: "hash-sharing-fig4",
    paper: Paper::HashSharing,
    kind: Kind::Measured,
    method: Method::Timed,
    place: "Fig 4",
    title: "time of a lookup in one filter over the length of keys",
    claim: "One MM64 with rotation is by far the cheapest, and the gap to seven hash functions or MD5 grows with the key.",
    parameters: |_| parameters(HASHES.map(|(name, _)| name)),
    measure: fig4,
    predicates: &[
        Predicate::direction("7 functions over MM64, shortest keys", Ratio, AtLeast(1.0), |rows| {
            times(rows, "7 functions", 8)
        }),
        Predicate::direction("MD5 over MM64, shortest keys", Ratio, AtLeast(1.0), |rows| {
            times(rows, "MD5 rotated", 8)
        }),
        Predicate::direction(
            "gap to 7 functions, longest keys less shortest",
            Plain("ns"),
            AtLeast(0.0),
            |rows| Some(gap(rows, "7 functions", 512)? - gap(rows, "7 functions", 8)?),
        ),
        Predicate::direction("gap to MD5, longest keys less shortest", Plain("ns"), AtLeast(0.0), |rows| {
            Some(gap(rows, "MD5 rotated", 512)? - gap(rows, "MD5 rotated", 8)?)
        }),
        Predicate::size("7 functions over MM64, longest keys", Ratio, AtLeast(BY_FAR), |rows| {
            times(rows, "7 functions", 512)
        }),
        Predicate::size("MD5 over MM64, longest keys", Ratio, AtLeast(BY_FAR), |rows| {
            times(rows, "MD5 rotated", 512)
        }),
    ],
    panels: &[PANEL],
    note: "A standard filter of 10,000 keys, 10 bits per key, 7 probes, absent keys.",
    reason: Experiment::no_reason,
};

pub(super) const FIG5: Experiment = Experiment {
    id: "hash-sharing-fig5",
    place: "Fig 5",
    title: "time of a lookup in a filter of seven units over the length of keys",
    claim: "One hash with rotation takes down to a third of the time that double hashing takes, the more so the longer the key.",
    parameters: |_| parameters(UNIT_HASHES.map(|(name, ..)| name)),
    measure: fig5,
    predicates: &[
        Predicate::direction(
            "slowest double hashing over one hash, longest keys",
            Ratio,
            AtLeast(1.0),
            |rows| slowest(rows, 512),
        ),
        Predicate::direction(
            "slowest double hashing over one hash, longest keys over shortest",
            Ratio,
            AtLeast(1.0),
            |rows| Some(slowest(rows, 512)? / slowest(rows, 8)?),
        ),
        Predicate::size("slowest double hashing over one hash, longest keys", Ratio, AtLeast(3.0), |rows| {
            slowest(rows, 512)
        }),
    ],
    note: "ElasticBF as the paper has it: seven filters of one probe each over the same 10,000 keys, 10 bits per key together; absent keys.",
    ..FIG4
};

fn parameters<'n>(hashes: impl IntoIterator<Item = &'n str>) -> Vec<Parameter> {
    vec![
        Parameter::varied("key bytes", KEY_BYTES),
        Parameter::varied("hashes", hashes),
        Parameter::fixed("keys", KEYS),
        Parameter::fixed("bits per key", 10),
        Parameter::fixed("empty fraction", 1),
        over_llc(KEYS as u64, 10.0),
    ]
}

fn ns(rows: &View<'_>, hashes: &str, key_bytes: usize) -> Option<f64> {
    rows.of("hashes", hashes).of("key_bytes", key_bytes).number("ns")
}

fn times(rows: &View<'_>, hashes: &str, key_bytes: usize) -> Option<f64> {
    Some(ns(rows, hashes, key_bytes)? / ns(rows, "MM64 rotated", key_bytes)?)
}

fn gap(rows: &View<'_>, hashes: &str, key_bytes: usize) -> Option<f64> {
    Some(ns(rows, hashes, key_bytes)? - ns(rows, "MM64 rotated", key_bytes)?)
}

fn slowest(rows: &View<'_>, key_bytes: usize) -> Option<f64> {
    let double = UNIT_HASHES[1..].iter().map(|(name, ..)| ns(rows, name, key_bytes));
    let double: Option<Vec<f64>> = double.collect();
    Some(double?.into_iter().fold(0.0, f64::max) / ns(rows, UNIT_HASHES[0].0, key_bytes)?)
}

fn fig4(lab: &mut Lab<'_>) -> Result<Rows, String> {
    let mut rows = Rows::default();
    for key_bytes in KEY_BYTES {
        lab.at(format_args!("keys of {key_bytes} bytes"));
        let (inside, outside) = (keys(KEYS, key_bytes, lab.seed), keys(KEYS, key_bytes, !lab.seed));
        for (name, hashes) in HASHES {
            let probing = if hashes.len() > 1 { RawProbing::Independent } else { RawProbing::Rotation };
            let mut filter = RawFilter::new(inside.len(), 10.0, PROBES, probing);
            for key in &inside {
                filter.insert(&hashes.iter().map(|hash| hash.hash(key, 0)).collect::<Vec<u64>>());
            }
            // All digests are made first, as the code that the paper compares with does.
            let mut digests = [0; SEVEN.len()];
            let digests = &mut digests[..hashes.len()];
            let ns = lookup_ns(&outside, |key| {
                for (digest, hash) in digests.iter_mut().zip(hashes) {
                    *digest = hash.hash(black_box(key), 0);
                }
                filter.may_contain(digests)
            });
            rows.push(row! { hashes: name, key_bytes: key_bytes, ns: ns });
        }
    }
    Ok(rows)
}

fn fig5(lab: &mut Lab<'_>) -> Result<Rows, String> {
    /// The digests of a key's units: the hash and multiples of its rotation, or of another hash, on
    /// top.
    fn digest_of((hash, second): (Hash, Option<Hash>), key: &[u8]) -> impl Fn(usize) -> u64 {
        let base = hash.hash(key, 0);
        let step = second.map_or(base << 17 | base >> 15, |second| second.hash(key, 0));
        move |unit| base.wrapping_add((unit as u64).wrapping_mul(step))
    }
    let mut rows = Rows::default();
    for key_bytes in KEY_BYTES {
        lab.at(format_args!("keys of {key_bytes} bytes"));
        let (inside, outside) = (keys(KEYS, key_bytes, lab.seed), keys(KEYS, key_bytes, !lab.seed));
        for (name, hash, second) in UNIT_HASHES {
            let unit = || RawFilter::new(KEYS, 10.0 / UNITS as f64, 1, RawProbing::Independent);
            let mut units: Vec<RawFilter> = (0..UNITS).map(|_| unit()).collect();
            for key in &inside {
                let digest = digest_of((hash, second), key);
                units.iter_mut().enumerate().for_each(|(number, unit)| unit.insert(&[digest(number)]));
            }
            let ns = lookup_ns(&outside, |key| {
                let digest = digest_of((hash, second), black_box(key));
                units.iter().enumerate().all(|(number, unit)| unit.may_contain(&[digest(number)]))
            });
            rows.push(row! { hashes: name, key_bytes: key_bytes, ns: ns });
        }
    }
    Ok(rows)
}

fn lookup_ns(keys: &[Vec<u8>], mut may_contain: impl FnMut(&[u8]) -> bool) -> f64 {
    let mut maybe = 0u32;
    let ns = median_ns(keys.len() / BATCH, BATCH, |batch| {
        for key in keys.iter().skip(batch * BATCH).take(BATCH) {
            maybe += u32::from(may_contain(key));
        }
    });
    black_box(maybe);
    ns
}
