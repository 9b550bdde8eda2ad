//! Coverage-guided fuzzing on stable Rust: builds `fuzz/` with the compiler's coverage counters and
//! runs it.
//!
//! New inputs that reach new code go to `fuzz/corpus/TARGET`, which starts with the target's seeds
//! and the kept inputs. `--keep` copies a small set that reaches the same code to
//! `tests/data/fuzz/TARGET`, where the suite `fuzz` replays it. The number of tried inputs is
//! printed as a JSON object and recorded for `cargo xtask reliability`. Needs a C++ compiler, for
//! libFuzzer. Not here: the targets (`tests/src/fuzz.rs`).

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::tidy;

/// Flags for libFuzzer's coverage and comparison tracing; the sanitizers themselves need another
/// compiler. The flags apply to the target triple alone, which is named so that they do not affect
/// build scripts.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
                     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
                     -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1";
/// Maximum kept bytes per target: the kept inputs are part of the sources.
const KEPT_BYTES: u64 = 192 << 10;
/// Keeps few inputs that together reach all code, regardless of hit counts, because each is run in
/// every build.
const KEEPING: [&str; 3] = ["-set_cover_merge=1", "-use_counters=0", "-verbosity=0"];
/// Prefix of libFuzzer's final count of inputs.
const EXECUTIONS: &str = "stat::number_of_executed_units:";
/// Name of the file with the counts, as for suites.
const SUITE: &str = "fuzz-guided";

const USAGE: &str = "usage: cargo xtask fuzz TARGET...|all [--seconds N] [--keep]   (targets are listed in tests/src/fuzz.rs)";

/// Runs targets for some seconds each.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let mut words = arguments.iter().map(String::as_str);
    let (mut names, mut seconds, mut keeps) = (Vec::new(), 60u64, false);
    while let Some(word) = words.next() {
        match word {
            "--seconds" => {
                let text = words.next().ok_or("--seconds needs a number")?;
                seconds = text.parse().map_err(|_| format!("--seconds {text:?} is no number"))?;
            }
            "--keep" => keeps = true,
            name if !name.starts_with('-') => names.push(name.to_owned()),
            other => return Err(format!("fuzz has no option {other}\n{USAGE}")),
        }
    }
    if names.is_empty() {
        return Err(USAGE.to_owned());
    }
    let fuzz = Fuzz { root: tidy::root(), triple: host()? };
    if names == ["all"] {
        names = fuzz.targets()?;
    }
    for name in &names {
        let executions = fuzz.run(name, seconds)?;
        println!(
            r#"{{"schema":"shamba.fuzz/1","target":"{name}","seconds":{seconds},"executions":{executions},"findings":0}}"#
        );
        count(name, executions)?;
        if keeps {
            fuzz.keep(name)?;
        }
    }
    Ok(())
}

struct Fuzz {
    root: PathBuf,
    triple: String,
}

impl Fuzz {
    /// The names of all targets.
    fn targets(&self) -> Result<Vec<String>, String> {
        let output = self.seeds().output().map_err(|error| format!("cargo did not start: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            Ok(text.lines().map(str::to_owned).collect())
        } else {
            Err(format!("the targets cannot be listed:\n{}", String::from_utf8_lossy(&output.stderr)))
        }
    }

    /// Command that writes seeds, or lists targets when it gets no arguments.
    fn seeds(&self) -> Command {
        let mut command = Command::new("cargo");
        command.args(["run", "--quiet", "--package", "shamba-tests", "--example", "fuzz-seeds", "--"]);
        command.current_dir(&self.root);
        command
    }

    fn corpus(&self, target: &str) -> PathBuf {
        self.root.join("fuzz/corpus").join(target)
    }

    fn kept(&self, target: &str) -> PathBuf {
        self.root.join("tests/data/fuzz").join(target)
    }

    /// The fuzzer of a target, built if necessary.
    fn fuzzer(&self, target: &str) -> Command {
        let mut command = Command::new("cargo");
        command
            // Not locked: its lock file follows the workspace's dependencies at the next run.
            .args(["run", "--quiet", "--release", "--target", &self.triple, "--manifest-path"])
            .arg(self.root.join("fuzz/Cargo.toml"))
            .arg("--")
            .args(["-timeout=20", "-rss_limit_mb=2048", "-max_len=65536"])
            .arg(format!("-artifact_prefix={}/", self.root.join("fuzz/artifacts").display()))
            .env("RUSTFLAGS", FLAGS)
            .env("SHAMBA_FUZZ_TARGET", target)
            .current_dir(&self.root);
        command
    }

    /// Fuzzes a target for some seconds; returns the number of tried inputs.
    fn run(&self, target: &str, seconds: u64) -> Result<u64, String> {
        let corpus = self.corpus(target);
        make(&corpus)?;
        make(&self.root.join("fuzz/artifacts"))?;
        let mut seeds = self.seeds();
        seeds.arg(target).arg(&corpus);
        succeed(&mut seeds)?;
        let mut fuzzer = self.fuzzer(target);
        fuzzer.args([&format!("-max_total_time={seconds}"), "-print_final_stats=1"]).arg(&corpus);
        if self.kept(target).is_dir() {
            fuzzer.arg(self.kept(target));
        }
        let mut child =
            fuzzer.stderr(Stdio::piped()).spawn().map_err(|error| format!("cargo did not start: {error}"))?;
        let mut executions = 0;
        for line in child.stderr.take().map(BufReader::new).into_iter().flat_map(BufRead::lines) {
            let line = line.map_err(|error| format!("what the fuzzer says: {error}"))?;
            eprintln!("{line}");
            if let Some(number) = line.strip_prefix(EXECUTIONS) {
                executions = number.trim().parse().unwrap_or(0);
            }
        }
        let status = child.wait().map_err(|error| format!("the fuzzer of {target}: {error}"))?;
        if status.success() {
            Ok(executions)
        } else {
            Err(format!("a finding: the fuzzer of {target} ended with {status}"))
        }
    }

    /// Keeps inputs that reach the same code as the corpus and the kept ones; only the smallest, if
    /// they exceed [`KEPT_BYTES`].
    fn keep(&self, target: &str) -> Result<(), String> {
        let (kept, merged) = (self.kept(target), self.root.join("fuzz/merged").join(target));
        let _ = std::fs::remove_dir_all(&merged);
        make(&merged)?;
        make(&kept)?;
        let mut merge = self.fuzzer(target);
        succeed(merge.args(KEEPING).arg(&merged).arg(&kept).arg(self.corpus(target)))?;
        let mut files = sizes(&merged)?;
        files.sort();
        let mut left = KEPT_BYTES;
        let before = sizes(&kept)?;
        for (_, path) in before {
            std::fs::remove_file(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        let mut count = 0;
        for (bytes, path) in files {
            let Some(rest) = left.checked_sub(bytes) else { break };
            (left, count) = (rest, count + 1);
            let to = kept.join(path.file_name().unwrap_or_default());
            std::fs::copy(&path, &to).map_err(|error| format!("{}: {error}", to.display()))?;
        }
        eprintln!("{}: {count} inputs of {} bytes", kept.display(), KEPT_BYTES - left);
        Ok(())
    }
}

/// Lengths and paths of the files in a directory.
fn sizes(directory: &Path) -> Result<Vec<(u64, PathBuf)>, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", directory.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        files.push((entry.metadata().map_err(failed)?.len(), entry.path()));
    }
    Ok(files)
}

fn make(directory: &Path) -> Result<(), String> {
    std::fs::create_dir_all(directory).map_err(|error| format!("{}: {error}", directory.display()))
}

/// Adds to the counts for `cargo xtask reliability`.
fn count(target: &str, executions: u64) -> Result<(), String> {
    let Some(directory) = std::env::var_os("SHAMBA_TALLIES") else { return Ok(()) };
    make(Path::new(&directory))?;
    let path = Path::new(&directory).join(SUITE);
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let known = text.lines().filter_map(|line| line.split_once('\t'));
    let mut counts: BTreeMap<String, u64> =
        known.filter_map(|(count, name)| Some((name.to_owned(), count.parse().ok()?))).collect();
    *counts.entry(format!("executions, {target}")).or_default() += executions;
    let lines: String = counts.iter().map(|(name, count)| format!("{count}\t{name}\n")).collect();
    std::fs::write(&path, lines).map_err(|error| format!("{}: {error}", path.display()))
}

fn succeed(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|error| format!("cargo did not start: {error}"))?;
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
