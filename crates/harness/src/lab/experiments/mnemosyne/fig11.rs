//! Figure 11: throughput and filter bits over time while the tree grows, for three ways to share bits out.
//!
//! Each store is loaded, then inserts as many again, with as many updates and twice as many empty queries between them, in windows of
//! which each goes to all stores in turn. The paper's two static Monkeys, lists of bits by level made for a tree of known size, are
//! no option of the engine: its bits follow the tree that there is.

use std::time::Instant;

use shamba::Allocation;
use shamba_figures::{Axis, Chart, Panel, Point as At, Series, Style};

use super::grid::{Point, table};
use super::store::{ALLOCATIONS, Queries, SIZE_RATIO, Store, name};
use crate::dist::Distribution;
use crate::items::Items;
use crate::lab::table::row;
use crate::lab::{Device, Experiment, Finding, Lab, Paper, Parameter, Scale, Verdict};
use crate::permute::Permutation;

const BITS: [f64; 3] = [2.0, 4.0, 6.0];
const ENTRY_BYTES: u64 = 128;
const DEVICE: Device = Device::Pcie;
const WINDOWS: u64 = 10;
/// Bits may be off what was asked for by so much, in part.
const NEAR: f64 = 0.25;

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "mnemosyne-fig11",
    paper: Paper::Mnemosyne,
    place: "Fig 11",
    title: "throughput and bits per key while the tree grows",
    claim: "Bits that follow the tree keep to the memory asked for while it grows, and queries are at least as fast as with uniform bits, most with few bits.",
    parameters,
    run,
};

/// Entries of the load; as many are inserted later.
fn load(scale: Scale) -> u64 {
    scale.count(1 << 15, 1 << 20, 20_000_000)
}

fn buffer_bytes(scale: Scale) -> u64 {
    scale.count(64 << 10, 1 << 20, 8 << 20)
}

fn parameters(scale: Scale) -> Vec<Parameter> {
    vec![
        Parameter::varied("bits per key", BITS),
        Parameter::varied("filter bits", ALLOCATIONS.map(name)),
        Parameter::varied("window", 1..=WINDOWS),
        Parameter::fixed("device", DEVICE.name()),
        Parameter::fixed("entries of the load", load(scale)),
        Parameter::fixed(
            "inserts, updates, empty queries",
            format!("{0}, {0}, {1}", load(scale), 2 * load(scale)),
        ),
        Parameter::fixed("entry bytes", ENTRY_BYTES),
        Parameter::fixed("size ratio", SIZE_RATIO),
        Parameter::fixed("buffer bytes", buffer_bytes(scale)),
    ]
}

/// A store in a window.
struct Windowed {
    point: Point,
    window: u64,
    operations_per_s: f64,
    query_us: f64,
}

impl AsRef<Point> for Windowed {
    fn as_ref(&self) -> &Point {
        &self.point
    }
}

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    let load = load(lab.scale);
    let items = Items { count: 2 * load, entry_bytes: ENTRY_BYTES, seed: lab.seed };
    let order = Permutation::new(items.count, items.seed);
    let mut points = Vec::new();
    for bits_per_key in BITS {
        let stores = ALLOCATIONS
            .map(|allocation| Store::new(allocation, items, buffer_bytes(lab.scale), bits_per_key));
        let mut open = Vec::new();
        for store in &stores {
            lab.at(format_args!("loading, {bits_per_key} bits, {}", name(store.allocation)));
            let db = store.open(Device::Memory)?;
            insert(store, &db, order, 0..load)?;
            db.flush()
                .and_then(|()| db.wait_idle())
                .and_then(|()| db.close())
                .map_err(|error| error.to_string())?;
            open.push(store.open(DEVICE)?);
        }
        let of_window = load / WINDOWS;
        for window in 0..WINDOWS {
            lab.at(format_args!("window {} of {WINDOWS}, {bits_per_key} bits", window + 1));
            for (store, db) in stores.iter().zip(&open) {
                let since = Instant::now();
                let begin = load + window * of_window;
                insert(store, db, order, begin..begin + of_window)?;
                let seed = lab.seed ^ (window + 1) << 8;
                store.update(db, items.count, of_window, seed)?;
                let before = db.stats();
                let queries = Queries { distribution: Distribution::Uniform, empty_fraction: 1.0 };
                let ns = store.ask(db, queries, 2 * of_window, seed)?;
                let seconds = since.elapsed().as_secs_f64();
                let stats = db.stats();
                // The last level comes to be while the tree grows.
                let point = Point::new(store, queries, &stats.since(&before), store.levels - 1);
                points.push(Windowed {
                    point,
                    window: window + 1,
                    operations_per_s: 4.0 * of_window as f64 / seconds,
                    query_us: ns as f64 / 2e3 / of_window as f64,
                });
            }
        }
        for db in open {
            db.close().map_err(|error| error.to_string())?;
        }
    }
    let of = |bits: f64, allocation| {
        let is_it =
            move |one: &&Windowed| one.point.bits_per_key == bits && one.point.allocation == allocation;
        points.iter().filter(is_it)
    };
    // There are as many windows of each.
    let unnecessary = |bits, allocation| of(bits, allocation).map(|one| one.point.unnecessary).sum::<f64>();
    let saved =
        |bits, allocation| 1.0 - unnecessary(bits, allocation) / unnecessary(bits, Allocation::Uniform);
    let by_file = BITS.map(|bits| saved(bits, Allocation::Workload));
    let by_run = BITS.map(|bits| saved(bits, Allocation::Monkey));
    let off = points
        .iter()
        .map(|one| &one.point)
        .filter(|point| point.allocation != Allocation::Uniform)
        .map(|point| (point.written / point.bits_per_key - 1.0).abs())
        .fold(0.0, f64::max);
    let least = by_file.iter().chain(&by_run).copied().fold(f64::INFINITY, f64::min);
    let verdict = verdict(least, off);
    let why = match verdict {
        Verdict::Confirmed => String::new(),
        _ => "A table keeps the bits that were right when it was built until it is merged, and young tables built while the tree was smaller weigh most \
              at few bits."
            .to_owned(),
    };
    let percents = |shares: [f64; 3]| shares.map(|share| format!("{:.0} %", 100.0 * share)).join(", ");
    Ok(Finding {
        ours: format!(
            "At 2, 4, 6 bits per key bits by run spare {} of the block reads of an empty query, by file {}; written bits are off what was asked for by {:.0} % at most.",
            percents(by_run),
            percents(by_file),
            100.0 * off
        ),
        verdict,
        why,
        table: table(&["window", "operations_per_s", "query_us"], &points, |one| {
            row![one.window, one.operations_per_s, one.query_us].to_vec()
        }),
        chart: chart(&points),
    })
}

/// Inserts items in random order.
fn insert(
    store: &Store,
    db: &shamba::Db,
    order: Permutation,
    numbers: std::ops::Range<u64>,
) -> Result<(), String> {
    let mut value = Vec::new();
    for number in numbers {
        let item = order.at(number);
        store.items.value(item, &mut value);
        db.put(store.items.key(item, false), &value).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// `least`: the least share of a query's reads that is spared; `off`: how far bits are off.
fn verdict(least: f64, off: f64) -> Verdict {
    match (least > 0.0, off <= NEAR) {
        (true, true) => Verdict::Confirmed,
        (false, false) => Verdict::NotHere,
        _ => Verdict::Partly,
    }
}

fn chart(points: &[Windowed]) -> Chart {
    let panel = |bits: f64| {
        let series = ALLOCATIONS.map(|allocation| {
            let is_it =
                |one: &&Windowed| one.point.bits_per_key == bits && one.point.allocation == allocation;
            let at = points.iter().filter(is_it);
            let at = at.map(|one| At::new(one.window as f64, one.operations_per_s)).collect();
            Series::new(name(allocation), Style::Line, at)
        });
        Panel {
            title: format!("{bits} bits per key"),
            x: Axis::linear("window"),
            y: Axis::from_zero("operations a second"),
            series: series.into(),
        }
    };
    Chart {
        title: "Throughput while the tree grows".to_owned(),
        claim: EXPERIMENT.claim.to_owned(),
        note: "T = 4, entries of 128 bytes, emulated PCIe SSD of 10 us a read; each window has a quarter inserts, a quarter updates, half empty queries. \
               Bits as written are in the table."
            .to_owned(),
        panels: BITS.map(panel).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_faster_with_the_bits_asked_for_confirms() {
        assert_eq!(verdict(0.05, 0.1), Verdict::Confirmed);
        assert_eq!(verdict(0.05, 0.9), Verdict::Partly);
        assert_eq!(verdict(-0.05, 0.9), Verdict::NotHere);
    }
}
