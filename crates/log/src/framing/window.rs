//! Reads a file front to back through one buffer of bounded size.
//!
//! The length is taken once, when the file is opened. A file that ends before this length is
//! damaged. Bytes appended later are not read. A failed read discards the buffer, so its bytes are
//! never returned.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use shamba_env::{Env, RandomFile, read_exact_at};

use super::frame::{FRAME_BYTES_MAX, FRAME_HEADER_BYTES};
use crate::{Error, Result};

/// Bytes per read: several frames, but little compared to the memtables that replay fills.
const CHUNK_BYTES: usize = 256 << 10;
const _: () = assert!(CHUNK_BYTES >= FRAME_BYTES_MAX, "a frame is loaded at once");

/// A file and the chunk of it that is held in memory.
#[derive(Debug)]
pub struct FileWindow {
    file: Arc<dyn RandomFile>,
    path: PathBuf,
    file_bytes: u64,
    start: u64,
    chunk: Vec<u8>,
}

impl FileWindow {
    /// Opens a file for reading.
    pub fn open(env: &Env, path: &Path) -> Result<Self> {
        let file = env.vfs.open_read(path).map_err(|error| Error::io(path, "open", error))?;
        let file_bytes = file.len().map_err(|error| Error::io(path, "length of", error))?;
        Ok(Self { file, path: path.to_path_buf(), file_bytes, start: 0, chunk: Vec::new() })
    }

    /// The file's length when it was opened, or later if it has become shorter.
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Returns the `bytes` bytes at `offset`; fewer only at the end of the file.
    pub fn at(&mut self, offset: u64, bytes: usize) -> Result<&[u8]> {
        let left = self.file_bytes.saturating_sub(offset);
        let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(bytes);
        let mut skip = self.held(offset, wanted);
        if skip.is_none() {
            if !self.load(offset, wanted)? {
                return self.at(offset, bytes);
            }
            skip = self.held(offset, wanted);
            assert!(
                skip.is_some(),
                "{wanted} bytes at {offset} were loaded, but {} bytes from {} are held",
                self.chunk.len(),
                self.start
            );
        }
        let held = skip.and_then(|skip| self.chunk.get(skip..)).and_then(|held| held.get(..wanted));
        Ok(held.unwrap_or_default())
    }

    /// Whether all bytes from `from` to `end` are zeros.
    pub fn is_zero(&mut self, from: u64, end: u64) -> Result<bool> {
        let mut at = from;
        // Usually the first bytes show that the range is not zero.
        let mut piece_bytes = FRAME_HEADER_BYTES;
        while at < end {
            let left = usize::try_from(end - at).unwrap_or(usize::MAX);
            let bytes = self.at(at, left.min(piece_bytes))?;
            if bytes.iter().any(|&byte| byte != 0) {
                return Ok(false);
            }
            at += bytes.len().max(1) as u64;
            piece_bytes = FRAME_BYTES_MAX;
        }
        Ok(true)
    }

    /// Index in the chunk of `offset`, if the chunk holds `wanted` bytes from there.
    fn held(&self, offset: u64, wanted: usize) -> Option<usize> {
        let skip = usize::try_from(offset.checked_sub(self.start)?).ok()?;
        (skip.checked_add(wanted)? <= self.chunk.len()).then_some(skip)
    }

    /// Loads the chunk at `offset`; false if the file has become shorter. A log that another thread
    /// seals loses the space that was set aside for it, which has no records.
    fn load(&mut self, offset: u64, wanted: usize) -> Result<bool> {
        let left = usize::try_from(self.file_bytes.saturating_sub(offset)).unwrap_or(usize::MAX);
        debug_assert!(wanted <= left, "{wanted} bytes wanted at {offset}, but the file has {left} there");
        let mut chunk = std::mem::take(&mut self.chunk);
        chunk.resize(wanted.max(CHUNK_BYTES).min(left), 0);
        match read_exact_at(self.file.as_ref(), offset, &mut chunk) {
            Ok(()) => {
                self.start = offset;
                self.chunk = chunk;
                Ok(true)
            }
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                let file_bytes =
                    self.file.len().map_err(|error| Error::io(&self.path, "length of", error))?;
                if file_bytes < self.file_bytes {
                    self.file_bytes = file_bytes;
                    return Ok(false);
                }
                Err(Error::corruption(&self.path, offset, "log file", "it ends inside its stated length"))
            }
            Err(error) => {
                let what = format!("read at offset {offset} of");
                Err(Error::io(&self.path, what, error))
            }
        }
    }
}
