//! Inputs of the compactions that no shape rule asks for: the bound on the age of tombstones,
//! snapshots, and the price of passing tombstones.
//!
//! The choice itself is in [`shamba_tree::compaction::schedule::triggered`].

use shamba_env::Clock;
use shamba_tree::compaction::schedule::{Prices, Triggers};

use crate::options::settings::Settings;
use crate::reads::Reads;

/// Prices of tombstones and compaction. Assumed, not measured on the machine at hand: a scan passes
/// some 5 million tombstones in a second; a compaction thread reads, merges, writes and verifies
/// some 50 MB. An error of a factor f makes the two costs together at most 1 + f times the least.
const PRICES: Prices = Prices { run_ns: 500.0, tombstone_ns: 200.0, byte_ns: 20.0, horizon_s: 60.0 };

/// The triggers now, for every keyspace.
pub(super) fn triggers(settings: &Settings, reads: &Reads, clock: &dyn Clock) -> Triggers {
    Triggers {
        now_ms: clock.unix_ms(),
        prices: Some(PRICES),
        // Level 0 is drained when writes pause (`next`), not by the seeks that pay for it.
        seeks_per_second: 0.0,
        tombstone_age_max_ms: settings.tombstone_age_max_ms(),
        oldest_snapshot: reads.snapshots().stripes().first().copied(),
    }
}
