//! The memory arbiter: measures the consumers of memory once a window and obeys
//! [`shamba_model::memory::decide`].
//!
//! Filters and indexes are valued by their plan, the block cache by its ghost entries (misses that
//! a larger cache would not have had), the write buffer by the compaction work that a larger one
//! spares. The decision moves memory between them in steps; the write buffer takes part once a
//! minute.
//!
//! The shares are *limits*. The cache also uses what the others leave of theirs, and memtables take
//! memory only while they hold entries. Level capacities follow the design's buffer, or the largest
//! one that the budget has room for, whatever the arbiter decides; so it cannot reshape the tree.
//!
//! Not here: the arithmetic and its constants ([`shamba_model::memory`]); which modules and
//! partitions are resident ([`super`]).

use std::sync::atomic::{AtomicU64, Ordering};

use shamba_model::memory::{self, Consumer, Inputs, Measured, Shares, Window};
use shamba_model::value::WriteBuffer;
use shamba_table::Residency;

use super::ResidencyState;
use crate::core::Core;

/// Index of filters and indexes among the consumers, of the block cache, and of the write buffer.
const POOL: usize = 0;
const CACHE: usize = 1;
const WRITE_BUFFER: usize = 2;

/// State that the arbiter keeps from window to window.
#[derive(Default)]
pub(super) struct Arbiter {
    last: Option<Window>,
    last_us: u64,
    ghost_hits: u64,
    written_bytes: u64,
    /// Of the last window and of the one before.
    cache_gains_per_byte: [f64; 2],
}

impl Arbiter {
    /// Saving of more block cache memory, in nanoseconds per second per byte, as of the last
    /// window.
    pub(super) fn cache_gain_per_byte(&self) -> f64 {
        self.cache_gains_per_byte[0]
    }

    /// Whether memory that only keeps dormant filters is worth a step to the cache.
    pub(super) fn cache_has_use_for_more(&self) -> bool {
        memory::is_cache_worth_moving(self.cache_gains_per_byte)
    }
}

/// A share that was decided; 0 stands for none.
pub(super) fn decided(share: &AtomicU64) -> Option<u64> {
    Some(share.load(Ordering::Relaxed)).filter(|bytes| *bytes > 0)
}

impl Core {
    /// Ends a window: moves a step of memory to a consumer that saves more with it, if there is
    /// one.
    pub(super) fn arbitrate(&self, now_us: u64) {
        let Some(mut state) = self.residency.try_state() else { return };
        let (measured, is_first) = self.measure(&mut state, now_us);
        let arbiter = &mut state.arbiter;
        arbiter.cache_gains_per_byte = [measured.cache_gain_per_byte(), arbiter.cache_gain_per_byte()];
        if is_first || self.settings.filter_residency != Residency::Budgeted {
            return;
        }
        let Ok(buffer) = measured.write_buffer(&self.settings.live.get().design) else { return };
        let consumers = self.consumers(arbiter.cache_gain_per_byte(), buffer);
        let shares = self.decide(&consumers, arbiter.last.as_ref());
        // Only a share that moved: others may leave less memory than the cache's share for a while,
        // which must not change the share.
        if let Some(bytes) = shares.moved(CACHE) {
            self.residency.cache_bytes.store(bytes.max(1), Ordering::Relaxed);
        }
        if let Some(bytes) = shares.moved(WRITE_BUFFER) {
            self.residency.memtable_bytes.store(bytes, Ordering::Relaxed);
        }
        arbiter.last = Some(shares.window);
    }

    /// Measurements since the last window; true for the first one.
    fn measure(&self, state: &mut ResidencyState, now_us: u64) -> (Measured, bool) {
        let (ghost_hits, ghost_bytes) = self.cache.ghost_hits();
        let written_bytes = self.telemetry.work().bytes_flushed.load(Ordering::Relaxed);
        let arbiter = &mut state.arbiter;
        let measured = Measured {
            seconds: now_us.saturating_sub(arbiter.last_us) as f64 / 1e6,
            // As in the plan of filters and indexes: compared values need the same currency.
            read_ns: super::survey::Prices::of(self).block_ns(),
            ghost_hits: ghost_hits.saturating_sub(arbiter.ghost_hits),
            ghost_bytes,
            written_bytes: written_bytes.saturating_sub(arbiter.written_bytes),
        };
        let is_first = arbiter.last_us == 0;
        (arbiter.last_us, arbiter.ghost_hits, arbiter.written_bytes) = (now_us, ghost_hits, written_bytes);
        (measured, is_first)
    }

    /// Filters and indexes, the block cache, and the write buffer.
    fn consumers(&self, cache_gain_per_byte: f64, buffer: WriteBuffer) -> [Consumer; 3] {
        let (settings, budget_bytes) = (&self.settings, self.settings.memory_budget_bytes);
        [
            memory::filters_and_indexes(
                budget_bytes,
                &self.plan_prices().value,
                self.residency.fixed_bytes.load(Ordering::Relaxed),
                settings.resident_bytes_max.unwrap_or(u64::MAX),
            ),
            memory::block_cache(
                budget_bytes,
                decided(&self.residency.cache_bytes),
                settings.cache_bytes_max.unwrap_or(u64::MAX),
                cache_gain_per_byte,
            ),
            memory::write_buffer(
                budget_bytes,
                decided(&self.residency.memtable_bytes),
                settings.memtable_bytes(),
                buffer,
                self.lifecycle.is_read_only(),
            ),
        ]
    }

    /// The shares of the consumers, with room for the recent peak of what others hold.
    fn decide(&self, consumers: &[Consumer], last: Option<&Window>) -> Shares {
        let others_bytes = self.others_bytes() + self.kept_bytes();
        let peak_bytes = self.residency.others_peak_bytes.load(Ordering::Relaxed);
        memory::decide(&Inputs {
            budget_bytes: self.settings.memory_budget_bytes,
            others_bytes: others_bytes.max(peak_bytes),
            consumers,
            last,
        })
    }

    /// Present shares of filters and indexes, and of the block cache, in bytes.
    pub(super) fn pool_and_cache_bytes(&self) -> (u64, u64) {
        let consumers = self.consumers(0.0, WriteBuffer::WORTHLESS);
        let shares = self.decide(&consumers, None);
        let bytes_of = |at: usize| shares.bytes.get(at).copied().unwrap_or_default();
        (bytes_of(POOL), bytes_of(CACHE))
    }
}
