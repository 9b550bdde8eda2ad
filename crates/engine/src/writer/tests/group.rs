//! Tests of what a group leaves behind: times of tombstones, charges, long values, and what a
//! writer is told.

use shamba_key::{EntryKind, Expiry};
use shamba_model::memory::memtable_charge;

use super::*;

impl Alone {
    fn commit_op(&self, op: OpRef<'_>, options: impl Into<WriteOptions>) -> Result<()> {
        self.writer.commit_op(&self.keyspace(DEFAULT_KEYSPACE), op, options.into())
    }

    fn memtable_bytes(&self) -> u64 {
        self.keyspace(DEFAULT_KEYSPACE).load().memtables[0].bytes()
    }

    /// Sets the write buffer, of which a quarter is the longest value that memtables hold.
    fn set_write_buffer(&self, bytes: u64) {
        let mut live = self.writer.settings.live.get();
        live.tree.design.buffer_bytes = bytes;
        self.writer.settings.live.set(live);
    }

    fn oldest_tombstone_ms(&self) -> Option<u64> {
        self.writer.writing.lock().active.oldest_tombstone_ms()
    }
}

#[test]
fn the_first_tombstone_of_either_kind_sets_the_time_of_the_oldest() {
    let delete = OpRef::Delete { key: b"a" };
    let range_delete = OpRef::RangeDelete { start: b"a", end: None };
    for first in [delete, range_delete] {
        let alone = alone(Settings::default());
        alone.put("a", b"1", WriteOptions::new()).expect("written");
        assert_eq!(alone.oldest_tombstone_ms(), None, "no tombstone before {first:?}");
        let first_ms = alone.clock.unix_ms();
        alone.commit_op(first, WriteOptions::new()).expect("written");
        alone.clock.advance_us(5_000);
        alone.commit_op(delete, WriteOptions::new()).expect("written");
        assert_eq!(alone.oldest_tombstone_ms(), Some(first_ms), "{first:?}");
        alone.writer.flush().expect("flushed");
        assert_eq!(alone.oldest_tombstone_ms(), None, "the next memtable has none");
    }
}

#[test]
fn tombstones_that_a_replay_brought_are_as_old_as_the_open() {
    let parts = Parts::new(Settings::default());
    let keyspace = parts.catalog.named(DEFAULT_KEYSPACE).expect("the keyspace exists");
    let memtable = Arc::clone(&keyspace.load().memtables[0]);
    memtable.insert(parts.reads.digest().digest(b"k"), b"k", SeqNo(1), EntryKind::Delete, b"");
    let writer = parts.writer(MemtableLimit::none());
    assert_eq!(writer.writing.lock().active.oldest_tombstone_ms(), Some(parts.env.clock.unix_ms()));
    let empty = Parts::new(Settings::default()).writer(MemtableLimit::none());
    assert_eq!(empty.writing.lock().active.oldest_tombstone_ms(), None, "nothing was replayed");
}

#[test]
fn the_charge_of_a_replay_lasts_until_its_memtables_are_flushed() {
    let alone = alone(Settings::default());
    alone.writer.take_charge(Charge::new(&alone.ledger, LedgerPart::Memtables, 77));
    assert_eq!(alone.ledger.bytes(LedgerPart::Memtables), 77);
    alone.put("a", b"1", WriteOptions::new()).expect("written");
    assert!(alone.ledger.bytes(LedgerPart::Memtables) > 77, "memtables are charged before they grow");
    alone.writer.flush().expect("flushed");
    assert_eq!(alone.ledger.bytes(LedgerPart::Memtables), 0);
}

#[test]
fn a_value_that_stays_in_the_log_takes_no_memory_of_the_memtable() {
    let held_bytes_max = alone(Settings::default()).writer.settings.held_value_bytes_max() as usize;
    let expiry = Expiry(u64::MAX - 1);
    for expires in [false, true] {
        let alone = alone(Settings::default());
        let value = vec![7; held_bytes_max.max(64 << 10) + 1];
        let stored = expiry.encode(&value);
        let op = if expires {
            OpRef::PutExpiring { key: b"k", stored: &stored }
        } else {
            OpRef::Put { key: b"k", value: &value }
        };
        let payload_bytes = op.put_payload().map_or(0, <[u8]>::len);
        // What is charged before the memtable grows is for the rest of the record.
        let coming_bytes = (op.encoded_bytes_max() - payload_bytes) as u64;
        let budget_bytes = alone.writer.settings.budget_bytes();
        let (_, charged) = memtable_charge(budget_bytes, alone.memtable_bytes(), coming_bytes);
        alone.commit_op(op, WriteOptions::new()).expect("written");
        assert_eq!(alone.ledger.bytes(LedgerPart::Memtables), charged, "expires: {expires}");
        assert!(alone.memtable_bytes() < payload_bytes as u64 / 4, "{} bytes", alone.memtable_bytes());
        let entry = alone.entry(DEFAULT_KEYSPACE, "k").expect("visible");
        let kind = if expires { EntryKind::ValueRefWithExpiry } else { EntryKind::ValueRef };
        assert_eq!(entry.kind, kind);
        assert_eq!(Expiry::of(entry.kind, &entry.value), expires.then_some(expiry));
    }
}

#[test]
fn only_values_above_the_limit_stay_in_the_log() {
    let alone = alone(Settings::default());
    let held_bytes_max = alone.writer.settings.held_value_bytes_max() as usize;
    let mut operations = Operations::EMPTY;
    for (key, bytes) in [(b"a", held_bytes_max), (b"b", held_bytes_max + 1), (b"c", held_bytes_max)] {
        operations.push(KeyspaceId::DEFAULT, OpRef::Put { key, value: &vec![7; bytes] }).expect("valid");
    }
    alone.writer.commit(&mut operations, WriteOptions::new()).expect("written");
    let kind = |key| alone.entry(DEFAULT_KEYSPACE, key).map(|entry| entry.kind);
    assert_eq!(["a", "b", "c"].map(kind), [EntryKind::Put, EntryKind::ValueRef, EntryKind::Put].map(Some));
}

#[test]
fn without_a_log_long_values_of_batches_that_share_no_group_go_to_a_file() {
    use shamba_log::wal::SHARED_BYTES_MAX;
    // A value that fills the operation up to `encoded_bytes`.
    let value = |encoded_bytes: usize| {
        let around = OpRef::Put { key: b"k", value: b"" }.encoded_bytes_max();
        vec![7; encoded_bytes - around]
    };
    for (encoded_bytes, is_in_file) in [(SHARED_BYTES_MAX, false), (SHARED_BYTES_MAX + 1, true)] {
        let alone = alone(Settings { no_wal: true, ..Settings::default() });
        alone.set_write_buffer(64 << 10);
        let value = value(encoded_bytes);
        assert!(alone.writer.settings.held_value_bytes_max() < value.len() as u64);
        alone.flushes.fails.store(true, Ordering::Relaxed);
        alone.put("k", &value, WriteOptions::new()).expect("written");
        let kind = alone.entry(DEFAULT_KEYSPACE, "k").map(|entry| entry.kind);
        let expected = if is_in_file { EntryKind::ValueRef } else { EntryKind::Put };
        assert_eq!(kind, Some(expected), "{encoded_bytes} bytes");
        let file_bytes = alone.writer.writing.lock().log.bytes();
        if is_in_file {
            assert!(file_bytes >= value.len() as u64, "a file of {file_bytes} bytes counts as a log");
        } else {
            assert_eq!(file_bytes, 0);
        }
        alone.writer.seal().expect("sealed");
        let sealed = alone.writer.sealed().oldest().expect("not flushed");
        let kept = sealed.log_files.iter().filter(|file| file.values.strong_count() > 0).count();
        assert_eq!(kept, usize::from(is_in_file), "the sealed memtable keeps the file");
    }
}

#[test]
fn an_empty_batch_syncs_what_came_before_it_only_if_asked() {
    let alone = alone(Settings::default());
    alone.put("a", b"1", WriteOptions::new()).expect("written");
    let mut nothing = Operations::EMPTY;
    for durability in [Durability::Buffered, Durability::NoSync, Durability::Sync] {
        let seq = alone.writer.commit(&mut nothing, durability.into()).expect("nothing to write");
        assert_eq!(seq, SeqNo(1), "all that is visible is not after it");
        assert_eq!(alone.writer.durable().has(SeqNo(1)), durability == Durability::Sync, "{durability:?}");
    }
}

#[test]
fn a_watcher_is_called_at_the_first_write_after_its_number() {
    let alone = alone(Settings::default());
    let owner = alone.writer.durable().new_owner();
    let called = Arc::new(AtomicU64::new(0));
    let watch = |seq| {
        let called = Arc::clone(&called);
        let watcher = move || {
            called.fetch_add(1, Ordering::Relaxed);
        };
        alone.writer.watch(SeqNo(seq), owner, watcher)
    };
    let calls = || called.load(Ordering::Relaxed);
    for key in ["a", "b"] {
        alone.put(key, b"1", WriteOptions::new()).expect("written");
    }
    assert!(matches!((watch(0), watch(1)), (Watch::Ready, Watch::Ready)), "later writes are visible");
    assert!(matches!(watch(2), Watch::Set), "the last write is not after itself");
    assert!(matches!(watch(3), Watch::Set));
    assert_eq!((calls(), Arc::strong_count(&called)), (0, 1 + 2));
    alone.put("c", b"1", WriteOptions::new()).expect("written");
    assert_eq!((calls(), Arc::strong_count(&called)), (2, 1), "each is called once");
    let _held = alone.writer.writing.lock();
    assert!(matches!(watch(3), Watch::Busy));
}
