//! Lookups that find nothing while the tree gets deeper: what Figures 12 A and B have in common.
//!
//! With uniform bits each level adds its false positives; with Monkey's the levels above add ever fewer.

use crate::chart::Axis;

use super::point::{Place, Point, chart, measure, of, panel, percent, saved, table};
use super::setup::{BITS_PER_KEY, Filters, SSD_GROWING, Size};
use crate::lookups::Questions;
use crate::{Finding, Lab, Verdict};

/// A claim in figures.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Found {
    /// The share of I/Os that Monkey spares in the deepest tree.
    saved: f64,
    /// How many times the I/Os of a tree of half the levels the deepest one takes, uniform and Monkey.
    uniform_growth: f64,
    monkey_growth: f64,
}

fn verdict(found: Found) -> Verdict {
    let is_flat = found.monkey_growth < 1.2 && found.uniform_growth > 1.4;
    match found.saved {
        saved if saved >= 0.5 && is_flat => Verdict::Confirmed,
        saved if saved >= 0.25 => Verdict::Partly,
        _ => Verdict::NotHere,
    }
}

/// Measures trees of these sizes, (place across, size), and holds them against the claim.
///
/// # Errors
/// What the engine says.
pub(super) fn run(
    lab: &mut Lab<'_>,
    sizes: &[(f64, Size)],
    (title, claim): (&str, &str),
    (x_name, x): (&'static str, Axis),
) -> Result<Finding, String> {
    let mut points: Vec<Point> = Vec::new();
    for (at, size) in sizes {
        let trees = size.lay(lab, &Filters::PAIR, BITS_PER_KEY, 1.0)?;
        let paper = size.paper_tree()?;
        let bits = BITS_PER_KEY * size.entries as f64;
        let model = |filters: &Filters| Ok(Some(filters.model_ios(&paper, bits, 1.0)?));
        let place = Place {
            x: *at,
            device: SSD_GROWING,
            questions: Questions::uniform(1.0, 1),
            model_ios: Filters::PAIR.iter().map(model).collect::<Result<_, String>>()?,
        };
        points.extend(measure(lab, &trees, place)?);
    }
    let ios = |filters| of(&points, filters).into_iter().map(|point| point.ios).collect::<Vec<f64>>();
    let deepest = sizes.last().map_or(0, |(_, size)| size.levels);
    let half = sizes.iter().position(|(_, size)| 2 * size.levels >= deepest).unwrap_or(0);
    let growth = |ios: &[f64]| ios.last().zip(ios.get(half)).map_or(0.0, |(last, half)| last / half);
    let [uniform, monkey] = Filters::PAIR.map(ios);
    let found = Found {
        saved: uniform.last().zip(monkey.last()).map_or(0.0, |(uniform, monkey)| saved(*uniform, *monkey)),
        uniform_growth: growth(&uniform),
        monkey_growth: growth(&monkey),
    };
    let latency = |filters| of(&points, filters).last().map_or(0.0, |point| point.latency_us.mean);
    let [uniform_us, monkey_us] = Filters::PAIR.map(latency);
    let verdict = verdict(found);
    let why = match verdict {
        Verdict::Confirmed => String::new(),
        _ => format!(
            "From {} levels to {deepest} uniform bits take {:.2} times the I/Os and Monkey's {:.2} times.",
            deepest.div_ceil(2),
            found.uniform_growth,
            found.monkey_growth
        ),
    };
    let note = format!(
        "T = 2, {BITS_PER_KEY} bits per key, all lookups empty, emulated SSD of 360 us a read. Model: equations 56 and 7, of which 7 is \
         the limit of many levels. Bars: one standard deviation over the trials."
    );
    Ok(Finding {
        ours: format!(
            "With {deepest} levels Monkey makes {} fewer I/Os ({monkey_us:.0} us a lookup instead of {uniform_us:.0} us); from half the \
             levels on uniform bits grow {:.2} times, Monkey's {:.2} times.",
            percent(found.saved),
            found.uniform_growth,
            found.monkey_growth
        ),
        verdict,
        why,
        table: table(x_name, &points),
        chart: chart(title, claim, &note, vec![panel("", x, &points)]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flat_curve_that_spares_half_confirms() {
        let found = Found { saved: 0.56, uniform_growth: 1.8, monkey_growth: 1.02 };
        assert_eq!(verdict(found), Verdict::Confirmed);
        assert_eq!(verdict(Found { monkey_growth: 1.5, ..found }), Verdict::Partly);
        assert_eq!(verdict(Found { saved: 0.1, ..found }), Verdict::NotHere);
    }
}
