//! Compaction of adjacent small tables of a run in place.
//!
//! An open table takes 2 to 3 KiB of memory, a file, and some reads at each open, whatever its
//! size. Flushes of a few entries make tables of a few kilobytes, and trivial moves take them down
//! unchanged. Keys that arrive in order would accumulate such tables without bound. So a stretch of
//! adjacent small tables of one run is compacted into full ones. The job moves nothing (its target
//! is the run of its inputs, level 0 included), so lookup order is unchanged.
//!
//! [`STRETCH_TABLES_MIN`] bounds the rewriting: an entry is rewritten at most once for each factor
//! of `STRETCH_TABLES_MIN` by which its table grows, until the table is no longer small.
//!
//! Not here: the size below which a table is small ([`Rules::small_bytes`]), the cut of the outputs
//! (`compaction::table_size`).

use std::sync::Arc;

use super::job::{CompactionInput, CompactionJob, Reason, Target};
use super::rules::Rules;
use crate::version::{Run, TableUse, Version};

/// Minimum number of adjacent small tables that the policy compacts by itself.
const STRETCH_TABLES_MIN: usize = 4;
/// Maximum bytes of one job in multiples of `small_bytes`; bounded because other compactions wait
/// for it.
const JOB_SMALL_TABLES: u64 = 16;

/// The job for the first stretch of small tables; `None` if no run has one.
pub(in crate::compaction) fn pick_small(version: &Version, rules: &Rules) -> Option<CompactionJob> {
    version.runs().find_map(|(level, run)| {
        let stretch = stretches(run, rules).find(|stretch| stretch.len() >= STRETCH_TABLES_MIN)?;
        let mut bytes = 0u64;
        let last = stretch.iter().position(|table| {
            bytes = bytes.saturating_add(table.live_bytes);
            bytes >= rules.small_bytes.saturating_mul(JOB_SMALL_TABLES)
        });
        Some(job(level, run, &stretch[..last.map_or(stretch.len(), |last| last + 1)]))
    })
}

/// Whether table `number` of `run` and one of its neighbours are small: a caller's `compact` merges
/// these.
pub(super) fn is_in_stretch(run: &Run, number: usize, rules: &Rules) -> bool {
    let is_small = |number: Option<usize>| {
        number.and_then(|number| run.tables().get(number)).is_some_and(|table| rules.is_small(table))
    };
    is_small(Some(number)) && (is_small(number.checked_sub(1)) || is_small(Some(number + 1)))
}

/// The maximal stretches of adjacent small tables, in key order.
fn stretches<'r>(run: &'r Run, rules: &'r Rules) -> impl Iterator<Item = &'r [TableUse]> {
    run.tables()
        .chunk_by(|a, b| rules.is_small(a) == rules.is_small(b))
        .filter(|tables| rules.is_small(&tables[0]))
}

fn job(level: u32, run: &Arc<Run>, stretch: &[TableUse]) -> CompactionJob {
    debug_assert!(stretch.len() > 1, "run {}: {} small tables are combined", run.id, stretch.len());
    let tables = stretch.iter().map(|table| table.meta.id).collect();
    CompactionJob {
        inputs: vec![CompactionInput { level, run: run.id, tables }],
        target_level: level,
        target_run: Target::Existing(run.id),
        reason: Reason::SmallTables,
    }
}

#[cfg(test)]
mod tests {
    use shamba_model::{Design, MergePolicy};

    use super::*;

    fn rules(small_bytes: u64) -> Rules {
        Rules { small_bytes, ..Rules::manual(Design::new(MergePolicy::Leveling, 4.0, 1 << 20, 0.0), 4) }
    }

    fn picked(tables: &str) -> Option<String> {
        let version: Version = tables.parse().expect("notation");
        let job = pick_small(&version, &rules(100))?;
        job.check(&version).expect("a job that keeps the order");
        assert!(!job.is_trivial_move(&version));
        Some(job.to_string())
    }

    #[test]
    fn a_stretch_of_small_neighbours_is_merged_where_it_is() {
        assert_eq!(
            picked("L1: r1@1[000001:a..b 10, 000002:c..d 99, 000003:e..f 1, 000004:g..h 5]\n").as_deref(),
            Some("L1.r1[000001, 000002, 000003, 000004] -> L1.r1 (small tables are combined)")
        );
        assert_eq!(
            picked(
                "L1: r1@1[000001:a..b 900]\n\
                 L2: r2@2[000002:a..b 1, 000003:c..d 100, 000004:e..f 1, 000005:g..h 5, 000006:i..j 1, 000007:k.. 9]\n"
            )
            .as_deref(),
            Some("L2.r2[000004, 000005, 000006, 000007] -> L2.r2 (small tables are combined)")
        );
    }

    #[test]
    fn few_small_tables_and_those_beside_large_ones_stay() {
        for tables in [
            "L1: r1@1[000001:a..b 1, 000002:c..d 1, 000003:e..f 1]\n",
            "L1: r1@1[000001:a..b 1, 000002:c..d 1, 000003:e..f 100, 000004:g..h 1, 000005:i..j 1]\n",
            "L1: r1@1[000001:a..b 1, 000002:c..d 1]\nL2: r2@2[000003:a..b 1, 000004:c..d 1]\n",
            "",
        ] {
            assert_eq!(picked(tables), None, "{tables}");
        }
        let version: Version = "L1: r1@1[000001:a..b 1, 000002:c..d 1, 000003:e..f 1, 000004:g..h 1]\n"
            .parse()
            .expect("notation");
        assert!(pick_small(&version, &rules(0)).is_none(), "no table is small");
    }

    #[test]
    fn compact_merges_small_neighbours_however_few() {
        let version: Version = "L1: r1@1[000001:a..b 1, 000002:c..d 1, 000003:e..f 100, 000004:g..h 1]\n"
            .parse()
            .expect("notation");
        let run = &version.level(1)[0];
        let found: Vec<bool> = (0..5).map(|number| is_in_stretch(run, number, &rules(100))).collect();
        assert_eq!(found, [true, true, false, false, false]);
    }
}
