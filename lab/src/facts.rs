//! Facts about the machine and the program that the reader of a result needs.
//!
//! Excluded: names of machines or people, and of their kernel builds ([`release`]).

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Facts for the head of every result.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The version of this program.
    pub version: &'static str,
    /// The commit it was built from; `unknown` outside a repository.
    pub commit: &'static str,
    /// Build profile; only figures of `release` are valid.
    pub profile: &'static str,
    /// The processor's name.
    pub processor: String,
    /// Cores that the process may use.
    pub cores: usize,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Bytes of the last-level cache.
    pub llc_bytes: u64,
    /// The operating system and its version.
    pub system: String,
    /// File system type of the directory of trees that are not in memory.
    pub file_system: String,
    /// Time of a read from memory, in nanoseconds: devices that are no slower cannot be emulated; 0
    /// if it could not be measured.
    pub memory_read_ns: u64,
    /// The day, as `YYYY-MM-DD`.
    pub day: String,
}

/// Bytes of the last-level cache of the first processor; 32 MiB if the system does not report it.
pub(crate) fn llc_bytes() -> u64 {
    const USUAL: u64 = 32 << 20;
    let of_index = |index: u32| {
        let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size");
        let text = fs::read_to_string(path).ok()?;
        text.trim().strip_suffix('K')?.parse::<u64>().ok()
    };
    (0..8).filter_map(of_index).max().map_or(USUAL, |kib| kib * 1024)
}

/// A kernel's major and minor version; the rest may identify a local build.
fn release(kernel: &str) -> String {
    kernel.trim().split('.').take(2).collect::<Vec<_>>().join(".")
}

impl Facts {
    /// Facts of this machine now, with trees below `dir` and this measured time of a read from
    /// memory (0: not measured). Facts that the system does not report are `unknown` or 0.
    pub fn here(dir: &Path, memory_read_ns: u64) -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let of_line = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name))?;
            line.split_once(':').map(|(_, value)| value.trim().to_owned())
        };
        let kib = of_line(&read("/proc/meminfo"), "MemTotal")
            .and_then(|text| text.trim_end_matches("kB").trim().parse::<u64>().ok());
        let kernel = read("/proc/sys/kernel/osrelease");
        Self {
            version: env!("CARGO_PKG_VERSION"),
            commit: env!("SHAMBA_COMMIT"),
            profile: if cfg!(debug_assertions) { "dev" } else { "release" },
            processor: of_line(&read("/proc/cpuinfo"), "model name").unwrap_or_else(|| "unknown".to_owned()),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_bytes: kib.unwrap_or(0) * 1024,
            llc_bytes: llc_bytes(),
            system: format!("{} {}", std::env::consts::OS, release(&kernel)).trim().to_owned(),
            file_system: file_system(dir),
            memory_read_ns,
            day: humantime::format_rfc3339_seconds(SystemTime::now()).to_string().chars().take(10).collect(),
        }
    }

    /// The facts as (name, value).
    pub fn pairs(&self) -> Vec<(String, String)> {
        let pairs: [(&str, String); 11] = [
            ("version", self.version.to_owned()),
            ("commit", self.commit.to_owned()),
            ("profile", self.profile.to_owned()),
            ("processor", self.processor.clone()),
            ("cores", self.cores.to_string()),
            ("memory_bytes", self.memory_bytes.to_string()),
            ("llc_bytes", self.llc_bytes.to_string()),
            ("system", self.system.clone()),
            ("file_system", self.file_system.clone()),
            ("memory_read_ns", self.memory_read_ns.to_string()),
            ("day", self.day.clone()),
        ];
        pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// File system type of a folder; `unknown` if the system does not report it.
pub(crate) fn file_system(dir: &Path) -> String {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let dir = fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
    type_of_mount(&mounts, &dir).unwrap_or("unknown").to_owned()
}

/// Type of the innermost mount that contains `path`, by Linux's list of mounts: the fifth field of
/// a line is the mount point, the first one after a dash its type.
fn type_of_mount<'a>(mounts: &'a str, path: &Path) -> Option<&'a str> {
    let mounted = |line: &'a str| {
        let (place, kind) = line.split_once(" - ")?;
        let place = PathBuf::from(unescaped(place.split(' ').nth(4)?));
        let depth = place.components().count();
        path.starts_with(&place).then_some((depth, kind.split(' ').next()?))
    };
    // Of two mounts at one place the later one is visible; `max_by_key` returns the last.
    mounts.lines().filter_map(mounted).max_by_key(|(depth, _)| *depth).map(|(_, kind)| kind)
}

/// Decodes a mount point: the list has spaces, tabs, line ends and backslashes as octal numbers.
fn unescaped(place: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .into_iter()
        .fold(place.to_owned(), |place, (escaped, character)| place.replace(escaped, character))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_no_build() {
        for (kernel, told) in [("6.18.5-of-somebody+\n", "6.18"), ("5.4", "5.4"), ("", "")] {
            assert_eq!(release(kernel), told);
        }
    }

    #[test]
    fn facts_are_told() {
        let pairs = Facts::here(Path::new("."), 7).pairs();
        assert!(pairs.iter().all(|(name, value)| !name.is_empty() && !value.is_empty()), "{pairs:?}");
    }

    #[test]
    fn a_folder_is_in_the_innermost_mount() {
        let mounts = "27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/a rw\n\
                      25 27 0:23 / /tmp rw - tmpfs tmpfs rw,size=1k\n\
                      26 27 0:24 / /tmp/two\\040words rw - xfs /dev/b rw\n\
                      28 27 0:25 / /tmp rw - ramfs ramfs rw\n\
                      a line that is none\n";
        for (path, kind) in [
            ("/home/a", Some("ext4")),
            ("/tmpfile", Some("ext4")),
            ("/tmp/a", Some("ramfs")),
            ("/tmp/two words/a", Some("xfs")),
            ("relative", None),
        ] {
            assert_eq!(type_of_mount(mounts, Path::new(path)), kind, "{path}");
        }
    }
}
