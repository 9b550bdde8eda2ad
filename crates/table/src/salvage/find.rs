//! Finding frames where nothing says how long they are.
//!
//! The checksum is at the end of a frame and covers everything before, so a frame that starts at a place is found by
//! trying its ends. What a frame begins with and what stands before its checksum rule out nearly all of them
//! without a checksum being computed. What passes is a frame up to one chance in four thousand million for each try, and
//! is looked at as a block then, whose every part has to fit.

use bytes::Bytes;

use crate::block::frame::FRAME_BYTES;
use crate::checksum::checksum;
use crate::compression::{Compression, decompress};
use crate::error::Result;
use crate::reader::TableFile;
use crate::values::{CHUNK_BYTES_MAX, CHUNK_OVERHEAD_BYTES};

/// Blocks of several entries are at most as long; the frame of one that has a single entry is found up to the
/// length below.
const SHARED_BYTES_MAX: usize = 64 << 10;
/// The longest frame that is found: a longest key and as long a value.
const FRAME_BYTES_MAX: usize = 160 << 10;
/// Read at a time.
const READ_BYTES: u64 = 4 * FRAME_BYTES_MAX as u64;
/// How far before its end a section of a few names or range tombstones is looked for.
const SECTION_BYTES_MAX: u64 = 16 << 20;
/// The layout bytes of blocks, and the least that any block has.
const LAYOUT_PLAIN: u8 = 1;
const LAYOUT_TAGGED: u8 = 2;
const BLOCK_HEADER_BYTES: usize = 16;
/// What a compressed payload of this length states takes the compressor at most: all but an eighth.
const fn stored_bytes_max(payload_bytes: usize) -> usize {
    payload_bytes - payload_bytes / 8 + FRAME_BYTES
}

/// What lies at a place.
pub(super) enum Found {
    /// A data block: its payload and where it ends.
    Block(Bytes, u64),
    /// A chunk of a large value, and where it ends.
    Chunk(u64),
    /// Nothing that could be told.
    Nothing {
        /// The byte there is not 0, which is what lies between blocks.
        is_damage: bool,
    },
}

/// Looks for blocks and chunks from place to place.
pub(super) struct Finder {
    at: u64,
    bytes: Vec<u8>,
}

impl Finder {
    pub(super) fn new() -> Self {
        Self { at: 0, bytes: Vec::new() }
    }

    /// What lies at `at`, of what ends before `end`.
    pub(super) fn look(&mut self, file: &TableFile, at: u64, end: u64) -> Result<Found> {
        let bytes = self.window(file, at, end)?;
        if let Some(chunk_bytes) = chunk_bytes(file, at, bytes) {
            return Ok(Found::Chunk(at + chunk_bytes as u64));
        }
        if let Some((payload, frame_bytes)) = block(file, at, bytes) {
            return Ok(Found::Block(payload, at + frame_bytes as u64));
        }
        Ok(Found::Nothing { is_damage: bytes.first().is_some_and(|byte| *byte != 0) })
    }

    /// The bytes from `at` on: as many as the longest frame has, fewer only before `end`.
    fn window(&mut self, file: &TableFile, at: u64, end: u64) -> Result<&[u8]> {
        let wanted = (FRAME_BYTES_MAX as u64).min(end.saturating_sub(at));
        let held_end = self.at + self.bytes.len() as u64;
        if at < self.at || at + wanted > held_end {
            self.bytes = file.read(at, READ_BYTES.min(end.saturating_sub(at)), "data block")?;
            self.at = at;
        }
        let from = usize::try_from(at - self.at).unwrap_or(usize::MAX);
        let held = self.bytes.get(from..).unwrap_or_default();
        Ok(held.get(..wanted as usize).unwrap_or(held))
    }
}

/// How long the chunk is with which `bytes`, which lie at `at`, begin, if there is one.
fn chunk_bytes(file: &TableFile, at: u64, bytes: &[u8]) -> Option<usize> {
    let length = u32::from_le_bytes(*bytes.first_chunk()?) as usize;
    if !(1..=CHUNK_BYTES_MAX).contains(&length) {
        return None;
    }
    let chunk = bytes.get(..length + CHUNK_OVERHEAD_BYTES)?;
    sealed(file, at, chunk).map(|_| chunk.len())
}

/// The payload of the data block with which `bytes`, which lie at `at`, begin, and how long its frame is.
fn block(file: &TableFile, at: u64, bytes: &[u8]) -> Option<(Bytes, usize)> {
    let start: &[u8; 8] = bytes.first_chunk()?;
    let stated = u32::from_le_bytes([start[0], start[1], start[2], start[3]]) as usize;
    let is_plain_stored = start[0] == LAYOUT_TAGGED && start[1] & 0xe0 == 0 && start[3] & 0xf0 == 0;
    let is_single = u16::from_le_bytes([start[4], start[5]]) == 1;
    let stored_max = match is_plain_stored {
        true if is_single => FRAME_BYTES_MAX,
        true => SHARED_BYTES_MAX,
        false => 0,
    };
    // What is compressed begins with the length of the payload.
    let is_compressed = (BLOCK_HEADER_BYTES..=FRAME_BYTES_MAX).contains(&stated);
    let compressed_max = if is_compressed { stored_bytes_max(stated) } else { 0 };
    let longest = stored_max.max(compressed_max).min(bytes.len());
    for frame_bytes in FRAME_BYTES + 4..=longest {
        let most = match bytes.get(frame_bytes - FRAME_BYTES).copied().and_then(Compression::from_byte) {
            Some(Compression::None) => stored_max,
            Some(_) => compressed_max,
            None => 0,
        };
        if frame_bytes > most {
            continue;
        }
        let frame = bytes.get(..frame_bytes)?;
        let Some((stored, compression)) = sealed(file, at, frame) else { continue };
        let payload = match compression {
            Compression::None => Bytes::copy_from_slice(stored),
            _ => match decompress(compression, stored, stated) {
                Ok(payload) => Bytes::from(payload),
                Err(_) => continue,
            },
        };
        if payload.first() == Some(&LAYOUT_TAGGED) {
            return Some((payload, frame_bytes));
        }
    }
    None
}

/// What a frame stores and how, if its checksum is right.
fn sealed<'b>(file: &TableFile, at: u64, frame: &'b [u8]) -> Option<(&'b [u8], Compression)> {
    let (covered, stated) = frame.split_last_chunk::<4>()?;
    let (byte, stored) = covered.split_last()?;
    let compression = Compression::from_byte(*byte)?;
    (checksum(file.birth, at, covered) == u32::from_le_bytes(*stated)).then_some((stored, compression))
}

/// The nearest frame before `end` of a plain block, of so many entries if that is known, whose payload `take` takes;
/// and where it begins.
pub(super) fn frame_before<T>(
    file: &TableFile,
    end: u64,
    entries: Option<u64>,
    take: impl Fn(Bytes) -> Option<T>,
) -> Result<Option<(u64, T)>> {
    let from = end.saturating_sub(SECTION_BYTES_MAX);
    let bytes = file.read(from, end - from, "footer")?;
    for start in (0..bytes.len()).rev() {
        let Some([LAYOUT_PLAIN, 0 | 1, 0, 0, c0, c1, c2, c3]) =
            bytes.get(start..).and_then(|rest| rest.get(..8))
        else {
            continue;
        };
        let count = u64::from(u32::from_le_bytes([*c0, *c1, *c2, *c3]));
        if entries.is_some_and(|entries| entries != count) {
            continue;
        }
        let at = from + start as u64;
        if let Some((payload, Compression::None)) =
            bytes.get(start..).and_then(|frame| sealed(file, at, frame))
            && let Some(taken) = take(Bytes::copy_from_slice(payload))
        {
            return Ok(Some((at, taken)));
        }
    }
    Ok(None)
}
