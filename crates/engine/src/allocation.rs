//! Filter bits of the tables that the engine is about to write: the rule of a keyspace under its
//! design.
//!
//! The arithmetic is [`shamba_tree::allocation`]; here the design in force and the observed lookups
//! become its [`Rule`].

use std::sync::Arc;

use shamba_filter::FilterLayout;

use crate::catalog::KeyspaceCore;
use crate::core::Core;
use crate::redesign::TreeDesign;
use shamba_tree::allocation::{Budget, JobBits, Rule};
use shamba_tree::compaction::policy::CompactionJob;
use shamba_tree::version::Version;
use shamba_tree::version::live_entries;

impl Core {
    /// Allocation rule of a keyspace under the current design.
    pub(crate) fn allocation_rule(&self, keyspace: &KeyspaceCore) -> Rule {
        self.allocation_rule_under(keyspace, &self.settings.live.get().tree_design())
    }

    /// Allocation rule of a keyspace under the design `target`.
    pub(crate) fn allocation_rule_under(&self, keyspace: &KeyspaceCore, target: &TreeDesign) -> Rule {
        let budget = match target.filter_memory_bytes {
            None => Budget::BitsPerKey(target.design.bits_per_key),
            Some(bytes) => Budget::Bits(self.part_of_keyspace(keyspace, bytes.saturating_mul(8))),
        };
        Rule {
            allocation: target.allocation,
            budget,
            layout: self.filter_layout(),
            window: keyspace.statistics.window(self.env.clock.now_us()),
        }
    }

    /// Filter layout of new tables.
    pub(crate) fn filter_layout(&self) -> FilterLayout {
        let live = self.settings.live.get();
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
    pub(crate) fn flush_bits(&self, keyspace: &KeyspaceCore, expected_entries: u64) -> JobBits {
        JobBits::of_flush(self.allocation_rule(keyspace), &keyspace.load().version, expected_entries)
    }

    /// Filter bits of the outputs of a compaction.
    pub(crate) fn compaction_bits(
        &self,
        keyspace: &KeyspaceCore,
        version: &Version,
        job: &CompactionJob,
    ) -> JobBits {
        JobBits::of_compaction(self.allocation_rule(keyspace), version, job)
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
