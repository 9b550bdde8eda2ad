//! The gate: the checks that must pass before a change is complete, fastest failures first.

use std::path::Path;
use std::process::Command;

use crate::tidy;

/// Name of each step and arguments of its `cargo`.
const STEPS: [(&str, &[&str]); 7] = [
    ("format", &["fmt", "--all", "--check"]),
    ("format of lab/peers", &["fmt", "--manifest-path", "lab/peers/Cargo.toml", "--check"]),
    ("format of lab/allocators", &["fmt", "--manifest-path", "lab/allocators/Cargo.toml", "--check"]),
    ("tests", &["test"]),
    ("tests of tidy", &["test", "--package", "xtask"]),
    ("lints", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]),
    ("docs", &["doc", "--no-deps", "--workspace"]),
];

/// Runs every step; the first failure ends it.
pub fn run() -> Result<(), String> {
    let root = tidy::root();
    eprintln!("== tidy");
    tidy::run()?;
    for (name, arguments) in STEPS {
        eprintln!("== {name}: cargo {}", arguments.join(" "));
        step(&root, arguments).map_err(|error| format!("{name}: {error}"))?;
    }
    Ok(())
}

fn step(root: &Path, arguments: &[&str]) -> Result<(), String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut command = Command::new(cargo);
    command.args(arguments).env("RUSTDOCFLAGS", "-D warnings").current_dir(root);
    let status = command.status().map_err(|error| format!("cargo did not start: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("failed with {status}")) }
}
