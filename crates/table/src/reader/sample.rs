//! Samples of data blocks, to make a dictionary of ([`crate::Dictionary`]).

use bytes::Bytes;

use super::TableReader;
use super::load::DATA_BLOCK;
use super::walked::IndexCursor;
use crate::Result;
use crate::counters::ReadCounters;
use crate::index::BlockNo;

/// Maximum stored length of a sample: most blocks have 4 KiB, and all samples are in memory at
/// once.
const SAMPLE_BYTES_MAX: u32 = 16 << 10;

impl TableReader {
    /// Payloads of at most `blocks` data blocks, evenly spread over the table; those that are
    /// longer than 16 KiB are left out. They are read from the file and not cached.
    ///
    /// # Errors
    /// `Io` or `Corruption` from reading.
    pub fn sample_blocks(&self, blocks: usize) -> Result<Vec<Bytes>> {
        let (partitions, loaded) = (self.partitions(), &self.loaded);
        let (mut cursor, mut io) = (IndexCursor::new(true), ReadCounters::default());
        let (all, wanted) = (loaded.index.len(), blocks.min(loaded.index.len()));
        let mut samples = Vec::with_capacity(wanted);
        for number in 0..wanted {
            // Below the number of blocks, a u32.
            let number = BlockNo((number as u64 * all as u64 / wanted as u64) as u32);
            let Some(handle) = cursor.handle(partitions, number, false, &mut io)? else { break };
            if handle.bytes > SAMPLE_BYTES_MAX {
                continue;
            }
            let frame = loaded.file.read(handle.offset, handle.bytes.into(), DATA_BLOCK)?;
            samples.push(loaded.decode_block(handle, frame)?.0);
        }
        Ok(samples)
    }

    /// Number of data blocks.
    pub fn data_blocks(&self) -> usize {
        self.loaded.index.len()
    }
}
