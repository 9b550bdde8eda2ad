//! The machine, the build and the command: what a figure is worth nothing without.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::peer::{Stated, stated};

/// Everything that is known, databases being in `dir`.
pub fn gather(dir: &Path) -> Vec<Stated> {
    let first = |file: &str, name: &str| {
        let text = fs::read_to_string(file).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
        line.split_once(':').map_or_else(String::new, |(_, value)| value.trim().to_owned())
    };
    let whole = |file: &str| fs::read_to_string(file).unwrap_or_default().trim().to_owned();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let command = without_places(std::env::args().skip(1));
    vec![
        stated("processor", first("/proc/cpuinfo", "model name")),
        stated("cores", cores),
        stated("memory", gib(&first("/proc/meminfo", "MemTotal"))),
        stated("system", format!("Linux {}", release(&whole("/proc/sys/kernel/osrelease")))),
        stated("file system", file_system(dir)),
        stated("instructions", instructions()),
        stated("allocator", "the system's, for all engines"),
        stated("commit", commit()),
        stated("command", command.join(" ")),
        stated("unix time", seconds),
    ]
}

/// Kibibytes as the system tells them, in whole gibibytes.
fn gib(memory: &str) -> String {
    let kib = memory.split_whitespace().next().and_then(|number| number.parse::<u64>().ok());
    kib.map_or_else(|| memory.to_owned(), |kib| format!("{} GiB", (kib + (1 << 19)) >> 20))
}

/// A kernel's major and minor number: what comes after them names a build of somebody's.
fn release(kernel: &str) -> String {
    kernel.split('.').take(2).collect::<Vec<_>>().join(".")
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

/// What the file system of `dir` is.
fn file_system(dir: &Path) -> String {
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_path_buf());
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    // The longest mount point above the directory.
    let above = mounts.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (point, kind) = (words.next()?, words.next()?);
        dir.starts_with(point).then(|| (point.len(), kind.to_owned()))
    });
    above.max_by_key(|(length, _)| *length).map_or_else(|| "unknown".to_owned(), |(_, kind)| kind)
}

/// What the compiler might use.
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
