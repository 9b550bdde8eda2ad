//! Draws a [`Chart`] as SVG.
//!
//! From top to bottom: the title, the claim, the panels, the legend in rows below them, the note.
//! The legend has separate space and never covers a curve.

use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use std::ops::Range;

use super::axis::Axis;
use super::compact::compact;
use super::data::{Chart, Panel, Point, Series, Style};
use super::text;

const WIDTH: u32 = 960;
const MARGIN: i32 = 16;
const PANEL_HEIGHT: i32 = 400;
/// Maximum panels in a row: with more, labels of neighbouring axes overlap.
const COLUMNS_MAX: usize = 3;
const TITLE_SIZE: f64 = 22.0;
const TEXT_SIZE: f64 = 16.0;
const SMALL_SIZE: f64 = 14.0;
/// Line height relative to the font size.
const LEADING: f64 = 1.35;
const GRID: RGBColor = RGBColor(225, 225, 225);
const SOFT: RGBColor = RGBColor(90, 90, 90);
/// Colours that remain distinguishable with red-green colour blindness and in greyscale, after
/// Okabe and Ito.
const COLOURS: [RGBColor; 9] = [
    RGBColor(90, 90, 90),
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(120, 80, 40),
    RGBColor(96, 40, 140),
];
/// Suffix of a series that has the colour of the series with the name before the suffix.
const MODEL_SUFFIX: &str = ", model";
/// Width of a legend entry's sample and the gap after it.
const SAMPLE: i32 = 34;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Cartesian<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Ticks, Ticks>>;

/// Draws `chart`.
///
/// # Errors
/// A chart without a panel, and what the library that draws says.
pub fn svg(chart: &Chart) -> Result<String, String> {
    if chart.panels.is_empty() {
        return Err(format!("the chart {:?} has no panel", chart.title));
    }
    let legend = legend(chart);
    let heights = Heights::of(chart, &legend);
    let mut image = String::new();
    {
        let size = (WIDTH, heights.all() as u32);
        let root = SVGBackend::with_string(&mut image, size).into_drawing_area();
        root.fill(&WHITE).map_err(said)?;
        draw_heading(&root, chart)?;
        let (_, below) = root.split_vertically(heights.heading);
        let (panels, below) = below.split_vertically(heights.panels);
        let (rows, columns) = grid(chart.panels.len());
        let areas = panels.split_evenly((rows, columns));
        for (panel, area) in chart.panels.iter().zip(&areas) {
            draw_panel(area, panel, &legend, columns)?;
        }
        draw_legend(&below, &legend)?;
        let (_, below) = below.split_vertically(heights.legend);
        draw_lines(&below, &chart.note, SMALL_SIZE, &SOFT, 4)?;
        root.present().map_err(said)?;
    }
    Ok(compact(&image))
}

fn said(error: impl std::fmt::Display) -> String {
    format!("drawing: {error}")
}

/// Heights of the parts, from the top.
struct Heights {
    heading: i32,
    panels: i32,
    legend: i32,
    note: i32,
}

impl Heights {
    fn of(chart: &Chart, legend: &[Entry]) -> Self {
        let height = |text: &str, size: f64| lines(text, size).len() as f64 * size * LEADING;
        let rows = legend.last().map_or(0, |entry| entry.row + 1);
        Self {
            heading: (14.0 + height(&chart.title, TITLE_SIZE) + height(&chart.claim, TEXT_SIZE) + 6.0) as i32,
            panels: PANEL_HEIGHT * grid(chart.panels.len()).0 as i32,
            legend: (rows as f64 * TEXT_SIZE * LEADING + 8.0) as i32,
            note: (height(&chart.note, SMALL_SIZE) + 12.0) as i32,
        }
    }

    fn all(&self) -> i32 {
        self.heading + self.panels + self.legend + self.note
    }
}

/// Rows and columns for this number of panels: the fewest rows that [`COLUMNS_MAX`] allows, evenly
/// filled.
fn grid(panels: usize) -> (usize, usize) {
    let rows = panels.div_ceil(COLUMNS_MAX).max(1);
    (rows, panels.div_ceil(rows))
}

fn lines(text: &str, size: f64) -> Vec<String> {
    text::lines(text, size, f64::from(WIDTH) - 2.0 * f64::from(MARGIN))
}

fn draw_heading(root: &Area<'_>, chart: &Chart) -> Result<(), String> {
    draw_lines(root, &chart.title, TITLE_SIZE, &BLACK, 10)?;
    let below = 10.0 + lines(&chart.title, TITLE_SIZE).len() as f64 * TITLE_SIZE * LEADING;
    draw_lines(root, &chart.claim, TEXT_SIZE, &SOFT, below as i32)
}

fn draw_lines(area: &Area<'_>, text: &str, size: f64, colour: &RGBColor, top: i32) -> Result<(), String> {
    let style = ("sans-serif", size).into_font().color(colour);
    for (number, line) in lines(text, size).into_iter().enumerate() {
        let at = (MARGIN, top + (number as f64 * size * LEADING) as i32);
        area.draw(&Text::new(line, at, style.clone())).map_err(said)?;
    }
    Ok(())
}

/// A name in the legend with its position.
struct Entry {
    name: String,
    style: Style,
    colour: RGBColor,
    row: usize,
    left: i32,
}

/// Every name once, in the order of first use, in rows.
fn legend(chart: &Chart) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    let (mut row, mut left, mut colours) = (0, MARGIN, 0);
    for series in chart.panels.iter().flat_map(|panel| &panel.series) {
        if entries.iter().any(|entry| entry.name == series.name) {
            continue;
        }
        let width = SAMPLE + text::width(&series.name, TEXT_SIZE) as i32 + 24;
        if left + width > WIDTH as i32 && left > MARGIN {
            row += 1;
            left = MARGIN;
        }
        // A model has the colour of its series.
        let modelled = series.name.strip_suffix(MODEL_SUFFIX);
        let of_it =
            entries.iter().find(|entry| Some(entry.name.as_str()) == modelled).map(|entry| entry.colour);
        let colour = of_it.unwrap_or_else(|| {
            let colour = COLOURS[colours % COLOURS.len()];
            colours += 1;
            colour
        });
        entries.push(Entry { name: series.name.clone(), style: series.style, colour, row, left });
        left += width;
    }
    entries
}

fn draw_legend(area: &Area<'_>, legend: &[Entry]) -> Result<(), String> {
    let style = ("sans-serif", TEXT_SIZE).into_font().color(&BLACK);
    for Entry { name, style: drawn, colour, row, left } in legend {
        let top = 4 + (*row as f64 * TEXT_SIZE * LEADING) as i32;
        let middle = top + (TEXT_SIZE / 2.0) as i32;
        let (from, to) = ((*left, middle), (left + SAMPLE - 8, middle));
        match drawn {
            Style::Bars | Style::Stack => {
                let corners = [(from.0 + 4, middle - 6), (to.0 - 4, middle + 6)];
                area.draw(&Rectangle::new(corners, colour.filled())).map_err(said)?;
            }
            Style::Dashes => {
                let dashes = DashedPathElement::new([from, to], 6, 4, colour.stroke_width(2));
                area.draw(&dashes).map_err(said)?;
            }
            Style::Line | Style::Markers => {
                if *drawn == Style::Line {
                    area.draw(&PathElement::new([from, to], colour.stroke_width(2))).map_err(said)?;
                }
                let centre = ((from.0 + to.0) / 2, middle);
                area.draw(&Circle::new(centre, 4, colour.filled())).map_err(said)?;
            }
        }
        area.draw(&Text::new(name.clone(), (left + SAMPLE, top), style.clone())).map_err(said)?;
    }
    Ok(())
}

/// Adapts an axis to the drawing library: range of places and positions of ticks.
struct Ticks {
    places: Range<f64>,
    ticks: Vec<f64>,
}

impl Ranged for Ticks {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let part = (value - self.places.start) / (self.places.end - self.places.start);
        limit.0 + (f64::from(limit.1 - limit.0) * part).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.places.clone()
    }
}

/// Placement of a series' points.
#[derive(Clone, Copy)]
struct Placed {
    x: f64,
    y: f64,
    spread: Option<(f64, f64)>,
}

fn placed(panel: &Panel, points: &[Point]) -> Vec<Placed> {
    let place = |point: &Point| {
        let spread =
            point.spread.and_then(|(least, most)| Some((panel.y.place(least)?, panel.y.place(most)?)));
        Some(Placed { x: panel.x.place(point.x)?, y: panel.y.place(point.y)?, spread })
    };
    points.iter().filter_map(place).collect()
}

/// Points of the panel's series; those of stacked bars are accumulated.
fn stacked(panel: &Panel) -> Vec<Vec<Point>> {
    let mut below: Vec<(f64, f64)> = Vec::new();
    let mut all = Vec::new();
    for series in &panel.series {
        if series.style != Style::Stack {
            all.push(series.points.clone());
            continue;
        }
        let raised = series.points.iter().map(|point| {
            let height = match below.iter_mut().find(|(x, _)| *x == point.x) {
                Some((_, height)) => height,
                None => {
                    below.push((point.x, 0.0));
                    &mut below.last_mut().expect("just pushed").1
                }
            };
            *height += point.y;
            Point::new(point.x, *height)
        });
        all.push(raised.collect());
    }
    all
}

fn draw_panel(area: &Area<'_>, panel: &Panel, legend: &[Entry], panels: usize) -> Result<(), String> {
    let points = stacked(panel);
    let has_bars = panel.series.iter().any(|series| matches!(series.style, Style::Bars | Style::Stack));
    let mut y = panel.y.clone();
    if has_bars && y.reach.is_none() && y.scale == super::Scale::Linear {
        y.reach = Some((0.0, 0.0)); // Bars stand on 0.
    }
    let all = || points.iter().flatten();
    let of_spread = |point: &Point| point.spread.map_or([point.y; 2], |(least, most)| [least, most]);
    let y_values = all().flat_map(|point| [point.y].into_iter().chain(of_spread(point)));
    let x_places = panel.x.places(all().map(|point| point.x));
    let y_places = y.places(y_values);
    let ticks = |axis: &Axis, places: Range<f64>| Ticks { ticks: axis.ticks(&places), places };
    // Bars start at 0 and extend up or down.
    let floor =
        if y.scale == super::Scale::Log { y_places.start } else { 0f64.clamp(y_places.start, y_places.end) };

    let widest = y.ticks(&y_places).into_iter().map(|tick| text::width(&y.tick_label(tick), TEXT_SIZE));
    let y_labels = widest.fold(0.0, f64::max) as i32 + 34;
    let mut builder = ChartBuilder::on(area);
    builder.margin(10).margin_right(18).x_label_area_size(56).y_label_area_size(y_labels);
    if !panel.title.is_empty() {
        builder.caption(&panel.title, ("sans-serif", TEXT_SIZE + 1.0));
    }
    let x_names = x_labels(&panel.x, &x_places, panels);
    let mut chart =
        builder.build_cartesian_2d(ticks(&panel.x, x_places), ticks(&y, y_places)).map_err(said)?;
    let font = || ("sans-serif", SMALL_SIZE + 1.0).into_font().color(&BLACK);
    let x_label = |place: &f64| x_names(*place);
    let y_label = |place: &f64| y.tick_label(*place);
    let is_named = matches!(panel.x.scale, super::Scale::Categories(_));
    let mut mesh = chart.configure_mesh();
    mesh.light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(SOFT)
        .label_style(font())
        .axis_desc_style(("sans-serif", TEXT_SIZE).into_font().color(&BLACK))
        .x_desc(panel.x.label.clone())
        .y_desc(panel.y.label.clone())
        .x_label_formatter(&x_label)
        .y_label_formatter(&y_label);
    if is_named {
        mesh.disable_x_mesh();
    }
    mesh.draw().map_err(said)?;

    let bars: Vec<&Series> = panel.series.iter().filter(|series| series.style == Style::Bars).collect();
    let columns = bars.len() + usize::from(panel.series.iter().any(|series| series.style == Style::Stack));
    for (series, points) in panel.series.iter().zip(&points).rev().filter(|(s, _)| s.style == Style::Stack) {
        // The highest bar first, so that the lower ones cover it.
        draw_bars(
            &mut chart,
            &placed(panel, points),
            (bars.len(), columns),
            floor,
            colour_of(legend, series),
        )?;
    }
    for (series, points) in panel.series.iter().zip(&points) {
        let colour = colour_of(legend, series);
        let placed = placed(panel, points);
        match series.style {
            Style::Stack => {}
            Style::Bars => {
                let column = bars.iter().position(|bar| bar.name == series.name).unwrap_or(0);
                draw_bars(&mut chart, &placed, (column, columns), floor, colour)?;
            }
            Style::Dashes => {
                let path: Vec<(f64, f64)> = placed.iter().map(|point| (point.x, point.y)).collect();
                let dashes = DashedLineSeries::new(path, 6, 4, colour.stroke_width(2));
                chart.draw_series(dashes).map_err(said)?;
            }
            Style::Line | Style::Markers => {
                let placed = match bars.iter().position(|bar| is_model_of(&series.name, &bar.name)) {
                    Some(column) => over_column(placed, (column, columns)),
                    None => placed,
                };
                if series.style == Style::Line {
                    let path = placed.iter().map(|point| (point.x, point.y));
                    chart.draw_series(LineSeries::new(path, colour.stroke_width(2))).map_err(said)?;
                }
                draw_spread(&mut chart, placed.iter().map(|point| (point.x, point.spread)), colour)?;
                let dots = placed.iter().map(|point| Circle::new((point.x, point.y), 4, colour.filled()));
                chart.draw_series(dots).map_err(said)?;
            }
        }
    }
    Ok(())
}

fn colour_of(legend: &[Entry], series: &Series) -> RGBColor {
    legend.iter().find(|entry| entry.name == series.name).map_or(BLACK, |entry| entry.colour)
}

/// Labels of horizontal ticks, shortened where they would overlap.
fn x_labels(axis: &Axis, places: &Range<f64>, panels: usize) -> impl Fn(f64) -> String + use<> {
    let ticks = axis.ticks(places);
    let room = (f64::from(WIDTH) / panels as f64 - 90.0) / ticks.len().max(1) as f64;
    let most = ((room / (SMALL_SIZE * 0.6)) as usize).max(3);
    let axis = axis.clone();
    move |place| {
        let name = axis.tick_label(place);
        if name.chars().count() <= most { name } else { name.chars().take(most - 1).chain(['.']).collect() }
    }
}

/// Whether series `name` is the model of series `modelled`.
fn is_model_of(name: &str, modelled: &str) -> bool {
    name.strip_suffix(MODEL_SUFFIX) == Some(modelled)
}

/// Share of a place that its columns fill.
const COLUMNS_WIDTH: f64 = 0.84;

/// The left edge of a column at a place, and its width.
fn column_at(x: f64, (column, columns): (usize, usize)) -> (f64, f64) {
    let width = COLUMNS_WIDTH / columns.max(1) as f64;
    (x - COLUMNS_WIDTH / 2.0 + column as f64 * width, width)
}

/// Points centred on a column, so that a model's points are above the bars of its series.
fn over_column(points: Vec<Placed>, column: (usize, usize)) -> Vec<Placed> {
    let moved = |point: Placed| {
        let (left, width) = column_at(point.x, column);
        Placed { x: left + width / 2.0, ..point }
    };
    points.into_iter().map(moved).collect()
}

/// Draws the bars of one series, each in its column at its place.
fn draw_bars(
    chart: &mut Cartesian<'_, '_>,
    points: &[Placed],
    column: (usize, usize),
    floor: f64,
    colour: RGBColor,
) -> Result<(), String> {
    let bars = points.iter().map(|point| {
        let (left, width) = column_at(point.x, column);
        let corners = [(left + width * 0.04, floor), (left + width * 0.96, point.y)];
        Rectangle::new(corners, colour.filled())
    });
    chart.draw_series(bars).map_err(said)?;
    let spreads = points.iter().map(|point| {
        let (left, width) = column_at(point.x, column);
        (left + width / 2.0, point.spread)
    });
    draw_spread(chart, spreads, BLACK)
}

/// Draws vertical lines from minimum to maximum, with a cap at both ends.
fn draw_spread(
    chart: &mut Cartesian<'_, '_>,
    spreads: impl Iterator<Item = (f64, Option<(f64, f64)>)>,
    colour: RGBColor,
) -> Result<(), String> {
    for (x, spread) in spreads {
        let Some((least, most)) = spread else { continue };
        let upright = PathElement::new([(x, least), (x, most)], colour.stroke_width(1));
        chart.draw_series([upright]).map_err(said)?;
        for end in [least, most] {
            let across =
                EmptyElement::at((x, end)) + PathElement::new([(-4, 0), (4, 0)], colour.stroke_width(1));
            chart.draw_series([across]).map_err(said)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::Scale;

    fn chart(style: Style) -> Chart {
        let points =
            vec![Point::between(0.0, 2.0, 1.5, 2.5), Point::new(1.0, 4.0), Point::new(2.0, f64::NAN)];
        let panel = Panel {
            title: String::new(),
            x: Axis::categories("device", ["disk", "memory", "none"]),
            y: Axis::from_zero("time [us]"),
            series: vec![
                Series::new("before", style, points.clone()),
                Series::new("after", style, points),
                Series::model("model", [(0.0, 1.0), (1.0, 3.0)]),
            ],
        };
        Chart {
            title: "A title".to_owned(),
            claim: "A claim that is long enough to be broken into lines, as it says what a paper found and where it found it, and some more words.".to_owned(),
            note: "A note.".to_owned(),
            panels: vec![panel.clone(), Panel { title: "another".to_owned(), ..panel }],
        }
    }

    #[test]
    fn every_name_is_in_the_picture_once_in_the_legend() {
        for style in [Style::Line, Style::Markers, Style::Bars, Style::Stack, Style::Dashes] {
            let image = svg(&chart(style)).expect("drawn");
            for name in ["before", "after", "model"] {
                assert_eq!(image.matches(&format!(">{name}</text>")).count(), 1, "{style:?} {name}");
            }
            for text in ["A title", "time [us]", "device", "memory", "another", "A note."] {
                assert!(image.contains(text), "{style:?}: {text}");
            }
            assert!(!image.contains("NaN"), "a point that is no number is left out");
        }
    }

    #[test]
    fn panels_fill_rows_evenly() {
        assert_eq!([1, 2, 3, 4, 5, 6, 7].map(grid), [(1, 1), (1, 2), (1, 3), (2, 2), (2, 3), (2, 3), (3, 3)]);
    }

    #[test]
    fn a_model_has_the_colour_of_what_it_models() {
        let mut chart = chart(Style::Line);
        chart.panels[0].series[2].name = "after, model".to_owned();
        let legend = legend(&chart);
        let colour = |name: &str| legend.iter().find(|entry| entry.name == name).expect("listed").colour;
        assert_eq!(colour("after, model"), colour("after"));
        assert_ne!(colour("before"), colour("after"));
    }

    #[test]
    fn markers_of_a_model_stand_over_its_bars() {
        let at = |x| Placed { x, y: 1.0, spread: None };
        let places =
            |column| over_column(vec![at(0.0), at(1.0)], (column, 2)).iter().map(|at| at.x).collect();
        let (first, second): (Vec<f64>, Vec<f64>) = (places(0), places(1));
        assert!(first[0] < 0.0 && second[0] > 0.0 && (first[0] + second[0]).abs() < 1e-9);
        assert!((first[1] - first[0] - 1.0).abs() < 1e-9);
        assert!(is_model_of("after, model", "after") && !is_model_of("after", "after"));
    }

    #[test]
    fn a_stack_is_as_high_as_its_parts_together() {
        let stacked = stacked(&chart(Style::Stack).panels[0]);
        assert_eq!(stacked[1][1].y, 8.0);
        assert_eq!(stacked[2][1].y, 3.0, "a model is not part of it");
    }

    #[test]
    fn nothing_to_draw_is_an_error_and_no_points_are_none() {
        let mut empty = chart(Style::Line);
        empty.panels[0].series.iter_mut().for_each(|series| series.points.clear());
        empty.panels[0].x = Axis { label: "x".to_owned(), scale: Scale::Log, reach: None };
        svg(&empty).expect("empty axes");
        empty.panels.clear();
        assert!(svg(&empty).is_err());
    }
}
