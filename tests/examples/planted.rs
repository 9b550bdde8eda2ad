//! Suite O in full: runs every killer test with its defect, and without any. `cargo xtask planted`
//! starts this.
//!
//! Prints a JSON object for each defect (`docs/json.md`), and a readable table to standard error;
//! with `--write` the table goes to `docs/results/planted.md`. Arguments that are names select
//! defects. Fails if a defect is not detected within the limit by a failed check, or if a killer
//! fails without its defect.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use shamba_tests::planted::{KILLERS, Killer, LIMIT, Verdict, ask};
use shamba_tests::tally::Tally;

/// The packages with killer tests.
const PACKAGES: [&str; 5] = ["shamba-key", "shamba-filter", "shamba-table", "shamba", "shamba-tests"];
/// Time limit without a defect: a killer then runs to its end, which takes longer.
const CONTROL_LIMIT: Duration = Duration::from_secs(120);
const HEAD: &str = "| defect | what the engine then does | noticed by | seconds |\n|---|---|---|---|\n";

fn main() -> ExitCode {
    match run(&std::env::args().skip(1).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<(), String> {
    let writes = arguments.iter().any(|word| word == "--write");
    let names: BTreeSet<&str> =
        arguments.iter().map(String::as_str).filter(|word| !word.starts_with("--")).collect();
    if let Some(unknown) =
        names.iter().find(|name| KILLERS.iter().all(|killer| killer.defect.name() != **name))
    {
        return Err(format!("there is no defect {unknown}"));
    }
    if writes && !names.is_empty() {
        return Err("the table is of all defects".to_owned());
    }
    let begin = Instant::now();
    let executables = executables()?;
    let chosen = KILLERS.iter().filter(|killer| names.is_empty() || names.contains(killer.defect.name()));
    let (mut failures, mut rows, mut asked) = (Vec::new(), String::new(), BTreeSet::new());
    let mut killed = 0u32;
    for killer in chosen {
        let executable = executables.get(killer.binary).ok_or(format!("no test binary {}", killer.binary))?;
        let failed = |error: std::io::Error| format!("{}: {error}", executable.display());
        let (verdict, took) = ask(executable, killer, Some(killer.defect), LIMIT).map_err(failed)?;
        let (name, breaks) = (killer.defect.name(), killer.defect.breaks());
        let is_killed = matches!(verdict, Verdict::Failed(_));
        killed += u32::from(is_killed);
        println!("{}", object(killer, &verdict, took));
        let seconds = took.as_secs_f64();
        let _ = writeln!(rows, "| `{name}` | {breaks} | {} | {seconds:.1} |", killer.label());
        if !is_killed {
            failures.push(format!("{name}: {}: {verdict:?} after {seconds:.1} s", killer.label()));
        }
        if asked.insert(killer.label()) {
            let (verdict, took) = ask(executable, killer, None, CONTROL_LIMIT).map_err(failed)?;
            if verdict != Verdict::Passed {
                failures.push(format!("without a defect: {}: {verdict:?} after {took:?}", killer.label()));
            }
        }
    }
    eprint!("{HEAD}{rows}");
    Tally::of(&[("killed", u64::from(killed)), ("tests asked", asked.len() as u64)]).keep("planted");
    eprintln!(
        "{killed} defects noticed, {} tests asked, {:.0} s",
        asked.len(),
        begin.elapsed().as_secs_f64()
    );
    if !failures.is_empty() {
        return Err(failures.join("\n"));
    }
    if writes { write_table(&rows) } else { Ok(()) }
}

fn object(killer: &Killer, verdict: &Verdict, took: Duration) -> serde_json::Value {
    let said = match verdict {
        Verdict::Failed(said) => Some(said.as_str()),
        _ => None,
    };
    serde_json::json!({
        "schema": "shamba.planted/1",
        "defect": killer.defect.name(),
        "breaks": killer.defect.breaks(),
        "binary": killer.binary,
        "test": killer.test,
        "vector": killer.vector,
        "killed": said.is_some(),
        "said": said,
        "seconds": (took.as_secs_f64() * 100.0).round() / 100.0,
    })
}

/// Builds the tests and returns their binaries by name.
fn executables() -> Result<BTreeMap<String, PathBuf>, String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut command = Command::new(cargo);
    command.args(["test", "--no-run", "--lib", "--tests", "--message-format=json-render-diagnostics"]);
    command.args(PACKAGES.iter().flat_map(|package| ["--package", package]));
    let output = command.current_dir(root()).stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("cargo did not start: {error}"))?;
    if !output.status.success() {
        return Err("the tests do not build".to_owned());
    }
    let mut executables = BTreeMap::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Ok(message) = serde_json::from_str::<serde_json::Value>(line) else { continue };
        if let (Some(name), Some(path), Some(true)) = (
            message["target"]["name"].as_str(),
            message["executable"].as_str(),
            message["profile"]["test"].as_bool(),
        ) {
            executables.insert(name.to_owned(), PathBuf::from(path));
        }
    }
    Ok(executables)
}

/// Replaces the rows of the page.
fn write_table(rows: &str) -> Result<(), String> {
    let page = root().join("docs/results/planted.md");
    let failed = |error: std::io::Error| format!("{}: {error}", page.display());
    let text = fs::read_to_string(&page).map_err(failed)?;
    let (before, rest) = text.split_once(HEAD).ok_or("the page has no table")?;
    let behind: String = rest
        .lines()
        .skip_while(|line| line.starts_with('|'))
        .fold(String::new(), |text, line| text + line + "\n");
    fs::write(&page, format!("{before}{HEAD}{rows}{behind}")).map_err(failed)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}
