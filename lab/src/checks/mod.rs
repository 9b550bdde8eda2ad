//! The engine's own experiments: guarantees whose check needs minutes, much memory or a separate
//! process.
//!
//! Each has options, a run function and an outcome with its violations. `shamba-lab check` runs
//! them.

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
