//! The compaction of a range of keys: a caller's `compact_range`.
//!
//! Each table that overlaps the range at the time of the request is merged into the next older run
//! that shares its keys, again and again until there is none, as tombstones are
//! ([`super::triggered`]). A table without older entries of its keys is rewritten in place, once,
//! if that can make it smaller. Entries written after the request need not move. So each job moves
//! older entries to an older run, or replaces a table that is older than the request, and the jobs
//! end.
//!
//! Obsolete values in value files are not freed here, but by their collection ([`super::collect`]):
//! a file is emptied by a compaction of all tables that name it.
//!
//! A table is taken as a whole: keys outside of the range that share a table with one inside are
//! compacted too. Level 0 goes as a whole.

use shamba_key::SeqNo;
use shamba_table::TableId;

use super::triggered::{is_oldest, step_down};
use crate::compaction::policy::{CompactionJob, Down, Reason, Rules, could_shrink};
use crate::version::edit::KeyRange;
use crate::version::{TableUse, Version};

/// A range of keys to compact, and what was in it at the time of the request.
#[derive(Clone, PartialEq, Debug)]
pub struct RangeRequest {
    range: KeyRange,
    /// The newest entry that has to move.
    newest_seq: SeqNo,
    /// The newest table that may be rewritten in place.
    newest_table: TableId,
}

impl RangeRequest {
    /// Asks for the data of `range` in `version`.
    pub fn new(version: &Version, range: KeyRange) -> Self {
        let overlapping = version.tables().filter(|(_, _, table)| table.range.overlaps(&range));
        let (mut newest_seq, mut newest_table) = (SeqNo::ZERO, TableId(0));
        for (_, _, table) in overlapping {
            newest_seq = newest_seq.max(table.meta.largest_seq);
            newest_table = newest_table.max(table.meta.id);
        }
        Self { range, newest_seq, newest_table }
    }

    /// The next job in a tree of `version`; `None` when the request is done. Never one in a FIFO
    /// tree.
    pub fn pick(&self, version: &Version, rules: &Rules) -> Option<CompactionJob> {
        if rules.fifo.is_some() {
            return None;
        }
        let capacities = rules.capacities(version);
        let down = Down { version, rules, capacities: &capacities, deepest: version.deepest_level() };
        version.runs().find_map(|(level, run)| {
            let is_due = |table: &&TableUse| {
                if is_oldest(version, run.id, table) && level > 0 {
                    table.meta.id <= self.newest_table && could_shrink(rules, table)
                } else {
                    table.meta.smallest_seq <= self.newest_seq
                }
            };
            let table = run.overlapping(&self.range).iter().find(is_due)?;
            Some(step_down(&down, level, run, table, Reason::Range))
        })
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use shamba_model::{Design, MergePolicy};

    use super::*;

    const TREE: &str = "L0: r9@9[9:a..c 1000 seq=90-99]\n\
                        L1: r5@5[5:a..g 4000 seq=30-50, 6:h..k 4000 seq=30-50, 7:m..z 4000 seq=30-50]\n\
                        L2: r3@3[3:a..j 80000 seq=1-29, 4:l..p 80000 n=10 del=4 seq=1-29]\n";

    fn range(lower: &str, upper: &str) -> KeyRange {
        let key = |text: &str| Bytes::copy_from_slice(text.as_bytes());
        KeyRange { lower: key(lower), upper: Some(key(upper)) }
    }

    fn picked(request: &RangeRequest, version: &Version) -> Option<String> {
        let rules = Rules::manual(Design::new(MergePolicy::Leveling, 4.0, 100_000, 0.0), 9);
        let job = request.pick(version, &rules)?;
        job.check(version).expect("a job that keeps the order");
        Some(job.to_string())
    }

    fn of(tree: &str, lower: &str, upper: &str) -> Option<String> {
        let version: Version = tree.parse().expect("notation");
        picked(&RangeRequest::new(&version, range(lower, upper)), &version)
    }

    #[test]
    fn newer_tables_go_first_and_those_outside_stay() {
        let l0 = "L0.r9[000009] + L1.r5[000005] -> L1.r5 (a range is compacted)";
        assert_eq!(of(TREE, "b", "c").as_deref(), Some(l0));
        let l1 = "L1.r5[000006] + L2.r3[000003] -> L2.r3 (a range is compacted)";
        assert_eq!(of(TREE, "i", "j").as_deref(), Some(l1));
        // Nothing is older than the tombstones of table 4, but table 7 is newer.
        let newer = "L1.r5[000007] + L2.r3[000004] -> L2.r3 (a range is compacted)";
        assert_eq!(of(TREE, "m", "n").as_deref(), Some(newer));
        let in_place = "L2.r3[000004] -> L2.r3 (a range is compacted)";
        assert_eq!(of(TREE, "l", "m").as_deref(), Some(in_place));
        assert_eq!(of(TREE, "k0", "l"), None, "no table");
        assert_eq!(of("L2: r3@3[3:a..j 80000 seq=1-29]\n", "a", "z"), None, "nothing to gain");
        assert!(of("L0: r3@3[3:a..j 80000 seq=1-29]\n", "a", "b").is_some(), "out of level 0");
    }

    #[test]
    fn what_comes_after_the_request_may_stay() {
        let before: Version = TREE.parse().expect("notation");
        let request = RangeRequest::new(&before, range("l", "m"));
        // Table 4 was rewritten, and a snapshot has kept its tombstones.
        let rewritten = TREE.replace("4:l..p", "10:l..p");
        assert_eq!(picked(&request, &rewritten.parse().expect("notation")), None);
        // A newer table above it.
        let written = rewritten.replace("L0: ", "L0: r11@11[11:l..m 100 seq=200-210] ");
        assert_eq!(picked(&request, &written.parse().expect("notation")), None);
        let asked_later = RangeRequest::new(&written.parse().expect("notation"), range("l", "m"));
        assert!(picked(&asked_later, &written.parse().expect("notation")).is_some());
    }
}
