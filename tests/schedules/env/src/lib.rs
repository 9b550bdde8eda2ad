//! The sources of `shamba-env` with [`sync`] replaced: locks and threads are shuttle's, so that its
//! scheduler decides which thread continues.
//!
//! `tests/schedules/table` and `tests/schedules/engine` are the sources of the table and the engine
//! over this crate. So the engine under test is the one that ships, file by file, except for this
//! one module, and for the numbers of threads, which are those of the schedule's threads.
//!
//! Not here: the scenarios (`tests/schedules`).
#![deny(missing_docs)]

#[path = "../../../../crates/env/src/aligned.rs"]
mod aligned;
#[path = "../../../../crates/env/src/batch.rs"]
mod batch;
#[path = "../../../../crates/env/src/clock.rs"]
mod clock;
#[path = "../../../../crates/env/src/direct.rs"]
mod direct;
#[path = "../../../../crates/env/src/fault/mod.rs"]
mod fault;
#[path = "../../../../crates/env/src/file_error.rs"]
mod file_error;
#[path = "../../../../crates/env/src/helpers.rs"]
mod helpers;
#[path = "../../../../crates/env/src/layer.rs"]
mod layer;
#[path = "../../../../crates/env/src/lock.rs"]
mod lock;
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
#[path = "../../../../crates/env/src/mapped/mod.rs"]
mod mapped;
#[path = "../../../../crates/env/src/mapped_reads.rs"]
mod mapped_reads;
#[path = "../../../../crates/env/src/memory.rs"]
mod memory;
#[path = "../../../../crates/env/src/pages/mod.rs"]
mod pages;
#[path = "../../../../crates/env/src/random.rs"]
mod random;
#[path = "../../../../crates/env/src/random_file.rs"]
mod random_file;
#[path = "../../../../crates/env/src/ranked.rs"]
pub mod ranked;
#[path = "../../../../crates/env/src/real.rs"]
mod real;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#[allow(unsafe_code)]
#[path = "../../../../crates/env/src/ring.rs"]
mod ring;
#[path = "../../../../crates/env/src/shares.rs"]
mod shares;
#[path = "../../../../crates/env/src/sim/mod.rs"]
mod sim;
#[path = "../../../../crates/env/src/slow.rs"]
mod slow;
#[path = "../../../../crates/env/src/spawn.rs"]
mod spawn;
pub mod sync;
#[path = "../../../../crates/env/src/system/mod.rs"]
mod system;
mod thread;
#[path = "../../../../crates/env/src/tree/mod.rs"]
mod tree;
#[path = "../../../../crates/env/src/unbatched.rs"]
mod unbatched;
#[path = "../../../../crates/env/src/unmapped.rs"]
mod unmapped;
#[path = "../../../../crates/env/src/vfs.rs"]
mod vfs;

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
    /// An environment in which only the schedule varies: files in memory, time that passes when it
    /// is read or waited for, seeded randomness, threads that the scheduler runs one at a time.
    pub fn scheduled(vfs: Arc<dyn Vfs>, seed: u64) -> Self {
        Self {
            vfs,
            clock: Arc::new(sync::time::ScheduledClock),
            rng: Arc::new(SeededRng::new(seed)),
            spawner: Arc::new(sync::thread::ScheduledSpawner),
        }
    }

    /// As in `shamba-env`, for callers without an environment of their own. Not useful under a
    /// scheduler.
    pub fn real() -> Self {
        Self::scheduled(Arc::new(RealFs::new()), 0)
    }
}
