//! Test kit of this folder: random choices, a sorted vector as a source, a check of bidirectional
//! iterators, and a small keyspace that is written, rotated, flushed and compacted by explicit
//! calls.
//!
//! The keyspace ([`Store`]) has real memtables and real tables on files in memory, but no log, no
//! policy and no threads. It is compared with a simple model: the list of all operations, replayed
//! up to a sequence number. Long values may be in value files ([`values`]).

mod values;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use shamba_env::sync::Mutex;
use shamba_env::{Env, MemFs};
use shamba_filter::FilterLayout;
use shamba_key::{DigestFn, DigestKind, EntryKind, Expiry, KeyDigest, Operand, Prefix, SeqNo};
use shamba_table::{
    BirthId, BlockCache, Compression, EntryIter, LargeValues, Ledger, OpenFiles, RangeTombstone,
    ReaderOptions, Residency, TableId, TableReader, TableSummary, TableWriter, Walk, WriterOptions,
};

use shamba_testkit::{Dice, Row, collect};

use self::values::OutputValues;
use super::merge::MergeIter;
use super::registry::IterRegistry;
use super::run_iter::RunIter;
use super::scan::ScanSource;
use crate::error::Result;
use crate::merging::Merging;
use crate::snapshot::{SnapshotGuard, SnapshotList};
use crate::version::{
    Change, KeyRange, TableMeta, TableUse, TableValues, ValueFiles, ValueUses, Version, VersionEdit,
    level_bytes,
};
use crate::view::{View, ViewSource};
use shamba_key::{Age, KeyspaceId, RunId};
use shamba_memtable::{ChunkedMemtable, Memtable};
use shamba_table::FragmentedTombstones;

/// The operations in order; operation `i` has sequence number `i + 1`.
#[derive(Clone, Debug)]
pub enum Op {
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    DeleteRange(Vec<u8>, Option<Vec<u8>>),
    /// An operand, which is appended after a comma.
    Merge(Vec<u8>, Vec<u8>),
}

/// The view of a keyspace whose operands are appended after commas.
fn appending(view: View) -> View {
    view.with_merging(Some(Arc::new(Merging::recorded("shamba.append:2c"))))
}

/// A keyspace that tests change by explicit calls.
pub struct Store {
    env: Env,
    cache: Arc<BlockCache>,
    pub ledger: Arc<Ledger>,
    view: Mutex<Arc<View>>,
    history: Mutex<Vec<Op>>,
    next_id: Mutex<u64>,
    /// The extractor of tables that are written from now on.
    pub prefix: Mutex<Option<Prefix>>,
    /// Values from this length on go into value files from now on.
    pub separates_from: Mutex<Option<usize>>,
    value_files: Mutex<ValueFiles>,
    pub snapshots: Arc<SnapshotList>,
    pub registry: Arc<IterRegistry>,
}

const DIR: &str = "/store";
/// How scans of a [`Store`] read tables.
pub const WALK: Walk = Walk::Parts { fill_cache: true, ahead_bytes: 8_192 };

impl ViewSource for Store {
    fn view(&self) -> Result<Arc<View>> {
        Ok(self.newest_view())
    }
}

impl Store {
    pub fn new() -> Arc<Self> {
        Self::with_iterator_bytes(1 << 30)
    }

    /// A store with a limit on the memory of iterators.
    pub fn with_iterator_bytes(iterator_bytes: u64) -> Arc<Self> {
        let env = Env::deterministic(Arc::new(MemFs::new()), 1);
        env.vfs.create_dir_all(Path::new(DIR)).expect("memory");
        let ledger = Arc::new(Ledger::new());
        let memtables: Vec<Arc<dyn Memtable>> = vec![Arc::new(ChunkedMemtable::new(true))];
        let view = appending(View::new(KeyspaceId(0), memtables, Arc::new(Version::empty())));
        Arc::new(Self {
            env,
            cache: Arc::new(BlockCache::new(1 << 20, Arc::clone(&ledger))),
            registry: IterRegistry::new(Arc::clone(&ledger), iterator_bytes, 1),
            ledger,
            view: Mutex::new(Arc::new(view)),
            history: Mutex::default(),
            next_id: Mutex::new(1),
            prefix: Mutex::default(),
            separates_from: Mutex::default(),
            value_files: Mutex::default(),
            snapshots: SnapshotList::new(),
        })
    }

    pub fn newest_view(&self) -> Arc<View> {
        Arc::clone(&self.view.lock().expect("not poisoned"))
    }

    /// Makes a view the newest one, whatever it holds.
    pub fn show(&self, view: Arc<View>) {
        *self.view.lock().expect("not poisoned") = view;
    }

    /// The number of the last operation.
    pub fn visible(&self) -> SeqNo {
        SeqNo(self.history.lock().expect("not poisoned").len() as u64)
    }

    pub fn write(&self, op: Op) {
        let seq = self.visible().next();
        let memtable = Arc::clone(&self.newest_view().memtables[0]);
        let digest = KeyDigest::from_raw(0);
        match op.clone() {
            Op::Put(key, value) => memtable.insert(digest, &key, seq, EntryKind::Put, &value),
            Op::Delete(key) => memtable.insert(digest, &key, seq, EntryKind::Delete, &[]),
            Op::Merge(key, operand) => {
                let operand = Operand::single(&operand).encode();
                memtable.insert(digest, &key, seq, EntryKind::Merge, &operand);
            }
            Op::DeleteRange(start, end) => {
                let end = end.map(Bytes::from);
                memtable.insert_range_delete(RangeTombstone { start: start.into(), end, seq });
            }
        }
        self.history.lock().expect("not poisoned").push(op);
    }

    pub fn put(&self, key: &str, value: &str) {
        self.write(Op::Put(key.into(), value.into()));
    }

    /// Replays the history up to `seq` and returns the entries in `range`.
    pub fn model(&self, seq: SeqNo, range: &KeyRange) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut map = BTreeMap::new();
        for op in self.history.lock().expect("not poisoned").iter().take(seq.0 as usize) {
            match op {
                Op::Put(key, value) => {
                    map.insert(key.clone(), value.clone());
                }
                Op::Delete(key) => {
                    map.remove(key);
                }
                Op::Merge(key, operand) => {
                    map.entry(key.clone())
                        .and_modify(|value: &mut Vec<u8>| {
                            value.push(b',');
                            value.extend_from_slice(operand);
                        })
                        .or_insert_with(|| operand.clone());
                }
                Op::DeleteRange(start, end) => {
                    map.retain(|key, _| key < start || end.as_ref().is_some_and(|end| end <= key));
                }
            }
        }
        map.into_iter().filter(|(key, _)| range.contains(key)).collect()
    }

    /// A reader at the newest sequence number.
    pub fn take(&self) -> Arc<SnapshotGuard> {
        self.snapshots.take_with(|| self.visible())
    }

    pub fn scan_source(self: &Arc<Self>, seq: Arc<SnapshotGuard>) -> ScanSource {
        let views = Arc::clone(self) as Arc<dyn ViewSource>;
        ScanSource {
            views,
            owner: Arc::clone(&self.registry) as Arc<dyn super::registry::Owner>,
            seq,
            walk: WALK,
            reads_values: true,
            samples: true,
            notes: None,
        }
    }

    fn id(&self) -> u64 {
        let mut next = self.next_id.lock().expect("not poisoned");
        *next += 1;
        *next
    }

    fn install(&self, memtables: Vec<Arc<dyn Memtable>>, version: Arc<Version>) {
        let view = appending(View::new(KeyspaceId(0), memtables, version));
        *self.view.lock().expect("not poisoned") = Arc::new(view);
    }

    /// Rotates: writes go to a new memtable from now on.
    pub fn rotate(&self) {
        let view = self.newest_view();
        let mut memtables = view.memtables.clone();
        memtables.insert(0, Arc::new(ChunkedMemtable::new(true)));
        self.install(memtables, Arc::clone(&view.version));
    }

    /// Flushes the oldest memtable to a run of level 0, unless it is the active one.
    pub fn flush(&self) {
        let view = self.newest_view();
        let Some((oldest, newer)) = view.memtables.split_last().filter(|(_, newer)| !newer.is_empty()) else {
            return;
        };
        let rows = collect(Arc::clone(oldest).iter().as_mut());
        let tables = self.build(&rows, &oldest.range_tombstones(), 4);
        let version = self.add_run(&view.version, 0, tables);
        self.install(newer.to_vec(), Arc::new(version));
    }

    /// Adds a run of these sorted rows to level 0.
    pub fn add_rows(&self, rows: &[Row]) {
        let view = self.newest_view();
        let tables = self.build(rows, &FragmentedTombstones::default(), 4);
        let version = self.add_run(&view.version, 0, tables);
        self.install(view.memtables.clone(), Arc::new(version));
    }

    /// Compacts the whole tree into one run of level 1. Drops every version that no registered
    /// reader needs.
    pub fn merge(&self) {
        let stripes = self.snapshots.stripes();
        let view = self.newest_view();
        let runs: Vec<_> = view.version.runs().map(|(_, run)| Arc::clone(run)).collect();
        let sources = runs.iter().map(|run| {
            let iter =
                RunIter::new(run.tables().to_vec(), KeyRange::everything(), Walk::Whole { bytes: 1 << 20 });
            Box::new(iter) as Box<dyn EntryIter>
        });
        let tombstones = runs.iter().flat_map(|run| run.tombstones().iter().cloned()).collect();
        let tombstones = FragmentedTombstones::new(tombstones);
        let stripe = |seq: SeqNo| stripes.partition_point(|&stripe| stripe < seq);
        let mut kept: Vec<Row> = Vec::new();
        for row in values::collect_whole(&mut MergeIter::new(sources.collect())) {
            // What operands apply to is kept, and nothing is folded.
            let shadowed = kept.last().is_some_and(|newer: &Row| {
                newer.key == row.key && stripe(newer.seq) == stripe(row.seq) && newer.kind != EntryKind::Merge
            });
            let reader = stripes.get(stripe(row.seq)).copied().unwrap_or(SeqNo::MAX);
            if !shadowed && tombstones.newest_covering(&row.key, reader) < row.seq {
                kept.push(row);
            }
        }
        let thinned = FragmentedTombstones::new(tombstones.thinned(&[], None, &stripes));
        let tables = self.build(&kept, &thinned, 4);
        let version = self.add_run(&Version::empty(), 1, tables);
        self.install(view.memtables.clone(), Arc::new(version));
    }

    /// The tables of the first run of level `level` in the newest view.
    pub fn first_run(&self, level: u32) -> Vec<TableUse> {
        self.newest_view().version.level(level).first().map_or(Vec::new(), |run| run.tables().to_vec())
    }

    fn add_run(&self, version: &Version, level: u32, tables: Vec<TableUse>) -> Version {
        let (run, age) = (RunId(self.id()), Age(self.id()));
        let add = |table| Change::Add { level, run, age, table };
        let changes = tables.into_iter().map(add).collect();
        version.apply(&VersionEdit { keyspace: KeyspaceId(0), changes }).expect("a run on top")
    }

    /// Makes tables of at most `keys_each` keys from sorted rows, each with its part of the
    /// tombstones. Their long values go into one value file, if values are separated.
    pub fn build(&self, rows: &[Row], tombstones: &FragmentedTombstones, keys_each: usize) -> Vec<TableUse> {
        let by_key: Vec<&[Row]> = rows.chunk_by(|a, b| a.key == b.key).collect();
        let groups: Vec<Vec<&[Row]>> = by_key.chunks(keys_each).map(<[_]>::to_vec).collect();
        let starts: Vec<Vec<u8>> = groups.iter().skip(1).map(|group| group[0][0].key.clone()).collect();
        let mut written = Vec::new();
        let mut values = OutputValues::new(*self.separates_from.lock().expect("not poisoned"));
        for (index, group) in
            groups.iter().map(Vec::as_slice).chain(groups.is_empty().then_some(&[][..])).enumerate()
        {
            let lower = index.checked_sub(1).map_or(&[][..], |before| starts[before].as_slice());
            let upper = starts.get(index).map(Vec::as_slice);
            let tombstones = tombstones.thinned(lower, upper, &self.snapshots.stripes());
            if group.is_empty() && tombstones.is_empty() {
                continue;
            }
            written.push(self.write_table(group.iter().flat_map(|rows| *rows), tombstones, &mut values));
        }
        if let Some(file) = values.finish(self) {
            self.value_files.lock().expect("not poisoned").add(file).expect("a new number");
        }
        written.into_iter().map(|summary| self.open_table(summary)).collect()
    }

    fn write_table<'r>(
        &self,
        rows: impl Iterator<Item = &'r Row>,
        tombstones: Vec<RangeTombstone>,
        values: &mut OutputValues,
    ) -> TableSummary {
        let (id, birth) = (TableId(self.id()), BirthId(self.id()));
        let digest = DigestFn::new(DigestKind::Xxh3, 1);
        let (compression, bits_per_key, block_bytes) = (Compression::None, 10.0, 4096);
        let options = WriterOptions {
            id,
            birth,
            digest,
            compression,
            bits_per_key,
            filter_layout: FilterLayout::Blocked,
            prefix: *self.prefix.lock().expect("not poisoned"),
            block_bytes,
            block_tags: true,
            large_values: LargeValues::default(),
        };
        let mut writer = TableWriter::create(&self.env, Path::new(DIR), options).expect("memory");
        for row in rows {
            match values.add(self, row) {
                Some((reference, birth)) => {
                    let expiry = Expiry::of(row.kind, &row.value);
                    writer.add_reference(&row.key, None, (row.seq, expiry), reference, birth).map(drop)
                }
                None => writer.add(&row.key, row.seq, row.kind, &row.value),
            }
            .expect("sorted");
        }
        for tombstone in tombstones {
            writer.add_range_tombstone(tombstone).expect("not empty");
        }
        writer.finish().expect("memory")
    }

    fn open_table(&self, summary: TableSummary) -> TableUse {
        let TableSummary { id, birth, .. } = summary;
        let digest = DigestFn::new(DigestKind::Xxh3, 1);
        let known = self.value_files.lock().expect("not poisoned");
        let values = ValueUses::of_table(&summary.value_uses, &known).expect("known files");
        let (cache, ledger) = (Arc::clone(&self.cache), Arc::clone(&self.ledger));
        let files = Arc::new(OpenFiles::new(1));
        let options = ReaderOptions {
            id,
            birth,
            digest,
            cache,
            ledger,
            files,
            direct_io: false,
            filter: Residency::Pinned,
            index: Residency::Pinned,
            units: Default::default(),
            keeps_blocks: true,
            bounds: None,
            values: values.files().iter().map(|of| Arc::clone(of.file.file.get().expect("open"))).collect(),
        };
        let reader = TableReader::open(&self.env, Path::new(DIR), options).expect("just written");
        let meta = TableMeta {
            id,
            birth,
            file_bytes: summary.file_bytes,
            entries: summary.entries,
            deletes: summary.deletes,
            range_deletes: summary.range_deletes,
            smallest: summary.smallest,
            upper: summary.upper,
            smallest_seq: summary.smallest_seq,
            largest_seq: summary.largest_seq,
            bits_per_key: summary.bits_per_key,
            reader: Default::default(),
            oldest_tombstone: Default::default(),
            older_versions: Default::default(),
            expiring: Default::default(),
            values: TableValues::from(values),
            statistics: Default::default(),
        };
        meta.reader.set(reader);
        let mut table = TableUse::whole(Arc::new(meta));
        table.live_bytes = level_bytes(&table, table.live_bytes);
        table
    }
}

/// A random extractor, or none.
pub fn random_prefix(dice: &Dice) -> Option<Prefix> {
    let bytes = 1 + dice.below(3) as u16;
    match dice.below(4) {
        0 => None,
        1 => Some(Prefix::Fixed(bytes)),
        2 => Some(Prefix::Capped(bytes)),
        _ => Some(Prefix::Delimited(*dice.key().first().unwrap_or(&b'a'))),
    }
}

/// The keys that begin with those of a random key, or of a part of it.
pub fn random_prefix_range(dice: &Dice) -> KeyRange {
    let mut prefix = dice.key();
    if dice.one_in(3) {
        prefix.truncate(dice.below(3));
    }
    let last = prefix.iter().rposition(|&byte| byte != 0xff);
    let upper = last.map(|last| Bytes::from([&prefix[..last], &[prefix[last] + 1]].concat()));
    KeyRange { lower: prefix.into(), upper }
}

/// A random range, often open at an end, sometimes empty or reversed.
pub fn random_range(dice: &Dice) -> KeyRange {
    let lower = if dice.one_in(2) { Bytes::new() } else { dice.key().into() };
    let upper = if dice.one_in(2) { None } else { Some(dice.key().into()) };
    KeyRange { lower, upper }
}
