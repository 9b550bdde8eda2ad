//! Writing a value file, in one pass from its first byte to its last.
//!
//! Values are cut into chunks as they arrive. A failed source leaves chunks that belong to no
//! value; the writer can then only be abandoned. The caller makes the name of the file durable by
//! syncing the directory.
//!
//! A writer that is dropped unfinished, or whose file cannot be synced, tries to remove its file.
//!
//! Not here: the choice of values and the limit on the file's length (the engine).

use std::path::Path;

use shamba_env::Env;
use shamba_key::{EntryKind, MAX_VALUE_BYTES, SeqNo};

use super::check::{SAMPLES_MAX, WrittenValues};
use super::format::{Footer, HEADER_BYTES, Header};
use super::{Fingerprint, ValueFileRef, fingerprint_of, fingerprint_seed};
use crate::compression::{Compression, Compressor};
use crate::id::{BirthId, ValueFileId, value_file_name};
use crate::output::Output;
use crate::values::{
    CHUNK_BYTES_MAX, CHUNK_OVERHEAD_BYTES, ChunkCutter, LargeValues, ValueSource, wrong_length,
};
use crate::{Error, Result};

/// Length of a write call.
const WRITE_BYTES: usize = 64 << 10;

/// Maximum memory of a writer, in bytes, for a caller that charges it in advance: the buffer of a
/// write and a chunk, the last piece of a value, a compressed piece, and the samples.
pub const VALUE_WRITER_BYTES: u64 = (WRITE_BYTES
    + CHUNK_BYTES_MAX
    + CHUNK_OVERHEAD_BYTES
    + 2 * CHUNK_BYTES_MAX
    + SAMPLES_MAX * WrittenValues::SAMPLE_BYTES) as u64;

/// Options for writing a value file.
#[derive(Clone, Copy, Debug)]
pub struct ValueFileWriterOptions {
    /// Number of the file.
    pub id: ValueFileId,
    /// Random id of the file, new for each file.
    pub birth: BirthId,
    /// Number of the keyspace, for a repair.
    pub keyspace: u32,
    /// Compression of the chunks.
    pub compression: Compression,
    /// Bytes of a value in one chunk, 64 to 65,536; the latter everywhere outside tests.
    pub chunk_bytes: usize,
}

/// Metadata of a finished value file, for the manifest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ValueFileSummary {
    /// Number of the file.
    pub id: ValueFileId,
    /// Random id of the file.
    pub birth: BirthId,
    /// Length of the file.
    pub file_bytes: u64,
    /// Number of values.
    pub values: u64,
    /// Length of the chunks of all values.
    pub stored_bytes: u64,
    /// Sum of the lengths of the payloads.
    pub payload_bytes: u64,
}

/// Writer of one value file.
pub struct ValueFileWriter {
    env: Env,
    options: ValueFileWriterOptions,
    out: Output,
    compressor: Compressor,
    chunks: ChunkCutter,
    footer: Footer,
    written: WrittenValues,
    /// Whether chunks were written that belong to no value.
    is_torn: bool,
    keep: bool,
}

impl std::fmt::Debug for ValueFileWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ValueFileWriter")
            .field("path", &self.out.path)
            .field("values", &self.footer.values)
            .finish()
    }
}

impl ValueFileWriter {
    /// Creates the file `dir/NNNNNN.values`.
    ///
    /// # Errors
    /// `Invalid` for options out of bounds; `Io` when the file cannot be created (also if the name
    /// is taken).
    pub fn create(env: &Env, dir: &Path, options: ValueFileWriterOptions) -> Result<Self> {
        let ValueFileWriterOptions { id, birth, keyspace, compression, chunk_bytes } = options;
        let cut = LargeValues { chunk_bytes, ..LargeValues::default() };
        cut.check().map_err(Error::Invalid)?;
        let path = dir.join(value_file_name(id));
        let compressor = Compressor::new(compression).map_err(|error| Error::io(&path, "compress", error))?;
        let header =
            Header { chunk_bytes: chunk_bytes as u32, optional: 0, birth, number: id, keyspace, compression };
        // Never grown: it holds less than a write, and a chunk.
        let mut buffer = Vec::with_capacity(WRITE_BYTES + CHUNK_BYTES_MAX + CHUNK_OVERHEAD_BYTES);
        buffer.extend_from_slice(&header.encode());
        Ok(Self {
            env: env.clone(),
            options,
            out: Output::create(env, &path, birth, buffer, WRITE_BYTES)?,
            compressor,
            chunks: ChunkCutter::new(cut),
            footer: Footer::default(),
            written: WrittenValues::default(),
            is_torn: false,
            keep: false,
        })
    }

    /// Appends the payload of an entry; returns the reference to it. `kind` is that of a put whose
    /// payload is `payload`, or that of its entry with a reference.
    ///
    /// # Errors
    /// `Invalid` for an entry that is no put, or a payload that is empty or too long; `Io` when
    /// writing fails. After an I/O error the writer can only be abandoned.
    pub fn add(&mut self, key: &[u8], seq: SeqNo, kind: EntryKind, payload: &[u8]) -> Result<ValueFileRef> {
        let payload_bytes = payload.len() as u64;
        if payload.len() > self.options.chunk_bytes {
            return self.add_streamed(key, seq, kind, payload_bytes, &mut |sink| sink(payload));
        }
        self.check(kind, payload_bytes)?;
        let seed = fingerprint_seed(key, seq, kind);
        let offset = self.out.offset();
        self.is_torn = true;
        self.out.chunk(payload, &mut self.compressor)?;
        Ok(self.count(offset, payload_bytes, (seed, fingerprint_of(seed, payload))))
    }

    /// [`Self::add`] for a payload that comes in pieces from `source`, `payload_bytes` in total; it
    /// is never held whole.
    ///
    /// # Errors
    /// As [`Self::add`], and errors of `source`; `Invalid` when it provides more or fewer bytes.
    /// The writer can then only be abandoned.
    pub fn add_streamed(
        &mut self,
        key: &[u8],
        seq: SeqNo,
        kind: EntryKind,
        payload_bytes: u64,
        source: &mut ValueSource<'_>,
    ) -> Result<ValueFileRef> {
        self.check(kind, payload_bytes)?;
        let seed = fingerprint_seed(key, seq, kind);
        let mut fingerprint = Fingerprint::new(seed);
        let offset = self.out.offset();
        let mut got_bytes = 0u64;
        self.is_torn = true;
        let Self { chunks, out, compressor, .. } = self;
        source(&mut |piece| {
            got_bytes += piece.len() as u64;
            if got_bytes > payload_bytes {
                return Err(wrong_length(got_bytes, payload_bytes));
            }
            fingerprint.push(piece);
            chunks.push(piece, &mut |piece| out.chunk(piece, compressor))
        })?;
        chunks.end(&mut |piece| out.chunk(piece, compressor))?;
        if got_bytes != payload_bytes {
            return Err(wrong_length(got_bytes, payload_bytes));
        }
        debug_assert_eq!(self.chunks.pending_bytes(), 0, "the value ends in a chunk that is not written");
        Ok(self.count(offset, payload_bytes, (seed, fingerprint.finish())))
    }

    /// Checks a value before its first byte is written.
    fn check(&self, kind: EntryKind, payload_bytes: u64) -> Result<()> {
        if !kind.is_put() {
            return Err(Error::Invalid(format!("a value file has no values of the kind {kind:?}")));
        }
        if payload_bytes == 0 || payload_bytes > MAX_VALUE_BYTES as u64 {
            let most = MAX_VALUE_BYTES;
            return Err(Error::Invalid(format!("a value of {payload_bytes} bytes, expected 1 to {most}")));
        }
        if self.is_torn {
            return Err(Error::Invalid("a value file with part of a value".to_owned()));
        }
        Ok(())
    }

    /// Counts a value whose chunks were written from `offset` on; returns the reference to it.
    fn count(&mut self, offset: u64, payload_bytes: u64, (seed, fingerprint): (u64, u64)) -> ValueFileRef {
        self.is_torn = false;
        let stored_bytes = self.out.offset() - offset;
        assert!(stored_bytes > 0, "a value without a chunk");
        // Values are below 2^28 bytes, and chunks add less than a fifth.
        debug_assert!(u32::try_from(stored_bytes).is_ok(), "{stored_bytes} bytes of chunks of one value");
        let reference = ValueFileRef {
            file: self.options.id,
            offset,
            stored_bytes: stored_bytes as u32,
            value_bytes: payload_bytes as u32,
            fingerprint,
        };
        self.written.remember(self.footer.values, reference, seed);
        self.footer.values += 1;
        self.footer.payload_bytes += payload_bytes;
        self.footer.stored_bytes += stored_bytes;
        self.footer.fingerprints = self.footer.fingerprints.wrapping_add(fingerprint);
        reference
    }

    /// Number of the file.
    pub fn id(&self) -> ValueFileId {
        self.options.id
    }

    /// Random id of the file.
    pub fn birth(&self) -> BirthId {
        self.options.birth
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.out.path
    }

    /// Length of the chunks so far.
    pub fn bytes(&self) -> u64 {
        self.out.offset() - HEADER_BYTES as u64
    }

    /// Number of values so far.
    pub fn values(&self) -> u64 {
        self.footer.values
    }

    /// Approximate memory of the writer, at most [`VALUE_WRITER_BYTES`].
    pub fn memory_bytes(&self) -> u64 {
        let buffers = self.out.memory_bytes() + self.chunks.memory_bytes() + self.compressor.memory_bytes();
        buffers as u64 + self.written.memory_bytes()
    }

    /// Writes the footer. Returns the metadata, the data for a check of the file
    /// ([`super::ValueFile::check_written`]), and the file, which the caller still has to sync.
    ///
    /// # Errors
    /// `Invalid` for a file without values; `Io` when writing fails. The writer then tries to
    /// remove the file.
    pub fn finish_unsynced(mut self) -> Result<(ValueFileSummary, WrittenValues, UnsyncedValueFile)> {
        if self.is_torn {
            return Err(Error::Invalid("a value file with part of a value".to_owned()));
        }
        if self.footer.values == 0 {
            return Err(Error::Invalid("a value file without values".to_owned()));
        }
        let footer = self.footer.encode(self.options.birth, self.out.offset());
        self.out.append(&footer)?;
        let summary = ValueFileSummary {
            id: self.options.id,
            birth: self.options.birth,
            file_bytes: self.out.offset(),
            values: self.footer.values,
            stored_bytes: self.footer.stored_bytes,
            payload_bytes: self.footer.payload_bytes,
        };
        let mut written = std::mem::take(&mut self.written);
        written.shrink();
        // Only the rest of the file is needed from here on, which may wait for its sync.
        self.chunks = ChunkCutter::new(LargeValues::default());
        if let Ok(none) = Compressor::new(Compression::None) {
            self.compressor = none;
        }
        Ok((summary, written, UnsyncedValueFile(self)))
    }

    /// Abandons the file: closes it and tries to remove it.
    pub fn abandon(self) {
        drop(self);
    }
}

impl Drop for ValueFileWriter {
    fn drop(&mut self) {
        if !self.keep {
            // Best effort: a file that remains belongs to no version and is removed at the next
            // open.
            let _ = self.env.vfs.unlink(&self.out.path);
        }
    }
}

/// A complete value file that is not yet durable. If it is dropped, it tries to remove its file.
#[derive(Debug)]
pub struct UnsyncedValueFile(ValueFileWriter);

impl UnsyncedValueFile {
    /// Makes the content durable (not the name: sync the directory).
    ///
    /// # Errors
    /// `Io` when syncing fails. It then tries to remove the file.
    pub fn sync(mut self) -> Result<()> {
        self.0.out.sync()?;
        self.0.keep = true;
        Ok(())
    }
}
