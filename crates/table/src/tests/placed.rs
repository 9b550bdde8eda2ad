//! Tests of block placement: short padding for all entry sizes, and files of older writers, which
//! had more padding.

use super::page::undumped;
use super::salvage::{salvaged, section};
use super::*;
use crate::format::SectionKind;
use crate::format::placement::{LINE_BYTES, page_after, start_after};

/// Blocks of one, two and three entries, some of which end long before a page does.
fn few_rows() -> Vec<Row> {
    let mut rows: Vec<Row> =
        (0..9u64).map(|i| row(format!("key{i}"), i + 1, vec![0; 380 + 10 * i as usize])).collect();
    rows.push(row("long", 20, vec![0; 1_400]));
    rows.push(row("more", 21, vec![0; 600]));
    rows.push(row("zeal", 22, b"the end"));
    rows
}

/// Writes a table like older writers, which started every block on a page.
fn write_on_pages(rig: &Rig, rows: &[Row]) {
    write_by(rig, rows, page_after);
}

fn write_by(rig: &Rig, rows: &[Row], start_after: fn(u64, usize) -> u64) {
    let mut writer = TableWriter::create(&rig.env, Path::new(DIR), rig.options).expect("created");
    writer.begin_blocks_by(start_after);
    for row in rows {
        writer.add(&row.key, row.seq, row.kind, &row.value).expect("added");
    }
    writer.finish().expect("finished");
}

fn some_bytes(dice: &Dice, most: usize) -> Vec<u8> {
    // Mostly small; half of them compressible.
    let bytes = 1 + dice.below(1 + dice.below(most));
    let (fill, is_text) = (dice.below(256) as u8, dice.below(2) == 0);
    (0..bytes).map(|_| if is_text { fill } else { dice.below(256) as u8 }).collect()
}

fn random_rows(dice: &Dice) -> Vec<Row> {
    let longest = [100, 1_000, 3_000, 20_000][dice.below(4)];
    let count = (1 + dice.below(250)).min(1 + 600_000 / longest);
    let mut rows = Vec::new();
    for number in 0..count as u64 {
        let mut found = row(some_bytes(dice, 600.min(longest)), 1 + number, some_bytes(dice, longest));
        if dice.below(10) == 0 {
            (found.kind, found.value) = (EntryKind::Delete, Vec::new());
        }
        rows.push(found);
    }
    sorted(rows)
}

/// Reads every entry in every way.
fn check_reads(rig: &mut Rig, rows: &[Row]) {
    for (direct_io, cache_bytes) in [(false, 1 << 20), (true, 1 << 20), (true, 0)] {
        rig.direct_io = direct_io;
        rig.cache = Arc::new(BlockCache::new(cache_bytes, Arc::clone(&rig.ledger)));
        let table = rig.open().expect("opened");
        assert_eq!(table.is_direct(), direct_io);
        for wanted in rows {
            let found = rig.get(&table, &wanted.key, wanted.seq).expect("a get").expect("there");
            assert!((found.seq, found.kind) == (wanted.seq, wanted.kind) && found.value == wanted.value);
        }
        let parts = |fill_cache, ahead_bytes| Walk::Parts { fill_cache, ahead_bytes };
        for walk in [parts(true, 0), parts(false, AHEAD_BYTES), Walk::Whole { bytes: 40_000 }] {
            let mut iter = table.walk(walk);
            iter.seek_to_first().expect("first");
            for wanted in rows {
                assert!(current(&iter).as_ref() == Some(wanted));
                iter.next().expect("next");
            }
            assert!(!iter.valid());
        }
        assert_eq!(table.verify().iter().map(Error::to_string).collect::<Vec<_>>(), [""; 0]);
    }
}

/// Salvages the table without the top level of its index, and without anything but its blocks.
fn check_salvage(rig: &Rig, rows: &[Row]) {
    let (whole, data) = (rig.bytes(), section(rig, SectionKind::Data));
    let mut without_top = whole.clone();
    without_top[section(rig, SectionKind::IndexTop).offset as usize] ^= 0xff;
    for bytes in [&without_top[..], &whole[..data.end() as usize]] {
        rig.replace(bytes);
        let table = Arc::new(Salvage::open(&rig.env, &rig.path(), &rig.files, None).expect("opened"));
        let mut walk = table.walk();
        while walk.next_entry().expect("read").is_some() {}
        let per_byte = walk.searched_bytes() / data.bytes;
        assert!(per_byte < 300, "{per_byte} bytes of work for each");
        let (left, ..) = salvaged(rig, None).expect("something is left");
        assert!(left == rows, "{} of {}", left.len(), rows.len());
    }
    rig.replace(&whole);
}

/// Number of tables in a test with each property.
#[derive(Default, Debug)]
struct TablesWith {
    large_values: usize,
    packed: usize,
    way_back: usize,
}

#[test]
fn blocks_of_any_entries_have_few_zeros_before_them_and_are_found() {
    let mut tables_with = TablesWith::default();
    for seed in 0..120u64 {
        let dice = Dice::new(seed);
        let rows = random_rows(&dice);
        let block_bytes = match dice.below(3) {
            0 => 4_096,
            1 => 64 + dice.below(65_536 - 64 + 1),
            _ => 64 + dice.below(5_000),
        };
        for compression in Compression::ALL {
            println!("seed {seed} compression {compression} block_bytes {block_bytes} rows {}", rows.len());
            let mut rig = Rig::new(compression, block_bytes);
            rig.options.block_tags = dice.below(3) > 0;
            rig.write(&rows, &[]);
            let described = describe(&rig.env, &rig.path(), None).expect("described");
            let most_zeros = (block_bytes.next_power_of_two().min(4_096) as u64 / 8).max(LINE_BYTES - 1);
            let (mut end, mut back_bytes) = (4_096, 0);
            for block in &described.blocks {
                if described.large_values == 0 {
                    let expected = match block.compression {
                        Compression::None => start_after(end, block_bytes),
                        _ => end,
                    };
                    if block.offset != expected {
                        assert_eq!(block.offset, page_after(end, block_bytes));
                        assert!(block.bytes <= 4_096, "a block that needs two pages goes back to none");
                        back_bytes += block.offset - end;
                        assert!(back_bytes <= end / 32, "{back_bytes} zeros of {end} bytes");
                    }
                    assert!(expected - end <= most_zeros);
                }
                end = block.offset + block.bytes;
            }
            let used: u64 = described.blocks.iter().map(|block| block.bytes).sum();
            let data_bytes = section(&rig, SectionKind::Data).bytes;
            let zeros = data_bytes - used - described.large_value_bytes;
            let most_zeros = most_zeros * described.blocks.len() as u64 + data_bytes / 32;
            assert!(zeros <= most_zeros, "{zeros} zeros");
            tables_with.large_values += usize::from(described.large_values > 0);
            tables_with.packed += usize::from(described.blocks.iter().any(|block| block.offset % 4_096 != 0));
            tables_with.way_back += usize::from(back_bytes > 0);
            check_reads(&mut rig, &rows);
            check_salvage(&rig, &rows);
            let mut rig = Rig::new(compression, block_bytes);
            write_on_pages(&rig, &rows);
            check_reads(&mut rig, &rows);
            check_salvage(&rig, &rows);
        }
    }
    let TablesWith { large_values, packed, way_back } = tables_with;
    assert!(large_values > 5 && packed > 50 && way_back > 5, "{tables_with:?}");
}

/// One long entry, or several, must not leave all following small blocks on two pages each.
#[test]
fn small_entries_behind_a_long_one_go_back_to_pages() {
    for (value_bytes, blocks_of_long_ones, most_percent) in
        [(20, 250, 5), (20, 50, 10), (100, 50, 10), (300, 25, 30)]
    {
        let in_a_block = 4_096 / (value_bytes + 20);
        let rows: Vec<Row> = (0..500 * in_a_block as u64)
            .map(|i| {
                let is_long = i % (blocks_of_long_ones * in_a_block as u64) == 99;
                row(format!("key{i:013}"), i + 1, vec![i as u8; if is_long { 5_000 } else { value_bytes }])
            })
            .collect();
        let rig = Rig::new(Compression::None, 4_096);
        rig.write(&rows, &[]);
        let described = describe(&rig.env, &rig.path(), None).expect("described");
        let is_on_two = |block: &&crate::describe::BlockDescription| {
            block.bytes <= 4_096 && block.offset / 4_096 != (block.offset + block.bytes - 1) / 4_096
        };
        let (on_two, all) = (described.blocks.iter().filter(is_on_two).count(), described.blocks.len());
        assert!(all > 300 && (on_two > 0 || value_bytes > 100), "{on_two} of {all}");
        assert!(
            on_two * 100 <= most_percent * all,
            "{on_two} of {all} blocks, {value_bytes} bytes, one in {blocks_of_long_ones}"
        );
        assert_eq!(rig.open().expect("opened").verify().len(), 0);
    }
}

/// Only the damaged block is lost: the blocks behind it are found, wherever they start.
#[test]
fn behind_damage_among_packed_blocks_all_others_are_found() {
    for compression in Compression::ALL {
        let rows: Vec<Row> = (0..200u64)
            .map(|i| {
                let fill: Vec<u8> = (0..1_100u64).map(|at| (i * 131 + at * at) as u8).collect();
                let value = if i % 50 == 7 { fill.repeat(20) } else { fill };
                row(format!("key{i:05}"), i + 1, value)
            })
            .collect();
        let rig = Rig::new(compression, 4_096);
        rig.write(&rows, &[]);
        let (whole, described) = (rig.bytes(), describe(&rig.env, &rig.path(), None).expect("described"));
        assert!(described.large_values > 0, "chunks among the blocks");
        let top = section(&rig, SectionKind::IndexTop).offset as usize;
        for (number, block) in described.blocks.iter().enumerate().skip(1) {
            let mut bytes = whole.clone();
            bytes[block.offset as usize + 40] ^= 0x55;
            // The block size is known from the properties; the places of the blocks are not.
            bytes[top] ^= 0xff;
            rig.replace(&bytes);
            let (left, ..) = salvaged(&rig, None).expect("something is left");
            let lost = rows.len() - left.len();
            assert_eq!(lost as u64, block.entries, "{compression}, block {number} at {}", block.offset);
        }
        rig.replace(&whole);
    }
}

/// Files of usual entries are identical to those of older writers.
#[test]
fn small_entries_lie_on_pages_as_ever() {
    for value_bytes in [20, 100, 300] {
        let rows: Vec<Row> =
            (0..2_000u64).map(|i| row(format!("key{i:013}"), i + 1, vec![i as u8; value_bytes])).collect();
        let rig = Rig::new(Compression::None, 4_096);
        rig.write(&rows, &[]);
        let placed = rig.bytes();
        rig.env.vfs.unlink(&rig.path()).expect("unlinked");
        write_on_pages(&rig, &rows);
        assert!(placed == rig.bytes(), "values of {value_bytes} bytes");
    }
}

/// By the old rule, entries of a kilobyte left a fifth of every page empty, entries slightly longer
/// than a page half of two pages.
#[test]
fn entries_that_do_not_fit_into_pages_take_little_more_than_their_bytes() {
    for (key_bytes, value_bytes, before, now) in [(512, 512, 129, 105), (16, 5_000, 161, 103)] {
        let rows: Vec<Row> = (0..400u32)
            .map(|i| {
                let key: Vec<u8> = (0..key_bytes / 4)
                    .flat_map(|at: u32| (i * 400 + at).wrapping_mul(2_654_435_761).to_be_bytes())
                    .collect();
                row(key, 1, vec![7; value_bytes])
            })
            .collect();
        let rows = sorted(rows);
        let raw_bytes: usize = rows.iter().map(|row| row.key.len() + row.value.len()).sum();
        let rig = Rig::new(Compression::None, 4_096);
        rig.write(&rows, &[]);
        let percent = section(&rig, SectionKind::Data).bytes * 100 / raw_bytes as u64;
        assert!(percent <= now, "{percent} % of {key_bytes} + {value_bytes} bytes");
        rig.env.vfs.unlink(&rig.path()).expect("unlinked");
        write_on_pages(&rig, &rows);
        let percent = section(&rig, SectionKind::Data).bytes * 100 / raw_bytes as u64;
        assert!(percent >= before, "{percent} % of {key_bytes} + {value_bytes} bytes");
    }
}

#[test]
fn a_block_in_a_place_of_neither_rule_is_read_and_reported() {
    let wrong: [fn(u64, usize) -> u64; 3] = [
        |end, block_bytes| start_after(end, block_bytes) + LINE_BYTES,
        |end, block_bytes| page_after(end, block_bytes) + page_after(1, block_bytes),
        |end, _| end,
    ];
    for rule in wrong {
        let (rig, rows) = (Rig::new(Compression::None, 1_000), few_rows());
        write_by(&rig, &rows, rule);
        let table = rig.open().expect("opened");
        for wanted in &rows {
            assert!(rig.get(&table, &wanted.key, SeqNo::MAX).expect("a get").is_some());
        }
        let damage: Vec<String> = table.verify().iter().map(Error::to_string).collect();
        assert!(damage.len() >= 5, "{damage:?}");
        assert!(damage.iter().all(|error| error.contains("starts there, expected at")), "{damage:?}");
    }
}

/// The bytes are from the last build that started every block on a page.
#[test]
fn a_table_whose_blocks_all_begin_on_pages_is_read_as_ever() {
    let (mut rig, rows) = (Rig::new(Compression::None, 1_000), few_rows());
    write_on_pages(&rig, &rows);
    let bytes = undumped(include_str!("aligned_blocks.hex"));
    let described = describe(&rig.env, &rig.path(), None).expect("described");
    let properties = described.sections.iter().find(|section| section.kind == SectionKind::Properties);
    let end = properties.expect("properties").offset as usize;
    // That build's properties do not say where the blocks of a partition end.
    assert!(rig.bytes()[..end] == bytes[..end], "not what that build wrote");
    rig.replace(&bytes);
    let offsets = |rig: &Rig| -> Vec<u64> {
        let described = describe(&rig.env, &rig.path(), None).expect("described");
        described.blocks.iter().map(|block| block.offset).collect()
    };
    assert_eq!(offsets(&rig), [4_096, 5_120, 6_144, 7_168, 8_192, 9_216, 11_264]);
    check_reads(&mut rig, &rows);
    check_salvage(&rig, &rows);
    rig.env.vfs.unlink(&rig.path()).expect("unlinked");
    rig.write(&rows, &[]);
    assert_eq!(offsets(&rig), [4_096, 4_928, 5_824, 6_720, 7_680, 8_192, 9_664]);
    check_reads(&mut rig, &rows);
    check_salvage(&rig, &rows);
}
