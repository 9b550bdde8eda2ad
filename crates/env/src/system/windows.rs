//! The system calls of Windows: checked to compile, not tested.
//!
//! Direct I/O is not supported: a database that asks for it reads through the system's cache, as on
//! a Linux file system that refuses it. A directory's entries are made durable as far as the file
//! system allows it (see [`sync_dir`]).

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::windows::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use fs4::TryLockError;

use crate::vfs::LockKind;

/// `FILE_FLAG_BACKUP_SEMANTICS`: without it a directory cannot be opened.
const BACKUP_SEMANTICS: u32 = 0x0200_0000;

/// Reads at `offset`, as much as one system call returns. The file's own position moves; nothing
/// here uses it.
pub(crate) fn read_at(file: &File, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
    file.seek_read(buf, offset)
}

/// Options to open a file for [`append`]. Not append mode: a file opened in it cannot be truncated.
pub(crate) fn append_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true);
    options
}

/// Writes at the end of the file, as much as one system call takes. Each file has one writer, so
/// its end does not move between the two calls.
pub(crate) fn append(file: &mut File, bytes: &[u8]) -> io::Result<usize> {
    file.seek(SeekFrom::End(0))?;
    file.write(bytes)
}

/// Opens for reading, except directories.
pub(crate) fn open_read(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).open(path).map_err(|error| {
        // Windows answers the same for a directory as for a file without read permission.
        if error.kind() == io::ErrorKind::PermissionDenied && path.is_dir() {
            return io::Error::from(io::ErrorKind::IsADirectory);
        }
        error
    })
}

/// Opens for reads that bypass the system's cache: not supported here.
pub(crate) fn open_direct(_path: &Path) -> io::Result<Option<File>> {
    Ok(None)
}

/// Switches a file of [`open_direct`] to buffered reads.
pub(crate) fn end_direct(_file: &File) -> io::Result<()> {
    Ok(())
}

/// Whether a direct open or read failed because direct I/O is refused.
pub(crate) fn is_direct_refused(_error: &io::Error) -> bool {
    false
}

/// Makes the entries of a directory durable, where Windows allows its buffers to be flushed. Where
/// it refuses (access denied, or the file system does not support the call) this returns `Ok`. NTFS
/// writes its own journal in order, so after a crash the entries are those of some moment, but
/// possibly of one before this call.
pub(crate) fn sync_dir(path: &Path) -> io::Result<()> {
    // A missing directory is an error, whether or not it can be flushed.
    if !std::fs::metadata(path)?.is_dir() {
        return Err(io::Error::from(io::ErrorKind::NotADirectory));
    }
    let opened = OpenOptions::new().write(true).custom_flags(BACKUP_SEMANTICS).open(path);
    match opened.and_then(|dir| dir.sync_all()) {
        Err(error) if is_flush_refused(&error) => Ok(()),
        flushed => flushed,
    }
}

/// None: an open directory could not be removed or renamed.
pub(crate) fn open_dir(_path: &Path) -> Option<File> {
    None
}

/// Whether a file could not be opened because too many are. The limit is that of memory.
pub(crate) fn is_out_of_descriptors(_error: &io::Error) -> bool {
    false
}

fn is_flush_refused(error: &io::Error) -> bool {
    /// `ERROR_INVALID_FUNCTION`.
    const INVALID_FUNCTION: i32 = 1;
    matches!(
        error.kind(),
        io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported | io::ErrorKind::InvalidInput
    ) || error.raw_os_error() == Some(INVALID_FUNCTION)
}

/// Locks an open file without waiting: `WouldBlock` while another open file holds a conflicting
/// lock.
pub(crate) fn try_lock(file: &File, kind: LockKind) -> io::Result<()> {
    let locked = match kind {
        LockKind::Exclusive => fs4::FileExt::try_lock(file),
        LockKind::Shared => fs4::FileExt::try_lock_shared(file),
    };
    locked.map_err(|error| match error {
        TryLockError::WouldBlock => io::Error::from(io::ErrorKind::WouldBlock),
        TryLockError::Error(error) => error,
    })
}

/// Releases the lock of [`try_lock`].
pub(crate) fn unlock(file: &File) -> io::Result<()> {
    fs4::FileExt::unlock(file)
}

/// Bytes available to this user on the volume of `path`.
pub(crate) fn disk_free_bytes(path: &Path) -> io::Result<u64> {
    fs4::available_space(path)
}

/// Maximum number of files that this process may have open: Windows has no limit of its own.
pub(crate) fn open_files_max() -> Option<u64> {
    None
}

/// Does nothing: threads keep their priority.
pub(crate) fn lower_priority() {}
