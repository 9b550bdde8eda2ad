//! Charts of experiments: what is to be seen, as data, and SVG made of it.
//!
//! A [`Chart`] is one or more [`Panel`]s side by side under one title, with one legend and the
//! claim that the chart is held against. A panel has two [`Axis`] and [`Series`] of points with
//! their spread: lines and markers for what was measured, dashes for a model, bars beside each
//! other for things without an order. [`svg`] draws it.
//!
//! Sizes are chosen so that everything can be read when the picture is shown 800 pixels wide.
//!
//! Not here: where numbers come from; files.

mod axis;
mod compact;
mod data;
mod draw;
mod text;

pub use axis::{Axis, Scale};
pub use data::{Chart, Panel, Point, Series, Style};
pub use draw::svg;
