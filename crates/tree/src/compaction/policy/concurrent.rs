//! Jobs that run between the slices of a long compaction, so that flushed tables can leave level 0.
//!
//! A compaction of whole levels may cover most of the database, and writers must not wait for all
//! of it. It is done slice by slice. Between two slices, the levels above it may run jobs of their
//! own. These are picked by the usual rules from the tree without the long compaction's inputs.
//! They must end above those inputs, or on the level of the highest one as a newer run. All inputs
//! are older than such a run, and the outputs of the long compaction are deeper or join the level's
//! oldest run, so lookup order is preserved.
//!
//! *Pace*: the level that a long compaction empties fills up again meanwhile, and once it is full
//! no other job can run. So the long compaction proceeds first whenever its completed share is
//! smaller than the share of that level that has filled up. Writers wait briefly now and then
//! instead of for all of it at the end.
//!
//! Not here: the caller (`compaction::job`).

use super::fluid::Down;
use super::job::{CompactionJob, Reason, Target};
use super::rules::Rules;
use crate::version::Version;

/// The highest input level of a long compaction; `None` if that is level 0. All jobs start there,
/// so none could run in between.
fn top(job: &CompactionJob) -> Option<u32> {
    let top = job.inputs.iter().map(|input| input.level).min()?;
    (top > 0).then_some(top)
}

/// The levels down to `top`, without the inputs and the target run of `job`.
fn above(version: &Version, job: &CompactionJob, top: u32) -> Version {
    version.upper(top, |run| {
        job.target_run != Target::Existing(run) && job.inputs.iter().all(|input| input.run != run)
    })
}

/// Whether the rest of `job` may be put off half-way. A leveled level that is compacted in place,
/// which only a change of the design asks for, may be most of the database, and no other job can
/// run between its slices. Writers must not wait for it behind a full level 0, except while it
/// spends its compaction credit. Not needed for a tiered level that is compacted in place: other
/// jobs can run between its slices.
pub fn can_be_deferred(job: &CompactionJob, rules: &Rules, deepest: u32) -> bool {
    matches!(job.reason, Reason::Runs { level } if level == job.target_level)
        && rules.design.runs_allowed(job.target_level, deepest) == 1
}

/// Bytes on the levels that other jobs may use during `job`, without level 0. `None` if no job can
/// run between its slices: it is not long, it has no level above, or the level that it empties may
/// have one run only. Tables that arrive on such a level meanwhile would have to be rewritten once
/// more.
pub fn concurrent_level_bytes(version: &Version, rules: &Rules, job: &CompactionJob) -> Option<u64> {
    let top = top(job)?;
    let is_tiered = rules.design.runs_allowed(top, version.deepest_level()) > 1;
    (is_tiered && job.input_bytes(version) >= rules.long_bytes).then(|| filled_bytes(version, job, top))
}

fn filled_bytes(version: &Version, job: &CompactionJob, top: u32) -> u64 {
    let above = above(version, job, top);
    (1..=top).map(|level| above.level_bytes(level)).sum()
}

/// The next job to run between slices of `job`, whose completed share is `done`. `before_bytes` is
/// the result of [`concurrent_level_bytes`] when it began.
pub fn pick_concurrent(
    version: &Version,
    rules: &Rules,
    job: &CompactionJob,
    done: f64,
    before_bytes: u64,
) -> Option<CompactionJob> {
    let top = top(job)?;
    let capacities = rules.capacities(version);
    let filled_bytes = filled_bytes(version, job, top).saturating_sub(before_bytes);
    let room_bytes = capacities.level_bytes(top).saturating_sub(before_bytes);
    if filled_bytes as f64 > done * room_bytes as f64 {
        return None;
    }
    let above = above(version, job, top);
    let down = Down { version: &above, rules, capacities: &capacities, deepest: version.deepest_level() };
    let fits = |beside: &CompactionJob| beside.target_level <= top && beside.check(version).is_ok();
    // Level 0 may be compacted even if the level that the long compaction empties is over its
    // bounds.
    let l0 = || rules.is_l0_urgent(&above).then(|| down.l0());
    down.pick().filter(fits).or_else(|| l0().filter(fits))
}

#[cfg(test)]
mod tests {
    use shamba_model::{Design, MergePolicy};

    use super::*;

    fn rules() -> Rules {
        Rules { long_bytes: 150, ..Rules::manual(Design::new(MergePolicy::LazyLeveling, 4.0, 10, 0.0), 1) }
    }

    fn tree(text: &str) -> Version {
        text.parse().expect("notation")
    }

    fn picked(version: &Version) -> CompactionJob {
        let job = super::super::pick(version, &rules()).expect("a merge");
        job.check(version).expect("in order");
        job
    }

    const LAST: &str = "L3: r1@1[1:a..g 200, 2:g..p 200, 3:p..z 200]\n";

    #[test]
    fn what_arrives_on_a_full_level_waits_for_the_long_merge_of_it_there() {
        // Level 1 may hold 40 bytes and level 2 160: the arriving tables pass level 1 and do not
        // fit on level 2.
        let upper = "L0: r20@20[20:a..z 10]\nL1: r9@9[9:a..z 36]\n";
        let full = "L2: r6@6[6:a..z 50] r5@5[5:a..m 25, 8:m..z 25] r4@4[4:a..z 50]\n";
        let version = tree(&format!("{upper}{full}{LAST}"));
        assert_eq!(
            picked(&version).to_string(),
            "L0.r20[000020] + L1.r9[000009] -> L2, new run (level 0 reached its compaction trigger)"
        );
        let more = "L2: r21@21[21:a..z 46] r6@6[6:a..z 50] r5@5[5:a..m 25, 8:m..z 25] r4@4[4:a..z 50]\n";
        let version = tree(&format!("{more}{LAST}"));
        let long = "L2.r21[000021] + L2.r6[000006] + L2.r5[000005, 000008] + L2.r4[000004] \
                    + L3.r1[000001, 000002, 000003] -> L3.r1 (level 2 has too many runs)";
        assert_eq!(picked(&version).to_string(), long);
        // Nothing more fits on level 2: level 0 waits for the long compaction too, although it has
        // many runs.
        let upper = "L0: r34@34[34:a..z 10] r33@33[33:a..z 10] r32@32[32:a..z 10] r31@31[31:a..z 10]\n\
                     L1: r9@9[9:a..z 36]\n";
        let version = tree(&format!("{upper}{more}{LAST}"));
        assert_eq!(picked(&version).to_string(), long);
    }

    #[test]
    fn beside_a_long_merge_the_upper_levels_are_a_tree_of_their_own() {
        let long = picked(&tree(&format!(
            "L2: r7@7[7:a..z 40] r6@6[6:a..z 50] r5@5[5:a..z 50] r4@4[4:a..z 50]\n{LAST}"
        )));
        // Half of it is done; since then there were compactions onto level 2, and flushes.
        let left = "L2: r41@41[41:a..z 40] r7@7[7:m..z 20] r6@6[6:m..z 25] r5@5[5:m..z 25] r4@4[4:m..z 25]\n";
        let last = "L3: r1@1[40:a..m 300, 2:m..p 100, 3:p..z 200]\n";
        let version = tree(&format!("L0: r50@50[50:a..z 10]\nL1: r49@49[49:a..z 36]\n{left}{last}"));
        assert_eq!(filled_bytes(&version, &long, 2), 76);
        assert_eq!(concurrent_level_bytes(&version, &rules(), &long), Some(76));
        let leveled = Rules::manual(Design::new(MergePolicy::Leveling, 4.0, 10, 0.0), 1);
        assert_eq!(concurrent_level_bytes(&version, &Rules { long_bytes: 150, ..leveled }, &long), None);
        assert_eq!(
            concurrent_level_bytes(&version, &Rules { long_bytes: 10_000, ..rules() }, &long),
            None,
            "not long"
        );
        let beside = |done| pick_concurrent(&version, &rules(), &long, done, 0).map(|job| job.to_string());
        let wanted =
            "L0.r50[000050] + L1.r49[000049] -> L2, new run (level 0 reached its compaction trigger)";
        assert_eq!(beside(0.5).as_deref(), Some(wanted));
        // Level 2 is half full: no more jobs until the long compaction proceeds.
        assert_eq!(beside(0.4), None);
    }

    #[test]
    fn what_is_flushed_becomes_newer_runs_beside_a_merge_that_stays_on_its_level() {
        let design = Design::new(MergePolicy::Tiering, 4.0, 200, 0.0);
        let sizing = shamba_model::Sizing::Auto;
        let rules = Rules { sizing, long_bytes: 150, ..Rules::manual(design, 1) };
        let runs = "L2: r4@4[4:a..z 200] r3@3[3:a..z 200] r2@2[2:a..z 200] r1@1[1:a..z 900]\n";
        let long = super::super::pick(&tree(runs), &rules).expect("a merge");
        assert_eq!((long.target_level, concurrent_level_bytes(&tree(runs), &rules, &long)), (2, Some(0)));
        assert!(!can_be_deferred(&long, &rules, 2), "it has company");
        let leveled = Rules { design: Design::new(MergePolicy::Leveling, 4.0, 200, 0.0), ..rules };
        let in_place = super::super::pick(&tree(runs), &leveled).expect("a merge");
        assert!(
            can_be_deferred(&in_place, &leveled, 2)
                && concurrent_level_bytes(&tree(runs), &leveled, &in_place).is_none()
        );
        // Half of it is done.
        let left = "r4@4[4:m..z 100] r3@3[3:m..z 100] r2@2[2:m..z 100] r1@1[40:a..m 700, 1:m..z 450]\n";
        let version =
            tree(&format!("L0: r50@50[50:a..z 150] r49@49[49:a..z 150]\nL2: r48@48[48:a..z 100] {left}"));
        let beside = pick_concurrent(&version, &rules, &long, 0.5, 0).expect("a merge beside it");
        let wanted = "L0.r50[000050] + L0.r49[000049] + L2.r48[000048] -> L2.r48 (level 0 reached its compaction trigger)";
        assert_eq!(beside.to_string(), wanted);
        beside.check(&version).expect("in order");
    }

    #[test]
    fn nothing_is_beside_a_merge_of_the_inbox_or_one_that_stays_on_its_level() {
        let version = tree(&format!("L0: r20@20[20:a..z 10]\n{LAST}"));
        let mut job = picked(&version);
        assert_eq!(concurrent_level_bytes(&version, &rules(), &job), None);
        assert_eq!(pick_concurrent(&version, &rules(), &job, 1.0, 0), None);
        job.inputs.remove(0);
        assert_eq!(concurrent_level_bytes(&version, &rules(), &job), None);
    }
}
