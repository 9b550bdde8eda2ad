//! What a repair tells: damage, what was kept, and what is lost, as ranges of keys.

use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::verify::Problem;
use shamba_tree::version::KeyRange;

/// What of a range of keys is lost.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Loss {
    /// Entries: a key may be missing, have an older value, or be back although it was deleted.
    Entries,
    /// Deletes: what they deleted is back, as far as it was still there.
    Deletions,
    /// The last writes, to any key.
    Writes,
}

impl Loss {
    /// The name in output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Entries => "entries",
            Self::Deletions => "deletions",
            Self::Writes => "writes",
        }
    }
}

/// Keys of which something is lost.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct LostRange {
    /// The keyspace; `None`: it may be any.
    pub keyspace: Option<String>,
    /// First key inside.
    pub lower: Vec<u8>,
    /// First key beyond; `None`: no end.
    pub upper: Option<Vec<u8>>,
    /// What of it is lost.
    pub loss: Loss,
    /// The damaged file.
    pub file: PathBuf,
    /// Where in it, in bytes.
    pub offset: u64,
    /// What is wrong there.
    pub detail: String,
}

impl LostRange {
    /// Whether something of `key` may be lost.
    pub fn contains(&self, keyspace: &str, key: &[u8]) -> bool {
        self.keyspace.as_ref().is_none_or(|own| own == keyspace)
            && self.lower.as_slice() <= key
            && self.upper.as_ref().is_none_or(|upper| key < upper.as_slice())
    }
}

impl fmt::Display for LostRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.loss.name();
        match &self.keyspace {
            Some(keyspace) => write!(f, "{name} of keyspace \"{}\"", keyspace.escape_default())?,
            None => write!(f, "{name} of any keyspace")?,
        }
        write!(f, ", keys from \"{}\"", self.lower.escape_ascii())?;
        if let Some(upper) = &self.upper {
            write!(f, " to before \"{}\"", upper.escape_ascii())?;
        }
        write!(f, ": {}", self.detail)
    }
}

/// What a repair did.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct RepairReport {
    /// All damage that was met, as a check tells it.
    pub problems: Vec<Problem>,
    /// What is lost. Empty: the new database holds what the old one did.
    pub lost: Vec<LostRange>,
    /// What is wrong but takes no answer away: damaged filters, log tails that were never promised, settings.
    pub warnings: Vec<String>,
    /// Whether the manifest told which tables count.
    pub manifest: bool,
    /// Keyspaces of the new database.
    pub keyspaces: u64,
    /// Tables that something was read of.
    pub tables: u64,
    /// Entries read from them: puts and deletes, older versions too.
    pub entries_read: u64,
    /// Operations replayed from logs.
    pub log_operations: u64,
    /// Entries written to the new database.
    pub entries_written: u64,
}

impl RepairReport {
    /// Whether nothing is lost.
    pub fn is_complete(&self) -> bool {
        self.lost.is_empty()
    }

    /// Adds damage by itself.
    pub(super) fn damaged(&mut self, path: &Path, error: &Error, affected: impl Into<String>) {
        self.problems.push(Problem::of(path, error, affected.into()));
    }

    /// Adds damage to a filter, or to anything else that no answer depends on.
    pub(super) fn warn(&mut self, warning: String) {
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// Adds a range, if it holds any key, and the damage that it is lost by.
    pub(super) fn lose(
        &mut self,
        keyspace: Option<&str>,
        range: Option<KeyRange>,
        loss: Loss,
        path: &Path,
        error: &Error,
    ) {
        let Some(KeyRange { lower, upper }) = range.filter(|range| !range.is_empty()) else { return };
        let (file, offset) = match error.damage() {
            Some(damage) => (damage.file.clone(), damage.offset),
            None => (path.to_path_buf(), 0),
        };
        let lost = LostRange {
            keyspace: keyspace.map(str::to_owned),
            lower: lower.to_vec(),
            upper: upper.map(|upper| upper.to_vec()),
            loss,
            file,
            offset,
            detail: error.chain().to_string(),
        };
        self.lost.push(lost);
    }

    /// Takes out what is said twice, and sorts by place in the keys.
    pub(super) fn tidy(&mut self) {
        let mut seen = HashSet::new();
        self.lost.retain(|lost| seen.insert(lost.clone()));
        self.lost.sort_by(|a, b| {
            let key = |lost: &LostRange| (lost.keyspace.clone(), lost.lower.clone(), lost.upper.clone());
            key(a).cmp(&key(b))
        });
        let mut seen = HashSet::new();
        self.problems
            .retain(|problem| seen.insert((problem.file.clone(), problem.offset, problem.structure.clone())));
    }
}
