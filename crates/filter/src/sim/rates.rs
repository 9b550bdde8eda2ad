//! Measurement of false-positive rates: filters of random keys, probed with random absent keys.
//!
//! There are two sources of variance: the choice of absent keys, and the distribution of keys over
//! the lines of a filter. The second does not shrink with more absent keys. So several filters are
//! built, and the standard error of the mean is computed from the spread of their rates, which
//! includes both.
//!
//! Not here: the measured rates ([`crate::measured`]).

use crate::filter::Filter;
use crate::fpr::layout_fpr;
use crate::layout::FilterLayout;
use crate::sim::Numbers;
use shamba_key::KeyDigest;

/// The extent of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Number of filters to build, at least two.
    pub filters: u32,
    /// Keys of each filter. With a multiple of 4,096, eighths of bits per key are whole lines.
    pub keys_per_filter: usize,
    /// Number of false positives to observe over all filters; the theoretical rate gives the number
    /// of absent keys that this needs.
    pub passes_wanted: f64,
    /// Maximum number of absent keys that are probed, over all filters.
    pub absent_keys_max: u64,
}

impl Effort {
    /// The effort of the checked-in table: errors of 0.4 % up to 14 bits per key.
    pub const FULL: Self = Self {
        filters: 16,
        keys_per_filter: 409_600,
        passes_wanted: 100_000.0,
        absent_keys_max: 150_000_000,
    };
    /// A measurement that takes seconds: errors of some 2 %.
    pub const QUICK: Self =
        Self { filters: 16, keys_per_filter: 40_960, passes_wanted: 5_000.0, absent_keys_max: 1_500_000 };
}

/// A measured false-positive rate.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// The share of absent keys that passed.
    pub fpr: f64,
    /// Its standard error.
    pub error: f64,
    /// Number of absent keys probed.
    pub absent_keys: u64,
}

impl Rate {
    /// The distance between this rate and another, in standard errors of both together.
    pub fn departure_in_errors(self, fpr: f64, error: f64) -> f64 {
        // Rates very close to 1 have errors of 0: use an error of one in a thousand million
        // instead.
        (self.fpr - fpr).abs() / self.error.hypot(error).max(1e-9)
    }
}

/// The rate of `layout` at `bits_per_key`; 1 when there are no bits.
pub fn measure(layout: FilterLayout, bits_per_key: f64, seed: u64, effort: Effort) -> Rate {
    let filters = effort.filters.max(2);
    let absent_keys = effort.passes_wanted / layout_fpr(layout, bits_per_key);
    let per_filter = (absent_keys.min(effort.absent_keys_max as f64) / f64::from(filters)).max(1000.0) as u64;
    let rates: Vec<f64> = (0..filters)
        .map(|number| {
            // One stream for keys and absent keys, so that no two are the same.
            let mut numbers = Numbers(Numbers(seed ^ bits_per_key.to_bits() ^ u64::from(number)).draw());
            let mut digests = std::iter::repeat_with(move || KeyDigest::from_raw(numbers.draw()));
            let keys: Vec<KeyDigest> = digests.by_ref().take(effort.keys_per_filter).collect();
            let filter = Filter::build(&keys, layout, bits_per_key);
            let may_contain = |digest| filter.as_ref().is_none_or(|filter| filter.may_contain(digest));
            let passed = (0..per_filter).zip(digests).filter(|(_, digest)| may_contain(*digest)).count();
            passed as f64 / per_filter as f64
        })
        .collect();
    let count = f64::from(filters);
    let mean = rates.iter().sum::<f64>() / count;
    let variance = rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>() / (count - 1.0);
    Rate { fpr: mean, error: (variance / count).sqrt(), absent_keys: per_filter * u64::from(filters) }
}
