//! The laboratory: the papers' experiments, run on this engine, baseline and idea side by side.
//!
//! From low to high:
//! * values: [`Paper`], [`Scale`], [`Rows`], [`verdict`], [`chart`];
//! * what measurements are made with: `device`, `items`, `layered`, `tree`, `lookups`, and [`Lab`], the
//!   surroundings of one seed;
//! * [`Experiment`], a declaration, and `picture`, `results`, [`runner`], [`report`], which do for every
//!   experiment what is not special about it;
//! * `experiments`, a file for each figure or table; [`checks`], the engine's own experiments.
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
