//! Filter bits of the tables that the engine is about to write.
//!
//! [`FilterBits`] derives the allocation rule of a keyspace from the design in force, the sizes of
//! the trees and the observed lookups. It has no state of its own. The arithmetic is in
//! [`shamba_tree::allocation`].

use std::sync::Arc;

use shamba_env::{Clock, Env};
use shamba_filter::FilterLayout;
use shamba_tree::allocation::{Budget, JobBits, Rule};
use shamba_tree::compaction::policy::CompactionJob;
use shamba_tree::version::{Version, live_entries};

use crate::catalog::{Catalog, KeyspaceCore};
use crate::options::settings::Settings;
use crate::tree_design::TreeDesign;

/// Computes the filter bits of new tables.
pub(crate) struct FilterBits {
    clock: Arc<dyn Clock>,
    settings: Arc<Settings>,
    catalog: Arc<Catalog>,
}

impl FilterBits {
    /// For the trees in `catalog`.
    pub fn new(env: &Env, settings: Arc<Settings>, catalog: Arc<Catalog>) -> Self {
        Self { clock: Arc::clone(&env.clock), settings, catalog }
    }

    /// Allocation rule of a keyspace under the current design.
    pub fn rule(&self, keyspace: &KeyspaceCore) -> Rule {
        self.rule_under(keyspace, &self.settings.live.get().tree)
    }

    /// Allocation rule of a keyspace under the design `target`.
    pub fn rule_under(&self, keyspace: &KeyspaceCore, target: &TreeDesign) -> Rule {
        let budget = match target.filter_memory_bytes {
            None => Budget::BitsPerKey(target.design.bits_per_key),
            Some(bytes) => Budget::Bits(self.part_of_keyspace(keyspace, bytes.saturating_mul(8))),
        };
        Rule {
            allocation: target.allocation,
            budget,
            layout: self.layout(),
            window: keyspace.statistics.window(self.clock.now_us()),
        }
    }

    /// Filter layout of new tables.
    pub fn layout(&self) -> FilterLayout {
        let live = self.settings.live.get().tree;
        let bytes = live.filter_memory_bytes.unwrap_or_else(|| {
            let entries = |keyspace: &Arc<KeyspaceCore>| -> u64 {
                keyspace.load().version.tables().map(|(_, _, table)| table.meta.entries).sum()
            };
            let entries: u64 = self.catalog.keyspaces().values().map(entries).sum();
            (entries as f64 * live.design.bits_per_key / 8.0) as u64
        });
        self.settings.filter_layout_for(bytes)
    }

    /// Filter bits of the tables of a flush or of any other arrival in level 0.
    pub fn of_flush(&self, keyspace: &KeyspaceCore, expected_entries: u64) -> JobBits {
        JobBits::of_flush(self.rule(keyspace), &keyspace.load().version, expected_entries)
    }

    /// Filter bits of the outputs of a compaction of `version`.
    pub fn of_compaction(&self, keyspace: &KeyspaceCore, version: &Version, job: &CompactionJob) -> JobBits {
        JobBits::of_compaction(self.rule(keyspace), version, job)
    }

    /// Share of one keyspace in `whole`, by its entries in tables.
    fn part_of_keyspace(&self, keyspace: &KeyspaceCore, whole: u64) -> u64 {
        let entries = |keyspace: &KeyspaceCore| -> u64 {
            keyspace.load().version.tables().map(|(_, _, table)| live_entries(table)).sum()
        };
        let all: u64 = self.catalog.keyspaces().values().map(|keyspace| entries(keyspace)).sum();
        if all == 0 {
            return whole;
        }
        let part = u128::from(whole) * u128::from(entries(keyspace)) / u128::from(all);
        u64::try_from(part).unwrap_or(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Parts;
    use shamba_model::allocation::Allocation;

    #[test]
    fn the_budget_of_a_rule_is_bits_per_key_or_memory_by_the_design() {
        let parts = Parts::new(Settings::default());
        let bits = FilterBits::new(&parts.env, Arc::clone(&parts.settings), Arc::clone(&parts.catalog));
        let keyspace = Arc::clone(parts.catalog.keyspaces().values().next().expect("the default one"));
        let now = parts.settings.live.get().tree;
        assert_eq!(bits.rule(&keyspace).budget, Budget::BitsPerKey(now.design.bits_per_key));
        // All of the memory, where there are no entries by which to share it.
        let target = TreeDesign { filter_memory_bytes: Some(1_000), allocation: Allocation::Uniform, ..now };
        let rule = bits.rule_under(&keyspace, &target);
        assert_eq!((rule.budget, rule.allocation), (Budget::Bits(8_000), Allocation::Uniform));
        assert_eq!(rule.layout, parts.settings.filter_layout_for(0), "the layout is of the design in force");
    }
}
