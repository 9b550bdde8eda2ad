//! What hashing costs as a tree has more levels, or more runs a level: what [`super::levels`] and [`super::runs`] have in common.
//!
//! Hashes are counted by the engine, and timed by what a filter more costs, as the slope of a line through all points has it, a lookup that hashes for every
//! filter and one that hashes once: nothing
//! else differs, so that the difference is what sharing takes off each filter. If that is a whole hash, hashing no longer depends on the filters.
//! That a lookup with one digest hashes once is so by construction. The engine's timers would not do: they tick for every filter, shared or not.
//! Sixteen bits per key make few false positives: what is searched in vain should not hide what is hashed.

use crate::chart::{Axis, Chart, Panel, Point, Series, Style};
use shamba::DigestKind;

use super::claims::{Claim, Held, judge};
use super::gains::{Gain, percent, table};
use crate::layered::Shape;
use crate::lookups::{Questions, Spread};
use crate::table::Cell;
use crate::tree::{Spec, Tree};
use crate::{Device, Finding, Lab, Parameter};

const KEY_BYTES: usize = 1_024;
const ENTRY_BYTES: usize = 1_088;
const BITS_PER_KEY: f64 = 16.0;
/// A hash among the other work of a lookup may take so much less than by itself, as the processor does both at once.
const NEAR: f64 = 0.25;

/// All parameters, of which `own` are those of one of the figures.
pub(super) fn parameters(own: impl IntoIterator<Item = Parameter>) -> Vec<Parameter> {
    let fixed = [
        Parameter::fixed("device", Device::Memory.name()),
        Parameter::fixed("key bytes", KEY_BYTES),
        Parameter::fixed("entry bytes", ENTRY_BYTES),
        Parameter::fixed("digest", "MM64 (the paper's)"),
        Parameter::fixed("bits per key", BITS_PER_KEY),
        Parameter::fixed("empty fraction", 1),
    ];
    own.into_iter().chain(fixed).collect()
}

/// Measures a tree of so many entries in this shape, for the place `x`.
///
/// # Errors
/// What the engine says.
pub(super) fn measure(
    lab: &mut Lab<'_>,
    (name, x): (&'static str, u32),
    (entries, shape): (u64, Shape),
    lookups: u64,
) -> Result<Gain, String> {
    let sizes = (KEY_BYTES, ENTRY_BYTES);
    let mut spec = Spec { shape, ..Spec::leveled(entries, sizes, shape.size_ratio, shape.levels) };
    spec.digest = DigestKind::Murmur64A;
    spec.bits.per_key = BITS_PER_KEY;
    let tree = Tree::lay(lab, name, spec, Device::Memory)?;
    let questions = Questions::uniform(1.0, lookups);
    let gain = Gain::measure(lab, &tree, Device::Memory, &questions, (name, f64::from(x), Cell::from(x)))?;
    tree.discard(lab)?;
    Ok(gain)
}

/// The finding over points that were measured with more and more filters a lookup.
pub(super) fn finding(
    gains: &[Gain],
    x_name: &'static str,
    x: Axis,
    (what, title, claim, note): (&str, &str, &str, &str),
) -> Result<Finding, String> {
    let points = |value: &dyn Fn(&Gain) -> f64| -> Vec<Point> {
        gains.iter().map(|gain| Point::new(gain.x, value(gain))).collect()
    };
    let spread = |side: &dyn Fn(&Gain) -> Spread| -> Vec<Point> {
        let point = |gain: &Gain| {
            let spread = side(gain);
            Point::between(gain.x, spread.median, spread.least, spread.most)
        };
        gains.iter().map(point).collect()
    };
    let [first, .., last] = gains else { return Err("fewer than two depths".to_owned()) };
    let hash_ns = last.hash_ns.ok_or("the hash was not timed")?;
    let slope = |ns: fn(&Gain) -> f64| {
        slope(&gains.iter().map(|gain| (gain.filters(), ns(gain))).collect::<Vec<_>>())
    };
    let (baseline_ns, shared_ns) =
        (slope(|gain| gain.baseline.ns.median), slope(|gain| gain.shared.ns.median));
    let counts: Vec<f64> =
        gains.iter().map(|gain| gain.shared.per_lookup(gain.shared.stats.hashes)).collect();
    let (verdict, why) = judge(&claims(&counts, [baseline_ns, shared_ns], hash_ns), || last.because());
    Ok(Finding {
        ours: format!(
            "From {:.1} to {:.1} filters a lookup, each filter more costs {baseline_ns:.0} ns without sharing and {shared_ns:.0} ns with one digest; one hash takes {hash_ns:.0} \
             ns. {what}, {:.0} hashes of a lookup become {}.",
            first.filters(),
            last.filters(),
            last.hashes(),
            if is_one(&counts) { "one".to_owned() } else { format!("up to {:.2}", most(&counts)) }
        ),
        verdict,
        why,
        table: table(x_name, gains),
        chart: Chart {
            title: title.to_owned(),
            claim: claim.to_owned(),
            note: note.to_owned(),
            panels: vec![
                Panel {
                    title: "counted".to_owned(),
                    x: x.clone(),
                    y: Axis::from_zero("hashes of a lookup"),
                    series: vec![
                        Series::new("a hash for every filter", Style::Line, points(&Gain::hashes)),
                        Series::new(
                            "one digest",
                            Style::Line,
                            points(&|gain| gain.shared.per_lookup(gain.shared.stats.hashes)),
                        ),
                    ],
                },
                Panel {
                    title: "timed".to_owned(),
                    x,
                    y: Axis::from_zero("time of a lookup [ns]"),
                    series: vec![
                        Series::new("a hash for every filter", Style::Line, spread(&|gain| gain.baseline.ns)),
                        Series::new("one digest", Style::Line, spread(&|gain| gain.shared.ns)),
                    ],
                },
            ],
        },
    })
}

/// What sharing takes off every filter, in hashes: a whole one, if hashing no longer depends on filters. Beside it the count, and that a filter more
/// costs a hash without it: otherwise nothing would be shown.
fn claims(hashes: &[f64], [baseline_ns, shared_ns]: [f64; 2], hash_ns: f64) -> Vec<Claim> {
    let spared = (baseline_ns - shared_ns) / hash_ns;
    let text = format!("of the hash that each filter more costs, one digest takes off {}", percent(spared));
    vec![
        match spared {
            spared if spared >= 1.0 - NEAR => Claim::new(Held::Fully, text),
            spared if spared >= 0.5 => Claim::new(Held::InPart, text),
            _ => Claim::new(Held::Not, text),
        },
        Claim::is(is_one(hashes), format!("some trees' lookups hash {:.2} times in the mean", most(hashes))),
        Claim::is(
            baseline_ns >= (1.0 - NEAR) * hash_ns,
            format!(
                "without sharing a filter more costs {baseline_ns:.0} ns, less than a hash ({hash_ns:.0} ns)"
            ),
        ),
    ]
}

/// The slope of the line through (x, y) with the least squares; not a number if there are no two x.
fn slope(points: &[(f64, f64)]) -> f64 {
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / points.len() as f64;
    let (x_mean, y_mean) = (mean(|point| point.0), mean(|point| point.1));
    let products: f64 = points.iter().map(|(x, y)| (x - x_mean) * (y - y_mean)).sum();
    let squares: f64 = points.iter().map(|(x, _)| (x - x_mean).powi(2)).sum();
    products / squares
}

fn most(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

fn is_one(hashes: &[f64]) -> bool {
    !hashes.is_empty() && hashes.iter().all(|hashes| (hashes - 1.0).abs() < 1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Verdict;

    #[test]
    fn a_slope_is_that_of_all_points() {
        assert!((slope(&[(1.0, 5.0), (2.0, 7.0), (3.0, 9.0)]) - 2.0).abs() < 1e-12);
        // The ends alone would say 2.
        assert!((slope(&[(0.0, 0.0), (1.0, 5.0), (2.0, 5.0), (3.0, 6.0)]) - 1.8).abs() < 1e-12);
        assert!(slope(&[(1.0, 5.0)]).is_nan());
    }

    #[test]
    fn the_verdict_follows_counts_and_times() {
        let verdict = |hashes: f64, baseline, shared| {
            judge(&claims(&[1.0, hashes], [baseline, shared], 150.0), String::new).0
        };
        assert_eq!(verdict(1.0, 160.0, 15.0), Verdict::Confirmed);
        assert_eq!(verdict(1.01, 160.0, 15.0), Verdict::Partly);
        assert_eq!(verdict(1.0, 110.0, 15.0), Verdict::Partly);
        assert_eq!(verdict(1.0, 160.0, 70.0), Verdict::Partly);
        assert_eq!(verdict(1.0, 160.0, 155.0), Verdict::NotHere);
        assert_eq!(verdict(1.0, f64::NAN, 15.0), Verdict::NotHere);
    }
}
