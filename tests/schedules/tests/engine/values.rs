//! A scenario of value files: values are overwritten, and their files rewritten and removed.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use shamba::env::Vfs;
use shamba::{Db, MergePolicy, Slice, Snapshot};
use shuttle::thread;

use crate::explore::{Done, SCHEDULES_FEW, explore};
use crate::nothing_left_over;
use crate::scheduled::{builder, files};

static VALUES: Done = Done::new();

/// The name of the count of bytes that were written to value files.
const WRITTEN: &str = "bytes of values in value files";
/// The name of the count of value files that are gone although a value of them is still there.
const REWRITTEN: &str = "value files that were rewritten";
/// The name of the count of snapshots that kept a value which was overwritten meanwhile.
const KEPT: &str = "snapshots of overwritten values";

/// Two keys of the same batches, around a key that is written once.
const KEYS: [&str; 3] = ["left", "middle", "right"];
/// Length of a value, which is in a value file.
const VALUE_BYTES: usize = 300;

fn open(vfs: &Arc<dyn Vfs>) -> Db {
    let builder = builder(vfs, MergePolicy::Leveling);
    builder.experimental(|e| e.value_threshold(64).value_space(1.1)).open().expect("open")
}

fn write(db: &Db, round: u8) {
    let mut batch = db.batch();
    for key in [KEYS[0], KEYS[2]] {
        batch.put(key, [round; VALUE_BYTES]);
    }
    batch.commit().expect("commit");
}

/// The round of a value, which is whole.
fn round_of(value: &[u8]) -> u8 {
    assert!(value.len() == VALUE_BYTES && value.iter().all(|byte| *byte == value[0]), "{value:?}");
    value[0]
}

/// The round of the two keys of a scan.
fn scanned(scan: impl Iterator<Item = shamba::Result<(Slice, Slice)>>) -> u8 {
    let mut found = Vec::new();
    for entry in scan {
        let (key, value) = entry.expect("scan");
        found.push((String::from_utf8(key.to_vec()).expect("a name"), round_of(&value)));
        thread::yield_now();
    }
    found.sort_unstable();
    let round = found.first().map_or(0, |(_, round)| *round);
    let due = [(KEYS[0], round), (KEYS[1], 0), (KEYS[2], round)].map(|(key, round)| (key.to_owned(), round));
    assert_eq!(found, due, "a scan");
    round
}

/// The round of the two keys in a snapshot, by lookups.
fn looked_up(snapshot: &Snapshot) -> u8 {
    let [left, middle, right] = KEYS.map(|key| round_of(&snapshot.get(key).expect("get").expect("a value")));
    assert_eq!((left, middle), (right, 0), "two keys that were written together, and one written once");
    left
}

/// Reads while `written` is the newest round that was acknowledged: rounds do not go back, and a
/// snapshot keeps its own.
fn read(db: &Db, written: &AtomicU8) {
    let mut last = 0;
    for _ in 0..3 {
        let acked = written.load(Ordering::Acquire);
        let snapshot = db.snapshot();
        let first = looked_up(&snapshot);
        assert!(first >= acked && first >= last, "round {first} after {acked} and {last}");
        last = scanned(db.iter());
        assert!(last >= first, "round {last} after {first}");
        let values = db.multi_get(KEYS).expect("multi_get");
        let [left, middle, right] = [0, 1, 2].map(|at| round_of(values[at].as_ref().expect("a value")));
        assert!(left == right && middle == 0 && left >= last, "{left} {middle} {right} after {last}");
        last = left;
        assert_eq!(scanned(snapshot.iter().rev()), first, "a backward scan of a snapshot");
        assert_eq!(scanned(snapshot.iter()), first, "a scan of a snapshot");
        assert_eq!(looked_up(&snapshot), first, "lookups of a snapshot");
        VALUES.add(KEPT, u64::from(last > first));
    }
}

fn value_files(vfs: &Arc<dyn Vfs>) -> BTreeSet<String> {
    let names = vfs.list(Path::new("/db")).expect("list").into_iter().map(|file| file.name);
    names.filter(|name| name.ends_with(".values")).collect()
}

/// Values in value files are overwritten, flushed and compacted, and the value files are rewritten
/// and removed, while two threads read them. The last compactions run while the database is
/// closed.
fn overwritten_values() {
    const ROUNDS: u8 = 6;
    let vfs = files();
    let db = open(&vfs);
    db.put(KEYS[1], [0; VALUE_BYTES]).expect("put");
    write(&db, 0);
    db.flush().expect("flush");
    let first_files = value_files(&vfs);
    let written = Arc::new(AtomicU8::new(0));
    let readers = [0, 1].map(|_| {
        let (db, written) = (db.clone(), Arc::clone(&written));
        thread::spawn(move || read(&db, &written))
    });
    for round in 1..ROUNDS {
        write(&db, round);
        written.store(round, Ordering::Release);
        if round % 2 == 0 {
            db.compact().expect("compact");
        }
    }
    readers.into_iter().for_each(|reader| reader.join().expect("no panic"));
    db.compact().expect("compact");
    let files = value_files(&vfs);
    // The value that was written once was in one of them.
    VALUES.add(REWRITTEN, u64::from(!first_files.is_empty() && first_files.is_disjoint(&files)));
    assert_eq!(looked_up(&db.snapshot()), ROUNDS - 1);
    for round in ROUNDS..ROUNDS + 4 {
        write(&db, round);
    }
    db.check_invariants().expect("the tree has its shape");
    VALUES.note(&db);
    VALUES.add(WRITTEN, db.stats().bytes_values_written);
    db.close().expect("close");
    nothing_left_over(&vfs);
    let db = open(&vfs);
    assert_eq!(scanned(db.iter()), ROUNDS + 3, "after a reopen");
    assert_eq!(looked_up(&db.snapshot()), ROUNDS + 3, "after a reopen");
    db.close().expect("close");
}

#[test]
fn readers_of_value_files() {
    explore(
        "values::readers_of_value_files",
        SCHEDULES_FEW,
        overwritten_values,
        &VALUES,
        &[("flushes", 400), ("compactions", 200), (WRITTEN, 100_000), (REWRITTEN, 30), (KEPT, 50)],
    );
}
