//! Process statistics of the system: bytes read and written, resident memory, background work; and
//! the size of a directory.
//!
//! From `/proc`, so on Linux only; elsewhere the figures are 0.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use shamba_workload::CpuTimer;

/// Counters of `/proc/self/io` since the process began.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Io {
    /// `read_bytes`: what the device read.
    pub device_read_bytes: u64,
    /// `write_bytes`: what was sent to be written, pages counted when they become dirty.
    pub device_write_bytes: u64,
    /// `rchar`: what system calls read.
    pub call_read_bytes: u64,
    /// `wchar`: what they wrote.
    pub call_write_bytes: u64,
}

impl Io {
    /// As of now.
    pub fn now() -> Self {
        let field = fields("/proc/self/io");
        Self {
            device_read_bytes: field("read_bytes"),
            device_write_bytes: field("write_bytes"),
            call_read_bytes: field("rchar"),
            call_write_bytes: field("wchar"),
        }
    }

    /// Difference to `before`.
    pub fn since(self, before: Self) -> Self {
        let less = |now: u64, then: u64| now.saturating_sub(then);
        Self {
            device_read_bytes: less(self.device_read_bytes, before.device_read_bytes),
            device_write_bytes: less(self.device_write_bytes, before.device_write_bytes),
            call_read_bytes: less(self.call_read_bytes, before.call_read_bytes),
            call_write_bytes: less(self.call_write_bytes, before.call_write_bytes),
        }
    }
}

/// Resident memory.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Resident {
    /// All of it.
    pub bytes: u64,
    /// Pages of mapped files, this program's own among them.
    pub file_bytes: u64,
    /// The most that it ever was.
    pub peak_bytes: u64,
}

impl Resident {
    /// As of now.
    pub fn now() -> Self {
        let field = fields("/proc/self/status");
        let kib = |name: &str| field(name) << 10;
        Self { bytes: kib("VmRSS"), file_bytes: kib("RssFile"), peak_bytes: kib("VmHWM") }
    }

    /// Difference to `base`.
    pub fn above(self, base: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(base.bytes),
            file_bytes: self.file_bytes.saturating_sub(base.file_bytes),
            peak_bytes: self.peak_bytes.saturating_sub(base.bytes),
        }
    }
}

/// Numbers of a file of `name: number` lines.
fn fields(file: &str) -> impl Fn(&str) -> u64 + use<> {
    let text = fs::read_to_string(file).unwrap_or_default();
    move |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
    }
}

/// Sampling interval.
const LOOK: Duration = Duration::from_millis(100);
/// Consecutive samples that must find the process idle.
const LOOKS_AT_REST: u32 = 5;
/// Maximum share of a core that counts as idle.
const IDLE_SHARE: f64 = 0.03;
/// Longest wait.
const PATIENCE: Duration = Duration::from_secs(900);

/// Waits until the process neither computes nor writes, by the same rule for every engine; returns
/// the time until it became idle.
///
/// # Errors
/// When it does not within [`PATIENCE`].
pub fn wait_for_rest() -> Result<Duration, String> {
    let begin = Instant::now();
    let (mut quiet_since, mut quiet_looks) = (begin, 0);
    while quiet_looks < LOOKS_AT_REST {
        if begin.elapsed() > PATIENCE {
            return Err(format!("still at work after {} s", PATIENCE.as_secs()));
        }
        let (cpu, io, looked) = (CpuTimer::process(), Io::now(), Instant::now());
        std::thread::sleep(LOOK);
        let share = cpu.elapsed().as_secs_f64() / looked.elapsed().as_secs_f64();
        let wrote = Io::now().since(io).call_write_bytes;
        if share < IDLE_SHARE && wrote == 0 {
            quiet_looks += 1;
        } else {
            (quiet_since, quiet_looks) = (Instant::now(), 0);
        }
    }
    Ok(quiet_since - begin)
}

/// The names of the threads that the engine started, and how many of each: what the budget leaves
/// of those asked for.
pub fn thread_names() -> String {
    let mut names: BTreeMap<String, u32> = BTreeMap::new();
    let own = format!("{}", std::process::id());
    for task in fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        if task.file_name().to_str() != Some(&own) {
            let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
            *names.entry(name.trim().to_owned()).or_default() += 1;
        }
    }
    names.into_iter().map(|(name, count)| format!("{count} {name}")).collect::<Vec<_>>().join(", ")
}

/// `O_DIRECT` where Linux has another number than most.
#[cfg(any(target_arch = "aarch64", target_arch = "arm"))]
const DIRECT_FLAG: u32 = 0o200_000;
#[cfg(not(any(target_arch = "aarch64", target_arch = "arm")))]
const DIRECT_FLAG: u32 = 0o40_000;

/// Of the open files below `dir`, how many are read past the page cache: what was granted, not what
/// was asked for.
pub fn direct_files(dir: &Path) -> (u32, u32) {
    let (mut direct, mut all) = (0, 0);
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_path_buf());
    for entry in fs::read_dir("/proc/self/fd").into_iter().flatten().flatten() {
        if !fs::read_link(entry.path()).is_ok_and(|file| file.starts_with(&dir) && file != dir) {
            continue;
        }
        let about =
            fs::read_to_string(Path::new("/proc/self/fdinfo").join(entry.file_name())).unwrap_or_default();
        let flags = about.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = flags.and_then(|octal| u32::from_str_radix(octal.trim(), 8).ok()).unwrap_or(0);
        all += 1;
        direct += u32::from(flags & DIRECT_FLAG != 0);
    }
    (direct, all)
}

/// Bytes that the files below a directory occupy.
pub fn allocated_bytes(dir: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    let of_entry = |entry: fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => allocated_bytes(&entry.path()),
        Ok(metadata) => occupied(&metadata),
        // Merges delete files while this looks.
        Err(_) => 0,
    };
    entries.flatten().map(of_entry).sum()
}

#[cfg(unix)]
fn occupied(metadata: &fs::Metadata) -> u64 {
    use std::os::unix::fs::MetadataExt;
    metadata.blocks() * 512
}

#[cfg(not(unix))]
fn occupied(metadata: &fs::Metadata) -> u64 {
    metadata.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn counters_count() {
        let before = Io::now();
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(dir.path().join("a"), vec![1; 100_000]).expect("written");
        assert!(Io::now().since(before).call_write_bytes >= 100_000);
        assert!(Resident::now().bytes > 0);
        assert!((100_000..300_000).contains(&allocated_bytes(dir.path())));
    }
}
