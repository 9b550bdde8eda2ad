//! Scheduler: which flushes, compactions and filter rewrites run now.
//!
//! [`Scheduler`] owns the requests for background work ([`requests`]), the jobs that run, and the
//! choice of the next compaction ([`next`]). [`Flusher`] writes generations and ingests as tables,
//! [`Compactor`] carries out compactions. Memory is that of [`MemoryLink`].
//!
//! The threads are those of a pool ([`crate::workers`]), which do one *step* after the other
//! ([`steps`]). In one lane a thread flushes generations in order. In the other, threads run
//! compactions: each step ([`execute`]) is a slice of a running job or the beginning of another
//! one, whichever has the higher score. So several jobs of one or of several keyspaces run side by
//! side, as far as their claims allow, and slices of one job are built in parallel. No step waits
//! for another. The compaction threads run at lower priority than other threads.
//!
//! Without threads (the deterministic environment) the same steps run inside the call that makes
//! them due.
//!
//! A failure is reported, kept for writers to see, and retried with back-off. A panic turns writes
//! off and is reported; work never stops silently.
//!
//! Locks: the state of background work ([`state`]) is taken after the writer's lock and never with
//! the catalog's install lock held, nor is that taken under it.

mod compact;
mod dictionary;
mod execute;
mod failures;
mod filter_rewrite;
mod flush;
mod ingest;
mod job;
mod memory;
mod next;
mod pace;
mod queue;
mod requests;
mod rules;
mod slices;
mod state;
mod steps;
mod threads;
mod triggers;

use std::sync::Arc;

use shamba_env::{Clock, Env, Spawner};
use shamba_model::Design;
use shamba_tree::compaction::policy::Rules;
use shamba_tree::compaction::table_size::TableSize;
use shamba_tree::version::Version;

use self::compact::Compactor;
pub(crate) use self::filter_rewrite::Worth;
pub(crate) use self::flush::Flusher;
use self::memory::MemoryLink;
use self::next::Picker;
use self::pace::Pace;
use self::state::BackgroundWork;
use crate::busy::{Busy, BusyFlag};
use crate::catalog::{Catalog, KeyspaceCore};
use crate::error::Result;
use crate::filter_bits::FilterBits;
use crate::lifecycle::Lifecycle;
use crate::options::overrides::Overrides;
use crate::options::settings::Settings;
use crate::reads::Reads;
use crate::residency::ResidencyManager;
use crate::statistics::SavedStatistics;
use crate::table_files::TableFiles;
use crate::telemetry::Telemetry;
use crate::workers::Waker;
use crate::writer::{SealedGenerations, Writer};

/// Runs the flushes, compactions and filter rewrites of a database.
pub(crate) struct Scheduler {
    clock: Arc<dyn Clock>,
    spawner: Arc<dyn Spawner>,
    /// Whether background work runs on the caller's thread.
    is_inline: bool,
    settings: Arc<Settings>,
    catalog: Arc<Catalog>,
    filter_bits: Arc<FilterBits>,
    writer: Arc<Writer>,
    sealed: Arc<SealedGenerations>,
    lifecycle: Arc<Lifecycle>,
    statistics: Arc<SavedStatistics>,
    telemetry: Arc<Telemetry>,
    memory: Arc<MemoryLink>,
    background: Arc<BackgroundWork>,
    picker: Picker,
    flusher: Flusher,
    compactor: Compactor,
    /// Whether background work runs on a caller's thread. No lock, because nobody waits for it.
    inline_work: BusyFlag,
}

impl Scheduler {
    /// The background work of the database of `catalog`, to which `writer` adds. Threads do it once
    /// `waker` has joined a pool.
    pub fn new(
        env: &Env,
        settings: Arc<Settings>,
        (catalog, writer, reads): (Arc<Catalog>, Arc<Writer>, Arc<Reads>),
        (table_files, filter_bits, statistics): (Arc<TableFiles>, Arc<FilterBits>, Arc<SavedStatistics>),
        (lifecycle, telemetry): (Arc<Lifecycle>, Arc<Telemetry>),
        (residency, waker): (Arc<ResidencyManager>, Waker),
    ) -> Self {
        let threads = threads::compaction_threads(env.spawner.as_ref(), &settings);
        let memory = Arc::new(MemoryLink::new(residency, Arc::clone(&settings), threads));
        let background = Arc::new(BackgroundWork::new(waker));
        let sealed = Arc::clone(writer.sealed());
        let picker = Picker::new(
            env,
            Arc::clone(&settings),
            (Arc::clone(&catalog), Arc::clone(&sealed)),
            (Arc::clone(&reads), Arc::clone(&telemetry)),
            Arc::clone(&memory),
        );
        let flusher = Flusher {
            env: env.clone(),
            settings: Arc::clone(&settings),
            catalog: Arc::clone(&catalog),
            writer: Arc::clone(&writer),
            reads: Arc::clone(&reads),
            table_files: Arc::clone(&table_files),
            filter_bits: Arc::clone(&filter_bits),
            statistics: Arc::clone(&statistics),
            lifecycle: Arc::clone(&lifecycle),
            telemetry: Arc::clone(&telemetry),
            memory: Arc::clone(&memory),
        };
        let compactor = Compactor {
            env: env.clone(),
            settings: Arc::clone(&settings),
            catalog: Arc::clone(&catalog),
            reads,
            table_files,
            filter_bits: Arc::clone(&filter_bits),
            telemetry: Arc::clone(&telemetry),
            memory: Arc::clone(&memory),
            background: Arc::clone(&background),
            pace: Pace::new(&env.clock, settings.rate_limit_bytes_per_s),
        };
        Self {
            clock: Arc::clone(&env.clock),
            spawner: Arc::clone(&env.spawner),
            is_inline: env.spawner.is_inline(),
            settings,
            catalog,
            filter_bits,
            writer,
            sealed,
            lifecycle,
            statistics,
            telemetry,
            memory,
            background,
            picker,
            flusher,
            compactor,
            inline_work: BusyFlag::default(),
        }
    }

    /// Writes memtables and ingests as tables.
    pub fn flusher(&self) -> &Flusher {
        &self.flusher
    }

    /// Whether background work runs on the caller's thread.
    pub fn is_inline(&self) -> bool {
        self.is_inline
    }

    /// Table size at which outputs of keyspaces without a size of their own are finished now.
    pub fn table_size(&self) -> TableSize {
        self.memory.table_size(&Overrides::default())
    }

    /// Number of compaction threads.
    pub fn compaction_threads(&self) -> usize {
        threads::compaction_threads(self.spawner.as_ref(), &self.settings)
    }

    /// The rules of the shape of a keyspace's tree now. With `is_draining`, even a single run in
    /// level 0 is compacted.
    pub fn rules_in(&self, keyspace: &KeyspaceCore, is_draining: bool) -> Rules {
        rules::rules_in(&self.settings, keyspace, &rules::rules(&self.settings, is_draining))
    }

    /// The policy's rules under `design`.
    pub fn rules_of(&self, design: Design, is_draining: bool) -> Rules {
        rules::rules_of(&self.settings, design, is_draining)
    }

    /// Bytes that flushes and compactions have to move until nothing is left to do.
    pub fn debt_bytes(&self) -> u64 {
        self.picker.debt_bytes()
    }

    /// Tells workers and waiters to look again: a tree or the state of the database has changed.
    pub fn notify(&self) {
        self.background.wake();
        self.background.progress.notify_all();
    }

    /// Checks that the tree of `keyspace` has the shape that its design asks for, if nothing is
    /// left to do. Returns the tree that it looked at.
    pub fn check_shape(&self, keyspace: &KeyspaceCore) -> (Arc<Version>, std::result::Result<(), String>) {
        // The shape holds only for an idle tree, and no compaction begins under this lock.
        let state = self.background.state.lock();
        let is_idle = self.settings.auto_compaction && self.picker.is_idle(&state);
        let at_rest = Arc::clone(&keyspace.load().version);
        let is_idle = is_idle && keyspace.has_levels();
        let rules = self.rules_in(keyspace, true);
        let shape = if is_idle { rules.check_shape(&at_rest) } else { Ok(()) };
        (at_rest, shape)
    }

    /// Reserves background work for the caller's thread; `None` while another call does it, which
    /// does the caller's work too.
    fn begin_inline(&self) -> Option<Busy<'_>> {
        self.inline_work.begin()
    }

    /// Runs all due work on the caller's thread, until nothing is left or a flush fails. A keyspace
    /// in which a compaction fails is left out after that.
    pub fn run_inline(&self) {
        let Some(_work) = self.begin_inline() else { return };
        self.background.state.lock().compaction_failures.retry();
        self.seal_overdue();
        self.follow_budget();
        while !self.lifecycle.has_failed() {
            let goes_on = match self.sealed.is_empty() {
                false => self.flush_oldest().is_ok(),
                true => self.run_next_step().unwrap_or(true),
            };
            if !goes_on {
                return;
            }
        }
    }

    /// Follows the target of a shared budget. Seals the memtables if they must be flushed for that.
    pub fn follow_budget(&self) {
        if self.memory.follow_budget() && self.sealed.is_empty() {
            self.writer.seal_for_memory();
        }
    }

    /// Seals the memtables if they hold what must reach the tables by now.
    fn seal_overdue(&self) {
        self.writer.seal_overdue(self.settings.tombstone_age_max_ms());
    }

    /// Flushes the oldest generation and records the outcome.
    fn flush_oldest(&self) -> Result<()> {
        let generation = {
            let mut state = self.background.state.lock();
            let Some(oldest) = self.sealed.oldest() else { return Ok(()) };
            assert!(!state.flushing, "two flushes run at the same time");
            state.flushing = true;
            oldest
        };
        let outcome = self.flusher.flush(&generation);
        let has_values = generation.log_files.iter().any(|file| file.values.strong_count() > 0);
        // Removed before the flush is visibly over: by then the memtables' memory must have been
        // freed.
        let flushed = if outcome.is_ok() { self.sealed.flushed() } else { None };
        self.writer.pressure_changed();
        assert!(
            flushed.as_ref().is_none_or(|flushed| Arc::ptr_eq(flushed, &generation)),
            "another generation than the oldest was flushed"
        );
        if let Some(flushed) = &flushed {
            self.writer.note_flushed(flushed);
        }
        let durable_seq = flushed.as_ref().map(|flushed| flushed.last_seq);
        drop((generation, flushed));
        let mut state = self.background.state.lock();
        assert!(state.flushing, "a flush ended that had not begun");
        state.flushing = false;
        match &outcome {
            Ok(()) => {
                state.quiet_since_us = self.clock.now_us();
                state.flush_failures.end();
            }
            Err(error) => state.flush_failures.add_next(error.clone()),
        }
        drop(state);
        // The cache gets the memtables' memory until writes need it again.
        self.memory.balance();
        self.background.progress.notify_all();
        // Not for flushes: this thread looks for the next one itself, and a wake-up would end the
        // back-off of one that failed.
        self.background.wake_compactions();
        if let Some(seq) = durable_seq {
            // It is the generation whose tables were installed, as asserted above, and flushes come
            // one after the other, in order: so every entry up to this number is in tables. Without
            // an effect on any memtable, a batch up to it is in a log that the flush has synced.
            // After all else: this calls code of the user.
            self.writer.durable().advance(seq);
        }
        if let Err(error) = &outcome {
            // The files of the attempt must be removed before the next one: they may fill the disk.
            self.catalog.remove_obsolete_files();
            self.telemetry.background_error("flush", error);
        } else if has_values {
            // The log was kept for the memtables, which only readers may hold now.
            self.catalog.remove_obsolete_files();
        }
        outcome
    }

    /// Does the next step of a compaction on the caller's thread; false if there is none.
    fn run_next_step(&self) -> Result<bool> {
        self.next_step().map_or(Ok(false), |step| self.run(step).map(|()| true))
    }
}

#[cfg(test)]
mod tests;
