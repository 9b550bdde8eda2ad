//! The schedule of log syncs: how many bytes are not synced, and by when they must be.
//!
//! `Interval` writes set the time; the sync worker waits for it. The lock is a leaf.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use shamba_env::Clock;

use crate::lock_order;
use crate::metrics::WorkCounters;
use crate::ranked::Ranked;
use crate::sync::Condvar;

/// An idle worker looks at the schedule after this long, in case a wake-up was lost.
const IDLE_US: u64 = 500_000;

#[derive(Default)]
struct Due {
    /// Earliest time by which the log must be synced; `None` if there is none.
    us: Option<u64>,
    is_stopped: bool,
}

/// When the log must be synced next.
pub(crate) struct SyncSchedule {
    due: Ranked<Due>,
    /// Signalled when a time was set or became earlier, and at the stop.
    wake: Condvar,
    /// Bytes appended to all logs so far. Changed only under the writer's lock.
    appended_bytes: AtomicU64,
    /// Of them, those from the first on that are synced. Only grows.
    synced_bytes: AtomicU64,
}

impl Default for SyncSchedule {
    fn default() -> Self {
        Self {
            due: Ranked::new(lock_order::SYNC_SCHEDULE, Due::default()),
            wake: Condvar::new(),
            appended_bytes: AtomicU64::new(0),
            synced_bytes: AtomicU64::new(0),
        }
    }
}

impl SyncSchedule {
    /// Bytes in the logs that are not synced.
    pub fn unsynced_bytes(&self) -> u64 {
        let synced_bytes = self.synced_bytes.load(Ordering::Relaxed);
        self.appended_bytes().saturating_sub(synced_bytes)
    }

    /// Bytes appended to all logs so far.
    pub fn appended_bytes(&self) -> u64 {
        self.appended_bytes.load(Ordering::Relaxed)
    }

    /// Counts appended bytes. The caller holds the writer's lock.
    pub fn add_unsynced(&self, bytes: u64) {
        WorkCounters::add_alone(&self.appended_bytes, bytes);
    }

    /// Notes that everything is synced. The caller holds the writer's lock.
    pub fn all_synced(&self) {
        self.synced(self.appended_bytes());
    }

    /// Notes that the first `bytes` of the appended bytes are synced, or in tables.
    pub fn synced(&self, bytes: u64) {
        self.synced_bytes.fetch_max(bytes, Ordering::Relaxed);
    }

    /// Sets the time by which the log must be synced.
    pub fn set(&self, due_us: Option<u64>) {
        self.due.lock().us = due_us;
        if due_us.is_some() {
            self.wake.notify_all();
        }
    }

    /// Waits until a sync is due; false when the worker must stop.
    pub fn wait(&self, clock: &dyn Clock) -> bool {
        let mut due = self.due.lock();
        while !due.is_stopped {
            let wait_us = due.us.map_or(IDLE_US, |us| us.saturating_sub(clock.now_us()).min(IDLE_US));
            if wait_us == 0 {
                return true;
            }
            (due, _) = due.wait_timeout(&self.wake, Duration::from_micros(wait_us));
        }
        false
    }

    /// Stops the worker.
    pub fn stop(&self) {
        // Set under the lock, so the worker cannot miss the notification.
        self.due.lock().is_stopped = true;
        self.wake.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use shamba_env::{Env, MemFs};

    use super::*;

    #[test]
    fn a_worker_waits_for_the_time_and_for_the_stop() {
        let env = Env { vfs: Arc::new(MemFs::new()), ..Env::real() };
        let schedule = SyncSchedule::default();
        schedule.set(Some(0));
        assert!(schedule.wait(env.clock.as_ref()), "it is due");
        schedule.set(None);
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| schedule.wait(env.clock.as_ref()));
            schedule.set(Some(env.clock.now_us() + 1_000));
            assert!(worker.join().expect("no panic"), "it became due");
            schedule.set(None);
            let worker = scope.spawn(|| schedule.wait(env.clock.as_ref()));
            schedule.stop();
            assert!(!worker.join().expect("no panic"));
        });
    }

    #[test]
    fn bytes_are_unsynced_until_a_sync() {
        let schedule = SyncSchedule::default();
        schedule.add_unsynced(7);
        schedule.add_unsynced(3);
        assert_eq!(schedule.unsynced_bytes(), 10);
        schedule.all_synced();
        assert_eq!(schedule.unsynced_bytes(), 0);
    }
}
