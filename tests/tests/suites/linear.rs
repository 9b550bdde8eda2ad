//! Suite G: histories. Threads write and read the same few keys; the results must be consistent
//! with one order of all operations.
//!
//! Every write gives a key a unique value. Writers use single puts, groups, batches of several
//! keys, and conditional writes; readers use every method of reading one key. Memtables are tiny,
//! so that a key's versions move through flushes and compactions concurrently.
//! [`shamba_tests::history`], which knows nothing of the engine, checks each key's history.
//!
//! Not here: sums over several keys, snapshots (`concurrency`).

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use shamba::env::{Env, MemFs, Vfs};
use shamba::{Db, Durability, MergePolicy, Swap};
use shamba_tests::history::{Event, Ticks, check};
use shamba_tests::seed::{self, mixed};
use shamba_tests::tally::Tally;
use shamba_tests::vectors::Vector;

const KEYS: usize = 6;
const WRITERS: u64 = 3;
const READERS: u64 = 3;
const WRITES: u64 = 4_000;

fn name(key: usize) -> String {
    format!("shared/{key}")
}

/// The number first, then padding that makes flushes frequent.
fn value(number: u64) -> Vec<u8> {
    [&number.to_le_bytes()[..], &[b'.'; 40]].concat()
}

fn number(value: Option<&[u8]>) -> u64 {
    let head = value.and_then(|value| value.first_chunk::<8>()).expect("every key is always there");
    u64::from_le_bytes(*head)
}

type Seen = Vec<(usize, Event)>;

/// Writes and returns the writes; every value is unique to this writer.
fn write(db: &Db, writer: u64, ticks: &Ticks, seed: u64) -> Seen {
    let mut rng = fastrand::Rng::with_seed(mixed(seed, writer));
    let mut seen = Vec::new();
    for round in 0..WRITES {
        let number = 1 + KEYS as u64 + round * WRITERS + writer;
        let durability = if rng.u8(..40) == 0 { Durability::Sync } else { Durability::NoSync };
        let first = rng.usize(..KEYS);
        if rng.u8(..4) == 0 {
            seen.push((first, write_conditionally(db, first, number, durability, ticks, rng.bool())));
            continue;
        }
        let keys = if rng.u8(..4) == 0 { vec![first, (first + 1) % KEYS] } else { vec![first] };
        let mut batch = db.batch();
        for key in &keys {
            batch.put(name(*key), value(number));
        }
        let start = ticks.now();
        match keys[..] {
            [key] if durability == Durability::NoSync => db.put(name(key), value(number)).expect("put"),
            _ => batch.commit_with(durability).expect("commit"),
        }
        let end = ticks.now();
        seen.extend(
            keys.iter()
                .map(|key| (*key, Event { start, end, value: number, is_write: true, replaced: None })),
        );
    }
    seen
}

/// Replaces the value of a key by `new`, by an update or by swaps until one succeeds.
fn write_conditionally(
    db: &Db,
    key: usize,
    new: u64,
    durability: Durability,
    ticks: &Ticks,
    is_update: bool,
) -> Event {
    let name = name(key);
    let mut replaced = None;
    let mut start = ticks.now();
    if is_update {
        let change = |old: Option<&[u8]>| {
            replaced = Some(number(old));
            Some(value(new))
        };
        db.update_with(&name, change, durability).expect("update");
    } else {
        let mut expected = db.get(&name).expect("get");
        loop {
            start = ticks.now();
            let swap = db.compare_and_swap_with(&name, expected.as_deref(), Some(&value(new)), durability);
            match swap.expect("compare_and_swap") {
                Swap::Done => break,
                Swap::Mismatch(current) => expected = current,
            }
        }
        replaced = Some(number(expected.as_deref()));
    }
    Event { start, end: ticks.now(), value: new, is_write: true, replaced }
}

/// Reads by every method for one key, until it is told to stop.
fn read(db: &Db, reader: u64, ticks: &Ticks, seed: u64, stop: &AtomicBool) -> Seen {
    let mut rng = fastrand::Rng::with_seed(mixed(seed, 100 + reader));
    let mut seen = Vec::new();
    let mut last = false;
    while !last {
        last = stop.load(Ordering::Relaxed);
        let key = rng.usize(..KEYS);
        let name = name(key);
        let start = ticks.now();
        let number = match rng.u8(..5) {
            0 => number(db.multi_get([&name]).expect("multi_get")[0].as_deref()),
            1 => number(db.snapshot().get(&name).expect("get").as_deref()),
            2 => db.prefix(&name).next().map(|pair| number(Some(&pair.expect("scan").1))).expect("there"),
            3 => {
                db.prefix(&name).next_back().map(|pair| number(Some(&pair.expect("scan").1))).expect("there")
            }
            _ => number(db.get(&name).expect("get").as_deref()),
        };
        let end = ticks.now();
        seen.push((key, Event { start, end, value: number, is_write: false, replaced: None }));
    }
    seen
}

fn histories(policy: MergePolicy) {
    let base = seed::base(0x11ea);
    let env = Env { vfs: Arc::new(MemFs::new()) as Arc<dyn Vfs>, ..Env::real() };
    let db = Vector::plain(policy).builder(Path::new("/db"), &env).open().expect("open");
    let (ticks, stop, left) = (Ticks::default(), AtomicBool::new(false), AtomicU64::new(WRITERS));
    let mut all: Seen = Vec::new();
    for key in 0..KEYS {
        let start = ticks.now();
        db.put(name(key), value(1 + key as u64)).expect("put");
        let value = 1 + key as u64;
        all.push((key, Event { start, end: ticks.now(), value, is_write: true, replaced: None }));
    }
    db.put("last of all", "").expect("put");
    std::thread::scope(|scope| {
        let (db, ticks, stop, left) = (&db, &ticks, &stop, &left);
        let writers = (0..WRITERS).map(|writer| {
            scope.spawn(move || {
                let seen = write(db, writer, ticks, base);
                if left.fetch_sub(1, Ordering::Relaxed) == 1 {
                    stop.store(true, Ordering::Relaxed);
                }
                seen
            })
        });
        let writers: Vec<_> = writers.collect();
        let readers: Vec<_> =
            (0..READERS).map(|reader| scope.spawn(move || read(db, reader, ticks, base, stop))).collect();
        for thread in writers.into_iter().chain(readers) {
            all.extend(thread.join().expect("a thread does not panic"));
        }
    });
    db.wait_idle().expect("wait_idle");
    let stats = db.stats();
    assert!(
        stats.flushes > 10 && stats.compactions > 0,
        "{} flushes, {} compactions",
        stats.flushes,
        stats.compactions
    );
    let mut operations = 0;
    for key in 0..KEYS {
        let events: Vec<Event> = all.iter().filter(|(of, _)| *of == key).map(|(_, event)| *event).collect();
        operations +=
            check(&events).unwrap_or_else(|error| panic!("seed {base}, {policy}, key {key}: {error}"));
    }
    let followers = stats.batches - stats.commit_groups;
    Tally::of(&[("operations", operations), ("batches that another writer wrote", followers)])
        .tell(&format!("histories-{policy}"), &format!("suite G, seed {base}"));
    db.close().expect("close");
}

#[test]
fn of_leveling() {
    histories(MergePolicy::Leveling);
}

#[test]
fn of_tiering() {
    histories(MergePolicy::Tiering);
}

#[test]
fn of_lazy_leveling() {
    histories(MergePolicy::LazyLeveling);
}
