//! Files, clock, randomness and threads, behind traits.
//!
//! Everything above this crate accesses the outside world only through an [`Env`], whose four parts
//! can each be real or simulated. [`Vfs`] is the file system (real, in memory, crash-simulating,
//! fault-injecting), [`Clock`] time, [`Rng`] randomness, [`Spawner`] threads. With
//! [`Env::deterministic`] nothing depends on timing: background work runs on the caller's thread.
//!
//! Not here: the meaning of files (crates `shamba-table` and `shamba`).
#![deny(missing_docs)]

// Traits: what the outside offers.
mod clock;
mod file_error;
mod pages;
mod random;
pub mod sync;

// Files.
mod aligned;
mod batch;
mod random_file;
mod vfs;

// On top of the traits.
mod helpers;
mod layer;
mod lock;
pub mod ranked;
mod shares;
mod system;
mod thread;

// Layers over another file system, and threads.
mod direct;
mod fault;
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
mod mapped;
mod mapped_reads;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#[allow(unsafe_code)]
mod ring;
mod slow;
mod spawn;
mod tree;
mod unbatched;
mod unmapped;

// Whole file systems: real, in memory, crashing.
mod memory;
mod real;
mod sim;

// All file systems agree.
#[cfg(test)]
mod agreement;

pub use aligned::{AlignedBuf, DIRECT_ALIGNMENT_BYTES, read_aligned_at};
pub use batch::{BatchRead, ReadBytes};
pub use clock::{Clock, ManualClock, RealClock};
pub use fault::{Effect, FaultFs, FaultRule, OpKind, Persistence, When};
pub use file_error::FileError;
pub use helpers::{append_all, process_rss_bytes, read_exact_at, read_file, write_file_synced};
pub use layer::Layer;
pub use lock::{lock, try_lock};
pub use mapped_reads::MappedReads;
pub use memory::MemFs;
pub use pages::{LARGE_PAGE_BYTES, Pages};
pub use random::{RealRng, Rng, SeededRng};
pub use random_file::RandomFile;
pub use real::RealFs;
pub use shares::{Share, Shares, THREAD_GROUPS};
pub use sim::{CrashPolicy, FsyncFailure, SimFs};
pub use slow::SlowFs;
pub use spawn::{InlineSpawner, JoinHandle, Spawner, ThreadSpawner};
pub use thread::thread_number;
pub use unbatched::UnbatchedReads;
pub use unmapped::UnmappedLogs;
pub use vfs::{DirEntry, FileLock, LockHeld, LockKind, Vfs, WriteFile};

use std::sync::Arc;

/// The environment of a database. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Env {
    /// Files.
    pub vfs: Arc<dyn Vfs>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub rng: Arc<dyn Rng>,
    /// Threads.
    pub spawner: Arc<dyn Spawner>,
}

impl Env {
    /// The real file system, clock, randomness and threads.
    pub fn real() -> Self {
        Self {
            vfs: Arc::new(RealFs::new()),
            clock: Arc::new(RealClock::new()),
            rng: Arc::new(RealRng::new()),
            spawner: Arc::new(ThreadSpawner::new()),
        }
    }

    /// An environment in which the same calls give the same results: the given files, a manual
    /// clock, a seeded generator, and no threads (background work runs inside the calls that cause
    /// it).
    pub fn deterministic(vfs: Arc<dyn Vfs>, seed: u64) -> Self {
        Self {
            vfs,
            clock: Arc::new(ManualClock::new()),
            rng: Arc::new(SeededRng::new(seed)),
            spawner: Arc::new(InlineSpawner::new()),
        }
    }
}
