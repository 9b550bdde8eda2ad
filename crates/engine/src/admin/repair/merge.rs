//! Writes the newest readable version of every key to the new database.
//!
//! All tables of a keyspace and the log operations are merged by key. Of the versions of a key the
//! newest one counts, if it is a put and newer than every range tombstone that covers the key. If
//! its value is large and damaged, the key is reported as lost, and the next older version is used.
//! If the newest version is an operand of a merge operator, the operands down to the next put or
//! delete count as well, and are written after it ([`super::chain`]).
//!
//! A FIFO keyspace drops what was written first, so its tables are not all merged with each other:
//! they are written one after the other from the oldest on, with their deletes, and flushed after
//! each. Tables whose sequence numbers overlap are merged, since neither is older: a keyspace may
//! have had levels, in which newer entries lie below older ones, and inputs of a compaction may
//! still be there with its output. If the age of a table is unreadable, all are merged.
//!
//! A table is open only between its first and its last key, so of tables that do not overlap, only
//! one at a time is open. All searches of tables together hold at most the given amount of memory.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::{Bound, RangeInclusive};
use std::path::PathBuf;

use bytes::Bytes;
use shamba_key::{EntryKind, Operand, SeqNo};
use shamba_table::{BirthId, RangeTombstone, SalvageWalk, SalvagedEntry, ValueFileId};

use super::chain::Chain;
use super::found::{Found, Part, Space};
use super::logs::{LogContent, LogValue, only};
use super::report::{Loss, RepairReport};
use super::values::Values;
use crate::database::batch::Batch;
use crate::database::{Db, Keyspace};
use crate::error::{Error, ErrorKind, Result};
use crate::options::settings::Durability;
use shamba_key::KeyspaceId;
use shamba_table::{FragmentedTombstones, clip};
use shamba_tree::version::KeyRange;

/// Approximate size of a batch written to the new database; a single larger value exceeds it.
const BATCH_BYTES: usize = 256 << 10;

/// Writes everything readable to `db`, whose keyspaces exist and are empty. Searches hold at most
/// `window_bytes` of their files between two entries.
pub(super) fn fill(
    db: &Db,
    found: Found,
    mut logs: LogContent<'_>,
    window_bytes: usize,
    report: &mut RepairReport,
) -> Result<()> {
    let mut values = found.values;
    for (id, space) in found.spaces {
        let keyspace = db.keyspace(&space.name)?;
        fill_space(db, &keyspace, (id, space), (&mut logs, &mut values), window_bytes, report)?;
    }
    Ok(())
}

fn fill_space(
    db: &Db,
    keyspace: &Keyspace,
    (id, space): (KeyspaceId, Space),
    (logs, values): (&mut LogContent<'_>, &mut Values),
    window_bytes: usize,
    report: &mut RepairReport,
) -> Result<()> {
    let Space { name, mut parts, .. } = space;
    let mut operands = 0;
    let has_ages = parts.iter().all(|part| part.table.seqs().is_some());
    if keyspace.fifo().is_some() && has_ages {
        for parts in by_age(std::mem::take(&mut parts)) {
            let sources = Sources { parts, with_logs: false };
            operands += fill_from(db, keyspace, (id, &name), sources, (logs, values), window_bytes, report)?;
            db.flush()?;
        }
    }
    let sources = Sources { parts, with_logs: true };
    operands += fill_from(db, keyspace, (id, &name), sources, (logs, values), window_bytes, report)?;
    if operands > 0 && keyspace.core().load().merging().is_none() {
        let name = name.escape_default();
        report.warn(format!(
            "keyspace \"{name}\" has operands of a merge operator whose name is lost: \
             the next open must be given its operator"
        ));
    }
    Ok(())
}

/// Groups of tables, oldest first: each entry of a group is older than all of the next.
fn by_age(mut parts: Vec<Part>) -> Vec<Vec<Part>> {
    let seqs = |part: &Part| part.table.seqs().map_or((SeqNo::ZERO, SeqNo::MAX), RangeInclusive::into_inner);
    parts.sort_by_key(seqs);
    let mut groups: Vec<Vec<Part>> = Vec::new();
    let mut newest = SeqNo::ZERO;
    for part in parts {
        let (smallest, largest) = seqs(&part);
        match groups.last_mut() {
            Some(group) if smallest <= newest => group.push(part),
            _ => groups.push(vec![part]),
        }
        newest = newest.max(largest);
    }
    groups
}

/// Sources that are written together: the newest version of each key in these tables, and in the
/// logs if they are included.
struct Sources {
    parts: Vec<Part>,
    with_logs: bool,
}

/// Writes the newest versions of some sources over what is written already, which is older. Returns
/// the number of operands among them.
fn fill_from(
    db: &Db,
    keyspace: &Keyspace,
    (id, name): (KeyspaceId, &str),
    sources: Sources,
    (logs, values): (&mut LogContent<'_>, &mut Values),
    window_bytes: usize,
    report: &mut RepairReport,
) -> Result<u64> {
    let mut tombstones = if sources.with_logs { logs.take_tombstones(id) } else { Vec::new() };
    for part in &sources.parts {
        tombstones.extend(tombstones_of(part));
    }
    let is_over_older = keyspace.fifo().is_some();
    let mut out = Output { batch: db.batch(), keyspace, is_over_older, bytes: 0, entries: 0, operands: 0 };
    out.delete_ranges(&tombstones);
    let floors = FragmentedTombstones::new(tombstones);
    let mut entries = Merged::new(name, id, sources, logs, window_bytes, report)?;
    let mut chain = Chain::default();
    while let Some(Version { key, seq, value, source }) = entries.next(report)? {
        if !chain.is_of(&key) {
            out.put_chain(chain, None)?;
            chain = Chain::of(key.clone());
        }
        if chain.is_ended() {
            continue;
        }
        if seq <= floors.newest_covering(&key, SeqNo::MAX) {
            out.put_chain(chain.end(), None)?;
            continue;
        }
        let taken = match &value {
            Content::Operand(stored) => chain.offer_operand(seq, stored),
            _ => chain.offer_other(seq),
        };
        match taken {
            Ok(true) => {}
            Ok(false) => continue,
            Err(detail) => {
                let path = entries.path_of(source);
                let error = Error::corruption(&path, 0, "operands of a merge operator", detail);
                entries.lose(source, &key, &error, report);
                continue;
            }
        }
        let read = match value {
            Content::Operand(_) => continue,
            Content::Deleted => {
                out.delete(&key)?;
                Ok(None)
            }
            Content::Held(kind, payload) => Ok(Some((kind, payload))),
            Content::InLog(kind, place) => entries.logs.read_value(&place).map(|it| Some((kind, it))),
            Content::Separated(kind, place) => {
                let births = |file| entries.birth_of(source, file);
                values.read((&key, seq, kind), &place, births, report).map(|it| Some((kind, it)))
            }
            Content::Large(kind, place) => entries.read_large(source, &place).map(|it| Some((kind, it))),
        };
        match read {
            Ok(base) => out.put_chain(chain.end(), base)?,
            Err(error) if error.kind() == ErrorKind::Unsupported => return Err(error),
            Err(error) => entries.lose(source, &key, &error, report),
        }
    }
    out.put_chain(chain, None)?;
    let operands = out.operands;
    report.entries_written += out.finish()?;
    Ok(operands)
}

/// The range tombstones of a table, clipped to the range of it in use.
fn tombstones_of(part: &Part) -> impl Iterator<Item = RangeTombstone> {
    let KeyRange { lower, upper } = &part.range;
    part.table.range_tombstones().iter().filter_map(move |tombstone| clip(tombstone, lower, upper.as_deref()))
}

/// The writer to one keyspace of the new database.
struct Output<'a> {
    batch: Batch,
    keyspace: &'a Keyspace,
    /// The keyspace may hold older versions, so deletes are written too.
    is_over_older: bool,
    bytes: usize,
    entries: u64,
    operands: u64,
}

impl Output<'_> {
    /// Deletes ranges in which only older versions lie yet.
    fn delete_ranges(&mut self, tombstones: &[RangeTombstone]) {
        for RangeTombstone { start, end, .. } in tombstones.iter().filter(|_| self.is_over_older) {
            let end = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            self.batch.delete_range_in(self.keyspace, (Bound::Included(&start[..]), end));
        }
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        if self.is_over_older {
            self.batch.delete_in(self.keyspace, key);
            self.written(key.len())?;
        }
        Ok(())
    }

    /// Writes the base, if there is one, and the operands of a chain after it.
    fn put_chain(&mut self, chain: Chain, base: Option<(EntryKind, Bytes)>) -> Result<()> {
        let (key, operands) = chain.into_operands();
        if let Some((kind, base)) = base {
            self.batch.put_payload_in(self.keyspace, &key, kind, &base);
            self.written(key.len() + base.len())?;
        }
        for operand in operands {
            self.batch.merge_unchecked_in(self.keyspace, &key, &operand);
            self.operands += 1;
            self.written(key.len() + operand.len())?;
        }
        Ok(())
    }

    /// Counts an entry that was added to the batch, and commits a full batch.
    fn written(&mut self, bytes: usize) -> Result<()> {
        self.bytes += bytes;
        self.entries += 1;
        if self.bytes >= BATCH_BYTES {
            self.bytes = 0;
            // No sync per batch: the database becomes valid only at the end, when the flush makes
            // it durable.
            self.batch.commit_with(Durability::NoSync)?;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<u64> {
        if !self.batch.is_empty() {
            self.batch.commit_with(Durability::NoSync)?;
        }
        Ok(self.entries)
    }
}

/// Content of a version of a key.
enum Content {
    /// The payload of a put, with or without expiry.
    Held(EntryKind, Bytes),
    /// Such a payload in chunks of the source's table, at this place.
    Large(EntryKind, Bytes),
    /// Such a payload in a value file; the stored form of the reference.
    Separated(EntryKind, Bytes),
    /// Such a payload in a log, at this place.
    InLog(EntryKind, [u8; 28]),
    Deleted,
    /// In its stored form ([`Operand`]).
    Operand(Bytes),
}

/// A version of a key, and its source.
struct Version {
    key: Vec<u8>,
    seq: SeqNo,
    value: Content,
    /// Index of the table; the logs have the index after the last table.
    source: usize,
}

struct Source {
    part: Part,
    /// No entry in use lies before this key.
    first: Bytes,
    /// Set while the merge is between the table's first key and its end.
    walk: Option<SalvageWalk>,
}

/// The order of versions: by key, then newest first, then by rank.
type VersionPlace = Reverse<(Vec<u8>, Reverse<SeqNo>, Rank, usize)>;

/// The order of versions of one sequence number. A compaction folds operands into an entry with the
/// number of the newest, and a repair may find its inputs too. So a put or delete comes before an
/// operand, and combined operands that reach farther before others.
type Rank = (bool, Reverse<u64>);

fn rank(content: &Content) -> Rank {
    match content {
        Content::Operand(stored) => {
            (true, Reverse(Operand::decode(stored).map_or(0, |operand| operand.reach)))
        }
        _ => (false, Reverse(0)),
    }
}

/// All versions of a keyspace, in internal order.
struct Merged<'a, 'l> {
    keyspace: &'a str,
    id: KeyspaceId,
    /// Sorted by their first keys.
    sources: Vec<Source>,
    /// Number of sources that were begun.
    begun: usize,
    logs: &'a mut LogContent<'l>,
    /// Maximum number of bytes that each search holds between two entries.
    window_bytes: usize,
    current: Vec<Option<Content>>,
    heap: BinaryHeap<VersionPlace>,
}

impl<'a, 'l> Merged<'a, 'l> {
    fn new(
        keyspace: &'a str,
        id: KeyspaceId,
        sources: Sources,
        logs: &'a mut LogContent<'l>,
        window_bytes: usize,
        report: &mut RepairReport,
    ) -> Result<Self> {
        let begin = |part: Part| {
            let known = part.table.bounds().map_or_else(Bytes::new, |(first, _)| first.clone());
            Source { first: known.max(part.range.lower.clone()), part, walk: None }
        };
        let with_logs = sources.with_logs;
        let mut sources: Vec<Source> = sources.parts.into_iter().map(begin).collect();
        sources.sort_by(|a, b| a.first.cmp(&b.first));
        let window_bytes = window_bytes / sources.len().max(1);
        let current = (0..=sources.len()).map(|_| None).collect();
        let heap = BinaryHeap::new();
        let mut merged = Self { keyspace, id, sources, begun: 0, logs, window_bytes, current, heap };
        if with_logs {
            merged.advance(merged.sources.len(), report)?;
        }
        Ok(merged)
    }

    fn next(&mut self, report: &mut RepairReport) -> Result<Option<Version>> {
        self.begin_due(report)?;
        let Some(Reverse((key, Reverse(seq), _, source))) = self.heap.pop() else { return Ok(None) };
        let value = self.current.get_mut(source).and_then(Option::take).unwrap_or(Content::Deleted);
        self.advance(source, report)?;
        Ok(Some(Version { key, seq, value, source }))
    }

    /// Begins the tables that may contain the next key; if no version is pending, also the next
    /// table.
    fn begin_due(&mut self, report: &mut RepairReport) -> Result<()> {
        while let Some(source) = self.sources.get_mut(self.begun) {
            if self.heap.peek().is_some_and(|Reverse((key, ..))| key[..] < source.first[..]) {
                return Ok(());
            }
            debug_assert!(source.walk.is_none(), "a table is read from its beginning twice");
            source.walk = Some(source.part.table.walk_within(self.window_bytes));
            self.begun += 1;
            self.advance(self.begun - 1, report)?;
        }
        Ok(())
    }

    /// Moves a source to its next version.
    fn advance(&mut self, number: usize, report: &mut RepairReport) -> Result<()> {
        let Some(source) = self.sources.get_mut(number) else {
            if let Some((key, seq, value)) = self.logs.next(self.id, report) {
                let value = match value {
                    LogValue::Held(kind, payload) => Content::Held(kind, payload),
                    LogValue::InLog(kind, place) => Content::InLog(kind, place),
                    LogValue::Deleted => Content::Deleted,
                    LogValue::Operand(stored) => Content::Operand(stored),
                };
                self.stand(number, key, seq, value);
            }
            return Ok(());
        };
        let Some(walk) = &mut source.walk else { return Ok(()) };
        let path = source.part.table.path();
        let affected = || format!("keyspace \"{}\"", self.keyspace.escape_default());
        let entry = loop {
            match walk.next_entry() {
                Ok(Some(entry)) => {
                    report.entries_read += 1;
                    if source.part.range.contains(&entry.key) {
                        break Some(entry);
                    }
                }
                Ok(None) => break None,
                Err(error) => {
                    // A failed read loses the rest of the table.
                    let error = Error::from(error);
                    report.damaged(path, &error, affected());
                    let range = Some(source.part.range.clone());
                    report.lose(Some(self.keyspace), range, Loss::Entries, path, &error);
                    break None;
                }
            }
        };
        for gap in walk.take_gaps() {
            let error = Error::from(gap.error);
            report.damaged(path, &error, affected());
            let range = KeyRange { lower: gap.lower, upper: gap.upper }.intersection(&source.part.range);
            report.lose(Some(self.keyspace), range, Loss::Entries, path, &error);
        }
        match entry {
            Some(SalvagedEntry { key, seq, kind, value }) => {
                let value = match kind {
                    EntryKind::Delete => Content::Deleted,
                    EntryKind::Merge => Content::Operand(value),
                    kind if kind.is_large() => {
                        let place = value.slice_ref(kind.location(&value));
                        match kind.in_value_file() {
                            true => Content::Separated(kind.whole(), place),
                            false => Content::Large(kind.whole(), place),
                        }
                    }
                    kind => Content::Held(kind, value),
                };
                self.stand(number, key, seq, value);
            }
            None => source.walk = None,
        }
        Ok(())
    }

    fn stand(&mut self, source: usize, key: Vec<u8>, seq: SeqNo, value: Content) {
        if let Some(current) = self.current.get_mut(source) {
            self.heap.push(Reverse((key, Reverse(seq), rank(&value), source)));
            *current = Some(value);
        }
    }

    /// The birth id of a value file, as the table of a source states it.
    fn birth_of(&self, source: usize, file: ValueFileId) -> Option<BirthId> {
        let uses = self.sources.get(source)?.part.table.value_uses();
        uses.iter().find(|of| of.file == file).map(|of| of.birth)
    }

    fn read_large(&self, source: usize, reference: &[u8]) -> Result<Bytes> {
        match self.sources.get(source) {
            Some(source) => Ok(source.part.table.read_large(reference)?.into()),
            None => Err(Error::invalid("a log has no chunks")),
        }
    }

    /// The file of a source, or the directory of the logs.
    fn path_of(&self, source: usize) -> PathBuf {
        self.sources.get(source).map_or(self.logs.dir(), |source| source.part.table.path()).to_path_buf()
    }

    /// Reports a key as lost whose value in a source cannot be read.
    fn lose(&self, source: usize, key: &[u8], error: &Error, report: &mut RepairReport) {
        let path = match (self.sources.get(source), error.damage()) {
            (Some(source), _) => source.part.table.path(),
            (None, Some(damage)) => &damage.file,
            (None, None) => self.logs.dir(),
        };
        report.damaged(path, error, format!("key \"{}\"", key.escape_ascii()));
        report.lose(Some(self.keyspace), Some(only(key)), Loss::Entries, path, error);
    }
}
