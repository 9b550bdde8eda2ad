//! Writes frames: records go into a buffer, then to the operating system, then to the disk.
//!
//! Three watermarks, `synced <= flushed <= offset`, all lie on record boundaries. A promise at the
//! end of the file does not advance them, because it need not be durable.
//!
//! A failed append truncates the file to the flushed watermark and *seals* the writer: the buffered
//! records are lost, the error is returned, and nothing is ever appended again. Records flushed
//! earlier can still be synced. A failed sync also prevents any further sync: after it the state of
//! the disk is unknown, and a second sync that succeeds would not prove anything.
//!
//! Records that may be lost together can share a frame ([`FrameWriter::join`]): the frame stays
//! open in the buffer until it is full or flushed. A multi-frame record is written out while it is
//! framed, so the buffer never holds all of it.
//!
//! Not here: the sync of the directory that makes the file's name durable. The caller does it,
//! before any promise is relied upon.

use std::path::{Path, PathBuf};

use shamba_env::{Env, WriteFile, append_all};
use shamba_table::BirthId;

use super::frame::{FRAME_HEADER_BYTES, FileIdentity, FrameKind, PAYLOAD_BYTES_MAX};
use super::header::{FileHeader, FileKind, HEADER_BYTES};
use crate::{Error, Result};

/// Capacity that the buffer keeps after a flush: memory above it, grown for one large batch, is
/// freed.
const BUFFER_KEPT_BYTES: usize = 256 << 10;
/// Minimum size of the pieces in which a multi-frame record is handed to the operating system.
const PIECE_BYTES: usize = 128 << 10;
/// The unit in which a disk loses writes.
const SECTOR_BYTES: u64 = 512;

/// The reason why nothing more may be appended.
#[derive(Clone, Debug)]
struct Seal {
    cause: Error,
    /// The file was truncated to its length at the last flush, and the truncation succeeded.
    cut: bool,
    /// A sync failed: even flushed records can no longer be made durable.
    sync_failed: bool,
}

/// The only writer of a framed file.
#[derive(Debug)]
pub struct FrameWriter {
    file: Box<dyn WriteFile>,
    path: PathBuf,
    identity: FileIdentity,
    buffer: Vec<u8>,
    /// Offset in the buffer of the open frame, which accepts more data.
    open_at: Option<usize>,
    /// Bytes in the file that a failed append does not remove, promises included.
    file_bytes: u64,
    /// Bytes in the file after `file_bytes`: the start of a record that is not complete yet.
    begun_bytes: u64,
    /// The sector in which the last promise begins; `None` before the first.
    promised_in: Option<u64>,
    appended: Watermark,
    flushed: Watermark,
    synced: u64,
    seal: Option<Seal>,
}

/// The end of the records, not counting a promise at the end of the file.
#[derive(Clone, Copy, Debug, Default)]
struct Watermark {
    offset: u64,
    /// Checksum of the last frame before `offset`; meaningless while that frame is open.
    checksum: u32,
}

impl FrameWriter {
    /// Creates the file. Its header stays in the buffer until the first flush.
    ///
    /// # Errors
    /// I/O errors of the file system; `AlreadyExists` if the file exists.
    pub fn create(env: &Env, path: &Path, kind: FileKind, number: u64) -> Result<Self> {
        let birth = BirthId(env.rng.next_u64());
        let created = match kind {
            FileKind::Wal => env.vfs.create_log(path),
            _ => env.vfs.create(path),
        };
        let file = created.map_err(|error| Error::io(path, "create", error))?;
        Ok(Self {
            file,
            path: path.to_path_buf(),
            identity: FileIdentity { number, birth },
            buffer: FileHeader::new(birth, number).encode(kind),
            open_at: None,
            file_bytes: 0,
            begun_bytes: 0,
            promised_in: None,
            appended: Watermark { offset: HEADER_BYTES, checksum: 0 },
            flushed: Watermark::default(),
            synced: 0,
            seal: None,
        })
    }

    /// Buffers up to `room` bytes, which `write` appends to the buffer. They extend the open record
    /// if it has space, and later calls can extend it further. Otherwise a new record begins, whose
    /// payload starts with `begin`. `begin` and `room` bytes together fit one frame.
    ///
    /// # Errors
    /// The cause of the seal, if the writer is sealed.
    pub fn join(&mut self, begin: &[u8], room: usize, write: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        self.check_open()?;
        assert!(
            begin.len() + room <= PAYLOAD_BYTES_MAX,
            "{} + {room} bytes do not fit one frame",
            begin.len()
        );
        let has_room =
            |open_at: usize| self.buffer.len() - open_at + room <= FRAME_HEADER_BYTES + PAYLOAD_BYTES_MAX;
        if !self.open_at.is_some_and(has_room) {
            self.close_frame();
            self.promise_again();
            self.open_at = Some(self.buffer.len());
            self.buffer.extend_from_slice(&[0; FRAME_HEADER_BYTES]);
            self.buffer.extend_from_slice(begin);
        }
        let before = self.buffer.len();
        write(&mut self.buffer);
        // More bytes would overrun the frame; fewer would mean that `write` removed buffered bytes
        // of an earlier call.
        let written = self.buffer.len().checked_sub(before);
        assert!(
            written.is_some_and(|written| written <= room),
            "{written:?} bytes were written into a room of {room}"
        );
        self.appended.offset = self.end();
        self.check_invariants();
        Ok(())
    }

    /// Closes the record that [`Self::join`] would extend; the next call begins a new one.
    pub fn close_frame(&mut self) {
        if let Some(open_at) = self.open_at.take() {
            self.seal_frame(FrameKind::Full, open_at);
        }
    }

    /// Buffers a separate record whose payload is the concatenation of `parts`, split into frames
    /// as needed. Returns the offset of its first frame.
    ///
    /// # Errors
    /// The cause of the seal, if the writer is sealed. For a multi-frame record also I/O errors;
    /// then the writer is sealed and the file contains nothing of the record.
    pub fn append_record(&mut self, parts: &[&[u8]]) -> Result<u64> {
        self.check_open()?;
        self.close_frame();
        let payload_bytes = parts.iter().map(|part| part.len()).sum::<usize>();
        let mut left = payload_bytes;
        let mut parts = parts.iter().copied();
        let mut rest: &[u8] = &[];
        if left <= PAYLOAD_BYTES_MAX {
            self.promise_again();
            let offset = self.end();
            self.push_frame(FrameKind::Full, left, &mut rest, &mut parts);
            self.check_invariants();
            return Ok(offset);
        }
        // Earlier records are complete: flush them first, so that a failure below does not remove
        // them.
        self.flush()?;
        self.promise_again();
        let offset = self.end();
        let mut kind = FrameKind::First;
        while left > PAYLOAD_BYTES_MAX {
            self.push_frame(kind, PAYLOAD_BYTES_MAX, &mut rest, &mut parts);
            left -= PAYLOAD_BYTES_MAX;
            kind = FrameKind::Middle;
            if self.buffer.len() >= PIECE_BYTES {
                self.write_out()?;
            }
        }
        self.push_frame(FrameKind::Last, left, &mut rest, &mut parts);
        // Readers compute the place of each frame from this.
        let frames = payload_bytes.div_ceil(PAYLOAD_BYTES_MAX);
        debug_assert_eq!(
            self.end() - offset,
            (payload_bytes + frames * FRAME_HEADER_BYTES) as u64,
            "a frame inside the record of {payload_bytes} bytes at {offset} is not full"
        );
        self.check_invariants();
        Ok(offset)
    }

    /// Buffers a single-frame record of kind `kind`.
    ///
    /// # Errors
    /// The cause of the seal, if the writer is sealed.
    pub fn append_special(&mut self, kind: FrameKind, payload: &[u8]) -> Result<()> {
        self.check_open()?;
        assert!(
            matches!(kind, FrameKind::Full | FrameKind::Head | FrameKind::End),
            "a frame of kind {} is not a record by itself",
            kind.name()
        );
        self.close_frame();
        self.push_frame(kind, payload.len(), &mut &payload[..], &mut std::iter::empty());
        self.check_invariants();
        Ok(())
    }

    /// Buffers a promise of the synced offset.
    pub fn append_promise(&mut self) -> Result<()> {
        self.check_open()?;
        self.close_frame();
        self.push_promise();
        self.check_invariants();
        Ok(())
    }

    /// Repeats the last promise if it lies in another sector than the next record. So the loss of a
    /// sector does not also destroy the promise that covers it.
    fn promise_again(&mut self) {
        if self.promised_in.is_some_and(|sector| sector != self.end() / SECTOR_BYTES) {
            self.push_promise();
        }
    }

    fn push_promise(&mut self) {
        let offset = self.end();
        assert!(self.open_at.is_none(), "a promise at {offset} would lie inside a record");
        assert!(self.synced <= offset, "a promise of {} at {offset} would be refused when read", self.synced);
        self.buffer.extend_from_slice(&self.identity.promise(self.synced, offset));
        self.promised_in = Some(offset / SECTOR_BYTES);
    }

    /// Appends one frame with the next `bytes` payload bytes, from `rest` and then from
    /// `parts`. They hold at least that many.
    fn push_frame<'a>(
        &mut self,
        kind: FrameKind,
        bytes: usize,
        rest: &mut &'a [u8],
        parts: &mut impl Iterator<Item = &'a [u8]>,
    ) {
        let frame_at = self.buffer.len();
        self.buffer.extend_from_slice(&[0; FRAME_HEADER_BYTES]);
        let mut wanted = bytes;
        while wanted > 0 {
            if rest.is_empty() {
                let Some(part) = parts.next() else { break };
                *rest = part;
            }
            let (taken, left) = rest.split_at(wanted.min(rest.len()));
            self.buffer.extend_from_slice(taken);
            wanted -= taken.len();
            *rest = left;
        }
        assert_eq!(wanted, 0, "the parts hold fewer than {bytes} bytes, which the frame states");
        self.seal_frame(kind, frame_at);
    }

    fn seal_frame(&mut self, kind: FrameKind, frame_at: usize) {
        let offset = self.file_bytes + self.begun_bytes + frame_at as u64;
        debug_assert!(offset >= HEADER_BYTES, "a frame at {offset}, inside the file header");
        let checksum = self.identity.seal(kind, offset, &mut self.buffer[frame_at..]);
        self.appended = Watermark { offset: self.end(), checksum };
    }

    /// Offset at which the buffered bytes will end in the file.
    fn end(&self) -> u64 {
        self.file_bytes + self.begun_bytes + self.buffer.len() as u64
    }

    /// Writes the buffered bytes to the file.
    fn write_out(&mut self) -> Result<()> {
        assert!(self.open_at.is_none(), "the frame at {:?} of the buffer has no header yet", self.open_at);
        if let Err(error) = append_all(self.file.as_mut(), &self.buffer) {
            let cause = Error::io(&self.path, "append to", error);
            self.forget_buffered();
            let cut = self.file.truncate(self.file_bytes).is_ok();
            self.seal = Some(Seal { cause: cause.clone(), cut, sync_failed: false });
            return Err(cause);
        }
        self.begun_bytes += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    fn forget_buffered(&mut self) {
        self.buffer = Vec::new();
        self.open_at = None;
        self.begun_bytes = 0;
        self.appended = self.flushed;
    }

    /// Hands all buffered bytes to the operating system.
    ///
    /// # Errors
    /// I/O errors of the file system; then the writer is sealed and the buffered records are lost.
    pub fn flush(&mut self) -> Result<()> {
        self.check_open()?;
        self.close_frame();
        if !self.buffer.is_empty() {
            self.write_out()?;
            self.buffer.shrink_to(BUFFER_KEPT_BYTES);
        }
        self.file_bytes += self.begun_bytes;
        self.begun_bytes = 0;
        self.flushed = self.appended;
        debug_assert_eq!(self.buffered(), 0, "a flush left bytes behind");
        self.check_invariants();
        Ok(())
    }

    /// Flushes, then makes everything flushed durable. After a failed append the flushed records
    /// can still be synced; after a failed sync every call returns the same error.
    ///
    /// # Errors
    /// I/O errors of the file system; then the writer is sealed.
    pub fn sync(&mut self) -> Result<()> {
        self.check_syncable()?;
        if self.seal.is_none() {
            self.flush()?;
        }
        if self.synced == self.flushed.offset {
            return Ok(());
        }
        match self.file.sync_data() {
            Ok(()) => {
                self.synced = self.flushed.offset;
                self.check_invariants();
                Ok(())
            }
            Err(error) => {
                let cause = Error::io(&self.path, "sync", error);
                self.seal_for_good(cause.clone());
                Err(cause)
            }
        }
    }

    /// Seals the writer permanently: no append and no sync succeeds any more.
    pub fn seal_for_good(&mut self, cause: Error) {
        self.forget_buffered();
        self.seal = Some(Seal { cause, cut: false, sync_failed: true });
        self.check_invariants();
    }

    /// Succeeds if no sync has failed.
    ///
    /// # Errors
    /// The error of the failed sync, after which nothing may be retried.
    pub fn check_syncable(&self) -> Result<()> {
        match &self.seal {
            Some(seal) if seal.sync_failed => Err(seal.cause.clone()),
            _ => Ok(()),
        }
    }

    /// The relations between the fields that hold after every call.
    fn check_invariants(&self) {
        let (appended, flushed) = (self.appended.offset, self.flushed.offset);
        debug_assert!(self.synced <= flushed, "synced to {}, but flushed to {flushed}", self.synced);
        debug_assert!(flushed <= appended, "flushed to {flushed}, but appended to {appended}");
        debug_assert!(appended <= self.end(), "appended to {appended}, but the bytes end at {}", self.end());
        debug_assert!(
            flushed <= self.file_bytes,
            "flushed to {flushed}, but the file has {} bytes",
            self.file_bytes
        );
        debug_assert!(
            self.open_at.is_none_or(|open_at| open_at + FRAME_HEADER_BYTES <= self.buffer.len()),
            "the open frame at {:?} lies beyond the {} bytes in the buffer",
            self.open_at,
            self.buffer.len()
        );
        debug_assert!(
            self.seal.is_none() || (self.open_at.is_none() && self.buffered() == 0),
            "a sealed writer still buffers {} bytes",
            self.buffered()
        );
    }

    fn check_open(&self) -> Result<()> {
        self.seal.as_ref().map_or(Ok(()), |seal| Err(seal.cause.clone()))
    }

    /// The error that sealed the writer, if it is sealed.
    pub fn failure(&self) -> Option<&Error> {
        self.seal.as_ref().map(|seal| &seal.cause)
    }

    /// Whether a new file may continue after this one: no sync failed, and after a failed append
    /// the file was truncated to its last complete record.
    pub fn may_be_followed(&self) -> bool {
        self.seal.as_ref().is_none_or(|seal| seal.cut && !seal.sync_failed)
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Birth id of the file.
    pub fn birth(&self) -> BirthId {
        self.identity.birth
    }

    /// Offset of the end of the last record.
    pub fn offset(&self) -> u64 {
        self.appended.offset
    }

    /// Offset of the end of the last record that was handed to the operating system.
    pub fn flushed(&self) -> u64 {
        self.flushed.offset
    }

    /// Offset of the end of the last record that is known to be durable.
    pub fn synced(&self) -> u64 {
        self.synced
    }

    /// Number of bytes that a failure would lose.
    pub fn buffered(&self) -> u64 {
        self.begun_bytes + self.buffer.len() as u64
    }

    /// Allocated size of the buffer.
    pub fn memory_bytes(&self) -> usize {
        self.buffer.capacity()
    }

    /// Checksum of the last frame of the last record.
    pub fn last_checksum(&self) -> u32 {
        self.appended.checksum
    }
}

const _: () = assert!(HEADER_BYTES > 0, "so that a promise of 0 means nothing");
