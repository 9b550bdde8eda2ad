//! The `shamba` command, as a library: [`main`], which the binary calls, and entry points for
//! fuzzers ([`fuzz`]) to the parsers of the command line and of input files.
//!
//! Parses the command line, runs one command of `commands`, and turns a failure into a line on
//! standard error and an exit code (`exit`). Shared by all commands: `options` of the engine,
//! `text` (keys and values as typed and printed), `sizes`, `output`, `open`.
//!
//! The command uses the public API only, so an embedding program can do everything that it does.
#![forbid(unsafe_code)]

// Text and numbers.
mod duration;
mod exit;
mod number;
mod progress;
mod sizes;
mod system;
mod text;

// Output and options.
mod json;
mod keyspace;
mod kind;
mod load;
mod options;
mod output;

// Opening, planning, the demo.
mod demo;
mod open;
mod plan;

// Commands.
mod commands;
pub mod fuzz;

use std::process::ExitCode;

use clap::Parser;

use crate::exit::Failure;
use crate::output::{Out, note};

/// An embeddable key-value engine with one hash per lookup, one memory budget, and explained
/// lookups.
///
/// DB is a directory. Keys and values are text; \xNN stands for the byte with these two hex digits.
/// Output writes unprintable bytes this way, and a backslash as \x5c; any other backslash in input
/// is literal. With --hex, input and output are hex. Sizes take suffixes such as 64KiB or 1MiB. Put
/// a key that starts with a dash after `--`.
///
/// Exit codes: 0 ok, 1 not found, 2 corruption, 3 I/O or no such database, 4 locked, 5 unknown
/// version, 6 no space, 7 read-only, 8 stalled, 64 usage, 65 bad input data.
#[derive(Parser)]
#[command(name = "shamba", version, propagate_version = true, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: commands::Command,
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version were requested and succeed; anything else is a usage error. A
            // failure to print is ignored.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 64 } else { 0 });
        }
    };
    let mut out = Out::new();
    let result = cli.command.run(&mut out);
    let flushed = out.flush();
    let failure = match (result, flushed) {
        (Ok(()), Ok(())) => return ExitCode::SUCCESS,
        (Err(failure), _) | (Ok(()), Err(failure)) => failure,
    };
    match &failure {
        Failure::Reported(_) | Failure::PipeClosed => {}
        failure => {
            note(format!("shamba: {failure}"));
            if let Some(hint) = failure.hint() {
                note(format!("hint: {hint}"));
            }
        }
    }
    ExitCode::from(failure.code())
}
