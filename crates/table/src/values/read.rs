//! Reading chunks, one at a time, front to back.
//!
//! [`read`] returns the pieces of one value. [`walk`] checks consecutive chunks without a reference
//! to them, for the full check of a file whose data block is damaged. Both hold one chunk, and its
//! piece if it is compressed. [`decode`] returns a value whose chunks were read already.

use std::borrow::Cow;

use super::{CHUNK_BYTES_MAX, CHUNK_OVERHEAD_BYTES, VALUE_CHUNK, ValueRef};
use crate::checksum::checksum;
use crate::compression::{Compression, decompress};
use crate::counters::Reads;
use crate::file::TableFile;
use crate::id::BirthId;
use crate::{Error, Result};

/// Bytes per read: a chunk of maximum length, or several small ones.
pub(crate) const READ_BYTES: usize = CHUNK_BYTES_MAX + CHUNK_OVERHEAD_BYTES;
const LENGTH_BYTES: usize = 4;

/// Passes the pieces of the value at `reference`, which was checked to lie in the file's data, to
/// `sink`; a damaged piece is passed as its error. If the sink accepts the error, the following
/// pieces are passed as well, as far as their chunks can be found. `cost` counts the reads.
pub(crate) fn read(
    file: &TableFile,
    reference: ValueRef,
    cost: &mut Reads,
    sink: &mut dyn FnMut(Result<&[u8]>) -> Result<()>,
) -> Result<()> {
    let mut stretch = Stretch::new(file, reference.offset, reference.end(), cost);
    let mut left_bytes = reference.value_bytes;
    while left_bytes > 0 {
        let piece_bytes = left_bytes.min(reference.chunk_bytes);
        debug_assert!(piece_bytes > 0, "a piece of no bytes would never end");
        left_bytes -= piece_bytes;
        let Some(chunk_bytes) = stretch.chunk_bytes()? else {
            return sink(Err(stretch.damaged(format!("no chunk of {piece_bytes} bytes of a value"))));
        };
        match stretch.piece(chunk_bytes, piece_bytes as usize) {
            Ok(piece) => {
                sink(Ok(&piece))?;
                stretch.pass(chunk_bytes);
            }
            Err(error) => {
                sink(Err(error))?;
                if !stretch.pass_damaged(chunk_bytes) {
                    return Ok(());
                }
            }
        }
    }
    if stretch.at < stretch.end {
        sink(Err(stretch.damaged("it belongs to no value".to_owned())))?;
    }
    Ok(())
}

/// Decodes the value at `reference`, which was checked to lie in the file's data, from `stored`,
/// the bytes of its chunks. Borrows from them if the value is one uncompressed chunk.
pub(crate) fn decode<'b>(file: &TableFile, reference: ValueRef, stored: &'b [u8]) -> Result<Cow<'b, [u8]>> {
    let ValueRef { mut offset, value_bytes, chunk_bytes, .. } = reference;
    let mut rest = stored;
    let mut left_bytes = value_bytes;
    // The length that is stated is allocated once bytes for it were found.
    let mut value = Vec::new();
    while left_bytes > 0 {
        let damaged = |detail: String| file.damaged(offset, VALUE_CHUNK, detail);
        let piece_bytes = left_bytes.min(chunk_bytes);
        debug_assert!(piece_bytes > 0, "a piece of no bytes would never end");
        let no_chunk = || damaged(format!("no chunk of {piece_bytes} bytes of a value"));
        let stated = rest.first_chunk().map(|length| u32::from_le_bytes(*length) as usize);
        let stated = stated.filter(|length| (1..=CHUNK_BYTES_MAX).contains(length)).ok_or_else(no_chunk)?;
        let (chunk, after) = rest.split_at_checked(stated + CHUNK_OVERHEAD_BYTES).ok_or_else(no_chunk)?;
        let (bytes, compression) = unseal(file.birth, offset, chunk).map_err(damaged)?;
        let piece = piece_of(bytes, compression, piece_bytes as usize).map_err(damaged)?;
        rest = after;
        if left_bytes == value_bytes && piece_bytes == value_bytes && rest.is_empty() {
            return Ok(piece);
        }
        value.extend_from_slice(&piece);
        left_bytes -= piece_bytes;
        offset = offset.saturating_add(chunk.len() as u64);
    }
    if !rest.is_empty() {
        return Err(file.damaged(offset, VALUE_CHUNK, "it belongs to no value".to_owned()));
    }
    Ok(Cow::Owned(value))
}

/// A chunk that passed its check.
pub(crate) struct Chunk<'b> {
    /// Offset in the file.
    pub(crate) offset: u64,
    /// Length in the file.
    pub(crate) bytes: usize,
    stored: &'b [u8],
    pub(crate) compression: Compression,
}

impl Chunk<'_> {
    /// Length of its piece, which is decompressed for it.
    pub(crate) fn piece_bytes(&self) -> std::result::Result<usize, String> {
        match self.compression {
            Compression::None => Ok(self.stored.len()),
            other => decompress(other, self.stored, CHUNK_BYTES_MAX, None).map(|piece| piece.len()),
        }
    }
}

/// Checks the contiguous chunks from `start` on, up to zeros or `end`. Returns their end, or `None`
/// if it cannot be determined.
pub(crate) fn walk(file: &TableFile, start: u64, end: u64, damage: &mut Vec<Error>) -> Result<Option<u64>> {
    walk_chunks(file, start, end, &mut |chunk| damage.extend(chunk.err()))
}

/// [`walk`]; passes each chunk, or its damage, to `seen`.
pub(crate) fn walk_chunks(
    file: &TableFile,
    start: u64,
    end: u64,
    seen: &mut dyn FnMut(Result<Chunk<'_>>),
) -> Result<Option<u64>> {
    let mut cost = Reads::default();
    let mut stretch = Stretch::new(file, start, end, &mut cost);
    while stretch.peek(LENGTH_BYTES)?.iter().any(|byte| *byte != 0) {
        let Some(bytes) = stretch.chunk_bytes()? else {
            seen(Err(stretch.damaged("its length is impossible".to_owned())));
            return Ok(None);
        };
        let offset = stretch.at;
        match stretch.sealed(bytes) {
            Ok((stored, compression)) => {
                seen(Ok(Chunk { offset, bytes, stored, compression }));
                stretch.pass(bytes);
            }
            Err(error) => {
                seen(Err(error));
                if !stretch.pass_damaged(bytes) {
                    return Ok(None);
                }
            }
        }
    }
    Ok(Some(stretch.at))
}

/// Checks `chunk`, which was read from `offset`; returns its stored bytes and their compression.
fn unseal(birth: BirthId, offset: u64, chunk: &[u8]) -> std::result::Result<(&[u8], Compression), String> {
    let (covered, stated) = chunk.split_last_chunk::<4>().ok_or("it is cut short")?;
    let (stated, found) = (u32::from_le_bytes(*stated), checksum(birth, offset, covered));
    if stated != found {
        return Err(format!("checksum {found:08x}, expected {stated:08x}"));
    }
    let (byte, rest) = covered.split_last().ok_or("it is cut short")?;
    let compression = Compression::from_byte(*byte).ok_or_else(|| format!("unknown compression {byte}"))?;
    Ok((rest.get(LENGTH_BYTES..).ok_or("it is cut short")?, compression))
}

/// The piece of `piece_bytes` in the stored bytes of a chunk.
fn piece_of(
    stored: &[u8],
    compression: Compression,
    piece_bytes: usize,
) -> std::result::Result<Cow<'_, [u8]>, String> {
    let piece = match compression {
        Compression::None => Cow::Borrowed(stored),
        _ => Cow::Owned(decompress(compression, stored, piece_bytes, None)?),
    };
    if piece.len() != piece_bytes {
        return Err(format!("{} bytes of the value, expected {piece_bytes}", piece.len()));
    }
    Ok(piece)
}

/// A part of the file that is read once, front to back, through a buffer of about one chunk.
struct Stretch<'a> {
    file: &'a TableFile,
    /// Offset of the next chunk.
    at: u64,
    end: u64,
    buffer: Vec<u8>,
    /// Position of `at` in the buffer.
    skip: usize,
    cost: &'a mut Reads,
}

impl<'a> Stretch<'a> {
    fn new(file: &'a TableFile, at: u64, end: u64, cost: &'a mut Reads) -> Self {
        Self { file, at, end, buffer: Vec::new(), skip: 0, cost }
    }

    /// Returns the next `bytes` bytes without consuming them; fewer only at the end of the stretch.
    fn peek(&mut self, bytes: usize) -> Result<&[u8]> {
        debug_assert!(
            self.skip <= self.buffer.len(),
            "{} of {} held bytes are consumed",
            self.skip,
            self.buffer.len()
        );
        let held = self.buffer.len() - self.skip;
        if held < bytes {
            let from = self.at + held as u64;
            let left = usize::try_from(self.end.saturating_sub(from)).unwrap_or(usize::MAX);
            let wanted = bytes.max(READ_BYTES) - held;
            let more_bytes = wanted.min(left) as u64;
            self.cost.note(from, more_bytes);
            let more = self.file.read(from, more_bytes, VALUE_CHUNK)?;
            self.buffer.drain(..self.skip);
            self.skip = 0;
            if self.buffer.is_empty() {
                self.buffer = more;
            } else {
                self.buffer.extend_from_slice(&more);
            }
        }
        let held = self.buffer.get(self.skip..).unwrap_or_default();
        Ok(held.get(..bytes).unwrap_or(held))
    }

    /// Consumes bytes that were peeked.
    fn pass(&mut self, bytes: usize) {
        debug_assert!(
            self.at + bytes as u64 <= self.end,
            "{bytes} bytes at {}, beyond the end {}",
            self.at,
            self.end
        );
        self.at += bytes as u64;
        self.skip = (self.skip + bytes).min(self.buffer.len());
    }

    /// The stated length of the next chunk; `None` if it is impossible.
    fn chunk_bytes(&mut self) -> Result<Option<usize>> {
        let left = self.end.saturating_sub(self.at);
        let length =
            self.peek(LENGTH_BYTES)?.first_chunk().map(|length| u32::from_le_bytes(*length) as usize);
        let length = length.filter(|length| (1..=CHUNK_BYTES_MAX).contains(length));
        Ok(length.map(|length| length + CHUNK_OVERHEAD_BYTES).filter(|bytes| *bytes as u64 <= left))
    }

    /// Checks the next chunk, of length `chunk_bytes`; returns its stored bytes and their
    /// compression.
    fn sealed(&mut self, chunk_bytes: usize) -> Result<(&[u8], Compression)> {
        let (file, offset) = (self.file, self.at);
        let chunk = self.peek(chunk_bytes)?;
        unseal(file.birth, offset, chunk).map_err(|detail| file.damaged(offset, VALUE_CHUNK, detail))
    }

    /// The piece of `piece_bytes` in the next chunk.
    fn piece(&mut self, chunk_bytes: usize, piece_bytes: usize) -> Result<Cow<'_, [u8]>> {
        let (file, offset) = (self.file, self.at);
        let (stored, compression) = self.sealed(chunk_bytes)?;
        piece_of(stored, compression, piece_bytes).map_err(|detail| file.damaged(offset, VALUE_CHUNK, detail))
    }

    /// Skips a damaged chunk with the stated length `chunk_bytes`. Returns whether the length is
    /// confirmed: the stretch ends after it, or a valid chunk follows.
    fn pass_damaged(&mut self, chunk_bytes: usize) -> bool {
        self.pass(chunk_bytes);
        self.at == self.end
            || match self.chunk_bytes() {
                Ok(Some(next_bytes)) => self.sealed(next_bytes).is_ok(),
                _ => false,
            }
    }

    fn damaged(&self, detail: String) -> Error {
        self.file.damaged(self.at, VALUE_CHUNK, detail)
    }
}
