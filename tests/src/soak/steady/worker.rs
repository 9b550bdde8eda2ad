//! A thread of the load, which owns the keys with its letter.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use fastrand::Rng;
use shamba::env::Env;
use shamba::{Allocation, Db, Design, Iter, Keyspace, MergePolicy, Slice, Snapshot, TreeDesign};

use super::{JOURNAL, Space, UNWANTED};
use crate::seed::mixed;
use crate::tally::Tally;

/// Keys of a thread in a keyspace.
const KEYS: u32 = 3_000;
/// Snapshots and iterators that a thread holds at most.
const HELD_MAX: usize = 3;
/// Operations between two of the work that only the first thread does.
const RARE: u64 = 3_000;
/// Milliseconds around an expiry in which both answers are right.
const TOLERANCE_MS: u64 = 50;

/// A value: its bytes follow from these.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Held {
    /// Of its bytes; of a counter the sum.
    number: u64,
    bytes: usize,
    /// When it expires, if it does.
    until_ms: u64,
}

impl Held {
    fn bytes(self, space: Space) -> Vec<u8> {
        if space == Space::Counters {
            return self.number.to_le_bytes().to_vec();
        }
        let mut bytes = vec![0; self.bytes];
        // Half of it can be compressed.
        Rng::with_seed(self.number).fill(&mut bytes[..self.bytes / 2]);
        bytes
    }
}

type Pair = (Vec<u8>, Held);
type Model = BTreeMap<Vec<u8>, Held>;

pub(super) struct Worker {
    db: Db,
    spaces: Vec<Keyspace>,
    journal: Keyspace,
    models: Vec<Model>,
    rng: Rng,
    number: u64,
    dir: PathBuf,
    /// Snapshots, and what the thread's plain keys held then.
    snapshots: Vec<(Snapshot, Model)>,
    /// Scans of its plain keys, and the entries that each has still to return.
    scans: Vec<(Iter, Vec<Pair>)>,
    journaled: u64,
    tally: Tally,
}

/// The message of a failed call.
pub(super) fn said(what: &str) -> impl Fn(shamba::Error) -> String {
    move |error| format!("steady, {what}: {}", error.chain())
}

/// Whether a scan found this entry, or nothing where there is none.
fn is_same(space: Space, found: Option<&(Slice, Slice)>, held: Option<(&Vec<u8>, &Held)>) -> bool {
    match (found, held) {
        (Some((key, value)), Some((held_key, held))) => **key == **held_key && **value == *held.bytes(space),
        (found, held) => found.is_none() && held.is_none(),
    }
}

fn now_ms() -> u64 {
    Env::real().clock.unix_ms()
}

impl Worker {
    pub fn new(db: &Db, dir: &Path, seed: u64, number: u64) -> shamba::Result<Self> {
        let mut worker = Self {
            db: db.clone(),
            spaces: Vec::new(),
            journal: db.keyspace(JOURNAL)?,
            models: vec![Model::new(); Space::ALL.len()],
            rng: Rng::with_seed(mixed(seed, number)),
            number,
            dir: dir.to_path_buf(),
            snapshots: Vec::new(),
            scans: Vec::new(),
            journaled: 0,
            tally: Tally::default(),
        };
        worker.reopen(db)?;
        Ok(worker)
    }

    /// Goes on with another handle of the database.
    pub fn reopen(&mut self, db: &Db) -> shamba::Result<()> {
        self.db = db.clone();
        self.journal = db.keyspace(JOURNAL)?;
        self.spaces = Space::ALL.iter().map(|space| db.keyspace(space.name())).collect::<Result<_, _>>()?;
        Ok(())
    }

    /// Gives up what it holds of the database.
    pub fn release(&mut self) {
        self.snapshots.clear();
        self.scans.clear();
    }

    /// Works until `ends`.
    pub fn work(&mut self, ends: &AtomicBool) -> Result<Tally, String> {
        let mut operations = 0;
        while !ends.load(Ordering::Acquire) {
            self.operate()?;
            operations += 1;
            if operations % RARE == 0 && self.number == 0 {
                self.rarely()?;
            }
        }
        while !self.snapshots.is_empty() {
            self.check_snapshot(0)?;
        }
        self.scans.clear();
        self.tally.add("operations", operations);
        Ok(std::mem::take(&mut self.tally))
    }

    fn key(&mut self, space: Space) -> Vec<u8> {
        let number = self.rng.u32(..KEYS);
        match space {
            Space::Users => format!("{}{:03}:{number:05}", self.number, number % 40),
            _ => format!("{}{number:05}", self.number),
        }
        .into_bytes()
    }

    /// The thread's keys in a keyspace.
    fn own(&self) -> Vec<u8> {
        self.number.to_string().into_bytes()
    }

    /// A bound above the thread's keys.
    fn own_end(&self) -> Vec<u8> {
        let mut end = self.own();
        end.push(b'~');
        end
    }

    fn value(&mut self, space: Space) -> Held {
        let bytes = match space {
            Space::Blobs => self.rng.usize(500..6_000),
            _ => self.rng.usize(20..300),
        };
        let until_ms = if space == Space::Sessions { now_ms() + 1_500 } else { u64::MAX };
        Held { number: self.rng.u64(..), bytes, until_ms }
    }

    fn operate(&mut self) -> Result<(), String> {
        let at = self.rng.usize(..Space::ALL.len());
        let space = Space::ALL[at];
        let key = self.key(space);
        match self.rng.u32(..100) {
            0..40 if space == Space::Counters => self.add(at, key),
            0..35 => self.put(at, key),
            35..44 => {
                self.models[at].remove(&key);
                self.spaces[at].delete(&key).map_err(said("delete"))
            }
            44 => self.delete_range(at, &key),
            45..50 => self.transact(),
            50..54 => self.swap(),
            54..56 => self.batch(),
            56..58 => self.append(),
            58..80 => self.compare(at, &key),
            80..90 => self.compare_stretch(at, &key),
            90..93 if self.snapshots.len() < HELD_MAX => {
                self.snapshots.push((self.db.snapshot(), self.models[0].clone()));
                Ok(())
            }
            90..95 if !self.snapshots.is_empty() => self.check_snapshot(0),
            95..97 if self.scans.len() < HELD_MAX => {
                let pairs = self.models[0].iter().map(|(key, held)| (key.clone(), *held)).rev().collect();
                self.scans.push((self.db.prefix(self.own()), pairs));
                Ok(())
            }
            _ if !self.scans.is_empty() => self.step_scan(),
            _ => Ok(()),
        }
    }

    fn put(&mut self, at: usize, key: Vec<u8>) -> Result<(), String> {
        let space = Space::ALL[at];
        let held = self.value(space);
        self.spaces[at].put(&key, held.bytes(space)).map_err(said("put"))?;
        self.models[at].insert(key, held);
        Ok(())
    }

    fn add(&mut self, at: usize, key: Vec<u8>) -> Result<(), String> {
        let more = self.rng.u64(..1_000);
        self.spaces[at].merge(&key, more.to_le_bytes()).map_err(said("merge"))?;
        let sum = self.models[at].entry(key).or_insert(Held { number: 0, bytes: 8, until_ms: u64::MAX });
        sum.number += more;
        Ok(())
    }

    fn delete_range(&mut self, at: usize, key: &[u8]) -> Result<(), String> {
        let later = self.models[at].range(key.to_vec()..).nth(20);
        let end = later.map_or_else(|| self.own_end(), |(key, _)| key.clone());
        self.spaces[at].delete_range(key.to_vec()..end.clone()).map_err(said("delete_range"))?;
        self.models[at].retain(|held, _| held.as_slice() < key || *held >= end);
        Ok(())
    }

    /// Moves a value from the plain keyspace to the one with value files.
    fn transact(&mut self) -> Result<(), String> {
        let (from, to) = (self.key(Space::Plain), self.key(Space::Blobs));
        let Some(held) = self.models[0].get(&from).copied() else { return Ok(()) };
        let expected = held.bytes(Space::Plain);
        let blobs = self.spaces[1].clone();
        let moved = self.db.transact(|transaction| {
            let found = transaction.get(&from)?;
            transaction.delete(&from)?;
            transaction.put_in(&blobs, &to, &expected)?;
            Ok(found.as_deref() == Some(&expected[..]))
        });
        if !moved.map_err(said("transaction"))? {
            return Err(format!("a transaction did not find {}", from.escape_ascii()));
        }
        self.models[0].remove(&from);
        self.models[1].insert(to, held);
        self.tally.add("transactions", 1);
        Ok(())
    }

    fn swap(&mut self) -> Result<(), String> {
        let key = self.key(Space::Plain);
        let old = self.models[0].get(&key).map(|held| held.bytes(Space::Plain));
        let new = self.value(Space::Plain);
        let bytes = new.bytes(Space::Plain);
        let swapped = self.db.compare_and_swap(&key, old.as_deref(), Some(&bytes)).map_err(said("swap"))?;
        if !swapped.is_done() {
            return Err(format!("a swap of {} found another value", key.escape_ascii()));
        }
        self.models[0].insert(key, new);
        Ok(())
    }

    fn batch(&mut self) -> Result<(), String> {
        let mut batch = self.db.batch();
        for at in 0..3 {
            let space = Space::ALL[at];
            let (key, held) = (self.key(space), self.value(space));
            batch.put_in(&self.spaces[at], &key, held.bytes(space));
            self.models[at].insert(key, held);
        }
        batch.commit().map_err(said("batch"))
    }

    /// Appends to the journal, and reads its newest entries.
    fn append(&mut self) -> Result<(), String> {
        let key = |number: u64, owner: u64| format!("{owner}{number:012}");
        let value = [7; 2_000];
        self.journal.put(key(self.journaled, self.number), value).map_err(said("journal"))?;
        self.journaled += 1;
        let unwanted = format!("{UNWANTED}{}:{}", self.number, self.rng.u32(..KEYS));
        self.spaces[2].put(unwanted, &value[..100]).map_err(said("unwanted"))?;
        for number in self.journaled.saturating_sub(5)..self.journaled {
            let found = self.journal.get(key(number, self.number)).map_err(said("journal"))?;
            if found.as_deref() != Some(&value[..]) {
                return Err(format!("the journal lost its entry {number} of {}", self.journaled));
            }
        }
        Ok(())
    }

    /// Whether `found` is right for `held`, if it was read between these two times.
    fn is_right(
        space: Space,
        held: Option<Held>,
        found: Option<&[u8]>,
        before_ms: u64,
        after_ms: u64,
    ) -> bool {
        let Some(held) = held else { return found.is_none() };
        let (may_be_gone, may_be_there) = (
            after_ms + TOLERANCE_MS >= held.until_ms,
            before_ms < held.until_ms.saturating_add(TOLERANCE_MS),
        );
        match found {
            None => may_be_gone,
            Some(found) => may_be_there && found == held.bytes(space),
        }
    }

    fn compare(&mut self, at: usize, key: &[u8]) -> Result<(), String> {
        let before_ms = now_ms();
        let found = self.spaces[at].get(key).map_err(said("get"))?;
        let (space, held) = (Space::ALL[at], self.models[at].get(key).copied());
        if Self::is_right(space, held, found.as_deref(), before_ms, now_ms()) {
            return Ok(());
        }
        Err(format!(
            "get({}) in {space:?} gave {:?}, expected {held:?}",
            key.escape_ascii(),
            found.as_deref()
        ))
    }

    /// Compares the thread's next keys, forward or backward.
    fn compare_stretch(&mut self, at: usize, key: &[u8]) -> Result<(), String> {
        let space = Space::ALL[at];
        if space == Space::Sessions {
            return Ok(()); // Which of them are there depends on the moment.
        }
        let (end, model) = (self.own_end(), &self.models[at]);
        let mut iter = self.spaces[at].range(key.to_vec()..end.clone());
        let mut wanted = model.range((Bound::Included(key.to_vec()), Bound::Excluded(end)));
        let is_backward = self.rng.bool();
        for step in 0..20 {
            let (found, held) = match is_backward {
                true => (iter.next_back(), wanted.next_back()),
                false => (iter.next(), wanted.next()),
            };
            let found = found.transpose().map_err(said("scan"))?;
            if !is_same(space, found.as_ref(), held) {
                let key = key.escape_ascii();
                return Err(format!("a scan of {space:?} from {key} differs at step {step}: {held:?}"));
            }
            if held.is_none() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Compares some keys of a held snapshot, and gives it up.
    fn check_snapshot(&mut self, at: usize) -> Result<(), String> {
        let (snapshot, model) = self.snapshots.remove(at);
        for _ in 0..50 {
            let key = self.key(Space::Plain);
            let found = snapshot.get(&key).map_err(said("snapshot"))?;
            let held = model.get(&key).map(|held| held.bytes(Space::Plain));
            if found.as_deref() != held.as_deref() {
                return Err(format!("a snapshot of {} shows another value", key.escape_ascii()));
            }
        }
        self.tally.add("snapshots compared", 1);
        Ok(())
    }

    /// Moves a held scan on, which still shows what was there at its begin.
    fn step_scan(&mut self) -> Result<(), String> {
        let at = self.rng.usize(..self.scans.len());
        let (iter, pairs) = &mut self.scans[at];
        for _ in 0..200 {
            let found = iter.next().transpose().map_err(said("held scan"))?;
            let expected = pairs.pop();
            let held = expected.as_ref().map(|(key, held)| (key, held));
            if !is_same(Space::Plain, found.as_ref(), held) {
                return Err(format!("a held scan shows another entry than {expected:?}"));
            }
            if expected.is_none() {
                drop(self.scans.remove(at));
                self.tally.add("held scans walked to their end", 1);
                return Ok(());
            }
        }
        Ok(())
    }

    /// Work that concerns the whole database.
    fn rarely(&mut self) -> Result<(), String> {
        match self.rng.u32(..6) {
            0 => self.checkpoint(),
            1 => {
                let policy = [MergePolicy::Leveling, MergePolicy::Tiering, MergePolicy::LazyLeveling];
                let design = Design::new(policy[self.rng.usize(..3)], 4.0, 1 << 20, 8.0);
                let target = TreeDesign { design, allocation: Allocation::Workload, ..TreeDesign::default() };
                self.tally.add("redesigns", 1);
                self.db.redesign(&target).map_err(said("redesign"))
            }
            2 => self.make_and_drop(),
            3 => {
                let (from, to) = (self.key(Space::Plain), self.own());
                self.tally.add("compactions of ranges", 1);
                self.db.compact_range(to..from).map_err(said("compact_range"))
            }
            4 => {
                self.tally.add("rewrites of filters", 1);
                self.db.rewrite_filters().map(drop).map_err(said("rewrite_filters"))
            }
            _ => self.db.flush().map_err(said("flush")),
        }
    }

    /// A copy has this thread's keys, which nobody changes meanwhile.
    fn checkpoint(&mut self) -> Result<(), String> {
        let copy = self.dir.join("copy");
        self.db.checkpoint(&copy).map_err(said("checkpoint"))?;
        {
            let db = super::builder(&copy).read_only(true).open().map_err(said("a copy"))?;
            let found = db.prefix(self.own()).collect::<shamba::Result<Vec<_>>>().map_err(said("a copy"))?;
            let expected = self.models[0].iter().map(|(key, held)| (key.clone(), held.bytes(Space::Plain)));
            if !found.iter().map(|(key, value)| (key.to_vec(), value.to_vec())).eq(expected) {
                return Err("a checkpoint has other keys".to_owned());
            }
        }
        self.tally.add("checkpoints", 1);
        std::fs::remove_dir_all(&copy).map_err(|error| format!("{}: {error}", copy.display()))
    }

    fn make_and_drop(&mut self) -> Result<(), String> {
        let name = format!("passing{}", self.rng.u32(..4));
        let passing = self.db.keyspace(&name).map_err(said("a keyspace"))?;
        let pairs = (0..2_000u32).map(|number| (number.to_be_bytes(), [3; 100]));
        passing.ingest(pairs).map_err(said("ingest"))?;
        let count = passing.keys(..).count();
        if count != 2_000 {
            return Err(format!("{count} of 2,000 ingested keys"));
        }
        drop(passing);
        self.tally.add("keyspaces dropped", 1);
        self.db.drop_keyspace(&name).map_err(said("drop_keyspace"))
    }

    /// Compares all keys of the thread in every keyspace.
    pub fn compare_all(&mut self) -> Result<(), String> {
        for (at, space) in Space::ALL.into_iter().enumerate() {
            let before_ms = now_ms();
            let found = self.spaces[at].prefix(self.own()).collect::<shamba::Result<Vec<_>>>();
            let (found, after_ms) = (found.map_err(said("the last scan"))?, now_ms());
            let found: BTreeMap<Vec<u8>, Vec<u8>> =
                found.iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
            for key in found.keys().chain(self.models[at].keys()) {
                let held = self.models[at].get(key).copied();
                if !Self::is_right(space, held, found.get(key).map(Vec::as_slice), before_ms, after_ms) {
                    return Err(format!("{} in {space:?} differs at the end: {held:?}", key.escape_ascii()));
                }
            }
        }
        Ok(())
    }
}
