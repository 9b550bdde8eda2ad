//! A point of a measured figure: I/Os counted, lookups timed on an emulated device, and the model's
//! I/Os.
//!
//! I/Os are reads, as the paper counts them (one per block); pages are given too. They are counted
//! on files in memory, where reads take no time; latencies are measured on the emulated device over
//! a few lookups, because they are the I/Os times the device's read time. All sides get the same
//! keys.

use shamba::Db;

use super::setup::{Filters, Size, lookups_counted};
use crate::lookups::{compare, count, io};
use crate::prelude::*;

/// Lookups that are timed on each side.
fn lookups_timed(scale: Scale, read_ns: u64) -> u64 {
    let time_ns = scale.count(60_000_000, 400_000_000, 4_000_000_000);
    (time_ns / read_ns.max(1)).clamp(24, 16_384)
}

/// A place of a figure.
pub(super) struct Place<'a> {
    /// The name of the varied column and its value.
    pub x: (&'static str, f64),
    /// The device that latencies are measured on; none: I/Os only.
    pub device: Option<Device>,
    pub questions: Questions,
    /// Bits per key and the share of empty lookups that filters are made for.
    pub bits: (f64, f64),
    /// The model's I/Os of a side.
    pub model_ios: &'a dyn Fn(Filters) -> Result<f64, String>,
}

/// Measures trees with these filters at a place: a row each.
///
/// # Errors
/// Errors of the engine, and a wrong answer.
pub(super) fn measure(
    lab: &mut Lab<'_>,
    size: Size,
    sides: &[Filters],
    place: &Place<'_>,
) -> Result<Vec<Row>, String> {
    let (x_name, x) = place.x;
    lab.at(format_args!("looking up at {x_name} {x}"));
    let (per_key, empty_fraction) = place.bits;
    let mut trees = Vec::new();
    for filters in sides {
        trees.push(size.tree(lab, *filters, per_key, empty_fraction)?);
    }
    let mut latencies = vec![None; sides.len()];
    if let Some(device) = place.device {
        let open: Vec<Db> = trees.iter().map(|tree| tree.open(device, &[])).collect::<Result<_, _>>()?;
        let timed = lookups_timed(lab.scale, device.read_ns().unwrap_or(0));
        let questions = Questions { lookups: timed, ..place.questions.clone() };
        let found = compare(lab, trees[0].as_ref(), &open.iter().collect::<Vec<_>>(), &questions)?;
        latencies = found.iter().map(|side| Some(side.ns / 1e3)).collect();
    }
    let mut rows = Vec::new();
    for ((filters, tree), latency_us) in sides.iter().zip(&trees).zip(latencies) {
        let db = tree.open(Device::Memory, &[])?;
        let questions = Questions { lookups: lookups_counted(lab.scale), ..place.questions.clone() };
        let stats = count(lab, tree.as_ref(), &db, &questions)?;
        let levels = tree.spec.shape.levels;
        let at = Row(vec![(x_name, x.into())]);
        let values = row! {
            filters: filters.name(),
            latency_us: latency_us,
            model_ios: (place.model_ios)(*filters)?,
            levels: stats.deepest_level,
            comparable: stats.deepest_level >= levels && stats.runs >= u64::from(levels),
            emulated: place.device.is_some(),
        };
        rows.push(at.and(values).and(io(&stats)));
    }
    Ok(rows)
}

/// The rows of a side.
pub(super) fn side<'a>(rows: &View<'a>, filters: Filters) -> View<'a> {
    rows.of("filters", filters.name())
}

/// The share of reads that `idea` saves `base`, each side's mean over the rows.
pub(super) fn saved(rows: &View<'_>, base: Filters, idea: Filters) -> Option<f64> {
    Some(1.0 - side(rows, idea).mean("reads")? / side(rows, base).mean("reads")?)
}

/// The share of the latency that `idea` saves `base`.
pub(super) fn time_saved(rows: &View<'_>, base: Filters, idea: Filters) -> Option<f64> {
    Some(1.0 - side(rows, idea).mean("latency_us")? / side(rows, base).mean("latency_us")?)
}

/// Reads with the model's, and pages.
pub(super) const fn panels(x: Column) -> [Panel; 2] {
    [
        Panel::lines(x, Column::from_zero("reads", "I/Os (reads) a lookup"), &["filters"])
            .with_model("model_ios")
            .titled("reads", &[]),
        Panel::lines(x, Column::from_zero("pages", "pages of 4 KiB a lookup"), &["filters"])
            .titled("pages", &[]),
    ]
}
