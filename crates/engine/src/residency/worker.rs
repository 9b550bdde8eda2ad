//! The memory worker: when memory is looked at again.
//!
//! Once in a window while lookups go on; soon after an install; and at once when lookups *turn*: when the share of them that find
//! their key, by which the last plan was made, is another now. Filters are worth much to lookups of absent keys and nothing to others in a
//! tree of one run, so a plan for the ones is bad for the others, and a window of a second is a million lookups.
//!
//! Not here: what a settlement does ([`super`]).

use std::sync::atomic::Ordering;

use super::survey::WINDOW_US;
use crate::core::{Core, lock};

/// The worker looks up so often in a window.
const LOOKS_PER_WINDOW: u64 = 16;
/// After so many windows without a write, nothing is kept free for a flush.
const REST_WINDOWS: u32 = 5;
/// While nothing is written, tables are looked at for better filters after so many windows.
const REFIT_WINDOWS: u32 = 16;
/// Settlements that come before their time take this part of the time at most.
const TIME_PART: u64 = 16;
/// Lookups have turned when this part of them more, or less, find their key: a filter spares a search a hundred times as long as its probe.
const TURNED_PART: f64 = 1.0 / 64.0;

/// Whether lookups have turned in any keyspace: of those of `planned` this part found their key, of those of `now` that part.
/// Where keyspaces came or went an install says so.
fn have_turned(planned: &[f64], now: &[f64]) -> bool {
    let far = |(planned, now): (&f64, &f64)| (planned - now).abs() >= TURNED_PART;
    planned.len() == now.len() && planned.iter().zip(now).any(far)
}

impl Core {
    /// Settles when somebody wants it, when lookups turn, and now and then.
    pub(crate) fn memory_worker(&self) {
        let clock = &self.env.clock;
        let (mut last_us, mut window_us, mut took_us) = (0, clock.now_us(), 0);
        let (mut last_lookups, mut last_blocks, mut last_slices) = (0, (0, 0), (0, 0));
        let (mut last_seq, mut rest_windows): (_, u32) = (self.visible(), 0);
        let mut planned = self.found_shares(window_us);
        while !self.is_stopping() {
            self.wait_for_memory_work();
            let now_us = clock.now_us();
            let is_due = now_us.saturating_sub(window_us) >= WINDOW_US;
            let may_settle = now_us.saturating_sub(last_us) >= took_us * TIME_PART;
            let shares = self.found_shares(now_us);
            let is_wanted = may_settle && (self.residency.take_wanted() || have_turned(&planned, &shares));
            if !(is_wanted || is_due) {
                continue;
            }
            if is_due {
                window_us = now_us;
                self.residency.fade_peak();
                let total = self.lookups.total();
                let (reads, hits) = (total.data_reads, total.cache_hits);
                let (reads_before, hits_before) = std::mem::replace(&mut last_blocks, (reads, hits));
                self.residency
                    .note_blocks(reads.saturating_sub(reads_before), hits.saturating_sub(hits_before));
                let (reads, hits) = (total.filter_reads, total.filter_hits);
                let (reads_before, hits_before) = std::mem::replace(&mut last_slices, (reads, hits));
                self.residency
                    .note_slices(reads.saturating_sub(reads_before), hits.saturating_sub(hits_before));
                rest_windows = if self.visible() == last_seq { rest_windows.saturating_add(1) } else { 0 };
                last_seq = self.visible();
                self.residency.writes_rest.store(rest_windows >= REST_WINDOWS, Ordering::Relaxed);
                self.arbitrate(now_us);
                if rest_windows > 0 && rest_windows % REFIT_WINDOWS == 0 {
                    self.want_refits();
                }
            }
            // Without lookups nothing has become worth more or less; but what was taken may have come back.
            let lookups = self.lookups.total().lookups;
            if is_wanted || lookups != last_lookups || self.pool_room_bytes() > 0 {
                self.settle();
                planned = shares;
            }
            last_us = clock.now_us();
            (last_lookups, took_us) = (lookups, last_us.saturating_sub(now_us));
        }
    }

    fn wait_for_memory_work(&self) {
        let state = lock(&self.background.state);
        if !state.shutdown {
            let wait = std::time::Duration::from_micros(WINDOW_US / LOOKS_PER_WINDOW);
            drop(self.background.memory_wake.wait_timeout(state, wait));
        }
    }

    /// Of each keyspace, the part of lookups of late that found their key.
    fn found_shares(&self, now_us: u64) -> Vec<f64> {
        let keyspaces = self.keyspaces.load();
        keyspaces.values().map(|keyspace| keyspace.statistics.window(now_us).found_share()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lookups_turn_when_another_part_of_them_finds_its_key() {
        assert!(!have_turned(&[], &[]));
        assert!(!have_turned(&[1.0, 0.5], &[0.99, 0.5]));
        assert!(have_turned(&[1.0, 0.5], &[0.9, 0.5]) && have_turned(&[1.0, 0.0], &[1.0, 0.1]));
        assert!(!have_turned(&[1.0], &[0.0, 0.0]), "another install has asked by then");
    }
}
