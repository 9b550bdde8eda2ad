//! Suite H, the whole engine: scenarios, each under thousands of schedules.
//!
//! CI runs some of them; `SHAMBA_SCHEDULES=10000 cargo test -p shamba-schedules` runs that many of
//! each. A failure prints the command that reproduces its schedules.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use shamba::env::Vfs;
use shamba::{Db, Durability, ErrorKind, MergePolicy, WriteOptions};
use shamba_tests::{seed, serial};
use shuttle::thread;

use explore::{Done, FOLLOWERS, RECORD_HITS, SCHEDULES, explore};
use scheduled::{files, open, open_counting, open_with_records, read_only, run};

mod expiry;
mod explore;
mod prefixes;
mod rules;
mod scheduled;
mod shared;
mod streams;
mod values;

static WRITES: Done = Done::new();
static CLOSES: Done = Done::new();
static SUMS: Done = Done::new();
static RECORDS: Done = Done::new();
static TRANSACTIONS: Done = Done::new();
static COMMITTED: AtomicU64 = AtomicU64::new(0);
static REFUSED: AtomicU64 = AtomicU64::new(0);

fn key(writer: usize, number: usize) -> String {
    format!("{writer}/{number:02}")
}

/// Writes until everything is written or the database is closed; returns the number of acknowledged
/// writes.
fn write(db: &Db, writer: usize, writes: usize) -> usize {
    for number in 0..writes {
        let durability = [Durability::NoSync, Durability::Sync][(writer + number) % 2];
        let options = WriteOptions::new().durability(durability);
        match db.put_with(key(writer, number), [writer as u8; 150], options) {
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Closed, "{error:?}");
                return number;
            }
        }
    }
    writes
}

/// Checks that a closed database leaves no unused table or value file, whatever was being written.
fn nothing_left_over(vfs: &Arc<dyn Vfs>) {
    let files = vfs.list(Path::new("/db")).expect("list");
    let names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
    let count = |ending: &str| names.iter().filter(|name| name.ends_with(ending)).count() as u64;
    let db = read_only(vfs).expect("open");
    let stats = db.stats();
    let used: u64 = stats.levels.iter().map(|level| level.tables).sum();
    assert_eq!(count(".sst"), used, "tables in the directory {names:?}, tables in use: {}", db.describe());
    assert_eq!(count(".values"), stats.value_files, "value files in the directory: {names:?}");
    db.close().expect("close");
}

fn check(db: &Db, acked: &[usize]) {
    for (writer, acked) in acked.iter().enumerate() {
        let found =
            db.prefix(format!("{writer}/")).inspect(|pair| assert!(pair.is_ok(), "scan: {pair:?}")).count();
        assert!(found >= *acked, "{acked} writes of writer {writer} were acknowledged, {found} are there");
        for number in 0..*acked {
            let value = db.get(key(writer, number)).expect("get").expect("it was acknowledged");
            assert_eq!(value[..], [writer as u8; 150]);
        }
    }
    db.check_invariants().expect("the tree has its shape");
}

/// Writers, group commit, rotation, flush and compactions; everything is present at the end, and
/// after a reopen.
fn write_flush_merge() {
    const EACH: usize = 9;
    let vfs = files();
    let db = open(&vfs, MergePolicy::Leveling).expect("open");
    let writers = [0, 1].map(|writer| {
        let db = db.clone();
        thread::spawn(move || write(&db, writer, EACH))
    });
    db.flush().expect("flush");
    let acked = writers.map(|writer| writer.join().expect("no panic"));
    assert_eq!(acked, [EACH; 2]);
    db.compact().expect("compact");
    check(&db, &acked);
    WRITES.note(&db);
    db.close().expect("close");
    let db = open(&vfs, MergePolicy::Leveling).expect("open");
    check(&db, &acked);
    db.close().expect("close");
}

/// A close while writers write, memtables are flushed and tables compacted: every thread ends, and
/// acknowledged writes are present.
fn close_under_load() {
    /// Enough that compactions are due in most schedules.
    const PUTS: usize = 9;
    let vfs = files();
    let db = open(&vfs, MergePolicy::Tiering).expect("open");
    let writers = [0, 1].map(|writer| {
        let db = db.clone();
        thread::spawn(move || write(&db, writer, 12))
    });
    for number in 0..PUTS {
        db.put(key(2, number), [2; 150]).expect("put");
    }
    CLOSES.note(&db);
    db.close().expect("close");
    let [first, second] = writers.map(|writer| writer.join().expect("no panic"));
    nothing_left_over(&vfs);
    let db = open(&vfs, MergePolicy::Tiering).expect("open");
    check(&db, &[first, second, PUTS]);
    assert!(db.warnings().is_empty(), "a closed database has no tail: {:?}", db.warnings());
    drop(db);
}

/// Sums over snapshots and iterators while batches move amounts between keys, concurrently with
/// flushes and compactions.
fn readers_beside_merges() {
    let db = sums_while_amounts_move();
    SUMS.note(&db);
    db.close().expect("close");
}

fn sums_while_amounts_move() -> Db {
    let vfs = files();
    let db = open(&vfs, MergePolicy::LazyLeveling).expect("open");
    let accounts = |number: u64| format!("account/{number}");
    let mut first = db.batch();
    for number in 0..4 {
        first.put(accounts(number), 100_u64.to_le_bytes());
    }
    first.commit().expect("commit");
    let balance = |value: &[u8]| u64::from_le_bytes(value[..8].try_into().expect("8 bytes"));
    let transfers = {
        let db = db.clone();
        thread::spawn(move || {
            for round in 0..8_u64 {
                let (from, to) = (accounts(round % 4), accounts((round + 1) % 4));
                let of = |name: &String| balance(&db.get(name).expect("get").expect("an account"));
                let (left, right) = (of(&from), of(&to));
                let mut batch = db.batch();
                let padded = |amount: u64| [amount.to_le_bytes().to_vec(), vec![0; 120]].concat();
                batch.put(&from, padded(left - 1)).put(&to, padded(right + 1));
                batch.commit().expect("commit");
            }
        })
    };
    let reader = {
        let db = db.clone();
        thread::spawn(move || {
            for _ in 0..2 {
                let snapshot = db.snapshot();
                let sum =
                    |pairs: &mut dyn Iterator<Item = shamba::Result<(shamba::Slice, shamba::Slice)>>| {
                        pairs.map(|pair| balance(&pair.expect("scan").1)).sum::<u64>()
                    };
                assert_eq!(sum(&mut snapshot.iter()), 400, "a snapshot's sum");
                assert_eq!(sum(&mut snapshot.iter().rev()), 400, "a snapshot's sum from its end");
                assert_eq!(sum(&mut db.iter()), 400, "an iterator's sum");
            }
        })
    };
    db.flush().expect("flush");
    db.compact().expect("compact");
    transfers.join().expect("no panic");
    reader.join().expect("no panic");
    db
}

/// A run is reproduced by its seed alone, whichever thread of the operating system runs it, and
/// whatever ran on it before.
#[test]
fn a_seed_determines_its_schedules() {
    fn both() -> [u64; 2] {
        [0; 2].map(|_| run(25, 6, || drop(sums_while_amounts_move())))
    }
    let threads = [0; 3].map(|_| std::thread::spawn(both));
    let hashes = threads.map(|thread| thread.join().expect("no panic"));
    assert!(hashes.as_flattened().iter().all(|hash| *hash == hashes[0][0]), "{hashes:x?}");
}

/// Number of a transaction's own value; an operand of it counts once in the counter.
fn value_of(worker: usize, round: usize) -> u64 {
    1 + (worker * 100 + round) as u64
}

/// One transaction over four keys: it reads two and a range, writes one or deletes it, and counts
/// itself by an operand. Returns it if it was committed, with the key that is its own.
fn transact(
    db: &Db,
    (worker, round): (usize, usize),
    now: &AtomicU64,
) -> Option<(serial::Transaction, String)> {
    let name = |number: u32| format!("k{number}");
    let number = |value: shamba::Slice| u64::from_le_bytes(value[..8].try_into().expect("8 bytes"));
    let (first, second) = (((worker + round) % 4) as u32, ((worker + 2 * round + 1) % 4) as u32);
    let own = format!("own/{worker}/{round}");
    let begin = now.fetch_add(1, Ordering::Relaxed);
    let mut transaction = db.transaction();
    let mut reads = Vec::new();
    for key in [first, second] {
        let value = transaction.get(name(key)).expect("get").map(number);
        reads.push(serial::Read::Key((0, key), value));
    }
    if round % 2 == 0 {
        let found = transaction.range(name(1)..name(3)).map(|entry| entry.expect("scan"));
        let found = found.map(|(key, value)| (u32::from(key[1] - b'0'), number(value))).collect();
        reads.push(serial::Read::Keys(0, 1..3, found));
    }
    let new = (round % 3 != 2).then(|| value_of(worker, round));
    match new {
        Some(new) => {
            transaction.put(name(second), [&new.to_le_bytes()[..], &[0; 120]].concat()).expect("put")
        }
        None => transaction.delete(name(second)).expect("delete"),
    }
    transaction.put(&own, "").expect("put");
    transaction.merge("count", 1u64.to_le_bytes()).expect("merge");
    match transaction.commit() {
        Ok(()) => {}
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Conflict, "{error:?}");
            return None;
        }
    }
    let (end, writes) = (now.fetch_add(1, Ordering::Relaxed), vec![((0, second), new)]);
    let place = serial::Place::None;
    Some((serial::Transaction { begin, end, place, reads, deleted: Vec::new(), writes }, own))
}

/// Transactions on the same few keys, concurrently with a flush and compactions: those that were
/// committed have a serial order, and each has counted itself once.
fn transactions_beside_flushes() {
    const ROUNDS: usize = 4;
    let db = open_counting(&files()).expect("open");
    let now = Arc::new(AtomicU64::new(0));
    let workers = [0, 1, 2].map(|worker| {
        let (db, now) = (db.clone(), Arc::clone(&now));
        thread::spawn(move || {
            let rounds = (0..ROUNDS).filter_map(|round| transact(&db, (worker, round), &now));
            rounds.collect::<Vec<_>>()
        })
    });
    db.flush().expect("flush");
    db.compact().expect("compact");
    let committed: Vec<_> = workers.into_iter().flat_map(|worker| worker.join().expect("no panic")).collect();
    let placed = committed.into_iter().map(|(mut transaction, own)| {
        let explanation = db.explain(&own).expect("explain");
        let found = explanation.steps.iter().find_map(|step| step.found);
        transaction.place = serial::Place::At(found.expect("its own key is there").0);
        transaction
    });
    let history: Vec<serial::Transaction> = placed.collect();
    if let Err(detail) = serial::check(&history, serial::Level::Serializable) {
        panic!("{detail}");
    }
    let count =
        db.get("count").expect("get").map(|value| u64::from_le_bytes(value[..].try_into().expect("8")));
    assert_eq!(count.unwrap_or_default(), history.len() as u64, "each transaction counts once");
    TRANSACTIONS.note(&db);
    COMMITTED.fetch_add(history.len() as u64, Ordering::Relaxed);
    REFUSED.fetch_add(3 * ROUNDS as u64 - history.len() as u64, Ordering::Relaxed);
    db.close().expect("close");
}

#[test]
fn transactions_have_a_serial_order() {
    explore(
        "transactions_have_a_serial_order",
        SCHEDULES,
        transactions_beside_flushes,
        &TRANSACTIONS,
        &[("flushes", 200), ("compactions", 50)],
    );
    let (committed, refused) = (COMMITTED.load(Ordering::Relaxed), REFUSED.load(Ordering::Relaxed));
    println!("{committed} transactions committed, {refused} refused");
    assert!(
        seed::only_vector().is_some() || (committed > 0 && refused * 20 > committed),
        "{refused} refused"
    );
}

/// Two keys are written together, flushed and compacted while two readers, whose lookups are
/// answered by the record cache at times, must find them equal and never older than before.
fn pairs_beside_flushes() {
    let db = open_with_records(&files()).expect("open");
    let pair = |round: u8| {
        let mut batch = db.batch();
        batch.put("left", [round; 150]).put("right", [round; 150]);
        batch.commit().expect("commit");
    };
    pair(0);
    db.flush().expect("flush");
    let readers = [0, 1].map(|_| {
        let db = db.clone();
        thread::spawn(move || {
            let mut last = 0;
            for _ in 0..8 {
                let values = db.multi_get(["left", "right"]).expect("multi_get");
                let [left, right] = [&values[0], &values[1]].map(|value| value.as_ref().expect("a value")[0]);
                assert_eq!(left, right, "two keys that were written together");
                assert!(left >= last, "{left} after {last}");
                last = db.get("left").expect("get").expect("a value")[0];
                assert!(left <= last, "{last} after {left}");
            }
        })
    });
    for round in 1..=3 {
        pair(round);
        db.flush().expect("flush");
    }
    db.compact().expect("compact");
    readers.into_iter().for_each(|reader| reader.join().expect("no panic"));
    RECORDS.note(&db);
    db.close().expect("close");
}

#[test]
fn pairs_in_the_record_cache() {
    explore(
        "pairs_in_the_record_cache",
        SCHEDULES,
        pairs_beside_flushes,
        &RECORDS,
        &[("flushes", 300), ("compactions", 50), (RECORD_HITS, 100)],
    );
}

#[test]
fn write_flush_and_merge() {
    explore(
        "write_flush_and_merge",
        SCHEDULES,
        write_flush_merge,
        &WRITES,
        &[("flushes", 400), ("compactions", 100), (FOLLOWERS, 100), ("stalls", 200)],
    );
}

#[test]
fn close_beside_writers() {
    explore(
        "close_beside_writers",
        SCHEDULES,
        close_under_load,
        &CLOSES,
        &[("flushes", 200), ("compactions", 20), (FOLLOWERS, 150), ("stalls", 250)],
    );
}

#[test]
fn sums_beside_merges() {
    explore(
        "sums_beside_merges",
        SCHEDULES,
        readers_beside_merges,
        &SUMS,
        &[("flushes", 250), ("compactions", 100), ("stalls", 100)],
    );
}
