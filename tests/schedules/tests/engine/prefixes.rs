//! A scenario of prefix extractors that change.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use shamba::{Db, KeyspaceOptions, MergePolicy, Prefix, Slice, Snapshot};
use shuttle::thread;

use crate::explore::{Done, LEFT_OUT, SCHEDULES_FEW, explore};
use crate::scheduled::{builder, files};

static PREFIXES: Done = Done::new();

/// The name of the count of filters that scans asked.
const ASKED: &str = "prefix filters that were asked";

/// Number of prefixes with keys: 0, 2 and so on. Round r writes keys of one of them.
const GROUPS: usize = 4;
/// Keys that a round writes in one batch.
const KEYS: usize = 3;

/// Turns of the scheduler between two changes of the extractor.
const TURNS: usize = 8;
/// The extractors of the keyspace, one after the other.
const EXTRACTORS: [Option<Prefix>; 4] =
    [Some(Prefix::Fixed(2)), None, Some(Prefix::Capped(1)), Some(Prefix::Delimited(b'/'))];

fn options(extractor: Option<Prefix>) -> KeyspaceOptions {
    match extractor {
        Some(extractor) => KeyspaceOptions::new().prefix(extractor),
        None => KeyspaceOptions::new().without_prefix(),
    }
}

fn key(round: usize, number: usize) -> String {
    format!("{}/{round:02}/{number}", 2 * (round % GROUPS))
}

fn prefix(group: usize) -> String {
    format!("{}/", 2 * group)
}

fn write(db: &Db, round: usize) {
    let mut batch = db.batch();
    for number in 0..KEYS {
        batch.put(key(round, number), [round as u8; 90]);
    }
    batch.commit().expect("commit");
}

/// The number of rounds that a scan of group `group` shows: all of their keys are there.
fn rounds(group: usize, scan: impl Iterator<Item = shamba::Result<(Slice, Slice)>>) -> usize {
    let mut found = Vec::new();
    for entry in scan {
        let (key, value) = entry.expect("scan");
        let key = String::from_utf8(key.to_vec()).expect("a name");
        assert_eq!(value[..], [value[0]; 90], "{key}");
        found.push(key);
        thread::yield_now();
    }
    found.sort_unstable();
    let count = found.len().div_ceil(KEYS);
    let due = (0..count).flat_map(|turn| (0..KEYS).map(move |number| key(turn * GROUPS + group, number)));
    assert_eq!(found, due.collect::<Vec<_>>(), "a scan of group {group}");
    count
}

/// Checks the number of rounds that group `group` shows if at least `acked` were written.
fn enough(group: usize, shown: usize, acked: usize) {
    let least = (0..acked).filter(|round| round % GROUPS == group).count();
    assert!(shown >= least, "{acked} rounds were written, group {group} shows {shown}");
}

fn of_snapshot(snapshot: &Snapshot, group: usize) -> usize {
    let shown = rounds(group, snapshot.prefix(prefix(group)));
    assert_eq!(rounds(group, snapshot.prefix(prefix(group)).rev()), shown, "backward");
    shown
}

/// Scans prefixes, of snapshots and of the newest state, until `turns` have passed.
fn scan(db: &Db, written: &AtomicUsize, turns: usize) {
    for turn in 0..turns {
        let acked = written.load(Ordering::Acquire);
        let snapshot = db.snapshot();
        let group = turn % GROUPS;
        let shown = of_snapshot(&snapshot, group);
        enough(group, shown, acked);
        for group in 0..GROUPS {
            let acked = written.load(Ordering::Acquire);
            enough(group, rounds(group, db.prefix(prefix(group))), acked);
        }
        assert_eq!(of_snapshot(&snapshot, group), shown, "a snapshot of group {group}");
        for absent in ["1/", "3/", "5/", "2/77", "5"] {
            assert_eq!(db.prefix(absent).count(), 0, "nobody wrote {absent}");
        }
    }
}

/// Keys of several prefixes are written, flushed and compacted, and the prefix extractor is changed
/// and removed, while two threads scan prefixes: no scan lacks an entry.
fn scans_while_extractors_change() {
    const ROUNDS: usize = 16;
    let builder = builder(&files(), MergePolicy::Tiering).experimental(|e| e.file_size(16 << 10));
    let db = builder.keyspace("default", options(Some(Prefix::Delimited(b'/')))).open().expect("open");
    let written = Arc::new(AtomicUsize::new(0));
    for round in 0..GROUPS {
        write(&db, round);
    }
    written.store(GROUPS, Ordering::Release);
    let scanners = [2, 3].map(|turns| {
        let (db, written) = (db.clone(), Arc::clone(&written));
        thread::spawn(move || scan(&db, &written, turns))
    });
    let changing = {
        let db = db.clone();
        thread::spawn(move || {
            for extractor in EXTRACTORS.into_iter().cycle().take(2 * EXTRACTORS.len()) {
                // Time for tables by the one before.
                (0..TURNS).for_each(|_| thread::yield_now());
                let default = db.keyspace_with("default", options(extractor)).expect("changed");
                assert_eq!(default.prefix_extractor(), extractor);
                db.flush().expect("flush");
            }
        })
    };
    for round in GROUPS..ROUNDS {
        write(&db, round);
        written.store(round + 1, Ordering::Release);
        if round == ROUNDS - 3 {
            db.compact().expect("compact");
        }
    }
    changing.join().expect("no panic");
    scanners.into_iter().for_each(|scanner| scanner.join().expect("no panic"));
    scan(&db, &written, GROUPS);
    db.check_invariants().expect("the tree has its shape");
    PREFIXES.note(&db);
    PREFIXES.add(ASKED, db.stats().prefix_filters);
    db.close().expect("close");
}

#[test]
fn scans_during_changes_of_the_extractor() {
    explore(
        "prefixes::scans_during_changes_of_the_extractor",
        SCHEDULES_FEW,
        scans_while_extractors_change,
        &PREFIXES,
        &[("flushes", 400), ("compactions", 100), (ASKED, 1_000), (LEFT_OUT, 500)],
    );
}
