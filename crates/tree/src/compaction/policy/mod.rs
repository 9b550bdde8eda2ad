//! Compaction policy: which compactions a tree needs. Pure functions of a version and [`Rules`],
//! without I/O, clock or state.
//!
//! `fluid` has the job of every level that is over its bounds (the fluid LSM); [`pick`] names one
//! after the other, as if nothing else ran. `score` picks the file that leaves a leveled level.
//! Adjacent small tables are compacted when nothing else is due (`small`). [`pick_full`] serves a
//! caller's `compact`. [`pick_fifo`] names the tables that a FIFO tree drops.
//! [`pick_filter_rewrite`] rewrites tables in place for new filters.
//!
//! Every function answers with a [`CompactionJob`] (`job`), which is carried out one key range at a
//! time: [`slices`] cuts it, [`slice_edit`] records one finished slice. A crash may leave any
//! prefix of the slices done. Such a tree is valid, and the policy continues from it as from any
//! other.
//!
//! Not here: which jobs run at the same time, and in which order ([`super::schedule`]); merging
//! entries (package `shamba`).

mod fifo;
mod filter_rewrite;
mod fluid;
mod full;
mod job;
mod rules;
mod score;
mod shape;
mod slices;
mod small;

#[cfg(test)]
mod tests;

pub(in crate::compaction) use fifo::fifo_bytes;
pub use fifo::{FifoRules, fifo_due, is_fifo_due, pick_fifo};
pub use filter_rewrite::pick_filter_rewrite;
pub(in crate::compaction) use fluid::{Arrival, Down};
pub use fluid::{debt_bytes, pick};
pub use full::{could_shrink, pick_full};
pub use job::{CompactionInput, CompactionJob, OutputRun, Reason, Target};
pub use rules::{Rules, ValueRules};
pub use slices::{move_edit, slice_edit, slices};
pub(in crate::compaction) use small::pick_small;
