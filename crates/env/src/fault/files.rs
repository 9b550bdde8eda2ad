//! The calls of [`FaultFs`] as a [`Vfs`]: consult the rules, then pass the call on.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Call, Effect, FaultFs, OpKind};
use crate::aligned::AlignedBuf;
use crate::random_file::RandomFile;
use crate::vfs::{DirEntry, FileLock, LockKind, Vfs, WriteFile};

/// Distance of a misdirected read from its place, in bytes, where the file is long enough.
const MISDIRECTION_BYTES: u64 = 4_096;

impl FaultFs {
    fn ask(&self, kind: OpKind, path: &Path) -> io::Result<()> {
        self.before(&Call { kind, path, to: None, bytes: 0 }).map(drop)
    }

    /// Returns whether the sync is to be carried out.
    fn ask_sync(&self, kind: OpKind, path: &Path) -> io::Result<bool> {
        let effect = self.before(&Call { kind, path, to: None, bytes: 0 })?;
        Ok(effect != Some(Effect::LieAboutSync))
    }

    fn ask_two(&self, kind: OpKind, path: &Path, to: &Path) -> io::Result<()> {
        self.before(&Call { kind, path, to: Some(to), bytes: 0 }).map(drop)
    }
}

#[derive(Debug)]
struct FaultRandomFile {
    fs: FaultFs,
    path: PathBuf,
    inner: Arc<dyn RandomFile>,
}

impl FaultRandomFile {
    /// Overwrites the bytes read at `offset` with bytes from another place of the file.
    fn misdirect(&self, offset: u64, read: &mut [u8]) -> io::Result<()> {
        let elsewhere = if offset >= MISDIRECTION_BYTES {
            offset - MISDIRECTION_BYTES
        } else {
            offset.saturating_add(MISDIRECTION_BYTES)
        };
        let mut other = AlignedBuf::new(read.len());
        let bytes = self.inner.read_at(elsewhere, &mut other)?.min(read.len());
        if bytes > 0 {
            read[..bytes].copy_from_slice(&other[..bytes]);
        } else {
            // The file is too short for that distance: shift the bytes read by one.
            read.rotate_left(1.min(read.len()));
        }
        Ok(())
    }
}

impl RandomFile for FaultRandomFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let call = Call { kind: OpKind::Read, path: &self.path, to: None, bytes: buf.len() };
        let effect = self.fs.before(&call)?;
        if effect == Some(Effect::ShortRead) {
            // A short direct read is a whole number of pages, and a read of one page is complete.
            let half = (buf.len() / 2).next_multiple_of(self.alignment_bytes());
            return self.inner.read_at(offset, &mut buf[..half]);
        }
        let bytes = self.inner.read_at(offset, buf)?;
        let read = &mut buf[..bytes];
        match effect {
            Some(Effect::FlipBitOnRead) if bytes > 0 => {
                let bit = self.fs.random_below(bytes.saturating_mul(8));
                read[bit / 8] ^= 1 << (bit % 8);
            }
            Some(Effect::MisdirectedRead) => self.misdirect(offset, read)?,
            _ => {}
        }
        Ok(bytes)
    }

    fn len(&self) -> io::Result<u64> {
        self.fs.ask(OpKind::Len, &self.path)?;
        self.inner.len()
    }

    fn alignment_bytes(&self) -> usize {
        self.inner.alignment_bytes()
    }

    fn is_direct(&self) -> bool {
        self.inner.is_direct()
    }
}

#[derive(Debug)]
struct FaultWriteFile {
    fs: FaultFs,
    path: PathBuf,
    inner: Box<dyn WriteFile>,
}

impl WriteFile for FaultWriteFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let call = Call { kind: OpKind::Append, path: &self.path, to: None, bytes: bytes.len() };
        match self.fs.before(&call)? {
            Some(Effect::ShortWrite) => self.inner.append(&bytes[..bytes.len() / 2]),
            _ => self.inner.append(bytes),
        }
    }

    fn sync_data(&mut self) -> io::Result<()> {
        if self.fs.ask_sync(OpKind::SyncData, &self.path)? { self.inner.sync_data() } else { Ok(()) }
    }

    fn sync_all(&mut self) -> io::Result<()> {
        if self.fs.ask_sync(OpKind::SyncAll, &self.path)? { self.inner.sync_all() } else { Ok(()) }
    }

    fn truncate(&mut self, bytes: u64) -> io::Result<()> {
        self.fs.ask(OpKind::Truncate, &self.path)?;
        self.inner.truncate(bytes)
    }
}

impl FaultFs {
    fn wrap(&self, path: &Path, inner: Box<dyn WriteFile>) -> Box<dyn WriteFile> {
        Box::new(FaultWriteFile { fs: self.clone(), path: path.to_owned(), inner })
    }
}

impl Vfs for FaultFs {
    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn RandomFile>> {
        self.ask(OpKind::OpenRead, path)?;
        let inner = self.inner.open_read(path)?;
        Ok(Arc::new(FaultRandomFile { fs: self.clone(), path: path.to_owned(), inner }))
    }

    fn open_read_direct(&self, path: &Path) -> io::Result<Arc<dyn RandomFile>> {
        let refused = Some(Effect::NoDirectReads);
        let inner = match self.before(&Call { kind: OpKind::OpenRead, path, to: None, bytes: 0 })? {
            effect if effect == refused => self.inner.open_read(path)?,
            _ => self.inner.open_read_direct(path)?,
        };
        Ok(Arc::new(FaultRandomFile { fs: self.clone(), path: path.to_owned(), inner }))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        self.ask(OpKind::Create, path)?;
        Ok(self.wrap(path, self.inner.create(path)?))
    }

    fn create_log(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        self.ask(OpKind::Create, path)?;
        Ok(self.wrap(path, self.inner.create_log(path)?))
    }

    fn open_append(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        self.ask(OpKind::OpenAppend, path)?;
        Ok(self.wrap(path, self.inner.open_append(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.ask_two(OpKind::Rename, from, to)?;
        self.inner.rename(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.ask(OpKind::Unlink, path)?;
        self.inner.unlink(path)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.ask_two(OpKind::Link, from, to)?;
        self.inner.link(from, to)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.ask(OpKind::CreateDir, path)?;
        self.inner.create_dir_all(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.ask(OpKind::RemoveDir, path)?;
        self.inner.remove_dir(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.ask(OpKind::List, path)?;
        self.inner.list(path)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.ask(OpKind::Exists, path)?;
        self.inner.exists(path)
    }

    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        self.inner.canonical(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        if self.ask_sync(OpKind::SyncDir, path)? { self.inner.sync_dir(path) } else { Ok(()) }
    }

    fn lock(&self, path: &Path, kind: LockKind) -> io::Result<Box<dyn FileLock>> {
        self.ask(OpKind::Lock, path)?;
        self.inner.lock(path, kind)
    }

    fn disk_free_bytes(&self, path: &Path) -> io::Result<u64> {
        self.ask(OpKind::DiskFree, path)?;
        self.inner.disk_free_bytes(path)
    }

    fn open_files_max(&self) -> Option<u64> {
        self.inner.open_files_max()
    }
}
