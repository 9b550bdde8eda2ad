//! Tells the crate which commit it is built from, for the head of results, with `-dirty` where files that the repository
//! has under `crates` are not as there; `unknown` outside a repository.

use std::process::Command;

/// All that results are measured with.
const CRATES: &str = "..";

fn main() {
    let git = |arguments: &[&str]| {
        let output =
            Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
        String::from_utf8(output.stdout).ok().map(|text| text.trim().to_owned())
    };
    let commit = git(&["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(|| "unknown".to_owned());
    let changed = git(&["status", "--porcelain", "--untracked-files=no", "--", CRATES]).unwrap_or_default();
    let dirty = if changed.is_empty() { "" } else { "-dirty" };
    println!("cargo::rustc-env=SHAMBA_COMMIT={commit}{dirty}");
    println!("cargo::rerun-if-changed={CRATES}");
    for name in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", name]) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
}
