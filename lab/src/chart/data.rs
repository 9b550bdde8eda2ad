//! Contents of a chart.

use super::axis::Axis;

/// A picture: panels side by side, one legend for all.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// Title.
    pub title: String,
    /// The claim that it is compared with, in one or two sentences. Drawn under the title.
    pub claim: String,
    /// Note below the picture: fixed parameters and emulated devices.
    pub note: String,
    /// At least one. Series of the same name have one colour in all of them.
    pub panels: Vec<Panel>,
}

/// One system of axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    /// Title of the panel; empty if there is only one.
    pub title: String,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// Series in the order of the legend. A series `NAME, model` has the colour of `NAME`.
    pub series: Vec<Series>,
}

/// Points that belong together.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Name in the legend.
    pub name: String,
    /// How it is drawn.
    pub style: Style,
    /// Points from left to right. Points that are not finite, or not above 0 on a logarithmic axis,
    /// are omitted.
    pub points: Vec<Point>,
}

/// How a series is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// A line with a marker at each point: measured.
    Line,
    /// A dashed line without markers: computed.
    Dashes,
    /// Only markers.
    Markers,
    /// Bars; those of several series are adjacent.
    Bars,
    /// Bars stacked on those of the preceding series.
    Stack,
}

/// A value with the spread of its repetitions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Horizontal coordinate; on a category axis the index of the category.
    pub x: f64,
    /// Vertical coordinate: the median.
    pub y: f64,
    /// Minimum and maximum of the repetitions.
    pub spread: Option<(f64, f64)>,
}

impl Point {
    /// A point without spread.
    pub fn new(x: f64, y: f64) -> Self {
        Self { x, y, spread: None }
    }

    /// A point with the minimum and maximum of its repetitions.
    pub fn between(x: f64, y: f64, least: f64, most: f64) -> Self {
        Self { x, y, spread: Some((least, most)) }
    }
}

impl Series {
    /// A series of points.
    pub fn new(name: impl Into<String>, style: Style, points: Vec<Point>) -> Self {
        Self { name: name.into(), style, points }
    }

    /// A series of a model's values, as (x, y).
    pub fn model(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let points = points.into_iter().map(|(x, y)| Point::new(x, y)).collect();
        Self::new(name, Style::Dashes, points)
    }
}
