//! The reader of a table: open as long as the table is part of a tree, or opened for one use.
//!
//! If the memory budget has room, every table has a reader. Otherwise recovery leaves some tables
//! closed (package `shamba`, `memory::tables_to_open`). A caller that needs a closed table opens it
//! through [`TableMeta::open`] and drops the reader afterwards. Trees without files (tests,
//! simulation) have neither readers nor an opener.
//!
//! Invariant: tables with range tombstones are never closed, so that [`super::Run::tombstones`]
//! needs no reads.

use std::fmt;
use std::sync::{Arc, OnceLock};

use shamba_table::{Error, TableReader};

use super::TableMeta;

/// Opens tables for one use.
pub trait OpenTables: Send + Sync {
    /// Opens a reader of the table that holds no memory beyond the minimum of every reader.
    ///
    /// # Errors
    /// As [`TableReader::open`]; a missing file is `Corruption`.
    fn open(&self, meta: &TableMeta) -> Result<Arc<TableReader>, Error>;
}

/// The reader of a table, if it is open, and the opener for the case that it is not.
#[derive(Default)]
pub struct ReaderSlot {
    reader: OnceLock<Arc<TableReader>>,
    opener: OnceLock<Arc<dyn OpenTables>>,
}

impl ReaderSlot {
    /// The reader, if the table is open.
    #[inline]
    pub fn get(&self) -> Option<&Arc<TableReader>> {
        self.reader.get()
    }

    /// Keeps the table open from now on. A second call has no effect.
    pub fn set(&self, reader: Arc<TableReader>) {
        let _ = self.reader.set(reader);
    }

    /// Sets the opener that opens the table for one use.
    pub fn set_opener(&self, opener: Arc<dyn OpenTables>) {
        let _ = self.opener.set(opener);
    }

    /// Closes the table.
    #[cfg(test)]
    pub fn take(&mut self) -> Option<Arc<TableReader>> {
        self.reader.take()
    }
}

impl fmt::Debug for ReaderSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReaderSlot").field("is_open", &self.reader.get().is_some()).finish_non_exhaustive()
    }
}

impl TableMeta {
    /// Returns the table's reader, or opens one for this use.
    ///
    /// # Errors
    /// The error of opening the file; `Invalid` for a table without a file.
    pub fn open(&self) -> Result<Arc<TableReader>, Error> {
        match (self.reader.get(), self.reader.opener.get()) {
            (Some(reader), _) => Ok(Arc::clone(reader)),
            (None, Some(opener)) => opener.open(self),
            (None, None) => Err(Error::Invalid(format!("table {} is not open", self.id))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iter::testing::Store;
    use shamba_table::FragmentedTombstones;
    use shamba_testkit::Row;

    #[test]
    fn a_slot_shows_whether_its_table_is_open() {
        assert_eq!(format!("{:?}", ReaderSlot::default()), "ReaderSlot { is_open: false, .. }");
        let tables = Store::new().build(&[Row::put(b"a", 1)], &FragmentedTombstones::default(), 4);
        assert_eq!(format!("{:?}", tables[0].meta.reader), "ReaderSlot { is_open: true, .. }");
    }
}
