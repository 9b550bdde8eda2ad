//! Capacities of levels.
//!
//! *Manual* is the papers' way: level i holds `buffer_bytes * T^i`. *Auto* starts at the other end,
//! from the actual size S(L) of the last level. With `b` the bytes of a *batch*, the data that one
//! compaction of level 0 moves down:
//!
//! ```text
//! last level L:     holds up to b * T^L, then its data goes to level L + 1, which becomes the last
//! level i above it: open while S(L) / T^(L-i) is at least b (at least b/2 if it holds data), and
//!                   then holds that or b, if b is more;
//!                   else it is closed: it holds nothing, and batches bypass it
//! ```
//!
//! So there are as few levels as the data needs, each about T times smaller than the next, whatever
//! the size of the data. Bottom-up capacities would leave the last level anywhere from nearly empty
//! to full. Between b/2 and b a level keeps its state, so that a last level of varying size does
//! not open and close it repeatedly.
//!
//! Not here: the design ([`crate::Design`]); the compactions (crate `shamba`, `compaction/policy`).

use std::fmt;
use std::str::FromStr;

use crate::design::{Design, MAX_LEVELS};

/// How level capacities are set.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Sizing {
    /// From the last level's actual size up: as few levels as the data needs, each T times smaller
    /// than the next.
    #[default]
    Auto,
    /// From the write buffer down, as in the papers: level i holds `buffer_bytes * T^i`.
    Manual,
}

impl Sizing {
    /// Every kind.
    pub const ALL: [Self; 2] = [Self::Auto, Self::Manual];

    /// The name in options and output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Manual => "manual",
        }
    }
}

impl fmt::Display for Sizing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Sizing {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|sizing| sizing.name() == name).ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            format!("unknown sizing {name:?} (known: {known})")
        })
    }
}

/// Capacity of each level of one tree at one moment, in bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Capacities {
    /// Capacities of levels 1, 2, ... above the last.
    inner: Vec<u64>,
    /// Capacity of level 1 as the last level, divided by T.
    unit_bytes: u64,
    design: Design,
    arrival_level: u32,
}

impl Capacities {
    /// The capacities of a tree whose level i holds `level_bytes[i]` bytes (level 0 does not
    /// count). A batch is `batch_bytes`; only [`Sizing::Auto`] uses it.
    pub fn new(sizing: Sizing, design: &Design, level_bytes: &[u64], batch_bytes: u64) -> Self {
        let last = level_bytes.iter().rposition(|bytes| *bytes > 0).unwrap_or(0).max(1);
        if sizing == Sizing::Manual {
            let inner = (1..last as u32).map(|level| design.level_capacity_bytes(level)).collect();
            return Self { inner, unit_bytes: design.buffer_bytes, design: *design, arrival_level: 1 };
        }
        let held = |level: usize| level_bytes.get(level).copied().unwrap_or(0);
        let batch_bytes = batch_bytes.max(1);
        let mut inner = vec![0; last - 1];
        let mut share = held(last) as f64;
        let mut arrival_level = last;
        for level in (1..last).rev() {
            share /= design.size_ratio;
            let least = if held(level) > 0 { batch_bytes as f64 / 2.0 } else { batch_bytes as f64 };
            // Shares shrink upwards by T >= 2, so no level above a closed one is open.
            if share < least {
                break;
            }
            inner[level - 1] = (share as u64).max(batch_bytes);
            arrival_level = level;
        }
        Self { inner, unit_bytes: batch_bytes, design: *design, arrival_level: arrival_level as u32 }
    }

    /// Current capacity of `level` (1 and deeper).
    pub fn level_bytes(&self, level: u32) -> u64 {
        let inner = level.checked_sub(1).and_then(|at| self.inner.get(at as usize));
        inner.copied().unwrap_or_else(|| self.last_level_bytes(level))
    }

    /// Capacity of `level` when it is, or becomes, the last.
    pub fn last_level_bytes(&self, level: u32) -> u64 {
        let unit = Design { buffer_bytes: self.unit_bytes, ..self.design };
        unit.level_capacity_bytes(level.min(MAX_LEVELS))
    }

    /// Whether `level` is to hold nothing: its data moves down, and arriving batches bypass it.
    pub fn is_closed(&self, level: u32) -> bool {
        self.level_bytes(level) == 0
    }

    /// The shallowest open level: the target of batches from level 0.
    pub fn arrival_level(&self) -> u32 {
        self.arrival_level
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MergePolicy;

    const BATCH: u64 = 4_000;

    fn capacities(sizing: Sizing, size_ratio: f64, level_bytes: &[u64]) -> Capacities {
        let design = Design::new(MergePolicy::Leveling, size_ratio, 1_000, 10.0);
        Capacities::new(sizing, &design, level_bytes, BATCH)
    }

    fn of_levels(capacities: &Capacities) -> [u64; 4] {
        [1, 2, 3, 4].map(|level| capacities.level_bytes(level))
    }

    #[test]
    fn manual_is_the_buffer_times_powers_whatever_the_tree_holds() {
        for tree in [&[0u64][..], &[9, 9, 9], &[0, 0, 0, 0, 1 << 40]] {
            let manual = capacities(Sizing::Manual, 10.0, tree);
            assert_eq!(of_levels(&manual), [10_000, 100_000, 1_000_000, 10_000_000]);
            assert_eq!((manual.arrival_level(), manual.last_level_bytes(2)), (1, 100_000));
        }
    }

    #[test]
    fn auto_starts_with_one_level_and_opens_another_when_that_is_full() {
        let empty = capacities(Sizing::Auto, 10.0, &[]);
        assert_eq!(empty, capacities(Sizing::Auto, 10.0, &[5_000, 40_000]));
        assert_eq!(of_levels(&empty), [40_000, 400_000, 4_000_000, 40_000_000]);
        assert_eq!(empty.arrival_level(), 1);
    }

    #[test]
    fn auto_gives_inner_levels_the_last_ones_real_size_over_powers() {
        let auto = capacities(Sizing::Auto, 10.0, &[0, 30_000, 300_000, 3_000_000]);
        assert_eq!(of_levels(&auto), [30_000, 300_000, 4_000_000, 40_000_000]);
        assert_eq!(auto.arrival_level(), 1);
    }

    #[test]
    fn auto_closes_levels_that_a_batch_would_fill_and_reopens_them_later() {
        for (tree, level_1, arrival_level) in [
            (&[0, 500, 40_000][..], 4_000, 1),
            (&[0, 500, 20_000], 4_000, 1),
            (&[0, 500, 19_999], 0, 2),
            (&[0, 0, 20_000], 0, 2),
            (&[0, 0, 39_999], 0, 2),
            (&[0, 0, 40_000], 4_000, 1),
            (&[0, 700, 0, 100], 0, 3),
        ] {
            let auto = capacities(Sizing::Auto, 10.0, tree);
            assert_eq!((auto.level_bytes(1), auto.arrival_level()), (level_1, arrival_level), "{tree:?}");
            assert_eq!(auto.is_closed(1), level_1 == 0);
        }
    }

    #[test]
    fn no_open_level_is_above_a_closed_one() {
        for size_ratio in [2.0, 2.5, 10.0] {
            for shift in 0..40 {
                for mask in 0..8u64 {
                    let held = |level: u64| (mask >> level & 1) * 100;
                    let tree = [0, held(0), held(1), held(2), 3 << shift];
                    let auto = capacities(Sizing::Auto, size_ratio, &tree);
                    let open: Vec<_> = (1..5).filter(|level| !auto.is_closed(*level)).collect();
                    assert_eq!(open, (auto.arrival_level()..5).collect::<Vec<_>>(), "{tree:?}");
                }
            }
        }
    }
}
