//! Runs a model under every schedule.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum number of preemptions, unless `LOOM_MAX_PREEMPTIONS` overrides it.
const PREEMPTIONS_MAX: usize = 3;
/// More steps than any model takes: a model that reaches it is in an endless loop.
const STEPS_MAX: usize = 10_000;

/// Runs `model` under every schedule and returns their number.
///
/// # Panics
/// If the model panics under one of them.
pub fn every_schedule(model: impl Fn() + Send + Sync + 'static) -> u64 {
    let schedules = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&schedules);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(PREEMPTIONS_MAX));
    builder.max_branches = STEPS_MAX;
    builder.check(move || {
        counter.fetch_add(1, Ordering::Relaxed);
        model();
    });
    schedules.load(Ordering::Relaxed)
}
