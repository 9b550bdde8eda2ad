//! The range tombstones of a view, as one reader sees them while it walks: the newest one over a
//! key, looked up once per range of keys with the same result, and how far those go that hide it.

use std::sync::Arc;

use bytes::Bytes;
use shamba_key::SeqNo;
use shamba_table::{Cover, FragmentedTombstones};

use super::{COVERS_PER_SKIP, Came};
use crate::view::View;

/// The range tombstones of a view that one reader sees.
pub(super) struct Tombstones {
    pub(super) lists: Vec<Arc<FragmentedTombstones>>,
    pub(super) visible: SeqNo,
    /// The range of the last lookup, in which neighbouring keys usually lie too.
    pub(super) cover: Option<Cover>,
    /// The largest sequence number in each source, collected when first needed. It stays valid for
    /// a memtable that still grows: new entries are newer than anything the reader sees.
    largest: Vec<SeqNo>,
}

impl Tombstones {
    pub(super) fn of(view: &View, visible: SeqNo) -> Self {
        let memtables = view.memtables.iter().filter(|memtable| memtable.has_range_deletes());
        let mut lists: Vec<_> = memtables.map(|memtable| memtable.range_tombstones()).collect();
        if view.runs_have_range_deletes() {
            let runs = view.plans().iter().filter(|plan| plan.run.has_range_deletes());
            lists.extend(runs.map(|plan| Arc::clone(plan.run.tombstones())));
        }
        Self { lists, visible, cover: None, largest: Vec::new() }
    }

    /// The newest visible tombstone over `key`. Everything up to its sequence number is hidden.
    pub(super) fn floor(&mut self, key: &[u8]) -> SeqNo {
        if self.lists.is_empty() {
            return SeqNo::ZERO;
        }
        match &self.cover {
            Some(cover) if cover.contains(key) => cover.floor,
            _ => self.cover.insert(cover_of(&self.lists, key, self.visible)).floor,
        }
    }

    /// Whether tombstones of at least `floor` hide all entries of a source.
    pub(super) fn crosses(&self, source: usize, floor: SeqNo) -> bool {
        self.largest.get(source).is_some_and(|&largest| largest <= floor)
    }

    /// The smallest sequence number of a tombstone that hides the same sources as `floor`. Ranges
    /// below such tombstones can be skipped together. `None` when `floor` hides no source that has
    /// entries.
    pub(super) fn lowest_like(&mut self, floor: SeqNo, view: &View) -> Option<SeqNo> {
        if self.largest.is_empty() {
            let memtables = view.memtables.iter().map(|memtable| memtable.largest_seq());
            let runs = view.version.runs().map(|(_, run)| {
                run.tables().iter().map(|table| table.meta.largest_seq).max().unwrap_or(SeqNo::ZERO)
            });
            self.largest = memtables.chain(runs).collect();
        }
        self.largest.iter().copied().filter(|&largest| SeqNo::ZERO < largest && largest <= floor).max()
    }

    /// The bound of the keys from `key` on, in a direction, over which tombstones of at least
    /// `floor` lie without a gap. Forward it is the first key after them, `None` if there is none;
    /// backward the first of them. A bound before that after many tombstones.
    pub(super) fn reach(&self, direction: Came, key: &[u8], floor: SeqNo) -> Option<Bytes> {
        let mut cover = cover_of(&self.lists, key, self.visible);
        debug_assert!(cover.floor >= floor, "{:?} lies below {}, not {floor}", key, cover.floor);
        for _ in 0..COVERS_PER_SKIP {
            let beyond = match direction {
                Came::Forward => cover.upper.as_ref().map(|end| cover_of(&self.lists, end, self.visible)),
                Came::Backward => cover_before(&self.lists, &cover.lower, self.visible),
            };
            match beyond {
                Some(beyond) if beyond.floor >= floor => cover = beyond,
                _ => break,
            }
        }
        if direction == Came::Forward { cover.upper } else { Some(cover.lower) }
    }
}

fn cover_of(lists: &[Arc<FragmentedTombstones>], key: &[u8], visible: SeqNo) -> Cover {
    let mut cover = Cover::nothing();
    for list in lists {
        cover.intersect(list.cover(key, visible));
    }
    cover
}

/// The cover of the keys just before `bound`; `None` when there are none.
fn cover_before(lists: &[Arc<FragmentedTombstones>], bound: &[u8], visible: SeqNo) -> Option<Cover> {
    if bound.is_empty() {
        return None;
    }
    let mut cover = Cover::nothing();
    for list in lists {
        cover.intersect(list.cover_before(bound, visible));
    }
    Some(cover)
}
