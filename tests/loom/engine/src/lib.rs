//! Suite H, every schedule: what threads do to one another inside the engine's smallest parts, tried in full.
//!
//! The files under test are the engine's own, compiled a second time: `crate::sync`, from which they take their locks and
//! atomics, is here loom's ([`sync`]). loom runs a model, a few threads that do a few things, again and again, until every
//! order of their steps with at most three preemptions was there, and with each of them every value that a load may give by
//! its memory order. So what is found is found for all processors.
//!
//! Each model says what must hold; each also has something to break ([`broken`]), and a test that loom then sees it: a model
//! that passes whatever one does proves nothing.
//!
//! What loom does not know: it takes sequentially consistent accesses for fenced ones ([`sync::atomic`]); `arc-swap` is
//! taken for granted (a cell behind a lock stands for it), and so are the counts of `Arc`.
//!
//! Not here: schedules of the whole engine (`tests/schedules`), threads on a real machine (suite G).
#![deny(missing_docs)]
// The engine's files have more in them than the models use; one is in two of them.
#![allow(dead_code, unused_imports, clippy::duplicate_mod)]

use shamba_key::planted;

pub mod broken;
pub mod explore;
pub mod sync;

#[path = "../../../../crates/table/src/cache/mod.rs"]
mod cache;
#[path = "../../../../crates/table/src/id.rs"]
mod id;
mod index;
#[path = "../../../../crates/table/src/ledger.rs"]
mod ledger;
#[path = "../../../../crates/engine/src/published.rs"]
mod published;
#[path = "../../../../crates/tree/src/snapshot.rs"]
mod snapshot;
mod swap;

/// What is tried.
pub mod models {
    pub mod accounts;
    pub mod blocks;
    pub mod epochs;
    pub mod memtable;
    pub mod readers;
    pub mod scans;
    pub mod views;
    pub mod writers;
}
