//! Appending to one log.
//!
//! The life of a log: [`WalWriter::create`]; batches, flushes and syncs in any number; then either a next log
//! takes over ([`WalWriter::predecessor`]) or [`WalWriter::finish_clean`] ends the chain. A log must not be
//! synced before its predecessor is synced to its end: its promise would cover the predecessor, too. A
//! successor watches the predecessor's watermark, and [`WalWriter::sync`] refuses until it got there.
//!
//! Thread safety: one owner; the commit path shares it under its lock.
//!
//! Not here: which number the log gets, when to rotate, who waits for which sync.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use shamba_env::Env;
use shamba_key::SeqNo;

use super::head::{Head, Stated};
use super::log_file_name;
use super::record::decode_prefix;
use crate::error::{Error, Result};
use crate::ids::LogNo;
use crate::log::frame::FrameKind;
use crate::log::{FileKind, FrameWriter};

/// Where a log stopped, and how far its syncs have come since.
#[derive(Clone, Debug)]
pub(crate) struct Predecessor {
    stated: Stated,
    synced: Arc<AtomicU64>,
}

impl Predecessor {
    /// What the next log states.
    pub(crate) fn stated(&self) -> Stated {
        Stated { synced: self.synced.load(Ordering::Acquire), ..self.stated }
    }

    fn is_synced(&self) -> bool {
        self.synced.load(Ordering::Acquire) >= self.stated.bytes
    }
}

/// The one writer of a log.
#[derive(Debug)]
pub(crate) struct WalWriter {
    env: Env,
    dir: PathBuf,
    number: LogNo,
    frames: FrameWriter,
    /// The sequence number that everything up to `frames.offset()` ends with.
    last_seq: SeqNo,
    /// The same for `frames.flushed()`: what is left after a failed append.
    flushed_seq: SeqNo,
    name_synced: bool,
    /// `None` once it is known to be synced.
    unsynced_predecessor: Option<Predecessor>,
    /// `frames.synced()`, for the log that follows.
    synced: Arc<AtomicU64>,
}

impl WalWriter {
    /// Creates a log that carries on where `predecessor` stopped, or before every write, and hands its head
    /// to the operating system.
    ///
    /// # Errors
    /// What the file system says; what was created is removed, if possible.
    pub(crate) fn create(
        env: &Env,
        dir: &Path,
        number: LogNo,
        predecessor: Option<Predecessor>,
    ) -> Result<Self> {
        let stated = predecessor.as_ref().map(Predecessor::stated);
        let base_seq = stated.map_or(SeqNo::ZERO, |before| before.last_seq);
        let mut log = Self::create_with(env, dir, number, Head { predecessor: stated, base_seq })?;
        log.unsynced_predecessor = predecessor;
        Ok(log)
    }

    /// Creates the first log of a chain: everything up to `base_seq` is in tables.
    ///
    /// # Errors
    /// What the file system says; what was created is removed, if possible.
    pub(crate) fn create_first(env: &Env, dir: &Path, number: LogNo, base_seq: SeqNo) -> Result<Self> {
        Self::create_with(env, dir, number, Head { predecessor: None, base_seq })
    }

    fn create_with(env: &Env, dir: &Path, number: LogNo, head: Head) -> Result<Self> {
        let path = dir.join(log_file_name(number));
        let mut frames = FrameWriter::create(env, &path, FileKind::Wal, number.0)?;
        let written = frames.append_special(FrameKind::Head, &head.encode()).and_then(|()| frames.flush());
        if let Err(error) = written {
            // Best effort: a log of a head or less holds nothing and promises nothing.
            let _ = env.vfs.unlink(&path);
            return Err(error);
        }
        Ok(Self {
            env: env.clone(),
            dir: dir.to_path_buf(),
            number,
            frames,
            last_seq: head.base_seq,
            flushed_seq: head.base_seq,
            name_synced: false,
            unsynced_predecessor: None,
            synced: Arc::new(AtomicU64::new(0)),
        })
    }

    /// Buffers one batch record, as [`super::encode_batch`] made it.
    ///
    /// # Errors
    /// The cause of the seal, if the log is sealed; `Invalid` for bytes that are no batch record.
    pub(crate) fn append_batch(&mut self, payload: &[u8]) -> Result<()> {
        let (first_seq, count) = decode_prefix(payload).map_err(Error::invalid)?;
        debug_assert!(first_seq > self.last_seq, "{first_seq} after {}", self.last_seq);
        self.frames.append_record(payload)?;
        // `decode_prefix` saw that the sum fits.
        self.last_seq = SeqNo(first_seq.0 + u64::from(count) - 1);
        Ok(())
    }

    /// Hands what is buffered to the operating system.
    ///
    /// # Errors
    /// What the file system says. The log is sealed then, cut to what was flushed before if possible; the
    /// batches that were buffered are not in it.
    pub(crate) fn flush(&mut self) -> Result<()> {
        let flushed = self.frames.flush();
        self.last_seq = if flushed.is_ok() { self.last_seq } else { self.flushed_seq };
        self.flushed_seq = self.last_seq;
        flushed
    }

    /// Makes everything appended so far durable, the file's name included. Still possible, for what was
    /// flushed, after a failed append; never again after a failed sync.
    ///
    /// # Errors
    /// What the file system says, and then the log is sealed for good; `Invalid` while the predecessor is
    /// not synced to its end.
    pub(crate) fn sync(&mut self) -> Result<()> {
        if self.unsynced_predecessor.as_ref().is_some_and(|before| !before.is_synced()) {
            let context = format!("log {} must not be synced before its predecessor", self.number);
            return Err(Error::invalid(context));
        }
        self.unsynced_predecessor = None;
        if self.frames.failure().is_none() {
            self.flush()?;
        }
        if !self.name_synced {
            if let Err(error) = self.env.vfs.sync_dir(&self.dir) {
                let cause = Error::io("sync directory", &self.dir, error);
                self.frames.seal_for_good(cause.clone());
                return Err(cause);
            }
            self.name_synced = true;
        }
        self.frames.sync()?;
        self.synced.store(self.frames.synced(), Ordering::Release);
        Ok(())
    }

    /// Appends and flushes a frame that promises what was last synced, so that later rot of it is told from a
    /// torn tail even if nothing is ever written after it. Worth a call when the log falls idle after a sync.
    ///
    /// # Errors
    /// What the file system says; see [`WalWriter::flush`].
    pub(crate) fn write_promise(&mut self) -> Result<()> {
        self.frames.append_special(FrameKind::Promise, &[])?;
        self.flush()
    }

    /// Syncs, writes the end marker with its promise, and syncs again. Gives the log and its synced length,
    /// for a last manifest edit: with `log_promise` there, even the loss of the whole file is noticed.
    ///
    /// # Errors
    /// What the file system says.
    pub(crate) fn finish_clean(mut self) -> Result<(LogNo, u64)> {
        self.sync()?;
        self.frames.append_special(FrameKind::End, &[])?;
        self.flush()?;
        self.frames.sync()?;
        Ok((self.number, self.frames.synced()))
    }

    /// What the head of the next log says about this one. Flush before: what is only buffered would be
    /// counted, though it may never be written.
    pub(crate) fn predecessor(&self) -> Predecessor {
        debug_assert_eq!(self.frames.buffered(), 0, "flush, then follow");
        let stated = Stated {
            number: self.number,
            bytes: self.frames.offset(),
            last_seq: self.last_seq,
            last_checksum: self.frames.last_checksum(),
            synced: self.frames.synced(),
        };
        Predecessor { stated, synced: Arc::clone(&self.synced) }
    }

    /// This log's number.
    pub(crate) fn number(&self) -> LogNo {
        self.number
    }

    /// The log's file.
    pub(crate) fn path(&self) -> &Path {
        self.frames.path()
    }

    /// Where the next record will begin.
    pub(crate) fn offset(&self) -> u64 {
        self.frames.offset()
    }

    /// Bytes handed to the operating system.
    pub(crate) fn flushed(&self) -> u64 {
        self.frames.flushed()
    }

    /// Bytes that are on the disk.
    pub(crate) fn synced(&self) -> u64 {
        self.frames.synced()
    }

    /// Bytes that only this process has.
    pub(crate) fn buffered(&self) -> usize {
        self.frames.buffered()
    }

    /// The last sequence number appended.
    pub(crate) fn last_seq(&self) -> SeqNo {
        self.last_seq
    }

    /// What sealed the log, if it is sealed.
    pub(crate) fn failure(&self) -> Option<&Error> {
        self.frames.failure()
    }

    /// Whether a next log may take over (after `NoSpace`, say): no sync failed, and a failed append left
    /// the file cut to its last good record.
    pub(crate) fn may_be_followed(&self) -> bool {
        self.frames.may_be_followed()
    }
}
