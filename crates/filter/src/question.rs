//! A question put to one module of a filter: the key's line, asked for and not yet looked at.
//!
//! Between the two lies the wait for memory, which a lookup fills by asking all its other filters first.
//!
//! Not here: which line it is ([`crate::BlockedFilter::ask`], [`crate::Site::question`]).

use crate::simd::Prober;
use crate::simd::lines::Line;
use shamba_key::{KeyDigest, prefetch_line};

/// A key's line in one filter or module; [`Question::maybe`] answers.
#[derive(Clone, Copy)]
pub struct Question<'a> {
    /// `None` when the slice is absent.
    line: Option<&'a Line>,
    probe: u32,
    probes: u8,
    prober: Prober,
}

// A lookup holds one for each module of each candidate: they are passed in two registers.
const _: () = assert!(size_of::<Question<'_>>() == 16);

impl<'a> Question<'a> {
    #[inline]
    pub(crate) fn new(line: Option<&'a Line>, probe: u32, probes: u8, prober: Prober) -> Self {
        Self { line, probe, probes, prober }
    }

    /// A question without a line: the slice is absent.
    #[inline(always)]
    pub fn unanswerable() -> Self {
        Self { line: None, probe: 0, probes: 0, prober: Prober::SCALAR }
    }

    /// Whether the key may be among those that the filter was built from; `false` is certain.
    #[inline(always)]
    pub fn maybe(self) -> bool {
        self.line.is_none_or(|line| self.prober.all_set(line, self.probe, self.probes))
    }

    /// Whether there is a line to look at; without one the answer is "maybe".
    #[inline(always)]
    pub fn is_answerable(self) -> bool {
        self.line.is_some()
    }

    /// The same question by a digest that was computed anew: what it asks of the line is there no sooner than the digest is,
    /// as where nobody had computed one before. `asked` is what it was made of, and both are the same.
    #[inline(always)]
    pub fn asked_by(self, asked: KeyDigest, anew: KeyDigest) -> Self {
        debug_assert_eq!(asked, anew, "of one key");
        // The difference is nothing, which neither compiler nor processor can know before they have both.
        Self { probe: self.probe ^ (asked.raw() ^ anew.raw()) as u32, ..self }
    }

    /// Asks the processor for the line.
    #[inline(always)]
    pub fn prefetch(self) {
        if let Some(Line(bytes)) = self.line {
            prefetch_line(bytes, 0);
        }
    }
}
