//! Suite F, small: a worker process on real files, killed without warning.
//!
//! The worker is this test binary, run again. It writes numbered batches and prints `ack N` after
//! each. The parent counts them, kills the worker at a random moment, opens the database and
//! requires every acknowledged batch, each complete, without a gap.
//!
//! Another worker has threads that run the transactions of [`shamba_tests::invariants`]: after each
//! kill all invariants hold, and every acknowledged transaction is there. The threads of a third
//! one add to counters by merges, without reading them: each acknowledged increment counts once.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use shamba::merge::AddU64;
use shamba::{Builder, Db, Durability, Keyspace, KeyspaceOptions, MergePolicy};
use shamba_tests::invariants::World;
use shamba_tests::tally::Tally;

pub const VARIABLE: &str = "SHAMBA_KILL_WORKER";
const CYCLES: u32 = 12;

fn open(path: &Path) -> shamba::Result<Db> {
    open_with(path, |builder| builder)
}

pub fn open_with(path: &Path, set: impl FnOnce(Builder) -> Builder) -> shamba::Result<Db> {
    // So small that the kill often hits a flush or a compaction.
    set(Db::builder(path))
        .write_buffer(8 << 10)
        .experimental(|e| e.value_threshold(100))
        .experimental(|e| e.file_size(16 << 10))
        .size_ratio(2.0)
        .merge_policy(MergePolicy::LazyLeveling)
        .durability(Durability::NoSync)
        .open()
}

/// Batch `number`: two keys that must always agree, and the newest number.
pub fn write(db: &Db, number: u64) -> shamba::Result<()> {
    let mut batch = db.batch();
    batch.put(format!("left/{number:08}"), number.to_string());
    batch.put(format!("right/{number:08}"), "x".repeat((number % 200) as usize));
    batch.put("newest", number.to_string());
    batch.commit()
}

/// The newest batch; every batch up to it must be complete.
pub fn check(db: &Db) -> u64 {
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
pub fn newest(path: &Path) -> u64 {
    let entries = std::fs::read_dir(path).expect("list").map(|entry| entry.expect("list").file_name());
    let names = entries.filter_map(|name| name.into_string().ok());
    names.filter_map(|name| name.strip_suffix(".sst")?.parse().ok()).max().unwrap_or(0)
}

pub fn spawn(worker: &str, path: &Path, variables: &[(&str, &str)]) -> Child {
    Command::new(std::env::current_exe().expect("a test knows its own binary"))
        .args([worker, "--exact", "--nocapture", "--test-threads=1"])
        .env(VARIABLE, path)
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the worker starts")
}

/// The text of a line after `ack `. The harness of tests prints the name of the worker's test
/// first, without a line end, so the first acknowledgement is not at the beginning of its line.
pub fn acknowledged(line: &str) -> Option<&str> {
    line.split_once("ack ").map(|(_, text)| text)
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
        let mut worker = spawn("kill::worker", &path, &[]);
        let lines = BufReader::new(worker.stdout.take().expect("piped")).lines();
        // Killed in the middle of a write: the worker does not wait for the parent to count.
        let until = survived + rng.u64(1..400);
        let mut acked = survived;
        for line in lines {
            let Ok(line) = line else { break };
            if let Some(number) = acknowledged(&line) {
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

/// Number of threads of the worker that runs transactions.
const THREADS: usize = 3;

/// The body of the worker that runs transactions; a test that does nothing unless started by the
/// parent.
#[test]
fn transactor() {
    let Ok(path) = std::env::var(VARIABLE) else { return };
    let world = World::open(open(Path::new(&path)).expect("the worker opens the database"));
    let world = world.expect("the accounts");
    let counts = world.check(THREADS).expect("the invariants hold");
    std::thread::scope(|scope| {
        for (thread, mut count) in counts.into_iter().enumerate() {
            let world = &world;
            scope.spawn(move || {
                let mut rng = fastrand::Rng::new();
                loop {
                    count += 1;
                    world.work(thread, count, Durability::NoSync, &mut rng).expect("a transaction");
                    let mut out = std::io::stdout().lock();
                    let said = writeln!(out, "ack {thread} {count}").and_then(|()| out.flush());
                    said.expect("the parent listens");
                }
            });
        }
    });
}

#[test]
fn acknowledged_transactions_survive_kill_9() {
    let dir =
        tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a temporary directory");
    let path = dir.path().join("db");
    let mut rng = fastrand::Rng::with_seed(10);
    let (mut survived, mut kills, mut newest_file) = (vec![0; THREADS], 0, 0);
    for cycle in 0..CYCLES {
        let mut worker = spawn("kill::transactor", &path, &[]);
        let lines = BufReader::new(worker.stdout.take().expect("piped")).lines();
        let (mut acked, mut left) = (survived.clone(), rng.u64(1..400));
        for line in lines {
            let Ok(line) = line else { break };
            let Some((thread, count)) = acknowledged(&line).and_then(|line| line.split_once(' ')) else {
                continue;
            };
            let thread: usize = thread.parse().expect("a number");
            acked[thread] = count.parse().expect("a number");
            left -= 1;
            if left == 0 {
                worker.kill().expect("kill -9");
                kills += 1;
                break;
            }
        }
        worker.wait().expect("wait");
        assert_eq!(left, 0, "cycle {cycle}: the worker ended by itself after {acked:?}");
        let world = World::open(open(&path).expect("a kill leaves a database that opens")).expect("open");
        let found = world.check(THREADS).unwrap_or_else(|error| panic!("cycle {cycle}: {error}"));
        let is_lost = found.iter().zip(&acked).any(|(found, acked)| found < acked);
        assert!(!is_lost, "cycle {cycle}: {acked:?} were acknowledged, {found:?} are there");
        survived = found;
        newest_file = newest_file.max(newest(&path));
        if cycle % 3 == 0 {
            world.db().clone().close().expect("close");
        }
    }
    let all = survived.iter().sum();
    let tally = Tally::of(&[("kills", kills), ("transactions", all), ("newest table", newest_file)]);
    tally.tell("kill-transactor", "suite F, transactions");
    tally.require(&[("kills", u64::from(CYCLES)), ("transactions", 400), ("newest table", 5)]);
}

/// The counter that all threads add to.
const ALL: &str = "all";

fn counters(db: &Db) -> Keyspace {
    let counting = KeyspaceOptions::new().merge_operator(AddU64);
    db.keyspace_with("counts", counting).expect("the counters")
}

fn counter(thread: usize) -> String {
    format!("of/{thread}")
}

fn count_at(counts: &Keyspace, key: &str) -> u64 {
    let sum = counts.get(key).expect("a counter is readable");
    sum.map_or(0, |sum| u64::from_le_bytes(sum[..].try_into().expect("a number")))
}

/// The body of the worker that counts; a test that does nothing unless started by the parent.
#[test]
fn counting() {
    let Ok(path) = std::env::var(VARIABLE) else { return };
    let db = open(Path::new(&path)).expect("the worker opens the database");
    let counts = counters(&db);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let counts = &counts;
            scope.spawn(move || {
                let mut count = count_at(counts, &counter(thread));
                loop {
                    counts.merge(ALL, 1u64.to_le_bytes()).expect("a merge");
                    counts.merge(counter(thread), 1u64.to_le_bytes()).expect("a merge");
                    count += 1;
                    let mut out = std::io::stdout().lock();
                    let said = writeln!(out, "ack {thread} {count}").and_then(|()| out.flush());
                    said.expect("the parent listens");
                }
            });
        }
    });
}

#[test]
fn acknowledged_increments_count_once_after_kill_9() {
    let dir =
        tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a temporary directory");
    let path = dir.path().join("db");
    let mut rng = fastrand::Rng::with_seed(11);
    let (mut survived, mut all_survived) = (vec![0; THREADS], 0);
    let (mut kills, mut newest_file) = (0, 0);
    for cycle in 0..CYCLES {
        let mut worker = spawn("kill::counting", &path, &[]);
        let lines = BufReader::new(worker.stdout.take().expect("piped")).lines();
        let (mut acked, mut left) = (survived.clone(), rng.u64(1..600));
        // Read to the end, so that at most one increment of each thread is not acknowledged.
        for line in lines.map_while(Result::ok) {
            let Some((thread, count)) = acknowledged(&line).and_then(|line| line.split_once(' ')) else {
                continue;
            };
            acked[thread.parse::<usize>().expect("a number")] = count.parse::<u64>().expect("a number");
            left = left.saturating_sub(1);
            if left == 0 && kills == cycle {
                worker.kill().expect("kill -9");
                kills += 1;
            }
        }
        worker.wait().expect("wait");
        assert_eq!(left, 0, "cycle {cycle}: the worker ended by itself after {acked:?}");
        let db = open(&path).expect("a kill leaves a database that opens");
        let counts = counters(&db);
        let found: Vec<u64> = (0..THREADS).map(|thread| count_at(&counts, &counter(thread))).collect();
        let is_legal = |(found, acked): (&u64, &u64)| (*acked..=acked + 1).contains(found);
        assert!(
            found.iter().zip(&acked).all(is_legal),
            "cycle {cycle}: {acked:?} were acknowledged, {found:?} are there"
        );
        let new = |now: &[u64]| now.iter().sum::<u64>() - survived.iter().sum::<u64>();
        let all = count_at(&counts, ALL);
        // Each thread adds to the common counter first.
        let legal = all_survived + new(&found)..=all_survived + new(&acked) + THREADS as u64;
        assert!(legal.contains(&all), "cycle {cycle}: the common counter is {all} instead of {legal:?}");
        (survived, all_survived) = (found, all);
        newest_file = newest_file.max(newest(&path));
        drop(counts);
        if cycle % 3 == 0 {
            db.close().expect("close");
        }
    }
    let tally = Tally::of(&[
        ("kills", u64::from(kills)),
        ("increments", survived.iter().sum()),
        ("newest table", newest_file),
    ]);
    tally.tell("kill-counting", "suite F, merges");
    tally.require(&[("kills", u64::from(CYCLES)), ("increments", 400), ("newest table", 5)]);
}
