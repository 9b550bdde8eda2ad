//! Large values: stored in chunks outside the data blocks, so that writer and reader hold at most
//! one or two chunks of a value.
//!
//! A put with a large value ([`LargeValues`]) has its value cut into chunks, which are written
//! contiguously after the last data block. Its entry is in the next data block, with the kind
//! [`shamba_key::EntryKind::ValueRef`] and the place of the chunks ([`ValueRef`]). So between two
//! data blocks lie the chunks that the second one refers to, contiguous and in the order of its
//! entries, then zeros up to its start.
//!
//! ```text
//! reference  offset of the first chunk u64, bytes of all chunks u32, bytes of the value u32,
//!            bytes of the value in each chunk but the last u32
//! chunk      length u32, piece of that length, compression u8, checksum u32 of all before
//! ```
//!
//! A piece is stored like a block's payload ([`crate::compression`]), and the checksum is salted
//! with birth id and offset of the chunk. A length is never 0, so chunks can be distinguished from
//! the zeros after them without the block that refers to them.
//!
//! To the layers above, a large value is the value of a put: the content digest is the same as for
//! an inline value.
//!
//! Values in value files ([`crate::value_file`]) are stored in the same chunks.
//!
//! Not here: which entry refers to which chunks (the [writer](crate::writer) and the
//! [reader](crate::reader)); values that stay in a log (the engine's).

mod read;
mod write;

pub(crate) use self::read::{Chunk, READ_BYTES, decode, read, walk, walk_chunks};
pub use self::write::ValueSource;
pub(crate) use self::write::{ChunkCutter, seal, wrong_length};

use std::ops::RangeInclusive;

use shamba_key::MAX_VALUE_BYTES;

use crate::format::Section;

/// Name of a value chunk in errors.
pub(crate) const VALUE_CHUNK: &str = "value chunk";
/// Name of a reference to a large value in errors.
pub(crate) const VALUE_REFERENCE: &str = "value reference";
/// Length of a chunk besides its piece: length, compression byte and checksum.
pub(crate) const CHUNK_OVERHEAD_BYTES: usize = 9;
/// Maximum length of a piece: large against a chunk's overhead, and small enough to hold two in
/// memory.
pub(crate) const CHUNK_BYTES_MAX: usize = 64 << 10;
/// Allowed lengths of pieces; small ones are for tests.
pub(crate) const CHUNK_BYTES_ALLOWED: RangeInclusive<usize> = 64..=CHUNK_BYTES_MAX;
/// Length of a stored [`ValueRef`].
pub(crate) const REFERENCE_BYTES: usize = 20;
const _: () =
    assert!(REFERENCE_BYTES == size_of::<u64>() + 3 * size_of::<u32>(), "the fields of a reference");
const _: () = assert!(CHUNK_OVERHEAD_BYTES == 2 * size_of::<u32>() + 1, "length, compression, checksum");

/// The values that are cut into chunks, and the chunk size.
///
/// The default is used everywhere outside tests: values from 16 KiB on, so that a block is at most
/// a few pages; chunks of 64 KiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LargeValues {
    /// Minimum length of a value that is cut into chunks, in bytes; at least 1.
    pub from_bytes: usize,
    /// Bytes of the value in one chunk, 64 to 65,536.
    pub chunk_bytes: usize,
}

impl Default for LargeValues {
    fn default() -> Self {
        Self { from_bytes: 16 << 10, chunk_bytes: CHUNK_BYTES_MAX }
    }
}

impl LargeValues {
    pub(crate) fn check(self) -> Result<(), String> {
        if self.from_bytes == 0 || !CHUNK_BYTES_ALLOWED.contains(&self.chunk_bytes) {
            return Err(format!(
                "large values from {} bytes on in chunks of {}, expected from 1 on and chunks of {} to {}",
                self.from_bytes,
                self.chunk_bytes,
                CHUNK_BYTES_ALLOWED.start(),
                CHUNK_BYTES_ALLOWED.end()
            ));
        }
        Ok(())
    }
}

/// Place of a large value in its file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ValueRef {
    /// Offset of the first chunk.
    pub(crate) offset: u64,
    /// Length of all chunks.
    pub(crate) stored_bytes: u32,
    /// Length of the value.
    pub(crate) value_bytes: u32,
    /// Length of the value's part in each chunk but the last.
    pub(crate) chunk_bytes: u32,
}

impl ValueRef {
    pub(crate) fn encode(self) -> [u8; REFERENCE_BYTES] {
        let mut bytes = [0; REFERENCE_BYTES];
        bytes[..8].copy_from_slice(&self.offset.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.stored_bytes.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.value_bytes.to_le_bytes());
        bytes[16..].copy_from_slice(&self.chunk_bytes.to_le_bytes());
        bytes
    }

    /// Decodes the reference in `bytes`, whose chunks lie in `data`. Checks that the lengths are
    /// consistent, so that a reader does not allocate for a value that the stored bytes could not
    /// hold.
    pub(crate) fn decode(bytes: &[u8], data: Section) -> Result<Self, String> {
        let [o0, o1, o2, o3, o4, o5, o6, o7, s0, s1, s2, s3, v0, v1, v2, v3, c0, c1, c2, c3] = bytes else {
            return Err(format!("{} bytes, expected {REFERENCE_BYTES}", bytes.len()));
        };
        let found = Self {
            offset: u64::from_le_bytes([*o0, *o1, *o2, *o3, *o4, *o5, *o6, *o7]),
            stored_bytes: u32::from_le_bytes([*s0, *s1, *s2, *s3]),
            value_bytes: u32::from_le_bytes([*v0, *v1, *v2, *v3]),
            chunk_bytes: u32::from_le_bytes([*c0, *c1, *c2, *c3]),
        };
        found.check(data).map(|()| found)
    }

    /// Checks that the lengths are consistent and that the chunks lie in `data`.
    pub(crate) fn check(self, data: Section) -> Result<(), String> {
        let Self { offset, stored_bytes, value_bytes, chunk_bytes } = self;
        if !CHUNK_BYTES_ALLOWED.contains(&(chunk_bytes as usize)) {
            return Err(format!("chunks of {chunk_bytes} bytes"));
        }
        if value_bytes == 0 || value_bytes as usize > MAX_VALUE_BYTES {
            return Err(format!("a value of {value_bytes} bytes"));
        }
        let overhead = u64::from(value_bytes.div_ceil(chunk_bytes)) * CHUNK_OVERHEAD_BYTES as u64;
        let (least, most) = (overhead, overhead + u64::from(value_bytes));
        if u64::from(stored_bytes) <= least || u64::from(stored_bytes) > most {
            return Err(format!("{value_bytes} bytes in chunks of {chunk_bytes} cannot take {stored_bytes}"));
        }
        let end = offset.checked_add(u64::from(stored_bytes));
        if offset < data.offset || end.is_none_or(|end| end > data.end()) {
            return Err(format!("chunks of {stored_bytes} bytes at {offset} are beyond the data section"));
        }
        Ok(())
    }

    /// End of the chunks, exclusive. References are checked to lie in their section before they are
    /// used.
    pub(crate) fn end(self) -> u64 {
        self.offset.saturating_add(u64::from(self.stored_bytes))
    }
}

#[cfg(test)]
mod tests;
