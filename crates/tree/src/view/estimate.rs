//! Estimates over a view: the bytes and entries of a range, and keys that split it into equal
//! parts.
//!
//! Tables are estimated from their indexes: what is in memory of them, or what is read of a table
//! that is closed or to be split. Entries of memtables are counted one by one. Versions of a key in
//! several places count several times, as they take space several times, and tombstones count as
//! well. Values in value files count in proportion to the bytes of the tables that refer to them.

use std::sync::Arc;

use bytes::Bytes;

use super::View;
use crate::error::Result;
use crate::version::{KeyRange, TableUse, level_bytes, live_bytes, live_entries};

/// Maximum number of parts: a part of less than a block is of no use.
const PARTS_MAX: u64 = 64 << 10;
/// Pieces of a table for each part that is asked for: the parts differ by at most a piece or so.
const PIECES_FOR_EACH_PART: u64 = 16;

/// Bytes and entries of a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Estimate {
    /// Bytes in tables: data, and in proportion filters, indexes, and the values in value files to
    /// which they refer.
    pub table_bytes: u64,
    /// Bytes of keys and values in memtables.
    pub memtable_bytes: u64,
    /// Entries in both.
    pub entries: u64,
}

impl View {
    /// An estimate of what the view holds in `range`.
    ///
    /// # Errors
    /// Of walking a memtable.
    pub fn estimate(&self, range: &KeyRange) -> Result<Estimate> {
        let mut estimate = Estimate::default();
        self.for_each_table(range, |table, part| {
            let bytes = live_bytes(table, part);
            estimate.table_bytes += bytes + value_bytes(table, bytes);
            let all_bytes = u128::from(table.live_bytes.max(1));
            let entries = u128::from(live_entries(table)) * u128::from(bytes) / all_bytes;
            estimate.entries += u64::try_from(entries).unwrap_or(u64::MAX);
        });
        self.for_each_in_memory(range, |_, bytes| {
            estimate.memtable_bytes += bytes;
            estimate.entries += 1;
        })?;
        Ok(estimate)
    }

    /// At most `parts` - 1 keys, ascending, that split `range` into parts of about equal bytes. A
    /// part begins with its key.
    ///
    /// # Errors
    /// Of walking a memtable.
    pub fn split_points(&self, range: &KeyRange, parts: usize) -> Result<Vec<Bytes>> {
        let Estimate { table_bytes, memtable_bytes, .. } = self.estimate(range)?;
        let all_bytes = table_bytes + memtable_bytes;
        let parts = (parts as u64).min(PARTS_MAX);
        if parts < 2 || all_bytes == 0 {
            return Ok(Vec::new());
        }
        // Each key, and the bytes between it and the one before it in the same place.
        let mut pieces: Vec<(Bytes, u64)> = Vec::new();
        let piece_bytes = all_bytes.div_ceil(parts.saturating_mul(PIECES_FOR_EACH_PART));
        self.for_each_table(range, |table, part| {
            let Ok(reader) = table.meta.open() else { return };
            let mut rest = part.clone();
            let bytes_below = |rest: &KeyRange, key: &Bytes| {
                let bytes = level_bytes(table, reader.bytes_between(&rest.lower, Some(key)));
                bytes + value_bytes(table, bytes)
            };
            for key in reader.split_keys(own_part(table, piece_bytes)) {
                if rest.lower < key && rest.is_above(&key) {
                    pieces.push((key.clone(), bytes_below(&rest, &key)));
                    rest.lower = key;
                }
            }
            if let Some(upper) = rest.upper.clone() {
                let bytes = bytes_below(&rest, &upper);
                pieces.push((upper, bytes));
            }
        });
        let mut gathered = 0;
        self.for_each_in_memory(range, |key, bytes| {
            gathered += bytes;
            if gathered >= piece_bytes {
                pieces.push((Bytes::copy_from_slice(key), gathered));
                gathered = 0;
            }
        })?;
        pieces.sort();
        let mut points: Vec<Bytes> = Vec::new();
        let (mut before, mut part) = (0, 1);
        for (key, bytes) in pieces {
            before += bytes;
            let is_due = u128::from(before) * u128::from(parts) >= u128::from(all_bytes) * u128::from(part);
            if is_due && part < parts && range.lower < key && range.is_above(&key) {
                // Several parts may end within one piece.
                part = (u128::from(before) * u128::from(parts) / u128::from(all_bytes)) as u64 + 1;
                if points.last() != Some(&key) {
                    points.push(key);
                }
            }
        }
        debug_assert!(points.is_sorted() && (points.len() as u64) < parts, "{} points", points.len());
        Ok(points)
    }

    /// Calls `each` with every table that has keys in `range`, and the part of the range that it
    /// answers for.
    fn for_each_table(&self, range: &KeyRange, mut each: impl FnMut(&TableUse, &KeyRange)) {
        let tables = self.plans.iter().flat_map(|plan| plan.run.tables());
        for table in tables.filter(|table| table.range.overlaps(range)) {
            if let Some(part) = table.range.intersection(range) {
                each(table, &part);
            }
        }
    }

    /// Calls `each` with the key of every entry of a memtable in `range`, and its bytes.
    fn for_each_in_memory(&self, range: &KeyRange, mut each: impl FnMut(&[u8], u64)) -> Result<()> {
        for memtable in self.memtables.iter().filter(|memtable| memtable.entries() > 0) {
            // The values of later entries may lie where the iterator does not look.
            let newest = memtable.largest_seq();
            let mut entries = Arc::clone(memtable).entries_iter();
            entries.seek(&range.lower, shamba_key::SeqNo::MAX)?;
            while entries.valid() && range.is_above(entries.key()) {
                if entries.seq() <= newest {
                    each(entries.key(), entries.key().len() as u64 + entries.value_bytes_len()?);
                }
                entries.next()?;
            }
        }
        Ok(())
    }
}

/// Bytes of the values in value files to which `bytes` of the table's bytes in use refer.
fn value_bytes(table: &TableUse, bytes: u64) -> u64 {
    let all_bytes = table.live_bytes.max(1);
    let share = u128::from(table.values.bytes()) * u128::from(bytes.min(all_bytes)) / u128::from(all_bytes);
    u64::try_from(share).unwrap_or(u64::MAX)
}

/// Bytes of the table, at least 1, that take `bytes` together with the values to which they refer.
fn own_part(table: &TableUse, bytes: u64) -> u64 {
    let own_bytes = u128::from(table.live_bytes.max(1));
    let part = u128::from(bytes) * own_bytes / (own_bytes + u128::from(table.values.bytes()));
    u64::try_from(part).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use shamba_key::{Age, EntryKind, KeyspaceId, RunId, SeqNo};
    use shamba_memtable::ChunkedMemtable;
    use shamba_table::FragmentedTombstones;
    use shamba_testkit::Row;

    use super::*;
    use crate::iter::testing::Store;
    use crate::version::{Change, Version, VersionEdit};

    fn range(lower: usize, upper: usize) -> KeyRange {
        let key = |number: usize| format!("{number:04}").into();
        KeyRange { lower: key(lower), upper: Some(key(upper)) }
    }

    /// 400 keys, whose values are in a value file or not.
    fn filled(separates_from: Option<usize>) -> std::sync::Arc<Store> {
        let store = Store::new();
        *store.separates_from.lock().expect("not poisoned") = separates_from;
        (0..400).for_each(|number| store.put(&format!("{number:04}"), &"v".repeat(2_000)));
        store.rotate();
        store.flush();
        store
    }

    #[test]
    fn values_in_value_files_count_with_the_part_of_the_tables_that_refers_to_them() {
        let (inline, separated) = (filled(None), filled(Some(100)));
        for store in [&inline, &separated] {
            let view = store.newest_view();
            let bytes = |range| view.estimate(&range).expect("readable").table_bytes;
            let all_bytes = bytes(KeyRange::everything());
            assert_eq!(all_bytes, view.version.bytes() + view.version.value_bytes());
            assert!(all_bytes > 400 * 2_000);
            // Tables of four keys.
            for (lower, upper) in [(0, 100), (100, 300), (300, 400), (0, 4)] {
                let expected = all_bytes * (upper - lower) / 400;
                let found = bytes(range(lower as usize, upper as usize));
                let off = found.abs_diff(expected);
                assert!(off < all_bytes / 100, "{lower}..{upper}: {found}, expected {expected}");
            }
            assert_eq!(bytes(range(500, 600)), 0);
        }
        let value_bytes = separated.newest_view().version.value_bytes();
        assert_eq!(value_bytes, 400 * (2_000 + 9));
    }

    #[test]
    fn parts_have_equal_bytes_wherever_the_values_are() {
        for store in [filled(None), filled(Some(100))] {
            let view = store.newest_view();
            let points = view.split_points(&KeyRange::everything(), 8).expect("readable");
            assert_eq!(points.len(), 7);
            for (number, point) in points.iter().enumerate() {
                let below = (0..400).filter(|number| format!("{number:04}").as_bytes() < &point[..]).count();
                assert!(below.abs_diff((number + 1) * 50) <= 8, "{below} keys are below point {number}");
            }
        }
    }

    fn points(view: &View, range: &KeyRange, parts: usize) -> Vec<String> {
        let points = view.split_points(range, parts).expect("readable");
        points.iter().map(|point| String::from_utf8_lossy(point).into_owned()).collect()
    }

    #[test]
    fn entries_of_memtables_count_exactly_besides_those_of_tables() {
        let store = filled(None);
        let everything = KeyRange::everything();
        let of_tables = store.newest_view().estimate(&everything).expect("readable");
        assert_eq!((of_tables.memtable_bytes, of_tables.entries), (0, 400));
        (100..110).for_each(|number| store.put(&format!("{number:04}"), "seven b"));
        store.rotate();
        (500..503).for_each(|number| store.put(&format!("{number:04}"), &"v".repeat(100)));
        let view = store.newest_view();
        let memtable_bytes = 10 * (4 + 7) + 3 * (4 + 100);
        let expected = Estimate { memtable_bytes, entries: 413, ..of_tables };
        assert_eq!(view.estimate(&everything).expect("readable"), expected);
        let part = view.estimate(&range(500, 502)).expect("readable");
        assert_eq!(part, Estimate { table_bytes: 0, memtable_bytes: 2 * (4 + 100), entries: 2 });
        assert_eq!(view.estimate(&range(105, 110)).expect("readable").memtable_bytes, 5 * (4 + 7));
    }

    #[test]
    fn parts_of_memtables_have_equal_bytes_whatever_the_length_of_entries() {
        for (entries, value_bytes) in [(40, 2_000), (4_000, 20)] {
            let store = Store::new();
            (0..entries).for_each(|number| store.put(&format!("{number:04}"), &"v".repeat(value_bytes)));
            let points = points(&store.newest_view(), &KeyRange::everything(), 8);
            assert_eq!(points.len(), 7, "{points:?}");
            for (number, point) in points.iter().enumerate() {
                let below: usize = point.parse().expect("a number");
                assert!(below.abs_diff((number + 1) * entries / 8) <= entries / 40, "{points:?}");
            }
        }
    }

    #[test]
    fn parts_have_equal_bytes_of_memtables_and_tables_together() {
        let store = filled(None);
        (400..600).for_each(|number| store.put(&format!("{number:04}"), &"v".repeat(2_000)));
        let points = points(&store.newest_view(), &KeyRange::everything(), 6);
        assert_eq!(points.len(), 5, "{points:?}");
        for (number, point) in points.iter().enumerate() {
            let below = (0..600).filter(|key| format!("{key:04}") < *point).count();
            assert!(below.abs_diff((number + 1) * 100) <= 12, "{points:?}");
        }
    }

    #[test]
    fn less_than_two_parts_need_no_point() {
        let view = filled(None).newest_view();
        for parts in [0, 1] {
            assert_eq!(points(&view, &KeyRange::everything(), parts), [""; 0]);
        }
        assert_eq!(points(&view, &KeyRange::everything(), 2).len(), 1);
        assert_eq!(points(&Store::new().newest_view(), &KeyRange::everything(), 4), [""; 0]);
    }

    #[test]
    fn a_part_of_a_table_is_split_inside_of_it() {
        let store = Store::new();
        let value = vec![b'v'; 2_000];
        let row = |number: usize| Row {
            key: format!("{number:04}").into_bytes(),
            seq: SeqNo(number as u64 + 1),
            kind: EntryKind::Put,
            value: value.clone(),
        };
        let rows: Vec<Row> = (0..400).map(row).collect();
        let mut tables = store.build(&rows, &FragmentedTombstones::default(), 400);
        assert_eq!(tables.len(), 1);
        let add = Change::Add { level: 1, run: RunId(1), age: Age(1), table: tables.remove(0) };
        let edit = VersionEdit { changes: vec![add], ..VersionEdit::default() };
        let version = Version::empty().apply(&edit).expect("a good edit");
        let view = View::new(KeyspaceId(0), vec![Arc::new(ChunkedMemtable::new(true))], Arc::new(version));
        let points = points(&view, &range(100, 300), 4);
        assert_eq!(points.len(), 3, "{points:?}");
        for (number, point) in points.iter().enumerate() {
            let below = (100..300).filter(|key| format!("{key:04}") < *point).count();
            assert!(below.abs_diff((number + 1) * 50) <= 8, "{points:?}");
        }
    }

    #[test]
    fn the_first_part_is_not_empty() {
        let store = Store::new();
        store.put("0000", &"v".repeat(100_000));
        (1..11).for_each(|number| store.put(&format!("{number:04}"), "v"));
        assert_eq!(points(&store.newest_view(), &range(0, 20), 2), [""; 0]);
    }

    #[test]
    fn a_piece_of_a_table_is_smaller_by_the_values_to_which_it_refers() {
        let table = |values: &str| {
            let text = format!("L1: r1@1[1:a..m 1000{values}]\nV: 9 9128 n=90\n");
            let version: Version = text.parse().expect("notation");
            version.level(1)[0].tables()[0].clone()
        };
        let separated = table(" val=9:10:3000");
        assert_eq!([4_000, 400, 3, 0].map(|bytes| own_part(&separated, bytes)), [1_000, 100, 1, 1]);
        assert_eq!([400, 3, 0].map(|bytes| own_part(&table(""), bytes)), [400, 3, 1]);
    }
}
