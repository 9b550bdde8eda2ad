//! The public types of scans: [`Iter`], a double-ended iterator, and [`Cursor`], which can be
//! moved.
//!
//! Both read at the sequence number at which they were made, whatever is written, flushed or
//! compacted meanwhile. Neither keeps memtables or files alive while idle ([`super::scan`]).
//!
//! The ranges that callers can name are in [`crate::key_range`].

use std::fmt;

use crate::error::{Error, Result};
use shamba_tree::iter::both_ends::BothEnds;
use shamba_tree::iter::scan::{Scan, ScanSource};
use shamba_tree::slice::Slice;
use shamba_tree::version::KeyRange;

/// The keys and values of a range, in key order, from both ends.
///
/// Each item is a result: an error ends the iteration. No key is returned by both ends.
#[must_use = "an iterator reads nothing until it is walked"]
pub struct Iter(BothEnds);

impl Iter {
    pub(crate) fn new(source: ScanSource, range: KeyRange) -> Self {
        Self(BothEnds::new(source, range))
    }
}

impl Iterator for Iter {
    type Item = Result<(Slice, Slice)>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match self.0.take_found() {
            Some(entry) => Some(Ok(entry)),
            None => Some(self.0.next_searched()?.map_err(Error::from)),
        }
    }
}

impl DoubleEndedIterator for Iter {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        Some(self.0.next_back()?.map_err(Error::from))
    }
}

impl std::iter::FusedIterator for Iter {}

impl fmt::Debug for Iter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The keys of a range, in key order, from both ends. Made by [`crate::Db::keys`].
///
/// Each item is a result: an error ends the iteration. No key is returned by both ends.
#[must_use = "an iterator reads nothing until it is walked"]
pub struct Keys(BothEnds);

impl Keys {
    /// The keys that `source`, which reads no values, finds in `range`.
    pub(crate) fn new(source: ScanSource, range: KeyRange) -> Self {
        debug_assert!(!source.reads_values, "values are read that nobody asks for");
        Self(BothEnds::new(source, range))
    }
}

impl Iterator for Keys {
    type Item = Result<Slice>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.0.next()?.map(|(key, _)| key).map_err(Error::from))
    }
}

impl DoubleEndedIterator for Keys {
    fn next_back(&mut self) -> Option<Self::Item> {
        Some(self.0.next_back()?.map(|(key, _)| key).map_err(Error::from))
    }
}

impl std::iter::FusedIterator for Keys {}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The moves of a cursor with the field `scan`.
macro_rules! cursor_moves {
    () => {
        /// Goes to the first key at or after `key`, which may be longer than any stored key.
        /// Returns whether there is one.
        ///
        /// # Errors
        /// Errors of reading the tables: `Io`, `Corruption`, `Unsupported`; `Closed` after the
        /// database was closed. The same holds for every move that has to read.
        pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
            Ok(self.scan.seek(key.as_ref())?)
        }

        /// Goes to the last key at or before `key`. Returns whether there is one.
        ///
        /// # Errors
        /// As [`seek`](Self::seek).
        pub fn seek_for_prev(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
            Ok(self.scan.seek_for_prev(key.as_ref())?)
        }

        /// Goes to the first key. Returns whether there is one.
        ///
        /// # Errors
        /// As [`seek`](Self::seek).
        pub fn seek_to_first(&mut self) -> Result<bool> {
            Ok(self.scan.seek_to_first()?)
        }

        /// Goes to the last key. Returns whether there is one.
        ///
        /// # Errors
        /// As [`seek`](Self::seek).
        pub fn seek_to_last(&mut self) -> Result<bool> {
            Ok(self.scan.seek_to_last()?)
        }

        /// Goes to the next key. Returns whether there is one.
        ///
        /// # Errors
        /// As [`seek`](Self::seek).
        #[allow(
            clippy::should_implement_trait,
            reason = "the moves of a cursor come in pairs; iterators iterate"
        )]
        #[inline]
        pub fn next(&mut self) -> Result<bool> {
            Ok(self.scan.next()?)
        }

        /// Goes to the previous key. Returns whether there is one.
        ///
        /// # Errors
        /// As [`seek`](Self::seek).
        pub fn prev(&mut self) -> Result<bool> {
            Ok(self.scan.prev()?)
        }
    };
}

pub(crate) use cursor_moves;

/// A position in a keyspace that can be moved by seeks and by steps in both directions.
///
/// A new cursor has no position: [`next`](Self::next) goes to the first key, [`prev`](Self::prev)
/// to the last. A step beyond the last key moves the cursor after all keys, and `prev` then returns
/// to the last; the same holds before the first key. After an error there is no position. The
/// cursor sees only keys within the range that it was made for, if any.
///
/// ```
/// # let dir = tempfile::tempdir().expect("a temporary directory");
/// # let db = shamba::Db::open(dir.path().join("db"))?;
/// for key in ["a", "c", "e"] {
///     db.put(key, "")?;
/// }
/// let mut cursor = db.cursor();
/// cursor.seek("b")?;
/// assert_eq!(cursor.key(), Some(&b"c"[..]));
/// cursor.prev()?;
/// assert_eq!(cursor.key(), Some(&b"a"[..]));
/// # Ok::<(), shamba::Error>(())
/// ```
pub struct Cursor {
    scan: Scan,
}

impl Cursor {
    pub(crate) fn new(source: ScanSource, range: KeyRange) -> Self {
        Self { scan: Scan::new(source, range) }
    }

    cursor_moves!();

    /// A copy of the current entry, which the cursor may no longer have afterwards.
    pub(crate) fn take_entry(&mut self) -> Option<(Slice, Slice)> {
        self.scan.take_entry()
    }

    /// Whether the cursor is at a key.
    pub fn valid(&self) -> bool {
        self.scan.entry().is_some()
    }

    /// The current key and value.
    #[inline]
    pub fn entry(&self) -> Option<(&[u8], &[u8])> {
        self.scan.entry()
    }

    /// The current key.
    #[inline]
    pub fn key(&self) -> Option<&[u8]> {
        self.scan.key()
    }

    /// The current value.
    #[inline]
    pub fn value(&self) -> Option<&[u8]> {
        self.scan.value()
    }
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cursor").field("entry", &self.entry()).finish_non_exhaustive()
    }
}
