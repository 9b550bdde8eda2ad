//! Builds the binary of a killer in the copy, and runs its one test.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::patch::Killer;
use crate::copy::Copy;

/// The result of a test.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It passed.
    Passed,
    /// It failed; with the first line of its failure message.
    Failed(String),
    /// It was still running at its limit.
    TimedOut,
    /// Any other result: it does not compile, there is no such test, a signal.
    Broken(String),
}

/// Runs a killer against the copy as it is now; returns the result and the run time without
/// compilation.
pub fn run(copy: &Copy, killer: &Killer, limit: Duration) -> Result<(Verdict, Duration), String> {
    let Some((executable, package)) = build(copy, killer)? else {
        return Ok((Verdict::Broken("it does not compile".to_owned()), Duration::ZERO));
    };
    let failed = |error: std::io::Error| format!("{}: {error}", executable.display());
    // Into a file: no reader is needed while the test runs.
    let path = copy.target().join("said");
    let said = File::create(&path).map_err(failed)?;
    let mut command = Command::new(&executable);
    command.args([killer.test.as_str(), "--exact", "--nocapture"]).current_dir(package);
    // The tallies of a partial run must not count as those of the suite.
    command.env("SHAMBA_BRIEF", "1").env_remove("SHAMBA_TALLIES");
    command.stdin(Stdio::null()).stdout(said.try_clone().map_err(failed)?).stderr(said);
    let begin = Instant::now();
    let mut child = command.spawn().map_err(failed)?;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            break status;
        }
        if begin.elapsed() > limit {
            child.kill().map_err(failed)?;
            child.wait().map_err(failed)?;
            return Ok((Verdict::TimedOut, begin.elapsed()));
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let took = begin.elapsed();
    let said = fs::read(&path).map_err(failed)?;
    Ok((verdict(status.code(), &String::from_utf8_lossy(&said)), took))
}

/// Builds the killer's binary; returns it and the folder of its package, where cargo would run it.
/// `None` if the sources do not compile.
fn build(copy: &Copy, killer: &Killer) -> Result<Option<(PathBuf, PathBuf)>, String> {
    let mut command = copy.cargo();
    // Incremental: after a patch little compiles again.
    command
        .args(["test", "--profile", "quick", "--no-run", "--message-format=json-render-diagnostics"])
        .args(killer.target());
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("cargo did not start: {error}"))?;
    if !output.status.success() {
        return Ok(None);
    }
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Ok(message) = serde_json::from_str::<serde_json::Value>(line) else { continue };
        if let (Some(name), Some(executable), Some(true), Some(manifest)) = (
            message["target"]["name"].as_str(),
            message["executable"].as_str(),
            message["profile"]["test"].as_bool(),
            message["manifest_path"].as_str(),
        ) && name == killer.binary
        {
            let package = PathBuf::from(manifest).parent().map(PathBuf::from).unwrap_or_default();
            return Ok(Some((PathBuf::from(executable), package)));
        }
    }
    Err(format!("cargo built no test binary {}", killer.binary))
}

/// Interprets the harness's exit status and output.
fn verdict(code: Option<i32>, said: &str) -> Verdict {
    let has_one = said.contains("running 1 test");
    match code {
        _ if !has_one => Verdict::Broken("there is no such test".to_owned()),
        Some(0) => Verdict::Passed,
        // The harness's status for "a test failed"; a signal, an abort or an exit have another.
        Some(101) if said.contains("test result: FAILED. 0 passed; 1 failed") => {
            Verdict::Failed(reason(said))
        }
        code => Verdict::Broken(format!("it ended with status {code:?}")),
    }
}

/// The first line of the last panic, which is the test's own, or of the error that it returned.
fn reason(said: &str) -> String {
    let panicked =
        said.rfind("panicked at ").and_then(|at| said.get(at..)).and_then(|rest| rest.split_once('\n'));
    let line = match panicked {
        Some((_, message)) => message.lines().find(|line| !line.trim().is_empty()),
        None => said.lines().find(|line| line.starts_with("Error: ")),
    };
    line.unwrap_or("it said nothing").trim().chars().take(160).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_failed_check_counts() {
        let said = "running 1 test\nthread 'a' panicked at x.rs:1:2:\ncaught\nthread 'b' panicked at y.rs:3:4:\nthe \
                    check\nnote: run with\ntest result: FAILED. 0 passed; 1 failed; 0 ignored";
        assert_eq!(verdict(Some(101), said), Verdict::Failed("the check".to_owned()));
        assert_eq!(verdict(Some(0), "running 1 test\n"), Verdict::Passed);
        for (code, said) in
            [(Some(0), "running 0 tests"), (None, said), (Some(134), said), (Some(101), "running 1 test")]
        {
            assert!(matches!(verdict(code, said), Verdict::Broken(_)), "{code:?}");
        }
        let returned = "running 1 test\nError: Error { kind: Io }\ntest result: FAILED. 0 passed; 1 failed;";
        assert_eq!(verdict(Some(101), returned), Verdict::Failed("Error: Error { kind: Io }".to_owned()));
    }
}
