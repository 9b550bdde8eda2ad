//! Figure 11: throughput and filter bits over time while the tree grows, for three ways to share bits out.
//!
//! Each store is loaded, then inserts as many again, with as many updates and twice as many empty queries, in windows. In a window each
//! store writes and comes to rest, one after the other, and then they are asked the same queries in turns, several times: nobody's merges run
//! while another is timed, and another one begins each time. What a window took is its writes until rest, and its queries.
//!
//! Bits follow the tree, and are not refitted: so a window says something of time only where both sides have as many bits as written.
//!
//! The paper's two static Monkeys, lists of bits by level made for a tree of known size, are no option of the engine: its bits follow the
//! tree that there is.

use std::time::Instant;

use crate::chart::{Axis, Chart, Panel, Point as At, Series, Style};
use shamba::{Allocation, Db, Stats};

use super::grid::{OFF_MOST, Point, table};
use super::store::{ALLOCATIONS, Queries, SIZE_RATIO, Store, file_bytes, levels_for, name};
use crate::items::Items;
use crate::lookups::Spread;
use crate::table::row;
use crate::{Device, Experiment, Finding, Kind, Lab, Paper, Parameter, Scale, Verdict};
use shamba_workload::Distribution;
use shamba_workload::Permutation;

const BITS: [f64; 3] = [2.0, 4.0, 6.0];
/// What is held against uniform bits.
const IDEAS: [Allocation; 2] = [Allocation::Monkey, Allocation::Workload];
const ENTRY_BYTES: u64 = 128;
const DEVICE: Device = Device::Pcie;
const WINDOWS: u64 = 10;
/// Times that differ by no more than this part are as long.
const TIE: f64 = 0.02;

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "mnemosyne-fig11",
    paper: Paper::Mnemosyne,
    kind: Kind::Measured,
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

/// Some 500 of them are in the tree at the end, as some 600 in the paper's.
fn buffer_bytes(scale: Scale) -> u64 {
    scale.count(16 << 10, 512 << 10, 8 << 20)
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
        Parameter::fixed("levels at the end", levels_for(2 * load(scale) * ENTRY_BYTES, buffer_bytes(scale))),
        Parameter::fixed("buffer bytes", buffer_bytes(scale)),
        Parameter::fixed("file bytes", file_bytes(buffer_bytes(scale), ENTRY_BYTES)),
    ]
}

/// One store in one window.
struct Timed {
    point: Point,
    window: u64,
    operations_per_s: Spread,
    /// Of each time that all were asked, in order.
    queries_us: Vec<f64>,
}

impl AsRef<Point> for Timed {
    fn as_ref(&self) -> &Point {
        &self.point
    }
}

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    let load = load(lab.scale);
    let items = Items { count: 2 * load, entry_bytes: ENTRY_BYTES, seed: lab.seed };
    let order = Permutation::new(items.count, items.seed);
    let mut all = Vec::new();
    for bits_per_key in BITS {
        let stores = ALLOCATIONS
            .map(|allocation| Store::new(lab, allocation, items, (buffer_bytes(lab.scale), bits_per_key)));
        let mut open = Vec::new();
        for store in &stores {
            lab.at(format_args!("loading, {bits_per_key} bits, {}", name(store.allocation)));
            let db = store.open(Device::Memory)?;
            insert(store, &db, order, 0..load)?;
            rest(&db)?;
            db.close().map_err(|error| error.chain().to_string())?;
            open.push(store.open(DEVICE)?);
        }
        for window in 0..WINDOWS {
            lab.at(format_args!("window {} of {WINDOWS}, {bits_per_key} bits", window + 1));
            all.extend(measure(lab, &stores, &open, (order, load), window)?);
        }
        for db in open {
            db.close().map_err(|error| error.chain().to_string())?;
        }
    }
    let found = Found::of(&all);
    let columns = [
        "window",
        "operations_per_s",
        "operations_least_per_s",
        "operations_most_per_s",
        "query_us",
        "query_least_us",
        "query_most_us",
    ];
    let cells = |timed: &Timed| {
        let (per_s, query_us) = (timed.operations_per_s, Spread::of(timed.queries_us.clone()));
        let of_all = row![timed.window, per_s.median, per_s.least, per_s.most];
        [&of_all[..], &row![query_us.median, query_us.least, query_us.most]].concat()
    };
    Ok(Finding {
        ours: found.told(),
        verdict: found.verdict(),
        why: found.why(),
        table: table(&columns, &all, cells),
        chart: chart(&all),
    })
}

/// Until nothing is left to be merged.
fn rest(db: &Db) -> Result<(), String> {
    db.flush().and_then(|()| db.wait_idle()).map_err(|error| error.chain().to_string())
}

/// One window of all stores.
fn measure(
    lab: &Lab<'_>,
    stores: &[Store],
    open: &[Db],
    (order, load): (Permutation, u64),
    window: u64,
) -> Result<Vec<Timed>, String> {
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
        Timed {
            // A tree that lives may have a level less just then.
            point: Point::new(store, queries, &stats.since(before), store.levels.saturating_sub(1))
                .with_bits_as_asked(),
            window: window + 1,
            operations_per_s: Spread::of(queries_us.iter().map(per_s).collect()),
            queries_us,
        }
    };
    Ok((0..count).map(point).collect())
}

/// What an idea does beside uniform bits, for a number of bits.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Gain {
    /// Windows in which both have as many bits as written: only these are judged.
    windows: usize,
    /// The share of a query's time that it spares, on the median of all times that both were asked in these windows.
    faster: f64,
    /// The share of its block reads.
    spared: f64,
    /// Bits per key as written, in the mean over all windows.
    written: f64,
}

impl Gain {
    /// Of pairs of (idea, uniform bits), a pair for each window.
    fn of(pairs: &[(&Timed, &Timed)]) -> Self {
        let is_equal = |(idea, uniform): &&(&Timed, &Timed)| {
            (idea.point.written / uniform.point.written - 1.0).abs() <= OFF_MOST
        };
        let equal: Vec<_> = pairs.iter().filter(is_equal).collect();
        let ideas_us: Vec<f64> = equal.iter().flat_map(|(idea, _)| &idea.queries_us).copied().collect();
        let uniform_us: Vec<f64> =
            equal.iter().flat_map(|(_, uniform)| &uniform.queries_us).copied().collect();
        let of_idea: f64 = equal.iter().map(|(idea, _)| idea.point.unnecessary).sum();
        let of_uniform: f64 = equal.iter().map(|(_, uniform)| uniform.point.unnecessary).sum();
        let written = pairs.iter().map(|(idea, _)| idea.point.written).sum::<f64>();
        Self {
            windows: equal.len(),
            faster: Spread::of_gains(&ideas_us, &uniform_us).median,
            spared: if of_uniform > 0.0 { 1.0 - of_idea / of_uniform } else { 0.0 },
            written: written / pairs.len().max(1) as f64,
        }
    }
}

/// What the windows say.
struct Found {
    /// For each number of bits, of bits by run and of bits by file.
    gains: [[Gain; IDEAS.len()]; BITS.len()],
    /// Uniform bits as written, for each number of bits, in the mean over all windows.
    uniform_written: [f64; BITS.len()],
    /// How far the ideas' written bits are off what was asked for, at most.
    off: f64,
}

impl Found {
    fn of(all: &[Timed]) -> Self {
        let of = |bits: f64, allocation: Allocation| -> Vec<&Timed> {
            let is_it =
                |timed: &&Timed| timed.point.bits_per_key == bits && timed.point.allocation == allocation;
            all.iter().filter(is_it).collect()
        };
        // Windows come in order on each side.
        let gain = |bits, idea| {
            let pairs = of(bits, idea).into_iter().zip(of(bits, Allocation::Uniform));
            Gain::of(&pairs.collect::<Vec<_>>())
        };
        let written = |bits| {
            let of_uniform = of(bits, Allocation::Uniform);
            of_uniform.iter().map(|timed| timed.point.written).sum::<f64>() / of_uniform.len().max(1) as f64
        };
        let ideas = all.iter().filter(|timed| IDEAS.contains(&timed.point.allocation));
        Self {
            gains: BITS.map(|bits| IDEAS.map(|idea| gain(bits, idea))),
            uniform_written: BITS.map(written),
            off: ideas.map(|timed| timed.point.off()).fold(0.0, f64::max),
        }
    }

    fn keeps_to_memory(&self) -> bool {
        self.off <= OFF_MOST
    }

    /// Whether there is a window with equal memory for each.
    fn is_judged(&self) -> bool {
        self.gains.iter().flatten().all(|gain| gain.windows > 0)
    }

    /// Where memory is equal, and it is somewhere.
    fn is_as_fast(&self) -> bool {
        let mut judged = self.gains.iter().flatten().filter(|gain| gain.windows > 0).peekable();
        judged.peek().is_some() && judged.all(|gain| gain.faster >= -TIE)
    }

    /// Of both ideas something is gained with the fewest bits, and no less than with more.
    fn gains_most_with_few(&self) -> bool {
        self.is_judged()
            && (0..IDEAS.len()).all(|idea| {
                let gains = self.gains.map(|of_bits| of_bits[idea].faster);
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
        let each = |value: &dyn Fn(&Gain) -> String, idea: usize| {
            self.gains.iter().map(|of_bits| value(&of_bits[idea])).collect::<Vec<_>>().join(", ")
        };
        let percent = |gain: &Gain, share: f64| match gain.windows {
            0 => "(no window)".to_owned(),
            _ => format!("{:.0} %", 100.0 * share),
        };
        let [faster_by_run, faster_by_file] =
            [0, 1].map(|idea| each(&|gain| percent(gain, gain.faster), idea));
        let [spared_by_run, spared_by_file] =
            [0, 1].map(|idea| each(&|gain| percent(gain, gain.spared), idea));
        let [bits_by_run, bits_by_file] =
            [0, 1].map(|idea| each(&|gain| format!("{:.1}", gain.written), idea));
        let [windows_by_run, windows_by_file] =
            [0, 1].map(|idea| each(&|gain| gain.windows.to_string(), idea));
        let uniform = self.uniform_written.map(|bits| format!("{bits:.1}")).join(", ");
        format!(
            "At {} bits per key an empty query with bits by run takes {faster_by_run} less time than with uniform bits, by file {faster_by_file}; of the \
             block reads they spare {spared_by_run} and {spared_by_file}. That is of {windows_by_run} and {windows_by_file} of {WINDOWS} windows, in which written \
             bits differ by no more than {:.0} %. Written are {uniform} uniform bits, {bits_by_run} by run, {bits_by_file} by file; off what was asked for by \
             {:.0} % at most.",
            BITS.map(|bits| bits.to_string()).join(", "),
            100.0 * OFF_MOST,
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
        if !self.is_judged() {
            why.push("For some bits no window has equal memory on both sides.");
        }
        if !self.is_as_fast() {
            why.push("Some queries take longer than with uniform bits, or none could be judged.");
        }
        if self.is_judged() && !self.gains_most_with_few() {
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
        db.put(store.items.key(item, false), &value).map_err(|error| error.chain().to_string())?;
    }
    Ok(())
}

fn chart(all: &[Timed]) -> Chart {
    let panel = |bits: f64, title: String, y: &str, at: &dyn Fn(&Timed) -> At| {
        let series = ALLOCATIONS.map(|allocation| {
            let of = all
                .iter()
                .filter(|timed| timed.point.bits_per_key == bits && timed.point.allocation == allocation);
            Series::new(name(allocation), Style::Line, of.map(at).collect())
        });
        Panel { title, x: Axis::linear("window"), y: Axis::from_zero(y), series: series.into() }
    };
    let throughput = |bits: f64| {
        panel(bits, format!("{bits} bits per key"), "operations a second", &|timed| {
            let Spread { median, least, most } = timed.operations_per_s;
            At::between(timed.window as f64, median, least, most)
        })
    };
    let [fewest, ..] = BITS;
    let written = panel(fewest, format!("written where {fewest} are asked for"), "bits per key", &|timed| {
        At::new(timed.window as f64, timed.point.written)
    });
    Chart {
        title: "Throughput and bits per key while the tree grows".to_owned(),
        claim: EXPERIMENT.claim.to_owned(),
        note: format!(
            "T = {SIZE_RATIO}, entries of {ENTRY_BYTES} bytes, {} (emulated); each window has a quarter inserts, a quarter updates, half empty queries, \
             and is over when nothing is left to merge. Bars: the least and the most of the times that its queries were asked.",
            DEVICE.name()
        ),
        panels: BITS.map(throughput).into_iter().chain([written]).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_time_and_fewest_bits_must_all_hold_to_confirm() {
        let found = |faster: [[f64; IDEAS.len()]; BITS.len()], off, windows| Found {
            gains: faster
                .map(|of_bits| of_bits.map(|faster| Gain { windows, faster, spared: 0.0, written: 2.0 })),
            uniform_written: BITS,
            off,
        };
        let good = [[0.2, 0.3], [0.1, 0.1], [0.0, 0.0]];
        assert_eq!(found(good, 0.1, 10).verdict(), Verdict::Confirmed);
        assert_eq!(found(good, 0.9, 10).verdict(), Verdict::Partly);
        assert_eq!(found(good, 0.1, 0).verdict(), Verdict::Partly, "without equal memory nothing is shown");
        assert_eq!(found(good, 0.9, 0).verdict(), Verdict::NotHere);
        let slower = [[0.2, 0.3], [0.1, -0.1], [0.0, 0.0]];
        assert_eq!(found(slower, 0.1, 10).verdict(), Verdict::Partly);
        assert_eq!(found(slower, 0.9, 10).verdict(), Verdict::NotHere);
        let rising = [[0.0, 0.3], [0.1, 0.1], [0.2, 0.0]];
        assert_eq!(found(rising, 0.1, 10).verdict(), Verdict::Partly);
        assert!(found(rising, 0.1, 10).why().contains("fewest bits"));
        assert!(found(good, 0.1, 10).why().is_empty());
        assert!(found(good, 0.1, 0).told().contains("(no window)"));
    }

    #[test]
    fn times_are_held_against_each_other_pair_by_pair_where_bits_are_equal() {
        let queries = Queries { distribution: Distribution::Uniform, empty_fraction: 1.0 };
        let timed = |allocation, window, queries_us: &[f64], (unnecessary, written)| Timed {
            point: Point::of_no_store((BITS[0], written), queries, allocation, unnecessary),
            window,
            operations_per_s: Spread::of(Vec::new()),
            queries_us: queries_us.to_vec(),
        };
        let found = Found::of(&[
            timed(Allocation::Uniform, 1, &[10.0, 20.0, 40.0], (0.5, 2.0)),
            timed(Allocation::Monkey, 1, &[8.0, 16.0, 60.0], (0.4, 2.1)),
            timed(Allocation::Workload, 1, &[11.0, 22.0, 44.0], (0.6, 1.9)),
            timed(Allocation::Uniform, 2, &[10.0; 3], (0.5, 2.0)),
            timed(Allocation::Monkey, 2, &[1.0; 3], (0.1, 2.5)),
            timed(Allocation::Workload, 2, &[11.0; 3], (0.6, 1.9)),
        ]);
        let near = |found: f64, wanted: f64| (found - wanted).abs() < 1e-9;
        let [by_run, by_file] = found.gains[0];
        assert_eq!((by_run.windows, by_file.windows), (1, 2), "a window with more bits does not count");
        assert!(near(by_run.faster, 0.2) && near(by_file.faster, -0.1), "{by_run:?} {by_file:?}");
        assert!(near(by_run.spared, 0.2) && near(by_run.written, 2.3) && near(found.off, 0.25), "{by_run:?}");
    }
}
