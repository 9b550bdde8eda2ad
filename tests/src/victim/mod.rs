//! The real command as a victim: `shamba batch` fed through a pipe, killed, traced and starved, and
//! the check of its database afterwards. Suites F and M.
//!
//! The parent sends lines and keeps the replies, so the list of acknowledged commits is outside the
//! victim. A life ([`life`]) is one process from its start to its end. Its requests ([`script`])
//! and its options ([`options`]) come from a seed, so that a run can be reproduced, except for the
//! scheduling of processes. After each life the parent reads the database and compares it with its
//! [`book`].
//!
//! Three things happen to lives: they are killed at any moment ([`kill`]), fail or die at their
//! n-th system call ([`syscalls`]), or lack a resource ([`scarce`]).
//!
//! Not here: power loss (a kill preserves everything that was passed to the operating system;
//! [`crate::crash`] tests power loss).

pub mod book;
pub mod kill;
pub mod life;
pub mod options;
pub mod scarce;
pub mod script;
pub mod syscalls;

use std::path::{Path, PathBuf};

/// A directory for files that need no disk: a kill does not test one, and syncs of files in memory
/// are free.
///
/// # Errors
/// No directory can be created.
pub fn place(name: &str) -> Result<Place, String> {
    let base = ["/dev/shm", "/tmp"].into_iter().map(Path::new).find(|base| base.is_dir());
    let base = base.map_or_else(std::env::temp_dir, Path::to_path_buf);
    let path = base.join(format!("shamba-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(Place { path })
}

/// A directory that is removed when this value is dropped.
#[derive(Debug)]
pub struct Place {
    path: PathBuf,
}

impl Place {
    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // A directory that could not be removed is in memory, or in the temporary directory.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
