//! Filters of the tables that the engine is about to write: their layout and bits.
//!
//! [`FilterBits`] derives the allocation rule of a keyspace from the design in force, the sizes of
//! the trees and the observed lookups. It has no state of its own. The arithmetic is in
//! [`shamba_tree::allocation`].
//!
//! With the layout `auto`, where filters are modular because memory is short, the tables of a last
//! run get ribbon filters while that saves more than it costs ([`LastRunFilters`]): they are most
//! of the filter memory, and exist longest. They have as many bits as modular ones; their lower
//! rate lets the plan of residency leave out modules, which frees the memory. A tree may have
//! filters of several layouts, since each filter states its own.

use std::sync::Arc;

use shamba_env::{Clock, Env};
use shamba_filter::FilterLayout;
use shamba_model::memory::LastRunFilters;
use shamba_tree::allocation::{Budget, JobBits, Rule};
use shamba_tree::compaction::policy::CompactionJob;
use shamba_tree::version::{Version, live_entries};

use crate::catalog::{Catalog, KeyspaceCore};
use crate::memory::MemoryManager;
use crate::options::settings::Settings;
use crate::tree_design::TreeDesign;

/// Computes the filter bits of new tables.
pub(crate) struct FilterBits {
    clock: Arc<dyn Clock>,
    settings: Arc<Settings>,
    memory: Arc<MemoryManager>,
    catalog: Arc<Catalog>,
}

impl FilterBits {
    /// For the trees in `catalog`.
    pub fn new(
        env: &Env,
        settings: Arc<Settings>,
        memory: Arc<MemoryManager>,
        catalog: Arc<Catalog>,
    ) -> Self {
        Self { clock: Arc::clone(&env.clock), settings, memory, catalog }
    }

    /// Allocation rule of a keyspace under the current design.
    pub fn rule(&self, keyspace: &KeyspaceCore) -> Rule {
        self.rule_under(keyspace, &self.settings.live.get().tree)
    }

    /// Allocation rule of a keyspace under the design `target`.
    pub fn rule_under(&self, keyspace: &KeyspaceCore, target: &TreeDesign) -> Rule {
        let budget = match (keyspace.overrides().bits_per_key, target.filter_memory_bytes) {
            (Some(bits), _) => Budget::BitsPerKey(bits),
            (None, None) => Budget::BitsPerKey(target.design.bits_per_key),
            (None, Some(bytes)) => Budget::Bits(self.part_of_keyspace(keyspace, bytes.saturating_mul(8))),
        };
        Rule {
            allocation: target.allocation,
            budget,
            layout: self.layout(),
            window: keyspace.statistics().window(self.clock.now_us()),
        }
    }

    /// Filter layout of new tables, but those of a last run that get ribbon filters.
    pub fn layout(&self) -> FilterLayout {
        let live = self.settings.live.get().tree;
        let bytes = live.filter_memory_bytes.unwrap_or_else(|| {
            let bits = |keyspace: &Arc<KeyspaceCore>| -> f64 {
                let entries: u64 =
                    keyspace.load().version.tables().map(|(_, _, table)| table.meta.entries).sum();
                entries as f64 * keyspace.overrides().bits_per_key.unwrap_or(live.design.bits_per_key)
            };
            (self.catalog.keyspaces().values().map(bits).sum::<f64>() / 8.0) as u64
        });
        self.settings.filter_layout_for(bytes)
    }

    /// Filter bits of the tables of a flush or of any other arrival in level 0.
    pub fn of_flush(&self, keyspace: &KeyspaceCore, expected_entries: u64) -> JobBits {
        JobBits::of_flush(self.rule(keyspace), &keyspace.load().version, expected_entries)
    }

    /// Filter bits of the outputs of a compaction of `version`.
    pub fn of_compaction(&self, keyspace: &KeyspaceCore, version: &Version, job: &CompactionJob) -> JobBits {
        let rule = self.rule(keyspace);
        let bits = JobBits::of_compaction(rule, version, job);
        let is_chosen_here = self.settings.filter_layout.is_none()
            && matches!(rule.layout, FilterLayout::Modular(_))
            && bits.is_into_last_run();
        if is_chosen_here && self.last_run_filters(rule, version).should_be_ribbon() {
            return bits.in_layout(FilterLayout::Ribbon(rule.layout.modules()));
        }
        bits
    }

    /// The filters of the last run of `version`, taken for all of its keys.
    fn last_run_filters(&self, rule: Rule, version: &Version) -> LastRunFilters {
        let keys: u64 = version.tables().map(|(_, _, table)| live_entries(table)).sum();
        let bytes_of = |keyspace: &Arc<KeyspaceCore>| -> u64 {
            keyspace.load().version.tables().map(|(_, _, table)| table.live_bytes).sum()
        };
        // Of all keyspaces, as the bytes that are written.
        let bytes: u64 = self.catalog.keyspaces().values().map(bytes_of).sum();
        let bits_per_key = match rule.budget {
            Budget::BitsPerKey(bits) => bits,
            Budget::Bits(bits) => bits as f64 / keys.max(1) as f64,
        };
        LastRunFilters {
            keys: keys as f64,
            bits_per_key,
            lookups_per_second: rule.window.lookups_per_second,
            lifetime_s: bytes as f64 / self.memory.built_bytes_per_second(),
            byte_ns_per_second: self.memory.gain_per_byte(),
        }
    }

    /// Share of one keyspace in `whole`, by its entries in tables. Keyspaces with bits of their own
    /// have none.
    fn part_of_keyspace(&self, keyspace: &KeyspaceCore, whole: u64) -> u64 {
        let entries = |keyspace: &KeyspaceCore| -> u64 {
            keyspace.load().version.tables().map(|(_, _, table)| live_entries(table)).sum()
        };
        let keyspaces = self.catalog.keyspaces();
        let sharing = keyspaces.values().filter(|of| of.overrides().bits_per_key.is_none());
        let all: u64 = sharing.map(|keyspace| entries(keyspace)).sum();
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
    use shamba_model::memory::PlanValue;
    use shamba_model::memory::constants::WINDOW_US;
    use shamba_model::{Design, MergePolicy};
    use shamba_tree::compaction::policy::{Rules, pick};

    #[test]
    fn the_budget_of_a_rule_is_bits_per_key_or_memory_by_the_design() {
        let parts = Parts::new(Settings::default());
        let (settings, memory) = (Arc::clone(&parts.settings), Arc::clone(&parts.memory));
        let bits = FilterBits::new(&parts.env, settings, memory, Arc::clone(&parts.catalog));
        let keyspace = Arc::clone(parts.catalog.keyspaces().values().next().expect("the default one"));
        let now = parts.settings.live.get().tree;
        assert_eq!(bits.rule(&keyspace).budget, Budget::BitsPerKey(now.design.bits_per_key));
        // All of the memory, where there are no entries by which to share it.
        let target = TreeDesign { filter_memory_bytes: Some(1_000), allocation: Allocation::Uniform, ..now };
        let rule = bits.rule_under(&keyspace, &target);
        assert_eq!((rule.budget, rule.allocation), (Budget::Bits(8_000), Allocation::Uniform));
        assert_eq!(rule.layout, parts.settings.filter_layout_for(0), "the layout is of the design in force");
    }

    /// The layouts that a compaction of level 0 into a last run, and one above another run, give
    /// their tables, after windows in which a byte more saved `byte_ns_per_second`.
    fn layouts(settings: Settings, filter_memory_bytes: u64, byte_ns_per_second: f64) -> [FilterLayout; 2] {
        settings.live.change(|live| live.tree.filter_memory_bytes = Some(filter_memory_bytes));
        let parts = Parts::new(settings);
        let (settings, memory) = (Arc::clone(&parts.settings), Arc::clone(&parts.memory));
        let bits = FilterBits::new(&parts.env, settings, Arc::clone(&memory), Arc::clone(&parts.catalog));
        let plan = PlanValue { gain_per_byte: byte_ns_per_second, ..PlanValue::default() };
        for window in 1..=2 {
            memory.end_window(window * WINDOW_US, 1_000.0, &plan);
        }
        let keyspace = Arc::clone(parts.catalog.keyspaces().values().next().expect("the default one"));
        ["", "L4: r1@1[1:a..z 90 n=900000]\n"].map(|older| {
            let version = format!("L0: r2@2[2:a..z 40 n=400000]\n{older}");
            let version: Version = version.parse().expect("notation");
            let design = Design::new(MergePolicy::Leveling, 4.0, 10, 0.0);
            let job = pick(&version, &Rules::manual(design, 1)).expect("a job");
            bits.of_compaction(&keyspace, &version, &job).layout()
        })
    }

    #[test]
    fn tables_of_the_last_run_get_ribbon_filters_while_memory_is_worth_it() {
        const SHORT: u64 = 100 << 20;
        let modular = Settings::default().filter_layout_for(SHORT);
        let [last, above] = layouts(Settings::default(), SHORT, 1.0);
        assert_eq!(last, FilterLayout::Ribbon(modular.modules()));
        assert_eq!(above, modular, "it is rewritten soon");
        assert_eq!(layouts(Settings::default(), SHORT, 0.0), [modular; 2]);
        // All filters stay in memory, which nothing would free.
        assert_eq!(layouts(Settings::default(), 1 << 20, 1.0), [FilterLayout::Blocked; 2]);
        // A family that was chosen stays.
        let chosen = Settings { filter_layout: Some(modular), ..Settings::default() };
        assert_eq!(layouts(chosen, SHORT, 1.0), [modular; 2]);
    }
}
