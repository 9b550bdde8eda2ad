//! Errors of calls on a table.
//!
//! A corruption error always names file, offset and structure. A file that ends inside a structure
//! is corrupt, not an I/O error; every other failed call of the file system is `Io`.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The result of every fallible call of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Error of a call on a table.
#[derive(Clone, Debug)]
pub enum Error {
    /// A call of the file system failed.
    Io {
        /// The table.
        file: PathBuf,
        /// The failed operation, as a verb: "open", "read", "write".
        op: &'static str,
        /// The file system's error.
        source: Arc<io::Error>,
    },
    /// The bytes differ from what was written, or the file is another one than expected.
    Corruption {
        /// The table.
        file: PathBuf,
        /// Offset of the damaged structure, in bytes.
        offset: u64,
        /// Name of the structure: "header", "footer", "data block", "index partition", ...
        structure: &'static str,
        /// Expected and found.
        detail: String,
    },
    /// The file has a version or uses a feature that this build does not know.
    Unsupported {
        /// The table.
        file: PathBuf,
        /// Name of the version or feature.
        detail: String,
    },
    /// An invalid request: keys out of order, an option out of bounds.
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

    /// Whether the bytes are damaged (as opposed to a failing disk or an invalid call).
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
