//! Crates as users write them, outside this workspace: checks that they resolve together with
//! popular crates, and run.
//!
//! Three crates in a temporary folder, each with its own lock file, so that the newest versions are
//! used:
//!
//! 1. `many` depends on Shamba and on [`MANY`] and is only resolved.
//! 2. `few` depends on Shamba, tokio, serde, fjall and redb, and is built and run ([`PROGRAM`]);
//!    with `--native` also on RocksDB.
//! 3. `old` declares [`OLD_RUST`] as its `rust-version`: every version chosen for it must allow
//!    that, and it is checked with that toolchain where it is installed.
//!
//! Needs the crate registry. Not part of the gate: it takes minutes, and new releases of other
//! crates can break it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::tidy;

/// Popular crates whose newest versions must resolve in one crate together with Shamba.
const MANY: [&str; 25] = [
    "anyhow",
    "arc-swap",
    "arrow",
    "axum",
    "bytes",
    "chrono",
    "clap",
    "fjall",
    "hyper",
    "lz4_flex",
    "memmap2",
    "rand",
    "rayon",
    "redb",
    "regex",
    "reqwest",
    "rocksdb",
    "rustix",
    "serde",
    "serde_json",
    "sqlx",
    "thiserror",
    "tokio",
    "tower",
    "tracing",
];
/// Additional crates that are large or link C libraries.
const MANY_HEAVY: [&str; 3] = ["polars", "uuid", "zstd"];

/// Source of the program of `few`.
const PROGRAM: &str = include_str!("user_crate/program.rs");
/// Minimum Rust version of the library.
const OLD_RUST: &str = "1.85";

/// Makes the crates, resolves them, builds and runs. `--native` adds RocksDB; `--resolve-only`
/// builds nothing; `--keep` keeps the folder.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let (mut native, mut resolve_only, mut keep) = (false, false, false);
    for word in arguments {
        match word.as_str() {
            "--native" => native = true,
            "--resolve-only" => resolve_only = true,
            "--keep" => keep = true,
            other => return Err(format!("user-crate: unknown option {other:?}")),
        }
    }
    let folder = std::env::temp_dir().join(format!("shamba-user-crate-{}", std::process::id()));
    let result = in_folder(&folder, native, resolve_only);
    if keep {
        eprintln!("user-crate: the crates are in {}", folder.display());
    } else {
        let _ = fs::remove_dir_all(&folder);
    }
    result
}

fn in_folder(folder: &Path, native: bool, resolve_only: bool) -> Result<(), String> {
    let many = new_crate(folder, "many", None)?;
    for names in [&MANY[..], &MANY_HEAVY[..]] {
        cargo(&many, &[&["add", "--quiet"][..], names].concat())?;
    }
    cargo(&many, &["generate-lockfile"])?;
    let tree = cargo(&many, &["tree", "--depth", "1", "--prefix", "none"])?;
    print!("{}", text(&tree.stdout));
    println!("user-crate: many: shamba resolves beside the newest versions of these crates");
    let twice = text(&cargo(&many, &["tree", "--duplicates", "--depth", "0", "--prefix", "none"])?.stdout);
    let twice: Vec<&str> = twice.lines().filter(|line| !line.trim().is_empty()).collect();
    println!("user-crate: many: in more than one version: {}", twice.join(", "));

    let old = new_crate(folder, "old", Some(OLD_RUST))?;
    old_resolves(&old)?;
    if resolve_only {
        return Ok(());
    }
    old_compiles(&old)?;
    few_runs(folder, native)
}

/// Fails if the lock file of a crate that declares [`OLD_RUST`] has a version that needs a newer
/// one.
fn old_resolves(old: &Path) -> Result<(), String> {
    let output = cargo(old, &["generate-lockfile"])?;
    let notes = text(&output.stderr);
    let newer: Vec<&str> =
        notes.lines().filter(|line| line.contains("requires Rust")).map(str::trim).collect();
    if newer.is_empty() {
        println!(
            "user-crate: old: with rust-version {OLD_RUST} each dependency resolves to a version that allows it"
        );
        return Ok(());
    }
    Err(format!("user-crate: old: dependencies that Rust {OLD_RUST} cannot compile:\n{}", newer.join("\n")))
}

/// Checks the crate with the old toolchain, if that is installed.
fn old_compiles(old: &Path) -> Result<(), String> {
    let toolchain = format!("+{OLD_RUST}");
    // Started by name, so that rustup chooses the toolchain: the `cargo` that runs this program may
    // belong to one.
    let there = Command::new("cargo").args([&toolchain, "--version"]).output();
    if !there.is_ok_and(|output| output.status.success()) {
        println!(
            "user-crate: old: unchecked, since the toolchain {OLD_RUST} is not installed (rustup toolchain install {OLD_RUST})"
        );
        return Ok(());
    }
    let status = Command::new("cargo").args([&toolchain, "check", "--quiet"]).current_dir(old).status();
    match status {
        Ok(status) if status.success() => {
            println!("user-crate: old: compiles with Rust {OLD_RUST}");
            Ok(())
        }
        Ok(status) => Err(format!("user-crate: old: cargo {toolchain} check ended with {status}")),
        Err(error) => Err(format!("cargo did not start: {error}")),
    }
}

/// Builds and runs the program with tokio, serde, fjall and redb.
fn few_runs(folder: &Path, native: bool) -> Result<(), String> {
    let few = new_crate(folder, "few", None)?;
    fs::write(few.join("src/main.rs"), PROGRAM).map_err(|error| format!("{}: {error}", few.display()))?;
    cargo(&few, &["add", "--quiet", "bytes", "fjall", "redb", "serde_json"])?;
    cargo(&few, &["add", "--quiet", "serde", "--features", "derive"])?;
    cargo(&few, &["add", "--quiet", "tokio", "--features", "macros,rt-multi-thread"])?;
    // The program asks for the feature; nothing else does.
    let manifest = few.join("Cargo.toml");
    let mut manifest_text = read(&manifest)?;
    manifest_text.push_str("\n[features]\nnative = []\n");
    fs::write(&manifest, manifest_text).map_err(|error| format!("{}: {error}", manifest.display()))?;
    if native {
        cargo(&few, &["add", "--quiet", "rocksdb"])?;
    }
    let data = folder.join("data");
    fs::create_dir_all(&data).map_err(|error| format!("{}: {error}", data.display()))?;
    let features: &[&str] = if native { &["--features", "native"] } else { &[] };
    let data = data.display().to_string();
    let output = cargo(&few, &[&["run", "--quiet"], features, &["--", &data]].concat())?;
    print!("user-crate: few: {}", text(&output.stdout));
    Ok(())
}

/// Creates a package in `folder` that depends on this working copy's engine by its path.
fn new_crate(folder: &Path, name: &str, rust_version: Option<&str>) -> Result<PathBuf, String> {
    let package = folder.join(name);
    let source = package.join("src");
    fs::create_dir_all(&source).map_err(|error| format!("{}: {error}", source.display()))?;
    let engine = tidy::root().join("crates/engine");
    let rust_version =
        rust_version.map_or_else(String::new, |version| format!("rust-version = \"{version}\"\n"));
    let manifest = format!(
        "[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n{rust_version}\n[workspace]\n\n[dependencies]\nshamba = {{ path = {:?} }}\n",
        engine.display().to_string()
    );
    let program = "fn main() {\n    println!(\"{}\", shamba::Db::open(\"db\").is_ok());\n}\n";
    for (file, content) in [("Cargo.toml", manifest.as_str()), ("src/main.rs", program)] {
        let file = package.join(file);
        fs::write(&file, content).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    Ok(package)
}

fn read(file: &Path) -> Result<String, String> {
    fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs Cargo in a package and returns its output; the error is Cargo's messages.
fn cargo(package: &Path, words: &[&str]) -> Result<Output, String> {
    eprintln!("== {}: cargo {}", package.display(), words.join(" "));
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo).args(words).current_dir(package).output();
    let output = output.map_err(|error| format!("cargo did not start: {error}"))?;
    if output.status.success() {
        return Ok(output);
    }
    Err(format!(
        "user-crate: cargo {} in {} failed:\n{}",
        words.join(" "),
        package.display(),
        text(&output.stderr)
    ))
}
