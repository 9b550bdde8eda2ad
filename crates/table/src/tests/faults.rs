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
            assert!(
                matches!(rig.get(&table, &wanted.key, SeqNo::MAX), Err(Error::Io { op, .. }) if op == "read")
            );
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
