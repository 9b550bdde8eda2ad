//! The machine, the build and the command: what a figure is worth nothing without.

use std::path::Path;
use std::process::Command;

use shamba_lab::Facts;

use crate::peer::{Stated, stated};

/// Everything that is known, databases being in `dir`.
pub fn gather(dir: &Path) -> Vec<Stated> {
    let here = Facts::here(dir, 0);
    let command = without_places(std::env::args().skip(1));
    vec![
        stated("processor", here.processor),
        stated("cores", here.cores),
        stated("memory", format!("{} GiB", (here.memory_bytes + (1 << 29)) >> 30)),
        stated("system", here.system.replacen("linux", "Linux", 1)),
        stated("file system", here.file_system),
        stated("instructions", instructions()),
        stated("allocator", "the system's, for all engines"),
        stated("commit", commit()),
        stated("command", command.join(" ")),
        stated("day", here.day),
    ]
}

/// The words of a command, folders of this machine left out: they say nothing to others.
fn without_places(words: impl Iterator<Item = String>) -> Vec<String> {
    let mut kept = Vec::new();
    let mut is_place = false;
    for word in words {
        let starts = ["--dir=", "--out="].into_iter().find(|name| word.starts_with(name));
        match starts {
            _ if is_place => kept.push("DIR".to_owned()),
            Some(name) => kept.push(format!("{name}DIR")),
            None => kept.push(word.clone()),
        }
        is_place = !is_place && matches!(word.as_str(), "--dir" | "--out");
    }
    kept
}

/// Instruction sets available to the compiler.
fn instructions() -> &'static str {
    if cfg!(target_feature = "avx512f") {
        "with AVX-512 throughout (target-cpu)"
    } else if cfg!(target_feature = "avx2") {
        "with AVX2 throughout (target-cpu)"
    } else {
        "the architecture's base; engines may choose more at run time"
    }
}

fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output =
            Command::new("git").args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let head = git(&["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(|| "unknown".to_owned());
    let is_changed = git(&["status", "--porcelain"]).is_some_and(|changes| !changes.is_empty());
    if is_changed { format!("{head}, changed") } else { head }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_told_without_folders() {
        let words = ["run", "--dir", "/here", "--add", "--out=there/it"].map(str::to_owned);
        assert_eq!(without_places(words.into_iter()), ["run", "--dir", "DIR", "--add", "--out=DIR"]);
    }
}
