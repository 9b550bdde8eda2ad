//! Reads: what a reader sees.
//!
//! [`Reads`] owns the sequence number that is visible, the snapshots, the registry of scans, and
//! the threads for cold reads of many keys, runs or values. A reader loads a keyspace's view
//! *first* and the visible sequence number second ([`reader`]), so that nothing visible is missing
//! from the view. Readers wait for no lock.

pub(crate) mod cursor;
pub(crate) mod options;
pub(crate) mod reader;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use shamba_env::{Clock, Env};
use shamba_key::{DigestFn, SeqNo};
use shamba_table::{BlockCache, Walk};
use shamba_tree::expiry::{ExpiryClock, ReadTime};
use shamba_tree::iter::notes::ScanObserver;
use shamba_tree::iter::registry::{IterRegistry, Owner};
use shamba_tree::lookup::get::LookupSettings;
use shamba_tree::lookup::opened::OpenedTables;
use shamba_tree::lookup::pool::ReadPool;
use shamba_tree::records::{RecordAccess, RecordCache};
use shamba_tree::snapshot::{Readers, SnapshotGuard, SnapshotList};

use self::options::ReadOptions;
use crate::catalog::{Catalog, KeyspaceCore};
use crate::options::settings::Settings;
use crate::telemetry::Telemetry;
use crate::trace::TraceRecorder;

/// A handle that keeps the database open, and from which scans get their owner.
pub(crate) trait Keeper {
    /// Keeps the database open while it lives.
    fn owner(&self) -> Arc<dyn Owner>;

    /// Ends what the open left to others, so that what is in memory was decided.
    fn finish_open(&self);
}

/// Shared state of readers.
pub(crate) struct Reads {
    digest: DigestFn,
    settings: Arc<Settings>,
    clock: Arc<dyn Clock>,
    cache: Arc<BlockCache>,
    records: Arc<RecordCache>,
    /// The last sequence number visible to readers.
    visible_seq: AtomicU64,
    snapshots: Arc<SnapshotList>,
    expiry: Arc<ExpiryClock>,
    iterators: Arc<IterRegistry>,
    pool: ReadPool,
    recorder: Arc<TraceRecorder>,
    telemetry: Arc<Telemetry>,
}

impl Reads {
    /// Readers of tables through the block cache and the record cache, with the scans in
    /// `iterators`, that see the writes up to `visible`.
    pub fn new(
        env: &Env,
        settings: Arc<Settings>,
        (cache, records): (Arc<BlockCache>, Arc<RecordCache>),
        (iterators, expiry): (Arc<IterRegistry>, Arc<ExpiryClock>),
        visible: SeqNo,
        (telemetry, recorder): (Arc<Telemetry>, Arc<TraceRecorder>),
    ) -> Self {
        Self {
            digest: DigestFn::new(settings.digest, settings.digest_seed),
            settings,
            clock: Arc::clone(&env.clock),
            cache,
            visible_seq: AtomicU64::new(visible.0),
            snapshots: SnapshotList::new(),
            expiry,
            iterators,
            records,
            pool: ReadPool::new(env),
            recorder,
            telemetry,
        }
    }

    /// The digest of keys.
    pub fn digest(&self) -> DigestFn {
        self.digest
    }

    /// The last sequence number visible to readers. Load the view first.
    #[inline]
    pub fn visible(&self) -> SeqNo {
        SeqNo(self.visible_seq.load(Ordering::Acquire))
    }

    /// Makes every write up to `seq` visible: once per commit group, after all of its inserts.
    pub fn publish(&self, seq: SeqNo) {
        debug_assert!(self.visible() <= seq, "entries that were visible are hidden again");
        self.visible_seq.store(seq.0, Ordering::Release);
    }

    /// A snapshot of the present state. Compactions keep what it sees for as long as it lives.
    pub fn snapshot(&self) -> Arc<SnapshotGuard> {
        // The number first: what it makes visible has begun the use of the clock, if it expires.
        self.snapshots.take_at(|| (self.visible(), self.expiry.if_used_ms()))
    }

    /// The live readers, for a compaction that begins now.
    pub fn readers(&self) -> Readers {
        // The time first: a reader that is registered later has a later one.
        let now_ms = self.expiry.dropping_ms();
        self.snapshots.readers(now_ms)
    }

    /// The clock by which entries expire.
    pub fn expiry(&self) -> &ExpiryClock {
        &self.expiry
    }

    /// The snapshots that live.
    pub fn snapshots(&self) -> &Arc<SnapshotList> {
        &self.snapshots
    }

    /// The registry of all scans.
    pub fn iterators(&self) -> &Arc<IterRegistry> {
        &self.iterators
    }

    /// The way in which scans read tables that no caller has given options for.
    pub fn walk(&self) -> Walk {
        ReadOptions::DEFAULT.walk(self.settings.budget_bytes())
    }

    /// The record cache.
    pub fn records(&self) -> &RecordCache {
        &self.records
    }

    /// Takes outdated views from idle scans. The files that only those views named can be deleted
    /// then ([`Catalog::remove_obsolete_files`]).
    pub fn revoke_stale_views(&self, catalog: &Catalog) {
        let keyspaces = catalog.keyspaces();
        self.iterators.revoke_idle(|view| match keyspaces.get(&view.keyspace) {
            Some(keyspace) => !view.is_like(&keyspace.load()),
            None => true,
        });
    }

    /// The threads for cold reads of many keys or runs, if a read takes long enough for them to
    /// pay.
    pub fn reading_threads(&self) -> Option<&ReadPool> {
        self.pool.pays(self.cache.read_ns()).then_some(&self.pool)
    }

    /// The threads for reads of many values, which measure whether they pay.
    pub fn value_threads(&self) -> &ReadPool {
        &self.pool
    }

    /// Takes outdated views from idle scans, and deletes obsolete files without readers.
    pub fn release_stale_views(&self, catalog: &Catalog) {
        self.revoke_stale_views(catalog);
        catalog.remove_obsolete_files();
    }

    fn lookup_settings<'a>(
        &'a self,
        timed: bool,
        (opened, time): (&'a OpenedTables, &'a ReadTime<'a>),
        records: Option<RecordAccess<'a>>,
    ) -> LookupSettings<'a> {
        LookupSettings {
            opened,
            records,
            time,
            digest: self.digest,
            hash_sharing: self.settings.hash_sharing,
            prefetch: self.settings.prefetch,
            timer: timed.then_some(self.telemetry.timer()),
        }
    }

    #[cold]
    fn scan_notes(&self, keyspace: &KeyspaceCore) -> Option<Arc<dyn ScanObserver>> {
        self.recorder.scan_notes((keyspace.id, &keyspace.name))
    }
}
