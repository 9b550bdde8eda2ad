//! Residency modes: which parts of filters and indexes are kept in memory.

use std::fmt;

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

impl std::str::FromStr for Residency {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let known = Self::ALL.into_iter().find(|kind| kind.name() == text);
        known.ok_or_else(|| format!("residency must be pinned, cached or budgeted, not {text:?}"))
    }
}
