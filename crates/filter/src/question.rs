//! A prepared probe of one filter module: the key's line, prefetched but not yet read.
//!
//! A lookup prepares the probes of all its filters before it evaluates the first, so that the cache
//! misses overlap.
//!
//! Not here: the choice of the line ([`crate::Site::question`]).

use crate::simd::Prober;
use crate::simd::lines::Line;
use shamba_key::{KeyDigest, prefetch_line};

/// A prepared probe; [`Question::maybe`] evaluates it.
#[derive(Clone, Copy)]
pub struct Question<'a> {
    /// `None` when the slice is absent.
    line: Option<&'a Line>,
    probe: u32,
    probes: u8,
    prober: Prober,
}

// A lookup holds one for each module of each candidate; the size lets them be passed in two
// registers.
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
    // By reference: a copy would wait for the stores of all its parts.
    #[inline(always)]
    pub fn maybe(&self) -> bool {
        self.line.is_none_or(|line| self.prober.all_set(line, self.probe, self.probes))
    }

    /// Whether there is a line to read; without one the answer is "maybe".
    #[inline(always)]
    pub fn is_answerable(&self) -> bool {
        self.line.is_some()
    }

    /// The same probe with an artificial data dependency on `anew`, a digest of the same key that
    /// was computed again. The line is then read no earlier than that digest is available. Used by
    /// the baseline without hash sharing, which must pay for each hash. `asked` is the digest from
    /// which the probe was prepared; both must be equal.
    #[inline(always)]
    pub fn asked_by(self, asked: KeyDigest, anew: KeyDigest) -> Self {
        debug_assert_eq!(asked, anew, "of one key");
        // The difference is 0, which neither compiler nor processor can know before both are
        // available.
        Self { probe: self.probe ^ (asked.raw() ^ anew.raw()) as u32, ..self }
    }

    /// Prefetches the line.
    #[inline(always)]
    pub fn prefetch(self) {
        if let Some(Line(bytes)) = self.line {
            prefetch_line(bytes, 0);
        }
    }
}
