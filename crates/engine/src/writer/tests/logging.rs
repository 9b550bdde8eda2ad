//! Tests of the log of a writer: lengths, charges, syncs, and appends that fail.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;

impl Alone {
    fn log_bytes(&self) -> u64 {
        self.writer.writing.lock().log.bytes()
    }

    fn syncs(&self) -> u64 {
        self.telemetry.work().wal_syncs.load(Ordering::Relaxed)
    }
}

#[test]
fn every_appended_byte_is_counted_and_unsynced_until_a_sync() {
    let alone = alone(Settings::default());
    let before_bytes = alone.log_bytes();
    assert!(before_bytes > 1, "a log has a head");
    assert_eq!(alone.writer.unsynced_bytes(), 0);
    for bytes in [1, 100, 10_000, 100_000] {
        alone.put("k", &vec![1; bytes], WriteOptions::new()).expect("written");
        let appended_bytes = alone.log_bytes() - before_bytes;
        assert!(appended_bytes > bytes as u64);
        assert_eq!(alone.writer.unsynced_bytes(), appended_bytes);
        assert_eq!(alone.telemetry.work().bytes_wal.load(Ordering::Relaxed), appended_bytes);
    }
    alone.writer.sync().expect("synced");
    assert_eq!(alone.writer.unsynced_bytes(), 0);
}

#[test]
fn the_buffer_of_the_log_is_charged_and_does_not_outgrow_its_limit() {
    let alone = alone(Settings::default());
    assert_eq!(alone.ledger.bytes(LedgerPart::Logs), 0, "nothing is buffered yet");
    let mut buffered_bytes_max = 0;
    for n in 0..50 {
        alone.put(&format!("{n}"), &[1; 5_000], Durability::Buffered).expect("written");
        let buffered_bytes = alone.writer.writing.lock().log.buffered();
        assert!(buffered_bytes < 64 << 10, "{buffered_bytes} bytes after write {n} stay in the process");
        assert!(alone.ledger.bytes(LedgerPart::Logs) >= buffered_bytes, "the buffer is charged");
        buffered_bytes_max = buffered_bytes.max(buffered_bytes_max);
    }
    assert!(buffered_bytes_max > 32 << 10, "buffered writes stay in the process for a while");
    assert!(alone.log_bytes() > 250_000);
}

#[test]
fn a_full_log_is_sealed_whatever_is_in_the_memtables() {
    let alone = alone(Settings { wal_bytes: 4 << 10, ..Settings::default() });
    alone.put("a", &[1; 100], WriteOptions::new()).expect("written");
    assert_eq!(*lock(&alone.flushes.flushed), [], "the log has room");
    alone.put("b", &[1; 4 << 10], WriteOptions::new()).expect("written");
    assert_eq!(*lock(&alone.flushes.flushed), [2]);
    assert!(alone.log_bytes() < 1 << 10, "a new log");
}

#[test]
fn a_sealed_log_that_its_flush_has_closed_is_forgotten() {
    let alone = alone(Settings::default());
    alone.memory.0.store(1, Ordering::Relaxed);
    for n in 0..5 {
        alone.put("a", b"1", WriteOptions::new()).expect("written, and flushed");
        let listed = alone.writer.writing.lock().log.listed_logs();
        assert!(listed <= 1, "{listed} sealed logs after write {n}, all but one are closed");
    }
}

#[test]
fn the_file_of_a_sealed_log_is_kept_by_the_memtables_that_refer_to_it() {
    let alone = alone(Settings::default());
    alone.flushes.fails.store(true, Ordering::Relaxed);
    let long_bytes = alone.writer.settings.held_value_bytes_max().max(64 << 10) as usize + 1;
    let mut expected = Vec::new();
    for (is_long, bytes) in [(false, 1), (true, long_bytes)] {
        alone.put("k", &vec![1; bytes], WriteOptions::new()).expect("written");
        alone.writer.seal().expect("sealed");
        expected.push(usize::from(is_long));
    }
    let mut kept = Vec::new();
    while let Some(generation) = alone.writer.sealed().flushed() {
        assert_eq!(generation.log_files.len(), 1);
        kept.extend(generation.log_files.iter().map(|file| file.values.strong_count()));
    }
    assert_eq!(kept, expected);
}

#[test]
fn a_sync_syncs_only_logs_with_unsynced_records() {
    let alone = alone(Settings::default());
    alone.put("a", b"1", Durability::Sync).expect("written");
    alone.writer.sync().expect("synced");
    alone.writer.sync().expect("synced");
    assert_eq!(alone.syncs(), 1, "there was nothing new");
    alone.flushes.fails.store(true, Ordering::Relaxed);
    alone.writer.seal().expect("sealed");
    alone.writer.sync().expect("synced");
    assert_eq!(alone.syncs(), 2, "the sealed log was synced before, the new one was not");
    alone.put("b", b"1", WriteOptions::new()).expect("written");
    alone.writer.seal().expect("sealed");
    alone.writer.sync().expect("synced");
    assert_eq!(alone.syncs(), 4, "the sealed log, then the new one");
}

#[test]
fn the_earliest_interval_sets_the_time_of_the_sync() {
    let interval = |ms| Durability::Interval { ms, bytes: u64::MAX };
    for intervals in [[100, 10], [10, 100], [10, 10]] {
        let alone = alone(Settings::default());
        for ms in intervals {
            alone.put("a", b"1", interval(ms)).expect("written");
        }
        let synced_after = |us| {
            alone.clock.advance_us(us);
            alone.writer.writing.lock().log.sync_if_due();
            alone.syncs() > 0
        };
        assert!(!synced_after(9_999), "{intervals:?}");
        assert!(synced_after(1), "{intervals:?}");
    }
}

#[test]
fn no_log_is_synced_while_replayed_entries_wait_for_their_flush() {
    let alone = alone(Settings::default());
    alone.flushes.fails.store(true, Ordering::Relaxed);
    alone.put("a", b"1", WriteOptions::new()).expect("written");
    alone.writer.seal().expect("sealed");
    // As after an open that replayed the first entry from a log of unknown durability.
    alone.writer.writing.lock().log.follow_replayed(Some(SeqNo(1)));
    for durability in [Durability::Buffered, Durability::NoSync] {
        alone.put("b", b"1", durability).expect("it waits for no flush");
    }
    for durability in [Durability::Sync, Durability::Interval { ms: 10, bytes: u64::MAX }] {
        assert_eq!(Alone::kind(alone.put("c", b"1", durability)), Some(ErrorKind::Io), "{durability:?}");
    }
    assert!(alone.entry(DEFAULT_KEYSPACE, "b").is_some() && alone.entry(DEFAULT_KEYSPACE, "c").is_none());
    {
        let mut writing = alone.writer.writing.lock();
        // A build with debug assertions panics, another one returns an error.
        let synced = catch_unwind(AssertUnwindSafe(|| writing.log.sync()));
        assert!(!matches!(synced, Ok(Ok(()))), "a promise would cover the replayed logs");
    }
    assert_eq!((alone.syncs(), alone.writer.durable().has(SeqNo(2))), (0, false));
    alone.flushes.fails.store(false, Ordering::Relaxed);
    alone.put("c", b"1", Durability::Sync).expect("the flush comes first");
    assert_eq!(*lock(&alone.flushes.flushed), [1]);
    assert_eq!(alone.writer.writing.lock().log.replayed_through(), None);
    assert!(alone.writer.durable().has(SeqNo(4)));
}

#[test]
fn writes_go_on_only_after_a_lack_of_space_that_left_a_complete_log() {
    let append = |effect| FaultRule::nth(0, effect).on(&[OpKind::Append]).at_path(".log");
    let truncate = FaultRule::nth(0, Effect::Eio).on(&[OpKind::Truncate]).at_path(".log");
    let cases = [
        (Effect::Enospc, false, ErrorKind::NoSpace, None),
        (Effect::Enospc, true, ErrorKind::NoSpace, Some(ErrorKind::ReadOnly)),
        (Effect::Eio, false, ErrorKind::Io, Some(ErrorKind::ReadOnly)),
        (Effect::Eio, true, ErrorKind::Io, Some(ErrorKind::ReadOnly)),
    ];
    for (effect, stays_torn, kind, after) in cases {
        let alone = alone(Settings::default());
        alone.put("a", b"1", WriteOptions::new()).expect("written");
        alone.faults.add_rule(append(effect));
        if stays_torn {
            alone.faults.add_rule(truncate.clone());
        }
        assert_eq!(Alone::kind(alone.put("b", b"1", WriteOptions::new())), Some(kind));
        assert!(alone.entry(DEFAULT_KEYSPACE, "b").is_none());
        let next = Alone::kind(alone.put("c", b"1", WriteOptions::new()));
        assert_eq!(next, after, "after {kind:?}; the log is not cut: {stays_torn}");
    }
}

#[test]
fn a_lack_of_space_that_loses_acknowledged_writes_turns_writes_off() {
    for lost in [false, true] {
        let alone = alone(Settings::default());
        let durability = if lost { Durability::Buffered } else { Durability::NoSync };
        alone.put("a", b"1", durability).expect("written");
        alone.faults.add_rule(FaultRule::nth(0, Effect::Enospc).on(&[OpKind::Append]).at_path(".log"));
        assert_eq!(Alone::kind(alone.put("b", b"1", WriteOptions::new())), Some(ErrorKind::NoSpace));
        let next = Alone::kind(alone.put("c", b"1", WriteOptions::new()));
        assert_eq!(next, lost.then_some(ErrorKind::ReadOnly), "a later log would leave a hole");
    }
}
