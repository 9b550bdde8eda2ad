//! The handle: what keeps a database open, shared by everything that a caller may hold of it.
//!
//! Workers hold the [`Core`], callers the handle. So the last caller's drop is noticed, whatever it holds:
//! it stops the workers, marks the database closed and frees the lock, without a flush, as a kill would.
//!
//! Not here: the end in order ([`crate::Db::close`]).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use shamba_env::JoinHandle;

use crate::core::Core;
use crate::sync::Mutex;
use shamba_env::lock;
use shamba_tree::iter::registry::{IterRegistry, Owner};

/// An open database and its workers.
pub(crate) struct Handle {
    pub(crate) core: Arc<Core>,
    workers: Mutex<Vec<JoinHandle>>,
}

impl Handle {
    /// The handle of a database whose workers are these.
    pub(crate) fn new(core: Arc<Core>, workers: Vec<JoinHandle>) -> Self {
        Self { core, workers: Mutex::new(workers) }
    }

    /// Stops the workers and waits for them.
    pub(crate) fn stop(&self) {
        let workers: Vec<JoinHandle> = lock(&self.workers).drain(..).collect();
        self.core.stop_workers(workers);
    }
}

impl Owner for Handle {
    fn iterators(&self) -> &IterRegistry {
        &self.core.iterators
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.stop();
        if !self.core.closed.swap(true, Ordering::AcqRel) {
            self.core.warn_of_unwritten();
        }
        // Blocks that a caller still has of a value keep parts of the core; the lock must not wait for them.
        lock(&self.core.file_lock).take();
    }
}
