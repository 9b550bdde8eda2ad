//! Checks of the tests: everything that has tests runs in a bare `cargo test`.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package lies in the workspace").to_path_buf()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The strings of a list in a manifest.
fn list(manifest: &str, name: &str) -> Vec<String> {
    let start =
        manifest.find(&format!("\n{name} = [")).unwrap_or_else(|| panic!("no {name} in the manifest"));
    let body = &manifest[start..];
    let body = &body[..body.find(']').expect("the list ends")];
    body.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

/// Members whose libraries are the engine's own sources over other locks. The tests in these
/// sources run with the engine; the members' own tests are in a directory of tests.
const BORROWING: [&str; 2] = ["tests/loom", "tests/schedules"];

#[test]
fn a_bare_cargo_test_runs_every_crate() {
    let root = root();
    let members = list(&read(&root.join("Cargo.toml")), "default-members");
    let mut crates = fs::read_dir(root.join("crates"))
        .expect("crates are listed")
        .map(|entry| format!("crates/{}", entry.expect("an entry").file_name().to_string_lossy()))
        .filter(|name| root.join(name).join("Cargo.toml").exists())
        .collect::<Vec<_>>();
    crates.push("tests".to_owned());
    for name in &crates {
        assert!(members.contains(name), "{name} is no default member: a bare `cargo test` passes it over");
    }
    for member in &members {
        let manifest = read(&root.join(member).join("Cargo.toml"));
        let borrows = BORROWING.contains(&member.as_str());
        for switch in ["test = false", "harness = false", "autotests = false"] {
            let is_its_library = borrows && switch == "test = false" && manifest.matches(switch).count() == 2;
            assert!(is_its_library || !manifest.contains(switch), "{member} switches tests off: {switch}");
        }
        let mut files = Vec::new();
        let of_tests = if borrows { root.join(member).join("tests") } else { root.join(member) };
        sources(&of_tests, &mut files);
        let tests = files.iter().map(|file| read(file).matches("#[test]").count()).sum::<usize>();
        assert!(tests > 0, "{member} has no test");
    }
}

#[test]
fn cargo_run_starts_the_command() {
    let root = root();
    let members = list(&read(&root.join("Cargo.toml")), "default-members");
    let with_default_run: Vec<_> = members
        .iter()
        .filter(|member| read(&root.join(member).join("Cargo.toml")).contains("\ndefault-run"))
        .collect();
    assert_eq!(with_default_run, ["crates/cli"], "`cargo run` must need no --bin");
    let manifest = read(&root.join("crates/cli/Cargo.toml"));
    assert!(manifest.contains("default-run = \"shamba\"") && manifest.contains("name = \"shamba\""));
}

/// Every test that `docs/features.md` names: a package, a file or module of its tests, and a test
/// or the suite.
#[test]
fn the_table_of_features_names_tests_that_exist() {
    let root = root();
    let page = read(&root.join("docs/features.md"));
    let rows = page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| feature"));
    let mut named = 0;
    for row in rows {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let (claim, shown) = (cells[2], cells[3].trim_matches('`'));
        assert_eq!(claim.starts_with("no"), shown.is_empty(), "{row}");
        if shown.is_empty() {
            continue;
        }
        let [package, file, name] = shown.split(' ').collect::<Vec<_>>()[..] else {
            panic!("not PACKAGE FILE TEST: {shown}");
        };
        let folder = match package {
            "shamba" => "crates/engine/tests/api",
            "shamba-cli" => "crates/cli/tests",
            _ => "tests/tests",
        };
        let mut files = Vec::new();
        let folder = root.join(folder);
        files.extend(Some(folder.join(format!("{file}.rs"))).filter(|path| path.exists()));
        // The modules of a test file are in a folder of its name.
        if folder.join(file).is_dir() {
            sources(&folder.join(file), &mut files);
        }
        let is_suite = |path: &PathBuf| path.file_stem().is_some_and(|stem| stem == name);
        let has_test = |path: &PathBuf| read(path).contains(&format!("#[test]\nfn {name}("));
        assert!(files.iter().any(|path| is_suite(path) || has_test(path)), "{shown} does not exist");
        named += 1;
    }
    assert!(named > 20, "{named} tests are named");
}
