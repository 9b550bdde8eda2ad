//! Cutting a value into chunks while its pieces arrive.

use super::{CHUNK_BYTES_MAX, LargeValues};
use crate::checksum::checksum;
use crate::compression::Compression;
use crate::id::BirthId;
use crate::{Error, Result};

/// A source of a value's pieces: calls the sink that it is given with each piece.
pub type ValueSource<'a> = dyn FnMut(&mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> + 'a;

/// The error of a source that returned `got_bytes` instead of `value_bytes`.
pub(crate) fn wrong_length(got_bytes: u64, value_bytes: u64) -> Error {
    Error::Invalid(format!(
        "the source of a value returned {got_bytes} bytes or more, expected {value_bytes}"
    ))
}

/// Appends to `out` the chunk whose stored piece is `stored` and whose offset in the file is
/// `offset`.
pub(crate) fn seal(out: &mut Vec<u8>, birth: BirthId, offset: u64, stored: &[u8], compression: Compression) {
    assert!(!stored.is_empty(), "a chunk of no bytes at {offset}");
    debug_assert!(stored.len() <= CHUNK_BYTES_MAX, "a chunk of {} bytes at {offset}", stored.len());
    let start = out.len();
    out.extend_from_slice(&(stored.len() as u32).to_le_bytes());
    out.extend_from_slice(stored);
    out.push(compression.as_byte());
    let sum = checksum(birth, offset, &out[start..]);
    out.extend_from_slice(&sum.to_le_bytes());
}

/// Regroups pieces of any length into pieces of a chunk each.
///
/// Holds less than a chunk, and keeps its buffer from one value to the next.
#[derive(Debug)]
pub(crate) struct ChunkCutter {
    chunk_bytes: usize,
    pending: Vec<u8>,
}

impl ChunkCutter {
    pub(crate) fn new(values: LargeValues) -> Self {
        assert!(values.check().is_ok(), "chunks of {} bytes", values.chunk_bytes);
        Self { chunk_bytes: values.chunk_bytes, pending: Vec::new() }
    }

    /// Allocates the buffer once, for a whole chunk: growing it could take twice that.
    fn reserve(&mut self, bytes: usize) {
        if self.pending.capacity() - self.pending.len() < bytes {
            self.pending.reserve_exact(self.chunk_bytes - self.pending.len());
        }
    }

    /// Adds a part of a value; passes each full piece to `write`, without a copy if possible.
    pub(crate) fn push(
        &mut self,
        mut piece: &[u8],
        write: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        while self.pending.len() + piece.len() >= self.chunk_bytes {
            let (taken, rest) = piece.split_at(self.chunk_bytes - self.pending.len());
            piece = rest;
            if self.pending.is_empty() {
                write(taken)?;
            } else {
                self.reserve(taken.len());
                self.pending.extend_from_slice(taken);
                write(&self.pending)?;
                self.pending.clear();
            }
        }
        debug_assert!(self.pending.len() + piece.len() < self.chunk_bytes, "a full chunk stays pending");
        self.reserve(piece.len());
        self.pending.extend_from_slice(piece);
        Ok(())
    }

    /// Ends a value: passes the remaining bytes to `write`.
    pub(crate) fn end(&mut self, write: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        if !self.pending.is_empty() {
            write(&self.pending)?;
            self.pending.clear();
        }
        Ok(())
    }

    /// Bytes of the value that are not written yet.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.pending.len()
    }

    /// Bytes in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.pending.capacity()
    }
}
