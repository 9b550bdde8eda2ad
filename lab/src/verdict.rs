//! Verdicts: predicates that are fixed before an experiment runs, judged by intervals over seeds.
//!
//! A [`Predicate`] reduces the rows of one seed to one number (a share saved, a slope, a last value
//! over a first one) and bounds it. A seed is a repeat: data and queries are drawn anew, and both
//! sides of a comparison use the same ones, so the number is a paired difference. Over the seeds it
//! has a mean and a 95 % t-interval; ratios and shares saved are averaged as logarithms.
//!
//! [`judge`] compares intervals with bounds:
//! * *confirmed*: every interval lies within its bound;
//! * *not here*: the interval of a direction lies outside of its bound;
//! * *partly*: there is a direction, all directions hold, and a size's interval lies outside of its
//!   bound;
//! * *undecided*: anything else: an interval that straddles its bound, a number that could not be
//!   measured here, fewer than [`SEEDS_MIN`] seeds, rows of another tree than the claim's.
//!
//! Bounds of sizes contain their ends. The bound of a direction does not: "saves something" does
//! not hold where nothing is saved, so its interval lies strictly beyond 0 (beyond 1, for a ratio).
//!
//! A number may itself be only a lower or an upper bound of the wanted quantity ([`Known`]): its
//! interval then has no upper, or no lower, end.
//!
//! Computed and literature figures have one value and no interval.

use std::fmt;

use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::rows::{Rows, View, significant};

/// Minimum number of seeds for a verdict on sampled values.
pub const SEEDS_MIN: usize = 5;
/// Two-sided confidence of intervals.
const CONFIDENCE: f64 = 0.95;

/// Whether a claim holds here.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Verdict {
    /// The opposite of the claim's direction was found.
    NotHere,
    /// The measurement does not decide.
    Undecided,
    /// The direction holds, a size does not.
    Partly,
    /// The claim holds.
    Confirmed,
}

impl Verdict {
    /// Every verdict, in the order of reports.
    pub const ALL: [Self; 4] = [Self::NotHere, Self::Undecided, Self::Partly, Self::Confirmed];

    /// The name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::NotHere => "not here",
            Self::Undecided => "undecided",
            Self::Partly => "partly",
            Self::Confirmed => "confirmed",
        }
    }

    /// The verdict of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verdict| verdict.name() == name)
    }
}

/// A bound on a number.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Bound {
    /// At least.
    AtLeast(f64),
    /// At most.
    AtMost(f64),
    /// From the first to the second.
    Within(f64, f64),
}

impl Bound {
    /// The least and the greatest number allowed.
    fn ends(self) -> (f64, f64) {
        match self {
            Self::AtLeast(low) => (low, f64::INFINITY),
            Self::AtMost(high) => (f64::NEG_INFINITY, high),
            Self::Within(low, high) => (low, high),
        }
    }
}

/// The unit of a predicate's number: how it is averaged and printed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Unit {
    /// A plain number with the name of its unit, averaged as it is.
    Plain(&'static str),
    /// A share, printed in percent and averaged as it is.
    Share,
    /// One positive number over another, averaged as a logarithm.
    Ratio,
    /// One minus a ratio of costs, printed in percent; the ratio is averaged as a logarithm.
    Saved,
}

impl Unit {
    /// The scale on which values are averaged; `None` for values that are not on it.
    fn scaled(self, value: f64) -> Option<f64> {
        let scaled = match self {
            Self::Plain(_) | Self::Share => value,
            Self::Ratio => value.ln(),
            // Falls as the share rises, so `Interval::of` orders the ends again.
            Self::Saved => (1.0 - value).ln(),
        };
        scaled.is_finite().then_some(scaled)
    }

    /// The value whose scaled value is `line`.
    fn unscaled(self, line: f64) -> f64 {
        match self {
            Self::Plain(_) | Self::Share => line,
            Self::Ratio => line.exp(),
            Self::Saved => 1.0 - line.exp(),
        }
    }

    /// A value formatted for reports.
    pub fn told(self, value: f64) -> String {
        let rounded = |value: f64, digits: usize| {
            let text = format!("{value:.digits$}");
            if text.trim_matches(['-', '0', '.']).is_empty() { text.replace('-', "") } else { text }
        };
        let digits = |size: f64| if size < 10.0 { 1 } else { 0 };
        match self {
            Self::Share | Self::Saved if value == 0.0 => "0 %".to_owned(),
            Self::Plain("") => significant((value * 1e4).round() / 1e4),
            Self::Plain(unit) if value.abs() < 0.1 => {
                format!("{} {unit}", significant((value * 1e6).round() / 1e6))
            }
            Self::Plain(unit) => format!("{} {unit}", rounded(value, if value.abs() < 10.0 { 2 } else { 0 })),
            Self::Share | Self::Saved => {
                format!("{} %", rounded(100.0 * value, digits((100.0 * value).abs())))
            }
            Self::Ratio => format!("{}x", rounded(value, 2)),
        }
    }
}

/// Whether a predicate states the direction of a claim or a size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Its opposite contradicts the claim.
    Direction,
    /// Its opposite leaves the claim partly true.
    Size,
}

/// Precision of a number: exact, a bound, or approximate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Known {
    /// The number itself.
    Exactly,
    /// A lower bound of it.
    AtLeast,
    /// An upper bound of it.
    AtMost,
    /// Approximately: bounded from both sides.
    Roughly,
}

impl Known {
    /// Precision of a value whose true size may be greater, smaller or both.
    pub fn of(may_be_greater: bool, may_be_smaller: bool) -> Self {
        match (may_be_greater, may_be_smaller) {
            (false, false) => Self::Exactly,
            (true, false) => Self::AtLeast,
            (false, true) => Self::AtMost,
            (true, true) => Self::Roughly,
        }
    }

    /// The sign before a value, empty before the number itself.
    pub fn sign(self) -> &'static str {
        match self {
            Self::Exactly => "",
            Self::AtLeast => ">=",
            Self::AtMost => "<=",
            Self::Roughly => "~",
        }
    }

    fn may_be_greater(self) -> bool {
        matches!(self, Self::AtLeast | Self::Roughly)
    }

    fn may_be_smaller(self) -> bool {
        matches!(self, Self::AtMost | Self::Roughly)
    }
}

/// A number of one seed's rows and its bound.
#[derive(Clone, Copy, Debug)]
pub struct Predicate {
    /// The number in words, without its bound.
    pub text: &'static str,
    /// Direction or size.
    pub role: Role,
    /// Unit of the number.
    pub unit: Unit,
    /// The bound that the claim sets.
    pub bound: Bound,
    /// The number of one seed's rows; `None` where they do not have it.
    pub quantity: fn(&View<'_>) -> Option<f64>,
    /// Precision of the number for one seed's rows.
    pub known: fn(&View<'_>) -> Known,
}

fn exactly(_: &View<'_>) -> Known {
    Known::Exactly
}

impl Predicate {
    /// A predicate of the claim's direction.
    pub const fn direction(
        text: &'static str,
        unit: Unit,
        bound: Bound,
        quantity: fn(&View<'_>) -> Option<f64>,
    ) -> Self {
        Self { text, role: Role::Direction, unit, bound, quantity, known: exactly }
    }

    /// A predicate of a size that the claim states.
    pub const fn size(
        text: &'static str,
        unit: Unit,
        bound: Bound,
        quantity: fn(&View<'_>) -> Option<f64>,
    ) -> Self {
        Self { text, role: Role::Size, unit, bound, quantity, known: exactly }
    }

    /// The predicate for a number that may be only a bound of the wanted quantity.
    pub const fn known_as(mut self, known: fn(&View<'_>) -> Known) -> Self {
        self.known = known;
        self
    }

    /// Position of the interval relative to the bound, whose ends belong to sizes and not to
    /// directions.
    fn status(&self, (low, high): (f64, f64)) -> Status {
        let (least, greatest) = self.bound.ends();
        let (is_within, is_outside) = match self.role {
            Role::Size => (least <= low && high <= greatest, high < least || greatest < low),
            Role::Direction => {
                let above = low > least || least == f64::NEG_INFINITY;
                let below = high < greatest || greatest == f64::INFINITY;
                (above && below, high <= least || greatest <= low)
            }
        };
        match (is_within, is_outside) {
            (true, _) => Status::Holds,
            (_, true) => Status::Fails,
            _ => Status::Open,
        }
    }
}

/// A mean over seeds with its 95 % interval, in the unit of the values.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Interval {
    /// The mean (of ratios: the geometric one).
    pub mean: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl Interval {
    /// The interval of one value per seed. For a single value it is that value; `None` without
    /// values, or if one is not on the unit's scale.
    pub fn of(values: &[f64], unit: Unit) -> Option<Self> {
        let scaled: Option<Vec<f64>> = values.iter().map(|value| unit.scaled(*value)).collect();
        let scaled = scaled?;
        let count = scaled.len() as f64;
        let mean = scaled.iter().sum::<f64>() / count;
        let half = match scaled.len() {
            0 => return None,
            1 => 0.0,
            _ => {
                let variance = scaled.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
                critical(count - 1.0)? * (variance / count).sqrt()
            }
        };
        let (one, other) = (unit.unscaled(mean - half), unit.unscaled(mean + half));
        Some(Self { mean: unit.unscaled(mean), low: one.min(other), high: one.max(other) })
    }
}

/// Two-sided 95 % quantile of Student's t with this number of degrees of freedom.
fn critical(freedom: f64) -> Option<f64> {
    let t = StudentsT::new(0.0, 1.0, freedom).ok()?;
    Some(t.inverse_cdf(0.5 + CONFIDENCE / 2.0))
}

/// Status of a predicate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// The interval lies within the bound.
    Holds,
    /// The interval lies outside of the bound.
    Fails,
    /// The interval straddles the bound.
    Open,
    /// The number could not be measured here.
    Missing,
}

impl Status {
    /// The name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Fails => "fails",
            Self::Open => "open",
            Self::Missing => "not measured",
        }
    }
}

/// A predicate with its finding.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The predicate.
    pub predicate: Predicate,
    /// One value per seed, in the order of seeds.
    pub values: Vec<f64>,
    /// Mean and interval; `None` if a seed lacks the number.
    pub interval: Option<Interval>,
    /// Precision of the number over all seeds.
    pub known: Known,
    /// Whether the bound holds.
    pub status: Status,
}

impl Finding {
    fn of(predicate: &Predicate, seeds: &[View<'_>]) -> Self {
        let values: Vec<f64> = seeds
            .iter()
            .filter_map(|rows| (predicate.quantity)(rows))
            .filter(|value| value.is_finite())
            .collect();
        let interval = (values.len() == seeds.len()).then(|| Interval::of(&values, predicate.unit)).flatten();
        let knowns: Vec<Known> = seeds.iter().map(|rows| (predicate.known)(rows)).collect();
        let known = Known::of(
            knowns.iter().any(|known| known.may_be_greater()),
            knowns.iter().any(|known| known.may_be_smaller()),
        );
        let status = interval.map_or(Status::Missing, |Interval { low, high, .. }| {
            let low = if known.may_be_smaller() { f64::NEG_INFINITY } else { low };
            let high = if known.may_be_greater() { f64::INFINITY } else { high };
            predicate.status((low, high))
        });
        Self { predicate: *predicate, values, interval, known, status }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Predicate { text, unit, bound, role, .. } = self.predicate;
        write!(f, "{text}: ")?;
        if self.interval.is_some() && self.known != Known::Exactly {
            write!(f, "{} ", self.known.sign())?;
        }
        match self.interval {
            None => f.write_str("not measured")?,
            Some(Interval { mean, low, high }) if low == high => f.write_str(&unit.told(mean))?,
            Some(Interval { mean, low, high }) => {
                write!(f, "{} ({} to {})", unit.told(mean), unit.told(low), unit.told(high))?;
            }
        }
        let is_direction = role == Role::Direction;
        match bound {
            Bound::AtLeast(low) => {
                let least = if is_direction { "more than" } else { "at least" };
                write!(f, "; claimed {least} {}", unit.told(low))?;
            }
            Bound::AtMost(high) => {
                let most = if is_direction { "less than" } else { "at most" };
                write!(f, "; claimed {most} {}", unit.told(high))?;
            }
            Bound::Within(low, high) => write!(f, "; claimed {} to {}", unit.told(low), unit.told(high))?,
        }
        write!(f, ": {}", self.status.name())
    }
}

/// The verdict on the rows of all seeds, with its findings. `is_sampled` says that values differ
/// between seeds, so that [`SEEDS_MIN`] of them are needed.
pub fn judge(predicates: &[Predicate], rows: &Rows, is_sampled: bool) -> (Verdict, Vec<Finding>) {
    let view = rows.view();
    let mut seeds: Vec<View<'_>> =
        view.values("seed").into_iter().map(|seed| view.of("seed", seed)).collect();
    if !is_sampled {
        seeds.truncate(1);
    }
    let findings: Vec<Finding> = predicates.iter().map(|predicate| Finding::of(predicate, &seeds)).collect();
    let directions = findings.iter().filter(|finding| finding.predicate.role == Role::Direction).count();
    let count = |role: Option<Role>, status: Status| {
        let is_it = |finding: &&Finding| {
            finding.status == status && role.is_none_or(|role| finding.predicate.role == role)
        };
        findings.iter().filter(is_it).count()
    };
    let is_decidable = (!is_sampled || seeds.len() >= SEEDS_MIN)
        && view.flagged("comparable", false) == 0
        && !findings.is_empty();
    let verdict = if !is_decidable {
        Verdict::Undecided
    } else if count(Some(Role::Direction), Status::Fails) > 0 {
        Verdict::NotHere
    } else if count(None, Status::Holds) == findings.len() {
        Verdict::Confirmed
    } else if count(Some(Role::Size), Status::Fails) > 0
        && directions > 0
        && count(Some(Role::Direction), Status::Holds) == directions
    {
        Verdict::Partly
    } else {
        Verdict::Undecided
    };
    (verdict, findings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::row;

    const FASTER: Predicate =
        Predicate::direction("time saved", Unit::Saved, Bound::AtLeast(0.0), |rows| rows.number("saved"));
    const MUCH: Predicate =
        Predicate::size("time saved", Unit::Saved, Bound::AtLeast(0.4), |rows| rows.number("saved"));

    fn rows(saved: &[f64]) -> Rows {
        let mut all = Rows::default();
        for (seed, saved) in (1..).zip(saved) {
            let mut rows = Rows::default();
            rows.push(row!(saved: *saved));
            all.join(seed, rows);
        }
        all
    }

    #[test]
    fn an_interval_is_students() {
        let found = Interval::of(&[1.0, 2.0, 3.0, 4.0, 5.0], Unit::Plain("")).expect("numbers");
        // s = 1.5811, t(0.975, 4) = 2.7764: 3 ± 1.9632.
        assert!((found.mean - 3.0).abs() < 1e-12);
        assert!((found.low - 1.0368).abs() < 1e-3 && (found.high - 4.9632).abs() < 1e-3, "{found:?}");
        let ratio = Interval::of(&[0.5, 2.0], Unit::Ratio).expect("ratios");
        assert!((ratio.mean - 1.0).abs() < 1e-12 && (ratio.low * ratio.high - 1.0).abs() < 1e-9);
        let saved = Interval::of(&[0.4, 0.5, 0.6], Unit::Saved).expect("shares");
        assert!(saved.low < saved.mean && saved.mean < saved.high && saved.high < 1.0, "{saved:?}");
        assert_eq!(Interval::of(&[7.0], Unit::Plain("")).map(|one| (one.low, one.high)), Some((7.0, 7.0)));
        assert_eq!(Interval::of(&[1.0, -1.0], Unit::Ratio), None);
        assert_eq!(Interval::of(&[], Unit::Share), None);
    }

    #[test]
    fn verdicts_follow_the_rule() {
        let verdict = |saved: &[f64]| judge(&[FASTER, MUCH], &rows(saved), true).0;
        assert_eq!(verdict(&[0.5, 0.52, 0.51, 0.49, 0.5]), Verdict::Confirmed);
        assert_eq!(verdict(&[0.2, 0.21, 0.2, 0.19, 0.2]), Verdict::Partly);
        assert_eq!(verdict(&[-0.2, -0.21, -0.2, -0.19, -0.2]), Verdict::NotHere);
        assert_eq!(verdict(&[0.3, 0.5, 0.35, 0.45, 0.4]), Verdict::Undecided, "straddles 40 %");
        assert_eq!(verdict(&[0.2, -0.2, 0.1, -0.1, 0.0]), Verdict::Undecided, "straddles 0");
        assert_eq!(verdict(&[0.5, 0.5, 0.5, 0.5]), Verdict::Undecided, "too few seeds");
        assert_eq!(verdict(&[0.5, 0.5, 0.5, 0.5, f64::NAN]), Verdict::Undecided, "a seed lacks it");
        assert_eq!(judge(&[], &rows(&[0.5; 5]), true).0, Verdict::Undecided, "nothing was claimed");
        assert_eq!(judge(&[FASTER, MUCH], &rows(&[0.5]), false).0, Verdict::Confirmed, "computed");
        assert_eq!(
            judge(&[MUCH], &rows(&[0.2; 5]), true).0,
            Verdict::Undecided,
            "no direction, a size fails"
        );
        assert_eq!(judge(&[MUCH], &rows(&[0.5; 5]), true).0, Verdict::Confirmed, "no direction, sizes hold");
        let mut other_tree = rows(&[0.5; 5]);
        other_tree.push(row!(comparable: false));
        assert_eq!(judge(&[FASTER], &other_tree, true).0, Verdict::Undecided);
    }

    #[test]
    fn a_direction_lies_strictly_beyond_its_bound() {
        let nothing = rows(&[0.0; 5]);
        let (verdict, findings) = judge(&[FASTER], &nothing, true);
        assert_eq!((verdict, findings[0].status), (Verdict::NotHere, Status::Fails), "nothing was saved");
        assert_eq!(findings[0].to_string(), "time saved: 0 %; claimed more than 0 %: fails");
        let size = Predicate { role: Role::Size, ..FASTER };
        let (_, findings) = judge(&[size], &nothing, true);
        assert_eq!(findings[0].status, Status::Holds, "a size contains its ends");
        let fewer = Predicate { bound: Bound::AtMost(0.0), ..FASTER };
        assert_eq!(judge(&[fewer], &nothing, true).0, Verdict::NotHere);
        assert_eq!(judge(&[fewer], &rows(&[-0.2; 5]), true).0, Verdict::Confirmed);
        let between = Predicate { bound: Bound::Within(0.0, 0.5), ..FASTER };
        assert_eq!(judge(&[between], &rows(&[0.2; 5]), true).0, Verdict::Confirmed);
        assert_eq!(judge(&[between], &rows(&[0.5; 5]), true).0, Verdict::NotHere);
    }

    #[test]
    fn a_lower_bound_can_fulfil_a_claim_and_not_refute_it() {
        let status = |known: fn(&View<'_>) -> Known, saved: f64| {
            let (_, findings) = judge(&[MUCH.known_as(known)], &rows(&[saved; 5]), true);
            (findings[0].status, findings[0].to_string())
        };
        let (found, told) = status(|_| Known::AtLeast, 0.5);
        assert_eq!(found, Status::Holds);
        assert_eq!(told, "time saved: >= 50 %; claimed at least 40 %: holds");
        assert_eq!(status(|_| Known::AtLeast, 0.2).0, Status::Open);
        assert_eq!(status(|_| Known::AtMost, 0.5).0, Status::Open);
        let (found, told) = status(|_| Known::AtMost, 0.2);
        assert_eq!(
            (found, told.as_str()),
            (Status::Fails, "time saved: <= 20 %; claimed at least 40 %: fails")
        );
        assert_eq!([0.2, 0.5].map(|saved| status(|_| Known::Roughly, saved).0), [Status::Open; 2]);
    }

    #[test]
    fn findings_are_told_with_their_bounds() {
        let (_, findings) = judge(&[FASTER, MUCH], &rows(&[0.2; 5]), true);
        assert_eq!(findings[1].to_string(), "time saved: 20 %; claimed at least 40 %: fails");
        let (_, findings) = judge(&[FASTER], &rows(&[0.1, 0.2, 0.3, 0.2, 0.2]), true);
        let told = findings[0].to_string();
        assert!(told.starts_with("time saved: 20 % (11 % to 29 %)"), "{told}");
        let units = [
            (Unit::Ratio, 1.5, "1.50x"),
            (Unit::Plain("bits"), 6.25, "6.25 bits"),
            (Unit::Plain("ns"), 1234.0, "1234 ns"),
            (Unit::Share, -0.0001, "0.0 %"),
            (Unit::Saved, 0.031, "3.1 %"),
        ];
        for (unit, value, text) in units {
            assert_eq!(unit.told(value), text);
        }
    }
}
