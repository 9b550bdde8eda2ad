//! Ribbon filters against a model of the format page, at any load, and read from hostile bytes.

use crate::filter::Filter;
use crate::fpr::ribbon_fpr;
use crate::geometry::{FilterGeometry, ModuleSite};
use crate::layout::{FilterLayout, Modules};
use crate::sim::Numbers;
use crate::{FilterFamily, LINE_BYTES, MAX_SLICE_BYTES};
use shamba_key::KeyDigest;

fn digests(seed: u64, count: usize) -> Vec<KeyDigest> {
    Numbers(seed).take(count).map(KeyDigest::from_raw).collect()
}

fn ribbon(modules: usize) -> FilterLayout {
    FilterLayout::Ribbon(Modules::equal(modules).unwrap())
}

/// The answer of one module by `docs/formats/filter.md`, computed bit by bit from its stored form.
fn model(stored: &[u8], slices: &[&[u8]], module: u8, digest: KeyDigest) -> bool {
    let number = |from: usize| u128::from(stored[from]) | u128::from(stored[from + 1]) << 8;
    let (columns, slices_log2) = (u128::from(stored[1]), u32::from(stored[2]));
    let (lines, segments) = (number(4), number(6));
    let remix = u128::from(digest.module(module));
    let slice = slices[((remix << slices_log2) >> 64) as usize];
    let below = (remix << slices_log2) % (1 << 64);
    let row = ((below >> 32) * (segments - 1) * 64) >> 32;
    let coefficients = (remix * 0x9fb2_1c65_1e98_df25 % (1 << 64)) | 1;
    let cut = lines * 8 - segments * columns;
    // Whether this row has a bit in this column; `None` where the segment has no such column.
    let bit = |row: u128, column: u128| {
        let segment = row / 64;
        if column >= columns + u128::from(segment < cut) {
            return None;
        }
        let word = (segment * columns + segment.min(cut) + column) as usize;
        let word = u64::from_le_bytes(slice[word * 8..word * 8 + 8].try_into().unwrap());
        Some((word >> (row % 64)) & 1)
    };
    let next = (row / 64 + 1) * 64;
    (0..17).filter(|column| bit(row, *column).is_some() && bit(next, *column).is_some()).all(|column| {
        let selected = (0..64).filter(|at| coefficients >> at & 1 == 1);
        selected.map(|at| bit(row + at, column).unwrap()).sum::<u64>() % 2 == 0
    })
}

#[test]
fn filters_do_what_the_format_page_says() {
    let seed = 20_261_126;
    println!("seed {seed}");
    let mut numbers = Numbers(seed);
    let (mut yes, mut no) = (0, 0);
    for (modules, count, bits_per_key) in [
        (1, 4_096, 0.4),
        (1, 5_000, 10.0),
        (1, 256, 9.0),
        (1, 90_000, 7.5),
        (2, 70_000, 24.0),
        (3, 300_000, 8.8),
    ] {
        let keys = digests(numbers.draw(), count);
        let filter = Filter::build(&keys, ribbon(modules), bits_per_key).unwrap();
        let geometry = filter.geometry();
        assert_eq!((geometry.family(), geometry.modules().len()), (FilterFamily::Ribbon, modules));
        let stored = geometry.encode();
        let slices: Vec<&[u8]> = filter.slices().map(|(_, slice)| slice).collect();
        let absent = digests(numbers.draw(), 3_000);
        for digest in keys.iter().step_by(count.div_ceil(3_000)).chain(&absent) {
            for module in 0..modules {
                let of_module = &slices[geometry.slices_of(module)];
                let stored = &stored[module * FilterGeometry::ENCODED_MODULE_BYTES..];
                let expected = model(stored, of_module, module as u8, *digest);
                assert_eq!(filter.modules_may_contain(*digest, 1 << module), expected);
                *if expected { &mut yes } else { &mut no } += 1;
            }
        }
        assert!(keys.iter().all(|digest| filter.may_contain(*digest)));
    }
    assert!(yes > 10_000 && no > 10_000, "{yes} {no}");
}

#[test]
fn rates_are_those_of_theory_and_a_quarter_below_the_blocked_filter_in_size() {
    let seed = 5;
    println!("seed {seed}");
    let rate = |filter: &Filter| {
        let absent = digests(seed + 1, 400_000);
        absent.iter().filter(|digest| filter.may_contain(**digest)).count() as f64 / 400_000.0
    };
    let keys = digests(seed, 200_000);
    for bits_per_key in [0.5, 1.0, 1.5, 2.2, 3.3, 4.0, 5.5, 7.5] {
        let filter = Filter::build(&keys, ribbon(1), bits_per_key).unwrap();
        let (found, theory) = (rate(&filter), ribbon_fpr(bits_per_key));
        assert!((found / theory - 1.0).abs() < 0.1, "{bits_per_key} bits: {found}, theory {theory}");
    }
    let blocked = Filter::build(&keys, FilterLayout::Blocked, 10.0).unwrap();
    let ribbon = Filter::build(&keys, ribbon(1), 7.5).unwrap();
    assert!(rate(&ribbon) < rate(&blocked), "{} {}", rate(&ribbon), rate(&blocked));
}

/// Whatever the keys are: equal ones, ones that all begin in one row, more of them than rows.
#[test]
fn no_set_of_keys_breaks_construction_and_none_is_denied() {
    let seed = 6;
    println!("seed {seed}");
    let mut numbers = Numbers(seed);
    for case in 0..60 {
        let count = 256 + (numbers.draw() >> (numbers.draw() % 14 + 49)) as usize;
        let distinct = [1, 16, 700, u64::MAX][case % 4];
        let mut keys: Vec<KeyDigest> =
            (0..count).map(|_| KeyDigest::from_raw(numbers.draw() % distinct)).collect();
        if case % 3 == 0 {
            // Consecutive equal digests count as one key: the filter is far too small.
            keys = keys.iter().flat_map(|key| [*key; 3]).collect();
        }
        let bits_per_key = 0.05 + numbers.share() * 30.0;
        let filter = Filter::build(&keys, ribbon(1 + case % 3), bits_per_key).unwrap();
        assert!(keys.iter().all(|key| filter.may_contain(*key)), "{distinct} at {bits_per_key}");
        let again = Filter::build(&keys, ribbon(1 + case % 3), bits_per_key).unwrap();
        assert!(filter.slices().eq(again.slices()), "the bytes follow from the keys");
    }
}

#[test]
fn a_filter_of_few_keys_is_modular() {
    for count in [1, 255, 256] {
        let filter = Filter::build(&digests(7, count), ribbon(3), 10.0).unwrap();
        let family = [FilterFamily::Blocked, FilterFamily::Modular, FilterFamily::Ribbon][count / 128];
        assert_eq!(filter.geometry().family(), family, "{count} keys");
    }
}

#[test]
fn any_bytes_and_missing_lines_are_answered() {
    let seed = 8;
    println!("seed {seed}");
    let mut numbers = Numbers(seed);
    let mut decoded = 0;
    for _ in 0..100_000 {
        let lines = (numbers.draw() % 1_100) as u16;
        let segments = (numbers.draw() >> (numbers.draw() % 16 + 48)) as u16;
        let columns = match segments {
            0 => 0,
            segments if numbers.draw() % 8 != 0 => (usize::from(lines) * 8 / usize::from(segments)) as u8,
            _ => (numbers.draw() % 20) as u8,
        };
        let mut stored = vec![5, columns, (numbers.draw() % 3) as u8, 0x10];
        stored.extend(lines.to_le_bytes());
        stored.extend(segments.to_le_bytes());
        let Ok(geometry) = FilterGeometry::decode(&stored) else { continue };
        decoded += 1;
        assert_eq!(geometry.encode(), stored);
        let bytes = geometry.modules()[0].slice_bytes();
        assert!((LINE_BYTES..=MAX_SLICE_BYTES).contains(&bytes));
        let lines: Vec<_> = if decoded % 50 == 0 {
            crate::Line::boxed(
                &numbers.by_ref().take(bytes / 8).flat_map(u64::to_le_bytes).collect::<Vec<_>>(),
            )
            .into()
        } else {
            Vec::new()
        };
        for raw in [0, u64::MAX, numbers.draw(), numbers.draw()] {
            let site = geometry.module_site(KeyDigest::from_raw(raw), 0).unwrap();
            assert!(matches!(site, ModuleSite::Ribbon(_)) && site.slice() < geometry.slices());
            site.prefetch(Some(&lines));
            site.maybe(Some(&lines));
            assert!(site.maybe(None));
            // Rows without columns say "maybe" too.
            assert!(!lines.is_empty() || site.maybe(Some(&[])));
        }
    }
    assert!(decoded > 10_000, "{decoded}");
}

#[test]
fn hostile_stored_forms_are_refused_with_the_reason() {
    let good = FilterGeometry::new(100_000, 10.0, ribbon(3)).unwrap().encode();
    let change = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        FilterGeometry::decode(&bytes).unwrap_err()
    };
    assert!(change(1, 9).contains("module 0: 9 columns, but the words of"));
    assert!(change(2, 21).contains("module 0: 2^21 slices"));
    assert!(change(3, 0x40).contains("4 modules, expected 1 to 3"));
    assert!(change(3, 0x00).contains("0 modules, expected 1 to 3"));
    assert!(change(11, 0x30).contains("module 1 is numbered 0"));
    assert!(change(13, 255).contains("module 1: "));
    let tiny = |lines: u8, segments: u8| FilterGeometry::decode(&[5, 0, 0, 0x10, lines, 0, segments, 0]);
    assert!(tiny(1, 1).unwrap_err().contains("1 segments in a slice, expected at least 2"));
    assert!(tiny(100, 4).unwrap_err().contains("800 words in 4 segments, expected at most 16 each"));
    assert!(tiny(0, 4).unwrap_err().contains("0 lines in a slice"));
}
