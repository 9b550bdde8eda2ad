//! Builds the woven sources: leaves out the mutants that do not compile, and finds the test
//! executables.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Stdio;

use serde_json::Value;

use super::list::Mutant;
use super::weave::{self, CRATE_ROOT, SUPPORT, Woven};
use crate::copy::Copy;

/// Builds until nothing fails: each build leaves out what the last one rejected. Far more than are
/// needed: types, borrows and constants are checked one after the other, crate by crate.
const BUILDS_MAX: u32 = 40;

/// The test executables of one build.
#[derive(Clone, Debug)]
pub struct Executable {
    pub path: PathBuf,
    /// The folder of its package, which cargo would run it in.
    pub folder: PathBuf,
    /// The name of its target.
    pub name: String,
}

/// The built mutants.
pub struct Built {
    pub executables: Vec<Executable>,
    /// Each built mutant and the number of its function.
    pub functions: BTreeMap<usize, usize>,
    /// Mutants outside of functions, or in functions that cannot be woven.
    pub left_out: BTreeSet<usize>,
    /// Mutants that do not compile.
    pub rejected: BTreeSet<usize>,
}

/// The files that are woven, and the roots of their crates.
pub fn woven_files(mutants: &[Mutant]) -> BTreeSet<PathBuf> {
    let files = mutants.iter().map(|mutant| mutant.file.clone());
    let roots = mutants.iter().filter_map(|mutant| crate_root(&mutant.file));
    files.chain(roots).map(PathBuf::from).collect()
}

/// Weaves `mutants` into the copy and builds the tests of the woven packages and of `packages`.
/// `rejected` are known not to compile.
pub fn build(
    copy: &Copy,
    mutants: &[Mutant],
    packages: &[String],
    mut rejected: BTreeSet<usize>,
) -> Result<Built, String> {
    let mut chosen: BTreeSet<usize> = (0..mutants.len()).collect();
    chosen.retain(|mutant| !rejected.contains(mutant));
    let mut left_out = BTreeSet::new();
    let woven_packages = woven_packages(copy, mutants);
    for _ in 0..BUILDS_MAX {
        let (files, unwoven) = write(copy, mutants, &chosen)?;
        chosen.retain(|mutant| !unwoven.contains(mutant));
        left_out.extend(unwoven);
        let names: Vec<&str> = woven_packages.iter().map(String::as_str).collect();
        let mut messages = cargo(copy, &["check", "--lib"], &names)?;
        if messages.is_empty() || !messages.iter().any(is_error) {
            let names: BTreeSet<&str> = packages.iter().chain(&woven_packages).map(String::as_str).collect();
            let names: Vec<&str> = names.into_iter().collect();
            messages = cargo(copy, &["test", "--no-run"], &names)?;
        }
        let errors: Vec<&Value> = messages.iter().filter(|message| is_error(message)).collect();
        if errors.is_empty() {
            let arms = files.values().flat_map(|woven| woven.arms.iter().map(move |arm| (woven, arm)));
            let function_of = |(woven, arm): (&Woven, &weave::Arm)| {
                let around = |lines: &(usize, usize)| lines.0 <= arm.lines.0 && arm.lines.1 <= lines.1;
                let function = woven.functions.iter().find(|(_, lines)| around(lines))?;
                Some((arm.mutant, function.0))
            };
            let functions = arms.filter_map(function_of).collect();
            return Ok(Built { executables: executables(&messages), functions, left_out, rejected });
        }
        let before = chosen.len();
        for error in errors {
            let (bad, unwoven) = blame(error, &files)?;
            chosen.retain(|mutant| !bad.contains(mutant) && !unwoven.contains(mutant));
            rejected.extend(bad);
            // A function as a whole: it compiles without its mutants.
            rejected.extend(unwoven);
        }
        eprintln!("{} mutants do not compile, {} are left", before - chosen.len(), chosen.len());
    }
    Err(format!("the mutants do not compile after {BUILDS_MAX} builds"))
}

/// Writes the woven files and the support module of each crate; returns the files, and the mutants
/// that cannot be woven.
fn write(
    copy: &Copy,
    mutants: &[Mutant],
    chosen: &BTreeSet<usize>,
) -> Result<(BTreeMap<String, Woven>, Vec<usize>), String> {
    let mut by_file: BTreeMap<&str, Vec<(usize, &Mutant)>> = BTreeMap::new();
    for (number, mutant) in mutants.iter().enumerate() {
        by_file.entry(&mutant.file).or_default().push((number, mutant));
    }
    let root = crate::tidy::root();
    let read =
        |file: &str| std::fs::read_to_string(root.join(file)).map_err(|error| format!("{file}: {error}"));
    let (mut functions, mut files, mut unwoven) = (0, BTreeMap::new(), Vec::new());
    for (file, mutants) in &by_file {
        let (woven, left_out) = weave::weave(&read(file)?, mutants, chosen, &mut functions);
        unwoven.extend(left_out);
        files.insert((*file).to_owned(), woven);
    }
    for root in by_file.keys().filter_map(|file| crate_root(file)).collect::<BTreeSet<String>>() {
        let woven = files.entry(root.clone());
        let woven = match woven {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(entry) => {
                entry.insert(Woven { text: read(&root)?, ..Woven::default() })
            }
        };
        woven.text.push_str(&SUPPORT.replace("FUNCTIONS", &functions.max(1).to_string()));
    }
    for (file, woven) in &files {
        let path = copy.folder().join(file);
        if std::fs::read_to_string(&path).is_ok_and(|present| present == woven.text) {
            continue;
        }
        std::fs::write(&path, &woven.text).map_err(|error| format!("{file}: {error}"))?;
    }
    Ok((files, unwoven))
}

/// The root of the crate of a file `crates/NAME/src/…`.
fn crate_root(file: &str) -> Option<String> {
    Some(format!("{}/{CRATE_ROOT}", file.split_once("/src/")?.0))
}

/// The names of the packages of the mutants' files.
fn woven_packages(copy: &Copy, mutants: &[Mutant]) -> BTreeSet<String> {
    let folders = mutants.iter().filter_map(|mutant| Some(mutant.file.split_once("/src/")?.0));
    let name_of = |folder: &str| {
        let manifest = std::fs::read_to_string(copy.folder().join(folder).join("Cargo.toml")).ok()?;
        let line = manifest.lines().find_map(|line| line.strip_prefix("name = "))?;
        Some(line.trim_matches('"').to_owned())
    };
    folders.collect::<BTreeSet<&str>>().into_iter().filter_map(name_of).collect()
}

/// Runs cargo on packages of the copy; returns its messages.
fn cargo(copy: &Copy, command: &[&str], packages: &[&str]) -> Result<Vec<Value>, String> {
    let mut cargo = copy.cargo();
    cargo.args(command).arg("--message-format=json");
    for package in packages {
        cargo.args(["--package", package]);
    }
    let output = cargo.stderr(Stdio::piped()).output();
    let output = output.map_err(|error| format!("cargo did not start: {error}"))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let messages: Vec<Value> = said.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    if !output.status.success() && !messages.iter().any(is_error) {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    Ok(messages)
}

/// Whether a message is a compiler's error about a place in the sources.
fn is_error(message: &Value) -> bool {
    let has_place = message["message"]["spans"].as_array().is_some_and(|spans| !spans.is_empty());
    message["reason"] == "compiler-message" && message["message"]["level"] == "error" && has_place
}

/// The mutants that an error is about; if it is about a woven function as a whole, its mutants are
/// in the second set.
fn blame(
    error: &Value,
    files: &BTreeMap<String, Woven>,
) -> Result<(BTreeSet<usize>, BTreeSet<usize>), String> {
    let error = &error["message"];
    let mut places: Vec<(bool, &str, usize)> = Vec::new();
    for span in error["spans"].as_array().into_iter().flatten() {
        let mut span = span;
        // A place in a macro counts where the macro is called.
        loop {
            let line = span["line_start"].as_u64().and_then(|line| usize::try_from(line).ok());
            if let (Some(file), Some(line)) = (span["file_name"].as_str(), line) {
                places.push((span["is_primary"].as_bool().unwrap_or(false), file, line));
            }
            match &span["expansion"]["span"] {
                Value::Null => break,
                outer => span = outer,
            }
        }
    }
    places.sort_by_key(|(is_primary, _, _)| !is_primary);
    let contains = |lines: &(usize, usize), line: usize| (lines.0..=lines.1).contains(&line);
    for (_, file, line) in &places {
        let arms = files.get(*file).into_iter().flat_map(|woven| &woven.arms);
        let bad: BTreeSet<usize> =
            arms.filter(|arm| contains(&arm.lines, *line)).map(|arm| arm.mutant).collect();
        if !bad.is_empty() {
            return Ok((bad, BTreeSet::new()));
        }
    }
    for (_, file, line) in &places {
        let Some(woven) = files.get(*file) else { continue };
        let Some((_, lines)) = woven.functions.iter().find(|(_, lines)| contains(lines, *line)) else {
            continue;
        };
        let inside = woven.arms.iter().filter(|arm| contains(lines, arm.lines.0)).map(|arm| arm.mutant);
        return Ok((BTreeSet::new(), inside.collect()));
    }
    let text = error["rendered"].as_str().unwrap_or("an error without a text");
    Err(format!("not an error of a mutant:\n{text}"))
}

fn executables(messages: &[Value]) -> Vec<Executable> {
    let executable = |message: &Value| {
        let is_test = message["profile"]["test"].as_bool()?;
        let path = PathBuf::from(message["executable"].as_str()?);
        let folder = PathBuf::from(message["manifest_path"].as_str()?).parent()?.to_path_buf();
        let name = message["target"]["name"].as_str()?.to_owned();
        is_test.then_some(Executable { path, folder, name })
    };
    messages.iter().filter_map(executable).collect()
}
