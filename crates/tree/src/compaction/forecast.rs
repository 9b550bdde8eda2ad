//! Forecast of the bytes that compactions write until a tree has the shape that its rules ask for.
//! Pure.
//!
//! The forecast asks the policy itself for job after job and projects each one
//! (`compaction::projection`). Versions that a compaction would drop are unknown and count as
//! written. So the figure is an upper bound, exact where no key is in two runs. No flushes are
//! simulated. Trivial moves out of level 0 count as 0 bytes, even where memory limits would turn
//! them into rewrites.
//!
//! Not here: entries, and so the results of lookups ([`crate::simulate`]).

use super::policy::{Rules, pick, pick_full};
use super::projection::Projection;
use crate::version::Version;

/// Maximum number of simulated jobs; a tree that needs more gets an incomplete forecast.
const JOBS_MAX: usize = 4_000;

/// Result of a forecast.
#[derive(Clone, Debug)]
pub struct Forecast {
    /// Bytes that compactions will write.
    pub written_bytes: u64,
    /// Bytes that the tree holds now.
    pub tree_bytes: u64,
    /// The tree after the last simulated job.
    pub tree: Version,
    /// Tables in `tree` with larger numbers than this do not exist yet.
    pub last_id: u64,
    /// Whether the simulation reached a tree without due compactions.
    pub is_whole: bool,
}

/// Forecasts the compactions until the policy has no job for `version`. Output tables are cut at
/// about `table_bytes`.
pub fn forecast(version: &Version, rules: &Rules, table_bytes: u64) -> Forecast {
    // Compactions of small tables write little, and the simulation does not know where their
    // outputs would be cut.
    let rules = &Rules { small_bytes: 0, ..*rules };
    let mut projection = Projection::of(version);
    let last_id = projection.last_id;
    let mut written_bytes = 0u64;
    let mut is_whole = false;
    for _ in 0..JOBS_MAX {
        let Some(job) = pick(&projection.version, rules) else {
            is_whole = true;
            break;
        };
        match projection.carry_out(&job, table_bytes) {
            Ok(bytes) => written_bytes = written_bytes.saturating_add(bytes),
            // No job of the policy is refused. If one were, the bytes so far stand, marked as
            // incomplete.
            Err(_) => break,
        }
    }
    Forecast { written_bytes, tree_bytes: version.bytes(), tree: projection.version, last_id, is_whole }
}

/// Forecasts a full compaction of `version` into one run.
pub fn forecast_full(version: &Version, rules: &Rules, table_bytes: u64) -> Forecast {
    let mut projection = Projection::of(version);
    let last_id = projection.last_id;
    let done = match pick_full(version, &Rules { small_bytes: 0, ..*rules }) {
        Some(job) => projection.carry_out(&job, table_bytes),
        None => Ok(0),
    };
    let (written_bytes, is_whole) = (done.as_ref().copied().unwrap_or(0), done.is_ok());
    debug_assert!(
        !is_whole || projection.version.run_count() <= 1,
        "a full compaction leaves {} runs",
        projection.version.run_count()
    );
    Forecast { written_bytes, tree_bytes: version.bytes(), tree: projection.version, last_id, is_whole }
}
