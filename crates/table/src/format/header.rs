//! The header page: format version, required features and identity of the file.
//!
//! ```text
//! 0     magic "SHAMBAT1"
//! 8     version             u32 = 1
//! 12    reserved            u32 = 0
//! 16    required features   u64: an unknown bit forbids reading
//! 24    optional features   u64: an unknown bit is ignored
//! 32    birth id            u64: random, salts every checksum of the file
//! 40    table id            u64: the number under which it was written
//! 48    dictionary          u32: length of the frame of the dictionary behind this page; ignored
//!                           without the feature
//! 52    zeros
//! 4092  checksum            u32 of bytes 0..4092
//! ```
//!
//! Version and required features are checked before the checksum: a newer format may have its
//! checksum elsewhere, and the result must be "unsupported", not "damaged".

use std::path::Path;

use super::{FEATURE_DICTIONARY, HEADER_BYTES, REQUIRED_KNOWN, VERSION};
use crate::checksum::checksum;
use crate::id::{BirthId, TableId};
use crate::{Error, Result};

pub(crate) const MAGIC: [u8; 8] = *b"SHAMBAT1";
const CHECKSUM_AT: usize = HEADER_BYTES - 4;
/// Name of the header in errors.
pub(crate) const STRUCTURE: &str = "header";

/// Content of the header page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub(crate) required: u64,
    pub(crate) optional: u64,
    pub(crate) birth: BirthId,
    pub(crate) table: TableId,
    /// Length of the dictionary's frame; 0: there is none, and [`FEATURE_DICTIONARY`] is not set.
    pub(crate) dictionary_frame_bytes: u32,
}

impl Header {
    /// Offset of the first section.
    pub(crate) fn end(&self) -> u64 {
        HEADER_BYTES as u64 + u64::from(self.dictionary_frame_bytes)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut page = Vec::with_capacity(HEADER_BYTES);
        page.extend_from_slice(&MAGIC);
        page.extend_from_slice(&VERSION.to_le_bytes());
        page.extend_from_slice(&[0; 4]);
        page.extend_from_slice(&self.required.to_le_bytes());
        page.extend_from_slice(&self.optional.to_le_bytes());
        page.extend_from_slice(&self.birth.0.to_le_bytes());
        page.extend_from_slice(&self.table.0.to_le_bytes());
        debug_assert_eq!(
            self.dictionary_frame_bytes > 0,
            self.required & FEATURE_DICTIONARY != 0,
            "a dictionary without its feature, or the feature without one"
        );
        page.extend_from_slice(&self.dictionary_frame_bytes.to_le_bytes());
        page.resize(CHECKSUM_AT, 0);
        let sum = checksum(self.birth, 0, &page);
        page.extend_from_slice(&sum.to_le_bytes());
        page
    }

    /// Decodes the header in `page`, the first [`HEADER_BYTES`] of `file`, or fewer if the file is
    /// shorter.
    pub(crate) fn decode(file: &Path, page: &[u8]) -> Result<Self> {
        let damaged = |detail: String| Error::corruption(file, 0, STRUCTURE, detail);
        if !page.starts_with(&MAGIC) {
            let found = page.get(..MAGIC.len()).unwrap_or(page).escape_ascii();
            return Err(damaged(format!("magic \"{found}\", expected \"{}\"", MAGIC.escape_ascii())));
        }
        let cut = || damaged(format!("the file ends after {} of {HEADER_BYTES} bytes", page.len()));
        let version = page.get(8..).and_then(<[u8]>::first_chunk).ok_or_else(cut)?;
        let version = u32::from_le_bytes(*version);
        if version != VERSION {
            return Err(Error::unsupported(
                file,
                format!("table version {version}, this build reads {VERSION}"),
            ));
        }
        let field = |at: usize| -> Result<u64> {
            let bytes = page.get(at..).and_then(<[u8]>::first_chunk).ok_or_else(cut)?;
            Ok(u64::from_le_bytes(*bytes))
        };
        let required = field(16)?;
        let unknown = required & !REQUIRED_KNOWN;
        if unknown != 0 {
            return Err(Error::unsupported(file, format!("unknown required table features {unknown:#x}")));
        }
        // Older writers left zeros there.
        let dictionary_frame_bytes = if required & FEATURE_DICTIONARY == 0 { 0 } else { field(48)? as u32 };
        let header = Self {
            required,
            optional: field(24)?,
            birth: BirthId(field(32)?),
            table: TableId(field(40)?),
            dictionary_frame_bytes,
        };
        let (covered, stated) =
            page.split_last_chunk::<4>().filter(|_| page.len() == HEADER_BYTES).ok_or_else(cut)?;
        let (stated, found) = (u32::from_le_bytes(*stated), checksum(header.birth, 0, covered));
        if stated != found {
            return Err(damaged(format!("checksum {found:08x}, expected {stated:08x}")));
        }
        if header.dictionary_frame_bytes == 0 && required & FEATURE_DICTIONARY != 0 {
            return Err(damaged("it states a dictionary of no bytes".to_owned()));
        }
        Ok(header)
    }
}
