//! Pictures of growth: the time of an operation by the number of items, where results have
//! situations that differ in that number alone.
//!
//! One panel for each workload, one line for each engine, both axes logarithmic: a line that rises
//! by a step of the grid on each axis has ten times the time at ten times the items.
//!
//! Not here: numbers ([`crate::gathered`]).

use std::path::Path;

use plotters::prelude::*;

use crate::figure::colour;
use crate::gathered::{Gathered, Metric};
use crate::group::Group;
use crate::peer::{Engine, Result};
use crate::result::Situation;
use crate::workload::Workload;

/// The workloads with a panel, by rows of two.
const PANELS: [Workload; 6] = [
    Workload::ReadRandom,
    Workload::ReadMissing,
    Workload::SeekRandom,
    Workload::ReadSeq,
    Workload::FillRandom,
    Workload::YcsbE,
];
/// Of a panel.
const SIZE: (u32, u32) = (330, 220);
/// Above the panels: title, and legend.
const HEADING: i32 = 56;
/// Numbers of items without which a line shows nothing.
const SIZES_MIN: usize = 3;

/// Draws the situations of each family, and returns the names of the files.
pub fn draw_all(all: &Gathered, out: &Path) -> Result<Vec<String>> {
    let mut drawn = Vec::new();
    for family in families(all) {
        let Some(last) = family.last() else { continue };
        let name = format!("growth-{}-{}", last.budget_bytes >> 20, Group::of(*last).file_name());
        let path = out.join(&name);
        draw(all, &family, &path).map_err(|error| format!("{}: {error}", path.display()))?;
        drawn.push(name);
    }
    Ok(drawn)
}

/// Situations that differ in the number of items alone, by that number; at least [`SIZES_MIN`].
fn families(all: &Gathered) -> Vec<Vec<Situation>> {
    let key = |at: &Situation| {
        let set = at.dataset;
        (set.key_bytes, set.value_bytes, at.budget_bytes, at.io, at.compression)
    };
    let mut families: Vec<Vec<Situation>> = Vec::new();
    for at in &all.situations {
        match families.iter_mut().find(|family| key(&family[0]) == key(at)) {
            Some(family) => family.push(*at),
            None => families.push(vec![*at]),
        }
    }
    families.iter_mut().for_each(|family| family.sort_by_key(|at| at.dataset.items));
    families.retain(|family| family.len() >= SIZES_MIN);
    families
}

fn draw(
    all: &Gathered,
    family: &[Situation],
    path: &Path,
) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let rows = PANELS.len().div_ceil(2) as u32;
    let root = SVGBackend::new(path, (2 * SIZE.0, HEADING as u32 + rows * SIZE.1)).into_drawing_area();
    root.fill(&WHITE)?;
    let (heading, panels) = root.split_vertically(HEADING);
    let (first, last) = (family[0].dataset.items as f64, family[family.len() - 1].dataset.items as f64);
    let (set, budget) = (family[0].dataset, crate::group::budget(family[0].budget_bytes));
    let text = ("sans-serif", 15.0).into_font().color(&BLACK);
    let title = format!(
        "Time of an operation, ns, by entries of {} + {} bytes; budget {budget}",
        set.key_bytes, set.value_bytes
    );
    heading.draw(&Text::new(title, (8, 6), text.clone()))?;
    for (place, engine) in all.engines.iter().enumerate() {
        let left = 8 + 150 * place as i32;
        heading.draw(&Rectangle::new([(left, 34), (left + 14, 46)], colour(*engine).filled()))?;
        heading.draw(&Text::new(engine.name(), (left + 20, 31), text.clone()))?;
    }
    for (area, workload) in panels.split_evenly((rows as usize, 2)).iter().zip(PANELS) {
        let lines: Vec<(Engine, Vec<(f64, f64)>)> =
            all.engines.iter().map(|engine| (*engine, points(all, family, *engine, workload))).collect();
        let times = || lines.iter().flat_map(|(_, points)| points.iter().map(|(_, ns)| *ns));
        let (low, high) = (times().fold(f64::MAX, f64::min) / 1.4, times().fold(0.0, f64::max) * 1.8);
        if high <= low {
            continue;
        }
        let mut chart = ChartBuilder::on(area)
            .caption(workload.name(), ("sans-serif", 15))
            .margin_right(24)
            .x_label_area_size(26)
            .y_label_area_size(58)
            .build_cartesian_2d((first / 1.3..last * 1.3).log_scale(), (low..high).log_scale())?;
        chart
            .configure_mesh()
            .max_light_lines(0)
            .y_labels(6)
            .label_style(("sans-serif", 13))
            .x_label_formatter(&|items| format!("{} M", items / 1e6))
            .y_label_formatter(&|ns| format!("{ns:.0}"))
            .draw()?;
        for (engine, points) in lines {
            let colour = colour(engine);
            chart.draw_series([PathElement::new(points.clone(), colour.stroke_width(2))])?;
            let font = ("sans-serif", 12).into_font().color(&colour);
            let dot = |point: (f64, f64)| {
                let label = Text::new(format!("{:.0}", point.1), (-8, -18), font.clone());
                EmptyElement::at(point) + Circle::new((0, 0), 3, colour.filled()) + label
            };
            chart.draw_series(points.into_iter().map(dot))?;
        }
    }
    root.present()?;
    Ok(())
}

/// Entries and nanoseconds, where they were measured.
fn points(all: &Gathered, family: &[Situation], engine: Engine, workload: Workload) -> Vec<(f64, f64)> {
    let time = |at: &Situation| all.spread(*at, workload, engine, Metric::Time).map(|spread| spread.median);
    family.iter().filter_map(|at| Some((at.dataset.items as f64, time(at)?))).collect()
}
