//! Memory: who may hold how many bytes.
//!
//! [`MemoryManager`] owns the ledger of a memory budget, the block cache, and the shares of those
//! that compete for memory. Every part charges the ledger before it allocates. Memtables, tables
//! being built, filters, indexes and iterators take what they need, within limits that the settings
//! derive from the budget. The block cache has the remainder and shrinks *before* something else is
//! charged ([`balance`]). If it has nothing left to give, the [`Consumer`]s are told to shrink.
//!
//! So the ledger's sum stays within the budget as long as the filters and indexes of all open
//! tables fit into it together with the memtables. Where they do not fit, the cache holds nothing,
//! a warning says so, and reads go on uncached. An open whose tables would take more than half of
//! the budget keeps some of them closed ([`tables`]).
//!
//! The record cache has the capacity of its option, or a share like the block cache ([`records`]);
//! it is charged whole. The limits of memtables and iterators follow from the budget without a
//! fixed capacity.
//!
//! Memory for one flush and one compaction is set aside
//! ([`crate::options::settings::Settings::work_bytes`]), so a flush never waits for memory that
//! only a flush frees. With budgeted residency it is lent out while no writes come. Compactions
//! reserve what they take, or do not begin ([`reserve`]).
//!
//! Shares follow what memory saves in each place ([`shares`]). A budget may serve several
//! databases, each with a manager of its own ([`budget`]).
//!
//! Locks: a change of the cache's capacity is made under a lock, which is taken after the writer's
//! lock and the install lock, and held while consumers shrink. The other locks here are leaves.
//!
//! Not here: the arithmetic and its constants ([`shamba_model::memory`]); the accounting
//! ([`shamba_table::Ledger`]).

mod balance;
mod budget;
mod records;
mod reserve;
mod shares;
mod tables;
#[cfg(test)]
mod tests;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};

use shamba_table::{BlockCache, Charge, Ledger, LedgerPart};
use shamba_tree::compaction::table_size::Tables;
use shamba_tree::iter::registry::IterRegistry;
use shamba_tree::records::RecordCache;
use shamba_tree::version::TableMeta;
use shamba_tree::view::View;

pub use self::budget::Budget;
pub(crate) use self::budget::Member;
use self::records::RecordMemory;
pub(crate) use self::reserve::Reservation;
use self::reserve::Reservations;
use self::shares::Division;
use self::tables::TreeMemory;
use crate::busy::BusyFlag;
use crate::lock_order;
use crate::options::settings::Settings;
use crate::ranked::Ranked;
use crate::telemetry::{Telemetry, hold_events};

/// A part that holds memory which it can give up: together these parts have the memory that the
/// block cache leaves. What more of it saves is the value of filters and indexes ([`shares`]).
///
/// Before it grows it calls [`MemoryManager::make_room`], and changes its charge itself. It then
/// holds no lock that `held` or `shrink` takes, because room is made by calling all consumers.
pub(crate) trait Consumer: Send + Sync {
    /// Bytes that it holds.
    fn held(&self) -> u64;

    /// Bytes of them that it cannot give up.
    fn floor(&self) -> u64;

    /// Evicts the least valuable pieces until it holds at most `target` bytes; returns what it then
    /// holds. It reads and writes no file, waits for no other thread, and takes neither the
    /// writer's lock nor the install lock: callers may hold them.
    fn shrink(&self, target: u64) -> u64;
}

/// The memory of a budget.
pub(crate) struct MemoryManager {
    settings: Arc<Settings>,
    telemetry: Arc<Telemetry>,
    ledger: Arc<Ledger>,
    cache: Arc<BlockCache>,
    iterators: Arc<IterRegistry>,
    records: RecordMemory,
    /// This database's part of a budget that it shares with others.
    member: Option<Member>,
    /// Set while the grant of `member` is followed.
    following: BusyFlag,
    consumers: Ranked<Vec<Weak<dyn Consumer>>>,
    /// Held while memory is moved between the block cache and others.
    balancing: Ranked<()>,
    /// Memory that is promised and not charged yet.
    reserved: Arc<Reservations>,
    division: Division,
    trees: TreeMemory,
    /// The warning that the memory budget leaves nothing to the block cache was emitted.
    has_warned_budget_full: AtomicBool,
}

impl MemoryManager {
    /// The memory of the budget in `settings`, or of a part of a shared budget. The cache samples
    /// the reuse of up to `sampled_blocks` blocks.
    pub fn new(
        settings: Arc<Settings>,
        member: Option<Member>,
        telemetry: Arc<Telemetry>,
        sampled_blocks: usize,
    ) -> Self {
        if let Some(member) = &member {
            settings.live.set_budget_bytes(member.granted_bytes());
        }
        let ledger = Arc::new(Ledger::new());
        // Read-ahead is the first memory that iterators give up, so it gets half of their share.
        ledger.limit(LedgerPart::Iterators, settings.iterator_bytes() / 2);
        let iterators =
            IterRegistry::new(Arc::clone(&ledger), settings.iterator_bytes(), settings.digest_seed);
        let records = RecordMemory::new(&settings, member.as_ref(), &ledger);
        let cache = Arc::new(balance::new_cache(&settings, member.as_ref(), &ledger, sampled_blocks));
        Self {
            telemetry,
            cache,
            iterators,
            records,
            member,
            following: BusyFlag::default(),
            consumers: Ranked::new(lock_order::CONSUMERS, Vec::new()),
            balancing: Ranked::new(lock_order::BALANCING, ()),
            reserved: Arc::default(),
            division: Division::default(),
            trees: TreeMemory::new(&ledger),
            has_warned_budget_full: AtomicBool::new(false),
            ledger,
            settings,
        }
    }

    /// The charges of all parts.
    pub fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    /// The block cache.
    pub fn cache(&self) -> &Arc<BlockCache> {
        &self.cache
    }

    /// The record cache.
    pub fn records(&self) -> &Arc<RecordCache> {
        self.records.cache()
    }

    /// The part of a budget that this database shares with others.
    pub fn member(&self) -> Option<&Member> {
        self.member.as_ref()
    }

    /// The registry of all scans, which release what idle ones hold.
    pub fn iterators(&self) -> &Arc<IterRegistry> {
        &self.iterators
    }

    /// Adds a consumer, which gives memory up after those that were added before it.
    pub fn register(&self, consumer: Weak<dyn Consumer>) {
        let mut consumers = self.consumers.lock();
        debug_assert!(
            !consumers.iter().any(|other| other.ptr_eq(&consumer)),
            "a consumer is registered twice, so that its memory counts twice"
        );
        consumers.push(consumer);
    }

    /// The consumers that live. Their methods are called without the list's lock.
    fn consumers(&self) -> Vec<Arc<dyn Consumer>> {
        self.consumers.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Bytes that consumers hold.
    fn consumed_bytes(&self) -> u64 {
        self.consumers().iter().map(|consumer| consumer.held()).sum()
    }

    /// Bytes of all that has no share of the divided memory.
    pub fn others_bytes(&self) -> u64 {
        let caches_bytes = self.ledger.bytes(LedgerPart::BlockCache) + self.records.shared_bytes();
        let own_bytes = self.consumed_bytes() + caches_bytes;
        self.ledger.total().saturating_sub(own_bytes)
    }

    /// Chooses which of `tables` stay open; one flag per table, in the same order.
    pub fn tables_to_open(&self, tables: &[&TableMeta]) -> Vec<bool> {
        self.trees.to_open(self.settings.budget_bytes(), tables)
    }

    /// Whether the budget keeps some tables closed, which are opened for one use each time.
    pub fn has_closed_tables(&self) -> bool {
        self.trees.has_closed()
    }

    /// Number and sizes of the tables of the newest trees.
    pub fn tables(&self) -> Tables {
        self.trees.tables()
    }

    /// Charges the memory of these newest views and their trees. An older view that a reader still
    /// holds is not counted: it shares nearly everything with the newest one. The range tombstones
    /// of a run have a charge of their own, which the run holds.
    pub fn charge_trees(&self, views: &[Arc<View>]) {
        let _events = hold_events();
        let bytes = views.iter().map(|view| view.metadata_bytes() as u64).sum();
        self.charge(&mut self.trees.charge(), bytes);
        for run in views.iter().flat_map(|view| view.plans()).map(|plan| &plan.run) {
            let Some(bytes) = run.uncharged_bytes_max() else { continue };
            let mut charge = Charge::new(&self.ledger, LedgerPart::TableMeta, 0);
            self.charge(&mut charge, bytes);
            run.take_charge(charge);
        }
        let warning = self.trees.changed(self.settings.budget_bytes(), views);
        warning.into_iter().for_each(|warning| self.telemetry.warn(warning));
    }
}
