//! The error of reading and changing a tree.
//!
//! Most are errors of a file ([`FileError`]). The others say that a view is no longer to be had.

use std::fmt;

use shamba_env::FileError;

/// The result of every fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A call on a tree failed. One pointer wide, since every lookup returns a result of it.
#[derive(Clone, Debug)]
pub struct Error(Box<Cause>);

/// Why a call on a tree failed.
#[derive(Clone, Debug)]
pub enum Cause {
    /// A file failed or is damaged, or an argument is wrong.
    File(FileError),
    /// The entry is of a kind that this build does not know.
    Unsupported(String),
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
        FileError::Invalid(detail.into()).into()
    }

    /// An entry of a kind that this build does not know.
    pub(crate) fn unknown_entry(detail: impl Into<String>) -> Self {
        Cause::Unsupported(detail.into()).into()
    }

    /// Why the call failed.
    pub fn cause(&self) -> &Cause {
        &self.0
    }

    /// Why the call failed.
    pub fn into_cause(self) -> Cause {
        *self.0
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
            Cause::Unsupported(detail) => f.write_str(detail),
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
