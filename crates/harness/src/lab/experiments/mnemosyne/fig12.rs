//! Figure 12: how long queries and writes take over bits per key, for shares of empty queries and two distributions.
//!
//! Each store is laid down, sees queries of the workload without a device's latency, and may write filters again that deserve other bits.
//! Then come trials of queries, and updates, 31 to 10, to all stores in turn.

use shamba::Allocation;
use shamba_figures::{Axis, Chart, Panel, Point as At, Series, Style};

use super::store::{ALLOCATIONS, Queries, SIZE_RATIO, Store, name, unnecessary};
use crate::dist::Distribution;
use crate::items::Items;
use crate::lab::lookups::Spread;
use crate::lab::table::row;
use crate::lab::tree::written_bits_per_key;
use crate::lab::{Device, Experiment, Finding, Lab, Paper, Parameter, Scale, Table, Verdict};

const DISTRIBUTIONS: [Distribution; 2] = [Distribution::Uniform, Distribution::Normal];
const ENTRY_BYTES: u64 = 512;
/// Write buffers of data.
const BUFFERS: u64 = 64;
const DEVICE: Device = Device::Pcie;
/// The paper sees memory under pressure below so many bits.
const FEW_BITS: f64 = 7.0;

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "mnemosyne-fig12",
    paper: Paper::Mnemosyne,
    place: "Fig 12",
    title: "latency of queries and writes over bits per key",
    claim: "Bits by run save up to 20 % of a query's latency under memory pressure (fewer than 7 bits); bits by file more where queries are skewed; writes cost the same.",
    parameters,
    run,
};

fn entries(scale: Scale) -> u64 {
    scale.count(1 << 15, 1 << 19, 21_000_000)
}

fn bits(scale: Scale) -> Vec<f64> {
    scale.pick(vec![2.0, 4.0, 7.0], vec![2.0, 3.0, 4.0, 5.0, 6.0, 7.0], vec![2.0, 3.0, 4.0, 5.0, 6.0, 7.0])
}

fn empty_fractions(scale: Scale) -> Vec<f64> {
    scale.pick(vec![0.5, 1.0], vec![0.0, 0.5, 1.0], vec![0.0, 0.5, 1.0])
}

/// Queries of a trial.
fn queries(scale: Scale) -> u64 {
    scale.count(2_000, 20_000, 1_000_000)
}

fn seen(scale: Scale) -> u64 {
    scale.count(100_000, 1_000_000, 4_000_000)
}

fn parameters(scale: Scale) -> Vec<Parameter> {
    vec![
        Parameter::varied("bits per key", bits(scale)),
        Parameter::varied("empty fraction", empty_fractions(scale)),
        Parameter::varied("distribution", DISTRIBUTIONS),
        Parameter::varied("filter bits", ALLOCATIONS.map(name)),
        Parameter::fixed("device", DEVICE.name()),
        Parameter::fixed("entries", entries(scale)),
        Parameter::fixed("entry bytes", ENTRY_BYTES),
        Parameter::fixed("size ratio", SIZE_RATIO),
        Parameter::fixed("buffer bytes", entries(scale) * ENTRY_BYTES / BUFFERS),
        Parameter::fixed("queries a trial", queries(scale)),
        Parameter::fixed("updates for 31 queries", 10),
        Parameter::fixed("standard deviation of normal, part of the keys", 0.1),
    ]
}

struct Point {
    bits_per_key: f64,
    queries: Queries,
    allocation: Allocation,
    query_us: Spread,
    write_us: f64,
    unnecessary: f64,
    written: f64,
    levels: u32,
    runs: u64,
    comparable: bool,
}

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    let items = Items { count: entries(lab.scale), entry_bytes: ENTRY_BYTES, seed: lab.seed };
    let mut points = Vec::new();
    for bits_per_key in bits(lab.scale) {
        for distribution in DISTRIBUTIONS {
            for empty_fraction in empty_fractions(lab.scale) {
                let queries = Queries { distribution, empty_fraction };
                points.extend(measure(lab, items, bits_per_key, queries)?);
            }
        }
    }
    let saved = |point: &Point, over: Allocation| {
        let is_other = |other: &&Point| {
            other.bits_per_key == point.bits_per_key
                && other.queries == point.queries
                && other.allocation == over
        };
        points.iter().find(is_other).map_or(0.0, |other| 1.0 - point.query_us.median / other.query_us.median)
    };
    let most = |allocation, over, is_wanted: &dyn Fn(&Point) -> bool| {
        let of = points.iter().filter(|point| point.allocation == allocation && is_wanted(point));
        of.map(|point| saved(point, over)).fold(f64::NEG_INFINITY, f64::max)
    };
    let by_run = most(Allocation::Monkey, Allocation::Uniform, &|point| point.bits_per_key < FEW_BITS);
    let by_file = most(Allocation::Workload, Allocation::Monkey, &|point| {
        point.bits_per_key < FEW_BITS && point.queries.distribution == Distribution::Normal
    });
    let verdict = verdict(by_run, by_file);
    let why = match verdict {
        Verdict::Confirmed => String::new(),
        _ => "The paper's data has more levels below its smallest runs and its figures are not in its text; ours has few levels between which bits could be \
              moved."
            .to_owned(),
    };
    Ok(Finding {
        ours: format!(
            "Below {FEW_BITS} bits per key bits by run save up to {:.0} % of a query's time, and bits by file up to {:.0} % of that for normal queries.",
            100.0 * by_run,
            100.0 * by_file
        ),
        verdict,
        why,
        table: table(&points),
        chart: chart(&points, lab.scale),
    })
}

fn measure(
    lab: &mut Lab<'_>,
    items: Items,
    bits_per_key: f64,
    queries: Queries,
) -> Result<Vec<Point>, String> {
    let stores =
        ALLOCATIONS.map(|allocation| Store::new(allocation, items, items.bytes() / BUFFERS, bits_per_key));
    let mut open = Vec::new();
    for store in &stores {
        store.lay(lab)?;
        store.learn(queries, seen(lab.scale))?;
        open.push(store.open(DEVICE)?);
    }
    let (count, updates) = (self::queries(lab.scale), self::queries(lab.scale) * 10 / 31);
    let before: Vec<shamba::Stats> = open.iter().map(shamba::Db::stats).collect();
    let (mut query_us, mut write_us) = (vec![Vec::new(); stores.len()], vec![0.0; stores.len()]);
    lab.at(format_args!("{bits_per_key} bits, {}, {} empty", queries.distribution, queries.empty_fraction));
    for trial in 0..lab.repeats {
        for (at, (store, db)) in stores.iter().zip(&open).enumerate() {
            let seed = lab.seed ^ u64::from(trial + 1) << 8;
            query_us[at].push(store.ask(db, queries, count, seed)? as f64 / count as f64 / 1e3);
            write_us[at] += store.update(db, items.count, updates, seed)? as f64 / updates as f64 / 1e3;
        }
    }
    let mut points = Vec::new();
    for (at, (store, db)) in stores.iter().zip(&open).enumerate() {
        let stats = db.stats().since(&before[at]);
        points.push(Point {
            bits_per_key,
            queries,
            allocation: store.allocation,
            query_us: Spread::of(query_us[at].clone()),
            write_us: write_us[at] / f64::from(lab.repeats),
            unnecessary: unnecessary(&stats),
            written: written_bits_per_key(&stats),
            levels: stats.deepest_level,
            runs: stats.runs,
            comparable: stats.deepest_level >= store.levels,
        });
    }
    for db in open {
        db.close().map_err(|error| error.to_string())?;
    }
    Ok(points)
}

/// What bits by run save of uniform bits at most, and bits by file of bits by run.
fn verdict(by_run: f64, by_file: f64) -> Verdict {
    match (by_run, by_file) {
        (run, file) if run >= 0.15 && file >= 0.05 => Verdict::Confirmed,
        (run, file) if run >= 0.05 || file >= 0.05 => Verdict::Partly,
        _ => Verdict::NotHere,
    }
}

fn table(points: &[Point]) -> Table {
    let mut table = Table::new(&[
        "bits_per_key",
        "distribution",
        "empty_fraction",
        "filter_bits",
        "query_us",
        "query_least_us",
        "query_most_us",
        "write_us",
        "unnecessary_accesses_per_query",
        "bits_per_key_written",
        "levels",
        "runs",
        "comparable",
        "emulated",
    ]);
    for point in points {
        table.row(row![
            point.bits_per_key,
            point.queries.distribution.name(),
            point.queries.empty_fraction,
            name(point.allocation),
            point.query_us.median,
            point.query_us.least,
            point.query_us.most,
            point.write_us,
            point.unnecessary,
            point.written,
            point.levels,
            point.runs,
            point.comparable,
            true,
        ]);
    }
    table
}

fn chart(points: &[Point], scale: Scale) -> Chart {
    let panel = |distribution: Distribution| {
        let series = empty_fractions(scale).into_iter().flat_map(|empty_fraction| {
            ALLOCATIONS.into_iter().map(move |allocation| {
                let queries = Queries { distribution, empty_fraction };
                let of = points
                    .iter()
                    .filter(move |point| point.queries == queries && point.allocation == allocation);
                let at = of.map(|point| {
                    let Spread { median, least, most } = point.query_us;
                    At::between(point.bits_per_key, median, least, most)
                });
                Series::new(format!("{}, Z = {empty_fraction}", name(allocation)), Style::Line, at.collect())
            })
        });
        Panel {
            title: format!("{distribution} queries"),
            x: Axis::linear("filter bits per key"),
            y: Axis::from_zero("query latency [us]"),
            series: series.collect(),
        }
    };
    Chart {
        title: "Queries over filter memory".to_owned(),
        claim: EXPERIMENT.claim.to_owned(),
        note: "T = 4, entries of 512 bytes, emulated PCIe SSD of 10 us a read, 10 updates for 31 queries. Bars: the least and the most of the trials. The \
               latency of writes is in the table."
            .to_owned(),
        panels: DISTRIBUTIONS.map(panel).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_follow_the_figures() {
        assert_eq!(verdict(0.2, 0.1), Verdict::Confirmed);
        assert_eq!(verdict(0.2, 0.0), Verdict::Partly);
        assert_eq!(verdict(0.01, 0.01), Verdict::NotHere);
    }
}
