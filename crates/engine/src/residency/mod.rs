//! Residency: the filter slices and index partitions that are in memory.
//!
//! With [`Residency::Budgeted`], filters and indexes share the memory budget that memtables,
//! background work and the block cache leave. One rule decides what is resident: the pieces that
//! save most per byte. [`survey`] computes the saving of each piece, [`shamba_model::joint`] their
//! order. [`ResidencyManager`] carries that out in settlements ([`settle`]), as one [`Consumer`] of
//! memory.
//!
//! The first settlement, over the tables of the open, is left to the upkeep thread, because it
//! reads in proportion to the data ([`ResidencyManager::begin`]). A settlement follows every
//! install. It also runs about once a second while there are lookups or seeks, and sooner after a
//! change of the hit rate ([`worker`]). Its evictions alone run whenever memory is needed that the
//! block cache cannot give ([`Consumer::shrink`]). Tables that are opened while there is memory
//! load everything at once ([`ResidencyManager::hold_early`]).
//!
//! Lookups never wait for a settlement: a view says what is resident, and does not change.
//!
//! Locks: the state's lock is taken after all others but the views'. A thread that finds it taken
//! proceeds without it; only [`ResidencyManager::finish_open`] waits.
//!
//! Not here: the division of memory between filters, blocks and write buffers ([`crate::memory`]).

mod prices;
mod report;
mod settle;
mod survey;
#[cfg(test)]
mod tests;
mod worker;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use shamba_env::{Clock, Env};
use shamba_model::memory::constants::{CHECKS_PER_WINDOW, WINDOW_US};
use shamba_model::memory::{self, PlanValue};
use shamba_model::price::ReadPrice;
use shamba_table::{LedgerPart, Residency, ResidentFilter, TableReader};

use self::prices::{HitRates, Prices};
use self::settle::{Progress, State};
pub(crate) use self::survey::module_rates;
use self::worker::Observations;
use crate::catalog::{Catalog, InstallObserver};
use crate::error::Result;
use crate::lock_order;
use crate::memory::{Consumer, MemoryManager};
use crate::options::settings::Settings;
use crate::ranked::Ranked;
use crate::reads::Reads;
use crate::telemetry::{Telemetry, hold_events};
use crate::workers::{Lane, Waker};
use shamba_tree::version::TableMeta;
use shamba_tree::view::View;

/// The last plan in figures.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct PlanPrices {
    /// Value of memory for filters and indexes.
    pub value: PlanValue,
    /// Cost of lookups and seeks under the plan, in nanoseconds per second.
    pub cost_ns_per_second: f64,
}

/// Called at the end of some windows without writes.
type IdleHook = Box<dyn Fn(&ResidencyManager) + Send + Sync>;

/// Decides which filter slices and index partitions are in memory.
pub(crate) struct ResidencyManager {
    clock: Arc<dyn Clock>,
    /// Whether background work runs on the caller's thread.
    is_inline: bool,
    settings: Arc<Settings>,
    memory: Arc<MemoryManager>,
    catalog: Arc<Catalog>,
    reads: Arc<Reads>,
    telemetry: Arc<Telemetry>,
    state: Ranked<State>,
    /// Value of memory in the last plan. It has its own lock, because settlements read files under
    /// the state's lock, and listeners of their warnings may ask for it.
    plan: Ranked<PlanPrices>,
    /// Bytes of filters and indexes that cannot be evicted, as of the last survey.
    fixed_bytes: AtomicU64,
    rates: HitRates,
    /// A change was made that the next settlement should consider.
    wanted: AtomicBool,
    /// The settlement over the tables of the open is still to come.
    is_opening: AtomicBool,
    is_stopping: AtomicBool,
    waker: Waker,
    /// Observations at the last look; `None` before the first one.
    seen: Ranked<Option<Observations>>,
    on_idle: OnceLock<IdleHook>,
}

impl ResidencyManager {
    /// The residency of the tables of `catalog`, in `memory`. It gives memory up for others after
    /// [`MemoryManager::register`], and settles after installs once the catalog tells it of them.
    pub fn new(
        env: &Env,
        settings: Arc<Settings>,
        memory: Arc<MemoryManager>,
        (catalog, reads): (Arc<Catalog>, Arc<Reads>),
        telemetry: Arc<Telemetry>,
        waker: Waker,
    ) -> Self {
        Self {
            clock: Arc::clone(&env.clock),
            is_inline: env.spawner.is_inline(),
            settings,
            memory,
            catalog,
            reads,
            telemetry,
            state: Ranked::new(lock_order::RESIDENCY, State::default()),
            plan: Ranked::new(lock_order::PLAN_PRICES, PlanPrices::default()),
            fixed_bytes: AtomicU64::new(0),
            rates: HitRates::default(),
            wanted: AtomicBool::new(false),
            is_opening: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
            waker,
            seen: Ranked::new(lock_order::RESIDENCY_LOOK, None),
            on_idle: OnceLock::new(),
        }
    }

    /// Sets what is called at the end of some windows without writes; later calls have no effect.
    pub fn on_idle(&self, hook: IdleHook) {
        let _ = self.on_idle.set(hook);
    }

    /// The memory that filters and indexes share with others.
    pub fn memory(&self) -> &Arc<MemoryManager> {
        &self.memory
    }

    /// Settles if it is time to. Called by one thread at a time; returns the time until the next
    /// call: zero if a settlement has more to read.
    pub fn look(&self) -> Duration {
        let _events = hold_events();
        let now_us = self.clock.now_us();
        let interval = Duration::from_micros(WINDOW_US / CHECKS_PER_WINDOW);
        if self.is_stopping() {
            return interval;
        }
        let mut seen = self.seen.lock();
        match seen.get_or_insert_with(|| Observations::new(self, now_us)).look(self, now_us) {
            Progress::MoreToRead => Duration::ZERO,
            Progress::Settled | Progress::Busy => interval,
        }
    }

    /// Ends a settlement that is in progress, and further ones. What one that has paused would read
    /// is dropped with this residency.
    pub fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    /// Requests a settlement: by the upkeep thread soon, or at once where there are no threads.
    pub fn request_settlement(&self) {
        if self.is_inline {
            self.settle_wholly();
        } else {
            self.wanted.store(true, Ordering::Release);
            self.waker.wake(Lane::Upkeep);
        }
    }

    /// Takes the request for a settlement, if there is one.
    fn take_wanted(&self) -> bool {
        self.wanted.swap(false, Ordering::AcqRel)
    }

    /// Loads the filter and index of a table that was just opened, or only its filter, if there is
    /// memory. No lookup then misses it.
    pub fn hold_early(&self, reader: &TableReader) -> Result<()> {
        let is_whole = |filter: ResidentFilter| filter.absent_slices() == 0;
        if self.settings.filter_residency != Residency::Budgeted || reader.filter().is_some_and(is_whole) {
            return Ok(());
        }
        let (filter_bytes, whole_bytes) = (survey::filter_bytes(reader), survey::whole_bytes(reader));
        let missing_bytes = whole_bytes.saturating_sub(self.memory.consumers_room_bytes());
        let kept_bytes = missing_bytes.min(self.plan_prices().value.kept_bytes);
        if kept_bytes > 0 {
            // Filters that only cost their probes are evicted for new tables.
            self.shed(kept_bytes);
        }
        let is_room_for_all = whole_bytes <= self.memory.consumers_room_bytes();
        let margin_bytes = memory::early_bytes(self.settings.budget_bytes());
        // New filters may exceed the limit until the next plan finds less valuable pieces. The
        // filter of a new run spares every lookup a search, as nothing else of that size does.
        let beyond_bytes = || (self.held() + filter_bytes).saturating_sub(self.memory.consumers_bytes_max());
        if beyond_bytes() > margin_bytes {
            if filter_bytes > margin_bytes {
                return Ok(());
            }
            // No effect while another thread settles.
            self.shed(margin_bytes);
            if beyond_bytes() > 2 * margin_bytes {
                return Ok(());
            }
        }
        let _room = self.memory.make_room(if is_room_for_all { whole_bytes } else { filter_bytes });
        let held = reader.hold_whole_filter()?;
        held.warnings.into_iter().for_each(|warning| self.telemetry.warn(warning));
        let partitions = if is_room_for_all { reader.index_partitions() } else { 0 };
        (0..partitions).try_for_each(|number| Ok(reader.hold_partition(number)?))
    }

    /// [`Self::hold_early`] for tables that are already visible to lookups; publishes views with
    /// their filters.
    pub fn hold_published(&self, tables: &[Arc<TableMeta>]) {
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

    /// Evicts the least valuable pieces until `bytes` more are free.
    fn shed(&self, bytes: u64) {
        self.shrink_to(self.held().saturating_sub(bytes));
    }

    /// Charges the memory of the newest trees.
    pub fn charge_trees(&self) {
        let views: Vec<Arc<View>> =
            self.catalog.keyspaces().values().map(|keyspace| keyspace.load_full()).collect();
        self.memory.charge_trees(&views);
    }

    fn prices(&self) -> Prices {
        let times = self.memory.cache().read_times();
        Prices::new(self.rates.read_share(), times, self.settings.count_ios)
    }

    /// Measured cost of a read by its length.
    pub fn read_price(&self) -> ReadPrice {
        prices::price_of(self.memory.cache().read_times())
    }

    /// Current cost of a search that a filter could have spared.
    pub fn search_ns(&self) -> f64 {
        self.prices().data_ns
    }

    /// The last plan in figures.
    pub fn plan_prices(&self) -> PlanPrices {
        *self.plan.lock()
    }
}

impl Consumer for ResidencyManager {
    fn held(&self) -> u64 {
        let ledger = self.memory.ledger();
        ledger.bytes(LedgerPart::Filters) + ledger.bytes(LedgerPart::Indexes)
    }

    fn floor(&self) -> u64 {
        match self.settings.filter_residency {
            Residency::Budgeted => self.fixed_bytes.load(Ordering::Relaxed),
            // Pinned ones stay, and those in the block cache are not held here.
            Residency::Pinned | Residency::Cached => self.held(),
        }
    }

    /// Does nothing while another thread settles.
    fn shrink(&self, target: u64) -> u64 {
        if self.settings.filter_residency == Residency::Budgeted {
            self.shrink_to(target);
        }
        self.held()
    }
}

impl InstallObserver for ResidencyManager {
    fn published(&self) {
        self.charge_trees();
    }

    /// Frees the memory of obsolete tables, which no new lookup reaches: the compaction that
    /// replaced them may keep them open for long. Then settles over the new tables.
    fn installed(&self, dead: &[Arc<TableMeta>]) {
        if self.settings.filter_residency == Residency::Budgeted {
            dead.iter().filter_map(|table| table.reader.get()).for_each(|reader| reader.release());
        }
        self.reads.revoke_stale_views(&self.catalog);
        self.request_settlement();
    }
}
