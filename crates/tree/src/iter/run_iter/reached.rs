//! The check that a seek has reached its target.
//!
//! A block is found by its separator, and a table by the range that the manifest states. If
//! these contradict the entries, a seek can end before its target. A reader that seeks past what it
//! has read would then read it again, for ever.

use std::cmp::Ordering;

use shamba_key::{SeqNo, internal_cmp};
use shamba_table::{EntryIter, Error, Result};

use super::{RunIter, TableList};

impl<L: TableList> RunIter<L> {
    /// Checks that the seek to `(key, seq)` that has just ended is at an entry at or after it.
    ///
    /// # Errors
    /// `Corruption`; the iterator is invalid then.
    #[inline]
    pub(super) fn check_reached(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        self.check_side(key, seq, Ordering::Less)
    }

    /// As [`Self::check_reached`], at or before it.
    #[inline]
    pub(super) fn check_reached_back(&mut self, key: &[u8], seq: SeqNo) -> Result<()> {
        self.check_side(key, seq, Ordering::Greater)
    }

    #[inline]
    fn check_side(&mut self, key: &[u8], seq: SeqNo, wrong: Ordering) -> Result<()> {
        if self.valid && internal_cmp(self.key(), self.seq(), key, seq) == wrong {
            return Err(self.not_reached(key));
        }
        Ok(())
    }

    #[cold]
    fn not_reached(&mut self, key: &[u8]) -> Error {
        let at = self.key().escape_ascii();
        let detail = format!("a seek to key \"{}\" has ended at \"{at}\"", key.escape_ascii());
        let table = self.table().map(|table| table.meta.open());
        self.valid = false;
        match table {
            Some(Ok(reader)) => Error::corruption(reader.path(), 0, "table", detail),
            Some(Err(error)) => error,
            None => Error::Invalid(detail),
        }
    }
}
