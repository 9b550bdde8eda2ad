//! The bits over all modules, stored forms valid and hostile, the numbers of slices.

use super::*;
use crate::layout::Modules;
use crate::shape::{MAX_LINES_PER_SLICE, MAX_SLICES_LOG2};
use crate::sim::{Numbers, every_layout};

fn modular(count: usize) -> FilterLayout {
    FilterLayout::Modular(Modules::equal(count).unwrap())
}

fn lines(geometry: &FilterGeometry) -> f64 {
    geometry.total_bytes() as f64 / LINE_BYTES as f64
}

#[test]
fn bits_are_kept_over_the_modules_together() {
    let seed = 1;
    println!("seed {seed}");
    let mut numbers = Numbers(seed);
    for layout in every_layout() {
        for _ in 0..300 {
            let keys = 1 + (numbers.draw() >> (40 + numbers.draw() % 22)) as usize;
            let bits_per_key = 0.1 + numbers.share() * 24.0;
            let geometry = FilterGeometry::new(keys, bits_per_key, layout).unwrap();
            let wanted = keys as f64 * bits_per_key / LINE_BITS as f64;
            let last = geometry.modules().last().unwrap();
            // Half a line for each slice of the last module; a filter has at least one line.
            let most = (last.slices() as f64 / 2.0).max(1.0 - wanted) + 1e-6;
            let off = (lines(&geometry) - wanted).abs();
            assert!(
                off <= most,
                "{layout}: {keys} keys at {bits_per_key} bits: off by {off} lines, {geometry:?}"
            );
            if geometry.modules().len() < layout.modules().count() {
                assert!(
                    layout.modules().shares().any(|share| share * wanted < 1.0),
                    "{layout}: {geometry:?}"
                );
            }
        }
    }
}

#[test]
fn ten_bits_in_three_modules_are_ten_bits() {
    // 65,536 keys at 10 bits are 1,280 lines; the papers' code kept only 9 bits and 7 bits per key
    // here.
    for (count, expected) in [(3, vec![427, 426, 427]), (7, vec![183, 183, 183, 182, 183, 183, 183])] {
        let geometry = FilterGeometry::new(65_536, 10.0, modular(count)).unwrap();
        let found: Vec<usize> = geometry.modules().iter().map(|module| module.lines_per_slice()).collect();
        assert_eq!((found.iter().sum::<usize>(), found), (1280, expected));
    }
    let layout = FilterLayout::Modular(Modules::proportional(2, 200).unwrap());
    let geometry = FilterGeometry::new(65_536, 10.0, layout).unwrap();
    let found: Vec<_> =
        geometry.modules().iter().map(|m| (m.slices() * m.lines_per_slice(), m.probes())).collect();
    assert_eq!(found, [(256, 1), (1024, 5)]);
}

#[test]
fn a_small_filter_has_as_many_modules_as_lines() {
    // 3 keys at 10 bits are 0.06 of a line, 77 are 1.504, 332 are 6.48.
    for (keys, modules) in [(3, 1), (52, 1), (76, 1), (77, 2), (180, 4), (332, 6), (333, 7), (500, 7)] {
        let geometry = FilterGeometry::new(keys, 10.0, modular(7)).unwrap();
        assert_eq!(geometry.modules().len(), modules, "{keys} keys: {geometry:?}");
        let family = if modules == 1 { FilterFamily::Blocked } else { FilterFamily::Modular };
        assert_eq!(geometry.family(), family);
    }
}

#[test]
fn one_module_is_the_blocked_filter_byte_for_byte() {
    for keys in [1, 52, 5_000, 52_455, 210_000, 123_456_789] {
        for bits_per_key in [0.3, 1.0, 4.5, 10.0, 64.0, f64::INFINITY] {
            let shape = FilterShape::blocked(keys, bits_per_key).unwrap();
            for layout in [FilterLayout::Blocked, modular(1)] {
                let geometry = FilterGeometry::new(keys, bits_per_key, layout).unwrap();
                assert_eq!(geometry.encode(), shape.encode());
                assert_eq!(FilterGeometry::try_from(shape), Ok(geometry));
                assert_eq!(FilterGeometry::decode(&shape.encode()), Ok(geometry));
            }
        }
    }
    let illegal = FilterShape { probes: 17, ..FilterShape::blocked(1, 1.0).unwrap() };
    assert!(FilterGeometry::try_from(illegal).unwrap_err().contains("17 probes"));
}

#[test]
fn nothing_to_build_and_too_much_to_build() {
    for layout in every_layout() {
        for bits_per_key in [0.0, -1.0, f64::NAN, f64::NEG_INFINITY] {
            assert_eq!(FilterGeometry::new(100, bits_per_key, layout), None);
        }
        assert_eq!(FilterGeometry::new(0, 10.0, layout), None);
        let huge = FilterGeometry::new(usize::MAX, 64.0, layout).unwrap();
        assert!(huge.total_bytes() <= 7 << 36, "{huge:?}");
        let largest = MAX_LINES_PER_SLICE as usize;
        assert!(
            huge.modules().iter().all(|m| (m.slices_log2, m.lines_per_slice()) == (MAX_SLICES_LOG2, largest))
        );
    }
}

#[test]
fn slices_are_numbered_module_by_module() {
    for layout in every_layout() {
        let geometry = FilterGeometry::new(1_000_000, 11.3, layout).unwrap();
        let (mut next, mut bytes) = (0, 0);
        for (number, module) in geometry.modules().iter().enumerate() {
            assert_eq!(geometry.slices_of(number), next..next + module.slices());
            next += module.slices();
            bytes += module.slices() * module.slice_bytes();
        }
        assert_eq!(geometry.slices(), next);
        assert!(geometry.slices_of(7).is_empty() && geometry.slices_of(usize::MAX).is_empty());
        assert_eq!(bytes as u64, geometry.total_bytes());
    }
}

#[test]
fn every_digest_has_a_site_in_every_module_and_in_no_other() {
    let extremes = [0, 1, u64::MAX, 1 << 63];
    for layout in every_layout() {
        let geometry = FilterGeometry::new(1_000_000, 12.0, layout).unwrap();
        let is_standard = matches!(layout, FilterLayout::Standard(_));
        for raw in Numbers(2).take(500).chain(extremes) {
            let digest = KeyDigest::from_raw(raw);
            let any: Vec<ModuleSite> =
                (0..8).filter_map(|module| geometry.module_site(digest, module)).collect();
            assert_eq!(any.len(), geometry.modules().len());
            for (module, site) in any.iter().enumerate() {
                assert!(geometry.slices_of(module).contains(&site.slice()));
            }
            if geometry.family() == FilterFamily::Ribbon {
                assert_eq!(geometry.sites(digest, ALL_MODULES).count(), 0);
                continue;
            }
            if let Some(site) = geometry.standard_site(digest) {
                assert!(is_standard && site.slice() < geometry.slices());
                assert!(site.bits().all(|bit| bit < geometry.modules()[0].slice_bytes() * 8));
                assert_eq!(geometry.sites(digest, ALL_MODULES).count(), 0);
                continue;
            }
            let sites: Vec<Site> = geometry.sites(digest, ALL_MODULES).collect();
            assert_eq!(sites.len(), geometry.modules().len());
            for (module, site) in sites.iter().enumerate() {
                assert_eq!(site.module(), module);
                assert!(geometry.slices_of(module).contains(&site.slice()));
                assert!(site.line() < geometry.modules()[module].lines_per_slice());
                let alone = geometry.site(digest, module).unwrap();
                assert_eq!((alone.slice, alone.line, alone.probe), (site.slice, site.line, site.probe));
            }
            let odd: Vec<usize> = geometry.sites(digest, 0b0101_0101).map(Site::module).collect();
            assert_eq!(odd, (0..geometry.modules().len()).step_by(2).collect::<Vec<_>>());
            assert!(geometry.site(digest, geometry.modules().len()).is_none());
            assert!(geometry.site(digest, usize::MAX).is_none());
            assert_eq!(geometry.sites(digest, 0).count(), 0);
        }
    }
}

#[test]
fn stored_forms_round_trip_and_say_their_length() {
    for layout in every_layout() {
        for (keys, bits_per_key) in [(1, 0.1), (700, 10.0), (100_000, 7.7), (20_000_000, 23.9)] {
            let geometry = FilterGeometry::new(keys, bits_per_key, layout).unwrap();
            let bytes = geometry.encode();
            assert_eq!(FilterGeometry::encoded_bytes(&bytes), Ok(bytes.len()));
            assert_eq!(bytes.len(), geometry.modules().len() * FilterGeometry::ENCODED_MODULE_BYTES);
            assert_eq!(FilterGeometry::decode(&bytes), Ok(geometry));
        }
    }
}

#[test]
fn stored_forms_never_change() {
    let stored = |layout| FilterGeometry::new(100_000, 10.0, layout).unwrap().encode();
    assert_eq!(stored(FilterLayout::Standard(Probing::Rotation)), [1, 7, 1, 0, 0xd1, 3, 0, 0]);
    assert_eq!(stored(FilterLayout::Blocked), [2, 6, 1, 0, 0xd1, 3, 0, 0]);
    assert_eq!(stored(modular(2)), [3, 3, 0, 0x20, 0xd1, 3, 0, 0, 3, 3, 0, 0x21, 0xd0, 3, 0, 0]);
    assert_eq!(stored(FilterLayout::Standard(Probing::DoubleHashing)), [4, 7, 1, 0, 0xd1, 3, 0, 0]);
    let ribbon = FilterLayout::Ribbon(Modules::equal(1).unwrap());
    assert_eq!(stored(ribbon), [5, 9, 1, 0x10, 0xd1, 3, 0x5d, 3]);
}

#[test]
fn hostile_stored_forms_are_refused_with_the_reason() {
    let good = FilterGeometry::new(100_000, 10.0, modular(3)).unwrap().encode();
    let change = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        FilterGeometry::decode(&bytes).unwrap_err()
    };
    assert!(change(0, 0).contains("unknown filter family 0"));
    assert!(change(16, 99).contains("unknown filter family 99"));
    assert!(change(0, 2).contains("a blocked filter has module 0 only, not 48"));
    assert!(change(8, 4).contains("a standard-double filter has module 0 only"));
    assert!(change(1, 0).contains("module 0: 0 probes"));
    assert!(change(9, 17).contains("module 1: 17 probes"));
    assert!(change(18, 21).contains("module 2: 2^21 slices"));
    assert!(change(3, 0x80).contains("8 modules, expected 2 to 7"));
    assert!(change(3, 0x10).contains("1 modules, expected 2 to 7"));
    assert!(change(3, 0x20).contains("has 24 bytes, expected 16"));
    assert!(change(3, 0x31).contains("module 0 is numbered 1"));
    assert!(change(11, 0x30).contains("module 1 is numbered 0"));
    assert!(change(11, 0x41).contains("module 1 is modular of 4 modules, expected modular of 3"));
    assert!(change(7, 255).contains("module 0: 4278190"));
    for length in (0..64).filter(|length| *length != good.len()) {
        let bytes: Vec<u8> = good.iter().copied().cycle().take(length).collect();
        assert!(FilterGeometry::decode(&bytes).is_err(), "{length} bytes");
    }
}

#[test]
fn no_byte_string_makes_an_illegal_geometry() {
    let mut decoded = 0;
    let mut hold = |bytes: &[u8]| {
        let Ok(geometry) = FilterGeometry::decode(bytes) else { return };
        decoded += 1;
        assert_eq!(geometry.encode(), bytes);
        assert!(geometry.total_bytes() <= 7 << 36);
        let count = geometry.modules().len();
        if geometry.family() != FilterFamily::Ribbon {
            assert_eq!(count > 1, geometry.family() == FilterFamily::Modular);
            for module in geometry.modules() {
                check(module.probes, module.slices_log2, u32::from(module.lines_per_slice)).unwrap();
            }
        }
        let digest = KeyDigest::from_raw(u64::MAX);
        assert_eq!(geometry.sites(digest, ALL_MODULES).count() == count, geometry.has_lines());
        assert!((0..count).all(|module| geometry.module_site(digest, module).is_some()));
    };
    for layout in every_layout() {
        let good = FilterGeometry::new(100_000, 10.0, layout).unwrap().encode();
        for at in 0..good.len() {
            for byte in 0..=255 {
                let mut bytes = good.clone();
                bytes[at] = byte;
                hold(&bytes);
            }
        }
    }
    // Random bytes of the right magnitude: most are rejected, none causes a panic.
    let seed = 3;
    println!("seed {seed}");
    let mut numbers = Numbers(seed);
    for _ in 0..200_000 {
        let length = (numbers.draw() % 9 * 8) as usize;
        let most = [5, 17, 22, 8, 255, 5, 2, 2];
        hold(&(0..length).map(|at| (numbers.draw() % most[at % 8]) as u8).collect::<Vec<u8>>());
    }
    assert!(decoded > 5_000, "{decoded}");
}
