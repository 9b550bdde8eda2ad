//! Check of the house rules that the compiler and clippy do not cover.
//!
//! 1. Every `.rs` file opens with a `//!` header and has at most [`LINES_MAX`] lines.
//! 2. The crates of the engine access files, time, threads and randomness only through the
//!    environment, except in tests. Locks come from its `sync`, so that tests over schedules
//!    observe them.
//! 3. A crate uses only crates before it in [`ORDER`].
//! 4. No text names a folder of the machine that it was written on.
//! 5. `unsafe` occurs only in the files of [`UNSAFE`]. There is no unfinished work and no disabled
//!    test.
//! 6. Each published package has its own README and the workspace's licences, and can be found by
//!    keywords and categories.
//! 7. The packages with their own locks, which inherit nothing, require the versions that the
//!    workspace requires. The workspace requires no exact version without a reason next to it.
//! 8. The library's crates have no let chains, which need Rust 1.88 (they promise 1.85; clippy
//!    reports calls that are too new, by `rust-version`).
//! 9. Comments and pages are written in plain terms of the field, and comments wrap ([`words`]).
//! 10. The paths that pages name exist ([`paths`]).
//!
//! The check reads text, not syntax: the part after a `#[cfg(test)] mod` that opens a block, files
//! named `tests.rs`, and files in a folder of tests count as tests.

mod paths;
mod words;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// Maximum lines of a source file.
const LINES_MAX: usize = 600;

/// Crates from the bottom up, folder and package: each may use those before it.
pub const ORDER: [(&str, &str); 11] = [
    ("key", "shamba-key"),
    ("env", "shamba-env"),
    ("filter", "shamba-filter"),
    ("model", "shamba-model"),
    ("table", "shamba-table"),
    ("log", "shamba-log"),
    ("memtable", "shamba-memtable"),
    ("tree", "shamba-tree"),
    ("engine", "shamba"),
    ("workload", "shamba-workload"),
    ("cli", "shamba-cli"),
];

/// Packages outside the workspace that are built from its sources: they repeat its
/// requirements.
const REPEATING: [&str; 7] = [
    "tests/loom/engine",
    "tests/schedules/env",
    "tests/schedules/table",
    "tests/schedules/log",
    "tests/schedules/memtable",
    "tests/schedules/tree",
    "tests/schedules/engine",
];

/// Fields that a published package's manifest must have.
const STATED: [&str; 5] = ["description = ", "license", "readme = ", "keywords = ", "categories = "];

/// Crates that access the system only through `shamba-env`.
const SEALED: [&str; 8] = ["key", "filter", "model", "table", "log", "memtable", "tree", "engine"];

/// Crates that build with Rust 1.85.
const OLD_RUST: [&str; 9] = ["key", "env", "filter", "model", "table", "log", "memtable", "tree", "engine"];

/// Paths that these crates may not name outside tests.
const WORLD: [&str; 8] = [
    "std::fs",
    "std::net",
    "std::time::Instant",
    "std::time::SystemTime",
    "Instant::now",
    "SystemTime::now",
    "thread::spawn",
    "fastrand",
];

/// Types that come from the environment's `sync` and not from the standard library. Code that needs
/// the standard ones names them by the whole path.
const LOCKS: [&str; 4] = ["Mutex", "Condvar", "RwLock", "Barrier"];

/// Files and folders that may contain `unsafe`.
const UNSAFE: [&str; 10] = [
    "crates/filter/src/simd",
    "crates/table/src/block/tags.rs",
    "crates/table/src/cache",
    "crates/memtable/src",
    "crates/key/src/prefetch.rs",
    "crates/env/src/mapped",
    "crates/env/src/pages/large.rs",
    "crates/env/src/ring.rs",
    "tests/loom/engine/src/models/memtable.rs",
    "lab/peers/src/engines/lmdb.rs",
];

/// Pages that record earlier states and keep their wording.
const HISTORY: [&str; 3] = ["docs/results/", "docs/decisions/", "CHANGELOG.md"];

/// Assembled here so that this file does not contain the words that it looks for.
fn unfinished() -> [String; 6] {
    let marks = [
        ("FIX", "ME"),
        ("XX", "X"),
        ("todo", "!("),
        ("unimplemented", "!("),
        ("dbg", "!("),
        ("#[ign", "ore"),
    ];
    marks.map(|(start, end)| format!("{start}{end}"))
}

/// Folders that exist on one machine only. Assembled here for the same reason.
fn private_places() -> [String; 2] {
    [("/wo", "rk/"), ("../sha", "red")].map(|(start, end)| format!("{start}{end}"))
}

/// Root of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

/// Checks the whole workspace and lists every violation.
pub fn run() -> Result<(), String> {
    let root = root();
    let mut breaches = String::new();
    let (mut files, mut texts) = (Vec::new(), Vec::new());
    for folder in ["crates", "lab", "tests", "xtask"] {
        files_under(&root.join(folder), &["rs"], &mut files)?;
    }
    files.sort();
    files_under(&root, &["rs", "md", "toml", "json", "sh"], &mut texts)?;
    let mut all = Vec::new();
    files_under(&root, &[], &mut all)?;
    let existing = paths_of(&root, &all);
    for text in &texts {
        let content = fs::read_to_string(text).map_err(|error| format!("{}: {error}", text.display()))?;
        let name = name_in(&root, text);
        for place in private_places().iter().filter(|place| content.contains(place.as_str())) {
            let _ = writeln!(breaches, "{name}: names {place}");
        }
        if name.ends_with(".md") && !HISTORY.iter().any(|history| name.starts_with(history)) {
            for (line, what) in words::of_page(&content) {
                let _ = writeln!(breaches, "{name}:{line}: {what}");
            }
            for (line, path) in paths::missing(&content, &existing) {
                let _ = writeln!(breaches, "{name}:{line}: names {path}, which does not exist");
            }
        }
    }
    for file in &files {
        let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let name = name_in(&root, file);
        for (line, what) in breaches_of(&name, &text).into_iter().chain(words::of_code(&text)) {
            let _ = writeln!(breaches, "{name}:{line}: {what}");
        }
    }
    for (place, (folder, _)) in ORDER.iter().enumerate() {
        let manifest = root.join("crates").join(folder).join("Cargo.toml");
        let text =
            fs::read_to_string(&manifest).map_err(|error| format!("{}: {error}", manifest.display()))?;
        for breach in crate::layers::breaches(&root, folder)? {
            let _ = writeln!(breaches, "{breach}");
        }
        for used in upward_uses(place, &text) {
            let _ = writeln!(breaches, "crates/{folder}/Cargo.toml: uses {used}, which is not below it");
        }
    }
    let read =
        |name: String| fs::read_to_string(root.join(&name)).map_err(|error| format!("{name}: {error}"));
    for (folder, _) in ORDER {
        for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
            if read(format!("crates/{folder}/{licence}")).ok() != Some(read(licence.to_owned())?) {
                let _ = writeln!(breaches, "crates/{folder}/{licence}: is not a copy of {licence}");
            }
        }
        if read(format!("crates/{folder}/README.md")).is_err() {
            let _ = writeln!(breaches, "crates/{folder}: has no README.md");
        }
        let manifest = read(format!("crates/{folder}/Cargo.toml"))?;
        for word in STATED.iter().filter(|word| !manifest.lines().any(|line| line.starts_with(*word))) {
            let _ = writeln!(breaches, "crates/{folder}/Cargo.toml: does not say {word:?}");
        }
    }
    let workspace = read("Cargo.toml".to_owned())?;
    for name in exact_without_reason(&workspace) {
        let _ = writeln!(breaches, "Cargo.toml: an exact version of {name} without a comment that says why");
    }
    for folder in REPEATING {
        for name in differing(&workspace, &read(format!("{folder}/Cargo.toml"))?) {
            let _ = writeln!(
                breaches,
                "{folder}/Cargo.toml: asks for another version of {name} than the workspace"
            );
        }
    }
    if breaches.is_empty() {
        eprintln!("tidy: {} files are in order", files.len());
        return Ok(());
    }
    Err(format!("{breaches}tidy: not in order"))
}

/// These files and the folders that they are in, from the root.
fn paths_of(root: &Path, files: &[PathBuf]) -> Vec<String> {
    let within = |file: &PathBuf| file.ancestors().map(|path| name_in(root, path)).collect::<Vec<_>>();
    let mut paths = files.iter().flat_map(within).collect::<Vec<_>>();
    paths.sort_unstable();
    paths.dedup();
    paths
}

/// Path of a file from the root, with slashes.
fn name_in(root: &Path, file: &Path) -> String {
    file.strip_prefix(root).unwrap_or(file).to_string_lossy().replace('\\', "/")
}

/// Files with one of these extensions, all files if none is given. Hidden folders and build output
/// are skipped.
fn files_under(folder: &Path, extensions: &[&str], into: &mut Vec<PathBuf>) -> Result<(), String> {
    let listing = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for entry in listing {
        let path = entry.map_err(|error| format!("{}: {error}", folder.display()))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            if name != "target" && !name.starts_with('.') {
                files_under(&path, extensions, into)?;
            }
        } else if extensions.is_empty()
            || extensions.iter().any(|extension| path.extension().is_some_and(|of| of == *extension))
        {
            into.push(path);
        }
    }
    Ok(())
}

/// Violations in one file, with their lines.
fn breaches_of(name: &str, text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    if !text.starts_with("//!") {
        found.push((1, "the file does not open with a //! header".to_owned()));
    }
    let lines = text.lines().count();
    if lines > LINES_MAX {
        found.push((lines, format!("{lines} lines; split the file by idea ({LINES_MAX} is the limit)")));
    }
    let sealed = SEALED.iter().any(|folder| name.starts_with(&format!("crates/{folder}/src/")));
    let unsafe_allowed = UNSAFE.iter().any(|place| name.starts_with(place));
    let unfinished = unfinished();
    let tests_begin = if is_test_file(name) { 0 } else { tests_begin(text) };
    for (number, line) in text.lines().enumerate() {
        let code = line.trim_start();
        for mark in unfinished.iter().filter(|mark| line.contains(mark.as_str())) {
            found.push((number + 1, format!("{mark} is left behind")));
        }
        if code.starts_with("//") {
            continue;
        }
        let in_tests = number >= tests_begin;
        if sealed && !in_tests {
            for call in WORLD.iter().filter(|call| code.contains(*call)) {
                found.push((number + 1, format!("{call} goes around the environment (shamba-env)")));
            }
        }
        if sealed
            && !in_tests
            && code.starts_with("use std::sync::")
            && let Some(lock) = LOCKS.iter().find(|lock| code.contains(*lock))
        {
            found.push((number + 1, format!("{lock} is not that of the environment (shamba-env's sync)")));
        }
        if !unsafe_allowed && !name.starts_with("xtask/") && has_unsafe(code) {
            found.push((number + 1, "unsafe outside the files that may hold it".to_owned()));
        }
    }
    if OLD_RUST.iter().any(|folder| name.starts_with(&format!("crates/{folder}/src/"))) {
        found.extend(let_chains(text).map(|line| (line, "a let chain needs Rust 1.88; nest".to_owned())));
    }
    found
}

/// Line numbers, counted from 1, of let chains in a formatted file.
fn let_chains(text: &str) -> impl Iterator<Item = usize> {
    let next = text.lines().skip(1).chain([""]);
    text.lines().zip(next).zip(1..).filter(|((line, next), _)| is_let_chain(line, next)).map(|(_, at)| at)
}

fn is_let_chain(line: &str, next: &str) -> bool {
    let code = line.trim_start();
    if code.starts_with("//") {
        return false;
    }
    let Some(at) = ["if let ", "while let "].iter().find_map(|head| code.find(head)) else {
        return code.starts_with("&& let ") || code.contains(" && let ");
    };
    // An `&&` within brackets is part of an expression.
    let mut depth = 0;
    let is_within = code[at..].char_indices().any(|(place, c)| {
        depth += i32::from("([{".contains(c)) - i32::from(")]}".contains(c));
        depth == 0 && code[at + place..].starts_with(" && ")
    });
    code[..at].contains("&& ") || is_within || next.trim_start().starts_with("&& ")
}

/// The line, counted from 0, of `mod tests {` under `#[cfg(test)]`, which is at the end of a file:
/// everything from there on is test code. The number of lines without one.
pub(crate) fn tests_begin(text: &str) -> usize {
    let mut test_attribute = false;
    for (number, line) in text.lines().enumerate() {
        let code = line.trim_start();
        if code.starts_with("//") {
            continue;
        }
        if test_attribute && code.starts_with("mod ") && code.ends_with('{') {
            return number;
        }
        test_attribute = code.starts_with("#[cfg(test)]") || (test_attribute && code.starts_with("#["));
    }
    text.lines().count()
}

fn is_test_file(name: &str) -> bool {
    let parts = name.split('/').collect::<Vec<_>>();
    let (file, folders) = parts.split_last().unwrap_or((&"", &[]));
    file.ends_with("tests.rs")
        || file.ends_with("_test.rs")
        || folders.iter().any(|folder| folder.ends_with("tests"))
}

fn has_unsafe(code: &str) -> bool {
    let words = code.split(|c: char| !c.is_alphanumeric() && c != '_');
    let opens = ["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern", "unsafe trait"];
    words.into_iter().any(|word| word == "unsafe") && opens.iter().any(|open| code.contains(open))
}

/// Packages of [`ORDER`] at or above `place` that a manifest has among its dependencies
/// (development dependencies may be above).
fn upward_uses(place: usize, manifest: &str) -> Vec<&'static str> {
    let mut section = String::new();
    let mut used = Vec::new();
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            line.trim_matches(['[', ']']).clone_into(&mut section);
            continue;
        }
        let package = line.split(['.', ' ', '=']).next().unwrap_or_default();
        let above = ORDER[place..].iter().find(|(_, known)| *known == package);
        if let Some((_, known)) =
            above.filter(|_| section == "dependencies" || section == "build-dependencies")
        {
            used.push(*known);
        }
    }
    used
}

/// Name and version requirement of each registry dependency in a manifest.
fn requirements(manifest: &str) -> impl Iterator<Item = (&str, &str)> {
    manifest.lines().filter_map(|line| {
        let (name, rest) = line.split_once(" = ")?;
        let (_, version) = match rest.strip_prefix('{') {
            Some(table) if table.contains("path = ") => return None,
            Some(table) => table.split_once("version = \"")?,
            None => ("", rest.strip_prefix('"')?),
        };
        let version = version.split('"').next()?;
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_');
        let is_version = version.starts_with(|c: char| c.is_ascii_digit() || "=<>~^*".contains(c));
        (is_version && name.chars().all(plain)).then_some((name, version))
    })
}

/// Dependencies of the workspace with an exact version, and without a comment above or at the end
/// of the line.
fn exact_without_reason(workspace: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut above = "";
    for line in workspace.lines() {
        let explained = above.starts_with('#') || line.contains(" # ");
        let exact = requirements(line).filter(|(_, version)| version.starts_with('=') && !explained);
        found.extend(exact.map(|(name, _)| name.to_owned()));
        above = line;
    }
    found
}

/// Dependencies that a manifest requires in another version than the workspace, or that the
/// workspace lacks.
fn differing(workspace: &str, manifest: &str) -> Vec<String> {
    let manifest = manifest.split_once("[dependencies]").map_or("", |(_, dependencies)| dependencies);
    let known: Vec<_> = requirements(workspace).collect();
    let others = requirements(manifest).filter(|requirement| !known.contains(requirement));
    others.map(|(name, _)| name.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_bites() {
        let breach = |name: &str, text: &str| breaches_of(name, text).len();
        assert_eq!(breach("crates/key/src/a.rs", "//! Fine.\n"), 0);
        assert_eq!(breach("crates/key/src/a.rs", "fn no_header() {}\n"), 1);
        assert_eq!(breach("crates/key/src/a.rs", "//! Fine.\nuse std::fs::File;\n"), 1);
        assert_eq!(breach("crates/cli/src/a.rs", "//! Fine.\nuse std::fs::File;\n"), 0);
        assert_eq!(breach("crates/table/src/a.rs", "//! Fine.\nuse std::sync::{Arc, Mutex};\n"), 1);
        assert_eq!(breach("crates/table/src/a.rs", "//! Fine.\nuse std::sync::Arc;\n"), 0);
        assert_eq!(breach("crates/key/src/a.rs", "//! A.\n#[cfg(test)]\nmod tests {\nuse std::fs;\n}\n"), 0);
        assert_eq!(breach("crates/key/src/a.rs", "//! A.\n#[cfg(test)]\nmod tests;\nuse std::fs;\n"), 1);
        assert_eq!(breach("crates/key/src/a.rs", "//! A.\nunsafe fn f() {}\n"), 1);
        assert_eq!(breach("crates/key/src/prefetch.rs", "//! A.\nunsafe fn f() {}\n"), 0);
        assert_eq!(breach("crates/key/src/a.rs", &format!("//! A.\n// {}\n", unfinished()[0])), 1);
        for chain in [
            "if let Some(a) = b && c {",
            "if a && let Some(b) = c {",
            "if let Some(a) = b\n&& c\n{",
            "while a\n&& let Some(b) = c\n{",
        ] {
            assert_eq!(breach("crates/key/src/a.rs", &format!("//! A.\n{chain}")), 1, "{chain}");
            assert_eq!(breach("crates/cli/src/a.rs", &format!("//! A.\n{chain}")), 0, "{chain}");
        }
        assert_eq!(breach("crates/key/src/a.rs", "//! A.\nif let Some(a) = (b && c).then_some(d) {\n"), 0);
        assert_eq!(breach("tests/src/a.rs", &format!("//! A.\n{}", "//\n".repeat(LINES_MAX))), 1);
    }

    #[test]
    fn crates_look_down_only() {
        let manifest = "[dependencies]\nshamba-env.workspace = true\nshamba-table = { path = \"x\" }\n";
        assert_eq!(upward_uses(4, manifest), ["shamba-table"]);
        assert!(upward_uses(5, manifest).is_empty());
        assert!(upward_uses(0, "[dev-dependencies]\nshamba.workspace = true\n").is_empty());
    }

    #[test]
    fn versions_agree_and_exact_ones_have_reasons() {
        let workspace = "[workspace.dependencies]\na = \"1.2\"\nb = { version = \"=0.3.1\", features = [\"x\"] }\n\
                         # Newer ones lose data.\nc = \"=1.0.0\"\nown = { path = \"own\", version = \"0.1.0\" }\n";
        assert_eq!(exact_without_reason(workspace), ["b"]);
        let manifest =
            "version = \"0.1.0\"\n[dependencies]\na = \"1.3\"\nb = { version = \"=0.3.1\" }\nd = \"1\"\n";
        assert_eq!(differing(workspace, manifest), ["a", "d"]);
    }
}
