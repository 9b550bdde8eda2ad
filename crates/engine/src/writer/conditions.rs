//! Conditions of a write: keys and ranges that must be as they were at a sequence number.
//!
//! The leader of a group checks the conditions of each batch under the writer's lock, before it
//! writes anything. All earlier writes are in memtables or tables then ([`super::changes`]), except
//! for those of earlier batches of the same group ([`EarlierWrites`]). So a batch is written only
//! if nothing that it depends on has changed until the moment at which it takes effect. A batch
//! whose conditions do not hold is answered with a conflict, and the others of its group are
//! written.
//!
//! No file is read under the lock. If a table may hold a newer version of a key, that is a
//! conflict, though perhaps not a real one. It can only be a table that was installed after the
//! sequence number was drawn. [`Writer::proved_conflict`] reads it, without the lock.

use std::collections::{BTreeSet, HashSet};
use std::ops::Bound;

use bytes::Bytes;
use shamba_key::{Expiry, KeyDigest, KeyspaceId, SeqNo};
use shamba_log::wal::OpRef;
use shamba_tree::version::KeyRange;

use super::Writer;
use super::changes::{Changed, change_in_range, change_in_tables, change_of_key};
use super::share::{Share, Writes};
use crate::error::{Conflict, Result};
use crate::key_range::successor;

/// A key that a write depends on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct KeyRead {
    pub keyspace: KeyspaceId,
    pub digest: KeyDigest,
    pub key: Bytes,
}

/// A range that a write depends on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RangeRead {
    pub keyspace: KeyspaceId,
    pub range: KeyRange,
}

/// Keys and ranges that must not have changed after a sequence number, of which the caller holds a
/// snapshot, or of an earlier one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Conditions {
    pub since: SeqNo,
    /// The write must come before this time: then a value that it depends on expires.
    pub until: Option<Expiry>,
    pub keys: Vec<KeyRead>,
    pub ranges: Vec<RangeRead>,
}

/// The keys and ranges that earlier batches of a group write. For conditions on keys, a key stands
/// for all that have its digest: two of them in one group are a false conflict.
#[derive(Default)]
struct EarlierWrites<'a> {
    digests: HashSet<(KeyspaceId, KeyDigest)>,
    /// Only if a batch of the group depends on a range.
    keys: Option<BTreeSet<(KeyspaceId, &'a [u8])>>,
    ranges: Vec<DeletedRange<'a>>,
}

/// A range that a batch deletes: from a key up to another one, or to the end of the keyspace.
type DeletedRange<'a> = (KeyspaceId, &'a [u8], Option<&'a [u8]>);

impl<'a> EarlierWrites<'a> {
    fn add(&mut self, writes: Writes<'a>, writer: &Writer) {
        writes.for_each(|keyspace, op| match op {
            OpRef::Put { key, .. }
            | OpRef::PutExpiring { key, .. }
            | OpRef::Delete { key }
            | OpRef::Merge { key, .. } => {
                self.digests.insert((keyspace, writer.digest.digest(key)));
                if let Some(keys) = &mut self.keys {
                    keys.insert((keyspace, key));
                }
            }
            OpRef::RangeDelete { start, end } => self.ranges.push((keyspace, start, end)),
        });
    }

    fn change_of_key(&self, read: &KeyRead) -> Option<Changed> {
        let covers = |(keyspace, start, end): &DeletedRange<'_>| {
            *keyspace == read.keyspace && *start <= &read.key[..] && end.is_none_or(|end| &read.key[..] < end)
        };
        let has = self.digests.contains(&(read.keyspace, read.digest)) || self.ranges.iter().any(covers);
        has.then(|| Changed { key: read.key.clone(), is_proved: true })
    }

    fn change_in_range(&self, read: &RangeRead) -> Option<Changed> {
        let RangeRead { keyspace, range } = read;
        let changed = |key: &[u8]| Changed { key: Bytes::copy_from_slice(key), is_proved: true };
        let from = (Bound::Included((*keyspace, &range.lower[..])), Bound::Unbounded);
        let first = self.keys.as_ref().and_then(|keys| keys.range(from).next());
        if let Some((_, key)) = first.filter(|(of, key)| of == keyspace && range.is_above(key)) {
            return Some(changed(key));
        }
        let overlaps = |(of, start, end): &&DeletedRange<'_>| {
            of == keyspace && range.is_above(start) && end.is_none_or(|end| &range.lower[..] < end)
        };
        self.ranges.iter().find(overlaps).map(|(_, start, _)| changed((*start).max(&range.lower)))
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
        let has_ranges = |share: Share<'_>| share.conditions.is_some_and(|all| !all.ranges.is_empty());
        let keys = shares.clone().any(has_ranges).then(BTreeSet::new);
        let mut earlier = EarlierWrites { keys, ..EarlierWrites::default() };
        let mut conflicts = Vec::new();
        let mut left = shares.clone().filter(|share| share.conditions.is_some()).count();
        for share in shares {
            left -= usize::from(share.conditions.is_some());
            let conflict = share.conditions.and_then(|conditions| self.conflict(conditions, &earlier));
            if conflict.is_none() && left > 0 {
                earlier.add(share.writes, self);
            }
            conflicts.push(conflict);
        }
        conflicts
    }

    /// The first condition that does not hold.
    fn conflict(&self, conditions: &Conditions, earlier: &EarlierWrites<'_>) -> Option<Conflict> {
        let Conditions { since, until, keys, ranges } = conditions;
        if until.is_some_and(|until| until.is_past(self.reads.expiry().now_ms())) {
            let read = keys.first()?;
            let changed = Changed { key: read.key.clone(), is_proved: true };
            return Some(self.conflict_at(read.keyspace, changed));
        }
        let keyspaces = self.catalog.keyspaces();
        for read in keys {
            let changed = match keyspaces.get(&read.keyspace) {
                None => return Some(dropped(&read.key)),
                Some(keyspace) => earlier
                    .change_of_key(read)
                    .or_else(|| change_of_key(&keyspace.load(), read.digest, &read.key, *since)),
            };
            if let Some(changed) = changed {
                return Some(self.conflict_at(read.keyspace, changed));
            }
        }
        for read in ranges {
            let changed = match keyspaces.get(&read.keyspace) {
                None => return Some(dropped(&read.range.lower)),
                Some(keyspace) => earlier
                    .change_in_range(read)
                    .or_else(|| change_in_range(&keyspace.load(), &read.range, *since)),
            };
            if let Some(changed) = changed {
                return Some(self.conflict_at(read.keyspace, changed));
            }
        }
        None
    }

    /// The first condition that does not hold for the writes up to the visible sequence number, or
    /// the same conditions for the writes after it. Reads the tables that may hold newer versions.
    ///
    /// # Errors
    /// Of reading tables.
    pub fn proved_conflict(
        &self,
        conditions: &Conditions,
    ) -> Result<std::result::Result<Conditions, Conflict>> {
        let walk = self.reads.walk();
        // Before the views: whatever is visible now is in them.
        let visible = self.reads.visible();
        let Conditions { since, keys, ranges, .. } = conditions;
        let keyspaces = self.catalog.keyspaces();
        for read in keys {
            let Some(keyspace) = keyspaces.get(&read.keyspace) else { return Ok(Err(dropped(&read.key))) };
            let view = keyspace.load();
            let changed = match change_of_key(&view, read.digest, &read.key, *since) {
                Some(Changed { is_proved: false, .. }) => {
                    let alone = KeyRange { lower: read.key.clone(), upper: successor(&read.key) };
                    change_in_tables(&view, &alone, *since, walk)?
                }
                known => known,
            };
            if let Some(changed) = changed {
                return Ok(Err(self.conflict_at(read.keyspace, changed)));
            }
        }
        for RangeRead { keyspace: id, range } in ranges {
            let Some(keyspace) = keyspaces.get(id) else { return Ok(Err(dropped(&range.lower))) };
            let view = keyspace.load();
            let changed = match change_in_range(&view, range, *since) {
                Some(Changed { is_proved: false, .. }) => change_in_tables(&view, range, *since, walk)?,
                known => known,
            };
            if let Some(changed) = changed {
                return Ok(Err(self.conflict_at(*id, changed)));
            }
        }
        Ok(Ok(Conditions { since: visible.max(*since), ..conditions.clone() }))
    }

    fn conflict_at(&self, keyspace: KeyspaceId, changed: Changed) -> Conflict {
        let name = self.catalog.keyspaces().get(&keyspace).map(|keyspace| keyspace.name.clone());
        let Changed { key, is_proved } = changed;
        Conflict { keyspace: name.unwrap_or_default(), key: key.into(), is_proved }
    }
}

fn dropped(key: &Bytes) -> Conflict {
    Conflict { keyspace: String::new(), key: key.to_vec(), is_proved: true }
}

#[cfg(test)]
mod tests {
    use super::super::operations::Operations;
    use super::*;
    use crate::options::settings::{Durability, Settings};
    use crate::testing::{MemtableLimit, Parts};

    /// The keys of the conflicts that a group has, over an empty database. A batch of the group
    /// makes its operations, and depends on the key.
    fn conflicts(group: &[(&[OpRef<'_>], Option<&'static str>)]) -> Vec<Option<Vec<u8>>> {
        let parts = Parts::new(Settings::default());
        let writer = parts.writer(MemtableLimit::none());
        let batch = |(ops, depends_on): &(&[OpRef<'_>], Option<&'static str>)| {
            let mut operations = Operations::EMPTY;
            for op in *ops {
                operations.push(KeyspaceId::DEFAULT, *op).expect("valid");
            }
            let conditions = depends_on.map(|key| {
                let digest = writer.digest.digest(key.as_bytes());
                let key = Bytes::from_static(key.as_bytes());
                let keys = vec![KeyRead { keyspace: KeyspaceId::DEFAULT, digest, key }];
                Conditions { since: SeqNo::ZERO, until: None, keys, ranges: Vec::new() }
            });
            (operations, conditions)
        };
        let batches: Vec<_> = group.iter().map(batch).collect();
        let shares = batches.iter().map(|(operations, conditions)| Share {
            writes: Writes::Batch(operations),
            durability: Durability::NoSync,
            conditions: conditions.as_ref(),
        });
        let key = |conflict: Option<Conflict>| conflict.map(|conflict| conflict.key);
        writer.conflicts(shares).into_iter().map(key).collect()
    }

    fn put(key: &str) -> OpRef<'_> {
        OpRef::Put { key: key.as_bytes(), value: b"v" }
    }

    #[test]
    fn a_refused_batch_of_a_group_conflicts_with_no_later_one() {
        let group: [(&[OpRef<'_>], _); 5] = [
            (&[put("a")], None),
            (&[put("b")], Some("a")),
            (&[put("c")], Some("b")),
            (&[put("d")], Some("b")),
            (&[put("e")], Some("c")),
        ];
        // The second one is refused, so its write of "b" does not take place; the third one's does.
        let expected = [None, Some(b"a".to_vec()), None, None, Some(b"c".to_vec())];
        assert_eq!(conflicts(&group), expected);
        assert!(conflicts(&[(&[put("a")], None), (&[put("a")], None)]).is_empty(), "no conditions");
    }

    #[test]
    fn a_write_that_has_to_come_before_an_expiry_conflicts_after_it() {
        let parts = Parts::new(Settings::default());
        let writer = parts.writer(MemtableLimit::none());
        let now_ms = parts.reads.expiry().now_ms();
        let key = Bytes::from_static(b"a");
        let conflict = |until_ms: u64| {
            let keys = vec![KeyRead {
                keyspace: KeyspaceId::DEFAULT,
                digest: writer.digest.digest(&key),
                key: key.clone(),
            }];
            let until = Some(Expiry(until_ms));
            let conditions = Conditions { since: SeqNo::ZERO, until, keys, ranges: Vec::new() };
            writer.conflict(&conditions, &EarlierWrites::default()).map(|conflict| conflict.key)
        };
        assert_eq!(conflict(now_ms + 60_000), None);
        assert_eq!(conflict(now_ms), Some(b"a".to_vec()));
    }

    #[test]
    fn a_range_that_an_earlier_batch_deletes_ends_before_its_end() {
        let delete = |end| OpRef::RangeDelete { start: b"c", end };
        for (key, to_d, to_the_end) in
            [("b", false, false), ("c", true, true), ("czz", true, true), ("d", false, true)]
        {
            for (end, is_covered) in [(Some(&b"d"[..]), to_d), (None, to_the_end)] {
                let expected = [None, is_covered.then(|| key.as_bytes().to_vec())];
                assert_eq!(conflicts(&[(&[delete(end)], None), (&[put("z")], Some(key))]), expected);
            }
        }
    }
}
