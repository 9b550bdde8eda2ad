//! Experiments with the engine, each in a process of its own and built for release: what is judged are resident bytes. And
//! the planted defects, which tests are judged by.
//!
//! Here it is only said which there are. Not here: what they do (`crates/harness`, example `experiment`; `tests`, example
//! `planted`).

use std::process::Command;

use crate::tidy;

/// The budgets of `overload` unless one is given.
const BUDGETS: [&str; 3] = ["16M", "64M", "512M"];
/// The situations of `memory-situations` unless one is named.
const SITUATIONS: [&str; 4] = ["entries", "tables", "keys", "iterators"];

/// Runs the overload for each budget; prints one JSON object each.
pub fn overload(arguments: &[String]) -> Result<(), String> {
    let mut rest: Vec<&str> = Vec::new();
    let mut budgets = BUDGETS.to_vec();
    let mut words = arguments.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "--budget" => budgets = vec![words.next().ok_or("--budget needs a size")?],
            "--json" => {} // There is nothing else to print.
            other => rest.push(other),
        }
    }
    let of = |budget: &&str| {
        let bytes = size_bytes(budget)?.to_string();
        experiment(&[&["overload", "--budget", &bytes][..], &rest].concat())
    };
    all(budgets.iter().map(of))
}

/// Times opens after a kill; prints a JSON object.
pub fn reopen(arguments: &[String]) -> Result<(), String> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).filter(|word| *word != "--json").collect();
    experiment(&[&["reopen"][..], &words].concat())
}

/// Runs the curves; prints a JSON object for each point and for each comparison.
pub fn memory_curves(arguments: &[String]) -> Result<(), String> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).filter(|word| *word != "--json").collect();
    experiment(&[&["memory-curves"][..], &words].concat())
}

/// Holds the cost model beside the engine; prints a JSON object for each design, and the table to standard error.
pub fn model_check(arguments: &[String]) -> Result<(), String> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).filter(|word| *word != "--json").collect();
    experiment(&[&["model-check"][..], &words].concat())
}

/// Compares uniform filter bits with Monkey's; prints a JSON object for each tree and for each pair.
pub fn monkey(arguments: &[String]) -> Result<(), String> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).filter(|word| *word != "--json").collect();
    experiment(&[&["monkey"][..], &words].concat())
}

/// Compares the navigator's choice with other designs; prints a JSON object for each run and for each mix.
pub fn navigator(arguments: &[String]) -> Result<(), String> {
    let words = arguments.iter().map(String::as_str).filter(|word| *word != "--json");
    let words: Vec<&str> = words
        .flat_map(|word| if word == "--quick" { vec!["--scale", "quick"] } else { vec![word] })
        .collect();
    experiment(&[&["navigator"][..], &words].concat())
}

/// Judges the tuner; prints a JSON object.
pub fn tune_check(arguments: &[String]) -> Result<(), String> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).filter(|word| *word != "--json").collect();
    experiment(&[&["tune-check"][..], &words].concat())
}

/// Runs the situations; prints one JSON object each.
pub fn situations(arguments: &[String]) -> Result<(), String> {
    let named = arguments.first().filter(|word| !word.starts_with("--"));
    let rest: Vec<&str> = arguments.iter().skip(usize::from(named.is_some())).map(String::as_str).collect();
    let names = named.map_or_else(|| SITUATIONS.to_vec(), |name| vec![name]);
    all(names.iter().map(|name| experiment(&[&["situation", name][..], &rest].concat())))
}

/// Every outcome is waited for, and the failures are told together.
fn all(outcomes: impl Iterator<Item = Result<(), String>>) -> Result<(), String> {
    let failures: Vec<String> = outcomes.filter_map(Result::err).collect();
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

/// Asks the tests about planted defects, which exist only where assertions do: not built for release.
pub fn planted(arguments: &[String]) -> Result<(), String> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    run(&["--package", "shamba-tests", "--example", "planted"], &words)
}

fn experiment(words: &[&str]) -> Result<(), String> {
    run(&["--release", "--package", "shamba-harness", "--example", "experiment"], words)
}

fn run(example: &[&str], words: &[&str]) -> Result<(), String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut command = Command::new(cargo);
    command.args(["run", "--quiet"]).args(example).arg("--");
    let status = command.args(words).current_dir(tidy::root()).status();
    let status = status.map_err(|error| format!("cargo did not start: {error}"))?;
    let name = example.last().copied().unwrap_or_default();
    if status.success() { Ok(()) } else { Err(format!("{name} {} failed with {status}", words.join(" "))) }
}

/// A size in bytes, or with K, M or G.
fn size_bytes(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.trim_end_matches("iB").trim_end_matches('B') {
        text if text.ends_with(['K', 'k']) => (&text[..text.len() - 1], 10),
        text if text.ends_with(['M', 'm']) => (&text[..text.len() - 1], 20),
        text if text.ends_with(['G', 'g']) => (&text[..text.len() - 1], 30),
        text => (text, 0),
    };
    let number: u64 = digits.trim().parse().map_err(|_| format!("{text:?} is no size"))?;
    number.checked_shl(shift).filter(|bytes| bytes >> shift == number).ok_or(format!("{text:?} is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        for (text, bytes) in
            [("4096", 4096), ("16M", 16 << 20), ("64 MiB", 64 << 20), ("1G", 1 << 30), ("2k", 2048)]
        {
            assert_eq!(size_bytes(text), Ok(bytes), "{text}");
        }
        assert!(size_bytes("much").is_err() && size_bytes("99999999999G").is_err());
    }
}
