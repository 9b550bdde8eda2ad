//! The commands that leave the counts, and how they ended.
//!
//! How each ended is kept beside the counts, so that a table can be made of runs of several days.
//!
//! Not here: what they leave ([`super::rows`]).

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use crate::tidy;

/// A command that leaves counts.
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
    on_demand("overload", &["xtask", "overload"]),
    on_demand("reopen", &["xtask", "reopen"]),
    on_demand("soak", &["xtask", "soak", "--seconds", "600"]),
    on_demand("planted", &["xtask", "planted"]),
    on_demand("fuzz", &["xtask", "fuzz", "all", "--seconds", "30"]),
];

pub fn step(name: &str) -> Result<&'static Step, String> {
    STEPS.iter().find(|step| step.name == name).ok_or_else(|| {
        let known: Vec<&str> = STEPS.iter().map(|step| step.name).collect();
        format!("there is no step {name:?}: {}", known.join(", "))
    })
}

/// How a step ended, as it is kept beside the counts.
pub struct Ended {
    pub name: String,
    pub command: String,
    pub seconds: u64,
    pub is_well: bool,
}

/// The folder of [`Ended`] steps, beside the counts.
pub const STEPS_FOLDER: &str = "steps";

impl Step {
    pub fn command(&self) -> String {
        let variables = self.variables.iter().map(|(name, value)| format!("{name}={value} "));
        format!("{}cargo {}", variables.collect::<String>(), self.words.join(" "))
    }

    /// Runs it, and notes how it ended.
    pub fn run(&self, tallies: &Path) -> Result<(), String> {
        let begun = Instant::now();
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
        let mut command = Command::new(cargo);
        command.args(self.words).envs(self.variables.iter().copied()).env("SHAMBA_TALLIES", tallies);
        let status = command.current_dir(tidy::root()).status();
        let status = status.map_err(|error| format!("cargo did not start: {error}"))?;
        let (seconds, how) = (begun.elapsed().as_secs(), if status.success() { "well" } else { "not well" });
        let folder = tallies.join(STEPS_FOLDER);
        let path = folder.join(self.name);
        let written = std::fs::create_dir_all(&folder)
            .and_then(|()| std::fs::write(&path, format!("{}\t{seconds}\t{how}\n", self.command())));
        written.map_err(|error| format!("{}: {error}", path.display()))
    }
}

/// The steps that left their counts in `directory`, in order.
pub fn read_steps(directory: &Path) -> Result<Vec<Ended>, String> {
    let mut ended = Vec::new();
    for step in STEPS {
        let path = directory.join(STEPS_FOLDER).join(step.name);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(format!("{}: {error}", path.display())),
        };
        let [command, seconds, how] = text.trim_end().split('\t').collect::<Vec<_>>()[..] else {
            return Err(format!("{}: {text:?}", path.display()));
        };
        ended.push(Ended {
            name: step.name.to_owned(),
            command: command.to_owned(),
            seconds: seconds.parse().map_err(|_| format!("{}: {text:?}", path.display()))?,
            is_well: how == "well",
        });
    }
    Ok(ended)
}
