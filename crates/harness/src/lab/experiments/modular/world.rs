//! The world in which reads are counted: a clock that passes faster, and files that say what was read of them.
//!
//! What memory holds comes to rest within some seconds of the engine's clock, which here are fractions of one. And as the files
//! lie in memory, reads look to the engine as long as those of an SSD: what is read in a microsecond, and so again and again, it
//! would not put into its cache.
//!
//! Not here: devices that take time ([`crate::lab::Device`]).

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use shamba::env::{Clock, DirEntry, Env, FileLock, LockKind, RandomFile, RealClock, Vfs, WriteFile};

/// The engine's seconds pass so many times as fast.
const SECONDS_TIMES: u64 = 16;
/// Reads seem to take so many times as long.
const READS_TIMES: u64 = 100;

/// A clock of which the slow scale runs fast, and the quick one faster.
#[derive(Debug)]
pub(super) struct PacedClock {
    real: RealClock,
    reads_times: u64,
}

impl PacedClock {
    /// For counting reads.
    pub fn counting() -> Self {
        Self { real: RealClock::new(), reads_times: READS_TIMES }
    }

    /// For timing them.
    pub fn timing() -> Self {
        Self { real: RealClock::new(), reads_times: 1 }
    }
}

impl Clock for PacedClock {
    fn now_us(&self) -> u64 {
        self.real.now_us() * SECONDS_TIMES
    }

    fn now_ns(&self) -> u64 {
        self.real.now_ns() * self.reads_times
    }

    fn unix_ms(&self) -> u64 {
        self.real.unix_ms()
    }

    fn sleep_us(&self, us: u64) {
        self.real.sleep_us(us);
    }

    fn wait_ns(&self, ns: u64) {
        self.real.wait_ns(ns);
    }
}

/// The world for counting reads; bytes that are read go to `bytes`.
pub(super) fn counting(world: Env, bytes: &Arc<AtomicU64>) -> Env {
    let files = CountingFs { inner: Arc::clone(&world.vfs), bytes: Arc::clone(bytes) };
    Env { clock: Arc::new(PacedClock::counting()), vfs: Arc::new(files), ..world }
}

/// The world for timing them.
pub(super) fn timing(world: Env) -> Env {
    Env { clock: Arc::new(PacedClock::timing()), ..world }
}

/// Files that count the bytes that are read of them.
#[derive(Debug)]
struct CountingFs {
    inner: Arc<dyn Vfs>,
    bytes: Arc<AtomicU64>,
}

#[derive(Debug)]
struct CountingFile {
    inner: Arc<dyn RandomFile>,
    bytes: Arc<AtomicU64>,
}

impl RandomFile for CountingFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read_at(offset, buf)?;
        self.bytes.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn alignment_bytes(&self) -> usize {
        self.inner.alignment_bytes()
    }

    fn is_direct(&self) -> bool {
        self.inner.is_direct()
    }
}

impl CountingFs {
    fn counting(&self, inner: Arc<dyn RandomFile>) -> Arc<dyn RandomFile> {
        Arc::new(CountingFile { inner, bytes: Arc::clone(&self.bytes) })
    }
}

impl Vfs for CountingFs {
    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn RandomFile>> {
        self.inner.open_read(path).map(|file| self.counting(file))
    }

    fn open_read_direct(&self, path: &Path) -> io::Result<Arc<dyn RandomFile>> {
        self.inner.open_read_direct(path).map(|file| self.counting(file))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        self.inner.create(path)
    }

    fn open_append(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        self.inner.open_append(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.inner.unlink(path)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.link(from, to)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.inner.create_dir_all(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.inner.remove_dir(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.inner.list(path)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.inner.exists(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.inner.sync_dir(path)
    }

    fn lock(&self, path: &Path, kind: LockKind) -> io::Result<Box<dyn FileLock>> {
        self.inner.lock(path, kind)
    }

    fn disk_free_bytes(&self, path: &Path) -> io::Result<u64> {
        self.inner.disk_free_bytes(path)
    }

    fn open_files_max(&self) -> Option<u64> {
        self.inner.open_files_max()
    }

    fn is_emulated(&self) -> bool {
        self.inner.is_emulated()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shamba::env::{MemFs, append_all};

    #[test]
    fn what_is_read_is_counted_and_seconds_pass_faster() {
        let bytes = Arc::new(AtomicU64::new(0));
        let files = Arc::new(MemFs::new());
        let mut file = files.create(Path::new("/file")).expect("created");
        append_all(file.as_mut(), b"some bytes").expect("written");
        let env = counting(Env { vfs: files, ..Env::real() }, &bytes);
        let file = env.vfs.open_read(Path::new("/file")).expect("open");
        assert_eq!(file.read_at(5, &mut [0; 100]).expect("read"), 5);
        assert_eq!(bytes.load(Ordering::Relaxed), 5);
        let before_us = env.clock.now_us();
        env.clock.sleep_us(1_000);
        assert!(env.clock.now_us() - before_us >= 1_000 * SECONDS_TIMES);
    }
}
