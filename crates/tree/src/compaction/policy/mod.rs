//! Compaction policy: which compaction to run next. Pure functions of a version and [`Rules`],
//! without I/O, clock or state.
//!
//! [`pick`] implements the fluid LSM (`fluid`). `score` picks the file that leaves a leveled
//! level. Adjacent small tables are compacted when nothing else is due (`small`). [`pick_full`]
//! serves a caller's `compact`. [`pick_refit`] rewrites tables in place for new filters.
//!
//! Every function answers with a [`MergeJob`] (`job`), which is carried out one key range at a
//! time: [`slices`] cuts it, [`slice_edit`] records one finished slice. A crash may leave any
//! prefix of the slices done. Such a tree is valid, and the policy continues from it as from any
//! other.
//!
//! A keyspace runs one job at a time, except that [`pick_beside`] picks jobs which run between two
//! slices of a long one. Flushes may change the tree at any time.
//!
//! Not here: merging entries (`compaction::job`), scheduling (`background`).

mod beside;
mod fluid;
mod full;
mod job;
mod refit;
mod rules;
mod score;
mod slices;
mod small;
mod turns;

#[cfg(test)]
mod tests;

pub use beside::{bytes_beside, may_wait, pick_beside};
pub use fluid::{debt_bytes, pick, pick_inbox};
pub use full::pick_full;
pub use job::{MergeJob, OutputRun, Reason, Target};
pub use refit::pick_refit;
pub use rules::Rules;
pub use slices::{move_edit, slice_edit, slices};
pub use turns::owed_after;
