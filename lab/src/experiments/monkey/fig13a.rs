//! Figure 13 A: a lookup, over the share of lookups that find their key.

use crate::chart::Axis;

use super::point::{Place, Point, both, chart, measure, of, panel, percent, saved, table};
use super::setup::{BITS_PER_KEY, Filters, SSD, Size, fixed};
use crate::lookups::Questions;
use crate::{Experiment, Finding, Kind, Lab, Paper, Parameter, Scale, Verdict};

const HITS_PERCENT: [f64; 8] = [0.0, 20.0, 40.0, 60.0, 70.0, 80.0, 90.0, 100.0];
/// A lead of this part of the I/Os is clear.
const CLEAR: f64 = 0.02;
/// From here on the paper sees a difference between its two allocations.
const HITS_FROM: f64 = 70.0;

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "monkey-fig13a",
    paper: Paper::Monkey,
    kind: Kind::Measured,
    place: "Fig 13 A",
    title: "latency over the share of lookups that find",
    claim: "Monkey is ahead at any share of hits; filters made for the share of hits win over those made for empty lookups from 70 % on.",
    parameters,
    run,
};

fn parameters(scale: Scale) -> Vec<Parameter> {
    let mut all = vec![Parameter::varied("lookups that find [%]", HITS_PERCENT)];
    all.push(Parameter::fixed("device", SSD.name()));
    all.extend(fixed(scale, &["empty fraction"]));
    all
}

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    let size = Size::usual(lab.scale)?;
    let (paper, bits) = (size.paper_tree()?, BITS_PER_KEY * size.entries as f64);
    let mut trees = size.lay(lab, &Filters::PAIR, BITS_PER_KEY, 1.0)?;
    let mut points = Vec::new();
    for hits in HITS_PERCENT {
        let empty_fraction = 1.0 - hits / 100.0;
        trees.extend(size.lay(lab, &[Filters::General], BITS_PER_KEY, empty_fraction)?);
        let model = |filters: &Filters| Ok(Some(filters.model_ios(&paper, bits, empty_fraction)?));
        let place = Place {
            x: hits,
            device: SSD,
            questions: Questions::uniform(empty_fraction, 1),
            model_ios: Filters::ALL.iter().map(model).collect::<Result<_, String>>()?,
        };
        points.extend(measure(lab, &trees, place)?);
        trees.truncate(Filters::PAIR.len());
    }
    let zero_ahead = least_saved(&points, Filters::Uniform, Filters::Zero);
    let from = general_ahead_from(&points);
    let verdict = both(verdict_ahead(zero_ahead), verdict_from(from));
    let at_all_hits =
        points_saved(&points, Filters::Zero, Filters::General).last().map_or(0.0, |(_, share)| *share);
    let from_words = from.map_or("nowhere".to_owned(), |hits| format!("from {hits:.0} % hits on"));
    let why = match verdict {
        Verdict::Confirmed => String::new(),
        _ => "Filters made for hits take the last level's bits, which is worth the more the more lookups end there.".to_owned(),
    };
    let note = format!(
        "T = 2, {} levels, {BITS_PER_KEY} bits per key, emulated SSD of 290 us a read. Model: equations 13, 56, 7 and 19, all hits in the last \
         level. Bars: one standard deviation over the trials.",
        size.levels
    );
    let panels = vec![panel("", Axis::linear("lookups that find their key [%]"), &points)];
    Ok(Finding {
        ours: format!(
            "Monkey spares at least {} of the I/Os at any share; filters made for the share spare more than 2 % of Monkey's {from_words}, \
             {} at nothing but hits.",
            percent(zero_ahead),
            percent(at_all_hits)
        ),
        verdict,
        why,
        table: table("hits_percent", &points),
        chart: chart("Lookups of which some find their key", EXPERIMENT.claim, &note, panels),
    })
}

/// What the second spares the first at each place.
fn points_saved(points: &[Point], first: Filters, second: Filters) -> Vec<(f64, f64)> {
    let pairs = of(points, first).into_iter().zip(of(points, second));
    pairs.map(|(first, second)| (first.x, saved(first.ios, second.ios))).collect()
}

fn least_saved(points: &[Point], first: Filters, second: Filters) -> f64 {
    points_saved(points, first, second).into_iter().map(|(_, share)| share).fold(f64::INFINITY, f64::min)
}

/// The share of hits from which on filters made for it are clearly ahead.
fn general_ahead_from(points: &[Point]) -> Option<f64> {
    let shares = points_saved(points, Filters::Zero, Filters::General);
    let behind = shares.iter().rposition(|(_, share)| *share <= CLEAR);
    shares.get(behind.map_or(0, |at| at + 1)).map(|(hits, _)| *hits)
}

fn verdict_ahead(least: f64) -> Verdict {
    match least {
        share if share > 0.05 => Verdict::Confirmed,
        share if share > 0.0 => Verdict::Partly,
        _ => Verdict::NotHere,
    }
}

fn verdict_from(hits: Option<f64>) -> Verdict {
    match hits {
        Some(hits) if hits <= HITS_FROM => Verdict::Confirmed,
        Some(_) => Verdict::Partly,
        None => Verdict::NotHere,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_follow_the_figures() {
        assert_eq!(verdict_from(Some(60.0)), Verdict::Confirmed);
        assert_eq!(verdict_from(Some(90.0)), Verdict::Partly);
        assert_eq!(verdict_from(None), Verdict::NotHere);
        assert_eq!(
            [0.2, 0.01, -0.1].map(verdict_ahead),
            [Verdict::Confirmed, Verdict::Partly, Verdict::NotHere]
        );
    }
}
