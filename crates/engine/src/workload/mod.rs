//! The observed workload: recent operations, and the time that flushes and compactions took.
//!
//! It adds no counters of its own: lookups are counted by thread, writes by the group commit
//! leader, scans where they end, flushes and compactions by the job. A *window* is the difference
//! of these counters between two observations. A [`Workload`] is the sum of the windows, with
//! exponential decay: a window's weight halves every [`HALF_LIFE_S`] of time with operations. Idle
//! time does not count, because a quiet night says nothing about the next day. The manifest stores
//! the workload of the last close or redesign among the settings, so that a command that opens the
//! database can use it.
//!
//! The divergence of each window's mix from the one before is summed and decays with the counts. It
//! tells the tuner whether the workload alternates ([`Workload::variation`]).
//!
//! [`WorkloadObserver`] takes the windows. It also knows how lookups repeat ([`locality`]).
//!
//! Not here: the lookups of each table ([`crate::statistics`]); conclusions
//! ([`crate::tuning::advise`]).

pub(crate) mod locality;
mod observer;
#[cfg(test)]
mod tests;

use shamba_model::robust::OPERATIONS;

pub(crate) use self::observer::WorkloadObserver;

/// Half-life of observations, in seconds with operations: twelve such seconds after a change, the
/// old workload has an eighth of the weight.
pub(crate) const HALF_LIFE_S: f64 = 4.0;
/// Length of a window.
pub(crate) const WINDOW_US: u64 = 2_000_000;
/// Minimum operations of a window; one with fewer is idle.
const OPERATIONS_MIN: f64 = 16.0;

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
    /// Puts, and operands of merge operators.
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

    /// Degree to which the mix of operations alternates: the mean divergence of successive windows
    /// from the mix halfway between them, in nats, at most ln 2. It is 0 if the windows differ only
    /// by sampling noise. After one lasting change it is at most a third of ln 2, and halves every
    /// four seconds with operations.
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
