//! Every suite in one binary, because each binary costs a link.
//!
//! A suite prints what it did and holds it to minima, so that it cannot quietly do nothing. Which letter of
//! the reliability plan it stands for is in each module's header.

mod bad_input;
mod concurrency;
mod corruption;
mod coverage;
mod crash;
mod crash_threads;
mod fault_then_crash;
mod faults;
mod formats;
mod fuzz;
mod hash_sharing;
mod kill;
mod linear;
mod membership;
mod metamorphic;
mod model;
mod outgrown;
mod peers;
mod planted;
mod repair;
mod scarce;
mod stress;
mod sweep;
