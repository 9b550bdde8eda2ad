//! Live settings: those that can change while the database is open.
//!
//! They are one small value under a lock. A reader of several settings copies the value once
//! ([`Live::get`]), so that no job mixes two designs; a reader of one setting copies it each time.
//! What every write reads has an atomic of its own. Only [`crate::tuning`] changes the settings of
//! an open database, after the manifest has recorded the new ones.

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use shamba_model::MergePolicy;

use crate::lock_order;
use crate::ranked::Ranked;
use crate::tree_design::TreeDesign;

/// Length for [`crate::ValueThreshold::Auto`] before a workload is known, in bytes.
const VALUE_BYTES_UNKNOWN: u32 = 4 << 10;

/// Settings that can change while the database is open.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub(crate) struct LiveSettings {
    /// The design, which a redesign changes.
    pub tree: TreeDesign,
    /// The rule that sets K and Z from T; `None` where they were given directly.
    pub policy: Option<MergePolicy>,
    /// Whether this open gives K or Z directly, in place of the policy's number.
    pub is_own: OwnRuns,
}

/// The numbers of runs that an open gives directly, until [`LiveSettings::apply_policy`].
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub(crate) struct OwnRuns {
    /// K.
    pub inner: bool,
    /// Z.
    pub last: bool,
}

impl LiveSettings {
    /// Sets K and Z by the policy, unless they are given directly. A policy is a rule: it applies
    /// to whatever T is now. It no longer does once a number is given directly.
    pub fn apply_policy(&mut self) {
        let is_own = std::mem::take(&mut self.is_own);
        let Some(policy) = self.policy else { return };
        let design = &mut self.tree.design;
        let (inner_runs, last_runs) = policy.runs(design.size_ratio);
        if !is_own.inner {
            design.inner_runs = inner_runs;
        }
        if !is_own.last {
            design.last_runs = last_runs;
        }
        if is_own != OwnRuns::default() {
            self.policy = None;
        }
    }

    /// The settings with another design. The named policy stays while it gives the target's (K, Z).
    pub fn redesigned(&self, target: &TreeDesign) -> Self {
        let design = &target.design;
        let runs = (design.inner_runs, design.last_runs);
        let named = self.policy.filter(|policy| policy.runs(design.size_ratio) == runs);
        let policy = named.or_else(|| design.policy());
        debug_assert!(
            policy.is_none_or(|policy| policy.runs(design.size_ratio) == runs),
            "a redesign names a policy with other runs"
        );
        Self { tree: *target, policy, ..Self::default() }
    }
}

/// Live settings with many concurrent readers and one writer.
pub(crate) struct Live {
    settings: Ranked<LiveSettings>,
    /// The design's write buffer, separate so that writers need one load.
    buffer_bytes: AtomicU64,
    /// Bytes that a shared budget grants; 0 without one. [`crate::memory`] changes it.
    budget_bytes: AtomicU64,
    /// Length for [`crate::ValueThreshold::Auto`]; 0: no value is stored in a value file.
    auto_value_bytes: AtomicU32,
}

impl Live {
    pub fn new(settings: LiveSettings) -> Self {
        let buffer_bytes = settings.tree.design.buffer_bytes.into();
        Self {
            settings: Ranked::new(lock_order::LIVE_SETTINGS, settings),
            buffer_bytes,
            budget_bytes: AtomicU64::new(0),
            auto_value_bytes: AtomicU32::new(VALUE_BYTES_UNKNOWN),
        }
    }

    /// The settings in force.
    pub fn get(&self) -> LiveSettings {
        *self.settings.lock()
    }

    /// Puts new settings in force.
    pub fn set(&self, settings: LiveSettings) {
        *self.settings.lock() = settings;
        self.buffer_bytes.store(settings.tree.design.buffer_bytes, Ordering::Relaxed);
    }

    /// Write buffer of the design.
    pub fn buffer_bytes(&self) -> u64 {
        self.buffer_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that a shared budget grants; `None` without one.
    pub fn budget_bytes(&self) -> Option<u64> {
        Some(self.budget_bytes.load(Ordering::Relaxed)).filter(|bytes| *bytes > 0)
    }

    /// Sets the bytes that a shared budget grants.
    pub fn set_budget_bytes(&self, bytes: u64) {
        self.budget_bytes.store(bytes.max(1), Ordering::Relaxed);
    }

    /// Minimum length of a value in a value file under [`crate::ValueThreshold::Auto`]; `None`: all
    /// are stored in tables.
    pub fn auto_value_bytes(&self) -> Option<u32> {
        Some(self.auto_value_bytes.load(Ordering::Relaxed)).filter(|bytes| *bytes > 0)
    }

    /// Sets the length for [`crate::ValueThreshold::Auto`].
    pub fn set_auto_value_bytes(&self, bytes: Option<u32>) {
        self.auto_value_bytes.store(bytes.unwrap_or(0), Ordering::Relaxed);
    }

    /// Changes the settings in force. Not atomic: callers must not run it concurrently.
    pub fn change(&self, change: impl FnOnce(&mut LiveSettings)) {
        let mut settings = self.get();
        change(&mut settings);
        self.set(settings);
    }
}

/// An independent copy, which later changes do not reach.
impl Clone for Live {
    fn clone(&self) -> Self {
        Self::new(self.get())
    }
}

impl PartialEq for Live {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use shamba_model::Design;

    use super::*;

    #[test]
    fn a_named_policy_stays_while_it_gives_the_runs_of_the_target() {
        let of = |design| TreeDesign { design, ..TreeDesign::default() };
        let named = |policy, size_ratio| Design::new(policy, size_ratio, 1 << 20, 10.0);
        let tree = of(named(MergePolicy::Tiering, 4.0));
        let before = LiveSettings { tree, policy: Some(MergePolicy::Tiering), ..LiveSettings::default() };
        let after = before.redesigned(&of(named(MergePolicy::Tiering, 6.0)));
        assert_eq!(after.policy, Some(MergePolicy::Tiering));
        assert_eq!(after.tree, of(named(MergePolicy::Tiering, 6.0)));
        let leveled = before.redesigned(&of(named(MergePolicy::Leveling, 10.0)));
        assert_eq!(leveled.policy, Some(MergePolicy::Leveling));
        let between = Design { inner_runs: 2, last_runs: 3, ..named(MergePolicy::Tiering, 10.0) };
        assert_eq!(before.redesigned(&of(between)).policy, None, "no policy has these runs");
    }
}
