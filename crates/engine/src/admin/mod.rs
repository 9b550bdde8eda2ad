//! Administration of whole databases: checks, checkpoints, repair, and descriptions of files.
//!
//! [`verify`] and [`checkpoint`] use the files and the catalog of an open database, while it is
//! read and written. [`verify::check_files`], [`repair`] and [`inspect`] read the files of a
//! database that may be too damaged to open.

mod checkpoint;
pub mod inspect;
pub(crate) mod repair;
#[cfg(test)]
mod tests;
pub(crate) mod verify;

use std::path::Path;

use self::verify::CheckReport;
use crate::database::{Db, Keyspace};
use crate::error::Result;

impl Db {
    /// Copies the present state of the database into `dir`. That directory must be empty or not
    /// exist; its parent must exist. Tables and value files are hard-linked where the file system
    /// allows it, and copied otherwise. The copy is an independent database.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = shamba::Db::open(dir.path().join("db"))?;
    /// use shamba::Db;
    ///
    /// db.put("key", "value")?;
    /// let copy = dir.path().join("copy");
    /// db.checkpoint(&copy)?;
    /// assert!(Db::open(&copy)?.contains_key("key")?);
    /// # Ok::<(), shamba::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Invalid` if `dir` is not empty; `Io` if its parent does not exist; as [`Db::flush`];
    /// `NoSpace`.
    pub fn checkpoint(&self, dir: impl AsRef<Path>) -> Result<()> {
        let core = self.core();
        checkpoint::checkpoint(&core.env, &core.catalog, None, || core.writer.flushed_state(), dir.as_ref())
    }

    /// Reads every byte of every file and reports all damage.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = shamba::Db::open(dir.path().join("db"))?;
    /// let report = db.verify()?;
    /// assert!(report.problems.is_empty(), "{report:?}");
    /// # Ok::<(), shamba::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Closed`. Damage is in the report and not an error.
    pub fn verify(&self) -> Result<CheckReport> {
        let core = self.core();
        let held_bytes_max = core.settings.held_value_bytes_max();
        // What loading filters finds is part of the report, as warnings.
        core.residency.finish_open();
        verify::verify(
            &core.env,
            &core.catalog,
            &core.telemetry,
            || core.lifecycle.has_failed(),
            held_bytes_max,
        )
    }
}

impl Keyspace {
    /// Copies the present state of this keyspace into `dir`, as [`Db::checkpoint`] copies a
    /// database. The copy is a database with this keyspace, its options and an empty default
    /// keyspace.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().expect("a temporary directory");
    /// # let db = shamba::Db::open(dir.path().join("db"))?;
    /// use shamba::Db;
    ///
    /// let users = db.keyspace("users")?;
    /// users.put("1", "Asha")?;
    /// let copy = dir.path().join("copy");
    /// users.checkpoint(&copy)?;
    /// assert!(Db::open(&copy)?.keyspace("users")?.contains_key("1")?);
    /// # Ok::<(), shamba::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Db::checkpoint`]; `Invalid` if the keyspace was dropped.
    pub fn checkpoint(&self, dir: impl AsRef<Path>) -> Result<()> {
        self.check_usable()?;
        let (core, only) = (self.db().core(), Some(self.id()));
        checkpoint::checkpoint(&core.env, &core.catalog, only, || core.writer.flushed_state(), dir.as_ref())
    }
}
