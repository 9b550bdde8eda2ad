//! Appending to one log.
//!
//! The life of a log: [`WalWriter::create`]; batches, flushes and syncs in any number; then either a next log
//! takes over ([`WalWriter::predecessor`]) or [`WalWriter::finish_clean`] ends the chain. A log must not be
//! synced before its predecessor is synced to its end: its promise would cover the predecessor, too.
//! [`WalWriter::sync`] refuses until [`WalWriter::predecessor_is_synced`] was called.
//!
//! Thread safety: one owner; the commit path shares it under its lock.
//!
//! Not here: which number the log gets, when to rotate, who waits for which sync.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use shamba_env::Env;
use shamba_key::SeqNo;

use super::head::{Head, Predecessor};
use super::log_file_name;
use super::record::{FIRST, GAP_BYTES_MAX, OpRef, encode_op, encode_op_head, encoded_ops_and_ends};
use super::value::ValueLog;
use crate::framing::codec::put_varint;
use crate::framing::frame::{FrameKind, PAYLOAD_BYTES_MAX};
use crate::framing::{FileKind, FrameWriter};
use crate::{Error, Result};
use shamba_key::planted::{Defect, is_planted};
use shamba_key::{KeyspaceId, LogNo};

/// The longest batch that can share a record with others.
pub const SHARED_BYTES_MAX: usize = PAYLOAD_BYTES_MAX - GAP_BYTES_MAX;

/// Where a batch lies that has a record of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LargeRecord {
    /// Where the record's first frame begins.
    pub offset: u64,
    /// Where in its payload the operations begin.
    pub ops_at: usize,
    /// How long they are.
    pub ops_bytes: usize,
}

/// The one writer of a log.
#[derive(Debug)]
pub struct WalWriter {
    env: Env,
    dir: PathBuf,
    number: LogNo,
    frames: FrameWriter,
    /// The sequence number that everything up to `frames.offset()` ends with.
    last_seq: SeqNo,
    /// The same for `frames.flushed()`: what is left after a failed append.
    flushed_seq: SeqNo,
    /// Where the head ends.
    head_end: u64,
    name_synced: bool,
    predecessor_synced: bool,
}

impl WalWriter {
    /// Creates a log and hands its head to the operating system. The first batch follows `base_seq` or the
    /// predecessor's last sequence number, whichever is larger. Without a predecessor, everything up to
    /// `base_seq` must be in tables.
    ///
    /// # Errors
    /// What the file system says; what was created is removed, if possible.
    pub fn create(
        env: &Env,
        dir: &Path,
        number: LogNo,
        predecessor: Option<Predecessor>,
        base_seq: SeqNo,
    ) -> Result<Self> {
        let base_seq = predecessor.map_or(base_seq, |before| base_seq.max(before.last_seq));
        Self::begin(env, dir, number, Head { predecessor, copy_of: None, base_seq })
    }

    /// Creates a log that begins with a copy of the batches of the logs from `copy_of` on, which the
    /// caller appends next. Everything up to `base_seq` must be in tables, or of keyspaces that were dropped. Until the manifest names this
    /// log it must not promise anything: use [`Self::sync_unpromised`].
    ///
    /// # Errors
    /// As [`Self::create`].
    pub fn create_copy(
        env: &Env,
        dir: &Path,
        number: LogNo,
        copy_of: LogNo,
        base_seq: SeqNo,
    ) -> Result<Self> {
        Self::begin(env, dir, number, Head { predecessor: None, copy_of: Some(copy_of), base_seq })
    }

    fn begin(env: &Env, dir: &Path, number: LogNo, head: Head) -> Result<Self> {
        let path = dir.join(log_file_name(number));
        let Head { predecessor, base_seq, .. } = head;
        let mut frames = FrameWriter::create(env, &path, FileKind::Wal, number.0)?;
        let written = frames.append_special(FrameKind::Head, &head.encode()).and_then(|()| frames.flush());
        if let Err(error) = written {
            // Best effort: a log of a head or less holds nothing and promises nothing.
            let _ = env.vfs.unlink(&path);
            return Err(error);
        }
        let head_end = frames.offset();
        Ok(Self {
            env: env.clone(),
            dir: dir.to_path_buf(),
            number,
            frames,
            last_seq: base_seq,
            flushed_seq: base_seq,
            head_end,
            name_synced: false,
            predecessor_synced: predecessor.is_none_or(|before| before.synced == before.bytes),
        })
    }

    /// Buffers one batch of `count` operations (as [`super::encode_op`] wrote them) that take the sequence
    /// numbers from `first_seq` on. Batches share records until the next flush; one that does not fit one
    /// frame has a record of its own, and is told where.
    ///
    /// # Errors
    /// The cause of the seal, if the log is sealed; as [`Self::append_large`] for a batch that does not fit
    /// one frame.
    pub fn append_batch(&mut self, first_seq: SeqNo, count: u32, ops: &[u8]) -> Result<Option<LargeRecord>> {
        if ops.len() > SHARED_BYTES_MAX {
            let (offset, ops_at) = self.append_large(first_seq, count, &[ops])?;
            return Ok(Some(LargeRecord { offset, ops_at, ops_bytes: ops.len() }));
        }
        if count > 1 && is_planted(Defect::BatchSplitInLog) {
            return self.append_split(first_seq, count, ops);
        }
        self.join(first_seq, count, ops.len(), |buffer| buffer.extend_from_slice(ops))?;
        Ok(None)
    }

    /// What [`Defect::BatchSplitInLog`] makes of a batch: the first operation is a record by itself.
    #[cold]
    fn append_split(&mut self, first_seq: SeqNo, count: u32, ops: &[u8]) -> Result<Option<LargeRecord>> {
        let first_end = encoded_ops_and_ends(ops).next().map_or(0, |(end, _)| end);
        let (first, rest) = ops.split_at(first_end);
        self.join(first_seq, 1, first.len(), |buffer| buffer.extend_from_slice(first))?;
        self.flush()?;
        let mut rest = rest.to_vec();
        rest[0] |= FIRST;
        self.join(first_seq.next(), count - 1, rest.len(), |buffer| buffer.extend_from_slice(&rest))?;
        Ok(None)
    }

    /// Buffers a batch of one operation; encodes it in place.
    ///
    /// # Errors
    /// As [`Self::append_batch`].
    pub fn append_op(
        &mut self,
        seq: SeqNo,
        keyspace: KeyspaceId,
        op: OpRef<'_>,
    ) -> Result<Option<LargeRecord>> {
        let room = op.encoded_bytes_max();
        if room > SHARED_BYTES_MAX {
            let mut head = Vec::new();
            let tail = encode_op_head(&mut head, true, keyspace, op);
            let (offset, ops_at) = self.append_large(seq, 1, &[&head, tail])?;
            return Ok(Some(LargeRecord { offset, ops_at, ops_bytes: head.len() + tail.len() }));
        }
        self.join(seq, 1, room, |buffer| encode_op(buffer, true, keyspace, op))?;
        Ok(None)
    }

    fn join(
        &mut self,
        first_seq: SeqNo,
        count: u32,
        room: usize,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<()> {
        debug_assert!(count > 0 && first_seq > self.last_seq, "{first_seq} after {}", self.last_seq);
        if first_seq == self.last_seq.next() {
            self.frames.join(&[0], room, write)?;
        } else {
            // Only the beginning of a record can tell of a gap.
            self.frames.close_frame();
            self.frames.join(&self.gap_before(first_seq), room, write)?;
        }
        self.last_seq = last_of(first_seq, count);
        Ok(())
    }

    /// What a record begins with.
    fn gap_before(&self, first_seq: SeqNo) -> Vec<u8> {
        let mut gap = Vec::with_capacity(GAP_BYTES_MAX);
        put_varint(&mut gap, first_seq.0.saturating_sub(self.last_seq.next().0));
        gap
    }

    /// Appends one batch, given in parts, as a record of its own. A record of several frames is handed to the
    /// operating system while it is framed, so nothing of its length is in memory beside `parts`.
    ///
    /// Gives the offset of the record's first frame, and where in the record's payload the parts begin. All
    /// its frames but the last have payloads of [`PAYLOAD_BYTES_MAX`] bytes.
    ///
    /// # Errors
    /// The cause of the seal, if the log is sealed; what the file system says, and then the log is sealed
    /// and cut, as by [`Self::flush`], with nothing of the batch in it.
    pub fn append_large(&mut self, first_seq: SeqNo, count: u32, parts: &[&[u8]]) -> Result<(u64, usize)> {
        debug_assert!(count > 0 && first_seq > self.last_seq, "{first_seq} after {}", self.last_seq);
        let gap = self.gap_before(first_seq);
        let all: Vec<&[u8]> = std::iter::once(&gap[..]).chain(parts.iter().copied()).collect();
        if all.iter().map(|part| part.len()).sum::<usize>() > PAYLOAD_BYTES_MAX {
            // What came before must not share the fate of what is written out now.
            self.flush()?;
        }
        let offset = self.frames.append_record(&all).inspect_err(|_| self.last_seq = self.flushed_seq)?;
        self.last_seq = last_of(first_seq, count);
        Ok((offset, gap.len()))
    }

    /// Hands what is buffered to the operating system.
    ///
    /// # Errors
    /// What the file system says. The log is sealed then, cut to what was flushed before if possible; the
    /// batches that were buffered are not in it.
    pub fn flush(&mut self) -> Result<()> {
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
    /// not known to be synced.
    pub fn sync(&mut self) -> Result<()> {
        let before = self.frames.synced();
        self.sync_records()?;
        // Without a promise, rot of what was just synced would pass for a torn tail until more is written.
        // Not before the first batch: until the manifest has moved to this log, a promise of it would
        // cover logs of an unclean stop. A failure is the next append's to report: the sync succeeded.
        if self.frames.synced() > before.max(self.head_end) {
            let _ = self.frames.append_promise().and_then(|()| self.flush());
        }
        Ok(())
    }

    /// As [`Self::sync`], but no later frame promises it: for a log that the manifest does not name yet. A
    /// promise would cover all earlier logs, whose unsynced tail may be damaged.
    ///
    /// # Errors
    /// As [`Self::sync`].
    pub fn sync_unpromised(&mut self) -> Result<()> {
        self.sync_records()
    }

    fn sync_records(&mut self) -> Result<()> {
        if !self.predecessor_synced {
            let context = format!("log {} must not be synced before its predecessor", self.number);
            return Err(Error::Invalid(context));
        }
        self.frames.check_syncable()?;
        if self.frames.failure().is_none() {
            self.flush()?;
        }
        if !self.name_synced && !is_planted(Defect::LogNameUnsynced) {
            if let Err(error) = self.env.vfs.sync_dir(&self.dir) {
                let cause = Error::io(&self.dir, "sync directory", error);
                self.frames.seal_for_good(cause.clone());
                return Err(cause);
            }
            self.name_synced = true;
        }
        self.frames.sync()
    }

    /// Says that every earlier log is synced to its end, so that this one may be.
    pub fn predecessor_is_synced(&mut self) {
        self.predecessor_synced = true;
    }

    /// Syncs, writes the end marker with its promise, and syncs again. Gives the log and its synced length,
    /// for a last manifest edit: with `log_promise` there, even the loss of the whole file is noticed.
    ///
    /// # Errors
    /// What the file system says.
    pub fn finish_clean(mut self) -> Result<(LogNo, u64)> {
        self.sync_records()?;
        self.frames.append_promise()?;
        self.frames.append_special(FrameKind::End, &[])?;
        self.flush()?;
        self.frames.sync()?;
        Ok((self.number, self.frames.synced()))
    }

    /// What the head of the next log says about this one. Flush before: what is only buffered would be
    /// counted, though it may never be written.
    pub fn predecessor(&self) -> Predecessor {
        debug_assert_eq!(self.frames.buffered(), 0, "flush, then follow");
        Predecessor {
            number: self.number,
            bytes: self.frames.offset(),
            last_seq: self.last_seq,
            last_checksum: self.frames.last_checksum(),
            synced: self.frames.synced(),
        }
    }

    /// This log's number.
    pub fn number(&self) -> LogNo {
        self.number
    }

    /// As memtables refer to it for values that stay in it.
    pub fn values(&self) -> Arc<ValueLog> {
        ValueLog::new(&self.env, self.frames.path(), self.number, self.frames.birth())
    }

    /// The log's file.
    pub fn path(&self) -> &Path {
        self.frames.path()
    }

    /// Where the next record will begin.
    pub fn offset(&self) -> u64 {
        self.frames.offset()
    }

    /// Bytes handed to the operating system.
    pub fn flushed(&self) -> u64 {
        self.frames.flushed()
    }

    /// Bytes that are on the disk.
    pub fn synced(&self) -> u64 {
        self.frames.synced()
    }

    /// Bytes that only this process has, or that a failure would take back.
    pub fn buffered(&self) -> u64 {
        self.frames.buffered()
    }

    /// Memory that the log takes.
    pub fn memory_bytes(&self) -> usize {
        self.frames.memory_bytes()
    }

    /// The last sequence number appended.
    pub fn last_seq(&self) -> SeqNo {
        self.last_seq
    }

    /// Whether a next log may take over (after `NoSpace`, say): no sync failed, and a failed append left
    /// the file cut to its last good record.
    pub fn may_be_followed(&self) -> bool {
        self.frames.may_be_followed()
    }
}

/// The sequence number of the last of `count` operations.
fn last_of(first_seq: SeqNo, count: u32) -> SeqNo {
    SeqNo(first_seq.0.saturating_add(u64::from(count).saturating_sub(1)))
}
