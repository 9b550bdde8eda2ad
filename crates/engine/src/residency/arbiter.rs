//! The memory arbiter: division of memory between filters and indexes, the block cache, and the
//! write buffer.
//!
//! Once a second, the arbiter compares for each consumer the saving of one step more and the saving
//! of its last step, in expected nanoseconds per second and byte. Filters and indexes are valued by
//! their plan, the block cache by its ghost entries (misses that a larger cache would not have
//! had), the write buffer by the compaction work that a larger one spares.
//! [`shamba_model::arbiter`] decides which consumer gives memory to which. This module gathers the
//! figures and keeps the shares. The write buffer takes part once a minute, because its value shows
//! only in whole trees; in between its share is constant.
//!
//! The shares are *limits*. The cache also uses what the others leave of theirs, and memtables take
//! memory only while they hold entries. Level capacities follow the design's buffer, or the largest
//! one that the budget has room for, whatever the arbiter decides; so it cannot reshape the tree.
//!
//! Not here: which modules and partitions are resident ([`super`]).

use std::sync::atomic::Ordering;

use shamba_model::arbiter::{ArbiterRules, Consumer, moves};
use shamba_model::value::{Prices, WriteBuffer};
use shamba_table::Residency;

use super::{PlanPrices, ResidencyState};
use crate::core::Core;

/// One step is this part of the budget (1/32).
const STEP_PART: u64 = 32;
/// Minimum part of the budget (1/256) for the cache, which scans and flushes need.
const CACHE_FLOOR_PART: u64 = 256;
/// Cost of moving a byte: reading one in and evicting another.
const MOVING_NS_PER_BYTE: f64 = 1.0;
pub(super) const PAYBACK_SECONDS: f64 = 30.0;
/// Relative difference below which two values count as equal.
const MARGIN: f64 = 0.25;
/// Windows between two decisions about the write buffer.
const BUFFER_WINDOWS: u64 = 60;
/// Bounds of the write buffer: a quarter of the configured size, and twice that size.
pub(super) const BUFFER_MIN_PART: u64 = 4;
pub(super) const BUFFER_MAX_TIMES: u64 = 2;
/// Cost of writing a page in addition to reading it. Both are copies to and from the system's page
/// cache, with one sync for many.
const WRITE_NS: f64 = 2_000.0;
const PAGE_BYTES: f64 = 4096.0;

/// State that the arbiter keeps from window to window.
#[derive(Default)]
pub(super) struct Arbiter {
    last: Option<[Consumer; 3]>,
    windows: u64,
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

    /// Whether memory that only keeps dormant filters is worth a step to the cache. In the last two
    /// windows, the saving within the payback time must exceed the cost of moving a byte.
    pub(super) fn cache_has_use_for_more(&self) -> bool {
        self.cache_gains_per_byte.iter().all(|gain| gain * PAYBACK_SECONDS > MOVING_NS_PER_BYTE)
    }
}

/// Measurements of a window.
#[derive(Clone, Copy, Default, Debug)]
struct Measured {
    seconds: f64,
    read_ns: f64,
    /// Misses that a cache larger by `ghost_bytes` would not have had.
    ghost_hits: u64,
    ghost_bytes: u64,
    /// Bytes flushed into the tree.
    written_bytes: u64,
}

/// Memory of each consumer.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Holdings {
    budget_bytes: u64,
    pool_bytes: u64,
    pub(super) cache_bytes: u64,
    /// Maximum size of the cache.
    cache_bytes_max: u64,
    memtable_bytes: u64,
    /// The configured memtable size.
    memtable_design_bytes: u64,
}

/// The cache's gain per byte.
fn cache_gain(measured: &Measured) -> f64 {
    let rate = measured.ghost_hits as f64 / measured.seconds.max(1e-3);
    rate * measured.read_ns / measured.ghost_bytes.max(1) as f64
}

/// Filters and indexes, the cache, and the write buffer as consumers of the arbiter.
fn consumers(
    holdings: &Holdings,
    plan: &PlanPrices,
    measured: &Measured,
    buffer: WriteBuffer,
) -> [Consumer; 3] {
    let step_bytes = holdings.budget_bytes / STEP_PART;
    let pool = Consumer {
        bytes: holdings.pool_bytes,
        floor_bytes: 0,
        reserved_bytes: 0,
        bytes_max: plan.useful_bytes.max(holdings.pool_bytes),
        gain_per_byte: plan.gain_per_byte,
        // Bytes that are only kept would go first, and they save nothing.
        loss_per_byte: plan.loss_per_byte
            * (1.0 - plan.kept_bytes as f64 / step_bytes.max(1) as f64).max(0.0),
    };
    let gain_per_byte = cache_gain(measured);
    let floor_bytes = holdings.budget_bytes / CACHE_FLOOR_PART;
    let cache = Consumer {
        bytes: holdings.cache_bytes,
        floor_bytes,
        reserved_bytes: 0,
        bytes_max: holdings.cache_bytes_max.max(floor_bytes),
        gain_per_byte,
        // The next frames to be evicted are worth hardly more than the last ones.
        loss_per_byte: gain_per_byte,
    };
    let bytes_min = holdings.memtable_design_bytes / BUFFER_MIN_PART;
    let write_buffer = Consumer {
        bytes: holdings.memtable_bytes,
        floor_bytes: bytes_min,
        reserved_bytes: 0,
        bytes_max: (holdings.memtable_design_bytes * BUFFER_MAX_TIMES).max(bytes_min),
        gain_per_byte: buffer.gain_per_byte(holdings.memtable_bytes, step_bytes),
        loss_per_byte: buffer.loss_per_byte(holdings.memtable_bytes, step_bytes),
    };
    [pool, cache, write_buffer]
}

/// The consumers with the write buffer fixed: it neither gives nor takes memory.
fn standing_still(mut consumers: [Consumer; 3]) -> [Consumer; 3] {
    let [_, _, buffer] = &mut consumers;
    (buffer.reserved_bytes, buffer.bytes_max) = (buffer.bytes, buffer.bytes.max(buffer.floor_bytes));
    consumers
}

/// Bytes of the cache and the write buffer after this window; the pool has the remainder.
fn divided(
    holdings: &Holdings,
    last: Option<[Consumer; 3]>,
    now: [Consumer; 3],
) -> Result<(u64, u64), String> {
    let rules = ArbiterRules {
        step_bytes: (holdings.budget_bytes / STEP_PART).max(1),
        moving_ns_per_byte: MOVING_NS_PER_BYTE,
        payback_seconds: PAYBACK_SECONDS,
        margin: MARGIN,
    };
    let mut bytes = [holdings.pool_bytes, holdings.cache_bytes, holdings.memtable_bytes];
    for moved in moves(&rules, last.as_ref().map(|last| &last[..]), &now)? {
        if let Some(from) = bytes.get_mut(moved.from) {
            *from = from.saturating_sub(moved.bytes);
        }
        if let Some(to) = bytes.get_mut(moved.to) {
            *to += moved.bytes;
        }
    }
    let [_, cache_bytes, memtable_bytes] = bytes;
    Ok((cache_bytes, memtable_bytes))
}

impl Core {
    /// Ends a window: moves a step of memory to a consumer that saves more with it, if there is
    /// one.
    pub(super) fn arbitrate(&self, now_us: u64) {
        let Some(mut state) = self.residency.try_state() else { return };
        let (measured, is_first) = self.measure(&mut state, now_us);
        let before = state.arbiter.cache_gain_per_byte();
        state.arbiter.cache_gains_per_byte = [cache_gain(&measured), before];
        if is_first || self.settings.filter_residency != Residency::Budgeted {
            return;
        }
        let holdings = self.holdings();
        let Ok(buffer) = self.write_buffer_worth(&measured) else { return };
        state.arbiter.windows += 1;
        let plan = self.plan_prices();
        let mut now = consumers(&holdings, &plan, &measured, buffer);
        let weighs_buffer = state.arbiter.windows % BUFFER_WINDOWS == 0 && !self.lifecycle.is_read_only();
        if !weighs_buffer {
            now = standing_still(now);
        }
        match divided(&holdings, state.arbiter.last, now) {
            Ok((cache_bytes, memtable_bytes)) => {
                // Only a share that moved: others may leave less memory than the cache's share for
                // a while, which must not change the share.
                if cache_bytes != holdings.cache_bytes {
                    self.residency.cache_bytes.store(cache_bytes.max(1), Ordering::Relaxed);
                }
                if memtable_bytes != holdings.memtable_bytes {
                    self.residency.memtable_bytes.store(memtable_bytes, Ordering::Relaxed);
                }
            }
            Err(detail) => self.telemetry.warn(format!("dividing the memory budget failed: {detail}")),
        }
        // The next window decides about the write buffer and needs its value in both windows.
        let is_before = (state.arbiter.windows + 1) % BUFFER_WINDOWS == 0;
        state.arbiter.last =
            Some(if is_before { consumers(&holdings, &plan, &measured, buffer) } else { now });
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

    pub(super) fn holdings(&self) -> Holdings {
        let pool_bytes = self.pool_bytes();
        Holdings {
            budget_bytes: self.settings.memory_budget_bytes,
            pool_bytes,
            // From the same sum as the pool. Memory that others took recently belongs to neither,
            // or the cache would be given it once a window.
            cache_bytes: self.shared_lately_bytes().saturating_sub(pool_bytes),
            cache_bytes_max: self.settings.cache_bytes_max.unwrap_or(u64::MAX),
            memtable_bytes: self.memtable_limit_bytes(),
            memtable_design_bytes: self.settings.memtable_bytes(),
        }
    }

    fn write_buffer_worth(&self, measured: &Measured) -> Result<WriteBuffer, String> {
        let prices = Prices {
            read_ns: measured.read_ns,
            write_ns: WRITE_NS,
            search_cpu_ns: 0.0,
            probe_ns: 0.0,
            every_search_reads: false,
        };
        let pages_per_second = measured.written_bytes as f64 / PAGE_BYTES / measured.seconds.max(1e-3);
        // One entry per page, because pages are counted.
        WriteBuffer::new(&self.settings.live.get().design, &prices, pages_per_second, 1.0, 0.0, 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: u64 = 64 << 20;
    /// Filters and indexes have as much as the cache.
    const EVEN: Holdings = Holdings {
        budget_bytes: BUDGET,
        pool_bytes: 24 << 20,
        cache_bytes: 24 << 20,
        cache_bytes_max: u64::MAX,
        memtable_bytes: 8 << 20,
        memtable_design_bytes: 8 << 20,
    };

    fn design() -> shamba_model::Design {
        shamba_model::Design::new(shamba_model::MergePolicy::Leveling, 10.0, 8 << 20, 10.0)
    }

    fn buffer(pages_per_second: f64) -> WriteBuffer {
        let prices = Prices { write_ns: WRITE_NS, ..Prices::COUNTING_IOS };
        WriteBuffer::new(&design(), &prices, pages_per_second, 1.0, 0.0, 0.0).unwrap()
    }

    /// Runs windows in which the pool is worth `pool(bytes)` per byte and the cache `cache(bytes)`.
    fn run(pool: impl Fn(u64) -> f64, cache: impl Fn(u64) -> f64, windows: usize) -> Holdings {
        let mut holdings = EVEN;
        let (mut last, all) = (None, holdings.pool_bytes + holdings.cache_bytes);
        for _ in 0..windows {
            let plan = PlanPrices {
                gain_per_byte: pool(holdings.pool_bytes),
                loss_per_byte: pool(holdings.pool_bytes),
                useful_bytes: u64::MAX / 2,
                ..PlanPrices::default()
            };
            let measured = Measured {
                seconds: 1.0,
                read_ns: 1.0,
                ghost_hits: (cache(holdings.cache_bytes) * 1e6) as u64,
                ghost_bytes: 1_000_000,
                written_bytes: 0,
            };
            let now = standing_still(consumers(&holdings, &plan, &measured, buffer(0.0)));
            let (cache_bytes, memtable_bytes) = divided(&holdings, last, now).unwrap();
            assert_eq!(memtable_bytes, holdings.memtable_bytes, "it stands still");
            last = Some(now);
            holdings.cache_bytes = cache_bytes;
            holdings.pool_bytes = all - cache_bytes;
        }
        holdings
    }

    #[test]
    fn memory_goes_where_it_saves_more_and_rests_where_both_are_worth_the_same() {
        // Worth 1/bytes each, the pool three times as much: it gets three quarters.
        let end = run(|bytes| 3e8 / bytes as f64, |bytes| 1e8 / bytes as f64, 200);
        let share = end.pool_bytes as f64 / (end.pool_bytes + end.cache_bytes) as f64;
        assert!((0.6..0.85).contains(&share), "{share}");
        // The cache has no misses: the pool gets all but the floor.
        let end = run(|_| 1.0, |_| 0.0, 200);
        assert!(end.cache_bytes <= BUDGET / CACHE_FLOOR_PART + BUDGET / STEP_PART);
        // Every useful piece is resident: the cache gets the remainder.
        let end = run(|_| 0.0, |_| 1.0, 200);
        assert!(end.pool_bytes <= BUDGET / STEP_PART);
    }

    #[test]
    fn filters_rest_until_the_cache_would_read_as_much_again_as_they_take() {
        let of = |cache_gains_per_byte| Arbiter { cache_gains_per_byte, ..Arbiter::default() };
        // One read of 1,000 ns per additional 4 KiB, once in half a minute, and once in five
        // seconds.
        let [seldom, often] = [30.0, 5.0].map(|seconds| 1_000.0 / 4096.0 / seconds);
        assert!(
            ![[0.0, 0.0], [seldom; 2], [often, seldom], [seldom, often]]
                .iter()
                .any(|gains| of(*gains).cache_has_use_for_more())
        );
        assert!(of([often; 2]).cache_has_use_for_more());
    }

    #[test]
    fn memory_in_which_filters_are_only_kept_is_worth_nothing_to_the_pool() {
        let buffer_after = |kept_bytes| {
            // The cache has nothing to give.
            let mut holdings = Holdings { cache_bytes: BUDGET / CACHE_FLOOR_PART, ..EVEN };
            let plan = PlanPrices {
                loss_per_byte: 1e9,
                useful_bytes: u64::MAX / 2,
                kept_bytes,
                ..PlanPrices::default()
            };
            let measured = Measured { seconds: 1.0, read_ns: 1000.0, ..Measured::default() };
            let mut last = None;
            for _ in 0..10 {
                let now = consumers(&holdings, &plan, &measured, buffer(100_000.0));
                holdings.memtable_bytes = divided(&holdings, last, now).unwrap().1;
                last = Some(now);
            }
            holdings.memtable_bytes
        };
        assert_eq!(buffer_after(0), EVEN.memtable_bytes);
        assert!(buffer_after(BUDGET / STEP_PART) > EVEN.memtable_bytes);
    }

    #[test]
    fn a_cache_takes_no_more_than_it_may_have() {
        let mut holdings = Holdings { cache_bytes_max: 26 << 20, ..EVEN };
        let measured =
            Measured { seconds: 1.0, read_ns: 1e6, ghost_hits: 1_000_000, ghost_bytes: 1, written_bytes: 0 };
        let plan = PlanPrices { useful_bytes: u64::MAX / 2, kept_bytes: 24 << 20, ..PlanPrices::default() };
        let mut last = None;
        for _ in 0..20 {
            let now = standing_still(consumers(&holdings, &plan, &measured, buffer(0.0)));
            holdings.cache_bytes = divided(&holdings, last, now).unwrap().0;
            last = Some(now);
        }
        assert_eq!(holdings.cache_bytes, 26 << 20);
    }

    #[test]
    fn a_little_more_is_noise() {
        let end = run(|_| 1.1, |_| 1.0, 50);
        assert_eq!((end.pool_bytes, end.cache_bytes), (24 << 20, 24 << 20));
    }

    #[test]
    fn the_write_buffer_grows_while_writes_cost_more_than_reads_and_stays_within_bounds() {
        let mut holdings = EVEN;
        let plan = PlanPrices::default();
        let measured = Measured { seconds: 1.0, read_ns: 1000.0, ..Measured::default() };
        let mut last = None;
        for _ in 0..50 {
            let now = consumers(&holdings, &plan, &measured, buffer(100_000.0));
            let (cache_bytes, memtable_bytes) = divided(&holdings, last, now).unwrap();
            (holdings.cache_bytes, holdings.memtable_bytes, last) = (cache_bytes, memtable_bytes, Some(now));
        }
        assert_eq!(holdings.memtable_bytes, 16 << 20, "twice what the settings say, and no more");
        // Reads need the memory more.
        let plan = PlanPrices { gain_per_byte: 1e6, loss_per_byte: 1e6, useful_bytes: u64::MAX / 2, ..plan };
        for _ in 0..50 {
            let now = consumers(&holdings, &plan, &measured, buffer(1.0));
            let (cache_bytes, memtable_bytes) = divided(&holdings, last, now).unwrap();
            (holdings.cache_bytes, holdings.memtable_bytes, last) = (cache_bytes, memtable_bytes, Some(now));
        }
        assert_eq!(holdings.memtable_bytes, 2 << 20, "a quarter of what the settings say, and no less");
    }
}
