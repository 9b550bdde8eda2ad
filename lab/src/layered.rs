//! Trees built run by run, each run over all keys, as in the papers' figures: a level holds T times
//! as much as the one above, in as many runs as the merge policy allows.
//!
//! A tree filled by puts has the same levels, but its runs have gaps, because leveling moves
//! overflow down table by table; and each entry is written as often as it is compacted. Here every
//! entry is written once: sorted, by [`shamba::Db::place`], the deepest level first.
//!
//! Each run gets its filter bits when it is written: uniform, or Monkey's for the final runs.
//!
//! Not here: trees as the engine grows them.

use shamba::{Allocation, Builder, FilterLayout};
use shamba_filter::measured;
use shamba_model::allocation::{FilterSite, Limits, Lookups, Measured, allocate};

use shamba_workload::Permutation;

/// Maximum bits per key of a filter.
const BITS_PER_KEY_MAX: f64 = 26.0;
/// Salt that separates the random order of the runs' items from other draws of the seed.
const RUN_SALT: u64 = 0x6c61_7965_7265_6421;
/// Maximum number of levels.
const LEVELS_MAX: i32 = 40;

/// The levels of a tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Entries of a level relative to the level above.
    pub size_ratio: f64,
    /// Number of levels.
    pub levels: u32,
    /// Runs of every level but the last.
    pub inner_runs: u32,
    /// Runs of the last level.
    pub last_runs: u32,
}

impl Shape {
    /// One run per level, with as many levels as `buffers` write buffers of data fill: full levels
    /// hold (T - 1) T^(i-1) buffers.
    pub fn leveled(size_ratio: u32, buffers: u64) -> Self {
        let ratio = f64::from(size_ratio);
        let levels = ((buffers as f64).ln() / ratio.ln()).ceil().max(1.0) as u32;
        Self { size_ratio: ratio, levels, inner_runs: 1, last_runs: 1 }
    }

    /// The number of runs of all levels.
    pub fn run_count(self) -> u32 {
        (1..=self.levels).map(|level| self.runs_of(level)).sum()
    }

    fn runs_of(self, level: u32) -> u32 {
        if level == self.levels { self.last_runs.max(1) } else { self.inner_runs.max(1) }
    }
}

/// Filter bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bits {
    pub allocation: Allocation,
    /// Mean bits per key over all entries.
    pub per_key: f64,
    pub layout: FilterLayout,
    /// Share of empty lookups that allocations by lookups assume.
    pub empty_fraction: f64,
}

/// A run of a tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layer {
    pub level: u32,
    pub entries: u64,
    pub bits_per_key: f64,
}

/// The runs of a tree, newest first, with the items of each.
#[derive(Clone, Debug)]
pub(crate) struct Layers {
    runs: Vec<Layer>,
    count: u64,
    /// Order in which items are assigned to runs: the newest run gets the first ones.
    order: Permutation,
}

impl Layers {
    /// The runs of `count` items.
    pub fn new(count: u64, seed: u64, shape: Shape, bits: Bits) -> Result<Self, String> {
        let levels = shape.levels.clamp(1, LEVELS_MAX as u32);
        let weights: Vec<f64> = (0..levels).map(|level| shape.size_ratio.powi(level as i32)).collect();
        let all: f64 = weights.iter().sum();
        let mut runs: Vec<Layer> = Vec::new();
        for (level, weight) in (1..).zip(&weights) {
            let of_level = shape.runs_of(level);
            let entries = ((count as f64 * weight / all / f64::from(of_level)) as u64).max(1);
            runs.extend((0..of_level).map(|_| Layer { level, entries, bits_per_key: bits.per_key }));
        }
        let rest = count.saturating_sub(runs.iter().map(|run| run.entries).sum());
        if let Some(last) = runs.last_mut() {
            last.entries += rest;
        }
        let mut layers = Self { runs, count, order: Permutation::new(count, seed ^ RUN_SALT) };
        if bits.allocation != Allocation::Uniform {
            layers.allocate(bits)?;
        }
        Ok(layers)
    }

    fn allocate(&mut self, bits: Bits) -> Result<(), String> {
        let sites: Vec<FilterSite> = (0..)
            .zip(&self.runs)
            .map(|(run, layer)| FilterSite { entries: layer.entries, run, empty_probes_per_second: 0.0 })
            .collect();
        let lookups = Lookups { empty_fraction: bits.empty_fraction, ..Lookups::default() };
        let loads = bits.allocation.loads(&sites, lookups)?;
        let curve = Measured::from_fn(|per_key| measured::fpr(bits.layout, per_key), BITS_PER_KEY_MAX)?;
        let limits = Limits { smallest_bits_per_key: 0.0, largest_bits_per_key: BITS_PER_KEY_MAX };
        let shares = allocate(&loads, &curve, (self.count as f64 * bits.per_key) as u64, limits)?;
        for (layer, bits) in self.runs.iter_mut().zip(shares.bits) {
            layer.bits_per_key = bits as f64 / layer.entries as f64;
        }
        Ok(())
    }

    /// The runs, newest first.
    pub fn runs(&self) -> &[Layer] {
        &self.runs
    }

    /// Number of the run of an item: the items of each run are spread evenly over all.
    pub fn run_of(&self, item: u64) -> usize {
        let mut drawn = self.order.at(item);
        for (run, layer) in self.runs.iter().enumerate() {
            if drawn < layer.entries {
                return run;
            }
            drawn -= layer.entries;
        }
        self.runs.len() - 1
    }

    /// Builds the tree with `builder`, which must return the same options every time. `pair` gives
    /// an item's key and value; keys ascend with items.
    pub fn lay(
        &self,
        builder: &dyn Fn() -> Result<Builder, String>,
        pair: &dyn Fn(u64) -> (Vec<u8>, Vec<u8>),
    ) -> Result<(), String> {
        let runs: Vec<u16> = (0..self.count).map(|item| self.run_of(item) as u16).collect();
        for (run, layer) in self.runs.iter().enumerate().rev() {
            let said = |error: shamba::Error| error.chain().to_string();
            let builder = builder()?
                .experimental(|e| e.auto_compaction(false).filter_allocation(Allocation::Uniform))
                .bits_per_key(layer.bits_per_key);
            let db = builder.open().map_err(said)?;
            let of_run = (0..self.count).zip(&runs).filter(|(_, of)| usize::from(**of) == run);
            db.place(layer.level, of_run.map(|(item, _)| pair(item))).map_err(said)?;
            db.close().map_err(said)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bits(allocation: Allocation) -> Bits {
        Bits { allocation, per_key: 10.0, layout: FilterLayout::Blocked, empty_fraction: 1.0 }
    }

    #[test]
    fn runs_grow_by_the_ratio_and_monkey_gives_small_ones_more() {
        let count = 1_111_000;
        let layers =
            |allocation| Layers::new(count, 1, Shape::leveled(10, 1_000), bits(allocation)).expect("runs");
        let monkey = layers(Allocation::Monkey);
        assert_eq!(monkey.runs.len(), 3);
        assert_eq!(monkey.runs.iter().map(|run| run.entries).sum::<u64>(), count);
        assert!(
            monkey.runs.is_sorted_by(|small, large| small.bits_per_key > large.bits_per_key),
            "{monkey:?}"
        );
        let bits: f64 = monkey.runs.iter().map(|run| run.bits_per_key * run.entries as f64).sum();
        assert!((bits / count as f64 - 10.0).abs() < 0.05, "{bits}");
        assert!(layers(Allocation::Uniform).runs.iter().all(|run| run.bits_per_key == 10.0));
        let mut of_runs = [0; 3];
        (0..count).for_each(|item| of_runs[monkey.run_of(item)] += 1);
        assert_eq!(of_runs.to_vec(), monkey.runs.iter().map(|run| run.entries).collect::<Vec<u64>>());
    }

    #[test]
    fn levels_have_the_runs_of_their_policy() {
        let shape = Shape { size_ratio: 4.0, levels: 3, inner_runs: 3, last_runs: 2 };
        let layers = Layers::new(84_000, 1, shape, bits(Allocation::Uniform)).expect("runs");
        let levels: Vec<u32> = layers.runs().iter().map(|run| run.level).collect();
        assert_eq!(levels, [1, 1, 1, 2, 2, 2, 3, 3]);
        assert_eq!(layers.runs().iter().map(|run| run.entries).sum::<u64>(), 84_000);
        assert!((32_000..32_010).contains(&layers.runs()[7].entries), "{layers:?}");
    }
}
