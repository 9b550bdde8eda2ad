//! Filters of the blocked family: no false negatives, measured rates against theory, slices present
//! and absent, and the example of the format page.

use super::*;
use crate::fpr::{best_probes, blocked_fpr};
use crate::place::BitPlace;
use crate::shape::FilterShape;
use shamba_key::{DigestFn, DigestKind};
use std::fmt::Write;

/// Pseudo-random digests (SplitMix64) from a seed, so that a failure can be reproduced.
struct Digests(u64);

impl Iterator for Digests {
    type Item = KeyDigest;

    fn next(&mut self) -> Option<KeyDigest> {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Some(KeyDigest::from_raw(x ^ (x >> 31)))
    }
}

fn digests(seed: u64, count: usize) -> Vec<KeyDigest> {
    Digests(seed).take(count).collect()
}

fn build(digests: &[KeyDigest], bits_per_key: f64) -> Option<Filter> {
    Filter::build(digests, FilterLayout::Blocked, bits_per_key)
}

/// The stored form of the filter's single module.
fn shape(filter: &Filter) -> FilterShape {
    FilterShape::decode(&filter.geometry().encode()).unwrap()
}

fn place(shape: FilterShape, digest: KeyDigest) -> BitPlace {
    BitPlace::at(digest.module(0), shape.slices_log2, shape.lines_per_slice)
}

fn from_shape(shape: FilterShape, slices: Vec<Option<Box<[u8]>>>) -> Result<Filter, String> {
    Filter::from_slices(FilterGeometry::try_from(shape)?, slices)
}

#[test]
fn no_false_negative_for_any_digest_kind() {
    for kind in DigestKind::ALL {
        let digest_fn = DigestFn::new(kind, 0x5eed);
        let keys: Vec<KeyDigest> = (0..200_000u64).map(|key| digest_fn.digest(&key.to_be_bytes())).collect();
        for bits_per_key in [0.3, 1.0, 4.5, 10.0, 23.7] {
            let filter = build(&keys, bits_per_key).unwrap();
            let missed = keys.iter().filter(|digest| !filter.may_contain(**digest)).count();
            assert_eq!(missed, 0, "{kind} at {bits_per_key} bits");
        }
    }
}

#[test]
fn no_false_negative_at_any_size() {
    // 51.2 keys fill a line at 10 bits, 52,429 a slice; shapes change around those numbers.
    for count in [1, 2, 25, 51, 52, 76, 77, 5_000, 52_428, 52_429, 52_455, 52_456, 104_858, 210_000, 430_000]
    {
        let keys = digests(count as u64, count);
        let filter = build(&keys, 10.0).unwrap();
        assert!(keys.iter().all(|digest| filter.may_contain(*digest)), "{count} keys, {:?}", shape(&filter));
        assert_eq!(filter.slices().count(), shape(&filter).slices());
        assert_eq!(filter.absent_slices(), 0);
    }
}

/// The share of absent keys that pass, for `count` keys.
fn measured(count: usize, bits_per_key: f64, absent_keys: usize) -> f64 {
    let mut numbers = Digests(bits_per_key.to_bits() ^ count as u64);
    let keys: Vec<KeyDigest> = numbers.by_ref().take(count).collect();
    let filter = build(&keys, bits_per_key).unwrap();
    // Digests are a bijection of a counter, so the ones that follow are all absent.
    numbers.take(absent_keys).filter(|digest| filter.may_contain(*digest)).count() as f64 / absent_keys as f64
}

#[test]
fn measured_rates_meet_theory() {
    for (bits_per_key, tolerance) in
        [(1.0, 0.02), (2.5, 0.02), (5.0, 0.03), (7.3, 0.03), (10.0, 0.05), (12.0, 0.05), (16.0, 0.10)]
    {
        let theory = blocked_fpr(bits_per_key, best_probes(bits_per_key));
        for count in [300_000, 1_000_000] {
            let rate = measured(count, bits_per_key, 2_000_000);
            let off = (rate / theory - 1.0).abs();
            assert!(off < tolerance, "{count} keys at {bits_per_key} bits: {rate}, theory {theory}");
        }
    }
    let ten = measured(500_000, 10.0, 4_000_000);
    assert!((0.0092..0.0102).contains(&ten), "10 bits: {ten}");
}

#[test]
fn the_rate_does_not_depend_on_the_slice_that_a_key_falls_into() {
    let filter = build(&digests(1, 1_000_000), 10.0).unwrap();
    let slices = shape(&filter).slices();
    assert_eq!(slices, 32);
    let (mut asked, mut passed) = (vec![0u32; slices], vec![0u32; slices]);
    for digest in Digests(2).take(4_000_000) {
        let slice = place(shape(&filter), digest).slice;
        asked[slice] += 1;
        passed[slice] += u32::from(filter.may_contain(digest));
    }
    for (slice, (asked, passed)) in asked.into_iter().zip(passed).enumerate() {
        assert!((120_000..130_000).contains(&asked), "slice {slice} was asked {asked} times of 125,000");
        // About 1,208 expected, standard deviation 35.
        assert!((1_000..1_420).contains(&passed), "slice {slice} passed {passed} of {asked}");
    }
}

#[test]
fn lines_and_bits_are_all_used() {
    let shape = FilterShape { family: FilterFamily::Blocked, probes: 16, slices_log2: 2, lines_per_slice: 3 };
    let (mut lines, mut bits) = (HashSet::new(), HashSet::new());
    for digest in Digests(3).take(5_000) {
        let place = place(shape, digest);
        lines.insert((place.slice, place.line));
        assert!(place.slice < 4 && place.line < shape.lines_per_slice as usize);
        bits.extend(crate::simd::bits(place.probe, shape.probes));
    }
    assert_eq!(lines.len(), 12);
    assert_eq!(bits.len(), LINE_BITS);
    assert_eq!(bits.into_iter().max(), Some(LINE_BITS - 1));
}

#[test]
fn extreme_digests_have_a_place_in_every_shape() {
    for slices_log2 in [0, 1, 20] {
        for lines_per_slice in [1, 1024] {
            let shape =
                FilterShape { family: FilterFamily::Blocked, probes: 16, slices_log2, lines_per_slice };
            for raw in [0, 1, u64::MAX, 1 << 63].into_iter().chain(Digests(4).map(KeyDigest::raw).take(1000))
            {
                let place = place(shape, KeyDigest::from_raw(raw));
                assert!(
                    place.slice < shape.slices() && place.line < shape.lines_per_slice as usize,
                    "{shape:?} {raw:#x}"
                );
            }
        }
    }
}

#[test]
fn nothing_to_build() {
    let keys = digests(5, 10);
    assert!(build(&[], 10.0).is_none());
    assert!(build(&keys, 0.0).is_none());
    assert!(build(&keys, -1.0).is_none());
    assert!(build(&keys, f64::NAN).is_none());
}

#[test]
fn versions_of_one_key_count_once() {
    let keys = digests(6, 10_000);
    let versions: Vec<KeyDigest> = keys.iter().flat_map(|digest| [*digest; 3]).collect();
    let (once, thrice) = (build(&keys, 10.0), build(&versions, 10.0));
    let (once, thrice) = (once.unwrap(), thrice.unwrap());
    assert_eq!(shape(&once), shape(&thrice));
    assert!(once.slices().eq(thrice.slices()));
}

#[test]
fn a_filter_read_back_is_the_filter_written() {
    let keys = digests(7, 123_456);
    let written = build(&keys, 11.3).unwrap();
    let shape = FilterShape::decode(&shape(&written).encode()).unwrap();
    let read = from_shape(shape, owned(&written)).unwrap();
    assert!(read.slices().eq(written.slices()));
    for digest in keys.iter().copied().chain(Digests(8).take(100_000)) {
        assert_eq!(read.may_contain(digest), written.may_contain(digest));
    }
}

#[test]
fn an_absent_slice_denies_nothing_and_others_still_filter() {
    let keys = digests(9, 200_000);
    let whole = build(&keys, 10.0).unwrap();
    let mut slices = owned(&whole);
    assert_eq!(slices.len(), 4);
    slices[2] = None;
    let partial = from_shape(shape(&whole), slices).unwrap();
    assert_eq!(partial.absent_slices(), 1);
    assert_eq!(partial.slices().count(), 3);
    let mut waved_through = 0;
    for digest in keys.iter().copied().chain(Digests(10).take(100_000)) {
        let absent = place(shape(&whole), digest).slice == 2;
        assert_eq!(partial.may_contain(digest), absent || whole.may_contain(digest));
        waved_through += u32::from(absent && !whole.may_contain(digest));
    }
    assert!(
        waved_through > 20_000,
        "a quarter of the absent keys, less the false positives: {waved_through}"
    );
}

#[test]
fn slices_that_do_not_fit_the_shape_are_refused() {
    let filter = build(&digests(11, 200_000), 10.0).unwrap();
    let shape = shape(&filter);
    let refused = |shape, slices| from_shape(shape, slices).unwrap_err();

    let mut fewer = owned(&filter);
    fewer.pop();
    assert!(refused(shape, fewer).contains("3 filter slices, expected 4"));

    let mut shorter = owned(&filter);
    shorter[1] = Some(vec![0; shape.slice_bytes() - 1].into());
    assert!(refused(shape, shorter).contains("filter slice 1 has"));

    assert!(refused(FilterShape { probes: 0, ..shape }, owned(&filter)).contains("0 probes"));
    assert!(refused(FilterShape { slices_log2: 63, ..shape }, Vec::new()).contains("slices"));
    assert!(refused(FilterShape { lines_per_slice: u32::MAX, ..shape }, owned(&filter)).contains("lines"));
}

/// The worked example of `docs/formats/filter.md`: the code writes what the page shows.
#[test]
fn the_format_page_shows_what_is_written() {
    let digest_fn = DigestFn::new(DigestKind::Xxh3, 0);
    let keys = ["apple", "banana", "cherry"];
    let digests = keys.map(|key| digest_fn.digest(key.as_bytes()));
    let filter = build(&digests, 10.0).unwrap();
    let shape = shape(&filter);

    let mut text = String::new();
    for (key, digest) in keys.iter().zip(digests) {
        let bits: Vec<String> =
            crate::simd::bits(place(shape, digest).probe, shape.probes).map(|bit| bit.to_string()).collect();
        let (raw, remix) = (digest.raw(), digest.module(0));
        writeln!(text, "{key:<8} {raw:016x}  {remix:016x}  {}", bits.join(" ")).unwrap();
    }
    writeln!(text, "\nshape    {}", hex(&shape.encode())).unwrap();
    for (_, slice) in filter.slices() {
        for (row, bytes) in slice.chunks(16).enumerate() {
            writeln!(text, "slice 0  {:02x}: {}", row * 16, hex(bytes)).unwrap();
        }
    }
    let page = include_str!("../../../../../docs/formats/filter.md");
    assert!(page.contains(&text), "docs/formats/filter.md lacks this example:\n{text}");
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}
