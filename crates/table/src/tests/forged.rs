//! Tests of hostile tables: damage with valid checksums. Any answer is allowed, but no panic, no
//! hang, and no read out of bounds.

use super::*;
use crate::block::frame::FRAME_BYTES;
use crate::format::origin::Origin;
use crate::format::partitions::PartitionSummary;
use crate::format::properties::Properties;

/// The ranges of the file with a checksum at their end.
fn sealed(rig: &Rig) -> Vec<(u64, u64)> {
    let described = describe(&rig.env, &rig.path(), None).expect("described");
    let mut frames: Vec<(u64, u64)> =
        described.blocks.iter().map(|block| (block.offset, block.bytes)).collect();
    for section in &described.sections {
        match section.kind {
            // One partition, as the table is small; the filter is covered by its crate's own tests.
            SectionKind::Data | SectionKind::Filter => {}
            _ => frames.push((section.offset, section.bytes)),
        }
    }
    frames.push((0, 4_096));
    frames
}

fn use_it(rig: &Rig) {
    let Ok(table) = rig.open() else {
        return;
    };
    for key in [&b""[..], b"a", b"key03", b"key07", b"zz"] {
        let _ = rig.get(&table, key, SeqNo(4));
        let _ = rig.get(&table, key, SeqNo::MAX);
    }
    let mut iter = table.iter(true);
    let mut steps = 0;
    let _ = iter.seek_to_first();
    while iter.valid() && iter.next().is_ok() {
        let _ = (iter.value_bytes_len(), iter.separated().map(|_| ()), iter.read_value(&mut |_| Ok(())));
        steps += 1;
        assert!(steps < 10_000, "the walk does not end");
    }
    let _ = iter.seek_to_last();
    while iter.valid() && iter.prev().is_ok() {}
    let _ = (iter.seek(b"key05", SeqNo(3)), iter.seek_for_prev(b"key05", SeqNo(3)));
    let mut iter = table.iter(true);
    for key in [&b""[..], b"a", b"key03", b"key07", b"zz"] {
        if let Some((part, read)) = iter.partition_to_read(key, SeqNo::MAX) {
            iter.take_read(part, read);
        }
        if let Some((part, read)) = iter.block_to_read(key, SeqNo::MAX) {
            iter.take_read(part, read);
        }
        let _ = (iter.seek(key, SeqNo::MAX), iter.next());
    }
    let _ = (table.split_keys(100), table.bytes_between(b"a", Some(b"key04")), table.verify());
    let _ = describe(&rig.env, &rig.path(), None).map(|described| described.to_string());
}

/// Uses the table with every byte of its structures changed, under a right checksum.
fn forge_every_byte(rig: &Rig) {
    let intact = rig.bytes();
    for (offset, bytes) in sealed(rig) {
        let (start, end) = (offset as usize, (offset + bytes) as usize);
        let step = if start == 0 { 5 } else { 1 };
        for at in (start..end - 4).step_by(step) {
            for mask in [0x01, 0x04, 0x80, 0xff] {
                let mut forged = intact.clone();
                forged[at] ^= mask;
                let sum = checksum(rig.options.birth, offset, &forged[start..end - 4]);
                forged[end - 4..end].copy_from_slice(&sum.to_le_bytes());
                rig.replace(&forged);
                use_it(rig);
            }
        }
    }
    let footer = intact.len() - 256;
    for at in footer..footer + 244 {
        for mask in [0x01, 0x04, 0x80, 0xff] {
            let mut forged = intact.clone();
            forged[at] ^= mask;
            let sum = checksum(rig.options.birth, footer as u64, &forged[footer..footer + 244]);
            forged[footer + 244..footer + 248].copy_from_slice(&sum.to_le_bytes());
            rig.replace(&forged);
            use_it(rig);
        }
    }
}

#[test]
fn no_byte_under_a_right_checksum_makes_a_reader_panic() {
    let mut rows: Vec<Row> =
        (0..12).map(|i| row(format!("key{:02}", i / 2), 20 - i, "value value value")).collect();
    rows.push(row("large", 3, vec![b'x'; 400]));
    let rows = sorted(rows);
    for (compression, hold) in Compression::ALL.into_iter().zip(Residency::ALL) {
        let mut rig = Rig::new(compression, 128);
        rig.hold = hold;
        rig.write(&rows, &[tombstone("a", Some("c"), 8), tombstone("x", None, 9)]);
        forge_every_byte(&rig);
    }
}

#[test]
fn no_byte_of_a_table_with_value_files_makes_a_reader_panic() {
    for files_are_known in [true, false] {
        let mut rig = Rig::new(Compression::None, 256);
        separated::write(&mut rig, &separated::mixed()[..8], 2);
        if !files_are_known {
            rig.values.clear();
        }
        forge_every_byte(&rig);
    }
}

/// Changes properties of the table with the bytes `intact`. They may become shorter: the name of a
/// keyspace, which no reader of these tests asks for, fills the section.
pub(super) fn forge_properties(rig: &Rig, intact: &[u8], change: impl FnOnce(&mut Properties)) {
    rig.replace(intact);
    let described = describe(&rig.env, &rig.path(), None).expect("described");
    let section = described.sections.iter().find(|section| section.kind == SectionKind::Properties);
    let section = section.expect("properties");
    let (start, end) = (section.offset as usize, section.end() as usize);
    let payload = intact[start..end - FRAME_BYTES].to_vec();
    let mut properties = Properties::decode(payload.into()).expect("properties");
    change(&mut properties);
    let name_of = |bytes: usize| Origin { keyspace: 0, name: "k".repeat(bytes) };
    let payload = std::iter::once(None)
        .chain((0..200).map(|bytes| Some(name_of(bytes))))
        .map(|origin| properties.encode(origin.as_ref()))
        .find(|payload| payload.len() == end - FRAME_BYTES - start)
        .expect("a name that fills the section");
    let mut forged = intact.to_vec();
    forged[start..end - FRAME_BYTES].copy_from_slice(&payload);
    let sum = checksum(rig.options.birth, section.offset, &forged[start..end - 4]);
    forged[end - 4..end].copy_from_slice(&sum.to_le_bytes());
    rig.replace(&forged);
}

/// A change of the summaries of partitions.
type Forgery = dyn Fn(&mut Vec<PartitionSummary>);

#[test]
fn wrong_summaries_of_partitions_are_refused_or_found_where_they_are_met() {
    for hold in Residency::ALL {
        let mut rig = Rig::new(Compression::None, 128);
        rig.hold = hold;
        let rows: Vec<Row> = (0..6_000).map(|i| row(format!("key{i:05}"), 1, "value")).collect();
        rig.write(&rows, &[]);
        let intact = rig.bytes();
        forge_properties(&rig, &intact, |properties| assert!(properties.partitions.len() > 4));
        assert_eq!(rig.bytes(), intact, "nothing was forged");
        let forge = |change: &Forgery| {
            forge_properties(&rig, &intact, |properties| change(&mut properties.partitions));
            rig.open()
        };
        let refused: [&Forgery; 6] = [
            &|summaries| summaries.truncate(1),
            &|summaries| summaries[1].blocks_end = summaries[0].blocks_end,
            &|summaries| summaries.swap(1, 2),
            &|summaries| summaries[2].memory_bytes = 0,
            &|summaries| summaries.last_mut().expect("one").blocks_end -= 1,
            &|summaries| summaries.last_mut().expect("one").blocks_end += 1,
        ];
        for (number, change) in refused.into_iter().enumerate() {
            let error = forge(change).expect_err("a summary that cannot be").to_string();
            assert!(error.contains("partition") || error.contains("blocks end"), "{number}: {error}");
        }
        // A table of an older build, whose partitions are all read by the open.
        let older = forge(&Vec::clear).expect("opened");
        assert_eq!(older.verify().len(), 0);
        let described = describe(&rig.env, &rig.path(), None).expect("described");
        let section = described.sections.iter().find(|section| section.kind == SectionKind::Index);
        let section = section.expect("an index");
        let mut damaged = rig.bytes();
        damaged[(section.offset + section.bytes / 2) as usize] ^= 1;
        rig.replace(&damaged);
        let error = rig.open().expect_err("a damaged partition").to_string();
        assert!(error.contains("index partition"), "{error}");
        // Only the partitions on both sides of an end can tell that it is another.
        let opened = forge(&|summaries| summaries[1].blocks_end -= 1);
        if hold == Residency::Pinned {
            opened.expect_err("another end");
            continue;
        }
        let table = opened.expect("opened");
        let damage: Vec<String> = table.verify().iter().map(Error::to_string).collect();
        assert!(damage.iter().any(|one| one.contains("index partition")), "{damage:?}");
        let found = |number: usize| rig.get(&table, &rows[number].key, SeqNo(1)).ok().flatten();
        for number in [0, rows.len() - 1] {
            assert_eq!(found(number).expect("far from it").value, rows[number].value[..]);
        }
    }
}

#[test]
fn entries_out_of_order_or_uncounted_are_found_by_verify() {
    let mut rig = Rig::new(Compression::None, 4_096);
    rig.options.block_tags = false;
    rig.write(&[row("a", 1, "1"), row("b", 2, "2"), row("c", 3, "3")], &[]);
    let intact = rig.bytes();
    let described = describe(&rig.env, &rig.path(), None).expect("described");
    let end = 4_096 + described.blocks[0].bytes as usize;
    // After the header and three offsets, an entry is 3 bytes: sequence delta, key, value.
    let entry = |number: usize| 4_096 + 16 + 3 * 2 + 3 * number;
    for (at, byte, found) in [
        (entry(1) + 1, b'c', "out of order"),
        (entry(1) + 1, b'a', "out of order"),
        (entry(2) + 1, b'd', "out of the table's bounds"),
        (entry(0), 9, "out of the table's bounds"),
        (entry(1) + 2, b'x', "content digest"),
        // All entries become deletes.
        (4_096 + 2, 0x21, "deletes is 0, found 3"),
        (entry(1) + 1, b'B', "out of order"),
        (entry(0) - 2, 0xff, "entry 1 is malformed"),
        // The second offset: the first entry takes a byte of the second one.
        (entry(0) - 4, 4, "out of order"),
    ] {
        let mut forged = intact.clone();
        forged[at] = byte;
        let sum = checksum(rig.options.birth, 4_096, &forged[4_096..end - 4]);
        forged[end - 4..end].copy_from_slice(&sum.to_le_bytes());
        rig.replace(&forged);
        let damage: Vec<String> = rig.open().expect("opened").verify().iter().map(Error::to_string).collect();
        assert!(damage.iter().any(|one| one.contains(found)), "{found}: {damage:?}");
    }
}

#[test]
fn a_tag_that_would_deny_its_key_is_found_by_verify() {
    let rig = Rig::new(Compression::None, 4_096);
    rig.write(&[row("a", 2, "1"), row("a", 1, "1"), row("b", 2, "2")], &[]);
    let intact = rig.bytes();
    let described = describe(&rig.env, &rig.path(), None).expect("described");
    let end = 4_096 + described.blocks[0].bytes as usize;
    for number in 0..3 {
        let mut forged = intact.clone();
        forged[4_096 + 16 + number] ^= 0x20;
        let sum = checksum(rig.options.birth, 4_096, &forged[4_096..end - 4]);
        forged[end - 4..end].copy_from_slice(&sum.to_le_bytes());
        rig.replace(&forged);
        let damage = rig.open().expect("opened").verify();
        let expected = format!("the tag of entry {number} is not that of its key");
        assert!(damage.len() == 1 && damage[0].to_string().contains(&expected), "{damage:?}");
    }
}

#[test]
fn keys_that_their_filter_denies_are_found_by_verify_whatever_is_resident() {
    let mut rig = Rig::new(Compression::None, 4_096);
    rig.write(&[row("a", 1, "1"), row("b", 2, "2")], &[]);
    let mut bytes = rig.bytes();
    let described = describe(&rig.env, &rig.path(), None).expect("described");
    let filter = described.sections.iter().find(|section| section.kind == SectionKind::Filter);
    let filter = filter.expect("a filter");
    let (start, end) = (filter.offset as usize + 12, filter.end() as usize - 4);
    bytes[start..end].fill(0);
    let sum = checksum(rig.options.birth, start as u64, &bytes[start..end]);
    bytes[end..end + 4].copy_from_slice(&sum.to_le_bytes());
    rig.replace(&bytes);
    for hold in Residency::ALL {
        rig.filter = hold;
        let damage: Vec<String> = rig.open().expect("opened").verify().iter().map(Error::to_string).collect();
        let denied = ["a", "b"].map(|key| format!("denies the key \"{key}\""));
        assert_eq!(damage.len(), 2, "{hold}: {damage:?}");
        for (found, expected) in damage.iter().zip(denied) {
            assert!(found.contains(&expected) && found.contains(WRONG_FILTER), "{hold}: {found}");
        }
    }
}

#[test]
fn a_partition_that_lists_its_first_block_again_ends_a_walk() {
    let rows: Vec<Row> =
        (0..60).map(|i| row(format!("key{i:02}"), 1, "a value that fills a block")).collect();
    for hold in [Residency::Budgeted, Residency::Cached] {
        let mut rig = Rig::new(Compression::None, 128);
        rig.hold = hold;
        rig.write(&rows, &[]);
        let mut forged = rig.bytes();
        let described = describe(&rig.env, &rig.path(), None).expect("described");
        let index = described.sections.iter().find(|section| section.kind == SectionKind::Index);
        let (start, end) =
            index.map(|index| (index.offset as usize, index.end() as usize)).expect("an index");
        // A block's offset, length and number of entries.
        let place_of = |bytes: &[u8], offset: u64| {
            let mut windows = bytes[start..end].windows(16);
            start + windows.position(|window| window[..8] == offset.to_le_bytes()).expect("it is listed")
        };
        let first = place_of(&forged, described.blocks[0].offset);
        let first: [u8; 16] = forged[first..first + 16].try_into().expect("16 bytes");
        assert!(described.blocks.len() > 10, "{} blocks", described.blocks.len());
        for block in &described.blocks[1..] {
            let place = place_of(&forged, block.offset);
            forged[place..place + 16].copy_from_slice(&first);
        }
        let sum = checksum(rig.options.birth, start as u64, &forged[start..end - 4]);
        forged[end - 4..end].copy_from_slice(&sum.to_le_bytes());
        rig.replace(&forged);

        let table = rig.open().expect("opened");
        assert_eq!(
            rig.get(&table, b"key00", SeqNo(1)).expect("read").expect("there").value,
            rows[0].value[..]
        );
        let entries = u32::from_le_bytes([first[12], first[13], first[14], first[15]]) as usize;
        let walks: [fn(&mut TableIter) -> Result<()>; 2] = [TableIter::next, TableIter::prev];
        for (number, step) in walks.into_iter().enumerate() {
            let mut iter = table.iter(true);
            let begin = |iter: &mut TableIter| match number {
                0 => iter.seek(b"key00", SeqNo(1)),
                _ => iter.seek_for_prev(b"key59", SeqNo(1)),
            };
            let mut seen = 0;
            let mut ended = begin(&mut iter);
            while ended.is_ok() && iter.valid() {
                (seen, ended) = (seen + 1, step(&mut iter));
            }
            let error = ended.expect_err("a partition that lists a block again").to_string();
            assert!(error.contains("index partition"), "{error}");
            assert!(seen <= entries, "{hold} {number}: {seen} of {entries} entries");
        }
    }
}
