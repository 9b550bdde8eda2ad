//! A settlement: brings what is resident to the plan.
//!
//! 1. It surveys every table and makes the plan.
//! 2. It evicts what the plan leaves out, and publishes views without it. Filters that only cost
//!    their probes stay resident as long as the block cache has no use for their memory; where
//!    searches are cheap they are dormant. If the hit rate changes, lookups find them in memory.
//! 3. It reads what the plan adds, as long as there is memory, and publishes views with it. After
//!    [`READ_US_MAX`] it pauses, so that other databases have their turn on the thread, and is
//!    continued by the next call. It visits each table once, whatever fails or changes meanwhile,
//!    so it ends.
//!
//! To shrink, only the first two steps run: they read no file.
//!
//! Not here: the plan ([`shamba_model::joint`]); when a settlement runs ([`super::worker`]).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use shamba_model::joint::{JointPlan, Weighing, plan_jointly};
use shamba_model::memory::PlanValue;
use shamba_model::memory::constants::{KEEP_MARGIN, SHIFT_PART};
use shamba_table::{Residency, TableId, TableReader, Unasked};
use shamba_tree::statistics::LookupWindow;
use shamba_tree::view::View;

use super::survey::{self, KnownTables, Survey, mask_of};
use super::{PlanPrices, ResidencyManager};
use crate::error::{Error, Result};
use crate::telemetry::hold_events;

/// Time after which a settlement that reads pauses, in microseconds: after the table during whose
/// reads it is over. Enough for some thirty filters of tables of 64 MiB in the page cache.
const READ_US_MAX: u64 = 20_000;

/// State that residency keeps between settlements.
#[derive(Default)]
pub(super) struct State {
    /// Constant properties of the tables surveyed before.
    known: KnownTables,
    /// Tables with a part that could not be read. Each is reported once, and read again in every
    /// settlement.
    unreadable: BTreeSet<TableId>,
    /// The reads of a settlement that has paused.
    reading: Option<Reading>,
}

/// The reads of a settlement.
struct Reading {
    survey: Survey,
    plan: JointPlan,
    /// The next visit: first the filter of each table, then its partitions.
    visit: usize,
}

/// Progress of a settlement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Progress {
    /// Nothing is left to be done, or the database closes.
    Settled,
    /// It has paused: the next call continues it.
    MoreToRead,
    /// Another thread settles.
    Busy,
}

/// Scope of a settlement.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// All steps.
    Whole,
    /// Only evictions, until this many bytes are resident.
    Shrink(u64),
}

/// Treatment by lookups of the modules of table `at`'s filter that they do not probe.
fn unasked_of(plan: &JointPlan, at: usize) -> Unasked {
    let fetched = plan.fetched.get(at).map_or(0, |fetched| mask_of(*fetched));
    let dormant = plan.dormant.get(at).map_or(0, |dormant| mask_of(dormant.end) & !mask_of(dormant.start));
    Unasked { fetched, dormant }
}

impl ResidencyManager {
    /// Leaves the settlement over the tables of the open to the upkeep thread: until it has taken
    /// place, lookups read what they need of filters and indexes.
    pub fn begin(&self) {
        if self.settings.filter_residency != Residency::Pinned {
            self.is_opening.store(true, Ordering::Release);
            self.request_settlement();
        }
    }

    /// Ends the settlement over the tables of the open, unless that was done; waits for a thread
    /// that is doing so. For calls that say what is in memory and why.
    pub fn finish_open(&self) {
        while self.is_opening.load(Ordering::Acquire) {
            let _events = hold_events();
            let mut state = self.state.lock();
            // Perhaps done while this waited for the lock.
            if self.is_opening.load(Ordering::Acquire) {
                self.settle_locked(&mut state);
            }
        }
    }

    /// Settles until nothing is left to be read, unless another thread does so.
    pub(super) fn settle_wholly(&self) {
        while self.settle() == Progress::MoreToRead {}
    }

    /// Begins a settlement, or continues the one that has paused. Nothing to do if all filters are
    /// pinned.
    pub(super) fn settle(&self) -> Progress {
        if self.settings.filter_residency == Residency::Pinned {
            return Progress::Settled;
        }
        let _events = hold_events();
        match self.state.try_lock() {
            Some(mut state) => self.settle_locked(&mut state),
            None => {
                self.wanted.store(true, Ordering::Release);
                Progress::Busy
            }
        }
    }

    /// Evicts until at most `target_bytes` are resident, unless another thread settles.
    pub(super) fn shrink_to(&self, target_bytes: u64) {
        let _events = hold_events();
        match self.state.try_lock() {
            Some(mut state) => drop(self.evict(&mut state, Mode::Shrink(target_bytes))),
            None => self.wanted.store(true, Ordering::Release),
        }
    }

    fn settle_locked(&self, state: &mut State) -> Progress {
        let reading = match state.reading.take() {
            Some(reading) => Some(reading),
            None => {
                crate::statistics::fold(&self.catalog, self.clock.now_us());
                self.evict(state, Mode::Whole)
            }
        };
        if let Some(mut reading) = reading {
            if !self.read_for_a_while(&mut reading, &mut state.unreadable) {
                state.reading = Some(reading);
                return Progress::MoreToRead;
            }
        }
        self.is_opening.store(false, Ordering::Release);
        Progress::Settled
    }

    /// Makes a plan and evicts what it leaves out; returns what it adds, if anything is read.
    fn evict(&self, state: &mut State, mode: Mode) -> Option<Reading> {
        let survey = self.survey(&mut state.known);
        self.fixed_bytes.store(survey.fixed_bytes, Ordering::Relaxed);
        if self.settings.filter_residency == Residency::Cached {
            self.settle_cached(&survey);
            return None;
        }
        let bytes_max = match mode {
            Mode::Whole => self.memory.consumers_bytes_max(),
            Mode::Shrink(target_bytes) => target_bytes,
        };
        let weighing = Weighing {
            probe_ns: survey.prices.probe_ns,
            margin: KEEP_MARGIN,
            keeps: !(self.memory.cache_has_use_for_more() && self.memory.may_cache_grow()),
            shift_part: SHIFT_PART,
        };
        let plan = match plan_jointly(&survey.files, weighing, bytes_max.saturating_sub(survey.fixed_bytes)) {
            Ok(plan) => plan,
            Err(detail) => {
                // A defect of the program: residency stays as it is.
                self.telemetry.warn(format!("memory could not be planned: {detail}"));
                return None;
            }
        };
        let count = survey.readers.len();
        assert_eq!(plan.slices.len(), count, "the plan leaves the filter of a table out");
        assert_eq!(plan.partitions.len(), count, "the plan leaves the index of a table out");
        debug_assert!(plan.kept_bytes <= plan.bytes, "the plan keeps more bytes than it holds");
        let value = PlanValue {
            gain_per_byte: plan.gain_per_byte,
            loss_per_byte: plan.loss_per_byte,
            kept_bytes: plan.kept_bytes,
            useful_bytes: survey.useful_bytes(),
        };
        *self.plan.lock() = PlanPrices { value, cost_ns_per_second: plan.cost_ns_per_second };
        self.carry_out(&survey, &plan, mode, &mut state.unreadable);
        (mode == Mode::Whole).then_some(Reading { survey, plan, visit: 0 })
    }

    fn carry_out(&self, survey: &Survey, plan: &JointPlan, mode: Mode, unreadable: &mut BTreeSet<TableId>) {
        let wanted = |at: usize| plan.slices.get(at).map_or(&[][..], |slices| slices);
        let (mut changed, mut freed) = (BTreeSet::new(), false);
        for (at, reader) in survey.readers.iter().enumerate() {
            self.evict_partitions(reader, plan.partitions.get(at).map_or(0, |count| *count as usize));
            let unasked = unasked_of(plan, at);
            let Some(filter) = reader.filter() else { continue };
            let held = survey::held_slices(&filter);
            // Slices that cannot be read are wanted and not held, and stay so.
            let has_extra = held.iter().zip(wanted(at)).any(|(held, wanted)| held > wanted);
            if !has_extra && filter.unasked() == unasked {
                continue;
            }
            debug_assert_eq!(
                held.len(),
                wanted(at).len(),
                "the plan has another number of modules than the filter"
            );
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
            self.reads.revoke_stale_views(&self.catalog);
        }
        if mode == Mode::Whole {
            if freed {
                self.catalog.remove_obsolete_files();
            }
            unreadable.retain(|table| survey.readers.iter().any(|reader| reader.id() == *table));
        }
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
            debug_assert!(kept.len() <= reader.index_partitions(), "more partitions are kept than exist");
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
                if !reader.is_partition_resident(number)
                    && bytes <= self.memory.consumers_room_bytes() + bytes / 8
                {
                    let _room = self.memory.make_room(bytes);
                    // A failure does not affect the others.
                    outcome = outcome.and(reader.hold_partition(number));
                }
            }
        }
        survey::age_searches(reader);
        Ok(outcome?)
    }

    /// Reads what the plan adds, until it is time to pause, and publishes it; returns whether
    /// nothing is left.
    fn read_for_a_while(&self, reading: &mut Reading, unreadable: &mut BTreeSet<TableId>) -> bool {
        let Reading { survey, plan, visit } = reading;
        let tables = survey.readers.len();
        let until_us = self.clock.now_us() + READ_US_MAX;
        let mut changed = BTreeSet::new();
        // Slices first, because their sizes are known. Partitions that are larger than estimated
        // then displace other partitions, and not the filter of the last table. `close` waits for
        // this thread.
        while *visit < 2 * tables && !self.is_stopping() && self.clock.now_us() < until_us {
            let (at, is_filter) = (*visit % tables, *visit < tables);
            *visit += 1;
            let Some(reader) = survey.readers.get(at) else { continue };
            let read = match is_filter {
                true => self.read_slices(reader, plan, at, &mut changed),
                false => {
                    self.read_partitions(reader, plan.partitions.get(at).map_or(0, |count| *count as usize))
                }
            };
            // A table that cannot be read does not affect the others.
            if let Err(error) = read {
                self.note_unreadable(reader, &error, unreadable);
            }
        }
        self.publish_filters(&changed);
        *visit >= 2 * tables || self.is_stopping()
    }

    /// Reads the filter slices that the plan adds to table `at`; `changed` gets the table if its
    /// filter has more of them.
    fn read_slices(
        &self,
        reader: &TableReader,
        plan: &JointPlan,
        at: usize,
        changed: &mut BTreeSet<TableId>,
    ) -> Result<()> {
        let wanted = plan.slices.get(at).map_or(&[][..], |slices| slices);
        let Some(filter) = reader.filter() else { return Ok(()) };
        let bytes = survey::missing_bytes(reader, &filter, wanted);
        // Evicted memory is free only after the last reader of an old view has dropped it.
        if bytes == 0 || bytes > self.memory.consumers_room_bytes() + bytes / 8 {
            return Ok(());
        }
        let _room = self.memory.make_room(bytes);
        let held = reader.hold_filter(wanted, unasked_of(plan, at))?;
        held.warnings.into_iter().for_each(|warning| self.telemetry.warn(warning));
        if held.changed {
            changed.insert(reader.id());
        }
        Ok(())
    }

    /// Settles the cached mode, in which nothing is pinned. A module is skipped if it saves less
    /// than its reads and the cache memory that it displaces.
    fn settle_cached(&self, survey: &Survey) {
        let mut changed = BTreeSet::new();
        for (reader, file) in survey.readers.iter().zip(&survey.files) {
            let fetched = survey::worth_fetching(
                self.settings.module_skipping,
                file,
                (self.rates.slices_read(), self.memory.cache_gain_per_byte()),
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
    pub(super) fn publish_filters(&self, changed: &BTreeSet<TableId>) {
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

    pub(super) fn survey(&self, known: &mut KnownTables) -> Survey {
        let now_us = self.clock.now_us();
        let keyspaces = self.catalog.keyspaces();
        let views: Vec<(Arc<View>, LookupWindow)> = keyspaces
            .values()
            .map(|keyspace| (keyspace.load_full(), keyspace.statistics().window(now_us)))
            .collect();
        Survey::of(&views, (self.prices(), self.settings.module_skipping), known)
    }
}
