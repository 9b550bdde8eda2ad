//! Changes: whether a key, or any key of a range, was written after a sequence number.
//!
//! [`change_of_key`] and [`change_in_range`] read no file, so the holder of the writer's lock may
//! call them. Memtables answer exactly: points by the digest index, ranges by an iterator that
//! jumps over older entries. Of a table only its bounds and its largest sequence number are asked.
//! If it may hold a newer version, that is a change, though perhaps not a real one
//! ([`Changed::is_proved`]). [`change_in_tables`] reads those tables.
//!
//! The caller holds a snapshot of the sequence number: otherwise a compaction could drop a key
//! together with the tombstone that shows its change.

use std::sync::Arc;

use bytes::Bytes;
use shamba_key::{KeyDigest, SeqNo};
use shamba_memtable::Memtable;
use shamba_table::{EntryIter, FragmentedTombstones, RangeTombstone, Walk};
use shamba_tree::iter::run_iter::RunIter;
use shamba_tree::version::{KeyRange, TableUse};
use shamba_tree::view::View;

use crate::error::Result;

/// A key that was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Changed {
    /// Of a range: a key that was written, or the first one of the part that was deleted.
    pub key: Bytes,
    /// False if a table may hold a newer version, and was not read.
    pub is_proved: bool,
}

/// Whether `key` was written after `since`.
pub(crate) fn change_of_key(view: &View, digest: KeyDigest, key: &Bytes, since: SeqNo) -> Option<Changed> {
    let changed = |is_proved| Changed { key: key.clone(), is_proved };
    for memtable in newer_memtables(view, since) {
        if memtable.newest_seq(digest, key) > since {
            return Some(changed(true));
        }
        if memtable.has_range_deletes()
            && memtable.range_tombstones().newest_covering(key, SeqNo::MAX) > since
        {
            return Some(changed(true));
        }
    }
    let may_hold = |table: &TableUse| table.meta.largest_seq > since;
    let is_possible = view.version.runs().any(|(_, run)| run.table_for(key).is_some_and(may_hold));
    is_possible.then(|| changed(false))
}

/// Whether any key of `range` was written after `since`.
pub(crate) fn change_in_range(view: &View, range: &KeyRange, since: SeqNo) -> Option<Changed> {
    for memtable in newer_memtables(view, since) {
        if memtable.has_range_deletes() {
            if let Some(key) = deleted_after(&memtable.range_tombstones(), range, since) {
                return Some(Changed { key, is_proved: true });
            }
        }
        let mut entries = Arc::clone(memtable).iter();
        // A memtable reads no file, so nothing fails.
        if let Ok(Some(key)) = written_after(entries.as_mut(), range, since) {
            return Some(Changed { key, is_proved: true });
        }
    }
    let mut tables = view.version.runs().flat_map(|(_, run)| run.overlapping(range));
    let newer = tables.find(|table| table.meta.largest_seq > since)?;
    Some(Changed { key: newer.range.lower.clone().max(range.lower.clone()), is_proved: false })
}

/// A key of `range` that was written after `since`, as far as tables tell; they are read by `walk`.
///
/// # Errors
/// Of reading tables.
pub(crate) fn change_in_tables(
    view: &View,
    range: &KeyRange,
    since: SeqNo,
    walk: Walk,
) -> Result<Option<Changed>> {
    for (_, run) in view.version.runs() {
        let is_newer = |table: &&TableUse| table.meta.largest_seq > since;
        let tables: Vec<TableUse> = run.overlapping(range).iter().filter(is_newer).cloned().collect();
        if tables.is_empty() {
            continue;
        }
        let deleted = deleted_after(run.tombstones(), range, since);
        let written = || written_after(&mut RunIter::new(tables, range.clone(), walk), range, since);
        if let Some(key) = deleted.map_or_else(written, |key| Ok(Some(key)))? {
            return Ok(Some(Changed { key, is_proved: true }));
        }
    }
    Ok(None)
}

fn newer_memtables(view: &View, since: SeqNo) -> impl Iterator<Item = &Arc<dyn Memtable>> {
    // The first one may be empty, and newer entries behind it.
    view.memtables.iter().filter(move |memtable| memtable.largest_seq() > since)
}

/// The first key of `range` that a tombstone newer than `since` covers.
fn deleted_after(tombstones: &FragmentedTombstones, range: &KeyRange, since: SeqNo) -> Option<Bytes> {
    let covers = |tombstone: &&RangeTombstone| {
        range.is_above(&tombstone.start) && tombstone.end.as_ref().is_none_or(|end| range.lower < *end)
    };
    tombstones
        .newer_than(since)
        .find(covers)
        .map(|tombstone| tombstone.start.clone().max(range.lower.clone()))
}

/// The first key of `range` with an entry newer than `since`.
fn written_after(
    entries: &mut (impl EntryIter + ?Sized),
    range: &KeyRange,
    since: SeqNo,
) -> Result<Option<Bytes>> {
    entries.seek(&range.lower, SeqNo::MAX)?;
    entries.skip_hidden(range.upper.as_deref(), since)?;
    let is_within = entries.valid() && range.is_above(entries.key());
    debug_assert!(!is_within || entries.seq() > since, "an entry at {} was not passed", entries.seq());
    Ok(is_within.then(|| Bytes::copy_from_slice(entries.key())))
}

#[cfg(test)]
mod tests {
    use shamba_key::{DigestFn, DigestKind, EntryKind, KeyspaceId};
    use shamba_memtable::ChunkedMemtable;
    use shamba_tree::version::Version;

    use super::*;

    fn range(lower: &str, upper: &str) -> KeyRange {
        KeyRange {
            lower: Bytes::copy_from_slice(lower.as_bytes()),
            upper: Some(Bytes::copy_from_slice(upper.as_bytes())),
        }
    }

    fn digest_fn() -> DigestFn {
        DigestFn::new(DigestKind::ALL[0], 1)
    }

    /// A view of one memtable: `b..d` is deleted at 5, `x` is written at 9.
    fn view(digest: DigestFn) -> View {
        let memtable: Arc<dyn Memtable> = Arc::new(ChunkedMemtable::new(true));
        let KeyRange { lower: start, upper: end } = range("b", "d");
        memtable.insert_range_delete(RangeTombstone { start, end, seq: SeqNo(5) });
        memtable.insert(digest.digest(b"x"), b"x", SeqNo(9), EntryKind::Put, b"1");
        View::new(KeyspaceId::DEFAULT, vec![memtable], Arc::default())
    }

    #[test]
    fn a_write_at_the_number_itself_is_no_change_after_it() {
        let digest = digest_fn();
        let view = view(digest);
        let changed = |key: &'static str, since| {
            let key = Bytes::from_static(key.as_bytes());
            let change = change_of_key(&view, digest.digest(&key), &key, SeqNo(since));
            change.map(|changed| (changed.key == key, changed.is_proved))
        };
        for (key, last) in [("b", 5), ("c", 5), ("x", 9)] {
            assert_eq!(changed(key, last - 1), Some((true, true)), "{key} after {}", last - 1);
            assert_eq!(changed(key, last), None, "{key} after {last}");
        }
        assert_eq!((changed("a", 0), changed("d", 0)), (None, None), "never written");
        let first = |lower, upper, since| {
            let change = change_in_range(&view, &range(lower, upper), SeqNo(since));
            change.map(|Changed { key, is_proved }| (String::from_utf8_lossy(&key).into_owned(), is_proved))
        };
        let at = |key: &str| Some((key.to_owned(), true));
        assert_eq!((first("a", "c", 4), first("c", "z", 4)), (at("b"), at("c")));
        assert_eq!(first("a", "x", 5), None, "the deletion is not newer than itself");
        assert_eq!((first("a", "z", 5), first("a", "z", 8), first("a", "z", 9)), (at("x"), at("x"), None));
    }

    #[test]
    fn only_tables_with_newer_entries_are_read() {
        // Nothing is behind these tables: reading one fails.
        let version: Version =
            "L1: r3@3[000002:a..m 40 seq=1-5, 000003:m..z 40 seq=1-8]".parse().expect("notation");
        let view = View::new(KeyspaceId::DEFAULT, Vec::new(), Arc::new(version));
        let walk = Walk::Parts { fill_cache: false, ahead_bytes: 0 };
        let read = |lower, upper, since| change_in_tables(&view, &range(lower, upper), SeqNo(since), walk);
        assert_eq!(read("a", "m", 5).expect("not read"), None);
        assert!(read("a", "m", 4).is_err(), "it may hold a newer entry");
        assert_eq!(read("a", "z", 8).expect("not read"), None);
        assert!(read("a", "z", 7).is_err());
        let key = Bytes::from_static(b"b");
        let change = |since| change_of_key(&view, digest_fn().digest(&key), &key, SeqNo(since));
        assert_eq!(change(4), Some(Changed { key: key.clone(), is_proved: false }));
        assert_eq!(change(5), None);
    }
}
