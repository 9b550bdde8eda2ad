//! The visible entries of a range, from both ends: two scans that stop where they meet.
//!
//! Invariants: no key is given twice; an error ends the iteration.

use std::fmt;

use super::scan::{Scan, ScanSource};
use crate::error::Result;
use crate::slice::Slice;
use crate::version::KeyRange;

/// The keys and values of a range, in key order, from both ends.
///
/// Each item is a result: an error ends the iteration. Front and back meet without giving a key
/// twice.
#[must_use = "an iterator reads nothing until it is walked"]
pub struct BothEnds {
    front: Scan,
    /// Made at the first step from the back, since most iterators are only walked forward.
    back: Option<Scan>,
    source: ScanSource,
    range: KeyRange,
    done: bool,
}

impl BothEnds {
    /// An iterator over `range` that reads nothing yet.
    pub fn new(source: ScanSource, range: KeyRange) -> Self {
        Self { front: Scan::new(source.clone(), range.clone()), back: None, source, range, done: false }
    }

    /// Ends the iteration.
    fn finish(&mut self) -> Option<Result<(Slice, Slice)>> {
        self.done = true;
        None
    }
}

impl Iterator for BothEnds {
    type Item = Result<(Slice, Slice)>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match self.take_found() {
            Some(entry) => Some(Ok(entry)),
            None => self.next_searched(),
        }
    }
}

impl BothEnds {
    /// The next entry of the front, if it was found already and no end can be reached: while only
    /// one end is walked.
    #[inline(always)]
    pub fn take_found(&mut self) -> Option<(Slice, Slice)> {
        if self.back.is_some() { None } else { self.front.take_found() }
    }

    /// The next entry of the front, wherever it is. [`Self::take_found`] is cheaper where it can be
    /// used.
    pub fn next_searched(&mut self) -> Option<Result<(Slice, Slice)>> {
        if self.done {
            return None;
        }
        match self.front.next() {
            Ok(true) => {}
            Ok(false) => return self.finish(),
            Err(error) => {
                self.done = true;
                return Some(Err(error));
            }
        }
        if let Some(last_given) = self.back.as_ref().and_then(Scan::key) {
            if self.front.key() >= Some(last_given) {
                return self.finish();
            }
        }
        self.front.take_entry().map(Ok)
    }
}

impl DoubleEndedIterator for BothEnds {
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let back = self.back.get_or_insert_with(|| Scan::new(self.source.clone(), self.range.clone()));
        match back.prev() {
            Ok(true) => {}
            Ok(false) => return self.finish(),
            Err(error) => {
                self.done = true;
                return Some(Err(error));
            }
        }
        if let Some(last_given) = self.front.key() {
            if back.key() <= Some(last_given) {
                return self.finish();
            }
        }
        back.take_entry().map(Ok)
    }
}

impl std::iter::FusedIterator for BothEnds {}

impl fmt::Debug for BothEnds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BothEnds").field("range", &self.range).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
