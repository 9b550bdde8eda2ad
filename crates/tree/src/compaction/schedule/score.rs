//! Scores: how far a level is beyond its bounds, and so how soon it is compacted.
//!
//! ```text
//! raw score     max(bytes / capacity, runs / allowed runs)
//!               level 0: (runs / urgent runs)^2, at least 0.6
//!               infinite on a closed level that holds something
//! score of job  raw score of the level that it relieves / max(1, raw score of its target level)
//! ```
//!
//! Dividing by the target's score spreads a backlog over the levels: compacting onto a level that
//! is itself far beyond its bounds costs more, and makes its own compaction cost more. Under
//! writers that keep level 0 full, levels settle at bounds whose ratios are equal, so none grows
//! without limit and level 0 is not starved.
//!
//! The score of level 0 is steep. A compaction of it costs about as much for a few runs as for
//! many, since most of what it reads is the level below. With a score in proportion to its runs it
//! was compacted again as soon as it had a few, in small batches. So it comes late, and then before
//! nearly everything: writers slow down by its runs.
//!
//! Not here: whether a level is due at all ([`crate::compaction::policy`]).

use shamba_model::Capacities;

use crate::compaction::policy::Rules;
use crate::version::Version;

/// Power with which the score of level 0 grows with its runs. In the simulator 2 writes up to 5 %
/// more than compaction credit did, 1 and 3 up to 8 % (decision 25).
const L0_EXPONENT: i32 = 2;

/// Minimum score of a level 0 that is due: before compactions that only pay, after levels at their
/// bounds.
const L0_SCORE_MIN: f64 = 0.6;

/// Raw score of a level. More than 1 is beyond its bounds.
pub fn raw_score(version: &Version, rules: &Rules, capacities: &Capacities, level: u32) -> f64 {
    let runs = version.level(level).len() as f64;
    if runs == 0.0 {
        return 0.0;
    }
    if level == 0 {
        debug_assert!(rules.l0_urgent_runs() > 0, "level 0 is urgent without a run");
        return (runs / f64::from(rules.l0_urgent_runs())).powi(L0_EXPONENT).max(L0_SCORE_MIN);
    }
    if capacities.is_closed(level) {
        return f64::INFINITY;
    }
    let allowed = rules.design.runs_allowed(level, version.deepest_level()).max(1);
    let bytes = version.level_bytes(level) as f64 / capacities.level_bytes(level) as f64;
    debug_assert!(bytes >= 0.0, "level {level} has {bytes} times its capacity");
    bytes.max(runs / f64::from(allowed))
}

/// Score of a job that relieves a level of the score `from` and whose target level has the score
/// `to`.
pub fn job_score(from: f64, to: f64) -> f64 {
    // A closed level moves first, whatever its target holds.
    debug_assert!(from >= 0.0 && to >= 0.0, "scores of levels are not negative: from {from} to {to}");
    if from.is_infinite() { from } else { from / to.max(1.0) }
}
