//! Value files: long values outside the tables, in the order in which they were written.
//!
//! ```text
//! 0                64-byte header
//! 64               chunks: value after value, each a sequence of chunks, contiguous, no padding
//! file end - 64    64-byte footer
//! ```
//!
//! A table's entry of the kind [`EntryKind::ValueFileRef`] has a [`ValueFileRef`] in place of the
//! value: number of the file, place of the chunks, and a fingerprint that binds the value to its
//! entry. A file has no keys: values are found from entries, never entries from values. The chunks
//! are those of large values ([`crate::values`]); the checksum of each is salted with the birth id
//! and its offset, so that it binds the bytes to their file and place.
//!
//! [`ValueFileWriter`] writes a file, [`ValueFile`] reads it, [`describe_value_file`] prints it.
//! Field tables and a worked example: `docs/formats/value-file.md`.
//!
//! Not here: which tables refer to a file, and when it is deleted (the tree and the engine).

mod check;
mod describe;
mod format;
mod read;
mod salvage;
mod write;

pub use self::check::WrittenValues;
pub use self::describe::{ChunkDescription, ValueFileDescription, describe_value_file};
pub use self::format::FIXED_BYTES as VALUE_FILE_FIXED_BYTES;
pub use self::read::{ValueFile, ValueFileOptions};
pub use self::write::{
    UnsyncedValueFile, VALUE_WRITER_BYTES, ValueFileSummary, ValueFileWriter, ValueFileWriterOptions,
};

use std::hash::Hasher as _;

use shamba_key::{EntryKind, MAX_VALUE_BYTES, SeqNo};
use twox_hash::XxHash3_64;

use self::format::HEADER_BYTES;
use crate::content::{ContentDigest, value_seed};
use crate::id::ValueFileId;
use crate::values::{CHUNK_BYTES_ALLOWED, CHUNK_OVERHEAD_BYTES};

/// Reference of a table's entry to a value in a value file.
///
/// ```text
/// file u64, offset u64, stored u32, length u32, fingerprint u64
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ValueFileRef {
    /// The value file.
    pub file: ValueFileId,
    /// Offset of the first chunk in the file.
    pub offset: u64,
    /// Length of all chunks.
    pub stored_bytes: u32,
    /// Length of the payload: the value, and the expiry before it if the entry has one.
    pub value_bytes: u32,
    /// Hash of key, sequence number, kind and payload.
    pub fingerprint: u64,
}

impl ValueFileRef {
    /// Length of a stored reference.
    pub const STORED_BYTES: usize = 32;
    /// Start of the fields that do not depend on the place of the value: length and fingerprint.
    const CONTENT_AT: usize = 20;

    /// The stored form.
    pub fn encode(self) -> [u8; Self::STORED_BYTES] {
        let mut bytes = [0; Self::STORED_BYTES];
        bytes[..8].copy_from_slice(&self.file.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.offset.to_le_bytes());
        bytes[16..Self::CONTENT_AT].copy_from_slice(&self.stored_bytes.to_le_bytes());
        bytes[Self::CONTENT_AT..24].copy_from_slice(&self.value_bytes.to_le_bytes());
        bytes[24..].copy_from_slice(&self.fingerprint.to_le_bytes());
        bytes
    }

    /// Decodes a stored reference, and checks what holds in any value file. Only the file knows
    /// the length of its pieces and its end: [`ValueFile`] checks a reference against them before
    /// each use.
    ///
    /// # Errors
    /// A description of the damage.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        let [
            f0,
            f1,
            f2,
            f3,
            f4,
            f5,
            f6,
            f7,
            o0,
            o1,
            o2,
            o3,
            o4,
            o5,
            o6,
            o7,
            s0,
            s1,
            s2,
            s3,
            v0,
            v1,
            v2,
            v3,
            h0,
            h1,
            h2,
            h3,
            h4,
            h5,
            h6,
            h7,
        ] = bytes
        else {
            let expected = Self::STORED_BYTES;
            return Err(format!("a reference of {} bytes, expected {expected}", bytes.len()));
        };
        let found = Self {
            file: ValueFileId(u64::from_le_bytes([*f0, *f1, *f2, *f3, *f4, *f5, *f6, *f7])),
            offset: u64::from_le_bytes([*o0, *o1, *o2, *o3, *o4, *o5, *o6, *o7]),
            stored_bytes: u32::from_le_bytes([*s0, *s1, *s2, *s3]),
            value_bytes: u32::from_le_bytes([*v0, *v1, *v2, *v3]),
            fingerprint: u64::from_le_bytes([*h0, *h1, *h2, *h3, *h4, *h5, *h6, *h7]),
        };
        let Self { offset, stored_bytes, value_bytes, .. } = found;
        if value_bytes == 0 || value_bytes as usize > MAX_VALUE_BYTES {
            return Err(format!("a value of {value_bytes} bytes"));
        }
        // The bounds for the longest and the shortest pieces.
        let overhead = |chunk_bytes: usize| {
            (value_bytes as usize).div_ceil(chunk_bytes) as u64 * CHUNK_OVERHEAD_BYTES as u64
        };
        let least = overhead(*CHUNK_BYTES_ALLOWED.end());
        let most = overhead(*CHUNK_BYTES_ALLOWED.start()) + u64::from(value_bytes);
        if u64::from(stored_bytes) <= least || u64::from(stored_bytes) > most {
            return Err(format!("{value_bytes} bytes in chunks of {stored_bytes}"));
        }
        if offset < HEADER_BYTES as u64 || offset.checked_add(u64::from(stored_bytes)).is_none() {
            return Err(format!("chunks of {stored_bytes} bytes at {offset}"));
        }
        Ok(found)
    }

    /// End of the chunks, exclusive.
    pub fn end(self) -> u64 {
        self.offset.saturating_add(u64::from(self.stored_bytes))
    }

    /// Content digest of the entry with this reference, of kind `kind`. It does not depend on the
    /// place of the value: relocating it keeps the digest.
    pub fn content(self, key: &[u8], seq: SeqNo, kind: EntryKind) -> ContentDigest {
        debug_assert!(kind.in_value_file(), "an entry of kind {kind:?} with a reference to a value file");
        ContentDigest::of(key, seq, kind, &self.encode()[Self::CONTENT_AT..])
    }

    /// Whether `payload` is the one that was written for this entry. `kind` may be that of the
    /// whole entry or that of the one with a reference.
    pub fn is_of(self, key: &[u8], seq: SeqNo, kind: EntryKind, payload: &[u8]) -> bool {
        payload.len() as u64 == u64::from(self.value_bytes)
            && self.fingerprint == fingerprint_of(fingerprint_seed(key, seq, kind), payload)
    }
}

/// Seed of the fingerprint of an entry's payload.
fn fingerprint_seed(key: &[u8], seq: SeqNo, kind: EntryKind) -> u64 {
    value_seed(key, seq, kind.whole())
}

/// The fingerprint of a payload.
fn fingerprint_of(seed: u64, payload: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(seed, payload)
}

/// The fingerprint of a payload that comes in pieces.
struct Fingerprint(Box<XxHash3_64>);

impl Fingerprint {
    fn new(seed: u64) -> Self {
        Self(Box::new(XxHash3_64::with_seed(seed)))
    }

    fn push(&mut self, piece: &[u8]) {
        self.0.write(piece);
    }

    fn finish(&self) -> u64 {
        self.0.finish()
    }
}

#[cfg(test)]
mod tests;
