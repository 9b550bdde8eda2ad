//! Resident memory compared with the budget under three allocators: builds `lab/allocators` for
//! each and runs it with a limit of the operating system.
//!
//! Each run is a process of its own, in a control group whose limit is the budget plus
//! [`BEYOND_BUDGET_MIB`], if the system has such groups and lets this user make one: the kernel
//! ends a process that needs more. Prints the rows of a table. Fails if a run was ended, or had
//! more than that resident at any time, with an allocator for which the bound is stated.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::tidy;

/// The bound of DURABILITY.md for resident memory beyond the budget.
const BEYOND_BUDGET_MIB: u64 = 64;

/// An allocator as the program is run with it.
struct Allocator {
    name: &'static str,
    /// Feature of `lab/allocators`; none for the system's.
    feature: Option<&'static str>,
    /// A variable of its environment.
    variable: Option<(&'static str, &'static str)>,
    /// Whether the bound is stated for it.
    is_bounded: bool,
}

const MIMALLOC: Allocator =
    Allocator { name: "mimalloc", feature: Some("mimalloc"), variable: None, is_bounded: false };
const ALLOCATORS: [Allocator; 4] = [
    Allocator { name: "system", feature: None, variable: None, is_bounded: true },
    Allocator { name: "jemalloc", feature: Some("jemalloc"), variable: None, is_bounded: true },
    // It asks for huge pages by default, and each touched byte then takes 2 MiB.
    Allocator {
        name: "mimalloc without huge pages",
        variable: Some(("MIMALLOC_ALLOW_THP", "0")),
        is_bounded: true,
        ..MIMALLOC
    },
    MIMALLOC,
];
const BUDGETS_MIB: [u64; 3] = [8, 64, 512];
const KEYS: [&str; 2] = ["small", "largest"];
const USAGE: &str = "usage: cargo xtask resident [--seconds N] [--only WORD]...";
const MIB: f64 = (1 << 20) as f64;

/// Builds, runs and judges all combinations, or those with each of the words of `--only`.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let (mut seconds, mut only) = ("5", Vec::new());
    let mut words = arguments.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match (word, words.next()) {
            ("--seconds", Some(value)) => seconds = value,
            ("--only", Some(value)) => only.push(value),
            _ => return Err(USAGE.to_owned()),
        }
    }
    let home = tidy::root().join("lab/allocators");
    let group = Group::make();
    if let Err(reason) = &group {
        eprintln!("without a limit of the operating system: {reason}");
    }
    println!(
        "| allocator | budget | keys | peak RSS | beyond the budget | ledger at that time | RSS at the end | peak of the ledger |"
    );
    println!("|---|---:|---|---:|---:|---:|---:|---:|");
    let (mut violations, mut runs) = (Vec::new(), 0);
    for allocator in ALLOCATORS {
        let is_chosen = |keys: &str, budget: u64| {
            only.iter().all(|word| [allocator.name, keys, &budget.to_string()].contains(word))
        };
        let combinations = KEYS.into_iter().flat_map(|keys| BUDGETS_MIB.map(|budget| (keys, budget)));
        let chosen: Vec<_> = combinations.filter(|(keys, budget)| is_chosen(keys, *budget)).collect();
        if chosen.is_empty() {
            continue;
        }
        let program = build(&home, allocator.feature)?;
        for (keys, budget_mib) in chosen {
            let name = format!("{}, {keys} keys, {budget_mib} MiB", allocator.name);
            let dir = home.join("target/database");
            let _ = fs::remove_dir_all(&dir);
            let mut command = match &group {
                Ok(group) if allocator.is_bounded => {
                    group.command(budget_mib + BEYOND_BUDGET_MIB, &program)?
                }
                _ => Command::new(&program),
            };
            command.envs(allocator.variable);
            command.args(["--budget", &budget_mib.to_string(), "--keys", keys, "--seconds", seconds]);
            command.arg("--dir").arg(&dir);
            let output = command.output().map_err(|error| format!("{}: {error}", program.display()))?;
            let _ = fs::remove_dir_all(&dir);
            runs += 1;
            let said = String::from_utf8_lossy(&output.stdout);
            let result = said.lines().find_map(|line| serde_json::from_str::<Value>(line).ok());
            let Some(result) = result.filter(|_| output.status.success()) else {
                let error = String::from_utf8_lossy(&output.stderr);
                violations.push(format!("{name}: {}: {}", output.status, error.trim()));
                continue;
            };
            eprintln!("{result}");
            let mib = |field: &str| result[field].as_f64().unwrap_or(f64::NAN) / MIB;
            let beyond_mib = mib("rss_bytes") - budget_mib as f64;
            println!(
                "| {} | {budget_mib} | {keys} | {:.1} | {beyond_mib:.1} | {:.1} | {:.1} | {:.1} |",
                allocator.name,
                mib("rss_bytes"),
                mib("ledger_at_rss_bytes"),
                mib("rss_end_bytes"),
                mib("ledger_bytes"),
            );
            if result["rss_bytes"].as_u64().is_none_or(|bytes| bytes == 0) {
                violations.push(format!("{name}: the system does not report resident memory"));
            }
            if allocator.is_bounded && beyond_mib > BEYOND_BUDGET_MIB as f64 {
                violations.push(format!("{name}: {beyond_mib:.1} MiB beyond the budget"));
            }
        }
    }
    if runs == 0 {
        return Err(format!("no run has {only:?}\n{USAGE}"));
    }
    if violations.is_empty() { Ok(()) } else { Err(violations.join("\n")) }
}

/// Builds the program with an allocator, in a target directory of its own.
fn build(home: &Path, feature: Option<&str>) -> Result<PathBuf, String> {
    let target = home.join("target").join(feature.unwrap_or("system"));
    let mut cargo = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()));
    cargo.args(["build", "--release", "--quiet", "--target-dir"]).arg(&target).current_dir(home);
    cargo.args(feature.map(|feature| format!("--features={feature}")));
    let status = cargo.status().map_err(|error| format!("cargo did not start: {error}"))?;
    if !status.success() {
        return Err(format!("lab/allocators was not built ({feature:?}): {status}"));
    }
    Ok(target.join("release/shamba-allocators"))
}

/// A control group of Linux for one process at a time.
struct Group {
    folder: PathBuf,
    /// The files of the limits of memory, and of swap or of both: of version 2 of control groups,
    /// or of version 1.
    limits: [&'static str; 2],
    /// Whether the second limit is one of both.
    counts_both: bool,
}

impl Group {
    fn make() -> Result<Self, String> {
        let counts_both = !Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
        let (root, limits) = if counts_both {
            ("/sys/fs/cgroup/memory", ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"])
        } else {
            ("/sys/fs/cgroup", ["memory.max", "memory.swap.max"])
        };
        let folder = Path::new(root).join(format!("shamba-resident-{}", std::process::id()));
        fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let group = Self { folder, limits, counts_both };
        if group.folder.join(limits[0]).exists() {
            Ok(group)
        } else {
            Err(format!("{} has no {}", group.folder.display(), limits[0]))
        }
    }

    /// A command that joins the group and becomes `program`.
    fn command(&self, limit_mib: u64, program: &Path) -> Result<Command, String> {
        // A limit of both must never be below that of memory alone.
        let [memory, swap] = self.limits.map(|name| self.folder.join(name));
        if self.counts_both && swap.exists() {
            let _ = fs::write(&swap, "-1");
        }
        let write = |file: &Path, bytes: u64| {
            fs::write(file, bytes.to_string()).map_err(|error| format!("{}: {error}", file.display()))
        };
        write(&memory, limit_mib << 20)?;
        // A kernel without swap accounting has no such file.
        if swap.exists() {
            write(&swap, if self.counts_both { limit_mib << 20 } else { 0 })?;
        }
        let mut command = Command::new("sh");
        command
            .args(["-c", "echo $$ > \"$0\" && exec \"$@\""])
            .arg(self.folder.join("cgroup.procs"))
            .arg(program);
        Ok(command)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.folder);
    }
}
