//! The suites' common parts: a reference model, operations, option vectors, and what runs and compares them.
//!
//! A run is a list of [`ops::Op`] made from a seed, applied by [`runner::Runner`] to a database of one
//! [`vectors::Vector`] (tiny limits, so that a few hundred operations reach every level) and to the
//! [`oracle::Oracle`], which is an ordered map of histories and shares no code with the engine. The same
//! runner records a life on the simulated disk for [`crash`], which then takes every crash point.
//! A failure is shrunk by [`shrink`] and ends with one command that runs it again ([`seed`]).
//!
//! The real binary, killed, traced and starved from outside, is [`victim`]'s. What threads do beside one another is [`stress`]'s;
//! [`soak`] mixes all of it for as long as it is told.
//!
//! Not here: the suites themselves (`tests/tests/suites`).
#![deny(missing_docs)]
#![forbid(unsafe_code)]

/// The examples of the project's front page are compiled, here because no published package holds
/// that page.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;

pub mod compare;
pub mod crash;
pub mod fault;
pub mod files;
pub mod fuzz;
pub mod history;
pub mod ops;
pub mod oracle;
pub mod planted;
pub mod pool;
pub mod runner;
pub mod seed;
pub mod shrink;
pub mod soak;
pub mod stress;
pub mod tally;
pub mod vectors;
pub mod victim;
