//! Trees that are laid down run by run, each over all keys, as the papers draw them: level i holds T^i times what the first
//! does, in one run.
//!
//! A tree that grows by puts has the same levels, but its runs have gaps, as leveling moves what overflows down table
//! by table; and it takes as many times as long to fill as entries are merged. Here every entry is written once: sorted, by
//! [`shamba::Db::ingest`], the oldest run first. For lookups a run is a run; these stay in the inbox.
//!
//! Bits are given to each run when it is written: uniform, or as Monkey has them for the runs that there will be.
//!
//! Not here: trees as the engine grows them ([`crate::monkey`] has those too).

use shamba::{Allocation, Builder, FilterLayout};
use shamba_filter::measured;
use shamba_model::allocation::{FilterSite, Limits, Lookups, Measured, allocate};

use crate::items::Items;
use crate::mix::mix2;

/// No filter gets more bits per key.
const MOST_BITS_PER_KEY: f64 = 26.0;
/// More runs than anybody lays down.
const INBOX_RUNS: u32 = 64;
/// What tells an item's run from everything else that is drawn with the seed.
const RUN_SALT: u64 = 0x6c61_7965_7265_6421;

/// The runs of a tree, newest first.
#[derive(Clone, Debug)]
pub(crate) struct Layers {
    /// The entries of each.
    entries: Vec<u64>,
    /// Filter bits per key of each.
    bits_per_key: Vec<f64>,
}

impl Layers {
    /// Of levels that each hold `size_ratio` times what the one above does, until `buffers` write buffers are held; with
    /// `bits_per_key` on average.
    pub fn new(
        items: Items,
        size_ratio: u32,
        buffers: u64,
        (allocation, bits_per_key, layout): (Allocation, f64, FilterLayout),
    ) -> Result<Self, String> {
        let ratio = f64::from(size_ratio);
        // Full levels hold (T - 1) T^(i-1) buffers.
        let levels = ((buffers as f64).ln() / ratio.ln()).ceil().max(1.0) as i32;
        let weights: Vec<f64> = (0..levels).map(|level| ratio.powi(level)).collect();
        let all: f64 = weights.iter().sum();
        let mut entries: Vec<u64> =
            weights.iter().map(|weight| ((items.count as f64 * weight / all) as u64).max(1)).collect();
        let rest = items.count.saturating_sub(entries.iter().sum());
        if let Some(last) = entries.last_mut() {
            *last += rest;
        }
        let sites: Vec<FilterSite> = (0..)
            .zip(&entries)
            .map(|(run, entries)| FilterSite { entries: *entries, run, empty_probes_per_second: 0.0 })
            .collect();
        let loads = allocation.loads(&sites, Lookups::default())?;
        let curve = Measured::from_fn(|bits| measured::fpr(layout, bits), MOST_BITS_PER_KEY)?;
        let limits = Limits { smallest_bits_per_key: 0.0, largest_bits_per_key: MOST_BITS_PER_KEY };
        let total_bits = (items.count as f64 * bits_per_key) as u64;
        let shares = allocate(&loads, &curve, total_bits, limits)?;
        let per_key = shares.bits.iter().zip(&entries).map(|(bits, entries)| *bits as f64 / *entries as f64);
        let bits_per_key = match allocation {
            Allocation::Uniform => vec![bits_per_key; entries.len()],
            _ => per_key.collect(),
        };
        Ok(Self { entries, bits_per_key })
    }

    /// The run of an item: so that each run has about its entries.
    fn run_of(&self, items: Items, item: u64) -> usize {
        let mut drawn = mix2(item ^ RUN_SALT, items.seed) % items.count;
        for (run, entries) in self.entries.iter().enumerate() {
            if drawn < *entries {
                return run;
            }
            drawn -= entries;
        }
        self.entries.len() - 1
    }

    /// Lays the tree down where `builder` says, which answers with the same options every time.
    pub fn lay(&self, builder: &dyn Fn() -> Result<Builder, String>, items: Items) -> Result<(), String> {
        let runs: Vec<u8> = (0..items.count).map(|item| self.run_of(items, item) as u8).collect();
        for (run, bits_per_key) in self.bits_per_key.iter().enumerate().rev() {
            let said = |error: shamba::Error| error.to_string();
            let builder = builder()?
                .auto_compaction(false)
                .inbox_soft_runs(INBOX_RUNS)
                .inbox_hard_runs(INBOX_RUNS)
                .filter_allocation(Allocation::Uniform)
                .bits_per_key(*bits_per_key);
            let db = builder.open().map_err(said)?;
            let of_run = (0..items.count).zip(&runs).filter(|(_, of)| usize::from(**of) == run);
            let pair = |(item, _): (u64, &u8)| {
                let mut value = Vec::new();
                items.value(item, &mut value);
                (items.key(item, false), value)
            };
            db.ingest(of_run.map(pair)).map_err(said)?;
            db.close().map_err(said)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_grow_by_the_ratio_and_monkey_gives_small_ones_more() {
        let items = Items { count: 1_111_000, entry_bytes: 64, seed: 1 };
        let layers = |allocation| {
            Layers::new(items, 10, 1_000, (allocation, 10.0, FilterLayout::Blocked)).expect("runs")
        };
        let monkey = layers(Allocation::Monkey);
        assert_eq!(monkey.entries.len(), 3);
        assert_eq!(monkey.entries.iter().sum::<u64>(), items.count);
        assert!(monkey.bits_per_key.is_sorted_by(|small, large| small > large), "{:?}", monkey.bits_per_key);
        let bits: f64 = monkey.bits_per_key.iter().zip(&monkey.entries).map(|(b, n)| b * *n as f64).sum();
        assert!((bits / items.count as f64 - 10.0).abs() < 0.05, "{bits}");
        assert_eq!(layers(Allocation::Uniform).bits_per_key, [10.0; 3]);
        let in_first = (0..items.count).filter(|item| monkey.run_of(items, *item) == 0).count() as f64;
        assert!((in_first / monkey.entries[0] as f64 - 1.0).abs() < 0.05, "{in_first}");
    }
}
