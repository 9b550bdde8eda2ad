//! The file of a table being written, and its write buffer.
//!
//! Not here: the content ([`super`]).

use std::path::PathBuf;

use shamba_env::{WriteFile, append_all};

use super::GATHER_BYTES;
use crate::block::DataBlockBuilder;
use crate::block::frame::{seal, seal_in_place};
use crate::compression::Compression;
use crate::id::BirthId;
use crate::{Error, Result};

/// The file, and bytes not yet written to it.
pub(super) struct Output {
    pub(super) file: Box<dyn WriteFile>,
    pub(super) path: PathBuf,
    pub(super) birth: BirthId,
    pub(super) gathered: Vec<u8>,
    pub(super) written_bytes: u64,
}

impl Output {
    pub(super) fn offset(&self) -> u64 {
        self.written_bytes + self.gathered.len() as u64
    }

    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.gathered.extend_from_slice(bytes);
        self.spill()
    }

    /// Appends zeros up to `offset`: less than a page of them.
    pub(super) fn pad_to(&mut self, offset: u64) {
        let zeros = offset.saturating_sub(self.offset());
        assert!(offset >= self.offset(), "padding up to {offset}, but the file has {} bytes", self.offset());
        self.gathered.resize(self.gathered.len() + zeros as usize, 0);
    }

    /// Appends the frame of an uncompressed data block, building it in place.
    pub(super) fn frame_of(&mut self, block: &mut DataBlockBuilder) -> Result<(u64, u32)> {
        let (offset, start) = (self.offset(), self.gathered.len());
        block.finish_into(&mut self.gathered);
        seal_in_place(&mut self.gathered, start, self.birth, offset, Compression::None);
        self.framed(offset, start)
    }

    /// Appends a frame; returns its offset and length.
    pub(super) fn frame(&mut self, stored: &[u8], compression: Compression) -> Result<(u64, u32)> {
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
    pub(super) fn spill(&mut self) -> Result<()> {
        let whole = self.gathered.len() / GATHER_BYTES * GATHER_BYTES;
        debug_assert_eq!(
            self.written_bytes % GATHER_BYTES as u64,
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

    pub(super) fn sync(&mut self) -> Result<()> {
        self.write(self.gathered.len())?;
        self.file.sync_all().map_err(|error| Error::io(&self.path, "sync", error))
    }
}
