//! Runs of the real binary that is killed, traced, short of resources or under long load: builds
//! it, and the program that controls it.
//!
//! In the dev profile, with all checks on, unless given `--release`. Not here: the runs and their
//! invariants (`tests/src/victim`, `tests/src/soak.rs`).

use std::process::Command;

use crate::tidy;

/// Runs `kill`, `syscalls`, `scarce` or `soak` with the rest of the command line.
pub fn run(name: &str, arguments: &[String]) -> Result<(), String> {
    let profile: &[&str] =
        if arguments.iter().any(|word| word == "--release") { &["--release"] } else { &[] };
    let rest: Vec<&str> = arguments.iter().map(String::as_str).filter(|word| *word != "--release").collect();
    cargo(&[&["build", "--quiet", "--package", "shamba-cli"], profile].concat())?;
    let example = ["run", "--quiet", "--package", "shamba-tests", "--example", "victim"];
    cargo(&[&example[..], profile, &["--", name], &rest].concat())
}

fn cargo(words: &[&str]) -> Result<(), String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let status = Command::new(cargo).args(words).current_dir(tidy::root()).status();
    let status = status.map_err(|error| format!("cargo did not start: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{} failed with {status}", words.join(" "))) }
}
