//! Tests of salvage of small tables: a flipped byte loses only the block or value that contains it;
//! nothing is invented.

use super::*;
use crate::format::{Section, SectionKind};

fn rig(compression: Compression) -> Rig {
    let mut rig = Rig::new(compression, 256);
    rig.options.large_values = LargeValues { from_bytes: 300, chunk_bytes: 128 };
    rig
}

pub(super) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for i in 0..60u64 {
        rows.push(row(
            format!("path/to/file{i:02}"),
            400 - i,
            "some words, some words".repeat(1 + i as usize % 3),
        ));
        rows.push(row(format!("path/to/file{i:02}"), 200 - i, i.to_string()));
        if i % 15 == 4 {
            let value: Vec<u8> = (0..700u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
            rows.push(row(format!("path/to/large{i:02}"), 500 + i, value));
        }
    }
    rows[5].kind = EntryKind::Delete;
    rows[5].value.clear();
    for (at, reach) in [(7, 0), (16, 150)] {
        rows[at].kind = EntryKind::Merge;
        rows[at].value = Operand { reach, bytes: b"an operand" }.encode();
    }
    sorted(rows)
}

/// The remaining rows with their values, the gaps, and the table.
pub(super) fn salvaged(rig: &Rig, birth: Option<BirthId>) -> Result<(Vec<Row>, Vec<Gap>, Arc<Salvage>)> {
    let table = Arc::new(Salvage::open(&rig.env, &rig.path(), &rig.files, birth)?);
    let (mut walk, mut rows, mut gaps) = (table.walk(), Vec::new(), Vec::new());
    while let Some(SalvagedEntry { key, seq, kind, value }) = walk.next_entry()? {
        let (kind, value) = match kind {
            EntryKind::ValueRef => match table.read_large(&value) {
                Ok(value) => (EntryKind::Put, value),
                Err(error) => {
                    assert!(error.is_corruption(), "{error}");
                    continue;
                }
            },
            kind => (kind, value.to_vec()),
        };
        rows.push(Row { key, seq, kind, value });
    }
    gaps.extend(walk.take_gaps());
    Ok((rows, gaps, table))
}

pub(super) fn section(rig: &Rig, kind: SectionKind) -> Section {
    let table = describe(&rig.env, &rig.path(), None).expect("undamaged");
    table.sections.iter().copied().find(|section| section.kind == kind).expect("it is there")
}

#[test]
fn a_flip_takes_what_it_hits_and_nothing_else() {
    for compression in Compression::ALL {
        let (rig, rows) = (rig(compression), rows());
        let tombstones = [tombstone("path/to/a", Some("path/to/c"), 9), tombstone("x", None, 1_000)];
        rig.write(&rows, &tombstones);
        let (data, ranges) = (section(&rig, SectionKind::Data), section(&rig, SectionKind::RangeTombstones));
        let blocks = describe(&rig.env, &rig.path(), None).expect("undamaged").blocks.len();
        assert!(blocks > 5, "{blocks} blocks");
        let whole = rig.bytes();
        let birth = Some(rig.options.birth);
        let (mut kept, mut flips) = (0, 0);
        for at in (0..whole.len()).step_by(if compression == Compression::None { 13 } else { 5 }) {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at % 8);
            rig.replace(&bytes);
            let (left, gaps, table) = salvaged(&rig, birth).expect("something is left");
            let is_in = |section: Section| (section.offset..section.end()).contains(&(at as u64));
            assert!(left.iter().all(|row| rows.contains(row)), "byte {at}: something is made up");
            if !is_in(data) {
                assert_eq!(left, rows, "byte {at}: an undamaged block is gone");
                assert!(
                    gaps.iter().all(|gap| gap.upper.as_ref().is_some_and(|upper| *upper <= gap.lower)),
                    "{gaps:?}"
                );
            }
            for missing in rows.iter().filter(|row| !left.contains(row) && row.value.len() < 300) {
                let told = |gap: &Gap| {
                    gap.lower[..] <= missing.key[..]
                        && gap.upper.as_ref().is_none_or(|upper| missing.key[..] < upper[..])
                };
                assert!(gaps.iter().any(told), "byte {at}: {missing:?} is lost outside {gaps:?}");
            }
            match is_in(ranges) {
                true => assert!(table.lost_tombstones().is_some()),
                false => assert_eq!(table.range_tombstones(), tombstones, "byte {at}"),
            }
            kept += left.len();
            flips += rows.len();
        }
        assert!(kept * 20 > flips * 19, "{kept} of {flips} are kept");
    }
}

#[test]
fn without_index_and_footer_blocks_are_found() {
    for compression in Compression::ALL {
        let (rig, rows) = (rig(compression), rows());
        rig.write(&rows, &[]);
        let data = section(&rig, SectionKind::Data);
        let mut bytes = rig.bytes();
        bytes.truncate(data.end() as usize);
        rig.replace(&bytes);
        let (left, _, table) = salvaged(&rig, None).expect("something is left");
        assert_eq!(left, rows);
        assert!(table.lost_tombstones().is_some(), "nobody knows of any");
        // A block in the middle is destroyed: the others are found after it.
        let middle = 4096 + (bytes.len() - 4096) / 2;
        bytes[middle..middle + 20].fill(0xa5);
        rig.replace(&bytes);
        let (left, gaps, _) = salvaged(&rig, None).expect("something is left");
        assert!(
            left.len() < rows.len() && left.len() * 10 > rows.len() * 8,
            "{} of {}",
            left.len(),
            rows.len()
        );
        assert!(left.iter().all(|row| rows.contains(row)));
        assert!(gaps.iter().any(|gap| gap.lower.starts_with(b"path") && gap.upper.is_some()), "{gaps:?}");
    }
}

#[test]
fn a_table_says_of_which_keyspace_it_is() {
    let rig = rig(Compression::None);
    let mut writer = TableWriter::create(&rig.env, Path::new(DIR), rig.options).expect("created");
    let origin = Origin { keyspace: 12, name: "users".to_owned() };
    writer.note_origin(origin.clone());
    writer.add(b"key", SeqNo(1), EntryKind::Put, b"value").expect("added");
    writer.finish().expect("finished");
    rig.open().expect("a reader passes over it");
    let (_, _, table) = salvaged(&rig, None).expect("undamaged");
    assert_eq!(table.origin(), Some(&origin));
}

/// Rows with values of zeros: almost every byte of an uncompressed block may be the last before its
/// checksum.
fn rows_of_zeros() -> Vec<Row> {
    sorted((0..400u64).map(|i| row(format!("key{i:05}"), i + 1, vec![0; 10 + i as usize % 700])).collect())
}

#[test]
fn blocks_full_of_zeros_are_found_with_little_work() {
    for (compression, footer) in
        Compression::ALL.into_iter().flat_map(|compression| [(compression, false), (compression, true)])
    {
        let (rig, rows) = (Rig::new(compression, 4096), rows_of_zeros());
        rig.write(&rows, &[]);
        let data = section(&rig, SectionKind::Data);
        let mut bytes = rig.bytes();
        if footer {
            // Only the index is damaged: the properties state the block size.
            let top = section(&rig, SectionKind::IndexTop);
            bytes[top.offset as usize] ^= 0xff;
        } else {
            bytes.truncate(data.end() as usize);
        }
        rig.replace(&bytes);
        let table = Arc::new(Salvage::open(&rig.env, &rig.path(), &rig.files, None).expect("opened"));
        let (mut walk, mut left) = (table.walk(), Vec::new());
        while let Some(SalvagedEntry { key, seq, kind, value }) = walk.next_entry().expect("read") {
            left.push(Row { key, seq, kind, value: value.to_vec() });
        }
        assert!(left == rows, "{compression}, footer {footer}: {} of {}", left.len(), rows.len());
        let per_byte = walk.searched_bytes() / data.bytes;
        assert!(per_byte < 300, "{compression}, footer {footer}: {per_byte} bytes of work for each");
    }
}

/// Patterns of 16 bytes, repeated: a frame seems to begin, and to end, at every place.
const CRAFTED: [[u8; 16]; 5] = [
    // The header of an uncompressed block with one entry, full of bytes that mean "not compressed".
    [2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    // Lengths of payloads and chunks, and tokens of LZ4 with copies of minimum length.
    [0, 2, 1, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0],
    [1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0],
    // Zstd streams made of empty pieces.
    [0, 0, 2, 0, 0x28, 0xb5, 0x2f, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0],
    [0xff, 0xff, 0, 0, 0xff, 0xff, 0, 0, 0xff, 0xff, 0, 0, 0xff, 0xff, 0, 0],
];

#[test]
fn a_search_takes_as_much_as_the_file_is_long_whatever_is_in_it() {
    use crate::salvage::{ALLOWED_FIRST, ALLOWED_PER_BYTE};
    const BYTES: u64 = 512 << 10;
    for (number, piece) in CRAFTED.iter().enumerate() {
        for compression in [Compression::None, Compression::Lz4] {
            let (rig, rows) = (Rig::new(compression, 4096), rows_of_zeros());
            rig.write(&rows, &[]);
            let data = section(&rig, SectionKind::Data);
            // The header, the crafted bytes, and the blocks, moved to other offsets.
            let whole = rig.bytes();
            let made = piece.repeat(BYTES as usize / 16);
            let blocks = &whole[4096..data.end() as usize];
            rig.replace(&[&whole[..4096], &made, blocks].concat());
            let table = Arc::new(Salvage::open(&rig.env, &rig.path(), &rig.files, None).expect("opened"));
            let mut walk = table.walk();
            let mut entries = 0;
            while walk.next_entry().expect("read").is_some() {
                entries += 1;
            }
            // Checksums are salted with the offset, so no moved block is valid: the worst case for
            // a search.
            assert_eq!(entries, 0);
            let (spent, most) =
                (walk.searched_bytes(), ALLOWED_FIRST + ALLOWED_PER_BYTE * table.file_bytes());
            assert!(spent <= most, "piece {number}, {compression}: {spent} of {most}");
        }
    }
}

#[test]
fn what_lies_behind_crafted_bytes_is_found() {
    for (number, piece) in CRAFTED.iter().enumerate() {
        for compression in Compression::ALL {
            let (rig, rows) = (Rig::new(compression, 4096), rows_of_zeros());
            rig.write(&rows, &[]);
            let blocks = describe(&rig.env, &rig.path(), None).expect("undamaged").blocks;
            let data = section(&rig, SectionKind::Data);
            let mut bytes = rig.bytes();
            bytes.truncate(data.end() as usize);
            // The first half of the blocks is overwritten: of the second half, one block may be
            // missed.
            let middle = &blocks[blocks.len() / 2];
            let half = middle.offset as usize;
            bytes[4096..half].iter_mut().zip(piece.iter().cycle()).for_each(|(byte, made)| *byte = *made);
            rig.replace(&bytes);
            let (left, gaps, _) = salvaged(&rig, None).expect("something is left");
            assert!(left.iter().all(|row| rows.contains(row)) && !gaps.is_empty());
            let behind = blocks[blocks.len() / 2 + 1..].iter().map(|block| block.entries).sum::<u64>();
            let found = left.len() as u64;
            assert!(found >= behind && found > 0, "piece {number}, {compression}: {found} of {behind}");
        }
    }
}
