//! Turns: how a crowded inbox and levels beyond their bounds share the merging.
//!
//! While writers keep the inbox crowded there is always a merge of it to do. If it went first each time, the levels below would only
//! grow, each merge onto them would cost more, and the inbox would be the more crowded. If the levels went first, writers would wait
//! for all that another design has left to do, which may be most of the database. So after each merge of the inbox levels that
//! have outgrown their bounds are *owed* a multiple of what it merged; when that is spent, the inbox has its turn.
//!
//! A merge of the inbox costs the more the larger the levels are that it goes onto, so what is owed grows with what there is to do, and
//! writers wait a few times as long as for the inbox alone at most, but for one job.
//!
//! Not here: which levels have outgrown their bounds ([`super::fluid`]); where the figure is kept (`KeyspaceCore`).

use super::job::{MergeJob, Reason};

/// Levels are owed so many times what a merge of the inbox merges. In the simulator 2 writes least under leveling with T = 4 and 10:
/// with 1 the inbox is merged onto larger levels, with more in smaller batches.
const OWED_TIMES: u64 = 2;

/// What is owed after `merged_bytes` of input of `job` were merged; before, it was `owed_bytes`. What an inbox that was not crowded
/// had merged is no measure: nobody waited, and it may have been little, or onto most of the database.
pub fn owed_after(job: &MergeJob, merged_bytes: u64, was_crowded: bool, owed_bytes: u64) -> u64 {
    match job.reason {
        Reason::Inbox if was_crowded => merged_bytes.saturating_mul(OWED_TIMES),
        Reason::Inbox => 0,
        Reason::Overflow { .. } | Reason::Runs { .. } => owed_bytes.saturating_sub(merged_bytes),
        Reason::Manual | Reason::Filters | Reason::SmallTables => owed_bytes,
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
        // Level 1 may hold 40 and the inbox is crowded with four runs.
        let rules = Rules::manual(Design::new(MergePolicy::Leveling, 4.0, 10, 0.0), 1);
        let inbox = "L0: r13@13[13:a..z 10] r12@12[12:a..z 10] r11@11[11:a..z 10] r10@10[10:a..z 10]\n";
        let version = |level_1: &str, level_2: &str| -> Version {
            format!("{inbox}L1: {level_1}\nL2: {level_2}\n").parse().expect("notation")
        };
        let reason_of = |version: &Version, owed_bytes| {
            let job = pick(version, &Rules { owed_bytes, ..rules }).expect("a merge");
            job.check(version).expect("in order");
            job.reason
        };
        let outgrown = version("r2@2[2:a..g 60, 3:g..z 60]", "r1@1[1:a..z 100]");
        assert_eq!(reason_of(&outgrown, 0), Reason::Inbox);
        assert_eq!(reason_of(&outgrown, 1), Reason::Overflow { level: 1 });
        let over = version("r2@2[2:a..g 40, 3:g..z 40]", "r1@1[1:a..z 100]");
        assert_eq!(reason_of(&over, u64::MAX), Reason::Inbox, "twice its bound is not beyond that");
        let free = version("r2@2[2:a..g 60, 3:g..z 60]", "r1@1[1:s..z 100]");
        assert_eq!(reason_of(&free, 0), Reason::Overflow { level: 1 }, "a move is owed nothing");
        let many = version("r4@4[4:a..z 10] r2@2[2:a..z 10]", "r1@1[1:a..z 100]");
        assert_eq!(reason_of(&many, 0), Reason::Inbox);
        assert_eq!(reason_of(&many, 1), Reason::Runs { level: 1 });
    }

    #[test]
    fn what_is_owed_is_spent_and_never_saved_up() {
        let job = |reason| MergeJob {
            inputs: Vec::new(),
            target_level: 1,
            target_run: super::super::Target::New,
            reason,
        };
        let (inbox, other) = (job(Reason::Inbox), job(Reason::Overflow { level: 1 }));
        assert_eq!([owed_after(&inbox, 50, true, 0), owed_after(&inbox, 50, true, 70)], [100, 100]);
        assert_eq!(owed_after(&inbox, 50, false, 70), 0, "nobody waited");
        assert_eq!([owed_after(&other, 30, true, 100), owed_after(&other, 130, false, 100)], [70, 0]);
        assert_eq!(owed_after(&job(Reason::Filters), 30, true, 100), 100);
    }
}
