//! Figure 4: data blocks that queries read without need, over the share of queries that find nothing.

use shamba_figures::{Axis, Chart, Panel, Point as At, Series, Style};

use super::store::{ALLOCATIONS, Queries, SIZE_RATIO, Store, name, unnecessary};
use crate::dist::Distribution;
use crate::items::Items;
use crate::lab::table::{Cell, row};
use crate::lab::tree::written_bits_per_key;
use crate::lab::{Device, Experiment, Finding, Lab, Paper, Parameter, Scale, Table, Verdict};

const DISTRIBUTIONS: [Distribution; 2] = [Distribution::Uniform, Distribution::Normal];
const ENTRY_BYTES: u64 = 128;
/// Write buffers of data: 512 MB of 8 MB.
const BUFFERS: u64 = 64;

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "mnemosyne-fig4",
    paper: Paper::Mnemosyne,
    place: "Fig 4",
    title: "unnecessary data-block accesses over the share of empty queries",
    claim: "Bits by what each file is asked for make fewer unnecessary accesses than the same bits everywhere or bits by level, the more the more queries are skewed.",
    parameters,
    run,
};

fn entries(scale: Scale) -> u64 {
    scale.count(1 << 15, 1 << 20, 4_000_000)
}

fn empty_fractions(scale: Scale) -> Vec<f64> {
    let all = [1.0, 0.75, 0.5, 0.25, 0.1, 0.05, 0.01, 0.0];
    let few = [1.0, 0.5, 0.1, 0.0];
    scale.pick(few.to_vec(), all.to_vec(), all.to_vec())
}

fn bits(scale: Scale) -> Vec<f64> {
    scale.pick(vec![4.0, 8.0], vec![4.0, 6.0, 8.0], vec![4.0, 6.0, 8.0])
}

fn queries(scale: Scale) -> u64 {
    scale.count(30_000, 500_000, 15_000_000)
}

/// Queries that are seen before bits are shared out by them.
fn seen(scale: Scale) -> u64 {
    scale.count(80_000, 1_000_000, 4_000_000)
}

fn parameters(scale: Scale) -> Vec<Parameter> {
    vec![
        Parameter::varied("empty fraction", empty_fractions(scale)),
        Parameter::varied("distribution", DISTRIBUTIONS),
        Parameter::varied("bits per key", bits(scale)),
        Parameter::varied("filter bits", ALLOCATIONS.map(name)),
        Parameter::fixed("entries", entries(scale)),
        Parameter::fixed("entry bytes", ENTRY_BYTES),
        Parameter::fixed("size ratio", SIZE_RATIO),
        Parameter::fixed("buffer and file bytes", entries(scale) * ENTRY_BYTES / BUFFERS),
        Parameter::fixed("queries", queries(scale)),
        Parameter::fixed("standard deviation of normal, part of the keys", 0.1),
    ]
}

struct Point {
    distribution: Distribution,
    bits_per_key: f64,
    empty_fraction: f64,
    /// In the order of [`ALLOCATIONS`].
    unnecessary: [f64; 3],
    written: [f64; 3],
    shape: [Cell; 4],
}

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    let items = Items { count: entries(lab.scale), entry_bytes: ENTRY_BYTES, seed: lab.seed };
    let buffer_bytes = items.bytes() / BUFFERS;
    let mut points = Vec::new();
    for bits_per_key in bits(lab.scale) {
        for distribution in DISTRIBUTIONS {
            for empty_fraction in empty_fractions(lab.scale) {
                let queries = Queries { distribution, empty_fraction };
                let mut point = Point {
                    distribution,
                    bits_per_key,
                    empty_fraction,
                    unnecessary: [0.0; 3],
                    written: [0.0; 3],
                    shape: [Cell::None, Cell::None, Cell::None, Cell::None],
                };
                for (at, allocation) in ALLOCATIONS.into_iter().enumerate() {
                    let store = Store::new(allocation, items, buffer_bytes, bits_per_key);
                    store.lay(lab)?;
                    lab.at(format_args!("{distribution}, {empty_fraction} empty, {}", name(allocation)));
                    store.learn(queries, seen(lab.scale))?;
                    let db = store.open(Device::Memory)?;
                    let before = db.stats();
                    store.ask(&db, queries, self::queries(lab.scale), lab.seed ^ 3)?;
                    let stats = db.stats().since(&before);
                    point.unnecessary[at] = unnecessary(&stats);
                    point.written[at] = written_bits_per_key(&stats);
                    let comparable = stats.deepest_level >= store.levels;
                    point.shape = [
                        stats.deepest_level.into(),
                        stats.runs.into(),
                        comparable.into(),
                        stats.emulated.into(),
                    ];
                    db.close().map_err(|error| error.to_string())?;
                }
                points.push(point);
            }
        }
    }
    let spared = |distribution, over: usize| {
        let of = points.iter().filter(|point| point.distribution == distribution);
        mean_spared(of.map(|point| (point.unnecessary[over], point.unnecessary[2])))
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
        table: table(&points),
        chart: chart(&points, lab.scale),
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

fn table(points: &[Point]) -> Table {
    let mut table = Table::new(&[
        "distribution",
        "bits_per_key",
        "empty_fraction",
        "filter_bits",
        "unnecessary_accesses_per_query",
        "bits_per_key_written",
        "levels",
        "runs",
        "comparable",
        "emulated",
    ]);
    for point in points {
        for (at, allocation) in ALLOCATIONS.into_iter().enumerate() {
            let [levels, runs, comparable, emulated] = point.shape.clone();
            table.row(row![
                point.distribution.name(),
                point.bits_per_key,
                point.empty_fraction,
                name(allocation),
                point.unnecessary[at],
                point.written[at],
                levels,
                runs,
                comparable,
                emulated,
            ]);
        }
    }
    table
}

fn chart(points: &[Point], scale: Scale) -> Chart {
    let panel = |distribution: Distribution| {
        let series = bits(scale).into_iter().flat_map(|bits_per_key| {
            ALLOCATIONS.into_iter().enumerate().map(move |(at, allocation)| {
                let of = points
                    .iter()
                    .filter(|point| point.distribution == distribution && point.bits_per_key == bits_per_key);
                let at: Vec<At> =
                    of.map(|point| At::new(point.empty_fraction, point.unnecessary[at])).rev().collect();
                Series::new(format!("{}, {bits_per_key} bits", name(allocation)), Style::Line, at)
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
               file were shared out after queries were seen."
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
