//! Promises: how much of a file is known to have been on the disk, from the frames of the file itself.
//!
//! Frames are walked by their headers alone. Where one is bad, the rest of the file is searched for frame
//! headers byte by byte: a hole does not hide what later frames promise. Both are linear in the file, on
//! any bytes.

use super::frame::{FRAME_HEADER_BYTES, FrameHeader, birth_tag};
use super::header::HEADER_BYTES;
use super::window::Window;
use crate::error::Result;
use shamba_table::BirthId;

/// Bytes of a file searched at a time.
const STRIDE_BYTES: usize = 128 << 10;

/// The highest promise in any valid frame of file `number`; 0 if none. `birth` is absent when the file header
/// could not be read: then every self-consistent frame counts, whatever its birth tag.
///
/// # Errors
/// What reading says.
pub(crate) fn highest_promise(window: &mut Window, number: u64, birth: Option<BirthId>) -> Result<u64> {
    let tag = birth.map(|birth| birth_tag(birth, number));
    let mut highest = 0;
    let mut at = HEADER_BYTES;
    while at < window.file_bytes() {
        match valid_header(window.at(at, FRAME_HEADER_BYTES)?, number, at, tag) {
            Some(header) => {
                highest = highest.max(header.promise);
                at += FRAME_HEADER_BYTES as u64 + u64::from(header.payload_bytes);
            }
            None => return Ok(highest.max(look_ahead(window, at, number, tag)?)),
        }
    }
    Ok(highest)
}

/// The highest promise in any valid frame that begins at or after `from`.
fn look_ahead(window: &mut Window, from: u64, number: u64, tag: Option<u32>) -> Result<u64> {
    let mut highest = 0;
    let mut at = from;
    loop {
        let bytes = window.at(at, STRIDE_BYTES + FRAME_HEADER_BYTES - 1)?;
        if bytes.len() < FRAME_HEADER_BYTES {
            return Ok(highest);
        }
        for (skip, candidate) in bytes.windows(FRAME_HEADER_BYTES).enumerate() {
            // Eight bytes that name the file turn nearly every place away before a checksum is made.
            if candidate[8..16] == number.to_le_bytes()
                && let Some(header) = valid_header(candidate, number, at + skip as u64, tag)
            {
                highest = highest.max(header.promise);
            }
        }
        at += (bytes.len() - FRAME_HEADER_BYTES + 1) as u64;
    }
}

fn valid_header(bytes: &[u8], number: u64, at: u64, tag: Option<u32>) -> Option<FrameHeader> {
    let (header, _) = FrameHeader::decode(bytes, number, at).ok()?;
    tag.is_none_or(|tag| tag == header.birth_tag).then_some(header)
}
