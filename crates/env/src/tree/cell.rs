//! One file in memory: its content, its lock, a handle to read it.
//!
//! A [`FileCell`] lives as long as a name or an open handle refers to it, so an unlinked open file
//! stays readable. Its content is a shared buffer, copied by the first change after it was shared;
//! this makes images of a tree cheap. The lock belongs to the cell, not to the name, as with
//! `flock`.
//!
//! Not here: names (the tree above).

use std::io::{self, ErrorKind};
use std::sync::{Arc, OnceLock};

use crate::aligned::DIRECT_ALIGNMENT_BYTES;
use crate::random_file::RandomFile;
use crate::sync::{Mutex, MutexGuard, PoisonError, RwLock};
use crate::vfs::{FileLock, LockHeld, LockKind};

/// Identifies a file for the lifetime of its tree; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FileId(pub(crate) u64);

/// A file's bytes and their hash once it was computed. Images of one run share most contents;
/// without the cached hash each comparison of images would read all of them again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Content {
    bytes: Vec<u8>,
    hash: OnceLock<u64>,
}

impl Content {
    /// The bytes for modification; invalidates their hash.
    pub(crate) fn change(&mut self) -> &mut Vec<u8> {
        self.hash = OnceLock::new();
        &mut self.bytes
    }

    /// The hash of the bytes by `hasher`, which must be the same at every call.
    pub(crate) fn hash(&self, hasher: impl FnOnce(&[u8]) -> u64) -> u64 {
        *self.hash.get_or_init(|| hasher(&self.bytes))
    }
}

/// One file's content and its lock.
#[derive(Debug)]
pub(crate) struct FileCell {
    pub(crate) id: FileId,
    content: RwLock<Arc<Content>>,
    holders: Mutex<Holders>,
}

#[derive(Debug, Default)]
struct Holders {
    exclusive: bool,
    shared: usize,
}

impl FileCell {
    pub(crate) fn new(id: FileId, content: Arc<Content>) -> Self {
        Self { id, content: RwLock::new(content), holders: Mutex::default() }
    }

    /// The current content; later changes do not affect it.
    pub(crate) fn content(&self) -> Arc<Content> {
        Arc::clone(&self.content.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn len(&self) -> u64 {
        self.content.read().unwrap_or_else(PoisonError::into_inner).bytes.len() as u64
    }

    pub(crate) fn read_at(&self, offset: u64, buf: &mut [u8]) -> usize {
        let content = self.content.read().unwrap_or_else(PoisonError::into_inner);
        let rest = usize::try_from(offset).ok().and_then(|start| content.bytes.get(start..)).unwrap_or(&[]);
        let bytes = rest.len().min(buf.len());
        buf[..bytes].copy_from_slice(&rest[..bytes]);
        bytes
    }

    /// Appends and returns the offset of the bytes.
    pub(crate) fn append(&self, bytes: &[u8]) -> u64 {
        let mut content = self.content.write().unwrap_or_else(PoisonError::into_inner);
        let offset = content.bytes.len() as u64;
        Arc::make_mut(&mut content).change().extend_from_slice(bytes);
        offset
    }

    /// Overwrites bytes at `offset`, inside the file.
    pub(crate) fn write_at(&self, offset: u64, bytes: &[u8]) {
        let mut content = self.content.write().unwrap_or_else(PoisonError::into_inner);
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let place = Arc::make_mut(&mut content)
            .change()
            .get_mut(start..)
            .and_then(|rest| rest.get_mut(..bytes.len()));
        assert!(place.is_some(), "{} bytes at {offset} lie outside the file", bytes.len());
        place.into_iter().for_each(|place| place.copy_from_slice(bytes));
    }

    /// Truncates the file, or extends it with zeros as the system call does.
    pub(crate) fn truncate(&self, bytes: u64) -> io::Result<()> {
        let bytes = usize::try_from(bytes).map_err(|_| io::Error::from(ErrorKind::FileTooLarge))?;
        let mut content = self.content.write().unwrap_or_else(PoisonError::into_inner);
        Arc::make_mut(&mut content).change().resize(bytes, 0);
        Ok(())
    }

    /// Replaces the content.
    pub(crate) fn replace(&self, content: Arc<Content>) {
        *self.content.write().unwrap_or_else(PoisonError::into_inner) = content;
    }

    fn holders(&self) -> MutexGuard<'_, Holders> {
        self.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A read handle: each call reads the current content of the file.
#[derive(Debug)]
pub(crate) struct CellReader {
    cell: Arc<FileCell>,
    alignment_bytes: usize,
}

impl CellReader {
    pub(crate) fn new(cell: Arc<FileCell>) -> Self {
        Self { cell, alignment_bytes: 1 }
    }

    /// A handle that rejects the reads that direct I/O would reject.
    pub(crate) fn direct(cell: Arc<FileCell>) -> Self {
        Self { cell, alignment_bytes: DIRECT_ALIGNMENT_BYTES }
    }
}

impl RandomFile for CellReader {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let multiple = self.alignment_bytes;
        let aligned =
            offset % multiple as u64 == 0 && buf.len() % multiple == 0 && buf.as_ptr().addr() % multiple == 0;
        if !aligned {
            return Err(io::Error::from(ErrorKind::InvalidInput));
        }
        Ok(self.cell.read_at(offset, buf))
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.cell.len())
    }

    fn alignment_bytes(&self) -> usize {
        self.alignment_bytes
    }

    fn is_direct(&self) -> bool {
        self.alignment_bytes > 1
    }
}

/// A held lock; `None` where a shared lock found no file.
#[derive(Debug)]
pub(crate) struct CellLock {
    cell: Option<Arc<FileCell>>,
    kind: LockKind,
}

impl CellLock {
    /// Takes the lock of `cell` without waiting.
    pub(crate) fn take(cell: Option<Arc<FileCell>>, kind: LockKind) -> io::Result<Self> {
        if let Some(cell) = &cell {
            let mut holders = cell.holders();
            let taken = holders.exclusive || (kind == LockKind::Exclusive && holders.shared > 0);
            if taken {
                return Err(LockHeld { by_this_process: true }.into());
            }
            match kind {
                LockKind::Exclusive => holders.exclusive = true,
                LockKind::Shared => holders.shared += 1,
            }
        }
        Ok(Self { cell, kind })
    }
}

impl Drop for CellLock {
    fn drop(&mut self) {
        if let Some(cell) = &self.cell {
            let mut holders = cell.holders();
            match self.kind {
                LockKind::Exclusive => holders.exclusive = false,
                LockKind::Shared => holders.shared -= 1,
            }
        }
    }
}

impl FileLock for CellLock {}
