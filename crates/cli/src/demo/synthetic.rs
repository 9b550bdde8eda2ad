//! Generated paths with the shape of a system's directory tree, for machines without a suitable
//! one.

use fastrand::Rng;

use super::paths::{Entry, Kinds, Paths};

const ROOT: &str = "/usr";
const TOPS: [&str; 8] = ["bin", "include", "lib", "lib64", "libexec", "sbin", "share", "src"];
const WORDS: [&str; 32] = [
    "alsa",
    "apt",
    "bash",
    "cmake",
    "config",
    "core",
    "dbus",
    "doc",
    "fonts",
    "gcc",
    "git",
    "icons",
    "kernel",
    "locale",
    "man",
    "mime",
    "modules",
    "network",
    "node",
    "perl",
    "python3",
    "qt",
    "ruby",
    "site-packages",
    "ssl",
    "systemd",
    "terminfo",
    "tests",
    "themes",
    "vim",
    "x86_64-linux-gnu",
    "zoneinfo",
];
const ENDS: [&str; 8] = [".so.1", ".py", ".h", ".mo", ".gz", ".png", ".conf", ""];
/// Mean number of files per directory.
const FILES_PER_DIRECTORY: u64 = 10;

/// Generates `count` distinct paths.
pub fn make(count: u64) -> Paths {
    let mut rng = Rng::with_seed(count);
    let mut entries = Vec::new();
    let mut kinds = Kinds::default();
    let mut directory = ROOT.to_string();
    for number in 0..count {
        if number % FILES_PER_DIRECTORY == 0 {
            directory = format!("{ROOT}/{}", TOPS[rng.usize(..TOPS.len())]);
            for _ in 0..rng.usize(1..=4) {
                directory = format!("{directory}/{}", WORDS[rng.usize(..WORDS.len())]);
            }
            // The number makes directories with equal names distinct.
            directory = format!("{directory}-{number}");
            entries.push(entry(directory.clone(), 0o040_755, 4096, &mut rng));
            kinds.directories += 1;
        } else {
            let word = WORDS[rng.usize(..WORDS.len())];
            let path = format!("{directory}/{word}_{}{}", number % 1000, ENDS[rng.usize(..ENDS.len())]);
            let size_log2 = rng.u32(4..24);
            let size = rng.u64(..1 << size_log2);
            entries.push(entry(path, 0o100_644, size, &mut rng));
            kinds.files += 1;
        }
    }
    Paths::new(entries, kinds, Vec::new(), ROOT.len(), 0.0, usize::MAX)
}

fn entry(path: String, mode: u32, size: u64, rng: &mut Rng) -> Entry {
    let second = 1_600_000_000 + rng.u64(..100_000_000);
    let ns = rng.u32(..1_000_000_000);
    let value = format!(
        "mode={mode:06o} uid=0 gid=0 size={size} modified={second}.{ns:09} changed={second}.{ns:09} \
         accessed={}.{ns:09}",
        second + 3600
    );
    Entry { key: path.into_bytes(), value: value.into_bytes() }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn as_many_distinct_paths_as_asked_for() {
        for count in [1, 7, 100, 20_000] {
            let paths = make(count);
            let distinct: HashSet<&[u8]> = paths.entries.iter().map(|entry| entry.key.as_slice()).collect();
            assert_eq!(distinct.len() as u64, count);
            assert_eq!(paths.kinds.files + paths.kinds.directories, count);
        }
        assert_eq!(make(500).entries, make(500).entries);
    }
}
