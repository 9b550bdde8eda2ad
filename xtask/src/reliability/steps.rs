//! The commands that write the counts, and their results.
//!
//! The suites of a step write their counts to a folder, one file per suite, one line per count.
//! When the step ends, its counts and its result become one file, `STEP.tsv`: a line of the
//! command, the commit, the seconds and the result, then a line per count. A table can therefore
//! combine runs of several days, and the counts of a short run of a suite do not replace those of
//! the long one. A step without counts has failed, whatever its exit status: for example, the
//! filter no longer matches a renamed test.
//!
//! Not here: the counts themselves ([`super::rows`]).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use super::{OfSteps, Tallies};
use crate::copy::output_of;
use crate::tidy;

/// A command that writes counts.
pub struct Step {
    pub name: &'static str,
    words: &'static [&'static str],
    variables: &'static [(&'static str, &'static str)],
    pub is_of_ci: bool,
}

const fn on_demand(name: &'static str, words: &'static [&'static str]) -> Step {
    Step { name, words, variables: &[], is_of_ci: false }
}

pub const STEPS: &[Step] = &[
    Step { name: "suites", words: &["test", "--package", "shamba-tests"], variables: &[], is_of_ci: true },
    Step {
        name: "schedules",
        words: &["test", "--package", "shamba-loom", "--package", "shamba-schedules"],
        variables: &[],
        is_of_ci: true,
    },
    Step {
        name: "sweep",
        words: &["test", "--package", "shamba-tests", "--test", "suites", "sweep::"],
        variables: &[("SHAMBA_SWEEP", "1")],
        is_of_ci: false,
    },
    Step {
        name: "metamorphic",
        words: &["test", "--package", "shamba-tests", "--test", "suites", "metamorphic::"],
        variables: &[("SHAMBA_METAMORPHIC_OPS", "5000")],
        is_of_ci: false,
    },
    Step {
        name: "crash-deep",
        words: &["test", "--package", "shamba-tests", "--test", "suites", "crash::every_crash"],
        variables: &[("SHAMBA_CRASH_LENGTH", "3"), ("SHAMBA_CRASH_DEPTH", "3")],
        is_of_ci: false,
    },
    Step {
        name: "pairs",
        words: &["test", "--package", "shamba-tests", "--test", "suites", "pairs_of_faults"],
        variables: &[("SHAMBA_FAULT_PAIRS", "300000")],
        is_of_ci: false,
    },
    Step {
        name: "storms",
        words: &["test", "--package", "shamba-tests", "--test", "suites", "storms_of_faults"],
        variables: &[("SHAMBA_STORMS", "200000")],
        is_of_ci: false,
    },
    Step {
        name: "membership",
        words: &["test", "--package", "shamba-tests", "--test", "suites", "membership::"],
        variables: &[("SHAMBA_MEMBERSHIP_CHECKS", "100000000")],
        is_of_ci: false,
    },
    Step {
        name: "seeds",
        words: &["test", "--package", "shamba-tests", "--test", "suites", "equal_seeds"],
        variables: &[("SHAMBA_EQUAL_SEEDS", "1000")],
        is_of_ci: false,
    },
    Step {
        name: "schedules-10000",
        words: &["test", "--package", "shamba-schedules"],
        variables: &[("SHAMBA_SCHEDULES", "10000")],
        is_of_ci: false,
    },
    on_demand("differential", &["xtask", "peers", "differential"]),
    on_demand("kill", &["xtask", "kill"]),
    on_demand("syscalls", &["xtask", "syscalls"]),
    on_demand("scarce", &["xtask", "scarce"]),
    on_demand("overload", &["run", "--release", "-q", "-p", "shamba-lab", "--", "check", "overload"]),
    on_demand("reopen", &["run", "--release", "-q", "-p", "shamba-lab", "--", "check", "reopen"]),
    on_demand("soak", &["xtask", "soak", "--seconds", "3600"]),
    on_demand("steady", &["xtask", "steady", "--seconds", "3600"]),
    on_demand("planted", &["xtask", "planted"]),
    on_demand("fuzz", &["xtask", "fuzz", "all", "--seconds", "30"]),
];

pub fn step(name: &str) -> Result<&'static Step, String> {
    STEPS.iter().find(|step| step.name == name).ok_or_else(|| {
        let known: Vec<&str> = STEPS.iter().map(|step| step.name).collect();
        format!("there is no step {name:?}: {}", known.join(", "))
    })
}

/// Result of a step, as stored with the counts.
pub struct Ended {
    pub name: String,
    pub command: String,
    /// The commit it ran on, because a page may combine runs of several days.
    pub build: String,
    pub seconds: u64,
    pub how: String,
}

impl Ended {
    pub fn is_well(&self) -> bool {
        self.how == WELL
    }
}

/// Result of a step without violations that wrote counts.
const WELL: &str = "well";

/// Path of a step's file.
pub fn file_of(directory: &Path, step: &str) -> PathBuf {
    directory.join(format!("{step}.tsv"))
}

impl Step {
    pub fn command(&self) -> String {
        let variables = self.variables.iter().map(|(name, value)| format!("{name}={value} "));
        format!("{}cargo {}", variables.collect::<String>(), self.words.join(" "))
    }

    /// Runs the step, and leaves its file in `directory`; its suites write to a folder in `counts`.
    pub fn run(&self, directory: &Path, counts: &Path) -> Result<(), String> {
        let begun = Instant::now();
        let counts = &counts.join(self.name);
        let _ = std::fs::remove_dir_all(counts);
        std::fs::create_dir_all(counts).map_err(|error| format!("{}: {error}", counts.display()))?;
        let build = commit();
        let path = file_of(directory, self.name);
        let keep = |how: &str, lines: &str| {
            let first = format!("{}\t{build}\t{}\t{how}\n", self.command(), begun.elapsed().as_secs());
            std::fs::write(&path, first + lines).map_err(|error| format!("{}: {error}", path.display()))
        };
        // Recorded as not ended until it ends; if it is killed, this remains.
        keep("begun", "")?;
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
        let mut command = Command::new(cargo);
        command.args(self.words).envs(self.variables.iter().copied()).env("SHAMBA_TALLIES", counts);
        let status = command.current_dir(tidy::root()).status();
        let status = status.map_err(|error| format!("cargo did not start: {error}"))?;
        let lines = read_counts(counts)?;
        let how = match (status.success(), lines.is_empty()) {
            (true, false) => WELL,
            (true, true) => "without a count",
            (false, _) => "not well",
        };
        keep(how, &lines)
    }
}

/// The counts in a folder, one file per suite, as the lines of a step's file.
fn read_counts(folder: &Path) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    let mut suites: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        suites.push(entry.map_err(failed)?.path());
    }
    suites.sort();
    let mut lines = String::new();
    for path in suites {
        let suite = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for line in std::fs::read_to_string(&path).map_err(failed)?.lines() {
            let (count, name) =
                line.split_once('\t').ok_or_else(|| format!("{}: {line:?}", path.display()))?;
            lines += &format!("{count}\t{suite}\t{name}\n");
        }
    }
    Ok(lines)
}

/// The commit of the sources, with a `+` if any of them was changed since; a dash without `git`.
///
/// Published results are no sources: a step writes there.
fn commit() -> String {
    let git = |arguments: &[&str]| output_of(Command::new("git").args(arguments).current_dir(tidy::root()));
    let Ok(head) = git(&["rev-parse", "--short=8", "HEAD"]) else { return "-".to_owned() };
    let changed = git(&["status", "--porcelain", "--", ":!docs/results"]);
    let is_changed = changed.map_or(true, |files| !files.is_empty());
    format!("{}{}", head.trim(), if is_changed { "+" } else { "" })
}

/// Counts and results of the steps with a file in `directory`, in the order of [`STEPS`].
pub fn read_steps(directory: &Path) -> Result<(OfSteps, Vec<Ended>), String> {
    let (mut of_steps, mut ended) = (OfSteps::new(), Vec::new());
    for step in STEPS {
        let path = file_of(directory, step.name);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(format!("{}: {error}", path.display())),
        };
        let unclear = |line: &str| format!("{}: {line:?}", path.display());
        let mut lines = text.lines();
        let first = lines.next().unwrap_or_default();
        let [command, build, seconds, how] = first.split('\t').collect::<Vec<_>>()[..] else {
            return Err(unclear(first));
        };
        ended.push(Ended {
            name: step.name.to_owned(),
            command: command.to_owned(),
            build: build.to_owned(),
            seconds: seconds.parse().map_err(|_| unclear(first))?,
            how: how.to_owned(),
        });
        let mut tallies = Tallies::new();
        for line in lines {
            let [count, suite, name] = line.splitn(3, '\t').collect::<Vec<_>>()[..] else {
                return Err(unclear(line));
            };
            let count = count.parse().map_err(|_| unclear(line))?;
            tallies.entry(suite.to_owned()).or_default().insert(name.to_owned(), count);
        }
        of_steps.insert(step.name.to_owned(), tallies);
    }
    Ok((of_steps, ended))
}
