//! The design: size ratio T, runs K and Z, write buffer and filter bits.
//!
//! Level i >= 1 holds `buffer_bytes * T^i` (Monkey's numbering of levels). Level 0 holds the
//! flushed runs and has no capacity of its own. There are at most K runs on an inner level and Z on
//! the last one ("fluid LSM-tree", Dayan and Idreos 2018): leveling is K = Z = 1, tiering K = Z =
//! T - 1, lazy leveling K = T - 1 with Z = 1, where T is rounded up if it is not an integer.
//!
//! Everything here is a pure function of its arguments and gives the same bits on every machine:
//! powers are repeated products.
//!
//! Not here: the compaction that a design requires (crate `shamba`, `compaction/policy`).

use shamba_filter::MAX_BITS_PER_KEY;
use std::fmt;
use std::str::FromStr;

/// Maximum size ratio. With a larger one, a tree that fits on a disk has one level.
pub const MAX_SIZE_RATIO: f64 = 1024.0;
/// Maximum number of runs that a design may allow on a level.
pub const MAX_RUNS: u32 = 1024;
/// Maximum number of levels below level 0: with T >= 2 and a buffer of one byte, 64 levels hold
/// 2^64 bytes.
pub const MAX_LEVELS: u32 = 64;

/// Minimum write buffer: a smaller run would be smaller than its own index and footer.
pub(crate) const MIN_BUFFER_BYTES: u64 = 1024;
/// Maximum write buffer.
pub(crate) const MAX_BUFFER_BYTES: u64 = 1 << 40;

/// The classical merge policies: named values of (K, Z).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum MergePolicy {
    /// One run on every level: cheapest reads.
    #[default]
    Leveling,
    /// Up to T - 1 runs on every level: cheapest writes.
    Tiering,
    /// T - 1 runs on inner levels and one on the last, which holds most of the data.
    LazyLeveling,
}

impl MergePolicy {
    /// Every policy.
    pub const ALL: [Self; 3] = [Self::Leveling, Self::Tiering, Self::LazyLeveling];

    /// The name in options and output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Leveling => "leveling",
            Self::Tiering => "tiering",
            Self::LazyLeveling => "lazy-leveling",
        }
    }

    /// The runs (K, Z) that the policy allows at `size_ratio`.
    pub fn runs(self, size_ratio: f64) -> (u32, u32) {
        // `as` saturates: NaN and negatives give 0, which the lower bound raises to 1.
        let tiered = (size_ratio.ceil() as u32).saturating_sub(1).max(1);
        match self {
            Self::Leveling => (1, 1),
            Self::Tiering => (tiered, tiered),
            Self::LazyLeveling => (tiered, 1),
        }
    }
}

impl fmt::Display for MergePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for MergePolicy {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|policy| policy.name() == name).ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            format!("unknown merge policy {name:?} (known: {known})")
        })
    }
}

/// The knobs that give a tree its shape and its costs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Design {
    /// T: the size of a level relative to the one above it; a real number, 2 to 1024. Larger: fewer
    /// levels, so cheaper reads, but leveling rewrites data more often (and tiering keeps more
    /// runs).
    pub size_ratio: f64,
    /// K: maximum runs on each level except the last, 1 to 1024. More: cheaper writes, more
    /// expensive reads.
    pub inner_runs: u32,
    /// Z: maximum runs on the last level, 1 to 1024. More: cheaper writes, more obsolete versions.
    pub last_runs: u32,
    /// The write buffer, in bytes, 1 KiB to 1 TiB: a memtable of this size is flushed, and level i
    /// holds T^i of it. (The engine limits it to what its budget allows, and sizes levels by the
    /// limited size: [`crate::Sizing::Auto`].) Larger: fewer levels and compactions, more memory
    /// and a longer recovery.
    pub buffer_bytes: u64,
    /// Filter bits per key, 0 (no filters) to 64, also fractional. More: fewer false positives,
    /// more memory.
    pub bits_per_key: f64,
}

impl Default for Design {
    /// Leveling with T = 10, a buffer of 64 MiB and 10 bits per key.
    fn default() -> Self {
        Self::new(MergePolicy::Leveling, 10.0, 64 << 20, 10.0)
    }
}

impl Design {
    /// The design of a classical policy, not validated: see [`Self::validate`].
    pub fn new(policy: MergePolicy, size_ratio: f64, buffer_bytes: u64, bits_per_key: f64) -> Self {
        let (inner_runs, last_runs) = policy.runs(size_ratio);
        Self { size_ratio, inner_runs, last_runs, buffer_bytes, bits_per_key }
    }

    /// The classical policy with this K and Z at this size ratio, if any. At T = 2 the three
    /// policies coincide: the answer is leveling.
    pub fn policy(&self) -> Option<MergePolicy> {
        MergePolicy::ALL
            .into_iter()
            .find(|policy| policy.runs(self.size_ratio) == (self.inner_runs, self.last_runs))
    }

    /// Checks that every knob is within its bounds.
    ///
    /// # Errors
    /// The first option that is not, with its bounds.
    pub fn validate(&self) -> Result<(), String> {
        // A range never contains NaN, so these checks also reject it.
        if !(2.0..=MAX_SIZE_RATIO).contains(&self.size_ratio) {
            return Err(format!("size_ratio must be from 2 to {MAX_SIZE_RATIO}, not {}", self.size_ratio));
        }
        for (option, runs) in [("inner_runs", self.inner_runs), ("last_runs", self.last_runs)] {
            if !(1..=MAX_RUNS).contains(&runs) {
                return Err(format!("{option} must be from 1 to {MAX_RUNS}, not {runs}"));
            }
        }
        if !(MIN_BUFFER_BYTES..=MAX_BUFFER_BYTES).contains(&self.buffer_bytes) {
            return Err(format!(
                "write_buffer must be from {MIN_BUFFER_BYTES} to {MAX_BUFFER_BYTES} bytes, not {}",
                self.buffer_bytes
            ));
        }
        if !(0.0..=MAX_BITS_PER_KEY).contains(&self.bits_per_key) {
            return Err(format!(
                "bits_per_key must be from 0 to {MAX_BITS_PER_KEY}, not {}",
                self.bits_per_key
            ));
        }
        Ok(())
    }

    /// Capacity of level `level` (1 and deeper) in bytes: buffer * T^level, at most `u64::MAX`.
    pub fn level_capacity_bytes(&self, level: u32) -> u64 {
        let mut capacity = self.buffer_bytes as f64;
        // A repeated product, because `powi` may differ between machines; more factors than that
        // change nothing.
        for _ in 0..level.min(MAX_LEVELS) {
            capacity *= self.size_ratio;
        }
        capacity.round() as u64
    }

    /// The number of levels that `total_bytes` need: the smallest L >= 1 such that levels 1 to L
    /// together hold them; at most [`MAX_LEVELS`].
    pub fn levels_for(&self, total_bytes: u64) -> u32 {
        let mut held = 0u64;
        for level in 1..MAX_LEVELS {
            held = held.saturating_add(self.level_capacity_bytes(level));
            if held >= total_bytes {
                return level;
            }
        }
        MAX_LEVELS
    }

    /// Maximum runs on `level` when `last_level` is the deepest one: Z there, K above it.
    pub fn runs_allowed(&self, level: u32, last_level: u32) -> u32 {
        if level < last_level { self.inner_runs } else { self.last_runs }
    }
}

impl fmt::Display for Design {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.policy() {
            Some(policy) => write!(f, "{policy}, ")?,
            None => write!(f, "fluid K={} Z={}, ", self.inner_runs, self.last_runs)?,
        }
        write!(
            f,
            "T={}, buffer {} bytes, {} bits per key",
            self.size_ratio, self.buffer_bytes, self.bits_per_key
        )
    }
}

#[cfg(test)]
mod tests;
