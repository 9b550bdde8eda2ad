//! Header and footer of a value file.
//!
//! ```text
//! header                                       footer
//! 0   magic "SHAMBAVF"                         0   values         u64: at least 1
//! 8   version             u32 = 1              8   payload bytes  u64: sum of the lengths
//! 12  piece               u32                  16  stored bytes   u64: length of all chunks
//! 16  required features   u64                  24  fingerprints   u64: sum modulo 2^64
//! 24  optional features   u64                  32  zeros
//! 32  birth id            u64                  52  checksum       u32 of bytes 0..52
//! 40  number              u64                  56  magic "SHAMBAVE"
//! 48  keyspace            u32
//! 52  compression         u8
//! 53  zeros
//! 60  checksum            u32 of bytes 0..60
//! ```
//!
//! Version and required features are checked before the checksum: a newer format may have its
//! checksum elsewhere, and the result must be "unsupported", not "damaged".

use std::path::Path;

use crate::checksum::checksum;
use crate::compression::{Compression, ZSTD_IS_MISSING};
use crate::format::{Section, SectionKind};
use crate::id::{BirthId, ValueFileId};
use crate::values::{CHUNK_BYTES_ALLOWED, CHUNK_OVERHEAD_BYTES};
use crate::{Error, Result};

/// Length of the header; the chunks start after it.
pub(crate) const HEADER_BYTES: usize = 64;
/// Length of the footer.
pub(super) const FOOTER_BYTES: usize = 64;
/// Bytes that every value file has besides its chunks.
pub const FIXED_BYTES: u64 = (HEADER_BYTES + FOOTER_BYTES) as u64;
/// The version that this build writes, and the only one that it reads.
pub(super) const VERSION: u32 = 1;

const MAGIC: [u8; 8] = *b"SHAMBAVF";
const END_MAGIC: [u8; 8] = *b"SHAMBAVE";
const HEADER_CHECKSUM_AT: usize = HEADER_BYTES - 4;
const FOOTER_CHECKSUM_AT: usize = FOOTER_BYTES - 12;
/// Required features that this build knows.
const REQUIRED_KNOWN: u64 = 0;
/// Names of the two in errors.
pub(super) const HEADER: &str = "value file header";
pub(super) const FOOTER: &str = "value file footer";

/// Content of the header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header {
    /// Bytes of a value in each chunk but its last.
    pub(super) chunk_bytes: u32,
    pub(super) optional: u64,
    pub(super) birth: BirthId,
    /// Number under which the file was written; a linked file may have another name.
    pub(super) number: ValueFileId,
    pub(super) keyspace: u32,
    pub(super) compression: Compression,
}

impl Header {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&self.chunk_bytes.to_le_bytes());
        bytes.extend_from_slice(&REQUIRED_KNOWN.to_le_bytes());
        bytes.extend_from_slice(&self.optional.to_le_bytes());
        bytes.extend_from_slice(&self.birth.0.to_le_bytes());
        bytes.extend_from_slice(&self.number.0.to_le_bytes());
        bytes.extend_from_slice(&self.keyspace.to_le_bytes());
        bytes.push(self.compression.as_byte());
        bytes.resize(HEADER_CHECKSUM_AT, 0);
        let sum = checksum(self.birth, 0, &bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        assert_eq!(bytes.len(), HEADER_BYTES, "the fields of a header have another length");
        bytes
    }

    /// Decodes the header in `bytes`, the first [`HEADER_BYTES`] of `file`, or fewer if the file is
    /// shorter.
    pub(super) fn decode(file: &Path, bytes: &[u8]) -> Result<Self> {
        let damaged = |detail: String| Error::corruption(file, 0, HEADER, detail);
        if !bytes.starts_with(&MAGIC) {
            let found = bytes.get(..MAGIC.len()).unwrap_or(bytes).escape_ascii();
            return Err(damaged(format!("magic \"{found}\", expected \"{}\"", MAGIC.escape_ascii())));
        }
        let cut = || damaged(format!("the file ends after {} of {HEADER_BYTES} bytes", bytes.len()));
        let short = |at: usize| -> Result<u32> {
            let field = bytes.get(at..).and_then(<[u8]>::first_chunk).ok_or_else(cut)?;
            Ok(u32::from_le_bytes(*field))
        };
        let long = |at: usize| -> Result<u64> {
            let field = bytes.get(at..).and_then(<[u8]>::first_chunk).ok_or_else(cut)?;
            Ok(u64::from_le_bytes(*field))
        };
        let version = short(8)?;
        if version != VERSION {
            let detail = format!("value file version {version}, this build reads {VERSION}");
            return Err(Error::unsupported(file, detail));
        }
        let unknown = long(16)? & !REQUIRED_KNOWN;
        if unknown != 0 {
            return Err(Error::unsupported(
                file,
                format!("unknown required value file features {unknown:#x}"),
            ));
        }
        let birth = BirthId(long(32)?);
        let (covered, stated) =
            bytes.split_last_chunk::<4>().filter(|_| bytes.len() == HEADER_BYTES).ok_or_else(cut)?;
        let (stated, found) = (u32::from_le_bytes(*stated), checksum(birth, 0, covered));
        if stated != found {
            return Err(damaged(format!("checksum {found:08x}, expected {stated:08x}")));
        }
        let chunk_bytes = short(12)?;
        if !CHUNK_BYTES_ALLOWED.contains(&(chunk_bytes as usize)) {
            return Err(damaged(format!("chunks of {chunk_bytes} bytes")));
        }
        let byte = bytes.get(52).copied().ok_or_else(cut)?;
        let compression =
            Compression::from_byte(byte).ok_or_else(|| damaged(format!("unknown compression {byte}")))?;
        if !compression.is_built() {
            return Err(Error::unsupported(file, ZSTD_IS_MISSING));
        }
        Ok(Self {
            chunk_bytes,
            optional: long(24)?,
            birth,
            number: ValueFileId(long(40)?),
            keyspace: short(48)?,
            compression,
        })
    }
}

/// Content of the footer.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Footer {
    /// Number of values.
    pub(super) values: u64,
    /// Sum of the lengths of their payloads.
    pub(super) payload_bytes: u64,
    /// Length of all chunks.
    pub(super) stored_bytes: u64,
    /// Sum of the fingerprints of the values, modulo 2^64.
    pub(super) fingerprints: u64,
}

impl Footer {
    /// Encodes the footer, which lies at `offset`.
    pub(super) fn encode(&self, birth: BirthId, offset: u64) -> Vec<u8> {
        assert_eq!(
            self.stored_bytes + HEADER_BYTES as u64,
            offset,
            "the footer does not follow the last chunk"
        );
        assert!(self.values > 0, "a value file without values");
        let mut bytes = Vec::with_capacity(FOOTER_BYTES);
        for field in [self.values, self.payload_bytes, self.stored_bytes, self.fingerprints] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        bytes.resize(FOOTER_CHECKSUM_AT, 0);
        let sum = checksum(birth, offset, &bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes.extend_from_slice(&END_MAGIC);
        assert_eq!(bytes.len(), FOOTER_BYTES, "the fields of a footer have another length");
        bytes
    }

    /// Decodes the footer in `bytes`, which lie at `offset` and end the file.
    pub(super) fn decode(file: &Path, birth: BirthId, offset: u64, bytes: &[u8]) -> Result<Self> {
        let damaged = |detail: String| Error::corruption(file, offset, FOOTER, detail);
        let Some((covered, magic)) = bytes.split_last_chunk::<8>().filter(|_| bytes.len() == FOOTER_BYTES)
        else {
            return Err(damaged(format!("{} bytes, expected {FOOTER_BYTES}", bytes.len())));
        };
        if *magic != END_MAGIC {
            let (found, expected) = (magic.escape_ascii(), END_MAGIC.escape_ascii());
            return Err(damaged(format!(
                "magic \"{found}\", expected \"{expected}\": is the file cut short?"
            )));
        }
        let Some((covered, stated)) = covered.split_last_chunk::<4>() else {
            return Err(damaged("no checksum".to_owned()));
        };
        let (stated, found) = (u32::from_le_bytes(*stated), checksum(birth, offset, covered));
        if stated != found {
            return Err(damaged(format!("checksum {found:08x}, expected {stated:08x}")));
        }
        let field = |number: usize| -> Result<u64> {
            let bytes = covered.get(number * 8..).and_then(<[u8]>::first_chunk);
            Ok(u64::from_le_bytes(*bytes.ok_or_else(|| damaged("no fields".to_owned()))?))
        };
        let found = Self {
            values: field(0)?,
            payload_bytes: field(1)?,
            stored_bytes: field(2)?,
            fingerprints: field(3)?,
        };
        let Self { values, payload_bytes, stored_bytes, .. } = found;
        if Some(offset) != stored_bytes.checked_add(HEADER_BYTES as u64) {
            return Err(damaged(format!("{stored_bytes} bytes of chunks end at {offset}")));
        }
        // Each value has a byte, and a chunk with a byte.
        let least = values.checked_mul(CHUNK_OVERHEAD_BYTES as u64 + 1);
        if values == 0 || payload_bytes < values || least.is_none_or(|least| stored_bytes < least) {
            return Err(damaged(format!(
                "{values} values of {payload_bytes} bytes in {stored_bytes} bytes of chunks"
            )));
        }
        Ok(found)
    }
}

/// The part of a file of `file_bytes` that has the chunks.
pub(super) fn chunks_of(file_bytes: u64) -> Section {
    let bytes = file_bytes.saturating_sub(FIXED_BYTES);
    Section { kind: SectionKind::Values, offset: HEADER_BYTES as u64, bytes }
}
