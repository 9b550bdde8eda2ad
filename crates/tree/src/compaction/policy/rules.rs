//! Rules of the policy: the design, the source of capacities, and when level 0 is compacted.
//!
//! Under [`Sizing::Manual`] level 0 is compacted at its trigger, of one run in the papers. Under
//! [`Sizing::Auto`] it is compacted in *batches*. A batch has at least `l0_compaction_trigger`
//! runs. It also waits while the bytes that it would be merged into are more than T/4 times its
//! own, half of what leveling pays on average. It waits no longer than until level 0 has twice the
//! trigger. When there are no writes, or a caller waits, level 0 is *drained*: compacted whatever
//! it holds, so that readers find few runs.
//!
//! A level counts the bytes of its tables, not those of values in value files. So does a batch.
//!
//! Not here: the job that follows ([`super::fluid`]); capacities as such (`shamba_model`).

use shamba_model::{Capacities, Design, Sizing};

use super::fifo::FifoRules;
use crate::version::{TableUse, Version};

/// Under `Manual`, level 0 is urgent from this many triggers on. With a larger value, a large debt
/// on the levels (after a change of the design) would block writers until it is paid. With a
/// smaller one, level 0 would be compacted onto level 1 while that is over its capacity.
const L0_URGENT_TRIGGERS: u32 = 4;
/// Under `Auto`, level 0 is compacted at this many triggers, whatever that costs.
const BATCH_TRIGGERS_MAX: u32 = 2;

/// Part of the memory budget (1/32) that the lists of references may take.
const LISTS_PART: u64 = 32;
/// Bytes of an item of such a list: one for each table and each value file that it names.
const LIST_ITEM_BYTES: u64 = 24;
/// Bounds of the number of value files.
const VALUE_FILES_MIN: u64 = 64;
const VALUE_FILES_MAX: u64 = 4_096;
/// A value file is small if it has less than this part (1/4) of a full one. A quarter of the files
/// are full if they are as many as they may be.
const SMALL_FILE_PART: u64 = 4;

/// The rules by which value files are collected.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ValueRules {
    /// Allowed space: bytes of tables and stored values for each byte of tables and live values.
    pub space: f64,
    /// Number of value files from which on small ones are joined.
    pub files_max: u64,
    /// Minimum bytes of a full value file.
    pub file_bytes: u64,
    /// Whether the last level has one run by design. Otherwise merges into it come by themselves,
    /// and only what no table refers to is bounded.
    pub has_one_last_run: bool,
    /// Whether no value is long enough for a value file: a full compaction brings all of them back
    /// into tables.
    pub is_off: bool,
}

impl ValueRules {
    /// Number of value files that the memory for lists of references allows, if each of the
    /// `tables` names all of them.
    pub fn files_max(budget_bytes: u64, tables: u64) -> u64 {
        let items = budget_bytes / LISTS_PART / LIST_ITEM_BYTES;
        (items / tables.max(1)).clamp(VALUE_FILES_MIN, VALUE_FILES_MAX)
    }

    /// Bytes at which a value file ends, if the files have `stored_bytes`.
    pub fn full_bytes(&self, stored_bytes: u64) -> u64 {
        let least = stored_bytes.saturating_mul(SMALL_FILE_PART) / self.files_max.max(1);
        self.file_bytes.max(least).max(1)
    }

    /// Whether a file of `bytes` is small among files of `stored_bytes`.
    pub fn is_small(&self, bytes: u64, stored_bytes: u64) -> bool {
        bytes < self.full_bytes(stored_bytes) / SMALL_FILE_PART
    }
}

/// The rules that a tree must satisfy.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rules {
    /// Size ratio T, runs K and Z, and the buffer.
    pub design: Design,
    /// Source of the capacities.
    pub sizing: Sizing,
    /// Runs in level 0 that make a compaction due; 0 counts as 1. Under `Auto` the minimum runs of
    /// a batch.
    pub l0_compaction_trigger: u32,
    /// Runs in level 0 beyond which writes are slowed down: a due batch grows to at most this many.
    pub l0_slowdown_runs: u32,
    /// Under `Auto`: whether even a single run in level 0 is compacted.
    pub is_draining: bool,
    /// A compaction of at least this many bytes is *long*: tables that arrive on a full level do
    /// not start one, and runs of level 0 are not merged with each other.
    pub long_bytes: u64,
    /// Whether a full compaction rewrites every table, for a compaction filter.
    pub rewrites_all: bool,
    /// Entries that expire up to this time, in milliseconds since 1970-01-01 UTC, have expired for
    /// every reader; 0 if none has. A full compaction rewrites their tables.
    pub expired_ms: u64,
    /// The limits of a FIFO tree. Its runs stay in level 0.
    pub fifo: Option<FifoRules>,
    /// Tables of fewer bytes are small: adjacent ones are compacted in place (`small`).
    pub small_bytes: u64,
    /// When value files are collected; `None`: there are none, or the tree is a FIFO tree.
    pub values: Option<ValueRules>,
}

impl Rules {
    /// The rules of the papers, with level 0 compacted at `l0_compaction_trigger` runs.
    pub fn manual(design: Design, l0_compaction_trigger: u32) -> Self {
        Self {
            design,
            sizing: Sizing::Manual,
            l0_compaction_trigger,
            l0_slowdown_runs: u32::MAX,
            is_draining: false,
            long_bytes: u64::MAX,
            rewrites_all: false,
            expired_ms: 0,
            fifo: None,
            small_bytes: 0,
            values: None,
        }
    }

    /// Whether the table is small.
    pub fn is_small(&self, table: &TableUse) -> bool {
        table.live_bytes < self.small_bytes
    }

    /// Whether an entry of the table has expired for every reader.
    pub fn has_expired(&self, table: &TableUse) -> bool {
        table.meta.expiring.get().is_some_and(|expiring| expiring.first().is_past(self.expired_ms))
    }

    /// The capacities of the tree's levels now.
    pub fn capacities(&self, version: &Version) -> Capacities {
        let deepest = version.deepest_level();
        let mut level_bytes: Vec<u64> = (0..=deepest).map(|level| version.level_bytes(level)).collect();
        // Only the largest run of the last level counts. The others may be entirely obsolete, and
        // are where a tree does not grow.
        let largest = version.level(deepest).iter().map(|run| run.bytes()).max();
        if let (Some(last), Some(largest)) = (level_bytes.last_mut(), largest) {
            debug_assert!(largest <= *last, "a run of {largest} bytes on a level of {last}");
            *last = largest;
        }
        let batch_bytes =
            self.design.buffer_bytes.saturating_mul(u64::from(self.l0_compaction_trigger.max(1)));
        Capacities::new(self.sizing, &self.design, &level_bytes, table_part(version, batch_bytes))
    }

    /// Whether level 0 is due for compaction.
    pub fn is_l0_due(&self, version: &Version, capacities: &Capacities) -> bool {
        let (runs, trigger) = (version.level(0).len(), self.l0_compaction_trigger.max(1) as usize);
        match self.sizing {
            Sizing::Manual => runs >= trigger,
            Sizing::Auto if self.is_draining => runs > 0,
            Sizing::Auto => {
                let (due, below) = (runs >= trigger, self.arrival_level(version, capacities));
                let worth = version.level_bytes(0) as f64 * self.design.size_ratio / 4.0;
                due && (version.level_bytes(below) as f64 <= worth || self.is_l0_urgent(version))
            }
        }
    }

    /// Whether level 0 is close to slowing writes down. It is then compacted whatever that costs.
    pub fn is_l0_urgent(&self, version: &Version) -> bool {
        version.level(0).len() >= self.l0_urgent_runs() as usize
    }

    /// Runs from which level 0 is close to slowing writes down.
    pub fn l0_urgent_runs(&self) -> u32 {
        let trigger = self.l0_compaction_trigger.max(1);
        match self.sizing {
            Sizing::Manual => trigger.saturating_mul(L0_URGENT_TRIGGERS),
            Sizing::Auto => {
                trigger.saturating_mul(BATCH_TRIGGERS_MAX).min(self.l0_slowdown_runs.max(trigger))
            }
        }
    }

    /// The level that level 0 is compacted into: at most the first level in use, so that no version
    /// of a key passes an older one.
    pub fn arrival_level(&self, version: &Version, capacities: &Capacities) -> u32 {
        let deepest = version.deepest_level();
        let in_use = (1..=deepest).find(|level| !version.level(*level).is_empty()).unwrap_or(1);
        debug_assert!(capacities.arrival_level() > 0, "level 0 is compacted into itself");
        capacities.arrival_level().min(in_use)
    }
}

/// The part of `bytes` of a write buffer that goes to tables: a flush leaves the others in value
/// files.
fn table_part(version: &Version, bytes: u64) -> u64 {
    let (tables, values) = (u128::from(version.bytes()), u128::from(version.value_bytes()));
    if values == 0 {
        return bytes;
    }
    u64::try_from(u128::from(bytes) * tables / (tables + values)).unwrap_or(bytes).max(1)
}

#[cfg(test)]
mod tests {
    use shamba_model::MergePolicy;

    use super::*;

    #[test]
    fn a_batch_has_the_bytes_that_go_to_tables() {
        let design = Design::new(MergePolicy::Leveling, 4.0, 1_000, 0.0);
        let auto = Rules { sizing: Sizing::Auto, ..Rules::manual(design, 4) };
        let level_1 =
            |tree: &str, rules: &Rules| rules.capacities(&tree.parse().expect("notation")).level_bytes(1);
        let plain = "L1: r2@2[2:a..z 1500]\nL2: r1@1[1:a..z 10000]\n";
        assert_eq!(level_1(plain, &auto), 4_000, "a batch of four write buffers");
        let apart = plain.replace("10000]", "10000 val=9:9:218500]") + "V: 9 228628 n=9\n";
        assert_eq!(
            level_1(&apart, &auto),
            2_500,
            "a quarter of the last level, which is more than a batch of 200"
        );
        assert_eq!(table_part(&apart.parse().expect("notation"), 4_000), 200, "one byte in 20 is in tables");
        let manual = Rules::manual(design, 4);
        assert_eq!(level_1(&apart, &manual), level_1(plain, &manual), "the papers' levels");
    }
}
