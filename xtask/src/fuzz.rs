//! Coverage-guided fuzzing on stable Rust: builds `fuzz/` with the compiler's coverage counters and starts it.
//!
//! New inputs that reach new code go to `fuzz/corpus/TARGET`; what is worth keeping is copied to `tests/data/fuzz/TARGET` by hand, where
//! the suite `fuzz` replays it. The seeds are written there first. Needs a C++ compiler, for libFuzzer. Not here: the targets
//! (`tests/src/fuzz.rs`).

use std::path::Path;
use std::process::Command;

use crate::tidy;

/// What makes libFuzzer see which code was reached; the sanitizers themselves need another compiler.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
                     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
                     -Ccodegen-units=1";

/// Runs a target for some seconds.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let mut words = arguments.iter().map(String::as_str);
    let (mut target, mut seconds) = (None, 60u64);
    while let Some(word) = words.next() {
        match word {
            "--seconds" => {
                let text = words.next().ok_or("--seconds needs a number")?;
                seconds = text.parse().map_err(|_| format!("--seconds {text:?} is no number"))?;
            }
            name if !name.starts_with('-') && target.is_none() => target = Some(name),
            other => return Err(format!("fuzz has no option {other}")),
        }
    }
    let target = target.ok_or("which target? They are listed in tests/src/fuzz.rs")?;
    let root = tidy::root();
    let corpus = root.join("fuzz/corpus").join(target);
    let kept = root.join("tests/data/fuzz").join(target);
    std::fs::create_dir_all(&corpus).map_err(|error| format!("{}: {error}", corpus.display()))?;
    std::fs::create_dir_all(root.join("fuzz/artifacts"))
        .map_err(|error| format!("fuzz/artifacts: {error}"))?;
    // Built for a triple that is named, so that the flags do not reach build scripts.
    let triple = host()?;
    let seeds = ["run", "--quiet", "--package", "shamba-tests", "--example", "fuzz-seeds", "--", target];
    cargo(Command::new("cargo").args(seeds).arg(&corpus).env("SHAMBA_PLANT", "checksum-constant"), &root)?;
    let manifest = root.join("fuzz/Cargo.toml");
    let mut command = Command::new("cargo");
    command
        .args(["run", "--release", "--target", &triple, "--manifest-path"])
        .arg(manifest)
        .arg("--")
        .arg(&corpus);
    if kept.is_dir() {
        command.arg(kept);
    }
    let plant = if target == "operations" { "none" } else { "checksum-constant" };
    command.args([
        format!("-max_total_time={seconds}"),
        "-timeout=20".to_owned(),
        "-rss_limit_mb=2048".to_owned(),
        "-max_len=65536".to_owned(),
        format!("-artifact_prefix={}/", root.join("fuzz/artifacts").display()),
    ]);
    command.env("RUSTFLAGS", FLAGS).env("SHAMBA_FUZZ_TARGET", target).env("SHAMBA_PLANT", plant);
    cargo(&mut command, &root)
}

fn cargo(command: &mut Command, root: &Path) -> Result<(), String> {
    let status =
        command.current_dir(root).status().map_err(|error| format!("cargo did not start: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?} ended with {status}")) }
}

/// The triple of this machine.
fn host() -> Result<String, String> {
    let output =
        Command::new("rustc").arg("-vV").output().map_err(|error| format!("rustc did not start: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| "rustc -vV names no host".to_owned())
}
