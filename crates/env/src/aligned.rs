//! Buffers and reads for direct I/O, where offset, length and address must be multiples of a page.
//!
//! Not here: opening such files ([`crate::Vfs::open_read_direct`]).

use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};

use crate::random_file::RandomFile;

/// Alignment of offset, length and address of a direct read: no device in use requires more.
pub const DIRECT_ALIGNMENT_BYTES: usize = 4_096;

/// A zeroed buffer whose address and length are multiples of [`DIRECT_ALIGNMENT_BYTES`].
#[derive(Default)]
pub struct AlignedBuf {
    /// Its capacity never changes: the bytes would move.
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl AlignedBuf {
    /// A buffer of at least `bytes`.
    pub fn new(bytes: usize) -> Self {
        let length = bytes.next_multiple_of(DIRECT_ALIGNMENT_BYTES);
        if length == 0 {
            return Self::default();
        }
        let buf = vec![0; length + DIRECT_ALIGNMENT_BYTES - 1];
        let start = buf.as_ptr().align_offset(DIRECT_ALIGNMENT_BYTES);
        // `align_offset` may fail (in const evaluation); a page of slack is the most that it can
        // need here.
        assert!(start < DIRECT_ALIGNMENT_BYTES);
        Self { bytes: buf, start, length }
    }

    /// Ensures space for `bytes`; the content is lost if the buffer had less.
    pub fn reserve(&mut self, bytes: usize) {
        if self.length < bytes {
            *self = Self::new(bytes);
        }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes.get(self.start..self.start + self.length).unwrap_or_default()
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.bytes.get_mut(self.start..self.start + self.length).unwrap_or_default()
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuf({} bytes)", self.length)
    }
}

/// Reads at least `needed` bytes from `offset` into the front of `buf`, looping over short and
/// interrupted reads. The bytes after `needed` hold whatever the file has there, or are unchanged.
/// For files that require alignment: `offset`, address and length of `buf` must be aligned.
///
/// # Errors
/// `UnexpectedEof` when the file ends before `needed` bytes; else the error of the read.
pub fn read_aligned_at(file: &dyn RandomFile, offset: u64, buf: &mut [u8], needed: usize) -> io::Result<()> {
    let alignment = file.alignment_bytes().max(1);
    let mut filled = 0;
    while filled < needed {
        // A short read may end anywhere; the next one must start at a multiple of the alignment
        // again.
        let from = filled - filled % alignment;
        let at = offset.checked_add(from as u64).ok_or(io::ErrorKind::InvalidInput)?;
        let rest = buf.get_mut(from..).unwrap_or_default();
        match file.read_at(at, rest) {
            Ok(bytes) if from + bytes > filled => filled = from + bytes,
            Ok(_) => {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    format!("file ends at {}, wanted {needed} bytes from {offset}", offset + filled as u64),
                ));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that reads at most one page at a time and requires alignment.
    #[derive(Debug)]
    struct Strict(Vec<u8>);

    impl RandomFile for Strict {
        fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
            let offset = offset as usize;
            assert!(offset.is_multiple_of(DIRECT_ALIGNMENT_BYTES));
            assert!(buf.len().is_multiple_of(DIRECT_ALIGNMENT_BYTES));
            assert!(buf.as_ptr().addr().is_multiple_of(DIRECT_ALIGNMENT_BYTES));
            let rest = self.0.get(offset..).unwrap_or_default();
            let bytes = rest.len().min(buf.len()).min(DIRECT_ALIGNMENT_BYTES);
            buf[..bytes].copy_from_slice(&rest[..bytes]);
            Ok(bytes)
        }

        fn len(&self) -> io::Result<u64> {
            Ok(self.0.len() as u64)
        }

        fn alignment_bytes(&self) -> usize {
            DIRECT_ALIGNMENT_BYTES
        }
    }

    #[test]
    fn reads_are_aligned_and_end_with_the_file() {
        let content: Vec<u8> = (0..10_000u32).map(|i| (i * 7 / 3) as u8).collect();
        let file = Strict(content.clone());
        for needed in [0, 1, 4_096, 4_097, 9_999, 10_000] {
            let mut buf = AlignedBuf::new(10_000);
            assert_eq!(buf.len(), 12_288);
            read_aligned_at(&file, 0, &mut buf, needed).expect("read");
            assert_eq!(buf[..needed], content[..needed]);
        }
        let mut buf = AlignedBuf::new(8_192);
        read_aligned_at(&file, 4_096, &mut buf, 5_904).expect("read");
        assert_eq!(buf[..5_904], content[4_096..]);
        let ended = read_aligned_at(&file, 4_096, &mut buf, 5_905).expect_err("too far");
        assert_eq!(ended.kind(), io::ErrorKind::UnexpectedEof);
        let far = read_aligned_at(&file, 1 << 20, &mut buf, 1).expect_err("far behind the end");
        assert_eq!(far.kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(AlignedBuf::new(0).len(), 0);
    }
}
