//! What the policy holds a tree to: its design, where capacities come from, and when the inbox is merged down.
//!
//! Under [`Sizing::Manual`] the inbox goes down at its trigger: one run, as in the papers. Under [`Sizing::Auto`]
//! it is merged in *batches*: not before `inbox_trigger` runs have gathered, and not while what they would be
//! merged into is more than T/4 times as large, half of what leveling pays on average; but no later than at
//! twice the trigger. When nobody writes, or somebody waits, it is *drained*, whatever it holds, so that
//! readers find few runs.
//!
//! Not here: which job follows ([`super::fluid`]); capacities as such (`shamba_model`).

use shamba_model::{Capacities, Design, Sizing};

use crate::version::{TableUse, Version};

/// A manual inbox of this many triggers is crowded. With more, a large debt on the levels (a changed design)
/// would hold up writers until it is paid; with fewer, level 1 would be merged while it is over its capacity.
const CROWDED_TRIGGERS: u32 = 4;
/// Under `Auto` the inbox goes down at this many triggers, whatever that costs.
const BATCH_TRIGGERS_MAX: u32 = 2;

/// What the policy holds a tree to.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rules {
    /// T, K, Z and the buffer.
    pub design: Design,
    /// Where capacities come from.
    pub sizing: Sizing,
    /// Runs in the inbox that start a merge; 0 counts as 1. Under `Auto` the runs of a batch.
    pub inbox_trigger: u32,
    /// Runs beyond which writers are slowed: a batch that is due grows no further than to this.
    pub inbox_soft_runs: u32,
    /// Under `Auto`: whether a single run in the inbox is merged down.
    pub is_draining: bool,
    /// A merge of so many bytes is *long*: the inbox must have its turns beside it ([`super::beside`]).
    pub long_bytes: u64,
    /// What levels that have outgrown their bounds may still merge before a crowded inbox goes ([`super::turns`]).
    pub owed_bytes: u64,
    /// Tables of fewer bytes are small: many adjacent ones are merged where they are ([`super::small`]).
    pub small_bytes: u64,
}

impl Rules {
    /// The rules of the papers, with an inbox that goes down at `inbox_trigger` runs.
    pub fn manual(design: Design, inbox_trigger: u32) -> Self {
        Self {
            design,
            sizing: Sizing::Manual,
            inbox_trigger,
            inbox_soft_runs: u32::MAX,
            is_draining: false,
            long_bytes: u64::MAX,
            owed_bytes: 0,
            small_bytes: 0,
        }
    }

    /// Whether the table is small.
    pub fn is_small(&self, table: &TableUse) -> bool {
        table.live_bytes < self.small_bytes
    }

    /// What the levels of the tree may hold now.
    pub fn capacities(&self, version: &Version) -> Capacities {
        let deepest = version.deepest_level();
        let mut level_bytes: Vec<u64> = (0..=deepest).map(|level| version.level_bytes(level)).collect();
        // Beside the largest run of a last level, the others may be all obsolete, and are it where a tree does not grow.
        let largest = version.level(deepest).iter().map(|run| run.bytes()).max();
        if let (Some(last), Some(largest)) = (level_bytes.last_mut(), largest) {
            *last = largest;
        }
        let batch_bytes = self.design.buffer_bytes.saturating_mul(u64::from(self.inbox_trigger.max(1)));
        Capacities::new(self.sizing, &self.design, &level_bytes, batch_bytes)
    }

    /// Whether the inbox is to be merged down.
    pub fn is_inbox_due(&self, version: &Version, capacities: &Capacities) -> bool {
        let (runs, trigger) = (version.level(0).len(), self.inbox_trigger.max(1) as usize);
        match self.sizing {
            Sizing::Manual => runs >= trigger,
            Sizing::Auto if self.is_draining => runs > 0,
            Sizing::Auto => {
                let (due, below) = (runs >= trigger, self.arrival_level(version, capacities));
                let worth = version.level_bytes(0) as f64 * self.design.size_ratio / 4.0;
                due && (version.level_bytes(below) as f64 <= worth || self.is_inbox_crowded(version))
            }
        }
    }

    /// Whether writers soon have to wait for the inbox: then it takes turns with levels far beyond their bounds ([`super::turns`]).
    pub fn is_inbox_crowded(&self, version: &Version) -> bool {
        let trigger = self.inbox_trigger.max(1);
        let crowd = match self.sizing {
            Sizing::Manual => trigger.saturating_mul(CROWDED_TRIGGERS),
            Sizing::Auto => trigger.saturating_mul(BATCH_TRIGGERS_MAX).min(self.inbox_soft_runs.max(trigger)),
        };
        version.level(0).len() >= crowd as usize
    }

    /// The level that the inbox is merged into: no version of a key may pass an older one.
    pub fn arrival_level(&self, version: &Version, capacities: &Capacities) -> u32 {
        let deepest = version.deepest_level();
        let in_use = (1..=deepest).find(|level| !version.level(*level).is_empty()).unwrap_or(1);
        capacities.arrival_level().min(in_use)
    }
}
