//! Tests of index partitions on demand: the same answers in every residency mode and while
//! residency changes; the cost of each lookup; the ledger; damage that is found when a partition is
//! read.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

/// Rows that fill enough small blocks for many index partitions, including keys with versions that
/// span blocks.
fn rows() -> Vec<Row> {
    let mut rows: Vec<Row> = (0..9_000u32).map(|i| row(format!("key{i:06}"), 1, [i as u8; 24])).collect();
    for key in ["key001000", "key004444"] {
        rows.extend((2..400u64).map(|seq| row(key, 3 * seq, [seq as u8; 24])));
    }
    sorted(rows)
}

fn rig(hold: Residency) -> Rig {
    let mut rig = Rig::new(Compression::None, 128);
    rig.hold = hold;
    rig
}

/// A table of [`rows`] whose index has this residency mode.
fn table(hold: Residency) -> (Rig, Arc<TableReader>) {
    let rig = rig(hold);
    rig.write(&rows(), &[]);
    let table = rig.open().expect("opened");
    assert!(table.index_partitions() > 20, "{} partitions", table.index_partitions());
    (rig, table)
}

/// Checks the exact bytes that the ledger has for the index.
fn check_ledger(rig: &Rig, table: &TableReader) {
    assert_eq!(rig.ledger.bytes(LedgerPart::Indexes), table.index_resident_bytes());
}

fn change_residency(table: &TableReader, dice: &Dice) {
    let number = dice.below(table.index_partitions());
    match dice.below(2) {
        0 => table.hold_partition(number).expect("held"),
        _ => table.drop_partition(number),
    }
}

/// Performs one random read of the table and compares the answer.
fn ask(rig: &Rig, table: &Arc<TableReader>, iter: &mut TableIter, rows: &[Row], dice: &Dice) {
    let place = dice.below(rows.len());
    let mut key = rows[place].key.clone();
    if dice.below(4) == 0 {
        key.push(b'x');
    }
    let seq = SeqNo([0, 1, 7, 500, 1_200, SeqNo::MAX.0][dice.below(6)]);
    if dice.below(2) == 0 {
        let found = rig.get(table, &key, seq).expect("a get");
        let expected = newest(rows, &key, seq);
        assert_eq!(
            found.map(|entry| (entry.seq, entry.value.to_vec())),
            expected.map(|r| (r.seq, r.value.clone()))
        );
        return;
    }
    let lower = rows.partition_point(|row| internal_cmp(&row.key, row.seq, &key, seq).is_lt());
    let upper = rows.partition_point(|row| internal_cmp(&row.key, row.seq, &key, seq).is_le());
    let mut at = match dice.below(2) {
        0 => {
            iter.seek(&key, seq).expect("a seek");
            (lower < rows.len()).then_some(lower)
        }
        _ => {
            iter.seek_for_prev(&key, seq).expect("a seek");
            upper.checked_sub(1)
        }
    };
    let forward = dice.below(2) == 0;
    for _ in 0..dice.below(60) {
        assert_eq!(current(iter).as_ref(), at.map(|at| &rows[at]));
        let Some(place) = at else { break };
        at = if forward {
            iter.next().expect("next");
            Some(place + 1).filter(|next| *next < rows.len())
        } else {
            iter.prev().expect("prev");
            place.checked_sub(1)
        };
    }
    assert_eq!(current(iter).as_ref(), at.map(|at| &rows[at]));
}

/// Looks up several keys, reading what is not in memory first, and compares the answers.
fn ask_for_many(rig: &Rig, table: &Arc<TableReader>, rows: &[Row], dice: &Dice) {
    let seq = SeqNo([0, 1, 500, 1_200, SeqNo::MAX.0][dice.below(5)]);
    let near = dice.below(rows.len());
    let keys: Vec<Vec<u8>> = (0..dice.below(12))
        .map(|_| match dice.below(3) {
            0 => rows[near.saturating_add(dice.below(40)).min(rows.len() - 1)].key.clone(),
            1 => rows[dice.below(rows.len())].key.clone(),
            _ => [&rows[dice.below(rows.len())].key[..], b"x"].concat(),
        })
        .collect();
    let mut io = ReadCounters::default();
    let mut located: Vec<Option<Located>> = vec![None; keys.len()];
    let mut absent: Vec<(AbsentPartition, Vec<usize>)> = Vec::new();
    for (place, key) in keys.iter().enumerate() {
        match table.find(key, seq, &mut io).expect("an index") {
            Find::At(block) => located[place] = Some(block),
            Find::Beyond => {}
            Find::Absent(partition) => match absent.iter_mut().find(|(other, _)| *other == partition) {
                Some((_, places)) => places.push(place),
                None => absent.push((partition, vec![place])),
            },
        }
    }
    let (of_files, before) = (absent.len() as u64, io.index.count);
    for (partition, places) in absent {
        let keys: Vec<&Vec<u8>> = places.iter().map(|place| &keys[*place]).collect();
        let found = if dice.below(2) == 0 {
            table.locate_all(partition, &keys, seq, &mut io)
        } else {
            let read = table.partition_to_read(partition).expect("a file");
            table.locate_in(partition, read.expect("short"), &keys, seq, &mut io)
        };
        for (place, found) in places.into_iter().zip(found.expect("an index")) {
            located[place] = Some(found);
        }
    }
    assert!(io.index.count - before <= of_files, "a partition is read for each of its keys");
    for (key, located) in keys.iter().zip(located) {
        let found = located.and_then(|block| {
            let digest = rig.options.digest.digest(key);
            let read = if dice.below(2) == 0 {
                table.block_to_read(&block, &mut io).expect("an index")
            } else {
                None
            };
            let loaded =
                read.and_then(|(to_take, read)| table.take_block(&to_take, read, &mut io).expect("a block"));
            match loaded {
                Some(loaded) => table.get_from(&loaded, block, key, seq, digest, ValueMode::Copy, &mut io),
                None => table.get_at(block, key, seq, digest, ValueMode::Copy, &mut io),
            }
            .expect("a get")
        });
        let expected = newest(rows, key, seq).map(|row| (row.seq, row.value.clone()));
        assert_eq!(found.map(|entry| (entry.seq, entry.value.to_vec())), expected, "{key:?} at {seq}");
    }
}

#[test]
fn lookups_and_walks_agree_with_a_sorted_list_whatever_is_resident() {
    let rows = rows();
    for hold in Residency::ALL {
        let (rig, table) = table(hold);
        for seed in 0..4u64 {
            println!("seed {seed}, {hold}");
            let dice = Dice::new(seed);
            // With little memory, partitions and blocks evict each other.
            rig.cache.set_capacity_bytes([1 << 20, 40 << 10, 0][dice.below(3)]);
            let mut iters = [table.iter(true), table.iter(false), table.walk(Walk::Whole { bytes: 2_000 })];
            let idle_bytes = rig.ledger.bytes(LedgerPart::Iterators);
            for _ in 0..1_500 {
                change_residency(&table, &dice);
                check_ledger(&rig, &table);
                ask(&rig, &table, &mut iters[dice.below(3)], &rows, &dice);
                ask_for_many(&rig, &table, &rows, &dice);
            }
            iters.iter_mut().for_each(TableIter::release);
            assert_eq!(rig.ledger.bytes(LedgerPart::Iterators), idle_bytes);
        }
        drop(table);
        rig.cache.set_capacity_bytes(0);
        assert_eq!(rig.ledger.total(), 0, "{hold}");
    }
}

#[test]
fn readers_are_right_while_partitions_come_and_go() {
    let rows = rows();
    for hold in [Residency::Budgeted, Residency::Cached] {
        let (rig, table) = table(hold);
        rig.cache.set_capacity_bytes(200 << 10);
        let is_over = AtomicBool::new(false);
        let (rig, table_ref, rows, is_over) = (&rig, &table, &rows, &is_over);
        std::thread::scope(|scope| {
            let readers: Vec<_> = (0..3u64)
                .map(|seed| {
                    scope.spawn(move || {
                        let dice = Dice::new(seed);
                        let mut iter = table_ref.iter(seed == 0);
                        for _ in 0..4_000 {
                            match dice.below(4) {
                                0 => ask_for_many(rig, table_ref, rows, &dice),
                                _ => ask(rig, table_ref, &mut iter, rows, &dice),
                            }
                        }
                    })
                })
                .collect();
            scope.spawn(move || {
                let dice = Dice::new(99);
                while !is_over.load(Ordering::Relaxed) {
                    change_residency(table_ref, &dice);
                    table_ref.note_index_search(dice.below(4));
                    table_ref.index_searches(dice.below(4));
                    table_ref.halve_index_searches();
                }
            });
            let results: Vec<_> = readers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
            is_over.store(true, Ordering::Relaxed);
            assert!(results.iter().all(|result| result.is_ok()), "a reader failed");
        });
        check_ledger(rig, &table);
        drop(table);
        rig.cache.set_capacity_bytes(0);
        assert_eq!(rig.ledger.total(), 0, "{hold}");
    }
}

#[test]
fn a_lookup_reads_an_absent_partition_once_and_a_resident_one_never() {
    let rows = rows();
    for hold in Residency::ALL {
        let (rig, table) = table(hold);
        let reads = |wanted: &Row| {
            let mut io = ReadCounters::default();
            let digest = rig.options.digest.digest(&wanted.key);
            let found = table.get(&wanted.key, wanted.seq, digest, ValueMode::Copy, &mut io).expect("a get");
            assert_eq!(found.map(|entry| entry.seq), Some(wanted.seq));
            (io.index.count, io.data.count, io.cache_hits)
        };
        for wanted in rows.iter().step_by(301) {
            let again = match hold {
                Residency::Pinned => [(0, 1, 0), (0, 0, 1)],
                Residency::Cached => [(1, 1, 0), (0, 0, 1)],
                Residency::Budgeted => [(1, 1, 0), (1, 1, 0)],
            };
            let first = reads(wanted);
            // Another row of the same partition may have caused its admission.
            assert!(
                first == again[0] || hold == Residency::Cached && first == (0, 1, 0),
                "{hold}: {first:?}"
            );
            assert_eq!(reads(wanted), again[1], "{hold}");
        }
        if hold != Residency::Budgeted {
            continue;
        }
        for number in 0..table.index_partitions() {
            assert!(!table.is_partition_resident(number));
            table.hold_partition(number).expect("held");
            assert!(table.is_partition_resident(number));
        }
        for wanted in rows.iter().step_by(301) {
            assert_eq!([reads(wanted), reads(wanted)], [(0, 1, 0), (0, 0, 1)]);
        }
        // Dropping a partition drops the frame slots of its blocks.
        (0..table.index_partitions()).for_each(|number| table.drop_partition(number));
        for wanted in rows.iter().step_by(301) {
            assert_eq!(reads(wanted), (1, 1, 0));
        }
    }
}

#[test]
fn walks_read_each_absent_partition_once_and_hold_one_at_a_time() {
    let rows = rows();
    for walk in [Walk::Parts { fill_cache: false, ahead_bytes: AHEAD_BYTES }, Walk::Whole { bytes: 64 << 10 }]
    {
        let (rig, table) = table(Residency::Budgeted);
        let before = rig.ledger.bytes(LedgerPart::Indexes);
        let mut iter = table.walk(walk);
        iter.seek_to_first().expect("readable");
        let mut most = 0;
        for row in &rows {
            assert_eq!((iter.key(), iter.seq()), (&row.key[..], row.seq));
            most = most.max(rig.ledger.bytes(LedgerPart::Iterators));
            iter.next().expect("readable");
        }
        assert!(!iter.valid());
        let mut counters = ReadCounters::default();
        iter.move_counters_to(&mut counters);
        assert_eq!(counters.index.count, table.index_partitions() as u64);
        // The current partition, and the read-ahead: at most the blocks of one partition.
        assert!(most <= (4 << 10) + (64 << 10), "{most} bytes");
        assert_eq!(rig.ledger.bytes(LedgerPart::Indexes), before, "a walk takes nothing into memory");
    }
}

#[test]
fn cuts_do_not_depend_on_what_is_resident_and_sizes_hardly_do() {
    let (_pinned_rig, pinned) = table(Residency::Pinned);
    for hold in [Residency::Budgeted, Residency::Cached] {
        let (rig, table) = table(hold);
        let largest = 2 * table.summary().file_bytes / table.index_partitions() as u64;
        for every_bytes in [1, 4_000, 60_000, 300_000, u64::MAX] {
            let before = rig.ledger.bytes(LedgerPart::Indexes);
            let cuts = table.split_keys(every_bytes);
            assert_eq!(cuts, pinned.split_keys(every_bytes), "every {every_bytes} bytes");
            assert_eq!(rig.ledger.bytes(LedgerPart::Indexes), before);
            for pair in cuts.windows(2).step_by(1 + cuts.len() / 50) {
                let between = |table: &TableReader| table.bytes_between(&pair[0], Some(&pair[1]));
                // No partition is read for it: in the partitions at the ends, keys are assumed to
                // be evenly distributed.
                let off = between(&table).abs_diff(between(&pinned));
                assert!(off <= 2 * largest, "{off} bytes off, of partitions of {largest}");
            }
        }
        assert!(table.verify().is_empty());
    }
}

#[test]
fn a_table_in_the_budget_opens_with_nothing_resident_and_knows_what_it_would_take() {
    let (rig, table) = table(Residency::Budgeted);
    let (_pinned_rig, pinned) = self::table(Residency::Pinned);
    let nothing = rig.ledger.bytes(LedgerPart::Indexes);
    let partitions = table.index_partitions();
    assert_eq!(partitions, pinned.index_partitions());
    assert!(nothing < 150 * partitions as u64, "{nothing} bytes for {partitions} partitions");
    let mut sum = nothing;
    for number in 0..partitions {
        let about = table.partition_bytes(number);
        table.hold_partition(number).expect("held");
        let exact = table.partition_bytes(number);
        assert_eq!(exact, pinned.partition_bytes(number));
        assert!(about.abs_diff(exact) * 4 < exact, "about {about}, {exact} in truth");
        sum += exact;
        assert_eq!(rig.ledger.bytes(LedgerPart::Indexes), sum);
        table.hold_partition(number).expect("held already");
        assert_eq!(rig.ledger.bytes(LedgerPart::Indexes), sum);
    }
    assert!(table.partition_stored_bytes(0) > 0);
    for number in 0..partitions {
        sum -= table.partition_bytes(number);
        table.drop_partition(number);
        assert_eq!(rig.ledger.bytes(LedgerPart::Indexes), sum);
    }
    assert_eq!(sum, nothing);
    // Partition numbers past the last one have no effect.
    table.hold_partition(partitions).expect("nothing");
    table.drop_partition(partitions);
    table.note_index_search(partitions);
    assert_eq!((table.partition_stored_bytes(partitions), table.index_searches(partitions)), (0, 0));
    (0..3).for_each(|_| table.note_index_search(1));
    assert_eq!(table.index_searches(1), 3);
    table.halve_index_searches();
    assert_eq!(table.index_searches(1), 1);
    // In the other modes residency cannot be changed.
    pinned.drop_partition(0);
    pinned.note_index_search(0);
    assert!(pinned.is_partition_resident(0) && pinned.index_searches(0) == 0);
}

#[test]
fn a_dropped_partition_leaves_no_unfindable_blocks_in_the_cache() {
    let (rig, table) = table(Residency::Budgeted);
    // A cache with room for the blocks of one partition and a few more.
    table.hold_partition(0).expect("held");
    let of_first = |row: &&Row| {
        let at = table.locate(&row.key, row.seq, &mut ReadCounters::default()).expect("an index");
        at.expect("a block").partition() == 0
    };
    let rows = rows();
    let firsts: Vec<&Row> = rows.iter().take_while(of_first).collect();
    for _ in 0..20 {
        for row in &firsts {
            rig.get(&table, &row.key, row.seq).expect("a get");
        }
        let full = rig.cache.bytes();
        table.drop_partition(0);
        table.hold_partition(0).expect("held");
        for row in &firsts {
            rig.get(&table, &row.key, row.seq).expect("a get");
        }
        assert!(rig.cache.bytes() <= full + full / 8, "{} bytes after {full}", rig.cache.bytes());
    }
}

#[test]
fn a_damaged_partition_is_an_error_where_it_is_met_and_nowhere_else() {
    let rows = rows();
    for hold in [Residency::Budgeted, Residency::Cached] {
        let (rig, table) = table(hold);
        let intact = rig.bytes();
        let described = describe(&rig.env, &rig.path(), None).expect("described");
        let section = described.sections.iter().find(|section| section.kind == SectionKind::Index);
        let start = section.expect("an index").offset;
        // The second partition follows the first, whose length is known.
        let offset = start + table.partition_stored_bytes(0);
        for at in [0, 5, 900, table.partition_stored_bytes(1) - 1] {
            let mut bytes = intact.clone();
            bytes[(offset + at) as usize] ^= 0x04;
            let file = rig.damage_in_place(&bytes);
            rig.cache.remove_table(rig.options.id);
            let met = |error: Error| match error {
                Error::Corruption { file, offset: found, structure, .. } => {
                    assert_eq!((file, found, structure), (rig.path(), offset, "index partition"));
                }
                other => panic!("{other:?}"),
            };
            let (mut right, mut damaged) = (0, 0);
            for row in rows.iter().step_by(7) {
                match rig.get(&table, &row.key, row.seq) {
                    Ok(found) => {
                        assert_eq!(found.expect("there").value, row.value[..]);
                        right += 1;
                    }
                    Err(error) => {
                        met(error);
                        damaged += 1;
                    }
                }
            }
            assert!(damaged > 0 && right > 10 * damaged, "{right} right, {damaged} damaged");
            for walk in [Walk::Parts { fill_cache: true, ahead_bytes: 0 }, Walk::Whole { bytes: 9_000 }] {
                let mut iter = table.walk(walk);
                let mut result = iter.seek_to_first();
                let mut steps = 0;
                while result.is_ok() && iter.valid() {
                    assert_eq!(iter.value(), rows[steps].value);
                    steps += 1;
                    result = iter.next();
                }
                met(result.expect_err("damage"));
                assert!(!iter.valid() && steps > 0);
            }
            let of_second = AbsentPartition(1);
            let read = table.partition_to_read(of_second).expect("the file is there").expect("short");
            let (mut io, key) = (ReadCounters::default(), &rows[0].key);
            met(table.locate_in(of_second, read, &[key], SeqNo::MAX, &mut io).expect_err("damage"));
            met(table.locate_all(of_second, &[key], SeqNo::MAX, &mut io).expect_err("damage"));
            if hold == Residency::Budgeted {
                met(table.hold_partition(1).expect_err("damage"));
                assert!(!table.is_partition_resident(1));
            }
            assert_eq!(damaged_offsets(&table), [offset], "reported once, and nothing else is damaged");
            // The estimates for compactions are given without an error.
            assert!(table.split_keys(20_000).len() > 5);
            assert!(table.bytes_between(b"key", None) > 0);
            let opened = rig.open().expect("an open reads no partition");
            assert_eq!(damaged_offsets(&opened), [offset]);
            drop(file);
            drop(rig.damage_in_place(&intact));
            let healed = rows.iter().step_by(7).all(|row| rig.get(&table, &row.key, row.seq).is_ok());
            assert!(healed && table.verify().is_empty(), "damage that is gone is not remembered");
        }
    }
}

#[test]
fn a_partition_resident_when_its_file_was_damaged_still_answers() {
    let rows = rows();
    let (rig, table) = table(Residency::Budgeted);
    (0..table.index_partitions()).for_each(|number| table.hold_partition(number).expect("held"));
    let described = describe(&rig.env, &rig.path(), None).expect("described");
    let mut bytes = rig.bytes();
    let section = described.sections.iter().find(|section| section.kind == SectionKind::Index);
    let section = *section.expect("an index");
    bytes[section.offset as usize..section.end() as usize].fill(0xa5);
    let _file = rig.damage_in_place(&bytes);
    for row in rows.iter().step_by(11) {
        assert_eq!(rig.get(&table, &row.key, row.seq).expect("a get").expect("there").value, row.value[..]);
    }
    assert_eq!(table.verify().len(), table.index_partitions(), "every partition of the file, and no data");
}

#[test]
fn modules_that_rest_are_held_and_not_asked_and_nothing_is_read_for_it() {
    let rows = rows();
    let mut rig = rig(Residency::Budgeted);
    for layout in ["blocked", "modular:3", "ribbon:2"] {
        rig.options.filter_layout = layout.parse().expect("a layout");
        rig.cache.set_capacity_bytes(1 << 20);
        if rig.env.vfs.exists(&rig.path()).expect("asked") {
            rig.env.vfs.unlink(&rig.path()).expect("unlinked");
        }
        rig.write(&rows, &[]);
        let table = rig.open().expect("opened");
        let modules = table.filter_module_bytes().len();
        let digest = |key: &[u8]| rig.options.digest.digest(key);
        table.hold_filter(&[], Unasked::default()).expect("nothing is read");
        let held = |wanted: &[u32], unasked| table.hold_filter(wanted, unasked).expect("held");
        let all = [u32::MAX; 8];
        assert!(held(&all, Unasked::default()).slices_read > 0);
        let charged = rig.ledger.bytes(LedgerPart::Filters);
        for dormant in 0..1u8 << modules {
            let unasked = Unasked { fetched: 0, dormant };
            let before = table.filter().expect("a filter");
            let change = held(&all, unasked);
            let is_same = before.unasked() == unasked;
            assert_eq!(
                (change.changed, change.freed, change.slices_read),
                (!is_same, false, 0),
                "{dormant:b}"
            );
            assert!(!held(&all, unasked).changed, "{dormant:b}: it is so already");
            assert_eq!(rig.ledger.bytes(LedgerPart::Filters), charged);
            let filter = table.filter().expect("a filter");
            assert_eq!((filter.unasked(), filter.absent_slices()), (unasked, 0));
            let bytes: u64 = (0..modules)
                .filter(|module| dormant >> module & 1 == 1)
                .map(|module| filter.geometry().modules()[module].total_bytes())
                .sum();
            assert_eq!(filter.dormant_bytes(), bytes);
            let rows = rows.iter().step_by(97);
            for key in
                rows.clone().map(|row| row.key.clone()).chain(rows.map(|row| [&row.key, &b"x"[..]].concat()))
            {
                let digest = digest(&key);
                let whole = |module| in_file(&table, digest, module);
                for module in 0..modules {
                    let said = (dormant >> module & 1 == 0).then(|| whole(module));
                    assert_eq!(filter.module(digest, module), said, "{dormant:b}, module {module}");
                }
                let is_asked = dormant & 1 == 0 && filter.geometry().has_lines();
                assert_eq!(filter.ask(digest, true).is_answerable(), is_asked);
                if !key.ends_with(b"x") {
                    assert!(filter.may_contain(digest), "{dormant:b}: no key is denied");
                }
            }
        }
        // Bits of modules without a resident slice have no effect.
        let gone = held(&[], Unasked::default());
        assert!(gone.changed && gone.freed);
        assert!(!held(&[], Unasked { fetched: 0, dormant: 0xff }).changed);
    }
}

/// The answer of a module of the table's filter, from the file.
fn in_file(table: &TableReader, digest: shamba_key::KeyDigest, module: usize) -> bool {
    table.fetch_module(digest, module, &mut ReadCounters::default()).expect("read")
}
