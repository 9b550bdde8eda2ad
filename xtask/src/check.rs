//! The gate: what must pass before a change is done, in the order in which failures are cheapest to see.

use std::path::Path;
use std::process::Command;

use crate::tidy;

/// Arguments of each step's `cargo`, and variables that it needs.
const STEPS: [(&str, &[&str], &[(&str, &str)]); 4] = [
    ("format", &["fmt", "--all", "--check"], &[]),
    ("tests", &["test"], &[]),
    ("lints", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"], &[]),
    ("docs", &["doc", "--no-deps", "--workspace"], &[("RUSTDOCFLAGS", "-D warnings")]),
];

/// Runs every step; the first failure ends it.
pub fn run() -> Result<(), String> {
    let root = tidy::root();
    eprintln!("== tidy");
    tidy::run()?;
    for (name, arguments, variables) in STEPS {
        eprintln!("== {name}: cargo {}", arguments.join(" "));
        step(&root, arguments, variables).map_err(|error| format!("{name}: {error}"))?;
    }
    Ok(())
}

fn step(root: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Result<(), String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut command = Command::new(cargo);
    command.args(arguments).envs(variables.iter().copied()).current_dir(root);
    let status = command.status().map_err(|error| format!("cargo did not start: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("failed with {status}")) }
}
