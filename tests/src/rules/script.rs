//! The operations of a life, and those of a number.

use fastrand::Rng;

use super::{Plan, TICKS_MAX};
use crate::seed::mixed;

/// Number of keys of each keyspace.
const KEYS: [u32; 2] = [14, 80];

/// One change: a put or a delete.
#[derive(Clone, Debug)]
pub struct Change {
    /// Whether it is in the FIFO keyspace.
    pub is_log: bool,
    /// The key.
    pub key: Vec<u8>,
    /// The value, different from all others; `None` deletes the key.
    pub value: Option<Vec<u8>>,
}

impl Change {
    /// Change number `number` of a life: of a key of this number, to a value of `bytes`. `kind`
    /// selects what the filter makes of the value.
    pub fn new(is_log: bool, key: u32, number: u64, (kind, bytes): (usize, usize)) -> Self {
        let start = ["v1", "drop", "keep"][kind % 3];
        let key = format!("k/{:02}", key % KEYS[usize::from(is_log)]).into_bytes();
        Self { is_log, key, value: Some(format!("{start}.{number}.{}", ".".repeat(bytes)).into_bytes()) }
    }
}

/// An operation.
#[derive(Clone, Debug)]
pub enum Op {
    /// A batch.
    Write {
        /// Its changes, in order.
        changes: Vec<Change>,
        /// Whether it must be durable when acknowledged.
        sync: bool,
    },
    /// Flushes the memtables.
    Flush,
    /// Compacts everything.
    Compact,
    /// Syncs the log.
    Sync,
    /// Closes or drops the database and opens it again.
    Reopen {
        /// Whether it is closed.
        clean: bool,
    },
    /// Lets time pass, and waits for the work that is due then.
    Pass {
        /// Number of seconds.
        ticks: u64,
    },
    /// Takes a snapshot, which is read after all later operations.
    Hold,
    /// Drops the oldest snapshot.
    Release,
}

impl Plan {
    /// The operations of the life.
    pub(super) fn script(self) -> Vec<Op> {
        let mut rng = Rng::with_seed(mixed(self.seed, self.index as u64));
        let mut values = 0u64;
        let mut change = |rng: &mut Rng| {
            let is_log = rng.u8(..5) < 3;
            values += 1;
            let kind = rng.usize(..3);
            let key = rng.u32(..KEYS[usize::from(is_log)]);
            let bytes = rng.usize(..if is_log { 500 } else { 160 });
            let change = Change::new(is_log, key, values, (kind, bytes));
            if rng.u8(..8) > 0 { change } else { Change { value: None, ..change } }
        };
        let mut op = |rng: &mut Rng| match rng.u8(..64) {
            0..4 => Op::Flush,
            4..6 => Op::Compact,
            6..8 => Op::Sync,
            8 => Op::Reopen { clean: rng.bool() },
            9..14 => Op::Pass { ticks: rng.u64(1..=TICKS_MAX) },
            14..16 => Op::Hold,
            16..18 => Op::Release,
            _ => Op::Write {
                changes: (0..rng.usize(1..5)).map(|_| change(rng)).collect(),
                sync: rng.u8(..8) == 0,
            },
        };
        std::iter::repeat_with(|| op(&mut rng)).take(self.ops).collect()
    }
}
