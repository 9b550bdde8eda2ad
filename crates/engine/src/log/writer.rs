//! Writing frames: records go into a buffer, to the operating system, to the disk.
//!
//! Three watermarks, `synced <= flushed <= offset`, all on record boundaries. They count records that say
//! something: a promise behind the last of these need not be durable, so it leaves the watermarks where they
//! are. A failed append cuts the file back to what was flushed and *seals* the writer: what was buffered is lost and reported, nothing is ever
//! appended again. What was flushed before may still be synced. A failed sync seals for good: after it
//! nobody knows what is on the disk, and a second sync that succeeds would not tell.
//!
//! Not here: making the file's name durable, which is the caller's (and must come before a promise is
//! relied upon).

use std::path::{Path, PathBuf};

use shamba_env::{Env, WriteFile, append_all};
use shamba_table::BirthId;

use super::frame::{
    FRAME_HEADER_BYTES, FrameHeader, FrameKind, PAYLOAD_BYTES_MAX, birth_tag, payload_checksum,
};
use super::header::{FileHeader, FileKind, HEADER_BYTES};
use crate::error::{Error, Result};

/// A buffer that grew past this for one large batch gives the memory back.
const BUFFER_KEPT_BYTES: usize = 1 << 20;

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
pub(crate) struct FrameWriter {
    file: Box<dyn WriteFile>,
    path: PathBuf,
    birth: BirthId,
    birth_tag: u32,
    number: u64,
    buffer: Vec<u8>,
    /// Bytes in the file, promises included.
    file_bytes: u64,
    appended: Watermark,
    flushed: Watermark,
    synced: u64,
    seal: Option<Seal>,
}

/// Where the records that say something end.
#[derive(Clone, Copy, Debug, Default)]
struct Watermark {
    offset: u64,
    /// Header checksum of the last frame before it.
    checksum: u32,
}

impl FrameWriter {
    /// Creates the file; its header waits in the buffer.
    ///
    /// # Errors
    /// What the file system says; `AlreadyExists` if the name is taken.
    pub(crate) fn create(env: &Env, path: &Path, kind: FileKind, number: u64) -> Result<Self> {
        let birth = BirthId(env.rng.next_u64());
        let file = env.vfs.create(path).map_err(|error| Error::io("create", path, error))?;
        Ok(Self {
            file,
            path: path.to_path_buf(),
            birth,
            birth_tag: birth_tag(birth, number),
            number,
            buffer: FileHeader::new(birth, number).encode(kind),
            file_bytes: 0,
            appended: Watermark { offset: HEADER_BYTES, checksum: 0 },
            flushed: Watermark::default(),
            synced: 0,
            seal: None,
        })
    }

    /// Buffers a record made of two parts, one after the other; splits it into frames as needed.
    ///
    /// # Errors
    /// The cause of the seal, if the writer is sealed.
    pub(crate) fn append_record(&mut self, first_part: &[u8], second_part: &[u8]) -> Result<()> {
        self.check_open()?;
        let mut parts = [first_part, second_part];
        let mut left = first_part.len().saturating_add(second_part.len());
        let mut kind = FrameKind::Full;
        while left > PAYLOAD_BYTES_MAX {
            kind = if kind == FrameKind::Full { FrameKind::First } else { FrameKind::Middle };
            self.push_frame(kind, &mut parts, PAYLOAD_BYTES_MAX);
            left -= PAYLOAD_BYTES_MAX;
        }
        let last = if kind == FrameKind::Full { FrameKind::Full } else { FrameKind::Last };
        self.push_frame(last, &mut parts, left);
        Ok(())
    }

    /// Buffers a record of one frame and of a kind of its own.
    ///
    /// # Errors
    /// The cause of the seal, if the writer is sealed.
    pub(crate) fn append_special(&mut self, kind: FrameKind, payload: &[u8]) -> Result<()> {
        self.check_open()?;
        debug_assert!(payload.len() <= PAYLOAD_BYTES_MAX);
        self.push_frame(kind, &mut [payload, &[]], payload.len());
        Ok(())
    }

    /// Appends one frame with the next `bytes` bytes of `parts`, which has them.
    fn push_frame(&mut self, kind: FrameKind, parts: &mut [&[u8]; 2], bytes: usize) {
        let frame_at = self.buffer.len();
        let offset = self.file_bytes + frame_at as u64;
        let payload_at = frame_at + FRAME_HEADER_BYTES;
        self.buffer.resize(payload_at, 0);
        let mut wanted = bytes;
        for part in parts {
            let (taken, rest) = part.split_at(wanted.min(part.len()));
            self.buffer.extend_from_slice(taken);
            wanted -= taken.len();
            *part = rest;
        }
        let header = FrameHeader {
            payload_checksum: payload_checksum(self.birth, offset, &self.buffer[payload_at..]),
            number: self.number,
            promise: self.synced,
            birth_tag: self.birth_tag,
            payload_bytes: bytes as u16,
            kind,
        };
        let (encoded, sum) = header.encode(offset);
        self.buffer[frame_at..payload_at].copy_from_slice(&encoded);
        if kind != FrameKind::Promise {
            let end = self.file_bytes + self.buffer.len() as u64;
            self.appended = Watermark { offset: end, checksum: sum };
        }
    }

    /// Hands everything buffered to the operating system.
    ///
    /// # Errors
    /// What the file system says; from then on the writer is sealed and the buffered records are gone.
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.check_open()?;
        if self.buffer.is_empty() {
            return Ok(());
        }
        if let Err(error) = append_all(self.file.as_mut(), &self.buffer) {
            let cause = Error::io("append to", &self.path, error);
            self.buffer = Vec::new();
            self.appended = self.flushed;
            let cut = self.file.truncate(self.file_bytes).is_ok();
            self.seal = Some(Seal { cause: cause.clone(), cut, sync_failed: false });
            return Err(cause);
        }
        self.file_bytes += self.buffer.len() as u64;
        self.flushed = self.appended;
        self.buffer.clear();
        self.buffer.shrink_to(BUFFER_KEPT_BYTES);
        Ok(())
    }

    /// Flushes and makes everything flushed durable. A writer sealed by a failed append can still do the
    /// second half; one sealed by a failed sync gives the same error for ever.
    ///
    /// # Errors
    /// What the file system says; from then on the writer is sealed.
    pub(crate) fn sync(&mut self) -> Result<()> {
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
                Ok(())
            }
            Err(error) => {
                let cause = Error::io("sync", &self.path, error);
                self.seal_for_good(cause.clone());
                Err(cause)
            }
        }
    }

    /// Ends the life of the writer: neither append nor sync succeeds any more.
    pub(crate) fn seal_for_good(&mut self, cause: Error) {
        self.buffer = Vec::new();
        self.appended = self.flushed;
        self.seal = Some(Seal { cause, cut: false, sync_failed: true });
    }

    /// That no sync has failed.
    ///
    /// # Errors
    /// The failure: nothing may be tried again after it.
    pub(crate) fn check_syncable(&self) -> Result<()> {
        match &self.seal {
            Some(seal) if seal.sync_failed => Err(seal.cause.clone()),
            _ => Ok(()),
        }
    }

    fn check_open(&self) -> Result<()> {
        self.seal.as_ref().map_or(Ok(()), |seal| Err(seal.cause.clone()))
    }

    /// What sealed the writer, if it is sealed.
    pub(crate) fn failure(&self) -> Option<&Error> {
        self.seal.as_ref().map(|seal| &seal.cause)
    }

    /// Whether a further file may carry on where this one stopped: no sync failed, and after a failed
    /// append the file was cut to its last good record.
    pub(crate) fn may_be_followed(&self) -> bool {
        self.seal.as_ref().is_none_or(|seal| seal.cut && !seal.sync_failed)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn birth(&self) -> BirthId {
        self.birth
    }

    /// Where the last record ends.
    pub(crate) fn offset(&self) -> u64 {
        self.appended.offset
    }

    /// The same for what was handed to the operating system.
    pub(crate) fn flushed(&self) -> u64 {
        self.flushed.offset
    }

    /// The same for what is known to be on the disk.
    pub(crate) fn synced(&self) -> u64 {
        self.synced
    }

    /// Bytes that only this process has.
    pub(crate) fn buffered(&self) -> usize {
        self.buffer.len()
    }

    /// The header checksum of the last record's last frame.
    pub(crate) fn last_checksum(&self) -> u32 {
        self.appended.checksum
    }
}

const _: () = assert!(HEADER_BYTES > 0, "so that a promise of 0 means nothing");
