//! Suite I: hostile bytes for every decoder, and lives encoded in bytes, with a crash.
//!
//! The corpora in `tests/data/fuzz` are replayed, then random mutations of small valid files;
//! `fuzz/` runs the same targets under a coverage-guided fuzzer. A child process runs them, with
//! equal checksums ([`fuzz::make_checksums_equal`]), so that mutations reach the code behind the
//! checks. Release builds have no such switch and skip this.
//!
//! `SHAMBA_FUZZ` multiplies the number of mutations, `SHAMBA_SEED` selects others.

use std::process::{Command, Stdio};

use shamba_tests::fuzz::{self, TARGETS, Target, corpus};
use shamba_tests::pool;
use shamba_tests::runner::caught;
use shamba_tests::seed;

const CHILD: &str = "SHAMBA_FUZZ_CHILD";

/// Factor on the number of mutations in CI.
fn times() -> f64 {
    seed::number("SHAMBA_FUZZ").map_or(1.0, |times| times as f64)
}

/// Runs the kept inputs of targets; returns the number of files.
fn replay(targets: &[&Target]) -> u64 {
    let kept: Vec<_> = targets
        .iter()
        .flat_map(|target| corpus(target).into_iter().map(move |file| (target, file)))
        .collect();
    let replayed = pool::run(kept.len(), |number| {
        let (target, (name, bytes)) = &kept[number];
        let ran = caught(|| {
            target.run(bytes);
            Ok(())
        });
        ran.map_err(|error| format!("{name}: {error}"))
    });
    replayed.unwrap_or_else(|error| panic!("{error}")).len() as u64
}

/// The child's body; a test that does nothing unless started by the parent.
#[test]
fn child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    assert!(fuzz::make_checksums_equal(), "nothing would get behind the checksums");
    let decoders: Vec<&Target> = TARGETS.iter().filter(|target| target.is_decoder).collect();
    let files = replay(&decoders);
    let mut tally =
        fuzz::by_chance(&decoders, times(), seed::base(0xf022)).unwrap_or_else(|error| panic!("{error}"));
    tally.add("corpus files", files);
    tally.tell("fuzz", "suite I, decoders");
}

#[test]
fn no_decoder_panics_on_hostile_bytes() {
    if !cfg!(debug_assertions) || std::env::var_os(CHILD).is_some() {
        return;
    }
    let binary = std::env::current_exe().expect("a test knows its own binary");
    let output = Command::new(&binary)
        .args(["fuzz::child", "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .stdin(Stdio::null())
        .output()
        .expect("the test binary starts");
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let errors: Vec<&str> = errors.lines().filter(|line| !line.starts_with("  ")).collect();
    assert!(
        output.status.success(),
        "{}\n{said}\n{}",
        output.status,
        errors[errors.len().saturating_sub(20)..].join("\n")
    );
    assert!(said.contains("executions, table-modular"), "nothing was run:\n{said}");
}

#[test]
fn lives_that_bytes_tell_survive_their_crashes() {
    let target = fuzz::target("operations").expect("a target");
    let files = replay(&[target]);
    let mut tally =
        fuzz::by_chance(&[target], times(), seed::base(0x0b5)).unwrap_or_else(|error| panic!("{error}"));
    tally.add("corpus files", files);
    tally.tell("fuzz-operations", "suite I, lives");
}
