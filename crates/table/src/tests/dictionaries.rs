//! Tests of tables with a dictionary: they are smaller and read the same, every flip and cut is
//! found, and salvage finds the dictionary without the header or without the footer.

use super::damage::{check_cuts, check_flips, read_everything, small};
use super::future::changed;
use super::salvage::{rows, salvaged};
use super::*;
use crate::compression::DICTIONARY_BYTES_MAX;
use crate::format::FIXED_BYTES;

/// Bytes that occur in the rows of these tests.
const COMMON: &[u8] = b"path/to/file some words, some words, some words";

fn rig(block_bytes: usize, dictionary: Option<&[u8]>) -> Rig {
    let mut rig = Rig::new(Compression::Zstd, block_bytes);
    rig.dictionary = dictionary.map(Dictionary::new);
    rig
}

fn described(rig: &Rig) -> TableDescription {
    describe(&rig.env, &rig.path(), None).expect("undamaged")
}

#[test]
fn blocks_are_smaller_and_answers_the_same() {
    let rows = sorted(
        (0..400u64)
            .map(|i| {
                row(
                    format!("key{i:05}"),
                    1 + i,
                    format!("{{\"customer\":{},\"city\":\"Berlin\"}}", i * 7_919),
                )
            })
            .collect(),
    );
    let without = rig(1_024, None);
    without.write(&rows, &[]);
    let plain = without.open().expect("opened");
    let samples = plain.sample_blocks(32).expect("samples");
    assert!(samples.len() == 32.min(plain.data_blocks()) && samples.len() >= 16);
    let mut with = rig(1_024, None);
    with.dictionary = Dictionary::from_samples(&samples, 512);
    assert!(with.dictionary.is_some(), "it pays");
    with.write(&rows, &[]);
    let bytes = |rig: &Rig| described(rig).blocks.iter().map(|block| block.bytes).sum::<u64>();
    assert!(12 * bytes(&with) < 11 * bytes(&without), "{} of {}", bytes(&with), bytes(&without));
    assert_eq!((described(&with).dictionary_bytes > 300, described(&without).dictionary_bytes), (true, 0));
    assert!(described(&with).to_string().contains("dictionary bytes"));
    let charged = |rig: &Rig| {
        let before = rig.ledger.bytes(LedgerPart::TableMeta);
        let table = read_everything(rig, &rows, &[]).expect("read");
        assert!(table.verify().is_empty());
        rig.ledger.bytes(LedgerPart::TableMeta) - before
    };
    drop(plain);
    let (more, less) = (charged(&with), charged(&without));
    assert_eq!(more - less, described(&with).dictionary_bytes, "the dictionary is charged");
}

#[test]
fn samples_are_evenly_spread_and_not_long() {
    let row_of = |i: u64| match i % 100 {
        // A block of its own.
        50 => row(
            format!("key{i:05}"),
            1 + i,
            (0..15_000u64).map(|at| ((at * at * i) >> 9) as u8).collect::<Vec<_>>(),
        ),
        _ => row(format!("key{i:05}"), 1 + i, format!("value {i}")),
    };
    let rig = rig(256, Some(COMMON));
    rig.write(&(0..1_000).map(row_of).collect::<Vec<_>>(), &[]);
    let table = rig.open().expect("opened");
    let all = table.sample_blocks(usize::MAX).expect("all");
    assert_eq!(all.len(), table.data_blocks());
    let few = table.sample_blocks(10).expect("ten");
    let places: Vec<usize> = few.iter().filter_map(|one| all.iter().position(|other| other == one)).collect();
    let expected: Vec<usize> = (0..10).map(|number| number * all.len() / 10).collect();
    assert_eq!(places, expected);
    assert_eq!(table.sample_blocks(0).expect("none").len(), 0);
}

#[test]
fn a_dictionary_that_is_damaged_after_the_open_is_found_by_the_full_check() {
    let rig = rig(256, Some(COMMON));
    rig.write(&small().0, &[]);
    let table = rig.open().expect("opened");
    let mut bytes = rig.bytes();
    bytes[4_096 + 5] ^= 1;
    rig.damage_in_place(&bytes);
    let damage = table.verify();
    assert_eq!(damage.len(), 1, "{damage:?}");
    assert!(damage[0].to_string().contains("dictionary"), "{}", damage[0]);
}

#[test]
fn salvage_survives_a_header_that_states_any_length() {
    for length in [1, 5, 70_000, u32::MAX - 4_096, u32::MAX] {
        let rig = rig(256, Some(COMMON));
        rig.write(&rows(), &[]);
        changed(&rig, |bytes| bytes[48..52].copy_from_slice(&length.to_le_bytes()));
        let mut bytes = rig.bytes();
        let footer = bytes.len() - 200;
        bytes[footer] ^= 1;
        rig.replace(&bytes);
        let (left, _, table) = salvaged(&rig, Some(rig.options.birth)).expect("nothing stops it");
        assert!(left.iter().all(|row| rows().contains(row)), "something is made up");
        assert!(table.damage().iter().any(|error| error.to_string().contains("dictionary")), "{length}");
    }
}

#[test]
fn only_zstd_uses_a_dictionary_and_large_values_do_not() {
    for compression in [Compression::None, Compression::Lz4] {
        let mut rig = Rig::new(compression, 256);
        rig.dictionary = Some(Dictionary::new(COMMON));
        rig.write(&small().0, &[]);
        assert_eq!((described(&rig).dictionary_bytes, rig.bytes()[16]), (0, 1));
    }
    let mut rig = rig(256, Some(COMMON));
    rig.options.large_values = LargeValues { from_bytes: 300, chunk_bytes: 128 };
    // Its chunks would be smaller with the dictionary.
    let large = row("path/to/large/words", 900, COMMON.repeat(20));
    let rows = sorted(rows().into_iter().chain([large]).collect());
    rig.write(&rows, &[]);
    assert_eq!(rig.bytes()[16], 3, "it is a required feature");
    assert!(read_everything(&rig, &rows, &[]).expect("read").verify().is_empty());
}

#[test]
fn every_flip_and_every_cut_is_found() {
    let (rows, tombstones) = small();
    for hold in [Residency::Pinned, Residency::Budgeted] {
        let mut rig = rig(256, Some(COMMON));
        rig.hold = hold;
        rig.write(&rows, &tombstones);
        check_flips(&rig, &rows, &tombstones);
    }
    let rig = rig(256, Some(COMMON));
    rig.write(&rows, &tombstones);
    check_cuts(&rig);
}

#[test]
fn a_header_and_a_footer_that_do_not_agree_on_the_dictionary_are_found() {
    for (length, named) in [
        (0u32, "a dictionary of no bytes"),
        (COMMON.len() as u32 + 4, "dictionary"),
        (DICTIONARY_BYTES_MAX as u32 + 6, "at most 65536 expected"),
        (u32::MAX, "at most 65536 expected"),
    ] {
        let rig = rig(256, Some(COMMON));
        rig.write(&small().0, &[]);
        changed(&rig, |bytes| bytes[48..52].copy_from_slice(&length.to_le_bytes()));
        let error = rig.open().expect_err("refused");
        assert!(error.is_corruption() && error.to_string().contains(named), "{error}");
    }
    // Without the feature, the first section is not where the footer says.
    let rig = rig(256, Some(COMMON));
    rig.write(&small().0, &[]);
    changed(&rig, |bytes| bytes[16] = 1);
    let error = rig.open().expect_err("refused");
    assert!(error.is_corruption() && error.to_string().contains("the first section is at"), "{error}");
}

#[test]
fn salvage_needs_the_dictionary_and_finds_it_by_header_or_footer() {
    let mut rig = rig(256, Some(COMMON));
    rig.options.large_values = LargeValues { from_bytes: 300, chunk_bytes: 128 };
    let rows = rows();
    rig.write(&rows, &[]);
    let intact = rig.bytes();
    let birth = Some(rig.options.birth);
    let damaged = |at: &[usize]| {
        let mut bytes = intact.clone();
        for at in at {
            bytes[*at] ^= 0x40;
        }
        rig.replace(&bytes);
        let (left, _, table) = salvaged(&rig, birth).expect("something is left");
        let damage: Vec<String> = table.damage().iter().map(Error::to_string).collect();
        (left, damage.join("; "))
    };
    let (header, in_dictionary, footer) = (3_000, 4_096 + 20, intact.len() - 200);
    for at in [header, footer] {
        let (left, damage) = damaged(&[at]);
        assert!(left == rows, "byte {at}: {damage}");
    }
    // Some blocks are not compressed, or refer to nothing.
    let (left, damage) = damaged(&[in_dictionary]);
    assert!(damage.contains("dictionary") && left.len() < rows.len(), "{damage}");
    assert!(left.iter().all(|row| rows.contains(row)), "something is made up");
    let (left, damage) = damaged(&[header, footer]);
    assert!(left.len() < rows.len() && left.iter().all(|row| rows.contains(row)), "{damage}");
}

#[test]
fn a_table_without_entries_may_have_a_dictionary() {
    let rig = rig(256, Some(COMMON));
    rig.write(&[], &[tombstone("a", Some("b"), 1)]);
    let table = rig.open().expect("opened");
    assert!(table.verify().is_empty());
    assert_eq!(table.sample_blocks(4).expect("none").len(), 0);
    assert!(table.summary().file_bytes > FIXED_BYTES + COMMON.len() as u64);
}
