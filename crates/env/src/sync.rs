//! Locks and atomics, under the names that all other crates import.
//!
//! These are the types of the standard library. Schedule exploration (`tests/schedules`,
//! `tests/loom`) compiles the same sources with another module in place of this one. The locks and
//! atomics of that module report each step of a thread to a scheduler. So everything that a thread
//! can block on must come from here. At any other lock the exploration would deadlock.
//!
//! Not here: reference counts (`std::sync::Arc`) and cells that are written once (`OnceLock`), on
//! which no thread blocks; counters that are only statistics.

pub use std::sync::{
    Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError,
};

/// State of one thread.
pub use std::thread_local;

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

/// Time for waits with a limit. For all else there is [`Clock`](crate::Clock).
pub mod time {
    use std::sync::OnceLock;
    use std::time::Instant;

    /// Microseconds since the first call in this process; never goes back.
    pub fn now_us() -> u64 {
        static FIRST: OnceLock<Instant> = OnceLock::new();
        u64::try_from(FIRST.get_or_init(Instant::now).elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

/// Whether this build is explored by a scheduler (loom or shuttle). Code that only improves speed
/// is then left out, and sizes are small.
pub const IS_EXPLORED: bool = false;
