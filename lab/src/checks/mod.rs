//! The engine's own experiments: promises that need minutes, memory or a process of their own.
//!
//! Each has options, a run and an outcome with its violations. `shamba-lab check` runs them.

pub(crate) mod clock;
pub mod curves;
pub mod model_check;
pub mod monkey;
pub mod navigator;
pub mod overload;
mod overload_parts;
pub mod reopen;
pub mod situations;
pub mod tuning;
pub mod watch;
