//! Tests of the log: the result of replay after every kind of damage.
//!
//! A [`Story`] is a small sequence of logs, written by the real writer and then parsed frame by
//! frame. From the frames a test knows which bytes are promised and where each batch ends. So it
//! can compute the exact result of replay after any damage.

mod chain;
mod damage;
mod format;
mod writing;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use shamba_env::{Env, MemFs, Rng, SeededRng, append_all, read_file};
use shamba_key::{Expiry, Operand, SeqNo};

use super::head::{Head, Predecessor};
use super::*;
use crate::framing::frame::{FRAME_HEADER_BYTES, FileIdentity, Frame, FrameHeader, FrameKind};
use crate::framing::header::HEADER_BYTES;
use crate::framing::{FileHeader, FileKind};
use crate::{Error, Result};
use shamba_key::KeyspaceId;

pub(super) const DIR: &str = "/db";

/// One operation with owned keys and values.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Op {
    Put { key: Vec<u8>, value: Vec<u8> },
    PutExpiring { key: Vec<u8>, stored: Vec<u8> },
    Delete { key: Vec<u8> },
    RangeDelete { start: Vec<u8>, end: Option<Vec<u8>> },
    Merge { key: Vec<u8>, operand: Vec<u8> },
}

impl From<OpRef<'_>> for Op {
    fn from(op: OpRef<'_>) -> Self {
        match op {
            OpRef::Put { key, value } => Self::Put { key: key.to_vec(), value: value.to_vec() },
            OpRef::PutExpiring { key, stored } => {
                Self::PutExpiring { key: key.to_vec(), stored: stored.to_vec() }
            }
            OpRef::Delete { key } => Self::Delete { key: key.to_vec() },
            OpRef::Merge { key, operand } => Self::Merge { key: key.to_vec(), operand: operand.to_vec() },
            OpRef::RangeDelete { start, end } => {
                Self::RangeDelete { start: start.to_vec(), end: end.map(<[u8]>::to_vec) }
            }
        }
    }
}

type Ops = Vec<(SeqNo, KeyspaceId, Op)>;

/// Creates a fresh environment.
pub(super) fn new_env(seed: u64) -> Env {
    let vfs = MemFs::new();
    let env = Env::deterministic(Arc::new(vfs), seed);
    env.vfs.create_dir_all(Path::new(DIR)).expect("a directory");
    env
}

/// Returns a random batch: the number of operations and their encoding.
pub(super) fn random_ops(rng: &SeededRng, value_bytes: usize) -> (u32, Vec<u8>) {
    let count = 1 + (rng.next_u64() % 3) as u32;
    let mut ops = Vec::new();
    for _ in 0..count {
        let key = format!("k{}", rng.next_u64() % 50);
        let value = vec![rng.next_u64() as u8; value_bytes];
        let end = format!("{key}~");
        // A large batch contains only puts, so that it is certainly large.
        let choice = if value_bytes < 1_000 { rng.next_u64() % 7 } else { 5 + rng.next_u64() % 2 };
        let stored = Expiry(rng.next_u64()).encode(&value);
        let op = match choice {
            0 => OpRef::Delete { key: key.as_bytes() },
            1 => OpRef::RangeDelete { start: key.as_bytes(), end: None },
            2 => OpRef::RangeDelete { start: key.as_bytes(), end: Some(end.as_bytes()) },
            3 => OpRef::Merge { key: key.as_bytes(), operand: b"\0operand" },
            4 | 5 => OpRef::Put { key: key.as_bytes(), value: &value },
            _ => OpRef::PutExpiring { key: key.as_bytes(), stored: &stored },
        };
        let is_first = ops.is_empty();
        encode_op(&mut ops, is_first, KeyspaceId((rng.next_u64() % 2) as u32), op);
    }
    (count, ops)
}

/// One step of a story.
#[derive(Clone, Copy, Debug)]
pub(super) enum Act {
    /// Appends a batch with values of this many bytes.
    Batch(usize),
    Flush,
    Sync,
    /// A next log takes over, with or without a sync of this one.
    Rotate {
        sync: bool,
    },
    /// Closes the last log cleanly.
    Finish,
}

/// One frame of a story's log.
#[derive(Clone, Copy, Debug)]
pub(super) struct FrameAt {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) kind: FrameKind,
    pub(super) promise: u64,
}

/// One log of a story and its frames.
#[derive(Clone, Debug)]
pub(super) struct LogFile {
    pub(super) number: LogNo,
    pub(super) bytes: Vec<u8>,
    pub(super) frames: Vec<FrameAt>,
    pub(super) head: Head,
}

impl LogFile {
    pub(super) fn path(&self) -> PathBuf {
        Path::new(DIR).join(log_file_name(self.number))
    }
}

/// One batch of a story.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct BatchAt {
    /// Index of the log.
    pub(super) log: usize,
    pub(super) end: u64,
    pub(super) ops: Ops,
}

/// A sequence of logs and the batches in it.
#[derive(Clone, Debug)]
pub(super) struct Story {
    pub(super) logs: Vec<LogFile>,
    pub(super) batches: Vec<BatchAt>,
}

impl Story {
    /// Writes the logs of a story.
    pub(super) fn write(seed: u64, acts: &[Act]) -> Self {
        let env = new_env(seed);
        let rng = SeededRng::new(seed);
        let dir = Path::new(DIR);
        let mut number = LogNo(7);
        let mut wal = WalWriter::create(&env, dir, number, None, SeqNo::ZERO).expect("a log");
        let mut numbers = vec![number];
        let mut batches = Vec::new();
        for act in acts {
            match *act {
                Act::Batch(value_bytes) => {
                    let (count, ops) = random_ops(&rng, value_bytes);
                    let first_seq = wal.last_seq().next();
                    wal.append_batch(first_seq, count, &ops).expect("appended");
                    let ops = (first_seq.0..).zip(encoded_ops(&ops));
                    let ops = ops.map(|(seq, (keyspace, op))| (SeqNo(seq), keyspace, op.into())).collect();
                    batches.push(BatchAt { log: numbers.len() - 1, end: wal.offset(), ops });
                }
                Act::Flush => wal.flush().expect("flushed"),
                Act::Sync => {
                    wal.predecessor_is_synced();
                    wal.sync().expect("synced");
                }
                Act::Rotate { sync } => {
                    wal.flush().expect("flushed");
                    if sync {
                        wal.predecessor_is_synced();
                        wal.sync().expect("synced");
                    }
                    number = LogNo(number.0 + 3);
                    numbers.push(number);
                    let before = Some(wal.predecessor());
                    wal = WalWriter::create(&env, dir, number, before, SeqNo::ZERO).expect("a log");
                }
                Act::Finish => {
                    wal.predecessor_is_synced();
                    wal.finish_clean().expect("closed");
                    break;
                }
            }
        }
        let logs: Vec<LogFile> = numbers.into_iter().map(|number| take_apart(&env, number)).collect();
        for batch in &mut batches {
            // Batches that were flushed together share a frame and are lost together.
            let ends = logs[batch.log].frames.iter().map(|frame| frame.end);
            batch.end = ends.filter(|&end| end >= batch.end).min().expect("a frame holds it");
        }
        Self { logs, batches }
    }

    /// Restores the story's files in a fresh environment, with some of them replaced (`None`:
    /// deleted).
    pub(super) fn restore(&self, replaced: &[(usize, Option<Vec<u8>>)]) -> Env {
        let env = new_env(1);
        for (index, log) in self.logs.iter().enumerate() {
            let bytes = match replaced.iter().find(|(which, _)| *which == index) {
                Some((_, replacement)) => replacement.clone(),
                None => Some(log.bytes.clone()),
            };
            if let Some(bytes) = bytes {
                let mut file = env.vfs.create(&log.path()).expect("a file");
                append_all(file.as_mut(), &bytes).expect("written");
            }
        }
        env
    }

    pub(super) fn options(&self) -> ReplayOptions {
        ReplayOptions { first_log: self.logs[0].number, ..ReplayOptions::default() }
    }

    /// Offset at which replay ends a log: the length stated by the next head, otherwise the file
    /// length.
    pub(super) fn used_bytes(&self, index: usize) -> u64 {
        let next = self.logs.get(index + 1).and_then(|next| next.head.predecessor);
        next.map_or(self.logs[index].bytes.len() as u64, |before| before.bytes)
    }

    /// Checks that `got` are the first `count` batches.
    pub(super) fn check_prefix(&self, got: &[Ops], count: usize) {
        assert_eq!(got.len(), count, "batches replayed");
        for (got, batch) in got.iter().zip(&self.batches) {
            assert_eq!(*got, batch.ops);
        }
    }
}

fn take_apart(env: &Env, number: LogNo) -> LogFile {
    let path = Path::new(DIR).join(log_file_name(number));
    let bytes = read_file(env.vfs.as_ref(), &path).expect("the log");
    let header = FileHeader::decode(FileKind::Wal, Some(number.0), &bytes[..HEADER_BYTES as usize]);
    let file = FileIdentity { number: number.0, birth: header.expect("a header").birth };
    let mut frames = Vec::new();
    let mut at = HEADER_BYTES as usize;
    while at < bytes.len() {
        let header = FrameHeader::decode(&bytes[at..]).expect("a frame header");
        let Frame { kind, promise, .. } =
            Frame::decode(file, header, at as u64, &bytes[at..]).expect("a frame");
        let (start, end) = (at as u64, (at + header.frame_bytes()) as u64);
        frames.push(FrameAt { start, end, kind, promise });
        at += header.frame_bytes();
    }
    let head_at = HEADER_BYTES as usize + FRAME_HEADER_BYTES;
    let head = Head::decode(&bytes[head_at..frames[0].end as usize], number).expect("a head");
    LogFile { number, bytes, frames, head }
}

/// Numbers of all logs in the directory.
pub(super) fn list_logs(env: &Env) -> Vec<LogNo> {
    let entries = env.vfs.list(Path::new(DIR)).expect("a directory");
    entries.iter().filter_map(|entry| parse_log_file_name(&entry.name)).collect()
}

type Replayed = (ReplayReport, Vec<Ops>);

/// Replays all logs in the directory.
pub(super) fn replay_all(env: &Env, options: &ReplayOptions) -> Result<Replayed> {
    let mut got = Vec::new();
    let logs = list_logs(env);
    let report = replay(env, Path::new(DIR), &logs, options, &mut |batch| {
        let mut ops = Ops::new();
        batch.for_each(&mut |seq, keyspace, op| {
            let op = match op {
                ReplayedOp::Op(op) => op.into(),
                ReplayedOp::PutInLog { key, expiry, log, place } => {
                    let values = ValueLogs::default();
                    values.add(log);
                    let value = values.read_whole(&place.encode(), &mut shamba_table::Reads::default())?;
                    assert_eq!(values.value_bytes(&place.encode())?, value.len() as u64);
                    match expiry {
                        None => Op::Put { key: key.to_vec(), value },
                        Some(expiry) => {
                            assert_eq!(Expiry::split(&value).map(|(told, _)| told), Ok(expiry));
                            Op::PutExpiring { key: key.to_vec(), stored: value }
                        }
                    }
                }
            };
            ops.push((seq, keyspace, op));
            Ok(())
        })?;
        got.push(ops);
        Ok(())
    })?;
    Ok((report, got))
}

pub(super) fn damaged_file(error: &Error) -> PathBuf {
    let Error::Corruption { file, .. } = error else { panic!("not damage: {error:?}") };
    file.clone()
}

/// The stories of the damage tests: with and without promises, with clean and unclean ends.
pub(super) fn stories() -> Vec<Story> {
    use Act::{Batch, Finish, Flush, Rotate, Sync};
    let told: [&[Act]; 6] = [
        &[Batch(3), Batch(0), Sync, Batch(9), Batch(1), Sync, Finish],
        &[
            Batch(3),
            Flush,
            Rotate { sync: false },
            Batch(2),
            Batch(5),
            Rotate { sync: false },
            Batch(1),
            Flush,
        ],
        &[
            Batch(3),
            Rotate { sync: true },
            Batch(2),
            Sync,
            Batch(5),
            Rotate { sync: true },
            Batch(1),
            Sync,
            Batch(2),
            Flush,
        ],
        &[
            Batch(3),
            Sync,
            Batch(4),
            Rotate { sync: false },
            Batch(2),
            Rotate { sync: false },
            Batch(1),
            Flush,
        ],
        &[Batch(3), Sync, Rotate { sync: false }, Flush],
        &[Batch(1), Rotate { sync: true }, Rotate { sync: true }, Batch(2), Finish],
    ];
    told.iter().enumerate().map(|(index, acts)| Story::write(index as u64 + 1, acts)).collect()
}

/// A story with records of several frames.
pub(super) fn long_story() -> Story {
    use Act::{Batch, Flush, Sync};
    Story::write(3, &[Batch(2), Batch(150_000), Sync, Batch(70_000), Flush])
}

#[test]
fn undamaged_logs_give_back_every_batch() {
    for story in stories().into_iter().chain([long_story()]) {
        let (report, got) = replay_all(&story.restore(&[]), &story.options()).expect("replayed");
        story.check_prefix(&got, story.batches.len());
        assert_eq!(report.warnings, []);
        let ops: usize = story.batches.iter().map(|batch| batch.ops.len()).sum();
        assert_eq!((report.batches, report.ops), (story.batches.len() as u64, ops as u64));
        assert_eq!(report.last_seq, SeqNo(ops as u64));
        let ends_clean = story.logs.last().and_then(|log| log.frames.last());
        assert_eq!(report.clean, ends_clean.is_some_and(|frame| frame.kind == FrameKind::End));
        for (index, replayed) in report.logs.iter().enumerate() {
            assert_eq!(replayed.valid_bytes, story.used_bytes(index));
        }
    }
}

#[test]
fn file_names_round_trip_and_others_are_refused() {
    assert_eq!(log_file_name(LogNo(7)), "000007.log");
    for number in [1, 7, 999_999, 1_000_000, u64::MAX] {
        assert_eq!(parse_log_file_name(&log_file_name(LogNo(number))), Some(LogNo(number)));
    }
    for name in ["7.log", "000000.log", "+00007.log", "0000007.log", "000007.sst", "000007.log2", ".log"] {
        assert_eq!(parse_log_file_name(name), None, "{name}");
    }
}
