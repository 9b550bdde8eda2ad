//! Conditions of a write: keys that must be as they were at a sequence number.
//!
//! The leader of a group checks the conditions of each batch under the writer's lock, before it
//! writes anything. All earlier writes are in memtables or tables then, except for those of earlier
//! batches of the same group ([`EarlierWrites`]). So a batch is written only if nothing that it
//! depends on has changed until the moment at which it takes effect. A batch whose conditions do
//! not hold is answered [`Conflict`], and the others of its group are written.
//!
//! A memtable tells the newest version of a key without reading a file. Of a table only the bounds
//! and the largest sequence number are asked: if it may hold a newer version, that is a conflict,
//! though perhaps a false one ([`Conflict::is_certain`]). It can only be a table that was installed
//! after the sequence number was drawn.
//!
//! The caller holds a snapshot of the sequence number: otherwise a compaction could drop a key
//! together with the tombstone that shows its change.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use shamba_key::{KeyDigest, KeyspaceId, SeqNo};
use shamba_log::wal::OpRef;

use super::Writer;
use super::share::{Share, Writes};
use crate::catalog::KeyspaceCore;
use crate::error::{Error, ErrorKind};
use shamba_tree::view::View;

/// A key that a write depends on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct KeyRead {
    pub keyspace: KeyspaceId,
    pub digest: KeyDigest,
    pub key: Bytes,
}

/// Keys that must not have changed after a sequence number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Conditions {
    /// The sequence number at which the keys were read.
    pub since: SeqNo,
    pub keys: Vec<KeyRead>,
}

/// A key that was written after it was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Conflict {
    pub keyspace: KeyspaceId,
    pub key: Bytes,
    /// False if a table may hold a newer version, and was not read.
    pub is_certain: bool,
}

/// The keys and ranges that earlier batches of a group write. A key stands for all that have its
/// digest: two of them in one group are a false conflict.
#[derive(Default)]
pub(super) struct EarlierWrites<'a> {
    digests: HashSet<(KeyspaceId, KeyDigest)>,
    ranges: Vec<DeletedRange<'a>>,
}

/// A range that a batch deletes: from a key up to another one, or to the end of the keyspace.
type DeletedRange<'a> = (KeyspaceId, &'a [u8], Option<&'a [u8]>);

impl<'a> EarlierWrites<'a> {
    fn add(&mut self, writes: Writes<'a>, writer: &Writer) {
        writes.for_each(|keyspace, op| match op {
            OpRef::Put { key, .. } | OpRef::Delete { key } => {
                self.digests.insert((keyspace, writer.digest.digest(key)));
            }
            OpRef::RangeDelete { start, end } => self.ranges.push((keyspace, start, end)),
        });
    }

    fn have(&self, read: &KeyRead) -> bool {
        let covers = |(keyspace, start, end): &DeletedRange<'_>| {
            *keyspace == read.keyspace && *start <= &read.key[..] && end.is_none_or(|end| &read.key[..] < end)
        };
        self.digests.contains(&(read.keyspace, read.digest)) || self.ranges.iter().any(covers)
    }
}

impl Writer {
    /// Checks the conditions of the batches of a group, in their order. Returns the conflict of
    /// each, or nothing if no batch has conditions.
    pub(super) fn conflicts<'a>(
        &self,
        shares: impl Iterator<Item = Share<'a>> + Clone,
    ) -> Vec<Option<Conflict>> {
        if shares.clone().all(|share| share.conditions.is_none()) {
            return Vec::new();
        }
        let mut earlier = EarlierWrites::default();
        let mut conflicts = Vec::new();
        let mut shares = shares.peekable();
        while let Some(share) = shares.next() {
            let conflict = share.conditions.and_then(|conditions| self.conflict(conditions, &earlier));
            if conflict.is_none() && shares.peek().is_some() {
                earlier.add(share.writes, self);
            }
            conflicts.push(conflict);
        }
        conflicts
    }

    /// The first condition that does not hold.
    fn conflict(&self, conditions: &Conditions, earlier: &EarlierWrites<'_>) -> Option<Conflict> {
        let keyspaces = self.catalog.keyspaces();
        conditions.keys.iter().find_map(|read| {
            let changed = match keyspaces.get(&read.keyspace) {
                // The keyspace was dropped.
                None => Some(true),
                Some(_) if earlier.have(read) => Some(true),
                Some(keyspace) => change(&keyspace.load(), read, conditions.since),
            };
            let conflict =
                |is_certain| Conflict { keyspace: read.keyspace, key: read.key.clone(), is_certain };
            changed.map(conflict)
        })
    }

    /// The error for a conflict.
    pub(super) fn conflict_error(&self, conflict: &Conflict) -> Error {
        let name = |keyspace: &Arc<KeyspaceCore>| keyspace.name.clone();
        let name = self.catalog.keyspaces().get(&conflict.keyspace).map(name);
        let key = conflict.key.escape_ascii();
        Error::new(
            ErrorKind::Conflict,
            match name {
                Some(name) => format!("key \"{key}\" of keyspace {name:?} was written after it was read"),
                None => format!("the keyspace of key \"{key}\" was dropped after it was read"),
            },
        )
    }
}

/// Whether a key was written after `since`: true if so, false if a table may hold such a version,
/// `None` if not.
fn change(view: &View, read: &KeyRead, since: SeqNo) -> Option<bool> {
    let KeyRead { digest, key, .. } = read;
    // The first one may be empty, and newer entries behind it.
    for memtable in view.memtables.iter().filter(|memtable| memtable.largest_seq() > since) {
        let newest = memtable.get(*digest, key, SeqNo::MAX).map_or(SeqNo::ZERO, |entry| entry.seq);
        if newest > since {
            return Some(true);
        }
        if memtable.has_range_deletes()
            && memtable.range_tombstones().newest_covering(key, SeqNo::MAX) > since
        {
            return Some(true);
        }
    }
    let may_hold = |table: &shamba_tree::version::TableUse| table.meta.largest_seq > since;
    view.version.runs().any(|(_, run)| run.table_for(key).is_some_and(may_hold)).then_some(false)
}
