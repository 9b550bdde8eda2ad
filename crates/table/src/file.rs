//! Reads pieces of a table's file into buffers or cache frames, through the page cache or with
//! direct I/O. Short frames of a mapped file are looked at where they are, without a copy. Their
//! checksum is compared there, so only uncompressed frames are: a decompressor may not expect that
//! its input turns into zeros.
//!
//! Bounds are checked first: a piece beyond the file's end is damage to the structure that was
//! expected there, and nothing is allocated for it. With direct I/O, an unaligned piece is read
//! together with the rest of its pages into a scratch buffer of the thread.
//!
//! Not here: the meaning of the bytes ([`super::load`], [`super::blocks`]); which files are open
//! ([`crate::files`]).

use std::cell::RefCell;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use shamba_env::{
    AlignedBuf, BatchRead, DIRECT_ALIGNMENT_BYTES, RandomFile, ReadBytes, Vfs, read_aligned_at, read_exact_at,
};

use crate::block::frame::unseal;
use crate::compression::Compression;
use crate::files::{CachedFile, OpenFiles, Opened};
use crate::id::BirthId;
use crate::{Error, Result};

/// Maximum length of a frame that is read from mapped memory. Longer ones are read by a system
/// call, which reads ahead.
const MAPPED_BYTES_MAX: usize = 16 << 10;
/// Scratch memory that a thread keeps between reads; a larger buffer is freed after the read.
const SCRATCH_KEPT_BYTES: usize = 256 << 10;

thread_local! {
    /// Aligned memory for reads that cannot go directly to their destination.
    static SCRATCH: RefCell<AlignedBuf> = RefCell::default();
}

/// The file of a table.
#[derive(Debug)]
pub(crate) struct TableFile {
    pub(crate) path: PathBuf,
    pub(crate) birth: BirthId,
    /// Length of the file.
    pub(crate) bytes: u64,
    file: CachedFile,
}

impl TableFile {
    /// Opens `path`; the birth id is set later.
    pub(crate) fn open(
        vfs: &Arc<dyn Vfs>,
        path: &Path,
        direct: bool,
        files: &Arc<OpenFiles>,
    ) -> Result<Self> {
        let file =
            CachedFile::open(vfs, path, direct, files).map_err(|error| Error::io(path, "open", error))?;
        let mut opened = Self { path: path.to_path_buf(), birth: BirthId(0), bytes: 0, file };
        opened.bytes = opened.length_now()?;
        Ok(opened)
    }

    /// Opens a file that is not a complete table.
    #[cfg(test)]
    pub(crate) fn for_tests(env: &shamba_env::Env, path: &Path, birth: BirthId) -> Self {
        let file = Self::open(&env.vfs, path, false, &Arc::new(OpenFiles::new(1))).expect("opened");
        Self { birth, ..file }
    }

    /// Current length of the file; it was `bytes` when the table was opened.
    pub(crate) fn length_now(&self) -> Result<u64> {
        self.with_file(|file| file.len()).and_then(|length| self.read_result(length))
    }

    /// Whether reads bypass the system's cache.
    pub(crate) fn is_direct(&self) -> bool {
        self.with_file(|file| file.is_direct()).unwrap_or(false)
    }

    /// Reads bytes that the file must have: an end of file before their end is damage to
    /// `structure`. Nothing is allocated for bytes beyond the file's end.
    pub(crate) fn read(&self, offset: u64, bytes: u64, structure: &'static str) -> Result<Vec<u8>> {
        let length = self.check_range(offset, bytes, structure)?;
        let mut buf = vec![0; length];
        self.read_into(offset, length, &mut buf, structure)?;
        Ok(buf)
    }

    /// Reads `bytes` from `offset` to the front of `buf`; the bytes of `buf` behind them are
    /// undefined afterwards. If `buf` is aligned and a multiple of the page size and the offset is
    /// aligned, the read goes directly into it.
    pub(crate) fn read_into(
        &self,
        offset: u64,
        bytes: usize,
        buf: &mut [u8],
        structure: &'static str,
    ) -> Result<()> {
        if bytes > SCRATCH_KEPT_BYTES && self.is_direct() {
            // In pieces, so that the scratch memory stays small if it is needed.
            let Some(buf) = buf.get_mut(..bytes) else {
                return self.read_error(offset, structure, io::ErrorKind::InvalidInput.into());
            };
            let mut at = offset;
            for piece in buf.chunks_mut(SCRATCH_KEPT_BYTES) {
                self.read_piece(at, piece.len(), piece, structure)?;
                at += piece.len() as u64;
            }
            return Ok(());
        }
        self.read_piece(offset, bytes, buf, structure)
    }

    fn read_piece(&self, offset: u64, bytes: usize, buf: &mut [u8], structure: &'static str) -> Result<()> {
        self.check_range(offset, bytes as u64, structure)?;
        let read = self.with_file(|file| {
            if file.alignment_bytes() <= 1 {
                return match buf.get_mut(..bytes) {
                    Some(buf) => read_exact_at(file, offset, buf),
                    None => Err(io::ErrorKind::InvalidInput.into()),
                };
            }
            let fits = offset % DIRECT_ALIGNMENT_BYTES as u64 == 0
                && buf.as_ptr().addr() % DIRECT_ALIGNMENT_BYTES == 0;
            match buf.get_mut(..bytes.next_multiple_of(DIRECT_ALIGNMENT_BYTES)) {
                Some(pages) if fits => read_aligned_at(file, offset, pages, bytes),
                _ => read_around(file, offset, bytes, |read| match buf.get_mut(..bytes) {
                    Some(buf) => {
                        buf.copy_from_slice(read);
                        Ok(())
                    }
                    None => Err(io::ErrorKind::InvalidInput.into()),
                })?,
            }
        })?;
        read.or_else(|error| self.read_error(offset, structure, error))
    }

    /// Reads `bytes` from `offset` into memory of the thread and passes them to `look`.
    pub(crate) fn read_briefly<T>(
        &self,
        offset: u64,
        bytes: usize,
        structure: &'static str,
        look: impl FnOnce(&[u8]) -> T,
    ) -> Result<T> {
        self.check_range(offset, bytes as u64, structure)?;
        match self.with_file(|file| read_around(file, offset, bytes, look))? {
            Ok(looked) => Ok(looked),
            Err(error) => self.read_error(offset, structure, error),
        }
    }

    /// As [`Self::read_briefly`], for a frame that `look` checks: if the file is mapped, it looks
    /// at the frame where it is. It is called again if that could not be read.
    pub(crate) fn look_at_frame<T>(
        &self,
        offset: u64,
        bytes: usize,
        structure: &'static str,
        mut look: impl FnMut(&[u8]) -> T,
    ) -> Result<T> {
        self.check_range(offset, bytes as u64, structure)?;
        let mapped = self.with_file(|file| {
            let looked = look(mapped(file, offset, bytes)?);
            // Otherwise it may have looked at zeros.
            file.is_intact().then_some(looked)
        })?;
        match mapped {
            Some(looked) => Ok(looked),
            None => self.read_briefly(offset, bytes, structure, look),
        }
    }

    /// As [`Self::read_into`], for a frame that the caller checks: if the file is mapped, the frame
    /// is copied.
    pub(crate) fn read_frame_into(
        &self,
        offset: u64,
        bytes: usize,
        buf: &mut [u8],
        structure: &'static str,
    ) -> Result<()> {
        self.check_range(offset, bytes as u64, structure)?;
        let is_copied = self.with_file(|file| match (mapped(file, offset, bytes), buf.get_mut(..bytes)) {
            (Some(piece), Some(buf)) => {
                buf.copy_from_slice(piece);
                file.is_intact()
            }
            _ => false,
        })?;
        if is_copied { Ok(()) } else { self.read_into(offset, bytes, buf, structure) }
    }

    /// As [`Self::read`], for a frame that the caller checks.
    pub(crate) fn read_frame(&self, offset: u64, bytes: u64, structure: &'static str) -> Result<Vec<u8>> {
        let length = self.check_range(offset, bytes, structure)?;
        let mut buf = vec![0; length];
        self.read_frame_into(offset, length, &mut buf, structure)?;
        Ok(buf)
    }

    /// A read of `bytes` from `offset` that is to be made together with others.
    pub(crate) fn batch_read(&self, offset: u64, bytes: usize, structure: &'static str) -> Result<BatchRead> {
        self.check_range(offset, bytes as u64, structure)?;
        Ok(BatchRead::new(self.with_opened(Opened::share)?, offset, bytes))
    }

    /// The bytes of a [`Self::batch_read`] from `offset`.
    pub(crate) fn bytes_of(
        &self,
        read: BatchRead,
        offset: u64,
        structure: &'static str,
    ) -> Result<ReadBytes> {
        read.into_bytes().or_else(|error| self.read_error(offset, structure, error))
    }

    /// The payload of a frame that is never compressed.
    pub(crate) fn payload(&self, offset: u64, bytes: u64, structure: &'static str) -> Result<Bytes> {
        let frame = self.read(offset, bytes, structure)?;
        let limit_bytes = frame.len();
        match unseal(self.birth, offset, frame, limit_bytes, None) {
            Ok((payload, Compression::None)) => Ok(payload),
            Ok((_, other)) => Err(self.damaged(offset, structure, format!("compressed with {other}"))),
            Err(detail) => Err(self.damaged(offset, structure, detail)),
        }
    }

    pub(crate) fn damaged(&self, offset: u64, structure: &'static str, detail: impl Into<String>) -> Error {
        Error::corruption(&self.path, offset, structure, detail)
    }

    /// Checks that the piece lies in the file; returns its length.
    fn check_range(&self, offset: u64, bytes: u64, structure: &'static str) -> Result<usize> {
        let end = offset.checked_add(bytes).filter(|end| *end <= self.bytes);
        match (end, usize::try_from(bytes)) {
            (Some(_), Ok(length)) => Ok(length),
            _ => {
                let detail = format!("{bytes} bytes expected, the file has {}", self.bytes);
                Err(self.damaged(offset, structure, detail))
            }
        }
    }

    fn with_file<T>(&self, act: impl FnOnce(&dyn RandomFile) -> T) -> Result<T> {
        self.with_opened(|opened| act(opened.file()))
    }

    fn with_opened<T>(&self, act: impl FnOnce(&Opened) -> T) -> Result<T> {
        let guard = self.file.get().map_err(|error| Error::io(&self.path, "open", error))?;
        match guard.as_ref() {
            Some(opened) => Ok(act(opened)),
            // `get` returns an open file.
            None => Err(Error::io(&self.path, "open", io::ErrorKind::NotFound.into())),
        }
    }

    #[cold]
    fn read_error<T>(&self, offset: u64, structure: &'static str, error: io::Error) -> Result<T> {
        if error.kind() == io::ErrorKind::UnexpectedEof {
            return Err(self.damaged(offset, structure, error.to_string()));
        }
        Err(Error::io(&self.path, format!("read {structure} at offset {offset} of"), error))
    }

    fn read_result<T>(&self, result: io::Result<T>) -> Result<T> {
        result.map_err(|error| Error::io(&self.path, "read", error))
    }
}

/// The bytes in mapped memory, if they are short enough to be read there.
fn mapped(file: &dyn RandomFile, offset: u64, bytes: usize) -> Option<&[u8]> {
    if bytes <= MAPPED_BYTES_MAX { file.mapped(offset, bytes) } else { None }
}

/// Reads `bytes` from `offset` together with the rest of their pages, and passes them to `show`.
fn read_around<T>(
    file: &dyn RandomFile,
    offset: u64,
    bytes: usize,
    show: impl FnOnce(&[u8]) -> T,
) -> io::Result<T> {
    let alignment = file.alignment_bytes().max(1);
    // Below the alignment.
    let before = (offset % alignment as u64) as usize;
    let needed = before + bytes;
    SCRATCH.with(|scratch| {
        // Taken, not borrowed: `show` may read, too.
        let mut buf = scratch.take();
        buf.reserve(needed);
        let pages = needed.next_multiple_of(alignment);
        let read = match buf.get_mut(..pages) {
            Some(pages) => read_aligned_at(file, offset - before as u64, pages, needed),
            None => Err(io::ErrorKind::InvalidInput.into()),
        };
        let shown = read.map(|()| show(buf.get(before..needed).unwrap_or_default()));
        if buf.len() <= SCRATCH_KEPT_BYTES + 2 * DIRECT_ALIGNMENT_BYTES {
            scratch.replace(buf);
        }
        shown
    })
}
