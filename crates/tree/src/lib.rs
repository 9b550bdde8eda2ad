//! The tree of one keyspace: runs of tables as an immutable version, lookups and iterators over it,
//! and what compaction does to it as arithmetic.
//!
//! A [`version::Version`] is a value; a [`version::VersionEdit`] makes the next one, and the
//! manifest ([`version::manifest`]) records edits. A [`view::View`] is a version with the memtables
//! above it: what one reader sees. [`lookup`] and [`iter`] read a view; [`compaction`] decides what
//! to merge.
//!
//! Not here: which view is current, threads, and carrying out compactions (package `shamba`).
#![deny(missing_docs)]
#![forbid(unsafe_code)]

// What a tree is made of.
pub mod error;
pub mod slice;
pub mod statistics;
pub mod version;

// What makes one value of several entries.
pub mod merging;

// What one reader sees.
pub mod counters;
pub mod expiry;
pub mod records;
pub mod snapshot;
pub mod view;

// Reading it.
pub mod iter;
pub mod lookup;
pub mod sampling;

// Changing it.
pub mod compaction;

// The filter bits of what a change writes.
pub mod allocation;

// The policy without files, for tests and experiments.
pub mod simulate;

pub use error::{Cause, Error, Result};

use shamba_env::sync;
