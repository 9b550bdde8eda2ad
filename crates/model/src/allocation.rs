//! Allocation: how many filter bits each file gets when it is built.
//!
//! There is one rule ([`allocate`]): the fewest false positives for the bits. What is called an allocation is
//! only the answer to the question how often an *empty* probe, one for a key that the file does not hold,
//! reaches each file:
//!
//! ```text
//! Uniform    w_i = n_i                                     every filter gets the same bits per key
//! Monkey     w_i = n_i / n_run * (e + (1 - e) * n_older / n)     lookups spread evenly over the keys
//! Workload   w_i = what was measured, and a little of Monkey     lookups as they are
//! ```
//!
//! with e the empty fraction of the lookups, n_run the entries of the file's run, n_older those of all older
//! runs, n all entries. A lookup reaches one file of each run, hence n_i / n_run. One that finds its key does not
//! go on to older runs, so its empty probes reach a run only if the key lies further down: n_older / n.
//! With e = 1 this is Monkey for zero-result lookups. The paper's general form (equations 13 to 20) takes every
//! key that is found for one of the last level; here the real runs count. See [`crate::monkey`] for the paper's.
//!
//! Worked example: a young run of 1 million keys above an old one of 9 million, 10 bits per key on average.
//!
//! ```
//! use shamba_model::allocation::{Allocation, FilterSite, Limits, Lookups, Theory, allocate};
//!
//! let file = |entries, run| FilterSite { entries, run, empty_probes_per_second: 0.0 };
//! let files = [file(1_000_000, 0), file(9_000_000, 1)];
//! let loads = Allocation::Monkey.loads(&files, Lookups::default())?;
//! let shares = allocate(&loads, &Theory, 100_000_000, Limits::default())?;
//! // 14.1 and 9.5 bits per key: rates in proportion to the runs' entries.
//! assert_eq!(shares.bits, [14_115_912, 85_884_088]);
//! # Ok::<(), String>(())
//! ```
//!
//! Not here: the paper's closed forms ([`crate::monkey`]); which modules of what was written are in memory
//! ([`crate::residency`]).

mod curve;
mod rule;

use std::fmt;
use std::str::FromStr;

pub use curve::{Measured, RateCurve, Theory};
pub use rule::{FilterLoad, Limits, Shares, allocate, false_positives_per_second};
#[cfg(test)]
pub(crate) use rule::{Site, solve};

use crate::input;

/// (ln 2)^2: what a bit per key takes off the logarithm of the best Bloom filter's rate.
pub(crate) const LN2_SQUARED: f64 = std::f64::consts::LN_2 * std::f64::consts::LN_2;

/// What the filter bits of files follow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Allocation {
    /// Nothing: the same bits per key everywhere, as most stores do.
    Uniform,
    /// The sizes of the runs, for lookups spread evenly over the keys.
    #[default]
    Monkey,
    /// The empty probes that each file was seen to get.
    Workload,
}

/// A file, or a whole run, as an allocation sees it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FilterSite {
    /// The entries of the file.
    pub entries: u64,
    /// The age of its run: 0 is the newest. Files of the same number are one run, and share no key.
    pub run: u32,
    /// The empty probes that were seen to reach it; only [`Allocation::Workload`] asks for them.
    pub empty_probes_per_second: f64,
}

/// What is known of the lookups as a whole.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Lookups {
    /// The share of lookups that find nothing. 1 gives Monkey for zero-result lookups.
    pub empty_fraction: f64,
    /// For [`Allocation::Workload`]: as if so many more lookups came, spread evenly over the keys. So a file
    /// that nobody has asked for yet still gets some bits, and without measurements it is Monkey. 0: measured
    /// only.
    pub prior_per_second: f64,
}

impl Default for Lookups {
    /// All empty, and for Workload a weak prior: of one lookup a second.
    fn default() -> Self {
        Self { empty_fraction: 1.0, prior_per_second: 1.0 }
    }
}

impl Allocation {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Uniform, Self::Monkey, Self::Workload];

    /// The name in options and output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Monkey => "monkey",
            Self::Workload => "workload",
        }
    }

    /// How often empty probes reach each of these files: what [`allocate`] works from.
    ///
    /// # Errors
    /// A file without entries, or a rate or share that is none.
    pub fn loads(self, files: &[FilterSite], lookups: Lookups) -> Result<Vec<FilterLoad>, String> {
        input::share("the empty fraction", lookups.empty_fraction)?;
        input::not_negative("the prior of lookups per second", lookups.prior_per_second)?;
        for (at, file) in files.iter().enumerate() {
            if file.entries == 0 {
                return Err(format!("file {at} has no entries: bits per key mean nothing"));
            }
            let probes = input::not_negative("its empty probes per second", file.empty_probes_per_second);
            input::of_list("file", at, probes)?;
        }
        let reached = probes_of_one_lookup(files, lookups.empty_fraction);
        let load = |(file, reached): (&FilterSite, f64)| {
            let empty_probes_per_second = match self {
                Self::Uniform => file.entries as f64,
                Self::Monkey => reached,
                Self::Workload => file.empty_probes_per_second + lookups.prior_per_second * reached,
            };
            FilterLoad { entries: file.entries, empty_probes_per_second }
        };
        Ok(files.iter().zip(reached).map(load).collect())
    }
}

/// The empty probes that one lookup, of a key drawn evenly, is expected to send to each file.
fn probes_of_one_lookup(files: &[FilterSite], empty_fraction: f64) -> Vec<f64> {
    let entries_where = |wanted: &dyn Fn(&FilterSite) -> bool| -> f64 {
        files.iter().filter(|file| wanted(file)).map(|file| file.entries as f64).sum()
    };
    let all = entries_where(&|_| true);
    let mut runs: Vec<u32> = files.iter().map(|file| file.run).collect();
    runs.sort_unstable();
    runs.dedup();
    // Of each run: its number, its entries, and the share of a lookup that reaches it and finds nothing there.
    let of_runs: Vec<(u32, f64, f64)> = runs
        .iter()
        .map(|run| {
            let older = entries_where(&|file| file.run > *run);
            let reached = empty_fraction + (1.0 - empty_fraction) * older / all;
            (*run, entries_where(&|file| file.run == *run), reached)
        })
        .collect();
    let of_file = |file: &FilterSite| match of_runs.binary_search_by_key(&file.run, |run| run.0) {
        Ok(at) => of_runs[at].2 * file.entries as f64 / of_runs[at].1,
        Err(_) => 0.0,
    };
    files.iter().map(of_file).collect()
}

impl fmt::Display for Allocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Allocation {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|allocation| allocation.name() == name).ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            format!("unknown filter allocation {name:?} (known: {known})")
        })
    }
}

#[cfg(test)]
mod tests;
