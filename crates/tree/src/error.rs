//! The error of reading and changing a tree.
//!
//! Most are errors of a file ([`FileError`]). The others say that a view is no longer to be had.

use std::fmt;
use std::io;
use std::path::Path;

use shamba_env::FileError;

/// The result of every fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A call on a tree failed. One pointer wide, since every lookup returns a result of it.
#[derive(Clone, Debug)]
pub struct Error(Box<Cause>);

/// Why a call on a tree failed.
#[derive(Clone, Debug)]
pub enum Cause {
    /// A file failed or is damaged.
    File(FileError),
    /// The entry is of a kind that this build does not know.
    Unsupported(String),
    /// An argument is wrong, or names what does not exist any more.
    Invalid(String),
    /// The database was closed.
    Closed,
}

impl Error {
    /// The database was closed.
    pub fn closed() -> Self {
        Cause::Closed.into()
    }

    /// A wrong argument, or one that names what does not exist any more.
    pub fn invalid(detail: impl Into<String>) -> Self {
        Cause::Invalid(detail.into()).into()
    }

    /// An entry of a kind that this build does not know.
    pub(crate) fn unknown_entry(detail: impl Into<String>) -> Self {
        Cause::Unsupported(detail.into()).into()
    }

    /// Why the call failed.
    pub fn cause(&self) -> &Cause {
        &self.0
    }

    /// Whether bytes of a file are damaged.
    pub fn is_corruption(&self) -> bool {
        matches!(self.cause(), Cause::File(error) if error.is_corruption())
    }

    /// Whether a file or an entry needs a newer build.
    pub fn is_unsupported(&self) -> bool {
        matches!(self.cause(), Cause::Unsupported(_) | Cause::File(FileError::Unsupported { .. }))
    }

    /// The file that failed or is damaged.
    pub fn file(&self) -> Option<&Path> {
        match self.cause() {
            Cause::File(error) => error.file(),
            _ => None,
        }
    }

    /// Why the call failed.
    pub fn into_cause(self) -> Cause {
        *self.0
    }

    /// A failed call of the file system while doing `op` to `file`.
    pub(crate) fn io(op: &'static str, file: &Path, source: io::Error) -> Self {
        FileError::io(file, op, source).into()
    }

    /// A version or feature of `file` that this build does not know.
    pub(crate) fn unsupported(file: &Path, detail: impl Into<String>) -> Self {
        FileError::unsupported(file, detail).into()
    }

    /// Damage of `structure` at `offset` of `file`.
    pub(crate) fn corruption(
        file: &Path,
        offset: u64,
        structure: &'static str,
        detail: impl Into<String>,
    ) -> Self {
        FileError::corruption(file, offset, structure, detail).into()
    }
}

impl From<Cause> for Error {
    fn from(cause: Cause) -> Self {
        Self(Box::new(cause))
    }
}

impl From<FileError> for Error {
    fn from(error: FileError) -> Self {
        Cause::File(error).into()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cause() {
            Cause::File(error) => error.fmt(f),
            Cause::Unsupported(detail) | Cause::Invalid(detail) => f.write_str(detail),
            Cause::Closed => f.write_str("the database is closed"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self.cause() {
            Cause::File(error) => error.source(),
            _ => None,
        }
    }
}
