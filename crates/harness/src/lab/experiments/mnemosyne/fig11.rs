//! Figure 11: throughput and filter bits over time while the tree grows, for three ways to share bits out.
//!
//! Each store is loaded, then inserts as many again, with as many updates and twice as many empty queries, in windows. In a window each
//! store writes and comes to rest, one after the other, and then they are asked the same queries in turns, several times: nobody's merges run
//! while another is timed, and another one begins each time. What a window took is its writes until rest, and its queries.
//!
//! The paper's two static Monkeys, lists of bits by level made for a tree of known size, are no option of the engine: its bits follow the
//! tree that there is.

use std::time::Instant;

use shamba::{Allocation, Db, Stats};
use shamba_figures::{Axis, Chart, Panel, Point as At, Series, Style};

use super::store::{ALLOCATIONS, Queries, SIZE_RATIO, Store, name, unnecessary};
use crate::dist::Distribution;
use crate::items::Items;
use crate::lab::lookups::Spread;
use crate::lab::table::row;
use crate::lab::tree::written_bits_per_key;
use crate::lab::{Device, Experiment, Finding, Lab, Paper, Parameter, Scale, Table, Verdict};
use crate::permute::Permutation;

const BITS: [f64; 3] = [2.0, 4.0, 6.0];
/// What is held against uniform bits.
const IDEAS: [Allocation; 2] = [Allocation::Monkey, Allocation::Workload];
const ENTRY_BYTES: u64 = 128;
const DEVICE: Device = Device::Pcie;
const WINDOWS: u64 = 10;
/// Bits may be off what was asked for by so much, in part.
const NEAR: f64 = 0.25;
/// Times that differ by no more than this part are as long.
const TIE: f64 = 0.02;

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

/// One store in one window.
struct Point {
    bits_per_key: f64,
    allocation: Allocation,
    window: u64,
    operations_per_s: Spread,
    /// Of each time that all were asked, in order.
    queries_us: Vec<f64>,
    unnecessary: f64,
    written: f64,
    levels: u32,
    runs: u64,
    comparable: bool,
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
            rest(&db)?;
            db.close().map_err(|error| error.to_string())?;
            open.push(store.open(DEVICE)?);
        }
        for window in 0..WINDOWS {
            lab.at(format_args!("window {} of {WINDOWS}, {bits_per_key} bits", window + 1));
            points.extend(measure(lab, &stores, &open, (order, load), window)?);
        }
        for db in open {
            db.close().map_err(|error| error.to_string())?;
        }
    }
    let found = Found::of(&points);
    let verdict = found.verdict();
    Ok(Finding {
        ours: found.told(),
        verdict,
        why: found.why(),
        table: table(&points),
        chart: chart(&points),
    })
}

/// Until nothing is left to be merged.
fn rest(db: &Db) -> Result<(), String> {
    db.flush().and_then(|()| db.wait_idle()).map_err(|error| error.to_string())
}

/// One window of all stores.
fn measure(
    lab: &Lab<'_>,
    stores: &[Store],
    open: &[Db],
    (order, load): (Permutation, u64),
    window: u64,
) -> Result<Vec<Point>, String> {
    let of_window = load / WINDOWS;
    let seed = lab.seed ^ (window + 1) << 8;
    let count = stores.len();
    let mut writes_s = vec![0.0; count];
    for turn in 0..count {
        let at = (turn + window as usize) % count;
        let (store, db) = (&stores[at], &open[at]);
        let since = Instant::now();
        let begin = load + window * of_window;
        insert(store, db, order, begin..begin + of_window)?;
        store.update(db, store.items.count, of_window, seed)?;
        rest(db)?;
        writes_s[at] = since.elapsed().as_secs_f64();
    }
    let before: Vec<Stats> = open.iter().map(Db::stats).collect();
    let mut queries_us = vec![Vec::new(); count];
    let times = u64::from(lab.repeats.max(1));
    let asked = (2 * of_window / times).max(1);
    let queries = Queries { distribution: Distribution::Uniform, empty_fraction: 1.0 };
    for time in 0..times {
        for turn in 0..count {
            let at = (turn + (window + time) as usize) % count;
            let ns = stores[at].ask(&open[at], queries, asked, seed ^ time << 32)?;
            queries_us[at].push(ns as f64 / 1e3 / asked as f64);
        }
    }
    let point = |at: usize| {
        let (store, before, writes_s, queries_us) =
            (&stores[at], &before[at], writes_s[at], queries_us[at].clone());
        let stats = open[at].stats();
        let per_s = |us: &f64| 4.0 * of_window as f64 / (writes_s + 2.0 * of_window as f64 * us / 1e6);
        Point {
            bits_per_key: store.bits_per_key(),
            allocation: store.allocation,
            window: window + 1,
            operations_per_s: Spread::of(queries_us.iter().map(per_s).collect()),
            queries_us,
            unnecessary: unnecessary(&stats.since(before)),
            written: written_bits_per_key(&stats),
            levels: stats.deepest_level,
            runs: stats.runs,
            comparable: stats.deepest_level + 1 >= store.levels,
        }
    };
    Ok((0..count).map(point).collect())
}

/// What the windows say, for each number of bits.
struct Found {
    /// The share of a query's time that bits by run and bits by file spare, on the median of all times that both were asked.
    faster: [[f64; 2]; BITS.len()],
    /// The share of its block reads.
    spared: [[f64; 2]; BITS.len()],
    /// How far written bits are off what was asked for, at most.
    off: f64,
}

impl Found {
    fn of(points: &[Point]) -> Self {
        let of = |bits: f64, allocation: Allocation| {
            points.iter().filter(move |point| point.bits_per_key == bits && point.allocation == allocation)
        };
        let times = |bits, allocation| of(bits, allocation).flat_map(|point| point.queries_us.iter());
        let faster = |bits, allocation| {
            let pairs = times(bits, allocation).zip(times(bits, Allocation::Uniform));
            Spread::of(pairs.map(|(idea, uniform)| 1.0 - idea / uniform).collect()).median
        };
        let reads = |bits, allocation| of(bits, allocation).map(|point| point.unnecessary).sum::<f64>();
        let spared =
            |bits, allocation| 1.0 - reads(bits, allocation) / reads(bits, Allocation::Uniform).max(1e-9);
        let off = points
            .iter()
            .filter(|point| point.allocation != Allocation::Uniform)
            .map(|point| (point.written / point.bits_per_key - 1.0).abs())
            .fold(0.0, f64::max);
        Self {
            faster: BITS.map(|bits| IDEAS.map(|idea| faster(bits, idea))),
            spared: BITS.map(|bits| IDEAS.map(|idea| spared(bits, idea))),
            off,
        }
    }

    fn keeps_to_memory(&self) -> bool {
        self.off <= NEAR
    }

    fn is_as_fast(&self) -> bool {
        self.faster.iter().flatten().all(|faster| *faster >= -TIE)
    }

    /// Of both ideas something is gained with the fewest bits, and no less than with more.
    fn gains_most_with_few(&self) -> bool {
        let gains = |idea: usize| self.faster.map(|of_bits| of_bits[idea]);
        (0..IDEAS.len()).all(|idea| {
            let gains = gains(idea);
            gains[0] > TIE && gains.iter().all(|gain| *gain <= gains[0] + TIE)
        })
    }

    fn verdict(&self) -> Verdict {
        match (self.keeps_to_memory(), self.is_as_fast(), self.gains_most_with_few()) {
            (true, true, true) => Verdict::Confirmed,
            (false, false, _) => Verdict::NotHere,
            _ => Verdict::Partly,
        }
    }

    fn told(&self) -> String {
        let percents = |shares: &[[f64; 2]], idea: usize| {
            shares
                .iter()
                .map(|of_bits| format!("{:.0} %", 100.0 * of_bits[idea]))
                .collect::<Vec<_>>()
                .join(", ")
        };
        format!(
            "At 2, 4, 6 bits per key an empty query with bits by run takes {} less time than with uniform bits, by file {}; of the block reads they spare {} \
             and {}. Written bits are off what was asked for by {:.0} % at most.",
            percents(&self.faster, 0),
            percents(&self.faster, 1),
            percents(&self.spared, 0),
            percents(&self.spared, 1),
            100.0 * self.off
        )
    }

    fn why(&self) -> String {
        let mut why = Vec::new();
        if !self.keeps_to_memory() {
            why.push(
                "Bits leave what was asked for: a table keeps the bits that were right when it was built until it is merged.",
            );
        }
        if !self.is_as_fast() {
            why.push("Some queries take longer than with uniform bits.");
        }
        if !self.gains_most_with_few() {
            why.push("The gain is not largest with the fewest bits for both.");
        }
        why.join(" ")
    }
}

/// Inserts items in random order.
fn insert(store: &Store, db: &Db, order: Permutation, numbers: std::ops::Range<u64>) -> Result<(), String> {
    let mut value = Vec::new();
    for number in numbers {
        let item = order.at(number);
        store.items.value(item, &mut value);
        db.put(store.items.key(item, false), &value).map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn table(points: &[Point]) -> Table {
    let mut table = Table::new(&[
        "bits_per_key",
        "filter_bits",
        "window",
        "operations_per_s",
        "operations_least_per_s",
        "operations_most_per_s",
        "query_us",
        "query_least_us",
        "query_most_us",
        "unnecessary_accesses_per_query",
        "bits_per_key_written",
        "levels",
        "runs",
        "comparable",
        "emulated",
    ]);
    for point in points {
        let query_us = Spread::of(point.queries_us.clone());
        table.row(row![
            point.bits_per_key,
            name(point.allocation),
            point.window,
            point.operations_per_s.median,
            point.operations_per_s.least,
            point.operations_per_s.most,
            query_us.median,
            query_us.least,
            query_us.most,
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

fn chart(points: &[Point]) -> Chart {
    let panel = |bits: f64| {
        let series = ALLOCATIONS.map(|allocation| {
            let of =
                points.iter().filter(|point| point.bits_per_key == bits && point.allocation == allocation);
            let at = of.map(|point| {
                let Spread { median, least, most } = point.operations_per_s;
                At::between(point.window as f64, median, least, most)
            });
            Series::new(name(allocation), Style::Line, at.collect())
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
        note: "T = 4, entries of 128 bytes, emulated PCIe SSD of 10 us a read; each window has a quarter inserts, a quarter updates, half empty queries, \
               and is over when nothing is left to merge. Bars: the least and the most of the times that its queries were asked. Bits as written are in the table."
            .to_owned(),
        panels: BITS.map(panel).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_time_and_fewest_bits_must_all_hold_to_confirm() {
        let found = |faster, off| Found { faster, spared: [[0.0; 2]; 3], off };
        let good = [[0.2, 0.3], [0.1, 0.1], [0.0, 0.0]];
        assert_eq!(found(good, 0.1).verdict(), Verdict::Confirmed);
        assert_eq!(found(good, 0.9).verdict(), Verdict::Partly);
        let slower = [[0.2, 0.3], [0.1, -0.1], [0.0, 0.0]];
        assert_eq!(found(slower, 0.1).verdict(), Verdict::Partly);
        assert_eq!(found(slower, 0.9).verdict(), Verdict::NotHere);
        let rising = [[0.0, 0.3], [0.1, 0.1], [0.2, 0.0]];
        assert_eq!(found(rising, 0.1).verdict(), Verdict::Partly);
        assert!(found(rising, 0.1).why().contains("fewest bits") && found(good, 0.1).why().is_empty());
    }

    #[test]
    fn times_are_held_against_each_other_pair_by_pair() {
        let point = |allocation, queries_us: &[f64], unnecessary, written| Point {
            bits_per_key: BITS[0],
            allocation,
            window: 1,
            operations_per_s: Spread::of(Vec::new()),
            queries_us: queries_us.to_vec(),
            unnecessary,
            written,
            levels: 1,
            runs: 1,
            comparable: true,
        };
        let found = Found::of(&[
            point(Allocation::Uniform, &[10.0, 20.0, 40.0], 0.5, 9.0),
            point(Allocation::Monkey, &[8.0, 16.0, 60.0], 0.4, 2.2),
            point(Allocation::Workload, &[11.0, 22.0, 44.0], 0.6, 1.9),
        ]);
        let near = |found: f64, wanted: f64| (found - wanted).abs() < 1e-9;
        assert!(near(found.faster[0][0], 0.2) && near(found.faster[0][1], -0.1), "{:?}", found.faster);
        assert!(near(found.spared[0][0], 0.2) && near(found.off, 0.1), "{:?} {}", found.spared, found.off);
    }
}
