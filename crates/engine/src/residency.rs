//! Residency: which filter slices and index partitions are in memory.
//!
//! With [`Residency::Budgeted`], filters and indexes have what the memory budget leaves beside memtables, work and the
//! block cache's share. What is in it follows from one rule: whatever saves most for its bytes ([`survey`] says what
//! each saves, [`shamba_model::joint`] who comes next). A settlement
//!
//! 1. looks at every table and makes the plan;
//! 2. lets go of what the plan leaves out, and publishes views without it. Filters that only cost their probes are kept
//!    as long as the block cache has no use for their memory, at rest where searches are cheap: lookups that turn find them there;
//! 3. reads what the plan adds, as long as there is room, and publishes that.
//!
//! It comes after every install, about once a second while lookups or seeks go on and sooner when they turn ([`worker`]), and,
//! with nothing but its first two steps, whenever somebody needs memory that the block cache cannot give ([`Core::shed`]). Tables that are opened
//! while there is room hold everything at once ([`Core::hold_early`]).
//!
//! Lookups never wait for any of it: a view says what is held, and does not change.
//!
//! Locks: the state's is taken after all others but the views'; whoever finds it taken goes on without.
//!
//! Not here: how memory is divided between filters, blocks and write buffers ([`arbiter`]); counting ([`crate::memory`]).

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
use shamba_table::{LedgerPart, Residency, ResidentFilter, TableId, TableReader, Unasked};

use self::arbiter::{Arbiter, BUFFER_LEAST_PART, BUFFER_MOST_TIMES};
pub use self::report::{LevelMemory, MemoryPrices};
pub(crate) use self::survey::module_rates;
use self::survey::{KnownTables, Survey, mask_of};
use crate::core::Core;
use crate::error::{Error, Result};
use crate::memory::{SLACK_PART, cache_share_bytes};
use crate::sync::{Mutex, MutexGuard};
use shamba_env::{lock, try_lock};
use shamba_tree::statistics::Window;
use shamba_tree::version::TableMeta;
use shamba_tree::view::View;

/// What is held is exchanged only for what saves so much more.
const KEEP_MARGIN: f64 = 0.1;
/// Lookups that turn are noticed after a quarter of a second ([`worker`]), and filters that were let go are there again within another half. They may
/// turn about as often as a step of the arbiter must pay for itself: this part of those that find their key is believed to find none.
const TURNING_PART: f64 = 0.75 / arbiter::PAYBACK_SECONDS;
/// Of what is left beside memtables and work, the part that the block cache is left at first.
const CACHE_PART: u64 = 8;
/// Shedding makes room for this part of the budget more than was asked for, so that it is rare.
const SHED_PART: u64 = 16;
/// New tables' filters may go beyond what filters and indexes have in all by this part of the budget, until the next plan.
const EARLY_PART: u64 = 64;
/// What others needed at most counts for this share less in each window that passes: memory that a burst of writes took
/// comes back to filters and indexes within half a minute, and the next burst within seconds finds it free.
const PEAK_FADING_PART: u64 = 8;
/// Fewer data blocks than this in a window say nothing of the cache.
const BLOCKS_LEAST: u64 = 64;

/// What residency remembers.
#[derive(Default)]
pub(crate) struct ResidencyState {
    /// What does not change of tables that were seen before.
    known: KnownTables,
    /// What the consumers of memory were worth in the last windows.
    arbiter: Arbiter,
    /// Tables of which something could not be read: said once, and tried again with every settlement.
    unreadable: BTreeSet<TableId>,
}

/// What memory was worth in a plan, in nanoseconds per second per byte.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct PlanPrices {
    /// What more memory would save.
    pub gain_per_byte: f64,
    /// What the least worthy saves of what is held for what it saves.
    pub loss_per_byte: f64,
    /// What is held beside that: filters that lookups that turn would ask.
    pub kept_bytes: u64,
    /// What all that saves anything would take.
    pub useful_bytes: u64,
    /// What lookups and seeks cost with it.
    pub cost_ns_per_second: f64,
}

/// The part of the core that belongs here.
#[derive(Default)]
pub(crate) struct ResidencyCore {
    state: Mutex<ResidencyState>,
    /// What the last plan says of the price of memory. By itself, because settlements read files under the state's lock,
    /// and listeners of their warnings may ask.
    plan: Mutex<PlanPrices>,
    /// Something changed that the next settlement should look at.
    wanted: AtomicBool,
    /// The most that everything but cache, filters and indexes took lately, with what is kept free.
    others_peak_bytes: AtomicU64,
    /// What filters and indexes hold whatever is let go, as of the last look at all tables.
    fixed_bytes: AtomicU64,
    /// Nothing was written for some windows: no memory needs to lie ready for a flush or a merge.
    pub(crate) writes_rest: AtomicBool,
    /// What the arbiter keeps for the block cache; 0: it has not said so yet.
    cache_bytes: AtomicU64,
    /// Where memtables are sealed, as the arbiter has it; 0: where the settings say.
    memtable_bytes: AtomicU64,
    /// The part of data blocks that lookups of late did not find in the cache, as the bits of its complement: nothing
    /// was found there before the first.
    hit_share_bits: AtomicU64,
    /// The part of filter slices that lookups of late did not find there, where they are held by the cache, as bits. Before the first nothing was
    /// missed: what is never fetched is never found.
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

    /// All but cache, filters and indexes take so much, or are about to, with what is kept free for flushes and merges:
    /// those at work use what was kept, and must not be counted for both.
    pub fn note_others(&self, bytes: u64) {
        if bytes > self.others_peak_bytes.load(Ordering::Relaxed) {
            self.others_peak_bytes.fetch_max(bytes, Ordering::Relaxed);
        }
    }

    /// The part of data blocks that lookups of late had to read.
    fn read_share(&self) -> f64 {
        1.0 - f64::from_bits(self.hit_share_bits.load(Ordering::Relaxed))
    }

    /// The part of filter slices that lookups of late had to read for a lookup.
    fn slices_read(&self) -> f64 {
        f64::from_bits(self.slices_read_bits.load(Ordering::Relaxed))
    }

    /// Lookups of a window read so many filter slices and found so many in the cache; what was before counts half.
    fn note_slices(&self, reads: u64, hits: u64) {
        if reads + hits >= BLOCKS_LEAST {
            let share = f64::midpoint(self.slices_read(), reads as f64 / (reads + hits) as f64);
            self.slices_read_bits.store(share.to_bits(), Ordering::Relaxed);
        }
    }

    /// Lookups of a window read so many data blocks and found so many in the cache; what was before counts half.
    fn note_blocks(&self, reads: u64, hits: u64) {
        if reads + hits >= BLOCKS_LEAST {
            let share = f64::midpoint(1.0 - self.read_share(), hits as f64 / (reads + hits) as f64);
            self.hit_share_bits.store(share.to_bits(), Ordering::Relaxed);
        }
    }

    /// Memtables are sealed where the settings say, until the arbiter has found something better.
    pub fn forget_memtable_bytes(&self) {
        self.memtable_bytes.store(0, Ordering::Relaxed);
    }

    /// A window has passed.
    fn fade_peak(&self) {
        let bytes = self.others_peak_bytes.load(Ordering::Relaxed);
        self.others_peak_bytes.store(bytes - bytes / PEAK_FADING_PART, Ordering::Relaxed);
    }
}

/// What a settlement may do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Everything.
    Settle,
    /// Only let go, so that so many bytes more are free.
    Shed(u64),
}

/// What lookups do by the plan with the modules of the filter of table `at` that they do not ask.
fn unasked_of(plan: &JointPlan, at: usize) -> Unasked {
    let fetched = plan.fetched.get(at).map_or(0, |fetched| mask_of(*fetched));
    let resting = plan.resting.get(at).map_or(0, |resting| mask_of(resting.end) & !mask_of(resting.start));
    Unasked { fetched, resting }
}

impl Core {
    /// Where memtables are sealed.
    pub(crate) fn memtable_limit_bytes(&self) -> u64 {
        let design_bytes = self.settings.memtable_bytes();
        match self.residency.memtable_bytes.load(Ordering::Relaxed) {
            0 => design_bytes,
            // Also where a redesign came in the middle of a decision about the old one.
            bytes => {
                bytes.clamp(design_bytes / BUFFER_LEAST_PART, design_bytes.saturating_mul(BUFFER_MOST_TIMES))
            }
        }
    }

    /// Has what is in memory looked at again: by the memory worker soon, or at once where there are no threads.
    pub(crate) fn want_settlement(&self) {
        if self.is_inline() {
            self.settle();
        } else {
            self.residency.wanted.store(true, Ordering::Release);
            self.background.memory_wake.notify_all();
        }
    }

    /// Makes memory hold what saves most; where all of it is pinned there is nothing to choose.
    pub(crate) fn settle(&self) {
        if self.settings.filter_residency != Residency::Pinned {
            self.settle_with(Mode::Settle);
        }
    }

    /// Lets go of what saves least until `bytes` more are free. Says whether it could try.
    pub(crate) fn shed(&self, bytes: u64) -> bool {
        self.settings.filter_residency == Residency::Budgeted
            && self.pool_held_bytes() > self.residency.fixed_bytes.load(Ordering::Relaxed)
            && self.settle_with(Mode::Shed(bytes + self.settings.memory_budget_bytes / SHED_PART))
    }

    /// Holds all of a table that was just opened, if there is room for it, or its filter, if there is for that: no lookup
    /// then misses it.
    pub(crate) fn hold_early(&self, reader: &TableReader) -> Result<()> {
        let is_whole = |filter: ResidentFilter| filter.absent_slices() == 0;
        if self.settings.filter_residency != Residency::Budgeted || reader.filter().is_some_and(is_whole) {
            return Ok(());
        }
        let (filter_bytes, whole_bytes) = (survey::filter_bytes(reader), survey::whole_bytes(reader));
        let missing_bytes = whole_bytes.saturating_sub(self.pool_room_bytes());
        let kept_bytes = missing_bytes.min(self.plan_prices().kept_bytes);
        if kept_bytes > 0 {
            // What is only kept makes room for what is new.
            self.settle_with(Mode::Shed(kept_bytes));
        }
        let is_room_for_all = whole_bytes <= self.pool_room_bytes();
        let margin_bytes = self.settings.memory_budget_bytes / EARLY_PART;
        // Beyond what filters and indexes may have, until the next plan finds what saves less: the filter of a new run
        // spares every lookup a search, as nothing else of that size does.
        let beyond_bytes = || (self.pool_held_bytes() + filter_bytes).saturating_sub(self.pool_bytes());
        if beyond_bytes() > margin_bytes {
            if filter_bytes > margin_bytes {
                return Ok(());
            }
            // Nothing comes of it while somebody else is at it.
            self.settle_with(Mode::Shed(margin_bytes));
            if beyond_bytes() > 2 * margin_bytes {
                return Ok(());
            }
        }
        self.make_memory(if is_room_for_all { whole_bytes } else { filter_bytes });
        let held = reader.hold_whole_filter()?;
        held.warnings.into_iter().for_each(|warning| self.warn(warning));
        let partitions = if is_room_for_all { reader.index_partitions() } else { 0 };
        (0..partitions).try_for_each(|number| Ok(reader.hold_partition(number)?))
    }

    /// [`Self::hold_early`] of tables that lookups find already: they are told of it.
    pub(crate) fn hold_published(&self, tables: &[Arc<TableMeta>]) {
        let mut changed = BTreeSet::new();
        for reader in tables.iter().filter_map(|table| table.reader.get()) {
            let absent = |reader: &TableReader| reader.filter().map_or(0, |filter| filter.absent_slices());
            let before = absent(reader);
            if let Err(error) = self.hold_early(reader) {
                // The table is installed: its lookups go on without.
                self.warn(format!(
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

    /// Gives back what tables have that no new lookup comes to. Whoever merged them has them open for long.
    pub(crate) fn release_dead(&self, dead: &[Arc<TableMeta>]) {
        if self.settings.filter_residency == Residency::Budgeted {
            dead.iter().filter_map(|table| table.reader.get()).for_each(|reader| reader.release());
        }
    }

    /// What filters and indexes have.
    pub(crate) fn pool_held_bytes(&self) -> u64 {
        self.ledger.bytes(LedgerPart::Filters) + self.ledger.bytes(LedgerPart::Indexes)
    }

    /// What all but filters, indexes and the block cache have.
    fn others_bytes(&self) -> u64 {
        let own_bytes = self.pool_held_bytes() + self.ledger.bytes(LedgerPart::BlockCache);
        self.ledger.total().saturating_sub(own_bytes)
    }

    /// What filters, indexes and the block cache may have in all, with room for what others took lately.
    fn shared_lately_bytes(&self) -> u64 {
        let others_bytes = self.others_bytes() + self.kept_bytes();
        let peak_bytes = self.residency.others_peak_bytes.load(Ordering::Relaxed);
        cache_share_bytes(self.settings.memory_budget_bytes, others_bytes.max(peak_bytes), 0)
    }

    /// What filters and indexes may have in all.
    fn pool_bytes(&self) -> u64 {
        let left_bytes = self.shared_lately_bytes();
        let cache_bytes = match self.residency.cache_bytes.load(Ordering::Relaxed) {
            0 => left_bytes / CACHE_PART,
            bytes => bytes,
        };
        left_bytes.saturating_sub(cache_bytes).min(self.settings.resident_bytes_max.unwrap_or(u64::MAX))
    }

    /// What filters and indexes may have beyond what they hold.
    fn pool_room_bytes(&self) -> u64 {
        self.pool_bytes().saturating_sub(self.pool_held_bytes())
    }

    /// Whether the block cache could have more memory than it has: nobody said how large it may be at most, or it is smaller by more than
    /// it is left alone for.
    fn may_cache_grow(&self) -> bool {
        let slack_bytes = self.settings.memory_budget_bytes / SLACK_PART;
        self.settings.cache_bytes_max.is_none_or(|bytes| self.cache.capacity_bytes() + slack_bytes < bytes)
    }

    /// False if another thread is at it.
    fn settle_with(&self, mode: Mode) -> bool {
        let Some(mut state) = self.residency.try_state() else {
            self.residency.wanted.store(true, Ordering::Release);
            return false;
        };
        if mode == Mode::Settle {
            self.fold_statistics();
        }
        let survey = self.survey(&mut state.known);
        self.residency.fixed_bytes.store(survey.fixed_bytes, Ordering::Relaxed);
        if self.settings.filter_residency == Residency::Cached {
            self.settle_cached(&survey, &state);
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
            turning_part: TURNING_PART,
        };
        let plan = match plan_jointly(&survey.files, weighing, may_have.saturating_sub(survey.fixed_bytes)) {
            Ok(plan) => plan,
            Err(detail) => {
                // A defect, not a state of the world: what is held stays.
                self.warn(format!("memory could not be planned: {detail}"));
                return true;
            }
        };
        *lock(&self.residency.plan) = PlanPrices {
            gain_per_byte: plan.gain_per_byte,
            loss_per_byte: plan.loss_per_byte,
            kept_bytes: plan.kept_bytes,
            useful_bytes: survey.useful_bytes(),
            cost_ns_per_second: plan.cost_ns_per_second,
        };
        self.carry_out(&survey, &plan, mode, &mut state.unreadable);
        true
    }

    fn carry_out(&self, survey: &Survey, plan: &JointPlan, mode: Mode, unreadable: &mut BTreeSet<TableId>) {
        let wanted = |at: usize| plan.slices.get(at).map_or(&[][..], |slices| slices);
        let (mut changed, mut freed) = (BTreeSet::new(), false);
        for (at, reader) in survey.readers.iter().enumerate() {
            self.let_partitions_go(reader, plan.partitions.get(at).map_or(0, |count| *count as usize));
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
            // Idle iterators would keep what was let go.
            self.release_stale_views();
        }
        if mode != Mode::Settle {
            return;
        }
        changed.clear();
        self.read_in(survey, plan, &mut changed, unreadable);
        self.publish_filters(&changed);
    }

    /// Lookups of a table of which something cannot be read go on without it, and so does everything else.
    fn note_unreadable(&self, reader: &TableReader, error: &Error, unreadable: &mut BTreeSet<TableId>) {
        if unreadable.insert(reader.id()) {
            self.warn(format!(
                "filter and index of table {} stay as they are: {}",
                reader.id(),
                error.chain()
            ));
        }
    }

    /// Lets go of partitions beyond so many, and of those that others are searched clearly more than.
    fn let_partitions_go(&self, reader: &TableReader, wanted: usize) {
        if survey::held_partitions(reader) >= wanted {
            let kept = survey::choose_partitions(reader, wanted);
            let all = 0..reader.index_partitions();
            all.filter(|number| !kept.contains(number)).for_each(|number| reader.drop_partition(number));
        }
    }

    /// Reads the index partitions that the plan adds, or that take the place of others.
    fn read_partitions(&self, reader: &TableReader, wanted: usize) -> Result<()> {
        let mut outcome = Ok(());
        if survey::held_partitions(reader) < wanted {
            for number in survey::choose_partitions(reader, wanted) {
                let bytes = reader.partition_bytes(number);
                if !reader.is_partition_resident(number) && bytes <= self.pool_room_bytes() + bytes / 8 {
                    self.make_memory(bytes);
                    outcome = outcome.and(reader.hold_partition(number)); // The others are as good as before.
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
        // Slices first, of which the sizes are known: partitions that turn out larger than they were taken for leave out
        // partitions then, and not the filter of the last table. What cannot be read of one keeps nothing else out.
        for (at, (reader, slices)) in survey.readers.iter().zip(&plan.slices).enumerate() {
            if self.is_stopping() {
                return; // Who closes waits for this.
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
        // Memory that was let go is free only when the last reader of an old view has gone.
        if bytes == 0 || bytes > self.pool_room_bytes() + bytes / 8 {
            return Ok(());
        }
        self.make_memory(bytes);
        let held = reader.hold_filter(wanted, unasked)?;
        held.warnings.into_iter().for_each(|warning| self.warn(warning));
        if held.changed {
            changed.insert(reader.id());
        }
        Ok(())
    }

    /// In the cached mode nothing is held; a module that would save less than its reads, and the memory that it drives out of the
    /// cache, cost is skipped.
    fn settle_cached(&self, survey: &Survey, state: &ResidencyState) {
        let mut changed = BTreeSet::new();
        for (reader, file) in survey.readers.iter().zip(&survey.files) {
            let fetched = survey::worth_fetching(
                self.settings.module_skipping,
                file,
                (self.residency.slices_read(), state.arbiter.cache_gain_per_byte()),
            );
            match reader.hold_filter(&[], Unasked { fetched, resting: 0 }) {
                Ok(held) if held.changed => _ = changed.insert(reader.id()),
                Ok(_) | Err(_) => {} // Nothing is read for it.
            }
        }
        self.publish_filters(&changed);
    }

    /// Publishes views with what these tables hold now.
    fn publish_filters(&self, changed: &BTreeSet<TableId>) {
        if changed.is_empty() {
            return;
        }
        for keyspace in self.keyspaces.load().values() {
            let is_in =
                keyspace.load().version.tables().any(|(_, _, table)| changed.contains(&table.meta.id));
            if is_in {
                keyspace.publish(|view| view.with_filters_of(changed));
            }
        }
    }

    /// What a search costs now that a filter could have spared.
    pub(crate) fn search_ns(&self) -> f64 {
        survey::Prices::of(self).data_ns
    }

    pub(crate) fn plan_prices(&self) -> PlanPrices {
        *lock(&self.residency.plan)
    }

    fn survey(&self, known: &mut KnownTables) -> Survey {
        let now_us = self.env.clock.now_us();
        let keyspaces = self.keyspaces.load();
        let views: Vec<(Arc<View>, Window)> = keyspaces
            .values()
            .map(|keyspace| (keyspace.load_full(), keyspace.statistics.window(now_us)))
            .collect();
        Survey::of(&views, (survey::Prices::of(self), self.settings.module_skipping), known)
    }
}
