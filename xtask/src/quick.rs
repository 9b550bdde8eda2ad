//! The inner loop: format, house rules, unit tests and some suites, in under a minute when a change
//! compiles incrementally.
//!
//! It has its own build profile (`quick` in `Cargo.toml`): incremental and hardly optimised, so
//! that little is recompiled after a change. Not here: the gate (`cargo xtask check`), and the
//! tests that take minutes (`cargo test`).

use std::process::Command;
use std::time::Instant;

use crate::tidy;

/// Name of a step, arguments of its `cargo`, and its environment.
type Step = (&'static str, &'static [&'static str], &'static [(&'static str, &'static str)]);

/// Unit tests, without those that simulate growing trees, flip each byte of a large file or build
/// large filters bit by bit: these take half of the time.
const UNITS: &[&str] = &[
    "test",
    "--profile",
    "quick",
    "--quiet",
    "--lib",
    "-p",
    "shamba-key",
    "-p",
    "shamba-env",
    "-p",
    "shamba-filter",
    "-p",
    "shamba-model",
    "-p",
    "shamba-table",
    "-p",
    "shamba-log",
    "-p",
    "shamba-memtable",
    "-p",
    "shamba-tree",
    "-p",
    "shamba",
    "--",
    "--skip",
    "grows_in_shape",
    "--skip",
    "a_crowded_inbox",
    "--skip",
    "large::every_flipped_byte",
    "--skip",
    "filters_do_what_the_format_page_says",
];

/// Suites that take seconds, by the start of the tests' names.
const SUITES: &[&str] = &[
    "test",
    "--profile",
    "quick",
    "--quiet",
    "-p",
    "shamba-tests",
    "--test",
    "suites",
    "--",
    "bad_input",
    "coverage",
    "formats",
    "hash_sharing",
    "peers",
    "concurrency::a_",
    "crash::equal_seeds",
];

/// The operations compared with the oracle, under one vector of options out of hundreds.
const MODEL: &[&str] =
    &["test", "--profile", "quick", "--quiet", "-p", "shamba-tests", "--test", "suites", "--", "model::"];

const STEPS: [Step; 5] = [
    ("format", &["fmt", "--all", "--check"], &[]),
    ("unit tests of the crates up to the engine", UNITS, &[]),
    ("a handful of the suites", SUITES, &[]),
    ("random operations under option vector 7", MODEL, &[("SHAMBA_VECTOR", "7")]),
    ("random operations under option vector 100", MODEL, &[("SHAMBA_VECTOR", "100")]),
];

const SKIPPED: &str = "\
skipped: lints, docs and doctests, simulations of trees that grow, the command (cargo test -p shamba-cli), the experiments (-p shamba-lab), \
schedules (tests/loom, tests/schedules), xtask, and of the suites crashes, faults, damage, kills, fuzzing and stress \
(cargo test -p shamba-tests); cargo xtask check runs all of it";

/// Runs every step; the first failure ends it.
pub fn run() -> Result<(), String> {
    let begin = Instant::now();
    tidy::run()?;
    for (name, arguments, environment) in STEPS {
        let step = Instant::now();
        eprintln!("== {name}");
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
        let status = Command::new(cargo)
            .args(arguments)
            .envs(environment.iter().copied())
            .current_dir(tidy::root())
            .status()
            .map_err(|error| format!("cargo did not start: {error}"))?;
        if !status.success() {
            return Err(format!("{name}: failed with {status}"));
        }
        eprintln!("   {:.1} s", step.elapsed().as_secs_f64());
    }
    eprintln!("quick: passed in {:.0} s\n{SKIPPED}", begin.elapsed().as_secs_f64());
    Ok(())
}
