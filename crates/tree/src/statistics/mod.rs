//! Sampled lookup statistics: the counters of one table ([`TableStatistics`]) and their decay
//! ([`rates`]).
//!
//! Units: everything is in *sampled* lookups and probes, decayed; only rates "per second" are of
//! all lookups.
//!
//! Not here: sampling, and the figures of a whole tree ([`crate::sampling`]).

pub mod rates;
mod table;

pub use rates::{LookupWindow, Probes};
pub use table::TableStatistics;
