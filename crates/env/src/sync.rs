//! Locks, and the atomics of lock-free parts, by the names under which everything above takes them.
//!
//! Here they are the standard library's. The suites that search schedules compile the same sources with other modules in
//! place of this one, whose locks and atomics tell a scheduler what each thread is about to do (`tests/schedules`,
//! `tests/loom`). So whatever threads can wait at comes from here: at a lock that does not, the search would stand still.
//!
//! Not here: reference counts (`std::sync::Arc`) and cells that are written once (`OnceLock`), at which nobody waits; counters
//! that are only figures.

pub use std::sync::{
    Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError,
};

/// Atomics that protocols are made of.
pub mod atomic {
    pub use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
}

/// Threads.
pub mod thread {
    pub use std::thread::{Builder, JoinHandle, available_parallelism};
}

/// Whether every schedule is being tried: then what only makes things fast is left out, and sizes are small.
pub const IS_EXPLORED: bool = false;
