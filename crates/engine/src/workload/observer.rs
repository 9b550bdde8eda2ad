//! The observer of the workload: takes windows of the counters, and answers from them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use shamba_env::{Clock, Env};
use shamba_model::miss_ratio::MissRatioCurve;
use shamba_model::robust::{OPERATIONS, swing};
use shamba_table::BlockCache;
use shamba_tree::version::Pairs;

use super::{OPERATIONS_MIN, WINDOW_US, Workload};
use crate::lock_order;
use crate::ranked::Ranked;
use crate::reads::Reads;
use crate::telemetry::Telemetry;

/// Name of the setting in the manifest.
const SETTING: &str = "observed-workload";

/// State of the observation of a database's workload.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Observation {
    /// The counters at the last observation, and its time.
    totals: Workload,
    last_us: Option<u64>,
    /// The workload up to then.
    pub(super) workload: Workload,
    /// The last window alone.
    latest: Workload,
    /// The operations of the last window that was not idle.
    last_rates: [f64; OPERATIONS],
}

impl Observation {
    /// Takes the counters at `now_us`; true if a window with operations has ended.
    pub(super) fn look(&mut self, totals: Workload, now_us: u64) -> bool {
        let Some(last_us) = self.last_us else {
            (self.totals, self.last_us) = (totals, Some(now_us));
            return false;
        };
        debug_assert!(last_us <= now_us, "the last window ended later than now");
        let passed_us = now_us.saturating_sub(last_us);
        if passed_us < WINDOW_US {
            return false;
        }
        let mut window = Workload { seconds: passed_us as f64 / 1e6, ..totals.since(self.totals) };
        (self.totals, self.last_us) = (totals, Some(now_us));
        if window.operations() >= OPERATIONS_MIN {
            (window.windows, window.swings) = (1.0, swing(&self.last_rates, &window.rates()));
            self.last_rates = window.rates();
        }
        self.workload = self.workload.next(window);
        self.latest = window;
        window.operations() >= OPERATIONS_MIN
    }

    /// The workload including the time since the last observation.
    pub(super) fn now(self, totals: Workload, now_us: u64) -> Workload {
        let Some(last_us) = self.last_us else { return self.workload };
        let seconds = now_us.saturating_sub(last_us) as f64 / 1e6;
        self.workload.next(Workload { seconds, ..totals.since(self.totals) })
    }
}

/// Observes the workload of a database.
pub(crate) struct WorkloadObserver {
    clock: Arc<dyn Clock>,
    telemetry: Arc<Telemetry>,
    reads: Arc<Reads>,
    cache: Arc<BlockCache>,
    observation: Ranked<Observation>,
}

impl WorkloadObserver {
    /// Begins with the workload that an earlier process stored in the manifest's `settings`, if
    /// any. The first window starts with the first call of [`Self::observe`].
    pub fn new(
        env: &Env,
        settings: &BTreeMap<String, String>,
        telemetry: Arc<Telemetry>,
        reads: Arc<Reads>,
        cache: Arc<BlockCache>,
    ) -> Self {
        let workload = settings.get(SETTING).map_or_else(Workload::default, |text| Workload::from_text(text));
        let observation =
            Ranked::new(lock_order::WORKLOAD, Observation { workload, ..Observation::default() });
        Self { clock: Arc::clone(&env.clock), telemetry, reads, cache, observation }
    }

    /// The recent workload: that of this process or, before its first operations, the stored one.
    pub fn workload(&self) -> Workload {
        self.observation.lock().now(self.totals(), self.clock.now_us())
    }

    /// The last window alone: the present rates. Empty before the first has ended.
    pub fn latest_window(&self) -> Workload {
        self.observation.lock().latest
    }

    /// Ends the window if it is due; true if a window with operations has ended.
    pub fn observe(&self) -> bool {
        let has_ended = self.observation.lock().look(self.totals(), self.clock.now_us());
        if has_ended {
            self.count_references();
        }
        has_ended
    }

    /// The workload as a setting for the manifest; empty if nothing was observed.
    pub fn to_pairs(&self) -> Pairs {
        let workload = self.workload();
        let is_known = workload.seconds > 0.0;
        is_known.then(|| (SETTING.to_owned(), workload.to_text())).into_iter().collect()
    }

    /// Estimated miss ratio of lookups' data blocks with a block cache of `cache_bytes`; `None`
    /// while too little was sampled.
    pub fn miss_ratio(&self, cache_bytes: u64) -> Option<f64> {
        self.count_references();
        self.cache.reuse_miss_ratio(cache_bytes)
    }

    /// The miss ratio over shares of `data_bytes`; the even curve while too little was sampled.
    pub fn locality(&self, data_bytes: u64) -> MissRatioCurve {
        self.count_references();
        self.cache.reuse_curve(data_bytes).unwrap_or_default()
    }

    /// Reads of value files for each value that scans returned from them: below 1 where neighbours
    /// are read together; 1 before any.
    pub fn reads_per_value(&self) -> f64 {
        let walked = self.reads.iterators().walked().values;
        if walked.values > 0 { walked.reads.count as f64 / walked.values as f64 } else { 1.0 }
    }

    /// Passes the total number of references to the sampler.
    fn count_references(&self) {
        let total = self.telemetry.lookups().total();
        self.cache.count_references(total.cache_hits + total.reads().data.count);
    }

    /// The counters since the open, as a workload without time.
    fn totals(&self) -> Workload {
        let (lookups, walked, work) =
            (self.telemetry.lookups().total(), self.reads.iterators().walked(), self.telemetry.work());
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
        Workload {
            seconds: 0.0,
            empty_lookups: lookups.lookups.saturating_sub(lookups.found) as f64,
            found_lookups: lookups.found as f64,
            puts: count(&work.puts) + count(&work.merge_operations),
            deletes: count(&work.deletes) + count(&work.range_deletes),
            // Each part of a long scan counts. Otherwise it would be one scan of ever more entries
            // among decaying operations.
            ranges: (walked.ranges + walked.goings_on) as f64,
            range_entries: walked.entries as f64,
            user_bytes: count(&work.bytes_user),
            dropped_entries: count(&work.entries_dropped),
            moved_bytes: count(&work.bytes_flushed) + count(&work.bytes_compacted),
            moved_ns: (count(&work.flush_us) + count(&work.compaction_us)) * 1e3,
            // Only windows have these.
            windows: 0.0,
            swings: 0.0,
        }
    }
}
