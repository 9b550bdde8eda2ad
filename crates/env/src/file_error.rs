//! The error of every crate that reads or writes files of its own format.
//!
//! Corruption always names file, offset and structure. If a file ends inside a structure whose
//! length it states, that is corruption. Every other failed call of the file system is `Io`.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Error numbers with which a device says that it cannot read bytes: EIO; on Windows `ERROR_CRC`,
/// `ERROR_SECTOR_NOT_FOUND`, `ERROR_READ_FAULT`, `ERROR_IO_DEVICE` and
/// `ERROR_DISK_OPERATION_FAILED`.
const UNREADABLE: &[i32] = if cfg!(windows) { &[23, 27, 30, 1117, 1127] } else { &[5] };

/// Error of an operation on a file whose format the caller knows.
#[derive(Clone, Debug)]
pub enum FileError {
    /// A call of the file system failed.
    Io {
        /// The file.
        file: PathBuf,
        /// The failed operation, as a verb: "open", "append to", "read data block at offset 4096
        /// of".
        op: Cow<'static, str>,
        /// The file system's error.
        source: Arc<io::Error>,
    },
    /// The bytes are not those that were written, or the file is not the expected one.
    Corruption {
        /// The file.
        file: PathBuf,
        /// Where the damaged structure starts, in bytes.
        offset: u64,
        /// The damaged structure: "header", "footer", "data block", "index partition", ...
        structure: &'static str,
        /// Expected and found.
        detail: String,
    },
    /// The file is of a version or uses a feature that this build does not know.
    Unsupported {
        /// The file.
        file: PathBuf,
        /// The version or feature.
        detail: String,
    },
    /// An argument is wrong: keys out of order, an option out of bounds.
    Invalid(String),
}

impl FileError {
    /// A failed call of the file system while doing `op` to `file`.
    pub fn io(file: &Path, op: impl Into<Cow<'static, str>>, source: io::Error) -> Self {
        Self::Io { file: file.to_path_buf(), op: op.into(), source: Arc::new(source) }
    }

    /// Damage of `structure` at `offset` of `file`.
    pub fn corruption(file: &Path, offset: u64, structure: &'static str, detail: impl Into<String>) -> Self {
        Self::Corruption { file: file.to_path_buf(), offset, structure, detail: detail.into() }
    }

    /// A version or feature of `file` that this build does not know.
    pub fn unsupported(file: &Path, detail: impl Into<String>) -> Self {
        Self::Unsupported { file: file.to_path_buf(), detail: detail.into() }
    }

    /// The error and its cause, joined by `": "`.
    pub fn chain(&self) -> String {
        match self {
            Self::Io { source, .. } => format!("{self}: {source}"),
            _ => self.to_string(),
        }
    }

    /// The file; `None` for a wrong argument.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::Io { file, .. } | Self::Corruption { file, .. } | Self::Unsupported { file, .. } => {
                Some(file)
            }
            Self::Invalid(_) => None,
        }
    }

    /// Whether the disk or the quota is full.
    pub fn is_no_space(&self) -> bool {
        let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
        matches!(self, Self::Io { source, .. } if full.contains(&source.kind()))
    }

    /// Whether the device could not read bytes that it has: another read of the file may succeed.
    pub fn is_unreadable(&self) -> bool {
        let code = |source: &io::Error| source.raw_os_error().is_some_and(|code| UNREADABLE.contains(&code));
        matches!(self, Self::Io { source, .. } if code(source))
    }

    /// Whether the error is corruption, and not a failed call or a wrong argument.
    pub fn is_corruption(&self) -> bool {
        matches!(self, Self::Corruption { .. })
    }
}

impl fmt::Display for FileError {
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

impl std::error::Error for FileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source.as_ref()),
            _ => None,
        }
    }
}
