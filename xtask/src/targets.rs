//! `cargo xtask targets`: compiles the library for each platform whose standard library is
//! installed.
//!
//! A check needs no linker. The C sources of zstd would need a compiler for the target, so zstd is
//! left out.

use std::process::Command;

/// The platforms of `docs/platforms.md`.
const TARGETS: [&str; 6] = [
    "x86_64-unknown-linux-gnu",
    "aarch64-unknown-linux-gnu",
    "x86_64-apple-darwin",
    "aarch64-apple-darwin",
    "x86_64-pc-windows-msvc",
    "x86_64-pc-windows-gnu",
];

/// Checks each target; reports targets that cannot be checked.
///
/// # Errors
/// The targets for which the library does not compile.
pub fn run() -> Result<(), String> {
    let mut failed = Vec::new();
    for target in TARGETS {
        if !is_installed(target)? {
            println!("{target}: unchecked: std not installed");
            continue;
        }
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
        let status = Command::new(cargo)
            .args(["check", "--quiet", "-p", "shamba", "--no-default-features", "--target", target])
            .status()
            .map_err(|error| format!("cargo does not start: {error}"))?;
        println!("{target}: {}", if status.success() { "compiles" } else { "does not compile" });
        if !status.success() {
            failed.push(target);
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("does not compile for {}", failed.join(", "))) }
}

/// Whether the compiler in use has the standard library of `target`.
fn is_installed(target: &str) -> Result<bool, String> {
    let asked = Command::new(std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned()))
        .args(["--print", "target-libdir", "--target", target])
        .output()
        .map_err(|error| format!("rustc does not start: {error}"))?;
    let folder = String::from_utf8_lossy(&asked.stdout).trim().to_owned();
    let Ok(entries) = std::fs::read_dir(&folder) else { return Ok(false) };
    Ok(entries.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with("libstd-")))
}
