//! Writer: how a batch becomes durable and visible.
//!
//! [`Writer`] owns the log, the sequence numbers, the active memtables, the queue of writers and
//! the sealed generations. A write passes back-pressure ([`pressure`]), is written in a group
//! ([`queue`], [`commit`]) to the log ([`log`]) and to the memtables ([`memtables`]), and is then
//! published to readers. Full memtables are sealed with their log ([`rotate`]) and wait in
//! [`sealed`] until background work has written them to tables.
//!
//! [`Background`] stands for the part that runs flushes and compactions, [`WriterMemory`] for the
//! one that divides memory.
//!
//! Locks: [`Writer::writing`] is held by one group, rotation or exclusive operation at a time. It
//! is taken before the catalog's locks and before those of background work ([`crate::lock_order`]).

mod changes;
mod commit;
pub(crate) mod conditions;
mod durable;
mod exclusive;
mod line;
mod log;
mod memory;
mod memtables;
pub(crate) mod operations;
mod options;
mod pressure;
mod progress;
mod queue;
mod room;
mod rotate;
mod sealed;
mod share;

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use shamba_env::{Clock, Env};
use shamba_key::{DigestFn, Expiry, LogNo, SeqNo};
use shamba_log::wal::{OpRef, WalWriter};
use shamba_table::{Charge, Ledger, LedgerPart};
use shamba_tree::version::TableMeta;

pub(crate) use self::commit::apply_op;
use self::conditions::Conditions;
use self::durable::Durable;
pub(crate) use self::durable::Owner;
use self::log::Log;
use self::log::SyncSchedule;
pub(crate) use self::log::side::parse_side_file_name;
pub(crate) use self::memory::WriterMemory;
use self::memtables::ActiveMemtables;
use self::operations::{Operations, check_op, with_put};
pub use self::options::WriteOptions;
use self::pressure::BackPressure;
use self::progress::BackgroundLink;
pub(crate) use self::progress::{
    Background, Failures, FailuresNow, ProgressWatch, WAITER_FAILURES_MAX, Work,
};
use self::queue::{CommitQueue, Own, OwnWrites};
pub(crate) use self::sealed::{Generation, SealedGenerations};
use crate::catalog::{Catalog, InstallObserver, KeyspaceCore};
use crate::error::{Error, Result};
use crate::lifecycle::Lifecycle;
use crate::lock_order;
use crate::options::keyspace::rules::GivenOptions;
use crate::options::settings::{Durability, Settings};
use crate::ranked::Ranked;
use crate::reads::Reads;
use crate::telemetry::{Telemetry, hold_events};
use crate::trace::TraceRecorder;

/// The state that one group at a time changes.
struct Writing {
    log: Log,
    /// The last sequence number assigned.
    last_seq: SeqNo,
    /// The last one before the active memtables.
    sealed_seq: SeqNo,
    active: ActiveMemtables,
    /// Whether streams of changes watch for the next visible write.
    is_watched: bool,
}

/// Outcome of [`Writer::watch`].
pub(crate) enum Watch {
    /// A later write is visible already.
    Ready,
    /// The function will be called.
    Set,
    /// Another thread holds the writer's lock.
    Busy,
}

/// Writes batches to a database.
pub(crate) struct Writer {
    settings: Arc<Settings>,
    digest: DigestFn,
    clock: Arc<dyn Clock>,
    /// Whether background work runs on the caller's thread.
    is_inline: bool,
    commits: CommitQueue,
    writing: Ranked<Writing>,
    sealed: Arc<SealedGenerations>,
    schedule: Arc<SyncSchedule>,
    durable: Arc<Durable>,
    pressure: BackPressure,
    background: Arc<BackgroundLink>,
    memory: Arc<dyn WriterMemory>,
    catalog: Arc<Catalog>,
    reads: Arc<Reads>,
    lifecycle: Arc<Lifecycle>,
    recorder: Arc<TraceRecorder>,
    telemetry: Arc<Telemetry>,
    /// Options that this open was given for keyspaces that may be created later.
    given: OnceLock<GivenOptions>,
}

impl Writer {
    /// A writer of the database of `catalog`, whose last sequence number is `last_seq`. It accepts
    /// writes after [`Self::begin`].
    pub fn new(
        env: &Env,
        settings: Arc<Settings>,
        (memory, ledger): (Arc<dyn WriterMemory>, Arc<Ledger>),
        catalog: Arc<Catalog>,
        reads: Arc<Reads>,
        (lifecycle, telemetry, recorder): (Arc<Lifecycle>, Arc<Telemetry>, Arc<TraceRecorder>),
        last_seq: SeqNo,
    ) -> Self {
        let sealed = Arc::new(SealedGenerations::default());
        let schedule = Arc::new(SyncSchedule::default());
        let durable = Arc::new(Durable::default());
        let background = Arc::new(BackgroundLink::default());
        let watchers = || (Arc::clone(&lifecycle), Arc::clone(&telemetry));
        let charge = Charge::new(&ledger, LedgerPart::Logs, 0);
        let log = Log::new(
            env,
            Arc::clone(&settings),
            Arc::clone(&catalog),
            watchers(),
            (Arc::clone(&memory), charge),
            (Arc::clone(&schedule), Arc::clone(&durable)),
        );
        let pressure = BackPressure::new(
            env,
            Arc::clone(&settings),
            Arc::clone(&catalog),
            (Arc::clone(&sealed), Arc::clone(&background)),
            watchers(),
        );
        Self {
            settings,
            digest: reads.digest(),
            clock: Arc::clone(&env.clock),
            is_inline: env.spawner.is_inline(),
            commits: CommitQueue::new(&env.clock),
            writing: Ranked::new(
                lock_order::WRITING,
                Writing {
                    log,
                    last_seq,
                    sealed_seq: last_seq,
                    active: ActiveMemtables::new(&ledger),
                    is_watched: false,
                },
            ),
            sealed,
            schedule,
            durable,
            pressure,
            background,
            memory,
            catalog,
            reads,
            lifecycle,
            recorder,
            telemetry,
            given: OnceLock::new(),
        }
    }

    /// Sets the options for keyspaces that are created later; later calls have no effect.
    pub fn give_options(&self, given: GivenOptions) {
        let _ = self.given.set(given);
    }

    /// The options that this open was given, by the names of keyspaces.
    pub fn given(&self) -> Option<&GivenOptions> {
        self.given.get()
    }

    /// Sets what flushes the sealed generations; later calls have no effect.
    pub fn connect(&self, background: Weak<dyn Background>) {
        self.background.connect(background);
    }

    /// Takes over the charge for memtables that a replay has filled.
    pub fn take_charge(&self, charge: Charge) {
        self.writing.lock().active.take_charge(charge);
    }

    /// Begins to accept writes after `last_seq`, into `wal` unless the database has no log.
    ///
    /// The entries up to there are in tables, or in a copy in `wal` that is synced.
    pub fn begin(&self, last_seq: SeqNo, wal: Option<WalWriter>) {
        self.begin_with(last_seq, wal);
        self.durable.advance(last_seq);
    }

    /// Begins to accept writes after `last_seq`.
    fn begin_with(&self, last_seq: SeqNo, wal: Option<WalWriter>) {
        let mut writing = self.writing.lock();
        assert!(writing.last_seq <= last_seq, "an open takes sequence numbers back");
        assert!(self.reads.visible() <= last_seq, "entries are visible before writes begin");
        (writing.last_seq, writing.sealed_seq) = (last_seq, last_seq);
        writing.active.renew(&self.catalog);
        if !writing.active.is_empty() {
            // The log does not tell when its tombstones were written: their age counts from here.
            writing.active.note_tombstone(|| self.clock.unix_ms());
        }
        if let Some(wal) = wal {
            writing.log.begin(wal);
        }
    }

    /// Begins to accept writes after `last_seq` into `wal`, while the entries up to there wait in
    /// `generations` for their flush. `wal` is not synced before all of them are in tables, unless
    /// the logs that hold them are known to be durable.
    pub fn begin_after(&self, generations: Vec<Generation>, last_seq: SeqNo, wal: WalWriter) {
        let through = (!wal.is_predecessor_synced()).then_some(last_seq);
        self.begin_with(last_seq, Some(wal));
        let mut writing = self.writing.lock();
        assert!(writing.active.is_empty(), "replayed entries are in memtables that take writes");
        writing.log.follow_replayed(through);
        for generation in generations {
            self.sealed.seal(generation);
        }
        self.pressure.changed();
        self.background.wake();
    }

    /// The expiry of a value that is written now to `keyspace`; `None` if it lives for ever.
    /// `time_to_live` is that of the write, if it has one.
    ///
    /// # Errors
    /// Of recording that entries expire, which the first one does.
    #[inline]
    pub fn expiry(&self, keyspace: &KeyspaceCore, time_to_live: Option<Duration>) -> Result<Option<Expiry>> {
        match time_to_live.or_else(|| keyspace.time_to_live()) {
            None => Ok(None),
            Some(time_to_live) => self.expiry_after(time_to_live),
        }
    }

    #[cold]
    fn expiry_after(&self, time_to_live: Duration) -> Result<Option<Expiry>> {
        let expiry = Expiry::after(self.reads.expiry().now_ms(), time_to_live);
        if expiry.is_some() {
            self.lifecycle.check_writable()?;
            self.catalog.begin_expiry()?;
        }
        Ok(expiry)
    }

    /// [`Self::commit_op`] of a put, whose time to live is in `options` or that of the keyspace.
    ///
    /// # Errors
    /// As [`Self::commit_op`]; as [`Self::expiry`].
    #[inline]
    pub fn put(
        &self,
        keyspace: &KeyspaceCore,
        key: &[u8],
        value: &[u8],
        options: WriteOptions,
    ) -> Result<()> {
        let expiry = self.expiry(keyspace, options.time_to_live)?;
        with_put(key, value, expiry, |op| self.commit_op(keyspace, op, options))
    }

    /// Makes one operation visible and as durable as asked; see [`commit`].
    ///
    /// # Errors
    /// See [`crate::Db::put`].
    pub fn commit_op(&self, keyspace: &KeyspaceCore, op: OpRef<'_>, options: WriteOptions) -> Result<()> {
        self.commit_op_if(keyspace, op, options, None)
    }

    /// [`Self::commit_op`] under conditions.
    ///
    /// # Errors
    /// As [`Self::commit_op`]; `Conflict` where a condition does not hold.
    pub fn commit_op_if(
        &self,
        keyspace: &KeyspaceCore,
        op: OpRef<'_>,
        options: WriteOptions,
        conditions: Option<&Arc<Conditions>>,
    ) -> Result<()> {
        keyspace.check_usable()?;
        check_op(op)?;
        let durability = self.admit(op.encoded_bytes_max(), options)?;
        self.commit_own(Own { writes: OwnWrites::One(keyspace.id, op), conditions }, durability).map(drop)
    }

    /// [`Self::commit_op`] for a batch. Its operations are lent to a leader meanwhile and returned
    /// whatever the outcome. Returns a sequence number that is not before the batch: that of the
    /// end of its group.
    ///
    /// # Errors
    /// See [`crate::Db::put`].
    pub fn commit(&self, operations: &mut Operations, options: WriteOptions) -> Result<SeqNo> {
        self.commit_if(operations, options, None)
    }

    /// [`Self::commit`] under conditions. Nothing depends on the conditions of no operations.
    ///
    /// # Errors
    /// As [`Self::commit`]; `Conflict` where a condition does not hold.
    pub fn commit_if(
        &self,
        operations: &mut Operations,
        options: WriteOptions,
        conditions: Option<&Arc<Conditions>>,
    ) -> Result<SeqNo> {
        if operations.tally.count == 0 {
            self.lifecycle.check_writable()?;
            let durability = self.durability(options)?;
            if durability == Durability::Sync {
                self.sync()?;
            }
            return Ok(self.reads.visible());
        }
        let durability = self.admit(operations.encoded.len(), options)?;
        self.commit_own(Own { writes: OwnWrites::Batch(operations), conditions }, durability)
    }

    fn commit_own(&self, own: Own<'_>, durability: Durability) -> Result<SeqNo> {
        debug_assert!(
            !self.settings.no_wal || durability == Durability::NoSync,
            "a write without a log is to be {durability:?}"
        );
        let outcome = {
            let _events = hold_events();
            self.commits.commit(self, own, durability)
        };
        self.run_inline();
        outcome
    }

    fn durability(&self, options: WriteOptions) -> Result<Durability> {
        let durability = options.durability.unwrap_or(self.settings.durability);
        if self.settings.no_wal && durability != Durability::NoSync {
            return Err(Error::invalid(
                "the database is open without a log: the only possible durability is NoSync",
            ));
        }
        Ok(durability)
    }

    /// Applies back-pressure to a write of `bytes` and returns its durability.
    fn admit(&self, bytes: usize, options: WriteOptions) -> Result<Durability> {
        self.lifecycle.check_writable()?;
        let durability = self.durability(options)?;
        self.pressure.admit(bytes, options.deadline_ms.or_else(|| self.settings.write_deadline_ms()))?;
        Ok(durability)
    }

    /// Does what background work the operation caused, if that runs on the caller's thread.
    fn run_inline(&self) {
        if self.is_inline {
            self.background.run_inline();
        }
    }

    /// Notes that the backlog (generations, level-0 runs, keyspaces) or its limits may have
    /// changed.
    pub fn pressure_changed(&self) {
        self.pressure.changed();
    }

    /// The sealed generations that are not flushed yet.
    pub fn sealed(&self) -> &Arc<SealedGenerations> {
        &self.sealed
    }

    /// Syncs everything in the logs, whatever the durability of the writes was.
    ///
    /// # Errors
    /// `Invalid` without a log; `Closed`, `ReadOnly`; the error of the sync.
    pub fn sync(&self) -> Result<()> {
        if self.settings.no_wal {
            return Err(Error::invalid("the database is open without a log: flush instead of sync"));
        }
        let _events = hold_events();
        let mut writing = self.writing.lock();
        // Under the lock: a close that has failed to sync its log leaves none.
        self.lifecycle.check_writable()?;
        self.sync_log(&mut writing)
    }

    /// The last durable sequence number.
    pub fn durable(&self) -> &Arc<Durable> {
        &self.durable
    }

    /// Makes every write up to `seq` visible, and tells those that watch for it.
    fn publish(&self, writing: &mut Writing, seq: SeqNo) {
        self.reads.publish(seq);
        if std::mem::take(&mut writing.is_watched) {
            self.durable.published();
        }
    }

    /// Has `watcher` called when a write after `seq` is visible. Does not wait for the writer's
    /// lock: an ingest may hold it for long.
    pub fn watch(&self, seq: SeqNo, owner: Owner, watcher: impl FnOnce() + Send + 'static) -> Watch {
        let Some(mut writing) = self.writing.try_lock() else { return Watch::Busy };
        // Under the lock: a write that comes later finds the watcher.
        if self.reads.visible() > seq {
            return Watch::Ready;
        }
        self.durable.watch(owner, Box::new(watcher));
        writing.is_watched = true;
        Watch::Set
    }

    /// Makes every write up to `seq` durable, unless it is.
    ///
    /// # Errors
    /// As [`Self::sync`]; without a log, of the flush.
    pub fn make_durable(&self, seq: SeqNo) -> Result<()> {
        if self.durable.has(seq) {
            return Ok(());
        }
        if self.settings.no_wal {
            self.flush()?;
            self.durable.advance(seq);
            return Ok(());
        }
        let _events = hold_events();
        let mut writing = self.writing.lock();
        // Another thread may have synced the log while this one waited for the lock.
        if self.durable.has(seq) {
            return Ok(());
        }
        self.lifecycle.check_writable()?;
        self.sync_log(&mut writing)
    }

    /// Syncs everything in the logs.
    ///
    /// # Errors
    /// The error of the sync, or of a flush that it waits for.
    fn sync_log(&self, writing: &mut Writing) -> Result<()> {
        self.settle_replayed(writing)?;
        writing.log.sync()
    }

    /// Syncs the log whenever the interval of a write has passed, until [`Self::stop_syncs`].
    pub fn run_syncs(&self) {
        while self.schedule.wait(self.clock.as_ref()) {
            let _events = hold_events();
            // No sync is due while replayed entries are not in tables: the write that requested it
            // waited for that.
            self.writing.lock().log.sync_if_due();
        }
    }

    /// Ends [`Self::run_syncs`].
    pub fn stop_syncs(&self) {
        self.schedule.stop();
    }

    /// Bytes in the logs that are not synced.
    pub fn unsynced_bytes(&self) -> u64 {
        self.schedule.unsynced_bytes()
    }

    /// Notes that what was appended to the logs before a generation was sealed is in tables.
    pub fn note_flushed(&self, generation: &Generation) {
        self.schedule.synced(generation.appended_bytes);
    }

    /// The number and the synced length of the active log, if the latter is above 0. Does not wait
    /// for the writer's lock: its holder may be waiting for the flush that asks, as an ingest does.
    pub fn log_promise(&self) -> Option<(LogNo, u64)> {
        self.writing.try_lock()?.log.promise()
    }

    /// Warns of `Buffered` writes that a drop without `close` loses.
    pub fn warn_of_unwritten(&self) {
        let Some(writing) = self.writing.try_lock() else { return };
        let bytes = writing.log.buffered();
        drop(writing);
        if bytes > 0 {
            self.telemetry.warn(format!(
                "the database was dropped without close: {bytes} bytes of Buffered writes are lost; call close or sync"
            ));
        }
    }
}

impl InstallObserver for Writer {
    fn installed(&self, _dead: &[Arc<TableMeta>]) {
        self.pressure_changed();
    }
}

#[cfg(test)]
mod tests;
