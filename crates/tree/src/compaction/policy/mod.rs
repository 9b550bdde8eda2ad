//! Policy: what to merge next. Pure functions of a version and [`Rules`]; no I/O, no clock, no state.
//!
//! [`pick`] is the fluid LSM ([`fluid`]); which file leaves a leveled level is [`score`]'s to say;
//! small tables that pile up are merged last ([`small`]); [`pick_full`] is a caller's `compact`, [`pick_refit`] writes tables again where they are. All answer with a [`MergeJob`] ([`job`]), which is carried out a
//! key range at a time: [`slices`] cuts it, [`slice_edit`] records one finished slice. A crash may leave any
//! prefix of the slices done; such a tree is valid, and the policy goes on from it like from any other.
//!
//! One job at a time runs in a keyspace, but for those that are right beside a long one ([`pick_beside`]): between two of
//! its slices. Flushes may change the tree at any time.
//!
//! Not here: merging (`compaction::job`), when to run (`background`).

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
