//! The file of a table or value file being written, and its write buffer.
//!
//! Writes have one length, and each starts at a multiple of it, up to the last one.
//!
//! Not here: the content ([`crate::writer`], [`crate::value_file`]).

use std::path::{Path, PathBuf};

use shamba_env::{Env, WriteFile, append_all};

use crate::block::DataBlockBuilder;
use crate::block::frame::{seal, seal_in_place};
use crate::compression::{Compression, Compressor};
use crate::id::BirthId;
use crate::values;
use crate::{Error, Result};

/// The file, and bytes not yet written to it.
pub(crate) struct Output {
    file: Box<dyn WriteFile>,
    pub(crate) path: PathBuf,
    birth: BirthId,
    gathered: Vec<u8>,
    written_bytes: u64,
    /// Length of a write call.
    write_bytes: usize,
}

impl Output {
    /// Creates the file at `path` with the birth id `birth`, which begins with `header`. It is
    /// written in pieces of `write_bytes`.
    pub(crate) fn create(
        env: &Env,
        path: &Path,
        birth: BirthId,
        header: Vec<u8>,
        write_bytes: usize,
    ) -> Result<Self> {
        assert!(write_bytes > 0, "writes of no bytes");
        let file = env.vfs.create(path).map_err(|error| Error::io(path, "create", error))?;
        Ok(Self { file, path: path.to_path_buf(), birth, gathered: header, written_bytes: 0, write_bytes })
    }

    /// Bytes in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.gathered.capacity()
    }

    /// Appends a chunk of a value.
    pub(crate) fn chunk(&mut self, piece: &[u8], compressor: &mut Compressor) -> Result<()> {
        let compressed = compressor.compress(piece);
        let (stored, compression) = compressed.map_err(|error| Error::io(&self.path, "compress", error))?;
        let offset = self.offset();
        values::seal(&mut self.gathered, self.birth, offset, stored, compression);
        self.spill()
    }

    pub(crate) fn offset(&self) -> u64 {
        self.written_bytes + self.gathered.len() as u64
    }

    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.gathered.extend_from_slice(bytes);
        self.spill()
    }

    /// Appends zeros up to `offset`: less than a page of them.
    pub(crate) fn pad_to(&mut self, offset: u64) {
        let zeros = offset.saturating_sub(self.offset());
        assert!(offset >= self.offset(), "padding up to {offset}, but the file has {} bytes", self.offset());
        self.gathered.resize(self.gathered.len() + zeros as usize, 0);
    }

    /// Appends the frame of an uncompressed data block, building it in place.
    pub(crate) fn frame_of(&mut self, block: &mut DataBlockBuilder) -> Result<(u64, u32)> {
        let (offset, start) = (self.offset(), self.gathered.len());
        block.finish_into(&mut self.gathered);
        seal_in_place(&mut self.gathered, start, self.birth, offset, Compression::None);
        self.framed(offset, start)
    }

    /// Appends a frame; returns its offset and length.
    pub(crate) fn frame(&mut self, stored: &[u8], compression: Compression) -> Result<(u64, u32)> {
        let (offset, start) = (self.offset(), self.gathered.len());
        seal(&mut self.gathered, self.birth, offset, stored, compression);
        self.framed(offset, start)
    }

    /// Returns place and length of the frame that starts at `start` of the buffer; spills the
    /// buffer.
    fn framed(&mut self, offset: u64, start: usize) -> Result<(u64, u32)> {
        debug_assert!(self.gathered.len() > start, "a frame of no bytes at {offset}");
        debug_assert_eq!(
            self.written_bytes + start as u64,
            offset,
            "the frame at {offset} was sealed for another offset"
        );
        let bytes = u32::try_from(self.gathered.len() - start)
            .map_err(|_| Error::Invalid("a block of 4 GiB or more".to_owned()))?;
        self.spill()?;
        Ok((offset, bytes))
    }

    /// Writes the complete pieces of the buffer to the file.
    fn spill(&mut self) -> Result<()> {
        let whole = self.gathered.len() / self.write_bytes * self.write_bytes;
        debug_assert_eq!(
            self.written_bytes % self.write_bytes as u64,
            0,
            "a write does not start at a multiple of its length"
        );
        if whole > 0 { self.write(whole) } else { Ok(()) }
    }

    /// Writes the first `bytes` of the buffer to the file.
    fn write(&mut self, bytes: usize) -> Result<()> {
        append_all(self.file.as_mut(), self.gathered.get(..bytes).unwrap_or_default())
            .map_err(|error| Error::io(&self.path, "write", error))?;
        self.written_bytes += bytes as u64;
        debug_assert!(bytes <= self.gathered.len(), "{bytes} bytes of {} were written", self.gathered.len());
        self.gathered.drain(..bytes);
        Ok(())
    }

    pub(crate) fn sync(&mut self) -> Result<()> {
        self.write(self.gathered.len())?;
        self.file.sync_all().map_err(|error| Error::io(&self.path, "sync", error))
    }
}
