//! The public faces of scans: [`Iter`], which is an iterator from both ends, and [`Cursor`], which walks.
//!
//! Both are frozen at the sequence number that they were made at, whatever is written, flushed or merged
//! meanwhile, and neither keeps memtables or files alive while idle ([`super::scan`]).
//!
//! Not here: which ranges callers can name ([`crate::key_range`]).

use std::fmt;

use super::scan::{Scan, ScanSource};
use crate::error::Result;
use crate::planted::{Defect, is_planted};
use crate::slice::Slice;
use crate::version::KeyRange;

/// The keys and values of a range, in key order, from both ends.
///
/// Each item is a result: an error ends the iteration. Front and back meet without giving a key twice.
#[must_use = "an iterator reads nothing until it is walked"]
pub struct Iter {
    front: Scan,
    /// Made at the first step from the back, since most iterators are only walked forward.
    back: Option<Scan>,
    source: ScanSource,
    range: KeyRange,
    done: bool,
}

impl Iter {
    pub(crate) fn new(source: ScanSource, range: KeyRange) -> Self {
        Self { front: Scan::new(source.clone(), range.clone()), back: None, source, range, done: false }
    }

    /// Ends the iteration.
    fn finish(&mut self) -> Option<Result<(Slice, Slice)>> {
        self.done = true;
        None
    }
}

impl Iterator for Iter {
    type Item = Result<(Slice, Slice)>;

    fn next(&mut self) -> Option<Self::Item> {
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

impl DoubleEndedIterator for Iter {
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
            if back.key() < Some(last_given)
                || (back.key() == Some(last_given) && !is_planted(Defect::KeyGivenTwice))
            {
                return self.finish();
            }
        }
        back.take_entry().map(Ok)
    }
}

impl std::iter::FusedIterator for Iter {}

impl fmt::Debug for Iter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iter").field("range", &self.range).finish_non_exhaustive()
    }
}

/// A place in a keyspace that can be moved: sought, and walked both ways.
///
/// A new cursor stands nowhere: [`next`](Self::next) goes to the first key, [`prev`](Self::prev) to the last.
/// Past the last key it stands after all of them, and `prev` returns to the last; before the first likewise.
/// After an error it stands nowhere. It sees only keys within the range that it was made for, if any.
pub struct Cursor {
    scan: Scan,
}

impl Cursor {
    pub(crate) fn new(source: ScanSource, range: KeyRange) -> Self {
        Self { scan: Scan::new(source, range) }
    }

    /// Goes to the first key at or after `key`, which may be longer than any key; whether there is one.
    ///
    /// # Errors
    /// What reading the tables says: `Io`, `Corruption`, `Unsupported`; `Closed` after the database was
    /// closed. So for every move.
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.scan.seek(key.as_ref())
    }

    /// Goes to the last key at or before `key`; whether there is one.
    ///
    /// # Errors
    /// As [`seek`](Self::seek).
    pub fn seek_for_prev(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.scan.seek_for_prev(key.as_ref())
    }

    /// Goes to the first key; whether there is one.
    ///
    /// # Errors
    /// As [`seek`](Self::seek).
    pub fn seek_to_first(&mut self) -> Result<bool> {
        self.scan.seek_to_first()
    }

    /// Goes to the last key; whether there is one.
    ///
    /// # Errors
    /// As [`seek`](Self::seek).
    pub fn seek_to_last(&mut self) -> Result<bool> {
        self.scan.seek_to_last()
    }

    /// Goes one key on; whether there is one.
    ///
    /// # Errors
    /// As [`seek`](Self::seek).
    #[allow(clippy::should_implement_trait, reason = "the moves of a cursor come in pairs; Iter iterates")]
    pub fn next(&mut self) -> Result<bool> {
        self.scan.next()
    }

    /// Goes one key back; whether there is one.
    ///
    /// # Errors
    /// As [`seek`](Self::seek).
    pub fn prev(&mut self) -> Result<bool> {
        self.scan.prev()
    }

    /// Whether the cursor stands at a key.
    pub fn valid(&self) -> bool {
        self.scan.entry().is_some()
    }

    /// The key and value that it stands at.
    pub fn entry(&self) -> Option<(&[u8], &[u8])> {
        self.scan.entry()
    }

    /// The key that it stands at.
    pub fn key(&self) -> Option<&[u8]> {
        self.scan.entry().map(|(key, _)| key)
    }

    /// The value that it stands at.
    pub fn value(&self) -> Option<&[u8]> {
        self.scan.entry().map(|(_, value)| value)
    }
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cursor").field("entry", &self.entry()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
