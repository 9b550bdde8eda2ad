//! Test kit: the lower parts of a database over files in memory, without the database.
//!
//! A unit test of a part takes the parts below it from here and makes its own.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use shamba_env::{Env, MemFs, Vfs};
use shamba_key::{KeyspaceId, LogNo, SeqNo};
use shamba_log::wal::WalWriter;
use shamba_memtable::ChunkedMemtable;
use shamba_table::Charge;
use shamba_tree::expiry::ExpiryClock;
use shamba_tree::version::ManifestEdit;
use shamba_tree::version::manifest::ManifestState;

use crate::catalog::{Catalog, DEFAULT_KEYSPACE, KeyspaceCore, Keyspaces};
use crate::event::EventListener;
use crate::lifecycle::Lifecycle;
use crate::memory::MemoryManager;
use crate::options::settings::Settings;
use crate::reads::Reads;
use crate::telemetry::{Observers, Telemetry};
use crate::trace::TraceRecorder;
use crate::writer::{Writer, WriterMemory};

/// The first log; files, runs and ages follow it.
const FIRST_LOG: LogNo = LogNo(1);

/// The lower parts of an empty database with the default keyspace.
pub(crate) struct Parts {
    pub env: Env,
    pub settings: Arc<Settings>,
    pub telemetry: Arc<Telemetry>,
    pub lifecycle: Arc<Lifecycle>,
    pub recorder: Arc<TraceRecorder>,
    pub memory: Arc<MemoryManager>,
    pub catalog: Arc<Catalog>,
    pub reads: Arc<Reads>,
}

impl Parts {
    /// Parts with these settings.
    pub fn new(settings: Settings) -> Self {
        Self::over(Arc::new(MemFs::new()), settings)
    }

    /// [`Self::new`], with these files.
    pub fn over(files: Arc<dyn Vfs>, settings: Settings) -> Self {
        Self::within(Env::deterministic(files, 1), settings, None)
    }

    /// [`Self::new`], within this environment and with this listener.
    pub fn within(env: Env, settings: Settings, listener: Option<Arc<dyn EventListener>>) -> Self {
        let dir = Path::new("/db");
        env.vfs.create_dir_all(dir).expect("a directory");
        let settings = Arc::new(settings);
        let observers = Observers { listener, info_log: false, times_lookups: false };
        let telemetry = Arc::new(Telemetry::new(&env, dir, observers, 1));
        let lifecycle = Arc::new(Lifecycle::new(false, Arc::clone(&telemetry)));
        let recorder = Arc::new(TraceRecorder::new(&env, Arc::clone(&telemetry)));
        let memory = MemoryManager::new(Arc::clone(&settings), None, Arc::clone(&telemetry), 0);
        let memtable = ChunkedMemtable::new(settings.memtable_index);
        let (name, closed) = (DEFAULT_KEYSPACE.to_owned(), Arc::clone(lifecycle.closed_flag()));
        let keyspace = KeyspaceCore::new(KeyspaceId::DEFAULT, name, Arc::default(), memtable, None, closed);
        let keyspaces = Keyspaces::from([(KeyspaceId::DEFAULT, Arc::new(keyspace))]);
        let told = (Arc::clone(&lifecycle), Arc::clone(&telemetry));
        let expiry = Arc::new(ExpiryClock::new(Arc::clone(&env.clock), None));
        let keyspaces = (keyspaces, settings.keep_log);
        let catalog = Catalog::new(&env, dir, keyspaces, FIRST_LOG.0 + 1, told, Arc::clone(&expiry));
        let reads = Reads::new(
            &env,
            Arc::clone(&settings),
            (Arc::clone(memory.cache()), Arc::clone(memory.records())),
            (Arc::clone(memory.iterators()), expiry),
            SeqNo::ZERO,
            (Arc::clone(&telemetry), Arc::clone(&recorder)),
        );
        let (memory, catalog, reads) = (Arc::new(memory), Arc::new(catalog), Arc::new(reads));
        Self { env, settings, telemetry, lifecycle, recorder, memory, catalog, reads }
    }

    /// Writes the first manifest: from now on edits can be installed.
    pub fn begin(&self) {
        let mut state = ManifestState { next_id: FIRST_LOG.0 + 1, ..ManifestState::default() };
        let created = vec![(KeyspaceId::DEFAULT, DEFAULT_KEYSPACE.to_owned(), Vec::new())];
        let edit =
            ManifestEdit { keyspaces_created: created, first_log: Some(FIRST_LOG), ..Default::default() };
        self.catalog.begin(&mut state, edit, None).expect("a manifest");
    }

    /// [`Self::begin`], and a writer over these parts, with a log unless the settings say
    /// otherwise.
    pub fn writer(&self, memory: Arc<dyn WriterMemory>) -> Writer {
        self.begin();
        let writer = Writer::new(
            &self.env,
            Arc::clone(&self.settings),
            (memory, Arc::clone(self.memory.ledger())),
            Arc::clone(&self.catalog),
            Arc::clone(&self.reads),
            (Arc::clone(&self.lifecycle), Arc::clone(&self.telemetry), Arc::clone(&self.recorder)),
            SeqNo::ZERO,
        );
        let log = || WalWriter::create(&self.env, self.catalog.dir(), FIRST_LOG, None, SeqNo::ZERO);
        writer.begin(SeqNo::ZERO, (!self.settings.no_wal).then(|| log().expect("a log")));
        writer
    }
}

/// A writer's memory without a limit, but that of memtables, which a test can set.
pub(crate) struct MemtableLimit(pub AtomicU64);

impl MemtableLimit {
    /// No limit.
    pub fn none() -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(u64::MAX)))
    }
}

impl WriterMemory for MemtableLimit {
    fn charge(&self, charge: &mut Charge, bytes: u64) {
        charge.resize(bytes);
    }

    fn memtable_limit_bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
