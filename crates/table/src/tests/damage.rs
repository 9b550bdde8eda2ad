//! Tests with every flipped byte and every truncation of small tables: no wrong answer, no panic,
//! always reported.

use super::*;

const TOMBSTONE_END: &str = "path/to/x";

pub(super) fn small() -> (Vec<Row>, Vec<RangeTombstone>) {
    let mut rows = vec![row("", 1, ""), row("big", 2, vec![b'z'; 700])];
    for i in 0..12u64 {
        rows.push(row(format!("path/to/file{i:02}"), 40 - i, "some words, some words, some words"));
        rows.push(row(format!("path/to/file{i:02}"), 20 - i, ""));
    }
    rows[5].kind = EntryKind::Delete;
    let tombstones = vec![tombstone("a", Some(TOMBSTONE_END), 33), tombstone("q", None, 34)];
    (sorted(rows), tombstones)
}

/// Opens the table and performs every kind of read. `Ok` means that every answer was right.
pub(super) fn read_everything(
    rig: &Rig,
    rows: &[Row],
    tombstones: &[RangeTombstone],
) -> Result<Arc<TableReader>> {
    let table = rig.open()?;
    assert_eq!(table.range_tombstones(), tombstones);
    assert_eq!(table.summary().entries, rows.len() as u64);
    let mut first_error = None;
    for wanted in rows {
        let digest = rig.options.digest.digest(&wanted.key);
        assert!(table.filter().is_none_or(|filter| filter.may_contain(digest)), "the filter denies a key");
        match rig.get(&table, &wanted.key, wanted.seq) {
            Ok(found) => {
                let found = found.expect("a key is missing without an error");
                assert_eq!((found.seq, &found.value[..]), (wanted.seq, &wanted.value[..]));
            }
            Err(error) => first_error = Some(error),
        }
    }
    // Like a lookup that fetches modules that are not resident.
    let modules = table.filter_geometry().map_or(0, |geometry| geometry.modules().len());
    for (wanted, module) in rows.iter().take(2).flat_map(|row| (0..modules).map(move |module| (row, module)))
    {
        let digest = rig.options.digest.digest(&wanted.key);
        let maybe = table.fetch_module(digest, module, &mut ReadCounters::default());
        assert!(
            maybe.expect("damage to a filter is no error"),
            "a module fetched for one lookup denies a key"
        );
    }
    for absent in [&b"path"[..], b"path/to/file03x", b"zzz"] {
        match rig.get(&table, absent, SeqNo::MAX) {
            Ok(found) => assert_eq!(found, None),
            Err(error) => first_error = Some(error),
        }
    }
    let forward = walk(&table, EntryIter::seek_to_first, EntryIter::next);
    let backward = walk(&table, EntryIter::seek_to_last, EntryIter::prev);
    match (forward, backward, first_error) {
        (Ok(forward), Ok(mut backward), None) => {
            backward.reverse();
            assert!(forward == rows && backward == rows, "a walk differs");
            Ok(table)
        }
        (_, _, Some(error)) | (Err(error), _, _) | (_, Err(error), _) => Err(error),
    }
}

type Step = fn(&mut TableIter) -> Result<()>;

fn walk(table: &Arc<TableReader>, start: Step, step: Step) -> Result<Vec<Row>> {
    let mut iter = table.iter(true);
    let mut rows = Vec::new();
    start(&mut iter)?;
    while let Some(row) = try_current(&iter)? {
        rows.push(row);
        step(&mut iter)?;
    }
    Ok(rows)
}

/// Asserts a corruption error with this file, or "unsupported" (version and feature bytes).
fn assert_reported(rig: &Rig, error: &Error, what: &str) {
    match error {
        Error::Corruption { file, detail, .. } => {
            assert!(*file == rig.path() && !detail.is_empty(), "{what}: {error}");
        }
        Error::Unsupported { file, .. } => assert_eq!(*file, rig.path(), "{what}"),
        other => panic!("{what}: {other:?}"),
    }
}

#[test]
fn every_flipped_byte_is_harmless_to_answers_and_always_found() {
    let (rows, tombstones) = small();
    let budgeted = Compression::ALL.map(|compression| (compression, Residency::Budgeted));
    let others = [(Compression::None, Residency::Pinned), (Compression::None, Residency::Cached)];
    for (compression, hold) in others.into_iter().chain(budgeted) {
        let mut rig = Rig::new(compression, 256);
        rig.hold = hold;
        rig.write(&rows, &tombstones);
        check_flips(&rig, &rows, &tombstones);
    }
}

/// Flips every byte of the table in three ways.
pub(super) fn check_flips(rig: &Rig, rows: &[Row], tombstones: &[RangeTombstone]) {
    let (compression, hold) = (rig.options.compression, rig.hold);
    let intact = rig.bytes();
    assert!(intact.len() < 9_000, "{} bytes make the sweep slow", intact.len());
    assert!(read_everything(rig, rows, tombstones).expect("intact").verify().is_empty());
    let (mut denied, mut harmless) = (0, 0);
    for at in 0..intact.len() {
        for mask in [0x01, 0x80, 0xff] {
            let what = format!("{compression}, {hold}: byte {at} ^ {mask:#04x}");
            let mut bytes = intact.clone();
            bytes[at] ^= mask;
            rig.replace(&bytes);
            match read_everything(rig, rows, tombstones) {
                Err(error) => {
                    denied += 1;
                    assert_reported(rig, &error, &what);
                }
                Ok(table) => {
                    harmless += 1;
                    let damage = table.verify();
                    assert_eq!(damage.len(), 1, "{what}: {damage:?}");
                    assert_reported(rig, &damage[0], &what);
                }
            }
        }
    }
    // Most bytes matter; those of filter slices and padding do not.
    assert!(denied > 3 * 4_096 && harmless > 0, "{compression}: {denied} denied, {harmless} harmless");
}

#[test]
fn every_cut_and_every_tail_is_found_at_open() {
    let (rows, tombstones) = small();
    for (compression, hold) in Compression::ALL.into_iter().zip(Residency::ALL) {
        let mut rig = Rig::new(compression, 256);
        rig.hold = hold;
        rig.write(&rows, &tombstones);
        check_cuts(&rig);
    }
}

/// Cuts the table to every length, and appends some tails.
pub(super) fn check_cuts(rig: &Rig) {
    let intact = rig.bytes();
    for length in 0..intact.len() {
        rig.replace(&intact[..length]);
        let error = rig.open().expect_err("a cut file opened");
        assert!(error.is_corruption(), "{} cut to {length}: {error}", rig.options.compression);
    }
    for tail in [&[0u8][..], &[0; 4_096], &intact] {
        rig.replace(&[&intact, tail].concat());
        let error = rig.open().expect_err("a file with a tail opened");
        assert!(error.is_corruption(), "{error}");
    }
}

#[test]
fn damage_names_its_structure() {
    for hold in Residency::ALL {
        names_its_structure(hold);
    }
}

fn names_its_structure(hold: Residency) {
    let (rows, tombstones) = small();
    let mut rig = Rig::new(Compression::None, 256);
    rig.hold = hold;
    rig.write(&rows, &tombstones);
    let intact = rig.bytes();
    let described = describe(&rig.env, &rig.path(), None).expect("described");
    let section = |kind| {
        let found = described.sections.iter().find(|section| section.kind == kind);
        found.expect("the section").offset
    };
    let second_block = described.blocks[1].offset;
    for (at, offset, structure) in [
        (0, 0, "header"),
        (2_000, 0, "header"),
        (second_block + 20, second_block, "data block"),
        (section(SectionKind::Index) + 3, section(SectionKind::Index), "index partition"),
        (section(SectionKind::IndexTop) + 3, section(SectionKind::IndexTop), "index top level"),
        (
            section(SectionKind::RangeTombstones) + 9,
            section(SectionKind::RangeTombstones),
            "range tombstones",
        ),
        (section(SectionKind::Properties) + 9, section(SectionKind::Properties), "properties"),
        (intact.len() as u64 - 100, intact.len() as u64 - 256, "footer"),
    ] {
        let mut bytes = intact.clone();
        bytes[at as usize] ^= 0x10;
        rig.replace(&bytes);
        match read_everything(&rig, &rows, &tombstones).expect_err("damage") {
            Error::Corruption { offset: found_at, structure: found, .. } => {
                assert_eq!((found_at, found), (offset, structure));
            }
            other => panic!("{other:?}"),
        }
    }
    for at in [8, 16, 23] {
        let mut bytes = intact.clone();
        bytes[at] ^= 0x40;
        rig.replace(&bytes);
        assert!(matches!(rig.open(), Err(Error::Unsupported { .. })), "byte {at}");
    }
    let mut bytes = intact.clone();
    bytes[section(SectionKind::Filter) as usize + 30] ^= 1;
    rig.replace(&bytes);
    let table = read_everything(&rig, &rows, &tombstones).expect("a filter slice is not needed");
    assert_eq!(table.filter().map(|filter| filter.absent_slices()), Some(1));
    assert!(table.filter_warnings()[0].contains("filter slice"), "{:?}", table.filter_warnings());
}

#[test]
fn verify_reports_all_damage_not_only_the_first() {
    for hold in Residency::ALL {
        reports_all_damage(hold);
    }
}

fn reports_all_damage(hold: Residency) {
    let (rows, tombstones) = small();
    let mut rig = Rig::new(Compression::Lz4, 256);
    rig.hold = hold;
    rig.write(&rows, &tombstones);
    let table = rig.open().expect("opened");
    let described = describe(&rig.env, &rig.path(), None).expect("described");
    let mut bytes = rig.bytes();
    let mut expected: Vec<u64> = Vec::new();
    for block in &described.blocks {
        bytes[block.offset as usize + 4] ^= 1;
        // The blocks of a partition that is neither resident nor readable cannot be found: the
        // partition is reported instead.
        if hold == Residency::Pinned {
            expected.push(block.offset);
        }
    }
    for section in described.sections.iter().filter(|section| section.kind != SectionKind::Data) {
        bytes[section.offset as usize + 4] ^= 1;
        expected.push(section.offset);
    }
    // Damage under an open table: the file is the same one.
    let mut file = rig.damage_in_place(&bytes);
    assert_eq!(damaged_offsets(&table), expected);
    file.truncate(5_000).expect("cut");
    assert!(table.verify().len() > expected.len() / 2, "{hold}");
}

#[test]
fn a_swapped_file_and_another_way_of_hashing_are_refused() {
    let (rows, tombstones) = small();
    let mut rig = Rig::new(Compression::None, 256);
    rig.write(&rows, &tombstones);
    let intact = rig.bytes();
    let other = BirthId(99);
    rig.options.birth = other;
    let error = rig.open().expect_err("another birth id");
    assert!(error.to_string().contains("birth id 0123456789abcdef"), "{error}");
    // A header that states the other birth id does not help: the id salts every checksum.
    let mut forged = intact.clone();
    forged[32..40].copy_from_slice(&other.0.to_le_bytes());
    let sum = checksum(other, 0, &forged[..4_092]);
    forged[4_092..4_096].copy_from_slice(&sum.to_le_bytes());
    rig.replace(&forged);
    assert!(rig.open().expect_err("a forged header").is_corruption());
    rig.replace(&intact);
    rig.options.birth = BirthId(0x0123_4567_89ab_cdef);
    for digest in [DigestFn::new(DigestKind::Xxh3, 43), DigestFn::new(DigestKind::Xxh64, 42)] {
        rig.options.digest = digest;
        let error = rig.open().expect_err("another digest");
        assert!(error.is_corruption() && error.to_string().contains("hashed by xxh3"), "{error}");
    }
}

#[test]
fn a_block_in_another_place_does_not_pass() {
    let rig = Rig::new(Compression::None, 4_096);
    let rows: Vec<Row> = (0..60).map(|i| row(format!("key{i:04}"), 1, [i as u8; 200])).collect();
    rig.write(&rows, &[]);
    let mut bytes = rig.bytes();
    let (first, second) = (4_096..8_192, 8_192);
    bytes.copy_within(first, second);
    rig.replace(&bytes);
    let table = rig.open().expect("only data is damaged");
    let described = describe(&rig.env, &rig.path(), None).expect_err("a copied block");
    assert!(described.is_corruption());
    assert_eq!(table.verify().len(), 1);
}
