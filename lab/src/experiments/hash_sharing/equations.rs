//! Hash sharing: the saving of one digest for a whole lookup, in the paper's tree.
//!
//! A lookup hashes its key (T_H) and probes (T_P) a filter on each level that it visits, and reads
//! a page (T_D) where the filter says "maybe". With one digest for all filters T_H is paid once.
//!
//! Source: Zhu, Mun, Raman, Athanassoulis: Reducing Bloom Filter CPU Overhead in LSM-Trees on
//! Modern Storage Devices (DaMoN 2021), equations 4 to 8. Its alpha is `empty_fraction` here. It
//! counts T runs on a level of a tiered tree, where Monkey ([`shamba_model::monkey`]) counts T - 1.
//!
//! Not here: the digest itself (crates `shamba-key` and `shamba`).

use shamba_model::{MAX_LEVELS, MAX_SIZE_RATIO};

/// Times of the parts of a lookup.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct LookupTimes {
    /// T_H: hashing the key.
    pub(super) hash_ns: f64,
    /// T_P: probing one filter.
    pub(super) probe_ns: f64,
    /// T_D: one page access.
    pub(super) page_ns: f64,
}

/// The tree, and the lookups in it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct LookupShape {
    /// Whether levels hold T runs instead of one.
    pub(super) tiering: bool,
    /// T.
    pub(super) size_ratio: f64,
    /// L.
    pub(super) levels: u32,
    /// The false-positive rate of every filter.
    pub(super) fpr: f64,
    /// The share of lookups that find nothing.
    pub(super) empty_fraction: f64,
}

impl LookupTimes {
    fn validate(&self) -> Result<(), String> {
        not_negative("the time of a hash", self.hash_ns)?;
        not_negative("the time of a probe", self.probe_ns)?;
        not_negative("the time of a page", self.page_ns)
    }
}

impl LookupShape {
    /// Equations 4 (leveling) and 6 (tiering): the time of a lookup that hashes its key for every
    /// filter.
    ///
    /// # Errors
    /// A figure out of bounds.
    pub(super) fn cost_ns(&self, times: &LookupTimes) -> Result<f64, String> {
        let filters = self.filters_probed()?;
        Ok(self.without_hashes_ns(times, filters)? + filters * times.hash_ns)
    }

    /// Equation 7, and its counterpart of equation 6: the time of a lookup that hashes its key
    /// once.
    ///
    /// # Errors
    /// A figure out of bounds.
    pub(super) fn shared_cost_ns(&self, times: &LookupTimes) -> Result<f64, String> {
        Ok(self.without_hashes_ns(times, self.filters_probed()?)? + times.hash_ns)
    }

    /// Equation 8: the share of the cost that one digest saves; 0 if nothing takes time.
    ///
    /// # Errors
    /// A figure out of bounds.
    pub(super) fn gain(&self, times: &LookupTimes) -> Result<f64, String> {
        let (cost, shared) = (self.cost_ns(times)?, self.shared_cost_ns(times)?);
        Ok(if cost > 0.0 { (cost - shared) / cost } else { 0.0 })
    }

    /// The expected number of filters that a lookup probes: L - (1-e) / (T-1) with leveling. With
    /// tiering an empty lookup probes all T L; for a lookup that finds its key the paper replaces
    /// T + 1 of them by (T+1)/2.
    ///
    /// # Errors
    /// A figure out of bounds.
    pub(super) fn filters_probed(&self) -> Result<f64, String> {
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
        share("the false-positive rate", self.fpr)?;
        share("the empty fraction", self.empty_fraction)
    }
}

fn not_negative(what: &str, value: f64) -> Result<(), String> {
    if (0.0..f64::INFINITY).contains(&value) {
        return Ok(());
    }
    Err(format!("{what} must be a finite number of at least 0, not {value}"))
}

fn share(what: &str, value: f64) -> Result<(), String> {
    if (0.0..=1.0).contains(&value) {
        return Ok(());
    }
    Err(format!("{what} must be from 0 to 1, not {value}"))
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn without_time_nothing_is_saved() {
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
            }
            for tree in [
                LookupShape { size_ratio: bad, ..TREE },
                LookupShape { fpr: bad, ..TREE },
                LookupShape { empty_fraction: bad, ..TREE },
            ] {
                assert!(tree.cost_ns(&times(1.0)).unwrap_err().contains(&bad.to_string()));
            }
        }
        assert!(LookupShape { levels: 1, ..TREE }.filters_probed().unwrap_err().contains("levels"));
    }

    #[test]
    fn one_digest_never_costs_more() {
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..10_000 {
            let tree = LookupShape {
                tiering: rng.bool(),
                size_ratio: 2.0 + 18.0 * rng.f64(),
                levels: rng.u32(2..12),
                fpr: rng.f64(),
                empty_fraction: rng.f64(),
            };
            let page_ns = 1e6 * rng.f64();
            let gain = tree.gain(&times(page_ns)).unwrap();
            assert!((-1e-12..1.0).contains(&gain), "{gain}: {tree:?}, a page takes {page_ns} ns");
        }
    }
}
