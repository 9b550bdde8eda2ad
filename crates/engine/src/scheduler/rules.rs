//! The rules of the compaction policy, from the settings and the design in force.

use shamba_model::Design;
use shamba_tree::compaction::policy::{Rules, ValueRules};

use crate::catalog::KeyspaceCore;
use crate::options::settings::Settings;

/// A compaction of this many full tables is long: writers would have to wait for it.
const LONG_COMPACTION_TABLES: u64 = 32;
/// Tables below this size are small. At this size the 2 to 3 KiB of memory of an open table are
/// half a percent of its data, less than its filter. It is twice the longest log tail that an open
/// does not flush (`recovery::rebuild`), so a session of few writes leaves a small table.
const SMALL_TABLE_BYTES: u64 = 512 << 10;
/// Tables of at least this part (1/4) of a full one are never small: a compaction may leave half a
/// table.
const SMALL_TABLE_PART: u64 = 4;

/// The policy's rules now. With `is_draining`, even a single run in level 0 is compacted.
pub(super) fn rules(settings: &Settings, is_draining: bool) -> Rules {
    rules_of(settings, settings.live.get().tree.design, is_draining)
}

/// The rules of the shape of a keyspace's tree in a database with these rules.
pub(super) fn rules_in(settings: &Settings, keyspace: &KeyspaceCore, rules: &Rules) -> Rules {
    let overrides = keyspace.overrides();
    // Otherwise all tables of a keyspace with small ones would be rewritten for ever.
    let table_bytes = overrides.table_bytes(settings);
    let design = overrides.design(rules.design);
    let values = keyspace.value_rules(settings);
    Rules {
        design,
        long_bytes: long_bytes(table_bytes),
        small_bytes: small_bytes(table_bytes).min(keyspace.small_bytes_max()),
        values: values.map(|values| ValueRules { has_one_last_run: design.last_runs == 1, ..values }),
        ..*rules
    }
}

fn long_bytes(table_bytes: u64) -> u64 {
    table_bytes.saturating_mul(LONG_COMPACTION_TABLES)
}

fn small_bytes(table_bytes: u64) -> u64 {
    (table_bytes / SMALL_TABLE_PART).min(SMALL_TABLE_BYTES)
}

/// The size below which tables are small from now on, after a compaction of `inputs` small ones has
/// left `tables` of `bytes` in total; `None`: as before.
///
/// Memory may end a table long before it is full. If that left more than half of the tables, as
/// many would be left again and again. Each such limit is at most half of the one before, as the
/// inputs were below that, so these compactions end.
pub(super) fn small_bytes_after(inputs: u64, tables: u64, bytes: u64) -> Option<u64> {
    (tables.saturating_mul(2) > inputs).then(|| small_bytes(bytes / tables.max(1)))
}

/// The policy's rules under `design`.
pub(super) fn rules_of(settings: &Settings, design: Design, is_draining: bool) -> Rules {
    let l0 = settings.l0();
    Rules {
        design: settings.as_flushed(design),
        sizing: settings.sizing,
        l0_compaction_trigger: l0.trigger_runs,
        l0_slowdown_runs: l0.soft_runs,
        is_draining,
        // The caller knows the keyspace.
        rewrites_all: false,
        expired_ms: 0,
        fifo: None,
        values: None,
        long_bytes: long_bytes(settings.table_bytes()),
        small_bytes: small_bytes(settings.table_bytes()),
    }
}
