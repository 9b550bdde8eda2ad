//! A claim in parts, each held against what was measured: the verdict follows from them, and what is said of it.
//!
//! The first part is what the figure is about. If that is not so, the claim is not confirmed, whatever else is; all parts together confirm it.
//! Each part has a sentence with both figures, which the report shows where they differ.
//!
//! Not here: what a part is held against (beside each experiment).

use super::gains::percent;
use crate::Verdict;
use crate::lookups::Spread;

/// Shares are told in whole percent, by the papers, too: half of one is no difference.
pub(super) const ROUNDING: f64 = 0.005;
/// Less than this part of what was claimed is nothing of it.
pub(super) const LEAST_PART: f64 = 0.25;

/// How much of it is so here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Held {
    Fully,
    /// The direction is the same, the size is not; or it was not to be measured.
    InPart,
    Not,
}

/// A part of a claim.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    pub held: Held,
    /// What was found and what was claimed, without an end.
    text: String,
}

impl Claim {
    pub fn new(held: Held, text: impl Into<String>) -> Self {
        Self { held, text: text.into() }
    }

    /// Something that is or is not.
    pub fn is(is_so: bool, text: impl Into<String>) -> Self {
        Self::new(if is_so { Held::Fully } else { Held::Not }, text)
    }

    /// A share that the paper has at `claimed` or above.
    pub fn at_least(what: &str, share: f64, claimed: f64) -> Self {
        let held = match share {
            share if share >= claimed - ROUNDING => Held::Fully,
            share if share >= LEAST_PART * claimed => Held::InPart,
            _ => Held::Not,
        };
        Self::new(held, format!("{what} {}, where the paper has {}", percent(share), percent(claimed)))
    }

    /// Something that grows from `first` to `last`: by more than either scatters, or within that neither grows nor falls.
    pub fn grows(what: &str, first: Spread, last: Spread) -> Self {
        let (change, noise) = (last.median - first.median, noise(&[first, last]));
        let held = match change {
            change if change > noise => Held::Fully,
            change if change >= -noise => Held::InPart,
            _ => Held::Not,
        };
        let text = format!(
            "{what} goes from {} to {}, with repeats up to {:.1} points from the median",
            percent(first.median),
            percent(last.median),
            100.0 * noise
        );
        Self::new(held, text)
    }

    /// Something that grows from the first to the last, and never falls between by more than both sides of a step scatter. What grows over all and
    /// falls between holds in part.
    pub fn rises(what: &str, all: &[Spread]) -> Self {
        let (Some(first), Some(last)) = (all.first(), all.last()) else {
            return Self::new(Held::InPart, format!("{what} was not measured"));
        };
        let falls = all.windows(2).find(|step| step[1].median < step[0].median - noise(step));
        let whole = Self::grows(what, *first, *last);
        match falls {
            Some(step) if whole.held == Held::Fully => Self::new(
                Held::InPart,
                format!(
                    "{what} falls between, from {} to {}, by more than repeats scatter",
                    percent(step[0].median),
                    percent(step[1].median)
                ),
            ),
            _ => whole,
        }
    }
}

/// How far repeats lie from their median at most.
pub(super) fn noise(spreads: &[Spread]) -> f64 {
    spreads
        .iter()
        .map(|spread| (spread.most - spread.median).max(spread.median - spread.least))
        .fold(0.0, f64::max)
}

/// The verdict over all parts, and what is not as claimed, followed by `because`; nothing where all of it is confirmed.
pub(super) fn judge(claims: &[Claim], because: impl FnOnce() -> String) -> (Verdict, String) {
    let verdict = verdict(claims);
    let lead = match verdict {
        Verdict::Confirmed => return (verdict, String::new()),
        Verdict::Partly => "Not as claimed",
        Verdict::NotHere => "Otherwise here",
    };
    let otherwise: Vec<&str> =
        claims.iter().filter(|claim| claim.held != Held::Fully).map(|claim| claim.text.as_str()).collect();
    (verdict, format!("{lead}: {}. {}", otherwise.join("; "), because()).trim_end().to_owned())
}

fn verdict(claims: &[Claim]) -> Verdict {
    match claims {
        [] | [Claim { held: Held::Not, .. }, ..] => Verdict::NotHere,
        claims if claims.iter().all(|claim| claim.held == Held::Fully) => Verdict::Confirmed,
        _ => Verdict::Partly,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(median: f64, noise: f64) -> Spread {
        Spread { median, least: median - noise / 2.0, most: median + noise }
    }

    #[test]
    fn the_first_part_decides_and_all_confirm() {
        let of = |held: &[Held]| verdict(&held.iter().map(|held| Claim::new(*held, "")).collect::<Vec<_>>());
        assert_eq!(of(&[Held::Fully, Held::Fully]), Verdict::Confirmed);
        assert_eq!(of(&[Held::Fully, Held::Not]), Verdict::Partly);
        assert_eq!(of(&[Held::InPart, Held::Fully]), Verdict::Partly);
        assert_eq!(of(&[Held::Not, Held::Fully]), Verdict::NotHere);
        assert_eq!(of(&[]), Verdict::NotHere);
    }

    #[test]
    fn only_what_is_otherwise_is_told() {
        let claims = [Claim::at_least("a is", 0.5, 0.4), Claim::at_least("b is", 0.2, 0.4)];
        let (verdict, why) = judge(&claims, || "For a reason.".to_owned());
        assert_eq!(verdict, Verdict::Partly);
        assert_eq!(why, "Not as claimed: b is 20 %, where the paper has 40 %. For a reason.");
        let (verdict, why) = judge(&claims[..1], || unreachable!("nothing to explain"));
        assert_eq!((verdict, why.as_str()), (Verdict::Confirmed, ""));
        let (verdict, why) = judge(&[Claim::is(false, "c is not")], String::new);
        assert_eq!((verdict, why.as_str()), (Verdict::NotHere, "Otherwise here: c is not."));
    }

    #[test]
    fn shares_are_held_against_the_claims() {
        let held = |claims: [Claim; 4]| claims.map(|claim| claim.held);
        let wanted = [Held::Fully, Held::Fully, Held::InPart, Held::Not];
        assert_eq!(held([0.5, 0.396, 0.39, 0.09].map(|share| Claim::at_least("", share, 0.4))), wanted);
    }

    #[test]
    fn growth_counts_beyond_the_spread() {
        let held = |last: f64| Claim::grows("", spread(0.1, 0.02), spread(last, 0.01)).held;
        assert_eq!(
            [held(0.13), held(0.11), held(0.09), held(0.07)],
            [Held::Fully, Held::InPart, Held::InPart, Held::Not]
        );
        let rises = |between: f64, last: f64| {
            let all = [0.1, between, last].map(|median| spread(median, 0.02));
            Claim::rises("it", &all)
        };
        assert_eq!(
            [rises(0.2, 0.3).held, rises(0.32, 0.31).held, rises(0.4, 0.3).held, rises(0.2, 0.11).held],
            [Held::Fully, Held::Fully, Held::InPart, Held::InPart]
        );
        assert_eq!([rises(0.2, 0.05).held, Claim::rises("it", &[]).held], [Held::Not, Held::InPart]);
        assert_eq!(rises(0.4, 0.3).text, "it falls between, from 40 % to 30 %, by more than repeats scatter");
        assert!((noise(&[spread(0.1, 0.02), spread(0.2, 0.03)]) - 0.03).abs() < 1e-12);
    }
}
