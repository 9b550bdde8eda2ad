//! The commands that write the counts, and their results.
//!
//! Each step writes its counts and its result to its own folder, which is emptied before it runs. A
//! table can therefore combine runs of several days, and the counts of a short run of a suite do
//! not replace those of the long one. A step without counts has failed, whatever its exit status:
//! for example, the filter no longer matches a renamed test.
//!
//! Not here: the counts themselves ([`super::rows`]).

use std::path::Path;
use std::process::Command;
use std::time::Instant;

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
        variables: &[("SHAMBA_FAULT_PAIRS", "240000")],
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

/// Name of the file with a step's result, in its folder.
pub const ENDED: &str = "ended";

impl Step {
    pub fn command(&self) -> String {
        let variables = self.variables.iter().map(|(name, value)| format!("{name}={value} "));
        format!("{}cargo {}", variables.collect::<String>(), self.words.join(" "))
    }

    /// Runs the step, and records its result.
    pub fn run(&self, tallies: &Path) -> Result<(), String> {
        let begun = Instant::now();
        let folder = tallies.join(self.name);
        let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
        emptied(&folder).map_err(failed)?;
        let build = commit();
        // Recorded as not ended until it ends; if it is killed, this remains.
        let keep = |how: &str| {
            let line = format!("{}\t{build}\t{}\t{how}\n", self.command(), begun.elapsed().as_secs());
            std::fs::write(folder.join(ENDED), line).map_err(failed)
        };
        keep("begun")?;
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
        let mut command = Command::new(cargo);
        command.args(self.words).envs(self.variables.iter().copied()).env("SHAMBA_TALLIES", &folder);
        let status = command.current_dir(tidy::root()).status();
        let status = status.map_err(|error| format!("cargo did not start: {error}"))?;
        let has_counts = std::fs::read_dir(&folder).map_err(failed)?.count() > 1;
        let how = match (status.success(), has_counts) {
            (true, true) => WELL,
            (true, false) => "without a count",
            (false, _) => "not well",
        };
        keep(how)
    }
}

/// The commit of the sources, with a `+` if they were changed since; a dash without `git`.
fn commit() -> String {
    let mut git = Command::new("git");
    let described = output_of(git.args(["describe", "--always", "--dirty=+"]).current_dir(tidy::root()));
    described.map_or_else(|_| "-".to_owned(), |commit| commit.trim().to_owned())
}

/// Creates the folder, or empties one that a step left; any other folder is an error.
fn emptied(folder: &Path) -> std::io::Result<()> {
    if !folder.exists() {
        return std::fs::create_dir_all(folder);
    }
    if !folder.join(ENDED).exists() {
        let what = "it is there and no step left it: name another directory with --from";
        return Err(std::io::Error::new(std::io::ErrorKind::AlreadyExists, what));
    }
    for entry in std::fs::read_dir(folder)? {
        std::fs::remove_file(entry?.path())?;
    }
    Ok(())
}

/// The steps with results in `directory`, in order.
pub fn read_steps(directory: &Path) -> Result<Vec<Ended>, String> {
    let mut ended = Vec::new();
    for step in STEPS {
        let path = directory.join(step.name).join(ENDED);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(format!("{}: {error}", path.display())),
        };
        let [command, build, seconds, how] = text.trim_end().split('\t').collect::<Vec<_>>()[..] else {
            return Err(format!("{}: {text:?}", path.display()));
        };
        ended.push(Ended {
            name: step.name.to_owned(),
            command: command.to_owned(),
            build: build.to_owned(),
            seconds: seconds.parse().map_err(|_| format!("{}: {text:?}", path.display()))?,
            how: how.to_owned(),
        });
    }
    Ok(ended)
}
