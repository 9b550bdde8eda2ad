//! Suite O in CI: a few injected defects are detected, every killer exists, and the table of
//! results is complete.
//!
//! All of them: `cargo xtask planted`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use shamba::planted::{Defect, VARIABLE};
use shamba_tests::planted::{KILLERS, LIMIT, Verdict, ask, is_asked};

const TABLE: &str = include_str!("../../../docs/results/planted.md");

/// Defects of different parts that tests of this binary detect quickly.
const HANDFUL: [Defect; 6] = [
    Defect::SecondHash,
    Defect::AckBeforeSync,
    Defect::CurrentUnsynced,
    Defect::DropTombstones,
    Defect::AppendErrorSwallowed,
    Defect::AbsentModuleDenies,
];

#[test]
fn a_handful_of_planted_defects_is_caught() {
    if !cfg!(debug_assertions) || is_asked() {
        return;
    }
    let executable = std::env::current_exe().expect("a test knows its own binary");
    for defect in HANDFUL {
        let killer = KILLERS.iter().find(|killer| killer.defect == defect).expect("each defect has a killer");
        assert_eq!(killer.binary, "suites", "{}", killer.label());
        let (verdict, took) = ask(&executable, killer, Some(defect), LIMIT).expect("the test binary starts");
        println!("{}: {} {verdict:?} after {took:?}", defect.name(), killer.label());
        assert!(matches!(verdict, Verdict::Failed(_)), "{}: {}: {verdict:?}", defect.name(), killer.label());
    }
}

#[test]
fn every_defect_has_its_row() {
    let rows = TABLE.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let rows: Vec<(&str, &str)> = rows.collect();
    let names: Vec<&str> = rows.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, Defect::ALL.iter().map(|defect| defect.name()).collect::<Vec<_>>());
    for ((name, rest), killer) in rows.iter().zip(KILLERS) {
        assert!(rest.contains(killer.defect.breaks()), "{name}: the table says something else:{rest}");
        assert!(rest.contains(&killer.label()), "{name}: the table has another killer:{rest}");
    }
}

/// A renamed test detects nothing any more; the driver would notice, but not in CI.
#[test]
fn every_killer_is_a_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let mut tests = BTreeSet::new();
    for (binary, folder) in [
        ("shamba_key", "crates/key/src"),
        ("shamba_filter", "crates/filter/src"),
        ("shamba_table", "crates/table/src"),
        ("shamba_log", "crates/log/src"),
        ("shamba_memtable", "crates/memtable/src"),
        ("shamba_tree", "crates/tree/src"),
        ("shamba", "crates/engine/src"),
        ("suites", "tests/tests/suites"),
    ] {
        tests_under(&root.join(folder), binary, &[], &mut tests);
    }
    for entry in fs::read_dir(root.join("crates/engine/tests")).expect("the sources are there") {
        let path = entry.expect("listed").path();
        if let (true, Some(binary)) = (path.is_file(), path.file_stem().and_then(|stem| stem.to_str())) {
            tests_in(&path, binary, &[], &mut tests);
        }
    }
    for killer in KILLERS {
        let name = format!("{}: {}", killer.binary, killer.test);
        assert!(tests.contains(&name), "{name} is no test");
    }
}

/// The tests of a directory that is the module `path` of a test binary, as `binary: module::test`.
fn tests_under(folder: &Path, binary: &str, path: &[String], into: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("the sources are there") {
        let file = entry.expect("listed").path();
        let name = file.file_stem().and_then(|stem| stem.to_str()).expect("a name").to_owned();
        let inner = [path, std::slice::from_ref(&name)].concat();
        if file.is_dir() {
            tests_under(&file, binary, &inner, into);
        } else if file.extension().is_some_and(|extension| extension == "rs") {
            let is_root = ["lib", "main", "mod"].contains(&name.as_str());
            tests_in(&file, binary, if is_root { path } else { &inner }, into);
        }
    }
}

/// The tests of one file, which is the module `path`: functions under `#[test]`, in the modules
/// opened around them.
fn tests_in(file: &Path, binary: &str, path: &[String], into: &mut BTreeSet<String>) {
    let text = fs::read_to_string(file).expect("text");
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
        } else if let Some(rest) = word.strip_prefix("fn ") {
            let name = rest.split('(').next().unwrap_or_default().to_owned();
            let modules = path.iter().cloned().chain(open.iter().map(|(_, name)| name.clone()));
            if std::mem::take(&mut is_test) {
                into.insert(format!("{binary}: {}", modules.chain([name]).collect::<Vec<_>>().join("::")));
            }
        }
    }
}

#[test]
fn the_variable_is_the_one_that_is_documented() {
    assert!(TABLE.contains(VARIABLE));
}
