//! Miss ratios of the block cache as a function of its size, for skewed lookups.
//!
//! A [`MissRatioCurve`] gives the share of references to data blocks that miss in a cache holding a
//! given share of the data. The cost model multiplies reads by it. There are three sources:
//!
//! * [`MissRatioCurve::EVEN`]: all blocks are referenced equally often, 1 - share;
//! * [`MissRatioCurve::zipf`]: keys of a Zipf distribution in random blocks (Che's approximation of
//!   LRU);
//! * [`ReuseSampler`]: an observed stream, by spatial sampling (SHARDS) in bounded memory.
//!
//! The axis is in shares, not bytes, so that a curve stays valid when the amount of data changes.
//!
//! All three describe LRU. The engine's cache is CLOCK. Under independent references with skew 0.6
//! to 1.2, and every missed block admitted, its miss ratio is up to 3 % lower (relative). When
//! reads are fast and only one missed block in 16 is admitted, it is up to 18 % lower: then the
//! model overestimates misses.
//!
//! Not here: the references themselves (crate `shamba-table`, the block cache).

mod sampler;
mod zipf;

pub use sampler::ReuseSampler;

use crate::input;

/// Points of a curve: shares of the data from 2^-16 to 1, two points an octave.
const POINTS: usize = 33;
const POINTS_PER_OCTAVE: f64 = 2.0;

/// The share of block references that miss, as a non-increasing function of the cached share of the
/// data.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MissRatioCurve {
    /// Miss ratios at the shares of [`share_at`], interpolated linearly. `None`: 1 - share.
    points: Option<[f64; POINTS]>,
}

/// The share of the data at point `at`.
fn share_at(at: usize) -> f64 {
    ((at as f64 - (POINTS - 1) as f64) / POINTS_PER_OCTAVE).exp2()
}

impl Default for MissRatioCurve {
    fn default() -> Self {
        Self::EVEN
    }
}

impl MissRatioCurve {
    /// References are independent and spread evenly over all blocks.
    pub const EVEN: Self = Self { points: None };

    /// The curve of keys with Zipf exponent `alpha` (0 for even) in random order over pages of
    /// `entries_per_page` (below 1 where an entry takes several pages).
    ///
    /// # Errors
    /// An exponent outside of 0 to 10, no entries, or entries per page that are not a finite
    /// positive number.
    pub fn zipf(alpha: f64, entries: u64, entries_per_page: f64) -> Result<Self, String> {
        if !(0.0..=zipf::ALPHA_MAX).contains(&alpha) {
            return Err(format!("Zipf's exponent must be from 0 to {}, not {alpha}", zipf::ALPHA_MAX));
        }
        input::positive("entries per page", entries_per_page)?;
        if entries == 0 {
            return Err("no entries have no miss ratio".to_owned());
        }
        if alpha == 0.0 {
            return Ok(Self::EVEN);
        }
        let keys = zipf::Scattered::new(alpha, entries, entries_per_page.max(1.0));
        Ok(Self::from_fn(|share| keys.miss_ratio(share)))
    }

    /// A curve through `miss_ratio(share)` for shares above 0 up to 1. Values are clamped to 0..=1
    /// and made non-increasing; a NaN counts as the value before it.
    pub fn from_fn(miss_ratio: impl Fn(f64) -> f64) -> Self {
        let mut least = 1.0f64;
        let points = std::array::from_fn(|at| {
            // `min` ignores NaN.
            least = least.min(miss_ratio(share_at(at))).max(0.0);
            least
        });
        Self { points: Some(points) }
    }

    /// The share of references that miss in a cache of this share of the data; the share is clamped
    /// to 0..=1.
    pub fn miss_ratio(&self, cached_share: f64) -> f64 {
        let share = cached_share.clamp(0.0, 1.0);
        let Some(points) = &self.points else { return 1.0 - share };
        let place = share.log2() * POINTS_PER_OCTAVE + (POINTS - 1) as f64;
        if place.is_nan() || place < 0.0 {
            // Linear from an empty cache, which misses everything, to the first point.
            return 1.0 - (1.0 - points[0]) * share / share_at(0);
        }
        let left = (place as usize).min(POINTS - 2);
        let (from, to) = (share_at(left), share_at(left + 1));
        let part = ((share - from) / (to - from)).clamp(0.0, 1.0);
        points[left] + (points[left + 1] - points[left]) * part
    }

    /// The points of the curve: (share of the data, miss ratio), by ascending share. [`Self::EVEN`]
    /// has its two ends.
    pub fn points(&self) -> Vec<(f64, f64)> {
        match &self.points {
            None => vec![(0.0, 1.0), (1.0, 0.0)],
            Some(points) => points.iter().enumerate().map(|(at, missed)| (share_at(at), *missed)).collect(),
        }
    }
}

#[cfg(test)]
mod tests;
