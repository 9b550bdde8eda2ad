//! Compaction as pure functions over a version: job choice, retention, output sizes, forecasts.
//!
//! [`policy`] picks a job for a tree; [`schedule`] decides which jobs may run at the same time, and
//! in which order. [`retention`] decides which versions of a key are kept,
//! [`fold`] what is written of them, and [`filter`] asks the program about it. [`table_size`]
//! decides where output tables end. [`reading`] sizes the read buffers of the inputs. [`forecast`]
//! estimates the bytes that a new design will write. [`crate::simulate`] runs the policy without
//! files.
//!
//! Not here: carrying out a job (package `shamba`).

pub mod filter;
pub mod fold;
pub mod forecast;
pub mod policy;
mod projection;
pub mod reading;
pub mod retention;
pub mod schedule;
#[cfg(test)]
mod script;
pub mod table_size;
