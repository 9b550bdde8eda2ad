//! Runs tests, each in a process of its own: without a mutant, to learn how long it takes and which
//! functions it reaches, and with one, to see whether it notices it.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::build::Executable;

/// A test that takes longer than this without a mutant is not asked.
const UNCHANGED_LIMIT: Duration = Duration::from_secs(40);
/// Limit with a mutant, as a multiple of the time without, and beyond that.
const LIMIT_FACTOR: u32 = 6;
const LIMIT_EXTRA: Duration = Duration::from_secs(4);
/// Address space of a test, in KiB: a mutant that allocates for ever ends there.
const ADDRESS_SPACE_KIB: u64 = 8 << 20;
/// Maximum length of a file, in blocks of the shell (512 or 1,024 bytes).
const FILE_BLOCKS: u64 = 8 << 20;
/// Exit status of a shell that could not start the test.
const NOT_STARTED: [i32; 2] = [126, 127];

/// A test, as it is without a mutant.
#[derive(Clone, Debug)]
pub struct Test {
    pub executable: Executable,
    pub name: String,
    pub took: Duration,
    /// The woven functions that it reaches.
    pub reaches: BTreeSet<usize>,
}

/// How a test ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    Passed,
    Failed,
    TimedOut,
}

/// The tests of an executable, as its harness lists them.
pub fn tests_of(executable: &Executable) -> Result<Vec<String>, String> {
    let mut command = Command::new(&executable.path);
    command.args(["--list", "--format", "terse"]).current_dir(&executable.folder).stderr(Stdio::null());
    let output = command.output().map_err(|error| format!("{}: {error}", executable.path.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}

/// Runs a test without a mutant. `None` if it fails or takes too long.
pub fn unchanged(executable: &Executable, name: &str, folder: &Path) -> Result<Option<Test>, String> {
    let reached = folder.join("reached");
    let _ = fs::remove_file(&reached);
    let begin = Instant::now();
    let environment = [("SHAMBA_MUTANTS_REACHED", reached.to_string_lossy().into_owned())];
    match run(executable, name, folder, &environment, UNCHANGED_LIMIT)? {
        End::Passed => {}
        // Once more: the machine may have been busy with other work.
        End::Failed if run(executable, name, folder, &environment, UNCHANGED_LIMIT)? == End::Passed => {}
        _ => return Ok(None),
    }
    let took = begin.elapsed();
    let numbers = fs::read_to_string(&reached).unwrap_or_default();
    let reaches = numbers.lines().filter_map(|line| line.parse().ok()).collect();
    Ok(Some(Test { executable: executable.clone(), name: name.to_owned(), took, reaches }))
}

/// Runs a test with a mutant. A failure counts if the test passes without the mutant directly
/// afterwards, and fails with it again.
pub fn with_mutant(test: &Test, mutant: usize, folder: &Path) -> Result<End, String> {
    let limit = test.took * LIMIT_FACTOR + LIMIT_EXTRA;
    let environment = [("SHAMBA_MUTANT", mutant.to_string())];
    let with = || run(&test.executable, &test.name, folder, &environment, limit);
    let first = with()?;
    if first == End::Passed {
        return Ok(End::Passed);
    }
    if run(&test.executable, &test.name, folder, &[], limit)? != End::Passed {
        eprintln!("it also fails without a mutant: {} {}", test.executable.name, test.name);
        return Ok(End::Passed);
    }
    with()
}

/// Runs one test with `folder` for its temporary files, which are removed.
fn run(
    executable: &Executable,
    name: &str,
    folder: &Path,
    environment: &[(&str, String)],
    limit: Duration,
) -> Result<End, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", executable.path.display());
    let temporary: PathBuf = folder.join("tmp");
    let _ = fs::remove_dir_all(&temporary);
    fs::create_dir_all(&temporary).map_err(failed)?;
    let said = File::create(folder.join("said")).map_err(failed)?;
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -v {ADDRESS_SPACE_KIB} -f {FILE_BLOCKS}; exec \"$@\""), "sh"]);
    command.arg(&executable.path).args(["--exact", name]).current_dir(&executable.folder);
    command.env("CARGO_MANIFEST_DIR", &executable.folder).env("SHAMBA_BRIEF", "1").env("TMPDIR", &temporary);
    command.env_remove("SHAMBA_TALLIES").envs(environment.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::null()).stdout(said.try_clone().map_err(failed)?).stderr(said);
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let begin = Instant::now();
    let mut child = command.spawn().map_err(failed)?;
    loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            if let Some(code) = status.code().filter(|code| NOT_STARTED.contains(code)) {
                return Err(format!("{} was not started: status {code}", executable.path.display()));
            }
            return Ok(if status.success() { End::Passed } else { End::Failed });
        }
        if begin.elapsed() > limit {
            // With the processes that the test has started.
            let group = format!("-{}", child.id());
            let _ = Command::new("kill").args(["-9", "--", &group]).stderr(Stdio::null()).status();
            child.wait().map_err(failed)?;
            return Ok(End::TimedOut);
        }
        std::thread::sleep(Duration::from_millis(if begin.elapsed().as_millis() < 50 { 1 } else { 10 }));
    }
}
