//! Tests of lookups and iterators against a sorted list: random tables of every shape, with all
//! compressions.

use super::*;

/// Rows that cover every shape of block: empty keys and values, versions of one key over several
/// blocks, common prefixes longer than a head, values larger than a block, and sometimes a key of
/// maximum length.
fn random_rows(dice: &Dice) -> Vec<Row> {
    let mut rows = Vec::new();
    let prefixes: [&[u8]; 4] = [b"", b"k", b"usr/share/doc/", b"\xff\xff"];
    for _ in 0..1 + dice.below(120) {
        let mut key = prefixes[dice.below(prefixes.len())].to_vec();
        key.extend((0..dice.below(4)).map(|_| b"ab\x00\xff"[dice.below(4)]));
        if dice.below(150) == 0 {
            key = vec![b"kz"[dice.below(2)]; 65_535];
        }
        let versions = if dice.below(8) == 0 { 40 } else { 1 + dice.below(3) };
        for _ in 0..versions {
            let bytes = match dice.below(40) {
                0 => 3_000 + dice.below(200_000),
                1..8 => 0,
                _ => dice.below(60),
            };
            let fill = dice.below(256) as u8;
            let text = dice.below(2) == 0;
            let mut value: Vec<u8> =
                (0..bytes).map(|_| if text { fill } else { dice.below(256) as u8 }).collect();
            let kind = [EntryKind::Put, EntryKind::Put, EntryKind::Delete, EntryKind::Merge][dice.below(4)];
            if kind == EntryKind::Merge {
                value.truncate(MAX_OPERAND_BYTES);
                value = Operand { reach: dice.below(2) as u64, bytes: &value }.encode();
            }
            rows.push(Row { key: key.clone(), seq: SeqNo(1 + dice.below(60) as u64), kind, value });
        }
    }
    sorted(rows)
}

/// Keys to look up: those of the rows, their neighbours, and keys at both ends.
fn probes(rows: &[Row]) -> Vec<Vec<u8>> {
    let mut keys = vec![vec![], vec![0], vec![0xff; 4], b"usr/share".to_vec()];
    for row in rows {
        keys.push(row.key.clone());
        keys.push([&row.key[..], &[0]].concat());
        keys.push(row.key[..row.key.len().saturating_sub(1)].to_vec());
    }
    keys.sort();
    keys.dedup();
    keys
}

fn check_lookups(rig: &Rig, table: &Arc<TableReader>, rows: &[Row]) {
    for key in probes(rows) {
        for seq in [SeqNo::ZERO, SeqNo(1), SeqNo(17), SeqNo(30), SeqNo(59), SeqNo::MAX] {
            let found = rig.get(table, &key, seq).expect("a get");
            let expected = newest(rows, &key, seq);
            assert_eq!(
                found.map(|entry| (entry.seq, entry.kind, entry.value.to_vec())),
                expected.map(|row| (row.seq, row.kind, row.value.clone())),
                "get {} at {seq}",
                key.escape_ascii()
            );
        }
        let digest = rig.options.digest.digest(&key);
        let there = newest(rows, &key, SeqNo::MAX).is_some();
        let filter = table.filter().expect("a filter");
        assert!(filter.may_contain(digest) || !there, "the filter denies {}", key.escape_ascii());
    }
}

fn check_seeks(table: &Arc<TableReader>, rows: &[Row]) {
    let mut iter = table.iter(true);
    let mut steps = 0;
    assert!(!iter.valid());
    for key in probes(rows) {
        for seq in [0, 1, 16, 30, 44, 60, 61].map(SeqNo) {
            let lower = rows.partition_point(|row| internal_cmp(&row.key, row.seq, &key, seq).is_lt());
            let upper = rows.partition_point(|row| internal_cmp(&row.key, row.seq, &key, seq).is_le());
            iter.seek(&key, seq).expect("a seek");
            assert_eq!(current(&iter).as_ref(), rows.get(lower), "seek {} {seq}", key.escape_ascii());
            // In steps as far as they come, and as far as a caller likes.
            steps = (steps + 1) % (SEEK_STEPS + 2);
            let mut seeking = Seeking::default();
            (0..steps).for_each(|_| iter.seek_step(&key, seq, &mut seeking));
            assert!(steps == 0 || !iter.valid(), "a step leaves the entry of the seek before");
            iter.seek_from_step(&key, seq, seeking).expect("a seek");
            let what = format!("seek {} {seq} after {steps} steps", key.escape_ascii());
            assert_eq!(current(&iter).as_ref(), rows.get(lower), "{what}");
            iter.seek_for_prev(&key, seq).expect("a seek");
            let expected = upper.checked_sub(1).map(|at| &rows[at]);
            assert_eq!(current(&iter).as_ref(), expected, "seek_for_prev {} {seq}", key.escape_ascii());
        }
    }
}

fn check_walks(table: &Arc<TableReader>, rows: &[Row], dice: &Dice) {
    let mut iter = table.iter(false);
    iter.seek_to_first().expect("first");
    for row in rows {
        assert_eq!(current(&iter).as_ref(), Some(row));
        iter.next().expect("next");
    }
    assert!(!iter.valid());
    iter.next().expect("past the end nothing happens");
    iter.seek_to_last().expect("last");
    for row in rows.iter().rev() {
        assert_eq!(current(&iter).as_ref(), Some(row));
        iter.prev().expect("prev");
    }
    assert!(!iter.valid());
    // A random walk that changes direction anywhere, and starts over when it passes an end.
    let mut at = None;
    for _ in 0..300 {
        at = match (at, dice.below(2)) {
            (None, _) => {
                let start = dice.below(rows.len());
                iter.seek(&rows[start].key, rows[start].seq).expect("a seek");
                Some(start)
            }
            (Some(place), 0) => {
                iter.next().expect("next");
                Some(place + 1).filter(|next| *next < rows.len())
            }
            (Some(place), _) => {
                iter.prev().expect("prev");
                usize::checked_sub(place, 1)
            }
        };
        assert_eq!(current(&iter).as_ref(), at.map(|place| &rows[place]));
    }
}

/// Copies of plain puts, against a loop over the rows.
fn check_copies(table: &Arc<TableReader>, rows: &[Row], dice: &Dice) {
    let mut iter = table.iter(true);
    for _ in 0..150 {
        let begin = dice.below(rows.len());
        let mut at = begin;
        let bound = rows[dice.below(rows.len())].key.clone();
        let wanted = 1 + dice.below(6);
        let limits = CopyLimits {
            seq: [SeqNo::MAX, SeqNo(30)][dice.below(2)],
            upper: (dice.below(2) == 0).then_some(&bound),
            value_bytes: [20, 1_024][dice.below(2)],
            wanted,
            welcome: wanted + dice.below(20),
            full_bytes: [300, 8_192][dice.below(2)],
            versions: [1, 2, 16][dice.below(3)],
        };
        iter.seek(&rows[at].key, rows[at].seq).expect("a seek");
        let mut out = Copies::default();
        out.begin();
        let end = iter.copy_on(&mut out, &limits).expect("readable");
        let place = current(&iter);
        let (mut expected, mut versions, mut bytes) = (Vec::<&Row>::new(), 0, 0);
        let expected_end = loop {
            let Some(row) = rows.get(at) else { break CopyEnd::Ended };
            if row.kind != EntryKind::Put || row.seq > limits.seq || row.value.len() > limits.value_bytes {
                break CopyEnd::Other;
            }
            if expected.last().is_some_and(|last| last.key == row.key) {
                versions += 1;
                if versions == limits.versions {
                    break CopyEnd::Other;
                }
            } else {
                if at > begin && limits.upper.is_some_and(|upper| upper <= &row.key[..]) {
                    break CopyEnd::Beyond;
                }
                versions = 0;
                bytes += row.key.len() + row.value.len();
                expected.push(row);
            }
            // Which entries end a block is not known here: there a copy ends that has enough.
            let may_end = expected.len() >= limits.wanted && expected.len() == out.ends.len();
            let ends = may_end && end == CopyEnd::Full && place.as_ref() == Some(row);
            if ends || expected.len() >= limits.welcome || bytes >= limits.full_bytes {
                break CopyEnd::Full;
            }
            at += 1;
        };
        let is_after = end == CopyEnd::Full && place.is_some() && place.as_ref() == rows.get(at + 1);
        assert!(end == expected_end && (is_after || place.as_ref() == rows.get(at)), "{end:?} {limits:?}");
        assert_eq!(out.ends.len(), expected.len(), "{limits:?}");
        for (number, row) in expected.iter().enumerate() {
            let ends = out.ends[number];
            let value = &out.bytes[ends.key as usize..ends.value as usize];
            assert_eq!((out.key(number), value), (Some(&row.key[..]), &row.value[..]));
        }
    }
}

fn check_summary(summary: &TableSummary, table: &TableReader, rows: &[Row]) {
    assert_eq!(table.summary(), summary);
    assert_eq!(summary.entries, rows.len() as u64);
    let deletes = rows.iter().filter(|row| row.kind == EntryKind::Delete).count();
    assert_eq!(summary.deletes, deletes as u64);
    assert_eq!(summary.smallest, rows[0].key);
    let upper = [&rows[rows.len() - 1].key[..], &[0]].concat();
    assert_eq!(summary.upper.as_deref(), Some(&upper[..]));
    let seqs = || rows.iter().map(|row| row.seq);
    assert_eq!((Some(summary.smallest_seq), Some(summary.largest_seq)), (seqs().min(), seqs().max()));
    let mut content = ContentDigest::new();
    rows.iter().rev().for_each(|row| content.add(&row.key, row.seq, row.kind, &row.value));
    assert_eq!(summary.content, content);
}

/// Checks that the pieces between cuts have every key once, and that their sizes add up to the
/// file's.
fn check_cuts(table: &TableReader) {
    let summary = table.summary();
    assert_eq!(table.bytes_between(&summary.smallest, None), summary.file_bytes);
    assert_eq!(table.bytes_between(&summary.smallest, summary.upper.as_deref()), summary.file_bytes);
    for every_bytes in [1, 500, 20_000, u64::MAX] {
        let cuts = table.split_keys(every_bytes);
        assert!(cuts.windows(2).all(|pair| pair[0] < pair[1]), "cuts do not ascend");
        assert!(cuts.first().is_none_or(|cut| *cut > summary.smallest));
        let mut lower = summary.smallest.clone();
        let mut total = 0;
        for upper in cuts.iter().map(Some).chain([None]) {
            total += table.bytes_between(&lower, upper.map(|upper| &upper[..]));
            lower = upper.cloned().unwrap_or_default();
        }
        let rounding = cuts.len() as u64 + 1;
        assert!(total <= summary.file_bytes && total + rounding >= summary.file_bytes);
        assert!(every_bytes < u64::MAX || cuts.is_empty());
    }
}

#[test]
fn random_tables_answer_as_a_sorted_list_does() {
    for seed in 0..60u64 {
        let dice = Dice::new(seed);
        let rows = random_rows(&dice);
        let block_bytes = [64, 128, 1_000, 4_096, 65_536][dice.below(5)];
        for compression in Compression::ALL {
            println!("seed {seed} compression {compression} block_bytes {block_bytes} rows {}", rows.len());
            let mut rig = Rig::new(compression, block_bytes);
            rig.options.digest = DigestFn::new(DigestKind::ALL[dice.below(7)], seed);
            rig.options.block_tags = dice.below(3) > 0;
            rig.hold = Residency::ALL[dice.below(3)];
            let summary = rig.write(&rows, &[]);
            let table = rig.open().expect("opened");
            check_summary(&summary, &table, &rows);
            check_lookups(&rig, &table, &rows);
            check_seeks(&table, &rows);
            check_walks(&table, &rows, &dice);
            check_copies(&table, &rows, &dice);
            check_cuts(&table);
            assert_eq!(table.verify().iter().map(Error::to_string).collect::<Vec<_>>(), [""; 0]);
        }
    }
}

#[test]
fn blocks_keep_to_their_size_and_place() {
    let rows: Vec<Row> = (0..3_000u64)
        .map(|i| {
            row(format!("key{i:06}"), i + 1, format!("{:x}", i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).repeat(3))
        })
        .collect();
    for compression in Compression::ALL {
        let rig = Rig::new(compression, 4_096);
        rig.write(&rows, &[]);
        let described = describe(&rig.env, &rig.path(), Some(rig.options.birth)).expect("described");
        assert!(described.blocks.len() > 20);
        assert_eq!(described.blocks.iter().map(|block| block.entries).sum::<u64>(), 3_000);
        let mut end = 4_096;
        for block in &described.blocks {
            assert!(block.payload_bytes + 5 <= 4_096);
            assert_eq!(block.compression, compression);
            let expected = if compression == Compression::None { end } else { block.offset };
            assert_eq!(block.offset, expected);
            end = (block.offset + block.bytes).next_multiple_of(4_096);
        }
        let text = described.to_string();
        for part in
            ["version 1", "digest xxh3 seed 000000000000002a", "\"key000000\"", "filter", "properties"]
        {
            assert!(text.contains(part), "{part} is missing from\n{text}");
        }
    }
}

#[test]
fn a_lookup_reads_one_block_and_the_cache_keeps_it() {
    // Versions of one key over many blocks: the separators carry sequence numbers, so one read
    // suffices.
    let rows: Vec<Row> = (0..400u64).rev().map(|seq| row(b"the key", 2 * seq + 2, [7; 40])).collect();
    let rig = Rig::new(Compression::None, 256);
    rig.write(&rows, &[]);
    let table = rig.open().expect("opened");
    let digest = rig.options.digest.digest(b"the key");
    for seq in 1..=801u64 {
        let mut io = ReadCounters::default();
        let found = table.get(b"the key", SeqNo(seq), digest, ValueMode::Copy, &mut io).expect("a get");
        assert_eq!(found.map(|entry| entry.seq), (seq > 1).then_some(SeqNo(seq / 2 * 2)));
        assert_eq!(io.data.count + io.cache_hits, 1);
        let mut again = ReadCounters { timed: true, ..ReadCounters::default() };
        table.get(b"the key", SeqNo(seq), digest, ValueMode::Copy, &mut again).expect("a get");
        assert_eq!((again.data.count, again.cache_hits), (0, 1));
    }
    let hashes = shamba_key::hashes_on_this_thread();
    rig.cache.remove_table(rig.options.id);
    let mut io = ReadCounters::default();
    let absent = table.get(b"zzz", SeqNo::MAX, digest, ValueMode::Copy, &mut io).expect("a get");
    assert_eq!((absent, io), (None, ReadCounters::default()), "beyond the last separator nothing is read");
    assert_eq!(shamba_key::hashes_on_this_thread(), hashes, "a reader hashes no key");
    let mut iter = table.iter(false);
    iter.seek_to_first().expect("first");
    let data_reads = |iter: &mut TableIter| {
        let mut io = ReadCounters::default();
        iter.move_counters_to(&mut io);
        io.data.count
    };
    assert_eq!(data_reads(&mut iter), 1);
    iter.seek_to_last().expect("last");
    iter.seek_to_first().expect("first");
    assert_eq!(data_reads(&mut iter), 2, "a walk that shall not fill the cache does not");
    assert_eq!(data_reads(&mut iter), 0, "they were taken");
}

#[test]
fn the_ledger_knows_what_an_open_table_holds_and_forgets_it() {
    let rig = Rig::new(Compression::Lz4, 4_096);
    rig.write(&(0..2_000).map(|i| row(format!("{i:05}"), 1, b"v")).collect::<Vec<_>>(), &[]);
    let table = rig.open().expect("opened");
    assert!(rig.ledger.bytes(LedgerPart::Filters) >= 2_500);
    assert!(rig.ledger.bytes(LedgerPart::Indexes) >= 100);
    assert!(rig.ledger.bytes(LedgerPart::TableMeta) > 0);
    drop(table);
    assert_eq!(rig.ledger.total(), 0);
}
