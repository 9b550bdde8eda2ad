//! Reading frames back as records, up to the end or the first damage.
//!
//! The reader judges nothing: whether damage is corruption or a torn tail depends on promises that may be in
//! other files. It reports where the damaged record begins and stays there; asking again gives the same
//! answer. Half-read records live in the call, not in the reader, so nothing is left over after an error. A
//! record may be longer than what should be in memory: all its frames are checked when it is met, and its
//! payload is read again, a frame at a time ([`super::payload`]).

use bytes::Bytes;
use shamba_table::BirthId;

use super::codec::Decoded;
use super::frame::{FRAME_HEADER_BYTES, FileIdentity, Frame, FrameHeader, FrameKind, PAYLOAD_BYTES_MAX};
use super::header::HEADER_BYTES;
use super::payload::PayloadReader;
use super::window::Window;
use crate::Result;
use shamba_key::planted::{Defect, is_planted};

/// What a record is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordKind {
    /// Batches or an edit.
    Data,
    /// What came before this log.
    Head,
    /// The file was closed in order.
    End,
    /// Nothing but its promise.
    Promise,
}

/// One whole record.
#[derive(Clone, Debug)]
pub struct Record {
    /// Kind of the record.
    pub kind: RecordKind,
    /// Where its first frame begins.
    pub offset: u64,
    /// Where its last frame ends.
    pub end: u64,
    /// Empty if it is longer than what the reader holds.
    pub payload: Bytes,
    /// Length of the payload, held or not.
    pub payload_bytes: u64,
    /// What a promise says; 0 for every other record.
    pub promise: u64,
    /// Checksum of its last frame.
    pub checksum: u32,
    /// How many frames hold it.
    pub frames: u32,
}

/// What is next in a file.
#[derive(Clone, Debug)]
pub enum Step {
    /// A whole record.
    Record(Record),
    /// The file ends here, right after a record.
    End,
    /// What is here is not a record.
    Damage {
        /// Where the bad frame begins.
        offset: u64,
        /// Expected and found.
        detail: String,
    },
}

/// Reads one file's records in order.
#[derive(Debug)]
pub struct FrameReader {
    window: Window,
    file: FileIdentity,
    offset: u64,
    limit: u64,
    held_bytes_max: u64,
}

impl FrameReader {
    /// Reads from behind the file header.
    pub fn new(window: Window, number: u64, birth: BirthId) -> Self {
        let limit = window.file_bytes();
        let (file, offset) = (FileIdentity { number, birth }, HEADER_BYTES);
        Self { window, file, offset, limit, held_bytes_max: u64::MAX }
    }

    /// Gives records of several frames without their payload, checked all the same: [`Self::payload_of`]
    /// reads it.
    pub fn hold_one_frame(&mut self) {
        self.held_bytes_max = PAYLOAD_BYTES_MAX as u64;
    }

    /// The payload of a record of this file that is not held.
    pub fn payload_of(&mut self, record: &Record) -> PayloadReader<'_> {
        PayloadReader::new(&mut self.window, self.file, record.offset, record.end, record.payload_bytes)
    }

    /// Takes the file as ending at `bytes`, if it is longer.
    pub fn limit_to(&mut self, bytes: u64) {
        self.limit = self.limit.min(bytes);
    }

    /// Where the next record begins: everything before is good.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The next record, or why there is none.
    ///
    /// # Errors
    /// What reading says; an error is never the end of the file.
    pub fn next(&mut self) -> Result<Step> {
        if self.offset == self.limit {
            return Ok(Step::End);
        }
        let start = self.offset;
        let mut payload = Vec::new();
        let mut payload_bytes = 0u64;
        let mut at = start;
        let mut frames = 0u32;
        loop {
            let (frame, end) = match read_frame(&mut self.window, self.file, at, self.limit) {
                Ok(Ok(frame)) => frame,
                Ok(Err(detail)) => return Ok(Step::Damage { offset: at, detail }),
                Err(_) if is_planted(Defect::ReadErrorEndsLog) => return Ok(Step::End),
                Err(error) => return Err(error),
            };
            frames = frames.saturating_add(1);
            payload_bytes += frame.payload.len() as u64;
            if payload_bytes <= self.held_bytes_max {
                payload.extend_from_slice(frame.payload);
            }
            let inside = at > start;
            let kind = match (frame.kind, inside) {
                (FrameKind::Full, false) | (FrameKind::Last, true) => RecordKind::Data,
                (FrameKind::Head, false) => RecordKind::Head,
                (FrameKind::End, false) => RecordKind::End,
                (FrameKind::Promise, false) => RecordKind::Promise,
                (FrameKind::First, false) | (FrameKind::Middle, true)
                    if frame.payload.len() == PAYLOAD_BYTES_MAX =>
                {
                    at = end;
                    continue;
                }
                (FrameKind::First, false) | (FrameKind::Middle, true) => {
                    let bytes = frame.payload.len();
                    let detail = format!("a frame of {bytes} bytes that is not the last of its record");
                    return Ok(Step::Damage { offset: at, detail });
                }
                (kind, inside) => {
                    let place = if inside { "inside" } else { "outside" };
                    let detail = format!("a frame of kind {} {place} a record", kind.name());
                    return Ok(Step::Damage { offset: at, detail });
                }
            };
            if payload_bytes > self.held_bytes_max {
                payload = Vec::new();
            }
            self.offset = end;
            return Ok(Step::Record(Record {
                kind,
                offset: start,
                end,
                promise: frame.promise,
                checksum: frame.checksum,
                frames,
                payload: Bytes::from(payload),
                payload_bytes,
            }));
        }
    }
}

/// Checks the frame at `at` of a file that is taken to end at `limit`; gives it, and where it ends.
///
/// # Errors
/// What reading says. What is wrong with the bytes is in the answer.
pub(super) fn read_frame(
    window: &mut Window,
    file: FileIdentity,
    at: u64,
    limit: u64,
) -> Result<Decoded<(Frame<'_>, u64)>> {
    let left = usize::try_from(limit.saturating_sub(at)).unwrap_or(usize::MAX);
    let header = match FrameHeader::decode(window.at(at, left.min(FRAME_HEADER_BYTES))?) {
        Ok(header) => header,
        Err(detail) => return Ok(Err(detail)),
    };
    let bytes = window.at(at, left.min(header.frame_bytes()))?;
    Ok(Frame::decode(file, header, at, bytes).map(|frame| (frame, at + header.frame_bytes() as u64)))
}
