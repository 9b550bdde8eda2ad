//! The price of a read by its length: latency + bytes / bandwidth.
//!
//! A device answers a read after a latency and then delivers bytes at its bandwidth. Both are
//! estimated from reads of two sizes ([`ReadPrice::of_two_sizes`]): two equations, two unknowns. In
//! counting mode a read costs its pages of [`PAGE_BYTES`] ([`ReadPrice::of_pages`]), which is the
//! unit of the papers on modular filters.
//!
//! Source: the SHaMBa slides (ADMS 2022) count the pages of a block (a filter block of 80 KB is
//! 20); time as latency + bytes / bandwidth is the usual model of external memory.

use crate::input;

/// The unit in which I/Os are counted.
pub const PAGE_BYTES: u64 = 4_096;

/// The price of a read: a fixed part, and a part per byte of its length, rounded up to whole units.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ReadPrice {
    /// The fixed part.
    pub latency_ns: f64,
    /// The part per byte.
    pub ns_per_byte: f64,
    /// Lengths are rounded up to a multiple of this; 1 where every byte counts by itself.
    pub unit_bytes: u64,
}

impl ReadPrice {
    /// A price that is the same for every read, whatever its length.
    pub fn fixed(ns: f64) -> Self {
        Self { latency_ns: ns, ns_per_byte: 0.0, unit_bytes: 1 }
    }

    /// A price of `page_ns` per page read.
    pub fn of_pages(page_ns: f64) -> Self {
        Self { latency_ns: 0.0, ns_per_byte: page_ns / PAGE_BYTES as f64, unit_bytes: PAGE_BYTES }
    }

    /// The price that fits two measured reads, each (bytes, nanoseconds). If the longer read took
    /// no longer than the short one, the price per byte is 0. The latency is never negative.
    pub fn of_two_sizes((short_bytes, short_ns): (f64, f64), (long_bytes, long_ns): (f64, f64)) -> Self {
        let more_bytes = long_bytes - short_bytes;
        let slope = if more_bytes > 0.0 { (long_ns - short_ns) / more_bytes } else { 0.0 };
        // A slope above that of the line from the origin to the short read would need a negative
        // latency.
        let ns_per_byte = slope.clamp(0.0, short_ns / short_bytes.max(1.0));
        // Rounding can make the product slightly larger than `short_ns`.
        let latency_ns = (short_ns - ns_per_byte * short_bytes).max(0.0);
        Self { latency_ns, ns_per_byte, unit_bytes: 1 }
    }

    /// The price of a read of `bytes`.
    pub fn ns(&self, bytes: u64) -> f64 {
        let rounded = bytes.div_ceil(self.unit_bytes.max(1)).saturating_mul(self.unit_bytes.max(1));
        self.latency_ns + self.ns_per_byte * rounded as f64
    }

    /// The expected price where only `share` of the reads happen, and each costs `fixed_ns` in any
    /// case.
    #[must_use]
    pub fn expected(self, share: f64, fixed_ns: f64) -> Self {
        let latency_ns = fixed_ns + share * self.latency_ns;
        Self { latency_ns, ns_per_byte: share * self.ns_per_byte, ..self }
    }

    /// Checks that both parts are finite numbers of at least 0.
    ///
    /// # Errors
    /// The part that is NaN, infinite or negative.
    pub fn validate(&self) -> Result<(), String> {
        input::not_negative("the latency of a read", self.latency_ns)?;
        input::not_negative("the price of a byte", self.ns_per_byte)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pages_are_counted_as_the_slides_count_them() {
        let pages = ReadPrice::of_pages(1.0);
        // A filter block of 80 KB is 20 pages, an index block of 32 KB 8, a data block 1.
        assert_eq!(
            [80 << 10, 32 << 10, 4 << 10, 4097, 1].map(|bytes| pages.ns(bytes)),
            [20.0, 8.0, 1.0, 2.0, 1.0]
        );
        assert_eq!(ReadPrice::fixed(7.0).ns(1 << 20), 7.0);
    }

    #[test]
    fn latency_and_bandwidth_are_recovered_from_two_sizes() {
        let device = ReadPrice { latency_ns: 100_000.0, ns_per_byte: 2.0, unit_bytes: 1 };
        let of = |bytes: u64| (bytes as f64, device.ns(bytes));
        let found = ReadPrice::of_two_sizes(of(4_096), of(65_536));
        assert!(
            (found.latency_ns - 1e5).abs() < 1e-6 && (found.ns_per_byte - 2.0).abs() < 1e-12,
            "{found:?}"
        );
        let half = found.expected(0.5, 10.0);
        assert!((half.ns(4_096) - (10.0 + device.ns(4_096) / 2.0)).abs() < 1e-6);
    }

    #[test]
    fn rounding_makes_no_latency_negative() {
        let short = (81_984.753_717_850_86, 13_687_947.731_265_167);
        let price = ReadPrice::of_two_sizes(short, (2_546_760.018_903_412, 817_196_409.454_618));
        assert!(price.validate().is_ok(), "{price:?}");
    }

    proptest! {
        #[test]
        fn a_price_is_never_negative_and_that_of_the_short_read(
            short in (1.0..1e5f64, 0.0..1e9f64), long in (1.0..1e7f64, 0.0..1e9f64),
        ) {
            let price = ReadPrice::of_two_sizes(short, long);
            prop_assert!(price.validate().is_ok(), "{price:?}");
            let ns = price.latency_ns + price.ns_per_byte * short.0;
            prop_assert!((ns - short.1).abs() <= 1e-6 * short.1.max(1.0), "{price:?}");
        }
    }
}
