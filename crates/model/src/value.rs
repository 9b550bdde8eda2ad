//! The value of a write buffer: the compaction work that a larger one saves, in expected
//! nanoseconds per second.
//!
//! It follows Monkey's equations 10 and 11. With L = log_T(N E / M_buf * (T-1) / T) not rounded up,
//! every update is merged L * (T-1) / (K+1) times in pages of B entries, each read and written, and
//! a range lookup visits L * K runs. Hence dL/dM = -1 / (M ln T), and a byte saves `gamma` / M,
//! with the gamma of equations 25 to 28.
//!
//! [`Prices::COUNTING_IOS`] is the currency of the papers: a read costs 1, so that savings are
//! I/Os.
//!
//! Not here: the value of other memory and its division ([`crate::memory`]).

use crate::design::Design;
use crate::input;
use crate::updates::merges_per_level;

/// Prices of reading and writing a page.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Prices {
    /// Price of reading one page from storage.
    pub read_ns: f64,
    /// Price of writing one page.
    pub write_ns: f64,
}

impl Prices {
    /// I/Os instead of nanoseconds, with a write priced as a read: the unit of the papers.
    pub const COUNTING_IOS: Self = Self { read_ns: 1.0, write_ns: 1.0 };

    fn validate(&self) -> Result<(), String> {
        input::not_negative("the price of a read", self.read_ns)?;
        input::not_negative("the price of a write", self.write_ns)
    }
}

/// The value of a tree's write buffer under its writes and scans.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct WriteBuffer {
    /// gamma: the saving of a buffer e times as large, in nanoseconds per second.
    per_ln_bytes: f64,
}

impl WriteBuffer {
    /// A buffer that saves nothing: there are no writes.
    pub const WORTHLESS: Self = Self { per_ln_bytes: 0.0 };

    /// The buffer of a tree of this design, with `updates_per_second` and `scans_per_second`. Pages
    /// hold `entries_per_page`, less than 1 where an entry takes several pages. A scan costs one
    /// search of `search_ns` per run.
    ///
    /// # Errors
    /// A design out of bounds, or a rate or price that is NaN, infinite or negative.
    pub fn new(
        design: &Design,
        prices: &Prices,
        updates_per_second: f64,
        entries_per_page: f64,
        scans_per_second: f64,
        search_ns: f64,
    ) -> Result<Self, String> {
        design.validate()?;
        prices.validate()?;
        input::not_negative("updates per second", updates_per_second)?;
        input::not_negative("scans per second", scans_per_second)?;
        input::not_negative("the cost of a search", search_ns)?;
        input::positive("entries per page", entries_per_page)?;
        let (t, k) = (design.size_ratio, f64::from(design.inner_runs));
        let merged_pages_per_second = updates_per_second * merges_per_level(t, k) / entries_per_page;
        let level_ns_per_second =
            merged_pages_per_second * (prices.read_ns + prices.write_ns) + scans_per_second * k * search_ns;
        let per_ln_bytes = level_ns_per_second / t.ln();
        if per_ln_bytes.is_infinite() {
            return Err("the write buffer's savings are more than a float can hold".to_owned());
        }
        Ok(Self { per_ln_bytes })
    }

    /// gamma: the saving of a buffer e times as large, in nanoseconds per second.
    pub fn per_ln_bytes(&self) -> f64 {
        self.per_ln_bytes
    }

    /// The saving of a buffer of `to_bytes` over one of `from_bytes`, in nanoseconds per second;
    /// each counts as at least one byte.
    pub fn saved_ns_per_second(&self, from_bytes: u64, to_bytes: u64) -> f64 {
        self.per_ln_bytes * (to_bytes.max(1) as f64 / from_bytes.max(1) as f64).ln()
    }

    /// The saving of `step_bytes` more, in nanoseconds per second per byte.
    pub fn gain_per_byte(&self, buffer_bytes: u64, step_bytes: u64) -> f64 {
        self.saved_ns_per_second(buffer_bytes, buffer_bytes.saturating_add(step_bytes))
            / step_bytes.max(1) as f64
    }

    /// The saving of the last `step_bytes`, in nanoseconds per second per byte. If the buffer is
    /// not larger than that, all bytes but one are counted.
    pub fn loss_per_byte(&self, buffer_bytes: u64, step_bytes: u64) -> f64 {
        let given = step_bytes.min(buffer_bytes.saturating_sub(1));
        self.saved_ns_per_second(buffer_bytes - given, buffer_bytes) / given.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MergePolicy;
    use proptest::prelude::*;

    const PRICES: Prices = Prices { read_ns: 80_000.0, write_ns: 20_000.0 };

    /// Monkey's [10] in I/Os per update (a read counts 1, a write phi) and [11] in I/Os per range
    /// lookup without the pages of its range; L not rounded up.
    fn papers_costs(tiering: bool, t: f64, page_entries: f64, phi: f64, data_over_buffer: f64) -> (f64, f64) {
        let levels = (data_over_buffer * (t - 1.0) / t).ln() / t.ln();
        let merges = if tiering { (t - 1.0) / t } else { (t - 1.0) / 2.0 };
        let runs = if tiering { t - 1.0 } else { 1.0 };
        (levels / page_entries * merges * (1.0 + phi), levels * runs)
    }

    #[test]
    fn the_write_buffer_saves_what_equations_10_and_11_lose() {
        let prices = Prices { write_ns: 3.0, ..Prices::COUNTING_IOS };
        for (policy, tiering) in [(MergePolicy::Leveling, false), (MergePolicy::Tiering, true)] {
            let design = Design::new(policy, 5.0, 1 << 20, 10.0);
            let cost = |buffer_bytes: u64| {
                let (update, scan) = papers_costs(tiering, 5.0, 4.0, 3.0, 1e12 / buffer_bytes as f64);
                1_000.0 * update + 10.0 * scan
            };
            let buffer = WriteBuffer::new(&design, &prices, 1_000.0, 4.0, 10.0, 1.0).unwrap();
            let saved = buffer.saved_ns_per_second(1 << 20, 3 << 20);
            assert!((saved - (cost(1 << 20) - cost(3 << 20))).abs() < 1e-9 * saved);
            let per_byte = (cost(1 << 20) - cost((1 << 20) + 64)) / 64.0;
            assert!((buffer.gain_per_byte(1 << 20, 64) / per_byte - 1.0).abs() < 1e-4);
        }
    }

    #[test]
    fn bad_input_is_refused_with_its_reason() {
        let design = Design::default();
        for bad in [f64::NAN, -1.0, f64::INFINITY] {
            for prices in [Prices { read_ns: bad, ..PRICES }, Prices { write_ns: bad, ..PRICES }] {
                let refused = WriteBuffer::new(&design, &prices, 1.0, 1.0, 1.0, 1.0).unwrap_err();
                assert!(refused.contains("the price of"), "{refused}");
            }
            let refused = |updates, entries, scans, search| {
                WriteBuffer::new(&design, &PRICES, updates, entries, scans, search).unwrap_err()
            };
            assert!(refused(bad, 1.0, 1.0, 1.0).contains("updates per second"));
            assert!(refused(1.0, bad, 1.0, 1.0).contains("entries per page"));
            assert!(refused(1.0, 1.0, bad, 1.0).contains("scans per second"));
            assert!(refused(1.0, 1.0, 1.0, bad).contains("cost of a search"));
        }
        let design = Design { size_ratio: 1.0, ..design };
        assert!(WriteBuffer::new(&design, &PRICES, 1.0, 1.0, 1.0, 1.0).unwrap_err().contains("size_ratio"));
        assert!(
            WriteBuffer::new(&Design::default(), &PRICES, 1e308, 1.0, 0.0, 0.0)
                .unwrap_err()
                .contains("float")
        );
    }

    proptest! {
        #[test]
        fn a_larger_buffer_saves_less_per_byte(bytes: u64, step in 1u64..1 << 40) {
            let buffer = WriteBuffer::new(&Design::default(), &PRICES, 1e5, 40.0, 10.0, 500.0).unwrap();
            let (gain, loss) = (buffer.gain_per_byte(bytes, step), buffer.loss_per_byte(bytes, step));
            prop_assert!(gain >= 0.0 && gain <= loss * (1.0 + 1e-6) + 1e-9 || bytes <= 1, "{gain} {loss}");
            prop_assert!(gain.is_finite() && loss.is_finite());
        }
    }
}
