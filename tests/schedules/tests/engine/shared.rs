//! Scenarios of databases that share their memory and their threads.

use std::sync::Arc;

use shamba::env::Vfs;
use shamba::{Budget, Db, Durability, MergePolicy, Workers};
use shuttle::thread;

use crate::explore::{Done, SCHEDULES_FEW, explore};
use crate::scheduled::{builder, files};

static SHARES: Done = Done::new();

fn open(files: &Arc<dyn Vfs>, (budget, workers): (&Budget, &Workers)) -> Db {
    let builder = builder(files, MergePolicy::Leveling).budget(budget).workers(workers);
    builder.open().expect("open")
}

/// Number of keys that are written, again and again.
const KEYS: u8 = 5;

fn fill(db: &Db, rounds: std::ops::Range<u8>) {
    for round in rounds {
        db.put_with([round % KEYS], [round; 250], Durability::Sync).expect("put");
    }
}

/// Checks that a database has what rounds `0..rounds` wrote.
fn check(db: &Db, rounds: u8) {
    let found = db.iter().map(|entry| entry.expect("scan"));
    let found: Vec<(u8, u8)> = found.map(|(key, value)| (key[0], value[0])).collect();
    let mut written: Vec<(u8, u8)> = (rounds - KEYS..rounds).map(|round| (round % KEYS, round)).collect();
    written.sort_unstable();
    assert_eq!(found, written);
    db.check_invariants().expect("the tree has its shape");
}

/// Two databases share a budget and one compaction thread. One is filled, closed while its tables
/// are flushed and compacted, and opened again; the other one works all the time.
fn close_beside_another() {
    const ROUNDS: u8 = 14;
    let (budget, workers) = (Budget::new(12 << 20), Workers::new(1));
    let shares = (&budget, &workers);
    let of_other = files();
    let other = open(&of_other, shares);
    let working = {
        let other = other.clone();
        thread::spawn(move || {
            fill(&other, 0..ROUNDS / 2);
            other.flush().expect("flush");
            fill(&other, ROUNDS / 2..ROUNDS);
            other.compact().expect("compact");
        })
    };
    let of_closing = files();
    let closing = open(&of_closing, shares);
    assert_eq!(budget.databases(), 2);
    fill(&closing, 0..ROUNDS / 2);
    SHARES.note(&closing);
    closing.close().expect("close");
    assert_eq!(budget.databases(), 1, "a closed database has left");
    let again = open(&of_closing, shares);
    check(&again, ROUNDS / 2);
    again.close().expect("close");
    working.join().expect("no panic");
    check(&other, ROUNDS);
    let held_bytes = other.memory().ledger_bytes;
    assert!(held_bytes <= budget.bytes(), "{held_bytes} bytes of {}", budget.bytes());
    SHARES.note(&other);
    other.close().expect("close");
    assert_eq!(budget.databases(), 0);
    check(&open(&of_other, shares), ROUNDS);
}

#[test]
fn one_closes_while_the_other_works() {
    explore(
        "shared::one_closes_while_the_other_works",
        SCHEDULES_FEW,
        close_beside_another,
        &SHARES,
        &[("flushes", 200), ("compactions", 50)],
    );
}
