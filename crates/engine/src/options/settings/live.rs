//! Live settings: those that can change while the database is open.
//!
//! They are one small value behind an atomic pointer. A reader of several settings loads the value
//! once ([`Live::get`]), so that no job mixes two designs; a reader of one setting loads it each
//! time. Only [`crate::tuning`] changes them in an open database, after the manifest has recorded
//! the new ones.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use shamba_model::allocation::Allocation;
use shamba_model::{Design, MergePolicy};

/// Settings that can change while the database is open.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub(crate) struct LiveSettings {
    /// Size ratio, runs per level, write buffer, filter bits.
    pub design: Design,
    /// The rule that sets K and Z from T; `None` where they were given directly.
    pub policy: Option<MergePolicy>,
    /// How filter bits are distributed over tables as they are built.
    pub filter_allocation: Allocation,
    /// Bytes of all filters together; `None`: by the design's bits per key.
    pub filter_memory_bytes: Option<u64>,
}

impl LiveSettings {
    /// Sets K and Z by the policy. A policy is a rule: it applies to whatever T is now.
    pub fn apply_policy(&mut self) {
        if let Some(policy) = self.policy {
            let design = &self.design;
            self.design = Design::new(policy, design.size_ratio, design.buffer_bytes, design.bits_per_key);
        }
    }
}

/// Live settings with many concurrent readers and one writer.
pub(crate) struct Live {
    settings: ArcSwap<LiveSettings>,
    /// The design's write buffer, separate so that writers need one load.
    buffer_bytes: AtomicU64,
    /// Bytes that a shared budget grants; 0 without one. [`crate::memory`] changes it.
    budget_bytes: AtomicU64,
}

impl Live {
    pub fn new(settings: LiveSettings) -> Self {
        let buffer_bytes = settings.design.buffer_bytes.into();
        let settings = ArcSwap::from_pointee(settings);
        Self { settings, buffer_bytes, budget_bytes: AtomicU64::new(0) }
    }

    /// The settings in force.
    pub fn get(&self) -> LiveSettings {
        **self.settings.load()
    }

    /// Puts new settings in force.
    pub fn set(&self, settings: LiveSettings) {
        self.settings.store(settings.into());
        self.buffer_bytes.store(settings.design.buffer_bytes, Ordering::Relaxed);
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
