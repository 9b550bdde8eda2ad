//! Operations: everything that a caller can do, and the seeded generator of runs.
//!
//! Keys come from a small space so that writes collide. A few are unusual (empty, NUL, 0xFF,
//! prefixes of each other, longer than a block). The others are path-like with long common
//! prefixes, so that eight-byte heads tie. Values range from empty to larger than a write buffer,
//! and each differs from all others.

mod shown;

use std::ops::Bound;

use fastrand::Rng;
use shamba::{Allocation, MergePolicy};

pub use self::shown::{shown, shown_span};
use crate::expiry::is_fleeting;
use crate::oracle::{Change, Span};
use crate::vectors::Shape;

/// Letters that values share. Within a value they repeat after 2 KiB only, so a block of few values
/// is compressed well only with a dictionary.
static TEXT: [u8; 2048] = text();

const fn text() -> [u8; 2048] {
    let (mut text, mut state, mut at) = ([0; 2048], 1u64, 0);
    while at < text.len() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        text[at] = b'a' + (state >> 59) as u8 % 26;
        at += 1;
    }
    text
}

/// One operation of a caller.
#[derive(Clone, PartialEq, Eq)]
pub enum Op {
    /// A single write.
    Write(Change),
    /// A batch; `sync` requests `Durability::Sync`.
    Batch {
        /// The changes, in order.
        changes: Vec<Change>,
        /// Whether the commit must be durable when acknowledged.
        sync: bool,
    },
    /// A conditional write of a key: sets it, or removes it.
    Replace {
        /// Index into `SPACES`.
        space: usize,
        /// The key.
        key: Vec<u8>,
        /// The new value.
        new: Option<Vec<u8>>,
        /// Whether by an update, else by compare-and-swap.
        is_update: bool,
    },
    /// A transaction, from its beginning to its commit.
    Transaction(Box<TransactionOp>),
    /// Lets time pass, to the beginning of a later tick ([`crate::expiry::TICK_MS`]).
    Pass {
        /// Number of ticks.
        ticks: u64,
    },
    /// Sets the time to live of a key that has a value.
    Live {
        /// Index into `SPACES`.
        space: usize,
        /// The key.
        key: Vec<u8>,
        /// The ticks after which it ends; `None`: it lasts.
        ticks: Option<u64>,
    },
    /// Point reads of a key by every available method.
    Get {
        /// Index into `SPACES`.
        space: usize,
        /// The key.
        key: Vec<u8>,
    },
    /// One call for several keys.
    MultiGet {
        /// Index into `SPACES`.
        space: usize,
        /// The keys, possibly repeated.
        keys: Vec<Vec<u8>>,
    },
    /// A whole scan of a span.
    Scan {
        /// Index into `SPACES`.
        space: usize,
        /// The range of keys.
        span: Span,
        /// Whether it is backward.
        reverse: bool,
    },
    /// A scan consumed from both ends: bit i of `pattern` selects the end of step i.
    BothEnds {
        /// Index into `SPACES`.
        space: usize,
        /// The range of keys.
        span: Span,
        /// The end of each step.
        pattern: u64,
    },
    /// A scan of a prefix.
    Prefix {
        /// Index into `SPACES`.
        space: usize,
        /// The prefix.
        prefix: Vec<u8>,
        /// Whether it is backward.
        reverse: bool,
    },
    /// A sequence of cursor moves.
    Walk {
        /// Index into `SPACES`.
        space: usize,
        /// The moves, in order.
        moves: Vec<Move>,
    },
    /// Takes a snapshot.
    SnapshotTake,
    /// Reads an old snapshot: one key and a span of it.
    SnapshotRead {
        /// Its index, modulo the number of live ones.
        slot: usize,
        /// Index into `SPACES`.
        space: usize,
        /// The key.
        key: Vec<u8>,
        /// The range of the scan.
        span: Span,
    },
    /// Drops an old snapshot.
    SnapshotDrop {
        /// Its index, modulo the number of live ones.
        slot: usize,
    },
    /// Opens an iterator and keeps it.
    IterOpen {
        /// Index into `SPACES`.
        space: usize,
        /// The range of keys.
        span: Span,
    },
    /// Advances a kept iterator by some steps.
    IterStep {
        /// Its index, modulo the number of live ones.
        slot: usize,
        /// Whether it moves from the back.
        back: bool,
        /// Number of steps.
        steps: usize,
    },
    /// Flushes the memtables.
    Flush,
    /// Compacts everything.
    Compact,
    /// Compacts what overlaps a range.
    CompactRange {
        /// The keyspace.
        space: usize,
        /// The range.
        span: Span,
    },
    /// Syncs the log.
    Sync,
    /// Waits for background work.
    WaitIdle,
    /// Closes or drops the database and opens it again.
    Reopen {
        /// Whether it is closed rather than dropped (which equals a kill).
        clean: bool,
        /// Whether changeable options change.
        change_options: bool,
    },
    /// Makes a checkpoint, opens it and compares it.
    Checkpoint,
    /// Ingests sorted pairs as tables.
    Ingest(Vec<(Vec<u8>, Vec<u8>)>),
    /// Drops a keyspace and creates it again.
    DropSpace {
        /// Index into `SPACES`, not 0.
        space: usize,
    },
    /// Moves the live database to another design.
    Redesign(Redesign),
    /// Verifies every byte.
    Verify,
    /// Explains a lookup.
    Explain(Vec<u8>),
}

/// A transaction that reads, while something else is written, and then writes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TransactionOp {
    /// The keys that it reads, each with an index into `SPACES`.
    pub gets: Vec<(usize, Vec<u8>)>,
    /// The keyspace and the span of its scan, and whether that is backward.
    pub scan: (usize, Span, bool),
    /// Its writes, in order.
    pub changes: Vec<Change>,
    /// A write outside of it, between its reads and its writes.
    pub outside: Option<Change>,
    /// The ticks that pass after that write.
    pub ticks: u64,
    /// Whether it has snapshot isolation; else it is serializable.
    pub is_snapshot: bool,
    /// Whether the commit must be durable when acknowledged.
    pub sync: bool,
}

/// The target of a redesign.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Redesign {
    /// T in tenths.
    pub size_ratio_tenths: u32,
    /// K and Z.
    pub shape: Shape,
    /// Memtable size in bytes.
    pub write_buffer: u64,
    /// Filter bits per key in tenths.
    pub bits_tenths: u32,
    /// Total filter memory in bytes, if limited.
    pub filter_memory: Option<u64>,
    /// The basis of the allocation of filter bits.
    pub allocation: Allocation,
}

/// One move of a cursor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Move {
    /// To the first key at or after this one.
    Seek(Vec<u8>),
    /// To the last key at or before this one.
    SeekForPrev(Vec<u8>),
    /// To the first key.
    First,
    /// To the last key.
    Last,
    /// To the next key.
    Next,
    /// To the previous key.
    Prev,
}

/// The keys and values of one run.
#[derive(Clone, Copy, Debug)]
pub struct KeyShape {
    /// Number of different keys.
    pub universe: u32,
    /// Maximum length of an ordinary value in bytes.
    pub value_bytes: usize,
    /// One value in this many exceeds a frame of the log.
    pub huge_one_in: u32,
}

/// Maximum length of an operand in bytes: values grow by one with each merge.
const OPERAND_BYTES_MAX: usize = 2_000;

const AWKWARD: [&[u8]; 10] =
    [b"", b"\0", b"\0\0", b"a", b"a\0", b"ab", b"\xff", b"\xff\xff", b"p/0", b"p/1/"];

impl KeyShape {
    /// The key of a number.
    pub fn key(self, number: u32) -> Vec<u8> {
        match number as usize {
            n if n < AWKWARD.len() => AWKWARD[n].to_vec(),
            n if n == AWKWARD.len() => vec![b'k'; 5000],
            n if n % 97 == 0 => format!("p/{}/{}", n % 3, "long".repeat(n % 90)).into_bytes(),
            n => format!("p/{}/dir-{:02}/{n:05}", n % 3, n % 17).into_bytes(),
        }
    }

    fn any(self, rng: &mut Rng) -> Vec<u8> {
        // One key in eight comes from a few frequent ones, so that versions accumulate.
        let number = if rng.u8(..) < 32 { rng.u32(..16) } else { rng.u32(..self.universe) };
        self.key(number)
    }

    /// A key that may be absent: a neighbour of one that may be present.
    fn near(self, rng: &mut Rng) -> Vec<u8> {
        let mut key = self.any(rng);
        match rng.u8(..8) {
            0 => key.push(0),
            1 => drop(key.pop()),
            2 => key.push(b'~'),
            _ => {}
        }
        key
    }

    fn span(self, rng: &mut Rng) -> Span {
        let bound = |rng: &mut Rng, key| match rng.u8(..6) {
            0 => Bound::Unbounded,
            1 | 2 => Bound::Excluded(key),
            _ => Bound::Included(key),
        };
        let (mut low, mut high) = (self.near(rng), self.near(rng));
        // Reversed spans are kept with low probability: they must be empty and must not panic.
        if low > high && rng.u8(..16) != 0 {
            std::mem::swap(&mut low, &mut high);
        }
        (bound(rng, low), bound(rng, high))
    }

    /// A short span, so that one range delete does not empty the database.
    fn narrow_span(self, rng: &mut Rng) -> Span {
        if rng.u8(..64) == 0 {
            return self.span(rng);
        }
        let mut low = self.any(rng);
        let mut high = low.clone();
        match rng.u8(..4) {
            0 => high.push(b'9'),
            1 => high = self.key(rng.u32(..self.universe)),
            _ => match high.last_mut() {
                Some(last) => *last = last.saturating_add(2),
                None => high.push(b'a'),
            },
        }
        if high.len() + low.len() > 16 && rng.bool() {
            // The same directory.
            let cut = low.len().min(11);
            high = low[..cut].to_vec();
            high.push(0xff);
        }
        if low > high && rng.u8(..16) != 0 {
            std::mem::swap(&mut low, &mut high);
        }
        (Bound::Included(low), Bound::Excluded(high))
    }
}

/// Generates operations.
#[derive(Debug)]
pub struct Generator {
    rng: Rng,
    shape: KeyShape,
    values: u64,
    passes_time: bool,
}

impl Generator {
    /// A generator that is a function of its arguments.
    pub fn new(seed: u64, shape: KeyShape) -> Self {
        Self { rng: Rng::with_seed(seed), shape, values: 0, passes_time: false }
    }

    /// Lets time pass between the operations.
    #[must_use]
    pub fn passing_time(mut self) -> Self {
        self.passes_time = true;
        self
    }

    /// The next `count` operations.
    pub fn ops(&mut self, count: usize) -> Vec<Op> {
        (0..count).map(|_| self.op()).collect()
    }

    fn op(&mut self) -> Op {
        let shape = self.shape;
        match self.rng.u32(..1000) {
            0..8 if self.passes_time => Op::Pass { ticks: self.rng.u64(1..4) },
            8..14 if self.passes_time => Op::Live {
                space: self.space(),
                key: shape.any(&mut self.rng),
                ticks: self.rng.bool().then(|| self.rng.u64(1..6)),
            },
            0..380 => Op::Write(self.change()),
            380..400 => Op::Transaction(Box::new(self.transaction())),
            400..420 => match self.change() {
                Change::Put { space, key, value } => {
                    Op::Replace { space, key, new: Some(value), is_update: self.rng.bool() }
                }
                Change::Delete { space, key } => {
                    Op::Replace { space, key, new: None, is_update: self.rng.bool() }
                }
                other => Op::Write(other),
            },
            420..422 => Op::Batch { changes: self.burst(), sync: false },
            422..426 if self.passes_time => Op::Batch { changes: self.fleeting(), sync: false },
            422..530 => {
                let changes = (0..self.rng.usize(..12)).map(|_| self.change()).collect();
                Op::Batch { changes, sync: self.rng.u8(..4) == 0 }
            }
            530..720 => Op::Get { space: self.space(), key: shape.near(&mut self.rng) },
            720..760 => {
                let keys = (0..self.rng.usize(..20)).map(|_| shape.near(&mut self.rng)).collect();
                Op::MultiGet { space: self.space(), keys }
            }
            760..790 => {
                let (space, span) = (self.space(), shape.narrow_span(&mut self.rng));
                Op::Scan { space, span, reverse: self.rng.bool() }
            }
            790..795 => {
                let (space, span) = (self.space(), shape.span(&mut self.rng));
                Op::Scan { space, span, reverse: self.rng.bool() }
            }
            795..805 => {
                let (space, span) = (self.space(), shape.span(&mut self.rng));
                Op::BothEnds { space, span, pattern: self.rng.u64(..) }
            }
            805..815 => {
                let mut prefix = shape.any(&mut self.rng);
                prefix.truncate(self.rng.usize(..12));
                Op::Prefix { space: self.space(), prefix, reverse: self.rng.bool() }
            }
            815..845 => {
                let moves = (0..self.rng.usize(1..24)).map(|_| self.cursor_move()).collect();
                Op::Walk { space: self.space(), moves }
            }
            845..855 => Op::SnapshotTake,
            855..885 => Op::SnapshotRead {
                slot: self.rng.usize(..8),
                space: self.space(),
                key: shape.near(&mut self.rng),
                span: shape.narrow_span(&mut self.rng),
            },
            885..893 => Op::SnapshotDrop { slot: self.rng.usize(..8) },
            893..901 => Op::IterOpen { space: self.space(), span: shape.span(&mut self.rng) },
            901..945 => Op::IterStep {
                slot: self.rng.usize(..8),
                back: self.rng.u8(..3) == 0,
                steps: self.rng.usize(1..12),
            },
            945..960 => Op::Flush,
            960..962 => Op::Compact,
            962 => Op::CompactRange { space: self.space(), span: shape.span(&mut self.rng) },
            963..972 => Op::Sync,
            972..978 => Op::WaitIdle,
            978..983 => Op::Reopen { clean: self.rng.bool(), change_options: self.rng.bool() },
            983..985 => Op::Checkpoint,
            985..988 => {
                let count = self.rng.usize(1..40);
                let mut pairs = (0..count)
                    .map(|_| (shape.any(&mut self.rng), self.value()))
                    .collect::<std::collections::BTreeMap<_, _>>();
                pairs.retain(|_, value| value.len() < 3000);
                Op::Ingest(pairs.into_iter().collect())
            }
            988 => Op::DropSpace { space: self.rng.usize(1..3) },
            989..991 => Op::Verify,
            991..995 => Op::Redesign(self.redesign()),
            _ => Op::Explain(shape.near(&mut self.rng)),
        }
    }

    fn transaction(&mut self) -> TransactionOp {
        let shape = self.shape;
        let mut gets: Vec<_> =
            (0..self.rng.usize(..4)).map(|_| (self.space(), shape.near(&mut self.rng))).collect();
        let scan = (self.space(), shape.narrow_span(&mut self.rng), self.rng.bool());
        let changes: Vec<Change> = (0..self.rng.usize(..5)).map(|_| self.change()).collect();
        let outside = (self.rng.u8(..3) > 0).then(|| self.change());
        let (is_snapshot, sync) = (self.rng.u8(..3) == 0, self.rng.u8(..4) == 0);
        if let Some(
            Change::Put { space, key, .. } | Change::Delete { space, key } | Change::Merge { space, key, .. },
        ) = &outside
        {
            // Random keys seldom conflict.
            if self.rng.bool() {
                gets.push((*space, key.clone()));
            }
        }
        let ticks = if self.passes_time && self.rng.u8(..4) == 0 { self.rng.u64(1..3) } else { 0 };
        TransactionOp { gets, scan, changes, outside, ticks, is_snapshot, sync }
    }

    fn redesign(&mut self) -> Redesign {
        let rng = &mut self.rng;
        let shape = match rng.bool() {
            true => Shape::Named(MergePolicy::ALL[rng.usize(..MergePolicy::ALL.len())]),
            false => Shape::Fluid { inner: rng.u32(1..6), last: rng.u32(1..5) },
        };
        Redesign {
            size_ratio_tenths: rng.u32(20..70),
            shape,
            write_buffer: 1 << rng.u32(10..15),
            bits_tenths: rng.u32(..120),
            filter_memory: (rng.u8(..4) == 0).then(|| rng.u64(..4 << 10)),
            allocation: Allocation::ALL[rng.usize(..Allocation::ALL.len())],
        }
    }

    fn space(&mut self) -> usize {
        // Most operations go to the first keyspace, so that its tree grows deep.
        match self.rng.u8(..16) {
            0 | 1 => 1,
            2 => 2,
            _ => 0,
        }
    }

    /// One write.
    pub fn change(&mut self) -> Change {
        let space = self.space();
        match self.rng.u8(..100) {
            0..58 => Change::Put { space, key: self.shape.any(&mut self.rng), value: self.value() },
            58..82 => Change::Merge { space, key: self.shape.any(&mut self.rng), operand: self.operand() },
            82..97 => Change::Delete { space, key: self.shape.any(&mut self.rng) },
            _ => Change::DeleteRange { space, span: self.shape.narrow_span(&mut self.rng) },
        }
    }

    fn operand(&mut self) -> Vec<u8> {
        let mut operand = self.value();
        operand.truncate(OPERAND_BYTES_MAX);
        operand
    }

    /// Many short operands of one frequent key: so long a chain is folded by its readers.
    fn burst(&mut self) -> Vec<Change> {
        let (space, key) = (self.space(), self.shape.key(self.rng.u32(..16)));
        let operands = (0..self.rng.usize(30..90)).map(|_| {
            self.values += 1;
            format!("{:x}", self.values).into_bytes()
        });
        operands.map(|operand| Change::Merge { space, key: key.clone(), operand }).collect()
    }

    /// Puts of neighbouring keys that all expire soon: a table of them expires as a whole.
    fn fleeting(&mut self) -> Vec<Change> {
        /// Keys of numbers at this distance are in one directory.
        const DISTANCE: u32 = 3 * 17;
        let (space, first) = (self.space(), self.rng.u32(..DISTANCE));
        let keys = (first..self.shape.universe).step_by(DISTANCE as usize).take(16);
        let keys: Vec<Vec<u8>> = keys.map(|number| self.shape.key(number)).collect();
        let put = |key| {
            self.values += 1;
            let mut value = format!("{:x}.", self.values).into_bytes();
            value.resize(value.len() + self.rng.usize(..self.shape.value_bytes.max(1)), b'f');
            while !is_fleeting(&value) {
                value.push(b'f');
            }
            Change::Put { space, key, value }
        };
        keys.into_iter().map(put).collect()
    }

    fn value(&mut self) -> Vec<u8> {
        self.values += 1;
        let bytes = match self.rng.u32(..400) {
            _ if self.rng.u32(..self.shape.huge_one_in) == 0 => self.rng.usize(65_000..150_000),
            0..20 => return Vec::new(),
            20..60 => 8,
            60..397 => self.rng.usize(8..self.shape.value_bytes.max(9)),
            397..399 => self.rng.usize(1000..5000),
            _ => self.rng.usize(5000..20_000),
        };
        let mut value = format!("{:x}.", self.values).into_bytes();
        if self.rng.bool() {
            let text = TEXT.iter().cycle().skip(self.values as usize * 37 % TEXT.len());
            value.extend(text.take(bytes.saturating_sub(value.len())));
        } else {
            value.extend(std::iter::repeat_with(|| self.rng.u8(..)).take(bytes));
        }
        value
    }

    fn cursor_move(&mut self) -> Move {
        match self.rng.u8(..16) {
            0 | 1 => Move::Seek(self.shape.near(&mut self.rng)),
            2 | 3 => Move::SeekForPrev(self.shape.near(&mut self.rng)),
            4 => Move::First,
            5 => Move::Last,
            6..11 => Move::Next,
            _ => Move::Prev,
        }
    }
}
