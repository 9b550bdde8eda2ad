//! A scheduler alone, for tests: over a catalog, a writer and readers, without a database.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::Ordering;

use shamba_env::{FaultFs, MemFs, ThreadSpawner, Vfs};
use shamba_key::{KeyspaceId, LogNo, SeqNo};
use shamba_log::wal::{OpRef, WalWriter};
use shamba_memtable::ChunkedMemtable;
use shamba_table::{Charge, TableId};
use shamba_tree::version::ManifestEdit;
use shamba_tree::version::manifest::ManifestState;

use super::super::next::Step;
use super::super::*;
use crate::catalog::{DEFAULT_KEYSPACE, Keyspaces};
use crate::event::EventListener;
use crate::memory::MemoryManager;
use crate::residency::ResidencyManager;
use crate::telemetry::Observers;
use crate::trace::Recorder;
use crate::workers::{Steps, Waker, Workers};
use crate::writer::{WriteOptions, WriterMemory};

/// Memory without a limit.
struct Unlimited;

impl WriterMemory for Unlimited {
    fn charge(&self, charge: &mut Charge, bytes: u64) {
        charge.resize(bytes);
    }

    fn memtable_limit_bytes(&self) -> u64 {
        u64::MAX
    }
}

/// A scheduler and the parts below it.
pub(super) struct Alone {
    pub scheduler: Arc<Scheduler>,
    pub writer: Arc<Writer>,
    pub catalog: Arc<Catalog>,
    telemetry: Arc<Telemetry>,
    pub faults: FaultFs,
}

/// Small tables and two threads; compactions begin only by request.
pub(super) fn settings() -> Settings {
    Settings {
        auto_compaction: false,
        file_bytes: Some(1 << 10),
        block_bytes: 512,
        memory_budget_bytes: 64 << 20,
        background_threads: Some(2),
        ..Settings::default()
    }
}

/// A scheduler without threads, whose steps the test does.
pub(super) fn by_hand() -> Alone {
    alone(Env::deterministic(Arc::new(MemFs::new()), 1), settings(), None)
}

/// A scheduler with these settings.
pub(super) fn alone(env: Env, settings: Settings, listener: Option<Arc<dyn EventListener>>) -> Alone {
    let (dir, first_log) = (Path::new("/db"), LogNo(1));
    let faults = FaultFs::new(Arc::clone(&env.vfs), 1);
    let env = Env { vfs: Arc::new(faults.clone()), ..env };
    env.vfs.create_dir_all(dir).expect("created");
    let settings = Arc::new(settings);
    let observers = Observers { listener, info_log: false, times_lookups: false };
    let telemetry = Arc::new(Telemetry::new(&env, dir, observers, 1));
    let lifecycle = Arc::new(Lifecycle::new(false, Arc::clone(&telemetry)));
    let recorder = Arc::new(Recorder::new(&env, Arc::clone(&telemetry)));
    let mut state = ManifestState { next_id: 2, ..ManifestState::default() };
    let created = vec![(KeyspaceId::DEFAULT, DEFAULT_KEYSPACE.to_owned(), Vec::new())];
    let edit = ManifestEdit { keyspaces_created: created, first_log: Some(first_log), ..Default::default() };
    let memtable = ChunkedMemtable::new(true);
    let (name, closed) = (DEFAULT_KEYSPACE.to_owned(), Arc::clone(lifecycle.closed_flag()));
    let keyspace = KeyspaceCore::new(KeyspaceId::DEFAULT, name, Arc::default(), memtable, closed);
    let keyspaces = Keyspaces::from([(KeyspaceId::DEFAULT, Arc::new(keyspace))]);
    let told = || (Arc::clone(&lifecycle), Arc::clone(&telemetry));
    let catalog = Arc::new(Catalog::new(&env, dir, keyspaces, 2, told().0, told().1));
    catalog.begin(&mut state, edit).expect("a manifest");
    let memory = Arc::new(MemoryManager::new(Arc::clone(&settings), None, Arc::clone(&telemetry), 0));
    let (cache, ledger) = (Arc::clone(memory.cache()), Arc::clone(memory.ledger()));
    let iterators = Arc::clone(memory.iterators());
    let watchers = (Arc::clone(&telemetry), Arc::clone(&recorder));
    let reads = Reads::new(&env, Arc::clone(&settings), Arc::clone(&cache), iterators, SeqNo::ZERO, watchers);
    let reads = Arc::new(reads);
    let residency = Arc::new(ResidencyManager::new(
        &env,
        Arc::clone(&settings),
        memory,
        (Arc::clone(&catalog), Arc::clone(&reads)),
        Arc::clone(&telemetry),
        Waker::default(),
    ));
    let table_files = TableFiles::new(
        &env,
        Arc::clone(&settings),
        (cache, Arc::clone(&ledger)),
        Arc::clone(&catalog),
        Arc::clone(&telemetry),
    );
    let writer = Arc::new(Writer::new(
        &env,
        Arc::clone(&settings),
        (Arc::new(Unlimited) as Arc<dyn WriterMemory>, ledger),
        Arc::clone(&catalog),
        Arc::clone(&reads),
        (Arc::clone(&lifecycle), Arc::clone(&telemetry), recorder),
        SeqNo::ZERO,
    ));
    let wal = WalWriter::create(&env, dir, first_log, None, SeqNo::ZERO).expect("a log");
    writer.begin(SeqNo::ZERO, Some(wal));
    let filter_bits = FilterBits::new(&env, Arc::clone(&settings), Arc::clone(&catalog));
    let statistics = SavedStatistics::new(&env, false, Arc::clone(&catalog), told().0, told().1);
    let scheduler = Arc::new(Scheduler::new(
        &env,
        settings,
        (Arc::clone(&catalog), Arc::clone(&writer), reads),
        (Arc::new(table_files), Arc::new(filter_bits), Arc::new(statistics)),
        told(),
        (residency, Waker::default()),
    ));
    let background: std::sync::Weak<Scheduler> = Arc::downgrade(&scheduler);
    writer.connect(background);
    Alone { scheduler, writer, catalog, telemetry, faults }
}

impl Alone {
    /// Lets two threads do the compactions.
    pub(super) fn start(&self) {
        let steps = Arc::clone(&self.scheduler) as Arc<dyn Steps>;
        let waker = &self.scheduler.background.waker;
        waker.join(&Workers::new(2), &ThreadSpawner::new(), steps).expect("threads");
    }

    pub(super) fn end(&self) {
        self.scheduler.stop();
        self.scheduler.background.waker.leave();
    }

    pub fn keyspace(&self, name: &str) -> Arc<KeyspaceCore> {
        self.catalog.named(name).expect("the keyspace exists")
    }

    /// Writes these numbered keys, and flushes them as a run of level 0.
    pub fn add_run(&self, name: &str, keys: std::ops::Range<u32>) {
        for number in keys {
            let (key, value) = (format!("key {number:04}"), [number as u8; 100]);
            let op = OpRef::Put { key: key.as_bytes(), value: &value };
            self.writer.commit_op(&self.keyspace(name), op, WriteOptions::new()).expect("written");
        }
        self.writer.seal().expect("sealed");
        while !self.scheduler.sealed.is_empty() {
            self.scheduler.flush_oldest().expect("flushed");
        }
    }

    /// Deletes these numbered keys, and flushes the tombstones as a run of level 0.
    pub fn delete_run(&self, keys: std::ops::Range<u32>) {
        for number in keys {
            let key = format!("key {number:04}");
            let op = OpRef::Delete { key: key.as_bytes() };
            self.writer
                .commit_op(&self.keyspace(DEFAULT_KEYSPACE), op, WriteOptions::new())
                .expect("deleted");
        }
        self.writer.seal().expect("sealed");
        self.scheduler.flush_oldest().expect("flushed");
    }

    pub fn tree(&self) -> String {
        self.keyspace(DEFAULT_KEYSPACE).load().version.to_string()
    }

    /// Requests a rewrite of the filters of these tables.
    pub fn request_rewrite(&self, tables: &[TableId]) {
        let mut state = lock(&self.scheduler.background.state);
        let tables: BTreeSet<TableId> = tables.iter().copied().collect();
        state.requests.add_filter_rewrite(KeyspaceId::DEFAULT, tables, true);
    }

    pub fn request_full(&self) -> u64 {
        lock(&self.scheduler.background.state).requests.add_full(KeyspaceId::DEFAULT)
    }

    /// The tables of the run of level 0 with this position.
    pub fn tables_of_run(&self, at: usize) -> Vec<TableId> {
        let version = Arc::clone(&self.keyspace(DEFAULT_KEYSPACE).load().version);
        version.level(0)[at].tables().iter().map(|table| table.meta.id).collect()
    }

    pub fn next(&self) -> Step {
        self.scheduler.next_step().expect("a step")
    }

    pub fn finish(&self) {
        while let Some(step) = self.scheduler.next_step() {
            self.scheduler.run(step).expect("done");
        }
        let state = lock(&self.scheduler.background.state);
        assert!(state.running.is_empty() && state.claims.is_empty(), "nothing runs");
    }

    pub fn slices(&self) -> u64 {
        self.telemetry.work().compaction_slices.load(Ordering::Relaxed)
    }

    /// The table files on disk.
    pub fn files(&self) -> Vec<String> {
        self.catalog.remove_obsolete_files();
        let listed = self.faults.list(Path::new("/db")).expect("listed");
        let mut names: Vec<String> = listed.into_iter().map(|file| file.name).collect();
        names.retain(|name| name.ends_with(".sst"));
        names.sort();
        names
    }
}
