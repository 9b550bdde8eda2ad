//! Transactions: what they read, and when they conflict, compared with a model; and many threads
//! whose sums must hold.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, Mutex};

use shamba::env::{Clock, Effect, Env, FaultFs, FaultRule, MemFs, OpKind, Vfs};
use shamba::{Db, Durability, ErrorKind, Isolation, Keyspace, Savepoint, Transaction, TransactionOptions};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn open(seed: u64) -> Db {
    let files: Arc<dyn Vfs> = Arc::new(MemFs::new());
    Db::builder("/db").env(Env::deterministic(files, seed)).write_buffer(8 << 10).open().expect("opened")
}

/// In real threads, over files in memory; small memtables, so that flushes and compactions come in
/// between.
fn open_threaded() -> Db {
    let env = Env { vfs: Arc::new(MemFs::new()), ..Env::real() };
    Db::builder("/db").env(env).write_buffer(8 << 10).open().expect("opened")
}

/// Two keyspaces, their contents, and when each key was written last.
struct World {
    db: Db,
    spaces: [Keyspace; 2],
    maps: [Map; 2],
    written: [BTreeMap<Vec<u8>, u64>; 2],
    now: u64,
}

/// View, own keys and deleted ranges of a transaction.
type Written = ([Map; 2], [BTreeSet<Vec<u8>>; 2], [Vec<(Vec<u8>, Vec<u8>)>; 2]);

/// A transaction, and what it should see.
struct Open {
    transaction: Transaction,
    isolation: Isolation,
    begun: u64,
    base: [Map; 2],
    view: [Map; 2],
    reads: BTreeSet<(usize, Vec<u8>)>,
    ranges: Vec<(usize, Vec<u8>, Option<Vec<u8>>)>,
    /// Keys and ranges written, for snapshot isolation.
    own: [BTreeSet<Vec<u8>>; 2],
    deleted: [Vec<(Vec<u8>, Vec<u8>)>; 2],
    savepoints: Vec<(Savepoint, Written)>,
}

fn random_key(rng: &mut fastrand::Rng) -> Vec<u8> {
    vec![b'k', rng.u8(..30)]
}

fn within(key: &[u8], lower: &[u8], upper: Option<&[u8]>) -> bool {
    lower <= key && upper.is_none_or(|upper| key < upper)
}

impl World {
    fn new(seed: u64) -> Self {
        let db = open(seed);
        let spaces = [db.keyspace("default").expect("there"), db.keyspace("other").expect("made")];
        Self { db, spaces, maps: Default::default(), written: Default::default(), now: 0 }
    }

    /// A write that belongs to no transaction.
    fn write(&mut self, rng: &mut fastrand::Rng) {
        self.now += 1;
        let place = rng.usize(..2);
        let (key, value) = (random_key(rng), vec![rng.u8(..3); rng.usize(..60)]);
        let space = &self.spaces[place];
        match rng.u8(..12) {
            0..6 => {
                space.put(&key, &value).expect("put");
                self.maps[place].insert(key.clone(), value);
                self.written[place].insert(key, self.now);
            }
            6..9 => {
                space.delete(&key).expect("deleted");
                self.maps[place].remove(&key);
                self.written[place].insert(key, self.now);
            }
            9 => {
                let end = vec![b'k', key[1] + rng.u8(1..4)];
                space.delete_range(&key..&end).expect("deleted");
                self.maps[place].retain(|other, _| !within(other, &key, Some(&end)));
                for number in key[1]..end[1] {
                    self.written[place].insert(vec![b'k', number], self.now);
                }
            }
            10 => self.db.flush().expect("flushed"),
            _ if place == 0 => {
                let keys: BTreeSet<Vec<u8>> = (0..3).map(|_| random_key(rng)).collect();
                self.db.ingest(keys.iter().map(|key| (key, &value))).expect("ingested");
                for key in keys {
                    self.maps[0].insert(key.clone(), value.clone());
                    self.written[0].insert(key, self.now);
                }
            }
            _ => self.db.compact().expect("compacted"),
        }
    }

    fn begin(&self, rng: &mut fastrand::Rng) -> Open {
        let isolation = *rng
            .choice(&[
                Isolation::Serializable,
                Isolation::Serializable,
                Isolation::Snapshot,
                Isolation::Unchecked,
            ])
            .expect("one of them");
        Open {
            transaction: self.db.transaction_with(isolation),
            isolation,
            begun: self.now,
            base: self.maps.clone(),
            view: self.maps.clone(),
            reads: BTreeSet::new(),
            ranges: Vec::new(),
            own: Default::default(),
            deleted: Default::default(),
            savepoints: Vec::new(),
        }
    }

    /// Whether something that the transaction depends on was written, and whether it differs now.
    fn conflict_of(&self, open: &Open) -> (bool, bool) {
        let mut keys = open.reads.clone();
        let mut ranges = open.ranges.clone();
        if open.isolation == Isolation::Snapshot {
            for place in 0..2 {
                keys.extend(open.own[place].iter().map(|key| (place, key.clone())));
                let deleted = open.deleted[place].iter();
                ranges.extend(deleted.map(|(lower, upper)| (place, lower.clone(), Some(upper.clone()))));
            }
        }
        for (place, lower, upper) in ranges {
            let all = (0..40).map(|number| vec![b'k', number]);
            keys.extend(all.filter(|key| within(key, &lower, upper.as_deref())).map(|key| (place, key)));
        }
        let was_written = |(place, key): &(usize, Vec<u8>)| {
            self.written[*place].get(key).is_some_and(|at| *at > open.begun)
        };
        let differs =
            |(place, key): &(usize, Vec<u8>)| self.maps[*place].get(key) != open.base[*place].get(key);
        (keys.iter().any(was_written), keys.iter().any(differs))
    }

    /// Commits, and returns whether that was refused.
    fn commit(&mut self, open: Open, what: &str) -> bool {
        let (was_written, differs) = self.conflict_of(&open);
        let Open { transaction, own, deleted, view, .. } = open;
        let is_read_only = transaction.is_empty();
        assert_eq!(is_read_only, own.iter().all(BTreeSet::is_empty) && deleted.iter().all(Vec::is_empty));
        match transaction.commit() {
            Ok(()) => assert!(is_read_only || !differs, "{what}: a conflict was missed"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Conflict, "{what}: {error:?}");
                assert!(!is_read_only && was_written, "{what}: {error} is no conflict");
                let conflict = error.conflict().expect("it says what");
                assert!(["default", "other"].contains(&&*conflict.keyspace), "{what}: {conflict:?}");
                return true;
            }
        }
        self.now += 1;
        for place in 0..2 {
            for (lower, upper) in &deleted[place] {
                self.maps[place].retain(|key, _| !within(key, lower, Some(upper)));
                for number in lower[1]..upper[1] {
                    self.written[place].insert(vec![b'k', number], self.now);
                }
            }
            for key in &own[place] {
                match view[place].get(key) {
                    Some(value) => self.maps[place].insert(key.clone(), value.clone()),
                    None => self.maps[place].remove(key),
                };
                self.written[place].insert(key.clone(), self.now);
            }
        }
        for place in 0..2 {
            let all: Map = self.spaces[place]
                .iter()
                .map(|entry| entry.map(|(key, value)| (key.into_vec(), value.into_vec())))
                .collect::<Result<_, _>>()
                .expect("read");
            assert_eq!(all, self.maps[place], "{what}: after the commit");
        }
        false
    }
}

impl Open {
    /// One operation; all that it reads is compared with the model.
    fn step(&mut self, spaces: &[Keyspace; 2], rng: &mut fastrand::Rng, what: &str) {
        let place = rng.usize(..2);
        let space = &spaces[place];
        let key = random_key(rng);
        let is_noted = self.isolation == Isolation::Serializable;
        let is_own = |open: &Self, key: &[u8]| {
            let covers = |(lower, upper): &(Vec<u8>, Vec<u8>)| within(key, lower, Some(upper));
            open.own[place].contains(key) || open.deleted[place].iter().any(covers)
        };
        match rng.u8(..16) {
            0..3 => {
                let for_update = rng.u8(..4) == 0;
                let value = match for_update {
                    true => self.transaction.get_for_update_in(space, &key),
                    false => self.transaction.get_in(space, &key),
                };
                let value = value.expect("read");
                assert_eq!(
                    value.as_deref(),
                    self.view[place].get(&key).map(Vec::as_slice),
                    "{what}: {key:?}"
                );
                if (for_update || is_noted) && !is_own(self, &key) {
                    self.reads.insert((place, key));
                }
            }
            3 => {
                let keys: Vec<Vec<u8>> = (0..5).map(|_| random_key(rng)).collect();
                let values = self.transaction.multi_get_in(space, &keys).expect("read");
                for (key, value) in keys.into_iter().zip(values) {
                    let expected = self.view[place].get(&key).map(Vec::as_slice);
                    assert_eq!(value.as_deref(), expected, "{what}: {key:?}");
                    if is_noted && !is_own(self, &key) {
                        self.reads.insert((place, key));
                    }
                }
            }
            4..8 => self.scan(space, place, key, rng, what),
            8..11 => {
                let value = vec![rng.u8(..3); rng.usize(..60)];
                self.transaction.put_in(space, &key, &value).expect("put");
                self.view[place].insert(key.clone(), value);
                self.own[place].insert(key);
            }
            11 => {
                self.transaction.delete_in(space, &key).expect("deleted");
                self.view[place].remove(&key);
                self.own[place].insert(key);
            }
            12 | 13 => {
                let end = vec![b'k', key[1] + rng.u8(1..6)];
                self.transaction.delete_range_in(space, &key..&end).expect("deleted");
                self.view[place].retain(|other, _| !within(other, &key, Some(&end)));
                self.own[place].retain(|other| !within(other, &key, Some(&end)));
                self.deleted[place].push((key, end));
            }
            14 => {
                let savepoint = self.transaction.savepoint();
                let state = (self.view.clone(), self.own.clone(), self.deleted.clone());
                self.savepoints.push((savepoint, state));
            }
            _ if self.savepoints.is_empty() => {}
            _ => {
                let at = rng.usize(..self.savepoints.len());
                let later = self.savepoints.split_off(at + 1);
                let (savepoint, (view, own, deleted)) = self.savepoints[at].clone();
                self.transaction.rollback_to(savepoint).expect("a savepoint");
                (self.view, self.own, self.deleted) = (view, own, deleted);
                if let Some((gone, ..)) = later.first() {
                    let refused = self.transaction.rollback_to(*gone).expect_err("it is forgotten");
                    assert_eq!(refused.kind(), ErrorKind::Invalid);
                }
            }
        }
    }

    /// Walks a part of a range from both ends.
    fn scan(&mut self, space: &Keyspace, place: usize, lower: Vec<u8>, rng: &mut fastrand::Rng, what: &str) {
        let upper = match rng.u8(..3) {
            0 => None,
            _ => Some(vec![b'k', lower[1] + rng.u8(1..12)]),
        };
        let end = upper.as_ref().map_or(Bound::Unbounded, |upper| Bound::Excluded(upper.as_slice()));
        let mut iter = self.transaction.range_in(space, (Bound::Included(lower.as_slice()), end));
        let mut expected: Vec<(&Vec<u8>, &Vec<u8>)> =
            self.view[place].iter().filter(|(key, _)| within(key, &lower, upper.as_deref())).collect();
        let (mut first, mut last, mut is_complete) = (None, None, false);
        for _ in 0..rng.usize(..14) {
            let is_front = rng.u8(..3) > 0;
            let found = if is_front { iter.next() } else { iter.next_back() };
            let found = found.map(|entry| entry.expect("read"));
            let wanted = match (is_front, expected.is_empty()) {
                (_, true) => None,
                (true, false) => Some(expected.remove(0)),
                (false, false) => expected.pop(),
            };
            let found = found.map(|(key, value)| (key.into_vec(), value.into_vec()));
            let wanted = wanted.map(|(key, value)| (key.clone(), value.clone()));
            assert_eq!(found, wanted, "{what}: from {lower:?} to {upper:?}");
            match (found, is_front) {
                (None, _) => is_complete = true,
                (Some((key, _)), true) => first = Some(key),
                (Some((key, _)), false) => last = Some(key),
            }
        }
        drop(iter);
        if self.isolation != Isolation::Serializable {
            return;
        }
        if is_complete {
            self.ranges.push((place, lower, upper));
            return;
        }
        if let Some(mut key) = first {
            key.push(0);
            self.ranges.push((place, lower, Some(key)));
        }
        if let Some(key) = last {
            self.ranges.push((place, key, upper));
        }
    }
}

/// Several transactions at once, among writes, flushes, compactions and ingests: each reads its
/// snapshot with its own writes, and is refused if and only if that is right.
#[test]
fn transactions_are_those_of_a_model() {
    let seed = std::env::var("SHAMBA_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..1 << 32));
    println!("SHAMBA_SEED={seed}");
    let (mut refused, mut committed) = (0, 0);
    for round in 0..30 {
        let mut rng = fastrand::Rng::with_seed(seed + round);
        let mut world = World::new(seed + round);
        let mut all: Vec<Open> = Vec::new();
        for step in 0..600 {
            let what = format!("seed {seed}, round {round}, step {step}");
            match rng.u8(..10) {
                0..2 => world.write(&mut rng),
                2 if all.len() < 4 => all.push(world.begin(&mut rng)),
                3 if !all.is_empty() => {
                    let open = all.swap_remove(rng.usize(..all.len()));
                    match world.commit(open, &what) {
                        true => refused += 1,
                        false => committed += 1,
                    }
                }
                _ => {
                    if let Some(open) = rng.choice(&mut all) {
                        open.step(&world.spaces, &mut rng, &what);
                    }
                }
            }
        }
        let stats = world.db.stats();
        assert!(stats.transactions > 0 && stats.conflicts > 0, "seed {seed}: {stats:?}");
    }
    assert!(refused > 100 && committed > 100, "{refused} refused, {committed} committed");
}

/// A table that was flushed since the transaction began is read before it counts as a conflict.
#[test]
fn a_flush_alone_is_no_conflict() {
    let db = open(1);
    for number in 0..100 {
        db.put(format!("key {number:03}"), "0").expect("put");
    }
    db.flush().expect("flushed");
    let mut transaction = db.transaction();
    assert!(transaction.get("key 050").expect("read").is_some());
    assert_eq!(transaction.range("key 020".."key 030").count(), 10);
    transaction.put("sum", "10").expect("put");
    db.put("key 019", "1").expect("put");
    db.put("key 030", "1").expect("put");
    db.flush().expect("flushed");
    db.compact().expect("compacted");
    transaction.commit().expect("nothing that it read has changed");
    assert_eq!(db.stats().conflicts, 0);
    assert!(db.stats().conflicts_unproved > 0, "the table was not even suspected");

    for change in ["put", "absent", "range"] {
        let mut transaction = db.transaction();
        transaction.range("key 020".."key 030").for_each(|entry| drop(entry.expect("read")));
        transaction.put("sum", "11").expect("put");
        match change {
            "put" => db.put("key 025", "1"),
            "absent" => db.put("key 025x", "1"),
            _ => db.delete_range("key 029".."key 04"),
        }
        .expect("written");
        db.flush().expect("flushed");
        let error = transaction.commit().expect_err(change);
        let key = &error.conflict().expect("a conflict").key;
        let expected: &[u8] = match change {
            "put" => b"key 025",
            "absent" => b"key 025x",
            _ => b"key 029",
        };
        assert_eq!(key.escape_ascii().to_string(), expected.escape_ascii().to_string(), "{change}: {error}");
    }
}

#[test]
fn a_dropped_keyspace_is_a_conflict_for_its_readers_and_an_error_for_its_writers() {
    let db = open(1);
    let gone = db.keyspace("gone").expect("made");
    let (mut reader, mut writer) = (db.transaction(), db.transaction());
    assert!(reader.get_in(&gone, "a").expect("read").is_none());
    reader.put("b", "1").expect("put");
    writer.put_in(&gone, "a", "1").expect("put");
    db.drop_keyspace("gone").expect("dropped");
    assert_eq!(reader.commit().expect_err("it is gone").kind(), ErrorKind::Conflict);
    assert_eq!(writer.commit().expect_err("it is gone").kind(), ErrorKind::Invalid);
    let late = db.transaction();
    let error = late.iter_in(&gone).next().expect("an error").expect_err("it is gone");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let other = open(2);
    let foreign = other.keyspace("other").expect("made");
    assert_eq!(late.get_in(&foreign, "a").expect_err("foreign").kind(), ErrorKind::Invalid);
    let error = late.range_in(&foreign, ..).next_back().expect("an error").expect_err("foreign");
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

#[test]
fn memory_is_bounded_and_charged() {
    let db = open(1);
    let held = || {
        let memory = db.memory();
        memory.parts.iter().find(|(name, _)| name == "transactions").map(|(_, bytes)| *bytes).expect("a part")
    };
    let mut small = db.transaction_with(TransactionOptions::new().memory_bytes(4 << 10));
    let error = (0..100).find_map(|number: u32| small.put(number.to_be_bytes(), [1; 100]).err());
    let error = error.expect("100 times 100 bytes exceed 4 KiB");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("memory_bytes"), "{error}");
    let (writes, before) = (small.len(), held());
    assert!((10..40).contains(&writes) && before == 0, "{writes} writes, {before} bytes");
    small.commit().expect("what is in it");
    assert_eq!(db.iter().count(), writes);

    let mut large = db.transaction();
    for number in 0..1_000_u32 {
        large.put(number.to_be_bytes(), [1; 100]).expect("put");
    }
    assert!((100_000..500_000).contains(&held()), "{} bytes", held());
    let reads = db.transaction();
    let read_bytes = held();
    for number in 0..1_000_u32 {
        reads.get(number.to_be_bytes()).expect("read");
    }
    assert!(held() > read_bytes + 1_000 * 4, "{} bytes", held() - read_bytes);
    drop(reads);
    large.rollback();
    drop(large);
    assert_eq!(held(), 0);
    let few = db.transaction_with(TransactionOptions::new().memory_bytes(1 << 10));
    let error =
        (0..1_000_u32).find_map(|number| few.get(number.to_be_bytes()).err()).expect("too many reads");
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

/// Threads move amounts between accounts and others add all of them up: the sum never changes, and
/// an account never goes below zero.
#[test]
fn sums_hold_among_threads() {
    const ACCOUNTS: u64 = 20;
    const EACH: u64 = 100;
    let db = open_threaded();
    let value = |slice: Option<shamba::Slice>| {
        u64::from_le_bytes((*slice.expect("an account")).try_into().expect("8 bytes"))
    };
    for account in 0..ACCOUNTS {
        db.put(account.to_be_bytes(), EACH.to_le_bytes()).expect("put");
    }
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let db = &db;
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(thread);
                for turn in 0..400 {
                    let (from, to, amount) = (rng.u64(..ACCOUNTS), rng.u64(..ACCOUNTS), rng.u64(1..60));
                    if from == to {
                        continue;
                    }
                    db.transact(|tx| {
                        let has = value(tx.get(from.to_be_bytes())?);
                        if has < amount {
                            return Ok(());
                        }
                        let other = value(tx.get(to.to_be_bytes())?);
                        tx.put(from.to_be_bytes(), (has - amount).to_le_bytes())?;
                        tx.put(to.to_be_bytes(), (other + amount).to_le_bytes())
                    })
                    .expect("moved");
                    if turn % 10 == 0 {
                        let sum = db.transact(|tx| {
                            let all = tx.range(..ACCOUNTS.to_be_bytes().as_slice());
                            let sum = all
                                .map(|entry| entry.map(|(_, amount)| value(Some(amount))))
                                .sum::<shamba::Result<u64>>()?;
                            tx.put("sum", sum.to_le_bytes())?;
                            Ok(sum)
                        });
                        assert_eq!(sum.expect("added up"), ACCOUNTS * EACH);
                    }
                }
            });
        }
    });
    let stats = db.stats();
    assert!(stats.transactions > 1_000 && stats.transaction_retries > 0, "{stats:?}");
    let sum: u64 = (0..ACCOUNTS).map(|account| value(db.get(account.to_be_bytes()).expect("read"))).sum();
    assert_eq!(sum, ACCOUNTS * EACH);
}

/// Two transactions read both of two keys and each writes one: serializable ones do not both
/// commit, those of snapshot isolation do, unless they read for update.
#[test]
fn write_skew_is_prevented_where_it_should_be() {
    let run = |isolation: Isolation, for_update: bool| {
        let db = open(1);
        let mut both = ["a", "b"].map(|own| {
            let mut transaction = db.transaction_with(isolation);
            for key in ["a", "b"] {
                let read = match for_update {
                    true => transaction.get_for_update(key),
                    false => transaction.get(key),
                };
                assert!(read.expect("read").is_none());
            }
            transaction.put(own, "1").expect("put");
            transaction
        });
        both.rotate_left(1);
        both.map(|transaction| transaction.commit().is_ok())
    };
    assert_eq!(run(Isolation::Serializable, false), [true, false]);
    assert_eq!(run(Isolation::Snapshot, false), [true, true]);
    assert_eq!(run(Isolation::Snapshot, true), [true, false]);
    assert_eq!(run(Isolation::Unchecked, true), [true, false]);
    // The same key: the first one wins.
    let db = open(1);
    let same = [Isolation::Snapshot, Isolation::Unchecked].map(|isolation| {
        let mut late = db.transaction_with(isolation);
        late.put("a", "late").expect("put");
        db.put("a", "early").expect("put");
        late.commit().is_ok()
    });
    assert_eq!(same, [false, true]);
}

#[test]
fn a_transaction_is_durable_as_asked_and_gives_up_after_its_attempts() {
    let db = open(1);
    let mut runs = 0;
    let outcome = db.transact_with(TransactionOptions::new().attempts(3), |tx| {
        runs += 1;
        tx.get("a")?;
        db.put("a", "changed")?;
        tx.put("b", "1")
    });
    assert_eq!((outcome.expect_err("each time").kind(), runs), (ErrorKind::Conflict, 3));
    assert_eq!(db.stats().transaction_retries, 2);
    let before = db.stats().wal_syncs;
    let synced = TransactionOptions::new().write(Durability::Sync);
    db.transact_with(synced, |tx| tx.put("c", "1")).expect("written");
    assert_eq!(db.stats().wal_syncs, before + 1);
    // Nothing is written by one that fails or is dropped.
    let failed = db.transact(|tx| {
        tx.put("d", "1")?;
        Err::<(), _>(db.drop_keyspace("none").expect_err("there is none"))
    });
    assert_eq!(failed.expect_err("its own error").kind(), ErrorKind::Invalid);
    assert!(!db.contains_key("d").expect("read"));
}

/// A clock whose sleeps run something else, once: what happens while a slow read of a file lasts.
#[derive(Default)]
struct Meanwhile(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl std::fmt::Debug for Meanwhile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Meanwhile")
    }
}

impl Clock for Meanwhile {
    fn now_us(&self) -> u64 {
        0
    }

    fn unix_ms(&self) -> u64 {
        0
    }

    fn sleep_us(&self, _us: u64) {
        let work = self.0.lock().expect("nobody panics with it").take();
        if let Some(work) = work {
            work();
        }
    }

    fn wait_ns(&self, _ns: u64) {}
}

/// While a commit reads the tables that may hold a change, others write what it depends on, and
/// a compaction may leave nothing of it: the commit is refused all the same.
#[test]
fn a_change_while_tables_are_read_is_a_conflict() {
    for is_compacted in [false, true] {
        let meanwhile = Arc::new(Meanwhile::default());
        let files = FaultFs::with_clock(Arc::new(MemFs::new()), 1, Arc::clone(&meanwhile) as Arc<dyn Clock>);
        let db = Db::builder("/db").env(Env::deterministic(Arc::new(files.clone()), 1));
        let db = db.info_log(false).open().expect("opened");
        for number in 0..100 {
            db.put(format!("key {number:03}"), "0").expect("put");
        }
        db.flush().expect("flushed");
        db.compact().expect("compacted");
        let mut transaction = db.transaction();
        assert!(transaction.get("key 050").expect("read").is_some());
        transaction.put("sum", "1").expect("put");
        // The table of these may hold a newer version of the key, and does not.
        db.put("key 049", "1").expect("put");
        db.put("key 051", "1").expect("put");
        db.flush().expect("flushed");
        files.add_rule(FaultRule::storm(1.0, Effect::LatencyUs(1)).on(&[OpKind::Read]).at_path(".sst"));
        let work = {
            let db = db.clone();
            move || {
                db.delete("key 050").expect("deleted");
                if is_compacted {
                    db.flush().expect("flushed");
                    db.compact().expect("compacted");
                }
            }
        };
        *meanwhile.0.lock().expect("nobody panics with it") = Some(Box::new(work));
        let error = transaction.commit().expect_err("a key that it has read was deleted");
        assert_eq!(error.conflict().expect("a conflict").key, b"key 050", "{error}");
        assert!(meanwhile.0.lock().expect("nobody panics with it").is_none(), "no table was read");
        assert!(!db.contains_key("sum").expect("read"));
    }
}
