//! Scales of experiments and the parameters that they vary and fix.

use std::fmt;
use std::str::FromStr;

/// The size of runs, from small to large.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Scale {
    /// For tests only: all experiments complete within seconds; the findings are meaningless.
    Tiny,
    /// All experiments with five seeds within half an hour on two cores: the paper's shape
    /// with fewer entries and lookups.
    Quick,
    /// Some minutes per experiment. Filters exceed the last-level cache four times in hash
    /// sharing's Figures 8b, 9 and 12 and in `hash-sharing-parts`, which take an hour or two each.
    /// They do not in the other figures of CPU time, whose entries are larger: the parameter
    /// "filters over the last-level cache" of each states the ratio.
    Default,
    /// The paper's sizes.
    Paper,
}

/// Divisor of the quick scale's counts for the tiny scale.
const TINY_DIVISOR: u64 = 16;

impl Scale {
    /// Selectable scales, from small to large.
    pub const ALL: [Self; 3] = [Self::Quick, Self::Default, Self::Paper];

    /// The name in options and output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tiny => "tiny",
            Self::Quick => "quick",
            Self::Default => "default",
            Self::Paper => "paper",
        }
    }

    /// One of three values; the tiny scale has the quick one's.
    pub fn pick<T>(self, quick: T, default: T, paper: T) -> T {
        match self {
            Self::Tiny | Self::Quick => quick,
            Self::Default => default,
            Self::Paper => paper,
        }
    }

    /// One of three counts; the tiny scale has a sixteenth of the quick one's, and at least 1.
    pub fn count(self, quick: u64, default: u64, paper: u64) -> u64 {
        let count = self.pick(quick, default, paper);
        if self == Self::Tiny { (count / TINY_DIVISOR).max(1) } else { count }
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Scale {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|scale| scale.name() == name).ok_or_else(|| {
            format!("unknown scale {name:?} (known: {})", Self::ALL.map(Self::name).join(", "))
        })
    }
}

/// A parameter of an experiment at a scale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// The parameter's name with its unit.
    pub name: &'static str,
    /// Whether its values are points of the experiment.
    pub is_varied: bool,
    /// The value, or the values separated by commas.
    pub value: String,
}

impl Parameter {
    /// A parameter whose values are the points of the experiment.
    pub fn varied<T: fmt::Display>(name: &'static str, values: impl IntoIterator<Item = T>) -> Self {
        let values: Vec<String> = values.into_iter().map(|value| value.to_string()).collect();
        Self { name, is_varied: true, value: values.join(", ") }
    }

    /// A parameter with one value for all points.
    pub fn fixed(name: &'static str, value: impl fmt::Display) -> Self {
        Self { name, is_varied: false, value: value.to_string() }
    }
}
