//! The calls of [`SimFs`] as a [`Vfs`]: apply each to the live tree and record it.
//!
//! The state's lock is held over both, so the recorded order is the order of the effects. Reads
//! take only the file's own lock.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::disk::{Op, Write, in_memory};
use super::{FsyncFailure, SimFs, State};
use crate::memory::FREE_BYTES;
use crate::random_file::RandomFile;
use crate::sync::MutexGuard;
use crate::tree::{CellReader, FileCell, NameChange};
use crate::vfs::{DirEntry, FileLock, LockKind, Vfs, WriteFile};

/// A log grows by this much: little, so that short tests see it grow.
const ROOM_BYTES: u64 = 2_048;
/// EIO.
const IO_ERROR: i32 = 5;

#[derive(Debug)]
struct SimWriteFile {
    fs: SimFs,
    cell: Arc<FileCell>,
}

impl SimWriteFile {
    fn sync(&self) -> io::Result<()> {
        let mut state = self.fs.state();
        let failure = state.next_sync_failure();
        state.record(Op::SyncFile(self.cell.id, failure));
        if failure == Some(FsyncFailure::Revert) {
            let now = state.log.len();
            let durable = state.disk_at(now).content(self.cell.id);
            self.cell.replace(durable);
        }
        result_of(failure)
    }
}

fn result_of(failure: Option<FsyncFailure>) -> io::Result<()> {
    match failure {
        None => Ok(()),
        Some(_) => Err(io::Error::from_raw_os_error(IO_ERROR)),
    }
}

impl WriteFile for SimWriteFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !bytes.is_empty() {
            let mut state = self.fs.state();
            let offset = self.cell.append(bytes);
            state.record(Op::Data(self.cell.id, Write::Bytes { offset, bytes: Arc::from(bytes) }));
        }
        Ok(bytes.len())
    }

    fn sync_data(&mut self) -> io::Result<()> {
        self.sync()
    }

    fn sync_all(&mut self) -> io::Result<()> {
        self.sync()
    }

    fn truncate(&mut self, bytes: u64) -> io::Result<()> {
        let mut state = self.fs.state();
        self.cell.truncate(bytes)?;
        state.record(Op::Data(self.cell.id, Write::Length(bytes)));
        Ok(())
    }
}

/// A log: as on the real file system, it is longer than what was appended, and the rest is zeros.
#[derive(Debug)]
struct SimLogFile {
    file: SimWriteFile,
    /// Number of bytes appended.
    end: u64,
}

impl SimLogFile {
    /// Appends zeros until the file has space for `bytes` more.
    fn make_room(&mut self, bytes: usize) -> io::Result<()> {
        let wanted = self.end + bytes as u64;
        let held = self.file.cell.len();
        if held < wanted {
            let zeros = vec![0; in_memory(wanted.next_multiple_of(ROOM_BYTES) - held)];
            self.file.append(&zeros)?;
        }
        Ok(())
    }
}

impl WriteFile for SimLogFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !bytes.is_empty() {
            self.make_room(bytes.len())?;
            let SimWriteFile { fs, cell } = &self.file;
            let mut state = fs.state();
            cell.write_at(self.end, bytes);
            state.record(Op::Data(cell.id, Write::Bytes { offset: self.end, bytes: Arc::from(bytes) }));
            self.end += bytes.len() as u64;
        }
        Ok(bytes.len())
    }

    fn sync_data(&mut self) -> io::Result<()> {
        self.file.sync()
    }

    fn sync_all(&mut self) -> io::Result<()> {
        self.file.sync()
    }

    fn truncate(&mut self, bytes: u64) -> io::Result<()> {
        self.file.truncate(bytes)?;
        self.end = bytes;
        Ok(())
    }
}

impl Drop for SimLogFile {
    fn drop(&mut self) {
        if self.file.cell.len() > self.end {
            // In memory it does not fail.
            let _ = self.file.truncate(self.end);
        }
    }
}

/// Records the changes of one call; a call without changes is not recorded.
fn record_names(mut state: MutexGuard<'_, State>, changes: Vec<NameChange>) {
    if !changes.is_empty() {
        state.record(Op::Names(changes));
    }
}

impl SimFs {
    fn open_write(&self, cell: Arc<FileCell>) -> Box<dyn WriteFile> {
        Box::new(SimWriteFile { fs: self.clone(), cell })
    }
}

impl Vfs for SimFs {
    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn RandomFile>> {
        Ok(Arc::new(CellReader::new(self.state().tree.file(path)?)))
    }

    fn open_read_direct(&self, path: &Path) -> io::Result<Arc<dyn RandomFile>> {
        Ok(Arc::new(CellReader::direct(self.state().tree.file(path)?)))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        let mut state = self.state();
        let (cell, changes) = state.tree.create(path)?;
        record_names(state, changes);
        Ok(self.open_write(cell))
    }

    fn create_log(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        let mut state = self.state();
        let (cell, changes) = state.tree.create(path)?;
        record_names(state, changes);
        Ok(Box::new(SimLogFile { file: SimWriteFile { fs: self.clone(), cell }, end: 0 }))
    }

    fn open_append(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        let cell = self.state().tree.file(path)?;
        Ok(self.open_write(cell))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        let changes = state.tree.rename(from, to)?;
        record_names(state, changes);
        Ok(())
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        let changes = state.tree.unlink(path)?;
        record_names(state, changes);
        Ok(())
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        let changes = state.tree.link(from, to)?;
        record_names(state, changes);
        Ok(())
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        let changes = state.tree.create_dir_all(path)?;
        // Each directory is a separate system call.
        for change in changes {
            state.record(Op::Names(vec![change]));
        }
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        let changes = state.tree.remove_dir(path)?;
        record_names(state, changes);
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.state().tree.list(path)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.state().tree.exists(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        let dir = state.tree.dir(path)?;
        let failure = state.next_sync_failure();
        state.record(Op::SyncDir(dir, failure));
        result_of(failure)
    }

    fn lock(&self, path: &Path, kind: LockKind) -> io::Result<Box<dyn FileLock>> {
        let mut state = self.state();
        let (lock, changes) = state.tree.lock(path, kind)?;
        record_names(state, changes);
        Ok(Box::new(lock))
    }

    fn disk_free_bytes(&self, path: &Path) -> io::Result<u64> {
        self.state().tree.exists(path)?.then_some(FREE_BYTES).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}
