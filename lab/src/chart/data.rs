//! What a chart shows, as data.

use super::axis::Axis;

/// A picture: panels side by side, one legend for all.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// What is to be seen, in a few words.
    pub title: String,
    /// What it is held against: the claim, in a sentence or two. Drawn under the title.
    pub claim: String,
    /// Small print below the picture: what was held fixed, what is emulated.
    pub note: String,
    /// At least one. Series of the same name have one colour in all of them.
    pub panels: Vec<Panel>,
}

/// One system of axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    /// What tells it from the others; empty where there is one.
    pub title: String,
    /// Across.
    pub x: Axis,
    /// Up.
    pub y: Axis,
    /// In the order of the legend. One named as another with `, model` behind it has the other's
    /// colour.
    pub series: Vec<Series>,
}

/// Points that belong together.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// As the legend has it.
    pub name: String,
    /// How it is drawn.
    pub style: Style,
    /// From left to right. Points that are not finite, or not above 0 on a logarithmic axis, are
    /// left out.
    pub points: Vec<Point>,
}

/// How a series is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// A line with a marker at each point: measured.
    Line,
    /// A dashed line without markers: computed.
    Dashes,
    /// Markers alone.
    Markers,
    /// Bars; the series of a panel stand beside each other.
    Bars,
    /// Bars on top of those of the series before it.
    Stack,
}

/// A value and how far the repeats lay apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Across; the number of the category on an axis of categories.
    pub x: f64,
    /// Up: the median.
    pub y: f64,
    /// The least and the most of the repeats.
    pub spread: Option<(f64, f64)>,
}

impl Point {
    /// A point without spread.
    pub fn new(x: f64, y: f64) -> Self {
        Self { x, y, spread: None }
    }

    /// A point with what the repeats lay between.
    pub fn between(x: f64, y: f64, least: f64, most: f64) -> Self {
        Self { x, y, spread: Some((least, most)) }
    }
}

impl Series {
    /// A series of points.
    pub fn new(name: impl Into<String>, style: Style, points: Vec<Point>) -> Self {
        Self { name: name.into(), style, points }
    }

    /// What a model says, as (x, y).
    pub fn model(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let points = points.into_iter().map(|(x, y)| Point::new(x, y)).collect();
        Self::new(name, Style::Dashes, points)
    }
}
