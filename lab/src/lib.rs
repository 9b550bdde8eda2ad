//! The laboratory: every experiment of the papers, run on this engine, baseline beside idea.
//!
//! An [`Experiment`] states what a paper claims and what it varies and holds fixed, runs ([`Lab`] tells
//! it how large and where), and returns a [`Finding`]: a table, a chart, what was found in a sentence
//! and whether that confirms the claim. [`run`] writes these; [`report`] makes a page of all results in
//! a folder. [`checks`] has the engine's own experiments.
//!
//! Not here: other engines (`lab/peers`).
#![forbid(unsafe_code)]

pub mod chart;
pub mod checks;
mod items;
mod layered;

mod device;
mod experiment;
mod experiments;
mod facts;
mod files;
mod lookups;
mod report;
#[cfg(test)]
mod smoke;
mod table;
mod tree;

pub use device::Device;
pub use experiment::{Experiment, Finding, Kind, Lab, Paper, Parameter, Role, Scale, Verdict};
pub use experiments::{all, find};
pub use facts::Facts;
pub use files::{Outcome, describe, run};
pub use report::report;
pub use table::{Cell, Table};
