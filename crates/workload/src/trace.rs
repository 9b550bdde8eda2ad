//! Workloads as files: reading and generation.
//!
//! The lines are those of [`shamba::trace`] (`docs/formats/trace.md`): recorded by a database, or
//! written by the K-V-Workload-Generator. [`TraceReader`] reads them strictly, one at a time.
//! [`Generator`] generates traces from a seed and the K-V-Workload-Generator's options; [`Preset`]
//! has the mixes of the papers.

pub(crate) mod generate;
pub(crate) mod interleave;
pub(crate) mod live;
pub(crate) mod options;
pub(crate) mod preset;
pub(crate) mod reader;
pub(crate) mod spread;

pub use generate::Generator;
pub use options::{Entries, Made, Mix};
pub use preset::{Phase, Preset};
pub use reader::TraceReader;

pub use crate::error::TraceError;
pub use spread::Spread;
