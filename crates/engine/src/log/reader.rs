//! Reading frames back as records, up to the end or the first damage.
//!
//! The reader judges nothing: whether damage is corruption or a torn tail depends on promises that may be
//! in other files. It reports where the damaged record begins and stays there; asking again gives the same
//! answer. Half-read records live in the call, not in the reader, so nothing is left over after an error.

use bytes::Bytes;
use shamba_table::BirthId;

use super::codec::Decoded;
use super::frame::{FRAME_HEADER_BYTES, FileIdentity, Frame, FrameHeader, FrameKind};
use super::header::HEADER_BYTES;
use super::window::Window;
use crate::error::Result;

/// What a record is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RecordKind {
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
pub(crate) struct Record {
    pub(crate) kind: RecordKind,
    /// Where its first frame begins.
    pub(crate) offset: u64,
    /// Where its last frame ends.
    pub(crate) end: u64,
    pub(crate) payload: Bytes,
    /// What a promise says; 0 for every other record.
    pub(crate) promise: u64,
    /// Checksum of its last frame.
    pub(crate) checksum: u32,
    /// How many frames hold it.
    pub(crate) frames: u32,
}

/// What is next in a file.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Record(Record),
    /// The file ends here, right after a record.
    End,
    /// What is here is not a record.
    Damage {
        /// Where the bad frame begins.
        offset: u64,
        detail: String,
    },
}

/// Reads one file's records in order.
#[derive(Debug)]
pub(crate) struct FrameReader {
    window: Window,
    file: FileIdentity,
    offset: u64,
    limit: u64,
}

impl FrameReader {
    /// Reads from behind the file header.
    pub(crate) fn new(window: Window, number: u64, birth: BirthId) -> Self {
        let limit = window.file_bytes();
        Self { window, file: FileIdentity { number, birth }, offset: HEADER_BYTES, limit }
    }

    /// Takes the file as ending at `bytes`, if it is longer.
    pub(crate) fn limit_to(&mut self, bytes: u64) {
        self.limit = self.limit.min(bytes);
    }

    /// Where the next record begins: everything before is good.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// The next record, or why there is none.
    ///
    /// # Errors
    /// What reading says; an error is never the end of the file.
    pub(crate) fn next(&mut self) -> Result<Step> {
        if self.offset == self.limit {
            return Ok(Step::End);
        }
        let start = self.offset;
        let mut payload = Vec::new();
        let mut at = start;
        let mut frames = 0u32;
        loop {
            let (frame, end) = match read_frame(&mut self.window, self.file, at, self.limit)? {
                Ok(frame) => frame,
                Err(detail) => return Ok(Step::Damage { offset: at, detail }),
            };
            frames = frames.saturating_add(1);
            let inside = at > start;
            let kind = match (frame.kind, inside) {
                (FrameKind::Full, false) | (FrameKind::Last, true) => RecordKind::Data,
                (FrameKind::Head, false) => RecordKind::Head,
                (FrameKind::End, false) => RecordKind::End,
                (FrameKind::Promise, false) => RecordKind::Promise,
                (FrameKind::First, false) | (FrameKind::Middle, true) => {
                    payload.extend_from_slice(frame.payload);
                    at = end;
                    continue;
                }
                (kind, inside) => {
                    let place = if inside { "inside" } else { "outside" };
                    let detail = format!("a frame of kind {} {place} a record", kind.name());
                    return Ok(Step::Damage { offset: at, detail });
                }
            };
            payload.extend_from_slice(frame.payload);
            self.offset = end;
            return Ok(Step::Record(Record {
                kind,
                offset: start,
                end,
                promise: frame.promise,
                checksum: frame.checksum,
                frames,
                payload: Bytes::from(payload),
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
