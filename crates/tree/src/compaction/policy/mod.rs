//! Compaction policy: which compaction to run next. Pure functions of a version and [`Rules`],
//! without I/O, clock or state.
//!
//! [`pick`] implements the fluid LSM (`fluid`). `score` picks the file that leaves a leveled
//! level. Adjacent small tables are compacted when nothing else is due (`small`). [`pick_full`]
//! serves a caller's `compact`. [`pick_filter_rewrite`] rewrites tables in place for new filters.
//!
//! Every function answers with a [`CompactionJob`] (`job`), which is carried out one key range at a
//! time: [`slices`] cuts it, [`slice_edit`] records one finished slice. A crash may leave any
//! prefix of the slices done. Such a tree is valid, and the policy continues from it as from any
//! other.
//!
//! A keyspace runs one job at a time, except that [`pick_concurrent`] picks jobs which run between
//! two slices of a long one. Flushes may change the tree at any time.
//!
//! Not here: merging entries (`compaction::job`), scheduling (`background`).

mod concurrent;
mod credit;
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

pub use concurrent::{can_be_deferred, concurrent_level_bytes, pick_concurrent};
pub use credit::credit_after;
pub use filter_rewrite::pick_filter_rewrite;
pub(in crate::compaction) use fluid::Down;
pub use fluid::{debt_bytes, pick, pick_l0};
pub use full::pick_full;
pub use job::{CompactionInput, CompactionJob, OutputRun, Reason, Target};
pub use rules::Rules;
pub use slices::{move_edit, slice_edit, slices};
pub(in crate::compaction) use small::pick_small;
