//! Rate curves: a filter's false-positive rate as a function of its bits per key.
//!
//! [`Theory`] is Monkey's equation 2, `e^(-bits_per_key * ln2^2)`. [`Measured`] is any other
//! non-increasing curve, as a table. Between its points the *logarithm* of the rate is linear,
//! which is exact for the theory and close for real filters.
//!
//! The one rule asks a curve one question: up to how many bits per key does a further bit still
//! lower the rate by more than a given slope? The answer is unique on a convex curve. Real curves
//! are concave in places (a filter of a tenth of a bit per key rejects nothing at all), so a
//! measured curve answers for its *lower convex hull*. Within a straight piece of the hull a
//! filter's rate is slightly above the hull: by 6 % at most, for the standard filter at half a bit
//! per key.
//!
//! Not here: the source of the measured rates (crate `shamba-filter`).

use super::LN2_SQUARED;
use crate::input;

/// A filter's false-positive rate as a function of its bits per key.
pub trait RateCurve {
    /// The rate at `bits_per_key`: 1 without bits, and non-increasing.
    fn fpr(&self, bits_per_key: f64) -> f64;

    /// The maximum bits per key that still lower the rate; infinite if there is no limit.
    fn largest_bits_per_key(&self) -> f64;

    /// The bits per key up to which one more lowers the rate (its hull) by more than e^`ln_slope`.
    /// The slope is a logarithm, because slopes at many bits per key are below the smallest float.
    fn bits_at_ln_slope(&self, ln_slope: f64) -> f64;
}

/// The best Bloom filter in theory: `e^(-bits_per_key * ln2^2)` (Monkey, equation 2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Theory;

impl RateCurve for Theory {
    fn fpr(&self, bits_per_key: f64) -> f64 {
        // `max` also turns NaN into 0.
        (-bits_per_key.max(0.0) * LN2_SQUARED).exp()
    }

    fn largest_bits_per_key(&self) -> f64 {
        f64::INFINITY
    }

    fn bits_at_ln_slope(&self, ln_slope: f64) -> f64 {
        // The slope at b is -ln2^2 * e^(-b ln2^2).
        ((LN2_SQUARED.ln() - ln_slope) / LN2_SQUARED).max(0.0)
    }
}

/// A measured curve, or any other curve that is given by points.
#[derive(Clone, PartialEq, Debug)]
pub struct Measured {
    /// Bits per key, ascending from 0, and the logarithm of the rate there.
    points: Vec<(f64, f64)>,
    /// The corners of the lower convex hull: their bits per key.
    corners: Vec<f64>,
    /// The logarithm of the slope (as a positive number) from each corner to the next; descending.
    ln_slopes: Vec<f64>,
}

/// Samples per bit in the table of [`Measured::from_fn`].
const ASKED_PER_BIT: u32 = 8;
/// Corners of the hull per bit: bits per key come in steps of 1/32, and their cost is within (ln2^2
/// / 32)^2 / 8 = 0.003 % of the minimum.
const CORNERS_PER_BIT: f64 = 32.0;
/// Maximum bits per key of a table; a larger value indicates a mistake of units.
const BITS_PER_KEY_MAX: f64 = 1024.0;

impl Measured {
    /// The curve through `points`: bits per key and rate, with bits ascending and rates
    /// non-increasing. The point (0 bits, rate 1) is implied. After the last point the rate is
    /// constant.
    ///
    /// # Errors
    /// No points; bits that do not ascend or are out of bounds; a rate that increases, is above 1,
    /// or is 0 (which no filter has: give the bound that was measured).
    pub fn new(points: &[(f64, f64)]) -> Result<Self, String> {
        let mut checked = vec![(0.0, 0.0)];
        let mut before = (0.0, 1.0);
        for (at, &(bits_per_key, rate)) in points.iter().enumerate() {
            let first_at_zero = at == 0 && bits_per_key == 0.0;
            if !(first_at_zero || (bits_per_key > before.0 && bits_per_key <= BITS_PER_KEY_MAX)) {
                return Err(format!(
                    "point {at} of a rate curve is at {bits_per_key} bits per key: points must ascend from \
                     {} to at most {BITS_PER_KEY_MAX}",
                    before.0
                ));
            }
            if !(rate > 0.0 && rate <= before.1) || (first_at_zero && rate < 1.0) {
                return Err(format!(
                    "a rate curve is {rate} at {bits_per_key} bits per key: rates must be above 0, never \
                     rise (before it stands {}), and be 1 without bits",
                    before.1
                ));
            }
            before = (bits_per_key, rate);
            if !first_at_zero {
                checked.push((bits_per_key, rate.ln()));
            }
        }
        if checked.len() == 1 {
            return Err("a rate curve needs at least one point above 0 bits per key".to_owned());
        }
        let (corners, ln_slopes) = hull(&cut(&checked));
        Ok(Self { points: checked, corners, ln_slopes })
    }

    /// The curve that `rate` computes, from 0 to `largest_bits_per_key`. Each value is limited to
    /// the one before it, so that the ripples of integer probe counts do not count as an increase.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn from_fn(rate: impl Fn(f64) -> f64, largest_bits_per_key: f64) -> Result<Self, String> {
        if !(largest_bits_per_key > 0.0 && largest_bits_per_key <= BITS_PER_KEY_MAX) {
            return Err(format!(
                "a rate curve must end above 0 and at most at {BITS_PER_KEY_MAX} bits per key, not at \
                 {largest_bits_per_key}"
            ));
        }
        let mut points = Vec::new();
        let mut lowest = 1.0;
        for step in 1.. {
            let bits_per_key = (f64::from(step) / f64::from(ASKED_PER_BIT)).min(largest_bits_per_key);
            let asked = rate(bits_per_key);
            // Not `min`, which would silently ignore NaN.
            lowest = if asked > lowest { lowest } else { asked };
            points.push((bits_per_key, lowest));
            if bits_per_key == largest_bits_per_key {
                break;
            }
        }
        Self::new(&points)
    }
}

impl RateCurve for Measured {
    fn fpr(&self, bits_per_key: f64) -> f64 {
        let after = self.points.partition_point(|(bits, _)| *bits <= bits_per_key.max(0.0));
        let (bits, ln_rate) = self.points[after - 1];
        let next = self.points.get(after).copied();
        let ln_rate = next.map_or(ln_rate, |next| between((bits, ln_rate), next, bits_per_key));
        ln_rate.exp()
    }

    fn largest_bits_per_key(&self) -> f64 {
        // A flat end saves nothing: its slope is 0, whose logarithm is minus infinity.
        self.bits_at_ln_slope(f64::NEG_INFINITY)
    }

    fn bits_at_ln_slope(&self, ln_slope: f64) -> f64 {
        self.corners[self.ln_slopes.partition_point(|slope| *slope > ln_slope)]
    }
}

/// The logarithm of the rate at `bits_per_key` on the straight line between two points.
fn between(from: (f64, f64), to: (f64, f64), bits_per_key: f64) -> f64 {
    from.1 + (to.1 - from.1) * (bits_per_key.max(0.0) - from.0) / (to.0 - from.0)
}

/// Splits the curve into points and rates (no longer logarithms) so close that straight pieces
/// between them approximate it.
fn cut(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut cut = vec![(0.0, 1.0)];
    for pair in points.windows(2) {
        let [from, to] = [pair[0], pair[1]];
        let pieces = ((to.0 - from.0) * CORNERS_PER_BIT).ceil().max(1.0);
        let mut piece = 1.0;
        while piece < pieces {
            let bits_per_key = from.0 + (to.0 - from.0) * piece / pieces;
            cut.push((bits_per_key, between(from, to, bits_per_key).exp()));
            piece += 1.0;
        }
        cut.push((to.0, to.1.exp()));
    }
    cut
}

/// The lower convex hull of ascending points: the bits per key of its corners, and the logarithms
/// of the slopes between them.
fn hull(points: &[(f64, f64)]) -> (Vec<f64>, Vec<f64>) {
    let slope = |from: (f64, f64), to: (f64, f64)| (from.1 - to.1) / (to.0 - from.0);
    let mut corners: Vec<(f64, f64)> = Vec::new();
    for &point in points {
        // A point is a corner only while the curve is less steep after it than before it.
        while let [.., before, last] = corners[..] {
            if slope(last, point) < slope(before, last) {
                break;
            }
            corners.pop();
        }
        corners.push(point);
    }
    let ln_slopes = corners.windows(2).map(|pair| slope(pair[0], pair[1]).ln()).collect();
    (corners.into_iter().map(|(bits_per_key, _)| bits_per_key).collect(), ln_slopes)
}

/// Rejects bits per key that no curve accepts.
pub(super) fn check_bits_per_key(what: &str, bits_per_key: f64) -> Result<(), String> {
    if bits_per_key == f64::INFINITY { Ok(()) } else { input::not_negative(what, bits_per_key) }
}
