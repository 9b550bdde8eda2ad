//! The system calls of unix: Linux, which is tested, and macOS, which is only checked to compile.
//!
//! On macOS the standard library's `sync_data` and `sync_all` are `fcntl(F_FULLFSYNC)`, which also
//! flushes the disk's own cache; `fsync` alone does not on macOS.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

use crate::vfs::LockKind;

/// EINVAL.
const INVALID: i32 = 22;
/// EMFILE of the process and ENFILE of the system.
const OUT_OF_DESCRIPTORS: [i32; 2] = [24, 23];

/// The nice value that [`lower_priority`] sets: next to a thread of nice 0 it gets a quarter of a
/// processor.
#[cfg(target_os = "linux")]
pub(crate) const BACKGROUND_NICE: i32 = 5;

/// Reads at `offset`, as much as one system call returns.
pub(crate) fn read_at(file: &File, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
    // The system call itself: the C library's function is a cancellation point, which takes time.
    Ok(rustix::io::pread(file, buf, offset)?)
}

/// Options to open a file for [`append`].
pub(crate) fn append_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.append(true);
    options
}

/// Writes at the end of the file, as much as one system call takes.
pub(crate) fn append(file: &mut File, bytes: &[u8]) -> io::Result<usize> {
    file.write(bytes)
}

/// Opens for reading, except directories: unix would open one and fail at the first read.
pub(crate) fn open_read(path: &Path) -> io::Result<File> {
    not_a_directory(OpenOptions::new().read(true).open(path)?)
}

fn not_a_directory(file: File) -> io::Result<File> {
    if file.metadata()?.is_dir() {
        return Err(io::Error::from(io::ErrorKind::IsADirectory));
    }
    Ok(file)
}

/// Opens for reads that bypass the page cache; `None` if the file system does not support them.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn open_direct(path: &Path) -> io::Result<Option<File>> {
    use std::os::unix::fs::OpenOptionsExt;

    // The type of the flag is the system's `int`; the bit of direct I/O is far below its sign.
    let flags = i32::try_from(rustix::fs::OFlags::DIRECT.bits()).map_err(|_| io::ErrorKind::InvalidInput)?;
    match OpenOptions::new().read(true).custom_flags(flags).open(path).and_then(not_a_directory) {
        Ok(file) => Ok(Some(file)),
        Err(error) if is_direct_refused(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// As on Linux: `F_NOCACHE` bypasses the page cache for this file, and requires no alignment.
#[cfg(target_vendor = "apple")]
pub(crate) fn open_direct(path: &Path) -> io::Result<Option<File>> {
    let file = open_read(path)?;
    Ok(rustix::fs::fcntl_nocache(&file, true).is_ok().then_some(file))
}

/// As on Linux; not supported here.
#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
pub(crate) fn open_direct(_path: &Path) -> io::Result<Option<File>> {
    Ok(None)
}

/// Switches a file of [`open_direct`] to buffered reads.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn end_direct(file: &File) -> io::Result<()> {
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

    let flags = fcntl_getfl(file)?;
    Ok(fcntl_setfl(file, flags - OFlags::DIRECT)?)
}

/// As on Linux.
#[cfg(target_vendor = "apple")]
pub(crate) fn end_direct(file: &File) -> io::Result<()> {
    Ok(rustix::fs::fcntl_nocache(file, false)?)
}

/// As on Linux; here no file is read directly.
#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
pub(crate) fn end_direct(_file: &File) -> io::Result<()> {
    Ok(())
}

/// Whether a direct open or read failed because the file system or the device refuses direct I/O.
pub(crate) fn is_direct_refused(error: &io::Error) -> bool {
    error.raw_os_error() == Some(INVALID)
}

/// Makes the entries of a directory durable.
pub(crate) fn sync_dir(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Opens a directory to be synced later; `None` if that is not possible.
pub(crate) fn open_dir(path: &Path) -> Option<File> {
    File::open(path).ok()
}

/// Whether a file could not be opened because too many are.
pub(crate) fn is_out_of_descriptors(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|number| OUT_OF_DESCRIPTORS.contains(&number))
}

/// Locks an open file without waiting: `WouldBlock` while another open file holds a conflicting
/// lock.
pub(crate) fn try_lock(file: &File, kind: LockKind) -> io::Result<()> {
    let operation = match kind {
        LockKind::Exclusive => FlockOperation::NonBlockingLockExclusive,
        LockKind::Shared => FlockOperation::NonBlockingLockShared,
    };
    Ok(flock(file, operation)?)
}

/// Releases the lock of [`try_lock`].
pub(crate) fn unlock(file: &File) -> io::Result<()> {
    Ok(flock(file, FlockOperation::Unlock)?)
}

/// Bytes available to this user on the file system of `path`.
pub(crate) fn disk_free_bytes(path: &Path) -> io::Result<u64> {
    let stats = rustix::fs::statvfs(path)?;
    // `f_bavail`, not `f_bfree`: blocks reserved for the superuser are not available.
    Ok(stats.f_bavail.saturating_mul(stats.f_frsize))
}

/// Maximum number of files that this process may have open; `None`: no limit.
pub(crate) fn open_files_max() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current
}

/// Lowers the priority of the calling thread.
#[cfg(target_os = "linux")]
pub(crate) fn lower_priority() {
    let nice = rustix::process::getpriority_process(None).unwrap_or(0);
    if nice < BACKGROUND_NICE {
        // If this fails, the thread keeps its normal priority.
        let _ = rustix::process::setpriority_process(None, BACKGROUND_NICE);
    }
}

/// Does nothing: on systems other than Linux the call would affect the whole process.
#[cfg(not(target_os = "linux"))]
pub(crate) fn lower_priority() {}
