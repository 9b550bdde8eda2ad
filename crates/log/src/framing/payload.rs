//! Reads the payload of a multi-frame record front to back, one frame at a time.
//!
//! Such a record may be too long to hold in memory. All its frames but the last have the maximum
//! length, so the frame of any payload position is computed, not searched. Every frame is verified
//! when it is read.
//!
//! Not here: the meaning of the payload ([`crate::wal::stream`]); whether the record is complete
//! ([`super::reader`]).

use super::codec::Decoded;
use super::frame::{FRAME_BYTES_MAX, FileIdentity, PAYLOAD_BYTES_MAX};
use super::header::HEADER_BYTES;
use super::reader::read_frame;
use super::window::FileWindow;
use crate::{Error, Result};

/// The reason why a payload cannot be read further.
#[derive(Debug)]
pub enum Stop {
    /// A read failed.
    Failed(Error),
    /// The bytes are malformed; the phrase describes how, for an error message.
    Malformed(String),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<String> for Stop {
    fn from(detail: String) -> Self {
        Self::Malformed(detail)
    }
}

/// A cursor that reads from the front of a record's payload.
#[derive(Debug)]
pub struct PayloadReader<'w> {
    window: &'w mut FileWindow,
    file: FileIdentity,
    /// Offset in the file of the record's first frame.
    record: u64,
    /// Offset in the file of the end of the record's last frame.
    end: u64,
    bytes: u64,
    at: u64,
    /// The payload of the frame that contains `at`, once it has been read.
    frame: Vec<u8>,
    frame_number: Option<u64>,
}

impl<'w> PayloadReader<'w> {
    /// Creates a reader of the record whose frames lie from `record` to `end` and hold `bytes`
    /// payload bytes.
    pub(super) fn new(
        window: &'w mut FileWindow,
        file: FileIdentity,
        record: u64,
        end: u64,
        bytes: u64,
    ) -> Self {
        assert!(record >= HEADER_BYTES, "a record at offset {record}, inside the file header");
        assert!(
            record < end && bytes < end - record,
            "{bytes} payload bytes in frames from {record} to {end}"
        );
        Self { window, file, record, end, bytes, at: 0, frame: Vec::new(), frame_number: None }
    }

    /// Offset in the payload of the next byte.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Number of bytes not consumed yet.
    pub fn left(&self) -> u64 {
        debug_assert!(self.at <= self.bytes, "at {} of a payload of {} bytes", self.at, self.bytes);
        self.bytes - self.at
    }

    /// Skips the next `bytes` bytes without reading them.
    pub fn skip(&mut self, bytes: u64) -> std::result::Result<(), Stop> {
        self.check_left(bytes)?;
        self.at += bytes;
        Ok(())
    }

    /// Appends the next `bytes` bytes to `out`.
    pub fn take(&mut self, bytes: u64, out: &mut Vec<u8>) -> std::result::Result<(), Stop> {
        self.check_left(bytes)?;
        let mut wanted = bytes;
        while wanted > 0 {
            let held = self.held()?;
            let taken = held.get(..usize::try_from(wanted).unwrap_or(usize::MAX)).unwrap_or(held);
            let taken_bytes = taken.len() as u64;
            out.extend_from_slice(taken);
            self.at += taken_bytes;
            wanted -= taken_bytes;
        }
        Ok(())
    }

    /// The next byte.
    pub fn u8(&mut self) -> std::result::Result<u8, Stop> {
        self.check_left(1)?;
        let byte = self.held()?.first().copied();
        self.at += 1;
        byte.ok_or_else(|| Stop::Malformed("an empty frame".to_owned()))
    }

    fn check_left(&self, bytes: u64) -> Decoded<()> {
        match bytes <= self.left() {
            true => Ok(()),
            false => Err(format!("{bytes} bytes wanted, {} left", self.left())),
        }
    }

    /// The bytes from `at` to the end of its frame. They are not empty, because `at` lies before
    /// the end of the payload.
    fn held(&mut self) -> std::result::Result<&[u8], Stop> {
        debug_assert!(self.at < self.bytes, "a read at {} of a payload of {} bytes", self.at, self.bytes);
        let (number, skip) = (self.at / PAYLOAD_BYTES_MAX as u64, self.at % PAYLOAD_BYTES_MAX as u64);
        if self.frame_number != Some(number) {
            self.frame_number = None;
            let offset = self.record + number * FRAME_BYTES_MAX as u64;
            debug_assert!(
                offset < self.end,
                "frame {number} at {offset}, but the record ends at {}",
                self.end
            );
            let (frame, _) = read_frame(self.window, self.file, offset, self.end)??;
            self.frame.clear();
            self.frame.extend_from_slice(frame.payload);
            self.frame_number = Some(number);
        }
        let held = self.frame.get(skip as usize..).unwrap_or_default();
        match held.is_empty() {
            true => Err(Stop::Malformed("a frame that is not full inside a record".to_owned())),
            false => Ok(held),
        }
    }
}

/// Separates the two kinds of [`Stop`]: a failed read stays an error, malformed bytes become part
/// of the result.
pub fn decoded<T>(read: std::result::Result<T, Stop>) -> Result<Decoded<T>> {
    match read {
        Ok(value) => Ok(Ok(value)),
        Err(Stop::Malformed(detail)) => Ok(Err(detail)),
        Err(Stop::Failed(error)) => Err(error),
    }
}
