//! Picks the file that leaves a leveled level that is over its capacity.
//!
//! Each file has a cost, and the cheapest file moves:
//!
//! ```text
//! cost = (1 + bytes that share keys with it on the next level / its own bytes)
//!        * (1 - tombstones / (2 * entries))
//!        * (3/4 + freshness / 4)
//! ```
//!
//! Tombstones free space only on lower levels. A file with range tombstones counts as if all its
//! entries were tombstones. Freshness is 0 for the file of the run with the oldest newest entry,
//! and 1 for the one with the newest.
//!
//! The first factor is the write amplification of the move; the others choose among similar files.
//! Keys of an old file are no longer overwritten, so moving it down saves later compactions. No
//! file stays for ever, since every move changes the overlap of the others. Ties go to the smaller
//! key.
//!
//! Not here: when a level must move a file ([`super::fluid`]).

use shamba_key::SeqNo;

use crate::version::{Run, TableUse};

/// The cheapest file to move from `run` to a level with the runs `below`.
pub(super) fn cheapest<'v>(run: &'v Run, below: &[std::sync::Arc<Run>]) -> Option<&'v TableUse> {
    let ages = || run.tables().iter().map(|table| table.meta.largest_seq);
    let (oldest, newest) = (ages().min()?, ages().max()?);
    let cost = |table: &TableUse| cost(table, below, oldest, newest);
    // `min_by` returns the first of equals, and tables ascend.
    run.tables().iter().map(|table| (cost(table), table)).min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, t)| t)
}

fn cost(table: &TableUse, below: &[std::sync::Arc<Run>], oldest: SeqNo, newest: SeqNo) -> f64 {
    let meta = &table.meta;
    let shared = below.iter().flat_map(|run| run.overlapping(&table.range));
    let shared_bytes = shared.fold(0u64, |sum, other| sum.saturating_add(other.live_bytes));
    let amplification = 1.0 + shared_bytes as f64 / table.live_bytes.max(1) as f64;
    let tombstones = if meta.range_deletes > 0 {
        1.0
    } else {
        (meta.deletes as f64 / meta.entries.max(1) as f64).min(1.0)
    };
    debug_assert!(
        (oldest..=newest).contains(&meta.largest_seq),
        "table {} is not of the run: it ends at {}, the run's tables from {oldest} to {newest}",
        meta.id,
        meta.largest_seq
    );
    let since_oldest = meta.largest_seq.0.saturating_sub(oldest.0) as f64;
    let freshness = since_oldest / newest.0.saturating_sub(oldest.0).max(1) as f64;
    amplification * (1.0 - tombstones / 2.0) * (0.75 + freshness / 4.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::version::Version;

    /// Number of the file that leaves level 1 of the tree.
    fn chosen(tree: &str) -> u64 {
        let version: Version = tree.parse().expect("notation");
        cheapest(&version.level(1)[0], version.level(2)).expect("a file").meta.id.0
    }

    #[test]
    fn the_least_overlap_a_byte_goes_first() {
        assert_eq!(
            chosen("L1: r1@1[1:a..d 10, 2:d..g 10, 3:g..k 30]\nL2: r2@2[4:a..b 40, 5:d..e 30, 6:g..h 60]\n"),
            3
        );
    }

    #[test]
    fn among_similar_files_tombstones_then_age_decide() {
        assert_eq!(chosen("L1: r1@1[1:a..d 10 n=5, 2:d..g 10 n=5 del=2, 3:g..k 10 n=5 del=1]\n"), 2);
        assert_eq!(chosen("L1: r1@1[1:a..d 10 n=5 del=4, 2:d..g 10 n=5 rdel=1]\n"), 2);
        assert_eq!(chosen("L1: r1@1[1:a..d 10 seq=1-9, 2:d..g 10 seq=2-7, 3:g..k 10 seq=3-8]\n"), 2);
        assert_eq!(chosen("L1: r1@1[1:a..d 10, 2:d..g 10]\n"), 1);
    }
}
