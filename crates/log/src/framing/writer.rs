//! Writing frames: records go into a buffer, to the operating system, to the disk.
//!
//! Three watermarks, `synced <= flushed <= offset`, all on record boundaries. They count records that say
//! something: a promise behind the last of these need not be durable, so it leaves the watermarks where they
//! are. A failed append cuts the file back to what was flushed and *seals* the writer: what was buffered is
//! lost and reported, nothing is ever appended again. What was flushed before may still be synced. A failed
//! sync seals for good: after it nobody knows what is on the disk, and a second sync that succeeds would not
//! tell.
//!
//! What may share a fate may share a frame ([`FrameWriter::join`]): the frame stays open in the buffer until
//! it is full or flushed. A record of several frames is written out while it is framed, so it never needs a
//! buffer of its length.
//!
//! Not here: making the file's name durable, which is the caller's (and must come before a promise is
//! relied upon).

use std::path::{Path, PathBuf};

use shamba_env::{Env, WriteFile, append_all};
use shamba_table::BirthId;

use super::frame::{FRAME_HEADER_BYTES, FileIdentity, FrameKind, PAYLOAD_BYTES_MAX};
use super::header::{FileHeader, FileKind, HEADER_BYTES};
use crate::{Error, Result};
use shamba_key::planted::{Defect, is_planted};

/// A buffer that grew past this for one large batch gives the memory back.
const BUFFER_KEPT_BYTES: usize = 256 << 10;
/// A record of several frames goes to the operating system in pieces of at least this.
const PIECE_BYTES: usize = 128 << 10;
/// The unit in which a disk loses what was written.
const SECTOR_BYTES: u64 = 512;

/// Why nothing more may be appended.
#[derive(Clone, Debug)]
struct Seal {
    cause: Error,
    /// The file ends where the last flush left it, as far as the operating system said.
    cut: bool,
    /// A sync failed: not even what was flushed can be made durable any more.
    sync_failed: bool,
}

/// The one writer of a framed file.
#[derive(Debug)]
pub struct FrameWriter {
    file: Box<dyn WriteFile>,
    path: PathBuf,
    identity: FileIdentity,
    buffer: Vec<u8>,
    /// Where in the buffer the frame begins that still takes more.
    open_at: Option<usize>,
    /// Bytes in the file that a failure does not take back, promises included.
    file_bytes: u64,
    /// Bytes behind them: the beginning of a record whose end is not written yet.
    begun_bytes: u64,
    /// The sector in which the last promise begins; `None` before the first.
    promised_in: Option<u64>,
    appended: Watermark,
    flushed: Watermark,
    synced: u64,
    seal: Option<Seal>,
}

/// Where the records that say something end.
#[derive(Clone, Copy, Debug, Default)]
struct Watermark {
    offset: u64,
    /// Checksum of the last frame before it; of no meaning while that is open.
    checksum: u32,
}

impl FrameWriter {
    /// Creates the file; its header waits in the buffer.
    ///
    /// # Errors
    /// What the file system says; `AlreadyExists` if the name is taken.
    pub fn create(env: &Env, path: &Path, kind: FileKind, number: u64) -> Result<Self> {
        let birth = BirthId(env.rng.next_u64());
        let file = env.vfs.create(path).map_err(|error| Error::io(path, "create", error))?;
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

    /// Buffers up to `room` bytes, which `write` appends to the buffer, as part of a record that what comes
    /// next may join, too; `begin` is what such a record begins with. The two fit one frame.
    ///
    /// # Errors
    /// The cause of the seal, if the writer is sealed.
    pub fn join(&mut self, begin: &[u8], room: usize, write: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        self.check_open()?;
        debug_assert!(begin.len() + room <= PAYLOAD_BYTES_MAX);
        let has_room =
            |open_at: usize| self.buffer.len() - open_at + room <= FRAME_HEADER_BYTES + PAYLOAD_BYTES_MAX;
        if !self.open_at.is_some_and(has_room) {
            self.close_frame();
            self.promise_again();
            self.open_at = Some(self.buffer.len());
            self.buffer.extend_from_slice(&[0; FRAME_HEADER_BYTES]);
            self.buffer.extend_from_slice(begin);
        }
        write(&mut self.buffer);
        self.appended.offset = self.end();
        Ok(())
    }

    /// Ends the record that [`Self::join`] would add to: the next one begins anew.
    pub fn close_frame(&mut self) {
        if let Some(open_at) = self.open_at.take() {
            self.seal_frame(FrameKind::Full, open_at);
        }
    }

    /// Buffers a record of its own, made of parts, one after the other; splits it into frames as needed. Gives
    /// the offset at which its first frame begins.
    ///
    /// # Errors
    /// The cause of the seal, if the writer is sealed. Of a record of several frames, what the file system
    /// says; from then on the writer is sealed and nothing of the record is in the file.
    pub fn append_record(&mut self, parts: &[&[u8]]) -> Result<u64> {
        self.check_open()?;
        self.close_frame();
        let mut left = parts.iter().map(|part| part.len()).sum::<usize>();
        let mut parts = parts.iter().copied();
        let mut rest: &[u8] = &[];
        if left <= PAYLOAD_BYTES_MAX {
            self.promise_again();
            let offset = self.end();
            self.push_frame(FrameKind::Full, left, &mut rest, &mut parts);
            return Ok(offset);
        }
        // What came before is whole: a failure must not take it along.
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
        Ok(offset)
    }

    /// Buffers a record of one frame and of a kind of its own.
    ///
    /// # Errors
    /// The cause of the seal, if the writer is sealed.
    pub fn append_special(&mut self, kind: FrameKind, payload: &[u8]) -> Result<()> {
        self.check_open()?;
        debug_assert!(payload.len() <= PAYLOAD_BYTES_MAX);
        self.close_frame();
        self.push_frame(kind, payload.len(), &mut &payload[..], &mut std::iter::empty());
        Ok(())
    }

    /// Buffers a promise of what is synced.
    ///
    /// # Errors
    /// The cause of the seal, if the writer is sealed.
    pub fn append_promise(&mut self) -> Result<()> {
        self.check_open()?;
        self.close_frame();
        self.push_promise();
        Ok(())
    }

    /// Repeats the promise, if there is one, where the last is in another sector: what takes a sector away must not take
    /// the knowledge along that it was promised.
    fn promise_again(&mut self) {
        if self.promised_in.is_some_and(|sector| sector != self.end() / SECTOR_BYTES) {
            self.push_promise();
        }
    }

    fn push_promise(&mut self) {
        let offset = self.end();
        let below = if is_planted(Defect::PromiseAhead) { offset } else { self.synced };
        self.buffer.extend_from_slice(&self.identity.promise(below, offset));
        self.promised_in = Some(offset / SECTOR_BYTES);
    }

    /// Appends one frame with the next `bytes` bytes of `rest` and, behind it, `parts`, which have them.
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
        self.seal_frame(kind, frame_at);
    }

    fn seal_frame(&mut self, kind: FrameKind, frame_at: usize) {
        let offset = self.file_bytes + self.begun_bytes + frame_at as u64;
        let checksum = self.identity.seal(kind, offset, &mut self.buffer[frame_at..]);
        self.appended = Watermark { offset: self.end(), checksum };
    }

    /// Where what is buffered will end.
    fn end(&self) -> u64 {
        self.file_bytes + self.begun_bytes + self.buffer.len() as u64
    }

    /// Writes what is buffered.
    fn write_out(&mut self) -> Result<()> {
        if let Err(error) = append_all(self.file.as_mut(), &self.buffer) {
            let cause = Error::io(&self.path, "append to", error);
            self.forget_buffered();
            if is_planted(Defect::AppendAfterTornTail) {
                return Err(cause);
            }
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

    /// Hands everything buffered to the operating system.
    ///
    /// # Errors
    /// What the file system says; from then on the writer is sealed and the buffered records are gone.
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
        Ok(())
    }

    /// Flushes and makes everything flushed durable. A writer sealed by a failed append can still do the
    /// second half; one sealed by a failed sync gives the same error for ever.
    ///
    /// # Errors
    /// What the file system says; from then on the writer is sealed.
    pub fn sync(&mut self) -> Result<()> {
        self.check_syncable()?;
        if self.seal.is_none() {
            self.flush()?;
        }
        if self.synced == self.flushed.offset {
            return Ok(());
        }
        let mut synced = self.file.sync_data();
        if synced.is_err() && is_planted(Defect::FsyncRetried) {
            synced = self.file.sync_data();
        }
        match synced {
            Ok(()) => {
                self.synced = self.flushed.offset;
                Ok(())
            }
            Err(error) => {
                let cause = Error::io(&self.path, "sync", error);
                self.seal_for_good(cause.clone());
                Err(cause)
            }
        }
    }

    /// Ends the life of the writer: neither append nor sync succeeds any more.
    pub fn seal_for_good(&mut self, cause: Error) {
        self.forget_buffered();
        self.seal = Some(Seal { cause, cut: false, sync_failed: true });
    }

    /// That no sync has failed.
    ///
    /// # Errors
    /// The failure: nothing may be tried again after it.
    pub fn check_syncable(&self) -> Result<()> {
        match &self.seal {
            Some(seal) if seal.sync_failed => Err(seal.cause.clone()),
            _ => Ok(()),
        }
    }

    fn check_open(&self) -> Result<()> {
        self.seal.as_ref().map_or(Ok(()), |seal| Err(seal.cause.clone()))
    }

    /// What sealed the writer, if it is sealed.
    pub fn failure(&self) -> Option<&Error> {
        self.seal.as_ref().map(|seal| &seal.cause)
    }

    /// Whether a further file may carry on where this one stopped: no sync failed, and after a failed
    /// append the file was cut to its last good record.
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

    /// Where the last record ends.
    pub fn offset(&self) -> u64 {
        self.appended.offset
    }

    /// The same for what was handed to the operating system.
    pub fn flushed(&self) -> u64 {
        self.flushed.offset
    }

    /// The same for what is known to be on the disk.
    pub fn synced(&self) -> u64 {
        self.synced
    }

    /// Bytes that a failure would lose.
    pub fn buffered(&self) -> u64 {
        self.begun_bytes + self.buffer.len() as u64
    }

    /// Memory of the buffer, whatever is in it.
    pub fn memory_bytes(&self) -> usize {
        self.buffer.capacity()
    }

    /// The checksum of the last record's last frame.
    pub fn last_checksum(&self) -> u32 {
        self.appended.checksum
    }
}

const _: () = assert!(HEADER_BYTES > 0, "so that a promise of 0 means nothing");
