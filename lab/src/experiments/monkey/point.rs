//! A point of a measured figure: I/Os counted, lookups timed on an emulated device, and what the model says.
//!
//! I/Os are counted over the paper's 16K lookups, on files in memory, where that takes no time. Latencies are measured behind the
//! emulated device over fewer lookups, as many as the scale has time for. All sides get the same keys, in turns.

use crate::chart::{Axis, Chart, Panel, Point as At, Series, Style};

use super::setup::{Filters, LOOKUPS, lookups_counted};
use crate::lookups::{Questions, Side, compare};
use crate::table::{Cell, row};
use crate::tree::Tree;
use crate::{Device, Lab, Scale, Table, Verdict};

/// Fewer lookups than this are no trial.
const LOOKUPS_LEAST: u64 = 24;
/// What a lookup takes beside its reads, about.
const OTHER_NS: f64 = 3_000.0;

/// The mean of some trials, and their standard deviation.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Mean {
    pub mean: f64,
    pub std: f64,
}

impl Mean {
    pub fn of(values: &[f64]) -> Self {
        let count = values.len().max(1) as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
        Self { mean, std: (squares / (count - 1.0).max(1.0)).sqrt() }
    }
}

/// What was measured of one side.
#[derive(Clone, Debug)]
pub(super) struct Point {
    pub filters: Filters,
    pub x: f64,
    pub latency_us: Mean,
    pub ios: f64,
    pub model_ios: Option<f64>,
    read_ns: u64,
    timed: u64,
    shape: [Cell; 4],
}

impl Point {
    /// Whether it takes less time than `other`, by more than both trials scatter.
    pub fn is_faster_than(&self, other: &Self) -> bool {
        other.latency_us.mean - self.latency_us.mean > self.latency_us.std + other.latency_us.std
    }

    fn model_us(&self) -> Option<f64> {
        self.model_ios.map(|ios| ios * self.read_ns as f64 / 1e3)
    }
}

/// Where a point lies, and what is asked there.
pub(super) struct Place {
    pub x: f64,
    pub device: Device,
    pub questions: Questions,
    /// By the model, of each side.
    pub model_ios: Vec<Option<f64>>,
}

/// Measures all trees at a place.
///
/// # Errors
/// What the engine says, and a wrong answer.
pub(super) fn measure(
    lab: &mut Lab<'_>,
    trees: &[(Filters, Tree)],
    place: Place,
) -> Result<Vec<Point>, String> {
    let Place { x, device, questions, model_ios } = place;
    let counted = sides(
        lab,
        trees,
        Device::Memory,
        &questions,
        lookups_counted(lab.scale) / u64::from(lab.repeats.max(1)),
    )?;
    let ios: Vec<f64> = counted.iter().map(ios_of).collect();
    let read_ns = device.read_ns().unwrap_or(0);
    let timed = affordable(lab.scale, read_ns, ios.iter().copied().fold(0.0, f64::max));
    lab.at(format_args!("looking up at {x}: {timed} lookups a trial"));
    let latencies = sides(lab, trees, device, &questions, timed)?;
    let point = |(number, side): (usize, &Side)| {
        let (filters, tree) = &trees[number];
        let shape = tree.spec.shape;
        let us: Vec<f64> = side.repeats_ns.iter().map(|ns| ns / 1e3).collect();
        Point {
            filters: *filters,
            x,
            latency_us: Mean::of(&us),
            ios: ios[number],
            model_ios: model_ios.get(number).copied().flatten(),
            read_ns,
            timed,
            shape: side.shape(shape.levels, u64::from(shape.levels)),
        }
    };
    Ok(latencies.iter().enumerate().map(point).collect())
}

fn sides(
    lab: &mut Lab<'_>,
    trees: &[(Filters, Tree)],
    device: Device,
    questions: &Questions,
    lookups: u64,
) -> Result<Vec<Side>, String> {
    let open = |(_, tree): &(Filters, Tree)| tree.open(device, &[]);
    let open: Vec<shamba::Db> = trees.iter().map(open).collect::<Result<_, _>>()?;
    let Some((_, first)) = trees.first() else { return Ok(Vec::new()) };
    // The trees differ in their filters alone: one names the keys of all.
    compare(lab, first, &open.iter().collect::<Vec<_>>(), &Questions { lookups, ..questions.clone() })
}

/// The reads of a lookup: data, and what of filters and indexes was not held.
pub(super) fn ios_of(side: &Side) -> f64 {
    let stats = &side.stats;
    side.per_lookup(stats.reads.data.count + stats.reads.index.count + stats.reads.filter.count)
}

/// How many lookups of so many I/Os a trial has time for.
pub(super) fn affordable(scale: Scale, read_ns: u64, ios: f64) -> u64 {
    let trial_ms = scale.count(80, 1_000, u64::MAX);
    let least = scale.count(LOOKUPS_LEAST, LOOKUPS_LEAST, LOOKUPS);
    // `as` saturates.
    let affordable = (1e6 * trial_ms as f64 / (ios * read_ns as f64 + OTHER_NS)) as u64;
    affordable.clamp(least, LOOKUPS)
}

/// The share of I/Os that the second spares the first.
pub(super) fn saved(baseline: f64, idea: f64) -> f64 {
    if baseline > 0.0 { 1.0 - idea / baseline } else { 0.0 }
}

/// The points of one side, in order of x.
pub(super) fn of(points: &[Point], filters: Filters) -> Vec<&Point> {
    points.iter().filter(|point| point.filters == filters).collect()
}

/// All points as a table; `x_name` names what is varied.
pub(super) fn table(x_name: &'static str, points: &[Point]) -> Table {
    let mut table = Table::new(&[
        "filters",
        x_name,
        "latency_mean_us",
        "latency_std_us",
        "lookups_timed_a_trial",
        "ios_per_lookup_counted",
        "model_ios_per_lookup",
        "model_us",
        "levels",
        "runs",
        "comparable",
        "emulated",
    ]);
    for point in points {
        let [levels, runs, comparable, emulated] = point.shape.clone();
        table.row(row![
            point.filters.name(),
            point.x,
            point.latency_us.mean,
            point.latency_us.std,
            point.timed,
            point.ios,
            point.model_ios,
            point.model_us(),
            levels,
            runs,
            comparable,
            emulated,
        ]);
    }
    table
}

/// Latencies over x with their deviations, the model dashed.
pub(super) fn panel(title: &str, x: Axis, points: &[Point]) -> Panel {
    let mut sides: Vec<Filters> = Vec::new();
    for point in points {
        if !sides.contains(&point.filters) {
            sides.push(point.filters);
        }
    }
    let measured = sides.iter().map(|filters| {
        let at = of(points, *filters).into_iter().map(|point| {
            let Mean { mean, std } = point.latency_us;
            At::between(point.x, mean, (mean - std).max(0.0), mean + std)
        });
        Series::new(filters.name(), Style::Line, at.collect())
    });
    let models = sides.iter().filter_map(|filters| {
        let at: Vec<(f64, f64)> =
            of(points, *filters).into_iter().filter_map(|point| Some((point.x, point.model_us()?))).collect();
        (!at.is_empty()).then(|| Series::model(format!("{}, model", filters.name()), at))
    });
    Panel {
        title: title.to_owned(),
        x,
        y: Axis::from_zero("lookup latency [us]"),
        series: measured.chain(models).collect(),
    }
}

/// A picture of these panels.
pub(super) fn chart(title: &str, claim: &str, note: &str, panels: Vec<Panel>) -> Chart {
    Chart { title: title.to_owned(), claim: claim.to_owned(), note: note.to_owned(), panels }
}

/// The verdict on two claims of one figure.
pub(super) fn both(one: Verdict, other: Verdict) -> Verdict {
    if one == other { one } else { Verdict::Partly }
}

/// `12 %`.
pub(super) fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_and_savings_are_what_they_are_called() {
        assert_eq!(Mean::of(&[1.0, 3.0]), Mean { mean: 2.0, std: 2f64.sqrt() });
        assert_eq!(Mean::of(&[5.0]), Mean { mean: 5.0, std: 0.0 });
        assert_eq!((saved(4.0, 1.0), saved(0.0, 1.0)), (0.75, 0.0));
        assert_eq!(both(Verdict::Confirmed, Verdict::NotHere), Verdict::Partly);
        assert_eq!(both(Verdict::NotHere, Verdict::NotHere), Verdict::NotHere);
    }

    #[test]
    fn slow_devices_get_fewer_lookups_and_the_papers_scale_all() {
        assert_eq!(affordable(Scale::Paper, 1_900_000, 9.0), LOOKUPS);
        assert_eq!(affordable(Scale::Quick, 1_900_000, 9.0), 24);
        assert!(affordable(Scale::Quick, 290_000, 0.3) > affordable(Scale::Quick, 290_000, 0.6));
    }
}
