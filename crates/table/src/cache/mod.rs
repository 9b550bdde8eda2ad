//! The block cache: decompressed, verified blocks, kept by (table, offset).
//!
//! Cut into shards, each with its own lock, map and [clock](clock). A block is verified before it comes in and
//! is never changed, so a hit needs no check. What is inserted is evicted, not waited for: a block larger than
//! a shard stays out. Every byte is charged to the ledger.
//!
//! Not here: frames of fixed size, and the index's direct way to them.

mod clock;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use self::clock::Shard;
use crate::id::TableId;
use crate::ledger::{Ledger, LedgerPart};

/// A shard is at least this large, so that usual values fit into one.
const SHARD_BYTES_MIN: u64 = 1 << 20;
/// More shards than this gain nothing on the machines that we know.
const SHARDS_MAX: u64 = 64;

/// Where a block is from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Key {
    table: TableId,
    offset: u64,
}

/// Keeps blocks in memory. Shared by all tables of a database.
pub struct BlockCache {
    shards: Vec<Mutex<Shard>>,
    capacity_bytes: u64,
    ledger: Arc<Ledger>,
}

impl fmt::Debug for BlockCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bytes, capacity_bytes) = (self.bytes(), self.capacity_bytes);
        f.debug_struct("BlockCache")
            .field("bytes", &bytes)
            .field("capacity_bytes", &capacity_bytes)
            .finish_non_exhaustive()
    }
}

impl BlockCache {
    /// A cache of `capacity_bytes`, charged to `ledger` as it fills; 0 keeps nothing.
    pub fn new(capacity_bytes: u64, ledger: Arc<Ledger>) -> Self {
        // One more than a power of two would leave shards unused: the shard is chosen by masking.
        let wanted = (capacity_bytes / SHARD_BYTES_MIN).clamp(1, SHARDS_MAX);
        let count = 1 << wanted.ilog2();
        let shards = (0..count).map(|_| Mutex::new(Shard::new(capacity_bytes / count))).collect();
        Self { shards, capacity_bytes, ledger }
    }

    /// The most that it holds.
    pub fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    /// What it holds now.
    pub fn bytes(&self) -> u64 {
        self.shards.iter().map(|shard| locked(shard).bytes()).sum()
    }

    /// Forgets every block of a table, whose file is gone.
    pub fn remove_table(&self, id: TableId) {
        for shard in &self.shards {
            let freed = locked(shard).remove_table(id);
            self.ledger.release(LedgerPart::BlockCache, freed);
        }
    }

    pub(crate) fn get(&self, table: TableId, offset: u64) -> Option<Bytes> {
        let key = Key { table, offset };
        self.shard(key).get(key)
    }

    pub(crate) fn insert(&self, table: TableId, offset: u64, block: Bytes) {
        let key = Key { table, offset };
        let change = self.shard(key).insert(key, block);
        self.ledger.charge(LedgerPart::BlockCache, change.added_bytes);
        self.ledger.release(LedgerPart::BlockCache, change.freed_bytes);
    }

    fn shard(&self, key: Key) -> MutexGuard<'_, Shard> {
        // The map hashes the same number; it takes the low bits, the shard the high ones.
        let place = (clock::mix(key) >> 48) as usize & (self.shards.len() - 1);
        locked(&self.shards[place])
    }
}

impl Drop for BlockCache {
    fn drop(&mut self) {
        self.ledger.release(LedgerPart::BlockCache, self.bytes());
    }
}

/// A shard is consistent between any two statements that can panic, so a poisoned lock is still good.
fn locked(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
