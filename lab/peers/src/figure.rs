//! Pictures of the full tables: for each situation, RocksDB's time, and its CPU time, divided by
//! each engine's, by workload.
//!
//! Not here: numbers ([`crate::gathered`]), the pictures of the published page ([`crate::dots`]).

use std::path::Path;

use plotters::prelude::*;

use crate::gathered::{Gathered, Metric, Spread};
use crate::peer::{Engine, Result};
use crate::result::Situation;
use crate::table::situation;
use crate::workload::Workload;

const SIZE: (u32, u32) = (1400, 560);

/// Shamba is red; the variants of RocksDB are shades of grey.
pub fn colour(engine: Engine) -> RGBColor {
    match engine {
        Engine::Shamba => RGBColor(200, 60, 60),
        Engine::ShambaValues => RGBColor(235, 130, 120),
        Engine::ShambaUndrained => RGBColor(170, 95, 95),
        Engine::ShambaMapped => RGBColor(215, 165, 80),
        Engine::Rocksdb => RGBColor(60, 60, 60),
        Engine::RocksdbCompacted => RGBColor(85, 85, 105),
        Engine::RocksdbUndrained => RGBColor(100, 85, 120),
        Engine::RocksdbCached => RGBColor(110, 110, 110),
        Engine::RocksdbPartitioned => RGBColor(150, 150, 150),
        Engine::RocksdbRibbon => RGBColor(185, 185, 185),
        Engine::RocksdbHash => RGBColor(215, 215, 215),
        Engine::RocksdbBlob => RGBColor(120, 100, 85),
        Engine::RocksdbBlobTuned => RGBColor(165, 145, 130),
        Engine::Leveldb => RGBColor(86, 140, 200),
        Engine::Fjall => RGBColor(110, 170, 90),
        Engine::Redb => RGBColor(230, 150, 60),
        Engine::Lmdb => RGBColor(140, 100, 180),
    }
}

struct Bar {
    engine: Engine,
    workload: usize,
    ratio: Spread,
}

/// Draws each situation and returns the names of the files.
pub fn draw_all(all: &Gathered, out: &Path) -> Result<Vec<String>> {
    let mut drawn = Vec::new();
    for at in &all.situations {
        for metric in [Metric::Time, Metric::Cpu] {
            let name = format!("{}-{}.svg", at.file_name(), metric.name());
            let path = out.join(&name);
            let failed = |error| format!("{}: {error}", path.display());
            if draw(all, *at, metric, &path).map_err(failed)? {
                drawn.push(name);
            }
        }
    }
    Ok(drawn)
}

/// Draws bars from 1 on a logarithmic axis, where a ratio of 2 and of 1/2 are equally long, with a
/// line from minimum to maximum.
fn draw(
    all: &Gathered,
    at: Situation,
    metric: Metric,
    path: &Path,
) -> std::result::Result<bool, Box<dyn std::error::Error>> {
    let figure = |workload, engine| all.spread(at, workload, engine, metric);
    // The base of the ratios: RocksDB, or Shamba where RocksDB was not measured.
    let base = [Engine::Rocksdb, Engine::Shamba].into_iter().find(|engine| all.engines.contains(engine));
    let Some(base) = base else { return Ok(false) };
    let workloads: Vec<Workload> =
        Workload::ALL.into_iter().filter(|workload| figure(*workload, base).is_some()).collect();
    let engines: Vec<Engine> = all
        .engines
        .iter()
        .copied()
        .filter(|engine| workloads.iter().any(|workload| figure(*workload, *engine).is_some()))
        .collect();
    let mut bars = Vec::new();
    for (place, workload) in workloads.iter().enumerate() {
        let Some(whole) = figure(*workload, base) else { continue };
        for engine in &engines {
            let Some(spread) = figure(*workload, *engine) else { continue };
            let ratio = Spread {
                median: whole.median / spread.median,
                min: whole.median / spread.max,
                max: whole.median / spread.min,
                count: spread.count,
            };
            bars.push(Bar { engine: *engine, workload: place, ratio });
        }
    }
    if bars.is_empty() {
        return Ok(false);
    }
    let lowest = bars.iter().map(|bar| bar.ratio.min).fold(1.0, f64::min) / 1.2;
    let highest = bars.iter().map(|bar| bar.ratio.max).fold(1.0, f64::max) * 1.2;
    let width = engines.len() as f64 + 1.5;
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let (plot, legend) = root.split_horizontally(SIZE.0 - 190);
    let caption = format!(
        "{}: {}",
        situation(at),
        match metric {
            Metric::Cpu => format!("{base}'s CPU time, divided by each engine's"),
            _ => format!("times as fast as {base}"),
        }
    );
    let mut chart = ChartBuilder::on(&plot)
        .caption(caption, ("sans-serif", 22))
        .margin(12)
        .x_label_area_size(34)
        .y_label_area_size(72)
        .build_cartesian_2d(0.0..width * workloads.len() as f64, (lowest..highest).log_scale())?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .disable_x_axis()
        .y_desc(format!("times {base}"))
        .y_labels(16)
        .label_style(("sans-serif", 16))
        .axis_desc_style(("sans-serif", 18))
        .y_label_formatter(&|ratio| if *ratio < 1.0 { format!("{ratio:.2}") } else { format!("{ratio:.1}") })
        .draw()?;
    let left = |bar: &Bar| {
        let place = engines.iter().position(|engine| *engine == bar.engine).unwrap_or(0);
        bar.workload as f64 * width + place as f64 + 0.75
    };
    for bar in &bars {
        let (left, ratio) = (left(bar), bar.ratio);
        let fill = colour(bar.engine).filled();
        chart.draw_series([Rectangle::new([(left, 1.0), (left + 0.9, ratio.median)], fill)])?;
        let middle = left + 0.45;
        chart.draw_series([PathElement::new(
            [(middle, ratio.min), (middle, ratio.max)],
            BLACK.stroke_width(1),
        )])?;
    }
    let line = [(0.0, 1.0), (width * workloads.len() as f64, 1.0)];
    chart.draw_series([PathElement::new(line, BLACK.stroke_width(1))])?;
    // Names of workloads, centred below their bars.
    let area = chart.plotting_area();
    let style = ("sans-serif", 16).into_font().color(&BLACK);
    for (place, workload) in workloads.iter().enumerate() {
        let (x, y) = area.map_coordinate(&((place as f64 + 0.5) * width, lowest));
        let text = workload.name();
        root.draw(&Text::new(text, (x - 4 * text.len() as i32, y + 10), style.clone()))?;
    }
    for (place, engine) in engines.iter().enumerate() {
        let y = 50 + 24 * place as i32;
        legend.draw(&Rectangle::new([(8, y), (24, y + 14)], colour(*engine).filled()))?;
        legend.draw(&Text::new(engine.name(), (32, y - 2), ("sans-serif", 16).into_font().color(&BLACK)))?;
    }
    root.present()?;
    Ok(true)
}
