//! Compaction filters: code of the program that compactions ask about the entries that they
//! rewrite, and that may remove or replace them.
//!
//! [`Filtering`] is what a keyspace knows of its filter: the recorded name, and the code, if this
//! open was given it. [`FilterRun`] asks it for one slice of a compaction. It notes what has
//! changed, so that the install can check that no reader sees the change in the middle of its life,
//! and can erase what caches hold of the keys.
//!
//! The filter is asked about the newest version of a key that the compaction reads, if it is a
//! value and newer than every snapshot. [`super::fold`] knows which those are. Under the same key
//! and sequence number it writes a tombstone or the new value.
//!
//! Not here: the tombstones that need not be written ([`super::retention`]); the check at the
//! install ([`crate::snapshot`], `fence`).

use std::cell::OnceCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use shamba_key::{DigestFn, Expiry, KeyDigest, MAX_VALUE_BYTES, SeqNo};
use shamba_table::EntryIter;

use crate::merging::panic_text;

/// Longest value that a filter can read: as long as the longest base of operands that a compaction
/// holds in memory.
const VALUE_BYTES_MAX: u64 = 256 << 10;
/// Changed keys of a slice that are remembered one by one: 512 KiB.
const DIGESTS_MAX: usize = 64 << 10;

/// Decides about the entries that compactions of a keyspace rewrite.
///
/// It is called by several threads at a time, in the order of keys within a slice of a compaction
/// only. It may be asked about an entry again, by each compaction that rewrites it, also after it
/// has replaced it. So it should decide by the entry alone and by facts that do not return, such as
/// an age. It must not call the database.
///
/// A filter that panics keeps the entry.
pub trait CompactionFilter: Send + Sync {
    /// Its name, which the database records.
    fn name(&self) -> &str;

    /// Decides about one entry.
    fn filter(&self, entry: &FilterEntry<'_>) -> Verdict;
}

/// The fate of an entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It stays.
    Keep,
    /// The key is deleted.
    Remove,
    /// The key gets this value.
    Replace(Vec<u8>),
}

/// An entry that a compaction asks about.
pub struct FilterEntry<'a> {
    entries: &'a dyn EntryIter,
    level: u32,
    floor: SeqNo,
    value_bytes: u64,
    expiry: Option<Expiry>,
    /// A value that is stored in pieces, once it was read.
    large: OnceCell<Result<Vec<u8>, shamba_table::Error>>,
}

impl<'a> FilterEntry<'a> {
    fn new(entries: &'a dyn EntryIter, level: u32, floor: SeqNo) -> Result<Self, shamba_table::Error> {
        let expiry = Expiry::of(entries.kind(), entries.value());
        let value_bytes = entries.value_bytes_len()?.saturating_sub(bytes_before(expiry));
        Ok(Self { entries, level, floor, value_bytes, expiry, large: OnceCell::new() })
    }

    /// The key.
    pub fn key(&self) -> &[u8] {
        self.entries.key()
    }

    /// The value; `None` if it has more than 256 KiB. Values of 16 KiB and more are read from the
    /// table by this call, so a filter that decides by the key costs no read.
    pub fn value(&self) -> Option<&[u8]> {
        if !self.entries.is_large() {
            return self.entries.value().get(bytes_before(self.expiry) as usize..);
        }
        if self.value_bytes > VALUE_BYTES_MAX {
            return None;
        }
        let read = || {
            let before = bytes_before(self.expiry) as usize;
            let mut value = Vec::with_capacity(before + self.value_bytes as usize);
            self.entries.read_value(&mut |piece| {
                value.extend_from_slice(piece);
                Ok(())
            })?;
            value.drain(..before.min(value.len()));
            Ok(value)
        };
        // After a failure the compaction fails, whatever the filter answers.
        self.large.get_or_init(read).as_deref().ok()
    }

    /// Length of the value.
    pub fn value_len(&self) -> u64 {
        self.value_bytes
    }

    /// The time from which the value is gone, in milliseconds since 1970-01-01 UTC; `None`: it
    /// lasts. A value that replaces it has the same.
    pub fn expiry_ms(&self) -> Option<u64> {
        self.expiry.map(|expiry| expiry.0)
    }

    /// Level on which the compaction writes its tables.
    pub fn level(&self) -> u32 {
        self.level
    }

    /// Sequence number of the write that the entry comes from.
    pub fn sequence(&self) -> u64 {
        self.entries.seq().0
    }

    /// The newest sequence number at which a snapshot or an iterator reads; 0 if there is none. No
    /// reader sees a version of the key that is older than the entry and newer than this. Entries
    /// at or below it are not shown to the filter.
    pub fn sequence_floor(&self) -> u64 {
        self.floor.0
    }
}

impl std::fmt::Debug for FilterEntry<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let key = self.key().escape_ascii().to_string();
        f.debug_struct("FilterEntry").field("key", &key).field("level", &self.level).finish_non_exhaustive()
    }
}

/// Bytes of an expiry before a value.
fn bytes_before(expiry: Option<Expiry>) -> u64 {
    expiry.map_or(0, |_| Expiry::STORED_BYTES as u64)
}

/// The compaction filter of a keyspace.
#[derive(Clone)]
pub struct Filtering {
    name: String,
    filter: Option<Arc<dyn CompactionFilter>>,
}

impl std::fmt::Debug for Filtering {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Filtering").field("name", &self.name).field("is_given", &self.is_given()).finish()
    }
}

impl Filtering {
    /// A filter that this open was given.
    pub fn with(filter: Arc<dyn CompactionFilter>) -> Self {
        Self { name: filter.name().to_owned(), filter: Some(filter) }
    }

    /// The filter of this recorded name, without its code.
    pub fn recorded(name: &str) -> Self {
        Self { name: name.to_owned(), filter: None }
    }

    /// The recorded name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the code is there.
    pub fn is_given(&self) -> bool {
        self.filter.is_some()
    }
}

/// A filter in a slice of a compaction.
pub struct FilterRun<'a> {
    filtering: &'a Filtering,
    digest: DigestFn,
    level: u32,
    floor: SeqNo,
    changes: FilterChanges,
}

/// The entries that a filter has changed in a slice.
#[derive(Clone, Default, Debug)]
pub struct FilterChanges {
    /// Entries removed,
    pub removed: u64,
    /// and replaced.
    pub replaced: u64,
    /// Smallest sequence number of these entries.
    oldest: Option<SeqNo>,
    /// Their keys, unless there are too many.
    digests: Vec<KeyDigest>,
    /// Calls that failed, and the text for the first of them.
    failed: u64,
    failure: Option<String>,
}

impl FilterChanges {
    /// Smallest sequence number of the changed entries; `None` if none was changed. A reader at
    /// this number or above it sees a change.
    pub fn oldest(&self) -> Option<SeqNo> {
        self.oldest
    }

    /// Digests of the changed keys; `None` if there were too many to remember.
    pub fn digests(&self) -> Option<&[KeyDigest]> {
        (self.removed + self.replaced == self.digests.len() as u64).then_some(&self.digests)
    }

    /// The warning for the calls that failed, if any did.
    pub fn warning(&self) -> Option<String> {
        let failure = self.failure.as_ref()?;
        Some(match self.failed {
            1 => format!("{failure}; the entry is kept"),
            failed => format!("{failure}; the entry is kept, and {} more for which it failed", failed - 1),
        })
    }

    fn fail(&mut self, name: &str, key: &[u8], detail: &str) {
        self.failed += 1;
        self.failure.get_or_insert_with(|| {
            format!("the compaction filter {name:?} failed for key \"{}\": {detail}", key.escape_ascii())
        });
    }
}

impl<'a> FilterRun<'a> {
    /// The filter for a slice whose tables go to `level`, next to readers at `snapshots`. `None`
    /// without the code.
    pub fn new(filtering: &'a Filtering, digest: DigestFn, level: u32, snapshots: &[SeqNo]) -> Option<Self> {
        let floor = snapshots.last().copied().unwrap_or(SeqNo::ZERO);
        let changes = FilterChanges::default();
        filtering.is_given().then_some(Self { filtering, digest, level, floor, changes })
    }

    /// The verdict on the entry at the position of `entries`, the newest of its key and of no
    /// reader at a snapshot. What is no value is kept.
    ///
    /// # Errors
    /// Of reading a large value.
    pub(super) fn judge(&mut self, entries: &dyn EntryIter) -> Result<Verdict, shamba_table::Error> {
        let Some(filter) = &self.filtering.filter else { return Ok(Verdict::Keep) };
        if !entries.kind().is_put() {
            return Ok(Verdict::Keep);
        }
        let (key, seq, name) = (entries.key(), entries.seq(), self.filtering.name());
        debug_assert!(seq > self.floor, "a filter is asked about an entry at {seq}, which a snapshot sees");
        let entry = FilterEntry::new(entries, self.level, self.floor)?;
        let called = catch_unwind(AssertUnwindSafe(|| filter.filter(&entry)));
        match entry.large.into_inner() {
            // A value file need not be read to keep what refers to it.
            Some(Err(error)) if entries.kind().in_value_file() => {
                self.changes.fail(name, key, &format!("its value cannot be read: {error}"));
                return Ok(Verdict::Keep);
            }
            Some(Err(error)) => return Err(error),
            _ => {}
        }
        let verdict = match called {
            Ok(Verdict::Replace(value)) if value.len() > MAX_VALUE_BYTES - Expiry::STORED_BYTES => {
                let bytes = value.len();
                self.changes.fail(name, key, &format!("{bytes} bytes are too long for a value"));
                return Ok(Verdict::Keep);
            }
            Ok(verdict) => verdict,
            Err(panic) => {
                self.changes.fail(name, key, &format!("it panicked: {}", panic_text(panic.as_ref())));
                return Ok(Verdict::Keep);
            }
        };
        let changes = &mut self.changes;
        match &verdict {
            Verdict::Keep => return Ok(verdict),
            Verdict::Remove => changes.removed += 1,
            Verdict::Replace(_) => changes.replaced += 1,
        }
        changes.oldest = Some(changes.oldest.map_or(seq, |oldest| oldest.min(seq)));
        if changes.digests.len() < DIGESTS_MAX {
            changes.digests.push(entries.digest().unwrap_or_else(|| self.digest.digest(key)));
        }
        Ok(verdict)
    }

    /// The changes.
    pub fn into_changes(self) -> FilterChanges {
        self.changes
    }
}
