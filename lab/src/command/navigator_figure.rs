//! Figures of experiments, as SVG.
//!
//! Not here: numbers.

use std::path::Path;

use plotters::prelude::*;

/// A design in a mix: throughput relative to the default design, measured and predicted.
pub struct Bar {
    /// The mix.
    pub mix: &'static str,
    /// Name of the design.
    pub design: String,
    /// Measured.
    pub measured: f64,
    /// Predicted.
    pub predicted: f64,
}

const SIZE: (u32, u32) = (1200, 520);
/// Colours of the designs, in their order.
const COLOURS: [RGBColor; 6] = [
    RGBColor(120, 120, 120),
    RGBColor(86, 140, 200),
    RGBColor(230, 150, 60),
    RGBColor(110, 170, 90),
    RGBColor(200, 80, 80),
    RGBColor(140, 100, 180),
];

/// Draws groups of bars, one per mix: bars show measurements, horizontal lines predictions.
/// Logarithmic, because ratios of 2 and 1/2 are equally far from 1.
pub fn draw(path: &Path, bars: &[Bar]) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let mut mixes: Vec<&str> = Vec::new();
    let mut designs: Vec<&str> = Vec::new();
    for bar in bars {
        if !mixes.contains(&bar.mix) {
            mixes.push(bar.mix);
        }
        if !designs.contains(&bar.design.as_str()) {
            designs.push(&bar.design);
        }
    }
    let values = || bars.iter().flat_map(|bar| [bar.measured, bar.predicted]).filter(|value| *value > 0.0);
    let least = values().fold(1.0, f64::min) / 1.2;
    let most = values().fold(1.0, f64::max) * 1.2;
    let width = designs.len() as f64 + 1.0;
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE).map_err(|error| failed(&error))?;
    let mut chart = ChartBuilder::on(&root)
        .caption(
            "Throughput relative to the default design: bars measured, lines predicted",
            ("sans-serif", 18),
        )
        .margin(12)
        .x_label_area_size(34)
        .y_label_area_size(48)
        .build_cartesian_2d(0.0..width * mixes.len() as f64, (least..most).log_scale())
        .map_err(|error| failed(&error))?;
    let name_of = |place: &f64| {
        let group = (place / width).floor();
        mixes.get(group as usize).map_or(String::new(), |mix| (*mix).to_owned())
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(mixes.len())
        .x_label_formatter(&name_of)
        .y_desc("times the default")
        .y_label_formatter(&|value| format!("{value:.1}"))
        .draw()
        .map_err(|error| failed(&error))?;
    for (place, design) in designs.iter().enumerate() {
        let colour = COLOURS[place % COLOURS.len()];
        let left = |bar: &&Bar| {
            let group = mixes.iter().position(|mix| *mix == bar.mix).unwrap_or(0);
            group as f64 * width + place as f64 + 0.5
        };
        let of_design = || bars.iter().filter(|bar| bar.design == *design);
        let filled = of_design().map(|bar| {
            Rectangle::new([(left(&bar), 1.0), (left(&bar) + 0.9, bar.measured.max(least))], colour.filled())
        });
        chart
            .draw_series(filled)
            .map_err(|error| failed(&error))?
            .label(*design)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled()));
        let lines = of_design().map(|bar| {
            let height = bar.predicted.max(least);
            PathElement::new(
                [(left(&bar) - 0.05, height), (left(&bar) + 0.95, height)],
                BLACK.stroke_width(2),
            )
        });
        chart.draw_series(lines).map_err(|error| failed(&error))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .draw()
        .map_err(|error| failed(&error))?;
    root.present().map_err(|error| failed(&error))
}
