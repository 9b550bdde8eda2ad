//! Why a call on a table failed.
//!
//! Corruption names file, offset and structure, always. A file that ends inside a structure it promised is
//! corrupt, not an I/O error; every other failed call of the file system is `Io`.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The result of every fallible call of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call on a table failed.
#[derive(Clone, Debug)]
pub enum Error {
    /// A call of the file system failed.
    Io {
        /// The table.
        file: PathBuf,
        /// What was being done to it, as a verb: "open", "read", "write".
        op: &'static str,
        /// What the file system said.
        source: Arc<io::Error>,
    },
    /// Bytes are not what was written, or the file is another one than expected.
    Corruption {
        /// The table.
        file: PathBuf,
        /// Where the damaged structure starts, in bytes.
        offset: u64,
        /// Which structure: "header", "footer", "data block", "index partition", ...
        structure: &'static str,
        /// Expected and found.
        detail: String,
    },
    /// The file is of a version or uses a feature that this build does not know.
    Unsupported {
        /// The table.
        file: PathBuf,
        /// Which one.
        detail: String,
    },
    /// The caller asked for what cannot be: keys out of order, an option out of bounds.
    Invalid(String),
}

impl Error {
    pub(crate) fn io(file: &Path, op: &'static str, source: io::Error) -> Self {
        Self::Io { file: file.to_path_buf(), op, source: Arc::new(source) }
    }

    pub(crate) fn corruption(
        file: &Path,
        offset: u64,
        structure: &'static str,
        detail: impl Into<String>,
    ) -> Self {
        Self::Corruption { file: file.to_path_buf(), offset, structure, detail: detail.into() }
    }

    pub(crate) fn unsupported(file: &Path, detail: impl Into<String>) -> Self {
        Self::Unsupported { file: file.to_path_buf(), detail: detail.into() }
    }

    /// Whether the bytes are damaged (as against a failing disk or a wrong call).
    pub fn is_corruption(&self) -> bool {
        matches!(self, Self::Corruption { .. })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { file, op, .. } => write!(f, "{op} {}", file.display()),
            Self::Corruption { file, offset, structure, detail } => {
                write!(f, "{}: damaged {structure} at offset {offset}: {detail}", file.display())
            }
            Self::Unsupported { file, detail } => write!(f, "{}: {detail}", file.display()),
            Self::Invalid(detail) => f.write_str(detail),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source.as_ref()),
            _ => None,
        }
    }
}
