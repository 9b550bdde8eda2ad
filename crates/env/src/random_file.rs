//! Reading a file at any offset.
//!
//! Calls mirror those of the operating system and promise no more: a read may be short or
//! interrupted ([`crate::read_exact_at`] loops).

use std::fmt::Debug;
use std::io;

/// A file open for reading at any offset.
pub trait RandomFile: Send + Sync + Debug {
    /// Reads up to `buf.len()` bytes at `offset`; 0 means end of file. May be short or
    /// `Interrupted`.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize>;
    /// The file's current length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Whether the file is currently empty.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Required alignment of offset, length and address of every read; 1 unless opened by
    /// [`crate::Vfs::open_read_direct`].
    fn alignment_bytes(&self) -> usize {
        1
    }
    /// Whether reads bypass the operating system's cache.
    fn is_direct(&self) -> bool {
        false
    }
    /// These bytes of the file in mapped memory; `None` if they are not mapped, or a page of the
    /// map was lost. A caller that has read them asks [`Self::is_intact`]: if not, they may have
    /// been zeros.
    fn mapped(&self, _offset: u64, _bytes: usize) -> Option<&[u8]> {
        None
    }
    /// Whether all that was read so far from [`Self::mapped`] was the file's.
    fn is_intact(&self) -> bool {
        true
    }
    /// The descriptor, if reads at it mean the same as [`Self::read_at`]. It is open for as long as
    /// this value exists.
    #[cfg(target_os = "linux")]
    fn descriptor(&self) -> Option<std::os::fd::RawFd> {
        None
    }
}
