//! Filter rewrites: tables whose filters have a stale number of bits are rewritten in place.
//!
//! A table gets its bits when it is built. They become stale when the table is moved down without a
//! rewrite, when the tree around it grows, when lookups move to other keys
//! ([`shamba_model::allocation::Allocation::Workload`]), or when the design changes. Mostly the
//! next compaction corrects that. For tables that are not compacted again there are filter
//! rewrites:
//!
//! - [`super::Scheduler::rewrite_filters_now`], by request: all stale filters of all keyspaces.
//! - Automatically, while nothing is written and no compaction is due: those that pay within
//!   [`PAYS_WITHIN_S`]. As for all memory, the benefit is the searches saved by better filters and
//!   the bytes freed for others.
//!
//! The tables are chosen once, before the rewrite begins. So it terminates, whatever filters the
//! new tables get.
//!
//! Not here: the jobs ([`shamba_tree::compaction::policy::pick_filter_rewrite`]), and carrying them
//! out.

use std::collections::BTreeSet;
use std::sync::Arc;

use shamba_table::TableId;

use crate::catalog::{Catalog, KeyspaceCore};
use crate::filter_bits::FilterBits;
use shamba_key::KeyspaceId;
use shamba_tree::allocation::{self, is_stale};

/// Time in seconds within which a rewrite must pay for itself at the current lookup rate.
const PAYS_WITHIN_S: f64 = 600.0;
/// Minimum cost of rewriting a byte, including reading and checking it.
const REWRITE_NS_PER_BYTE: f64 = 20.0;

/// A table with a stale filter.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct StaleFilter {
    /// Bytes to rewrite.
    bytes: u64,
    entries: u64,
    written_bits_per_key: f64,
    wanted_bits_per_key: f64,
    /// Probes for keys that it does not contain.
    empty_probes_per_second: f64,
}

/// Values and costs that decide on a rewrite.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Worth {
    /// Cost of a search.
    pub search_ns: f64,
    /// Value of a byte of memory, in nanoseconds per second.
    pub byte_ns_per_second: f64,
    /// Measured cost of rewriting a byte, in nanoseconds; 0 if none was measured.
    pub rewrite_ns_per_byte: f64,
}

/// Whether rewriting a table pays within [`PAYS_WITHIN_S`] by the searches that it saves and the
/// memory that it frees. `fpr` is the false-positive rate by bits per key.
pub(super) fn pays(misfit: StaleFilter, worth: Worth, fpr: impl Fn(f64) -> f64) -> bool {
    let StaleFilter { written_bits_per_key: written, wanted_bits_per_key: wanted, .. } = misfit;
    debug_assert!(wanted >= 0.0 && wanted.is_finite(), "a filter should have {wanted} bits per key");
    let searches = misfit.empty_probes_per_second * (fpr(written) - fpr(wanted));
    let freed_bytes = (written - wanted) * misfit.entries as f64 / 8.0;
    let saved_ns_per_second = searches * worth.search_ns + freed_bytes * worth.byte_ns_per_second;
    saved_ns_per_second * PAYS_WITHIN_S
        > misfit.bytes as f64 * worth.rewrite_ns_per_byte.max(REWRITE_NS_PER_BYTE)
}

/// The stale tables of each keyspace for which `worthy` holds; keyspaces without any are left
/// out.
pub(super) fn stale_filters(
    catalog: &Catalog,
    filter_bits: &FilterBits,
    worthy: impl Fn(StaleFilter) -> bool,
) -> Vec<(KeyspaceId, BTreeSet<TableId>)> {
    let misfits = |keyspace: &Arc<KeyspaceCore>| {
        let rule = filter_bits.rule(keyspace);
        let version = Arc::clone(&keyspace.load().version);
        let wanted = allocation::wanted(rule, &version);
        assert_eq!(wanted.len(), version.tables().count(), "a table has no share of the filter bits");
        let tables = version.tables().zip(wanted).filter_map(|((_, _, table), wanted)| {
            let misfit = StaleFilter {
                bytes: table.live_bytes,
                entries: table.meta.entries,
                written_bits_per_key: table.meta.bits_per_key,
                wanted_bits_per_key: wanted,
                empty_probes_per_second: rule.window.per_second(table.meta.statistics.probes().empty),
            };
            let is_wanted = is_stale(table.meta.bits_per_key, wanted) && worthy(misfit);
            is_wanted.then_some(table.meta.id)
        });
        (keyspace.id, tables.collect::<BTreeSet<_>>())
    };
    let all = catalog.keyspaces().values().map(misfits).collect::<Vec<_>>();
    all.into_iter().filter(|(_, tables)| !tables.is_empty()).collect()
}

#[cfg(test)]
mod tests;
