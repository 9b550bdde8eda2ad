//! Scheduling: which flushes, compactions and filter rewrites may run at the same time, and in
//! which order they begin. Pure: no threads, clock or files.
//!
//! A running job has a [`Claim`] ([`claims`]). Its [`Span`] ([`place`]) is the hull of the keys
//! that it reads, times the places in lookup order from its newest input to its target. Two jobs of
//! one keyspace conflict if and only if their spans intersect. Any number of jobs without conflicts
//! may run at once, and install their slices in any order between them.
//!
//! [`next_jobs`] ([`next`]) looks at the tree as the running jobs will leave it
//! (`compaction::projection`), asks the policy for the job of every level, and orders the jobs by
//! the score of their level ([`score`]). `adjacent` merges runs of a level 0 that cannot be
//! compacted down. [`triggered`] picks compactions that no shape rule asks for, [`collect`] those
//! that value files need, [`range`] those of a range that a caller names.
//!
//! Not here: what a job is, its slices and its edits ([`super::policy`]); threads, memory and the
//! installation of edits (package `shamba`).

mod adjacent;
pub mod claims;
pub mod collect;
pub mod next;
pub mod place;
pub mod range;
pub mod score;
pub mod triggered;

#[cfg(test)]
mod tests;

pub use claims::{Claim, Claims, Refused};
pub use collect::{collection_debt_bytes, victims};
pub use next::{JobRequest, NextJob, RequestKind, Situation, TreeSituation, Work, next_jobs, running_score};
pub use place::{RunPlace, Span};
pub use range::RangeRequest;
pub use triggered::{TriggerPrices, Triggers, is_oldest, oldest_tombstone_age_ms};
