//! Pictures of the published page: for each [`Group`] the time of other engines divided by
//! Shamba's, by workload, one colour for each budget.
//!
//! A dot is RocksDB, a cross the fastest engine other than RocksDB. Right of the line at 1 Shamba
//! is faster. The axis is logarithmic, because a ratio of 2 and of 1/2 mean the same.
//!
//! Not here: numbers ([`crate::gathered`]).

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::gathered::{Gathered, Metric};
use crate::group::{self, Group};
use crate::peer::{Engine, Result};
use crate::result::Situation;
use crate::workload::Workload;

/// Narrow enough for a telephone, where a wider picture shrinks together with its text.
const WIDTH: u32 = 460;
/// Above the plot: title, and legend.
const HEADING: i32 = 52;
/// Per workload.
const ROW: u32 = 24;
/// Below the rows: the numbers of the axis.
const AXIS: u32 = 26;
/// Left of the rows: names of workloads.
const LABELS: u32 = 96;
/// Size of text, which the library divides by 1.24.
const TEXT: f64 = 15.0;
/// Ratios on the axis that get a number.
const TICKS: [f64; 9] = [0.03, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0];
/// By budget, from the lowest: they differ in lightness, too (after Okabe and Ito).
const COLOURS: [RGBColor; 5] = [
    RGBColor(230, 159, 0),
    RGBColor(213, 94, 0),
    RGBColor(0, 114, 178),
    RGBColor(30, 30, 60),
    RGBColor(0, 158, 115),
];
const GRID: RGBColor = RGBColor(225, 225, 225);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// The pictures of all groups that have a ratio, as SVG.
pub fn draw_all(all: &Gathered) -> Result<Vec<(Group, String)>> {
    let mut drawn = Vec::new();
    for group in Group::all(all) {
        let mut image = String::new();
        let failed = |error| format!("{}: {error}", group.file_name());
        if draw(all, group, &mut image).map_err(failed)? {
            drawn.push((group, image));
        }
    }
    Ok(drawn)
}

/// Ratios of one workload and budget.
struct Ratios {
    colour: RGBColor,
    row: usize,
    rocksdb: Option<f64>,
    /// Of the fastest other engine.
    other: Option<f64>,
}

impl Ratios {
    fn of(all: &Gathered, at: Situation, workload: Workload) -> Option<Self> {
        let time = |engine| all.spread(at, workload, engine, Metric::Time).map(|spread| spread.median);
        let ours = time(Engine::Shamba).filter(|ours| *ours > 0.0)?;
        let others = all.engines.iter().filter(|engine| !matches!(engine, Engine::Shamba | Engine::Rocksdb));
        let other = others.filter_map(|engine| time(*engine)).min_by(f64::total_cmp);
        let budgets = budgets(all);
        let number = budgets.iter().position(|budget| *budget == at.budget_bytes).unwrap_or(0);
        let ratios = Self {
            colour: COLOURS[number % COLOURS.len()],
            row: 0,
            rocksdb: time(Engine::Rocksdb).map(|theirs| theirs / ours),
            other: other.map(|theirs| theirs / ours),
        };
        let is_empty = ratios.all().next().is_none();
        (!is_empty).then_some(ratios)
    }

    fn all(&self) -> impl Iterator<Item = f64> {
        self.rocksdb.into_iter().chain(self.other)
    }
}

/// Of all situations, so that a budget has the same colour in every picture.
fn budgets(all: &Gathered) -> Vec<u64> {
    let mut budgets: Vec<u64> = all.situations.iter().map(|at| at.budget_bytes).collect();
    budgets.sort_unstable();
    budgets.dedup();
    budgets
}

fn draw(
    all: &Gathered,
    group: Group,
    image: &mut String,
) -> std::result::Result<bool, Box<dyn std::error::Error>> {
    let mut names = Vec::new();
    let mut ratios: Vec<Ratios> = Vec::new();
    for workload in Workload::ALL {
        let of_workload: Vec<Ratios> =
            group.situations(all).filter_map(|at| Ratios::of(all, at, workload)).collect();
        if !of_workload.is_empty() {
            ratios.extend(of_workload.into_iter().map(|of| Ratios { row: names.len(), ..of }));
            names.push(workload.name());
        }
    }
    if names.is_empty() {
        return Ok(false);
    }
    let figures = || ratios.iter().flat_map(Ratios::all);
    let (low, high) = (figures().fold(1.0, f64::min) / 1.25, figures().fold(1.0, f64::max) * 1.25);
    let rows = names.len() as u32;
    let root =
        SVGBackend::with_string(image, (WIDTH, HEADING as u32 + rows * ROW + AXIS)).into_drawing_area();
    root.fill(&WHITE)?;
    let (heading, plot) = root.split_vertically(HEADING);
    draw_heading(&heading, all, group)?;
    let mut chart = ChartBuilder::on(&plot)
        .margin_right(12)
        .x_label_area_size(AXIS)
        .y_label_area_size(LABELS)
        .build_cartesian_2d((low..high).log_scale(), f64::from(rows)..0.0)?;
    let bottom = f64::from(rows);
    let text = ("sans-serif", TEXT).into_font().color(&BLACK);
    for tick in TICKS.into_iter().filter(|tick| (low..high).contains(tick)) {
        let line = if tick == 1.0 { BLACK.stroke_width(1) } else { GRID.stroke_width(1) };
        chart.draw_series([PathElement::new(vec![(tick, 0.0), (tick, bottom)], line)])?;
        let (x, y) = chart.plotting_area().map_coordinate(&(tick, bottom));
        let label = tick.to_string();
        root.draw(&Text::new(label.clone(), (x - 3 * label.len() as i32, y + 6), text.clone()))?;
    }
    for (row, name) in names.iter().enumerate() {
        let middle = row as f64 + 0.5;
        chart.draw_series([PathElement::new(vec![(low, middle), (high, middle)], GRID.stroke_width(1))])?;
        let (_, y) = chart.plotting_area().map_coordinate(&(low, middle));
        root.draw(&Text::new(*name, (8, y - 7), text.clone()))?;
    }
    for of in &ratios {
        let middle = of.row as f64 + 0.5;
        let other = of.other.map(|ratio| Cross::new((ratio, middle), 4, of.colour.stroke_width(2)));
        chart.draw_series(other)?;
        let rocksdb = of.rocksdb.map(|ratio| Circle::new((ratio, middle), 5, of.colour.filled()));
        chart.draw_series(rocksdb)?;
    }
    drop(chart);
    root.present()?;
    drop((heading, plot, root));
    Ok(true)
}

/// The title, and the colour of each budget.
fn draw_heading(
    area: &Area<'_>,
    all: &Gathered,
    group: Group,
) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let text = ("sans-serif", TEXT).into_font().color(&BLACK);
    let title = format!("{}: time / Shamba's; right of 1 Shamba is faster", group.name());
    area.draw(&Text::new(title, (8, 6), text.clone()))?;
    let mut left = LABELS as i32;
    for (number, bytes) in budgets(all).into_iter().enumerate() {
        if group.situations(all).any(|at| at.budget_bytes == bytes) {
            let colour = COLOURS[number % COLOURS.len()];
            area.draw(&Circle::new((left + 5, 36), 5, colour.filled()))?;
            area.draw(&Text::new(group::budget(bytes), (left + 14, 29), text.clone()))?;
            left += 84;
        }
    }
    Ok(())
}
