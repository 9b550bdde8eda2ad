//! Text forms of option values: one for each type that an option has.
//!
//! The printed form is stored in manifests, so it never changes; parsing accepts every form that a
//! released build has printed. Parsing checks syntax only. Ranges are checked by
//! [`super::OptionInfo::check`], because a recorded value must stay readable when a range changes.

use std::fmt::Display;
use std::time::Duration;

use shamba_filter::FilterLayout;
use shamba_key::DigestKind;
use shamba_model::allocation::Allocation;
use shamba_model::skip::Skipping;
use shamba_model::{MergePolicy, Sizing};
use shamba_table::{CacheUnit, Compression, Residency};

use crate::options::settings::Tuning;
use crate::options::settings::{Durability, KeepLog};

/// A value with a text form. Printing and parsing restore the same value.
pub(crate) trait OptionValue: Sized {
    /// The value of `text`; `None` if it has the wrong form.
    fn parse(text: &str) -> Option<Self>;
    /// The text form.
    fn print(&self) -> String;
}

/// Types whose text form is that of `Display` and `FromStr`.
macro_rules! as_displayed {
    ($($type:ty),+ $(,)?) => { $(
        impl OptionValue for $type {
            fn parse(text: &str) -> Option<Self> {
                text.parse().ok()
            }

            fn print(&self) -> String {
                self.to_string()
            }
        }
    )+ };
}

as_displayed!(u32, u64, usize, f64);
as_displayed!(
    Allocation,
    CacheUnit,
    Compression,
    DigestKind,
    MergePolicy,
    Residency,
    Sizing,
    Skipping,
    Tuning
);

impl OptionValue for bool {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "on" => Some(true),
            "off" => Some(false),
            _ => None,
        }
    }

    fn print(&self) -> String {
        if *self { "on" } else { "off" }.to_owned()
    }
}

/// Whole milliseconds. More than fit into 64 bits are for ever, up to those of `Duration::MAX`,
/// which earlier builds recorded.
impl OptionValue for Duration {
    fn parse(text: &str) -> Option<Self> {
        let ms = text.parse::<u128>().ok().filter(|ms| *ms <= Self::MAX.as_millis())?;
        Some(Self::from_millis(u64::try_from(ms).unwrap_or(u64::MAX)))
    }

    fn print(&self) -> String {
        u64::try_from(self.as_millis()).unwrap_or(u64::MAX).to_string()
    }
}

impl OptionValue for FilterLayout {
    fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }

    fn print(&self) -> String {
        self.to_option()
    }
}

/// Kinds by level, separated by commas.
impl OptionValue for Vec<Compression> {
    fn parse(text: &str) -> Option<Self> {
        text.split(',').map(Compression::parse).collect()
    }

    fn print(&self) -> String {
        self.iter().map(Compression::print).collect::<Vec<_>>().join(",")
    }
}

/// `always`, `never`, `buffered`, or `MS:BYTES`; `MS` alone has the default number of bytes.
impl OptionValue for Durability {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "always" => Some(Self::Sync),
            "never" => Some(Self::NoSync),
            "buffered" => Some(Self::Buffered),
            _ => match text.split_once(':') {
                Some((ms, bytes)) => {
                    Some(Self::Interval { ms: ms.parse().ok()?, bytes: bytes.parse().ok()? })
                }
                None => text.parse().ok().filter(|ms| *ms > 0).map(Self::interval_ms),
            },
        }
    }

    fn print(&self) -> String {
        match self {
            Self::Sync => "always".to_owned(),
            Self::NoSync => "never".to_owned(),
            Self::Buffered => "buffered".to_owned(),
            Self::Interval { ms, bytes } => format!("{ms}:{bytes}"),
        }
    }
}

/// `BYTES:MS`, or `off`.
impl OptionValue for KeepLog {
    fn parse(text: &str) -> Option<Self> {
        if text == "off" {
            return Some(Self::OFF);
        }
        let (bytes, ms) = text.split_once(':')?;
        Some(Self { bytes: bytes.parse().ok()?, age: Duration::parse(ms)? })
    }

    fn print(&self) -> String {
        match self.is_on() {
            true => format!("{}:{}", self.bytes, self.age.print()),
            false => "off".to_owned(),
        }
    }
}

/// Optional values, with the word that stands for `None`.
macro_rules! optional {
    ($($type:ty, $none:literal);+ $(;)?) => { $(
        impl OptionValue for Option<$type> {
            fn parse(text: &str) -> Option<Self> {
                if text == $none { Some(None) } else { <$type>::parse(text).map(Some) }
            }

            fn print(&self) -> String {
                self.as_ref().map_or_else(|| $none.to_owned(), OptionValue::print)
            }
        }
    )+ };
}

optional!(u32, "auto"; u64, "auto"; FilterLayout, "auto"; MergePolicy, "custom");

/// Formats a size in the largest binary unit that divides it, with `space` before the unit.
pub(super) fn size_text(bytes: u64, space: &str) -> String {
    let units = [(50, "PiB"), (40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let fitting = units.into_iter().find(|(log2, _)| bytes > 0 && bytes.trailing_zeros() >= *log2);
    match fitting {
        Some((log2, unit)) => format!("{}{space}{unit}", bytes >> log2),
        None => format!("{bytes} bytes"),
    }
}

/// Joins `parts` to "a, b or c".
pub(super) fn alternatives<T: Display>(parts: &[T]) -> String {
    let mut text = String::new();
    for (at, part) in parts.iter().enumerate() {
        let between = if at == 0 {
            ""
        } else if at + 1 == parts.len() {
            " or "
        } else {
            ", "
        };
        text.push_str(between);
        text.push_str(&part.to_string());
    }
    text
}
