//! Tests with a failing disk: errors name the call, no file is left behind, no failure becomes an
//! answer.

use super::*;
use shamba_env::{Effect, FaultFs, FaultRule, OpKind};

fn faulty(rig: &mut Rig) -> Arc<FaultFs> {
    let faults = Arc::new(FaultFs::new(Arc::clone(&rig.env.vfs), 1));
    rig.env.vfs = Arc::clone(&faults) as Arc<dyn shamba_env::Vfs>;
    faults
}

#[test]
fn whichever_call_of_writing_fails_the_error_surfaces_and_no_file_stays() {
    let rows: Vec<Row> = (0..4_000).map(|i| row(format!("{i:05}"), 1, [i as u8; 300])).collect();
    let mut nth = 0;
    loop {
        let mut rig = Rig::new(Compression::None, 4_096);
        let faults = faulty(&mut rig);
        let kinds = [OpKind::Create, OpKind::Append, OpKind::SyncAll, OpKind::SyncData];
        faults.add_rule(FaultRule::nth(nth, Effect::Enospc).on(&kinds));
        let written = (|| {
            let mut writer = TableWriter::create(&rig.env, Path::new(DIR), rig.options)?;
            for row in &rows {
                writer.add(&row.key, row.seq, row.kind, &row.value)?;
            }
            writer.finish()
        })();
        if faults.faults_injected() == 0 {
            written.expect("no fault");
            break;
        }
        match written.expect_err("a fault") {
            Error::Io { file, source, .. } => {
                assert_eq!((file, source.kind()), (rig.path(), std::io::ErrorKind::StorageFull));
            }
            other => panic!("{other:?}"),
        }
        assert!(!rig.env.vfs.exists(&rig.path()).expect("asked"), "call {nth} left a file");
        nth += 1;
    }
    assert!(nth >= 5, "only {nth} calls to fail");
}

#[test]
fn short_and_interrupted_calls_change_nothing() {
    let rows: Vec<Row> = (0..300).map(|i| row(format!("{i:05}"), 1, [i as u8; 300])).collect();
    let mut rig = Rig::new(Compression::None, 4_096);
    let faults = faulty(&mut rig);
    for effect in [Effect::Eintr, Effect::ShortWrite, Effect::ShortRead] {
        faults.add_rule(FaultRule::storm(0.3, effect).on(&[OpKind::Append, OpKind::Read]));
    }
    rig.write(&rows, &[]);
    let table = rig.open().expect("opened");
    for wanted in &rows {
        let found = rig.get(&table, &wanted.key, SeqNo::MAX).expect("a get").expect("there");
        assert_eq!(found.value, wanted.value);
    }
    assert!(table.verify().is_empty());
    assert!(faults.faults_injected() > 20, "{} faults", faults.faults_injected());
}

#[test]
fn a_failed_read_is_an_error_of_that_call_only() {
    for hold in Residency::ALL {
        a_failed_read(hold);
    }
}

fn a_failed_read(hold: Residency) {
    let rows: Vec<Row> = (0..100).map(|i| row(format!("{i:05}"), 1, [i as u8; 300])).collect();
    let mut rig = Rig::new(Compression::None, 4_096);
    rig.hold = hold;
    rig.write(&rows, &[]);
    let faults = faulty(&mut rig);
    let mut nth = 0;
    let table = loop {
        faults.clear_rules();
        faults.add_rule(FaultRule::nth(nth, Effect::Eio).on(&[OpKind::Read, OpKind::OpenRead]));
        let before = faults.faults_injected();
        match rig.open() {
            Ok(table) => break table,
            Err(Error::Io { file, .. }) => assert_eq!(file, rig.path()),
            Err(other) => panic!("read {nth}: {other:?}"),
        }
        assert_eq!(faults.faults_injected(), before + 1);
        nth += 1;
    };
    assert!(nth >= 6, "opening takes {nth} calls");
    faults.clear_rules();
    // The data block, and before it the index partition if it is not in memory.
    let reads = if hold == Residency::Pinned { 1 } else { 2 };
    for wanted in &rows {
        for nth in 0..reads {
            rig.cache.remove_table(rig.options.id);
            faults.add_rule(FaultRule::nth(nth, Effect::Eio).on(&[OpKind::Read]));
            let failed = rig.get(&table, &wanted.key, SeqNo::MAX).expect_err("a failed read");
            let named = ["read data block at offset ", "read index partition at offset "];
            let is_named = |op: &str| named.iter().any(|name| op.starts_with(name));
            assert!(matches!(&failed, Error::Io { op, .. } if is_named(op)), "{failed}");
            faults.clear_rules();
            rig.cache.remove_table(rig.options.id);
            faults.add_rule(FaultRule::nth(nth, Effect::FlipBitOnRead).on(&[OpKind::Read]));
            let flipped = rig.get(&table, &wanted.key, SeqNo::MAX).expect_err("a flipped bit");
            assert!(flipped.is_corruption());
            faults.clear_rules();
            let found = rig.get(&table, &wanted.key, SeqNo::MAX).expect("a get").expect("there");
            assert_eq!(found.value, wanted.value);
        }
    }
}

/// The device cannot read some bytes: what they hold is lost, and nothing else.
#[test]
fn a_salvage_loses_only_what_cannot_be_read() {
    let rows = salvage::rows();
    for compression in Compression::ALL {
        let mut rig = Rig::new(compression, 256);
        rig.options.large_values = LargeValues { from_bytes: 300, chunk_bytes: 128 };
        rig.write(&rows, &[]);
        let birth = Some(rig.options.birth);
        let faults = faulty(&mut rig);
        let (mut damaged, mut lost) = (0, 0);
        for nth in 0.. {
            let before = faults.faults_injected();
            faults.add_rule(FaultRule::nth(nth, Effect::Eio).on(&[OpKind::Read]));
            let table = Arc::new(Salvage::open(&rig.env, &rig.path(), &rig.files, birth).expect("opened"));
            let (mut walk, mut left) = (table.walk(), Vec::new());
            while let Some(entry) = walk.next_entry().expect("no other failure") {
                left.push((entry.key, entry.seq));
            }
            let gaps = walk.take_gaps();
            faults.clear_rules();
            if faults.faults_injected() == before {
                assert_eq!(left.len(), rows.len(), "nothing is lost without a fault");
                break;
            }
            damaged += usize::from(!table.damage().is_empty());
            let missing: Vec<_> =
                rows.iter().filter(|row| !left.contains(&(row.key.clone(), row.seq))).collect();
            lost += usize::from(!missing.is_empty());
            // Those of one block.
            assert!(missing.len() < 12, "read {nth}: {} of {} rows are lost", missing.len(), rows.len());
            for row in missing {
                let is_told = gaps.iter().any(|gap| {
                    gap.lower <= row.key && gap.upper.as_ref().is_none_or(|upper| row.key < *upper)
                });
                assert!(is_told, "read {nth}: {row:?} is lost outside {gaps:?}");
            }
        }
        assert!(damaged >= 3 && lost > 5, "{damaged} other parts and {lost} blocks could not be read");
    }
}

/// Lookups that ask a module whose slice is damaged read it once, and report it once.
#[test]
fn a_damaged_slice_is_read_once() {
    let mut rig = Rig::new(Compression::None, 256);
    rig.filter = Residency::Cached;
    let rows = salvage::rows();
    rig.write(&rows, &[]);
    let section = salvage::section(&rig, crate::format::SectionKind::Filter);
    let mut bytes = rig.bytes();
    bytes[(section.offset + section.bytes / 2) as usize] ^= 1;
    rig.replace(&bytes);
    let faults = faulty(&mut rig);
    let table = rig.open().expect("opened");
    let asked = |table: &TableReader| {
        let before = faults.calls();
        for row in &rows {
            let digest = rig.options.digest.digest(&row.key);
            let maybe = table.fetch_module(digest, 0, &mut ReadCounters::default());
            assert!(maybe.expect("damage to a filter is no error"));
        }
        faults.calls() - before
    };
    let (first, again) = (asked(&table), asked(&table));
    assert!(first > 0 && again == 0, "{first} calls, and {again} later");
    assert_eq!(table.filter_warnings().len(), 1, "{:?}", table.filter_warnings());
}
