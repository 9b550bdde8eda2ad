//! Values that stay in a log: their place, and reading them back.
//!
//! A value that would fill much of a write buffer is not copied into it. Its memtable entry has the
//! kind [`shamba_key::EntryKind::ValueRef`] and holds the value's place in the log
//! ([`ValuePlace`]). Only values of multi-frame records stay in the log. All frames of such a
//! record but the last have the maximum length, so the frame of any payload position is computed.
//! The checksums of the frames, salted with birth id and offset, are verified on every read.
//!
//! A [`ValueLog`] is a file that memtables refer to: a log or, in a database without a log, a
//! side file. The file is not removed while a reference to its [`ValueLog`] exists.
//!
//! Not here: which values stay in the log (the commit path and recovery); the side files and the
//! removal of files (package `shamba`, `writer/log/side.rs` and `catalog/obsolete.rs`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use shamba_env::sync::Mutex;
use shamba_env::{Env, RandomFile, lock, read_exact_at};
use shamba_table::{BirthId, Error, Reads, Result};

use crate::framing::codec::{Decoded, Decoder};
use crate::framing::frame::{
    FRAME_BYTES_MAX, FRAME_HEADER_BYTES, FileIdentity, Frame, FrameHeader, FrameKind, PAYLOAD_BYTES_MAX,
};
use crate::framing::header::HEADER_BYTES;
use shamba_key::LogNo;

/// Name of the frame structure in error messages.
const STRUCTURE: &str = "log frame";

/// Place of a value in a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ValuePlace {
    /// Number of the log, or of the side file.
    pub log: LogNo,
    /// Offset in the file of the first frame of its record.
    pub record: u64,
    /// Offset in the record's payload of the value.
    pub at: u64,
    /// Length of the value.
    pub bytes: u32,
}

impl ValuePlace {
    /// Encodes the place as a memtable stores it instead of the value.
    pub fn encode(self) -> [u8; 28] {
        debug_assert!(self.record >= HEADER_BYTES, "a record inside the file header: {self:?}");
        let mut bytes = [0; 28];
        bytes[..8].copy_from_slice(&self.log.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.record.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.at.to_le_bytes());
        bytes[24..].copy_from_slice(&self.bytes.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Decoded<Self> {
        let mut decoder = Decoder::new(bytes);
        let (log, record, at) = (LogNo(decoder.u64()?), decoder.u64()?, decoder.u64()?);
        let place = Self { log, record, at, bytes: decoder.u32()? };
        decoder.finish()?;
        Ok(place)
    }
}

/// A file that memtables refer to.
pub struct ValueLog {
    env: Env,
    path: PathBuf,
    identity: FileIdentity,
    /// Opened by the first read.
    file: ArcSwapOption<OpenFile>,
}

struct OpenFile(Arc<dyn RandomFile>);

impl ValueLog {
    /// Creates a handle of the file `path`, which is opened at the first read.
    pub fn new(env: &Env, path: &Path, number: LogNo, birth: BirthId) -> Arc<Self> {
        let identity = FileIdentity { number: number.0, birth };
        Arc::new(Self { env: env.clone(), path: path.to_path_buf(), identity, file: ArcSwapOption::empty() })
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Number of the file.
    pub fn number(&self) -> LogNo {
        LogNo(self.identity.number)
    }

    /// Passes the value at `place` to `sink`, one piece per frame; holds one frame in memory.
    /// `cost` counts the reads.
    fn read(
        &self,
        place: ValuePlace,
        cost: &mut Reads,
        sink: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        debug_assert_eq!(place.log, self.number(), "the place is in another log");
        let file = self.open()?;
        let mut at = place.at;
        let mut left = u64::from(place.bytes);
        let mut frame = Vec::new();
        while left > 0 {
            debug_assert_eq!(at + left, place.at + u64::from(place.bytes), "at {at} with {left} bytes left");
            let (number, skip) = (at / PAYLOAD_BYTES_MAX as u64, at % PAYLOAD_BYTES_MAX as u64);
            let offset = place.record + number * FRAME_BYTES_MAX as u64;
            let is_full = left > PAYLOAD_BYTES_MAX as u64 - skip;
            let payload = self.frame(file.as_ref(), offset, is_full, cost, &mut frame)?;
            let held = payload.get(skip as usize..).unwrap_or_default();
            let piece = held.get(..usize::try_from(left).unwrap_or(usize::MAX)).unwrap_or(held);
            if piece.is_empty() {
                return Err(self.damaged(offset, format!("{left} bytes of a value are missing")));
            }
            sink(piece)?;
            at += piece.len() as u64;
            left -= piece.len() as u64;
        }
        Ok(())
    }

    /// The payload of the frame at `offset`, read into `buffer`.
    fn frame<'b>(
        &self,
        file: &dyn RandomFile,
        offset: u64,
        is_full: bool,
        cost: &mut Reads,
        buffer: &'b mut Vec<u8>,
    ) -> Result<&'b [u8]> {
        let damaged = |detail| self.damaged(offset, detail);
        buffer.resize(if is_full { FRAME_BYTES_MAX } else { FRAME_HEADER_BYTES }, 0);
        cost.note(offset, buffer.len() as u64);
        self.fill(file, offset, buffer)?;
        let header = FrameHeader::decode(buffer).map_err(damaged)?;
        if !is_full {
            // The length of the last frame is not known in advance: more data may follow the value
            // in it.
            buffer.resize(header.frame_bytes(), 0);
            let payload = buffer.get_mut(FRAME_HEADER_BYTES..).unwrap_or_default();
            cost.note(offset + FRAME_HEADER_BYTES as u64, payload.len() as u64);
            self.fill(file, offset + FRAME_HEADER_BYTES as u64, payload)?;
        }
        let frame = Frame::decode(self.identity, header, offset, buffer).map_err(damaged)?;
        match frame.kind {
            FrameKind::Full | FrameKind::First | FrameKind::Middle | FrameKind::Last => Ok(frame.payload),
            kind => Err(damaged(format!("a frame of kind {} in a value", kind.name()))),
        }
    }

    fn fill(&self, file: &dyn RandomFile, offset: u64, buffer: &mut [u8]) -> Result<()> {
        read_exact_at(file, offset, buffer).map_err(|source| match source.kind() {
            std::io::ErrorKind::UnexpectedEof => self.damaged(offset, "the file ends in a value".to_owned()),
            _ => Error::io(&self.path, format!("read a value at offset {offset} of"), source),
        })
    }

    fn open(&self) -> Result<Arc<dyn RandomFile>> {
        if let Some(open) = &*self.file.load() {
            return Ok(Arc::clone(&open.0));
        }
        let opened = self.env.vfs.open_read(&self.path);
        let file = opened.map_err(|source| Error::Io {
            file: self.path.clone(),
            op: "open".into(),
            source: Arc::new(source),
        })?;
        self.file.store(Some(Arc::new(OpenFile(Arc::clone(&file)))));
        Ok(file)
    }

    fn damaged(&self, offset: u64, detail: String) -> Error {
        Error::Corruption { file: self.path.clone(), offset, structure: STRUCTURE, detail }
    }
}

impl std::fmt::Debug for ValueLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ValueLog").field("path", &self.path).finish_non_exhaustive()
    }
}

/// The files that one memtable refers to: almost always none, otherwise one or two.
#[derive(Debug, Default)]
pub struct ValueLogs(Mutex<Vec<Arc<ValueLog>>>);

impl ValueLogs {
    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        lock(&self.0).is_empty()
    }

    /// Adds `log`, which keeps its file from being removed. Must be called before any entry that
    /// refers to it becomes visible.
    pub fn add(&self, log: &Arc<ValueLog>) {
        let mut logs = lock(&self.0);
        debug_assert!(
            logs.iter().all(|other| other.number() != log.number() || other.path() == log.path()),
            "two files have the number {}: {logs:?}, {log:?}",
            log.number()
        );
        if !logs.iter().any(|other| other.number() == log.number()) {
            logs.push(Arc::clone(log));
        }
    }

    /// Length of the value at the encoded place `place`.
    ///
    /// # Errors
    /// `Invalid` if `place` is malformed, or its log is not in the list.
    pub fn value_bytes(&self, place: &[u8]) -> Result<u64> {
        let (_, place) = self.find(place)?;
        Ok(u64::from(place.bytes))
    }

    /// Passes the value at the encoded place `place` to `sink`, piece by piece.
    ///
    /// # Errors
    /// A read failed, or `sink` returned an error.
    pub fn read(&self, place: &[u8], sink: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let (log, place) = self.find(place)?;
        log.read(place, &mut Reads::default(), sink)
    }

    /// Returns the whole value at the encoded place `place`; `cost` counts the reads.
    ///
    /// # Errors
    /// A read failed.
    pub fn read_whole(&self, place: &[u8], cost: &mut Reads) -> Result<Vec<u8>> {
        let (log, place) = self.find(place)?;
        let mut value = Vec::with_capacity(place.bytes as usize);
        log.read(place, cost, &mut |piece| {
            value.extend_from_slice(piece);
            Ok(())
        })?;
        Ok(value)
    }

    fn find(&self, place: &[u8]) -> Result<(Arc<ValueLog>, ValuePlace)> {
        let place = ValuePlace::decode(place).map_err(Error::Invalid)?;
        let log = lock(&self.0).iter().find(|log| log.number() == place.log).cloned();
        match log {
            Some(log) => Ok((log, place)),
            None => Err(Error::Invalid(format!(
                "a memtable refers to log {}, which it does not keep open",
                place.log
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_a_memtable_are_counted_once_each() {
        let env = shamba_testkit::memory_env(1);
        let logs = ValueLogs::default();
        assert!(logs.is_empty());
        for number in [3, 4, 3] {
            let path = PathBuf::from(format!("/00000{number}.log"));
            logs.add(&ValueLog::new(&env, &path, LogNo(number), BirthId(9)));
            assert!(!logs.is_empty());
        }
        let text = format!("{logs:?}");
        assert_eq!(text.matches("000003.log").count(), 1, "{text}");
        assert_eq!(text.matches("000004.log").count(), 1, "{text}");
    }
}
