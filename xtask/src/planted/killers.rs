//! Finds a killer in the sources, without compiling them.
//!
//! A renamed test detects nothing any more. A run of the patch would notice, but that is not part
//! of the gate.

use std::fs;
use std::path::{Path, PathBuf};

use super::patch::Killer;
use crate::tidy;

/// Fails if the sources of the killer's binary do not contain its test exactly once.
pub fn find(killer: &Killer) -> Result<(), String> {
    let mut tests = Vec::new();
    let found = match (folder_of(&killer.package), killer.is_lib) {
        (None, _) => return Err(format!("there is no package {}", killer.package)),
        (Some(package), true) => tests_under(&package.join("src"), &[], &mut tests),
        (Some(package), false) => tests_of_binary(&package.join("tests"), &killer.binary, &mut tests),
    };
    found.map_err(|error| format!("its sources: {error}"))?;
    match tests.iter().filter(|test| **test == killer.test).count() {
        1 => Ok(()),
        0 => Err("there is no such test".to_owned()),
        count => Err(format!("{count} tests have this name")),
    }
}

/// The folder of a package with killers.
fn folder_of(package: &str) -> Option<PathBuf> {
    let root = tidy::root();
    match package {
        "shamba-tests" => Some(root.join("tests")),
        "shamba-schedules" => Some(root.join("tests/schedules")),
        _ => {
            let (folder, _) = tidy::ORDER.iter().find(|(_, name)| *name == package)?;
            Some(root.join("crates").join(folder))
        }
    }
}

/// The tests of a file or folder in a package's folder of tests.
fn tests_of_binary(folder: &Path, binary: &str, into: &mut Vec<String>) -> std::io::Result<()> {
    let (file, modules) = (folder.join(format!("{binary}.rs")), folder.join(binary));
    if file.is_file() {
        tests_in(&fs::read_to_string(&file)?, &[], into);
    }
    if modules.is_dir() {
        tests_under(&modules, &[], into)?;
    }
    Ok(())
}

/// The tests of a directory that is the module `path` of a test binary, as `module::test`.
fn tests_under(folder: &Path, path: &[String], into: &mut Vec<String>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let file = entry?.path();
        let Some(name) = file.file_stem().and_then(|stem| stem.to_str()) else { continue };
        let inner = [path, &[name.to_owned()]].concat();
        if file.is_dir() {
            tests_under(&file, &inner, into)?;
        } else if file.extension().is_some_and(|extension| extension == "rs") {
            let is_root = ["lib", "main", "mod"].contains(&name);
            tests_in(&fs::read_to_string(&file)?, if is_root { path } else { &inner }, into);
        }
    }
    Ok(())
}

/// The tests of one file, which is the module `path`: functions under `#[test]`, in the modules
/// opened around them.
fn tests_in(text: &str, path: &[String], into: &mut Vec<String>) {
    // The open modules, with their indentation.
    let mut open: Vec<(usize, String)> = Vec::new();
    let mut is_test = false;
    for line in text.lines() {
        let word = line.trim_start();
        let indent = line.len() - word.len();
        if word == "}" {
            open.retain(|(begun, _)| *begun != indent);
        } else if let Some(name) = word.strip_prefix("mod ").and_then(|rest| rest.strip_suffix(" {")) {
            open.push((indent, name.to_owned()));
        } else if word == "#[test]" {
            is_test = true;
        } else if let Some(rest) = word.strip_prefix("fn ")
            && std::mem::take(&mut is_test)
        {
            let name = rest.split('(').next().unwrap_or_default();
            let modules = path.iter().map(String::as_str).chain(open.iter().map(|(_, name)| name.as_str()));
            into.push(modules.chain([name]).collect::<Vec<_>>().join("::"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_named_by_their_modules() {
        let text = "fn no_test() {}\n#[test]\nfn one() {\n}\nmod tests {\n    #[test]\n    fn two() {\n    }\n}\n#[test]\nfn three() {\n}\n";
        let mut tests = Vec::new();
        tests_in(text, &["wal".to_owned()], &mut tests);
        assert_eq!(tests, ["wal::one", "wal::tests::two", "wal::three"]);
    }
}
