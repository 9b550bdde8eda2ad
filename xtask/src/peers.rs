//! Comparison with other engines: starts `lab/peers`, which is a separate workspace because its
//! native builds take half an hour.
//!
//! Not here: workloads and conditions (`lab/peers/README.md`).

use std::process::Command;

use crate::tidy;

/// Cargo feature of each engine in that workspace.
const PEERS: [&str; 5] = ["rocksdb", "leveldb", "fjall", "redb", "lmdb"];

/// Builds all engines, or those after `--only`, and passes the other arguments on.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let (features, words) = match arguments {
        [only, names, words @ ..] if only == "--only" => (chosen(names)?, words),
        words => (Vec::new(), words),
    };
    // Started in that directory, so that Cargo finds its `.cargo/config.toml`.
    let status = Command::new("cargo")
        .args(["run", "--release"])
        .args(features)
        .arg("--")
        .args(words)
        .current_dir(tidy::root().join("lab/peers"))
        .status()
        .map_err(|error| format!("cargo did not start: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("lab/peers ended with {status}")) }
}

/// Cargo's arguments that build only these engines; `none` builds Shamba alone.
fn chosen(names: &str) -> Result<Vec<String>, String> {
    if names == "none" {
        return Ok(vec!["--no-default-features".to_owned()]);
    }
    match names.split(',').find(|name| !PEERS.contains(name)) {
        Some(name) => Err(format!("{name:?} is not an engine here: {}", PEERS.join(", "))),
        None => Ok(vec!["--no-default-features".to_owned(), "--features".to_owned(), names.to_owned()]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_named_engines_are_built() {
        let words = chosen("redb,lmdb").expect("two engines");
        assert_eq!(words, ["--no-default-features", "--features", "redb,lmdb"]);
        assert_eq!(chosen("none").expect("no engine").len(), 1);
        assert!(chosen("sqlite").is_err());
    }
}
