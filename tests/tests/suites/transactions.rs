//! Suite G: histories of transactions. Threads run transactions over the same few keys of two
//! keyspaces; what all of them read must be possible under the isolation that they asked for.
//!
//! Other threads write batches, delete ranges and replace values conditionally, outside any
//! transaction. Memtables are tiny, so that versions move through flushes and compactions between
//! the first read of a transaction and its commit. [`shamba_tests::serial`], which knows nothing of
//! the engine, checks the history. Transactions with less isolation must fail the same check:
//! otherwise it would prove nothing.
//!
//! Not here: the model of one thread (`crates/engine/tests/api/transactions.rs`).

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use shamba::env::{Effect, Env, FaultFs, FaultRule, MemFs, OpKind};
use shamba::{Db, Durability, ErrorKind, Isolation, Keyspace, MergePolicy, Swap, TransactionOptions};
use shamba_tests::brief::is_brief;
use shamba_tests::history::Ticks;
use shamba_tests::seed::{self, mixed};
use shamba_tests::serial::{self, Checked, Key, Level, Place, Read, Transaction};
use shamba_tests::tally::Tally;
use shamba_tests::vectors::Vector;

const SPACES: u8 = 2;
const KEYS: u32 = 10;
const THREADS: u64 = 4;
const PLAIN_WRITERS: u64 = 2;
const TRANSACTIONS: u64 = 800;
/// Number of steps of a transaction, at most.
const STEPS: usize = 7;

fn name(key: u32) -> Vec<u8> {
    format!("k{key:02}").into_bytes()
}

/// The key of a transaction alone: its sequence number is the place of the transaction.
fn marker(number: u64) -> Vec<u8> {
    format!("m{number:08}").into_bytes()
}

/// The number of a key of the few.
fn key_of(name: &[u8]) -> u32 {
    std::str::from_utf8(&name[1..]).ok().and_then(|text| text.parse().ok()).expect("a key of the few")
}

fn number(value: &[u8]) -> u64 {
    u64::from_le_bytes(*value.first_chunk().expect("every value begins with its number"))
}

/// The state that all threads share.
struct World {
    db: Db,
    spaces: Vec<Keyspace>,
    ticks: Ticks,
    numbers: AtomicU64,
}

/// A transaction that was committed, and whether it has a marker.
type Recorded = (Transaction, Option<u64>);

/// Counts of a thread.
#[derive(Default)]
struct Seen {
    committed: Vec<Recorded>,
    refused: u64,
}

/// A transaction that is under way, as far as its thread knows it.
struct Open<'w> {
    world: &'w World,
    transaction: shamba::Transaction,
    reads: Vec<Read>,
    own: Own,
}

/// The own writes of a transaction.
#[derive(Clone, Default)]
struct Own {
    deleted: Vec<(u8, Range<u32>)>,
    writes: BTreeMap<Key, Option<u64>>,
}

impl Own {
    /// The state that the transaction gave to a key.
    fn get(&self, key: Key) -> Option<Option<u64>> {
        let is_deleted = |(space, range): &(u8, Range<u32>)| *space == key.0 && range.contains(&key.1);
        let written = self.writes.get(&key).copied();
        written.or_else(|| self.deleted.iter().any(is_deleted).then_some(None))
    }
}

impl World {
    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    fn value(number: u64, rng: &mut fastrand::Rng) -> Vec<u8> {
        [&number.to_le_bytes()[..], &vec![b'.'; rng.usize(..60)]].concat()
    }

    fn begin(&self, isolation: Isolation) -> Open<'_> {
        let transaction = self.db.transaction_with(TransactionOptions::new().isolation(isolation));
        Open { world: self, transaction, reads: Vec::new(), own: Own::default() }
    }

    /// Runs transactions, each once: after a conflict it is forgotten.
    fn transact(&self, isolation: Isolation, count: u64, seed: u64) -> Seen {
        let (mut rng, mut seen) = (fastrand::Rng::with_seed(seed), Seen::default());
        for _ in 0..count {
            let begin = self.ticks.now();
            let mut open = self.begin(isolation);
            for _ in 0..rng.usize(1..=STEPS) {
                open.step(&mut rng);
                if rng.u8(..3) == 0 {
                    std::thread::yield_now();
                }
            }
            let Open { mut transaction, reads, own, .. } = open;
            let mark = (!transaction.is_empty()).then(|| self.number());
            if let Some(mark) = mark {
                transaction.put(marker(mark), "").expect("put");
            }
            let durability = if rng.u8(..8) == 0 { Durability::Sync } else { Durability::NoSync };
            match transaction.commit_with(durability) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::Conflict => {
                    seen.refused += 1;
                    continue;
                }
                Err(error) => panic!("{error}"),
            }
            let end = self.ticks.now();
            let (deleted, writes) = (own.deleted, own.writes.into_iter().collect());
            let it = Transaction { begin, end, place: Place::None, reads, deleted, writes };
            seen.committed.push((it, mark));
        }
        seen
    }

    /// Writes without transactions, until it is told to stop.
    fn write(&self, stop: &AtomicBool, seed: u64) -> Seen {
        let (mut rng, mut seen) = (fastrand::Rng::with_seed(seed), Seen::default());
        while !stop.load(Ordering::Relaxed) {
            let (space, key) = (rng.u8(..SPACES), rng.u32(..KEYS));
            match rng.u8(..4) {
                0 => seen.committed.extend(self.replace((space, key), &mut rng)),
                _ => seen.committed.push(self.write_batch(&mut rng)),
            }
            // Fewer than transactions, most of which would be refused otherwise.
            std::thread::sleep(std::time::Duration::from_micros(rng.u64(20..400)));
        }
        seen
    }

    fn write_batch(&self, rng: &mut fastrand::Rng) -> Recorded {
        let mark = self.number();
        let (mut batch, mut own) = (self.db.batch(), Own::default());
        batch.put(marker(mark), "");
        if rng.u8(..3) == 0 {
            let (space, low) = (rng.u8(..SPACES), rng.u32(..KEYS));
            let range = low..low + rng.u32(1..4);
            batch.delete_range_in(&self.spaces[usize::from(space)], name(range.start)..name(range.end));
            own.deleted.push((space, range));
        }
        for _ in 0..rng.usize(1..3) {
            let (space, key) = (rng.u8(..SPACES), rng.u32(..KEYS));
            let keyspace = &self.spaces[usize::from(space)];
            let new = (rng.u8(..5) > 0).then(|| self.number());
            match new {
                Some(new) => batch.put_in(keyspace, name(key), Self::value(new, rng)),
                None => batch.delete_in(keyspace, name(key)),
            };
            own.writes.insert((space, key), new);
        }
        let begin = self.ticks.now();
        batch.commit().expect("commit");
        let end = self.ticks.now();
        let (deleted, writes) = (own.deleted, own.writes.into_iter().collect());
        (Transaction { begin, end, place: Place::None, reads: Vec::new(), deleted, writes }, Some(mark))
    }

    /// Replaces the value of a key by an update or a swap; an absent key is only read.
    fn replace(&self, key: Key, rng: &mut fastrand::Rng) -> Option<Recorded> {
        let (keyspace, new) = (&self.spaces[usize::from(key.0)], self.number());
        let (name, value) = (name(key.1), Self::value(new, rng));
        let begin = self.ticks.now();
        let mut replaced = None;
        if rng.bool() {
            let change = |old: Option<&[u8]>| {
                replaced = old.map(number);
                old.map(|_| value.clone())
            };
            keyspace.update(&name, change).expect("update");
        } else {
            let old = keyspace.get(&name).expect("get")?;
            match keyspace.compare_and_swap(&name, Some(&old), Some(&value)).expect("compare_and_swap") {
                Swap::Done => replaced = Some(number(&old)),
                Swap::Mismatch(_) => return None,
            }
        }
        let end = self.ticks.now();
        let (place, writes) = match replaced {
            Some(old) => (Place::Behind(old), vec![(key, Some(new))]),
            None => (Place::None, Vec::new()),
        };
        let reads = vec![Read::Key(key, replaced)];
        Some((Transaction { begin, end, place, reads, deleted: Vec::new(), writes }, None))
    }

    /// The history, with the places that the markers' sequence numbers give.
    fn history(&self, seen: Vec<Recorded>) -> Vec<Transaction> {
        let place = |mark: u64| {
            let explanation = self.db.explain(marker(mark)).expect("explain");
            let found = explanation.steps.iter().find_map(|step| step.found);
            Place::At(found.unwrap_or_else(|| panic!("the marker {mark} is lost:\n{explanation}")).0)
        };
        let placed = |(mut it, mark): Recorded| {
            it.place = mark.map_or(it.place, place);
            it
        };
        seen.into_iter().map(placed).collect()
    }
}

impl Open<'_> {
    /// One operation of the transaction, noted with what it returned.
    fn step(&mut self, rng: &mut fastrand::Rng) {
        let (space, key) = (rng.u8(..SPACES), rng.u32(..KEYS));
        let keyspace = &self.world.spaces[usize::from(space)];
        match rng.u8(..20) {
            0..6 => {
                let value = match rng.u8(..4) {
                    0 => self.transaction.get_for_update_in(keyspace, name(key)),
                    _ => self.transaction.get_in(keyspace, name(key)),
                };
                let value = value.expect("get").map(|value| number(&value));
                self.note((space, key), value);
            }
            6 | 7 => {
                let keys: Vec<u32> = (0..3).map(|_| rng.u32(..KEYS)).collect();
                let names = keys.iter().map(|key| name(*key));
                let values = self.transaction.multi_get_in(keyspace, names).expect("multi_get");
                for (key, value) in keys.into_iter().zip(values) {
                    self.note((space, key), value.map(|value| number(&value)));
                }
            }
            8..11 => self.scan(space, key, rng),
            11..16 => {
                let new = self.world.number();
                self.transaction.put_in(keyspace, name(key), World::value(new, rng)).expect("put");
                self.own.writes.insert((space, key), Some(new));
            }
            16 => {
                self.transaction.delete_in(keyspace, name(key)).expect("delete");
                self.own.writes.insert((space, key), None);
            }
            17 => {
                let range = key..key + rng.u32(1..4);
                let names = name(range.start)..name(range.end);
                self.transaction.delete_range_in(keyspace, names).expect("delete_range");
                self.own.writes.retain(|(of, key), _| *of != space || !range.contains(key));
                self.own.deleted.push((space, range));
            }
            _ => {
                // What is rolled back was never there.
                let (savepoint, own) = (self.transaction.savepoint(), self.own.clone());
                let new = self.world.number();
                self.transaction.put_in(keyspace, name(key), World::value(new, rng)).expect("put");
                self.transaction.rollback_to(savepoint).expect("rollback_to");
                self.own = own;
            }
        }
    }

    /// Notes a read, or checks that it returned the transaction's own write.
    fn note(&mut self, key: Key, value: Option<u64>) {
        match self.own.get(key) {
            Some(own) => assert_eq!(value, own, "{key:?} was written by the transaction itself"),
            None => self.reads.push(Read::Key(key, value)),
        }
    }

    /// Walks a range from one end or from both, to the end or not.
    fn scan(&mut self, space: u8, low: u32, rng: &mut fastrand::Rng) {
        let keyspace = &self.world.spaces[usize::from(space)];
        // The second keyspace has no markers, so a scan of it may have no upper bound.
        let is_open = space == 1 && rng.u8(..3) == 0;
        let high = if is_open { KEYS } else { (low + rng.u32(1..6)).min(KEYS) };
        let mut iter = match is_open {
            true => self.transaction.range_in(keyspace, name(low).as_slice()..),
            false => self.transaction.range_in(keyspace, name(low)..name(high)),
        };
        let (mut front, mut back) = (low, high);
        let (turns, backward) = (rng.usize(1..8), rng.u8(..3));
        let mut found = BTreeMap::new();
        for _ in 0..turns {
            let is_back = backward == 1 || (backward == 2 && rng.bool());
            let entry = if is_back { iter.next_back() } else { iter.next() };
            let Some(entry) = entry else {
                // All of the range was walked.
                front = back;
                break;
            };
            let (key, value) = entry.expect("scan");
            let key = key_of(&key);
            match is_back {
                true => back = key,
                false => front = key + 1,
            }
            assert!(found.insert(key, number(&value)).is_none(), "{key} was returned twice");
        }
        drop(iter);
        for key in (low..front).chain(back..high) {
            // Read key by key: of some the transaction has its own state.
            self.note((space, key), found.remove(&key));
        }
        assert!(found.is_empty(), "{found:?} lie outside of what was walked");
    }
}

/// Stops the other threads when the last of those that run transactions ends, by a panic too.
struct Leaving<'a> {
    left: &'a AtomicU64,
    stop: &'a AtomicBool,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.stop.store(true, Ordering::Relaxed);
        }
    }
}

/// The outcome of a run of threads.
struct Ran {
    history: Vec<Transaction>,
    tally: Tally,
}

fn run(isolation: Isolation, policy: MergePolicy, count: u64, seed: u64) -> Ran {
    // Some reads of tables take time, so that others write while a commit reads what changed.
    let files = FaultFs::new(Arc::new(MemFs::new()), seed);
    files.add_rule(FaultRule::storm(0.1, Effect::LatencyUs(150)).on(&[OpKind::Read]).at_path(".sst"));
    let env = Env { vfs: Arc::new(files), ..Env::real() };
    let db = Vector::plain(policy).builder(Path::new("/db"), &env).open().expect("open");
    let spaces = vec![db.keyspace("default").expect("keyspace"), db.keyspace("second").expect("keyspace")];
    let world = World { db, spaces, ticks: Ticks::default(), numbers: AtomicU64::new(1) };
    let (stop, left) = (AtomicBool::new(false), AtomicU64::new(THREADS));
    let mut seen = Seen::default();
    std::thread::scope(|scope| {
        let (world, stop, left) = (&world, &stop, &left);
        let transactors = (0..THREADS).map(|thread| {
            scope.spawn(move || {
                let _leaving = Leaving { left, stop };
                world.transact(isolation, count, mixed(seed, thread))
            })
        });
        let transactors: Vec<_> = transactors.collect();
        let writers = (0..PLAIN_WRITERS)
            .map(|thread| scope.spawn(move || world.write(stop, mixed(seed, 100 + thread))));
        let writers: Vec<_> = writers.collect();
        let flusher = scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                world.db.flush().expect("flush");
                std::thread::sleep(std::time::Duration::from_micros(700));
            }
        });
        for thread in transactors.into_iter().chain(writers) {
            let Seen { committed, refused } = thread.join().expect("a thread does not panic");
            seen.committed.extend(committed);
            seen.refused += refused;
        }
        flusher.join().expect("a thread does not panic");
    });
    // What is left, which is the last version of each key.
    let begin = world.ticks.now();
    let all = |space: u8| {
        let keyspace = &world.spaces[usize::from(space)];
        let pairs = keyspace.range(name(0)..name(KEYS + 4)).map(|pair| pair.expect("scan"));
        Read::Keys(space, 0..KEYS + 4, pairs.map(|(key, value)| (key_of(&key), number(&value))).collect())
    };
    let reads = (0..SPACES).map(all).collect();
    let end = world.ticks.now();
    let (deleted, writes) = (Vec::new(), Vec::new());
    seen.committed.push((Transaction { begin, end, place: Place::None, reads, deleted, writes }, None));
    world.db.wait_idle().expect("wait_idle");
    let stats = world.db.stats();
    let tally = Tally::of(&[
        ("transactions refused", seen.refused),
        ("transactions committed", stats.transactions),
        ("conflicts that a table was read for", stats.conflicts_unproved),
        ("batches that another writer wrote", stats.batches - stats.commit_groups),
        ("flushes", stats.flushes),
        ("compactions", stats.compactions),
    ]);
    let history = world.history(seen.committed);
    world.db.close().expect("close");
    Ran { history, tally }
}

/// Runs all policies at an isolation, and requires that the history is possible at `level`.
fn histories(isolation: Isolation, level: Level, suite: &str) {
    let base = seed::base(0x7a_c710);
    let (rounds, count) = if is_brief() { (2, TRANSACTIONS / 2) } else { (3, TRANSACTIONS) };
    let mut total = Tally::default();
    for round in 0..rounds {
        let policies = [MergePolicy::Leveling, MergePolicy::Tiering, MergePolicy::LazyLeveling];
        let policy = policies[round as usize % policies.len()];
        let Ran { history, tally } = run(isolation, policy, count, mixed(base, round));
        total.merge(&tally);
        let checked = serial::check(&history, level);
        let Checked { transactions, reads, open } =
            checked.unwrap_or_else(|error| panic!("seed {base}, {policy}, round {round}: {error}"));
        total.merge(&Tally::of(&[
            ("transactions and writes in histories", transactions),
            ("reads", reads),
            ("reads of absent keys, of which delete is open", open),
        ]));
    }
    total.tell(&format!("transactions-{suite}"), &format!("suite G, {suite}, seed {base}"));
    total.require(&[
        ("transactions refused", 100),
        ("transactions committed", 500),
        ("conflicts that a table was read for", 10),
        ("flushes", 50),
        ("compactions", 5),
    ]);
    // The check would say little if it could not tell which delete most of them saw.
    assert!(total.get("reads of absent keys, of which delete is open") < total.get("reads") / 50, "{total}");
}

#[test]
fn serializable_transactions_have_a_serial_order() {
    histories(Isolation::Serializable, Level::Serializable, "serializable");
}

#[test]
fn snapshot_transactions_lose_no_update_and_see_one_state() {
    histories(Isolation::Snapshot, Level::Snapshot, "snapshot");
}

/// The check finds what the lower isolations allow, in histories of the same threads.
#[test]
fn less_isolation_fails_the_check() {
    for (isolation, level) in
        [(Isolation::Snapshot, Level::Serializable), (Isolation::Unchecked, Level::Snapshot)]
    {
        let found = (0..8).find_map(|round| {
            let Ran { history, .. } = run(isolation, MergePolicy::Leveling, TRANSACTIONS / 4, round);
            serial::check(&history, level).err()
        });
        let found = found.unwrap_or_else(|| panic!("{isolation:?} is never refused as {level:?}"));
        println!("{isolation:?}: {found}");
        assert!(found.contains("a cycle"), "{found}");
    }
}
