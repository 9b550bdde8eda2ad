//! Pictures of rows: draws a declared [`Panel`] with the rows of all seeds as a [`chart::Chart`].
//!
//! Rows are grouped by the cells of the series' columns and the place on the x axis. A point is the
//! mean over the group's seeds, its bar their 95 % interval. Rows of one seed in a group are
//! different cases, such as other parameters: their mean is that seed's value, so a bar never
//! includes the difference between cases.

use crate::chart::{self, Axis, Chart, Point, Series, Style};
use crate::experiment::Experiment;
use crate::rows::{Rows, View};
use crate::verdict::{Interval, Unit};

/// An axis of a panel: a column and its scale.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// The column of the rows.
    pub name: &'static str,
    /// The label, with the unit.
    pub label: &'static str,
    /// Scale of the axis.
    pub scale: AxisScale,
    /// A factor for values, such as 100 for percent.
    pub times: f64,
}

/// Scale of an axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AxisScale {
    /// Linear.
    Linear,
    /// Linear, from 0.
    FromZero,
    /// Logarithmic.
    Log,
    /// Categories, in the order of the rows.
    Names,
}

impl Column {
    /// A linear axis.
    pub const fn linear(name: &'static str, label: &'static str) -> Self {
        Self { name, label, scale: AxisScale::Linear, times: 1.0 }
    }

    /// A linear axis from 0.
    pub const fn from_zero(name: &'static str, label: &'static str) -> Self {
        Self { name, label, scale: AxisScale::FromZero, times: 1.0 }
    }

    /// A share in percent, from 0.
    pub const fn percent(name: &'static str, label: &'static str) -> Self {
        Self { name, label, scale: AxisScale::FromZero, times: 100.0 }
    }

    /// A logarithmic axis.
    pub const fn log(name: &'static str, label: &'static str) -> Self {
        Self { name, label, scale: AxisScale::Log, times: 1.0 }
    }

    /// A category axis.
    pub const fn names(name: &'static str, label: &'static str) -> Self {
        Self { name, label, scale: AxisScale::Names, times: 1.0 }
    }

    /// The axis with its values multiplied.
    pub const fn times(mut self, factor: f64) -> Self {
        self.times = factor;
        self
    }

    fn axis(self, names: &[String]) -> Axis {
        match self.scale {
            AxisScale::Linear => Axis::linear(self.label),
            AxisScale::FromZero => Axis::from_zero(self.label),
            AxisScale::Log => Axis::log(self.label),
            AxisScale::Names => Axis::categories(self.label, names.iter().cloned()),
        }
    }
}

/// One system of axes over some of the rows.
#[derive(Clone, Copy, Debug)]
pub struct Panel {
    /// The title; empty where there is one panel.
    pub title: &'static str,
    /// Selects rows whose cells have these values, as (column, text).
    pub only: &'static [(&'static str, &'static str)],
    /// Horizontal axis.
    pub x: Column,
    /// Vertical axis.
    pub y: Column,
    /// Columns whose joined cells name a series. Rows with empty cells there are omitted.
    pub series: &'static [&'static str],
    /// How series are drawn.
    pub style: Style,
    /// A column with a model's values, drawn as dashes for each series.
    pub model: Option<&'static str>,
}

impl Panel {
    /// A panel of lines over all rows.
    pub const fn lines(x: Column, y: Column, series: &'static [&'static str]) -> Self {
        Self { title: "", only: &[], x, y, series, style: Style::Line, model: None }
    }

    /// The panel with a title, over the rows whose cells have these values.
    pub const fn titled(
        mut self,
        title: &'static str,
        only: &'static [(&'static str, &'static str)],
    ) -> Self {
        (self.title, self.only) = (title, only);
        self
    }

    /// The panel with a model's column.
    pub const fn with_model(mut self, column: &'static str) -> Self {
        self.model = Some(column);
        self
    }

    /// The panel with another style.
    pub const fn drawn(mut self, style: Style) -> Self {
        self.style = style;
        self
    }

    fn rows<'a>(&self, rows: &View<'a>) -> View<'a> {
        self.only.iter().fold(rows.clone(), |rows, (column, text)| rows.of(column, *text))
    }

    /// Ratio of measured to predicted values, over all rows; `None` without a model.
    fn model_error(&self, rows: &View<'_>) -> Option<String> {
        let model = self.model?;
        let ratio = |row: &&crate::rows::Row| Some(row.number(self.y.name)? / row.number(model)?);
        let ratios: Vec<f64> = self.rows(rows).0.iter().filter_map(ratio).collect();
        let ratios: Vec<f64> = ratios.into_iter().filter(|ratio| ratio.is_finite() && *ratio > 0.0).collect();
        let least = ratios.iter().copied().reduce(f64::min)?;
        let most = ratios.iter().copied().reduce(f64::max)?;
        let mean = (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp();
        let of = if self.title.is_empty() { self.y.label } else { self.title };
        Some(format!("{of}: measured over model {least:.2} to {most:.2}, geometric mean {mean:.2}"))
    }

    /// Maximum rows of one seed in one point: cases that the panel does not distinguish.
    #[cfg(test)]
    pub(crate) fn cases(&self, rows: &View<'_>) -> usize {
        let rows = self.rows(rows).filter(|row| row.number(self.y.name).is_some());
        let mut points = std::collections::BTreeMap::<Vec<String>, usize>::new();
        for row in rows.0 {
            let place = ["seed", self.x.name].into_iter().chain(self.series.iter().copied());
            *points.entry(place.map(|column| row.text(column)).collect()).or_default() += 1;
        }
        points.into_values().max().unwrap_or(0)
    }

    fn draw(&self, rows: &View<'_>) -> chart::Panel {
        let rows = self.rows(rows);
        let names = rows.values(self.x.name);
        let name_of = |row: &crate::rows::Row| {
            let parts: Vec<String> =
                self.series.iter().map(|column| row.text(column)).filter(|text| !text.is_empty()).collect();
            parts.join(", ")
        };
        let mut series_names: Vec<String> = Vec::new();
        for name in rows.0.iter().map(|row| name_of(row)) {
            if !series_names.contains(&name) {
                series_names.push(name);
            }
        }
        let curve = |name: &str, column: &str| -> Vec<Point> {
            let of_series = rows.filter(|row| name_of(row) == name);
            let mut points: Vec<Point> = of_series
                .values(self.x.name)
                .iter()
                .filter_map(|place| {
                    let here = of_series.of(self.x.name, place.as_str());
                    let x = match self.x.scale {
                        AxisScale::Names => names.iter().position(|name| name == place)? as f64,
                        _ => here.number(self.x.name)? * self.x.times,
                    };
                    let values: Vec<f64> = here
                        .values("seed")
                        .iter()
                        .filter_map(|seed| here.of("seed", seed.as_str()).mean(column))
                        .map(|value| value * self.y.times)
                        .collect();
                    let found = Interval::of(&values, Unit::Plain(""))?;
                    let is_sampled = values.len() > 1 && found.low < found.high;
                    Some(if is_sampled {
                        Point::between(x, found.mean, found.low, found.high)
                    } else {
                        Point::new(x, found.mean)
                    })
                })
                .collect();
            points.sort_by(|left, right| left.x.total_cmp(&right.x));
            points
        };
        let mut series: Vec<Series> = series_names
            .iter()
            .map(|name| Series::new(name.clone(), self.style, curve(name, self.y.name)))
            .collect();
        if let Some(column) = self.model {
            let is_named = self.x.scale == AxisScale::Names;
            let style = if is_named { Style::Markers } else { Style::Dashes };
            for name in &series_names {
                let mut points = curve(name, column);
                points.iter_mut().for_each(|point| point.spread = None);
                if !points.is_empty() {
                    series.push(Series::new(format!("{name}, model"), style, points));
                }
            }
        }
        chart::Panel { title: self.title.to_owned(), x: self.x.axis(&names), y: self.y.axis(&[]), series }
    }
}

/// Deviation of the measurements from the drawn models, panel by panel.
pub(crate) fn model_errors(experiment: &Experiment, rows: &Rows) -> Vec<String> {
    let view = rows.view();
    experiment.panels.iter().filter_map(|panel| panel.model_error(&view)).collect()
}

/// The picture of an experiment's rows.
pub(crate) fn picture(experiment: &Experiment, rows: &Rows) -> Chart {
    let view = rows.view();
    let panels: Vec<chart::Panel> = experiment.panels.iter().map(|panel| panel.draw(&view)).collect();
    let mut note = experiment.note.to_owned();
    let mut add = |is_wanted: bool, mark: &str, text: &str| {
        if is_wanted && !note.to_lowercase().contains(mark) {
            note = format!("{note} {text}").trim_start().to_owned();
        }
    };
    let has_bars = panels
        .iter()
        .flat_map(|panel| &panel.series)
        .flat_map(|one| &one.points)
        .any(|at| at.spread.is_some());
    add(view.flagged("emulated", true) > 0, "emulated", "Devices with a latency are emulated.");
    add(has_bars, "bars:", "Bars: 95 % intervals over the seeds.");
    Chart { title: capitalised(experiment.title), claim: experiment.claim.to_owned(), note, panels }
}

fn capitalised(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::row;

    #[test]
    fn a_point_is_the_mean_of_its_seeds() {
        let mut rows = Rows::default();
        for (seed, gain) in [(1, 0.1), (2, 0.3)] {
            let mut one = Rows::default();
            for device in ["SSD", "NVM"] {
                one.push(row!(device: device, bits: 5.0, gain: gain, model: 0.2));
                one.push(row!(device: device, bits: 1.0, gain: 0.5, model: 0.2));
            }
            rows.join(seed, one);
        }
        const PANEL: Panel =
            Panel::lines(Column::linear("bits", "bits"), Column::percent("gain", "gain [%]"), &["device"])
                .with_model("model");
        let drawn = PANEL.draw(&rows.view());
        let names: Vec<&str> = drawn.series.iter().map(|series| series.name.as_str()).collect();
        assert_eq!(names, ["SSD", "NVM", "SSD, model", "NVM, model"]);
        let points = &drawn.series[0].points;
        assert_eq!((points[0].x, points[0].y, points[0].spread), (1.0, 50.0, None));
        assert!((points[1].y - 20.0).abs() < 1e-9 && points[1].spread.is_some_and(|(low, _)| low < 0.0));
        let told = PANEL.model_error(&rows.view()).expect("a model");
        assert_eq!(told, "gain [%]: measured over model 0.50 to 2.50, geometric mean 1.47");
        // Two cases of a seed in one place: the bar is over seeds, whose means are equal.
        let mut cases = Rows::default();
        for seed in [1, 2] {
            let mut one = Rows::default();
            for gain in [0.1, 0.3] {
                one.push(row!(device: "SSD", bits: 5.0, gain: gain, model: 0.2));
            }
            cases.join(seed, one);
        }
        let points = &PANEL.draw(&cases.view()).series[0].points;
        assert_eq!((points[0].y.round(), points[0].spread), (20.0, None), "cases are no spread");
        const ONE: Panel = PANEL.titled("NVM", &[("device", "NVM")]);
        assert_eq!(ONE.draw(&rows.view()).series.len(), 2);
    }
}
