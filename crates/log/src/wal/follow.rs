//! Reads the committed batches of one log, to which another thread may still append.
//!
//! The caller states how far the log is committed. Every record up to there is in the file, and
//! none of them is ever removed. What follows may be half written, or may be removed again after a
//! failed append, so nothing of it is kept: a record that ends beyond that sequence number is read
//! again by the next call.
//!
//! Not here: which log follows (the caller knows the chain).

use std::path::{Path, PathBuf};

use bytes::Bytes;
use shamba_env::Env;
use shamba_key::{LogNo, SeqNo};
use shamba_table::BirthId;

use super::head::Head;
use super::log_file_name;
use super::record::RecordView;
use crate::framing::{
    FileHeader, FileKind, FileWindow, FrameReader, FrameStep, HEADER_BYTES, HeaderFault, RecordKind,
};
use crate::{Error, Result};

/// One committed batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CommittedBatch {
    /// Sequence number of the first operation.
    pub first_seq: SeqNo,
    /// Sequence number of the last operation.
    pub last_seq: SeqNo,
    /// The operations in their encoding ([`super::encoded_ops`]).
    pub encoded: Bytes,
}

/// A reader of the committed batches of one log.
#[derive(Debug)]
pub struct LogFollower {
    env: Env,
    path: PathBuf,
    birth: BirthId,
    number: LogNo,
    /// Offset of the next record.
    offset: u64,
    /// The last sequence number before `offset`.
    seq: SeqNo,
    head: Head,
}

impl LogFollower {
    /// Opens log `number` of `dir` and reads its head.
    ///
    /// # Errors
    /// I/O errors; `Corruption` of the file header or the head; `Unsupported`.
    pub fn open(env: &Env, dir: &Path, number: LogNo) -> Result<Self> {
        let path = dir.join(log_file_name(number));
        let mut window = FileWindow::open(env, &path)?;
        let header = FileHeader::decode(FileKind::Wal, Some(number.0), window.at(0, HEADER_BYTES as usize)?);
        let birth = match header {
            Ok(header) => header.birth,
            Err(HeaderFault::Damaged(detail)) => {
                return Err(Error::corruption(&path, 0, "log header", detail));
            }
            Err(HeaderFault::Unsupported(detail)) => return Err(Error::unsupported(&path, detail)),
        };
        let corrupt = |detail| Error::corruption(&path, HEADER_BYTES, "log head", detail);
        let mut reader = FrameReader::new(window, number.0, birth);
        let head = match reader.next()? {
            FrameStep::Record(record) if record.kind == RecordKind::Head => {
                Head::decode(&record.payload, number).map_err(corrupt)?
            }
            FrameStep::Damage { detail, .. } => return Err(corrupt(detail)),
            _ => return Err(corrupt("the first record is not a head".to_owned())),
        };
        let (offset, seq) = (reader.offset(), head.base_seq);
        Ok(Self { env: env.clone(), path, birth, number, offset, seq, head })
    }

    /// The head of the log.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// The last sequence number that was read, or that before the first batch.
    pub fn seq(&self) -> SeqNo {
        self.seq
    }

    /// Passes the next batches to `take`, up to `through`, which are committed, and until
    /// `bytes_max` bytes are exceeded. Returns whether it stopped because the file has no more.
    ///
    /// # Errors
    /// I/O errors; `Corruption` for a record that is valid but does not follow the one before.
    pub fn read(
        &mut self,
        through: SeqNo,
        bytes_max: usize,
        take: &mut dyn FnMut(CommittedBatch),
    ) -> Result<Option<String>> {
        if self.seq >= through {
            return Ok(None);
        }
        let window = FileWindow::open(&self.env, &self.path)?;
        let mut reader = FrameReader::resume(window, self.number.0, self.birth, self.offset);
        let mut bytes = 0;
        // After an error the next call begins where this one has begun: nothing is skipped.
        let (mut offset, mut seq) = (self.offset, self.seq);
        let mut end = None;
        while seq < through && bytes <= bytes_max {
            let record = match reader.next()? {
                FrameStep::Record(record) => record,
                FrameStep::End => {
                    end = Some("it ends here".to_owned());
                    break;
                }
                FrameStep::Damage { detail, .. } => {
                    end = Some(detail);
                    break;
                }
            };
            if record.kind != RecordKind::Data {
                offset = record.end;
                continue;
            }
            let corrupt = |detail| Error::corruption(&self.path, record.offset, "batch", detail);
            let view = RecordView::decode(&record.payload, seq).map_err(corrupt)?;
            if view.first_seq() != seq.next() {
                let (first, due) = (view.first_seq(), seq.next());
                return Err(corrupt(format!("it begins with sequence number {first}, expected {due}")));
            }
            let mut last_seq = seq;
            for batch in view.batches() {
                last_seq = batch.last_seq();
                if last_seq > through {
                    break;
                }
                bytes += batch.encoded().len();
                let encoded = record.payload.slice_ref(batch.encoded());
                take(CommittedBatch { first_seq: batch.first_seq(), last_seq, encoded });
            }
            if last_seq > through {
                // The caller skips those batches of the record that it has when it reads it again.
                break;
            }
            (offset, seq) = (record.end, last_seq);
        }
        (self.offset, self.seq) = (offset, seq);
        Ok(end)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Offset of the next record.
    pub fn offset(&self) -> u64 {
        self.offset
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use shamba_env::{MemFs, Vfs, append_all};
    use shamba_key::KeyspaceId;

    use super::*;
    use crate::wal::{OpRef, WalWriter, encode_op, encoded_ops};

    fn world() -> Env {
        Env::deterministic(Arc::new(MemFs::new()) as Arc<dyn Vfs>, 1)
    }

    fn put(wal: &mut WalWriter, seq: u64, key: &[u8]) {
        let op = OpRef::Put { key, value: b"v" };
        wal.append_op(SeqNo(seq), KeyspaceId(0), op).expect("appended");
    }

    fn read(follower: &mut LogFollower, through: u64) -> (Vec<u64>, bool) {
        let mut seqs = Vec::new();
        let mut take = |batch: CommittedBatch| {
            assert_eq!(encoded_ops(&batch.encoded).count() as u64, batch.last_seq.0 - batch.first_seq.0 + 1);
            seqs.push(batch.last_seq.0);
        };
        let rest = follower.read(SeqNo(through), 1 << 20, &mut take).expect("read");
        (seqs, rest.is_some())
    }

    #[test]
    fn only_committed_batches_are_returned_while_the_log_grows() {
        let env = world();
        let mut wal = WalWriter::create(&env, Path::new("/"), LogNo(3), None, SeqNo(10)).expect("created");
        let mut follower = LogFollower::open(&env, Path::new("/"), LogNo(3)).expect("opened");
        assert_eq!((follower.seq(), follower.head().predecessor), (SeqNo(10), None));
        put(&mut wal, 11, b"a");
        put(&mut wal, 12, b"b");
        assert_eq!(read(&mut follower, 12), (vec![], true), "it is in the buffer");
        wal.sync().expect("synced");
        assert_eq!(read(&mut follower, 10), (vec![], false));
        assert_eq!(read(&mut follower, 11), (vec![11], false), "half of the record");
        assert_eq!(read(&mut follower, 12), (vec![11, 12], false), "the record again");
        put(&mut wal, 13, &[7; 200_000][..60_000]);
        put(&mut wal, 14, b"c");
        wal.flush().expect("flushed");
        assert_eq!(read(&mut follower, 13), (vec![13], false));
        assert_eq!(read(&mut follower, 14), (vec![13, 14], false), "one record");
        assert_eq!(read(&mut follower, 15), (vec![], true));
        // A batch is returned as a whole, or not yet.
        let mut ops = Vec::new();
        encode_op(&mut ops, true, KeyspaceId(0), OpRef::Put { key: b"d", value: b"v" });
        encode_op(&mut ops, false, KeyspaceId(0), OpRef::Delete { key: b"e" });
        wal.append_batch(SeqNo(15), 2, &ops).expect("appended");
        wal.flush().expect("flushed");
        assert_eq!(read(&mut follower, 15), (vec![], false));
        assert_eq!(read(&mut follower, 16), (vec![16], false));
    }

    #[test]
    fn a_torn_end_is_read_again_once_it_is_whole() {
        let env = world();
        let path = Path::new("/000003.log");
        let mut wal = WalWriter::create(&env, Path::new("/"), LogNo(3), None, SeqNo(0)).expect("created");
        put(&mut wal, 1, b"a");
        put(&mut wal, 2, &[1; 300]);
        wal.flush().expect("flushed");
        let whole = shamba_env::read_file(env.vfs.as_ref(), path).expect("read");
        let write = |bytes: &[u8]| {
            env.vfs.unlink(path).expect("removed");
            append_all(env.vfs.create(path).expect("created").as_mut(), bytes).expect("written");
        };
        let mut follower = LogFollower::open(&env, Path::new("/"), LogNo(3)).expect("opened");
        for cut in [whole.len() - 1, whole.len() - 200] {
            write(&whole[..cut]);
            assert_eq!(read(&mut follower, 2), (vec![], true));
        }
        write(&whole);
        assert_eq!(read(&mut follower, 2), (vec![1, 2], false));
    }

    #[test]
    fn a_read_stops_after_the_record_that_exceeds_the_limit_and_the_next_goes_on() {
        let env = world();
        let mut wal = WalWriter::create(&env, Path::new("/"), LogNo(3), None, SeqNo(0)).expect("created");
        let mut follower = LogFollower::open(&env, Path::new("/"), LogNo(3)).expect("opened");
        assert_eq!(follower.offset(), wal.flushed(), "behind the head");
        let mut ends = Vec::new();
        for seq in 1..=6 {
            put(&mut wal, seq, b"k");
            wal.flush().expect("flushed");
            ends.push(wal.flushed());
        }
        // An operation takes five bytes: its kind, and two strings of one byte with their lengths.
        for (bytes_max, due) in [(0, vec![1]), (4, vec![2]), (5, vec![3, 4]), (1_000, vec![5, 6])] {
            let mut seqs = Vec::new();
            let end = follower.read(SeqNo(6), bytes_max, &mut |batch| seqs.push(batch.last_seq.0));
            assert_eq!(end.expect("read"), None);
            assert_eq!(seqs, due, "{bytes_max} bytes at most");
            let last = *due.last().expect("a batch");
            assert_eq!((follower.seq(), follower.offset()), (SeqNo(last), ends[last as usize - 1]));
        }
    }
}
