//! The handle keeps a database open. It is shared by everything that a caller may hold of the
//! database.
//!
//! Worker threads hold the [`Core`], callers the handle, so that the drop of the last caller's
//! object is noticed. That drop stops the workers, marks the database closed and releases the file
//! lock. It does not flush, so it leaves the same state as a kill.
//!
//! The orderly end is [`crate::Db::close`].

use std::sync::Arc;

use shamba_env::Shares;

use super::core::Core;
use crate::error::Error;
use crate::reads::Keeper;
use shamba_tree::iter::registry::{IterRegistry, Owner};
use shamba_tree::lookup::pool::ReadPool;

/// The part of an open database that callers hold, except scans.
pub(crate) struct Handle {
    pub(crate) core: Arc<Core>,
    open: Shares<OpenDatabase>,
}

/// An open database and its workers. Scans hold it too, without a count that their threads share.
struct OpenDatabase {
    core: Arc<Core>,
}

impl Handle {
    /// The handle of a database whose workers run.
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { open: Shares::new(OpenDatabase { core: Arc::clone(&core) }), core }
    }

    /// Stops the workers and waits for them.
    pub(crate) fn stop(&self) {
        self.core.stop_workers();
    }
}

impl Owner for OpenDatabase {
    fn iterators(&self) -> &IterRegistry {
        self.core.reads.iterators()
    }

    fn reading_threads(&self) -> Option<&ReadPool> {
        Some(self.core.reads.value_threads())
    }

    fn cold_reads(&self) -> Option<&ReadPool> {
        self.core.reads.reading_threads()
    }
}

impl Keeper for Handle {
    fn owner(&self) -> Arc<dyn Owner> {
        self.open.share()
    }

    fn finish_open(&self) {
        self.open.core.residency.finish_open();
    }
}

impl Drop for OpenDatabase {
    fn drop(&mut self) {
        self.core.stop_workers();
        if self.core.lifecycle.close() {
            self.core.writer.warn_of_unwritten();
            self.core.writer.durable().end(&Error::closed());
        }
        // Blocks that a caller still holds through a value keep parts of the core alive; the file
        // lock must not wait for them.
        self.core.file_lock.lock().take();
    }
}
