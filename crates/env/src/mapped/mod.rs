//! A file whose appends are copies into mapped memory instead of system calls.
//!
//! The mapped pages are those of the operating system's page cache. So a completed copy survives
//! the end of the process in the same way as a completed write, and [`WriteFile::sync_data`] makes
//! it durable. A write of 140 bytes takes about 800 ns on ext4, a copy about 20 ns.
//!
//! A window of the file is mapped at a time. Zeros are *written* up to the end of the window before
//! it is mapped. That allocates its disk blocks, so a full disk is an error of that write and never
//! of a copy. If the process or the machine stops, the file may therefore end in zeros.
//! [`WriteFile::truncate`] and the drop of the file remove them.
//!
//! Three kinds of appends are written by system calls: those of more than [`COPIED_BYTES_MAX`], the
//! first ones after a sync, and all appends after a window could not be mapped. That happens if the
//! disk has space for the record but not for a window, or if the system refuses the map.
//!
//! *The first appends after a sync.* The operating system does not see which bytes of a folio (the
//! unit of its page cache, up to some 100 KiB) a copy has changed. So the next sync writes all of
//! it, and the first copy into it causes a page fault. A write marks only its blocks. It goes into
//! the room that the zeros have allocated, so the sync changes no metadata of the file system.
//!
//! A copy can still fail if the device fails or another process truncates the file. [`fault`] turns
//! that into an error. The append has then failed as a whole, as after a failed write.
//!
//! Invariants: `end <= file_bytes`; bytes from `end` on are zeros, except after a failed append;
//! nothing in the window is read through the map.
//!
//! Not here: reads of the log, which go through the file and see what was copied; tables that are
//! mapped for reads ([`reads`]).

mod fault;
pub(crate) mod reads;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use memmap2::{Advice, MmapMut, MmapOptions};

use self::fault::Watch;
use crate::vfs::WriteFile;

/// Size of a window: the unit in which the file grows and in which zeros are written ([`ZEROS`]),
/// and the mapped memory of a log. Smaller windows would be mapped more often, at 5 us each.
const WINDOW_BYTES: usize = 256 << 10;
/// Maximum length of an append that is copied. For a longer one, the copy and the zeros that are
/// written first cost more than the system call that they save.
const COPIED_BYTES_MAX: usize = 32 << 10;
const _: () = assert!(COPIED_BYTES_MAX < WINDOW_BYTES, "an append spans at most two windows");

/// Number of appends after a sync that are written, not copied. A log that is synced for every
/// write has two: the promise of the last sync, and the record.
const WRITTEN_AFTER_SYNC: u32 = 2;
/// Bytes of zeros per write. The operating system keeps what one call wrote in one unit (a folio),
/// and examines the whole unit when part of it is synced: after writes of 64 KiB a sync takes 3 %
/// longer. Smaller writes cost more: a window takes 470 us in writes of 4 KiB, 220 in writes of
/// 16 KiB, 200 in writes of 64 KiB.
static ZEROS: [u8; 16 << 10] = [0; 16 << 10];

/// File systems that use the same cached page for maps and for system calls, and overwrite blocks
/// in place: a copy into a page that was written before allocates no block. From `statfs(2)`.
const FILE_SYSTEMS: [u64; 4] = [
    0xEF53,      // ext2, ext3, ext4
    0x5846_5342, // XFS
    0x0102_1994, // tmpfs
    0x794C_7630, // overlayfs: containers; its upper layer is nearly always one of the above
];

#[derive(Debug)]
struct MappedFile {
    file: File,
    /// Number of bytes appended.
    end: u64,
    /// Length of the file.
    file_bytes: u64,
    /// Appends are copies; `false` once a window could not be made.
    may_map: bool,
    window: Option<Window>,
    /// Number of appends since the last sync; the maximum before the first sync.
    since_sync: u32,
    /// The process that has created the file. It goes on appending, whatever becomes of a copy of
    /// this value in a forked one.
    process: u32,
}

#[derive(Debug)]
struct Window {
    /// Offset in the file.
    start: u64,
    /// Dropped before the map.
    watch: Watch,
    map: MmapMut,
}

/// Creates an empty file whose appends are copies, if the file system permits it.
pub(crate) fn create(path: &Path) -> io::Result<Box<dyn WriteFile>> {
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
    let file_system = rustix::fs::fstatfs(&file).map(|stats| stats.f_type as u64 & 0xFFFF_FFFF);
    let may_map = file_system.is_ok_and(|kind| FILE_SYSTEMS.contains(&kind));
    Ok(Box::new(MappedFile::new(file, may_map)))
}

impl MappedFile {
    fn new(file: File, may_map: bool) -> Self {
        Self {
            file,
            end: 0,
            file_bytes: 0,
            may_map,
            window: None,
            since_sync: u32::MAX,
            process: std::process::id(),
        }
    }

    /// The window at the end of the file; `None` if there can be none.
    fn window(&mut self) -> io::Result<Option<&mut Window>> {
        if self.window.as_ref().is_none_or(|window| window.room_at(self.end) == 0) {
            self.window = None;
            match self.map_window() {
                Ok(window) => self.window = Some(window),
                Err(_) => {
                    // Fall back to system calls. If the write fails too, the caller gets its error.
                    self.may_map = false;
                    self.trim()?;
                }
            }
        }
        Ok(self.window.as_mut())
    }

    /// Writes zeros up to the end of the window that contains the end of the file, and maps it.
    fn map_window(&mut self) -> io::Result<Window> {
        let start = self.end - self.end % WINDOW_BYTES as u64;
        let window_end = start + WINDOW_BYTES as u64;
        while self.file_bytes < window_end {
            let left = usize::try_from(window_end - self.file_bytes).unwrap_or(ZEROS.len());
            let written = self.file.write_at(&ZEROS[..left.min(ZEROS.len())], self.file_bytes)?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.file_bytes += written as u64;
        }
        Window::map(&self.file, start)
    }

    /// Removes the zeros after the end.
    fn trim(&mut self) -> io::Result<()> {
        if self.file_bytes > self.end {
            self.file.set_len(self.end)?;
            self.file_bytes = self.end;
        }
        Ok(())
    }
}

impl Window {
    fn map(file: &File, start: u64) -> io::Result<Self> {
        // SAFETY: the map is written to by `copy` alone, as raw bytes, and never read. So it does
        // not matter that reads and writes of the file, also of other processes, see the same
        // bytes.
        let mut map = unsafe { MmapOptions::new().offset(start).len(WINDOW_BYTES).map_mut(file)? };
        // Takes the page faults of the whole window in one call. A kernel that does not know the
        // advice takes them one by one.
        match map.advise(Advice::PopulateWrite) {
            Err(error) if error.kind() != io::ErrorKind::InvalidInput => return Err(error),
            _ => {}
        }
        let watch = Watch::window(map.as_mut_ptr() as usize, WINDOW_BYTES)?;
        Ok(Self { start, watch, map })
    }

    /// Number of bytes of the window at and after `offset` of the file.
    fn room_at(&self, offset: u64) -> usize {
        let inside = offset.checked_sub(self.start).and_then(|inside| usize::try_from(inside).ok());
        inside.map_or(0, |inside| WINDOW_BYTES.saturating_sub(inside))
    }

    /// Copies the beginning of `bytes` to `offset` of the file, up to the end of the window.
    /// Returns the number of bytes copied.
    fn copy(&mut self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        let room = self.room_at(offset);
        let copied = bytes.len().min(room);
        // SAFETY: `WINDOW_BYTES - room + copied` is at most `WINDOW_BYTES`, the length of the map.
        // The map is not borrowed elsewhere, and `bytes` is not in it: nobody has a reference to
        // it.
        unsafe {
            let to = self.map.as_mut_ptr().add(WINDOW_BYTES - room);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, copied);
        }
        // The copy is complete before the flag is read, also for the compiler.
        std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
        match self.watch.has_failed() {
            false => Ok(copied),
            true => Err(io::Error::other(
                "the mapped page is lost: the device failed, or another process truncated the file",
            )),
        }
    }
}

impl WriteFile for MappedFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let is_copied = self.since_sync >= WRITTEN_AFTER_SYNC;
        self.since_sync = self.since_sync.saturating_add(1);
        let mut piece = bytes;
        if self.may_map && bytes.len() <= COPIED_BYTES_MAX {
            let end = self.end;
            if let Some(window) = self.window()? {
                if is_copied {
                    let copied = window.copy(end, bytes)?;
                    self.end += copied as u64;
                    return Ok(copied);
                }
                // The window's zeros are the room of a written append, too.
                piece = &bytes[..bytes.len().min(window.room_at(end))];
            }
        }
        let written = self.file.write_at(piece, self.end)?;
        self.end += written as u64;
        self.file_bytes = self.file_bytes.max(self.end);
        Ok(written)
    }

    fn sync_data(&mut self) -> io::Result<()> {
        self.since_sync = 0;
        self.file.sync_data()
    }

    fn sync_all(&mut self) -> io::Result<()> {
        self.since_sync = 0;
        self.file.sync_all()
    }

    fn truncate(&mut self, bytes: u64) -> io::Result<()> {
        self.window = None;
        self.file.set_len(bytes)?;
        (self.end, self.file_bytes) = (bytes, bytes);
        Ok(())
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        self.window = None;
        if std::process::id() == self.process {
            // Readers accept the zeros, too.
            let _ = self.trim();
        }
    }
}

#[cfg(test)]
mod tests;
