//! Passes the commit to the crate for the header of results: with the suffix `-dirty` if a measured
//! path differs from the commit, and `unknown` outside a repository.

use std::process::Command;

/// Paths whose contents affect measurements.
const MEASURED: [&str; 4] = ["../crates", "src", "../Cargo.lock", "../Cargo.toml"];

fn main() {
    let git = |arguments: &[&str]| {
        // Read-only: git must not take the lock of the index and delay a concurrent commit.
        let mut command = Command::new("git");
        let output = command.arg("--no-optional-locks").args(arguments).output().ok()?;
        let text = output.status.success().then(|| String::from_utf8(output.stdout))?;
        text.ok().map(|text| text.trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else {
        println!("cargo::rustc-env=SHAMBA_COMMIT=unknown");
        return;
    };
    let changed = git(&[&["status", "--porcelain", "--"][..], &MEASURED].concat()).unwrap_or_default();
    let dirty = if changed.is_empty() { "" } else { "-dirty" };
    println!("cargo::rustc-env=SHAMBA_COMMIT={commit}{dirty}");
    MEASURED.iter().for_each(|path| println!("cargo::rerun-if-changed={path}"));
    for name in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", name]) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
}
