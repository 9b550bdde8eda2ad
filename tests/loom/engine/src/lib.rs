//! Suite H, every schedule: the interactions of threads in the engine's smallest parts, explored
//! exhaustively.
//!
//! The files under test are the engine's own, compiled a second time. `crate::sync`, from which
//! they import their locks and atomics, is loom's here ([`sync`]). A model is a few threads with a
//! few steps each. loom runs it repeatedly, until it has covered every order of the steps with at
//! most three preemptions, and for each order every value that a load may return by its memory
//! order. So the results hold for all processors.
//!
//! Each model states its invariants. Each also has mutations ([`broken`]), and a test that loom
//! detects them: a model that passes under every mutation proves nothing.
//!
//! Limits of loom: it treats sequentially consistent accesses as fenced ones ([`sync::atomic`]).
//! `arc-swap` is assumed correct (a cell with a lock replaces it), and so are the counts of `Arc`.
//!
//! Not here: schedules of the whole engine (`tests/schedules`), threads on a real machine (suite
//! G).
#![deny(missing_docs)]
// The engine's files contain more than the models use; one file is included by two of them.
#![allow(dead_code, unused_imports, clippy::duplicate_mod)]

pub mod broken;
pub mod explore;
pub mod sync;

#[path = "../../../../crates/table/src/cache/mod.rs"]
mod cache;
#[path = "../../../../crates/table/src/id.rs"]
mod id;
#[path = "../../../../crates/table/src/ledger.rs"]
mod ledger;
#[path = "../../../../crates/env/src/lock.rs"]
mod lock;
#[path = "../../../../crates/engine/src/lock_order.rs"]
mod lock_order;
#[path = "../../../../crates/engine/src/catalog/published.rs"]
mod published;
#[path = "../../../../crates/env/src/ranked.rs"]
mod ranked;
#[path = "../../../../crates/table/src/slot.rs"]
mod slot;
#[path = "../../../../crates/tree/src/snapshot.rs"]
mod snapshot;
mod swap;

/// The models.
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
