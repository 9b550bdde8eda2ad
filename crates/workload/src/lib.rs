//! Workload generators, traces and the measuring loop behind `shamba bench`.
//!
//! A workload is data with a seed. [`KeyShape`] makes keys from numbers (so that a workload names
//! an item by its number and never stores a key), [`Distribution`] picks numbers, and [`Values`]
//! makes values. [`run`] runs one [`Workload`] on a database and returns a [`BenchResult`]. The
//! same options give the same operations on every machine. [`trace`] reads, writes and generates
//! workloads as files: recorded traces, and those of the K-V-Workload-Generator.
//!
//! The command, the laboratory and the comparison with other engines use this crate.
//!
//! Not here: printing (crate `shamba-cli`), experiments and other engines (`lab/`).
#![forbid(unsafe_code)]
#![deny(missing_docs)]

// Generators: numbers, keys, values.
mod dist;
mod keys;
mod mix;
mod permute;
mod sorted;
mod values;

// What can be asked and what is measured.
mod error;
mod measure;
mod progress;
mod system;
mod workload;

// Traces; options, which name one; results.
mod options;
mod result;
mod totals;
pub mod trace;

// The measuring loops.
mod ops;
mod replay;
mod scans;

mod run;

pub use dist::{Distribution, Picker, Zipf};
pub use error::Error;
pub use keys::{KeyShape, Keys};
pub use measure::{CpuTimer, Latencies, rss_bytes};
pub use mix::{mix, mix2};
pub use options::Options;
pub use permute::Permutation;
pub use progress::Progress;
pub use replay::execute as execute_trace;
pub use result::BenchResult;
pub use run::run;
pub use system::read_from_start;
pub use values::Values;
pub use workload::Workload;
