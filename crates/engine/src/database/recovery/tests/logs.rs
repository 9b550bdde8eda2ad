//! Tests of the logs that an open knows for streams of changes, and of those that must stay.

use std::time::Duration;

use shamba_env::{Effect, FaultFs, FaultRule, OpKind};
use shamba_log::wal::log_file_name;
use shamba_tree::version::{History, HistoryEntry};

use super::*;

/// Longer than a tail that is copied.
const MANY: usize = 50;

fn put(db: &Db, count: usize) {
    for number in 0..count {
        db.put(format!("{number:05}"), [b'v'; 1_000]).expect("put");
    }
}

fn keeping(env: &Env) -> Builder {
    builder(env).keep_log(1 << 30, Duration::from_secs(1 << 30))
}

/// The entries about logs that became obsolete: those below it, the last one, and its end.
fn obsolete(core: &Core) -> Vec<(u64, u64, u64)> {
    let state = core.catalog.state().expect("a state");
    let entries = state.history.entries().iter().filter_map(|entry| match entry {
        HistoryEntry::Obsolete { below, last, seq, .. } => Some((below.0, last.0, seq.0)),
        _ => None,
    });
    entries.collect()
}

fn newest(core: &Core) -> u64 {
    let log = core.catalog.logs().find(SeqNo::MAX);
    log.expect("a log").0.0
}

#[test]
fn an_open_notes_the_logs_that_it_makes_obsolete_and_no_others() {
    let env = memory(1);
    let db = keeping(&env).open().expect("opened");
    put(&db, 3);
    let first = newest(db.core());
    assert_eq!(obsolete(db.core()), []);
    drop(db);
    let db = keeping(&env).open().expect("opened");
    let second = newest(db.core());
    assert_eq!(obsolete(db.core()), [(second, first, 3)], "the new log has a copy");
    put(&db, MANY);
    drop(db);
    // The old log is needed until what it has is in tables.
    let core = open(keeping(&env)).expect("opened");
    assert_eq!(obsolete(&core), [(second, first, 3)]);
    let known = [first, second, newest(&core)].map(|log| core.catalog.logs().contains(LogNo(log)));
    assert_eq!(known, [true; 3]);
    assert_eq!(core.catalog.logs().before(LogNo(second)), Some((LogNo(first), SeqNo(3))));
}

#[test]
fn without_kept_logs_an_open_knows_those_that_are_needed() {
    let env = memory(1);
    let db = builder(&env).write_buffer(8 << 20).open().expect("opened");
    put(&db, MANY);
    let first = newest(db.core());
    drop(db);
    for opens in 1..=2 {
        let core = open(builder(&env)).expect("opened");
        assert_eq!(core.catalog.logs().oldest(), Some((LogNo(first), SeqNo::ZERO)), "open {opens}");
        assert_eq!(names(&env, ".log").len(), opens + 1);
    }
}

/// A log that cannot be read for streams of changes is still the only place of its writes.
#[test]
fn a_read_error_of_a_needed_log_at_an_open_loses_nothing() {
    let mut unreadable = 0;
    for nth in 0.. {
        let faults = Arc::new(FaultFs::new(Arc::new(MemFs::new()), 1));
        let env = Env::deterministic(Arc::clone(&faults) as _, 1);
        killed_after(&env, |db| put(db, MANY));
        let rule = FaultRule::nth(nth, Effect::Eio).on(&[OpKind::OpenRead, OpKind::Read]);
        faults.add_rule(rule.at_path(".log"));
        let opened = open(builder(&env));
        let has_struck = faults.rules_struck().contains(&true);
        faults.clear_rules();
        let warnings = opened.map_or_else(|_| Vec::new(), |core| core.telemetry.warnings());
        unreadable += usize::from(warnings.iter().any(|warning| warning.contains("cannot be read")));
        let db = builder(&env).open().expect("opened");
        assert_eq!(db.iter().count(), MANY, "call {nth} failed, {warnings:?}");
        if !has_struck {
            break;
        }
    }
    assert!(unreadable > 0, "no open went on without the log");
}

/// Writes without a log leave a gap between the end of a log and the base of the next one.
#[test]
fn the_list_of_logs_ends_where_two_of_them_do_not_join() {
    let env = memory(1);
    let core = open(keeping(&env)).expect("opened");
    let (history_of, dir) = (core.catalog.state().expect("a state").history, core.catalog.dir());
    for (gap, expected) in [(0, &[50, 51, 52][..]), (1, &[51, 52])] {
        let [first, second] = [50, 51].map(LogNo);
        let old = WalWriter::create(&env, dir, first, None, SeqNo(100)).expect("a log");
        let base_seq = SeqNo(100 + gap);
        WalWriter::create(&env, dir, second, Some(old.predecessor()), base_seq).expect("a log");
        let mut history: History = history_of.clone();
        history.extend(&[HistoryEntry::Opened {
            log: LogNo(52),
            after: second,
            seq: base_seq,
            is_epoch: false,
        }]);
        let report = ReplayReport { clean: true, ..ReplayReport::default() };
        let files = [first, second].map(log_file_name);
        let known = known_logs(&core, &history, (&report, &files), (LogNo(52), base_seq), LogNo(52));
        let numbers: Vec<u64> = known.iter().map(|log| log.number.0).collect();
        assert_eq!(numbers, expected, "a gap of {gap}");
        let follows: Vec<_> = known.iter().skip(1).map(|log| log.follows.map(|(log, _)| log.0)).collect();
        let before: Vec<_> = numbers.iter().map(|number| Some(*number)).collect();
        assert_eq!(follows, before[..before.len() - 1]);
        for log in [first, second] {
            env.vfs.unlink(&path(&log_file_name(log))).expect("removed");
        }
    }
}
