//! Figure 12: how long queries and writes take over bits per key, for shares of empty queries and two distributions.
//!
//! Each store is laid down, sees queries of the workload without a device's latency, and may write filters again that deserve other bits.
//! Then come trials of queries, and updates, 31 to 10, to all stores in turn, another one first each time. Before a store is asked, merges have come to
//! rest, its own and the others'.

use crate::chart::{Axis, Chart, Panel, Point as At, Series, Style};
use shamba::Allocation;

use super::grid::{DISTRIBUTIONS, Grid, OFF_MOST, Point, table};
use super::store::{ALLOCATIONS, Queries, Store, name};
use crate::lookups::Spread;
use crate::table::row;
use crate::{Device, Experiment, Finding, Kind, Lab, Paper, Parameter, Scale, Verdict};
use shamba_workload::Distribution;

const DEVICE: Device = Device::Pcie;
/// The paper sees memory under pressure below so many bits.
const FEW_BITS: f64 = 7.0;
const UPDATES_FOR_31_QUERIES: u64 = 10;
/// What bits by run save at most, and near which ours is.
const UP_TO: f64 = 0.2;
const NEARLY: f64 = 0.15;
/// Gains below this are none; writes that differ by no more than this part of their time cost the same.
const SOMETHING: f64 = 0.05;
const SAME: f64 = 0.1;

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "mnemosyne-fig12",
    paper: Paper::Mnemosyne,
    kind: Kind::Measured,
    place: "Fig 12",
    title: "latency of queries and writes over bits per key",
    claim: "Bits by run save up to 20 % of a query's latency under memory pressure (fewer than 7 bits); bits by file more where queries are skewed; writes cost the same.",
    parameters: |scale| {
        let more = [
            Parameter::fixed("device", DEVICE.name()),
            Parameter::fixed("updates for 31 queries", UPDATES_FOR_31_QUERIES),
        ];
        grid(scale).parameters(more)
    },
    run,
};

fn grid(scale: Scale) -> Grid {
    Grid {
        bits: &[2.0, 3.0, 4.0, 5.0, 6.0, 7.0],
        empty_fractions: &[0.0, 0.5, 1.0],
        entries: scale.count(1 << 17, 1 << 19, 21_000_000),
        entry_bytes: 512,
        // 21 million entries over 16 MB.
        buffers: 640,
        queries: scale.count(2_000, 20_000, 1_000_000),
        seen: scale.count(100_000, 1_000_000, 4_000_000),
    }
}

/// A store at a place, and what it took there.
struct Timed {
    point: Point,
    /// Of each trial, in order.
    queries_us: Vec<f64>,
    writes_us: Vec<f64>,
}

impl AsRef<Point> for Timed {
    fn as_ref(&self) -> &Point {
        &self.point
    }
}

fn run(lab: &mut Lab<'_>) -> Result<Finding, String> {
    let grid = grid(lab.scale);
    let mut all = Vec::new();
    for place in grid.places() {
        all.extend(measure(lab, grid, place)?);
    }
    let found = Found::of(&all);
    let columns =
        ["query_us", "query_least_us", "query_most_us", "write_us", "write_least_us", "write_most_us"];
    let cells = |timed: &Timed| {
        let [query_us, write_us] = [&timed.queries_us, &timed.writes_us].map(|us| Spread::of(us.clone()));
        let of_queries = row![query_us.median, query_us.least, query_us.most];
        let of_writes = row![write_us.median, write_us.least, write_us.most];
        [of_queries, of_writes].concat()
    };
    Ok(Finding {
        ours: found.told(),
        verdict: found.verdict(),
        why: found.why(),
        table: table(&columns, &all, cells),
        chart: chart(&all, grid),
    })
}

/// What an idea does at all points.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Gain {
    /// What it spares at the median of all points.
    usual: f64,
    /// The most that it spares at one point in every trial.
    most: f64,
}

impl Gain {
    fn of(of_points: Vec<Spread>) -> Self {
        let most = of_points.iter().map(|spared| spared.least).fold(f64::NEG_INFINITY, f64::max);
        Self { usual: Spread::of(of_points.into_iter().map(|spared| spared.median).collect()).median, most }
    }
}

/// What the points say.
struct Found {
    /// Bits by run over uniform bits, with few bits.
    by_run: Gain,
    /// Bits by file over bits by run, with few bits, for normal queries.
    by_file: Gain,
    /// How much longer than with uniform bits a write takes, at the median of points: by run, by file.
    writes: [f64; 2],
}

impl Found {
    fn of(all: &[Timed]) -> Self {
        let pairs = |allocation: Allocation, over: Allocation| {
            let of = all.iter().filter(move |timed| timed.point.allocation == allocation);
            of.filter_map(move |timed| {
                let is_other = |other: &&Timed| {
                    other.point.bits_per_key == timed.point.bits_per_key
                        && other.point.queries == timed.point.queries
                        && other.point.allocation == over
                };
                let other = all.iter().find(is_other)?;
                // With other bits than were asked for a side is ahead or behind for its memory.
                let is_equal = [timed, other].iter().all(|timed| timed.point.off() <= OFF_MOST);
                is_equal.then_some((timed, other))
            })
        };
        let gain = |allocation, over, is_wanted: &dyn Fn(&Point) -> bool| {
            let pairs = pairs(allocation, over)
                .filter(|(timed, _)| timed.point.bits_per_key < FEW_BITS && is_wanted(&timed.point));
            Gain::of(
                pairs.map(|(timed, other)| Spread::of_gains(&timed.queries_us, &other.queries_us)).collect(),
            )
        };
        let writes = |allocation| {
            let longer = pairs(allocation, Allocation::Uniform)
                .map(|(timed, other)| -Spread::of_gains(&timed.writes_us, &other.writes_us).median);
            Spread::of(longer.collect()).median
        };
        let is_normal = |point: &Point| point.queries.distribution == Distribution::Normal;
        Self {
            by_run: gain(Allocation::Monkey, Allocation::Uniform, &|_| true),
            by_file: gain(Allocation::Workload, Allocation::Monkey, &is_normal),
            writes: [Allocation::Monkey, Allocation::Workload].map(writes),
        }
    }

    fn run_saves(&self) -> bool {
        self.by_run.most >= NEARLY && self.by_run.usual > 0.0
    }

    fn file_saves_more(&self) -> bool {
        self.by_file.most >= SOMETHING && self.by_file.usual > 0.0
    }

    fn writes_cost_the_same(&self) -> bool {
        self.writes.iter().all(|longer| longer.abs() <= SAME)
    }

    fn verdict(&self) -> Verdict {
        match (self.run_saves(), self.file_saves_more(), self.writes_cost_the_same()) {
            (true, true, true) => Verdict::Confirmed,
            _ if self.by_run.most >= SOMETHING || self.by_file.most >= SOMETHING => Verdict::Partly,
            _ => Verdict::NotHere,
        }
    }

    fn told(&self) -> String {
        let percent = |share: f64| format!("{:.0} %", 100.0 * share);
        format!(
            "Below {FEW_BITS} bits per key bits by run save {} of a query's time at the median of all points, and up to {} in every trial; bits by file save {} of that \
             for normal queries, up to {}. Beside uniform bits writes are {} with bits by run and {} by file.",
            percent(self.by_run.usual),
            percent(self.by_run.most),
            percent(self.by_file.usual),
            percent(self.by_file.most),
            longer(self.writes[0]),
            longer(self.writes[1])
        )
    }

    fn why(&self) -> String {
        let mut why = Vec::new();
        if !self.run_saves() {
            why.push(format!("Bits by run stay below the {:.0} % claimed.", 100.0 * UP_TO));
        }
        if !self.file_saves_more() {
            why.push("Bits by file save hardly more than that.".to_owned());
        }
        if !self.writes_cost_the_same() {
            why.push(format!("Writes differ by more than {:.0} %.", 100.0 * SAME));
        }
        why.join(" ")
    }
}

/// `6 % shorter`, for a time that is longer by this share.
fn longer(share: f64) -> String {
    match (100.0 * share).round() {
        percent if percent > 0.0 => format!("{percent} % longer"),
        percent if percent < 0.0 => format!("{} % shorter", -percent),
        _ => "as long".to_owned(),
    }
}

fn measure(lab: &mut Lab<'_>, grid: Grid, place: (f64, Queries)) -> Result<Vec<Timed>, String> {
    let (bits_per_key, queries) = place;
    let stores = grid.stores(lab, place)?;
    let open = stores.iter().map(|store| store.open(DEVICE)).collect::<Result<Vec<_>, _>>()?;
    let (count, updates) = (grid.queries, (grid.queries * UPDATES_FOR_31_QUERIES / 31).max(1));
    let before: Vec<shamba::Stats> = open.iter().map(shamba::Db::stats).collect();
    let (mut queries_us, mut writes_us) = (vec![Vec::new(); stores.len()], vec![Vec::new(); stores.len()]);
    lab.at(format_args!("{bits_per_key} bits, {}, {} empty", queries.distribution, queries.empty_fraction));
    for trial in 0..lab.repeats.max(1) {
        for turn in 0..stores.len() {
            let at = (turn + trial as usize) % stores.len();
            let (store, db) = (&stores[at], &open[at]);
            let seed = lab.seed ^ u64::from(trial + 1) << 8;
            queries_us[at].push(store.ask(db, queries, count, seed)? as f64 / count as f64 / 1e3);
            writes_us[at].push(store.update(db, grid.entries, updates, seed)? as f64 / updates as f64 / 1e3);
            db.wait_idle().map_err(|error| error.chain().to_string())?;
        }
    }
    let point = |(at, store): (usize, &Store)| Timed {
        point: Point::of_refitted(store, queries, &open[at].stats().since(&before[at])),
        queries_us: std::mem::take(&mut queries_us[at]),
        writes_us: std::mem::take(&mut writes_us[at]),
    };
    let all = stores.iter().enumerate().map(point).collect();
    for db in open {
        db.close().map_err(|error| error.chain().to_string())?;
    }
    Ok(all)
}

fn chart(all: &[Timed], grid: Grid) -> Chart {
    let panel = |distribution: Distribution| {
        let series = grid.empty_fractions.iter().flat_map(|&empty_fraction| {
            ALLOCATIONS.into_iter().map(move |allocation| {
                let queries = Queries { distribution, empty_fraction };
                let of = all.iter().filter(move |timed| {
                    timed.point.queries == queries && timed.point.allocation == allocation
                });
                let at = of.map(|timed| {
                    let Spread { median, least, most } = Spread::of(timed.queries_us.clone());
                    At::between(timed.point.bits_per_key, median, least, most)
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
    fn both_gains_and_equal_writes_confirm() {
        let found = |run: f64, file: f64, writes: f64| Found {
            by_run: Gain { usual: run / 2.0, most: run },
            by_file: Gain { usual: file / 2.0, most: file },
            writes: [writes, 0.0],
        };
        assert_eq!(found(0.2, 0.1, 0.05).verdict(), Verdict::Confirmed);
        assert_eq!(found(0.2, 0.1, 0.5).verdict(), Verdict::Partly);
        assert_eq!(found(0.2, 0.0, 0.0).verdict(), Verdict::Partly);
        assert_eq!(found(0.01, 0.01, 0.0).verdict(), Verdict::NotHere);
        assert!(found(0.2, 0.1, 0.5).why().contains("Writes") && found(0.2, 0.1, 0.0).why().is_empty());
    }

    #[test]
    fn sides_with_other_bits_are_not_held_against_each_other() {
        let queries = Queries { distribution: Distribution::Uniform, empty_fraction: 0.0 };
        let timed = |allocation, (bits, written), us: f64| Timed {
            point: Point::of_no_store((bits, written), queries, allocation, 0.1),
            queries_us: vec![us; 3],
            writes_us: vec![us; 3],
        };
        let found = Found::of(&[
            timed(Allocation::Uniform, (2.0, 2.0), 10.0),
            timed(Allocation::Monkey, (2.0, 2.9), 1.0),
            timed(Allocation::Uniform, (4.0, 4.0), 10.0),
            timed(Allocation::Monkey, (4.0, 3.9), 9.0),
        ]);
        assert!((found.by_run.most - 0.1).abs() < 1e-9 && (found.writes[0] + 0.1).abs() < 1e-9);
    }

    #[test]
    fn one_lucky_trial_is_no_gain() {
        let lucky = Spread::of_gains(&[5.0, 10.5, 9.9], &[10.0; 3]);
        let steady = Spread::of_gains(&[9.0, 8.9, 9.0], &[10.0; 3]);
        let gain = Gain::of(vec![lucky, steady]);
        assert!((gain.most - 0.1).abs() < 1e-9 && (gain.usual - 0.055).abs() < 1e-9, "{gain:?}");
    }

    #[test]
    fn times_are_longer_or_shorter() {
        assert_eq!(
            [0.06, -0.061, 0.004, -0.004].map(longer),
            ["6 % longer", "6 % shorter", "as long", "as long"]
        );
    }
}
