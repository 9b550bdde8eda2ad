//! Compactions that no shape rule asks for: reads pay for them, tombstones are too old, or entries
//! have expired.
//!
//! A compaction that drains level 0 pays if the time that it saves readers within
//! [`TriggerPrices::horizon_s`] is more than the time that its bytes take. One that removes
//! tombstones is due when scans have already lost more time with the tombstones of the table than
//! the compaction takes:
//!
//! ```text
//! level 0      saves seeks/s * (runs that go away) * run_ns * horizon_s
//! tombstones   of a table have cost (tombstones that scans passed there) * tombstone_ns
//! ```
//!
//! The second rule needs no forecast. Whatever scans come later, the two costs together are at most
//! twice those of a rule that knew them.
//!
//! A compaction is also due, without a price, when the oldest tombstone of a table is older than
//! the bound, unless a snapshot still needs it. The most overdue table is first.
//!
//! A tombstone is gone once it was compacted with everything older that shares its keys. It goes
//! there one run at a time, so that no job is larger than one table and its keys in one run: from
//! level 0 as level 0 always goes, from elsewhere into the next older run that shares keys, and
//! from a table that shares none by a rewrite in place. Outputs take over the time of the oldest
//! tombstone, so an overdue table stays overdue until its tombstones are gone. Each step moves them
//! to an older run or drops them, so the steps end.
//!
//! A table is rewritten in place when half of its bytes or more have expired, as far as its expiry
//! times tell. So a rewrite frees about as many bytes as it writes, or more, and what has expired
//! takes at most about as many bytes of a table as the rest. The rewrite makes expired entries
//! tombstones, or drops them. A table in which all have expired, over which nothing is older, is
//! dropped without reading it, once no reader is older than it.
//!
//! Not here: counting passed tombstones ([`crate::iter`]), the time of the oldest tombstone of a
//! new table (package `shamba`).

use shamba_key::{RunId, SeqNo};

use crate::compaction::policy::{CompactionInput, CompactionJob, Down, Reason, Target};
use crate::snapshot::Readers;
use crate::version::{Run, TableUse, Version};

/// Score of a job that pays: before idle work, after levels at their bounds.
const PAYING_SCORE: f64 = 0.5;
/// Maximum number of overdue tables that get a job at once, and of those with expired entries. More
/// could not run in parallel.
const OVERDUE_JOBS_MAX: usize = 8;
/// Share of a table's bytes that has expired when it is rewritten.
const EXPIRED_SHARE: f64 = 0.5;

/// Measurements of one keyspace, and the prices of reads and bytes.
#[derive(Clone, Default, Debug)]
pub struct Triggers {
    /// Time now, in milliseconds since 1970-01-01 UTC.
    pub now_ms: u64,
    /// Prices; `None`: no compaction is picked because it pays.
    pub prices: Option<TriggerPrices>,
    /// Seeks per second.
    pub seeks_per_second: f64,
    /// Maximum age of a tombstone in milliseconds; `None` for no bound.
    pub tombstone_age_max_ms: Option<u64>,
    /// The oldest snapshot in use.
    pub oldest_snapshot: Option<SeqNo>,
    /// The readers, by whose times entries expire; those of a time 0 if no entry expires.
    pub readers: Readers,
}

/// Prices of reads and of compaction.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TriggerPrices {
    /// Cost of one more run to a seek, in nanoseconds.
    pub run_ns: f64,
    /// Cost of passing a tombstone in a scan, in nanoseconds.
    pub tombstone_ns: f64,
    /// Cost of compacting a byte, in nanoseconds.
    pub byte_ns: f64,
    /// Time in seconds within which the compaction of level 0 must pay for itself.
    pub horizon_s: f64,
}

impl TriggerPrices {
    /// Whether readers who lost `lost_ns` pay for compacting `bytes`.
    fn pays(&self, lost_ns: f64, bytes: u64) -> bool {
        lost_ns > bytes as f64 * self.byte_ns
    }
}

/// Age of the oldest tombstone of a tree, in milliseconds; `None` if none has a known time.
pub fn oldest_tombstone_age_ms(version: &Version, now_ms: u64) -> Option<u64> {
    let times = version.tables().filter_map(|(_, _, table)| table.meta.oldest_tombstone.unix_ms());
    times.min().map(|unix_ms| now_ms.saturating_sub(unix_ms))
}

/// The triggered jobs of a tree, each with its score.
pub(super) fn triggered(down: &Down<'_>, triggers: &Triggers) -> Vec<(CompactionJob, f64)> {
    let version = down.version;
    let mut overdue: Vec<(f64, u32, &Run, &TableUse)> = Vec::new();
    let mut jobs = Vec::new();
    for (level, run, table) in version.tables().filter(|(_, _, table)| table.meta.has_tombstones()) {
        // A snapshot that sees everything in the table needs none of its tombstones.
        if triggers.oldest_snapshot.is_some_and(|snapshot| snapshot < table.meta.largest_seq) {
            continue;
        }
        let age_ms = table.meta.oldest_tombstone.unix_ms().map(|ms| triggers.now_ms.saturating_sub(ms));
        if let Some((max_ms, age_ms)) = triggers.tombstone_age_max_ms.zip(age_ms) {
            if age_ms > max_ms {
                overdue.push((age_ms as f64 / max_ms.max(1) as f64, level, run, table));
                continue;
            }
        }
        let Some(prices) = triggers.prices else { continue };
        let lost_ns = table.meta.statistics.tombstones_passed() as f64 * prices.tombstone_ns;
        // The table alone is cheaper than its job, so most jobs need not be made.
        if prices.pays(lost_ns, table.live_bytes) {
            let job = step_down(down, level, run, table, Reason::Tombstones);
            if prices.pays(lost_ns, job.input_bytes(version)) {
                jobs.push((job, PAYING_SCORE));
            }
        }
    }
    // Stable: of equally old ones the newest run is first.
    overdue.sort_by(|one, other| other.0.total_cmp(&one.0));
    overdue.truncate(OVERDUE_JOBS_MAX);
    debug_assert!(
        overdue.iter().all(|(score, ..)| *score >= 1.0),
        "an overdue table has a score below that of a level at its bounds"
    );
    jobs.extend(
        overdue.into_iter().map(|(score, level, run, table)| {
            (step_down(down, level, run, table, Reason::Tombstones), score)
        }),
    );
    jobs.extend(expired(version, &triggers.readers).into_iter().map(|job| (job, PAYING_SCORE)));
    let runs = version.level(0).len();
    if let Some(prices) = triggers.prices.filter(|_| runs > 0) {
        let job = CompactionJob { reason: Reason::Reads, ..down.l0() };
        let new_runs = usize::from(job.target_run == Target::New);
        let saved_ns = triggers.seeks_per_second * runs.saturating_sub(new_runs) as f64 * prices.run_ns;
        if prices.pays(saved_ns * prices.horizon_s, job.input_bytes(version)) {
            jobs.push((job, PAYING_SCORE));
        }
    }
    jobs
}

/// Rewrites in place of tables of which much has expired for all readers, those with the most
/// expired bytes first.
fn expired(version: &Version, readers: &Readers) -> Vec<CompactionJob> {
    let mut due: Vec<(u64, u32, &Run, &TableUse)> = Vec::new();
    for (level, run, table) in version.tables() {
        let Some(expiring) = table.meta.expiring.get() else { continue };
        // Readers that see nothing of the table do not hold it.
        let time_ms = readers.time_from_ms(table.meta.smallest_seq);
        if table.meta.is_expired(time_ms)
            && readers.has_older_than(table.meta.largest_seq)
            && is_oldest(version, run.id, table)
        {
            // It is dropped unread once no older reader needs the trace of its writes.
            continue;
        }
        let share = expiring.expired_bytes_share(time_ms);
        if share >= EXPIRED_SHARE {
            due.push(((table.live_bytes as f64 * share) as u64, level, run, table));
        }
    }
    due.sort_by_key(|(bytes, ..)| std::cmp::Reverse(*bytes));
    due.truncate(OVERDUE_JOBS_MAX);
    let rewrite = |(_, level, run, table): (u64, u32, &Run, &TableUse)| {
        let inputs = vec![CompactionInput { level, run: run.id, tables: vec![table.meta.id] }];
        let (target_level, target_run) = (level, Target::Existing(run.id));
        let job = CompactionJob { inputs, target_level, target_run, reason: Reason::Expired };
        debug_assert_eq!(job.check(version), Ok(()), "{job}");
        job
    };
    due.into_iter().map(rewrite).collect()
}

/// Whether nothing older than a table of `run` may hold a key of its range.
pub fn is_oldest(version: &Version, run: RunId, table: &TableUse) -> bool {
    let mut older = version.runs().skip_while(|(_, other)| other.id != run).skip(1);
    older.all(|(_, other)| other.overlapping(&table.range).is_empty())
}

/// The job that moves a table into the next older run that shares keys, or rewrites it where there
/// is none: its tombstones go one run towards the last, or away.
pub(super) fn step_down(
    down: &Down<'_>,
    level: u32,
    run: &Run,
    table: &TableUse,
    reason: Reason,
) -> CompactionJob {
    if level == 0 {
        return CompactionJob { reason, ..down.l0() };
    }
    let input = |level, run: &Run, tables: &[TableUse]| CompactionInput {
        level,
        run: run.id,
        tables: tables.iter().map(|table| table.meta.id).collect(),
    };
    let mut inputs = vec![input(level, run, std::slice::from_ref(table))];
    let older = down.version.runs().skip_while(|(_, other)| other.id != run.id).skip(1);
    let mut sharing = older.map(|(level, run)| (level, run, run.overlapping(&table.range)));
    if let Some((level, run, tables)) = sharing.find(|(_, _, tables)| !tables.is_empty()) {
        inputs.push(input(level, run, tables));
    }
    let (target_level, target_run) = inputs.last().map_or((level, run.id), |last| (last.level, last.run));
    debug_assert!(target_level >= level, "a table of level {level} moves up to level {target_level}");
    let target_run = Target::Existing(target_run);
    let job = CompactionJob { inputs, target_level, target_run, reason };
    debug_assert_eq!(job.check(down.version), Ok(()), "{job}");
    job
}

#[cfg(test)]
mod tests {
    use shamba_model::{Design, MergePolicy};
    use shamba_table::TableId;

    use super::*;
    use crate::compaction::policy::Rules;

    const PRICES: TriggerPrices =
        TriggerPrices { run_ns: 500.0, tombstone_ns: 200.0, byte_ns: 20.0, horizon_s: 60.0 };

    /// Table 9 has the tombstones of a queue, which stands in the levels below.
    const QUEUE: &str = "L0: r9@9[9:a..c 1000 n=10 del=9 seq=90-99 oldest=400] r8@8[8:x..z 1000 seq=80-89]\n\
                         L1: r5@5[5:a..b 4000 seq=1-50, 6:b..k 4000, 7:m..z 4000]\n";
    const IN_L1: &str = "L1: r9@9[9:a..c 1000 n=10 del=9 seq=90-99 oldest=400]\n\
                         L2: r5@5[5:a..b 4000 seq=1-50, 6:b..k 4000, 7:m..z 4000]\n\
                         L3: r3@3[3:a..z 80000]\n";
    const OF_L0: &str = "L0.r9[000009] + L0.r8[000008] + L1.r5[000005, 000006, 000007] -> L1.r5";

    fn picked_in(version: &Version, triggers: &Triggers) -> Vec<String> {
        let rules = Rules::manual(Design::new(MergePolicy::Leveling, 4.0, 100_000, 0.0), 9);
        let capacities = rules.capacities(version);
        let deepest = version.deepest_level();
        let down = Down { version, rules: &rules, capacities: &capacities, deepest };
        let jobs = triggered(&down, triggers);
        jobs.iter().for_each(|(job, _)| job.check(version).expect("a job that keeps the order"));
        jobs.into_iter().map(|(job, score)| format!("{score:.2}: {job}")).collect()
    }

    fn picked(tree: &str, triggers: &Triggers) -> Vec<String> {
        picked_in(&tree.parse().expect("notation"), triggers)
    }

    /// The jobs picked after scans have passed `passed` tombstones in table 9.
    fn picked_after(tree: &str, passed: u64, triggers: &Triggers) -> Vec<String> {
        let version: Version = tree.parse().expect("notation");
        let table = version.tables().find(|(_, _, table)| table.meta.id == TableId(9)).expect("table 9").2;
        table.meta.statistics.add_tombstones_passed(passed);
        picked_in(&version, triggers)
    }

    fn bound(max_ms: u64) -> Triggers {
        Triggers { now_ms: 1_000, tombstone_age_max_ms: Some(max_ms), ..Triggers::default() }
    }

    #[test]
    fn level_0_is_drained_when_seeks_pay_for_it() {
        // 14,000 bytes at 20 ns are paid within 60 s by two runs less, at 500 ns, for 5 seeks/s.
        let triggers =
            |seeks_per_second| Triggers { prices: Some(PRICES), seeks_per_second, ..Triggers::default() };
        assert_eq!(picked(QUEUE, &triggers(5.0)), [format!("0.50: {OF_L0} (reads pay for it)")]);
        assert!(picked(QUEUE, &triggers(4.6)).is_empty());
        assert!(picked("L1: r5@5[5:a..b 4000]\n", &triggers(1e9)).is_empty(), "level 0 is empty");
        assert!(picked(QUEUE, &Triggers { prices: None, ..triggers(1e9) }).is_empty());
    }

    #[test]
    fn tombstones_go_on_when_scans_have_lost_more_time_with_them_than_that_takes() {
        let triggers = Triggers { prices: Some(PRICES), ..Triggers::default() };
        // 14,000 bytes at 20 ns are as much as 1,400 tombstones at 200 ns.
        let of_l0 = format!("0.50: {OF_L0} (tombstones are collected)");
        assert_eq!(picked_after(QUEUE, 1_401, &triggers), [of_l0]);
        assert!(picked_after(QUEUE, 1_400, &triggers).is_empty());
        assert!(picked_after(&QUEUE.replace("del=9 ", ""), 1 << 40, &triggers).is_empty(), "no tombstones");
        assert!(picked_after(QUEUE, 1 << 40, &Triggers { prices: None, ..triggers.clone() }).is_empty());
        // Below level 0 a step takes one run: 9,000 bytes, whatever lies deeper.
        let step = "0.50: L1.r9[000009] + L2.r5[000005, 000006] -> L2.r5 (tombstones are collected)";
        assert_eq!(picked_after(IN_L1, 901, &triggers), [step]);
        assert!(picked_after(IN_L1, 900, &triggers).is_empty());
    }

    #[test]
    fn old_tombstones_go_down_run_by_run_and_are_dropped_at_the_end() {
        let of_l0 = format!("2.00: {OF_L0} (tombstones are collected)");
        assert_eq!(picked(QUEUE, &bound(300)), [of_l0]);
        assert!(picked(QUEUE, &bound(600)).is_empty(), "of age 600");
        let step = "2.00: L1.r9[000009] + L2.r5[000005, 000006] -> L2.r5 (tombstones are collected)";
        assert_eq!(picked(IN_L1, &bound(300)), [step]);
        // Runs of a level too, the newest first; a run that shares no key is passed.
        let tiered = "L2: r9@9[9:a..c 10 n=10 del=9 seq=90-99 oldest=400] r8@8[8:d..e 10] r7@7[7:b..z 10]\n\
                      L3: r3@3[3:a..z 80000]\n";
        let step = "2.00: L2.r9[000009] + L2.r7[000007] -> L2.r7 (tombstones are collected)";
        assert_eq!(picked(tiered, &bound(300)), [step]);
        let last = "L2: r9@9[9:a..c 10 n=10 del=9 oldest=400, 8:d..e 10]\n";
        assert_eq!(picked(last, &bound(300)), ["2.00: L2.r9[000009] -> L2.r9 (tombstones are collected)"]);
        let of_range = last.replace("n=10 del=9", "rdel=1");
        assert_eq!(picked(&of_range, &bound(300)).len(), 1, "range tombstones too");
        assert!(picked(&last.replace("oldest=400", ""), &bound(0)).is_empty(), "of unknown age");
    }

    #[test]
    fn the_most_overdue_comes_first_and_few_at_a_time() {
        let mut tables = String::new();
        for number in 0..20u8 {
            let (key, end) = (char::from(b'a' + number), char::from(b'b' + number));
            tables += &format!("{number}:{key}..{end} 10 n=1 del=1 oldest={}, ", 500 - u64::from(number));
        }
        let tree = format!("L1: r1@1[{}]\n", tables.trim_end_matches(", "));
        let jobs = picked(&tree, &bound(100));
        assert_eq!(jobs.len(), OVERDUE_JOBS_MAX);
        assert_eq!(jobs[0], "5.19: L1.r1[000019] -> L1.r1 (tombstones are collected)");
        let version: Version = tree.parse().expect("notation");
        assert_eq!(oldest_tombstone_age_ms(&version, 1_000), Some(519));
        assert_eq!(oldest_tombstone_age_ms(&version, 5), Some(0), "the clock was set back");
        assert_eq!(oldest_tombstone_age_ms(&Version::empty(), 5), None);
    }

    #[test]
    fn tombstones_that_a_snapshot_needs_stay() {
        for (snapshot, jobs) in [(98, 0), (99, 1)] {
            let held = Triggers { oldest_snapshot: Some(SeqNo(snapshot)), ..bound(300) };
            assert_eq!(picked(QUEUE, &held).len(), jobs, "by a snapshot at {snapshot}");
            let held = Triggers { prices: Some(PRICES), tombstone_age_max_ms: None, ..held };
            assert_eq!(picked_after(QUEUE, 1 << 40, &held).len(), jobs, "by a snapshot at {snapshot}");
        }
    }

    #[test]
    fn a_table_is_rewritten_when_half_of_it_has_expired() {
        let tree = "L0: r9@9[9:a..c 1000 n=10 exp=10:100-900]\n\
                    L1: r5@5[5:a..b 4000 n=40, 6:b..k 8000 n=40 seq=5-9 exp=40:100-900]\n";
        let at = |now_ms| {
            let readers = Readers { now_ms, ..Readers::default() };
            picked(tree, &Triggers { readers, ..Triggers::default() })
        };
        assert!(at(0).is_empty() && at(499).is_empty(), "{:?}", at(499));
        // The most bytes first.
        let (large, small) = ("0.50: L1.r5[000006] -> L1.r5", "0.50: L0.r9[000009] -> L0.r9");
        let both = [large, small].map(|job| format!("{job} (expired entries are dropped)"));
        assert_eq!(at(500), both);
        assert_eq!(at(u64::MAX), both);
        // A reader holds what it sees: table 6 has nothing that is older than the number 5.
        let held = |seq| {
            let (seqs, times_ms) = (vec![SeqNo(seq)], vec![400]);
            let readers = Readers { seqs, times_ms, now_ms: 500 };
            picked(tree, &Triggers { readers, ..Triggers::default() }).len()
        };
        assert_eq!((held(4), held(5)), (1, 0), "table 9 has no sequence numbers, so all readers see it");
        let version: Version = tree.parse().expect("notation");
        let [newer, older] = [0, 1].map(|level| &version.level(level)[0]);
        assert!(!is_oldest(&version, newer.id, &newer.tables()[0]), "of level 0");
        assert!(is_oldest(&version, older.id, &older.tables()[1]), "of level 1");
    }

    #[test]
    fn steps_end_in_any_tree() {
        // What an executor does, with outputs that keep every tombstone until nothing is older.
        let mut tree = IN_L1.to_owned();
        for (of, then) in [
            (
                "L1.r9[000009] + L2.r5[000005, 000006]",
                "L2: r5@5[9:a..k 9000 n=9 del=9 oldest=400, 7:m..z 4000]\n",
            ),
            ("L2.r5[000009] + L3.r3[000003]", ""),
        ] {
            let jobs = picked(&tree, &bound(300));
            assert_eq!(jobs.len(), 1, "{tree}");
            assert!(jobs[0].contains(of), "{} is not {of}", jobs[0]);
            tree = format!("{then}L3: r3@3[3:a..z 80000]\n");
        }
        assert!(picked(&tree, &bound(300)).is_empty());
    }
}
