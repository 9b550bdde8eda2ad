//! The laboratory: every experiment of the papers, run on this engine, baseline beside idea.
//!
//! An [`Experiment`] states what a paper claims and what it varies and holds fixed, runs ([`Lab`] tells it how large and
//! where), and returns a [`Finding`]: a table, a chart, what was found in a sentence and whether that confirms the claim.
//! [`run`] writes these beside each other (`lab/files.rs`); [`report`] makes a page of all that lie in a folder.
//!
//! The experiments are in `lab/experiments.rs`, a file for each figure or table. What they share: `lab/tree.rs` lays trees down level
//! by level without filling them, `lab/lookups.rs` asks baseline and idea in turns, `lab/device.rs` names the devices.
//!
//! Not here: printing and options (crate `shamba-cli`), drawing (crate `shamba-figures`), other engines (`bench/peers`).

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
