//! `check`: the engine's own experiments, each in a process of its own, because resident bytes are
//! checked. Each prints JSON lines and fails on a violation. `cargo xtask` starts some of them.

use std::path::PathBuf;
use std::process::Command;

use clap::Args;
use shamba_lab::checks::situations::Situation;
use shamba_lab::checks::{curves, model_check, monkey, overload, reopen, situations, tuning};

use super::{Failure, navigator};

const USAGE: &str = "\
Checks, and their options:
  overload [--budget BYTES] [--seconds N] [--items N] [--seed N] [--dir PATH]
        writers, scans, readers and 1,000 iterators under 16, 64 and 512 MiB, or one budget
  reopen [--bytes N] [--seed N] [--dir PATH]
        a database of 1 GiB, killed with logs from 0 to 256 MiB, and opened again
  situation [NAME] [--scale X] [--dir PATH]
        the ledger compared with resident memory: entries, tables, keys, iterators
  memory-curves [--scale quick|default|full] [--entry BYTES] [--entries N] [--size-ratio T] [--workload NAME] [--empty SHARE]
        [--configurations NAME,NAME...] [--budgets MIB,MIB...] [--warm SECONDS] [--seed N] [--dir PATH]
        reads per lookup over memory, for the baseline and for each idea that saves memory
  model-check [--quick] [--seed N] [--dir PATH]
        the cost model compared with the engine and its simulator, design by design
  monkey [--layered] [--entries N] [--bits LIST] [--lookups N] [--device-lookups N] [--seed N] [--dir PATH]
        false positives of trees with uniform bits and with Monkey's, compared with those expected of their tables
  navigator [--scale quick|default|full] [--entries N] [--mixes WORD] [--designs NAME,NAME...] [--jobs N] [--grown SHARE]
        [--warm SECONDS] [--seconds S] [--seconds-most S] [--figure FILE] [--list] [--seed N] [--dir PATH]
        the navigator's choice against other systems' designs, with the same memory, on an emulated device
  tune-check [--quick] [--entries N] [--budget BYTES] [--phase SECONDS] [--static SECONDS] [--read-us X] [--seed N] [--dir PATH]
        a workload in four phases on a database that tunes itself, compared with static designs";

/// The budgets of `overload` unless one is given.
const BUDGETS_BYTES: [u64; 3] = [16 << 20, 64 << 20, 512 << 20];
/// The situations unless one is named.
const SITUATIONS: [&str; 4] = ["entries", "tables", "keys", "iterators"];
/// Parts of checks that run in processes of their own.
const PARTS: [&str; 2] = ["navigator-grow", "navigator-point"];

/// Arguments of `check`.
#[derive(Args)]
#[command(after_help = USAGE)]
pub struct CheckArgs {
    /// The name of a check and its options
    #[arg(value_name = "NAME", required = true, num_args = 1.., trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// Runs a check.
pub fn run(args: &CheckArgs) -> Result<(), Failure> {
    let words = &args.words;
    check_options(words).map_err(Failure::Usage)?;
    check(words).map_err(Failure::Check)
}

/// Refuses unknown checks, options that a check does not have or that lack their value, and stray
/// words.
fn check_options(words: &[String]) -> Result<(), String> {
    let name = words.first().map_or("", String::as_str);
    if PARTS.contains(&name) {
        return Ok(());
    }
    // Lines that describe a check begin with two spaces and its name.
    let lines = USAGE
        .lines()
        .skip_while(|line| line.strip_prefix("  ").is_none_or(|line| line.split(' ').next() != Some(name)));
    let mut lines = lines.peekable();
    let Some(first) = lines.next() else { return Err(format!("unknown check {name:?}\n{USAGE}")) };
    let more = lines.take_while(|line| line.starts_with("        "));
    // Each in brackets: an option, perhaps with the name of its value, or the name of a word.
    let known: Vec<&str> =
        std::iter::once(first).chain(more).flat_map(|line| line.split(['[', ']'])).collect();
    let mut given = words.iter().skip(1).map(String::as_str).peekable();
    if known.contains(&"NAME") {
        given.next_if(|word| !word.starts_with("--"));
    }
    while let Some(word) = given.next() {
        if !word.starts_with("--") {
            return Err(format!("check {name} does not take {word:?}\n{USAGE}"));
        }
        let values = known.iter().filter_map(|option| option.strip_prefix(word));
        match values.into_iter().find(|value| value.is_empty() || value.starts_with(' ')) {
            Some("") => {}
            Some(_) => {
                let value = given.next_if(|value| !value.starts_with("--"));
                value.ok_or_else(|| format!("{word}: its value is missing\n{USAGE}"))?;
            }
            None => return Err(format!("check {name} has no option {word}\n{USAGE}")),
        }
    }
    Ok(())
}

/// Runs a check in a separate process for each of the additional arguments, and returns all
/// failures.
fn in_processes(words: &[String], more: &[Vec<String>]) -> Result<(), String> {
    let binary = std::env::current_exe().map_err(|error| error.to_string())?;
    let run = |more: &Vec<String>| -> Result<(), String> {
        let status =
            Command::new(&binary).arg("check").args(&words[..1]).args(more).args(&words[1..]).status();
        let status = status.map_err(|error| format!("{}: {error}", binary.display()))?;
        if status.success() { Ok(()) } else { Err(format!("{} {} failed", words[0], more.join(" "))) }
    };
    let failures: Vec<String> = more.iter().filter_map(|more| run(more).err()).collect();
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

fn check(words: &[String]) -> Result<(), String> {
    match words.first().map(String::as_str) {
        Some("situation") => situation(words),
        Some("memory-curves") => memory_curves(&words[1..]),
        Some("model-check") => model_check(&words[1..]),
        Some("monkey") => monkey(&words[1..]),
        Some("navigator") => navigator::compare(&words[1..]),
        Some("navigator-grow") => navigator::grow(&words[1..]),
        Some("navigator-point") => navigator::point(&words[1..]),
        Some("overload") => overload(words),
        Some("reopen") => reopen(&words[1..]),
        Some("tune-check") => tune_check(&words[1..]),
        _ => Err(USAGE.to_owned()),
    }
}

/// The value after `name`, if there is one.
pub(super) fn option<'w>(words: &'w [String], name: &str) -> Option<&'w str> {
    let at = words.iter().position(|word| word == name)?;
    words.get(at + 1).map(String::as_str)
}

pub(super) fn parsed<T: std::str::FromStr>(words: &[String], name: &str, usual: T) -> Result<T, String> {
    let parse = |text: &str| text.parse().map_err(|_| format!("{name}: invalid value {text:?}"));
    option(words, name).map_or(Ok(usual), parse)
}

/// Numbers with commas between them.
fn list<T: std::str::FromStr + Copy>(words: &[String], name: &str, usual: &[T]) -> Result<Vec<T>, String> {
    let Some(text) = option(words, name) else { return Ok(usual.to_vec()) };
    let parse = |word: &str| word.parse().map_err(|_| format!("{name}: invalid value {text:?}"));
    text.split(',').map(parse).collect()
}

/// A directory that is removed when the value is dropped.
pub(super) fn scratch(words: &[String]) -> Result<tempfile::TempDir, String> {
    let above = option(words, "--dir").map_or_else(std::env::temp_dir, PathBuf::from);
    tempfile::tempdir_in(&above).map_err(|error| format!("{}: {error}", above.display()))
}

fn overload(words: &[String]) -> Result<(), String> {
    if option(words, "--budget").is_none() {
        let of = |budget: u64| vec!["--budget".to_owned(), budget.to_string()];
        return in_processes(words, &BUDGETS_BYTES.map(of));
    }
    let dir = scratch(words)?;
    let outcome = overload::run(overload::Options {
        dir: dir.path().join("db"),
        budget_bytes: parsed(words, "--budget", 16 << 20)?,
        seconds: parsed(words, "--seconds", 60)?,
        items: parsed(words, "--items", 200_000)?,
        seed: parsed(words, "--seed", 1)?,
        judges_times: true,
    })?;
    println!("{}", outcome.to_json());
    let budget = outcome.options.budget_bytes >> 20;
    keep(
        &format!("overload-{budget}MiB"),
        &[
            ("max KiB resident beyond the budget", outcome.rss_beyond_bytes() >> 10),
            ("seconds", outcome.options.seconds),
        ],
    )?;
    if outcome.violations.is_empty() { Ok(()) } else { Err(outcome.violations.join("\n")) }
}

fn reopen(words: &[String]) -> Result<(), String> {
    let dir = scratch(words)?;
    let outcome = reopen::run(reopen::Options {
        dir: dir.path().join("db"),
        bytes: parsed(words, "--bytes", 1 << 30)?,
        seed: parsed(words, "--seed", 1)?,
    })?;
    println!("{}", outcome.to_json());
    keep(
        "reopen",
        &[
            ("max ms with 64 MiB of log", outcome.open_ms()),
            ("max ms of each further 64 MiB of log", outcome.more_ms()),
        ],
    )?;
    let violations = outcome.violations();
    if violations.is_empty() { Ok(()) } else { Err(violations.join("\n")) }
}

/// Writes counts for `cargo xtask reliability`, if it requests them: a file of lines, each with a
/// count, a tab and its name.
fn keep(name: &str, counts: &[(&str, u64)]) -> Result<(), String> {
    let Some(directory) = std::env::var_os("SHAMBA_TALLIES").map(PathBuf::from) else { return Ok(()) };
    let lines: String = counts.iter().map(|(name, count)| format!("{count}\t{name}\n")).collect();
    let path = directory.join(name);
    let written = std::fs::create_dir_all(&directory).and_then(|()| std::fs::write(&path, lines));
    written.map_err(|error| format!("{}: {error}", path.display()))
}

fn tune_check(words: &[String]) -> Result<(), String> {
    let dir = scratch(words)?;
    let is_quick = words.iter().any(|word| word == "--quick");
    let usual = |quick, full| if is_quick { quick } else { full };
    let options = tuning::Options {
        dir: dir.path().to_path_buf(),
        entries: parsed(words, "--entries", usual(400_000, 1_500_000))?,
        budget_bytes: parsed(words, "--budget", usual(16 << 20, 32 << 20))?,
        phase_seconds: parsed(words, "--phase", usual(40, 120))?,
        static_seconds: parsed(words, "--static", usual(8, 30))?,
        device_read_us: parsed(words, "--read-us", 0.0)?,
        seed: parsed(words, "--seed", 1)?,
    };
    let outcome = tuning::run(&options, &mut |line| eprintln!("{line}"))?;
    println!("{}", outcome.to_json());
    if outcome.violations.is_empty() { Ok(()) } else { Err(outcome.violations.join("\n")) }
}

fn memory_curves(words: &[String]) -> Result<(), String> {
    let dir = scratch(words)?;
    let given = |name| option(words, name).map(|_| parsed(words, name, 0)).transpose();
    let options = curves::Options {
        dir: dir.path().to_path_buf(),
        scale: parsed(words, "--scale", curves::Scale::Default)?,
        entry_bytes: given("--entry")?,
        entries: given("--entries")?,
        size_ratio: option(words, "--size-ratio").map(|_| parsed(words, "--size-ratio", 0)).transpose()?,
        workload: option(words, "--workload").map(str::to_owned),
        empty_fraction: option(words, "--empty").map(|_| parsed(words, "--empty", 0.0)).transpose()?,
        configurations: option(words, "--configurations")
            .map_or_else(Vec::new, |names| names.split(',').map(str::to_owned).collect()),
        budgets_mib: list(words, "--budgets", &[])?,
        warm_seconds: parsed(words, "--warm", 8.0)?,
        seed: parsed(words, "--seed", 1)?,
    };
    curves::run(&options, &mut |line| println!("{line}"))
}

fn model_check(words: &[String]) -> Result<(), String> {
    let dir = scratch(words)?;
    let options = model_check::Options {
        dir: dir.path().to_path_buf(),
        quick: words.iter().any(|word| word == "--quick"),
        seed: parsed(words, "--seed", 1)?,
    };
    model_check::run(&options, &mut |line| println!("{line}"), &mut |row| eprintln!("{row}"))
}

fn monkey(words: &[String]) -> Result<(), String> {
    let dir = scratch(words)?;
    let options = monkey::Options {
        dir: dir.path().to_path_buf(),
        entries: parsed(words, "--entries", 1 << 20)?,
        layered: words.iter().any(|word| word == "--layered"),
        bits_per_key: list(words, "--bits", &[2.0, 5.0, 8.0, 10.0])?,
        lookups_max: parsed(words, "--lookups", 2_000_000)?,
        device_lookups: parsed(words, "--device-lookups", 5_000)?,
        seed: parsed(words, "--seed", 1)?,
    };
    monkey::run(&options, &mut |line| println!("{line}"))
}

fn situation(words: &[String]) -> Result<(), String> {
    let Some(name) = words.get(1).filter(|word| !word.starts_with("--")) else {
        return in_processes(words, &SITUATIONS.map(|name| vec![name.to_owned()]));
    };
    let name: Situation = name.parse()?;
    let dir = scratch(words)?;
    let taken = situations::run(name, &dir.path().join("db"), parsed(words, "--scale", 1.0)?);
    println!("{}", taken?.to_json());
    Ok(())
}
