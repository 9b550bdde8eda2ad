//! A readable description of a value file.
//!
//! Needs nothing but the file; the birth id is taken from the header unless the caller passes the
//! expected one. Every chunk is read.
//!
//! Not here: the full check ([`super::ValueFile::verify`]).

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use shamba_env::Env;

use super::format::{VERSION, chunks_of};
use super::read::load;
use crate::Result;
use crate::compression::Compression;
use crate::file::TableFile;
use crate::files::OpenFiles;
use crate::id::{BirthId, ValueFileId};
use crate::values::{self, VALUE_CHUNK};

/// Description of one chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkDescription {
    /// Offset in the file.
    pub offset: u64,
    /// Length in the file, including length, compression byte and checksum.
    pub bytes: u64,
    /// Length of the piece of the value.
    pub piece_bytes: u64,
    /// Compression of the piece.
    pub compression: Compression,
}

/// Description of a value file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ValueFileDescription {
    /// The file.
    pub path: PathBuf,
    /// Format version.
    pub version: u32,
    /// Optional feature bits.
    pub optional_features: u64,
    /// Number under which it was written; a linked file may have another name.
    pub number: ValueFileId,
    /// Random id of the file.
    pub birth: BirthId,
    /// Number of the keyspace for which it was written.
    pub keyspace: u32,
    /// The requested compression.
    pub compression: Compression,
    /// Bytes of a value in each chunk but its last.
    pub chunk_bytes: u32,
    /// Length of the file.
    pub file_bytes: u64,
    /// Number of values.
    pub values: u64,
    /// Sum of the lengths of the payloads.
    pub payload_bytes: u64,
    /// Length of all chunks.
    pub stored_bytes: u64,
    /// Sum of the fingerprints of the values, modulo 2^64.
    pub fingerprints: u64,
    /// The chunks.
    pub chunks: Vec<ChunkDescription>,
}

/// Describes the value file at `path`.
///
/// # Errors
/// As [`super::ValueFile::open`] and for every chunk: `Io`, `Unsupported`, `Corruption`.
pub fn describe_value_file(env: &Env, path: &Path, birth: Option<BirthId>) -> Result<ValueFileDescription> {
    let file = TableFile::open(&env.vfs, path, false, &Arc::new(OpenFiles::new(1)))?;
    let (file, header, footer) = load(file, birth)?;
    let section = chunks_of(file.bytes);
    let (mut chunks, mut damage) = (Vec::new(), None);
    let end = values::walk_chunks(&file, section.offset, section.end(), &mut |chunk| {
        let described = chunk.and_then(|chunk| {
            let piece_bytes =
                chunk.piece_bytes().map_err(|detail| file.damaged(chunk.offset, VALUE_CHUNK, detail))?;
            Ok(ChunkDescription {
                offset: chunk.offset,
                bytes: chunk.bytes as u64,
                piece_bytes: piece_bytes as u64,
                compression: chunk.compression,
            })
        });
        match described {
            Ok(described) => chunks.push(described),
            Err(error) => _ = damage.get_or_insert(error),
        }
    })?;
    if let Some(error) = damage {
        return Err(error);
    }
    if end != Some(section.end()) {
        let detail = format!("no chunk, they go on to {}", section.end());
        return Err(file.damaged(end.unwrap_or(section.offset), VALUE_CHUNK, detail));
    }
    Ok(ValueFileDescription {
        path: path.to_path_buf(),
        version: VERSION,
        optional_features: header.optional,
        number: header.number,
        birth: header.birth,
        keyspace: header.keyspace,
        compression: header.compression,
        chunk_bytes: header.chunk_bytes,
        file_bytes: file.bytes,
        values: footer.values,
        payload_bytes: footer.payload_bytes,
        stored_bytes: footer.stored_bytes,
        fingerprints: footer.fingerprints,
        chunks,
    })
}

impl fmt::Display for ValueFileDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "value file {} version {} birth {}", self.number, self.version, self.birth)?;
        writeln!(f, "optional features {:#x}", self.optional_features)?;
        for (name, value) in [
            ("file bytes", self.file_bytes.to_string()),
            ("keyspace", self.keyspace.to_string()),
            ("compression", self.compression.to_string()),
            ("piece bytes", self.chunk_bytes.to_string()),
            ("values", self.values.to_string()),
            ("payload bytes", self.payload_bytes.to_string()),
            ("stored bytes", self.stored_bytes.to_string()),
            ("fingerprints", format!("{:016x}", self.fingerprints)),
        ] {
            writeln!(f, "  {name:<18}{value}")?;
        }
        writeln!(f, "\n      offset     bytes     piece compression")?;
        for chunk in &self.chunks {
            writeln!(
                f,
                "{:>12}{:>10}{:>10} {}",
                chunk.offset, chunk.bytes, chunk.piece_bytes, chunk.compression
            )?;
        }
        Ok(())
    }
}
