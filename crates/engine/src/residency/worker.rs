//! Decides when to settle residency.
//!
//! It settles once in a window while there are lookups or seeks, soon after an install, and at once
//! when the hit rate differs from the one of the last plan. In a tree of one run, filters are worth
//! much to lookups of absent keys and nothing to others, and a window of a second is a million
//! lookups.
//!
//! Not here: the settlement itself ([`super::settle`]).

use shamba_key::SeqNo;
use shamba_model::memory::constants::{HIT_RATE_CHANGE_MIN, IDLE_WINDOWS, SETTLE_TIME_PART, WINDOW_US};

use super::ResidencyManager;
use super::settle::Progress;
use crate::catalog::Catalog;
use shamba_tree::statistics::LookupWindow;

/// Windows without a write between two searches for stale filters.
const FILTER_CHECK_WINDOWS: u32 = 16;

/// Recent hit rate of a keyspace.
#[derive(Clone, Copy, Debug)]
struct Found {
    /// Hit rate.
    share: f64,
    /// Number of samples.
    samples: f64,
}

/// Whether the hit rate of any keyspace differs from the `planned` one by more than the scatter of
/// its samples. If keyspaces were created or dropped, their install has requested a settlement.
fn hit_rate_changed(planned: &[Found], now: &[Found]) -> bool {
    let far = |(planned, now): (&Found, &Found)| {
        // Two standard deviations of a share, at most.
        let scatter = 1.0 / planned.samples.min(now.samples).max(1.0).sqrt();
        (planned.share - now.share).abs() >= HIT_RATE_CHANGE_MIN.max(scatter)
    };
    planned.len() == now.len() && planned.iter().zip(now).any(far)
}

/// Observations at the last look.
pub(super) struct Observations {
    window_us: u64,
    last_us: u64,
    /// Time that the last settlement took.
    took_us: u64,
    /// The last settlement has more to read.
    has_more: bool,
    /// Lookups and seeks.
    reads: u64,
    /// Data blocks: (read, found in the cache). The next field counts filter slices alike.
    blocks: (u64, u64),
    slices: (u64, u64),
    seq: SeqNo,
    idle_windows: u32,
    /// Hit rates of the last plan.
    planned: Vec<Found>,
}

impl Observations {
    pub fn new(residency: &ResidencyManager, now_us: u64) -> Self {
        Self {
            window_us: now_us,
            last_us: 0,
            took_us: 0,
            has_more: false,
            reads: 0,
            blocks: (0, 0),
            slices: (0, 0),
            seq: residency.reads.visible(),
            idle_windows: 0,
            planned: found_lately(&residency.catalog, now_us),
        }
    }

    /// Settles if it was requested, if the hit rate changed, or at the end of a window; or goes on
    /// with a settlement.
    pub fn look(&mut self, residency: &ResidencyManager, now_us: u64) -> Progress {
        debug_assert!(self.window_us <= now_us, "a window began later than now");
        let is_due = now_us.saturating_sub(self.window_us) >= WINDOW_US;
        let may_settle = now_us.saturating_sub(self.last_us) >= self.took_us * SETTLE_TIME_PART;
        look_for_shifts(&residency.catalog, now_us);
        let found = found_lately(&residency.catalog, now_us);
        let is_wanted = !self.has_more
            && may_settle
            && (residency.take_wanted() || hit_rate_changed(&self.planned, &found));
        if !(is_wanted || is_due || self.has_more) {
            return Progress::Settled;
        }
        if is_due {
            self.end_window(residency, now_us);
        }
        // Without reads no value has changed, but evicted pieces may fit again.
        let reads =
            residency.telemetry.lookups().total().lookups + residency.reads.iterators().walked().ranges;
        let begins = !self.has_more
            && (is_wanted || reads != self.reads || residency.memory.consumers_room_bytes() > 0);
        let before_us = if self.has_more { self.took_us } else { 0 };
        let progress = if begins || self.has_more { residency.settle() } else { Progress::Settled };
        if begins {
            (self.planned, self.reads) = (found, reads);
        }
        self.last_us = residency.clock.now_us();
        self.took_us = before_us + self.last_us.saturating_sub(now_us);
        if progress != Progress::Busy {
            self.has_more = progress == Progress::MoreToRead;
        }
        progress
    }

    fn end_window(&mut self, residency: &ResidencyManager, now_us: u64) {
        self.window_us = now_us;
        let total = residency.telemetry.lookups().total();
        let since = |before: &mut (u64, u64), now: (u64, u64)| {
            let before = std::mem::replace(before, now);
            (now.0.saturating_sub(before.0), now.1.saturating_sub(before.1))
        };
        let (reads, hits) = since(&mut self.blocks, (total.reads().data.count, total.cache_hits));
        residency.rates.note_blocks(reads, hits);
        let (reads, hits) = since(&mut self.slices, (total.reads().filter.count, total.filter_hits));
        residency.rates.note_slices(reads, hits);
        let seq = residency.reads.visible();
        assert!(seq >= self.seq, "entries that were visible are hidden again");
        self.idle_windows = if seq == self.seq { self.idle_windows.saturating_add(1) } else { 0 };
        self.seq = seq;
        residency.memory.set_writes_idle(self.idle_windows >= IDLE_WINDOWS);
        // The same currency as in the plan of filters and indexes.
        let (read_ns, plan) = (residency.prices().block_ns(), residency.plan_prices().value);
        residency.memory.end_window(now_us, read_ns, &plan);
        if self.idle_windows > 0 && self.idle_windows % FILTER_CHECK_WINDOWS == 0 {
            if let Some(hook) = residency.on_idle.get() {
                hook(residency);
            }
        }
    }
}

/// Adjusts the lookup statistics of keyspaces with a workload shift. Not during an install: its new
/// tables have figures already and are in no tree yet.
fn look_for_shifts(catalog: &Catalog, now_us: u64) {
    for keyspace in catalog.keyspaces().values() {
        let Some(shift) = keyspace.statistics().detect_shift(now_us) else { continue };
        catalog.between_installs(|| {
            keyspace.statistics().restate(shift, &keyspace.load().version, now_us);
        });
    }
}

/// Recent hit rate of each keyspace.
fn found_lately(catalog: &Catalog, now_us: u64) -> Vec<Found> {
    let of = |window: LookupWindow| Found { share: window.found_share(), samples: window.lookups };
    let keyspaces = catalog.keyspaces();
    keyspaces.values().map(|keyspace| of(keyspace.statistics().window(now_us))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lookups_turn_when_another_part_of_them_finds_its_key() {
        let of = |shares: &[f64], samples| -> Vec<Found> {
            shares.iter().map(|share| Found { share: *share, samples }).collect()
        };
        let turned = |planned: &[f64], now: &[f64], samples| {
            hit_rate_changed(&of(planned, samples), &of(now, samples))
        };
        assert!(!turned(&[], &[], 1e6));
        assert!(!turned(&[1.0, 0.5], &[0.99, 0.5], 1e6));
        assert!(turned(&[1.0, 0.5], &[0.9, 0.5], 1e6) && turned(&[1.0, 0.0], &[1.0, 0.1], 1e6));
        assert!(!turned(&[0.5], &[0.6], 50.0) && turned(&[0.5], &[0.7], 50.0), "few samples scatter");
        assert!(!turned(&[1.0], &[0.0, 0.0], 1e6), "another install has asked by then");
    }
}
