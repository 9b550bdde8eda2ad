//! Compactions that no shape rule asks for: reads pay for them, or tombstones are too old.
//!
//! A compaction pays if the time that it saves readers within [`Prices::horizon_s`] is more than
//! the time that its bytes take:
//!
//! ```text
//! level 0      saves seeks/s * (runs that go away) * run_ns
//! tombstones   of a table save (tombstones that scans pass there)/s * tombstone_ns
//! ```
//!
//! A tombstone is gone when it is compacted with everything below that shares its keys. So such a
//! job takes a table, all older tables of its keys, and ends in the oldest of their runs. The same
//! job is due, without a price, when the oldest tombstone of a table is older than the bound,
//! unless a snapshot still needs it.
//!
//! After a job its reason is gone: level 0 is empty, and output tables have no rate yet and no
//! tombstone that could be dropped.
//!
//! Not here: measuring the rates, and storing the time of the oldest tombstone (package `shamba`).

use std::collections::BTreeMap;

use shamba_key::SeqNo;
use shamba_table::TableId;

use crate::compaction::policy::{CompactionInput, CompactionJob, Down, Reason, Target};
use crate::version::{KeyRange, Version};

/// Score of a job that pays: before idle work, after levels at their bounds.
const PAYING_SCORE: f64 = 0.5;

/// Measurements of one keyspace, and the prices of reads and bytes.
#[derive(Clone, Default, Debug)]
pub struct Triggers {
    /// Time now, in microseconds.
    pub now_us: u64,
    /// Prices; `None`: no compaction is picked because it pays.
    pub prices: Option<Prices>,
    /// Seeks per second.
    pub seeks_per_second: f64,
    /// Tables of which something is known.
    pub tables: BTreeMap<TableId, TableReads>,
    /// Maximum age of a tombstone in microseconds; `None` for no bound.
    pub tombstone_age_max_us: Option<u64>,
    /// The oldest snapshot in use.
    pub oldest_snapshot: Option<SeqNo>,
}

/// Prices of reads and of compaction.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Prices {
    /// Cost of one more run to a seek, in nanoseconds.
    pub run_ns: f64,
    /// Cost of passing a tombstone in a scan, in nanoseconds.
    pub tombstone_ns: f64,
    /// Cost of compacting a byte, in nanoseconds.
    pub byte_ns: f64,
    /// Time in seconds within which a compaction must pay for itself.
    pub horizon_s: f64,
}

/// Reads and tombstones of a table, as far as they are known.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct TableReads {
    /// Tombstones of the table that scans pass, per second.
    pub tombstones_passed_per_second: f64,
    /// Time of the oldest tombstone, in microseconds.
    pub oldest_tombstone_us: Option<u64>,
}

impl Prices {
    /// Whether saving `saved_ns` per second pays for compacting `bytes`.
    fn pays(&self, saved_ns: f64, bytes: u64) -> bool {
        saved_ns * self.horizon_s > bytes as f64 * self.byte_ns
    }
}

/// The triggered jobs of a tree, each with its score.
pub(super) fn triggered(down: &Down<'_>, triggers: &Triggers) -> Vec<(CompactionJob, f64)> {
    let version = down.version;
    let mut jobs = Vec::new();
    for (_, _, table) in version.tables() {
        let Some(reads) = triggers.tables.get(&table.meta.id) else { continue };
        if table.meta.deletes == 0 && table.meta.range_deletes == 0 {
            continue;
        }
        let is_needed = triggers.oldest_snapshot.is_some_and(|snapshot| snapshot < table.meta.largest_seq);
        let age = reads.oldest_tombstone_us.map(|since_us| triggers.now_us.saturating_sub(since_us));
        let overdue = triggers.tombstone_age_max_us.zip(age).filter(|(most, age)| age > most && !is_needed);
        let passed = reads.tombstones_passed_per_second;
        if overdue.is_none() && (passed <= 0.0 || is_needed) {
            continue;
        }
        let Some(job) = with_all_below(version, table.meta.id) else { continue };
        let pays = |prices: Prices| prices.pays(passed * prices.tombstone_ns, job.input_bytes(version));
        if let Some((most, age)) = overdue {
            jobs.push((job, age as f64 / most.max(1) as f64));
        } else if triggers.prices.is_some_and(pays) {
            jobs.push((job, PAYING_SCORE));
        }
    }
    let runs = version.level(0).len();
    if let Some(prices) = triggers.prices.filter(|_| runs > 0) {
        let job = CompactionJob { reason: Reason::Reads, ..down.l0() };
        let new_runs = usize::from(job.target_run == Target::New);
        let saved_ns = triggers.seeks_per_second * runs.saturating_sub(new_runs) as f64 * prices.run_ns;
        if prices.pays(saved_ns, job.input_bytes(version)) {
            jobs.push((job, PAYING_SCORE));
        }
    }
    jobs
}

/// The job that compacts a table with every older table that shares keys with it, directly or
/// through others, into the oldest of their runs.
fn with_all_below(version: &Version, id: TableId) -> Option<CompactionJob> {
    let mut inputs: Vec<CompactionInput> = Vec::new();
    let mut ranges: Vec<KeyRange> = Vec::new();
    for (level, run) in version.runs() {
        let is_taken = |table: &&crate::version::TableUse| match inputs.is_empty() {
            true => table.meta.id == id,
            false => ranges.iter().any(|range| range.overlaps(&table.range)),
        };
        let taken: Vec<_> = run.tables().iter().filter(is_taken).collect();
        if taken.is_empty() {
            continue;
        }
        let tables = taken.iter().map(|table| table.meta.id).collect();
        ranges.extend(taken.iter().map(|table| table.range.clone()));
        inputs.push(CompactionInput { level, run: run.id, tables });
    }
    let (target_level, target_run) = inputs.last().map(|input| (input.level, Target::Existing(input.run)))?;
    Some(CompactionJob { inputs, target_level, target_run, reason: Reason::Tombstones })
}

#[cfg(test)]
mod tests {
    use shamba_model::{Design, MergePolicy};

    use super::*;
    use crate::compaction::policy::Rules;

    const PRICES: Prices = Prices { run_ns: 500.0, tombstone_ns: 200.0, byte_ns: 20.0, horizon_s: 60.0 };

    const QUEUE: &str = "L0: r9@9[9:a..c 1000 n=10 del=9 seq=90-99] r8@8[8:x..z 1000 seq=80-89]\n\
                         L1: r5@5[5:a..b 4000 seq=1-50, 6:b..k 4000, 7:m..z 4000]\n";

    fn picked(tree: &str, triggers: &Triggers) -> Vec<String> {
        let version: Version = tree.parse().expect("notation");
        let rules = Rules::manual(Design::new(MergePolicy::Leveling, 4.0, 100_000, 0.0), 9);
        let capacities = rules.capacities(&version);
        let deepest = version.deepest_level();
        let down = Down { version: &version, rules: &rules, capacities: &capacities, deepest };
        let jobs = triggered(&down, triggers);
        jobs.iter().for_each(|(job, _)| job.check(&version).expect("a job that keeps the order"));
        jobs.into_iter().map(|(job, score)| format!("{score:.2}: {job}")).collect()
    }

    fn of_table_9(reads: TableReads) -> Triggers {
        let tables = [(TableId(9), reads)].into_iter().collect();
        Triggers { now_us: 1_000, tables, prices: Some(PRICES), ..Triggers::default() }
    }

    #[test]
    fn level_0_is_drained_when_seeks_pay_for_it() {
        // 14,000 bytes at 20 ns are paid within 60 s by two runs less, at 500 ns, for 5 seeks/s.
        let triggers =
            |seeks_per_second| Triggers { prices: Some(PRICES), seeks_per_second, ..Triggers::default() };
        let drained =
            "0.50: L0.r9[000009] + L0.r8[000008] + L1.r5[000005, 000006, 000007] -> L1.r5 (reads pay for it)";
        assert_eq!(picked(QUEUE, &triggers(5.0)), [drained]);
        assert!(picked(QUEUE, &triggers(4.6)).is_empty());
        assert!(picked("L1: r5@5[5:a..b 4000]\n", &triggers(1e9)).is_empty(), "level 0 is empty");
        assert!(picked(QUEUE, &Triggers { prices: None, ..triggers(1e9) }).is_empty());
    }

    #[test]
    fn tombstones_that_scans_pass_are_collected_with_all_below() {
        let passed =
            |rate| of_table_9(TableReads { tombstones_passed_per_second: rate, ..TableReads::default() });
        let collected = "0.50: L0.r9[000009] + L1.r5[000005, 000006] -> L1.r5 (tombstones are collected)";
        // 9,000 bytes at 20 ns are paid within 60 s by 15 tombstones/s at 200 ns.
        assert_eq!(picked(QUEUE, &passed(15.1)), [collected]);
        assert!(picked(QUEUE, &passed(14.9)).is_empty());
        assert!(picked(&QUEUE.replace("del=9", "del=0"), &passed(1e9)).is_empty(), "no tombstones");
    }

    #[test]
    fn old_tombstones_are_due_unless_a_snapshot_needs_them() {
        let since = TableReads { oldest_tombstone_us: Some(400), ..TableReads::default() };
        let bound = |most| Triggers { tombstone_age_max_us: Some(most), prices: None, ..of_table_9(since) };
        let due = "2.00: L0.r9[000009] + L1.r5[000005, 000006] -> L1.r5 (tombstones are collected)";
        assert_eq!(picked(QUEUE, &bound(300)), [due]);
        assert!(picked(QUEUE, &bound(600)).is_empty());
        let held = |seq| Triggers { oldest_snapshot: Some(SeqNo(seq)), ..bound(300) };
        assert!(picked(QUEUE, &held(98)).is_empty());
        assert_eq!(picked(QUEUE, &held(99)).len(), 1, "it sees the deletes");
        let last = "L2: r9@9[9:a..c 10 n=10 del=9, 8:d..e 10]\n";
        assert_eq!(picked(last, &bound(300)), ["2.00: L2.r9[000009] -> L2.r9 (tombstones are collected)"]);
    }
}
