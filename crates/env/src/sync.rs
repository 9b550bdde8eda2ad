//! Locks and the atomics of lock-free parts, under the names that all other crates import.
//!
//! Here they are the standard library's. The suites that explore schedules compile the same sources
//! with other modules in place of this one, whose locks and atomics tell a scheduler what each
//! thread is about to do (`tests/schedules`, `tests/loom`). So everything that a thread can block
//! on must come from here: the exploration would deadlock at any other lock.
//!
//! Not here: reference counts (`std::sync::Arc`) and cells that are written once (`OnceLock`), on
//! which no thread blocks; counters that are only statistics.

pub use std::sync::{
    Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError,
};

/// Atomics that synchronization protocols use.
pub mod atomic {
    pub use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
}

/// Threads.
pub mod thread {
    pub use std::thread::{Builder, JoinHandle, ThreadId, available_parallelism};

    /// The calling thread.
    pub fn current_id() -> ThreadId {
        std::thread::current().id()
    }
}

/// Whether schedules are being explored: then code that only improves speed is left out, and sizes
/// are small.
pub const IS_EXPLORED: bool = false;
