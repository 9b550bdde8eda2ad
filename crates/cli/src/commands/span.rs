//! `--from`, `--to`, `--prefix`: the range of keys of a command, declared once for all of them.

use std::ffi::OsString;
use std::ops::Bound;

use clap::Args;

use super::argument;
use crate::exit::Failure;
use crate::text::Notation;

/// Options that select a range of keys.
#[derive(Args, Clone, Debug)]
pub struct SpanOptions {
    /// Start at this key
    #[arg(long, value_name = "KEY")]
    from: Option<OsString>,
    /// Stop before this key
    #[arg(long, value_name = "KEY")]
    to: Option<OsString>,
    /// Only keys with this prefix
    #[arg(long, value_name = "KEY", conflicts_with_all = ["from", "to"])]
    prefix: Option<OsString>,
}

/// The range of keys that a command applies to.
pub enum Span {
    /// Those with this prefix.
    Prefix(Vec<u8>),
    /// Those between two bounds.
    Bounds(Bound<Vec<u8>>, Bound<Vec<u8>>),
}

impl SpanOptions {
    /// Whether any of the options was given.
    pub fn is_given(&self) -> bool {
        self.from.is_some() || self.to.is_some() || self.prefix.is_some()
    }

    /// The range; all keys if no option was given.
    ///
    /// # Errors
    /// [`Failure::Usage`] for a text that is no key, and for bounds in the wrong order.
    pub fn span(&self, notation: Notation) -> Result<Span, Failure> {
        let bytes = |what, text: &Option<OsString>| {
            text.as_ref().map(|text| argument(what, text, notation)).transpose()
        };
        if let Some(prefix) = bytes("--prefix", &self.prefix)? {
            return Ok(Span::Prefix(prefix));
        }
        let (from, to) = (bytes("--from", &self.from)?, bytes("--to", &self.to)?);
        if let (Some(from), Some(to)) = (&from, &to)
            && from > to
        {
            return Err(Failure::Usage(format!(
                "--from {:?} comes after --to {:?} in key order, so the range is empty; swap them",
                notation.show(from),
                notation.show(to)
            )));
        }
        Ok(Span::Bounds(
            from.map_or(Bound::Unbounded, Bound::Included),
            to.map_or(Bound::Unbounded, Bound::Excluded),
        ))
    }
}
