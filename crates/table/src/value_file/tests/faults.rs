//! Tests with a failing disk: errors name the call, no file is left behind, no failure becomes a
//! value.

use shamba_env::{Effect, FaultFs, FaultRule, OpKind};

use super::*;

fn faulty(rig: &mut Rig) -> Arc<FaultFs> {
    let faults = Arc::new(FaultFs::new(Arc::clone(&rig.env.vfs), 1));
    rig.env.vfs = Arc::clone(&faults) as Arc<dyn shamba_env::Vfs>;
    faults
}

#[test]
fn whichever_call_of_writing_fails_the_error_surfaces_and_no_file_stays() {
    let entries = entries(&[30_000; 12]);
    let mut nth = 0;
    loop {
        let mut rig = Rig::new(Compression::None, 65_536);
        let faults = faulty(&mut rig);
        let kinds = [OpKind::Create, OpKind::Append, OpKind::SyncAll, OpKind::SyncData];
        faults.add_rule(FaultRule::nth(nth, Effect::Enospc).on(&kinds));
        let written = (|| {
            let mut writer = ValueFileWriter::create(&rig.env, Path::new(DIR), rig.options)?;
            for entry in &entries {
                writer.add(&entry.key, entry.seq, entry.kind, &entry.payload)?;
            }
            writer.finish_unsynced()?.2.sync()
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
    assert!(nth >= 7, "only {nth} calls to fail");
}

#[test]
fn a_failed_read_is_an_error_of_that_call_only() {
    let mut rig = Rig::new(Compression::Lz4, 65_536);
    let entries = entries(&[100, 200_000]);
    let (references, written) = rig.write(&entries);
    let faults = faulty(&mut rig);
    let mut nth = 0;
    let file = loop {
        faults.clear_rules();
        faults.add_rule(FaultRule::nth(nth, Effect::Eio).on(&[OpKind::Read, OpKind::OpenRead]));
        match rig.open() {
            Ok(file) => break file,
            Err(Error::Io { file, .. }) => assert_eq!(file, rig.path()),
            Err(other) => panic!("read {nth}: {other:?}"),
        }
        nth += 1;
    };
    assert_eq!(nth, 3, "opening, header and footer");
    for (effect, is_corruption) in [(Effect::Eio, false), (Effect::FlipBitOnRead, true)] {
        let with_fault = |nth| {
            faults.clear_rules();
            faults.add_rule(FaultRule::nth(nth, effect).on(&[OpKind::Read]));
        };
        let check = |error: Error| assert_eq!(error.is_corruption(), is_corruption, "{error}");
        for (reference, entry) in references.iter().zip(&entries) {
            with_fault(0);
            check(file.read(*reference, &mut Reads::default()).expect_err("a fault"));
            with_fault(0);
            check(read_checked(&file, *reference, entry).expect_err("a fault"));
            faults.clear_rules();
            assert!(read(&file, *reference).expect("read") == entry.payload);
        }
        with_fault(0);
        check(file.check_written(&written).expect_err("a fault"));
        with_fault(2);
        assert_eq!(file.verify().len(), 1, "the chunks");
        faults.clear_rules();
        file.check_written(&written).expect("checked");
        assert!(file.verify().is_empty());
    }
}

#[test]
fn short_and_interrupted_calls_change_nothing() {
    let mut rig = Rig::new(Compression::None, 200);
    let entries = entries(&[30_000; 12]);
    let faults = faulty(&mut rig);
    for effect in [Effect::Eintr, Effect::ShortWrite, Effect::ShortRead] {
        faults.add_rule(FaultRule::storm(0.3, effect).on(&[OpKind::Append, OpKind::Read]));
    }
    let (references, written) = rig.write(&entries);
    let file = rig.open().expect("opened");
    file.check_written(&written).expect("checked");
    for (reference, entry) in references.iter().zip(&entries) {
        assert!(read(&file, *reference).expect("read") == entry.payload);
    }
    assert!(file.verify().is_empty());
    assert!(faults.faults_injected() > 20, "{} faults", faults.faults_injected());
}
