//! Suite O in CI: a handful of planted defects is caught, every killer exists, and the table of results is of them all.
//!
//! All of them: `cargo xtask planted`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use shamba::planted::{Defect, VARIABLE};
use shamba_tests::planted::{KILLERS, LIMIT, Verdict, ask, is_asked};

const TABLE: &str = include_str!("../../../docs/results/planted.md");

/// Of different parts, soon caught, by tests of this binary.
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

/// A test that was renamed kills nothing any more; the driver would find out, but not in CI.
#[test]
fn every_killer_is_a_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let mut sources = Vec::new();
    for folder in ["crates", "tests"] {
        sources_under(&root.join(folder), &mut sources);
    }
    let functions: BTreeSet<&str> = sources
        .iter()
        .flat_map(|text| text.lines())
        .filter_map(|line| line.trim_start().strip_prefix("fn ")?.split('(').next())
        .collect();
    for killer in KILLERS {
        let name = killer.test.rsplit("::").next().unwrap_or_default();
        assert!(functions.contains(name), "{} names no function", killer.label());
    }
}

fn sources_under(folder: &Path, into: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("the sources are there") {
        let path = entry.expect("listed").path();
        if path.is_dir() {
            sources_under(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(fs::read_to_string(&path).expect("text"));
        }
    }
}

#[test]
fn the_variable_is_the_one_that_is_documented() {
    assert!(TABLE.contains(VARIABLE));
}
