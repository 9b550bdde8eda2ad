//! FIFO trees: flushed runs stay in level 0, and the oldest tables are dropped unread.
//!
//! For logs and caches, whose old data is worth nothing. A tree that was another one before may
//! have deeper levels: they are older than level 0 and go first.
//!
//! Only tables of the oldest run are dropped, so no table is dropped before an older one that
//! shares keys with it: an older version never comes back. The newest run stays, however large it
//! is, unless it is too old.
//!
//! Values in value files count like the tables that refer to them.
//!
//! Not here: when a reader holds a drop up (package `shamba`); merges of small runs
//! ([`crate::compaction::schedule`]).

use std::collections::BTreeSet;

use shamba_key::SeqNo;
use shamba_table::TableId;

use super::job::{CompactionInput, CompactionJob, Reason, Target};
use crate::version::{Run, TableUse, Version};

/// A run may have this part (1/8) of the limit in bytes after a merge with others. So a drop takes
/// at most an eighth more than the excess, and about eight such runs hold the rest.
const RUN_PART: u64 = 8;

/// The limits of a FIFO tree now.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FifoRules {
    /// Maximum bytes of the tables and of the values to which they refer; `None`: no limit.
    pub bytes: Option<u64>,
    /// Tables whose entries all have sequence numbers up to this one are too old.
    pub expired: Option<SeqNo>,
    /// Runs with entries up to this sequence number are merged no more: their oldest entries would
    /// stay as long as the newest ones of the merged run.
    pub settled: Option<SeqNo>,
}

impl FifoRules {
    /// Maximum bytes of runs that are merged.
    pub fn merged_bytes(&self, long_bytes: u64) -> u64 {
        self.bytes.map_or(long_bytes, |bytes| (bytes / RUN_PART).min(long_bytes))
    }

    /// Whether the run may be merged with others.
    pub fn may_merge(&self, run: &Run) -> bool {
        let oldest = run.tables().iter().map(|table| table.meta.smallest_seq).min();
        oldest.is_none_or(|oldest| self.settled.is_none_or(|settled| oldest > settled))
    }
}

/// Bytes that a drop of the run frees.
pub(in crate::compaction) fn fifo_bytes(run: &Run) -> u64 {
    run.bytes().saturating_add(run.value_bytes())
}

/// All tables that are too old or too many, in the order in which they are dropped.
pub fn fifo_due(version: &Version, rules: &FifoRules) -> Vec<TableId> {
    let mut excess = rules
        .bytes
        .map_or(0, |limit| version.bytes().saturating_add(version.value_bytes()).saturating_sub(limit));
    let runs: Vec<&Run> = version.runs().map(|(_, run)| run.as_ref()).collect();
    let mut due = Vec::new();
    for (place, run) in runs.into_iter().enumerate().rev() {
        let mut tables: Vec<&TableUse> = run.tables().iter().collect();
        tables.sort_by_key(|table| table.meta.largest_seq);
        for table in tables {
            let is_old = rules.expired.is_some_and(|expired| table.meta.largest_seq <= expired);
            if !is_old && (excess == 0 || place == 0) {
                return due;
            }
            excess = excess.saturating_sub(table.live_bytes.saturating_add(table.values.bytes()));
            due.push(table.meta.id);
        }
    }
    due
}

/// The tables that are to be dropped next, the oldest first, as a job that reads none of them.
pub fn pick_fifo(version: &Version, rules: &FifoRules) -> Option<CompactionJob> {
    let (level, run) = version.runs().last()?;
    let all_due: BTreeSet<TableId> = fifo_due(version, rules).into_iter().collect();
    let tables = run.tables().iter().map(|table| table.meta.id);
    let due: Vec<TableId> = tables.filter(|table| all_due.contains(table)).collect();
    if due.is_empty() {
        return None;
    }
    let inputs = vec![CompactionInput { level, run: run.id, tables: due }];
    let job = CompactionJob {
        inputs,
        target_level: level,
        target_run: Target::Existing(run.id),
        reason: Reason::Fifo,
    };
    debug_assert_eq!(job.check(version), Ok(()), "{job}");
    Some(job)
}

/// Whether the tables that `job` drops are still to be dropped: limits may have changed, or merges
/// have made space, since it was picked.
pub fn is_fifo_due(version: &Version, rules: &FifoRules, job: &CompactionJob) -> bool {
    let due = pick_fifo(version, rules).map(|due| due.inputs).unwrap_or_default();
    let is_due = |run, table| due.iter().any(|input| input.run == run && input.tables.contains(table));
    job.inputs.iter().all(|input| input.tables.iter().all(|table| is_due(input.run, table)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picked(tree: &str, bytes: Option<u64>, expired: Option<u64>) -> Option<String> {
        let version: Version = tree.parse().expect("notation");
        let rules = FifoRules { bytes, expired: expired.map(SeqNo), settled: None };
        pick_fifo(&version, &rules).map(|job| job.to_string())
    }

    const TREE: &str = "L0: r9@9[9:a..c 1000 seq=90-99] r8@8[8:a..z 1000 seq=80-89]\n\
                        L1: r5@5[5:a..b 4000 seq=1-50, 6:b..k 4000 seq=1-20, 7:m..z 4000 seq=1-30]\n";

    #[test]
    fn values_count_like_the_tables_that_refer_to_them() {
        let tree = "L0: r9@9[9:a..c 100 seq=90-99 val=31:9:5000] r8@8[8:a..z 100 seq=80-89 val=30:9:3000]\n\
                    V: 30 9128 n=50, 31 9128 n=50\n";
        assert_eq!(picked(tree, Some(8_200), None), None);
        let dropped = "L0.r8[000008] -> L0.r8 (the oldest tables are dropped)";
        assert_eq!(picked(tree, Some(8_199), None).as_deref(), Some(dropped));
        let version: Version = tree.parse().expect("notation");
        assert_eq!(version.level(0).iter().map(|run| fifo_bytes(run)).collect::<Vec<_>>(), [5_100, 3_100]);
        // The run that frees enough is the last one that goes.
        let three = tree.replace("L0:", "L0: r7@10[7:a..c 100 seq=100-110]");
        let due = fifo_due(
            &three.parse().expect("notation"),
            &FifoRules { bytes: Some(5_200), ..FifoRules::default() },
        );
        assert_eq!(due, [TableId(8)]);
    }

    #[test]
    fn the_oldest_tables_of_the_oldest_run_go_first() {
        let drop = |tables: &str| Some(format!("L1.r5[{tables}] -> L1.r5 (the oldest tables are dropped)"));
        assert_eq!(picked(TREE, Some(14_000), None), None);
        assert_eq!(picked(TREE, Some(13_999), None), drop("000006"));
        assert_eq!(picked(TREE, Some(9_999), None), drop("000006, 000007"));
        assert_eq!(picked(TREE, Some(0), None), drop("000005, 000006, 000007"));
        assert_eq!(picked(TREE, None, Some(19)), None);
        assert_eq!(picked(TREE, None, Some(20)), drop("000006"));
        assert_eq!(picked(TREE, None, Some(99)), drop("000005, 000006, 000007"), "one run at a time");
        assert_eq!(picked(TREE, None, None), None);
        let version: Version = TREE.parse().expect("notation");
        let due = |bytes, expired: Option<u64>| -> Vec<u64> {
            let rules = FifoRules { bytes, expired: expired.map(SeqNo), settled: None };
            fifo_due(&version, &rules).into_iter().map(|table| table.0).collect()
        };
        assert_eq!(due(Some(1_500), None), [6, 7, 5, 8], "all runs, and the newest stays");
        assert_eq!(due(Some(0), Some(30)), [6, 7, 5, 8]);
        assert_eq!(due(None, Some(89)), [6, 7, 5, 8]);
        assert_eq!(due(None, Some(99)), [6, 7, 5, 8, 9]);
    }

    #[test]
    fn a_drop_is_due_by_the_limits_of_its_install() {
        let version: Version = TREE.parse().expect("notation");
        let rules = |bytes, expired: Option<u64>| FifoRules {
            bytes,
            expired: expired.map(SeqNo),
            ..FifoRules::default()
        };
        let job = pick_fifo(&version, &rules(Some(9_999), None)).expect("two tables");
        let is_due = |bytes, expired| is_fifo_due(&version, &rules(bytes, expired), &job);
        assert!(is_due(Some(9_999), None) && is_due(Some(0), None) && is_due(None, Some(30)));
        assert!(!is_due(Some(10_000), None), "one of them stays");
        assert!(!is_due(None, Some(29)) && !is_due(None, None));
        let without = TREE.replace("6:b..k 4000 seq=1-20, ", "");
        let version: Version = without.parse().expect("notation");
        assert!(!is_fifo_due(&version, &rules(Some(0), None), &job), "a table is gone");
    }

    #[test]
    fn settled_runs_are_not_merged() {
        let version: Version = TREE.parse().expect("notation");
        let merged = |settled: Option<u64>| {
            let rules = FifoRules { settled: settled.map(SeqNo), ..FifoRules::default() };
            version.runs().filter(|(_, run)| rules.may_merge(run)).count()
        };
        assert_eq!([None, Some(0), Some(1), Some(79), Some(80), Some(90)].map(merged), [3, 3, 2, 2, 1, 0]);
    }

    #[test]
    fn the_newest_run_stays_unless_it_is_too_old() {
        let newest = "L0: r9@9[9:a..c 1000 seq=90-99]\n";
        assert_eq!(picked(newest, Some(10), None), None);
        assert_eq!(picked(newest, Some(10), Some(98)), None);
        assert!(picked(newest, Some(10), Some(99)).is_some());
        assert_eq!(picked("", Some(0), Some(9)), None);
    }
}
