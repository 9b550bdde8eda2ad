//! `shamba-lab`: the papers' experiments from the command line.
//!
//! `list` lists the experiments, `run` and `all` run them, `report` renders pages of results,
//! `generate` writes workloads as text, `check` runs the engine's own experiments, each of which
//! fails if the engine violates a guarantee.
//!
//! Exit codes: 0 success, 1 a check failed, 3 I/O or a failed experiment, 64 usage, 65 bad input
//! data.
#![forbid(unsafe_code)]

mod command;

use std::process::ExitCode;

fn main() -> ExitCode {
    command::main()
}
