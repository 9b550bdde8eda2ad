//! Filters against a model of the format page, with slices present and absent.

mod blocked;

use super::*;
use crate::layout::Modules;
use crate::sim::{Numbers, every_layout};
use crate::{FilterFamily, LINE_BITS};
use std::collections::HashSet;

fn digests(seed: u64, count: usize) -> Vec<KeyDigest> {
    Numbers(seed).take(count).map(KeyDigest::from_raw).collect()
}

fn modular(count: usize) -> FilterLayout {
    FilterLayout::Modular(Modules::equal(count).unwrap())
}

fn owned(filter: &Filter) -> Vec<Option<Box<[u8]>>> {
    filter.slices().map(|(_, slice)| Some(slice.into())).collect()
}

/// The position of a digest's bits in a module by `docs/formats/filter.md`, computed independently:
/// slice and bits within the slice.
fn model_bits(geometry: &FilterGeometry, module: usize, digest: KeyDigest) -> (usize, Vec<usize>) {
    let shape = geometry.modules()[module];
    let remix = u128::from(digest.module(module as u8));
    let slices = shape.slices() as u128;
    let slice = (remix * slices) >> 64;
    let below = (remix * slices) % (1 << 64);
    let bits = (shape.lines_per_slice() * LINE_BITS) as u128;
    let probes = u128::from(shape.probes());
    let wanted = match geometry.family() {
        FilterFamily::Blocked | FilterFamily::Modular => {
            let line = (below >> 32) * shape.lines_per_slice() as u128 / (1 << 32);
            let p = remix * 0x9fb2_1c65_1e98_df25 % (1 << 64) / (1 << 32);
            let mut lane = 1;
            let mut bit = || {
                lane = lane * 0x9e37_79b9 % (1 << 32);
                line * LINE_BITS as u128 + p * lane % (1 << 32) / (1 << 23)
            };
            (0..probes).map(|_| bit()).collect::<Vec<u128>>()
        }
        standard => {
            let hash = below + slice;
            let step = match standard {
                FilterFamily::StandardRotation => hash * (1 << 17) % (1 << 64) + hash / (1 << 47),
                _ => u128::from(digest.module(1)) / 2 * 2 + 1,
            };
            let probe = |i: u128| (hash + i * step) % (1 << 64) / (1 << 32);
            (0..probes).map(|i| probe(i) * bits / (1 << 32)).collect()
        }
    };
    (slice as usize, wanted.into_iter().map(|bit| bit as usize).collect())
}

#[test]
fn filters_do_what_the_format_page_says() {
    let mut numbers = Numbers(20_261_121);
    println!("seed {}", numbers.0);
    // Ribbons have a model of their own.
    let blooms = every_layout().into_iter().filter(|layout| !matches!(layout, FilterLayout::Ribbon(_)));
    for layout in blooms {
        for keys in [1usize, 60, 3_000, 120_000] {
            let bits_per_key = 0.5 + numbers.share() * 20.0;
            let keys = digests(numbers.draw(), keys);
            let filter = Filter::build(&keys, layout, bits_per_key).unwrap();
            let geometry = filter.geometry();
            let mut model = HashSet::new();
            for digest in &keys {
                for module in 0..geometry.modules().len() {
                    let (slice, bits) = model_bits(geometry, module, *digest);
                    model.extend(bits.into_iter().map(|bit| (geometry.slices_of(module).start + slice, bit)));
                }
            }
            let mut set = 0;
            for (number, slice) in filter.slices() {
                for bit in (0..slice.len() * 8).filter(|bit| slice[bit >> 3] >> (bit & 7) & 1 == 1) {
                    assert!(model.contains(&(number, bit)), "{layout}: bit {bit} of slice {number}");
                    set += 1;
                }
            }
            assert_eq!(set, model.len(), "{layout} at {bits_per_key} bits: {geometry:?}");

            for digest in digests(numbers.draw(), 5_000).into_iter().chain(keys) {
                let mut asked_all = true;
                for module in 0..geometry.modules().len() {
                    let (slice, bits) = model_bits(geometry, module, digest);
                    let slice = geometry.slices_of(module).start + slice;
                    let expected = bits.into_iter().all(|bit| model.contains(&(slice, bit)));
                    assert_eq!(
                        filter.modules_may_contain(digest, 1 << module),
                        expected,
                        "{layout} {digest:?}"
                    );
                    asked_all &= expected;
                }
                assert_eq!(filter.may_contain(digest), asked_all);
            }
        }
    }
}

#[test]
fn one_module_is_the_blocked_filter() {
    for (count, bits_per_key) in [(10, 3.0), (60_000, 10.0), (300_000, 9.1)] {
        let keys = digests(count as u64, count);
        let blocked = Filter::build(&keys, FilterLayout::Blocked, bits_per_key).unwrap();
        let one_module = Filter::build(&keys, modular(1), bits_per_key).unwrap();
        assert_eq!(one_module.geometry(), blocked.geometry());
        assert!(one_module.slices().eq(blocked.slices()));
    }
}

#[test]
fn absent_slices_and_modules_deny_nothing_and_the_others_still_filter() {
    let seed = 9;
    println!("seed {seed}");
    let mut numbers = Numbers(seed);
    let keys = digests(10, 300_000);
    for layout in every_layout() {
        let whole = Filter::build(&keys, layout, 12.0).unwrap();
        let geometry = *whole.geometry();
        for absent_in_8 in [1, 4, 8] {
            let mut slices = owned(&whole);
            for slice in &mut slices {
                slice.take_if(|_| numbers.draw() % 8 < absent_in_8);
            }
            let absent: Vec<bool> = slices.iter().map(Option::is_none).collect();
            let partial = Filter::from_slices(geometry, slices).unwrap();
            assert_eq!(partial.absent_slices(), absent.iter().filter(|absent| **absent).count());
            assert!(partial.slices().all(|(number, _)| !absent[number]));
            for digest in digests(11, 5_000).into_iter().chain(keys.iter().copied().step_by(50)) {
                partial.prefetch(digest);
                let expected = (0..geometry.modules().len()).all(|module| {
                    let site = geometry.module_site(digest, module).unwrap();
                    absent[site.slice()] || whole.modules_may_contain(digest, 1 << module)
                });
                assert_eq!(partial.may_contain(digest), expected, "{layout} {absent:?}");
            }
        }
        assert!(digests(12, 1_000).into_iter().all(|digest| whole.modules_may_contain(digest, 0)));
    }
}

#[test]
fn lines_that_are_missing_from_a_slice_mean_maybe() {
    for layout in every_layout() {
        let geometry = FilterGeometry::new(50_000, 10.0, layout).unwrap();
        for digest in digests(13, 1_000) {
            let mut sites = (0..7).filter_map(|module| geometry.module_site(digest, module));
            assert!(sites.all(|site| site.maybe(Some(&[]))));
        }
    }
}

#[test]
fn slices_that_do_not_fit_the_geometry_are_refused() {
    let filter = Filter::build(&digests(14, 200_000), modular(2), 11.0).unwrap();
    let geometry = *filter.geometry();
    let refused = |slices| Filter::from_slices(geometry, slices).unwrap_err();
    let mut fewer = owned(&filter);
    fewer.pop();
    assert!(refused(fewer).contains("7 filter slices, expected 8"));
    let mut shorter = owned(&filter);
    shorter[5] = Some(vec![0; geometry.modules()[0].slice_bytes() - 1].into());
    assert!(refused(shorter).contains("filter slice 5 has"));
}

#[test]
fn versions_of_one_key_count_once_and_the_size_is_what_was_asked() {
    let keys = digests(15, 100_000);
    let versions: Vec<KeyDigest> = keys.iter().flat_map(|digest| [*digest; 3]).collect();
    for layout in every_layout() {
        let once = Filter::build(&keys, layout, 10.0).unwrap();
        let thrice = Filter::build(&versions, layout, 10.0).unwrap();
        assert_eq!(once.geometry(), thrice.geometry());
        assert!(once.slices().eq(thrice.slices()));
        let content = once.geometry().total_bytes() as usize;
        assert!((125_000 - 500..125_000 + 500).contains(&content), "{layout}: {content}");
        assert!(Filter::build(&[], layout, 10.0).is_none() && Filter::build(&keys, layout, 0.0).is_none());
    }
}
