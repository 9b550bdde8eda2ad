//! Figure 13 B: a lookup that finds its key, over the level that the key is in: how recently it was written.

use crate::chart::Axis;

use super::point::{Place, Point, both, chart, measure, of, panel, percent, saved, table};
use super::setup::{BITS_PER_KEY, Filters, SSD, Size, fixed};
use crate::lookups::Questions;
use crate::{Experiment, Finding, Kind, Lab, Paper, Parameter, Scale, Verdict};

/// Up to here the paper's curves of Monkey are flat.
const FLAT_TO: f64 = 6.0;
/// Items that are asked for, at most.
const AMONG: usize = 1 << 16;

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "monkey-fig13b",
    paper: Paper::Monkey,
    kind: Kind::Measured,
    place: "Fig 13 B",
    title: "latency of lookups that find over the level of the key",
    claim: "The state of the art gets slower with each level above the key; Monkey stays flat up to level 6, and filters made for hits are ahead beyond.",
    parameters,
    run,
};

fn parameters(scale: Scale) -> Vec<Parameter> {
    let levels = Size::usual(scale).map_or(0, |size| size.levels);
    let mut all = vec![Parameter::varied("level of the key", 1..=levels)];
    all.push(Parameter::fixed("device", SSD.name()));
    all.extend(fixed(scale, &["empty fraction"]));
    all.push(Parameter::fixed("empty fraction", 0));
    all
}

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    let size = Size::usual(lab.scale)?;
    let (paper, bits) = (size.paper_tree()?, BITS_PER_KEY * size.entries as f64);
    let trees = size.lay(lab, &Filters::ALL, BITS_PER_KEY, 0.0)?;
    let rates = |filters: &Filters| filters.model_fprs(&paper, bits, BITS_PER_KEY, 0.0);
    let fprs: Vec<Vec<f64>> = Filters::ALL.iter().map(rates).collect::<Result<_, _>>()?;
    let mut points = Vec::new();
    for level in 1..=size.levels {
        let among = trees.first().map_or_else(Vec::new, |(_, tree)| tree.items_of(level, AMONG));
        let above = level as usize - 1;
        // The key's own run, and what the filters above it let pass.
        let model = |fprs: &Vec<f64>| Some(1.0 + paper.zero_result_cost(&fprs[..above]));
        let place = Place {
            x: f64::from(level),
            device: SSD,
            questions: Questions { among, ..Questions::uniform(0.0, 1) },
            model_ios: fprs.iter().map(model).collect(),
        };
        points.extend(measure(lab, &trees, place)?);
    }
    let wasted = |filters, level: f64| {
        of(&points, filters).iter().find(|point| point.x == level).map_or(0.0, |point| point.ios - 1.0)
    };
    let deepest = f64::from(size.levels);
    let flat = wasted(Filters::Zero, FLAT_TO);
    let (uniform, zero, general) = (
        wasted(Filters::Uniform, deepest),
        wasted(Filters::Zero, deepest),
        wasted(Filters::General, deepest),
    );
    let is_linear = linearity(&of(&points, Filters::Uniform));
    let verdict = both(verdict_flat(flat, uniform), verdict_beyond(saved(1.0 + zero, 1.0 + general)));
    let why = match verdict {
        Verdict::Confirmed => String::new(),
        _ => "False positives of the levels above the key are counted: see the I/Os in the table.".to_owned(),
    };
    let note = format!(
        "T = 2, {} levels, {BITS_PER_KEY} bits per key, emulated SSD of 290 us a read. Model: one page and the false-positive rates of the \
         levels above. Bars: one standard deviation over the trials.",
        size.levels
    );
    let panels = vec![panel("", Axis::linear("level of the key"), &points)];
    Ok(Finding {
        ours: format!(
            "In vain are read, for a key on level {deepest}, {uniform:.2} pages with uniform bits, {zero:.2} with Monkey, {general:.2} with filters \
             made for hits ({} fewer I/Os than Monkey); on level {FLAT_TO} Monkey reads {flat:.3}. Uniform bits follow a line to {}.",
            percent(saved(1.0 + zero, 1.0 + general)),
            percent(is_linear)
        ),
        verdict,
        why,
        table: table("level", &points),
        chart: chart("A lookup by the level of its key", EXPERIMENT.claim, &note, panels),
    })
}

/// How much of the points' variance a straight line explains.
fn linearity(points: &[&Point]) -> f64 {
    let count = points.len().max(1) as f64;
    let mean = |of: fn(&Point) -> f64| points.iter().map(|point| of(point)).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.x), mean(|point| point.ios));
    let sum = |of: &dyn Fn(&Point) -> f64| points.iter().map(|point| of(point)).sum::<f64>();
    let xy = sum(&|point| (point.x - x) * (point.ios - y));
    let (xx, yy) = (sum(&|point| (point.x - x).powi(2)), sum(&|point| (point.ios - y).powi(2)));
    if xx * yy > 0.0 { xy * xy / (xx * yy) } else { 1.0 }
}

/// `flat`: what Monkey reads in vain on the level up to which it should be flat; `uniform`: what uniform bits do on the last.
fn verdict_flat(flat: f64, uniform: f64) -> Verdict {
    match flat {
        flat if flat < 0.1 * uniform => Verdict::Confirmed,
        flat if flat < 0.3 * uniform => Verdict::Partly,
        _ => Verdict::NotHere,
    }
}

fn verdict_beyond(share: f64) -> Verdict {
    match share {
        share if share > 0.03 => Verdict::Confirmed,
        share if share > 0.0 => Verdict::Partly,
        _ => Verdict::NotHere,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_follow_the_figures() {
        assert_eq!(
            [0.01, 0.1, 0.5].map(|flat| verdict_flat(flat, 0.7)),
            [Verdict::Confirmed, Verdict::Partly, Verdict::NotHere]
        );
        assert_eq!(
            [0.1, 0.01, -0.1].map(verdict_beyond),
            [Verdict::Confirmed, Verdict::Partly, Verdict::NotHere]
        );
    }
}
