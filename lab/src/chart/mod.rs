//! Charts of experiments: their data ([`Chart`]) and the SVG drawn from it.
//!
//! A [`Chart`] has one or more adjacent [`Panel`]s under one title, with one legend and the claim
//! that it is compared with. A panel has two [`Axis`] and [`Series`] of points with their spread:
//! lines and markers for measurements, dashes for a model, adjacent bars for unordered categories.
//! [`svg`] draws it.
//!
//! Sizes are chosen for a picture that is shown 800 pixels wide.
//!
//! Not here: the measurements; files.

mod axis;
mod compact;
mod data;
mod draw;
mod text;

pub use axis::{Axis, Scale};
pub use data::{Chart, Panel, Point, Series, Style};
pub use draw::svg;
