//! Transactions compared with a model: what they read, with their own writes mixed in, and when
//! their commits are refused.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use shamba::env::{Env, MemFs, Vfs};
use shamba::merge::Append;
use shamba::{Db, ErrorKind, Isolation, Keyspace, KeyspaceOptions, Savepoint, Transaction};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn open(seed: u64) -> Db {
    let files: Arc<dyn Vfs> = Arc::new(MemFs::new());
    let appending = || KeyspaceOptions::new().merge_operator(Append::separated_by("|"));
    let builder = Db::builder("/db").env(Env::deterministic(files, seed)).write_buffer(8 << 10);
    builder.keyspace("default", appending()).keyspace("other", appending()).open().expect("opened")
}

fn append(map: &mut Map, key: &[u8], operand: &[u8]) {
    match map.get_mut(key) {
        Some(value) => value.extend([b"|", operand].concat()),
        None => _ = map.insert(key.to_vec(), operand.to_vec()),
    }
}

/// Two keyspaces, their contents, and when each key was written last.
struct World {
    db: Db,
    spaces: [Keyspace; 2],
    maps: [Map; 2],
    written: [BTreeMap<Vec<u8>, u64>; 2],
    now: u64,
    written_by_transactions: u64,
    refused: u64,
}

/// Operands for keys that a transaction does not set.
type Blind = BTreeMap<Vec<u8>, Vec<Vec<u8>>>;

/// View, own keys, operands and deleted ranges of a transaction.
type Written = ([Map; 2], [BTreeSet<Vec<u8>>; 2], [Blind; 2], [Vec<(Vec<u8>, Vec<u8>)>; 2]);

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
    blind: [Blind; 2],
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
        Self {
            db,
            spaces,
            maps: Default::default(),
            written: Default::default(),
            now: 0,
            written_by_transactions: 0,
            refused: 0,
        }
    }

    /// A write that belongs to no transaction.
    fn write(&mut self, rng: &mut fastrand::Rng) {
        self.now += 1;
        let place = rng.usize(..2);
        let (key, value) = (random_key(rng), vec![rng.u8(..3); rng.usize(..60)]);
        let space = &self.spaces[place];
        match rng.u8(..12) {
            0 => {
                space.merge(&key, &value).expect("merged");
                append(&mut self.maps[place], &key, &value);
                self.written[place].insert(key, self.now);
            }
            1..6 => {
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
            blind: Default::default(),
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
        let Open { transaction, own, blind, deleted, view, .. } = open;
        let is_read_only = transaction.is_empty();
        let writes_none = own.iter().all(BTreeSet::is_empty) && blind.iter().all(BTreeMap::is_empty);
        assert_eq!(is_read_only, writes_none && deleted.iter().all(Vec::is_empty), "{what}");
        match transaction.commit() {
            Ok(()) => assert!(is_read_only || !differs, "{what}: a conflict was missed"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Conflict, "{what}: {error:?}");
                assert!(!is_read_only && was_written, "{what}: {error} is no conflict");
                let conflict = error.conflict().expect("it says what");
                assert!(["default", "other"].contains(&&*conflict.keyspace), "{what}: {conflict:?}");
                self.refused += 1;
                return true;
            }
        }
        self.written_by_transactions += u64::from(!is_read_only);
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
            for (key, operands) in &blind[place] {
                operands.iter().for_each(|operand| append(&mut self.maps[place], key, operand));
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
        match rng.u8(..18) {
            16.. => {
                let operand = vec![rng.u8(..3); rng.usize(..9)];
                self.transaction.merge_in(space, &key, &operand).expect("merged");
                append(&mut self.view[place], &key, &operand);
                if is_own(self, &key) {
                    self.own[place].insert(key);
                } else {
                    self.blind[place].entry(key).or_default().push(operand);
                }
            }
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
                if for_update || (is_noted && !is_own(self, &key)) {
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
                self.blind[place].remove(&key);
                self.own[place].insert(key);
            }
            11 => {
                self.transaction.delete_in(space, &key).expect("deleted");
                self.view[place].remove(&key);
                self.blind[place].remove(&key);
                self.own[place].insert(key);
            }
            12 | 13 => {
                let end = vec![b'k', key[1] + rng.u8(1..6)];
                self.transaction.delete_range_in(space, &key..&end).expect("deleted");
                self.view[place].retain(|other, _| !within(other, &key, Some(&end)));
                self.own[place].retain(|other| !within(other, &key, Some(&end)));
                self.blind[place].retain(|other, _| !within(other, &key, Some(&end)));
                self.deleted[place].push((key, end));
            }
            14 => {
                let savepoint = self.transaction.savepoint();
                let state = (self.view.clone(), self.own.clone(), self.blind.clone(), self.deleted.clone());
                self.savepoints.push((savepoint, state));
            }
            _ if self.savepoints.is_empty() => {}
            _ => {
                let at = rng.usize(..self.savepoints.len());
                let later = self.savepoints.split_off(at + 1);
                let (savepoint, (view, own, blind, deleted)) = self.savepoints[at].clone();
                self.transaction.rollback_to(savepoint).expect("a savepoint");
                (self.view, self.own, self.blind, self.deleted) = (view, own, blind, deleted);
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
        // Every refusal is counted: as found in memory, or as suspected and not disproved.
        let stats = world.db.stats();
        let conflicts = stats.conflicts + stats.conflicts_unproved - stats.conflicts_disproved;
        let counted = (stats.transactions, conflicts);
        assert_eq!(counted, (world.written_by_transactions, world.refused), "seed {seed}: {stats:?}");
    }
    assert!(refused > 100 && committed > 100, "{refused} refused, {committed} committed");
}
