//! The report of a repair: damage, counts, and losses as ranges of keys.

use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::admin::verify::Problem;
use crate::error::Error;
use shamba_tree::version::KeyRange;

/// Kind of data that is lost in a range of keys.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Loss {
    /// Entries: a key may be missing, have an older value, or reappear after its deletion.
    Entries,
    /// Deletions: the entries that they deleted reappear, if they still existed.
    Deletions,
    /// The last writes, of any key.
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

/// A range of keys with lost data.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct LostRange {
    /// The keyspace; `None` if it is unknown.
    pub keyspace: Option<String>,
    /// The first key of the range.
    pub lower: Vec<u8>,
    /// The first key after the range; `None`: no end.
    pub upper: Option<Vec<u8>>,
    /// The kind of data lost.
    pub loss: Loss,
    /// The damaged file.
    pub file: PathBuf,
    /// Offset of the damage in the file, in bytes.
    pub offset: u64,
    /// Description of the damage.
    pub detail: String,
}

impl LostRange {
    /// Whether data of `key` may be lost.
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

/// Result of a repair.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct RepairReport {
    /// All damage that was found, as in a check.
    pub problems: Vec<Problem>,
    /// The losses. If empty, the new database holds the same data as the old one.
    pub lost: Vec<LostRange>,
    /// Damage that affects no answer: damaged filters, log tails that were never promised,
    /// settings; and the keyspaces whose merge operator the next open must be given.
    pub warnings: Vec<String>,
    /// Whether a complete manifest stated which tables are in use.
    pub manifest: bool,
    /// Keyspaces of the new database.
    pub keyspaces: u64,
    /// Tables of which at least a part was read.
    pub tables: u64,
    /// Entries read from them: puts, deletes and operands, including older versions.
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

    /// Adds damage, without a lost range.
    pub(super) fn damaged(&mut self, path: &Path, error: &Error, affected: impl Into<String>) {
        self.problems.push(Problem::of(path, error, affected.into()));
    }

    /// Adds a warning: damage to a filter, or to another structure that no answer depends on.
    pub(super) fn warn(&mut self, warning: String) {
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// Adds a lost range, unless it is empty, with the damage that caused the loss.
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

    /// Removes duplicates, and sorts the losses by keyspace and key.
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
