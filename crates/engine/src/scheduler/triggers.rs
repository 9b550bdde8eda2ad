//! Inputs of the compactions that no shape rule asks for: the bound on the age of tombstones,
//! snapshots, seeks, and the prices of runs and tombstones to readers.
//!
//! The choice itself is in [`shamba_tree::compaction::schedule::triggered`].

use shamba_env::Clock;
use shamba_tree::compaction::schedule::{TriggerPrices, Triggers};

use crate::options::settings::Settings;
use crate::reads::Reads;

/// Estimated cost of one more run to a seek, in nanoseconds: searches in an index and a block that
/// are in memory.
const RUN_NS: f64 = 500.0;
/// Estimated cost of passing a tombstone in a scan, in nanoseconds.
const TOMBSTONE_NS: f64 = 200.0;
/// Minimum cost of compacting a byte, in nanoseconds, as for filter rewrites.
const BYTE_NS: f64 = 20.0;
/// Time in seconds within which a compaction of level 0 must pay for itself. Shorter than for
/// filter rewrites: in a minute the tables of a busy tree have been compacted anyway.
const HORIZON_S: f64 = 60.0;

/// The triggers now, without the seeks per second, which each keyspace has its own of.
/// `measured_byte_ns` is the measured cost of compacting a byte, 0 if none was measured.
pub(super) fn triggers(
    settings: &Settings,
    reads: &Reads,
    clock: &dyn Clock,
    measured_byte_ns: f64,
) -> Triggers {
    Triggers {
        now_ms: clock.unix_ms(),
        prices: Some(TriggerPrices {
            run_ns: RUN_NS,
            tombstone_ns: TOMBSTONE_NS,
            byte_ns: measured_byte_ns.max(BYTE_NS),
            horizon_s: HORIZON_S,
        }),
        seeks_per_second: 0.0,
        tombstone_age_max_ms: settings.tombstone_age_max_ms(),
        oldest_snapshot: reads.snapshots().stripes().first().copied(),
        readers: reads.readers(),
    }
}
