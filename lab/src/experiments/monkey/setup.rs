//! The paper's tree, its devices, and how filter bits are shared out.
//!
//! T = 2, one run a level, entries of 1 KB, 1,024 write buffers of data, 5 bits per key. Smaller
//! scales have a smaller buffer, so the levels stay what they are. Levels are counted by the
//! paper's equation 1. Trees of a seed are shared by the chapter.

use std::rc::Rc;

use shamba::{Allocation, FilterLayout};
use shamba_model::MergePolicy;
use shamba_model::monkey::{PaperTree, bloom_fpr, levels_closed};

use crate::layered::Bits;
use crate::prelude::*;
use crate::tree::{Spec, Tree};

pub(super) const SIZE_RATIO: f64 = 2.0;
pub(super) const BITS_PER_KEY: f64 = 5.0;
pub(super) const ENTRY_BYTES: usize = 1_024;
const KEY_BYTES: usize = 16;
/// Write buffers of data.
pub(super) const BUFFERS: u64 = 1_024;
/// The paper's devices, by the time of one I/O: while data grew, afterwards, and its disk.
/// Bandwidths: the maxima that the provider states for the volumes that the paper names (io1 and
/// st1 of EBS).
pub(super) const SSD_GROWING: Device =
    Device::Other { name: "SSD 360 us", read_ns: 360_000, bytes_per_second: 500 << 20 };
pub(super) const SSD: Device =
    Device::Other { name: "SSD 290 us", read_ns: 290_000, bytes_per_second: 500 << 20 };
pub(super) const HDD: Device =
    Device::Other { name: "HDD 1.9 ms", read_ns: 1_900_000, bytes_per_second: 500 << 20 };

/// Lookups of which I/Os are counted; the paper has 16K a trial.
pub(super) fn lookups_counted(scale: Scale) -> u64 {
    scale.count(6_000, 16_384, 16_384)
}

/// Entries of the paper's tree, 1 GB of them.
pub(super) fn entries(scale: Scale) -> u64 {
    scale.pick(1 << 15, 1 << 18, 1 << 20)
}

/// A thousandth of the data, so that there are as many levels at every scale.
pub(super) fn buffer_bytes(scale: Scale) -> u64 {
    entries(scale) * ENTRY_BYTES as u64 / BUFFERS
}

/// How filter bits are shared out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::experiments) enum Filters {
    /// Uniform: the state of the art.
    Uniform,
    /// By Monkey, for lookups that find nothing.
    Zero,
    /// By Monkey, for the share of lookups that do.
    General,
}

impl Filters {
    pub const PAIR: [Self; 2] = [Self::Uniform, Self::Zero];
    pub const ALL: [Self; 3] = [Self::Uniform, Self::Zero, Self::General];

    pub fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform bits",
            Self::Zero => "Monkey, zero",
            Self::General => "Monkey, general",
        }
    }

    /// The bits with which trees are laid down.
    pub fn bits(self, per_key: f64, empty_fraction: f64) -> Bits {
        Bits {
            allocation: if self == Self::Uniform { Allocation::Uniform } else { Allocation::Monkey },
            per_key,
            layout: FilterLayout::Blocked,
            empty_fraction: if self == Self::General { empty_fraction } else { 1.0 },
        }
    }

    /// The I/Os of a lookup of this mix by the paper's closed forms, which take every key that is
    /// found to be in the last level.
    ///
    /// # Errors
    /// Errors of the model.
    pub fn model_ios(self, tree: &PaperTree, bits: f64, empty_fraction: f64) -> Result<f64, String> {
        Ok(match self {
            Self::Uniform => tree.lookups_uniform(bits, empty_fraction)?.mixed_cost,
            Self::Zero => {
                let zero = tree.lookups_closed(bits, 1.0)?;
                empty_fraction * zero.zero_result_cost + (1.0 - empty_fraction) * zero.found_cost
            }
            Self::General => tree.lookups_closed(bits, empty_fraction)?.mixed_cost,
        })
    }

    /// False-positive rates of its filters, smallest level first, by the model for this number of
    /// levels.
    ///
    /// # Errors
    /// Errors of the model.
    pub fn model_fprs(
        self,
        tree: &PaperTree,
        bits: f64,
        per_key: f64,
        empty_fraction: f64,
    ) -> Result<Vec<f64>, String> {
        match self {
            Self::Uniform => Ok(vec![bloom_fpr(per_key); tree.run_count().round() as usize]),
            Self::Zero => tree.best_fprs_exact(bits, 1.0),
            Self::General => tree.best_fprs_exact(bits, empty_fraction),
        }
    }
}

/// A tree's size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub entries: u64,
    pub entry_bytes: usize,
    pub levels: u32,
}

impl Size {
    /// A setup with this number and size of entries and this buffer.
    ///
    /// # Errors
    /// Errors of the model.
    pub fn new(entries: u64, entry_bytes: usize, buffer_bytes: u64) -> Result<Self, String> {
        let levels = levels_closed((entries * entry_bytes as u64) as f64, buffer_bytes, SIZE_RATIO)?;
        Ok(Self { entries, entry_bytes, levels })
    }

    /// The paper's usual tree.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn usual(scale: Scale) -> Result<Self, String> {
        Self::new(entries(scale), ENTRY_BYTES, buffer_bytes(scale))
    }

    /// The model's tree of this size.
    ///
    /// # Errors
    /// Errors of the model.
    pub fn paper_tree(self) -> Result<PaperTree, String> {
        PaperTree::new(MergePolicy::Leveling, SIZE_RATIO, self.levels, self.entries)
    }

    /// The tree with these filters; trees of a size have the same items in the same runs.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn tree(
        self,
        lab: &mut Lab<'_>,
        filters: Filters,
        per_key: f64,
        empty_fraction: f64,
    ) -> Result<Rc<Tree>, String> {
        let bits = filters.bits(per_key, empty_fraction);
        lab.once(format!("monkey tree {self:?} {bits:?}"), |lab| {
            let spec = Spec::leveled(self.entries, (KEY_BYTES, self.entry_bytes), SIZE_RATIO, self.levels);
            Tree::lay(lab, "monkey", Spec { bits, ..spec }, Device::Memory)
        })
    }
}

/// Fixed parameters of the paper, but for those that `varied` names.
pub(super) fn fixed(scale: Scale, varied: &[&str]) -> Vec<Parameter> {
    let levels = Size::usual(scale).map_or(0, |size| size.levels);
    let all = [
        Parameter::fixed("size ratio", SIZE_RATIO),
        Parameter::fixed("levels", levels),
        Parameter::fixed("runs a level", 1),
        Parameter::fixed("entries", entries(scale)),
        Parameter::fixed("entry bytes", ENTRY_BYTES),
        Parameter::fixed("key bytes", KEY_BYTES),
        Parameter::fixed("buffer bytes", buffer_bytes(scale)),
        Parameter::fixed("bits per key", BITS_PER_KEY),
        Parameter::fixed("empty fraction", 1),
        Parameter::fixed("lookups of which I/Os are counted", lookups_counted(scale)),
    ];
    all.into_iter().filter(|one| !varied.contains(&one.name)).collect()
}
