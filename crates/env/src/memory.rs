//! Files in memory: fast, for tests.
//!
//! Behaves as [`crate::RealFs`], including locks (among handles of this process). Copies of a
//! [`MemFs`] share their files. There is no durability: syncs succeed and do nothing.
//!
//! Not here: crashes ([`crate::SimFs`]), failures ([`crate::FaultFs`]).

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::random_file::RandomFile;
use crate::sync::{Mutex, MutexGuard, PoisonError};
use crate::tree::{CellReader, FileCell, Tree};
use crate::vfs::{DirEntry, FileLock, LockKind, Vfs, WriteFile};

/// Free bytes that a file system in memory reports: more than any test writes.
pub(crate) const FREE_BYTES: u64 = 1 << 40;

/// A file system in memory. Copies share it.
#[derive(Clone, Debug)]
pub struct MemFs {
    tree: Arc<Mutex<Tree>>,
}

impl MemFs {
    /// An empty file system: only the root directory.
    pub fn new() -> Self {
        Self { tree: Arc::new(Mutex::new(Tree::new())) }
    }

    fn tree(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for MemFs {
    fn default() -> Self {
        Self::new()
    }
}

#[derive(Debug)]
struct MemWriteFile(Arc<FileCell>);

impl WriteFile for MemWriteFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.append(bytes);
        Ok(bytes.len())
    }

    fn sync_data(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn sync_all(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn truncate(&mut self, bytes: u64) -> io::Result<()> {
        self.0.truncate(bytes)
    }
}

impl Vfs for MemFs {
    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn RandomFile>> {
        Ok(Arc::new(CellReader::new(self.tree().file(path)?)))
    }

    fn open_read_direct(&self, path: &Path) -> io::Result<Arc<dyn RandomFile>> {
        Ok(Arc::new(CellReader::direct(self.tree().file(path)?)))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        let (cell, _) = self.tree().create(path)?;
        Ok(Box::new(MemWriteFile(cell)))
    }

    fn open_append(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        Ok(Box::new(MemWriteFile(self.tree().file(path)?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.tree().rename(from, to).map(drop)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.tree().unlink(path).map(drop)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.tree().link(from, to).map(drop)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.tree().create_dir_all(path).map(drop)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.tree().remove_dir(path).map(drop)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.tree().list(path)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.tree().exists(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.tree().dir(path).map(drop)
    }

    fn lock(&self, path: &Path, kind: LockKind) -> io::Result<Box<dyn FileLock>> {
        let (lock, _) = self.tree().lock(path, kind)?;
        Ok(Box::new(lock))
    }

    fn disk_free_bytes(&self, path: &Path) -> io::Result<u64> {
        self.tree().exists(path)?.then_some(FREE_BYTES).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}
