//! The newest version of every key that is left, written to the new database.
//!
//! All tables of a keyspace and the logs' operations are walked side by side, key by key. Of a key's versions the newest
//! counts, if it is a put above every range tombstone over the key; if its value is large and damaged, that key is told as
//! lost, and the next older version counts.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use bytes::Bytes;
use shamba_key::{EntryKind, SeqNo};
use shamba_table::{RangeTombstone, SalvageWalk, SalvagedEntry};

use super::found::{Found, Part, Space};
use super::logs::{LogContent, LogValue, SpaceLog};
use super::report::{Loss, RepairReport};
use crate::db::{Db, Keyspace};
use crate::error::{Error, Result};
use crate::range_delete::{FragmentedTombstones, clip};
use crate::settings::Durability;
use crate::version::KeyRange;
use crate::wal::ValueLogs;
use crate::write::batch::Batch;

/// A batch of the new database has about so many bytes, unless one value has more.
const BATCH_BYTES: usize = 256 << 10;

/// Writes everything that is left to `db`, which has the keyspaces and nothing in them.
pub(super) fn fill(db: &Db, found: Found, logs: LogContent, report: &mut RepairReport) -> Result<()> {
    let LogContent { mut spaces, values, .. } = logs;
    for (id, space) in found.spaces {
        let log = spaces.remove(&id).unwrap_or_default();
        let keyspace = db.keyspace(&space.name)?;
        fill_space(db, &keyspace, space, log, &values, report)?;
    }
    Ok(())
}

fn fill_space(
    db: &Db,
    keyspace: &Keyspace,
    space: Space,
    log: SpaceLog,
    values: &ValueLogs,
    report: &mut RepairReport,
) -> Result<()> {
    let Space { name, parts, .. } = space;
    let mut tombstones = log.tombstones;
    for part in &parts {
        tombstones.extend(tombstones_of(part));
    }
    let floors = FragmentedTombstones::new(tombstones);
    let mut entries = Merged::new(&name, parts, log.newest, report)?;
    let mut out = Output { batch: db.batch(), keyspace, bytes: 0, entries: 0 };
    let mut done: Option<Vec<u8>> = None;
    while let Some(Version { key, seq, value, source }) = entries.next(report)? {
        if done.as_ref() == Some(&key) || seq <= floors.newest_covering(&key, SeqNo::MAX) {
            continue;
        }
        let value = match value {
            Content::Deleted => None,
            Content::Held(value) => Some(value),
            Content::InLog(place) => Some(values.read_whole(&place)?.into()),
            Content::Large(reference) => match entries.read_large(source, &reference) {
                Ok(value) => Some(Bytes::from(value)),
                Err(error) => {
                    let upper = Some(Bytes::from([key.as_slice(), &[0]].concat()));
                    let range = KeyRange { lower: Bytes::from(key), upper };
                    entries.lose(source, range, error.into(), report);
                    continue;
                }
            },
        };
        if let Some(value) = value {
            out.put(&key, &value)?;
        }
        done = Some(key);
    }
    report.entries_written += out.finish()?;
    Ok(())
}

/// The range tombstones of a table, for the keys for which it counts.
fn tombstones_of(part: &Part) -> impl Iterator<Item = RangeTombstone> {
    let KeyRange { lower, upper } = &part.range;
    part.table.range_tombstones().iter().filter_map(move |tombstone| clip(tombstone, lower, upper.as_deref()))
}

/// What is written to the new database.
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
            // What is written counts once the whole is there: the close makes it durable.
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

/// What a version of a key says.
enum Content {
    Held(Bytes),
    /// In chunks of the source's table.
    Large(Bytes),
    InLog([u8; 28]),
    Deleted,
}

/// A version of a key, and where it comes from.
struct Version {
    key: Vec<u8>,
    seq: SeqNo,
    value: Content,
    /// The number of the table; the logs come after the last one.
    source: usize,
}

struct Source {
    walk: SalvageWalk,
    range: KeyRange,
}

/// What orders versions: the key, then the newest first.
type Place = Reverse<(Vec<u8>, Reverse<SeqNo>, usize)>;

/// All versions of a keyspace in internal order.
struct Merged<'a> {
    keyspace: &'a str,
    sources: Vec<Source>,
    log: std::collections::btree_map::IntoIter<Vec<u8>, (SeqNo, LogValue)>,
    current: Vec<Option<Content>>,
    heap: BinaryHeap<Place>,
}

impl<'a> Merged<'a> {
    fn new(
        keyspace: &'a str,
        parts: Vec<Part>,
        log: BTreeMap<Vec<u8>, (SeqNo, LogValue)>,
        report: &mut RepairReport,
    ) -> Result<Self> {
        let sources: Vec<Source> =
            parts.into_iter().map(|part| Source { walk: part.table.walk(), range: part.range }).collect();
        let current = (0..=sources.len()).map(|_| None).collect();
        let mut merged = Self { keyspace, sources, log: log.into_iter(), current, heap: BinaryHeap::new() };
        for source in 0..=merged.sources.len() {
            merged.advance(source, report)?;
        }
        Ok(merged)
    }

    fn next(&mut self, report: &mut RepairReport) -> Result<Option<Version>> {
        let Some(Reverse((key, Reverse(seq), source))) = self.heap.pop() else { return Ok(None) };
        let value = self.current.get_mut(source).and_then(Option::take).unwrap_or(Content::Deleted);
        self.advance(source, report)?;
        Ok(Some(Version { key, seq, value, source }))
    }

    /// Goes to the next version of a source.
    fn advance(&mut self, number: usize, report: &mut RepairReport) -> Result<()> {
        let Some(source) = self.sources.get_mut(number) else {
            if let Some((key, (seq, value))) = self.log.next() {
                let value = match value {
                    LogValue::Held(value) => Content::Held(value),
                    LogValue::InLog(place) => Content::InLog(place),
                    LogValue::Deleted => Content::Deleted,
                };
                self.stand(number, key, seq, value);
            }
            return Ok(());
        };
        let entry = loop {
            match source.walk.next_entry() {
                Ok(Some(entry)) => {
                    report.entries_read += 1;
                    if source.range.contains(&entry.key) {
                        break Some(entry);
                    }
                }
                Ok(None) => break None,
                Err(error) => {
                    // A disk that fails takes the rest of the table.
                    let error = Error::from(error);
                    let path = source.walk.table().path().to_path_buf();
                    report.damaged(&path, &error, format!("keyspace \"{}\"", self.keyspace.escape_default()));
                    let range = Some(source.range.clone());
                    report.lose(Some(self.keyspace), range, Loss::Entries, &path, &error);
                    break None;
                }
            }
        };
        let path = source.walk.table().path().to_path_buf();
        for gap in source.walk.take_gaps() {
            let error = Error::from(gap.error);
            report.damaged(&path, &error, format!("keyspace \"{}\"", self.keyspace.escape_default()));
            let range = KeyRange { lower: gap.lower, upper: gap.upper }.intersection(&source.range);
            report.lose(Some(self.keyspace), range, Loss::Entries, &path, &error);
        }
        if let Some(SalvagedEntry { key, seq, kind, value }) = entry {
            let value = match kind {
                EntryKind::Delete => Content::Deleted,
                EntryKind::ValueRef => Content::Large(value),
                _ => Content::Held(value),
            };
            self.stand(number, key, seq, value);
        }
        Ok(())
    }

    fn stand(&mut self, source: usize, key: Vec<u8>, seq: SeqNo, value: Content) {
        if let Some(current) = self.current.get_mut(source) {
            *current = Some(value);
            self.heap.push(Reverse((key, Reverse(seq), source)));
        }
    }

    fn read_large(&self, source: usize, reference: &[u8]) -> shamba_table::Result<Vec<u8>> {
        match self.sources.get(source) {
            Some(source) => source.walk.table().read_large(reference),
            None => Err(shamba_table::Error::Invalid("a log has no chunks".to_owned())),
        }
    }

    /// Tells keys as lost by damage to a source.
    fn lose(&self, source: usize, range: KeyRange, error: Error, report: &mut RepairReport) {
        let Some(source) = self.sources.get(source) else { return };
        let path = source.walk.table().path();
        report.damaged(path, &error, format!("key \"{}\"", range.lower.escape_ascii()));
        report.lose(Some(self.keyspace), Some(range), Loss::Entries, path, &error);
    }
}
