//! Miss ratios of an LRU cache of blocks whose entries have Zipf popularities in random positions.
//!
//! Che's approximation: a cached block is evicted when it is not referenced within the
//! characteristic time t, which is the same for all blocks. A block of B entries with popularities
//! p_1 .. p_B is not cached with probability exp(-t (p_1 + .. + p_B)). The entries of a block are
//! drawn from all entries, so the mean over blocks is a power:
//!
//! ```text
//! cached share   1 - phi(t)^B             phi(t) = 1/N * sum of exp(-t p_i)
//! miss ratio     psi(t) * phi(t)^(B-1)    psi(t) = sum of p_i exp(-t p_i)
//! ```
//!
//! For a given cached share t is found by bisection. Ranks after the first [`RANKS_ALONE`] are
//! summed in groups of nearly equal popularity.

/// Maximum exponent: beyond it practically all lookups go to one entry.
pub(super) const ALPHA_MAX: f64 = 10.0;
/// Number of first ranks that are summed one by one.
const RANKS_ALONE: u64 = 64;
/// The last rank of a group is at most first / `GROUP_PART` above its first.
const GROUP_PART: u64 = 50;
/// Number of bisection steps on the logarithm of the characteristic time.
const BISECTIONS: u32 = 60;

/// Entries with Zipf popularities, placed in random blocks.
pub(super) struct Scattered {
    /// Groups of ranks that are summed together: the number of ranks, and the popularity of each.
    groups: Vec<(f64, f64)>,
    entries: f64,
    entries_per_block: f64,
}

impl Scattered {
    /// Requires `alpha` above 0, at least one entry, and at least one entry per block.
    pub fn new(alpha: f64, entries: u64, entries_per_block: f64) -> Self {
        let mut groups = Vec::new();
        let mut first = 1u64;
        while first <= entries {
            let more = if first <= RANKS_ALONE { 0 } else { first / GROUP_PART };
            let last = first.saturating_add(more).min(entries);
            let middle = (first as f64 * last as f64).sqrt();
            groups.push(((last - first) as f64 + 1.0, middle.powf(-alpha)));
            if last == u64::MAX {
                break;
            }
            first = last + 1;
        }
        let sum: f64 = groups.iter().map(|(count, weight)| count * weight).sum();
        for (_, weight) in &mut groups {
            *weight /= sum;
        }
        // A block has at most as many entries as the data.
        Self { groups, entries: entries as f64, entries_per_block: entries_per_block.min(entries as f64) }
    }

    /// phi and psi at a characteristic time.
    fn sums(&self, time: f64) -> (f64, f64) {
        let (mut absent, mut missed) = (0.0, 0.0);
        for (count, popularity) in &self.groups {
            let outside = (-time * popularity).exp();
            absent += count * outside;
            missed += count * popularity * outside;
        }
        (absent / self.entries, missed)
    }

    /// The share of references that miss when the cache holds this share of the blocks.
    pub fn miss_ratio(&self, cached_share: f64) -> f64 {
        if cached_share >= 1.0 {
            return 0.0;
        }
        let cached = |time: f64| 1.0 - self.sums(time).0.powf(self.entries_per_block);
        // Bounds in references: from less than one to a number within which the coldest entry is
        // referenced almost surely.
        let coldest = self.groups.last().map_or(1.0, |(_, popularity)| *popularity);
        let (mut low, mut high) = (-20.0, (1e3 / coldest.max(f64::MIN_POSITIVE)).min(f64::MAX).ln());
        for _ in 0..BISECTIONS {
            let middle = f64::midpoint(low, high);
            if cached(middle.exp()) < cached_share { low = middle } else { high = middle }
        }
        let (absent, missed) = self.sums(f64::midpoint(low, high).exp());
        missed * absent.powf(self.entries_per_block - 1.0)
    }
}
