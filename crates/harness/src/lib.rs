//! The generators and the measuring loop behind `shamba bench`.
//!
//! A workload is data with a seed: [`KeyShape`] makes keys from numbers (so that a workload names an item
//! by its number and never stores a key), [`Distribution`] picks numbers, [`Values`] cuts values, and
//! [`run`] drives one [`Workload`] against a database and returns a [`BenchResult`]. The same options give
//! the same operations on every machine.
//!
//! [`trace`] has workloads as files: recorded ones, those of the K-V-Workload-Generator, and new ones by its options.
//! [`lab`] has the papers' experiments.
//!
//! Not here: printing (crate `shamba-cli`), other engines.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod clock;
pub mod curves;
mod dist;
mod items;
mod keys;
pub mod lab;
mod layered;
mod measure;
mod mix;
pub mod model_check;
pub mod monkey;
pub mod navigator;
mod ops;
pub mod overload;
mod overload_parts;
mod permute;
pub mod reopen;
mod result;
mod run;
pub mod situations;
mod sorted;
mod system;
pub mod trace;
pub mod tuning;
mod values;
pub mod watch;
mod workload;

pub use dist::{Distribution, Picker};
pub use keys::{KeyShape, Keys};
pub use measure::{CpuTimer, Latencies, rss_bytes};
pub use permute::Permutation;
pub use result::BenchResult;
pub use run::{Error, Options, Progress, run};
pub use values::Values;
pub use workload::Workload;
