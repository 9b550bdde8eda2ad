//! Read errors of logs while a stream reads them.

use shamba::env::{Effect, FaultFs, FaultRule, OpKind};

use super::*;

/// The positions of all changes after `begin`, with their numbers of operations, and the number of
/// calls that failed.
fn read_all(db: &Db, begin: ChangePosition) -> (Vec<(ChangePosition, usize)>, usize) {
    let (mut found, mut failures) = (Vec::new(), 0);
    let mut failed = |error: shamba::Error| {
        assert_eq!(error.kind(), ErrorKind::Io, "{error:?}");
        failures += 1;
        assert!(failures < 100, "it fails although reads succeed again: {error:?}");
    };
    let mut changes = loop {
        match db.changes_since(begin) {
            Ok(changes) => break changes,
            Err(error) => failed(error),
        }
    };
    loop {
        match changes.try_next() {
            Ok(Some(change)) => {
                let operations = match &change {
                    Change::Batch(batch) => batch.operations().count(),
                    _ => 0,
                };
                found.push((change.position(), operations));
            }
            Ok(None) => return (found, failures),
            Err(error) => failed(error),
        }
    }
}

/// The call after a failed one goes on: no change is left out, and none comes twice.
#[test]
fn read_errors_of_logs_neither_lose_nor_repeat_a_change() {
    let faults = FaultFs::new(in_memory(), 1);
    let files: Arc<dyn Vfs> = Arc::new(faults.clone());
    let db = builder(&files, 5).keep_log(64 << 20, FOREVER).open().expect("opens");
    let begin = db.change_position();
    for number in 0..400u32 {
        let mut batch = db.batch();
        (0..1 + number % 3).for_each(|part| _ = batch.put(format!("{number}/{part}"), [7; 40]));
        batch.commit().expect("written");
    }
    db.flush().expect("flushed");
    let (expected, none) = read_all(&db, begin);
    assert_eq!((expected.len(), none), (400, 0));
    let reads = [OpKind::Read, OpKind::OpenRead];
    let mut failures_in_all = 0;
    for place in 0.. {
        faults.add_rule(FaultRule::nth(place, Effect::Eio).on(&reads).at_path(".log"));
        let (found, failures) = read_all(&db, begin);
        faults.clear_rules();
        assert_eq!(found, expected, "read {place} failed");
        failures_in_all += failures;
        if failures == 0 {
            break;
        }
    }
    assert!(failures_in_all >= 4, "{failures_in_all} calls failed: several logs are read");
    faults.add_rule(FaultRule::storm(0.3, Effect::Eio).on(&reads).at_path(".log"));
    let (found, _) = read_all(&db, begin);
    faults.clear_rules();
    assert_eq!(found, expected, "in a storm");
}
