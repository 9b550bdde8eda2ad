//! The guarantee, counted: no filter rejects a key that it was built from.
//!
//! Every layout is tested with every kind of keys. Digests of each kind (also the four-bit one)
//! come from random, sequential, path-like and nested keys. Others are not made by a hash:
//! extremes, neighbours, and digests that all fall into one line of a module. Filters have all
//! sizes and go through their stored form, and every second one loses slices on the way. Modules
//! are probed together and one by one.
//!
//! Not here: the same through tables, compactions and residency (crate `shamba`).

use crate::filter::Filter;
use crate::geometry::FilterGeometry;
use crate::layout::{FilterLayout, MAX_MODULES};
use crate::sim::{Numbers, every_layout};
use shamba_key::{DigestFn, DigestKind, KeyDigest};

/// The source of digests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keys {
    /// Keys of this shape, hashed by this kind.
    Hashed(DigestKind, KeyShape),
    /// No bit, every bit, one bit, all but one.
    Extremes,
    /// A number and those after it.
    Neighbours,
    /// Everything in the first or the last line of this module.
    OneLine(u8),
}

/// The shape of keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyShape {
    /// 1 to 24 bytes at random.
    Random,
    /// Eight bytes, counting up.
    Sequence,
    /// A few directories deep, with recurring names.
    Path,
    /// Each key is a prefix of the next: nothing, then zeros.
    Nested,
}

/// The result for one layout.
#[derive(Clone, Copy, Debug)]
pub struct Tally {
    /// The layout.
    pub layout: FilterLayout,
    /// Filters built.
    pub filters: u64,
    /// Membership tests, all for keys that the filters were built from.
    pub checks: u64,
    /// Number of them that were rejected: must be 0.
    pub false_negatives: u64,
}

/// Every kind of keys.
pub fn every_keys() -> Vec<Keys> {
    let shapes = [KeyShape::Random, KeyShape::Sequence, KeyShape::Path, KeyShape::Nested];
    let hashed = |kind| shapes.map(|shape| Keys::Hashed(kind, shape));
    let mut keys: Vec<Keys> = DigestKind::ALL.into_iter().flat_map(hashed).collect();
    keys.extend([Keys::Extremes, Keys::Neighbours]);
    keys.extend((0..MAX_MODULES as u8).map(Keys::OneLine));
    keys
}

/// Makes at least `checks` membership tests and returns the result for each layout.
pub fn run(checks: u64, seed: u64) -> Vec<Tally> {
    let (layouts, keys) = (every_layout(), every_keys());
    let per_case = checks.div_ceil((layouts.len() * keys.len()) as u64).max(1);
    let mut numbers = Numbers(seed);
    let tally = |layout| {
        let mut tally = Tally { layout, filters: 0, checks: 0, false_negatives: 0 };
        for (done, kind) in (1..).zip(&keys) {
            while tally.checks < per_case * done {
                let left = per_case * done - tally.checks;
                check_one(&mut tally, *kind, left, &mut numbers);
            }
        }
        tally
    };
    layouts.into_iter().map(tally).collect()
}

/// Builds a filter of at most `left` keys and tests all of them.
fn check_one(tally: &mut Tally, kind: Keys, left: u64, numbers: &mut Numbers) {
    // Sizes of all magnitudes up to a few slices per module.
    let count = (1u64 << (numbers.draw() % 18)) + numbers.draw() % 1000;
    let digests = kind.digests(count.min(left) as usize, numbers);
    let bits_per_key = 24.0 * numbers.share() + 0.05;
    tally.filters += 1;
    let Some(filter) =
        Filter::build(&digests, tally.layout, bits_per_key).and_then(|it| stored(&it, numbers))
    else {
        // Nothing was built, or its stored form was rejected: count every key as rejected.
        tally.checks += digests.len() as u64;
        tally.false_negatives += digests.len() as u64;
        return;
    };
    let modules = filter.geometry().modules().len() as u64;
    let asked = if numbers.draw() & 1 == 0 { u8::MAX } else { 1 << (numbers.draw() % modules) };
    let denied = digests.iter().filter(|digest| !filter.modules_may_contain(**digest, asked)).count();
    tally.checks += digests.len() as u64;
    tally.false_negatives += denied as u64;
}

/// The filter after a round trip through its stored form; every second time slices are lost.
fn stored(filter: &Filter, numbers: &mut Numbers) -> Option<Filter> {
    let geometry = FilterGeometry::decode(&filter.geometry().encode()).ok()?;
    let lossy = numbers.draw() & 1 == 0;
    let mut keep = || !lossy || numbers.draw() % 4 != 0;
    let slices = filter.slices().map(|(_, slice)| keep().then(|| slice.into())).collect();
    Filter::from_slices(geometry, slices).ok()
}

impl Keys {
    /// `count` digests of this kind.
    pub fn digests(self, count: usize, numbers: &mut Numbers) -> Vec<KeyDigest> {
        let start = numbers.draw();
        let digest_fn = |kind| DigestFn::new(kind, start);
        let mut digest = |at: u64| match self {
            Self::Hashed(kind, shape) => digest_fn(kind).digest(&shape.key(at, start, numbers)),
            Self::Extremes => {
                let bit = 1u64.checked_shl((at / 4) as u32 % 65).unwrap_or(0);
                KeyDigest::from_raw([0, u64::MAX, bit, !bit][at as usize % 4])
            }
            Self::Neighbours => KeyDigest::from_raw(start.wrapping_add(at)),
            Self::OneLine(module) => {
                // The top 32 bits choose slice and line, plus a few lower ones for slices.
                let low = numbers.draw() >> 44;
                digest_of_remix(module, if at & 1 == 0 { low } else { !low })
            }
        };
        (0..count as u64).map(&mut digest).collect()
    }
}

impl KeyShape {
    fn key(self, at: u64, start: u64, numbers: &mut Numbers) -> Vec<u8> {
        match self {
            Self::Random => {
                let bytes = numbers.by_ref().take(3).flat_map(u64::to_be_bytes);
                bytes.take(1 + (start.wrapping_add(at) % 24) as usize).collect()
            }
            Self::Sequence => start.wrapping_add(at).to_be_bytes().to_vec(),
            Self::Path => format!("/usr/share/{}/{:03}/file-{at:08}.txt", start % 10, at % 97).into_bytes(),
            // Longer keys than these would only be slow to hash.
            Self::Nested => vec![0; (at % 4096) as usize],
        }
    }
}

/// The digest whose remix for a module is `wanted`: the inverse of [`KeyDigest::module`].
fn digest_of_remix(module: u8, wanted: u64) -> KeyDigest {
    let unshift = |x: u64| x ^ (x >> 33);
    let x = unshift(wanted).wrapping_mul(inverse(0xc4ce_b9fe_1a85_ec53));
    let x = unshift(x).wrapping_mul(inverse(0xff51_afd7_ed55_8ccd));
    let key = 0xd6e8_feb8_6659_fd93u64.wrapping_mul(2 * u64::from(module) + 1);
    KeyDigest::from_raw(unshift(x) ^ key)
}

/// The inverse of an odd number modulo 2^64: each round doubles the number of correct bits.
fn inverse(odd: u64) -> u64 {
    (0..6).fold(odd, |guess, _| guess.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(guess))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_keys_and_none_denied() {
        let seed = 0x5eed;
        println!("seed {seed}");
        let tallies = run(1_000_000, seed);
        assert_eq!(tallies.len(), every_layout().len());
        for tally in &tallies {
            assert_eq!(tally.false_negatives, 0, "{tally:?}");
            assert!(tally.filters > 30, "{tally:?}");
        }
        assert!(tallies.iter().map(|tally| tally.checks).sum::<u64>() >= 1_000_000);
    }

    #[test]
    fn remixes_are_undone() {
        for (module, wanted) in (0..7).cycle().zip(Numbers(3).take(1000)) {
            assert_eq!(digest_of_remix(module, wanted).module(module), wanted);
        }
        let digests = Keys::OneLine(3).digests(1000, &mut Numbers(4));
        assert!(digests.iter().all(|digest| [0, 0xfff].contains(&(digest.module(3) >> 52))));
    }
}
