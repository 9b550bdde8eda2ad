//! Opening a value file whose header or footer may be damaged, for a repair.
//!
//! The values are found from references, and each chunk has its own checksum. So neither structure
//! is needed to read them, as long as the birth id is known, which the manifest and every table
//! that refers to the file state.

use std::path::Path;
use std::sync::Arc;

use shamba_env::Env;

use super::format::{Footer, HEADER, HEADER_BYTES, Header, chunks_of};
use super::read::{ValueFile, ValueFileOptions, check_birth, load_footer, load_header};
use crate::checksum::checksum;
use crate::compression::Compression;
use crate::file::TableFile;
use crate::format::Section;
use crate::id::{BirthId, value_file_name};
use crate::values::CHUNK_BYTES_MAX;
use crate::{Error, Result};

/// Offset of the birth id in the header.
const BIRTH_AT: usize = 32;

impl ValueFile {
    /// [`Self::open`] of a file that may be damaged: also returns the damage to header and footer.
    /// A file with a damaged header is read as one with pieces of 65,536 bytes, as every writer
    /// outside tests makes them; one with a damaged footer is read up to its end, and
    /// [`Self::values`] and [`Self::stored_bytes`] are 0.
    ///
    /// # Errors
    /// `Io` when the file is missing or cannot be read; `Unsupported` for an undamaged file of a
    /// newer version; `Corruption` for a file with another birth id than expected.
    pub fn open_damaged(
        env: &Env,
        dir: &Path,
        options: &ValueFileOptions,
    ) -> Result<(Arc<Self>, Vec<Error>)> {
        let path = dir.join(value_file_name(options.id));
        let mut file = TableFile::open(&env.vfs, &path, options.direct_io, &options.files)?;
        let mut damage = Vec::new();
        let header = match load_header(&file, None) {
            Ok(header) => {
                check_birth(&file, &header, options.birth)?;
                header
            }
            Err(error) => {
                // An unknown version is damage if the checksum does not match.
                let is_damage = match &error {
                    Error::Unsupported { .. } => !is_sealed(&file)?,
                    other => other.is_corruption(),
                };
                if !is_damage {
                    return Err(error);
                }
                damage.push(error);
                Header {
                    chunk_bytes: CHUNK_BYTES_MAX as u32,
                    optional: 0,
                    birth: options.birth,
                    number: options.id,
                    keyspace: 0,
                    compression: Compression::None,
                }
            }
        };
        file.birth = options.birth;
        let mut chunks = chunks_of(file.bytes);
        let footer = match load_footer(&file) {
            Ok(footer) => footer,
            Err(error) if error.is_corruption() => {
                damage.push(error);
                chunks = Section { bytes: file.bytes.saturating_sub(chunks.offset), ..chunks };
                Footer::default()
            }
            Err(error) => return Err(error),
        };
        Ok((Arc::new(Self::of_parts(options, file, (header, footer), chunks)), damage))
    }
}

/// Whether the header's checksum, salted with the birth id that it states, matches.
fn is_sealed(file: &TableFile) -> Result<bool> {
    let bytes = file.read(0, file.bytes.min(HEADER_BYTES as u64), HEADER)?;
    let birth = bytes.get(BIRTH_AT..).and_then(<[u8]>::first_chunk);
    let birth = birth.map(|birth| BirthId(u64::from_le_bytes(*birth)));
    Ok(bytes.split_last_chunk::<4>().zip(birth).is_some_and(|((covered, sum), birth)| {
        bytes.len() == HEADER_BYTES && checksum(birth, 0, covered) == u32::from_le_bytes(*sum)
    }))
}
