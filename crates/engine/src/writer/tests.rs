//! Tests of a writer alone: over a catalog, readers and a log, without a database. The test flushes
//! what it seals.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use shamba_env::{Effect, FaultFs, FaultRule, ManualClock, MemFs, OpKind, lock};
use shamba_key::KeyspaceId;
use shamba_table::Entry;
use shamba_tree::version::ManifestEdit;
use shamba_tree::version::manifest::ManifestReader;

use super::queue::Groups;
use super::share::{Share, Writes};
use super::*;
use crate::catalog::DEFAULT_KEYSPACE;
use crate::error::ErrorKind;
use crate::sync::Mutex;
use crate::testing::{MemtableLimit, Parts};

mod group;
mod keyspaces;
mod logging;
mod rotation;

/// Background work that only takes generations out of the queue.
struct Flushes {
    sealed: Arc<SealedGenerations>,
    catalog: Arc<Catalog>,
    /// Whether flushes fail.
    fails: AtomicBool,
    failures: Mutex<Failures>,
    /// The last sequence number of each flushed generation.
    flushed: Mutex<Vec<u64>>,
    /// Files of the flushed generations.
    files: AtomicU64,
    forgotten: Mutex<Vec<KeyspaceId>>,
    /// Number of wake-ups.
    woken: AtomicU64,
}

impl Background for Flushes {
    fn wake(&self) {
        self.woken.fetch_add(1, Ordering::Relaxed);
    }

    fn retry(&self) {
        self.wake();
    }

    fn run_inline(&self) {
        while let Some(generation) = self.sealed.oldest() {
            if self.fails.load(Ordering::Relaxed) {
                lock(&self.failures).add_next(Error::new(ErrorKind::Io, "planned"));
                return;
            }
            let edit = ManifestEdit {
                first_log: Some(generation.next_log),
                last_seq: Some(generation.last_seq),
                ..ManifestEdit::default()
            };
            self.catalog.install(&generation.members, Vec::new(), |_| Ok(edit)).expect("installed");
            lock(&self.flushed).push(generation.last_seq.0);
            self.files.fetch_add(generation.log_files.len() as u64, Ordering::Relaxed);
            lock(&self.failures).end();
            drop(self.sealed.flushed());
        }
    }

    fn failures(&self, work: Work) -> Failures {
        if work == Work::Flush { lock(&self.failures).clone() } else { Failures::default() }
    }

    fn wait_for_progress(&self, look: &mut dyn FnMut(FailuresNow<'_>) -> Option<Duration>) {
        assert_eq!(look(&|work| self.failures(work)), None, "nobody else makes progress");
    }

    fn wait_for_flushes(&self, done: &dyn Fn() -> bool) -> Result<()> {
        self.run_inline();
        if done() { Ok(()) } else { Err(Error::new(ErrorKind::Io, "the flush failed")) }
    }

    fn forget(&self, keyspace: KeyspaceId) {
        lock(&self.forgotten).push(keyspace);
    }
}

/// A writer and the parts below it.
struct Alone {
    writer: Writer,
    flushes: Arc<Flushes>,
    memory: Arc<MemtableLimit>,
    catalog: Arc<Catalog>,
    reads: Arc<Reads>,
    telemetry: Arc<Telemetry>,
    ledger: Arc<Ledger>,
    clock: Arc<ManualClock>,
    faults: FaultFs,
}

fn alone(settings: Settings) -> Alone {
    let faults = FaultFs::new(Arc::new(MemFs::new()), 1);
    let clock = Arc::new(ManualClock::new());
    let env = Env { clock: Arc::clone(&clock) as _, ..Env::deterministic(Arc::new(faults.clone()), 1) };
    let parts = Parts::within(env, settings, None);
    let memory = MemtableLimit::none();
    let writer = parts.writer(Arc::clone(&memory) as Arc<dyn WriterMemory>);
    let Parts { catalog, reads, telemetry, .. } = parts;
    let ledger = Arc::clone(parts.memory.ledger());
    let flushes = Arc::new(Flushes {
        sealed: Arc::clone(&writer.sealed),
        catalog: Arc::clone(&catalog),
        fails: AtomicBool::new(false),
        failures: Mutex::default(),
        flushed: Mutex::default(),
        files: AtomicU64::new(0),
        forgotten: Mutex::default(),
        woken: AtomicU64::new(0),
    });
    let background: Weak<Flushes> = Arc::downgrade(&flushes);
    writer.connect(background);
    Alone { writer, flushes, memory, catalog, reads, telemetry, ledger, clock, faults }
}

impl Alone {
    fn keyspace(&self, name: &str) -> Arc<KeyspaceCore> {
        self.catalog.named(name).expect("the keyspace exists")
    }

    fn put(&self, key: &str, value: &[u8], options: impl Into<WriteOptions>) -> Result<()> {
        let op = OpRef::Put { key: key.as_bytes(), value };
        self.writer.commit_op(&self.keyspace(DEFAULT_KEYSPACE), op, options.into())
    }

    /// The visible version of `key` in the memtables of a keyspace.
    fn entry(&self, name: &str, key: &str) -> Option<Entry> {
        let (digest, view) = (self.reads.digest(), self.keyspace(name).load_full());
        let digest = digest.digest(key.as_bytes());
        view.memtables.iter().find_map(|memtable| memtable.get(digest, key.as_bytes(), self.reads.visible()))
    }

    fn kind(outcome: Result<()>) -> Option<ErrorKind> {
        outcome.err().map(|error| error.kind())
    }
}

/// Another thread has failed to sync the directory while this one waited for a sync of an older
/// log: the name of the log may be lost, which no later sync shows.
#[test]
fn a_sync_that_ends_after_a_failure_makes_nothing_durable() {
    let alone = alone(Settings::default());
    alone.put("a", b"1", Durability::NoSync).expect("written");
    let mut writing = alone.writer.writing.lock();
    alone.writer.lifecycle.fail(&Error::new(ErrorKind::Io, "the directory"));
    let error = writing.log.sync().expect_err("a failure");
    assert!(error.to_string().contains("the directory"), "{error}");
    assert!(!alone.writer.durable().has(SeqNo(1)));
    drop(writing);
    assert_eq!(Alone::kind(alone.writer.sync()), Some(ErrorKind::ReadOnly));
}

#[test]
fn what_a_flush_has_written_is_not_unsynced() {
    let alone = alone(Settings::default());
    alone.put("a", b"1", Durability::NoSync).expect("written");
    alone.flushes.fails.store(true, Ordering::Relaxed);
    alone.writer.seal().expect("sealed");
    alone.put("b", b"1", Durability::NoSync).expect("written");
    let before = alone.writer.unsynced_bytes();
    let generation = alone.writer.sealed().oldest().expect("sealed");
    alone.writer.note_flushed(&generation);
    let after = alone.writer.unsynced_bytes();
    assert!(0 < after && after < before, "{after} of {before} bytes");
    // The next sync has both; a flush that ends after it takes nothing more away.
    alone.writer.sync().expect("synced");
    assert_eq!(alone.writer.unsynced_bytes(), 0);
    alone.put("c", b"1", Durability::NoSync).expect("written");
    let before = alone.writer.unsynced_bytes();
    alone.writer.note_flushed(&generation);
    assert!(before > 0 && alone.writer.unsynced_bytes() == before);
}

#[test]
fn a_batch_is_logged_then_visible_and_durable_after_a_sync() {
    let alone = alone(Settings::default());
    let mut operations = Operations::EMPTY;
    for key in [b"a", b"b"] {
        operations.push(KeyspaceId::DEFAULT, OpRef::Put { key, value: b"1" }).expect("valid");
    }
    alone.writer.commit(&mut operations, WriteOptions::new()).expect("written");
    assert_eq!(alone.reads.visible(), SeqNo(2));
    assert!(alone.entry(DEFAULT_KEYSPACE, "a").is_some() && alone.entry(DEFAULT_KEYSPACE, "b").is_some());
    assert!(alone.writer.unsynced_bytes() > 0);
    assert_eq!(alone.writer.log_promise(), None, "nothing is synced");
    assert!(alone.ledger.bytes(LedgerPart::Memtables) > 0, "memtables are charged before they grow");
    alone.writer.sync().expect("synced");
    assert_eq!(alone.writer.unsynced_bytes(), 0);
    assert!(alone.writer.log_promise().is_some_and(|(log, bytes)| log == LogNo(1) && bytes > 0));
    let work = alone.telemetry.work();
    let counts = [&work.puts, &work.batches, &work.commit_groups, &work.wal_syncs];
    assert_eq!(counts.map(|count| count.load(Ordering::Relaxed)), [2, 1, 1, 1]);
}

#[test]
fn one_synced_write_of_a_group_syncs_the_group() {
    let share = |key, durability| {
        let op = OpRef::Put { key, value: b"1" };
        Share { writes: Writes::One(KeyspaceId::DEFAULT, op), durability, conditions: None }
    };
    for synced in [0, 1, 2] {
        let alone = alone(Settings::default());
        let durability = |at| if at == synced { Durability::Sync } else { Durability::Buffered };
        let keys = [&b"a"[..], b"b", b"c"];
        let shares = keys.into_iter().enumerate().map(|(at, key)| share(key, durability(at)));
        alone.writer.write_group(&mut alone.writer.writing.lock(), shares).expect("written");
        assert_eq!(alone.writer.unsynced_bytes(), 0, "with the synced write in place {synced}");
        assert!(alone.writer.durable().has(SeqNo(3)));
    }
}

/// A compaction may read the tables before their entries are visible. A reader that comes between
/// the two still needs the versions that they hide.
#[test]
fn while_tables_are_added_compactions_keep_what_readers_of_the_state_before_see() {
    let alone = alone(Settings::default());
    alone.put("a", b"1", WriteOptions::new()).expect("written");
    let before = alone.reads.visible();
    let stripes = || alone.reads.readers().seqs;
    let add = |seq| {
        assert!(seq > before && alone.reads.visible() == before, "not visible yet");
        assert_eq!(stripes(), [before]);
        Ok((1, ()))
    };
    let added = alone.writer.add_tables(&alone.keyspace(DEFAULT_KEYSPACE), || Ok(()), add);
    assert_eq!(added.expect("added"), 1);
    assert_eq!((stripes(), alone.reads.visible() > before), (Vec::new(), true));
}

#[test]
fn full_memtables_are_sealed_with_their_log_and_flushed_in_order() {
    let alone = alone(Settings::default());
    for _ in 0..3 {
        alone.memory.0.store(u64::MAX, Ordering::Relaxed);
        alone.put("k", b"1", WriteOptions::new()).expect("written");
        assert!(alone.writer.sealed().is_empty());
        let active_bytes = alone.keyspace(DEFAULT_KEYSPACE).load().memtables[0].bytes();
        alone.memory.0.store(active_bytes + 1, Ordering::Relaxed);
        alone.put("l", &[2; 8 << 10], WriteOptions::new()).expect("written");
    }
    assert_eq!(*lock(&alone.flushes.flushed), [2, 4, 6]);
    assert_eq!(alone.flushes.files.load(Ordering::Relaxed), 3, "each generation has one log");
    assert!(alone.entry(DEFAULT_KEYSPACE, "k").is_none(), "the memtables are empty");
    assert_eq!(alone.ledger.bytes(LedgerPart::Memtables), 0, "their memory is free");
    alone.writer.flush().expect("nothing to do");
    assert_eq!(lock(&alone.flushes.flushed).len(), 3);
}

#[test]
fn writes_stall_behind_failing_flushes_and_go_on_after_them() {
    let settings = Settings { immutable_memtables: 2, ..Settings::default() };
    let alone = alone(settings);
    alone.memory.0.store(1, Ordering::Relaxed);
    alone.flushes.fails.store(true, Ordering::Relaxed);
    for key in ["a", "b"] {
        alone.put(key, b"1", WriteOptions::new()).expect("there is room for two generations");
    }
    assert_eq!(alone.writer.sealed().len(), 2);
    assert_eq!(Alone::kind(alone.put("c", b"1", WriteOptions::new())), Some(ErrorKind::Io));
    assert!(alone.entry(DEFAULT_KEYSPACE, "c").is_none(), "the write is not done");
    assert_eq!(alone.telemetry.work().stalls.load(Ordering::Relaxed), 1);
    alone.flushes.fails.store(false, Ordering::Relaxed);
    alone.put("c", b"1", WriteOptions::new()).expect("the flushes succeed again");
    assert_eq!(*lock(&alone.flushes.flushed), [1, 2, 3]);
}

#[test]
fn a_rotation_does_not_wait_for_the_sync_of_a_sealed_log() {
    let alone = alone(Settings::default());
    alone.memory.0.store(1, Ordering::Relaxed);
    alone.flushes.fails.store(true, Ordering::Relaxed);
    alone.put("a", b"1", WriteOptions::new()).expect("written, and the memtable is sealed");
    let log = alone.writer.sealed().oldest().and_then(|generation| generation.log.clone()).expect("its log");
    let (sender, written) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let syncing = log.lock();
        scope.spawn(|| sender.send(alone.put("b", b"1", WriteOptions::new())));
        let outcome = written.recv_timeout(Duration::from_secs(5));
        drop(syncing);
        outcome.expect("the write waits for the lock that a sync holds").expect("written");
    });
    assert_eq!(alone.writer.sealed().len(), 2);
}

#[test]
fn a_flush_closes_its_log_and_a_sync_passes_over_it() {
    let alone = alone(Settings::default());
    alone.memory.0.store(1, Ordering::Relaxed);
    alone.flushes.fails.store(true, Ordering::Relaxed);
    alone.put("a", b"1", WriteOptions::new()).expect("written");
    alone.put("b", b"1", WriteOptions::new()).expect("written");
    let logs = |alone: &Alone| {
        let writing = alone.writer.writing.lock();
        writing.log.sealed_logs()
    };
    assert_eq!(logs(&alone), 2);
    alone.flushes.fails.store(false, Ordering::Relaxed);
    alone.writer.flush().expect("flushed");
    assert_eq!(logs(&alone), 0, "nobody else keeps the logs of flushed generations");
    alone.writer.sync().expect("synced");
    alone.memory.0.store(u64::MAX, Ordering::Relaxed);
    alone.put("c", b"1", WriteOptions::new()).expect("written");
    assert!(alone.entry(DEFAULT_KEYSPACE, "c").is_some());
}

#[test]
fn an_interval_write_is_synced_when_its_time_has_passed() {
    let alone = alone(Settings::default());
    let interval = |bytes| Durability::Interval { ms: 10, bytes };
    let syncs = || alone.telemetry.work().wal_syncs.load(Ordering::Relaxed);
    alone.put("a", b"1", interval(u64::MAX)).expect("written");
    alone.writer.writing.lock().log.sync_if_due();
    assert_eq!(syncs(), 0, "it is not due");
    alone.clock.advance_us(10_000);
    assert!(alone.writer.schedule.wait(alone.clock.as_ref()), "the worker need not wait");
    alone.writer.writing.lock().log.sync_if_due();
    assert_eq!((syncs(), alone.writer.unsynced_bytes()), (1, 0));
    alone.writer.writing.lock().log.sync_if_due();
    assert_eq!(syncs(), 1, "nothing is due any more");
    alone.put("b", b"1", interval(1)).expect("written");
    assert_eq!(syncs(), 2, "the bytes are reached");
    alone.writer.stop_syncs();
    alone.writer.run_syncs(); // Returns at once.
}

#[test]
fn a_flush_makes_nothing_durable_that_is_in_the_log_only() {
    let alone = alone(Settings::default());
    let unknown = |writer: &Writer| {
        let mut operations = Operations::EMPTY;
        operations.push(KeyspaceId(77), OpRef::Put { key: b"a", value: b"1" }).expect("valid");
        writer.commit(&mut operations, Durability::Buffered.into()).expect("written")
    };
    // As if the keyspace was dropped after the batch had checked it.
    let seq = unknown(&alone.writer);
    alone.writer.flush().expect("flushed");
    assert!(!alone.writer.durable().has(seq), "the batch is in the buffer of the log");
    alone.put("b", b"1", WriteOptions::new()).expect("written");
    alone.writer.flush().expect("flushed");
    assert!(alone.writer.durable().has(seq));
    let later = unknown(&alone.writer);
    alone.writer.flush().expect("flushed");
    assert!(!alone.writer.durable().has(later));
    alone.writer.make_durable(later).expect("synced");
    assert!(alone.writer.durable().has(later));
}

#[test]
fn after_a_lack_of_space_the_next_write_has_a_new_log() {
    let alone = alone(Settings::default());
    alone.put("a", b"1", WriteOptions::new()).expect("written");
    alone.faults.add_rule(FaultRule::nth(0, Effect::Enospc).on(&[OpKind::Append]).at_path(".log"));
    assert_eq!(Alone::kind(alone.put("b", b"1", WriteOptions::new())), Some(ErrorKind::NoSpace));
    assert_eq!(alone.reads.visible(), SeqNo(1));
    assert!(alone.entry(DEFAULT_KEYSPACE, "b").is_none());
    alone.put("c", b"1", Durability::Sync).expect("there is space again");
    assert_eq!(alone.reads.visible(), SeqNo(2), "the number of the failed write is used again");
    assert!(alone.writer.log_promise().is_some_and(|(log, _)| log > LogNo(1)));
    assert_eq!(alone.telemetry.work().wal_syncs.load(Ordering::Relaxed), 2, "the sealed log comes first");
}

#[test]
fn a_failed_sync_turns_writes_off() {
    let alone = alone(Settings::default());
    alone.faults.add_rule(FaultRule::nth(0, Effect::Eio).on(&[OpKind::SyncData]).at_path(".log"));
    assert_eq!(Alone::kind(alone.put("a", b"1", Durability::Sync)), Some(ErrorKind::Io));
    assert!(alone.entry(DEFAULT_KEYSPACE, "a").is_none() && alone.reads.visible() == SeqNo::ZERO);
    assert_eq!(Alone::kind(alone.put("a", b"1", WriteOptions::new())), Some(ErrorKind::ReadOnly));
    assert_eq!(Alone::kind(alone.writer.finish_log(Vec::new())), Some(ErrorKind::Io), "the cause");
}

#[test]
fn keyspaces_come_and_go_between_groups() {
    let alone = alone(Settings::default());
    let users = alone.writer.make_keyspace("users", true, None).expect("created");
    assert_eq!(
        Alone::kind(alone.writer.make_keyspace("users", true, None).map(drop)),
        Some(ErrorKind::Invalid)
    );
    let again = alone.writer.make_keyspace("users", false, None).expect("found");
    assert!(Arc::ptr_eq(&users, &again));
    let op = OpRef::Put { key: b"k", value: b"v" };
    alone.writer.commit_op(&users, op, WriteOptions::new()).expect("written");
    assert!(alone.entry("users", "k").is_some() && alone.entry(DEFAULT_KEYSPACE, "k").is_none());
    alone.writer.drop_keyspace("users").expect("dropped");
    assert_eq!(alone.writer.unsynced_bytes(), 0, "the writes before the drop are durable");
    assert_eq!(*lock(&alone.flushes.forgotten), [users.id]);
    let outcome = alone.writer.commit_op(&users, op, WriteOptions::new());
    assert_eq!(Alone::kind(outcome), Some(ErrorKind::Invalid));
    assert_eq!(Alone::kind(alone.writer.drop_keyspace(DEFAULT_KEYSPACE)), Some(ErrorKind::Invalid));
    // A batch that was encoded before the drop has no effect on the keyspace.
    let mut operations = Operations::EMPTY;
    operations.push(users.id, op).expect("valid");
    alone.writer.commit(&mut operations, WriteOptions::new()).expect("written");
    assert_eq!(alone.reads.visible(), SeqNo(4), "the creation and the drop have numbers, too");
}

#[test]
fn added_tables_are_newer_than_every_write_before_them() {
    let alone = alone(Settings::default());
    let keyspace = alone.keyspace(DEFAULT_KEYSPACE);
    alone.put("a", b"1", WriteOptions::new()).expect("written");
    let refused = alone.writer.add_tables(&keyspace, || Err(Error::invalid("no place")), |_| Ok((1, ())));
    assert_eq!(Alone::kind(refused.map(drop)), Some(ErrorKind::Invalid));
    assert_eq!(*lock(&alone.flushes.flushed), [1], "memtables are flushed before the check");
    let added = alone.writer.add_tables(
        &keyspace,
        || Ok(()),
        |seq| {
            assert_eq!(alone.reads.visible(), SeqNo(1), "not visible yet");
            Ok((seq.0, ()))
        },
    );
    assert_eq!(added.expect("added"), 2);
    assert_eq!(alone.reads.visible(), SeqNo(2));
    assert_eq!(alone.writer.unsynced_bytes(), 0, "the reserved number is durable");
    alone.put("b", b"1", WriteOptions::new()).expect("written");
    assert_eq!(alone.reads.visible(), SeqNo(3));
}

#[test]
fn a_close_ends_the_log_and_promises_its_length() {
    let alone = alone(Settings::default());
    alone.put("a", b"1", Durability::Buffered).expect("written");
    assert!(alone.writer.close().expect("it was open").is_ok());
    assert!(alone.writer.close().is_none());
    assert_eq!(Alone::kind(alone.put("b", b"1", WriteOptions::new())), Some(ErrorKind::Closed));
    assert_eq!(Alone::kind(alone.writer.seal().map(drop)), Some(ErrorKind::Closed), "no log after a close");
    let settings = vec![("workload".to_owned(), "known".to_owned())];
    alone.writer.finish_log(settings).expect("finished");
    let env = Env::deterministic(Arc::new(alone.faults.clone()), 1);
    let state = ManifestReader::load(&env, Path::new("/db")).expect("read").expect("there is one").state;
    assert!(state.log_promise.is_some_and(|(log, bytes)| log == LogNo(1) && bytes > 0));
    assert_eq!(state.last_seq, SeqNo(1));
    assert_eq!(state.settings.get("workload").map(String::as_str), Some("known"));
}

#[test]
fn without_a_log_a_close_flushes_and_a_durability_is_refused() {
    let alone = alone(Settings { no_wal: true, ..Settings::default() });
    assert_eq!(Alone::kind(alone.put("a", b"1", Durability::Sync)), Some(ErrorKind::Invalid));
    assert_eq!(Alone::kind(alone.writer.sync()), Some(ErrorKind::Invalid));
    alone.put("a", b"1", WriteOptions::new()).expect("written");
    assert_eq!(alone.writer.unsynced_bytes(), 0);
    assert!(alone.writer.close().expect("it was open").is_ok());
    assert_eq!(*lock(&alone.flushes.flushed), [1]);
}

#[test]
fn a_failed_flush_does_not_keep_a_database_without_a_log_open() {
    let alone = alone(Settings { no_wal: true, ..Settings::default() });
    alone.put("a", b"1", WriteOptions::new()).expect("written");
    alone.flushes.fails.store(true, Ordering::Relaxed);
    assert!(alone.writer.close().expect("it was open").is_err());
    assert_eq!(Alone::kind(alone.put("b", b"1", WriteOptions::new())), Some(ErrorKind::Closed));
}

#[test]
fn nothing_is_written_between_groups() {
    let alone = alone(Settings::default());
    let visible = alone.writer.between_groups(|| {
        assert!(alone.writer.writing.try_lock().is_none(), "writers wait");
        alone.reads.visible()
    });
    assert_eq!(visible, SeqNo::ZERO);
    alone.put("a", b"1", WriteOptions::new()).expect("written");
}
