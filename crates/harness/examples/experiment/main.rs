//! Experiments with a process of their own; `cargo xtask` starts them. Each prints JSON lines and fails on a violation.

mod figure;
mod navigator;

use std::path::PathBuf;
use std::process::ExitCode;

use shamba_harness::curves;
use shamba_harness::model_check;
use shamba_harness::monkey;
use shamba_harness::overload;
use shamba_harness::reopen;
use shamba_harness::situations::{self, Situation};
use shamba_harness::tuning;

const USAGE: &str = "usage: experiment situation NAME [--scale X] [--dir PATH]
       experiment memory-curves [--scale quick|default|full] [--entry BYTES] [--entries N] [--size-ratio T]
                  [--workload NAME] [--empty SHARE] [--configurations NAME,NAME...] [--budgets MIB,MIB...] [--warm SECONDS] [--seed N] [--dir PATH]
       experiment monkey [--layered] [--entries N] [--bits LIST] [--lookups N] [--device-lookups N] [--seed N] [--dir PATH]
       experiment model-check [--quick] [--seed N] [--dir PATH]
       experiment navigator [--scale quick|default|full] [--entries N] [--mixes WORD] [--designs NAME,NAME...] [--jobs N] [--grown SHARE]
                  [--warm SECONDS] [--seconds S] [--seconds-most S] [--figure FILE] [--list] [--seed N] [--dir PATH]
       experiment tune-check [--quick] [--entries N] [--budget BYTES] [--phase SECONDS] [--static SECONDS] [--read-us X] [--seed N] [--dir PATH]
       experiment reopen [--bytes N] [--seed N] [--dir PATH]
       experiment overload --budget BYTES [--seconds N] [--items N] [--seed N] [--dir PATH]";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let outcome = check_options(&words).and_then(|()| run(&words));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

/// An option that no experiment of this name has would be passed over in silence.
fn check_options(words: &[String]) -> Result<(), String> {
    let Some(name) = words.first() else { return Ok(()) };
    let usage = USAGE.split("experiment ").find(|usage| usage.split_whitespace().next() == Some(name));
    let Some(usage) = usage else { return Ok(()) };
    let known: Vec<&str> = usage.split([' ', '[', ']', '\n']).filter(|word| word.starts_with("--")).collect();
    let unknown = words.iter().find(|word| word.starts_with("--") && !known.contains(&word.as_str()));
    unknown.map_or(Ok(()), |word| Err(format!("experiment {name} has no option {word}\n{USAGE}")))
}

fn run(words: &[String]) -> Result<(), String> {
    match words.first().map(String::as_str) {
        Some("situation") => situation(&words[1..]),
        Some("memory-curves") => memory_curves(&words[1..]),
        Some("model-check") => model_check(&words[1..]),
        Some("monkey") => monkey(&words[1..]),
        Some("navigator") => navigator::compare(&words[1..]),
        Some("navigator-grow") => navigator::grow(&words[1..]),
        Some("navigator-point") => navigator::point(&words[1..]),
        Some("overload") => overload(&words[1..]),
        Some("reopen") => reopen(&words[1..]),
        Some("tune-check") => tune_check(&words[1..]),
        _ => Err(USAGE.to_owned()),
    }
}

/// The value after `name`, if it is there.
fn option<'w>(words: &'w [String], name: &str) -> Option<&'w str> {
    let at = words.iter().position(|word| word == name)?;
    words.get(at + 1).map(String::as_str)
}

fn parsed<T: std::str::FromStr>(words: &[String], name: &str, usual: T) -> Result<T, String> {
    let parse = |text: &str| text.parse().map_err(|_| format!("{name} {text:?}: not understood"));
    option(words, name).map_or(Ok(usual), parse)
}

/// Numbers with commas between them.
fn list<T: std::str::FromStr + Copy>(words: &[String], name: &str, usual: &[T]) -> Result<Vec<T>, String> {
    let Some(text) = option(words, name) else { return Ok(usual.to_vec()) };
    let parse = |word: &str| word.parse().map_err(|_| format!("{name} {text:?}: not understood"));
    text.split(',').map(parse).collect()
}

/// A directory that goes with the value.
fn scratch(words: &[String]) -> Result<tempfile::TempDir, String> {
    let above = option(words, "--dir").map_or_else(std::env::temp_dir, PathBuf::from);
    tempfile::tempdir_in(&above).map_err(|error| format!("{}: {error}", above.display()))
}

fn overload(words: &[String]) -> Result<(), String> {
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

/// Leaves counts where `cargo xtask reliability` reads them, if it asks: a file of lines, each a count, a tab and its name.
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
        size_ratio: given("--size-ratio")?.map(|ratio| ratio as u32),
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
        lookups_most: parsed(words, "--lookups", 2_000_000)?,
        device_lookups: parsed(words, "--device-lookups", 5_000)?,
        seed: parsed(words, "--seed", 1)?,
    };
    monkey::run(&options, &mut |line| println!("{line}"))
}

fn situation(words: &[String]) -> Result<(), String> {
    let name: Situation = words.first().map_or(Err(USAGE.to_owned()), |name| name.parse())?;
    let dir = scratch(words)?;
    let taken = situations::run(name, &dir.path().join("db"), parsed(words, "--scale", 1.0)?);
    println!("{}", taken?.to_json());
    Ok(())
}
