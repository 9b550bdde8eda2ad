//! Errors of workloads and of traces.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Reason why a workload could not run.
#[derive(Debug)]
pub enum Error {
    /// An option is wrong; the text says which.
    Options(String),
    /// The engine failed.
    Engine(shamba::Error),
    /// A trace is malformed, or cannot be read.
    Trace(TraceError),
    /// A file could not be written: the action, and its error.
    File(String, io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Options(text) => f.write_str(text),
            Self::Engine(error) => error.chain().fmt(f),
            Self::Trace(error) => error.fmt(f),
            Self::File(what, error) => write!(f, "{what}: {error}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            // Their messages contain the causes.
            Self::Options(_) | Self::Trace(_) | Self::Engine(_) => None,
            Self::File(_, error) => Some(error),
        }
    }
}

impl From<TraceError> for Error {
    fn from(error: TraceError) -> Self {
        Self::Trace(error)
    }
}

impl From<shamba::Error> for Error {
    fn from(error: shamba::Error) -> Self {
        Self::Engine(error)
    }
}

/// Reason why a trace could not be read.
#[derive(Debug)]
pub enum TraceError {
    /// The file could not be opened or read.
    Io(PathBuf, io::Error),
    /// A line is malformed.
    Line {
        /// The file.
        path: PathBuf,
        /// Line number, from 1.
        line: u64,
        /// The problem.
        reason: String,
    },
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Line { path, line, reason } => write!(f, "{}, line {line}: {reason}", path.display()),
        }
    }
}

impl std::error::Error for TraceError {}
