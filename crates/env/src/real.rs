//! The operating system's files.
//!
//! Each call is one system call with its raw meaning: short and interrupted reads and writes are
//! passed on (see [`crate::read_exact_at`]), errors keep their number. Appends go to the end of the
//! file, also after a truncation. Locks belong to the open file (`flock`, `LockFileEx`): a second
//! open in the same process is refused too, and the end of the process releases them, however it
//! ends. The directory of a file that a writer has locked stays open, for syncs of it.
//!
//! Platform differences are in [`crate::system`].
//!
//! Not here: the reads of direct I/O ([`crate::direct`]); on Linux batches of reads (`ring.rs`) and
//! the appends to a log (`mapped/`).

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::direct;
use crate::random_file::RandomFile;
use crate::system;
use crate::vfs::{DirEntry, FileLock, LockHeld, LockKind, Vfs, WriteFile};

/// The real file system. It has no state; copies are the same.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealFs;

impl RealFs {
    /// The real file system.
    pub fn new() -> Self {
        Self
    }
}

#[derive(Debug)]
struct RealRandomFile(File);

impl RandomFile for RealRandomFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        system::read_at(&self.0, offset, buf)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    #[cfg(target_os = "linux")]
    fn descriptor(&self) -> Option<std::os::fd::RawFd> {
        Some(std::os::fd::AsRawFd::as_raw_fd(&self.0))
    }
}

#[derive(Debug)]
struct RealWriteFile(File);

impl WriteFile for RealWriteFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<usize> {
        system::append(&mut self.0, bytes)
    }

    fn sync_data(&mut self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn sync_all(&mut self) -> io::Result<()> {
        self.0.sync_all()
    }

    fn truncate(&mut self, bytes: u64) -> io::Result<()> {
        self.0.set_len(bytes)
    }
}

/// A file that this process has locked.
struct Held {
    /// Its canonical path.
    path: PathBuf,
    /// Its directory, open for as long as the lock is held by a writer: the names of a database's
    /// files can be made durable although no descriptor is left to open the directory with.
    directory: Option<Arc<File>>,
}

/// The files that this process has locked, each as often as it is locked.
static HELD: Mutex<Vec<Held>> = Mutex::new(Vec::new());

/// The path that identifies a locked file in [`HELD`]. If it has no canonical path (for instance
/// below the root of another process) it is the given one.
fn identity(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf())
}

fn held() -> MutexGuard<'static, Vec<Held>> {
    // Consistent between any two statements that can panic.
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The directory that is open because a file in it is locked.
fn held_directory(path: &Path) -> Option<Arc<File>> {
    let path = identity(path);
    let held = held();
    held.iter().find_map(|held| held.directory.clone().filter(|_| held.path.parent() == Some(&path)))
}

/// A held lock. The lock belongs to `file`; `None` for a shared lock of a file that does not exist.
#[derive(Debug)]
struct RealLock {
    file: Option<File>,
    /// Its path in [`HELD`].
    path: PathBuf,
    /// The process that took it: the drop of a copy in a forked process must not release it.
    process: u32,
}

impl FileLock for RealLock {}

impl Drop for RealLock {
    fn drop(&mut self) {
        // Closing is not enough. A child that another thread is starting has a copy of the
        // descriptor until it executes its program, and the lock lasts as long as any copy.
        if let Some(file) = &self.file {
            if std::process::id() == self.process {
                let mut held = held();
                if let Some(at) = held.iter().position(|held| held.path == self.path) {
                    held.swap_remove(at);
                }
                let _ = system::unlock(file);
            }
        }
    }
}

impl Vfs for RealFs {
    fn open_read(&self, path: &Path) -> io::Result<Arc<dyn RandomFile>> {
        Ok(Arc::new(RealRandomFile(system::open_read(path)?)))
    }

    fn open_read_direct(&self, path: &Path) -> io::Result<Arc<dyn RandomFile>> {
        match direct::open(path)? {
            Some(file) => Ok(file),
            None => self.open_read(path),
        }
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        let file = system::append_options().create_new(true).open(path)?;
        Ok(Box::new(RealWriteFile(file)))
    }

    #[cfg(target_os = "linux")]
    fn create_log(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        crate::mapped::create(path)
    }

    fn open_append(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        let file = system::append_options().open(path)?;
        Ok(Box::new(RealWriteFile(file)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let metadata = match entry.metadata() {
                Ok(metadata) => metadata,
                // Removed since the directory was read: treated as never listed.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            let is_dir = metadata.is_dir();
            entries.push(DirEntry {
                // The engine uses only UTF-8 names; a foreign name is only displayed.
                name: entry.file_name().to_string_lossy().into_owned(),
                bytes: if is_dir { 0 } else { metadata.len() },
                is_dir,
            });
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        fs::exists(path)
    }

    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        fs::canonicalize(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        match system::sync_dir(path) {
            Err(error) if system::is_out_of_descriptors(&error) => match held_directory(path) {
                Some(directory) => directory.sync_all(),
                None => Err(error),
            },
            synced => synced,
        }
    }

    fn lock(&self, path: &Path, kind: LockKind) -> io::Result<Box<dyn FileLock>> {
        // Held over the call, so that no thread sees a lock of this process that is not listed yet.
        let mut held = held();
        let file = match kind {
            LockKind::Exclusive => {
                OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?
            }
            LockKind::Shared => match system::open_read(path) {
                Ok(file) => file,
                // A reader must not create the file; without a file there is no writer to conflict
                // with.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Ok(Box::new(RealLock { file: None, path: PathBuf::new(), process: 0 }));
                }
                Err(error) => return Err(error),
            },
        };
        match system::try_lock(&file, kind) {
            Ok(()) => {
                let path = identity(path);
                let is_writer = kind == LockKind::Exclusive;
                let directory = path.parent().filter(|_| is_writer).and_then(system::open_dir);
                held.push(Held { path: path.clone(), directory: directory.map(Arc::new) });
                Ok(Box::new(RealLock { file: Some(file), path, process: std::process::id() }))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let path = identity(path);
                let by_this_process = held.iter().any(|held| held.path == path);
                Err(LockHeld { by_this_process }.into())
            }
            Err(error) => Err(error),
        }
    }

    fn disk_free_bytes(&self, path: &Path) -> io::Result<u64> {
        system::disk_free_bytes(path)
    }

    fn open_files_max(&self) -> Option<u64> {
        system::open_files_max()
    }

    #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
    fn read_batch(&self, reads: &mut [crate::BatchRead]) {
        crate::ring::read(reads);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_ends_when_it_is_dropped_whoever_has_copies_of_its_descriptor() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("LOCK");
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path).expect("created");
        system::try_lock(&file, LockKind::Exclusive).expect("free");
        // Like the copy that a child has between the fork and the start of its program.
        let copy = file.try_clone().expect("copied");
        let held = RealLock { file: Some(file), path: path.clone(), process: std::process::id() };
        let again = RealFs.lock(&path, LockKind::Exclusive).map(drop);
        assert_eq!(again.expect_err("held").kind(), io::ErrorKind::WouldBlock);
        drop(held);
        RealFs.lock(&path, LockKind::Exclusive).expect("it is free, copy or not");
        drop(copy);
    }

    /// Set in the process in which the test below has few descriptors.
    #[cfg(unix)]
    const FEW: &str = "SHAMBA_ENV_FEW_DESCRIPTORS";

    #[cfg(unix)]
    #[test]
    fn the_directory_of_a_lock_is_synced_without_a_descriptor() {
        if std::env::var_os(FEW).is_none() {
            let mut again = std::process::Command::new("sh");
            again.args(["-c", "ulimit -n 40; exec \"$0\" \"$@\""]).env(FEW, "1");
            let test = "real::tests::the_directory_of_a_lock_is_synced_without_a_descriptor";
            again.arg(std::env::current_exe().expect("its path")).args([test, "--exact", "--nocapture"]);
            let output = again.output().expect("started");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            return;
        }
        let locked = tempfile::tempdir().expect("a directory");
        let other = tempfile::tempdir().expect("a directory");
        let lock = RealFs.lock(&locked.path().join("LOCK"), LockKind::Exclusive).expect("free");
        RealFs.create(&locked.path().join("file")).expect("created");
        let mut open: Vec<File> = Vec::new();
        while let Ok(file) = File::open(locked.path().join("file")) {
            open.push(file);
        }
        assert!(open.len() > 10, "the limit is not in force");
        RealFs.sync_dir(locked.path()).expect("the directory is open");
        let refused = RealFs.sync_dir(other.path()).expect_err("no descriptor");
        assert!(system::is_out_of_descriptors(&refused), "{refused}");
        drop(open);
        RealFs.sync_dir(other.path()).expect("synced");
        drop(lock);
        assert!(held_directory(locked.path()).is_none(), "it was closed with the lock");
    }
}
