//! Compaction credit: how a level 0 with many runs and overfull levels share the compaction work.
//!
//! While writers keep level 0 full, a compaction of it is always due. If it always went first, the
//! levels below would only grow, each compaction onto them would cost more, and level 0 would fill
//! further. If the levels always went first, writers would wait for all the work that a change of
//! the design left, which may be most of the database. So each compaction of level 0 gives the
//! overfull levels a *credit*: a multiple of the bytes that it compacted. When the credit is spent,
//! level 0 is compacted again.
//!
//! A level 0 compaction costs more the larger its target levels are, so the credit grows with the
//! work to do. Writers wait at most a few times as long as for level 0 alone, plus one job.
//!
//! Not here: which levels are overfull ([`super::fluid`]); where the credit is kept
//! (`KeyspaceCore`).

use super::job::{CompactionJob, Reason};

/// Credit per byte that a level 0 compaction reads. In the simulator 2 writes least under leveling
/// with T = 4 and 10: with 1 level 0 is compacted onto larger levels, with more in smaller batches.
const CREDIT_RATIO: u64 = 2;

/// The credit after `merged_bytes` of input of `job` were compacted; before, it was `credit_bytes`.
/// A compaction of level 0 that did not delay writers (`was_l0_urgent` is false) gives no credit:
/// its bytes are no measure, as they may be few or most of the database.
pub fn credit_after(job: &CompactionJob, merged_bytes: u64, was_l0_urgent: bool, credit_bytes: u64) -> u64 {
    match job.reason {
        Reason::Level0 if was_l0_urgent => merged_bytes.saturating_mul(CREDIT_RATIO),
        Reason::Level0 => 0,
        Reason::Overflow { .. } | Reason::Runs { .. } => credit_bytes.saturating_sub(merged_bytes),
        Reason::Manual
        | Reason::Filters
        | Reason::SmallTables
        | Reason::L0Runs
        | Reason::Reads
        | Reason::Tombstones => credit_bytes,
    }
}

#[cfg(test)]
mod tests {
    use shamba_model::{Design, MergePolicy};

    use super::super::{Rules, pick};
    use super::*;
    use crate::version::Version;

    #[test]
    fn the_inbox_and_an_outgrown_level_take_turns() {
        // Level 1 may hold 40 bytes, and level 0 has four runs: it precedes other levels.
        let rules = Rules::manual(Design::new(MergePolicy::Leveling, 4.0, 10, 0.0), 1);
        let l0 = "L0: r13@13[13:a..z 10] r12@12[12:a..z 10] r11@11[11:a..z 10] r10@10[10:a..z 10]\n";
        let version = |level_1: &str, level_2: &str| -> Version {
            format!("{l0}L1: {level_1}\nL2: {level_2}\n").parse().expect("notation")
        };
        let reason_of = |version: &Version, credit_bytes| {
            let job = pick(version, &Rules { credit_bytes, ..rules }).expect("a merge");
            job.check(version).expect("in order");
            job.reason
        };
        let outgrown = version("r2@2[2:a..g 60, 3:g..z 60]", "r1@1[1:a..z 100]");
        assert_eq!(reason_of(&outgrown, 0), Reason::Level0);
        assert_eq!(reason_of(&outgrown, 1), Reason::Overflow { level: 1 });
        let over = version("r2@2[2:a..g 40, 3:g..z 40]", "r1@1[1:a..z 100]");
        assert_eq!(reason_of(&over, u64::MAX), Reason::Level0, "twice its bound is not beyond that");
        let free = version("r2@2[2:a..g 60, 3:g..z 60]", "r1@1[1:s..z 100]");
        assert_eq!(reason_of(&free, 0), Reason::Overflow { level: 1 }, "a move is owed nothing");
        let many = version("r4@4[4:a..z 10] r2@2[2:a..z 10]", "r1@1[1:a..z 100]");
        assert_eq!(reason_of(&many, 0), Reason::Level0);
        assert_eq!(reason_of(&many, 1), Reason::Runs { level: 1 });
    }

    #[test]
    fn what_is_owed_is_spent_and_never_saved_up() {
        let job = |reason| CompactionJob {
            inputs: Vec::new(),
            target_level: 1,
            target_run: super::super::Target::New,
            reason,
        };
        let (l0, other) = (job(Reason::Level0), job(Reason::Overflow { level: 1 }));
        assert_eq!([credit_after(&l0, 50, true, 0), credit_after(&l0, 50, true, 70)], [100, 100]);
        assert_eq!(credit_after(&l0, 50, false, 70), 0, "nobody waited");
        assert_eq!([credit_after(&other, 30, true, 100), credit_after(&other, 130, false, 100)], [70, 0]);
        assert_eq!(credit_after(&job(Reason::Filters), 30, true, 100), 100);
    }
}
