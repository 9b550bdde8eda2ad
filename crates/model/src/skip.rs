//! Skipping: the modules of a filter that are worth probing.
//!
//! A filter of D modules over the same keys is probed in order until one rejects the key. A probe
//! of a file is *empty* if the file does not hold the key. With `w` empty and `v` other probes a
//! second, and f_j the rate of module j:
//!
//! ```text
//! module d is reached by             v + w * f_1 ... f_(d-1)         probes a second
//! it saves                               w * f_1 ... f_(d-1) * (1 - f_d)     searches a second
//! with the first d modules there are v + w * f_1 ... f_d             searches a second
//! ```
//!
//! For equal modules the saving is w * f^(d-1) * (1 - f): each module saves less than the one
//! before it. A module is skipped when it saves less than its threshold. Once one is skipped the
//! answer is "maybe", so the modules after it are skipped too.
//!
//! Source: "Modular Bloom filters" (SHaMBa slides, 2022), with q = w + v its access frequency and
//! a = w / q the empty share: q * ((1-a) + a * f^d) I/Os, utility q * a * f^(d-1) * (1-f).
//!
//! Not here: the cost of a search, and the modules in memory ([`crate::joint`]).

use std::fmt;
use std::str::FromStr;

use crate::input;

/// The modules that a lookup may skip.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Skipping {
    /// None: every module is probed until one rejects the key.
    None,
    /// Any module except the first.
    Partial,
    /// Any module: a lookup may skip the whole filter and search the index.
    #[default]
    Full,
}

impl Skipping {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::None, Self::Partial, Self::Full];

    /// The name in options and output.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Partial => "partial",
            Self::Full => "full",
        }
    }

    /// The number of modules, from the first on, to probe when module d saves `savings[d]` and
    /// costs `thresholds[d]`, in one unit. It is the number with the largest total of savings minus
    /// thresholds, and the larger number on a tie. For diminishing savings and one threshold that
    /// is: up to the last module that saves at least the threshold.
    ///
    /// In nanoseconds, the saving of a module is its searches
    /// ([`FileProbes::searches_saved_per_second`]) at their price. Its threshold is the probes that
    /// reach it ([`FileProbes::reaching_per_second`]) at the price of a probe if it is in memory,
    /// or of a read if it is not. The papers compare I/Os per lookup with a fixed threshold.
    ///
    /// # Errors
    /// Lists of different lengths, or values that are NaN, infinite or negative.
    pub fn modules_consulted(self, savings: &[f64], thresholds: &[f64]) -> Result<usize, String> {
        if savings.len() != thresholds.len() {
            return Err(format!("{} modules have {} thresholds", savings.len(), thresholds.len()));
        }
        for (at, (saving, threshold)) in savings.iter().zip(thresholds).enumerate() {
            input::of_list("module", at, input::not_negative("its saving", *saving))?;
            input::of_list("module", at, input::not_negative("its threshold", *threshold))?;
        }
        let fewest = match self {
            Self::None => savings.len(),
            Self::Partial => savings.len().min(1),
            Self::Full => 0,
        };
        let (mut best, mut most, mut net) = (fewest, 0.0, 0.0);
        for at in fewest..savings.len() {
            net += savings[at] - thresholds[at];
            if net >= most {
                (best, most) = (at + 1, net);
            }
        }
        Ok(best)
    }
}

impl fmt::Display for Skipping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Skipping {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|skipping| skipping.name() == name).ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            format!("unknown module skipping {name:?} (known: {known})")
        })
    }
}

/// The probes that reach one file.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FileProbes {
    /// Probes for keys that the file does not hold: w.
    pub empty_per_second: f64,
    /// Probes for keys that the file holds, which no filter can save.
    pub found_per_second: f64,
}

impl FileProbes {
    /// Checks that both rates are finite numbers of at least 0.
    ///
    /// # Errors
    /// The rate that is NaN, infinite or negative.
    pub fn validate(&self) -> Result<(), String> {
        input::not_negative("empty probes per second", self.empty_per_second)?;
        input::not_negative("probes per second that find their key", self.found_per_second)
    }

    /// The probes per second that reach each module: the rate at which the cost of a module is
    /// paid.
    ///
    /// # Errors
    /// Rates that are NaN, infinite, negative or out of bounds.
    pub fn reaching_per_second(&self, module_fprs: &[f64]) -> Result<Vec<f64>, String> {
        check(self, module_fprs)?;
        let reaching = |passed: f64| self.found_per_second + self.empty_per_second * passed;
        Ok(passed(module_fprs).map(reaching).take(module_fprs.len()).collect())
    }

    /// The searches per second that each module saves: its utility.
    ///
    /// # Errors
    /// Rates that are NaN, infinite, negative or out of bounds.
    pub fn searches_saved_per_second(&self, module_fprs: &[f64]) -> Result<Vec<f64>, String> {
        check(self, module_fprs)?;
        let saved = |(passed, fpr): (f64, &f64)| self.empty_per_second * passed * (1.0 - fpr);
        Ok(passed(module_fprs).zip(module_fprs).map(saved).collect())
    }
}

/// The share of empty probes that pass the modules before each module; 1 for the first.
fn passed(module_fprs: &[f64]) -> impl Iterator<Item = f64> {
    let products = module_fprs.iter().scan(1.0, |passed, fpr| {
        *passed *= fpr;
        Some(*passed)
    });
    std::iter::once(1.0).chain(products)
}

fn check(probes: &FileProbes, module_fprs: &[f64]) -> Result<(), String> {
    probes.validate()?;
    let of_module = |(at, fpr): (usize, &f64)| {
        input::of_list("module", at, input::share("its false-positive rate", *fpr))
    };
    module_fprs.iter().enumerate().try_for_each(of_module)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monkey::bloom_fpr;
    use proptest::prelude::*;

    #[track_caller]
    fn near(value: f64, expected: f64, within: f64) {
        assert!((value - expected).abs() <= within, "{value} is not {expected}");
    }

    #[test]
    fn the_slides_formulas() {
        let (q, a, f) = (100.0, 0.8, 0.1);
        let probes = FileProbes { empty_per_second: q * a, found_per_second: q * (1.0 - a) };
        let fprs = [f; 3];
        let saved = probes.searches_saved_per_second(&fprs).unwrap();
        for d in 1..=3usize {
            let utility = q * a * f.powi(d as i32 - 1) * (1.0 - f);
            near(saved[d - 1], utility, 1e-9);
            let ios = |d: usize| q * ((1.0 - a) + a * f.powi(d as i32));
            near(ios(d - 1) - ios(d), utility, 1e-9);
        }
        assert_eq!(probes.reaching_per_second(&[0.5, 0.25]).unwrap(), [100.0, 60.0]);
    }

    #[test]
    fn an_empty_probe_reads_little() {
        // Ten bits per key in D equal modules; by theory. Measured: 1.09, 1.25 and 1.99.
        for (modules, read) in [(1, 1.0), (2, 1.09), (3, 1.24), (7, 2.00)] {
            let fprs = vec![bloom_fpr(10.0 / f64::from(modules)); modules as usize];
            let probes = FileProbes { empty_per_second: 1.0, found_per_second: 0.0 };
            near(probes.reaching_per_second(&fprs).unwrap().iter().sum(), read, 0.005);
        }
    }

    #[test]
    fn modules_are_consulted_down_to_their_threshold() {
        let savings = [0.9, 0.09, 0.009];
        for (threshold, none, partial, full) in
            [(1.0, 3, 1, 0), (0.9, 3, 1, 1), (0.1, 3, 1, 1), (0.05, 3, 2, 2), (0.0, 3, 3, 3)]
        {
            let consulted =
                Skipping::ALL.map(|skipping| skipping.modules_consulted(&savings, &[threshold; 3]));
            assert_eq!(consulted, [Ok(none), Ok(partial), Ok(full)], "{threshold}");
        }
        // A small first module that does not pay alone is probed if the modules after it make up
        // for it.
        assert_eq!(Skipping::Full.modules_consulted(&[1.0, 9.0], &[2.0, 2.0]), Ok(2));
        assert_eq!(Skipping::Full.modules_consulted(&[1.0, 2.5], &[2.0, 2.0]), Ok(0));
        assert_eq!(Skipping::Partial.modules_consulted(&[], &[]), Ok(0));
    }

    #[test]
    fn skipping_names_round_trip() {
        for skipping in Skipping::ALL {
            assert_eq!(skipping.to_string().parse(), Ok(skipping));
        }
        let error = "half".parse::<Skipping>().unwrap_err();
        assert!(error.contains("half") && error.contains("partial"), "{error}");
    }

    #[test]
    fn bad_input_is_refused_with_its_reason() {
        let probes = FileProbes { empty_per_second: 0.5, found_per_second: 0.5 };
        let error = probes.searches_saved_per_second(&[0.5, 1.5]).unwrap_err();
        assert!(error.contains("module 1") && error.contains("1.5"), "{error}");
        assert!(probes.reaching_per_second(&[f64::NAN]).unwrap_err().contains("module 0"));
        for rate in [f64::NAN, -1.0, f64::INFINITY] {
            let probes = FileProbes { empty_per_second: rate, found_per_second: 0.0 };
            assert!(probes.reaching_per_second(&[]).unwrap_err().contains("empty probes"));
            let probes = FileProbes { empty_per_second: 0.0, found_per_second: rate };
            assert!(probes.reaching_per_second(&[]).unwrap_err().contains("find their key"));
            assert!(Skipping::Full.modules_consulted(&[rate], &[0.0]).unwrap_err().contains("saving"));
            assert!(Skipping::Full.modules_consulted(&[0.0], &[rate]).unwrap_err().contains("threshold"));
        }
        assert!(Skipping::None.modules_consulted(&[1.0], &[]).unwrap_err().contains("1 modules"));
    }

    proptest! {
        #[test]
        fn savings_add_up_to_the_searches_that_are_gone(
            empty in 0.0..1e6f64, found in 0.0..1e6f64, fprs in prop::collection::vec(0.0..=1.0f64, 0..8),
        ) {
            let probes = FileProbes { empty_per_second: empty, found_per_second: found };
            let saved = probes.searches_saved_per_second(&fprs).unwrap();
            for d in 0..=fprs.len() {
                let left = found + empty * fprs[..d].iter().product::<f64>();
                prop_assert!((left + saved[..d].iter().sum::<f64>() - empty - found).abs() < 1e-6);
            }
            let consulted =
                |skipping: Skipping| skipping.modules_consulted(&saved, &vec![10.0; fprs.len()]).unwrap();
            prop_assert!(consulted(Skipping::Full) <= consulted(Skipping::Partial));
            prop_assert!(consulted(Skipping::Partial) <= consulted(Skipping::None));
        }
    }
}
