//! Reading frames back as records, up to the end or the first damage.
//!
//! The reader judges nothing: whether damage is corruption or a torn tail depends on promises that may be
//! in other files. It reports where the damaged record begins and stays there; asking again gives the same
//! answer. Half-read records live in the call, not in the reader, so nothing is left over after an error.

use bytes::Bytes;
use shamba_table::BirthId;

use super::codec::Decoded;
use super::frame::{FRAME_HEADER_BYTES, FrameHeader, FrameKind, birth_tag, payload_checksum};
use super::header::HEADER_BYTES;
use super::window::Window;
use crate::error::Result;

/// What a record is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RecordKind {
    /// A batch or an edit.
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
    /// What its frames promise.
    pub(crate) promise: u64,
    /// Header checksum of its last frame.
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

struct Frame {
    header: FrameHeader,
    checksum: u32,
    end: u64,
}

/// Reads one file's records in order.
#[derive(Debug)]
pub(crate) struct FrameReader {
    window: Window,
    number: u64,
    birth: BirthId,
    tag: u32,
    offset: u64,
    limit: u64,
}

impl FrameReader {
    /// Reads from behind the file header.
    pub(crate) fn new(window: Window, number: u64, birth: BirthId) -> Self {
        let limit = window.file_bytes();
        Self { window, number, birth, tag: birth_tag(birth, number), offset: HEADER_BYTES, limit }
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
        let mut promise = 0;
        let mut frames = 0u32;
        loop {
            let frame = match self.frame(at, &mut payload)? {
                Ok(frame) => frame,
                Err(detail) => return Ok(Step::Damage { offset: at, detail }),
            };
            promise = promise.max(frame.header.promise);
            frames = frames.saturating_add(1);
            let inside = at > start;
            let kind = match (frame.header.kind, inside) {
                (FrameKind::Full, false) | (FrameKind::Last, true) => RecordKind::Data,
                (FrameKind::Head, false) => RecordKind::Head,
                (FrameKind::End, false) => RecordKind::End,
                (FrameKind::Promise, false) => RecordKind::Promise,
                (FrameKind::First, false) | (FrameKind::Middle, true) => {
                    at = frame.end;
                    continue;
                }
                (kind, true) => {
                    let detail = format!("a frame of kind {} inside a record", kind.name());
                    return Ok(Step::Damage { offset: at, detail });
                }
                (kind, false) => {
                    let detail = format!("a frame of kind {} outside a record", kind.name());
                    return Ok(Step::Damage { offset: at, detail });
                }
            };
            self.offset = frame.end;
            return Ok(Step::Record(Record {
                kind,
                offset: start,
                end: frame.end,
                payload: Bytes::from(payload),
                promise,
                checksum: frame.checksum,
                frames,
            }));
        }
    }

    /// Checks the frame at `at` and adds its payload to `record`.
    fn frame(&mut self, at: u64, record: &mut Vec<u8>) -> Result<Decoded<Frame>> {
        let left = usize::try_from(self.limit.saturating_sub(at)).unwrap_or(usize::MAX);
        let bytes = self.window.at(at, left.min(FRAME_HEADER_BYTES))?;
        let (header, checksum) = match FrameHeader::decode(bytes, self.number, at) {
            Ok(decoded) => decoded,
            Err(detail) => return Ok(Err(detail)),
        };
        if header.birth_tag != self.tag {
            return Ok(Err("the frame was written in another life of this file".to_owned()));
        }
        let payload_bytes = usize::from(header.payload_bytes);
        if left - FRAME_HEADER_BYTES < payload_bytes {
            let left = left - FRAME_HEADER_BYTES;
            return Ok(Err(format!("{left} bytes left of a payload of {payload_bytes}")));
        }
        let payload_at = at + FRAME_HEADER_BYTES as u64;
        let payload = self.window.at(payload_at, payload_bytes)?;
        let computed = payload_checksum(self.birth, at, payload);
        if header.payload_checksum != computed {
            let stored = header.payload_checksum;
            return Ok(Err(format!("payload checksum {stored:08x}, computed {computed:08x}")));
        }
        record.extend_from_slice(payload);
        Ok(Ok(Frame { header, checksum, end: payload_at + payload_bytes as u64 }))
    }
}
