//! Estimate of the values that deletes hide: values to which the last run refers, although a delete
//! above it makes them obsolete.
//!
//! A point delete counts as the mean value bytes of an entry of the last run. A range tombstone
//! counts the values of the tables of the last run that lie inside of it, and half of those of the
//! at most two that it cuts. No file is read: tables with range tombstones are always open.
//!
//! Not here: values that newer puts hide; these are at most as many as the newer ones
//! ([`crate::compaction::schedule`]).

use super::edit::KeyRange;
use super::live::live_entries;
use super::range_union::RangeUnion;
use super::run::Run;
use super::version::Version;
use shamba_table::RangeTombstone;

/// Stored bytes of values of the last run that deletes above it hide, estimated.
#[derive(Clone, Default, Debug)]
pub struct HiddenValues {
    /// By the level of the deletes, level 0 first.
    by_level: Box<[u64]>,
    all: u64,
}

impl HiddenValues {
    /// Of deletes in the runs above `last`, which is the only run of the deepest level.
    pub(super) fn of(version: &Version, last: &Run) -> Self {
        let entries = last.tables().iter().map(live_entries).fold(0u64, u64::saturating_add);
        let mean_bytes = last.value_bytes() as f64 / entries.max(1) as f64;
        let of_run = |run: &Run| {
            let deletes: f64 = run
                .tables()
                .iter()
                .map(|table| {
                    let live = table.live_bytes as f64 / table.meta.file_bytes.max(1) as f64;
                    table.meta.deletes as f64 * live.min(1.0)
                })
                .sum();
            let ranges = joined_tombstones(run);
            let of_ranges = ranges.iter().fold(0u64, |sum, range| sum.saturating_add(values_in(last, range)));
            ((deletes * mean_bytes).ceil() as u64).saturating_add(of_ranges)
        };
        let above = version.levels().take(version.deepest_level() as usize);
        let by_level: Box<[u64]> = above
            .map(|(_, runs)| runs.iter().fold(0u64, |sum, run| sum.saturating_add(of_run(run))))
            .collect();
        let all = by_level.iter().fold(0u64, |sum, bytes| sum.saturating_add(*bytes));
        Self { by_level, all: all.min(last.value_bytes()) }
    }

    /// Those that deletes of the level hide.
    pub fn of_level(&self, level: u32) -> u64 {
        self.by_level.get(level as usize).copied().unwrap_or(0)
    }

    /// All: at most those to which the last run refers.
    pub fn bytes(&self) -> u64 {
        self.all
    }
}

/// The ranges that the range tombstones of a run delete, joined where they meet.
fn joined_tombstones(run: &Run) -> Vec<KeyRange> {
    if !run.has_range_deletes() {
        return Vec::new();
    }
    let tombstones = run.tombstones().iter();
    let range = |of: &RangeTombstone| KeyRange { lower: of.start.clone(), upper: of.end.clone() };
    RangeUnion::of(tombstones.map(range).collect()).into_ranges()
}

/// Value bytes of the tables of `last` in `range`; half of those that it cuts.
fn values_in(last: &Run, range: &KeyRange) -> u64 {
    let tables = last.overlapping(range).iter();
    tables.fold(0, |sum, table| {
        let bytes = table.values.bytes();
        sum.saturating_add(if range.covers(&table.range) { bytes } else { bytes / 2 })
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use shamba_table::FragmentedTombstones;

    use super::*;
    use crate::iter::testing::Store;
    use crate::version::{Change, VersionEdit};
    use shamba_key::{Age, RunId, SeqNo};
    use shamba_testkit::Row;

    const LAST: &str = "L2: r1@1[1:a..e 40 n=10 val=9:10:1000, 2:e..i 40 n=10 val=9:5:400, 3:i..m 40 n=20 val=9:5:800, \
                        4:p.. 40 n=4 val=9:2:60]\nV: 9 9128 n=90\n";

    fn hidden(version: &Version) -> HiddenValues {
        HiddenValues::of(version, &version.level(2)[0])
    }

    #[test]
    fn a_point_delete_hides_a_mean_value() {
        let above = "L0: r3@3[8:a..z 10 n=9 del=4]\nL1: r2@2[7:b..c 30 of 60 n=9 del=8 val=9:1:900]\n";
        let version: Version = format!("{above}{LAST}").parse().expect("notation");
        // 2,260 bytes of 44 entries.
        let hidden = hidden(&version);
        assert_eq!([hidden.of_level(0), hidden.of_level(1), hidden.of_level(2)], [206, 206, 0]);
        assert_eq!(hidden.bytes(), 412);
        let version: Version =
            format!("{above}{LAST}").replace("del=4", "del=400").parse().expect("notation");
        assert_eq!(HiddenValues::of(&version, &version.level(2)[0]).bytes(), 2260, "no more than there are");
    }

    #[test]
    fn a_range_tombstone_hides_what_lies_inside_and_half_of_what_it_cuts() {
        let store = Store::new();
        let of = |ranges: &[(&'static str, Option<&'static str>)]| {
            let tombstone = |(seq, &(start, end)): (usize, &(&'static str, Option<&'static str>))| {
                RangeTombstone { start: start.into(), end: end.map(Into::into), seq: SeqNo(50 + seq as u64) }
            };
            let tombstones = ranges.iter().enumerate().map(tombstone).collect();
            let tables = store.build(&[Row::put(b"a", 99)], &FragmentedTombstones::new(tombstones), 9);
            let add = |table| Change::Add { level: 0, run: RunId(7), age: Age(7), table };
            let changes = tables.into_iter().map(add).collect();
            let last: Version = LAST.parse().expect("notation");
            let version =
                last.apply(&VersionEdit { changes, ..VersionEdit::default() }).expect("a good edit");
            let hidden = hidden(&version);
            assert_eq!(hidden.bytes(), hidden.of_level(0).min(2260));
            hidden.of_level(0)
        };
        assert_eq!(of(&[("a", Some("e"))]), 1000);
        assert_eq!(of(&[("a", Some("f"))]), 1000 + 200);
        assert_eq!(of(&[("b", Some("j"))]), 500 + 400 + 400);
        assert_eq!(of(&[("m", Some("p"))]), 0);
        assert_eq!(of(&[("j", None)]), 400 + 60);
        assert_eq!(of(&[("f", Some("g"))]), 200, "inside of one table");
        assert_eq!(of(&[("a", Some("c")), ("j", Some("k"))]), 500 + 400, "none between two ranges");
        // Ranges that meet or overlap are one, in any order.
        assert_eq!(of(&[("g", Some("m")), ("a", Some("d")), ("c", Some("g"))]), 2200);
        assert_eq!(of(&[("a", None), ("f", Some("g"))]), 2260);
    }

    #[test]
    fn a_version_and_its_copies_estimate_once() {
        let version: Version = LAST.parse().expect("notation");
        let copy = version.clone();
        assert!(std::ptr::eq(version.hidden_values(), copy.hidden_values()));
        let tiered: Version =
            "L0: r3@3[8:a..z 10 n=9 del=4]\nL1: r2@2[7:b..c 30] r1@1[1:a..e 40 n=10 val=9:1:10]\nV: 9 9128 n=9\n"
                .parse()
                .expect("notation");
        assert_eq!(tiered.hidden_values().bytes(), 0, "there is no last run that is alone on its level");
        assert!(Arc::ptr_eq(&tiered.level(1)[0], &tiered.clone().level(1)[0]));
    }
}
