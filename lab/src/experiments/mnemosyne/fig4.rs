//! Figure 4: data blocks that queries read without need, over the share of queries that find nothing.

use crate::chart::{Axis, Chart, Panel, Point as At, Series, Style};

use super::grid::{DISTRIBUTIONS, Grid, Point, table};
use super::store::{ALLOCATIONS, name, unnecessary};
use crate::lookups::Spread;
use crate::table::row;
use crate::{Device, Experiment, Finding, Kind, Lab, Paper, Scale, Verdict};
use shamba_workload::Distribution;

const BITS: [f64; 3] = [4.0, 6.0, 8.0];
const EMPTY_FRACTIONS: [f64; 8] = [1.0, 0.75, 0.5, 0.25, 0.1, 0.05, 0.01, 0.0];

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "mnemosyne-fig4",
    paper: Paper::Mnemosyne,
    kind: Kind::Measured,
    place: "Fig 4",
    title: "unnecessary data-block accesses over the share of empty queries",
    claim: "Bits by what each file is asked for make fewer unnecessary accesses than the same bits everywhere or bits by level, the more the more queries are skewed.",
    parameters: |scale| grid(scale).parameters([]),
    run,
};

fn grid(scale: Scale) -> Grid {
    Grid {
        bits: &BITS,
        empty_fractions: &EMPTY_FRACTIONS,
        entries: scale.count(1 << 17, 1 << 20, 4_000_000),
        entry_bytes: 128,
        buffers: 64,
        queries: scale.count(10_000, 100_000, 3_000_000),
        seen: scale.count(80_000, 1_000_000, 4_000_000),
    }
}

/// A store at a place, and what it read without need in each trial.
struct Counted {
    point: Point,
    unnecessary: Spread,
}

impl AsRef<Point> for Counted {
    fn as_ref(&self) -> &Point {
        &self.point
    }
}

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    let grid = grid(lab.scale);
    let mut points: Vec<Counted> = Vec::new();
    for (bits_per_key, queries) in grid.places() {
        for store in grid.stores(lab, (bits_per_key, queries))? {
            lab.at(format_args!(
                "{}, {} empty, {}",
                queries.distribution,
                queries.empty_fraction,
                name(store.allocation)
            ));
            let db = store.open(Device::Memory)?;
            let before = db.stats();
            let trial = |number: u32| {
                let begun = db.stats();
                store.ask(&db, queries, grid.queries, lab.seed ^ 3 ^ u64::from(number) << 32)?;
                Ok::<_, String>(unnecessary(&db.stats().since(&begun)))
            };
            let trials = (0..lab.repeats.max(1)).map(trial).collect::<Result<Vec<_>, _>>()?;
            points.push(Counted {
                point: Point::of_refitted(&store, queries, &db.stats().since(&before)),
                unnecessary: Spread::of(trials),
            });
            db.close().map_err(|error| error.chain().to_string())?;
        }
    }
    // The sides of a place follow one another, in the order of allocations.
    let spared = |distribution, over: usize| {
        let places = points.chunks(ALLOCATIONS.len());
        let of = places.filter(|sides| sides[0].point.queries.distribution == distribution);
        mean_spared(of.map(|sides| (sides[over].point.unnecessary, sides[2].point.unnecessary)))
    };
    let [of_uniform, of_normal] =
        DISTRIBUTIONS.map(|distribution| [0, 1].map(|over| spared(distribution, over)));
    let verdict = verdict(of_normal, of_uniform);
    let why = match verdict {
        Verdict::Confirmed => String::new(),
        _ => "Bits follow sampled queries, with a share of evenly spread ones among them, and tables whose bits nearly fit are not written again."
            .to_owned(),
    };
    Ok(Finding {
        ours: format!(
            "For normal queries bits by file spare on average {:.0} % of the unnecessary accesses of uniform bits and {:.0} % of those of bits by run; \
             for uniform queries {:.0} % and {:.0} %.",
            100.0 * of_normal[0],
            100.0 * of_normal[1],
            100.0 * of_uniform[0],
            100.0 * of_uniform[1]
        ),
        verdict,
        why,
        table: table(&["unnecessary_least", "unnecessary_most"], &points, |counted| {
            row![counted.unnecessary.least, counted.unnecessary.most].to_vec()
        }),
        chart: chart(&points, grid),
    })
}

/// The share spared, by the geometric mean over pairs of (baseline, idea); pairs without any are left out.
fn mean_spared(pairs: impl Iterator<Item = (f64, f64)>) -> f64 {
    let logs: Vec<f64> = pairs
        .filter(|(base, idea)| *base > 0.0 && *idea > 0.0)
        .map(|(base, idea)| (idea / base).ln())
        .collect();
    1.0 - (logs.iter().sum::<f64>() / logs.len().max(1) as f64).exp()
}

/// What bits by file spare of uniform bits and of bits by run, for normal and for uniform queries.
fn verdict(normal: [f64; 2], uniform: [f64; 2]) -> Verdict {
    let is_ahead = normal.iter().all(|spared| *spared >= 0.1);
    // Where files are alike nobody can be better than bits by run.
    let is_no_worse = uniform[1] > -0.05;
    match (is_ahead, is_no_worse) {
        (true, true) => Verdict::Confirmed,
        _ if normal.iter().all(|spared| *spared > 0.0) => Verdict::Partly,
        _ => Verdict::NotHere,
    }
}

fn chart(points: &[Counted], grid: Grid) -> Chart {
    let panel = |distribution: Distribution| {
        let series = grid.bits.iter().flat_map(|bits_per_key| {
            ALLOCATIONS.map(|allocation| {
                let of = points.iter().filter(|Counted { point, .. }| {
                    point.queries.distribution == distribution
                        && point.bits_per_key == *bits_per_key
                        && point.allocation == allocation
                });
                let at = of.map(|Counted { point, unnecessary: Spread { median, least, most } }| {
                    At::between(point.queries.empty_fraction, *median, *least, *most)
                });
                let name = format!("{}, {bits_per_key} bits", name(allocation));
                Series::new(name, Style::Line, at.rev().collect())
            })
        });
        Panel {
            title: format!("{distribution} queries"),
            x: Axis::linear("share of empty queries, Z"),
            y: Axis::log("unnecessary accesses a query"),
            series: series.collect(),
        }
    };
    Chart {
        title: "Data blocks that queries read without need".to_owned(),
        claim: EXPERIMENT.claim.to_owned(),
        note: "T = 4, entries of 128 bytes, read-only after the load; normal: a standard deviation of a tenth of the keys, in order. Bits by run and by \
               file were shared out after queries were seen. Bars: least and most of the trials."
            .to_owned(),
        panels: DISTRIBUTIONS.map(panel).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_ahead_of_both_for_skewed_queries_confirms() {
        assert!((mean_spared([(1.0, 0.5), (4.0, 2.0), (0.0, 0.0)].into_iter()) - 0.5).abs() < 1e-12);
        assert_eq!(verdict([0.3, 0.2], [0.3, 0.0]), Verdict::Confirmed);
        assert_eq!(verdict([0.3, 0.02], [0.3, 0.0]), Verdict::Partly);
        assert_eq!(verdict([-0.1, 0.2], [0.3, 0.0]), Verdict::NotHere);
    }
}
