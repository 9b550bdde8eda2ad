//! The project's own tasks: `cargo xtask check` is the whole gate, `cargo xtask tidy` the house rules.
//!
//! Plain standard library, so that it builds in a second. Not here: the suites (`tests/`).

mod check;
mod tidy;

use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask COMMAND
  check   the whole gate: tests, format, lints, docs, tidy
  tidy    the house rules: file headers and lengths, forbidden calls and words, order of crates";

fn main() -> ExitCode {
    let command = std::env::args().nth(1);
    let result = match command.as_deref() {
        Some("check") => check::run(),
        Some("tidy") => tidy::run(),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(64);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}
