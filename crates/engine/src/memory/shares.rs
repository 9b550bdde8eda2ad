//! The shares: measures the consumers of memory once a window and obeys
//! [`shamba_model::memory::decide`].
//!
//! Filters and indexes are valued by their plan, the block cache by its ghost entries (misses that
//! a larger cache would not have had), the record cache by what it saves or would save
//! ([`super::records`]), the write buffer by the compaction work that a larger one
//! spares. The decision moves memory between them in steps; the write buffer takes part once a
//! minute.
//!
//! The shares are *limits*. The cache also uses what the others leave of theirs, and memtables take
//! memory only while they hold entries. Level capacities follow the design's buffer, or the largest
//! one that the budget has room for, whatever is decided here; so the division cannot reshape the
//! tree.
//!
//! Not here: the arithmetic and its constants ([`shamba_model::memory`]); the capacity of the cache
//! from one charge to the next ([`super::balance`]).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use shamba_model::memory::constants::{CACHE_SMALL_PART, OTHERS_DECAY_PART, WRITTEN_MEMTABLES};
use shamba_model::memory::{self, Inputs, Measured, PlanValue, Shares, Window};
use shamba_model::value::WriteBuffer;
use shamba_table::{LedgerPart, Residency};
use shamba_tree::records::Asked;

use super::MemoryManager;
use super::budget::Report;
use crate::lock_order;
use crate::ranked::Ranked;

/// Index of filters and indexes among the consumers, of the block cache, of the record cache, and
/// of the write buffer.
const CONSUMERS: usize = 0;
const CACHE: usize = 1;
const RECORDS: usize = 2;
const WRITE_BUFFER: usize = 3;

/// The division of memory as it was last decided, and what the next decision depends on.
pub(super) struct Division {
    /// Bytes reserved for the block cache; 0 before the first decision.
    cache_bytes: AtomicU64,
    /// Share of the record cache; 0 before the first decision, and for its floor.
    record_bytes: AtomicU64,
    /// Memtable size limit; 0 for the configured one.
    memtable_bytes: AtomicU64,
    /// Recent peak of the bytes of all but block cache and consumers, with the memory kept free.
    pub(super) others_peak_bytes: AtomicU64,
    /// Bytes flushed in about the last eight windows.
    written_bytes: AtomicU64,
    /// Nothing was written for some windows, so no memory is kept free for a flush or compaction.
    writes_idle: AtomicBool,
    last: Ranked<LastWindow>,
}

impl Default for Division {
    fn default() -> Self {
        Self {
            cache_bytes: AtomicU64::new(0),
            record_bytes: AtomicU64::new(0),
            memtable_bytes: AtomicU64::new(0),
            others_peak_bytes: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
            writes_idle: AtomicBool::new(false),
            last: Ranked::new(lock_order::DIVISION, LastWindow::default()),
        }
    }
}

/// State of the last window.
#[derive(Default)]
struct LastWindow {
    window: Option<Window>,
    ended_us: u64,
    ghost_hits: u64,
    written_bytes: u64,
    /// Of the last window and of the one before.
    cache_gains_per_byte: [f64; 2],
    /// Of all that compete for memory, alike.
    gains_per_byte: [f64; 2],
    /// Bytes written into tables so far.
    built_bytes: u64,
    /// Bytes per second that are written into tables, of about the last eight windows.
    built_bytes_per_second: f64,
    records_asked: Asked,
    /// Time that the record cache saved in the last window.
    records_saved_ns: f64,
}

/// Values of memory in one window, in nanoseconds per second per byte.
struct Values {
    /// Gain of the block cache.
    cache: f64,
    /// Gain and loss of the record cache.
    records: (f64, f64),
    buffer: WriteBuffer,
}

/// A share that was decided; 0 stands for none.
fn decided(share: &AtomicU64) -> Option<u64> {
    Some(share.load(Ordering::Relaxed)).filter(|bytes| *bytes > 0)
}

impl MemoryManager {
    /// Notes the bytes that all but block cache and consumers take or are about to take, with the
    /// memory kept free for flushes and compactions. Running work uses the memory kept free, which
    /// must not be counted twice.
    pub(super) fn note_others_bytes(&self, bytes: u64) {
        let peak_bytes = &self.division.others_peak_bytes;
        if bytes > peak_bytes.load(Ordering::Relaxed) {
            peak_bytes.fetch_max(bytes, Ordering::Relaxed);
        }
    }

    /// Whether nothing was written for some windows.
    pub fn writes_idle(&self) -> bool {
        self.division.writes_idle.load(Ordering::Relaxed)
    }

    /// Notes whether nothing was written for some windows.
    pub fn set_writes_idle(&self, is_idle: bool) {
        self.division.writes_idle.store(is_idle, Ordering::Relaxed);
    }

    /// Size limit at which memtables are sealed.
    pub fn memtable_limit_bytes(&self) -> u64 {
        // Bounded again: a redesign may have come in the middle of a decision about the old design.
        memory::write_buffer_bytes(self.settings.memtable_bytes(), decided(&self.division.memtable_bytes))
    }

    /// Resets the memtable size limit to the configured one, until the next decision.
    pub fn forget_memtable_bytes(&self) {
        self.division.memtable_bytes.store(0, Ordering::Relaxed);
    }

    /// Saving of more block cache memory, in nanoseconds per second per byte, as of the last
    /// window.
    pub fn cache_gain_per_byte(&self) -> f64 {
        self.division.last.lock().cache_gains_per_byte[0]
    }

    /// Saving of more memory where it saves most, in nanoseconds per second per byte: the lesser
    /// one of two windows.
    pub fn gain_per_byte(&self) -> f64 {
        let [now, before] = self.division.last.lock().gains_per_byte;
        now.min(before)
    }

    /// Bytes per second that flushes and compactions write, of about the last eight windows.
    pub fn built_bytes_per_second(&self) -> f64 {
        self.division.last.lock().built_bytes_per_second
    }

    /// Whether memory that only keeps dormant filters is worth a step to the cache.
    pub fn cache_has_use_for_more(&self) -> bool {
        memory::is_cache_worth_moving(self.division.last.lock().cache_gains_per_byte)
    }

    /// Ends a window: moves a step of memory to where it saves more, if that pays. `read_ns` is the
    /// cost of reading a block, in the currency of `plan`, the value of filters and indexes.
    pub fn end_window(&self, now_us: u64, read_ns: f64, plan: &PlanValue) {
        let peak_bytes = self.division.others_peak_bytes.load(Ordering::Relaxed);
        self.division.others_peak_bytes.store(memory::decayed_peak_bytes(peak_bytes), Ordering::Relaxed);
        let (written_bytes, record_bytes) = self.decide_anew(now_us, read_ns, plan);
        if let Some(bytes) = record_bytes.and_then(|bytes| self.records.bytes_for_share(bytes)) {
            self.set_record_bytes(bytes);
        }
        let recent_bytes = memory::decayed_peak_bytes(self.division.written_bytes.load(Ordering::Relaxed));
        self.division.written_bytes.store(recent_bytes.saturating_add(written_bytes), Ordering::Relaxed);
        if let Some(member) = &self.member {
            member.report(self.report(plan));
        }
    }

    /// Measurements of the last window for the division of a shared budget.
    fn report(&self, plan: &PlanValue) -> Report {
        let cache_gain = self.cache_gain_per_byte();
        let is_cache_small = self.cache.capacity_bytes() <= self.settings.budget_bytes() / CACHE_SMALL_PART;
        let memtable_bytes =
            self.settings.live.buffer_bytes().min(self.division.written_bytes.load(Ordering::Relaxed));
        let fixed_bytes: u64 = self.consumers().iter().map(|consumer| consumer.floor()).sum();
        let fixed_bytes = fixed_bytes.saturating_add(self.ledger.bytes(LedgerPart::TableMeta));
        Report {
            held_bytes: self.ledger.total().saturating_add(self.kept_bytes()),
            demand_bytes: memtable_bytes.saturating_mul(WRITTEN_MEMTABLES).saturating_add(fixed_bytes),
            gain_per_byte: cache_gain.max(plan.gain_per_byte),
            loss_per_byte: if is_cache_small {
                plan.loss_per_byte
            } else {
                cache_gain.min(plan.loss_per_byte)
            },
        }
    }

    /// Measures the window and decides. Returns the bytes flushed in it, and the share of the
    /// record cache if there was a decision.
    pub(super) fn decide_anew(&self, now_us: u64, read_ns: f64, plan: &PlanValue) -> (u64, Option<u64>) {
        let mut last = self.division.last.lock();
        let (measured, is_first) = self.measure(&mut last, now_us, read_ns);
        let cache_gain = measured.cache_gain_per_byte();
        last.cache_gains_per_byte = [cache_gain, last.cache_gains_per_byte[0]];
        last.gains_per_byte = [cache_gain.max(plan.gain_per_byte), last.gains_per_byte[0]];
        let written_bytes = measured.written_bytes;
        if is_first || self.settings.filter_residency != Residency::Budgeted {
            return (written_bytes, None);
        }
        let Ok(buffer) = measured.write_buffer(&self.settings.live.get().tree.design) else {
            return (written_bytes, None);
        };
        let saved_ns = std::mem::replace(&mut last.records_saved_ns, measured.records_save_ns());
        if !measured.records.is_sample && saved_ns.max(last.records_saved_ns) < 0.0 {
            self.division.record_bytes.store(0, Ordering::Relaxed);
        }
        let values =
            Values { cache: last.cache_gains_per_byte[0], records: self.record_value(&measured), buffer };
        let competing = self.competing(plan, values);
        let shares = self.decide(&competing, last.window.as_ref());
        // Only shares that moved: others may leave less memory than such a share for a while, which
        // must not change it.
        let moved_shares = [
            (CACHE, &self.division.cache_bytes),
            (RECORDS, &self.division.record_bytes),
            (WRITE_BUFFER, &self.division.memtable_bytes),
        ];
        for (at, share) in moved_shares {
            if let Some(bytes) = shares.moved(at) {
                share.store(bytes.max(1), Ordering::Relaxed);
            }
        }
        let record_bytes = shares.bytes.get(RECORDS).copied().filter(|_| self.records.is_shared());
        last.window = Some(shares.window);
        (written_bytes, record_bytes)
    }

    /// Value of one more byte to the record cache, and of its last one.
    fn record_value(&self, measured: &Measured) -> (f64, f64) {
        let budget_bytes = self.settings.budget_bytes();
        let gain_per_byte = measured.record_gain_per_byte(budget_bytes);
        let held_bytes = self.records.shared_bytes();
        (gain_per_byte, measured.record_loss_per_byte(budget_bytes, held_bytes))
    }

    /// Measurements since the last window; true for the first one.
    fn measure(&self, last: &mut LastWindow, now_us: u64, read_ns: f64) -> (Measured, bool) {
        let (ghost_hits, ghost_bytes) = self.cache.ghost_hits();
        let written_bytes = self.telemetry.work().bytes_flushed.load(Ordering::Relaxed);
        let measured = Measured {
            seconds: now_us.saturating_sub(last.ended_us) as f64 / 1e6,
            read_ns,
            ghost_hits: ghost_hits.saturating_sub(last.ghost_hits),
            ghost_bytes,
            written_bytes: written_bytes.saturating_sub(last.written_bytes),
            records: self.records.lookups(&mut last.records_asked),
        };
        let is_first = last.ended_us == 0;
        let work = self.telemetry.work();
        let built_bytes = work.bytes_compacted.load(Ordering::Relaxed).saturating_add(written_bytes);
        let built = built_bytes.saturating_sub(std::mem::replace(&mut last.built_bytes, built_bytes));
        let per_second = built as f64 / measured.seconds.max(1e-3);
        last.built_bytes_per_second += (per_second - last.built_bytes_per_second) / OTHERS_DECAY_PART as f64;
        (last.ended_us, last.ghost_hits, last.written_bytes) = (now_us, ghost_hits, written_bytes);
        (measured, is_first)
    }

    /// The consumers, in the order of their indexes.
    fn competing(&self, plan: &PlanValue, values: Values) -> [memory::Consumer; 4] {
        let (settings, budget_bytes) = (&self.settings, self.settings.budget_bytes());
        let floor_bytes = self.consumers().iter().map(|consumer| consumer.floor()).sum();
        let consumers_max = settings.resident_bytes_max.unwrap_or(u64::MAX);
        [
            memory::filters_and_indexes(budget_bytes, plan, floor_bytes, consumers_max),
            memory::block_cache(
                budget_bytes,
                decided(&self.division.cache_bytes),
                settings.cache_bytes_max.unwrap_or(u64::MAX),
                values.cache,
            ),
            memory::record_cache(
                budget_bytes,
                decided(&self.division.record_bytes),
                settings.record_share_bytes_max(),
                values.records,
            ),
            memory::write_buffer(
                budget_bytes,
                decided(&self.division.memtable_bytes),
                settings.memtable_bytes(),
                values.buffer,
                settings.read_only,
            ),
        ]
    }

    /// The shares, with room for the recent peak of what others hold.
    fn decide(&self, competing: &[memory::Consumer], last: Option<&Window>) -> Shares {
        let others_bytes = self.others_bytes() + self.kept_bytes();
        let peak_bytes = self.division.others_peak_bytes.load(Ordering::Relaxed);
        let (budget_bytes, others_bytes) = (self.settings.budget_bytes(), others_bytes.max(peak_bytes));
        let shares = memory::decide(&Inputs { budget_bytes, others_bytes, consumers: competing, last });
        debug_assert!(
            shares.bytes[..WRITE_BUFFER].iter().sum::<u64>()
                <= memory::shared_bytes(budget_bytes, others_bytes),
            "shares exceed what is shared: {shares:?}"
        );
        shares
    }

    /// Present shares of the consumers, and of the block cache, in bytes. Values decide only on
    /// moves, so none are needed.
    pub(super) fn shares_bytes(&self) -> (u64, u64) {
        let worthless = Values { cache: 0.0, records: (0.0, 0.0), buffer: WriteBuffer::WORTHLESS };
        let competing = self.competing(&PlanValue::default(), worthless);
        let shares = self.decide(&competing, None);
        let bytes_of = |at: usize| shares.bytes.get(at).copied().unwrap_or_default();
        (bytes_of(CONSUMERS), bytes_of(CACHE))
    }

    /// Limit of what consumers hold together, in bytes.
    pub fn consumers_bytes_max(&self) -> u64 {
        self.shares_bytes().0
    }

    /// Bytes that consumers may add to what they hold.
    pub fn consumers_room_bytes(&self) -> u64 {
        self.consumers_bytes_max().saturating_sub(self.consumed_bytes())
    }
}
