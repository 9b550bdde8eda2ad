//! Common parts of the suites: a reference model, operations, option vectors, and the runners that
//! apply and compare them.
//!
//! A run is a list of [`ops::Op`] made from a seed. [`runner::Runner`] applies it to a database of
//! one [`vectors::Vector`] (tiny limits, so that a few hundred operations reach every level) and to
//! the [`oracle::Oracle`], an ordered map of histories that shares no code with the engine. The
//! same runner records a life on the simulated disk for [`crash`], which then tests every crash
//! point. A failure is shrunk by [`shrink`] and reported with one command that reproduces it
//! ([`seed`]).
//!
//! [`victim`] kills, traces and starves the real binary from outside. [`stress`] runs concurrent
//! threads, [`shared`] databases of one pool. [`soak`] combines all of it for a given time.
//!
//! Not here: the suites themselves (`tests/tests/suites`).
#![deny(missing_docs)]
#![forbid(unsafe_code)]

/// The examples of the project's front page are compiled here, because no published package
/// contains that page.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;

pub mod acked;
pub mod brief;
pub mod compare;
pub mod crash;
pub mod expiry;
pub mod fault;
pub mod fifo;
pub mod files;
pub mod filters;
pub mod follower;
pub mod fuzz;
pub mod history;
pub mod invariants;
pub mod operators;
pub mod ops;
pub mod oracle;
pub mod pool;
pub mod rules;
pub mod runner;
pub mod seed;
pub mod serial;
pub mod shared;
pub mod shrink;
pub mod soak;
pub mod stress;
pub mod tally;
pub mod vectors;
pub mod victim;
