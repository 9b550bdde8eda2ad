//! Progress of a workload, which another thread may display.

use std::sync::atomic::{AtomicU64, Ordering};

/// Progress of a workload, for display.
#[derive(Debug, Default)]
pub struct Progress {
    done: AtomicU64,
    total: AtomicU64,
}

impl Progress {
    /// Operations done, and their total.
    pub fn read(&self) -> (u64, u64) {
        (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed))
    }

    pub(crate) fn begin(&self, total: u64) {
        self.done.store(0, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
    }

    pub(crate) fn add(&self, ops: u64) {
        self.done.fetch_add(ops, Ordering::Relaxed);
    }
}
