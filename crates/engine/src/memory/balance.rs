//! Charges, and the capacity of the block cache that follows from them.
//!
//! The cache has what the others leave. It shrinks before something else is charged, and grows when
//! memory was freed. These things happen in this order when memory is missing: the cache shrinks,
//! the record cache and the consumers shrink, idle iterators release the blocks that they pin.
//!
//! A charge always succeeds ([`MemoryManager::charge`]): its callers, the writer among them, cannot
//! go on without the memory. Growth that may be left undone asks for room first
//! ([`MemoryManager::consumers_room_bytes`]).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use shamba_model::memory;
use shamba_table::{BlockCache, Charge, Ledger, LedgerPart, Residency};

use super::MemoryManager;
use super::budget::Member;
use super::reserve::{Reservation, Reservations, Room};
use crate::options::settings::Settings;
use crate::telemetry::hold_events;

/// The block cache of an open with these settings.
pub(super) fn new_cache(
    settings: &Settings,
    member: Option<&Member>,
    ledger: &Arc<Ledger>,
    sampled_blocks: usize,
) -> BlockCache {
    let cache_bytes = |budget_bytes, kept_bytes| {
        memory::shared_bytes(budget_bytes, kept_bytes).min(settings.cache_bytes_max.unwrap_or(u64::MAX))
    };
    let budget_bytes = settings.budget_bytes();
    let budget_bytes_max = member.map_or(budget_bytes, Member::total_bytes);
    // Created for the maximum capacity, then reduced to the initial one.
    let cache = BlockCache::new(cache_bytes(budget_bytes_max, 0), Arc::clone(ledger));
    let others_bytes = ledger.total(); // The record cache.
    cache.set_capacity_bytes(cache_bytes(budget_bytes, settings.work_bytes().saturating_add(others_bytes)));
    let cache = cache.observing_reuse(sampled_blocks);
    let cache = if settings.cache_units().is_any_whole() { cache.admitting_any_size() } else { cache };
    if settings.count_ios { cache.admitting_all() } else { cache }
}

impl MemoryManager {
    /// Charges `bytes` in place of what `charge` held, after the cache and the consumers have made
    /// room. Never fails and waits for no I/O; beyond the budget if nobody has memory to give.
    pub fn charge(&self, charge: &mut Charge, bytes: u64) {
        let _events = hold_events();
        let _balancing = self.balancing.lock();
        self.balance_for(bytes.saturating_sub(charge.bytes()));
        charge.resize(bytes);
        debug_assert_eq!(charge.bytes(), bytes, "a charge is granted whole");
    }

    /// Makes room for `bytes` that the caller charges before it drops the reservation.
    pub fn make_room(&self, bytes: u64) -> Reservation {
        let reservation = Reservations::coming(&self.reserved, bytes);
        self.balance();
        reservation
    }

    /// Reserves `bytes` for a job; `None` if it must not begin now ([`super::reserve`]). Frees
    /// nothing yet: the job balances memory when it begins.
    pub fn reserve(&self, bytes: u64) -> Option<Reservation> {
        Reservations::take(&self.reserved, bytes, self.room())
    }

    /// Raises the reservation of a job to `bytes`; false if there is no memory for that.
    pub fn extend(&self, reservation: &mut Reservation, bytes: u64) -> bool {
        bytes <= reservation.bytes() || reservation.extend(bytes, self.room())
    }

    /// Memory that a compaction reserves whose tables have digests of `building_bytes`.
    pub fn job_bytes(&self, building_bytes: u64) -> u64 {
        memory::job_bytes(self.settings.budget_bytes(), self.settings.work_bytes(), building_bytes)
    }

    /// Limits of what jobs reserve: all that is not held by others, or that can be evicted.
    fn room(&self) -> Room {
        let work_bytes = self.settings.work_bytes();
        let evicted_bytes: u64 = self.consumers().iter().map(|of| of.held().saturating_sub(of.floor())).sum();
        let cached_bytes = self.ledger.bytes(LedgerPart::BlockCache);
        let at_work_bytes = self.ledger.bytes(LedgerPart::WriteBuffers);
        let fixed_bytes = self.ledger.total().saturating_add(self.reserved.coming_bytes());
        let fixed_bytes = fixed_bytes.saturating_sub(evicted_bytes + cached_bytes + at_work_bytes);
        Room {
            limit_bytes: memory::jobs_bytes_max(self.settings.budget_bytes(), work_bytes, fixed_bytes),
            alone_bytes: memory::job_bytes_min(work_bytes),
        }
    }

    /// Gives the block cache the memory that the other parts leave.
    pub fn balance(&self) {
        let _events = hold_events();
        let _balancing = self.balancing.lock();
        self.balance_for(0);
    }

    /// Follows the target of a shared budget: evicts down to it and returns what is no longer held,
    /// or takes what is free. Returns whether the memtables must be flushed before the database
    /// holds less than its target.
    pub fn follow_budget(&self) -> bool {
        let Some(member) = &self.member else { return false };
        let Some(_following) = self.following.begin() else { return false };
        let (target_bytes, granted_bytes) = (member.target_bytes(), member.granted_bytes());
        if target_bytes >= granted_bytes {
            self.set_budget_bytes(member.grow());
            return false;
        }
        self.set_budget_bytes(target_bytes);
        let held_bytes = self.ledger.total().saturating_add(self.kept_bytes());
        member.shrink_to(held_bytes.max(target_bytes));
        debug_assert!(
            self.settings.budget_bytes() <= member.granted_bytes().max(1),
            "a database may hold {} bytes and was granted {}",
            self.settings.budget_bytes(),
            member.granted_bytes()
        );
        let memtables_bytes = self.ledger.bytes(LedgerPart::Memtables);
        held_bytes > target_bytes && memtables_bytes > memory::memtable_bytes_max(target_bytes) / 2
    }

    /// Sets the limit of what this database holds, and evicts down to it.
    fn set_budget_bytes(&self, bytes: u64) {
        if self.settings.budget_bytes() != bytes {
            self.settings.live.set_budget_bytes(bytes);
            self.ledger.limit(LedgerPart::Iterators, self.settings.iterator_bytes() / 2);
            self.iterators.set_limit_bytes(self.settings.iterator_bytes());
            self.set_record_bytes(self.records.fitting_bytes());
        }
        // Also without a change: consumers may not have been able to shrink before.
        self.balance();
    }

    /// Sets the capacity of the record cache, after the others have made room.
    pub(super) fn set_record_bytes(&self, bytes: u64) {
        let _room = self.make_room(bytes.saturating_sub(self.records.capacity_bytes()));
        self.records.set_capacity(bytes);
    }

    /// Memory kept free for a flush and for compactions, less what running ones hold already.
    pub fn kept_bytes(&self) -> u64 {
        if self.settings.read_only {
            return 0;
        }
        // Budgeted filters and indexes can be evicted when the memory is needed. While writes come
        // it is needed all the time.
        let is_lent = self.settings.filter_residency == Residency::Budgeted && self.writes_idle();
        let at_work_bytes = self.ledger.bytes(LedgerPart::WriteBuffers);
        let reserved_bytes = self.reserved.jobs_bytes();
        memory::kept_free_bytes(self.settings.work_bytes(), reserved_bytes, at_work_bytes, is_lent)
    }

    /// Whether the block cache may grow: it has no configured maximum, or is below it by more than
    /// the slack of its size.
    pub fn may_cache_grow(&self) -> bool {
        let slack_bytes = memory::slack_bytes(self.settings.budget_bytes());
        self.settings.cache_bytes_max.is_none_or(|bytes| self.cache.capacity_bytes() + slack_bytes < bytes)
    }

    fn balance_for(&self, coming_bytes: u64) {
        let budget_bytes = self.settings.budget_bytes();
        let cached_bytes = self.ledger.bytes(LedgerPart::BlockCache);
        let iterators_ahead_bytes =
            self.iterators.room_wanted_bytes().saturating_sub(self.ledger.bytes(LedgerPart::Iterators));
        let coming_bytes =
            coming_bytes.saturating_add(iterators_ahead_bytes).saturating_add(self.reserved.coming_bytes());
        let other_bytes = self.ledger.total().saturating_sub(cached_bytes).saturating_add(coming_bytes);
        let kept_bytes = self.kept_bytes();
        let shared_bytes = self.consumed_bytes() + self.records.shared_bytes();
        self.note_others_bytes(other_bytes.saturating_sub(shared_bytes) + kept_bytes);
        let share_of =
            |other_bytes: u64| memory::shared_bytes(budget_bytes, other_bytes.saturating_add(kept_bytes));
        let mut share_bytes = share_of(other_bytes);
        let missing_bytes = memory::missing_bytes(budget_bytes, other_bytes.saturating_add(kept_bytes));
        let must_shrink = share_bytes == 0 && missing_bytes > 0;
        if must_shrink && (self.records.shrink(missing_bytes) | self.shrink_consumers(missing_bytes)) {
            let other_bytes = self.ledger.total().saturating_sub(cached_bytes).saturating_add(coming_bytes);
            share_bytes = share_of(other_bytes);
        }
        let is_used_up = share_bytes == 0;
        let share_bytes = share_bytes.min(self.settings.cache_bytes_max.unwrap_or(u64::MAX));
        let capacity_bytes = self.cache.capacity_bytes();
        if memory::is_capacity_changed(budget_bytes, capacity_bytes, share_bytes) {
            self.cache.set_capacity_bytes(share_bytes);
            // Pinned blocks cannot be evicted: idle iterators are asked to release theirs.
            if self.cache.bytes() > share_bytes.saturating_add(memory::slack_bytes(budget_bytes)) {
                self.iterators.revoke_all();
                self.cache.set_capacity_bytes(share_bytes);
            }
        }
        // Once for an open: near the limit the state changes back and forth.
        if is_used_up && capacity_bytes > 0 && !self.has_warned_budget_full.swap(true, Ordering::Relaxed) {
            self.telemetry.warn(format!(
                "the memory budget of {budget_bytes} bytes is used up by {other_bytes} bytes outside the block \
                 cache: blocks are not cached"
            ));
        }
    }

    /// Lets the consumers free `missing_bytes`, and a little more, so that this is rare. False if
    /// none of them has memory that it can give up.
    fn shrink_consumers(&self, missing_bytes: u64) -> bool {
        let mut left_bytes = memory::shed_bytes(self.settings.budget_bytes(), missing_bytes);
        let mut could_shrink = false;
        for consumer in self.consumers() {
            let held_bytes = consumer.held();
            if left_bytes > 0 && held_bytes > consumer.floor() {
                could_shrink = true;
                let reached_bytes = consumer.shrink(held_bytes.saturating_sub(left_bytes));
                left_bytes = left_bytes.saturating_sub(held_bytes.saturating_sub(reached_bytes));
            }
        }
        could_shrink
    }
}
