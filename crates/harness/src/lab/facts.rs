//! What a result's reader must know of the machine and the program.
//!
//! Not here: names of machines or people.

use std::fs;
use std::time::SystemTime;

/// Facts for the head of every result.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The version of this program.
    pub version: &'static str,
    /// The commit it was built from; `unknown` outside a repository.
    pub commit: &'static str,
    /// The profile it was built in: figures of another than `release` are no figures.
    pub profile: &'static str,
    /// The processor's name.
    pub processor: String,
    /// Cores that the process may use.
    pub cores: usize,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// The operating system and its version.
    pub system: String,
    /// The day, as `YYYY-MM-DD`.
    pub day: String,
}

impl Facts {
    /// Of this machine, now. What it does not tell is `unknown` or 0.
    pub fn here() -> Self {
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
            system: format!("{} {}", std::env::consts::OS, kernel.trim()).trim().to_owned(),
            day: humantime::format_rfc3339_seconds(SystemTime::now()).to_string().chars().take(10).collect(),
        }
    }

    /// As (name, value).
    pub fn pairs(&self) -> Vec<(String, String)> {
        let pairs: [(&str, String); 8] = [
            ("version", self.version.to_owned()),
            ("commit", self.commit.to_owned()),
            ("profile", self.profile.to_owned()),
            ("processor", self.processor.clone()),
            ("cores", self.cores.to_string()),
            ("memory_bytes", self.memory_bytes.to_string()),
            ("system", self.system.clone()),
            ("day", self.day.clone()),
        ];
        pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_told() {
        let pairs = Facts::here().pairs();
        assert!(pairs.iter().all(|(name, value)| !name.is_empty() && !value.is_empty()), "{pairs:?}");
    }
}
