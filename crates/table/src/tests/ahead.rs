//! Tests of read-ahead: fewer reads of the file and the same entries, for any iteration and any
//! disk fault.

use super::*;
use shamba_env::{Effect, FaultFs, FaultRule, OpKind};

fn rows() -> Vec<Row> {
    (0..3_000u32).map(|i| row(format!("{i:05}"), 1, [i as u8; 300])).collect()
}

/// A rig that counts reads, and its table.
fn counted(rows: &[Row], compression: Compression) -> (Rig, Arc<FaultFs>, Arc<TableReader>) {
    let mut rig = Rig::new(compression, 4_096);
    let faults = Arc::new(FaultFs::new(Arc::clone(&rig.env.vfs), 1));
    rig.env.vfs = Arc::clone(&faults) as Arc<dyn shamba_env::Vfs>;
    rig.write(rows, &[]);
    let table = rig.open().expect("opened");
    (rig, faults, table)
}

fn reads(faults: &FaultFs, act: impl FnOnce()) -> usize {
    faults.start_trace();
    act();
    faults.take_trace().iter().filter(|(kind, _)| *kind == OpKind::Read).count()
}

fn check_all(mut iter: TableIter, rows: &[Row]) {
    iter.seek_to_first().expect("readable");
    for row in rows {
        assert_eq!((iter.key(), iter.value()), (&row.key[..], &row.value[..]));
        iter.next().expect("readable");
    }
    assert!(!iter.valid());
}

#[test]
fn a_scan_reads_less_and_less_often_and_a_merge_seldom_from_the_start() {
    let rows = rows();
    for compression in [Compression::None, Compression::Lz4] {
        let (rig, faults, table) = counted(&rows, compression);
        // Thirteen entries of 313 bytes fill a block.
        let blocks = table.summary().entries / 12;
        let parts = |ahead_bytes| Walk::Parts { fill_cache: false, ahead_bytes };
        let one_by_one = reads(&faults, || check_all(table.walk(parts(0)), &rows));
        let scan = reads(&faults, || check_all(table.walk(parts(AHEAD_BYTES)), &rows));
        let merge = reads(&faults, || check_all(table.walk(Walk::Whole { bytes: 128 << 10 }), &rows));
        let bytes = table.summary().file_bytes as usize;
        assert!(one_by_one as u64 >= blocks * 8 / 10, "{one_by_one} reads");
        assert!(scan <= 10, "{scan} reads of a scan of {bytes} bytes");
        assert!(merge <= bytes / (64 << 10) + 1, "{merge} reads of a merge of {bytes} bytes");
        drop(rig);
    }
}

/// An iterator must not fall back to one read per block because a half-full cache has some of the
/// blocks.
#[test]
fn cached_blocks_do_not_end_a_scan() {
    let rows = rows();
    let scan = Walk::Parts { fill_cache: false, ahead_bytes: AHEAD_BYTES };
    // One in `one_of` blocks is not cached; the minimum factor by which there are fewer reads than
    // uncached blocks.
    for (direct_io, one_of, fewer) in [(false, 2, 4), (true, 2, 8), (true, 10, 2)] {
        let (mut rig, faults, _) = counted(&rows, Compression::None);
        rig.direct_io = direct_io;
        let table = rig.open().expect("opened");
        let mut iter = table.iter(true);
        let mut missing = 0;
        // Thirteen entries fill a block.
        for (number, row) in rows.iter().step_by(13).enumerate() {
            if number % one_of == 0 {
                missing += 1;
            } else {
                iter.seek(&row.key, SeqNo::MAX).expect("readable");
            }
        }
        let read = reads(&faults, || check_all(table.walk(scan), &rows));
        let what = format!("direct {direct_io}: {read} reads, {missing} blocks were not cached");
        assert!(read >= 2 && read * fewer <= missing, "{what}");
    }
}

#[test]
fn lookups_here_and_there_and_what_is_cached_are_not_read_ahead_of() {
    let rows = rows();
    let (rig, faults, table) = counted(&rows, Compression::None);
    let mut iter = table.iter(true);
    let found = reads(&faults, || {
        for row in rows.iter().step_by(100) {
            iter.seek(&row.key, SeqNo::MAX).expect("readable");
            assert_eq!(iter.key(), row.key);
        }
    });
    assert_eq!(found, rows.len() / 100, "one read for each");
    check_all(table.iter(true), &rows);
    let again = reads(&faults, || check_all(table.iter(true), &rows));
    assert_eq!(again, 0, "the first walk has filled the cache");
    drop(iter);
    assert_eq!(rig.ledger.bytes(LedgerPart::Iterators), 0);
    let held_bytes = || rig.ledger.bytes(LedgerPart::WriteBuffers);
    let mut walk = table.walk(Walk::Whole { bytes: 64 << 10 });
    let idle_bytes = held_bytes();
    assert!((1..4 << 10).contains(&idle_bytes), "{idle_bytes} bytes of an iterator without a block");
    walk.seek_to_first().expect("readable");
    let charged = held_bytes() - idle_bytes;
    assert!((60 << 10..=68 << 10).contains(&charged), "{charged} bytes charged");
    walk.release();
    assert_eq!(held_bytes(), idle_bytes);
    // A scan without memory reads block by block; a compaction has memory set aside.
    rig.ledger.limit(LedgerPart::Iterators, 8 << 10);
    walk.seek_to_first().expect("readable");
    assert!(held_bytes() > 60 << 10);
    let mut bytes_max = 0;
    let mut scan = table.walk(Walk::Parts { fill_cache: false, ahead_bytes: AHEAD_BYTES });
    rig.cache.remove_table(table.id());
    scan.seek_to_first().expect("readable");
    for row in &rows {
        assert_eq!((scan.key(), scan.value()), (&row.key[..], &row.value[..]));
        scan.next().expect("readable");
        bytes_max = bytes_max.max(rig.ledger.bytes(LedgerPart::Iterators));
    }
    assert!((4 << 10..=8 << 10).contains(&bytes_max), "{bytes_max} bytes charged");
}

#[test]
fn a_failed_read_ahead_is_an_error_there_and_the_walk_can_start_over() {
    let rows = rows();
    let (_rig, faults, table) = counted(&rows, Compression::None);
    for walk in [Walk::Parts { fill_cache: false, ahead_bytes: 1 << 20 }, Walk::Whole { bytes: 1 << 20 }] {
        for effect in [Effect::Eio, Effect::FlipBitOnRead] {
            let mut nth = 0;
            loop {
                let mut iter = table.walk(walk);
                faults.clear_rules();
                faults.add_rule(FaultRule::nth(nth, effect).on(&[OpKind::Read]));
                let before = faults.faults_injected();
                let mut result = iter.seek_to_first();
                let mut given = 0;
                while result.is_ok() && iter.valid() {
                    assert_eq!(iter.value(), rows[given].value);
                    given += 1;
                    result = iter.next();
                }
                faults.clear_rules();
                if faults.faults_injected() == before {
                    assert_eq!(given, rows.len());
                    break;
                }
                assert!(!iter.valid());
                match result {
                    Err(error) => {
                        assert_eq!(error.is_corruption(), effect == Effect::FlipBitOnRead, "{error}");
                    }
                    // The flipped bit may lie between two blocks.
                    Ok(()) => assert_eq!((effect, given), (Effect::FlipBitOnRead, rows.len())),
                }
                check_all(iter, &rows);
                nth += 1;
            }
            assert!(nth >= 1);
        }
    }
}
