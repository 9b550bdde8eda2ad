//! The observed workload: what was asked of the database lately, and what moving data took.
//!
//! Nothing is counted for it that is not counted anyway (lookups by thread, writes by whoever leads a commit, scans where
//! they end, flushes and merges by the job): a *window* is the difference of two looks at these counters. Windows add up
//! to a [`Workload`] in which old ones count less, by half in [`HALF_LIFE_S`] of time in which something was asked:
//! a quiet night says nothing about the next day. The workload as of the last close, or of the last redesign, is in the
//! manifest, among the settings, so that a command that opens the database has something to go by.
//!
//! How far the mix of each window is from the one before is summed beside the counts, and fades with them: so the tuner
//! knows whether the workload alternates ([`Workload::variation`]).
//!
//! Not here: which table is asked how often ([`crate::statistics`]); what follows from it ([`crate::advise`]).

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use shamba_model::robust::{OPERATIONS, swing};

use crate::core::Core;
use crate::db::Db;
use shamba_env::lock;
use shamba_tree::version::Pairs;

/// Seconds of work in which what was seen loses half of its weight: when a workload changes, the old one is an eighth of
/// what counts after three times as long.
pub(crate) const HALF_LIFE_S: f64 = 4.0;
/// How often the counters are looked at.
pub(crate) const WINDOW_US: u64 = 2_000_000;
/// Fewer operations in a window are nobody at work.
const OPERATIONS_LEAST: f64 = 16.0;
/// The setting that keeps it.
pub(crate) const SETTING: &str = "observed-workload";

macro_rules! workload {
    ($($(#[$doc:meta])* $field:ident,)*) => {
        /// What was asked of a database lately. Counts of the last seconds in which something was asked; older ones fade, so
        /// fractions count. [`Self::per_second`] makes rates of them.
        #[derive(Clone, Copy, Default, PartialEq, Debug)]
        #[non_exhaustive]
        pub struct Workload {
            $($(#[$doc])* pub $field: f64,)*
        }

        impl Workload {
            /// With so much of it.
            fn scaled(self, by: f64) -> Self {
                Self { $($field: self.$field * by,)* }
            }

            fn and(self, other: Self) -> Self {
                Self { $($field: self.$field + other.$field,)* }
            }

            /// What came since `earlier`.
            fn since(self, earlier: Self) -> Self {
                Self { $($field: (self.$field - earlier.$field).max(0.0),)* }
            }

            /// One line of text, for the manifest.
            pub(crate) fn to_text(self) -> String {
                [$(format!(concat!(stringify!($field), "={}"), self.$field)),*].join(" ")
            }

            /// From [`Self::to_text`]; what is missing is 0, what is unknown or no count is passed over.
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
    /// The time itself, in seconds.
    seconds,
    /// Lookups that found nothing.
    empty_lookups,
    /// Lookups that found a value.
    found_lookups,
    /// Puts.
    puts,
    /// Point and range deletes.
    deletes,
    /// Scans, by the places where they began.
    ranges,
    /// Entries that they read.
    range_entries,
    /// Bytes of the keys and values that were written.
    user_bytes,
    /// Entries that flushes and merges found to be obsolete and dropped.
    dropped_entries,
    /// Bytes of tables that flushes and merges wrote.
    moved_bytes,
    /// Nanoseconds that this took.
    moved_ns,
    /// Windows of time with work in them.
    windows,
    /// How far the mix of each of them was from the one before, summed ([`shamba_model::robust::swing`]).
    swings,
}

impl Workload {
    /// A count as a rate; 0 before anything was seen.
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

    /// Entries that a scan reads on average; 0 without scans.
    pub fn entries_per_range(&self) -> f64 {
        if self.ranges > 0.0 { self.range_entries / self.ranges } else { 0.0 }
    }

    /// Nanoseconds that flushing and merging takes for each byte that it writes, if some was seen.
    pub fn move_ns_per_byte(&self) -> Option<f64> {
        (self.moved_bytes > 0.0 && self.moved_ns > 0.0).then(|| self.moved_ns / self.moved_bytes)
    }

    /// The share of updates that made an older entry obsolete, as far as merges have found out; 0 without updates.
    pub fn overwritten_share(&self) -> f64 {
        if self.updates() > 0.0 { (self.dropped_entries / self.updates()).min(1.0) } else { 0.0 }
    }

    /// Lookups that find nothing and that find, updates and ranges.
    pub(crate) fn rates(&self) -> [f64; OPERATIONS] {
        [self.empty_lookups, self.found_lookups, self.updates(), self.ranges]
    }

    /// How far the mix of operations alternates: the mean divergence of successive windows from the mix halfway
    /// between them, in nats, at most ln 2. 0 while the mix stays the same, but for chance; after a change that lasts at
    /// most a third of ln 2, halved every four seconds of work.
    pub fn variation(&self) -> f64 {
        if self.windows > 0.0 { self.swings / self.windows } else { 0.0 }
    }

    /// With another window. One in which nobody was at work changes nothing but what was moved.
    #[must_use]
    pub(crate) fn next(self, window: Self) -> Self {
        if window.operations() < OPERATIONS_LEAST {
            let moved =
                Self { moved_bytes: window.moved_bytes, moved_ns: window.moved_ns, ..Self::default() };
            return self.and(moved);
        }
        self.scaled((-window.seconds / HALF_LIFE_S).exp2()).and(window)
    }
}

/// What a database remembers of its workload.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Observation {
    /// The counters at the last look, and when that was.
    totals: Workload,
    last_us: Option<u64>,
    /// What was seen up to then.
    workload: Workload,
    /// The last window alone.
    latest: Workload,
    /// The operations of the last window with work in it.
    last_rates: [f64; OPERATIONS],
}

impl Observation {
    /// Goes on from what an earlier process saw.
    pub fn begin_with(&mut self, workload: Workload) {
        self.workload = workload;
    }

    /// Takes a look at the counters in; true if a window with work in it has ended.
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
        if window.operations() >= OPERATIONS_LEAST {
            (window.windows, window.swings) = (1.0, swing(&self.last_rates, &window.rates()));
            self.last_rates = window.rates();
        }
        self.workload = self.workload.next(window);
        self.latest = window;
        window.operations() >= OPERATIONS_LEAST
    }

    /// What was seen, with what came since the last look.
    fn now(self, totals: Workload, now_us: u64) -> Workload {
        let Some(last_us) = self.last_us else { return self.workload };
        let seconds = now_us.saturating_sub(last_us) as f64 / 1e6;
        self.workload.next(Workload { seconds, ..totals.since(self.totals) })
    }
}

impl Db {
    /// What was asked of the database lately, in this process or, if that was nothing yet, before it was closed last.
    pub fn workload(&self) -> Workload {
        self.core().workload()
    }
}

impl Core {
    /// Goes on from the workload that the manifest has.
    pub(crate) fn load_workload(&self, settings: &BTreeMap<String, String>) {
        if let Some(text) = settings.get(SETTING) {
            lock(&self.observation).begin_with(Workload::from_text(text));
        }
        self.observe(); // From here on.
    }

    /// What the manifest is to keep of it.
    pub(crate) fn observed_pairs(&self) -> Pairs {
        let workload = self.workload();
        let is_known = workload.seconds > 0.0;
        is_known.then(|| (SETTING.to_owned(), workload.to_text())).into_iter().collect()
    }

    /// Looks at the counters, if it is time; true if a window with work in it has ended.
    pub(crate) fn observe(&self) -> bool {
        let now_us = self.env.clock.now_us();
        let has_ended = lock(&self.observation).look(self.totals(), now_us);
        if has_ended {
            self.count_references();
        }
        has_ended
    }

    /// What was asked lately.
    pub(crate) fn workload(&self) -> Workload {
        let now_us = self.env.clock.now_us();
        lock(&self.observation).now(self.totals(), now_us)
    }

    /// The last window alone: what goes on just now. Nothing before the first has ended.
    pub(crate) fn latest_window(&self) -> Workload {
        lock(&self.observation).latest
    }

    /// Everything since the open, as a workload without time.
    fn totals(&self) -> Workload {
        let (lookups, walked, work) = (self.lookups.total(), self.iterators.walked(), &self.work);
        let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed) as f64;
        Workload {
            seconds: 0.0,
            empty_lookups: lookups.lookups.saturating_sub(lookups.found) as f64,
            found_lookups: lookups.found as f64,
            puts: count(&work.puts),
            deletes: count(&work.deletes) + count(&work.range_deletes),
            // Each part of a long one counts: else it would be one scan of ever more entries beside operations that fade.
            ranges: (walked.ranges + walked.goings_on) as f64,
            range_entries: walked.entries as f64,
            user_bytes: count(&work.bytes_user),
            dropped_entries: count(&work.entries_dropped),
            moved_bytes: count(&work.bytes_flushed) + count(&work.bytes_merged),
            moved_ns: (count(&work.flush_us) + count(&work.merge_us)) * 1e3,
            // Windows have these, totals do not.
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
        // Nobody at work: nothing fades, but what merges did is known.
        let idle = Workload { moved_bytes: 7.0, moved_ns: 14.0, ..window(3.0, 2.0) };
        let after = workload.next(idle);
        assert_eq!((after.puts, after.seconds), (workload.puts, workload.seconds));
        assert_eq!(after.move_ns_per_byte(), Some(2.0));
    }

    /// The variation after each of some windows of puts and empty lookups.
    fn variations(windows: impl IntoIterator<Item = (f64, f64)>) -> Vec<f64> {
        let mut observation = Observation::default();
        let mut totals = Workload::default();
        observation.look(totals, 0);
        let mut variation = |(at, (puts, empty_lookups)): (u64, (f64, f64))| {
            totals = totals.and(Workload { puts, empty_lookups, ..Workload::default() });
            observation.look(totals, at * WINDOW_US);
            // A window that has not ended says nothing.
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
            // As many more or less by chance are no other mix; nor is another rate, nor a pause.
            variations((0..50).map(|at| (40.0 + f64::from(at % 7), 40.0))),
            variations((0..50).map(|at| (7_000.0 * f64::from(1 + at % 9), 3_000.0 * f64::from(1 + at % 9)))),
            variations((0..50).map(|at| if at % 3 == 0 { (1.0, 0.0) } else { (7_000.0, 3_000.0) })),
        ] {
            assert!(steady.iter().all(|variation| *variation == 0.0), "{steady:?}");
        }
        // To and fro: each window is of one kind.
        let swinging = variations((0..50).map(|at| if at % 2 == 0 { (1e4, 0.0) } else { (0.0, 1e4) }));
        assert!((swinging[49] - 2f64.ln()).abs() < 1e-6, "{swinging:?}");
        // Once and for all.
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
