//! Tests of when memtables are sealed other than by a full write buffer, and of back-pressure that
//! follows the backlog.

use shamba_key::EntryKind;

use super::*;
use crate::options::fifo::Fifo;
use crate::options::keyspace::KeyspaceOptions;

#[test]
fn memtables_with_an_old_tombstone_are_sealed() {
    let alone = alone(Settings::default());
    alone.flushes.fails.store(true, Ordering::Relaxed);
    let seal = |age_max_ms| (alone.writer.seal_overdue(age_max_ms), alone.writer.sealed().len());
    assert_eq!((seal(None), seal(Some(0))), ((false, 0), (false, 0)), "there is nothing to seal");
    alone.put("a", b"1", WriteOptions::new()).expect("written");
    alone.clock.advance_us(60_000_000);
    assert_eq!(seal(Some(10)), (false, 0), "there is no tombstone");
    let delete = OpRef::Delete { key: b"a" };
    alone.writer.commit_op(&alone.keyspace(DEFAULT_KEYSPACE), delete, WriteOptions::new()).expect("written");
    alone.clock.advance_us(10_000);
    assert_eq!(seal(Some(10)), (false, 0), "the tombstone is as old as it may be");
    alone.clock.advance_us(1_000);
    assert_eq!(seal(None), (false, 0), "a tombstone may be of any age");
    {
        let _busy = alone.writer.writing.lock();
        assert_eq!(seal(Some(10)), (false, 0), "it does not wait for a writer");
    }
    assert_eq!(seal(Some(10)), (true, 1));
    assert_eq!(seal(Some(10)), (false, 1), "the next memtable has no tombstone");
    let sealed = alone.writer.sealed().oldest().and_then(|sealed| sealed.oldest_tombstone_ms);
    assert_eq!(sealed, Some(alone.clock.unix_ms() - 11));
}

#[test]
fn entries_of_a_fifo_keyspace_are_sealed_when_they_need_an_age() {
    let alone = alone(Settings::default());
    alone.flushes.fails.store(true, Ordering::Relaxed);
    let limits = KeyspaceOptions::new().fifo(Fifo::age(Duration::from_secs(8)));
    let queue = alone.writer.make_keyspace("queue", true, Some(&limits)).expect("created");
    let put = |keyspace: &KeyspaceCore| {
        let op = OpRef::Put { key: b"k", value: b"1" };
        alone.writer.commit_op(keyspace, op, WriteOptions::new()).expect("written");
    };
    let seal = || (alone.writer.seal_overdue(None), alone.writer.sealed().len());
    alone.clock.advance_us(5_000_000);
    put(&alone.keyspace(DEFAULT_KEYSPACE));
    assert_eq!(seal(), (false, 0), "the FIFO keyspace has no entry that needs an age");
    alone.writer.make_keyspace("queue", false, Some(&KeyspaceOptions::new().no_fifo())).expect("no limits");
    alone.writer.make_keyspace("queue", false, Some(&limits)).expect("limits from now on");
    put(&queue);
    alone.clock.advance_us(999_000);
    assert_eq!(seal(), (false, 0), "not yet an eighth of the age");
    alone.clock.advance_us(1_000);
    assert_eq!(seal(), (true, 1));
    put(&queue);
    assert_eq!(seal(), (false, 1), "the sealed generation brings an age with its flush");
}

#[test]
fn memtables_are_sealed_to_free_their_memory_unless_a_writer_is_busy() {
    let alone = alone(Settings::default());
    alone.flushes.fails.store(true, Ordering::Relaxed);
    alone.writer.seal_for_memory();
    assert!(alone.writer.sealed().is_empty(), "there is nothing to seal");
    alone.put("a", b"1", WriteOptions::new()).expect("written");
    {
        let _busy = alone.writer.writing.lock();
        alone.writer.seal_for_memory();
        assert!(alone.writer.sealed().is_empty());
    }
    alone.writer.seal_for_memory();
    assert_eq!(alone.writer.sealed().oldest().map(|sealed| sealed.last_seq), Some(SeqNo(1)));
    assert!(alone.writer.writing.lock().active.is_empty());
}

#[test]
fn writers_look_at_the_backlog_again_after_an_install() {
    let alone = alone(Settings { immutable_memtables: 1, ..Settings::default() });
    alone.flushes.fails.store(true, Ordering::Relaxed);
    alone.put("a", b"1", WriteOptions::new()).expect("written");
    // The backlog grows, and nobody is told.
    let keyspace = alone.keyspace(DEFAULT_KEYSPACE);
    let memtable: Arc<dyn shamba_memtable::Memtable> = Arc::new(shamba_memtable::ChunkedMemtable::new(false));
    memtable.insert(alone.reads.digest().digest(b"z"), b"z", SeqNo(1), EntryKind::Put, b"1");
    alone.writer.sealed().seal(Generation {
        appended_bytes: 0,
        log: None,
        log_files: Vec::new(),
        next_log: LogNo(1),
        members: vec![(keyspace, memtable)],
        last_seq: SeqNo(1),
        bytes: 1,
        oldest_tombstone_ms: None,
        _charge: Charge::new(&alone.ledger, LedgerPart::Memtables, 0),
    });
    alone.put("b", b"1", WriteOptions::new()).expect("it goes by the backlog that is known");
    alone.writer.installed(&[]);
    assert_eq!(Alone::kind(alone.put("c", b"1", WriteOptions::new())), Some(ErrorKind::Io), "it stalls");
    drop(alone.writer.sealed().flushed());
    alone.writer.installed(&[]);
    alone.put("c", b"1", WriteOptions::new()).expect("there is room again");
}
