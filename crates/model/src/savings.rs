//! Savings curves: the saving of the first n bytes of one kind of memory.
//!
//! Pieces that memory may hold (filter modules, index partitions, portions of a block cache's hits)
//! each take bytes and save nanoseconds per second. Held in descending order of savings per byte
//! they form a concave curve: each byte saves at most as much as the one before it. Between whole
//! pieces the curve is linear.
//!
//! Not here: the saving of each kind of piece ([`crate::value`], [`crate::residency`]); the
//! division of memory ([`crate::arbiter`]).

use crate::input;

/// One piece that memory may hold.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Holding {
    /// Memory that it takes.
    pub bytes: u64,
    /// Saving while it is held. A piece with a negative saving is never held.
    pub saved_ns_per_second: f64,
}

impl Holding {
    /// Saving per byte, in nanoseconds per second.
    pub(crate) fn per_byte(&self) -> f64 {
        self.saved_ns_per_second / self.bytes as f64
    }

    pub(crate) fn validate(&self) -> Result<(), String> {
        if self.bytes == 0 {
            return Err("it takes no bytes: savings per byte mean nothing".to_owned());
        }
        input::not_negative("its saving, sign aside,", self.saved_ns_per_second.abs())
    }
}

/// The saving of memory as a function of its bytes: concave and non-decreasing.
#[derive(Clone, PartialEq, Debug)]
pub struct SavingsCurve {
    /// Bytes and savings after each holding, from (0, 0).
    corners: Vec<(u64, f64)>,
}

impl SavingsCurve {
    /// The curve of these holdings, best first. Those that save nothing are left out.
    ///
    /// # Errors
    /// A holding of no bytes, or savings that are NaN or infinite.
    pub fn new(holdings: &[Holding]) -> Result<Self, String> {
        for (at, holding) in holdings.iter().enumerate() {
            input::of_list("holding", at, holding.validate())?;
        }
        let mut useful: Vec<&Holding> =
            holdings.iter().filter(|holding| holding.saved_ns_per_second > 0.0).collect();
        // A stable sort: equals stay in the given order, so that sums are reproducible.
        useful.sort_by(|a, b| b.per_byte().total_cmp(&a.per_byte()));
        let mut corners = vec![(0, 0.0)];
        let (mut bytes, mut saved) = (0u64, 0.0);
        for holding in useful {
            bytes = bytes.saturating_add(holding.bytes);
            saved += holding.saved_ns_per_second;
            corners.push((bytes, saved));
        }
        if saved.is_infinite() {
            return Err("the holdings together save more than a float can hold".to_owned());
        }
        Ok(Self { corners })
    }

    /// The number of bytes that save anything.
    pub fn useful_bytes(&self) -> u64 {
        self.corners[self.corners.len() - 1].0
    }

    /// The saving of the first `bytes`, in nanoseconds per second.
    pub fn saved_ns_per_second(&self, bytes: u64) -> f64 {
        let after = self.corners.partition_point(|corner| corner.0 <= bytes);
        let (from_bytes, from) = self.corners[after - 1];
        let Some(&(to_bytes, to)) = self.corners.get(after) else {
            return from;
        };
        from + (to - from) * (bytes - from_bytes) as f64 / (to_bytes - from_bytes) as f64
    }

    /// The saving of `step_bytes` more than `bytes`, in nanoseconds per second per byte.
    pub fn gain_per_byte(&self, bytes: u64, step_bytes: u64) -> f64 {
        self.per_byte(bytes, bytes.saturating_add(step_bytes))
    }

    /// The saving of the last `step_bytes` of `bytes`, in nanoseconds per second per byte: the loss
    /// if they are evicted.
    pub fn loss_per_byte(&self, bytes: u64, step_bytes: u64) -> f64 {
        self.per_byte(bytes.saturating_sub(step_bytes), bytes)
    }

    fn per_byte(&self, from: u64, to: u64) -> f64 {
        let saved = self.saved_ns_per_second(to) - self.saved_ns_per_second(from);
        // The sums of large curves may differ by rounding where they are flat.
        if to > from { (saved / (to - from) as f64).max(0.0) } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn holding(bytes: u64, saved_ns_per_second: f64) -> Holding {
        Holding { bytes, saved_ns_per_second }
    }

    #[test]
    fn the_best_comes_first_and_what_saves_nothing_never() {
        let holdings =
            [holding(10, 10.0), holding(5, 20.0), holding(7, 0.0), holding(20, 10.0), holding(1, -3.0)];
        let curve = SavingsCurve::new(&holdings).unwrap();
        for (bytes, saved) in
            [(0, 0.0), (1, 4.0), (5, 20.0), (10, 25.0), (15, 30.0), (25, 35.0), (35, 40.0), (99, 40.0)]
        {
            assert!((curve.saved_ns_per_second(bytes) - saved).abs() < 1e-12, "{bytes}");
        }
        assert_eq!(curve.useful_bytes(), 35);
        assert_eq!((curve.gain_per_byte(5, 10), curve.loss_per_byte(5, 100)), (1.0, 4.0));
        assert_eq!(
            (curve.gain_per_byte(35, 10), curve.loss_per_byte(0, 10), curve.gain_per_byte(3, 0)),
            (0.0, 0.0, 0.0)
        );
        assert_eq!(SavingsCurve::new(&[]).unwrap().saved_ns_per_second(7), 0.0);
    }

    #[test]
    fn bad_input_is_refused_with_its_reason() {
        let error = SavingsCurve::new(&[holding(1, 1.0), holding(0, 1.0)]).unwrap_err();
        assert!(error.contains("holding 1") && error.contains("no bytes"), "{error}");
        for saved in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert!(SavingsCurve::new(&[holding(1, saved)]).unwrap_err().contains("holding 0"));
        }
    }

    proptest! {
        #[test]
        fn curves_are_concave_and_never_fall(
            holdings in prop::collection::vec((1u64..1000, -10.0..1000.0f64), 0..20),
            bytes in 0u64..10_000, step in 1u64..500,
        ) {
            let holdings: Vec<Holding> = holdings.into_iter().map(|(bytes, saved)| holding(bytes, saved)).collect();
            let curve = SavingsCurve::new(&holdings).unwrap();
            let (gain, loss) = (curve.gain_per_byte(bytes, step), curve.loss_per_byte(bytes + step, step));
            prop_assert!((gain - loss).abs() < 1e-9);
            prop_assert!(curve.gain_per_byte(bytes + step, step) <= gain + 1e-9);
        }
    }
}
