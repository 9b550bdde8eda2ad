//! The reader of a table: open for as long as the table is part of a tree, or opened for one use.
//!
//! Every table has a reader where the memory budget has room for all of them. Where it has not, recovery
//! leaves some closed ([`crate::memory::tables_to_open`]); whoever needs a closed one opens it for itself
//! through [`TableMeta::open`] and drops it afterwards. Trees that exist only on paper (tests, simulation)
//! have neither readers nor an opener.
//!
//! Invariant: tables with range tombstones are never closed, so that [`super::Run::tombstones`] needs no
//! reads.

use std::fmt;
use std::sync::{Arc, OnceLock};

use shamba_table::{Error, TableReader};

use super::TableMeta;

/// Opens tables for one use.
pub trait OpenTables: Send + Sync {
    /// A reader of the table, which holds nothing in memory but what each reader needs.
    ///
    /// # Errors
    /// As [`TableReader::open`]; a file that is missing is `Corruption`.
    fn open(&self, meta: &TableMeta) -> Result<Arc<TableReader>, Error>;
}

/// Where a table's reader is, if it is open, and who opens it otherwise.
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

    /// Keeps the table open from now on. The first reader stays.
    pub fn set(&self, reader: Arc<TableReader>) {
        let _ = self.reader.set(reader);
    }

    /// Says who opens the table for one use.
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
    /// The table's reader, or one for this use only.
    ///
    /// # Errors
    /// What opening says; `Invalid` for a table that exists only on paper.
    pub fn open(&self) -> Result<Arc<TableReader>, Error> {
        match (self.reader.get(), self.reader.opener.get()) {
            (Some(reader), _) => Ok(Arc::clone(reader)),
            (None, Some(opener)) => opener.open(self),
            (None, None) => Err(Error::Invalid(format!("table {} is not open", self.id))),
        }
    }
}
