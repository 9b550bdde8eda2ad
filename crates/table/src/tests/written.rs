//! Tests of the check of a table just written: it accepts the written bytes, and finds every
//! change.

use super::forged::forge_properties;
use super::*;
use crate::format::PAGE_BYTES;

/// Rows of several blocks, with versions, a deletion and two large values.
fn rows() -> Vec<Row> {
    let mut rows: Vec<Row> = (0..60u64)
        .map(|i| row(format!("path/to/file{:02}", i / 2), 100 - i, format!("some words {i}").repeat(3)))
        .collect();
    rows.push(row("path/to/large", 200, vec![7; 3_000]));
    rows.push(row("path/to/largest", 201, (0..9_000u32).map(|i| ((i * i) >> 5) as u8).collect::<Vec<_>>()));
    rows[5].kind = EntryKind::Delete;
    sorted(rows)
}

fn rig(compression: Compression, from_bytes: usize) -> Rig {
    let mut rig = Rig::new(compression, 512);
    rig.options.large_values = LargeValues { from_bytes, chunk_bytes: 1_024 };
    rig
}

fn write(rig: &Rig, rows: &[Row]) -> WrittenBlocks {
    let mut writer = TableWriter::create(&rig.env, Path::new(DIR), rig.options).expect("created");
    for row in rows {
        writer.add(&row.key, row.seq, row.kind, &row.value).expect("added");
    }
    writer.finish_written().expect("finished").1
}

const KINDS: [(Compression, usize); 4] = [
    (Compression::None, 16 << 10),
    (Compression::Lz4, 16 << 10),
    (Compression::None, 2_000),
    (Compression::Zstd, 2_000),
];

#[test]
fn what_was_written_passes() {
    for (compression, from_bytes) in KINDS {
        let rig = rig(compression, from_bytes);
        let written = write(&rig, &rows());
        rig.open().expect("opened").check_written(&written).expect("as it was written");
    }
    let rig = rig(Compression::None, 16 << 10);
    let mut writer = TableWriter::create(&rig.env, Path::new(DIR), rig.options).expect("created");
    writer.add_range_tombstone(tombstone("a", None, 3)).expect("added");
    let (_, written) = writer.finish_written().expect("finished");
    rig.open().expect("opened").check_written(&written).expect("no data is right");
}

#[test]
fn a_changed_byte_of_a_block_or_value_is_found() {
    for (compression, from_bytes) in KINDS {
        let rig = rig(compression, from_bytes);
        let written = write(&rig, &rows());
        let good = rig.bytes();
        let mut found = 0;
        for at in (PAGE_BYTES..good.len()).step_by(7) {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            rig.replace(&bad);
            // The sections behind the data are checked at open, except the filter and, where it is
            // not pinned, the partitions of the index.
            let Ok(table) = rig.open() else { continue };
            match table.check_written(&written) {
                Err(Error::Corruption { .. }) => found += 1,
                Err(error) => panic!("byte {at}: {error}"),
                // The zeros between blocks are not checked.
                Ok(()) => assert_eq!(good[at], 0, "byte {at}"),
            }
        }
        assert!(found > 300, "{found} changes found in {} bytes", good.len());
    }
}

#[test]
fn entries_other_than_those_that_went_in_are_found() {
    let rig = rig(Compression::None, 16 << 10);
    let mut others = rows();
    others[40].value[3] ^= 1;
    let of_others = write(&rig, &others);
    rig.env.vfs.unlink(&rig.path()).expect("unlinked");
    write(&rig, &rows());
    // Every checksum is valid; only the blocks' content digests differ.
    let error = rig.open().expect("opened").check_written(&of_others).expect_err("another table");
    assert!(error.to_string().contains("its entries are not those that were written"), "{error}");
}

#[test]
fn a_count_of_entries_other_than_that_of_the_blocks_is_found() {
    let mut rig = rig(Compression::None, 16 << 10);
    rig.hold = Residency::Budgeted;
    let written = write(&rig, &rows());
    forge_properties(&rig, &rig.bytes(), |properties| properties.entries += 1);
    // The open does not read the partitions, so it cannot count their entries.
    let error = rig.open().expect("opened").check_written(&written).expect_err("another count");
    assert!(error.to_string().contains("entries in its blocks"), "{error}");
}

#[test]
fn chunks_that_never_reached_the_file_are_found_before_any_block() {
    for compression in [Compression::None, Compression::Zstd] {
        let rig = rig(compression, 2_000);
        write(&rig, &rows());
        let table = rig.open().expect("opened");
        // No block is a sample: the check of an unsampled block, as for most blocks.
        table.check_written(&WrittenBlocks::default()).expect("as it was written");
        let described = describe(&rig.env, &rig.path(), None).expect("described");
        let (mut bytes, mut ends, mut emptied) = (rig.bytes(), PAGE_BYTES, Vec::new());
        for block in &described.blocks {
            let start = block.offset as usize;
            if bytes[ends..start].iter().any(|byte| *byte != 0) {
                bytes[ends..start].fill(0);
                emptied.push(block.offset);
            }
            ends = start + block.bytes as usize;
        }
        rig.damage_in_place(&bytes);
        let error = table.check_written(&WrittenBlocks::default()).expect_err("chunks are missing");
        assert_eq!(Some(offset_of(error)), emptied.first().copied());
    }
}

#[test]
fn a_table_that_is_left_without_filter_bits_at_its_end_is_whole() {
    let (rig, rows) = (rig(Compression::None, 1_000), rows());
    for bits_per_key in [0.0, 0.01, 4.0] {
        let mut writer = TableWriter::create(&rig.env, Path::new(DIR), rig.options).expect("created");
        for row in &rows {
            writer.add(&row.key, row.seq, row.kind, &row.value).expect("added");
        }
        writer.set_bits_per_key(bits_per_key);
        writer.finish().expect("finished");
        let table = rig.open().expect("opens");
        assert_eq!(
            table.verify().iter().map(Error::to_string).collect::<Vec<_>>(),
            [""; 0],
            "{bits_per_key}"
        );
        assert_eq!(table.filter_geometry().is_some(), bits_per_key > 0.0);
        drop(table);
        rig.env.vfs.unlink(&rig.path()).expect("unlinked");
    }
}

/// Room is made for this memory before the table is opened, so it must not be exceeded.
#[test]
fn an_open_table_takes_no_more_memory_than_its_writer_states() {
    let long = |fill: u8| (0..40u8).map(move |n| row([&[fill; 9_000][..], &[n]].concat(), 7, vec![n; 300]));
    let many = (0..20_000u64).map(|n| row(format!("key {n:08}"), n, [7; 8]));
    let tombstones = |count: u64| {
        (0..count).map(|n| tombstone(&format!("t{n:06}"), Some(&format!("t{n:06}a")), n + 1)).collect()
    };
    let tables: [(Vec<Row>, Vec<RangeTombstone>); 5] = [
        (rows(), Vec::new()),
        (sorted(long(1).chain(long(200)).collect()), Vec::new()),
        (sorted(many.collect()), Vec::new()),
        (rows(), tombstones(5_000)),
        (Vec::new(), tombstones(2)),
    ];
    for residency in Residency::ALL {
        for (number, (rows, tombstones)) in tables.iter().enumerate() {
            let mut rig = rig(Compression::None, 16 << 10);
            (rig.hold, rig.filter) = (residency, residency);
            let mut writer = TableWriter::create(&rig.env, Path::new(DIR), rig.options).expect("created");
            for row in rows {
                writer.add(&row.key, row.seq, row.kind, &row.value).expect("added");
            }
            for tombstone in tombstones {
                writer.add_range_tombstone(tombstone.clone()).expect("added");
            }
            let stated_bytes = writer.finish_written().expect("finished").1.open_bytes(residency);
            let before_bytes = rig.ledger.total();
            let table = rig.open().expect("opened");
            let bytes = rig.ledger.total() - before_bytes;
            assert!(bytes >= table.fixed_bytes());
            assert!(
                (bytes..4 * bytes).contains(&stated_bytes),
                "{residency}, table {number}: {bytes} bytes, {stated_bytes} are stated"
            );
        }
    }
}
