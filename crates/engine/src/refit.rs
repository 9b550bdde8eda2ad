//! Refits: tables whose filters have other bits than their place deserves are written again, where they are.
//!
//! A table gets its bits when it is built. It is out of place when it was moved down as it is, when the tree around it
//! grew, when lookups came to other keys than before ([`shamba_model::allocation::Allocation::Workload`]), or when the design was
//! changed. Mostly the next merge mends that; for what is not merged again there are refits:
//!
//! - [`Core::refit_now`], because somebody asks: all misfits of all keyspaces.
//! - By itself, while nothing is written and nothing is to be merged: those for which it pays within
//!   [`PAYS_WITHIN_S`], judged like all memory: searches saved by better filters and bytes that others can use.
//!
//! Which tables it is to be is said once, before it begins; so it ends, whatever the tables' successors look like.
//!
//! Not here: the jobs ([`shamba_tree::compaction::policy::pick_refit`]), and who carries them out.

use std::collections::BTreeSet;
use std::sync::Arc;

use shamba_filter::measured;
use shamba_table::TableId;

use crate::core::{BackgroundState, Core, KeyspaceCore, Refit, Work};
use crate::error::Result;
use shamba_env::lock;
use shamba_key::KeyspaceId;
use shamba_tree::allocation::{self, is_misfit};

/// A rewrite must have paid for itself after so many seconds of the lookups that there are now.
const PAYS_WITHIN_S: f64 = 600.0;
/// What writing a byte again costs at least, reading and checking it included.
const REWRITE_NS_PER_BYTE: f64 = 20.0;

/// A table with other bits than it should have.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Misfit {
    /// What is written again.
    bytes: u64,
    entries: u64,
    written_bits_per_key: f64,
    wanted_bits_per_key: f64,
    /// Probes for keys that it does not have.
    empty_probes_per_second: f64,
}

/// What things are worth.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Worth {
    /// A search that need not be.
    search_ns: f64,
    /// A byte of memory, in nanoseconds per second.
    byte_ns_per_second: f64,
    /// Writing a byte again, in nanoseconds.
    rewrite_ns_per_byte: f64,
}

/// Whether writing a table again, with a filter that denies absent keys at the rates `fpr` of bits per key, is soon paid for
/// by the searches that it saves and the memory that it frees.
fn pays(misfit: Misfit, worth: Worth, fpr: impl Fn(f64) -> f64) -> bool {
    let Misfit { written_bits_per_key: written, wanted_bits_per_key: wanted, .. } = misfit;
    let searches = misfit.empty_probes_per_second * (fpr(written) - fpr(wanted));
    let freed_bytes = (written - wanted) * misfit.entries as f64 / 8.0;
    let saved_ns_per_second = searches * worth.search_ns + freed_bytes * worth.byte_ns_per_second;
    saved_ns_per_second * PAYS_WITHIN_S > misfit.bytes as f64 * worth.rewrite_ns_per_byte
}

impl Core {
    /// Flushes nothing, moves nothing: writes all tables again whose filters have other bits than they should.
    pub(crate) fn refit_now(&self) -> Result<()> {
        self.check_writable()?;
        let wanted = self.refits(|_| true);
        let numbers: Vec<u64> = {
            let mut state = lock(&self.background.state);
            self.ask_refits(&mut state, wanted, true)
        };
        let done = self.wait_until(&[Work::Merge], |state| {
            !state.merging && !state.refits.iter().any(|refit| numbers.contains(&refit.number))
        });
        if done.is_err() {
            lock(&self.background.state).refits.retain(|refit| !numbers.contains(&refit.number));
        }
        done
    }

    /// Nothing was written for a while: asks for the refits that pay.
    pub(crate) fn want_refits(&self) {
        if !self.settings.auto_compaction || self.read_only || !lock(&self.background.state).refits.is_empty()
        {
            return;
        }
        let measured_ns = self.workload().move_ns_per_byte().unwrap_or_default();
        let worth = Worth {
            search_ns: self.search_ns(),
            byte_ns_per_second: self.plan_prices().gain_per_byte,
            rewrite_ns_per_byte: measured_ns.max(REWRITE_NS_PER_BYTE),
        };
        let layout = self.filter_layout();
        let wanted = self.refits(|misfit| pays(misfit, worth, |bits| measured::fpr(layout, bits)));
        if wanted.is_empty() {
            return;
        }
        let mut state = lock(&self.background.state);
        self.ask_refits(&mut state, wanted, false);
        drop(state);
        self.background.wake.notify_all();
    }

    /// Appends refits; their numbers. Keyspaces are looked up under the lock under which a drop takes its own from the list:
    /// none that is gone gets onto it, where nobody would ever take it off.
    fn ask_refits(
        &self,
        state: &mut BackgroundState,
        wanted: Vec<(KeyspaceId, BTreeSet<TableId>)>,
        is_awaited: bool,
    ) -> Vec<u64> {
        let keyspaces = self.keyspaces.load();
        let mut numbers = Vec::new();
        for (keyspace, tables) in wanted {
            if keyspaces.contains_key(&keyspace) {
                state.refits_numbered += 1;
                let number = state.refits_numbered;
                state.refits.push_back(Refit { number, keyspace, tables, is_awaited });
                numbers.push(number);
            }
        }
        numbers
    }

    /// The misfits of each keyspace that has any that are `worthy`.
    fn refits(&self, worthy: impl Fn(Misfit) -> bool) -> Vec<(KeyspaceId, BTreeSet<TableId>)> {
        let misfits = |keyspace: &Arc<KeyspaceCore>| {
            let rule = self.allocation_rule(keyspace);
            let version = Arc::clone(&keyspace.load().version);
            let wanted = allocation::wanted(rule, &version);
            let tables = version.tables().zip(wanted).filter_map(|((_, _, table), wanted)| {
                let misfit = Misfit {
                    bytes: table.live_bytes,
                    entries: table.meta.entries,
                    written_bits_per_key: table.meta.bits_per_key,
                    wanted_bits_per_key: wanted,
                    empty_probes_per_second: rule.window.per_second(table.meta.statistics.probes().empty),
                };
                let is_wanted = is_misfit(table.meta.bits_per_key, wanted) && worthy(misfit);
                is_wanted.then_some(table.meta.id)
            });
            (keyspace.id, tables.collect::<BTreeSet<_>>())
        };
        let all = self.keyspaces.load().values().map(misfits).collect::<Vec<_>>();
        all.into_iter().filter(|(_, tables)| !tables.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests;
