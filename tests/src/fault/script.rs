//! Scripts for lives with faults: writes in a small key space, each with a marker key, and all
//! other operations in between. Some of the writes are those of a transaction.
//!
//! Not here: the faults, and the guarantees ([`super`]).

use fastrand::Rng;

use crate::expiry::{TICKS_MAX, is_fleeting};
use crate::oracle::{Change, SPACES};

/// One step of a script.
#[derive(Clone, Debug)]
pub enum Step {
    /// A batch in which marker i belongs to the i-th write.
    Write {
        /// The changes, in order.
        changes: Vec<Change>,
        /// Whether it must be durable when acknowledged.
        sync: bool,
    },
    /// A transaction; its changes are a write with a marker, and so is the write outside of it.
    Transaction(Box<Transaction>),
    /// Flushes the memtables.
    Flush,
    /// Compacts everything.
    Compact,
    /// Syncs the log.
    Sync,
    /// Closes and opens the database.
    Reopen,
    /// Lets time pass.
    Pass {
        /// Number of ticks ([`crate::expiry::TICK_MS`]) that begin meanwhile.
        ticks: u64,
    },
    /// Reads everything.
    Read,
}

/// A transaction that reads, while something else is written, and then writes.
#[derive(Clone, Debug)]
pub struct Transaction {
    /// The keys that it reads, each with an index into [`SPACES`](crate::oracle::SPACES).
    pub gets: Vec<(usize, Vec<u8>)>,
    /// The keyspace and the prefix of its scan.
    pub scan: Option<(usize, Vec<u8>)>,
    /// A batch that is committed after the reads. It changes a key that the transaction has read
    /// and changes too.
    pub outside: Option<Vec<Change>>,
    /// Whether the memtables are flushed before the commit, so that the check for conflicts has to
    /// read a table.
    pub flushes: bool,
    /// Its changes, in order.
    pub changes: Vec<Change>,
    /// Whether it must be durable when acknowledged.
    pub sync: bool,
    /// Whether it has snapshot isolation; else it is serializable.
    pub is_snapshot: bool,
}

/// The script of a seed: writes in a small key space with all other operations in between.
pub fn script(seed: u64, writes: usize) -> Vec<Step> {
    let mut rng = Rng::with_seed(seed);
    let mut steps = Vec::new();
    let mut write = 0;
    while write < writes {
        match rng.u8(..4) {
            0 => {
                let transaction = transaction(&mut rng, write);
                write += usize::from(transaction.outside.is_some());
                steps.push(Step::Transaction(Box::new(transaction)));
            }
            _ => {
                let changes = changes(&mut rng, write);
                steps.push(Step::Write { changes, sync: rng.u8(..5) == 0 });
            }
        }
        write += 1;
        match rng.u8(..20) {
            0 | 1 => steps.push(Step::Flush),
            2 => steps.push(Step::Compact),
            3 => steps.push(Step::Sync),
            4 => steps.push(Step::Reopen),
            5 | 6 => steps.push(Step::Read),
            7..10 => steps.push(Step::Pass { ticks: rng.u64(2..7) }),
            _ => {}
        }
    }
    steps.extend([Step::Read, Step::Pass { ticks: TICKS_MAX }, Step::Read, Step::Reopen, Step::Read]);
    steps
}

fn place(rng: &mut Rng) -> (usize, Vec<u8>) {
    let space = [0, 0, 0, 0, 1, 2][rng.usize(..6)];
    (space, format!("k/{:02}", rng.u8(..24)).into_bytes())
}

/// The changes of write number `write`, its marker first.
fn changes(rng: &mut Rng, write: usize) -> Vec<Change> {
    // A marker must not expire.
    let mut value = write.to_string().into_bytes();
    while is_fleeting(&value) {
        value.push(b'.');
    }
    let mut changes = vec![Change::Put { space: 0, key: marker(write), value }];
    for part in 0..rng.usize(1..4) {
        let (space, key) = place(rng);
        changes.push(match rng.u8(..10) {
            0 => Change::Delete { space, key },
            1 => {
                let end = format!("k/{:02}", rng.u8(..24)).into_bytes();
                let span = (std::ops::Bound::Included(key), std::ops::Bound::Excluded(end));
                Change::DeleteRange { space, span }
            }
            2..5 => Change::Merge { space, key, operand: format!("{write}.{part}").into_bytes() },
            _ => {
                let mut value = format!("{write}.{part}.{}", "v".repeat(rng.usize(..120))).into_bytes();
                // More than half of the values expire within the life.
                let is_to_expire = rng.bool();
                while is_to_expire && !is_fleeting(&value) {
                    value.push(b'v');
                }
                Change::Put { space, key, value }
            }
        });
    }
    changes
}

/// A transaction that is write number `write`, or the one after that if there is a write outside of
/// it.
fn transaction(rng: &mut Rng, write: usize) -> Transaction {
    let mut gets: Vec<_> = (0..rng.usize(1..4)).map(|_| place(rng)).collect();
    let outside = (rng.u8(..3) == 0).then(|| changes(rng, write));
    let mut own = changes(rng, write + usize::from(outside.is_some()));
    let outside = outside.map(|mut outside| {
        let (space, key) = place(rng);
        gets.push((space, key.clone()));
        own.push(Change::Put { space, key: key.clone(), value: b"lost update".to_vec() });
        outside.push(Change::Put { space, key, value: b"outside".to_vec() });
        outside
    });
    Transaction {
        gets,
        scan: rng.bool().then(|| (rng.usize(..SPACES.len()), format!("k/{}", rng.u8(..3)).into_bytes())),
        flushes: outside.is_some() && rng.bool(),
        outside,
        changes: own,
        sync: rng.u8(..5) == 0,
        is_snapshot: rng.u8(..3) == 0,
    }
}

/// The marker key of write number `write`.
pub(super) fn marker(write: usize) -> Vec<u8> {
    format!("m/{write:04}").into_bytes()
}
