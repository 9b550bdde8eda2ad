//! Compiles the published packages with the oldest versions of other crates that the manifests
//! allow.
//!
//! Users' lock files may hold any version that a manifest allows, so each lower bound is a promise.
//! Cargo chooses the lower bounds with `-Z direct-minimal-versions`, which needs a nightly
//! toolchain for the lock file alone; the default toolchain compiles. Everything happens in a copy
//! of the tracked files, whose lock file is discarded.
//!
//! The hash functions' test vectors run as well: hashes are stored in databases, so they must not
//! depend on a version.

use std::path::Path;
use std::process::Command;
use std::{fs, io};

use crate::tidy;

/// Checks with the oldest versions: the arguments of one `cargo` command each.
const STEPS: [&[&str]; 3] = [
    &["check", "--package", "shamba"],
    &["check", "--package", "shamba-cli", "--package", "shamba-workload"],
    &["test", "--package", "shamba-key", "--lib"],
];

/// Makes the copy, lets Cargo choose the oldest versions, checks and tests.
pub fn run(arguments: &[String]) -> Result<(), String> {
    if let Some(word) = arguments.first() {
        return Err(format!("minimal-versions: unknown option {word:?}"));
    }
    nightly()?;
    let copy = std::env::temp_dir().join(format!("shamba-minimal-versions-{}", std::process::id()));
    let result = in_copy(&copy);
    let _ = fs::remove_dir_all(&copy);
    result
}

/// Fails with instructions if there is no nightly toolchain.
fn nightly() -> Result<(), String> {
    // Started by name, so that rustup chooses the toolchain: the `cargo` that runs this program may
    // belong to one.
    let output = Command::new("cargo").args(["+nightly", "--version"]).output();
    if output.is_ok_and(|output| output.status.success()) {
        return Ok(());
    }
    Err("minimal-versions: needs a nightly toolchain, for -Z direct-minimal-versions (rustup toolchain install nightly)"
        .to_owned())
}

fn in_copy(copy: &Path) -> Result<(), String> {
    let root = tidy::root();
    let words = ["ls-files", "-z", "-co", "--exclude-standard"];
    let listing = output_of(Command::new("git").args(words).current_dir(&root))?;
    for name in listing.split('\0').filter(|name| !name.is_empty() && *name != "Cargo.lock") {
        let (from, to) = (root.join(name), copy.join(name));
        copy_file(&from, &to).map_err(|error| format!("{}: {error}", from.display()))?;
    }
    let words = ["+nightly", "generate-lockfile", "-Z", "direct-minimal-versions"];
    step(Command::new("cargo").args(words).current_dir(copy))?;
    for words in STEPS {
        // The workspace's own target directory keeps compiled code for the next run.
        let target = root.join("target/minimal-versions");
        let mut command = Command::new("cargo");
        command.args(words).arg("--locked").env("CARGO_TARGET_DIR", target).current_dir(copy);
        step(&mut command)?;
    }
    println!("minimal-versions: the published packages compile with the oldest versions that they allow");
    Ok(())
}

/// Copies one file; a tracked file that was removed is skipped.
fn copy_file(from: &Path, to: &Path) -> io::Result<()> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder)?;
    }
    match fs::copy(from, to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map(|_| ()),
    }
}

fn step(command: &mut Command) -> Result<(), String> {
    eprintln!("== {command:?}");
    let status = command.status().map_err(|error| format!("cargo did not start: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("minimal-versions: {command:?} ended with {status}")) }
}

fn output_of(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{command:?} did not start: {error}"))?;
    if !output.status.success() {
        return Err(format!("{command:?} ended with {}", output.status));
    }
    String::from_utf8(output.stdout).map_err(|error| format!("{command:?}: {error}"))
}
