//! Every suite in one binary, because each binary costs a link.
//!
//! A suite prints its work and compares it with minima, so that it cannot silently do nothing. Each
//! module's header names its letter in the reliability plan.

mod bad_input;
mod changes;
mod concurrency;
mod corruption;
mod coverage;
mod crash;
mod crash_rules;
mod crash_threads;
mod crash_transactions;
mod fault_then_crash;
mod faults;
mod formats;
mod fuzz;
mod hash_sharing;
mod kill;
mod linear;
mod membership;
mod merge;
mod metamorphic;
mod model;
mod outgrown;
mod peers;
mod repair;
mod scarce;
mod stress;
mod sweep;
mod transactions;
