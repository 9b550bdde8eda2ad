//! Residency modes: which parts of filters and indexes are kept in memory, and the units in which
//! the block cache holds the others.

use std::fmt;
use std::str::FromStr;

/// Residency mode of filters (and of index partitions).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Residency {
    /// All of them, always resident, even if that exceeds the budget.
    Pinned,
    /// As blocks of the block cache, where they compete with data: read when a lookup misses them.
    /// The baseline.
    Cached,
    /// The pieces that save most for their bytes.
    #[default]
    Budgeted,
}

impl Residency {
    /// All modes.
    pub const ALL: [Self; 3] = [Self::Pinned, Self::Cached, Self::Budgeted];

    /// The name in options and output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pinned => "pinned",
            Self::Cached => "cached",
            Self::Budgeted => "budgeted",
        }
    }
}

impl fmt::Display for Residency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Residency {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let known = Self::ALL.into_iter().find(|kind| kind.name() == text);
        known.ok_or_else(|| format!("residency must be pinned, cached or budgeted, not {text:?}"))
    }
}

/// Unit of reading, caching and eviction, for filters or indexes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum CacheUnit {
    /// A slice of at most 64 KiB of a filter module; a partition of about 4 KiB of an index.
    #[default]
    Sliced,
    /// A whole filter module; a whole index.
    Whole,
}

impl CacheUnit {
    /// All units.
    pub const ALL: [Self; 2] = [Self::Sliced, Self::Whole];

    /// The name in options and output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sliced => "sliced",
            Self::Whole => "whole",
        }
    }
}

impl fmt::Display for CacheUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for CacheUnit {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let known = Self::ALL.into_iter().find(|unit| unit.name() == text);
        known.ok_or_else(|| format!("must be sliced or whole, not {text:?}"))
    }
}

/// The units of filters and of indexes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheUnits {
    /// Unit of filters.
    pub filter: CacheUnit,
    /// Unit of indexes.
    pub index: CacheUnit,
}

impl CacheUnits {
    /// Whether filters or indexes are cached as whole blocks.
    pub fn is_any_whole(self) -> bool {
        [self.filter, self.index].contains(&CacheUnit::Whole)
    }
}
