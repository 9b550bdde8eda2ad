//! Runs: sorted lists of tables that do not overlap. A level consists of runs.
//!
//! A run uses a range of keys of each of its tables, which may be smaller than the file's range. At
//! most one table of a run can contain a key. [`Run::number_for`] finds it through the run's
//! *fences*: the lower and upper bounds of all tables in one ascending list, indexed by
//! [heads](LayeredHeads). If the number of fences at or below a key is odd, the key lies in a
//! table; if even, between two tables. A bound is compared in full only if the heads leave the
//! comparison undecided. A run is immutable; an edit creates a new run that shares the files.
//!
//! Invariant (enforced by [`Run::new`]): the tables are sorted by range; ranges are not empty and
//! do not overlap.
//!
//! Not here: the order of runs ([`super::version`]), reading entries (`read::run_iter`).

use std::sync::Arc;

use shamba_key::{Age, LayeredHeads, RunId};
use shamba_table::{Charge, FragmentedTombstones, RangeTombstone};

use super::edit::{KeyRange, TableUse};
use super::range::cmp_upper;
use super::run_tombstones::RunTombstones;

/// One sorted run.
#[derive(Debug)]
pub struct Run {
    /// Number of the run, never reused.
    pub id: RunId,
    /// Age: a larger one is newer, among the runs of a level.
    pub age: Age,
    tables: Box<[TableUse]>,
    /// The lower and upper bound of each table, in order; without the last upper bound if it has no
    /// end.
    fences: LayeredHeads,
    bytes: u64,
    metadata_bytes: usize,
    has_range_deletes: bool,
    names_value_files: bool,
    value_bytes: u64,
    tombstones: RunTombstones,
}

impl Run {
    /// Creates a run of `tables`, given in any order.
    ///
    /// # Errors
    /// A phrase that names a table with an empty range, or two tables that overlap.
    pub fn new(id: RunId, age: Age, mut tables: Vec<TableUse>) -> Result<Self, String> {
        tables.sort_by(|a, b| a.range.lower.cmp(&b.range.lower));
        if let Some(table) = tables.iter().find(|table| table.range.is_empty()) {
            return Err(format!("run {id}: no key is in the range of table {}", table.meta.id));
        }
        for pair in tables.windows(2) {
            if let [left, right] = pair {
                if left.range.is_above(&right.range.lower) {
                    return Err(format!(
                        "run {id}: tables {} and {} share keys",
                        left.meta.id, right.meta.id
                    ));
                }
            }
        }
        let unbounded = tables.last().is_some_and(|table| table.range.upper.is_none());
        let count = (2 * tables.len()).saturating_sub(usize::from(unbounded));
        debug_assert!(
            tables.iter().rev().skip(1).all(|table| table.range.upper.is_some()),
            "run {id}: a table that is not the last has no end"
        );
        debug_assert!(
            (1..count).all(|number| fence(&tables, number - 1) <= fence(&tables, number)),
            "run {id}: the fences of its {} tables do not ascend",
            tables.len()
        );
        let fences = LayeredHeads::new(count, |number| fence(&tables, number));
        debug_assert_eq!(fences.len(), count, "run {id}: a fence for each bound of its tables");
        Ok(Self {
            id,
            age,
            metadata_bytes: fences.memory_bytes() + tables.iter().map(TableUse::memory_bytes).sum::<usize>(),
            fences,
            bytes: tables.iter().fold(0, |sum, table| sum.saturating_add(table.live_bytes)),
            has_range_deletes: tables.iter().any(|table| table.meta.range_deletes > 0),
            names_value_files: tables.iter().any(|table| !table.meta.values.get().is_empty()),
            value_bytes: tables.iter().fold(0, |sum, table| sum.saturating_add(table.values.bytes())),
            tables: tables.into_boxed_slice(),
            tombstones: RunTombstones::default(),
        })
    }

    /// The tables, ascending.
    pub fn tables(&self) -> &[TableUse] {
        &self.tables
    }

    /// Approximate number of bytes in use.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Stored bytes of the values in value files to which the entries in use refer.
    pub fn value_bytes(&self) -> u64 {
        self.value_bytes
    }

    /// Whether any table names a value file.
    pub(super) fn names_value_files(&self) -> bool {
        self.names_value_files
    }

    /// Memory of the run and its table metadata. Open tables count their own memory.
    pub fn metadata_bytes(&self) -> usize {
        size_of::<Self>() + self.metadata_bytes
    }

    /// Returns the table whose range contains `key`.
    pub fn table_for(&self, key: &[u8]) -> Option<&TableUse> {
        self.tables.get(self.number_for(key)?)
    }

    /// Returns the index of the table whose range contains `key`.
    #[inline]
    pub fn number_for(&self, key: &[u8]) -> Option<usize> {
        let passed = self.fences_up_to(key);
        // An even number of fences: the key lies between two tables.
        debug_assert!(passed <= self.fence_count(), "{passed} of {} fences", self.fence_count());
        let number = if passed % 2 == 1 { Some(passed / 2) } else { None };
        debug_assert!(
            number.is_none_or(|number| self.tables[number].range.contains(key)),
            "run {}: the fences lead to table {number:?}, which does not contain {key:?}",
            self.id
        );
        number
    }

    /// Returns the index of the first table that does not lie entirely below `key`; the number of
    /// tables if all do.
    #[inline]
    pub fn first_reaching(&self, key: &[u8]) -> usize {
        let first = self.fences_up_to(key) / 2;
        debug_assert!(
            self.tables.get(first).is_none_or(|table| table.range.is_above(key)),
            "run {}: table {first} lies below {key:?}",
            self.id
        );
        debug_assert!(
            first.checked_sub(1).is_none_or(|before| !self.tables[before].range.is_above(key)),
            "run {}: a table before {first} reaches {key:?}",
            self.id
        );
        first
    }

    /// Number of fences.
    pub fn fence_count(&self) -> usize {
        self.fences.len()
    }

    /// The bound of fence `number`.
    pub fn fence(&self, number: usize) -> &[u8] {
        debug_assert!(number < self.fence_count(), "fence {number} of {}", self.fence_count());
        fence(&self.tables, number)
    }

    /// Number of fences at or below `key`.
    #[inline]
    fn fences_up_to(&self, key: &[u8]) -> usize {
        self.fences.upper_bound(key, |number| fence(&self.tables, number))
    }

    /// The tables that overlap `range`.
    pub fn overlapping(&self, range: &KeyRange) -> &[TableUse] {
        let first = self.tables.partition_point(|table| !table.range.is_above(&range.lower));
        let rest = &self.tables[first..];
        let overlapping = &rest[..rest.partition_point(|table| range.is_above(&table.range.lower))];
        debug_assert!(
            range.is_empty() || overlapping.iter().all(|table| table.range.overlaps(range)),
            "run {}: a table found for {range:?} lies outside it",
            self.id
        );
        overlapping
    }

    /// Whether any table has range tombstones; if not, a lookup can skip them.
    #[inline]
    pub fn has_range_deletes(&self) -> bool {
        self.has_range_deletes
    }

    /// The range tombstones of all tables, each clipped to the range in use of its table. Computed
    /// at the first call, without reads, because an open table holds its tombstones in memory.
    pub fn tombstones(&self) -> &Arc<FragmentedTombstones> {
        self.tombstones.get_or_build(|| {
            if !self.has_range_deletes {
                return Vec::new();
            }
            let mut tombstones = Vec::with_capacity(self.listed().map(|(_, list)| list.len()).sum());
            for (table, list) in self.listed() {
                tombstones.extend(list.iter().filter_map(|t| cut(t, &table.range)));
            }
            tombstones
        })
    }

    /// The tables with range tombstones, and those of their files.
    fn listed(&self) -> impl Iterator<Item = (&TableUse, &[RangeTombstone])> {
        self.tables.iter().filter(|table| table.meta.range_deletes > 0).filter_map(|table| {
            // A table with tombstones that is not open would make deleted keys visible again.
            debug_assert!(table.meta.reader.get().is_some(), "table {} is not open", table.meta.id);
            Some((table, table.meta.reader.get()?.range_tombstones()))
        })
    }

    /// Maximum memory of [`Self::tombstones`], to be charged with [`Self::take_charge`]. `None` if
    /// there are no tombstones, or the run has a charge.
    pub fn uncharged_bytes_max(&self) -> Option<u64> {
        if !self.has_range_deletes || self.tombstones.is_charged() {
            return None;
        }
        let of = |(table, list): (&TableUse, &[RangeTombstone])| {
            list.iter().filter(|t| cut(t, &table.range).is_some()).count() as u64
        };
        let count = self.listed().map(of).sum();
        Some(FragmentedTombstones::memory_bytes_max(count))
    }

    /// Takes the charge for [`Self::tombstones`]. The run reduces it to their size once they are
    /// computed, and releases it on drop.
    pub fn take_charge(&self, charge: Charge) {
        self.tombstones.take_charge(charge);
    }
}

/// The bound of fence `number`.
fn fence(tables: &[TableUse], number: usize) -> &[u8] {
    match tables.get(number / 2) {
        Some(table) if number % 2 == 0 => &table.range.lower,
        // If the last table has no end, its upper bound has no fence.
        Some(table) => table.range.upper.as_deref().unwrap_or_default(),
        None => &[],
    }
}

/// The part of a tombstone that lies in `range`.
fn cut(tombstone: &RangeTombstone, range: &KeyRange) -> Option<RangeTombstone> {
    let start = tombstone.start.clone().max(range.lower.clone());
    let end = match cmp_upper(tombstone.end.as_ref(), range.upper.as_ref()) {
        std::cmp::Ordering::Greater => range.upper.clone(),
        _ => tombstone.end.clone(),
    };
    let part = RangeTombstone { start, end, seq: tombstone.seq };
    debug_assert!(
        part.start >= range.lower && cmp_upper(part.end.as_ref(), range.upper.as_ref()).is_le(),
        "the part {part:?} of a tombstone extends beyond {range:?}"
    );
    part.end.as_ref().is_none_or(|end| part.start < *end).then_some(part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iter::testing::Store;
    use crate::version::Version;
    use bytes::Bytes;
    use shamba_key::SeqNo;
    use shamba_table::{Ledger, LedgerPart};
    use shamba_testkit::Row;

    fn run(tables: &str) -> Arc<Run> {
        let version: Version = format!("L1: r1@1[{tables}]\n").parse().expect("notation");
        version.level(1)[0].clone()
    }

    #[test]
    fn the_table_for_a_key_is_the_one_whose_range_holds_it() {
        // The last three bounds share a head of eight bytes, which is also the head of a key
        // outside the tables.
        let run = run("000001:a..c 1, 000002:d..d\\x00 1, 000003:prefix--1..prefix--2 1, \
                       000004:prefix--2..prefix--5 1, 000005:prefix--7.. 1");
        let found = |key: &str| run.table_for(key.as_bytes()).map(|table| table.meta.id.0);
        for (key, table) in [
            ("", None),
            ("a", Some(1)),
            ("bzz", Some(1)),
            ("c", None),
            ("d", Some(2)),
            ("da", None),
            ("prefix--", None),
            ("prefix--0", None),
            ("prefix--1", Some(3)),
            ("prefix--1zzz", Some(3)),
            ("prefix--2", Some(4)),
            ("prefix--4", Some(4)),
            ("prefix--5", None),
            ("prefix--7", Some(5)),
            ("zzzzzzzzzzzz", Some(5)),
        ] {
            assert_eq!(found(key), table, "{key}");
            let reaching = run.tables().partition_point(|table| !table.range.is_above(key.as_bytes()));
            assert_eq!(run.first_reaching(key.as_bytes()), reaching, "{key}");
        }
    }

    #[test]
    fn overlapping_gives_neighbours_only_when_they_share_keys() {
        let run = run("000001:b..d 1, 000002:d..f 1, 000003:h.. 1");
        let found = |lower: &'static str, upper: Option<&'static str>| -> Vec<u64> {
            let upper = upper.map(|upper| Bytes::from_static(upper.as_bytes()));
            let range = KeyRange { lower: Bytes::from_static(lower.as_bytes()), upper };
            run.overlapping(&range).iter().map(|table| table.meta.id.0).collect()
        };
        assert_eq!(found("", Some("b")), [] as [u64; 0]);
        assert_eq!(found("", Some("b\0")), [1]);
        assert_eq!(found("c", Some("d")), [1]);
        assert_eq!(found("c", Some("e")), [1, 2]);
        assert_eq!(found("f", Some("h")), [] as [u64; 0]);
        assert_eq!(found("", None), [1, 2, 3]);
        assert_eq!(found("z", None), [3]);
        assert_eq!(found("e", Some("a")), [] as [u64; 0], "a reversed range holds nothing");
    }

    #[test]
    fn tombstones_are_cut_to_the_part_of_the_table_that_counts() {
        let range = KeyRange { lower: Bytes::from_static(b"c"), upper: Some(Bytes::from_static(b"f")) };
        let cut_to = |start: &'static str, end: Option<&'static str>| {
            let end = end.map(|end| Bytes::from_static(end.as_bytes()));
            let tombstone =
                RangeTombstone { start: Bytes::from_static(start.as_bytes()), end, seq: SeqNo(7) };
            cut(&tombstone, &range).map(|part| (part.start, part.end))
        };
        let part = |start: &'static str, end: &'static str| Some((start.into(), Some(end.into())));
        assert_eq!(cut_to("a", None), part("c", "f"));
        assert_eq!(cut_to("d", Some("e")), part("d", "e"));
        assert_eq!(cut_to("d", Some("z")), part("d", "f"));
        assert_eq!(cut_to("a", Some("c")), None);
        assert_eq!(cut_to("f", Some("z")), None);
    }

    #[test]
    fn the_memory_of_a_run_is_its_own_and_that_of_its_fences_and_tables() {
        let run = run("000001:a..c 1, 000002:prefix--1..prefix--2 of pre..q 1 of 3, 000003:x.. 1");
        let bounds: [&[u8]; 5] = [b"a", b"c", b"prefix--1", b"prefix--2", b"x"];
        let fences_bytes = LayeredHeads::new(bounds.len(), |number| bounds[number]).memory_bytes();
        let tables_bytes: usize = run.tables().iter().map(TableUse::memory_bytes).sum();
        assert!(fences_bytes > 0 && tables_bytes > 3 * size_of::<TableUse>());
        assert_eq!(run.metadata_bytes(), size_of::<Run>() + fences_bytes + tables_bytes);
    }

    #[test]
    fn range_tombstones_are_charged_before_they_are_computed_and_released_with_the_run() {
        let store = Store::new();
        let tombstone = |n: u64| {
            let key = |end: &str| Bytes::from(format!("{n:04}{end}"));
            RangeTombstone { start: key(""), end: Some(key("a")), seq: SeqNo(n + 1) }
        };
        let tombstones = FragmentedTombstones::new((0..1_000).map(tombstone).collect());
        let rows = [Row::put(b"b", 9)];
        let run = || Run::new(RunId(1), Age(1), store.build(&rows, &tombstones, 4)).expect("a table");
        let ledger = Arc::new(Ledger::new());
        let held_bytes = || ledger.bytes(LedgerPart::TableMeta);
        let charge = |run: &Run, bytes: u64| {
            run.take_charge(Charge::new(&ledger, LedgerPart::TableMeta, bytes));
            assert_eq!(run.uncharged_bytes_max(), None, "once");
        };
        let (unread, read) = (run(), run());
        let bytes_max = unread.uncharged_bytes_max().expect("nothing is charged yet");
        charge(&unread, bytes_max);
        let built_bytes = unread.tombstones().memory_bytes();
        assert!((100_000..bytes_max).contains(&built_bytes), "{built_bytes} of {bytes_max}");
        assert_eq!(held_bytes(), built_bytes, "the rest is released");
        // A reader of a view that is not charged yet.
        assert_eq!(read.tombstones().iter().count(), 1_000);
        charge(&read, read.uncharged_bytes_max().expect("nothing is charged yet"));
        assert_eq!(held_bytes(), 2 * built_bytes);
        drop((unread, read));
        assert_eq!(held_bytes(), 0);
        let plain = Run::new(RunId(1), Age(1), store.build(&rows, &FragmentedTombstones::default(), 4));
        assert_eq!(plain.expect("a table").uncharged_bytes_max(), None, "no tombstones");
    }

    #[test]
    fn only_tables_with_range_tombstones_must_be_open() {
        let store = Store::new();
        let tombstone = RangeTombstone { start: "a".into(), end: Some("c".into()), seq: SeqNo(7) };
        let tombstones = FragmentedTombstones::new(vec![tombstone]);
        let mut tables = store.build(&[Row::put(b"b", 9)], &tombstones, 4);
        tables.push("9:x..z 5".parse().expect("notation"));
        let run = Run::new(RunId(1), Age(1), tables).expect("two tables");
        assert!(run.tables()[1].meta.reader.get().is_none());
        let found: Vec<_> = run.tombstones().iter().map(|of| (&of.start[..], of.seq)).collect();
        assert_eq!(found, [(&b"a"[..], SeqNo(7))]);
    }
}
