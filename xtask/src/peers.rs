//! Other engines beside Shamba: starts `lab/peers`, a workspace of its own, for its native builds take half an hour.
//!
//! Not here: what is measured, and how (`lab/peers/README.md`).

use std::process::Command;

use crate::tidy;

/// What each peer's feature is called there.
const PEERS: [&str; 5] = ["rocksdb", "leveldb", "fjall", "redb", "lmdb"];

/// Builds all peers, or those after `--only`, and hands the other words on.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let (features, words) = match arguments {
        [only, names, words @ ..] if only == "--only" => (chosen(names)?, words),
        words => (Vec::new(), words),
    };
    // Started there, so that Cargo finds the workspace's own `.cargo/config.toml`.
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

/// The words by which Cargo builds these peers and no others; `none` is Shamba alone.
fn chosen(names: &str) -> Result<Vec<String>, String> {
    if names == "none" {
        return Ok(vec!["--no-default-features".to_owned()]);
    }
    match names.split(',').find(|name| !PEERS.contains(name)) {
        Some(name) => Err(format!("{name:?} is none of the peers: {}", PEERS.join(", "))),
        None => Ok(vec!["--no-default-features".to_owned(), "--features".to_owned(), names.to_owned()]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_that_are_named_are_built() {
        let words = chosen("redb,lmdb").expect("two peers");
        assert_eq!(words, ["--no-default-features", "--features", "redb,lmdb"]);
        assert_eq!(chosen("none").expect("nobody").len(), 1);
        assert!(chosen("sqlite").is_err());
    }
}
