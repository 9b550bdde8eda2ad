//! Suite F, small: a worker process on real files, killed without warning.
//!
//! The worker is this test binary, run again. It writes numbered batches and prints `ack N` after
//! each. The parent counts them, kills the worker at a random moment, opens the database and
//! requires every acknowledged batch, each complete, without a gap.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use shamba::{Db, Durability, MergePolicy};
use shamba_tests::tally::Tally;

const VARIABLE: &str = "SHAMBA_KILL_WORKER";
const CYCLES: u32 = 12;

fn open(path: &Path) -> shamba::Result<Db> {
    // So small that the kill often hits a flush or a compaction.
    Db::builder(path)
        .write_buffer(8 << 10)
        .experimental(|e| e.file_size(16 << 10))
        .size_ratio(2.0)
        .merge_policy(MergePolicy::LazyLeveling)
        .durability(Durability::NoSync)
        .open()
}

/// Batch `number`: two keys that must always agree, and the newest number.
fn write(db: &Db, number: u64) -> shamba::Result<()> {
    let mut batch = db.batch();
    batch.put(format!("left/{number:08}"), number.to_string());
    batch.put(format!("right/{number:08}"), "x".repeat((number % 200) as usize));
    batch.put("newest", number.to_string());
    batch.commit()
}

/// The newest batch; every batch up to it must be complete.
fn check(db: &Db) -> u64 {
    let newest = db.get("newest").expect("get").map_or(0, |value| {
        let text = std::str::from_utf8(&value).expect("a number");
        text.parse::<u64>().expect("a number")
    });
    let mut expected = 1;
    for pair in db.prefix("left/") {
        let (key, _) = pair.expect("scan");
        assert_eq!(key[..], *format!("left/{expected:08}").as_bytes(), "a hole before batch {newest}");
        let right = db.get(format!("right/{expected:08}")).expect("get");
        assert_eq!(
            right.map(|value| value.len() as u64),
            Some(expected % 200),
            "batch {expected} is not whole"
        );
        expected += 1;
    }
    assert_eq!(expected, newest + 1, "the newest batch is {newest}, the row ends before {expected}");
    newest
}

/// The worker's body; a test that does nothing unless started by the parent.
#[test]
fn worker() {
    let Ok(path) = std::env::var(VARIABLE) else { return };
    let db = open(Path::new(&path)).expect("the worker opens the database");
    let mut number = check(&db);
    let mut out = std::io::stdout().lock();
    loop {
        number += 1;
        write(&db, number).expect("the worker writes");
        writeln!(out, "ack {number}").and_then(|()| out.flush()).expect("the parent listens");
    }
}

/// The largest number of a table file, which indicates how many were written.
fn newest(path: &Path) -> u64 {
    let entries = std::fs::read_dir(path).expect("list").map(|entry| entry.expect("list").file_name());
    let names = entries.filter_map(|name| name.into_string().ok());
    names.filter_map(|name| name.strip_suffix(".sst")?.parse().ok()).max().unwrap_or(0)
}

fn spawn(path: &Path) -> Child {
    Command::new(std::env::current_exe().expect("a test knows its own binary"))
        .args(["kill::worker", "--exact", "--nocapture", "--test-threads=1"])
        .env(VARIABLE, path)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the worker starts")
}

#[test]
fn acknowledged_writes_survive_kill_9() {
    // A kill does not test the disk, so files in memory suffice, and their syncs cost nothing.
    let dir =
        tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a temporary directory");
    let path = dir.path().join("db");
    let mut rng = fastrand::Rng::with_seed(9);
    let (mut survived, mut kills, mut newest_file) = (0, 0, 0);
    for cycle in 0..CYCLES {
        let mut worker = spawn(&path);
        let lines = BufReader::new(worker.stdout.take().expect("piped")).lines();
        // Killed in the middle of a write: the worker does not wait for the parent to count.
        let until = survived + rng.u64(1..400);
        let mut acked = survived;
        for line in lines {
            let Ok(line) = line else { break };
            if let Some(number) = line.strip_prefix("ack ") {
                acked = number.parse().expect("a number");
            }
            if acked >= until {
                worker.kill().expect("kill -9");
                kills += 1;
                break;
            }
        }
        worker.wait().expect("wait");
        assert!(acked > survived, "cycle {cycle}: the worker acknowledged nothing new after {survived}");
        let db = open(&path).expect("a kill leaves a database that opens");
        let found = check(&db);
        assert!(found >= acked, "cycle {cycle}: batch {acked} was acknowledged, {found} is the newest");
        survived = found;
        // Flushes and compactions were running when it died, if such small buffers were written at
        // all.
        newest_file = newest_file.max(newest(&path));
        // A drop equals a kill; every third time the database is closed.
        if cycle % 3 == 0 {
            db.close().expect("close");
        }
    }
    let tally = Tally::of(&[("kills", kills), ("batches", survived), ("newest table", newest_file)]);
    tally.tell("kill-worker", "suite F");
    tally.require(&[("kills", u64::from(CYCLES)), ("batches", 400), ("newest table", 20)]);
}
