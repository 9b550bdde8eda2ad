//! Where the capacities of levels come from.
//!
//! Not here: the capacities themselves ([`crate::Design`]).

use std::fmt;
use std::str::FromStr;

/// How level capacities are set.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Sizing {
    /// From the last level's real size up: as few levels as the data needs, each T times smaller than the next.
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
