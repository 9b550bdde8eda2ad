//! Tests of file access: direct I/O, few open files, deleted files, many threads on a small cache.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use shamba_env::{Effect, FaultFs, FaultRule, OpKind};

/// Entries in blocks of a page, some blocks of one large entry.
fn rows() -> Vec<Row> {
    let value = |i: usize| vec![(i * 7) as u8; if i % 400 == 17 { 9_000 + i } else { 20 + i % 300 }];
    (0..3_000).map(|i| row(format!("{i:06}"), i as u64 % 9, value(i))).collect()
}

fn check_everything(rig: &Rig, table: &Arc<TableReader>, rows: &[Row]) {
    for wanted in rows.iter().chain(rows) {
        let found = rig.get(table, &wanted.key, SeqNo::MAX).expect("a get").expect("there");
        assert!(found.value == wanted.value, "{:?}", wanted.key);
    }
    for fill_cache in [false, true] {
        let mut iter = table.iter(fill_cache);
        iter.seek_to_first().expect("first");
        for wanted in rows {
            assert_eq!(current(&iter).as_ref(), Some(wanted));
            iter.next().expect("next");
        }
        assert!(!iter.valid());
    }
    assert_eq!(table.verify().len(), 0);
}

#[test]
fn direct_reads_are_aligned_whatever_is_read() {
    // The in-memory file system rejects unaligned direct reads.
    for compression in Compression::ALL {
        for (block_bytes, cache_bytes) in [(4_096, 1 << 20), (4_096, 0), (1_000, 1 << 20), (20_000, 4 << 20)]
        {
            let mut rig = Rig::new(compression, block_bytes);
            rig.cache = Arc::new(BlockCache::new(cache_bytes, Arc::clone(&rig.ledger)));
            rig.direct_io = true;
            let faults = Arc::new(FaultFs::new(Arc::clone(&rig.env.vfs), 1));
            faults.add_rule(FaultRule::storm(0.2, Effect::ShortRead).on(&[OpKind::Read]));
            faults.add_rule(FaultRule::storm(0.2, Effect::Eintr).on(&[OpKind::Read]));
            rig.env.vfs = faults;
            rig.write(&rows(), &[tombstone("0", None, 3)]);
            let table = rig.open().expect("opened");
            assert!(table.is_direct());
            check_everything(&rig, &table, &rows());
        }
    }
}

#[test]
fn direct_reads_of_a_real_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut rig = Rig::new(Compression::None, 4_096);
    rig.write(&rows(), &[]);
    std::fs::write(dir.path().join(table_file_name(rig.options.id)), rig.bytes()).expect("copied");
    rig.env = Env::real();
    rig.direct_io = true;
    let table = rig.open_in(dir.path()).expect("opened");
    if !table.is_direct() {
        println!("skipped: the file system of temporary files has no direct I/O");
    }
    check_everything(&rig, &table, &rows());
}

#[test]
fn few_open_files_serve_many_tables_and_a_lost_one_is_named() {
    let mut rig = Rig::new(Compression::Lz4, 4_096);
    rig.files = Arc::new(OpenFiles::new(2));
    let tables: Vec<(TableId, Arc<TableReader>)> = (1..=6)
        .map(|id| {
            rig.options.id = TableId(id);
            rig.write(&[row(format!("key of {id}"), 1, b"v")], &[]);
            (rig.options.id, rig.open().expect("opened"))
        })
        .collect();
    for _ in 0..3 {
        for (id, table) in &tables {
            rig.cache.remove_table(*id);
            assert!(
                rig.get(table, format!("key of {}", id.0).as_bytes(), SeqNo::MAX).expect("a get").is_some()
            );
            assert!(rig.files.open_count() <= 2);
        }
    }
    assert!(rig.files.reopens() >= 12);
    let (id, table) = &tables[0];
    rig.cache.remove_table(*id);
    let path = Path::new(DIR).join(table_file_name(*id));
    rig.env.vfs.unlink(&path).expect("unlinked");
    match rig.get(table, b"key of 1", SeqNo::MAX) {
        Err(Error::Io { file, op, source }) => {
            assert_eq!((file, op.as_ref(), source.kind()), (path, "open", std::io::ErrorKind::NotFound));
        }
        other => panic!("{other:?}"),
    }
    drop(tables);
    assert_eq!(rig.files.open_count(), 0);
}

#[test]
fn another_file_under_the_path_of_a_closed_one_does_not_pass_for_it() {
    let mut rig = Rig::new(Compression::None, 4_096);
    rig.files = Arc::new(OpenFiles::new(1));
    let [first, second] = [1, 2].map(|birth| {
        rig.options.birth = BirthId(birth);
        rig.write(&[row("key", birth, b"v")], &[]);
        let table = rig.open().expect("opened");
        rig.env.vfs.unlink(&rig.path()).expect("unlinked");
        table
    });
    rig.write(&[row("key", 2, b"v")], &[]);
    assert!(rig.get(&second, b"key", SeqNo::MAX).expect("its own file").is_some());
    let swapped = rig.get(&first, b"key", SeqNo::MAX).expect_err("the other's file");
    assert!(swapped.is_corruption(), "{swapped}");
}

#[test]
fn every_way_to_a_block_gives_the_same_entry() {
    for hold in Residency::ALL {
        every_way_to_a_block(hold);
    }
}

fn every_way_to_a_block(hold: Residency) {
    let mut rig = Rig::new(Compression::None, 4_096);
    rig.hold = hold;
    rig.write(&rows(), &[]);
    let table = rig.open().expect("opened");
    let mut io = ReadCounters::default();
    for wanted in &rows() {
        let digest = rig.options.digest.digest(&wanted.key);
        let locate = || table.locate(&wanted.key, SeqNo::MAX, &mut ReadCounters::default());
        let at = locate().expect("an index").expect("a block");
        for mode in [ValueMode::Absent, ValueMode::Copy, ValueMode::Pin] {
            let expected = if mode == ValueMode::Absent { &[] } else { &wanted.value[..] };
            rig.cache.remove_table(rig.options.id);
            assert!(!table.prefetch_block(&at));
            for hit in 0..2 {
                let reads = io.data.count;
                let entry = table.get_at(at, &wanted.key, SeqNo::MAX, digest, mode, &mut io).expect("a get");
                let entry = entry.expect("there");
                assert_eq!((entry.seq, entry.kind, &entry.value[..]), (wanted.seq, wanted.kind, expected));
                let is_kept = hold != Residency::Budgeted;
                let read = if is_kept { 1 - hit } else { 1 };
                assert_eq!(
                    io.data.count - reads,
                    read,
                    "the second comes from the cache, if it is found there"
                );
                rig.cache.set_capacity_bytes(0);
                assert_eq!(&entry.value[..], expected, "a value outlives its block's stay in the cache");
                assert_eq!(entry.value.clone().into_bytes(), expected);
                rig.cache.set_capacity_bytes(1 << 20);
                let read = table.block_to_read(&at, &mut io).expect("an index");
                let loaded =
                    read.and_then(|(block, read)| table.take_block(&block, read, &mut io).expect("loaded"));
                assert_eq!(loaded.is_some(), !is_kept);
                let again = locate().expect("an index").expect("a block");
                assert!(again.is_same_block(&at) && table.prefetch_block(&again) == is_kept);
                if let Some(loaded) = loaded {
                    let reads = io.data.count;
                    let entry = table.get_from(&loaded, at, &wanted.key, SeqNo::MAX, digest, mode, &mut io);
                    let entry = entry.expect("a get").expect("there");
                    assert_eq!(
                        (entry.seq, entry.kind, &entry.value[..]),
                        (wanted.seq, wanted.kind, expected)
                    );
                    assert_eq!(io.data.count, reads);
                }
            }
        }
        let sequence = SeqNo(wanted.seq.0.wrapping_sub(1));
        if wanted.seq > SeqNo::ZERO {
            assert!(
                table.get(&wanted.key, sequence, digest, ValueMode::Pin, &mut io).expect("a get").is_none()
            );
        }
    }
    drop(table);
    rig.cache.set_capacity_bytes(0);
    assert_eq!(rig.ledger.total(), 0);
}

#[test]
fn a_full_cache_keeps_little_of_what_is_read_quickly_and_all_that_is_read_slowly() {
    for compression in Compression::ALL {
        let mut rig = Rig::new(compression, 1_000);
        rig.cache = Arc::new(BlockCache::new(100_000, Arc::clone(&rig.ledger)));
        rig.write(&rows(), &[]);
        let table = rig.open().expect("opened");
        check_everything(&rig, &table, &rows());
        let dice = Dice::new(5);
        // The share of blocks that are read although they were requested just before.
        let read_again = |reads: u64| {
            let (mut io, rows) = (ReadCounters::default(), rows());
            for _ in 0..reads {
                let wanted = &rows[dice.below(rows.len())];
                let digest = rig.options.digest.digest(&wanted.key);
                let mode = [ValueMode::Copy, ValueMode::Pin][dice.below(2)];
                for turn in 0..2 {
                    let before = io.data.count;
                    let found = table.get(&wanted.key, SeqNo::MAX, digest, mode, &mut io).expect("a get");
                    assert_eq!(&found.expect("there").value[..], &wanted.value[..]);
                    io.data.count = if turn == 0 { before } else { io.data.count };
                }
            }
            io.data.count as f64 / reads as f64
        };
        rig.cache.note_read(4_096, 1_000);
        let quick = read_again(2_000);
        (0..50).for_each(|_| rig.cache.note_read(4_096, 1_000_000));
        let slow = read_again(100);
        assert!(quick > 0.7 && slow == 0.0, "{compression}: {quick} quickly, {slow} slowly");
        (0..50).for_each(|_| rig.cache.note_read(4_096, 1_000));
        let mut bytes = rig.bytes();
        let described = describe(&rig.env, &rig.path(), None).expect("described");
        described.blocks.iter().for_each(|block| bytes[block.offset as usize + 9] ^= 1);
        rig.damage_in_place(&bytes);
        let mut failed = 0;
        for wanted in &rows() {
            match rig.get(&table, &wanted.key, SeqNo::MAX) {
                Ok(found) => assert_eq!(&found.expect("cached").value[..], &wanted.value[..]),
                Err(error) => {
                    let offset = offset_of(error);
                    assert!(described.blocks.iter().any(|block| block.offset == offset));
                    failed += 1;
                }
            }
        }
        assert!(failed > 2_000, "{failed} of 3,000 lookups met damage");
    }
}

/// The slots of each table name frames that other tables' blocks have taken over since.
#[test]
fn tables_that_share_a_small_cache_never_get_each_others_blocks() {
    let mut rig = Rig::new(Compression::Lz4, 1_000);
    rig.cache = Arc::new(BlockCache::new(60_000, Arc::clone(&rig.ledger)));
    let tables: Vec<(Vec<Row>, Arc<TableReader>)> = (0..4u8)
        .map(|number| {
            rig.options.id = TableId(10 + u64::from(number));
            rig.options.birth = BirthId(100 + u64::from(number));
            let rows: Vec<Row> = (0..600).map(|i| row(format!("{i:06}"), 1, [number; 90])).collect();
            rig.write(&rows, &[]);
            (rows, rig.open().expect("opened"))
        })
        .collect();
    let dice = Dice::new(7);
    for _ in 0..10_000 {
        // With slow reads, every block is admitted.
        rig.cache.note_read(4_096, 1_000_000);
        let (rows, table) = &tables[dice.below(tables.len())];
        let wanted = &rows[dice.below(rows.len())];
        let found = rig.get(table, &wanted.key, SeqNo::MAX).expect("a get").expect("there");
        assert_eq!(&found.value[..], &wanted.value[..], "a block of another table");
    }
}

#[test]
fn threads_share_tables_in_a_cache_that_changes_its_size() {
    let rig = Rig::new(Compression::Lz4, 4_096);
    let rows = rows();
    rig.write(&rows, &[]);
    let table = rig.open().expect("opened");
    let gets = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for seed in 0..3 {
            let (rig, table, rows, gets) = (&rig, &table, &rows, &gets);
            scope.spawn(move || {
                let dice = Dice::new(seed);
                let mut kept = Vec::new();
                let mut io = ReadCounters::default();
                while gets.fetch_add(1, Ordering::Relaxed) < 60_000 {
                    let wanted = &rows[dice.below(rows.len())];
                    let mode = [ValueMode::Copy, ValueMode::Pin][dice.below(2)];
                    let digest = rig.options.digest.digest(&wanted.key);
                    let entry = table.get(&wanted.key, SeqNo::MAX, digest, mode, &mut io);
                    kept.push((wanted, entry.expect("a get").expect("there")));
                    if kept.len() > 30 {
                        let (wanted, entry) = kept.swap_remove(dice.below(30));
                        assert!(entry.value == wanted.value, "seed {seed}");
                    }
                }
                assert!(kept.iter().all(|(wanted, entry)| entry.value == wanted.value));
            });
        }
        let mut size = 0;
        while gets.load(Ordering::Relaxed) < 60_000 {
            size = (size + 1) % 3;
            rig.cache.set_capacity_bytes([1 << 20, 200_000, 600_000][size]);
            rig.cache.remove_table(TableId(size as u64 + 6));
            std::thread::yield_now();
        }
    });
}
