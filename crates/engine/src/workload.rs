//! The observed workload: recent operations, and the time that flushes and compactions took.
//!
//! It adds no counters of its own: lookups are counted by thread, writes by the group commit
//! leader, scans where they end, flushes and compactions by the job. A *window* is the difference
//! of these counters between two observations. Windows add up to a [`Workload`] in which old ones
//! decay, by half in [`HALF_LIFE_S`] of time with operations; idle time is not counted, since a
//! quiet night says nothing about the next day. The manifest stores the workload of the last close
//! or redesign among the settings, so that a command that opens the database can use it.
//!
//! The divergence of each window's mix from the one before is summed and decays with the counts. It
//! tells the tuner whether the workload alternates ([`Workload::variation`]).
//!
//! Not here: the lookups of each table ([`crate::statistics`]); conclusions ([`crate::advise`]).

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use shamba_model::robust::{OPERATIONS, swing};

use crate::core::Core;
use crate::db::Db;
use shamba_env::lock;
use shamba_tree::version::Pairs;

/// Half-life of observations, in seconds with operations. After a change of workload, the old one
/// has an eighth of the weight after three times as long.
pub(crate) const HALF_LIFE_S: f64 = 4.0;
/// Length of a window.
pub(crate) const WINDOW_US: u64 = 2_000_000;
/// Minimum operations of a window; one with fewer is idle.
const OPERATIONS_MIN: f64 = 16.0;
/// Name of the setting in the manifest.
pub(crate) const SETTING: &str = "observed-workload";

macro_rules! workload {
    ($($(#[$doc:meta])* $field:ident,)*) => {
        /// Recent operations of a database. The counts of windows with operations decay with age,
        /// so they have fractions. [`Self::per_second`] converts them to rates.
        #[derive(Clone, Copy, Default, PartialEq, Debug)]
        #[non_exhaustive]
        pub struct Workload {
            $($(#[$doc])* pub $field: f64,)*
        }

        impl Workload {
            /// All counts multiplied by `by`.
            fn scaled(self, by: f64) -> Self {
                Self { $($field: self.$field * by,)* }
            }

            fn and(self, other: Self) -> Self {
                Self { $($field: self.$field + other.$field,)* }
            }

            /// Counts since `earlier`.
            fn since(self, earlier: Self) -> Self {
                Self { $($field: (self.$field - earlier.$field).max(0.0),)* }
            }

            /// One line of text, for the manifest.
            pub(crate) fn to_text(self) -> String {
                [$(format!(concat!(stringify!($field), "={}"), self.$field)),*].join(" ")
            }

            /// Parses [`Self::to_text`]. A missing name is 0; unknown names and invalid counts are
            /// ignored.
            pub(crate) fn from_text(text: &str) -> Self {
                let mut workload = Self::default();
                for (name, value) in text.split(' ').filter_map(|pair| pair.split_once('=')) {
                    let value = value.parse::<f64>().ok().filter(|count| (0.0..f64::MAX).contains(count));
                    match (name, value) {
                        $((stringify!($field), Some(count)) => workload.$field = count,)*
                        _ => {}
                    }
                }
                workload
            }
        }
    };
}

workload! {
    /// Length of the observation in seconds, decayed like the counts.
    seconds,
    /// Lookups that found nothing.
    empty_lookups,
    /// Lookups that found a value.
    found_lookups,
    /// Puts.
    puts,
    /// Point and range deletes.
    deletes,
    /// Scans, counted by their start positions.
    ranges,
    /// Entries read by scans.
    range_entries,
    /// Bytes of the keys and values written.
    user_bytes,
    /// Obsolete entries that flushes and compactions dropped.
    dropped_entries,
    /// Bytes of tables that flushes and compactions wrote.
    moved_bytes,
    /// Time of these flushes and compactions, in nanoseconds.
    moved_ns,
    /// Windows with operations.
    windows,
    /// Sum of the divergences of their mixes, each from the window before
    /// ([`shamba_model::robust::swing`]).
    swings,
}

impl Workload {
    /// A count as a rate; 0 before any observation.
    pub fn per_second(&self, count: f64) -> f64 {
        if self.seconds > 0.0 { count / self.seconds } else { 0.0 }
    }

    /// Puts and deletes.
    pub fn updates(&self) -> f64 {
        self.puts + self.deletes
    }

    /// Lookups, updates and ranges.
    pub fn operations(&self) -> f64 {
        self.empty_lookups + self.found_lookups + self.updates() + self.ranges
    }

    /// Mean number of entries read by a scan; 0 without scans.
    pub fn entries_per_range(&self) -> f64 {
        if self.ranges > 0.0 { self.range_entries / self.ranges } else { 0.0 }
    }

    /// Nanoseconds that flushes and compactions take per byte written; `None` if none were
    /// observed.
    pub fn move_ns_per_byte(&self) -> Option<f64> {
        (self.moved_bytes > 0.0 && self.moved_ns > 0.0).then(|| self.moved_ns / self.moved_bytes)
    }

    /// Share of updates that made an older entry obsolete, as far as compactions have dropped
    /// those; 0 without updates.
    pub fn overwritten_share(&self) -> f64 {
        if self.updates() > 0.0 { (self.dropped_entries / self.updates()).min(1.0) } else { 0.0 }
    }

    /// Counts of empty lookups, found lookups, updates and ranges.
    pub(crate) fn rates(&self) -> [f64; OPERATIONS] {
        [self.empty_lookups, self.found_lookups, self.updates(), self.ranges]
    }

    /// Alternation of the mix of operations: the mean divergence of successive windows from the
    /// mix halfway between them, in nats, at most ln 2. 0 while the mix stays the same within
    /// chance. After one lasting change it is at most a third of ln 2, and halves every four
    /// seconds with operations.
    pub fn variation(&self) -> f64 {
        if self.windows > 0.0 { self.swings / self.windows } else { 0.0 }
    }

    /// Adds a window. An idle window changes only the counts of flushes and compactions.
    #[must_use]
    pub(crate) fn next(self, window: Self) -> Self {
        if window.operations() < OPERATIONS_MIN {
            let moved =
                Self { moved_bytes: window.moved_bytes, moved_ns: window.moved_ns, ..Self::default() };
            return self.and(moved);
        }
        self.scaled((-window.seconds / HALF_LIFE_S).exp2()).and(window)
    }
}

/// State of the observation of a database's workload.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Observation {
    /// The counters at the last observation, and its time.
    totals: Workload,
    last_us: Option<u64>,
    /// The workload up to then.
    workload: Workload,
    /// The last window alone.
    latest: Workload,
    /// The operations of the last window that was not idle.
    last_rates: [f64; OPERATIONS],
}

impl Observation {
    /// Starts from the workload that an earlier process observed.
    pub fn begin_with(&mut self, workload: Workload) {
        self.workload = workload;
    }

    /// Takes the counters at `now_us`; true if a window with operations has ended.
    fn look(&mut self, totals: Workload, now_us: u64) -> bool {
        let Some(last_us) = self.last_us else {
            (self.totals, self.last_us) = (totals, Some(now_us));
            return false;
        };
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
    fn now(self, totals: Workload, now_us: u64) -> Workload {
        let Some(last_us) = self.last_us else { return self.workload };
        let seconds = now_us.saturating_sub(last_us) as f64 / 1e6;
        self.workload.next(Workload { seconds, ..totals.since(self.totals) })
    }
}

impl Db {
    /// The recent workload: that of this process or, before its first operations, that stored at
    /// the last close.
    pub fn workload(&self) -> Workload {
        self.core().workload()
    }
}

impl Core {
    /// Starts from the workload stored in the manifest.
    pub(crate) fn load_workload(&self, settings: &BTreeMap<String, String>) {
        if let Some(text) = settings.get(SETTING) {
            lock(&self.observation).begin_with(Workload::from_text(text));
        }
        // Windows start here.
        self.observe();
    }

    /// The workload as a setting for the manifest; empty if nothing was observed.
    pub(crate) fn observed_pairs(&self) -> Pairs {
        let workload = self.workload();
        let is_known = workload.seconds > 0.0;
        is_known.then(|| (SETTING.to_owned(), workload.to_text())).into_iter().collect()
    }

    /// Ends the window if it is due; true if a window with operations has ended.
    pub(crate) fn observe(&self) -> bool {
        let now_us = self.env.clock.now_us();
        let has_ended = lock(&self.observation).look(self.totals(), now_us);
        if has_ended {
            self.count_references();
        }
        has_ended
    }

    /// The recent workload.
    pub(crate) fn workload(&self) -> Workload {
        let now_us = self.env.clock.now_us();
        lock(&self.observation).now(self.totals(), now_us)
    }

    /// The last window alone: the present rates. Empty before the first has ended.
    pub(crate) fn latest_window(&self) -> Workload {
        lock(&self.observation).latest
    }

    /// The counters since the open, as a workload without time.
    fn totals(&self) -> Workload {
        let (lookups, walked, work) =
            (self.telemetry.lookups().total(), self.reads.iterators().walked(), &self.telemetry.work());
        let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed) as f64;
        Workload {
            seconds: 0.0,
            empty_lookups: lookups.lookups.saturating_sub(lookups.found) as f64,
            found_lookups: lookups.found as f64,
            puts: count(&work.puts),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn window(puts: f64, empty_lookups: f64) -> Workload {
        Workload { seconds: 2.0, puts, empty_lookups, ..Workload::default() }
    }

    #[test]
    fn old_windows_fade_by_half_in_a_half_life_of_work() {
        let mut workload = (0..100).fold(Workload::default(), |sum, _| sum.next(window(1_000.0, 0.0)));
        assert!((workload.per_second(workload.puts) - 500.0).abs() < 1e-9);
        let before = workload.puts;
        for _ in 0..2 {
            workload = workload.next(window(0.0, 3_000.0));
        }
        assert!((workload.puts / before - 0.5).abs() < 1e-9, "two windows are a half-life");
        // An idle window: counts do not decay, but those of compactions are added.
        let idle = Workload { moved_bytes: 7.0, moved_ns: 14.0, ..window(3.0, 2.0) };
        let after = workload.next(idle);
        assert_eq!((after.puts, after.seconds), (workload.puts, workload.seconds));
        assert_eq!(after.move_ns_per_byte(), Some(2.0));
    }

    /// The variation after each window of the given puts and empty lookups.
    fn variations(windows: impl IntoIterator<Item = (f64, f64)>) -> Vec<f64> {
        let mut observation = Observation::default();
        let mut totals = Workload::default();
        observation.look(totals, 0);
        let mut variation = |(at, (puts, empty_lookups)): (u64, (f64, f64))| {
            totals = totals.and(Workload { puts, empty_lookups, ..Workload::default() });
            observation.look(totals, at * WINDOW_US);
            // A window that has not ended adds no variation.
            let more = Workload { puts: totals.puts + 1e6, ..totals };
            let now = observation.now(more, at * WINDOW_US + WINDOW_US / 2).variation();
            assert!((now - observation.workload.variation()).abs() < 1e-12);
            now
        };
        (1..).zip(windows).map(&mut variation).collect()
    }

    #[test]
    fn variation_is_nothing_for_one_mix_and_soon_after_a_change() {
        for steady in [
            variations((0..50).map(|_| (7_000.0, 3_000.0))),
            // Random differences of counts are not another mix; nor is another rate, nor a pause.
            variations((0..50).map(|at| (40.0 + f64::from(at % 7), 40.0))),
            variations((0..50).map(|at| (7_000.0 * f64::from(1 + at % 9), 3_000.0 * f64::from(1 + at % 9)))),
            variations((0..50).map(|at| if at % 3 == 0 { (1.0, 0.0) } else { (7_000.0, 3_000.0) })),
        ] {
            assert!(steady.iter().all(|variation| *variation == 0.0), "{steady:?}");
        }
        // Oscillation: each window has one kind of operation.
        let swinging = variations((0..50).map(|at| if at % 2 == 0 { (1e4, 0.0) } else { (0.0, 1e4) }));
        assert!((swinging[49] - 2f64.ln()).abs() < 1e-6, "{swinging:?}");
        // One lasting change.
        let changed = variations((0..50).map(|at| if at < 25 { (1e4, 0.0) } else { (0.0, 1e4) }));
        assert_eq!(changed[24], 0.0);
        assert!((0.15..0.25).contains(&changed[25]), "{changed:?}");
        assert!((changed[29] / changed[25] - 0.25).abs() < 0.01 && changed[49] < 1e-3, "{changed:?}");
        let workload = Workload { windows: 3.0, swings: 0.75, ..Workload::default() };
        assert_eq!(Workload::from_text(&workload.to_text()).variation(), 0.25);
        assert_eq!(Workload::default().variation(), 0.0);
    }

    #[test]
    fn windows_are_differences_of_looks() {
        let mut observation = Observation::default();
        let totals = |puts: f64| Workload { puts, ..Workload::default() };
        assert!(!observation.look(totals(5_000.0), 1), "the first look begins");
        assert!(!observation.look(totals(6_000.0), 1 + WINDOW_US / 2), "it is not time");
        assert!(observation.look(totals(7_000.0), 1 + WINDOW_US));
        assert_eq!(observation.workload.puts, 2_000.0);
        assert!(!observation.look(totals(7_001.0), 1 + 2 * WINDOW_US), "one put is no work");
        let now = observation.now(totals(9_000.0), 1 + 3 * WINDOW_US);
        assert!(now.puts > 3_000.0, "{now:?}");
    }

    #[test]
    fn text_keeps_every_figure_and_nothing_hostile_comes_in() {
        let workload = Workload { seconds: 1.5, ranges: 3.25, moved_ns: 1e-9, ..window(1e15, 0.1) };
        assert_eq!(Workload::from_text(&workload.to_text()), workload);
        assert_eq!(Workload::from_text(""), Workload::default());
        let hostile =
            Workload::from_text("puts=NaN deletes=-1 ranges=inf seconds=x future=7 = found_lookups=2");
        assert_eq!(hostile, Workload { found_lookups: 2.0, ..Workload::default() });
        assert_eq!(Workload::default().per_second(5.0), 0.0);
        assert_eq!((workload.entries_per_range(), Workload::default().entries_per_range()), (0.0, 0.0));
    }
}
