//! Reads frames back as records, up to the end of the file or the first damage.
//!
//! The reader does not judge damage: whether it is corruption or a torn tail depends on promises
//! that may lie in other files. It reports the offset of the bad frame and stays at the record that
//! contains it, so a repeated call returns the same result. A partly read record is local to the
//! call, so an error leaves no state behind.
//!
//! A record may be too long to hold in memory. All its frames are verified when it is first met,
//! and its payload is read again later, one frame at a time ([`super::payload`]).

use bytes::Bytes;
use shamba_table::BirthId;

use super::codec::Decoded;
use super::frame::{FRAME_HEADER_BYTES, FileIdentity, Frame, FrameHeader, FrameKind, PAYLOAD_BYTES_MAX};
use super::header::HEADER_BYTES;
use super::payload::PayloadReader;
use super::window::FileWindow;
use crate::Result;

/// Kind of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordKind {
    /// Batches of a log, or an edit of a manifest.
    Data,
    /// The head of a log, which describes the preceding log.
    Head,
    /// The end marker of a file that was closed cleanly.
    End,
    /// A promise; it has no other content.
    Promise,
}

/// One complete record.
#[derive(Clone, Debug)]
pub struct Record {
    /// Kind of the record.
    pub kind: RecordKind,
    /// Offset of its first frame.
    pub offset: u64,
    /// Offset of the end of its last frame.
    pub end: u64,
    /// The payload; empty if it is longer than the reader holds.
    pub payload: Bytes,
    /// Length of the payload, held or not.
    pub payload_bytes: u64,
    /// The synced offset that a promise states; 0 for every other record.
    pub promise: u64,
    /// Checksum of its last frame.
    pub checksum: u32,
    /// Number of frames.
    pub frames: u32,
}

/// Result of reading on in a file.
#[derive(Clone, Debug)]
pub enum FrameStep {
    /// A complete record.
    Record(Record),
    /// The file ends here, at a record boundary, or only zeros follow: space that the writer
    /// allocated in advance.
    End,
    /// The bytes here are not a valid record.
    Damage {
        /// Offset of the bad frame.
        offset: u64,
        /// Expected and actual content.
        detail: String,
    },
}

/// Reads the records of one file in order.
#[derive(Debug)]
pub struct FrameReader {
    window: FileWindow,
    file: FileIdentity,
    offset: u64,
    limit: u64,
    held_bytes_max: u64,
}

impl FrameReader {
    /// Creates a reader that starts after the file header.
    pub fn new(window: FileWindow, number: u64, birth: BirthId) -> Self {
        let limit = window.file_bytes();
        let (file, offset) = (FileIdentity { number, birth }, HEADER_BYTES);
        Self { window, file, offset, limit, held_bytes_max: u64::MAX }
    }

    /// As [`Self::new`], but starts at the record at `offset`.
    pub fn resume(window: FileWindow, number: u64, birth: BirthId, offset: u64) -> Self {
        debug_assert!(offset >= HEADER_BYTES, "a record at {offset}, inside the file header");
        Self { offset, ..Self::new(window, number, birth) }
    }

    /// Returns multi-frame records without their payload. All their frames are still verified;
    /// [`Self::payload_of`] reads the payload.
    pub fn hold_one_frame(&mut self) {
        self.held_bytes_max = PAYLOAD_BYTES_MAX as u64;
    }

    /// Returns a reader of the payload of a record of this file that is not held in memory.
    pub fn payload_of(&mut self, record: &Record) -> PayloadReader<'_> {
        assert!(
            record.end <= self.offset,
            "the record up to {} was not returned by this reader, which is at {}",
            record.end,
            self.offset
        );
        PayloadReader::new(&mut self.window, self.file, record.offset, record.end, record.payload_bytes)
    }

    /// Treats the file as ending at `bytes`, if it is longer. Called before the first record is
    /// read.
    pub fn limit_to(&mut self, bytes: u64) {
        assert_eq!(self.offset, HEADER_BYTES, "a limit of {bytes} bytes is set after records were returned");
        self.limit = self.limit.min(bytes);
    }

    /// Offset of the next record; everything before it is valid.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the next record, or the reason why there is none.
    ///
    /// # Errors
    /// A read failed. A read error is never taken for the end of the file.
    #[allow(clippy::should_implement_trait, reason = "it fails, or lends; an iterator can not")]
    pub fn next(&mut self) -> Result<FrameStep> {
        // Zeros are never the beginning of a frame.
        if self.window.is_zero(self.offset, self.limit)? {
            return Ok(FrameStep::End);
        }
        let start = self.offset;
        let mut payload = Vec::new();
        let mut payload_bytes = 0u64;
        let mut at = start;
        let mut frames = 0u32;
        loop {
            let (frame, end) = match read_frame(&mut self.window, self.file, at, self.limit) {
                Ok(Ok(frame)) => frame,
                Ok(Err(detail)) => return Ok(FrameStep::Damage { offset: at, detail }),
                Err(error) => return Err(error),
            };
            assert!(at < end && end <= self.limit, "a frame from {at} to {end} in a file of {}", self.limit);
            frames = frames.saturating_add(1);
            payload_bytes += frame.payload.len() as u64;
            if payload_bytes <= self.held_bytes_max {
                payload.extend_from_slice(frame.payload);
            }
            debug_assert!(frame.promise <= at, "the promise at {at} states {}, beyond itself", frame.promise);
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
                    return Ok(FrameStep::Damage { offset: at, detail });
                }
                (kind, inside) => {
                    let place = if inside { "inside" } else { "outside" };
                    let detail = format!("a frame of kind {} {place} a record", kind.name());
                    return Ok(FrameStep::Damage { offset: at, detail });
                }
            };
            if payload_bytes > self.held_bytes_max {
                payload = Vec::new();
            }
            debug_assert_eq!(
                end - start,
                payload_bytes + u64::from(frames) * FRAME_HEADER_BYTES as u64,
                "the {frames} frames from {start} to {end} do not adjoin"
            );
            debug_assert!(
                payload.is_empty() || payload.len() as u64 == payload_bytes,
                "{} of {payload_bytes} payload bytes are held",
                payload.len()
            );
            self.offset = end;
            return Ok(FrameStep::Record(Record {
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

/// Verifies the frame at `at` of a file that is treated as ending at `limit`. Returns the frame and
/// the offset of its end.
///
/// # Errors
/// A read failed. Malformed bytes are reported in the result, not as an error.
pub(super) fn read_frame(
    window: &mut FileWindow,
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
