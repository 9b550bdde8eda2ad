//! Promises: how much of a file is known to have been on the disk, from the file itself.
//!
//! Frames are walked from the front. Where one is bad, the rest of the file is searched for promises byte by
//! byte: a hole does not hide what is promised behind it. Both are linear in the file, on any bytes.

use shamba_table::BirthId;

use super::frame::{FileIdentity, PROMISE_BYTES, promise_at};
use super::header::HEADER_BYTES;
use super::reader::read_frame;
use super::window::Window;
use crate::Result;
use shamba_key::planted::{Defect, is_planted};

/// Bytes of a file searched at a time.
const STRIDE_BYTES: usize = 128 << 10;

/// The highest promise in file `number`; 0 if none. `birth` is absent when the file header could not be read:
/// then every self-consistent promise counts, whatever its birth tag.
///
/// # Errors
/// What reading says.
pub fn highest_promise(window: &mut Window, number: u64, birth: Option<BirthId>) -> Result<u64> {
    let mut highest = 0;
    let mut at = HEADER_BYTES;
    let end = window.file_bytes();
    if let Some(birth) = birth {
        let file = FileIdentity { number, birth };
        while at < end {
            let Ok((frame, next)) = read_frame(window, file, at, end)? else { break };
            highest = highest.max(frame.promise);
            at = next;
        }
    }
    Ok(highest.max(look_ahead(window, at, number, birth)?))
}

/// The highest promise that begins at or after `from`.
fn look_ahead(window: &mut Window, from: u64, number: u64, birth: Option<BirthId>) -> Result<u64> {
    if is_planted(Defect::LookAheadSkipped) {
        return Ok(0);
    }
    let mut highest = 0;
    let mut at = from;
    loop {
        let bytes = window.at(at, STRIDE_BYTES + PROMISE_BYTES - 1)?;
        if bytes.len() < PROMISE_BYTES {
            return Ok(highest);
        }
        for (skip, candidate) in bytes.windows(PROMISE_BYTES).enumerate() {
            if let Some(below) = promise_at(number, birth, at + skip as u64, candidate) {
                highest = highest.max(below);
            }
        }
        at += (bytes.len() - PROMISE_BYTES + 1) as u64;
    }
}
