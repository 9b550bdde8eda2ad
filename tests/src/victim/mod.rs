//! The real command as a victim: `shamba batch` fed through a pipe, killed, traced, starved, and what must be there
//! afterwards. Suites F and M.
//!
//! The parent sends lines and keeps the replies; so what is acknowledged is known to it alone, never to the victim.
//! A life ([`life`]) is one process from its start to its end. What it was asked ([`script`]) and how it was started
//! ([`options`]) come from a seed, so that a run can be had again, but for the moments at which processes are
//! scheduled. After each life the parent reads the database and holds it to its [`book`].
//!
//! Three things are done to lives: they are killed at any moment ([`kill`]), fail or die at their n-th system call
//! ([`syscalls`]), or have too little of something ([`scarce`]).
//!
//! Not here: power loss (a kill leaves what was handed to the operating system; [`crate::crash`] takes the rest).

pub mod book;
pub mod kill;
pub mod life;
pub mod options;
pub mod scarce;
pub mod script;
pub mod syscalls;

use std::path::{Path, PathBuf};

/// A directory for files that need no disk: a kill does not test one, and syncs of files in memory cost nothing.
///
/// # Errors
/// When none can be made.
pub fn place(name: &str) -> Result<Place, String> {
    let base = ["/dev/shm", "/tmp"].into_iter().map(Path::new).find(|base| base.is_dir());
    let base = base.map_or_else(std::env::temp_dir, Path::to_path_buf);
    let path = base.join(format!("shamba-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(Place { path })
}

/// A directory that goes with this value.
#[derive(Debug)]
pub struct Place {
    path: PathBuf,
}

impl Place {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // What could not be removed is in memory, and goes with the machine.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
