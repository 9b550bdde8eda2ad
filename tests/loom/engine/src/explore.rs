//! Running a model under every schedule.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// So many preemptions at most, unless `LOOM_MAX_PREEMPTIONS` says otherwise.
const PREEMPTIONS_MOST: usize = 3;
/// More steps than any model takes: one that takes them goes round in a circle.
const STEPS_MOST: usize = 10_000;

/// Runs `model` under every schedule; gives their number.
///
/// # Panics
/// As the model does under one of them.
pub fn every_schedule(model: impl Fn() + Send + Sync + 'static) -> u64 {
    let schedules = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&schedules);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(PREEMPTIONS_MOST));
    builder.max_branches = STEPS_MOST;
    builder.check(move || {
        counter.fetch_add(1, Ordering::Relaxed);
        model();
    });
    schedules.load(Ordering::Relaxed)
}
