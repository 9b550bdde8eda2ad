//! The number of threads of many databases. The only test of this program, whose threads it counts.

use shamba::Db;

fn fill(db: &Db, from: u32) {
    for number in from..from + 2_000 {
        db.put(number.to_be_bytes(), [7; 100]).expect("put");
    }
}

/// Threads of this process; `None` where the system does not list them.
fn threads() -> Option<usize> {
    std::fs::read_dir("/proc/self/task").ok().map(Iterator::count)
}

#[test]
fn fifty_databases_share_their_threads() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let before = threads();
    let open = |number: u32| {
        Db::builder(dir.path().join(number.to_string())).memory_budget(4 << 20).open().expect("open")
    };
    let databases: Vec<Db> = (0..50).map(open).collect();
    for (number, db) in databases.iter().enumerate() {
        fill(db, number as u32);
    }
    if let (Some(before), Some(now)) = (before, threads()) {
        // One each for the log; four for compactions at most, one for flushes, one for upkeep.
        assert!(now - before <= 50 + 6, "{} threads", now - before);
    }
    for db in &databases {
        db.compact().expect("compacted");
    }
    for (number, db) in databases.into_iter().enumerate() {
        assert_eq!(db.iter().count(), 2_000, "database {number}");
        db.close().expect("closed");
    }
    assert_eq!(threads(), before, "no thread is left");
}
