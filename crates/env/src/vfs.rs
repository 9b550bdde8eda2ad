//! The file system as a trait: all crates of the engine access files only through it.
//!
//! Calls mirror those of the operating system and promise no more. A write may be short, a read may
//! be short or interrupted ([`crate::append_all`], [`crate::read_exact_at`] loop). Data is durable
//! after [`WriteFile::sync_data`], a name after [`Vfs::sync_dir`] of its directory.
//!
//! Thread safety: all are shared freely between threads; one [`WriteFile`] has one owner.

use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::batch::BatchRead;
use crate::random_file::RandomFile;

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The file name, without its directory.
    pub name: String,
    /// Length in bytes (0 for a directory).
    pub bytes: u64,
    /// Whether it is a directory.
    pub is_dir: bool,
}

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Many holders, no exclusive one.
    Shared,
    /// One holder.
    Exclusive,
}

/// A held lock; dropping it releases it. It belongs to an open file, not to a process id.
pub trait FileLock: Send + Sync + Debug {}

/// The reason why a lock was not taken: another holder has it. It is inside the `WouldBlock` error
/// that [`Vfs::lock`] returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockHeld {
    /// Whether the holder is this process.
    pub by_this_process: bool,
}

impl LockHeld {
    /// The holder according to `error`, if it is such an error.
    pub fn of(error: &io::Error) -> Option<Self> {
        error.get_ref()?.downcast_ref::<Self>().copied()
    }
}

impl From<LockHeld> for io::Error {
    fn from(held: LockHeld) -> Self {
        Self::new(io::ErrorKind::WouldBlock, held)
    }
}

impl std::fmt::Display for LockHeld {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.by_this_process {
            true => "locked by this process",
            false => "locked by another process",
        })
    }
}

impl std::error::Error for LockHeld {}

/// A file open for appending.
pub trait WriteFile: Send + Sync + Debug {
    /// Appends up to `bytes.len()` bytes and returns the number appended. May be short or
    /// `Interrupted`.
    fn append(&mut self, bytes: &[u8]) -> io::Result<usize>;
    /// Makes the file's bytes durable (and its length).
    fn sync_data(&mut self) -> io::Result<()>;
    /// Makes bytes and all metadata durable.
    fn sync_all(&mut self) -> io::Result<()>;
    /// Truncates the file to `bytes`, or extends it to that length with zeros.
    fn truncate(&mut self, bytes: u64) -> io::Result<()>;
}

/// A file system.
pub trait Vfs: Send + Sync + Debug {
    /// Opens an existing file for reading.
    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn RandomFile>>;
    /// Opens an existing file for reads that bypass the operating system's cache; reads must be
    /// aligned to [`RandomFile::alignment_bytes`]. Where that is not supported, as
    /// [`Self::open_read`].
    fn open_read_direct(&self, path: &Path) -> io::Result<Arc<dyn RandomFile>> {
        self.open_read(path)
    }
    /// Creates an empty file for appending; fails with `AlreadyExists` if the name is taken.
    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>>;
    /// Creates an empty file for many small appends, which survive the end of the process once
    /// [`WriteFile::append`] has returned. Fails with `AlreadyExists` if the name is taken.
    ///
    /// While it is open, and after a crash, zeros may follow the appended bytes: space that was
    /// allocated in advance. `truncate` and the drop of the file remove them.
    fn create_log(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        self.create(path)
    }
    /// Opens an existing file for appending at its end.
    fn open_append(&self, path: &Path) -> io::Result<Box<dyn WriteFile>>;
    /// Renames a file, replacing the target.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file's name.
    fn unlink(&self, path: &Path) -> io::Result<()>;
    /// Gives a file a second name; fails with `AlreadyExists` if it is taken.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Creates a directory and its parents; succeeds if it exists.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty directory.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// The names in a directory, sorted.
    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>>;
    /// Whether a file or directory has this name.
    fn exists(&self, path: &Path) -> io::Result<bool>;
    /// The absolute path of an existing file or directory, with all links resolved. The default is
    /// for file systems without links.
    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        std::path::absolute(path)
    }
    /// Makes the names in a directory durable: creations, renames, removals.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// Locks a file, creating it if necessary (a `Shared` lock never creates: without a file it
    /// succeeds and holds nothing). Fails at once with `WouldBlock`, with a [`LockHeld`] inside, on
    /// a conflict with another holder.
    fn lock(&self, path: &Path, kind: LockKind) -> io::Result<Box<dyn FileLock>>;
    /// Bytes free for this directory's files.
    fn disk_free_bytes(&self, path: &Path) -> io::Result<u64>;
    /// Maximum number of files that this process may have open, if there is a limit.
    fn open_files_max(&self) -> Option<u64> {
        None
    }
    /// Makes those reads at once that the operating system can make so. The others are still to be
    /// made ([`BatchRead::is_made`]).
    fn read_batch(&self, _reads: &mut [BatchRead]) {}
    /// Whether calls take the time of an emulated device ([`crate::SlowFs`]).
    fn is_emulated(&self) -> bool {
        false
    }
}
