//! The laboratory: the papers' experiments on this engine; baseline and idea run side by side.
//!
//! From low to high:
//! * values: [`Paper`], [`Scale`], [`Rows`], [`verdict`], [`chart`];
//! * tools of measurements: `device`, `items`, `layered`, `tree`, `lookups`, and [`Lab`], the
//!   environment of one seed;
//! * [`Experiment`], a declaration, and `picture`, `results`, [`runner`], [`report`], the common
//!   parts of all experiments;
//! * `experiments`, a file per figure or table; [`checks`], the engine's own experiments.
//!
//! Not here: other engines (`lab/peers`).
#![forbid(unsafe_code)]

pub mod chart;
mod facts;
mod paper;
mod rows;
mod scale;
pub mod verdict;

mod device;
mod io_tally;
mod items;
mod lab;
mod layered;
mod lookups;
mod tree;

mod experiment;
mod picture;
mod prelude;
mod report;
mod results;
pub mod runner;

pub mod checks;
mod experiments;

pub use device::Device;
pub use experiment::Experiment;
pub use experiments::{all, find};
pub use facts::Facts;
pub use lab::Lab;
pub use paper::{Kind, Method, Paper};
pub use picture::{AxisScale, Column, Panel};
pub use report::report;
pub use results::{Outcome, describe};
pub use rows::{Cell, Row, Rows, View};
pub use scale::{Parameter, Scale};
