//! A file system that wraps another one and can change how open files are read and written. Names,
//! directories and locks are those of the wrapped file system.
//!
//! A type that implements [`Layer`] is a [`Vfs`]: it wraps each file when the file is opened, and
//! passes every other call to the file system below.
//!
//! Not here: fault injection, which has to see every call ([`crate::FaultFs`]).

use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::batch::BatchRead;
use crate::random_file::RandomFile;
use crate::vfs::{DirEntry, FileLock, LockKind, Vfs, WriteFile};

/// A file system that wraps another one.
pub trait Layer: Send + Sync + Debug {
    /// The file system below.
    fn below(&self) -> &dyn Vfs;
    /// Wraps a file that was just opened for reading.
    fn over_reads(&self, file: Arc<dyn RandomFile>) -> Arc<dyn RandomFile> {
        file
    }
    /// Wraps a file that was just opened for appending.
    fn over_writes(&self, file: Box<dyn WriteFile>) -> Box<dyn WriteFile> {
        file
    }
    /// Calls [`Vfs::create_log`] of the file system below. The result is not wrapped yet.
    fn create_log_below(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        self.below().create_log(path)
    }
    /// Whether batches of reads are passed to the file system below. It does not make those of
    /// files that this layer has wrapped: such a file has no descriptor.
    fn batches_reads(&self) -> bool {
        true
    }
    /// Whether this layer adds the latency of an emulated device.
    fn emulates(&self) -> bool {
        false
    }
}

impl<L: Layer> Vfs for L {
    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn RandomFile>> {
        self.below().open_read(path).map(|file| self.over_reads(file))
    }

    fn open_read_direct(&self, path: &Path) -> io::Result<Arc<dyn RandomFile>> {
        self.below().open_read_direct(path).map(|file| self.over_reads(file))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        self.below().create(path).map(|file| self.over_writes(file))
    }

    fn create_log(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        self.create_log_below(path).map(|file| self.over_writes(file))
    }

    fn open_append(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        self.below().open_append(path).map(|file| self.over_writes(file))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.below().rename(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.below().unlink(path)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.below().link(from, to)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.below().create_dir_all(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.below().remove_dir(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.below().list(path)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.below().exists(path)
    }

    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        self.below().canonical(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.below().sync_dir(path)
    }

    fn lock(&self, path: &Path, kind: LockKind) -> io::Result<Box<dyn FileLock>> {
        self.below().lock(path, kind)
    }

    fn disk_free_bytes(&self, path: &Path) -> io::Result<u64> {
        self.below().disk_free_bytes(path)
    }

    fn open_files_max(&self) -> Option<u64> {
        self.below().open_files_max()
    }

    fn read_batch(&self, reads: &mut [BatchRead]) {
        if self.batches_reads() {
            self.below().read_batch(reads);
        }
    }

    fn is_emulated(&self) -> bool {
        self.emulates() || self.below().is_emulated()
    }
}
