//! Writes the newest readable version of every key to the new database.
//!
//! All tables of a keyspace and the log operations are merged by key. Of the versions of a key the
//! newest one counts, if it is a put and newer than every range tombstone that covers the key. If
//! its value is large and damaged, the key is reported as lost, and the next older version is used.
//!
//! A table is open only between its first and its last key, so of tables that do not overlap, only
//! one at a time is open. All searches of tables together hold at most the given amount of memory.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use bytes::Bytes;
use shamba_key::{EntryKind, SeqNo};
use shamba_table::{RangeTombstone, SalvageWalk, SalvagedEntry};

use super::found::{Found, Part, Space};
use super::logs::{LogContent, LogValue, only};
use super::report::{Loss, RepairReport};
use crate::database::batch::Batch;
use crate::database::{Db, Keyspace};
use crate::error::{Error, Result};
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
    for (id, space) in found.spaces {
        let keyspace = db.keyspace(&space.name)?;
        fill_space(db, &keyspace, id, space, &mut logs, window_bytes, report)?;
    }
    Ok(())
}

fn fill_space(
    db: &Db,
    keyspace: &Keyspace,
    id: KeyspaceId,
    space: Space,
    logs: &mut LogContent<'_>,
    window_bytes: usize,
    report: &mut RepairReport,
) -> Result<()> {
    let Space { name, parts, .. } = space;
    let mut tombstones = logs.take_tombstones(id);
    for part in &parts {
        tombstones.extend(tombstones_of(part));
    }
    let floors = FragmentedTombstones::new(tombstones);
    let mut entries = Merged::new(&name, id, parts, logs, window_bytes, report)?;
    let mut out = Output { batch: db.batch(), keyspace, bytes: 0, entries: 0 };
    let mut done: Option<Vec<u8>> = None;
    while let Some(Version { key, seq, value, source }) = entries.next(report)? {
        if done.as_ref() == Some(&key) || seq <= floors.newest_covering(&key, SeqNo::MAX) {
            continue;
        }
        let read = match value {
            Content::Deleted => Ok(None),
            Content::Held(value) => Ok(Some(value)),
            Content::InLog(place) => entries.logs.read_value(&place).map(Some),
            Content::Large(reference) => entries.read_large(source, &reference).map(Some),
        };
        match read {
            Ok(Some(value)) => out.put(&key, &value)?,
            Ok(None) => {}
            Err(error) => {
                entries.lose(source, &key, &error, report);
                continue;
            }
        }
        done = Some(key);
    }
    report.entries_written += out.finish()?;
    Ok(())
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
    bytes: usize,
    entries: u64,
}

impl Output<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.batch.put_in(self.keyspace, key, value);
        self.bytes += key.len() + value.len();
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
    Held(Bytes),
    /// Stored in chunks of the source's table.
    Large(Bytes),
    InLog([u8; 28]),
    Deleted,
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

/// The order of versions: by key, then newest first.
type VersionPlace = Reverse<(Vec<u8>, Reverse<SeqNo>, usize)>;

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
        parts: Vec<Part>,
        logs: &'a mut LogContent<'l>,
        window_bytes: usize,
        report: &mut RepairReport,
    ) -> Result<Self> {
        let begin = |part: Part| {
            let known = part.table.bounds().map_or_else(Bytes::new, |(first, _)| first.clone());
            Source { first: known.max(part.range.lower.clone()), part, walk: None }
        };
        let mut sources: Vec<Source> = parts.into_iter().map(begin).collect();
        sources.sort_by(|a, b| a.first.cmp(&b.first));
        let window_bytes = window_bytes / sources.len().max(1);
        let current = (0..=sources.len()).map(|_| None).collect();
        let heap = BinaryHeap::new();
        let mut merged = Self { keyspace, id, sources, begun: 0, logs, window_bytes, current, heap };
        merged.advance(merged.sources.len(), report)?;
        Ok(merged)
    }

    fn next(&mut self, report: &mut RepairReport) -> Result<Option<Version>> {
        self.begin_due(report)?;
        let Some(Reverse((key, Reverse(seq), source))) = self.heap.pop() else { return Ok(None) };
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
                    LogValue::Held(value) => Content::Held(value),
                    LogValue::InLog(place) => Content::InLog(place),
                    LogValue::Deleted => Content::Deleted,
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
                    EntryKind::ValueRef => Content::Large(value),
                    _ => Content::Held(value),
                };
                self.stand(number, key, seq, value);
            }
            None => source.walk = None,
        }
        Ok(())
    }

    fn stand(&mut self, source: usize, key: Vec<u8>, seq: SeqNo, value: Content) {
        if let Some(current) = self.current.get_mut(source) {
            *current = Some(value);
            self.heap.push(Reverse((key, Reverse(seq), source)));
        }
    }

    fn read_large(&self, source: usize, reference: &[u8]) -> Result<Bytes> {
        match self.sources.get(source) {
            Some(source) => Ok(source.part.table.read_large(reference)?.into()),
            None => Err(Error::invalid("a log has no chunks")),
        }
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
