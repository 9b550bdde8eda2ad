//! Allocation: the number of filter bits that each file gets when it is built.
//!
//! There is one rule ([`allocate`]): the fewest false positives for the bits. The kinds of
//! allocation differ only in the assumed frequency w_i of *empty* probes, for keys that the file
//! does not hold, at each file:
//!
//! ```text
//! Uniform    w_i = n_i                                         same bits per key in every filter
//! Monkey     w_i = n_i / n_run * (e + (1 - e) * n_older / n)   lookups spread evenly over the keys
//! Workload   w_i = measured rate + a little of Monkey's        the observed lookups
//! ```
//!
//! with e the empty fraction of the lookups, n_run the entries of the file's run, n_older those of
//! all older runs, n all entries. A lookup reaches one file of each run, hence n_i / n_run. A
//! lookup that finds its key does not continue to older runs, so its empty probes reach a run only
//! if the key is in an older run: n_older / n. With e = 1 this is Monkey for zero-result lookups.
//! The paper's general form (equations 13 to 20) assumes that every key that is found is on the
//! last level; here the real runs count. See [`crate::monkey`] for the paper's form.
//!
//! Worked example: a young run of 1 million keys above an old one of 9 million, 10 bits per key on
//! average.
//!
//! ```
//! use shamba_model::allocation::{Allocation, FilterSite, Limits, Lookups, Theory, allocate};
//!
//! let file = |entries, run| FilterSite { entries, run, empty_probes_per_second: 0.0 };
//! let files = [file(1_000_000, 0), file(9_000_000, 1)];
//! let loads = Allocation::Monkey.loads(&files, Lookups::default())?;
//! let shares = allocate(&loads, &Theory, 100_000_000, Limits::default())?;
//! // 14.1 and 9.5 bits per key: rates proportional to the runs' entries.
//! assert_eq!(shares.bits, [14_115_912, 85_884_088]);
//! # Ok::<(), String>(())
//! ```
//!
//! Not here: the paper's closed forms ([`crate::monkey`]); the residency of written modules
//! ([`crate::joint`]).

mod curve;
mod rule;

use std::fmt;
use std::str::FromStr;

pub use curve::{Measured, RateCurve, Theory};
pub use rule::{BitShares, FilterLoad, Limits, allocate, false_positives_per_second};
#[cfg(test)]
pub(crate) use rule::{Site, solve};

use crate::input;

/// (ln 2)^2: the decrease of the logarithm of the best Bloom filter's rate per bit per key.
pub(crate) const LN2_SQUARED: f64 = std::f64::consts::LN_2 * std::f64::consts::LN_2;

/// The basis on which filter bits are allocated to files.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Allocation {
    /// None: the same bits per key everywhere, as in most stores.
    Uniform,
    /// The sizes of the runs, for lookups spread evenly over the keys.
    #[default]
    Monkey,
    /// The measured rate of empty probes of each file.
    Workload,
}

/// A file, or a whole run, as input of an allocation.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FilterSite {
    /// The entries of the file.
    pub entries: u64,
    /// The age of its run: 0 is the newest. Files with the same number form one run and share no
    /// key.
    pub run: u32,
    /// The measured rate of empty probes; only [`Allocation::Workload`] uses it.
    pub empty_probes_per_second: f64,
}

/// Properties of the lookups as a whole.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Lookups {
    /// The share of lookups that find nothing. 1 gives Monkey for zero-result lookups.
    pub empty_fraction: f64,
    /// For [`Allocation::Workload`]: the prior, as additional lookups per second that are spread
    /// evenly over the keys. It gives a file without measured lookups some bits; without any
    /// measurements the result is Monkey's. 0: measurements only.
    pub prior_per_second: f64,
}

impl Default for Lookups {
    /// All lookups empty, and a weak prior of one lookup per second for Workload.
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

    /// The rate of empty probes of each of these files: the input of [`allocate`].
    ///
    /// # Errors
    /// A file without entries, a rate that is NaN, infinite or negative, or a share outside 0 to 1.
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

/// The expected number of empty probes at each file from one lookup of a key drawn evenly.
fn probes_of_one_lookup(files: &[FilterSite], empty_fraction: f64) -> Vec<f64> {
    let entries_where = |wanted: &dyn Fn(&FilterSite) -> bool| -> f64 {
        files.iter().filter(|file| wanted(file)).map(|file| file.entries as f64).sum()
    };
    let all = entries_where(&|_| true);
    let mut runs: Vec<u32> = files.iter().map(|file| file.run).collect();
    runs.sort_unstable();
    runs.dedup();
    // For each run: its number, its entries, and the expected number of empty probes of one lookup.
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
