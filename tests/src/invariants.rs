//! Workloads of transactions whose invariants any state must keep: after a power loss, after a
//! kill, in the middle of the work of others.
//!
//! - Bank: amounts move between accounts; their sum is constant.
//! - Index: a record in one keyspace and its entry in another one always agree, and no two records
//!   have the same entry.
//! - Queue: items are appended, and taken by a scan for the first one; none is lost, none is handed
//!   out twice, and they are handed out in their order.
//!
//! Each transaction also counts itself, under the name of its worker. So a state tells how many
//! transactions of each worker it contains.
//!
//! - Counters: each transaction also adds one to a counter of its worker and to a common one, by
//!   merges, which conflict with nothing; the common one is the sum of the others.
//!
//! Not here: the threads, processes and crashes (suites `crash_transactions` and `kill`).

use std::collections::{BTreeMap, BTreeSet};

use shamba::merge::AddU64;
use shamba::{Db, Durability, Keyspace, KeyspaceOptions, Result, Transaction, TransactionOptions};

const ACCOUNTS: u64 = 8;
const EACH: u64 = 100;
const RECORDS: u64 = 8;
const NAMES: u64 = 12;
/// Length of the queue above which items are only taken.
const QUEUED_MAX: usize = 12;

/// A database with the workloads' keyspaces.
#[derive(Clone, Debug)]
pub struct World {
    db: Db,
    records: Keyspace,
    taken: Keyspace,
    counts: Keyspace,
}

fn account(number: u64) -> String {
    format!("bank/{number:02}")
}

fn record(number: u64) -> String {
    format!("record/{number:02}")
}

fn entry(name: u64) -> String {
    format!("index/{name:02}")
}

fn item(number: u64) -> String {
    format!("queue/{number:08}")
}

fn counter(worker: usize) -> String {
    format!("count/{worker}")
}

const TAIL: &str = "tail";
/// The counter of all workers.
const ALL: &str = "all";

/// A number, and padding that makes flushes frequent.
fn bytes(number: u64) -> Vec<u8> {
    format!("{number}{}", " ".repeat(number as usize * 37 % 90)).into_bytes()
}

fn number(value: &[u8]) -> u64 {
    let text = std::str::from_utf8(value).ok().map(str::trim_end);
    text.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{value:?} is no number"))
}

impl World {
    /// The keyspaces in an open database; the accounts are made if there are none.
    ///
    /// # Errors
    /// Of the database.
    pub fn open(db: Db) -> Result<Self> {
        let (records, taken) = (db.keyspace("records")?, db.keyspace("taken")?);
        let counting = KeyspaceOptions::new().merge_operator(AddU64);
        let counts = db.keyspace_with("counts", counting)?;
        // Synced, so that every later state has them.
        db.transact_with(TransactionOptions::new().write(Durability::Sync), |tx| {
            if tx.get(account(0))?.is_none() {
                for number in 0..ACCOUNTS {
                    tx.put(account(number), bytes(EACH))?;
                }
            }
            Ok(())
        })?;
        Ok(Self { db, records, taken, counts })
    }

    /// The database.
    pub fn db(&self) -> &Db {
        &self.db
    }

    /// Runs one transaction, which is number `count` of `worker`. It always writes something.
    ///
    /// # Errors
    /// Of the database.
    ///
    /// # Panics
    /// If the transaction sees a state that breaks an invariant.
    pub fn work(
        &self,
        worker: usize,
        count: u64,
        durability: Durability,
        rng: &mut fastrand::Rng,
    ) -> Result<()> {
        let (kind, seed) = (rng.u8(..3), rng.u64(..));
        self.db.transact_with(TransactionOptions::new().write(durability).attempts(10_000), |tx| {
            // Every attempt does the same, as far as it sees the same.
            let mut rng = fastrand::Rng::with_seed(seed);
            match kind {
                0 => transfer(tx, &mut rng)?,
                1 => self.rename(tx, &mut rng)?,
                _ => self.queue(tx, &mut rng)?,
            }
            let one = 1u64.to_le_bytes();
            tx.merge_in(&self.counts, counter(worker), one)?;
            tx.merge_in(&self.counts, ALL, one)?;
            tx.put(counter(worker), bytes(count))
        })
    }

    fn rename(&self, tx: &mut Transaction, rng: &mut fastrand::Rng) -> Result<()> {
        let (number_of, name) = (rng.u64(..RECORDS), rng.u64(..NAMES));
        let old = tx.get_in(&self.records, record(number_of))?.map(|name| number(&name));
        if let Some(old) = old {
            let of = tx.get(entry(old))?.map(|of| number(&of));
            assert_eq!(of, Some(number_of), "the entry of record {number_of}");
            tx.delete(entry(old))?;
        }
        // The entry of another record keeps this one out; its own is deleted by now.
        if rng.u8(..5) == 0 || tx.get(entry(name))?.is_some() {
            return tx.delete_in(&self.records, record(number_of));
        }
        tx.put(entry(name), bytes(number_of))?;
        tx.put_in(&self.records, record(number_of), bytes(name))
    }

    fn queue(&self, tx: &mut Transaction, rng: &mut fastrand::Rng) -> Result<()> {
        let queued = tx.prefix("queue/").count();
        if queued == 0 || (queued < QUEUED_MAX && rng.bool()) {
            let next = tx.get(TAIL)?.map_or(0, |tail| number(&tail));
            assert!(tx.get(item(next))?.is_none(), "item {next} is there already");
            tx.put(item(next), bytes(next))?;
            return tx.put(TAIL, bytes(next + 1));
        }
        let first = tx.prefix("queue/").next().transpose()?;
        let (key, value) = first.expect("the queue has items");
        let was_taken = tx.get_in(&self.taken, &key)?;
        assert!(was_taken.is_none(), "item {} is handed out twice", number(&value));
        // Both ways of removing the first item.
        match rng.bool() {
            true => tx.delete(&key)?,
            false => tx.delete_range(item(0)..=item(number(&value)))?,
        }
        tx.put_in(&self.taken, &key, value)
    }

    /// Checks every invariant, and returns the number of transactions of each of `workers`.
    ///
    /// # Errors
    /// The invariant that does not hold, or a failed read.
    pub fn check(&self, workers: usize) -> std::result::Result<Vec<u64>, String> {
        let failed = |error: shamba::Error| format!("a read failed: {error}");
        // One state for all, although others may be at work.
        let now = self.db.snapshot();
        let of = |keyspace: Option<&Keyspace>, prefix: &str| {
            let at = keyspace.map_or_else(|| now.clone(), |keyspace| now.keyspace(keyspace));
            let pair = |(key, value): (shamba::Slice, shamba::Slice)| {
                let name = String::from_utf8_lossy(&key).into_owned();
                let digits = name.rsplit('/').next().and_then(|digits| digits.parse().ok());
                (digits.unwrap_or_else(|| panic!("{name} has no number")), number(&value))
            };
            let all = at.prefix(prefix).map(|entry| entry.map(pair));
            all.collect::<Result<BTreeMap<u64, u64>>>().map_err(failed)
        };
        let accounts = of(None, "bank/")?;
        let sum: u64 = accounts.values().sum();
        if accounts.len() as u64 != ACCOUNTS || sum != ACCOUNTS * EACH {
            return Err(format!("the accounts have {sum} in all: {accounts:?}"));
        }
        let (records, index) = (of(Some(&self.records), "record/")?, of(None, "index/")?);
        let turned: BTreeMap<u64, u64> = records.iter().map(|(record, name)| (*name, *record)).collect();
        if turned != index || turned.len() != records.len() {
            return Err(format!("records {records:?} and their index {index:?}"));
        }
        let (queued, taken) = (of(None, "queue/")?, of(Some(&self.taken), "queue/")?);
        let tail = now.get(TAIL).map_err(failed)?.map_or(0, |tail| number(&tail));
        let in_order: BTreeSet<u64> = (0..tail).collect();
        let (first, rest): (BTreeSet<u64>, BTreeSet<u64>) =
            in_order.iter().partition(|item| **item < taken.len() as u64);
        if !first.iter().eq(taken.keys()) || !rest.iter().eq(queued.keys()) {
            return Err(format!("of {tail} items {taken:?} are taken and {queued:?} queued"));
        }
        let counts = now.keyspace(&self.counts);
        let merged = |key: &str| -> std::result::Result<u64, String> {
            let sum = counts.get(key).map_err(failed)?;
            Ok(sum.map_or(0, |sum| u64::from_le_bytes(sum[..].try_into().expect("a number"))))
        };
        let mut all = 0;
        let mut counted = Vec::new();
        for worker in 0..workers {
            let name = counter(worker);
            let count = now.get(&name).map_err(failed)?.map_or(0, |count| number(&count));
            if merged(&name)? != count {
                let merged = merged(&name)?;
                return Err(format!(
                    "worker {worker} has made {count} transactions, and {merged} were added"
                ));
            }
            all += count;
            counted.push(count);
        }
        match merged(ALL)? {
            sum if sum == all => Ok(counted),
            sum => Err(format!("the counter of all workers is {sum} instead of {all}")),
        }
    }
}

/// Moves an amount from one account to another.
fn transfer(tx: &mut Transaction, rng: &mut fastrand::Rng) -> Result<()> {
    let (from, to, amount) = (rng.u64(..ACCOUNTS), rng.u64(..ACCOUNTS), rng.u64(1..40));
    let mut both = tx.multi_get([account(from), account(to)])?.into_iter();
    let mut balance = || both.next().flatten().map_or(0, |value| number(&value));
    let (has, other) = (balance(), balance());
    if from == to || has < amount {
        return Ok(());
    }
    tx.put(account(from), bytes(has - amount))?;
    tx.put(account(to), bytes(other + amount))
}
