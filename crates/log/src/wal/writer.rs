//! Appends batches to one log.
//!
//! Life cycle of a log: [`WalWriter::create`]; batches, flushes and syncs in any number; then
//! either a next log takes over ([`WalWriter::predecessor`]) or [`WalWriter::finish_clean`] ends
//! the chain. A log must not be synced before its predecessor is synced to its end, because its
//! promise would cover the predecessor, too. [`WalWriter::sync`] fails until
//! [`WalWriter::predecessor_is_synced`] was called.
//!
//! Thread safety: a single owner; the commit path holds it under its lock.
//!
//! Not here: the choice of the log number, when to rotate, which writer waits for which sync.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use shamba_env::Env;
use shamba_key::SeqNo;

use super::head::{Head, Predecessor};
use super::log_file_name;
use super::record::{FIRST, GAP_BYTES_MAX, OpRef, encode_op, encode_op_head, encoded_ops};
use super::value::ValueLog;
use crate::framing::codec::put_varint;
use crate::framing::frame::{FrameKind, PAYLOAD_BYTES_MAX};
use crate::framing::{FileKind, FrameWriter};
use crate::{Error, Result};
use shamba_key::{KeyspaceId, LogNo};

/// Maximum length of a batch that can share a record with others.
pub const SHARED_BYTES_MAX: usize = PAYLOAD_BYTES_MAX - GAP_BYTES_MAX;

/// Place of a batch that has a record of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LargeRecord {
    /// Offset in the file of the record's first frame.
    pub offset: u64,
    /// Offset in the record's payload of the operations.
    pub ops_at: usize,
    /// Length of the operations.
    pub ops_bytes: usize,
}

/// The only writer of a log.
#[derive(Debug)]
pub struct WalWriter {
    env: Env,
    dir: PathBuf,
    number: LogNo,
    frames: FrameWriter,
    /// Sequence number of the last operation appended (up to `frames.offset()`).
    last_seq: SeqNo,
    /// Sequence number of the last operation flushed (up to `frames.flushed()`). A failed append
    /// resets `last_seq` to it.
    flushed_seq: SeqNo,
    /// Offset of the end of the head.
    head_end: u64,
    name_synced: bool,
    predecessor_synced: bool,
}

impl WalWriter {
    /// Creates a log and hands its head to the operating system. The first batch follows `base_seq`
    /// or the predecessor's last sequence number, whichever is larger. Without a predecessor,
    /// everything up to `base_seq` must be in tables.
    ///
    /// # Errors
    /// I/O errors of the file system; the created file is removed, if possible.
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

    /// Creates a log that begins with a copy of the batches of the logs from `copy_of` on, which
    /// the caller appends next. Everything up to `base_seq` must be in tables, or belong to dropped
    /// keyspaces. The log must contain no promise until the manifest names it: use
    /// [`Self::sync_unpromised`].
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
        assert!(
            predecessor.is_none_or(|before| before.number < number),
            "log {number} would follow the later one of {predecessor:?}"
        );
        let mut frames = FrameWriter::create(env, &path, FileKind::Wal, number.0)?;
        let written = frames.append_special(FrameKind::Head, &head.encode()).and_then(|()| frames.flush());
        if let Err(error) = written {
            // Best effort: a log with at most a head holds no batch and no promise.
            let _ = env.vfs.unlink(&path);
            return Err(error);
        }
        let head_end = frames.offset();
        debug_assert_eq!(frames.flushed(), head_end, "the head of log {number} was not handed over");
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

    /// Buffers one batch of `count` operations (encoded by [`super::encode_op`]) that take the
    /// sequence numbers from `first_seq` on. Batches share records until the next flush. A batch
    /// that does not fit one frame gets a record of its own, whose place is returned.
    ///
    /// # Errors
    /// The cause of the seal, if the log is sealed; as [`Self::append_large`] for a batch that does
    /// not fit one frame.
    pub fn append_batch(&mut self, first_seq: SeqNo, count: u32, ops: &[u8]) -> Result<Option<LargeRecord>> {
        debug_assert!(
            ops.first().is_some_and(|flags| flags & FIRST != 0),
            "the batch at {first_seq} does not begin with its flag: {:?}",
            ops.first()
        );
        debug_assert_eq!(
            encoded_ops(ops).count(),
            count as usize,
            "the batch at {first_seq} holds another number of operations than stated"
        );
        if ops.len() > SHARED_BYTES_MAX {
            let (offset, ops_at) = self.append_large(first_seq, count, &[ops])?;
            return Ok(Some(LargeRecord { offset, ops_at, ops_bytes: ops.len() }));
        }
        self.join(first_seq, count, ops.len(), |buffer| buffer.extend_from_slice(ops))?;
        Ok(None)
    }

    /// Buffers a batch of one operation, encoded directly into the buffer.
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
            // A gap can only be stated at the beginning of a record.
            self.frames.close_frame();
            self.frames.join(&self.gap_before(first_seq), room, write)?;
        }
        self.last_seq = last_of(first_seq, count);
        Ok(())
    }

    /// The encoded gap, with which a record begins.
    fn gap_before(&self, first_seq: SeqNo) -> Vec<u8> {
        debug_assert!(first_seq > self.last_seq, "no gap lies between {} and {first_seq}", self.last_seq);
        let mut gap = Vec::with_capacity(GAP_BYTES_MAX);
        put_varint(&mut gap, first_seq.0.saturating_sub(self.last_seq.next().0));
        gap
    }

    /// Appends one batch, given in parts, as a record of its own. A multi-frame record is handed to
    /// the operating system while it is framed, so no second copy of `parts` is held in memory.
    ///
    /// Returns the offset of the record's first frame, and the offset in its payload at which the
    /// parts begin. All frames but the last have payloads of [`PAYLOAD_BYTES_MAX`] bytes.
    ///
    /// # Errors
    /// The cause of the seal, if the log is sealed; I/O errors of the file system. After an I/O
    /// error the log is sealed and truncated as by [`Self::flush`], and contains nothing of the
    /// batch.
    pub fn append_large(&mut self, first_seq: SeqNo, count: u32, parts: &[&[u8]]) -> Result<(u64, usize)> {
        debug_assert!(count > 0 && first_seq > self.last_seq, "{first_seq} after {}", self.last_seq);
        let gap = self.gap_before(first_seq);
        let all: Vec<&[u8]> = std::iter::once(&gap[..]).chain(parts.iter().copied()).collect();
        if all.iter().map(|part| part.len()).sum::<usize>() > PAYLOAD_BYTES_MAX {
            // Flush earlier records first, so that a failure of this batch does not lose them.
            self.flush()?;
        }
        let offset = self.frames.append_record(&all).inspect_err(|_| self.last_seq = self.flushed_seq)?;
        debug_assert!(
            offset >= self.head_end,
            "a record at {offset}, inside the head that ends at {}",
            self.head_end
        );
        self.last_seq = last_of(first_seq, count);
        Ok((offset, gap.len()))
    }

    /// Hands the buffered bytes to the operating system.
    ///
    /// # Errors
    /// I/O errors of the file system. Then the log is sealed and, if possible, truncated to its
    /// flushed length. The buffered batches are not in it.
    pub fn flush(&mut self) -> Result<()> {
        let flushed = self.frames.flush();
        self.last_seq = if flushed.is_ok() { self.last_seq } else { self.flushed_seq };
        debug_assert!(
            self.flushed_seq <= self.last_seq,
            "flushed to {}, but appended only to {}",
            self.flushed_seq,
            self.last_seq
        );
        self.flushed_seq = self.last_seq;
        flushed
    }

    /// Makes everything appended so far durable, and the file's name, too. After a failed append
    /// the flushed part can still be synced; after a failed sync nothing can.
    ///
    /// # Errors
    /// I/O errors of the file system, and then the log is sealed permanently; `Invalid` while the
    /// predecessor is not known to be synced.
    pub fn sync(&mut self) -> Result<()> {
        let before = self.frames.synced();
        self.sync_records()?;
        // Without a promise, damage to the part just synced would pass for a torn tail until more
        // is written. There is no promise before the first batch: until the manifest names this
        // log, a promise in it would cover earlier logs whose tails may be damaged. If writing the
        // promise fails, the sync has succeeded all the same, and the next append reports the
        // failure.
        if self.frames.synced() > before.max(self.head_end) {
            let _ = self.frames.append_promise().and_then(|()| self.flush());
        }
        Ok(())
    }

    /// As [`Self::sync`], but writes no promise: for a log that the manifest does not name yet. A
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
        if !self.name_synced {
            if let Err(error) = self.env.vfs.sync_dir(&self.dir) {
                let cause = Error::io(&self.dir, "sync directory", error);
                self.frames.seal_for_good(cause.clone());
                return Err(cause);
            }
            self.name_synced = true;
        }
        self.frames.sync()
    }

    /// Records that every earlier log is synced to its end, which permits syncs of this one.
    pub fn predecessor_is_synced(&mut self) {
        self.predecessor_synced = true;
    }

    /// Whether every earlier log is known to be synced to its end.
    pub fn is_predecessor_synced(&self) -> bool {
        self.predecessor_synced
    }

    /// Syncs, writes a promise and the end marker, and syncs again. Returns the log's number and
    /// synced length, for a last manifest edit: with a `log_promise` of them, even the loss of the
    /// whole file is detected.
    ///
    /// # Errors
    /// I/O errors of the file system.
    pub fn finish_clean(mut self) -> Result<(LogNo, u64)> {
        self.sync_records()?;
        self.frames.append_promise()?;
        self.frames.append_special(FrameKind::End, &[])?;
        self.flush()?;
        self.frames.sync()?;
        assert_eq!(
            self.frames.synced(),
            self.frames.offset(),
            "log {} ends behind its last sync",
            self.number
        );
        Ok((self.number, self.frames.synced()))
    }

    /// Returns the predecessor fields for the head of the next log. The caller flushes first:
    /// buffered bytes would be counted, although they may never be written.
    pub fn predecessor(&self) -> Predecessor {
        assert_eq!(
            self.frames.buffered(),
            0,
            "log {} must be flushed before another follows it",
            self.number
        );
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

    /// Returns a handle for the memtables whose values stay in this log.
    pub fn values(&self) -> Arc<ValueLog> {
        ValueLog::new(&self.env, self.frames.path(), self.number, self.frames.birth())
    }

    /// Path of the log's file.
    pub fn path(&self) -> &Path {
        self.frames.path()
    }

    /// Offset of the next record.
    pub fn offset(&self) -> u64 {
        self.frames.offset()
    }

    /// Number of bytes handed to the operating system.
    pub fn flushed(&self) -> u64 {
        self.frames.flushed()
    }

    /// Number of bytes that are durable.
    pub fn synced(&self) -> u64 {
        self.frames.synced()
    }

    /// Number of bytes that are only buffered, or that a failed append would remove.
    pub fn buffered(&self) -> u64 {
        self.frames.buffered()
    }

    /// Memory that the writer holds.
    pub fn memory_bytes(&self) -> usize {
        self.frames.memory_bytes()
    }

    /// The last sequence number appended.
    pub fn last_seq(&self) -> SeqNo {
        self.last_seq
    }

    /// Whether a next log may take over (for example after `NoSpace`): no sync failed, and a failed
    /// append left the file truncated to its last complete record.
    pub fn may_be_followed(&self) -> bool {
        self.frames.may_be_followed()
    }
}

/// The sequence number of the last of `count` operations.
fn last_of(first_seq: SeqNo, count: u32) -> SeqNo {
    SeqNo(first_seq.0.saturating_add(u64::from(count).saturating_sub(1)))
}
