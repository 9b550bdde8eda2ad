//! Every suite in one binary, because each binary costs a link.
//!
//! A suite prints its work and compares it with minima, so that it cannot silently do nothing. Each
//! module's header names its letter in the reliability plan.

use mimalloc::MiMalloc;

/// Suites open hundreds of thousands of databases, and the system's allocator takes a fifth of the
/// time of that.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

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
mod shared;
mod steady;
mod stress;
mod sweep;
mod transactions;
