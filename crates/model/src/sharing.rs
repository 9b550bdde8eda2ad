//! Hash sharing: the saving of one digest for a whole lookup, in the paper's tree.
//!
//! A lookup hashes its key (T_H) and probes (T_P) a filter on each level that it visits, and reads
//! a page (T_D) where the filter says "maybe". With one digest for all filters T_H is paid once.
//!
//! Source: Zhu, Mun, Raman, Athanassoulis: Reducing Bloom Filter CPU Overhead in LSM-Trees on
//! Modern Storage Devices (DaMoN 2021), equations 3 to 8. Its alpha is `empty_fraction` here. It
//! counts T runs on a level of a tiered tree, where Monkey ([`crate::monkey`]) counts T - 1.
//!
//! Not here: the digest itself (crates `shamba-key` and `shamba`).

use crate::design::{MAX_LEVELS, MAX_SIZE_RATIO};
use crate::input;

/// Times of the parts of a lookup.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LookupTimes {
    /// T_H: hashing the key.
    pub hash_ns: f64,
    /// T_P: probing one filter.
    pub probe_ns: f64,
    /// T_D: one page access.
    pub page_ns: f64,
}

/// The tree, and the lookups in it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LookupShape {
    /// Whether levels hold T runs instead of one.
    pub tiering: bool,
    /// T.
    pub size_ratio: f64,
    /// L.
    pub levels: u32,
    /// The false-positive rate of every filter.
    pub fpr: f64,
    /// The share of lookups that find nothing.
    pub empty_fraction: f64,
}

impl LookupTimes {
    /// Equation 3: T_H + T_P + (1-e) T_D + e f T_D, the time at one level when a share
    /// `empty_fraction` of its probes is for keys that it does not hold.
    ///
    /// # Errors
    /// A time that is NaN, infinite or negative, or a share outside 0 to 1.
    pub fn level_ns(&self, fpr: f64, empty_fraction: f64) -> Result<f64, String> {
        self.validate()?;
        input::share("the false-positive rate", fpr)?;
        input::share("the empty fraction", empty_fraction)?;
        let pages = 1.0 - empty_fraction + empty_fraction * fpr;
        Ok(self.hash_ns + self.probe_ns + pages * self.page_ns)
    }

    fn validate(&self) -> Result<(), String> {
        input::not_negative("the time of a hash", self.hash_ns)?;
        input::not_negative("the time of a probe", self.probe_ns)?;
        input::not_negative("the time of a page", self.page_ns)
    }
}

impl LookupShape {
    /// Equations 4 (leveling) and 6 (tiering): the time of a lookup that hashes its key for every
    /// filter.
    ///
    /// # Errors
    /// A figure out of bounds.
    pub fn cost_ns(&self, times: &LookupTimes) -> Result<f64, String> {
        let filters = self.filters_probed()?;
        Ok(self.without_hashes_ns(times, filters)? + filters * times.hash_ns)
    }

    /// Equation 7, and its counterpart of equation 6: the time of a lookup that hashes its key
    /// once.
    ///
    /// # Errors
    /// A figure out of bounds.
    pub fn shared_cost_ns(&self, times: &LookupTimes) -> Result<f64, String> {
        Ok(self.without_hashes_ns(times, self.filters_probed()?)? + times.hash_ns)
    }

    /// Equation 8: the share of the cost that one digest saves; 0 if nothing takes time.
    ///
    /// # Errors
    /// A figure out of bounds.
    pub fn gain(&self, times: &LookupTimes) -> Result<f64, String> {
        let (cost, shared) = (self.cost_ns(times)?, self.shared_cost_ns(times)?);
        Ok(if cost > 0.0 { (cost - shared) / cost } else { 0.0 })
    }

    /// The expected number of filters that a lookup probes: L - (1-e) / (T-1) with leveling. With
    /// tiering an empty lookup probes all T L; for a lookup that finds its key the paper replaces
    /// T + 1 of them by (T+1)/2.
    ///
    /// # Errors
    /// A figure out of bounds.
    pub fn filters_probed(&self) -> Result<f64, String> {
        self.validate()?;
        let (t, found) = (self.size_ratio, 1.0 - self.empty_fraction);
        let levels = f64::from(self.levels);
        Ok(match self.tiering {
            true => t * levels - found * (t + 1.0) / 2.0,
            false => levels - found / (t - 1.0),
        })
    }

    /// The time of probes and pages.
    fn without_hashes_ns(&self, times: &LookupTimes, filters: f64) -> Result<f64, String> {
        times.validate()?;
        let found = 1.0 - self.empty_fraction;
        // The filters probed for keys that their runs do not hold.
        let empty = match self.tiering {
            true => self.size_ratio * f64::from(self.levels) - found * (self.size_ratio + 1.0),
            false => filters - found,
        };
        Ok(filters * times.probe_ns + (found + empty * self.fpr) * times.page_ns)
    }

    fn validate(&self) -> Result<(), String> {
        if !(2.0..=MAX_SIZE_RATIO).contains(&self.size_ratio) {
            return Err(format!(
                "the size ratio must be from 2 to {MAX_SIZE_RATIO}, not {}",
                self.size_ratio
            ));
        }
        // In trees of one level the paper's terms for lookups that find their key are below 0.
        if !(2..=MAX_LEVELS).contains(&self.levels) {
            return Err(format!("levels must be from 2 to {MAX_LEVELS}, not {}", self.levels));
        }
        input::share("the false-positive rate", self.fpr)?;
        input::share("the empty fraction", self.empty_fraction)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TREE: LookupShape =
        LookupShape { tiering: false, size_ratio: 10.0, levels: 5, fpr: 0.00819, empty_fraction: 1.0 };

    /// Murmur64A over keys of 1 KB, and a page read of the given device.
    fn times(page_ns: f64) -> LookupTimes {
        LookupTimes { hash_ns: 235.0, probe_ns: 0.0, page_ns }
    }

    #[test]
    fn gains_on_the_papers_devices() {
        // SSD, PCIe SSD, SPDK, emulated NVM, memory.
        for (empty_fraction, page_ns, percent) in [
            (1.0, 113_000.0, 16.20),
            (1.0, 10_000.0, 59.32),
            (1.0, 7_000.0, 64.31),
            (1.0, 250.0, 79.31),
            (1.0, 160.0, 79.56),
            (0.5, 113_000.0, 1.50),
            (0.5, 10_000.0, 14.20),
            (0.5, 250.0, 71.52),
        ] {
            let gain = LookupShape { empty_fraction, ..TREE }.gain(&times(page_ns)).unwrap() * 100.0;
            assert!((gain - percent).abs() < 0.005, "{gain} is not {percent}");
        }
    }

    #[test]
    fn tiering_by_the_papers_equation() {
        let tree = LookupShape { tiering: true, size_ratio: 4.0, levels: 3, fpr: 0.1, empty_fraction: 0.25 };
        let times = LookupTimes { hash_ns: 100.0, probe_ns: 10.0, page_ns: 1_000.0 };
        // Equation 6, term by term; with one digest the hashes of both terms become one.
        let cost = 2.5 * 0.75 * 110.0 + 0.75 * 1_000.0 + (12.0 - 0.75 * 5.0) * (110.0 + 100.0);
        assert!((tree.cost_ns(&times).unwrap() - cost).abs() < 1e-9);
        let hashes = 2.5 * 0.75 + 12.0 - 0.75 * 5.0;
        assert!((tree.filters_probed().unwrap() - hashes).abs() < 1e-12);
        let shared = cost - (hashes - 1.0) * 100.0;
        assert!((tree.shared_cost_ns(&times).unwrap() - shared).abs() < 1e-9);
    }

    #[test]
    fn one_level_and_no_time_at_all() {
        let times = LookupTimes { hash_ns: 100.0, probe_ns: 10.0, page_ns: 1_000.0 };
        assert_eq!(times.level_ns(0.5, 0.5), Ok(110.0 + 750.0));
        let nothing = LookupTimes { hash_ns: 0.0, probe_ns: 0.0, page_ns: 0.0 };
        assert_eq!(TREE.gain(&nothing), Ok(0.0));
    }

    #[test]
    fn bad_input_is_refused_with_its_reason() {
        for bad in [f64::NAN, -1.0, f64::INFINITY] {
            for times in [
                LookupTimes { hash_ns: bad, ..times(1.0) },
                LookupTimes { probe_ns: bad, ..times(1.0) },
                times(bad),
            ] {
                assert!(TREE.gain(&times).unwrap_err().contains("the time of"));
                assert!(times.level_ns(0.1, 0.1).unwrap_err().contains("the time of"));
            }
            for tree in [
                LookupShape { size_ratio: bad, ..TREE },
                LookupShape { fpr: bad, ..TREE },
                LookupShape { empty_fraction: bad, ..TREE },
            ] {
                assert!(tree.cost_ns(&times(1.0)).unwrap_err().contains(&bad.to_string()));
            }
            assert!(times(1.0).level_ns(bad, 0.1).unwrap_err().contains("false-positive"));
            assert!(times(1.0).level_ns(0.1, bad).unwrap_err().contains("empty fraction"));
        }
        assert!(LookupShape { levels: 1, ..TREE }.filters_probed().unwrap_err().contains("levels"));
    }

    proptest! {
        #[test]
        fn one_digest_never_costs_more(
            tiering: bool, size_ratio in 2.0..20.0f64, levels in 2u32..12, fpr in 0.0..=1.0f64,
            empty_fraction in 0.0..=1.0f64, page_ns in 0.0..1e6f64,
        ) {
            let tree = LookupShape { tiering, size_ratio, levels, fpr, empty_fraction };
            let gain = tree.gain(&times(page_ns)).unwrap();
            prop_assert!((-1e-12..1.0).contains(&gain), "{gain}");
        }
    }
}
