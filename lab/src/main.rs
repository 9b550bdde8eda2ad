//! `shamba-lab`: the papers' experiments from the command line.
//!
//! `list` names the experiments, `run` and `all` carry them out, `report` makes pages of results,
//! `generate` writes workloads as text, `check` runs the engine's own experiments, each of which
//! fails where the engine breaks a promise.
//!
//! Exit codes: 0 success, 1 a check failed, 3 I/O or a failed experiment, 64 usage, 65 bad input
//! data.
#![forbid(unsafe_code)]

mod command;

use std::process::ExitCode;

fn main() -> ExitCode {
    command::main()
}
