//! Tests of the limits of a table, and of inputs that a writer refuses.

use super::*;
use shamba_key::{MAX_KEY_BYTES, MAX_VALUE_BYTES};

#[test]
fn range_tombstones_alone_make_a_table_and_come_back_sorted() {
    let rig = Rig::new(Compression::None, 4_096);
    let given = [
        tombstone("m", Some("p"), 9),
        tombstone("a", Some("c"), 3),
        tombstone("a", Some("b"), 5),
        tombstone("", Some("\u{0}"), 4),
    ];
    let summary = rig.write(&[], &given);
    assert_eq!((summary.entries, summary.range_deletes), (0, 4));
    assert_eq!((&summary.smallest[..], summary.upper.as_deref()), (&b""[..], Some(&b"p"[..])));
    assert_eq!((summary.smallest_seq, summary.largest_seq), (SeqNo(3), SeqNo(9)));
    let table = rig.open().expect("opened");
    let expected = [given[3].clone(), given[2].clone(), given[1].clone(), given[0].clone()];
    assert_eq!(table.range_tombstones(), expected);
    assert!(table.filter().is_none() && table.filter_warnings().is_empty());
    assert_eq!(rig.get(&table, b"a", SeqNo::MAX).expect("a get"), None);
    let mut iter = table.iter(true);
    for seek in [EntryIter::seek_to_first, EntryIter::seek_to_last] {
        seek(&mut iter).expect("a seek");
        assert!(!iter.valid());
    }
    iter.seek(b"a", SeqNo::MAX).expect("a seek");
    iter.seek_for_prev(b"a", SeqNo::MAX).expect("a seek");
    assert!(!iter.valid());
    assert!(table.split_keys(1).is_empty() && table.verify().is_empty());
}

#[test]
fn the_time_of_the_oldest_tombstone_is_kept_with_tombstones_only() {
    let put = [row("a", 1, "value")];
    let delete = [Row { kind: EntryKind::Delete, ..row("a", 1, "") }];
    let range = [tombstone("b", Some("c"), 2)];
    for (rows, tombstones, noted, kept) in [
        (&put, &[][..], Some(70), None),
        (&put, &range[..], Some(70), Some(70)),
        (&delete, &[][..], Some(70), Some(70)),
        (&delete, &[][..], None, None),
    ] {
        let rig = Rig::new(Compression::None, 4_096);
        let mut writer = TableWriter::create(&rig.env, Path::new(DIR), rig.options).expect("created");
        writer.note_oldest_tombstone(noted);
        for row in rows {
            writer.add(&row.key, row.seq, row.kind, &row.value).expect("added");
        }
        for tombstone in tombstones {
            writer.add_range_tombstone(tombstone.clone()).expect("added");
        }
        assert_eq!(writer.finish().expect("finished").oldest_tombstone_ms, kept);
        assert_eq!(rig.open().expect("opened").summary().oldest_tombstone_ms, kept);
        let described = describe(&rig.env, &rig.path(), None).expect("described").to_string();
        assert_eq!(described.contains("oldest tombstone  70 ms since 1970"), kept.is_some(), "{described}");
    }
}

#[test]
fn bounds_cover_entries_and_range_tombstones() {
    for (tombstones, smallest, upper) in [
        (vec![], "k", Some("k\0")),
        (vec![tombstone("a", Some("b"), 1)], "a", Some("k\0")),
        (vec![tombstone("l", Some("z"), 1)], "k", Some("z")),
        (vec![tombstone("l", None, 1), tombstone("a", Some("b"), 1)], "a", None),
        (vec![tombstone("k", Some("k\0"), 1)], "k", Some("k\0")),
    ] {
        let rig = Rig::new(Compression::None, 4_096);
        let summary = rig.write(&[row("k", 2, "v")], &tombstones);
        assert_eq!(
            (&summary.smallest[..], summary.upper.as_deref()),
            (smallest.as_bytes(), upper.map(str::as_bytes))
        );
        let table = rig.open().expect("opened");
        assert_eq!(*table.summary(), summary);
        assert!(table.verify().is_empty());
    }
}

#[test]
fn the_largest_key_and_value_fit_and_larger_ones_do_not() {
    // The full 256 MiB only with one codec: uncompressed, it would take a gigabyte of the test's
    // memory.
    for (compression, value_bytes) in
        [(Compression::None, 8 << 20), (Compression::Lz4, MAX_VALUE_BYTES), (Compression::Zstd, 8 << 20)]
    {
        let rig = Rig::new(compression, 4_096);
        let key = vec![0xff; MAX_KEY_BYTES];
        let successor = Bytes::from([&key[..], &[0]].concat());
        let mut writer = TableWriter::create(&rig.env, Path::new(DIR), rig.options).expect("created");
        let long = RangeTombstone { start: successor, end: None, seq: SeqNo(4) };
        writer.add_range_tombstone(long.clone()).expect("the successor of the longest key");
        let value = vec![0x5a; value_bytes];
        writer.add(&key, SeqNo::MAX, EntryKind::Put, &value).expect("added");
        writer.add(&key, SeqNo(1), EntryKind::Put, b"").expect("added");
        let too_large = vec![0; MAX_VALUE_BYTES + 1];
        assert!(matches!(writer.add(&key, SeqNo(0), EntryKind::Put, &too_large), Err(Error::Invalid(_))));
        drop(too_large);
        let too_long = vec![0xff; MAX_KEY_BYTES + 1];
        assert!(matches!(writer.add(&too_long, SeqNo(0), EntryKind::Put, b""), Err(Error::Invalid(_))));
        let end = Some(Bytes::from(vec![0xff; MAX_KEY_BYTES + 2]));
        let beyond = RangeTombstone { start: Bytes::new(), end, seq: SeqNo(4) };
        assert!(matches!(writer.add_range_tombstone(beyond), Err(Error::Invalid(_))));
        writer.finish().expect("finished");
        let table = rig.open().expect("opened");
        assert_eq!(table.range_tombstones(), [long]);
        let found = rig.get(&table, &key, SeqNo::MAX).expect("a get").expect("there");
        assert!(found.value == value, "another value");
        assert_eq!(rig.get(&table, &key, SeqNo(5)).expect("a get").expect("there").seq, SeqNo(1));
    }
}

#[test]
fn a_writer_refuses_what_no_reader_could_use() {
    let rig = Rig::new(Compression::None, 4_096);
    let create = |change: fn(&mut WriterOptions)| {
        let mut options = rig.options;
        change(&mut options);
        TableWriter::create(&rig.env, Path::new(DIR), options)
    };
    for change in [
        (|o| o.block_bytes = 63) as fn(&mut WriterOptions),
        |o| o.block_bytes = 65_537,
        |o| o.bits_per_key = -1.0,
        |o| o.bits_per_key = f64::NAN,
    ] {
        assert!(matches!(create(change), Err(Error::Invalid(_))));
    }
    let mut writer = create(|_| {}).expect("created");
    assert!(writer.is_empty() && writer.last_key().is_none());
    writer.add(b"b", SeqNo(5), EntryKind::Put, b"1").expect("added");
    for (key, seq, kind) in [
        (b"b", 5, EntryKind::Put),
        (b"b", 6, EntryKind::Put),
        (b"a", 1, EntryKind::Put),
        (b"c", 1, EntryKind::RangeDelete),
        (b"c", SeqNo::MAX.0 + 1, EntryKind::Put),
    ] {
        assert!(matches!(writer.add(key, SeqNo(seq), kind, b""), Err(Error::Invalid(_))), "{key:?} {seq}");
    }
    for empty in [tombstone("b", Some("b"), 1), tombstone("b", Some("a"), 1)] {
        assert!(matches!(writer.add_range_tombstone(empty), Err(Error::Invalid(_))));
    }
    writer.add(b"b", SeqNo(4), EntryKind::Delete, b"").expect("a refused entry changes nothing");
    assert_eq!((writer.entries(), writer.last_key()), (2, Some(&b"b"[..])));
    assert!(writer.file_bytes() > 4_096);
    let taken = create(|_| {}).expect_err("the name is taken");
    assert!(matches!(&taken, Error::Io { op, .. } if op == "create"), "{taken}");
    let summary = writer.finish().expect("finished");
    assert_eq!(summary.file_bytes, rig.bytes().len() as u64);
}

#[test]
fn an_unfinished_file_is_removed_and_an_empty_table_is_none() {
    let rig = Rig::new(Compression::None, 4_096);
    let there = || rig.env.vfs.exists(&rig.path()).expect("asked");
    let empty = |writer: TableWriter| assert!(matches!(writer.finish(), Err(Error::Invalid(_))));
    for give_up in [TableWriter::abandon as fn(TableWriter), drop, empty] {
        let writer = TableWriter::create(&rig.env, Path::new(DIR), rig.options).expect("created");
        assert!(there());
        give_up(writer);
        assert!(!there());
    }
    rig.write(&[row("k", 1, "v")], &[]);
    assert!(there());
}

#[test]
fn no_filter_bits_write_no_filter() {
    let mut rig = Rig::new(Compression::None, 4_096);
    rig.options.bits_per_key = 0.0;
    rig.write(&[row("k", 1, "v")], &[]);
    let table = rig.open().expect("opened");
    assert!(table.filter().is_none() && table.filter_warnings().is_empty() && table.verify().is_empty());
}

#[test]
fn a_key_whose_digest_is_known_is_not_hashed_again() {
    let rows: Vec<Row> = (0..500).map(|i| row(format!("key{:04}", i / 2), 900 - i, "value")).collect();
    let rig = Rig::new(Compression::None, 4_096);
    rig.write(&rows, &[]);
    let hashed_here = rig.bytes();
    rig.env.vfs.unlink(&rig.path()).expect("unlinked");
    let digests: Vec<_> = rows.iter().map(|row| rig.options.digest.digest(&row.key)).collect();
    let mut writer = TableWriter::create(&rig.env, Path::new(DIR), rig.options).expect("created");
    let before = shamba_key::hashes_on_this_thread();
    for (row, digest) in rows.iter().zip(digests) {
        writer.add_counted(&row.key, Some(digest), row.seq, row.kind, &row.value).expect("added");
    }
    assert_eq!(shamba_key::hashes_on_this_thread(), before);
    writer.finish().expect("finished");
    assert!(rig.bytes() == hashed_here, "another file");
}

/// A ribbon filter is built in memory besides the filter: a remix for each key, and the equations
/// of a slice.
#[test]
fn memory_for_building_a_filter_is_known_beforehand() {
    let soon = |layout: &str| {
        let mut rig = Rig::new(Compression::None, 4096);
        rig.options.filter_layout = layout.parse().expect("a layout");
        let mut writer = TableWriter::create(&rig.env, Path::new(DIR), rig.options).expect("created");
        for number in 0..5_000u32 {
            writer.add(&number.to_be_bytes(), SeqNo(1), EntryKind::Put, b"v").expect("added");
        }
        writer.memory_bytes_soon()
    };
    let (blocked, ribbon) = (soon("blocked"), soon("ribbon"));
    let more = ribbon - blocked;
    assert!((2 * 8 * 5_000..3 * 8 * 5_000).contains(&more), "{more} bytes more for 5,000 keys");
}
