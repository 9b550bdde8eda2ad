//! The databases that are damaged, and all that was written to them.
//!
//! Each key's value is a put and the operands that were merged onto it, in the order of their
//! commits. So a value that a repair returns shows which of them it holds.
//!
//! In some databases one keyspace has a compaction filter. The verdicts that its readers see before
//! the database ends are in the oracle. Some keep their logs for streams of changes, and are opened
//! again after an unclean end, so that positions of several epochs exist.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use shamba::env::{Env, MemFs};
use shamba::filter::Verdict;
use shamba::{
    Builder, ChangePosition, Compression, Db, Keyspace, KeyspaceOptions, MergePolicy, Prefix, ValueThreshold,
    WriteOptions,
};
use shamba_tests::compare::Spaces;
use shamba_tests::expiry;
use shamba_tests::files::{Files, files_of};
use shamba_tests::filters::{self, verdict};
use shamba_tests::operators::{SEPARATOR, appending};
use shamba_tests::ops::Op;
use shamba_tests::oracle::{Change, Moment, Oracle, SPACES, State};
use shamba_tests::runner::note_verdicts;
use shamba_tests::vectors::BUDGET_BYTES;

use super::{HOME, UNATTRIBUTED};

/// The keyspace with a compaction filter: an index into [`SPACES`].
pub const FILTERED: usize = 1;

/// A database on disk, and its writes.
pub struct Subject {
    pub files: Files,
    pub oracle: Oracle,
    /// The last commit that is in tables.
    pub flushed: u64,
    pub written: Written,
    pub rules: Rules,
    /// Positions in its stream of changes.
    pub positions: Vec<ChangePosition>,
    /// Verdicts of the compaction filter that were seen.
    pub verdicts: u64,
}

impl Subject {
    /// The moment after a commit, with all verdicts that were seen.
    pub fn after(&self, commit: u64) -> Moment {
        Moment { commit, ms: 0, turn: u64::MAX }
    }

    /// The newest state, with all verdicts that were seen.
    pub fn state(&self) -> State {
        self.oracle.state(self.after(self.oracle.issued()))
    }

    /// Whether a compaction may have made `got` of a value.
    pub fn may_become(&self, space: usize, key: &[u8], value: Option<&[u8]>, got: Option<&[u8]>) -> bool {
        let is_filtered = self.rules.is_filtered && space == FILTERED;
        let left = match value.map(|value| verdict(key, value)).filter(|_| is_filtered) {
            Some(Verdict::Replace(value)) => Some(value),
            Some(Verdict::Remove) => None,
            _ => return false,
        };
        left.as_deref() == got
    }
}

/// The puts and operands that a key ever had, by keyspace and key, each with its commit.
#[derive(Default)]
pub struct Written(BTreeMap<(usize, Vec<u8>), Vec<Part>>);

/// A put or an operand.
struct Part {
    commit: u64,
    bytes: Vec<u8>,
    is_operand: bool,
}

impl Written {
    fn add(&mut self, space: usize, key: &[u8], part: Part) {
        self.0.entry((space, key.to_vec())).or_default().push(part);
    }

    /// Whether a value consists of a put or nothing, followed by operands: all of this key in one
    /// of the keyspaces, each later than the one before it.
    pub fn has(&self, spaces: std::ops::Range<usize>, key: &[u8], value: &[u8]) -> bool {
        let mut parts = value.split(|byte| SEPARATOR == [*byte]);
        let mut last = 0;
        let mut is_first = true;
        parts.all(|bytes| {
            let of_key = spaces.clone().filter_map(|space| self.0.get(&(space, key.to_vec()))).flatten();
            let may_be =
                |part: &&Part| part.bytes == bytes && part.commit > last && (is_first || part.is_operand);
            let Some(commit) = of_key.filter(may_be).map(|part| part.commit).min() else { return false };
            (last, is_first) = (commit, false);
            true
        })
    }

    /// Whether a value of the key has operands and no put below them.
    pub fn is_without_put(&self, space: usize, key: &[u8], value: &[u8]) -> bool {
        let first = value.split(|byte| SEPARATOR == [*byte]).next().unwrap_or_default();
        let parts = self.0.get(&(space, key.to_vec())).into_iter().flatten();
        parts.filter(|part| part.bytes == first).any(|part| part.is_operand)
    }
}

/// Options that the keyspaces of a database record.
#[derive(Clone, Copy)]
pub struct Rules {
    combines: bool,
    /// Whether [`FILTERED`] has the suites' compaction filter.
    pub is_filtered: bool,
    /// Whether logs are kept for streams of changes.
    pub keeps_logs: bool,
    pub prefix: Option<Prefix>,
    /// Of the last keyspace.
    pub own: &'static [(&'static str, &'static str)],
}

const OWN: [&[(&str, &str)]; 3] = [
    &[],
    &[("compression", "zstd"), ("policy", "tiering"), ("value-threshold", "64")],
    &[("block-size", "256"), ("bits-per-key", "6.5"), ("file-size", "1024")],
];

impl Rules {
    /// Those of a case.
    pub fn of(index: usize) -> Self {
        let prefix = [None, Some(Prefix::Fixed(2)), Some(Prefix::Capped(3)), Some(Prefix::Delimited(b'1'))];
        Self {
            combines: index.is_multiple_of(2),
            is_filtered: index % 3 == 1,
            keeps_logs: index / 2 % 2 == 1,
            prefix: prefix[index / 2 % 4],
            own: OWN[index / 3 % 3],
        }
    }

    /// Gives all keyspaces their options.
    fn all(self, builder: Builder) -> Builder {
        let builder = match self.keeps_logs {
            true => builder.keep_log(16 << 20, Duration::from_secs(1 << 30)).record(),
            false => builder,
        };
        SPACES.iter().enumerate().fold(builder, |builder, (number, space)| {
            let own = if Some(space) == SPACES.last() { self.own } else { &[] };
            let options = match self.prefix {
                Some(prefix) => self.operators().prefix(prefix),
                None => self.operators(),
            };
            let options = own.iter().fold(options, |options, (name, value)| {
                options.set_option(name, value).expect("an option of a keyspace")
            });
            let is_filtered = self.is_filtered && number == FILTERED;
            builder.keyspace(space, if is_filtered { filters::ruled(options) } else { options })
        })
    }

    /// Gives all keyspaces that a repair may create their merge operator, and no other options.
    pub fn merging(self, builder: Builder) -> Builder {
        self.merging_with(builder, |_| self.operators())
    }

    /// [`Self::merging`], with the options that `of` returns for a keyspace.
    pub fn merging_with(self, builder: Builder, of: impl Fn(&str) -> KeyspaceOptions) -> Builder {
        let unknown = (1..=SPACES.len()).map(|number| format!("keyspace-{number}"));
        let names = SPACES.iter().map(|name| (*name).to_owned()).chain([UNATTRIBUTED.to_owned()]);
        names.chain(unknown).fold(builder, |builder, name| builder.keyspace(&name, of(&name)))
    }

    pub fn operators(self) -> KeyspaceOptions {
        appending(self.combines)
    }
}

pub struct Writer {
    pub spaces: Spaces,
    pub oracle: Oracle,
    written: Written,
    pub flushed: u64,
    rules: Rules,
    positions: Vec<ChangePosition>,
    reopen: Box<dyn Fn() -> Db>,
}

pub fn key(number: usize) -> Vec<u8> {
    format!("k{:03}", number).into_bytes()
}

impl Writer {
    pub fn open(fs: &MemFs, rng: &mut Rng, index: usize) -> Self {
        let policies = [MergePolicy::Leveling, MergePolicy::Tiering, MergePolicy::LazyLeveling];
        let filters = ["blocked", "modular", "standard", "standard-double"];
        let threshold = if index % 5 < 2 { ValueThreshold::Bytes(100) } else { ValueThreshold::Off };
        let write_buffer = rng.u64(3..9) << 10;
        let (file_bytes, block_bytes) = (rng.u64(3..9) << 10, rng.usize(200..900));
        let rules = Rules::of(index);
        let env = Env::deterministic(Arc::new(fs.clone()), 1);
        let reopen = move || {
            let builder = Db::builder(HOME)
                .env(env.clone())
                .info_log(false)
                .memory_budget(BUDGET_BYTES)
                .merge_policy(policies[index % 3])
                .compression(Compression::ALL[index / 3 % 3])
                .experimental(|e| e.value_threshold(threshold))
                .experimental(|e| e.filter_layout(filters[index / 9 % 4].parse().expect("a filter")))
                .size_ratio(3.0)
                .write_buffer(write_buffer)
                .experimental(|e| e.file_size(file_bytes).block_bytes(block_bytes).large_values(400, 150));
            rules.all(builder).open().expect("opened")
        };
        let spaces = Spaces::create(reopen()).expect("keyspaces");
        let positions = vec![spaces.db.change_position()];
        Self {
            spaces,
            oracle: Oracle::new(),
            written: Written::default(),
            flushed: 0,
            rules,
            positions,
            reopen: Box::new(reopen),
        }
    }

    /// Opens the database again that was not closed.
    fn reopen(self) -> Self {
        drop(self.spaces);
        let spaces = Spaces::existing((self.reopen)()).expect("keyspaces");
        Self { spaces, ..self }
    }

    fn is_filtered(&self, space: usize) -> bool {
        self.rules.is_filtered && space == FILTERED
    }

    /// The handle of a keyspace.
    fn handle(&self, space: usize) -> Keyspace {
        self.spaces.db.keyspace(SPACES[space]).expect("created")
    }

    pub fn put(&mut self, space: usize, key: Vec<u8>, value: Vec<u8>) {
        self.handle(space).put_with(&key, &value, expiry::options(&value)).expect("put");
        let change = Change::Put { space, key: key.clone(), value: value.clone() };
        let commit = self.oracle.commit(&[change]);
        if let (true, Verdict::Replace(bytes)) = (self.is_filtered(space), verdict(&key, &value)) {
            self.written.add(space, &key, Part { commit, bytes, is_operand: false });
        }
        self.written.add(space, &key, Part { commit, bytes: value, is_operand: false });
    }

    /// Writes a put or an operand. In the filtered keyspace it is one that the oracle can follow.
    fn write(&mut self, change: Change) {
        let mut op = Op::Write(change);
        let space = |op: &Op| match op {
            Op::Write(Change::Put { space, .. } | Change::Merge { space, .. }) => *space,
            _ => 0,
        };
        if self.is_filtered(space(&op)) {
            filters::suit(&mut op);
        }
        match op {
            Op::Write(Change::Put { space, key, value }) => self.put(space, key, value),
            Op::Write(Change::Merge { space, key, operand }) => self.merge(space, key, operand),
            other => panic!("{other:?} is neither a put nor an operand"),
        }
    }

    fn merge(&mut self, space: usize, key: Vec<u8>, operand: Vec<u8>) {
        self.handle(space).merge(&key, &operand).expect("merge");
        let change = Change::Merge { space, key: key.clone(), operand: operand.clone() };
        let commit = self.oracle.commit(&[change]);
        self.written.add(space, &key, Part { commit, bytes: operand, is_operand: true });
    }

    /// Deletes a key, or writes a value that has expired at once.
    fn delete(&mut self, space: usize, key: Vec<u8>) {
        match expiry::instead_of_delete(self.oracle.issued()) {
            None => self.handle(space).delete(&key),
            Some(value) => {
                let now = WriteOptions::new().time_to_live(Duration::ZERO);
                self.handle(space).put_with(&key, value, now)
            }
        }
        .expect("delete");
        self.oracle.commit(&[Change::Delete { space, key }]);
    }

    fn step(&mut self, rng: &mut Rng) {
        let elsewhere = rng.u8(..4) == 0;
        let number = rng.usize(..250);
        let space = match elsewhere {
            true => rng.usize(1..SPACES.len()),
            // Enough values that a compaction meets the newest one of a key.
            false if self.rules.is_filtered && number.is_multiple_of(2) => FILTERED,
            false => 0,
        };
        match rng.u32(..100) {
            0..62 => {
                let length = if rng.u8(..12) == 0 { rng.usize(400..1_500) } else { rng.usize(1..120) };
                let (byte, start) = (rng.alphanumeric(), rng.u64(..));
                let start = if self.is_filtered(space) { format!("{start:x}.") } else { start.to_string() };
                let value = [start.into_bytes(), vec![byte as u8; length]].concat();
                self.write(Change::Put { space, key: key(number), value });
            }
            62..84 => {
                let operand = [rng.u64(..).to_string().into_bytes(), vec![b'+'; rng.usize(..60)]].concat();
                self.write(Change::Merge { space, key: key(number), operand });
            }
            84..94 => self.delete(space, key(number)),
            94..98 => {
                let (from, to) = (key(number), key(number + rng.usize(1..30)));
                let range = from.clone()..to.clone();
                self.handle(space).delete_range(range).expect("delete_range");
                let span = (Bound::Included(from), Bound::Excluded(to));
                self.oracle.commit(&[Change::DeleteRange { space, span }]);
            }
            98 => {
                self.spaces.db.flush().expect("flush");
                self.flushed = self.oracle.issued();
            }
            _ => {
                self.spaces.db.sync().expect("sync");
                self.oracle.mark_durable();
            }
        }
    }

    pub fn finish(mut self, fs: &MemFs, is_closed: bool) -> Subject {
        let now = Moment { commit: self.oracle.issued(), ms: 0, turn: 1 };
        let verdicts = match self.rules.is_filtered {
            true => note_verdicts(&self.spaces, &mut self.oracle, now).expect("a verdict of the filter"),
            false => 0,
        };
        self.positions.push(self.spaces.db.change_position());
        let Spaces { db, others } = self.spaces;
        drop(others);
        match is_closed {
            true => {
                db.close().expect("close");
                self.oracle.mark_durable();
            }
            false => drop(db),
        }
        let Self { oracle, flushed, written, rules, positions, .. } = self;
        Subject { files: files_of(fs), oracle, flushed, written, rules, positions, verdicts }
    }
}

pub fn subject(rng: &mut Rng, index: usize) -> Subject {
    let fs = MemFs::new();
    let mut writer = Writer::open(&fs, rng, index);
    let steps = rng.usize(100..700);
    for step in 0..steps {
        writer.step(rng);
        if step % 50 == 0 {
            writer.positions.push(writer.spaces.db.change_position());
        }
        // Its numbers are those of the next epochs of a database that is repaired wrongly.
        if writer.rules.keeps_logs && step % 40 == 20 {
            writer = writer.reopen();
        }
    }
    writer.finish(&fs, rng.bool())
}
