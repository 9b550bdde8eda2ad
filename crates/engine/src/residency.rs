//! Residency: the filter slices and index partitions that are in memory.
//!
//! With [`Residency::Budgeted`], filters and indexes share the memory budget that memtables,
//! background work and the block cache leave. One rule decides what is resident: the pieces that
//! save most per byte. [`survey`] computes the saving of each piece, [`shamba_model::joint`] their
//! order. A settlement has three steps:
//!
//! 1. It surveys every table and makes the plan.
//! 2. It evicts what the plan leaves out, and publishes views without it. Filters that only cost
//!    their probes stay resident as long as the block cache has no use for their memory; where
//!    searches are cheap they are dormant. If the hit rate changes, lookups find them in memory.
//! 3. It reads what the plan adds, as long as there is memory, and publishes views with it.
//!
//! A settlement follows every install. It also runs about once a second while there are lookups or
//! seeks, and sooner after a change of the hit rate ([`worker`]). The first two steps alone run
//! whenever memory is needed that the block cache cannot give ([`Core::shed`]). Tables that are
//! opened while there is memory load everything at once ([`Core::hold_early`]).
//!
//! Lookups never wait for a settlement: a view says what is resident, and does not change.
//!
//! Locks: the state's lock is taken after all others but the views'. A thread that finds it taken
//! proceeds without it.
//!
//! Not here: the division of memory between filters, blocks and write buffers ([`arbiter`]);
//! counting ([`crate::memory`]).

mod arbiter;
mod report;
mod survey;
#[cfg(test)]
mod tests;
mod worker;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use shamba_model::joint::{JointPlan, Weighing, plan_jointly};
use shamba_model::memory::constants::{KEEP_MARGIN, SHIFT_PART};
use shamba_model::memory::{self, PlanValue};
use shamba_table::{LedgerPart, Residency, ResidentFilter, TableId, TableReader, Unasked};

use self::arbiter::Arbiter;
pub use self::report::{LevelMemory, MemoryPrices};
pub(crate) use self::survey::module_rates;
use self::survey::{KnownTables, Survey, mask_of};
use crate::core::Core;
use crate::error::{Error, Result};
use crate::options::settings::Settings;
use crate::sync::{Mutex, MutexGuard};
use shamba_env::{lock, try_lock};
use shamba_tree::statistics::Window;
use shamba_tree::version::TableMeta;
use shamba_tree::view::View;

/// State that residency keeps between settlements.
#[derive(Default)]
pub(crate) struct ResidencyState {
    /// Constant properties of the tables surveyed before.
    known: KnownTables,
    /// The arbiter's measurements of the last windows.
    arbiter: Arbiter,
    /// Tables with a part that could not be read. Each is reported once, and read again in every
    /// settlement.
    unreadable: BTreeSet<TableId>,
}

/// The last plan in figures.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct PlanPrices {
    /// Value of memory for filters and indexes.
    pub value: PlanValue,
    /// Cost of lookups and seeks under the plan, in nanoseconds per second.
    pub cost_ns_per_second: f64,
}

/// The residency part of the core.
#[derive(Default)]
pub(crate) struct ResidencyCore {
    state: Mutex<ResidencyState>,
    /// Value of memory in the last plan. It has its own lock, because settlements read files under
    /// the state's lock, and listeners of their warnings may ask for it.
    plan: Mutex<PlanPrices>,
    /// A change was made that the next settlement should consider.
    wanted: AtomicBool,
    /// Recent peak of the bytes of all but block cache, filters and indexes, with the memory kept
    /// free.
    others_peak_bytes: AtomicU64,
    /// Bytes of filters and indexes that cannot be evicted, as of the last survey.
    fixed_bytes: AtomicU64,
    /// Nothing was written for some windows, so no memory is kept free for a flush or compaction.
    pub(crate) writes_idle: AtomicBool,
    /// Bytes that the arbiter reserves for the block cache; 0 before its first decision.
    cache_bytes: AtomicU64,
    /// Memtable size limit set by the arbiter; 0 for the configured one.
    memtable_bytes: AtomicU64,
    /// Recent block cache hit rate, as bits. It starts at 0: no block was found in the cache yet.
    hit_share_bits: AtomicU64,
    /// Recent part of filter slices that lookups had to read, where slices are kept in the block
    /// cache, as bits. It starts at 0: a slice that is never fetched is never found.
    slices_read_bits: AtomicU64,
}

impl ResidencyCore {
    fn try_state(&self) -> Option<MutexGuard<'_, ResidencyState>> {
        try_lock(&self.state)
    }

    /// Takes the request for a settlement, if there is one.
    fn take_wanted(&self) -> bool {
        self.wanted.swap(false, Ordering::AcqRel)
    }

    /// Notes the bytes that all but block cache, filters and indexes take or are about to take,
    /// with the memory kept free for flushes and compactions. Running work uses the memory kept
    /// free, which must not be counted twice.
    pub fn note_other_bytes(&self, bytes: u64) {
        if bytes > self.others_peak_bytes.load(Ordering::Relaxed) {
            self.others_peak_bytes.fetch_max(bytes, Ordering::Relaxed);
        }
    }

    /// Recent block cache miss rate.
    fn read_share(&self) -> f64 {
        1.0 - f64::from_bits(self.hit_share_bits.load(Ordering::Relaxed))
    }

    /// Recent part of filter slices that lookups had to read.
    fn slices_read(&self) -> f64 {
        f64::from_bits(self.slices_read_bits.load(Ordering::Relaxed))
    }

    /// Adds a window's filter slice reads and cache hits; older windows have half of the weight.
    fn note_slices(&self, reads: u64, hits: u64) {
        let ratio = memory::recent_ratio(self.slices_read(), reads, hits);
        self.slices_read_bits.store(ratio.to_bits(), Ordering::Relaxed);
    }

    /// Adds a window's data block reads and cache hits; older windows have half of the weight.
    fn note_blocks(&self, reads: u64, hits: u64) {
        let before = f64::from_bits(self.hit_share_bits.load(Ordering::Relaxed));
        let ratio = memory::recent_ratio(before, hits, reads);
        self.hit_share_bits.store(ratio.to_bits(), Ordering::Relaxed);
    }

    /// Resets the memtable size limit to the configured one, until the arbiter decides again.
    pub fn forget_memtable_bytes(&self) {
        self.memtable_bytes.store(0, Ordering::Relaxed);
    }

    /// Size limit at which memtables are sealed under `settings`.
    pub fn memtable_limit_bytes(&self, settings: &Settings) -> u64 {
        // Bounded again: a redesign may have come in the middle of a decision about the old design.
        memory::write_buffer_bytes(settings.memtable_bytes(), arbiter::decided(&self.memtable_bytes))
    }

    /// Decays the peak at the end of a window.
    fn decay_peak(&self) {
        let bytes = self.others_peak_bytes.load(Ordering::Relaxed);
        self.others_peak_bytes.store(memory::decayed_peak_bytes(bytes), Ordering::Relaxed);
    }
}

/// Scope of a settlement.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// All steps.
    Settle,
    /// Only evictions, to free this many bytes.
    Shed(u64),
}

/// Treatment by lookups of the modules of table `at`'s filter that they do not probe.
fn unasked_of(plan: &JointPlan, at: usize) -> Unasked {
    let fetched = plan.fetched.get(at).map_or(0, |fetched| mask_of(*fetched));
    let dormant = plan.dormant.get(at).map_or(0, |dormant| mask_of(dormant.end) & !mask_of(dormant.start));
    Unasked { fetched, dormant }
}

impl Core {
    /// Requests a settlement: by the memory worker soon, or at once where there are no threads.
    pub(crate) fn request_rebalance(&self) {
        if self.is_inline() {
            self.rebalance();
        } else {
            self.residency.wanted.store(true, Ordering::Release);
            self.scheduler.wake_memory();
        }
    }

    /// Settles; nothing to do if all filters are pinned.
    pub(crate) fn rebalance(&self) {
        if self.settings.filter_residency != Residency::Pinned {
            self.rebalance_with(Mode::Settle);
        }
    }

    /// Evicts the least valuable pieces until `bytes` more are free. Returns false if it could not
    /// try.
    pub(crate) fn shed(&self, bytes: u64) -> bool {
        self.settings.filter_residency == Residency::Budgeted
            && self.pool_held_bytes() > self.residency.fixed_bytes.load(Ordering::Relaxed)
            && self.rebalance_with(Mode::Shed(memory::shed_bytes(self.settings.memory_budget_bytes, bytes)))
    }

    /// Loads the filter and index of a table that was just opened, or only its filter, if there is
    /// memory. No lookup then misses it.
    pub(crate) fn hold_early(&self, reader: &TableReader) -> Result<()> {
        let is_whole = |filter: ResidentFilter| filter.absent_slices() == 0;
        if self.settings.filter_residency != Residency::Budgeted || reader.filter().is_some_and(is_whole) {
            return Ok(());
        }
        let (filter_bytes, whole_bytes) = (survey::filter_bytes(reader), survey::whole_bytes(reader));
        let missing_bytes = whole_bytes.saturating_sub(self.pool_room_bytes());
        let kept_bytes = missing_bytes.min(self.plan_prices().value.kept_bytes);
        if kept_bytes > 0 {
            // Filters that only cost their probes are evicted for new tables.
            self.rebalance_with(Mode::Shed(kept_bytes));
        }
        let is_room_for_all = whole_bytes <= self.pool_room_bytes();
        let margin_bytes = memory::early_bytes(self.settings.memory_budget_bytes);
        // New filters may exceed the limit until the next plan finds less valuable pieces. The
        // filter of a new run spares every lookup a search, as nothing else of that size does.
        let beyond_bytes = || (self.pool_held_bytes() + filter_bytes).saturating_sub(self.pool_bytes());
        if beyond_bytes() > margin_bytes {
            if filter_bytes > margin_bytes {
                return Ok(());
            }
            // No effect while another thread settles.
            self.rebalance_with(Mode::Shed(margin_bytes));
            if beyond_bytes() > 2 * margin_bytes {
                return Ok(());
            }
        }
        self.make_memory(if is_room_for_all { whole_bytes } else { filter_bytes });
        let held = reader.hold_whole_filter()?;
        held.warnings.into_iter().for_each(|warning| self.telemetry.warn(warning));
        let partitions = if is_room_for_all { reader.index_partitions() } else { 0 };
        (0..partitions).try_for_each(|number| Ok(reader.hold_partition(number)?))
    }

    /// [`Self::hold_early`] for tables that are already visible to lookups; publishes views with
    /// their filters.
    pub(crate) fn hold_published(&self, tables: &[Arc<TableMeta>]) {
        let mut changed = BTreeSet::new();
        for reader in tables.iter().filter_map(|table| table.reader.get()) {
            let absent = |reader: &TableReader| reader.filter().map_or(0, |filter| filter.absent_slices());
            let before = absent(reader);
            if let Err(error) = self.hold_early(reader) {
                // The table is installed: its lookups continue without.
                self.telemetry.warn(format!(
                    "filter and index of table {} stay as they are: {}",
                    reader.id(),
                    error.chain()
                ));
            }
            if absent(reader) < before {
                changed.insert(reader.id());
            }
        }
        self.publish_filters(&changed);
    }

    /// Frees the memory of obsolete tables that no new lookup reaches. The compaction that replaced
    /// them may keep them open for long.
    pub(crate) fn release_obsolete(&self, dead: &[Arc<TableMeta>]) {
        if self.settings.filter_residency == Residency::Budgeted {
            dead.iter().filter_map(|table| table.reader.get()).for_each(|reader| reader.release());
        }
    }

    /// Bytes of filters and indexes.
    pub(crate) fn pool_held_bytes(&self) -> u64 {
        self.ledger.bytes(LedgerPart::Filters) + self.ledger.bytes(LedgerPart::Indexes)
    }

    /// Bytes of all but filters, indexes and the block cache.
    fn others_bytes(&self) -> u64 {
        let own_bytes = self.pool_held_bytes() + self.ledger.bytes(LedgerPart::BlockCache);
        self.ledger.total().saturating_sub(own_bytes)
    }

    /// Limit of filters and indexes in bytes.
    fn pool_bytes(&self) -> u64 {
        self.pool_and_cache_bytes().0
    }

    /// Bytes that filters and indexes may add to what is resident.
    fn pool_room_bytes(&self) -> u64 {
        self.pool_bytes().saturating_sub(self.pool_held_bytes())
    }

    /// Whether the block cache may grow: it has no configured maximum, or is below it by more than
    /// the slack of its size.
    fn may_cache_grow(&self) -> bool {
        let slack_bytes = memory::slack_bytes(self.settings.memory_budget_bytes);
        self.settings.cache_bytes_max.is_none_or(|bytes| self.cache.capacity_bytes() + slack_bytes < bytes)
    }

    /// Settles; false if another thread does so.
    fn rebalance_with(&self, mode: Mode) -> bool {
        let Some(mut state) = self.residency.try_state() else {
            self.residency.wanted.store(true, Ordering::Release);
            return false;
        };
        if mode == Mode::Settle {
            crate::statistics::fold(&self.catalog, self.env.clock.now_us());
        }
        let survey = self.survey(&mut state.known);
        self.residency.fixed_bytes.store(survey.fixed_bytes, Ordering::Relaxed);
        if self.settings.filter_residency == Residency::Cached {
            self.rebalance_cached(&survey, &state);
            return true;
        }
        let may_have = match mode {
            Mode::Settle => self.pool_bytes(),
            Mode::Shed(bytes) => self.pool_held_bytes().saturating_sub(bytes),
        };
        let weighing = Weighing {
            probe_ns: survey.prices.probe_ns,
            margin: KEEP_MARGIN,
            keeps: !(state.arbiter.cache_has_use_for_more() && self.may_cache_grow()),
            shift_part: SHIFT_PART,
        };
        let plan = match plan_jointly(&survey.files, weighing, may_have.saturating_sub(survey.fixed_bytes)) {
            Ok(plan) => plan,
            Err(detail) => {
                // A defect of the program: residency stays as it is.
                self.telemetry.warn(format!("memory could not be planned: {detail}"));
                return true;
            }
        };
        let value = PlanValue {
            gain_per_byte: plan.gain_per_byte,
            loss_per_byte: plan.loss_per_byte,
            kept_bytes: plan.kept_bytes,
            useful_bytes: survey.useful_bytes(),
        };
        *lock(&self.residency.plan) = PlanPrices { value, cost_ns_per_second: plan.cost_ns_per_second };
        self.carry_out(&survey, &plan, mode, &mut state.unreadable);
        true
    }

    fn carry_out(&self, survey: &Survey, plan: &JointPlan, mode: Mode, unreadable: &mut BTreeSet<TableId>) {
        let wanted = |at: usize| plan.slices.get(at).map_or(&[][..], |slices| slices);
        let (mut changed, mut freed) = (BTreeSet::new(), false);
        for (at, reader) in survey.readers.iter().enumerate() {
            self.evict_partitions(reader, plan.partitions.get(at).map_or(0, |count| *count as usize));
            let unasked = unasked_of(plan, at);
            let Some(filter) = reader.filter() else { continue };
            let held = survey::held_slices(&filter);
            if held == wanted(at) && filter.unasked() == unasked {
                continue;
            }
            let kept: Vec<u32> =
                held.iter().zip(wanted(at)).map(|(held, wanted)| *held.min(wanted)).collect();
            match reader.hold_filter(&kept, unasked) {
                Ok(held) if held.changed => {
                    changed.insert(reader.id());
                    freed |= held.freed;
                }
                Ok(_) => {}
                Err(error) => self.note_unreadable(reader, &error.into(), unreadable),
            }
        }
        self.publish_filters(&changed);
        if freed {
            // Idle iterators would keep the evicted slices.
            self.release_stale_views();
        }
        if mode != Mode::Settle {
            return;
        }
        changed.clear();
        self.read_in(survey, plan, &mut changed, unreadable);
        self.publish_filters(&changed);
    }

    /// Warns once of a table with an unreadable part. Its lookups and everything else continue
    /// without that part.
    fn note_unreadable(&self, reader: &TableReader, error: &Error, unreadable: &mut BTreeSet<TableId>) {
        if unreadable.insert(reader.id()) {
            self.telemetry.warn(format!(
                "filter and index of table {} stay as they are: {}",
                reader.id(),
                error.chain()
            ));
        }
    }

    /// Evicts partitions beyond `wanted`, and those that are searched clearly less than others.
    fn evict_partitions(&self, reader: &TableReader, wanted: usize) {
        if survey::held_partitions(reader) >= wanted {
            let kept = survey::choose_partitions(reader, wanted);
            let all = 0..reader.index_partitions();
            all.filter(|number| !kept.contains(number)).for_each(|number| reader.drop_partition(number));
        }
    }

    /// Reads the index partitions that the plan adds or exchanges.
    fn read_partitions(&self, reader: &TableReader, wanted: usize) -> Result<()> {
        let mut outcome = Ok(());
        if survey::held_partitions(reader) < wanted {
            for number in survey::choose_partitions(reader, wanted) {
                let bytes = reader.partition_bytes(number);
                if !reader.is_partition_resident(number) && bytes <= self.pool_room_bytes() + bytes / 8 {
                    self.make_memory(bytes);
                    // A failure does not affect the others.
                    outcome = outcome.and(reader.hold_partition(number));
                }
            }
        }
        survey::age_searches(reader);
        Ok(outcome?)
    }

    /// Reads what the plan adds.
    fn read_in(
        &self,
        survey: &Survey,
        plan: &JointPlan,
        changed: &mut BTreeSet<TableId>,
        unreadable: &mut BTreeSet<TableId>,
    ) {
        unreadable.retain(|table| survey.readers.iter().any(|reader| reader.id() == *table));
        // Slices first, because their sizes are known. Partitions that are larger than estimated
        // then displace other partitions, and not the filter of the last table. A table that cannot
        // be read does not affect the others.
        for (at, (reader, slices)) in survey.readers.iter().zip(&plan.slices).enumerate() {
            if self.is_stopping() {
                // `close` waits for this thread.
                return;
            }
            if let Err(error) = self.read_slices(reader, (slices, unasked_of(plan, at)), changed) {
                self.note_unreadable(reader, &error, unreadable);
            }
        }
        for (reader, partitions) in survey.readers.iter().zip(&plan.partitions) {
            if self.is_stopping() {
                return;
            }
            if let Err(error) = self.read_partitions(reader, *partitions as usize) {
                self.note_unreadable(reader, &error, unreadable);
            }
        }
    }

    /// Reads the filter slices that the plan adds.
    fn read_slices(
        &self,
        reader: &TableReader,
        (wanted, unasked): (&[u32], Unasked),
        changed: &mut BTreeSet<TableId>,
    ) -> Result<()> {
        let Some(filter) = reader.filter() else { return Ok(()) };
        let bytes = survey::missing_bytes(reader, &filter, wanted);
        // Evicted memory is free only after the last reader of an old view has dropped it.
        if bytes == 0 || bytes > self.pool_room_bytes() + bytes / 8 {
            return Ok(());
        }
        self.make_memory(bytes);
        let held = reader.hold_filter(wanted, unasked)?;
        held.warnings.into_iter().for_each(|warning| self.telemetry.warn(warning));
        if held.changed {
            changed.insert(reader.id());
        }
        Ok(())
    }

    /// Settles the cached mode, in which nothing is pinned. A module is skipped if it saves less
    /// than its reads and the cache memory that it displaces.
    fn rebalance_cached(&self, survey: &Survey, state: &ResidencyState) {
        let mut changed = BTreeSet::new();
        for (reader, file) in survey.readers.iter().zip(&survey.files) {
            let fetched = survey::worth_fetching(
                self.settings.module_skipping,
                file,
                (self.residency.slices_read(), state.arbiter.cache_gain_per_byte()),
            );
            match reader.hold_filter(&[], Unasked { fetched, dormant: 0 }) {
                Ok(held) if held.changed => _ = changed.insert(reader.id()),
                // Nothing is read, so nothing can fail.
                Ok(_) | Err(_) => {}
            }
        }
        self.publish_filters(&changed);
    }

    /// Publishes views with the present filters of these tables.
    fn publish_filters(&self, changed: &BTreeSet<TableId>) {
        if changed.is_empty() {
            return;
        }
        for keyspace in self.catalog.keyspaces().values() {
            let is_in =
                keyspace.load().version.tables().any(|(_, _, table)| changed.contains(&table.meta.id));
            if is_in {
                keyspace.publish(|view| view.with_filters_of(changed));
            }
        }
    }

    /// Current cost of a search that a filter could have spared.
    pub(crate) fn search_ns(&self) -> f64 {
        survey::Prices::of(self).data_ns
    }

    pub(crate) fn plan_prices(&self) -> PlanPrices {
        *lock(&self.residency.plan)
    }

    fn survey(&self, known: &mut KnownTables) -> Survey {
        let now_us = self.env.clock.now_us();
        let keyspaces = self.catalog.keyspaces();
        let views: Vec<(Arc<View>, Window)> = keyspaces
            .values()
            .map(|keyspace| (keyspace.load_full(), keyspace.statistics.window(now_us)))
            .collect();
        Survey::of(&views, (survey::Prices::of(self), self.settings.module_skipping), known)
    }
}
