//! A scheduler alone, for tests: over a catalog, a writer and readers, without a database.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::Ordering;

use shamba_env::{FaultFs, MemFs, ThreadSpawner, Vfs};
use shamba_key::KeyspaceId;
use shamba_log::wal::OpRef;
use shamba_table::TableId;

use super::super::next::Step;
use super::super::*;
use crate::catalog::DEFAULT_KEYSPACE;
use crate::event::EventListener;
use crate::residency::ResidencyManager;
use crate::testing::{MemtableLimit, Parts};
use crate::workers::{Steps, Waker, Workers};
use crate::writer::WriteOptions;

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
    let faults = FaultFs::new(Arc::clone(&env.vfs), 1);
    let env = Env { vfs: Arc::new(faults.clone()), ..env };
    let parts = Parts::within(env, settings, listener);
    let writer = Arc::new(parts.writer(MemtableLimit::none()));
    let Parts { env, settings, telemetry, lifecycle, memory, catalog, reads, .. } = parts;
    let (cache, ledger) = (Arc::clone(memory.cache()), Arc::clone(memory.ledger()));
    let told = || (Arc::clone(&lifecycle), Arc::clone(&telemetry));
    let residency = Arc::new(ResidencyManager::new(
        &env,
        Arc::clone(&settings),
        Arc::clone(&memory),
        (Arc::clone(&catalog), Arc::clone(&reads)),
        Arc::clone(&telemetry),
        Waker::default(),
    ));
    let table_files = TableFiles::new(
        &env,
        Arc::clone(&settings),
        (cache, ledger),
        Arc::clone(&catalog),
        Arc::clone(&telemetry),
    );
    let filter_bits = FilterBits::new(&env, Arc::clone(&settings), Arc::clone(&memory), Arc::clone(&catalog));
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
        let mut state = self.scheduler.background.state.lock();
        let tables: BTreeSet<TableId> = tables.iter().copied().collect();
        state.requests.add_filter_rewrite(KeyspaceId::DEFAULT, tables, true);
    }

    pub fn request_full(&self) -> u64 {
        self.scheduler.background.state.lock().requests.add_full(KeyspaceId::DEFAULT)
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
        let state = self.scheduler.background.state.lock();
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
