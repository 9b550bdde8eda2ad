//! The check that an iterator that seeks by itself goes on in its direction.
//!
//! Nothing checks the order of a block's entries when they are read. In a damaged or forged block,
//! a seek past some entries can end before them: the iterator would meet them again, for ever. So
//! each place to which it seeks by itself must be beyond the one before, until a caller seeks.

use std::cmp::Ordering;

use shamba_env::FileError;
use shamba_key::SeqNo;
use shamba_table::EntryIter;

use super::{Came, VisibleIter};
use crate::error::{Error, Result};
use crate::version::TableMeta;

/// The reasons for which the iterator seeks from one key, in the order in which it has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    /// Versions that are too new.
    PastNewer,
    /// The versions after the one that decides.
    PastOlder,
    /// Backward, the key itself, after its newest version was read by a seek forward.
    BackToKey,
    /// Entries that range tombstones hide from the key on.
    PastHidden,
}

/// The last place to which the iterator has sought by itself.
#[derive(Default)]
pub(super) struct Advance {
    key: Vec<u8>,
    /// `None` if there is none since a caller sought.
    step: Option<Step>,
}

impl Advance {
    /// Begins again, from wherever a caller seeks.
    pub fn restart(&mut self) {
        self.step = None;
    }

    /// Notes the next place; false if it is not beyond the last one.
    fn is_beyond(&mut self, came: Came, key: &[u8], step: Step) -> bool {
        let is_beyond = self.step.is_none_or(|last| {
            let keys = match came {
                Came::Forward => key.cmp(&self.key),
                Came::Backward => self.key.as_slice().cmp(key),
            };
            keys.then(step.cmp(&last)) == Ordering::Greater
        });
        self.step = Some(step);
        self.key.clear();
        self.key.extend_from_slice(key);
        is_beyond
    }
}

impl VisibleIter {
    /// Notes that the iterator is about to seek from the current key.
    ///
    /// # Errors
    /// `Corruption` if it has done so before: keys of a table are out of order.
    pub(super) fn advance(&mut self, step: Step) -> Result<()> {
        if self.advance.is_beyond(self.came, &self.key, step) { Ok(()) } else { Err(self.out_of_order()) }
    }

    /// Seeks past all versions of the current key.
    pub(super) fn seek_past_older(&mut self) -> Result<()> {
        self.advance(Step::PastOlder)?;
        Ok(self.merge.seek(&self.key, SeqNo::ZERO)?)
    }

    /// Seeks back before the current key, to whose newest version the iterator has sought forward.
    pub(super) fn seek_before_key(&mut self) -> Result<()> {
        self.advance(Step::BackToKey)?;
        Ok(self.merge.seek_for_prev(&self.key, SeqNo::MAX)?)
    }

    /// The error of a scan that has come to `key` a second time.
    #[cold]
    pub fn out_of_order_at(&mut self, key: &[u8]) -> Error {
        self.key = key.to_vec();
        self.out_of_order()
    }

    #[cold]
    fn out_of_order(&self) -> Error {
        self.disorder("a scan has come to", |_| true)
    }

    /// The error of a scan that finds the current key where it must not be. Names a table that may
    /// hold it.
    #[cold]
    pub(super) fn disorder(&self, found: &str, may_be: impl Fn(&TableMeta) -> bool) -> Error {
        let detail = format!("{found} key \"{}\" out of order", self.key.escape_ascii());
        let mut tables = self.view.plans().iter().flat_map(|plan| plan.run.tables());
        match tables.find(|table| table.range.contains(&self.key) && may_be(&table.meta)) {
            Some(table) => match table.meta.open() {
                Ok(reader) => FileError::corruption(reader.path(), 0, "table", detail).into(),
                Err(error) => error.into(),
            },
            None => Error::invalid(detail),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    use bytes::Bytes;
    use shamba_key::{EntryKind, KeyDigest, KeyspaceId};
    use shamba_log::wal::ValueLogs;
    use shamba_memtable::{ChunkedMemtable, FoldedValues, Memtable};
    use shamba_table::{Entry, FragmentedTombstones, RangeTombstone};
    use shamba_testkit::Dice;

    use super::*;
    use crate::iter::batch::Batch;
    use crate::iter::scan::Scan;
    use crate::iter::testing::{Store, WALK};
    use crate::merging::Merging;
    use crate::version::KeyRange;
    use crate::view::View;

    type Row = (Vec<u8>, SeqNo, EntryKind);

    /// A memtable whose entries are in the order of `rows`, which seeks take for the right one.
    struct Disordered {
        rows: Arc<Vec<Row>>,
        tombstones: Arc<FragmentedTombstones>,
        inner: ChunkedMemtable,
        steps: Arc<AtomicU32>,
    }

    struct DisorderedIter {
        rows: Arc<Vec<Row>>,
        /// `usize::MAX` before the first row.
        at: usize,
        steps: Arc<AtomicU32>,
    }

    impl DisorderedIter {
        fn go(&mut self, at: usize) -> shamba_table::Result<()> {
            self.at = at;
            assert!(self.steps.fetch_add(1, Relaxed) < 100_000, "the walk does not end: {:?}", self.rows);
            Ok(())
        }

        fn bound(&self, key: &[u8], seq: SeqNo, wanted: Ordering) -> usize {
            self.rows.partition_point(|(at, its, _)| {
                let order = shamba_key::internal_cmp(at, *its, key, seq);
                order == Ordering::Less || order == wanted
            })
        }
    }

    impl EntryIter for DisorderedIter {
        fn seek_to_first(&mut self) -> shamba_table::Result<()> {
            self.go(0)
        }
        fn seek_to_last(&mut self) -> shamba_table::Result<()> {
            self.go(self.rows.len().wrapping_sub(1))
        }
        fn seek(&mut self, key: &[u8], seq: SeqNo) -> shamba_table::Result<()> {
            self.go(self.bound(key, seq, Ordering::Less))
        }
        fn seek_for_prev(&mut self, key: &[u8], seq: SeqNo) -> shamba_table::Result<()> {
            self.go(self.bound(key, seq, Ordering::Equal).wrapping_sub(1))
        }
        fn next(&mut self) -> shamba_table::Result<()> {
            self.go(self.at + 1)
        }
        fn prev(&mut self) -> shamba_table::Result<()> {
            self.go(self.at.wrapping_sub(1))
        }
        fn valid(&self) -> bool {
            self.at < self.rows.len()
        }
        fn key(&self) -> &[u8] {
            &self.rows[self.at].0
        }
        fn seq(&self) -> SeqNo {
            self.rows[self.at].1
        }
        fn kind(&self) -> EntryKind {
            self.rows[self.at].2
        }
        // Also an operand.
        fn value(&self) -> &[u8] {
            b"\0v"
        }
        fn value_bytes(&self) -> Bytes {
            Bytes::from_static(b"\0v")
        }
    }

    impl Memtable for Disordered {
        fn insert(&self, _: KeyDigest, _: &[u8], _: SeqNo, _: EntryKind, _: &[u8]) {}
        fn prefetch(&self, _: KeyDigest) {}
        fn insert_range_delete(&self, _: RangeTombstone) {}
        fn get(&self, _: KeyDigest, _: &[u8], _: SeqNo) -> Option<Entry> {
            None
        }
        fn folded(&self) -> &FoldedValues {
            self.inner.folded()
        }
        fn has_range_deletes(&self) -> bool {
            !self.tombstones.is_empty()
        }
        fn range_tombstones(&self) -> Arc<FragmentedTombstones> {
            Arc::clone(&self.tombstones)
        }
        fn bytes(&self) -> u64 {
            0
        }
        fn entries(&self) -> u64 {
            self.rows.len() as u64
        }
        fn is_empty(&self) -> bool {
            false
        }
        fn largest_seq(&self) -> SeqNo {
            SeqNo(100)
        }
        fn iter(self: Arc<Self>) -> Box<dyn EntryIter> {
            let (rows, steps) = (Arc::clone(&self.rows), Arc::clone(&self.steps));
            Box::new(DisorderedIter { rows, at: usize::MAX, steps })
        }
        fn values(&self) -> &ValueLogs {
            self.inner.values()
        }
    }

    fn random_rows(dice: &Dice, has_puts: bool) -> Vec<Row> {
        let kinds = [EntryKind::Delete, EntryKind::Merge, EntryKind::Put];
        let kinds = &kinds[..if has_puts { 3 } else { 2 }];
        let mut rows = Vec::new();
        for _ in 0..1 + dice.below(8) {
            let (key, kind) = (vec![b'a' + dice.below(12) as u8], kinds[dice.below(kinds.len())]);
            let newest = 1 + dice.below(60) as u64;
            // Enough versions for a seek.
            rows.extend(
                (0..1 + dice.below(40) as u64).map(|age| (key.clone(), SeqNo(60 + newest - age), kind)),
            );
        }
        // Mostly blocks of versions in a wrong order.
        for _ in 0..dice.below(4) {
            let (one, other) = (dice.below(rows.len()), dice.below(rows.len()));
            rows.swap(one, other);
        }
        rows
    }

    #[test]
    fn walks_over_entries_that_are_out_of_order_end() {
        let (mut failed, mut failed_scans) = (0, 0);
        let store = Store::new();
        for seed in 0..4_000 {
            let dice = Dice::new(seed);
            let tombstone = RangeTombstone {
                start: Bytes::from(vec![b'a' + dice.below(12) as u8]),
                end: Some(Bytes::from(vec![b'a' + dice.below(14) as u8])),
                seq: SeqNo(dice.below(120) as u64),
            };
            let tombstones = Some(tombstone).filter(|it| dice.one_in(2) && !it.is_empty());
            // Without tombstones, puts of memtables are copied: their entries are in order.
            let rows = random_rows(&dice, tombstones.is_some());
            let memtable = Arc::new(Disordered {
                rows: Arc::new(rows),
                tombstones: Arc::new(FragmentedTombstones::new(tombstones.into_iter().collect())),
                inner: ChunkedMemtable::new(false),
                steps: Arc::default(),
            });
            let view = View::new(KeyspaceId::DEFAULT, vec![memtable], Arc::default())
                .with_merging(Some(Arc::new(Merging::recorded("shamba.append:2c"))));
            let view = Arc::new(view);
            for backward in [false, true] {
                let (mut out, seq) = (Batch::default(), SeqNo(60 + dice.below(60) as u64));
                let mut iter = VisibleIter::new(Arc::clone(&view), seq, KeyRange::everything(), WALK);
                let wanted = 1 + dice.below(9);
                out.begin(wanted, wanted, 0);
                let mut more =
                    if backward { iter.seek_to_last(&mut out) } else { iter.seek(b"", None, &mut out) };
                while matches!(more, Ok(true)) {
                    out.begin(wanted, wanted, 0);
                    more = if backward { iter.prev(&mut out) } else { iter.next(&mut out) };
                }
                failed += u32::from(more.is_err());
                // A scan goes on after an error from the last entry found.
                store.show(Arc::clone(&view));
                let mut scan =
                    Scan::new(store.scan_source(store.snapshots.take_with(|| seq)), KeyRange::everything());
                let mut moved = if backward { scan.prev() } else { scan.next() };
                while matches!(moved, Ok(true)) {
                    moved = if backward { scan.prev() } else { scan.next() };
                }
                failed_scans += u32::from(moved.is_err());
            }
        }
        assert!(failed > 10 && failed_scans > 10, "only {failed} walks and {failed_scans} scans fail");
    }
}
