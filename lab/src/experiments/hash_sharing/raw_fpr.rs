//! False-positive rates of the papers' filters over raw hashes.

use shamba_filter::sim::raw::{RawFilter, RawProbing};

use super::hashes::{Hash, keys};

/// The paper's filter: ten thousand keys, a hundred thousand absent ones.
pub(super) const KEYS: usize = 10_000;
pub(super) const ABSENT_KEYS: usize = 100_000;
/// Bytes of a key, as in Table 2.
pub(super) const KEY_BYTES: usize = 512;

/// Derivation of probes from hashes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Way {
    /// One hash and its rotation.
    Single(Hash),
    /// Two hashes, `h1 + i * h2`.
    Double(Hash, Hash),
    /// A hash function for each probe.
    Different(&'static [Hash]),
}

/// The rate over `filters` filters of `units` modules, each filter over its own keys; the units of
/// one filter divide `bits_per_key` and `probes` among them.
///
/// As in the paper's code every unit derives its hash from the key's: the first has `h`, the next
/// `h + i * step`, with the step of the rotation in 64 bits, or the second hash.
pub(super) fn rate(way: Way, (bits_per_key, probes): (f64, u8), units: u8, filters: u64, seed: u64) -> f64 {
    let mut positives = 0u64;
    for number in 0..filters {
        let seed = seed.wrapping_add(number << 32);
        let inside = keys(KEYS, KEY_BYTES, seed);
        let outside = keys(ABSENT_KEYS, KEY_BYTES, seed ^ 0x6f75_7473_6964_6521);
        let probing = match way {
            _ if units > 1 => RawProbing::Independent,
            Way::Single(_) => RawProbing::Rotation,
            Way::Double(..) => RawProbing::DoubleHashing,
            Way::Different(_) => RawProbing::Independent,
        };
        let probes_of_unit = probes / units;
        let mut of_filter: Vec<RawFilter> = (0..units)
            .map(|_| RawFilter::new(KEYS, bits_per_key / f64::from(units), probes_of_unit, probing))
            .collect();
        for key in &inside {
            for (unit, filter) in (0..).zip(&mut of_filter) {
                filter.insert(&digests(way, key, unit, probes_of_unit, units));
            }
        }
        for key in &outside {
            let says_maybe = |(unit, filter): (u8, &RawFilter)| {
                filter.may_contain(&digests(way, key, unit, probes_of_unit, units))
            };
            positives += u64::from((0..).zip(&of_filter).all(says_maybe));
        }
    }
    positives as f64 / (filters.max(1) * ABSENT_KEYS as u64) as f64
}

/// The digests that a unit takes.
fn digests(way: Way, key: &[u8], unit: u8, probes: u8, units: u8) -> Vec<u64> {
    let stepped = |base: u64, step: u64| vec![base.wrapping_add(u64::from(unit).wrapping_mul(step))];
    match way {
        Way::Different(hashes) => {
            hashes.iter().map(|hash| hash.hash(key, 0)).take(usize::from(probes)).collect()
        }
        Way::Single(hash) => {
            let base = hash.hash(key, 0);
            if units == 1 { vec![base] } else { stepped(base, base << 17 | base >> 15) }
        }
        Way::Double(first, second) => {
            let (base, step) = (first.hash(key, 0), second.hash(key, 0));
            if units == 1 { vec![base, step] } else { stepped(base, step) }
        }
    }
}

#[cfg(test)]
mod tests {
    use shamba_filter::fpr::standard_fpr;

    use super::*;

    #[test]
    fn rates_of_good_hashes_are_near_theory() {
        let theory = standard_fpr(10.0, 7);
        for (way, units) in [(Way::Single(Hash::Sha256), 1), (Way::Double(Hash::Xx64, Hash::Murmur64), 7)] {
            let found = rate(way, (10.0, 7), units, 2, 1);
            assert!((found / theory - 1.0).abs() < 0.25, "{way:?}: {found}");
        }
    }
}
