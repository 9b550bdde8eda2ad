//! The options of value files: from which length on values are stored there, and how much space
//! they may take.

use std::fmt;

use shamba_key::MAX_VALUE_BYTES;

use super::value::OptionValue;

/// Length from which on a value is stored in a value file, with a reference in its table.
///
/// ```
/// use shamba::ValueThreshold;
///
/// assert_eq!(ValueThreshold::from(4_096), ValueThreshold::Bytes(4_096));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub enum ValueThreshold {
    /// Every value is stored in its table.
    #[default]
    Off,
    /// The database decides by its cost model (`shamba_model::values`), and follows the workload.
    Auto,
    /// Values of at least this many bytes are stored in value files.
    Bytes(u32),
}

impl ValueThreshold {
    /// The shortest allowed threshold. A reference takes 32 bytes.
    pub(crate) const BYTES_MIN: u64 = 64;
    /// The longest one: as long as the longest value.
    pub(crate) const BYTES_MAX: u64 = MAX_VALUE_BYTES as u64;

    /// Minimum length of a value in a value file, where `auto` is what the database has decided;
    /// `None`: all are in tables.
    pub(crate) fn bytes_min(self, auto: Option<u32>) -> Option<u32> {
        match self {
            Self::Off => None,
            Self::Auto => auto,
            Self::Bytes(bytes) => Some(bytes),
        }
    }
}

impl From<u32> for ValueThreshold {
    fn from(bytes: u32) -> Self {
        Self::Bytes(bytes)
    }
}

impl fmt::Display for ValueThreshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Auto => f.write_str("auto"),
            Self::Bytes(bytes) => write!(f, "{bytes}"),
        }
    }
}

/// `off`, `auto`, or a number of bytes.
impl OptionValue for ValueThreshold {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "off" => Some(Self::Off),
            "auto" => Some(Self::Auto),
            bytes => bytes.parse().ok().map(Self::Bytes),
        }
    }

    fn print(&self) -> String {
        self.to_string()
    }
}
