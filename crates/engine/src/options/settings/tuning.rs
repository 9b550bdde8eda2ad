//! Self-tuning as a setting: whether better designs are reported, or put into force.

use std::fmt;
use std::str::FromStr;

/// Self-tuning of a database's design.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Tuning {
    /// Advice only on request ([`crate::Db::advise`]).
    #[default]
    Off,
    /// Reports better designs as events and in the info log.
    Advise,
    /// Moves to better designs.
    Auto,
}

impl Tuning {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Off, Self::Advise, Self::Auto];

    /// The name in options and output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Advise => "advise",
            Self::Auto => "auto",
        }
    }
}

impl fmt::Display for Tuning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Tuning {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|tuning| tuning.name() == name)
            .ok_or_else(|| format!("tuning must be off, advise or auto, not {name:?}"))
    }
}
