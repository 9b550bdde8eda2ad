//! Frames: blocks as stored in the file.
//!
//! ```text
//! +----------------------------------+-------------+----------------+
//! | payload, compressed or as it is  | compression | checksum  u32  |
//! +----------------------------------+-------------+----------------+
//!  covered by the checksum ...                    ^
//! ```
//!
//! The checksum is salted with the file's birth id and the frame's offset ([`crate::checksum`]).

use bytes::Bytes;

use crate::checksum::checksum;
use crate::compression::{Compression, Dictionary, decompress};
use crate::id::BirthId;

/// Length of a frame besides its payload: compression byte and checksum.
pub(crate) const FRAME_BYTES: usize = 5;
const _: () = assert!(FRAME_BYTES == 1 + size_of::<u32>(), "compression byte and checksum");

/// Appends to `out` the frame of `stored`, whose offset in the file is `offset`.
pub(crate) fn seal(out: &mut Vec<u8>, birth: BirthId, offset: u64, stored: &[u8], compression: Compression) {
    let start = out.len();
    out.extend_from_slice(stored);
    seal_in_place(out, start, birth, offset, compression);
}

/// Completes the frame that starts at `start` of `out` and whose offset in the file is `offset`.
pub(crate) fn seal_in_place(
    out: &mut Vec<u8>,
    start: usize,
    birth: BirthId,
    offset: u64,
    compression: Compression,
) {
    out.push(compression.as_byte());
    let sum = checksum(birth, offset, &out[start..]);
    out.extend_from_slice(&sum.to_le_bytes());
    debug_assert!(check(birth, offset, &out[start..]).is_ok(), "the frame at {offset} fails its own check");
}

/// The payload and compression of a frame that was read from `offset`: compares the checksum, then
/// decompresses to at most `limit_bytes`, with `dictionary` if the table has one.
pub(crate) fn unseal(
    birth: BirthId,
    offset: u64,
    frame: Vec<u8>,
    limit_bytes: usize,
    dictionary: Option<&Dictionary>,
) -> Result<(Bytes, Compression), String> {
    let (stored, compression) = check(birth, offset, &frame)?;
    let stored_bytes = stored.len();
    if compression != Compression::None {
        return Ok((Bytes::from(decompress(compression, stored, limit_bytes, dictionary)?), compression));
    }
    if stored_bytes > limit_bytes {
        return Err(format!("a payload of {stored_bytes} bytes, at most {limit_bytes} expected"));
    }
    debug_assert_eq!(
        frame.len(),
        stored_bytes + FRAME_BYTES,
        "a frame is its payload and {FRAME_BYTES} bytes"
    );
    let mut payload = Bytes::from(frame);
    payload.truncate(stored_bytes);
    Ok((payload, compression))
}

/// Compares the checksum of a frame that was read from `offset`; returns its stored bytes and
/// compression.
pub(crate) fn check(birth: BirthId, offset: u64, frame: &[u8]) -> Result<(&[u8], Compression), String> {
    let Some((covered, stated)) = frame.split_last_chunk::<4>() else {
        return Err(format!("{} bytes are too short for a frame", frame.len()));
    };
    let (stated, found) = (u32::from_le_bytes(*stated), checksum(birth, offset, covered));
    if stated != found {
        return Err(format!("checksum {found:08x}, expected {stated:08x}"));
    }
    let Some((byte, stored)) = covered.split_last() else {
        return Err("a frame without a compression byte".to_owned());
    };
    let compression = Compression::from_byte(*byte).ok_or_else(|| format!("unknown compression {byte}"))?;
    Ok((stored, compression))
}
