//! The value of memory to each consumer of the engine: filters and indexes, block cache, record
//! cache, write buffer.
//!
//! Each function turns measurements into a [`Consumer`]. All values are in one currency, expected
//! nanoseconds saved per second and byte.
//!
//! Not here: measuring (package `shamba`); the order of pieces within filters and indexes
//! ([`crate::joint`]).

use super::constants::{
    BUFFER_MAX_TIMES, BUFFER_MIN_PART, BUFFER_WINDOWS, CACHE_FIRST_PART, CACHE_FLOOR_PART,
    MOVING_NS_PER_BYTE, PAYBACK_SECONDS, RECORD_ASK_NS, RECORD_SAVED_NS, RECORDS_COVER, RECORDS_FLOOR_BYTES,
    RECORDS_FLOOR_PART, WRITE_NS,
};
use super::{Consumer, Role, step_bytes};
use crate::design::Design;
use crate::price::PAGE_BYTES;
use crate::value::{Prices, WriteBuffer};

/// Measurements of one window.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Measured {
    /// Length of the window.
    pub seconds: f64,
    /// Cost of reading a block, in the currency of the plan of filters and indexes.
    pub read_ns: f64,
    /// Misses that a cache larger by `ghost_bytes` would not have had.
    pub ghost_hits: u64,
    /// Memory for which the cache keeps ghost entries.
    pub ghost_bytes: u64,
    /// Bytes flushed into the tree.
    pub written_bytes: u64,
    /// Lookups that asked the record cache.
    pub records: RecordLookups,
}

/// Lookups that asked the record cache in one window.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct RecordLookups {
    /// All,
    pub asked: u64,
    /// those that a record answered,
    pub hits: u64,
    /// and those that a record would have answered if the cache had been larger by `repeat_bytes`.
    pub repeats: u64,
    /// Reads of table files that the repeats took.
    pub repeat_reads: u64,
    /// Memory for which the cache remembers lookups.
    pub repeat_bytes: u64,
    /// Whether the cache has its floor and covers one key in [`RECORDS_COVER`].
    pub is_sample: bool,
}

impl Measured {
    fn per_second(&self, count: f64) -> f64 {
        // A window may be cut short by the clock; it never counts as shorter than a millisecond.
        count / self.seconds.max(1e-3)
    }

    /// Saving of a larger block cache, in nanoseconds per second per byte.
    pub fn cache_gain_per_byte(&self) -> f64 {
        self.per_second(self.ghost_hits as f64) * self.read_ns / self.ghost_bytes.max(1) as f64
    }

    /// Time that a record saves the lookup that it answers, in nanoseconds. Reads are taken to be
    /// as many as repeats took.
    fn record_saves_ns(&self) -> f64 {
        let reads = self.records.repeat_reads as f64 / self.records.repeats.max(1) as f64;
        RECORD_SAVED_NS + reads * self.read_ns
    }

    /// Time that the record cache saves, less the time of asking it, in nanoseconds per second.
    pub fn records_save_ns(&self) -> f64 {
        let RecordLookups { asked, hits, .. } = self.records;
        self.per_second(hits as f64 * self.record_saves_ns() - asked as f64 * RECORD_ASK_NS)
    }

    /// Saving of a larger record cache, in nanoseconds per second per byte. A sample tells what a
    /// step of memory would save in all, a cache that covers every key what one byte more saves.
    pub fn record_gain_per_byte(&self, budget_bytes: u64) -> f64 {
        if self.records.is_sample {
            let all_ns = self.records_save_ns() * f64::from(RECORDS_COVER);
            return all_ns / step_bytes(budget_bytes) as f64;
        }
        let saved_ns = self.per_second(self.records.repeats as f64) * self.record_saves_ns();
        saved_ns / self.records.repeat_bytes.max(1) as f64
    }

    /// Loss of a smaller record cache, alike. One that would become a sample loses all that it
    /// saves; a larger one loses what it would gain from more.
    pub fn record_loss_per_byte(&self, budget_bytes: u64, held_bytes: u64) -> f64 {
        let gain_per_byte = self.record_gain_per_byte(budget_bytes);
        let is_small = held_bytes < 2 * step_bytes(budget_bytes);
        if is_small {
            gain_per_byte.max(self.records_save_ns() / held_bytes.max(1) as f64)
        } else {
            gain_per_byte
        }
    }

    /// Value of the write buffer of a tree of this design.
    ///
    /// # Errors
    /// A design out of bounds, or a price or a rate that is NaN, infinite or negative.
    pub fn write_buffer(&self, design: &Design) -> Result<WriteBuffer, String> {
        let prices = Prices { read_ns: self.read_ns, write_ns: WRITE_NS };
        let pages_per_second = self.per_second(self.written_bytes as f64 / PAGE_BYTES as f64);
        // One entry per page, because pages are counted.
        WriteBuffer::new(design, &prices, pages_per_second, 1.0, 0.0, 0.0)
    }
}

/// Whether a byte of the cache with these gains (of the last two windows) would repay the cost of
/// moving it: then memory that only keeps dormant filters is worth more to the cache.
pub fn is_cache_worth_moving(gains_per_byte: [f64; 2]) -> bool {
    gains_per_byte.iter().all(|gain| gain * PAYBACK_SECONDS > MOVING_NS_PER_BYTE)
}

/// Value of filters and indexes in their last plan ([`crate::joint::JointPlan`]).
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct PlanValue {
    /// Saving of the next byte, in nanoseconds per second per byte.
    pub gain_per_byte: f64,
    /// Marginal saving of the least valuable resident piece, alike.
    pub loss_per_byte: f64,
    /// Resident bytes that save nothing now: filters kept for a change of the hit rate.
    pub kept_bytes: u64,
    /// Bytes of all pieces that save anything, and those that are resident in any case.
    pub useful_bytes: u64,
}

/// Filters and indexes: they have the memory that the block cache leaves. `fixed_bytes` of them
/// cannot be evicted.
pub fn filters_and_indexes(
    budget_bytes: u64,
    plan: &PlanValue,
    fixed_bytes: u64,
    bytes_max: u64,
) -> Consumer {
    // Bytes that are only kept would go first, and they save nothing.
    let kept_part = plan.kept_bytes as f64 / step_bytes(budget_bytes) as f64;
    Consumer {
        role: Role::Rest,
        share_bytes: None,
        floor_bytes: fixed_bytes,
        bytes_max,
        useful_bytes: plan.useful_bytes,
        every_windows: 1,
        gain_per_byte: plan.gain_per_byte,
        loss_per_byte: plan.loss_per_byte * (1.0 - kept_part).max(0.0),
    }
}

/// The block cache, with its share of the last decision.
pub fn block_cache(
    budget_bytes: u64,
    share_bytes: Option<u64>,
    bytes_max: u64,
    gain_per_byte: f64,
) -> Consumer {
    Consumer {
        role: Role::Share { first_part: CACHE_FIRST_PART },
        share_bytes,
        floor_bytes: budget_bytes / CACHE_FLOOR_PART,
        bytes_max,
        useful_bytes: u64::MAX,
        every_windows: 1,
        gain_per_byte,
        // The next frames to be evicted are taken to be worth what the next ones would be. Where
        // the cache's savings change by more than the margin within a step, memory may return.
        loss_per_byte: gain_per_byte,
    }
}

/// Bytes of a record cache that may have `bytes_max` and is only a sample.
pub fn record_sample_bytes(budget_bytes: u64, bytes_max: u64) -> u64 {
    (budget_bytes / RECORDS_FLOOR_PART).max(RECORDS_FLOOR_BYTES).min(bytes_max)
}

/// The record cache, with its share of the last decision. Gain and loss are below 0 if it costs
/// more than it saves.
pub fn record_cache(
    budget_bytes: u64,
    share_bytes: Option<u64>,
    bytes_max: u64,
    (gain_per_byte, loss_per_byte): (f64, f64),
) -> Consumer {
    let floor_bytes = record_sample_bytes(budget_bytes, bytes_max);
    Consumer {
        role: Role::Share { first_part: u64::MAX },
        share_bytes,
        floor_bytes,
        bytes_max,
        useful_bytes: u64::MAX,
        every_windows: u64::from(bytes_max > floor_bytes),
        gain_per_byte: gain_per_byte.max(0.0),
        loss_per_byte: loss_per_byte.max(0.0),
    }
}

/// The write buffer of a design that asks for `design_bytes`, with its share of the last decision.
/// If it is `fixed`, it neither gives nor takes memory.
pub fn write_buffer(
    budget_bytes: u64,
    share_bytes: Option<u64>,
    design_bytes: u64,
    value: WriteBuffer,
    fixed: bool,
) -> Consumer {
    let step_bytes = step_bytes(budget_bytes);
    let bytes = write_buffer_bytes(design_bytes, share_bytes);
    Consumer {
        role: Role::Limit,
        share_bytes: Some(bytes),
        floor_bytes: design_bytes / BUFFER_MIN_PART,
        bytes_max: design_bytes.saturating_mul(BUFFER_MAX_TIMES),
        useful_bytes: u64::MAX,
        every_windows: if fixed { 0 } else { BUFFER_WINDOWS },
        gain_per_byte: value.gain_per_byte(bytes, step_bytes),
        loss_per_byte: value.loss_per_byte(bytes, step_bytes),
    }
}

/// Size at which memtables are sealed: the share of the last decision, within its bounds under the
/// present design, or the size that the design asks for.
pub fn write_buffer_bytes(design_bytes: u64, share_bytes: Option<u64>) -> u64 {
    let (min, max) = (design_bytes / BUFFER_MIN_PART, design_bytes.saturating_mul(BUFFER_MAX_TIMES));
    share_bytes.map_or(design_bytes, |bytes| bytes.clamp(min, max))
}
