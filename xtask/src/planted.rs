//! Injected defects: each is a patch in `tests/planted`, and a test that must fail with it.
//!
//! A patch changes the sources as a real bug would. For each patch, its killers (tests, named in
//! the patch's header) first run against an unchanged copy of the sources, where they must pass,
//! and then against the patched copy, where they must fail by one of their own checks within
//! [`LIMIT`]: a hang, an abort, a missing test or a patch that does not compile does not count. The
//! tests run with `SHAMBA_BRIEF` set, so that long ones do a small part of their work. The copy and
//! its target directory stay in `target/planted`, and dependencies compile once.
//!
//! `--check` compiles nothing: every patch must apply, every killer must be a test, and the table
//! of `docs/results/planted.md` must hold the headers of all patches. A test of this crate does the
//! same, so the gate fails if a change of the sources breaks a patch.

mod killers;
mod patch;
mod trial;

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use crate::copy::Copy;
use crate::tidy;
use patch::{Killer, Patch};
use trial::Verdict;

/// Maximum run time of a killer, without compilation.
const LIMIT: Duration = Duration::from_secs(15);
/// Time limit without a defect: a killer then runs to its end, which takes longer.
const CONTROL_LIMIT: Duration = Duration::from_secs(120);
/// The folder of the copy of the sources and of its builds.
const HOME: &str = "target/planted";
/// The page with the table of all defects.
const PAGE: &str = "docs/results/planted.md";
const HEAD: &str = "| defect | what the engine then does | noticed by | seconds |\n|---|---|---|---|\n";
/// Names of the folder of a killer's counts, and of its counts, for `cargo xtask reliability`.
const SUITE: &str = "planted";

/// Runs the killers of all patches, or of those that are named.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let (options, names): (Vec<&str>, Vec<&str>) =
        arguments.iter().map(String::as_str).partition(|word| word.starts_with("--"));
    let writes = match options.as_slice() {
        [] => false,
        ["--write"] => true,
        ["--check"] if names.is_empty() => return check(),
        _ => return Err("planted: --check, --write, or names of defects".to_owned()),
    };
    let patches = patch::all()?;
    if let Some(unknown) = names.iter().find(|name| patches.iter().all(|patch| patch.name != **name)) {
        return Err(format!("there is no defect {unknown}"));
    }
    let is_chosen = |patch: &Patch| names.is_empty() || names.contains(&patch.name.as_str());
    let mut chosen: Vec<Patch> = patches.into_iter().filter(is_chosen).collect();
    // Patches of the highest crates first: then fewer crates compile again in between.
    chosen.sort_by_key(|patch| std::cmp::Reverse(patch.height()));

    let begin = Instant::now();
    let mut failures = Vec::new();
    let asked: BTreeSet<&Killer> = chosen.iter().flat_map(|patch| &patch.killers).collect();
    let copy = Copy::make(HOME)?;
    let mut failed_controls = BTreeSet::new();
    for killer in &asked {
        let (verdict, took) = trial::run(&copy, killer, CONTROL_LIMIT)?;
        if verdict != Verdict::Passed {
            failures.push(format!("without a defect: {killer}: {verdict:?} after {took:?}"));
            failed_controls.insert((*killer).clone());
        }
    }
    let tests_asked = asked.len();
    let mut killed = 0u64;
    for patch in &mut chosen {
        copy.restore()?;
        patch.apply(&copy)?;
        let mut is_killed = !patch.killers.iter().any(|killer| failed_controls.contains(killer));
        for (number, killer) in patch.killers.iter().enumerate() {
            let (verdict, took) = trial::run(&copy, killer, LIMIT)?;
            println!("{}", object(patch, killer, &verdict, took));
            if !matches!(verdict, Verdict::Failed(_)) {
                is_killed = false;
                failures.push(format!("{}: {killer}: {verdict:?} after {took:?}", patch.name));
            }
            if number == 0 {
                patch.seconds = format!("{:.1}", took.as_secs_f64());
            }
        }
        killed += u64::from(is_killed);
        // At once: a run of all takes hours.
        if writes && is_killed {
            patch.save()?;
        }
    }
    copy.restore()?;
    chosen.sort_by(|one, other| one.name.cmp(&other.name));
    eprint!("{HEAD}{}", rows(&chosen));
    eprintln!(
        "{killed} of {} defects noticed, {tests_asked} tests asked, {:.0} s",
        chosen.len(),
        begin.elapsed().as_secs_f64()
    );
    keep_counts(&[(killed, "killed"), (tests_asked as u64, "tests asked")])?;
    if writes {
        write_table(&patch::all()?)?;
    }
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

/// Checks what needs no compilation, and lists every violation.
fn check() -> Result<(), String> {
    let patches = patch::all()?;
    let mut violations = Vec::new();
    for patch in &patches {
        if let Err(error) = patch.applies() {
            violations.push(format!("{}: no longer applies: {}", patch.name, error.trim()));
        }
        for killer in &patch.killers {
            if let Err(error) = killers::find(killer) {
                violations.push(format!("{}: {killer}: {error}", patch.name));
            }
        }
    }
    let page = fs::read_to_string(tidy::root().join(PAGE)).map_err(|error| format!("{PAGE}: {error}"))?;
    if !page.contains(&format!("{HEAD}{}", rows(&patches))) {
        let table =
            "its table differs from the headers of the patches (`cargo xtask planted --write` makes it)";
        violations.push(format!("{PAGE}: {table}; it should be\n{HEAD}{}", rows(&patches)));
    }
    if violations.is_empty() { Ok(()) } else { Err(violations.join("\n")) }
}

fn rows(patches: &[Patch]) -> String {
    let row = |patch: &Patch| {
        let killers: Vec<String> = patch.killers.iter().map(Killer::to_string).collect();
        format!("| `{}` | {} | {} | {} |\n", patch.name, patch.breaks, killers.join("; "), patch.seconds)
    };
    patches.iter().map(row).collect()
}

fn object(patch: &Patch, killer: &Killer, verdict: &Verdict, took: Duration) -> serde_json::Value {
    let said = match verdict {
        Verdict::Failed(said) => Some(said.as_str()),
        _ => None,
    };
    serde_json::json!({
        "schema": "shamba.planted/1",
        "defect": patch.name,
        "breaks": patch.breaks,
        "binary": killer.binary,
        "test": killer.test,
        "killed": said.is_some(),
        "said": said,
        "seconds": (took.as_secs_f64() * 100.0).round() / 100.0,
    })
}

/// Writes the counts of this run to the folder that `SHAMBA_TALLIES` names.
fn keep_counts(counts: &[(u64, &str)]) -> Result<(), String> {
    let Some(directory) = std::env::var_os("SHAMBA_TALLIES") else { return Ok(()) };
    let lines: String = counts.iter().map(|(count, name)| format!("{count}\t{name}\n")).collect();
    let path = std::path::Path::new(&directory).join(SUITE);
    let written = fs::create_dir_all(&directory).and_then(|()| fs::write(&path, lines));
    written.map_err(|error| format!("{}: {error}", path.display()))
}

/// Replaces the rows of the page.
fn write_table(patches: &[Patch]) -> Result<(), String> {
    let page = tidy::root().join(PAGE);
    let failed = |error: std::io::Error| format!("{PAGE}: {error}");
    let text = fs::read_to_string(&page).map_err(failed)?;
    let (before, rest) = text.split_once(HEAD).ok_or("the page has no table")?;
    let behind = rest.split_inclusive('\n').skip_while(|line| line.starts_with('|')).collect::<String>();
    fs::write(&page, format!("{before}{HEAD}{}{behind}", rows(patches))).map_err(failed)
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_patch_applies_and_has_its_killers_and_its_row() {
        super::check().unwrap_or_else(|error| panic!("{error}"));
    }
}
