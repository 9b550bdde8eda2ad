//! Open files: a limited number at once, reopened by path when they are read again.
//!
//! A table keeps its entry here for as long as it is open; the file behind it may be closed
//! meanwhile. Reading an open file costs one load and no reference count: a guard keeps the file
//! open. A reopened file is not checked again: its birth id is part of every checksum, so another
//! file under the same path fails the checks.
//!
//! Files are closed by CLOCK, like evictions of the block cache: a file that was read since the
//! last sweep stays open for another one.
//!
//! Not here: reading ([`crate::reader`]'s `TableFile`).

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::{ArcSwapOption, Guard};
use shamba_env::{RandomFile, Vfs};

use crate::sync::{Mutex, MutexGuard, PoisonError};

/// Minimum number of other files that a working database has open: log, manifest, lock, info log,
/// and a few tables being written or read whole.
const OTHER_FILES_MIN: usize = 32;

/// Limit on the open table files of a database. Shared by all its tables.
pub struct OpenFiles {
    count_max: usize,
    ring: Mutex<Ring>,
    reopens: AtomicU64,
}

#[derive(Default)]
struct Ring {
    places: Vec<Option<Arc<FileEntry>>>,
    vacant: Vec<usize>,
    hand: usize,
    /// Number of open files.
    open: usize,
}

#[derive(Debug)]
struct FileEntry {
    file: ArcSwapOption<Opened>,
    /// Reference bit: read since the last sweep.
    used: AtomicBool,
}

/// An open file, behind a pointer that can be swapped.
#[derive(Debug)]
pub(crate) struct Opened(Arc<dyn RandomFile>);

impl Opened {
    pub(crate) fn file(&self) -> &dyn RandomFile {
        self.0.as_ref()
    }

    /// The file, which is closed at the earliest when the caller has dropped it.
    pub(crate) fn share(&self) -> Arc<dyn RandomFile> {
        Arc::clone(&self.0)
    }
}

/// A file by its path, open or not.
pub(crate) struct CachedFile {
    path: PathBuf,
    vfs: Arc<dyn Vfs>,
    direct: bool,
    files: Arc<OpenFiles>,
    entry: Arc<FileEntry>,
    place: usize,
}

/// Maximum number of open tables, at most `wanted`. `limit` is the number of files that the process
/// may have open. An eighth of it, and at least 32, is left for logs, outputs of compactions, and
/// the program that embeds the database.
pub fn open_files_within(wanted: usize, limit: Option<u64>) -> usize {
    let Some(limit) = limit.and_then(|limit| usize::try_from(limit).ok()) else { return wanted };
    wanted.min(limit.saturating_sub((limit / 8).max(OTHER_FILES_MIN)))
}

impl OpenFiles {
    /// Limits the open files to `count_max`, at least one. Files being read stay open a little
    /// longer.
    pub fn new(count_max: usize) -> Self {
        Self { count_max: count_max.max(1), ring: Mutex::default(), reopens: AtomicU64::new(0) }
    }

    /// Number of open files.
    pub fn open_count(&self) -> usize {
        self.ring().open
    }

    /// Number of times that a file was reopened.
    pub fn reopens(&self) -> u64 {
        self.reopens.load(Ordering::Relaxed)
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        // Poison is ignored: the ring is consistent between any two statements that can panic.
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for OpenFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpenFiles({} of {})", self.open_count(), self.count_max)
    }
}

impl Ring {
    fn add(&mut self, entry: Arc<FileEntry>) -> usize {
        debug_assert!(
            self.vacant.len() <= self.places.len(),
            "{} of {} places are vacant",
            self.vacant.len(),
            self.places.len()
        );
        match self.vacant.pop() {
            Some(place) => {
                self.places[place] = Some(entry);
                place
            }
            None => {
                self.places.push(Some(entry));
                self.places.len() - 1
            }
        }
    }

    fn remove(&mut self, place: usize) {
        if let Some(entry) = self.places.get_mut(place).and_then(Option::take) {
            assert!(
                self.open <= self.places.len() - self.vacant.len(),
                "{} files are open at {} places",
                self.open,
                self.places.len() - self.vacant.len()
            );
            self.open -= usize::from(entry.file.load().is_some());
            self.vacant.push(place);
        }
    }

    /// Notes that `entry`'s file was opened, and closes others until at most `count_max` are open:
    /// it returns them, for a drop without the lock.
    fn opened(&mut self, entry: &FileEntry, count_max: usize) -> Vec<Arc<Opened>> {
        let mut closed = Vec::new();
        self.open += 1;
        assert!(
            self.open <= self.places.len(),
            "{} files are open at {} places",
            self.open,
            self.places.len()
        );
        // Twice round, because the first round clears the reference bits.
        for _ in 0..2 * self.places.len() {
            if self.open <= count_max {
                break;
            }
            self.hand = (self.hand + 1) % self.places.len();
            let Some(other) = &self.places[self.hand] else {
                continue;
            };
            if std::ptr::eq(&raw const **other, entry) || other.used.swap(false, Ordering::Relaxed) {
                continue;
            }
            let other = other.file.swap(None);
            self.open -= usize::from(other.is_some());
            closed.extend(other);
        }
        closed
    }
}

impl CachedFile {
    /// Opens `path`; with `direct`, for reads that bypass the operating system's cache.
    pub(crate) fn open(
        vfs: &Arc<dyn Vfs>,
        path: &Path,
        direct: bool,
        files: &Arc<OpenFiles>,
    ) -> io::Result<Self> {
        let entry = Arc::new(FileEntry { file: ArcSwapOption::const_empty(), used: AtomicBool::new(true) });
        let place = files.ring().add(Arc::clone(&entry));
        let (vfs, files) = (Arc::clone(vfs), Arc::clone(files));
        // From here on the place is returned if anything fails.
        let file = Self { path: path.to_path_buf(), vfs, direct, files, entry, place };
        file.open_now()?;
        Ok(file)
    }

    /// The file, reopened if necessary.
    #[inline]
    pub(crate) fn get(&self) -> io::Result<Guard<Option<Arc<Opened>>>> {
        let guard = self.entry.file.load();
        if guard.is_none() {
            return self.reopen();
        }
        if !self.entry.used.load(Ordering::Relaxed) {
            self.entry.used.store(true, Ordering::Relaxed);
        }
        Ok(guard)
    }

    #[cold]
    fn reopen(&self) -> io::Result<Guard<Option<Arc<Opened>>>> {
        self.files.reopens.fetch_add(1, Ordering::Relaxed);
        self.open_now()
    }

    fn open_now(&self) -> io::Result<Guard<Option<Arc<Opened>>>> {
        let file = if self.direct {
            self.vfs.open_read_direct(&self.path)?
        } else {
            self.vfs.open_read(&self.path)?
        };
        let opened = Some(Arc::new(Opened(file)));
        let mut ring = self.files.ring();
        debug_assert!(
            ring.places
                .get(self.place)
                .and_then(Option::as_ref)
                .is_some_and(|held| Arc::ptr_eq(held, &self.entry)),
            "place {} does not hold the file that is opened",
            self.place
        );
        // If another thread was faster, its file is the one that is counted.
        if self.entry.file.load().is_none() {
            self.entry.file.store(opened.clone());
            self.entry.used.store(true, Ordering::Relaxed);
            let closed = ring.opened(&self.entry, self.files.count_max);
            drop(ring);
            // A mapped file takes a while.
            drop(closed);
        }
        Ok(Guard::from_inner(opened))
    }
}

impl Drop for CachedFile {
    fn drop(&mut self) {
        self.files.ring().remove(self.place);
    }
}

impl fmt::Debug for CachedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachedFile").field("path", &self.path).field("direct", &self.direct).finish()
    }
}

#[cfg(test)]
mod tests {
    use shamba_env::{MemFs, SeededRng, read_exact_at, write_file_synced};

    use super::*;

    fn read(file: &CachedFile) -> io::Result<u8> {
        let guard = file.get()?;
        let opened = guard.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let mut byte = [0];
        read_exact_at(opened.file(), 0, &mut byte)?;
        Ok(byte[0])
    }

    #[test]
    fn few_files_are_open_and_all_of_them_can_be_read() {
        use shamba_env::Rng;

        let vfs: Arc<dyn Vfs> = Arc::new(MemFs::new());
        let files = Arc::new(OpenFiles::new(4));
        let open = |i: u8| {
            let path = PathBuf::from(format!("/{i}"));
            write_file_synced(vfs.as_ref(), &path, &[i]).expect("written");
            CachedFile::open(&vfs, &path, false, &files).expect("opened")
        };
        let mut tables: Vec<(u8, CachedFile)> = (0..20).map(|i| (i, open(i))).collect();
        assert_eq!((files.open_count(), files.reopens()), (4, 0));
        let dice = SeededRng::new(3);
        for step in 0..2_000 {
            let at = (dice.next_u64() % tables.len() as u64) as usize;
            assert_eq!(read(&tables[at].1).expect("read"), tables[at].0);
            assert!(files.open_count() <= 4, "step {step}: {files:?}");
        }
        let before = files.reopens();
        assert!(before > 1_000);
        for _ in 0..100 {
            assert!(tables[..3].iter().all(|(i, file)| read(file).expect("read") == *i));
        }
        assert!(files.reopens() <= before + 3, "files in use stay open");
        tables.truncate(2);
        assert!(files.open_count() <= 2);
        drop(tables);
        assert_eq!(files.open_count(), 0);
        let missing = CachedFile::open(&vfs, Path::new("/missing"), false, &files);
        assert_eq!(missing.expect_err("none").kind(), io::ErrorKind::NotFound);
        let ring = files.ring();
        assert_eq!(ring.vacant.len(), ring.places.len());
    }

    #[test]
    fn the_process_s_limit_leaves_room_for_others() {
        for (wanted, limit, within) in [
            (1_000, None, 1_000),
            (1_000, Some(1 << 20), 1_000),
            (1_000, Some(1_024), 896),
            (1_000, Some(64), 32),
            (16, Some(64), 16),
            (1_000, Some(20), 0),
        ] {
            assert_eq!(open_files_within(wanted, limit), within, "{wanted} of {limit:?}");
        }
    }

    #[test]
    fn a_file_that_is_gone_is_an_error_once_it_was_closed() {
        let vfs: Arc<dyn Vfs> = Arc::new(MemFs::new());
        let files = Arc::new(OpenFiles::new(1));
        let paths = [Path::new("/a"), Path::new("/b")];
        paths.iter().for_each(|path| write_file_synced(vfs.as_ref(), path, &[7]).expect("written"));
        let [a, b] = paths.map(|path| CachedFile::open(&vfs, path, true, &files).expect("opened"));
        paths.iter().for_each(|path| vfs.unlink(path).expect("unlinked"));
        let guard = b.get().expect("still open");
        assert!(guard.as_ref().is_some_and(|opened| opened.file().is_direct()));
        assert_eq!(a.get().map(|_| ()).expect_err("closed and gone").kind(), io::ErrorKind::NotFound);
    }
}
