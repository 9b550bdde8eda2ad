//! Ribbon or blocked filters, for tables that are written once and read long: what the smaller
//! filter saves against the CPU time of building and probing it.
//!
//! All is per second. Memory has the value that it has to the consumer that would get it, as in the
//! division of the budget.

use super::constants::{MARGIN, RIBBON_BUILD_NS, RIBBON_PROBE_NS, RIBBON_REPAY_SECONDS, RIBBON_SAVED_PART};

/// The filters of the last run, and what they are used for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LastRunFilters {
    /// Keys in them.
    pub keys: f64,
    /// Bits per key of a blocked filter.
    pub bits_per_key: f64,
    /// Lookups that reach the tables.
    pub lookups_per_second: f64,
    /// Expected time until a table is rewritten, in seconds.
    pub lifetime_s: f64,
    /// Saving of more memory, in nanoseconds per second per byte.
    pub byte_ns_per_second: f64,
}

impl LastRunFilters {
    /// Whether ribbon filters save more than they cost, by more than the noise of the measurements.
    /// False for figures that are not numbers.
    pub fn should_be_ribbon(&self) -> bool {
        let saved_bytes = self.keys * self.bits_per_key / 8.0 * RIBBON_SAVED_PART;
        let built_per_second = self.keys / self.lifetime_s.min(RIBBON_REPAY_SECONDS);
        let cost_ns = self.lookups_per_second * RIBBON_PROBE_NS + built_per_second * RIBBON_BUILD_NS;
        saved_bytes * self.byte_ns_per_second > cost_ns * (1.0 + MARGIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten million keys, which are read past the page cache: a byte more of block cache saves a
    /// read of 80 us in a data set of 1.16 GB.
    const FROM_THE_DEVICE: LastRunFilters = LastRunFilters {
        keys: 1e7,
        bits_per_key: 10.0,
        lookups_per_second: 10_000.0,
        lifetime_s: f64::INFINITY,
        byte_ns_per_second: 10_000.0 * 80_000.0 / 1.16e9,
    };

    #[test]
    fn memory_that_spares_reads_of_a_device_is_worth_the_processor_time() {
        assert!(FROM_THE_DEVICE.should_be_ribbon());
        // A byte must be worth about 0.37.
        let cheap = LastRunFilters { byte_ns_per_second: 0.03, ..FROM_THE_DEVICE };
        assert!(!cheap.should_be_ribbon());
    }

    #[test]
    fn reads_from_the_page_cache_are_too_cheap() {
        let quick = LastRunFilters {
            lookups_per_second: 400_000.0,
            byte_ns_per_second: 400_000.0 * 750.0 / 1.16e9,
            ..FROM_THE_DEVICE
        };
        assert!(!quick.should_be_ribbon());
        // Nobody looks up anything: the filters cost nothing, and no byte saves anything.
        let idle = LastRunFilters { lookups_per_second: 0.0, byte_ns_per_second: 0.0, ..quick };
        assert!(!idle.should_be_ribbon());
    }

    #[test]
    fn a_table_that_is_soon_rewritten_does_not_repay_its_construction() {
        let written = |lifetime_s| LastRunFilters { lifetime_s, ..FROM_THE_DEVICE }.should_be_ribbon();
        assert!(written(RIBBON_REPAY_SECONDS) && !written(10.0));
        assert_eq!(written(f64::INFINITY), written(RIBBON_REPAY_SECONDS));
        assert!(!written(0.0), "a division by zero");
    }

    #[test]
    fn figures_that_are_not_numbers_choose_nothing() {
        for bad in [f64::NAN, f64::NEG_INFINITY] {
            let of = |change: fn(&mut LastRunFilters, f64)| {
                let mut filters = FROM_THE_DEVICE;
                change(&mut filters, bad);
                filters.should_be_ribbon()
            };
            assert!(!of(|filters, bad| filters.keys = bad));
            assert!(!of(|filters, bad| filters.bits_per_key = bad));
            assert!(!of(|filters, bad| filters.byte_ns_per_second = bad));
        }
        assert!(!LastRunFilters { lookups_per_second: f64::NAN, ..FROM_THE_DEVICE }.should_be_ribbon());
    }
}
