//! Finds the highest promise in a file: the offset up to which the file is known to have been
//! synced.
//!
//! Frames are read from the front. After a bad frame, the rest of the file is searched for promises
//! at every byte offset, so damage does not hide the promises after it. Both passes are linear in
//! the file size, for any content.

use shamba_table::BirthId;

use super::frame::{FileIdentity, PROMISE_BYTES, promise_at};
use super::header::HEADER_BYTES;
use super::reader::read_frame;
use super::window::FileWindow;
use crate::Result;

/// Number of offsets searched per chunk.
const STRIDE_BYTES: usize = 128 << 10;

/// Returns the highest synced offset promised in file `number`; 0 if there is none. `birth` is
/// absent when the file header could not be read; then every promise with a valid checksum counts,
/// whatever its birth tag.
///
/// # Errors
/// A read failed.
pub fn highest_promise(window: &mut FileWindow, number: u64, birth: Option<BirthId>) -> Result<u64> {
    let mut highest = 0;
    let mut at = HEADER_BYTES;
    let end = window.file_bytes();
    if let Some(birth) = birth {
        let file = FileIdentity { number, birth };
        while at < end {
            let Ok((frame, next)) = read_frame(window, file, at, end)? else { break };
            debug_assert!(at < next && next <= end, "a frame from {at} to {next} in a file of {end}");
            highest = highest.max(frame.promise);
            at = next;
        }
    }
    Ok(highest.max(look_ahead(window, at, number, birth)?))
}

/// Returns the highest synced offset of the promises that begin at or after `from`.
fn look_ahead(window: &mut FileWindow, from: u64, number: u64, birth: Option<BirthId>) -> Result<u64> {
    let mut highest = 0;
    let mut at = from;
    debug_assert!(from >= HEADER_BYTES, "the search begins at {from}, inside the file header");
    loop {
        let bytes = window.at(at, STRIDE_BYTES + PROMISE_BYTES - 1)?;
        if bytes.len() < PROMISE_BYTES {
            return Ok(highest);
        }
        for (skip, candidate) in bytes.windows(PROMISE_BYTES).enumerate() {
            if let Some(below) = promise_at(number, birth, at + skip as u64, candidate) {
                debug_assert!(
                    below <= at + skip as u64,
                    "a promise of {below} at {at} + {skip}, beyond itself"
                );
                highest = highest.max(below);
            }
        }
        at += (bytes.len() - PROMISE_BYTES + 1) as u64;
    }
}
