//! The layout of a filter to build: the family, and the division of a modular filter's bits.
//!
//! Ribbon filters are divided like modular ones, into at most [`MAX_RIBBON_MODULES`].
//!
//! A modular filter of b bits per key is D modules over the same keys whose shares of b add up
//! to 1. Sizes are
//! - *equal*: each module has the share 1/D;
//! - *proportional*: the first module has a share of its own, the others equal parts of the rest.
//!   This is the papers' "proportional", extended to more than two modules (their code has two:
//!   `bits * prop` and the rest). A small first module stays in memory when little else does.
//!
//! Shares are of fractional bits and nothing is rounded here; [`crate::FilterGeometry`] rounds to
//! whole lines.
//!
//! Not here: the number of bits of a filter (crate `shamba-model`).

use std::fmt;

/// Maximum number of modules of a filter.
pub const MAX_MODULES: usize = 7;

/// Maximum number of modules of a ribbon filter.
pub const MAX_RIBBON_MODULES: usize = 3;

/// A family of filters, with its parameters.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FilterLayout {
    /// The papers' filter: a cache miss for each probe. For their experiments.
    Standard(Probing),
    /// One 64-byte line per key: the cheapest probe.
    Blocked,
    /// Blocked modules that are read in order until one rejects the key. One module is
    /// [`Self::Blocked`].
    Modular(Modules),
    /// Ribbon modules, which are read in order as the blocked ones: a quarter less memory at the
    /// same rate, at four times the time to build. At most [`MAX_RIBBON_MODULES`]; of more modules
    /// the first ones are meant. A filter of fewer than 256 keys is modular.
    Ribbon(Modules),
}

/// How a standard filter derives its probes from one digest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Probing {
    /// The step between probes is the hash itself, rotated by 17 bits.
    Rotation,
    /// The step between probes is a second hash.
    DoubleHashing,
}

/// The number of modules, 1 to [`MAX_MODULES`], and their sizes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Modules {
    count: u8,
    /// `None`: equal sizes.
    first_share_permille: Option<u16>,
}

impl Modules {
    /// One module.
    pub(crate) const ONE: Self = Self { count: 1, first_share_permille: None };

    /// `count` modules of equal size; `None` unless there are 1 to [`MAX_MODULES`].
    pub fn equal(count: usize) -> Option<Self> {
        let known = (1..=MAX_MODULES).contains(&count);
        known.then_some(Self { count: count as u8, first_share_permille: None })
    }

    /// `count` modules, the first with `first_share_permille` thousandths of the bits, the others
    /// with equal parts of the rest. `None` unless there are 1 to [`MAX_MODULES`] and the share is
    /// 1 to 999. A single module has all bits whatever the share.
    pub fn proportional(count: usize, first_share_permille: u16) -> Option<Self> {
        if !(1..=999).contains(&first_share_permille) {
            return None;
        }
        let equal = Self::equal(count)?;
        Some(if count == 1 {
            equal
        } else {
            Self { first_share_permille: Some(first_share_permille), ..equal }
        })
    }

    /// The number of modules.
    pub fn count(self) -> usize {
        usize::from(self.count)
    }

    /// The first module's share in thousandths; `None` when all have the same.
    pub fn first_share_permille(self) -> Option<u16> {
        self.first_share_permille
    }

    /// Each module's share of the bits, first module first. They add up to 1.
    pub fn shares(self) -> impl ExactSizeIterator<Item = f64> {
        let count = f64::from(self.count);
        let (first, others) = match self.first_share_permille {
            Some(permille) => {
                let first = f64::from(permille) / 1000.0;
                (first, (1.0 - first) / (count - 1.0))
            }
            None => (1.0 / count, 1.0 / count),
        };
        (0..self.count()).map(move |module| if module == 0 { first } else { others })
    }

    /// The same with one module fewer; one module always remains.
    pub(crate) fn one_fewer(self) -> Self {
        match self.count {
            0..=2 => Self::ONE,
            count => Self { count: count - 1, ..self },
        }
    }
}

impl FilterLayout {
    /// The form in options: `blocked`, `standard`, `standard-double`, `modular:3`, `modular:2:205`
    /// (the first module's share in thousandths); `ribbon:3` and `ribbon:2:205` likewise. Parsing
    /// accepts these, `modular` for two equal modules, and `ribbon` for one.
    pub fn to_option(self) -> String {
        let Some(kind) = self.divided() else { return self.to_string() };
        let Modules { count, first_share_permille } = self.modules();
        match first_share_permille {
            None => format!("{kind}:{count}"),
            Some(permille) => format!("{kind}:{count}:{permille}"),
        }
    }

    /// The name of a family that is divided into modules.
    fn divided(self) -> Option<&'static str> {
        match self {
            Self::Modular(_) => Some("modular"),
            Self::Ribbon(_) => Some("ribbon"),
            Self::Standard(_) | Self::Blocked => None,
        }
    }

    /// The modules: one unless the layout is modular or ribbon.
    pub fn modules(self) -> Modules {
        match self {
            Self::Modular(modules) => modules,
            Self::Ribbon(mut modules) => {
                while modules.count() > MAX_RIBBON_MODULES {
                    modules = modules.one_fewer();
                }
                modules
            }
            Self::Standard(_) | Self::Blocked => Modules::ONE,
        }
    }
}

impl std::str::FromStr for FilterLayout {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unknown = || {
            format!(
                "filter-layout must be blocked, standard, standard-double, or modular:D for D from 1 to {MAX_MODULES} \
                 modules, or ribbon:D for D from 1 to {MAX_RIBBON_MODULES}, or modular:D:S or ribbon:D:S with S \
                 thousandths of the bits in the first module, not {text:?}"
            )
        };
        let mut parts = text.split(':');
        let known = match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some("blocked"), None, ..) => Some(Self::Blocked),
            (Some("standard"), None, ..) => Some(Self::Standard(Probing::Rotation)),
            (Some("standard-double"), None, ..) => Some(Self::Standard(Probing::DoubleHashing)),
            (Some("modular"), None, ..) => Modules::equal(2).map(Self::Modular),
            (Some("ribbon"), None, ..) => Modules::equal(1).map(Self::Ribbon),
            (Some(kind @ ("modular" | "ribbon")), Some(count), permille, None) => {
                let count = count.parse().ok();
                let modules = match permille {
                    None => count.and_then(Modules::equal),
                    Some(permille) => count
                        .zip(permille.parse().ok())
                        .and_then(|(count, permille)| Modules::proportional(count, permille)),
                };
                modules.map(if kind == "ribbon" { Self::Ribbon } else { Self::Modular })
            }
            _ => None,
        };
        let fits = |layout: &Self| match layout {
            Self::Ribbon(modules) => modules.count() <= MAX_RIBBON_MODULES,
            _ => true,
        };
        known.filter(fits).ok_or_else(unknown)
    }
}

/// The form in output: `blocked`, `standard`, `standard-double`, `modular(3)`, `modular(2, first
/// 20.0 %)`, `ribbon(3)`.
impl fmt::Display for FilterLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Standard(Probing::Rotation) => f.write_str("standard"),
            Self::Standard(Probing::DoubleHashing) => f.write_str("standard-double"),
            Self::Blocked => f.write_str("blocked"),
            Self::Modular(_) | Self::Ribbon(_) => {
                let kind = self.divided().unwrap_or_default();
                let Modules { count, first_share_permille } = self.modules();
                match first_share_permille {
                    None => write!(f, "{kind}({count})"),
                    Some(permille) => {
                        write!(f, "{kind}({count}, first {}.{} %)", permille / 10, permille % 10)
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_and_are_what_was_asked() {
        for count in 1..=MAX_MODULES {
            let equal = Modules::equal(count).unwrap();
            assert!(equal.shares().all(|share| (share - 1.0 / count as f64).abs() < 1e-15));
            for permille in [1, 142, 200, 500, 999] {
                let modules = Modules::proportional(count, permille).unwrap();
                let shares: Vec<f64> = modules.shares().collect();
                assert_eq!(shares.len(), count);
                assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-12, "{modules:?}: {shares:?}");
                if count > 1 {
                    assert!((shares[0] - f64::from(permille) / 1000.0).abs() < 1e-15);
                    assert!(shares[1..].iter().all(|share| (share - shares[1]).abs() < 1e-15));
                }
                assert_eq!(modules.one_fewer().count(), (count - 1).max(1));
            }
        }
        assert_eq!((Modules::equal(0), Modules::equal(8)), (None, None));
        assert_eq!((Modules::proportional(2, 0), Modules::proportional(2, 1000)), (None, None));
    }

    #[test]
    fn options_come_back_and_nonsense_does_not() {
        let modular = |modules: Option<Modules>| FilterLayout::Modular(modules.unwrap());
        for layout in [
            FilterLayout::Blocked,
            FilterLayout::Standard(Probing::Rotation),
            FilterLayout::Standard(Probing::DoubleHashing),
            modular(Modules::equal(1)),
            modular(Modules::equal(7)),
            modular(Modules::proportional(2, 205)),
            FilterLayout::Ribbon(Modules::equal(1).unwrap()),
            FilterLayout::Ribbon(Modules::proportional(3, 205).unwrap()),
        ] {
            assert_eq!(layout.to_option().parse(), Ok(layout));
        }
        assert_eq!("modular".parse(), Ok(modular(Modules::equal(2))));
        assert_eq!("ribbon".parse(), Ok(FilterLayout::Ribbon(Modules::equal(1).unwrap())));
        let too_many = FilterLayout::Ribbon(Modules::equal(7).unwrap());
        assert_eq!(too_many.modules().count(), MAX_RIBBON_MODULES);
        assert_eq!(too_many.to_option(), "ribbon:3");
        for bad in [
            "",
            "modular:0",
            "modular:8",
            "modular:2:1000",
            "modular:2:5:1",
            "blocked:1",
            "bloom",
            "modular:x",
            "ribbon:4",
            "ribbon:0",
            "ribbon:2:0",
            "ribbon:2:5:1",
        ] {
            assert!(
                bad.parse::<FilterLayout>().is_err_and(|error| error.contains(&format!("{bad:?}"))),
                "{bad}"
            );
        }
    }

    #[test]
    fn layouts_say_what_they_are() {
        let proportional = FilterLayout::Modular(Modules::proportional(2, 205).unwrap());
        assert_eq!(proportional.to_string(), "modular(2, first 20.5 %)");
        assert_eq!(FilterLayout::Modular(Modules::equal(7).unwrap()).to_string(), "modular(7)");
        assert_eq!(FilterLayout::Ribbon(Modules::equal(3).unwrap()).to_string(), "ribbon(3)");
        assert_eq!(FilterLayout::Blocked.to_string(), "blocked");
        assert_eq!(FilterLayout::Standard(Probing::Rotation).to_string(), "standard");
        assert_eq!(FilterLayout::Standard(Probing::DoubleHashing).to_string(), "standard-double");
    }
}
