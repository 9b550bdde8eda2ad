//! Suite F for the stream of changes: a process that writes and follows its own changes, killed
//! without warning.
//!
//! The worker is this test binary, run again. It writes numbered batches, and its subscriber prints
//! the position and number of each batch that it was given, after it has found it whole and next in
//! line. The parent kills the worker and requires that the database has every batch that was
//! delivered, and that a stream from the last position that it read continues with the next one.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use shamba::{Change, ChangeBatch, ChangeOp, ChangePosition, Changes, ChangesOptions, Db, Durability};
use shamba_tests::tally::Tally;

use crate::kill::{VARIABLE, check, newest, open_with, spawn, write};

/// The position at which the worker's subscriber begins, and `unsynced` if it takes such batches.
const BEGIN: &str = "SHAMBA_KILL_BEGIN";
const CYCLES: u32 = 12;
/// Batches that the worker may be ahead of its subscriber: otherwise the database grows with the
/// time that the machine takes, and every open checks all of it.
const AHEAD: u64 = 500;

fn open(path: &Path) -> Db {
    let open = open_with(path, |builder| builder.keep_log(64 << 20, Duration::from_secs(3_600)));
    open.expect("the database opens")
}

fn stream(db: &Db, begin: &str) -> Changes {
    let unsynced = begin.starts_with("unsynced ");
    let position = begin.trim_start_matches("unsynced ");
    let position: ChangePosition = position.parse().expect("a position");
    let options = ChangesOptions::new().include_unsynced(unsynced);
    db.changes_since_with(position, options).expect("the position is valid")
}

/// The number of a batch, which must be whole.
fn number_of(batch: &ChangeBatch) -> u64 {
    let puts: Vec<(String, &[u8])> = batch
        .operations()
        .map(|(_, op)| match op {
            ChangeOp::Put { key, value, .. } => (String::from_utf8_lossy(key).into_owned(), value),
            other => panic!("{other:?} was not written"),
        })
        .collect();
    let [left, right, newest] = &puts[..] else { panic!("a torn batch: {puts:?}") };
    let number: u64 = std::str::from_utf8(newest.1).expect("text").parse().expect("a number");
    assert_eq!(newest.0, "newest");
    assert_eq!((left.0.as_str(), left.1), (format!("left/{number:08}").as_str(), newest.1));
    assert_eq!((&right.0, right.1.len() as u64), (&format!("right/{number:08}"), number % 200));
    number
}

/// The worker's body; a test that does nothing unless started by the parent.
#[test]
fn publisher() {
    let (Ok(path), Ok(begin)) = (std::env::var(VARIABLE), std::env::var(BEGIN)) else { return };
    // Otherwise the writer would go on for ever, and the parent would wait for it.
    std::panic::set_hook(Box::new(|info| {
        println!("\nfailed {}", info.to_string().replace('\n', " "));
        std::process::exit(1);
    }));
    let db = open(Path::new(&path));
    let mut number = check(&db);
    let changes = stream(&db, &begin);
    let taken = AtomicU64::new(number);
    println!(); // The name of the test precedes the first line.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            loop {
                while number >= taken.load(Ordering::Relaxed) + AHEAD {
                    std::thread::sleep(Duration::from_millis(1));
                }
                number += 1;
                write(&db, number).expect("the worker writes");
                if number.is_multiple_of(7) {
                    db.put_with("synced", "", Durability::Sync).expect("the worker syncs");
                }
            }
        });
        for change in changes {
            let Change::Batch(batch) = change.expect("the subscriber reads") else { continue };
            if batch.len() == 1 {
                continue;
            }
            let mut out = std::io::stdout().lock();
            let number = number_of(&batch);
            let said = writeln!(out, "got {} {number}", batch.position());
            taken.fetch_max(number, Ordering::Relaxed);
            if said.and_then(|()| out.flush()).is_err() {
                std::process::exit(1); // The parent has failed; the writer would go on for ever.
            }
        }
    });
}

#[test]
fn delivered_batches_are_whole_and_survive_kill_9() {
    let dir =
        tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a temporary directory");
    let path = dir.path().join("db");
    let mut rng = fastrand::Rng::with_seed(12);
    let db = open(&path);
    let (mut position, mut last) = (db.change_position(), check(&db));
    drop(db);
    let (mut kills, mut newest_file) = (0, 0);
    for cycle in 0..CYCLES {
        let kind = if cycle % 2 == 0 { "" } else { "unsynced " };
        let mut worker = spawn("changes::publisher", &path, &[(BEGIN, &format!("{kind}{position}"))]);
        let lines = BufReader::new(worker.stdout.take().expect("piped")).lines();
        let (begun, until) = (last, last + rng.u64(1..400));
        // Read to the end: the last line may come after the kill.
        for line in lines.map_while(Result::ok) {
            assert!(!line.starts_with("failed "), "cycle {cycle}, after {last}: {line}");
            let Some((at, number)) = line.strip_prefix("got ").and_then(|line| line.split_once(' ')) else {
                continue;
            };
            let (at, number) = (at.parse().expect("a position"), number.parse::<u64>());
            (position, last) = match number {
                Ok(number) => {
                    assert_eq!(number, last + 1, "cycle {cycle}: batches are missing or out of order");
                    (at, number)
                }
                Err(_) => break, // A line that the kill has cut.
            };
            if last >= until && kills == cycle {
                worker.kill().expect("kill -9");
                kills += 1;
            }
        }
        worker.wait().expect("wait");
        assert!(last > begun && kills == cycle + 1, "cycle {cycle}: the worker ended by itself at {last}");
        let db = open(&path);
        let found = check(&db);
        assert!(found >= last, "cycle {cycle}: batch {last} was delivered, {found} is the newest");
        // What it did not deliver follows, up to the newest.
        db.flush().expect("flushed");
        for change in std::iter::from_fn({
            let mut changes = stream(&db, &position.to_string());
            move || changes.try_next().expect("read")
        }) {
            let Change::Batch(batch) = change else { panic!("{change:?}") };
            if batch.len() > 1 {
                assert_eq!(number_of(&batch), last + 1, "cycle {cycle}: after a reopen");
                last += 1;
            }
            position = batch.position();
        }
        assert_eq!(last, found, "cycle {cycle}: the stream ends before the newest batch");
        newest_file = newest_file.max(newest(&path));
        if cycle % 3 == 0 {
            db.close().expect("close");
        }
    }
    let tally = Tally::of(&[("kills", u64::from(kills)), ("batches", last), ("newest table", newest_file)]);
    tally.tell("kill-changes", "suite F, changes");
    tally.require(&[("kills", u64::from(CYCLES)), ("batches", 400), ("newest table", 20)]);
}
