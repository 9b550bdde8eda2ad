//! The one public error: a kind that says what the caller should do, a context that says what and where.
//!
//! Many internal causes, nine public kinds. A corruption always names file, offset and structure. The
//! cause, where there is one, is in `source()` and is never printed twice.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a caller should do about an [`Error`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Bytes on disk are not what was written. Run `check`; restore or repair.
    Corruption,
    /// The operating system failed a call, or a file is missing.
    Io,
    /// Another process, or this one, holds the database.
    Locked,
    /// The file or the operation is of a version or feature that this build does not know.
    Unsupported,
    /// The disk is full. Writes resume by themselves when space returns.
    NoSpace,
    /// Writes are off: opened read-only, or after a failure that only a reopen can clear.
    ReadOnly,
    /// A write met its deadline while flushes or merges were behind.
    Stalled,
    /// An argument or option is wrong.
    Invalid,
    /// The handle was used after `close`.
    Closed,
}

impl ErrorKind {
    /// The name in messages and in the replies of `batch`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Corruption => "Corruption",
            Self::Io => "Io",
            Self::Locked => "Locked",
            Self::Unsupported => "Unsupported",
            Self::NoSpace => "NoSpace",
            Self::ReadOnly => "ReadOnly",
            Self::Stalled => "Stalled",
            Self::Invalid => "Invalid",
            Self::Closed => "Closed",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Where damage was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    /// The damaged file.
    pub file: PathBuf,
    /// Where in the file, in bytes.
    pub offset: u64,
    /// The structure that holds the damage, such as "data block" or "log frame".
    pub structure: &'static str,
}

/// Why a call failed. Cheap to clone: a failure of the background is given to every later writer.
#[derive(Clone, Debug)]
pub struct Error {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    kind: ErrorKind,
    context: String,
    damage: Option<Damage>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// The result of every fallible call.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn new(kind: ErrorKind, context: impl Into<String>) -> Self {
        Self { inner: Arc::new(Inner { kind, context: context.into(), damage: None, source: None }) }
    }

    pub(crate) fn invalid(context: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, context)
    }

    pub(crate) fn closed() -> Self {
        Self::new(ErrorKind::Closed, "the database is closed")
    }

    /// An operating-system error while doing `what` to `path`. No space becomes [`ErrorKind::NoSpace`]; a
    /// file or directory that may not be created, [`ErrorKind::ReadOnly`] (one that may not be read stays
    /// [`ErrorKind::Io`]).
    pub(crate) fn io(what: &str, path: &Path, source: io::Error) -> Self {
        let kind = match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::NoSpace,
            io::ErrorKind::ReadOnlyFilesystem => ErrorKind::ReadOnly,
            io::ErrorKind::PermissionDenied if what.starts_with("create") => ErrorKind::ReadOnly,
            _ => ErrorKind::Io,
        };
        Self::with_source(kind, format!("{what} {}", path.display()), source)
    }

    pub(crate) fn with_source(
        kind: ErrorKind,
        context: impl Into<String>,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        let inner = Inner { kind, context: context.into(), damage: None, source: Some(source.into()) };
        Self { inner: Arc::new(inner) }
    }

    pub(crate) fn corruption(
        file: &Path,
        offset: u64,
        structure: &'static str,
        detail: impl fmt::Display,
    ) -> Self {
        let context = format!("{}: damaged {structure} at offset {offset}: {detail}", file.display());
        let damage = Some(Damage { file: file.to_path_buf(), offset, structure });
        Self { inner: Arc::new(Inner { kind: ErrorKind::Corruption, context, damage, source: None }) }
    }

    /// What to do about it.
    pub fn kind(&self) -> ErrorKind {
        self.inner.kind
    }

    /// What went wrong and where, without the cause.
    pub fn context(&self) -> &str {
        &self.inner.context
    }

    /// The damaged place, for [`ErrorKind::Corruption`].
    pub fn damage(&self) -> Option<&Damage> {
        self.inner.damage.as_ref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.inner.context)?;
        // The cause is part of the line because most callers print only the top; `source` still has it.
        match &self.inner.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.inner.source.as_ref().and_then(|source| source.source())
    }
}

impl Error {
    /// As the conversion, of an error that somebody else keeps; its cause is told in words.
    pub(crate) fn from_table(error: &shamba_table::Error) -> Self {
        use shamba_table::Error as Table;
        match error {
            Table::Corruption { file, offset, structure, detail } => {
                Self::corruption(file, *offset, structure, detail)
            }
            Table::Unsupported { file, detail } => {
                Self::new(ErrorKind::Unsupported, format!("{}: {detail}", file.display()))
            }
            Table::Io { source, .. } => Self::new(ErrorKind::Io, format!("{error}: {source}")),
            Table::Invalid(detail) => Self::invalid(detail),
        }
    }
}

impl From<shamba_table::Error> for Error {
    fn from(error: shamba_table::Error) -> Self {
        use shamba_table::Error as Table;
        match error {
            Table::Io { file, op, source } => Self::io(op, &file, source),
            Table::Corruption { file, offset, structure, detail } => {
                Self::corruption(&file, offset, structure, detail)
            }
            Table::Unsupported { file, detail } => {
                Self::new(ErrorKind::Unsupported, format!("{}: {detail}", file.display()))
            }
            Table::Invalid(detail) => Self::invalid(detail),
        }
    }
}
