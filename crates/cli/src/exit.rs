//! Exit of the command: one failure type, one table of exit codes.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | ok |
//! | 1 | not found (`get`), or a demo whose answers were wrong |
//! | 2 | corruption: found by `check`, or met on the way; a `repair` that could read nothing |
//! | 3 | input or output failed; no such database; a position of `changes` that is not kept |
//! | 4 | the database is locked |
//! | 5 | a file of a newer or unknown version |
//! | 6 | no space |
//! | 7 | the directory, or the database, cannot be written |
//! | 8 | a write stalled past its deadline |
//! | 64 | wrong usage or option |
//! | 65 | wrong input data |

use std::fmt;
use std::io;
use std::path::Path;

use shamba::ErrorKind;
use shamba_workload::trace::TraceError;

/// The exit code of corruption.
pub const CORRUPTION: u8 = 2;
/// The exit code of wrong usage, and of what the engine calls `Invalid`.
pub const USAGE: u8 = 64;
/// The exit code of wrong input data.
pub const BAD_INPUT: u8 = 65;

/// Failure of a command.
#[derive(Debug)]
pub enum Failure {
    /// An error of the engine.
    Engine(shamba::Error),
    /// An error of the engine, with a hint for the user.
    Advised(shamba::Error, String),
    /// The command line is invalid.
    Usage(String),
    /// Input data (lines of `load`, `batch` or a trace) is malformed.
    Data(String),
    /// A file outside the database could not be read or written.
    Io(String, io::Error),
    /// There is no database to read.
    Missing(String),
    /// Already reported on standard output or error; only the exit code remains.
    Reported(u8),
    /// The reader of standard output has closed the pipe: the command stops without a message.
    PipeClosed,
}

impl Failure {
    /// An operating-system error while doing `what` (a phrase with the file's name).
    pub fn io(what: impl Into<String>, error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::PipeClosed
        } else {
            Self::Io(what.into(), error)
        }
    }

    /// There is no database at `path`; `instead` says what is there.
    pub fn missing(path: &Path, instead: &str) -> Self {
        Self::Missing(format!("no database at {}: {instead}", path.display()))
    }

    /// The verdict of a command, after its report was printed, or could not be: if nobody reads the
    /// report, the exit code still tells what was found.
    ///
    /// # Errors
    /// That of `verdict`, or of printing, but for a closed pipe.
    pub fn after_report(printed: Result<(), Self>, verdict: Result<(), Self>) -> Result<(), Self> {
        match printed {
            Ok(()) | Err(Self::PipeClosed) => verdict,
            failed => failed,
        }
    }

    /// A hint for the user, where the message does not contain one.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Advised(_, advice) => Some(advice),
            Self::Engine(error) if is_without_operator(error) => Some(HINT_OPERATOR),
            Self::Engine(error) if is_without_filter(error) => Some(HINT_FILTER),
            Self::Engine(error) => hint_of(error.kind()),
            Self::Missing(_) => Some(
                "put, load, batch, bench, demo and merge with --merge-operator create a database; check the path",
            ),
            _ => None,
        }
    }

    /// The exit code.
    pub fn code(&self) -> u8 {
        match self {
            Self::Engine(error) | Self::Advised(error, _) => code_of(error),
            Self::Usage(_) => USAGE,
            Self::Data(_) => BAD_INPUT,
            Self::Io(_, error) => code_of_io(error.kind()),
            Self::Missing(_) => 3,
            Self::Reported(code) => *code,
            Self::PipeClosed => 0,
        }
    }
}

/// Hint for a key that only the program with the merge operator's code can read.
const HINT_OPERATOR: &str = "the operator is code of the program that wrote these operands, and this command has only the \
    built-in ones (shamba.*); keys without operands can be read";

/// Whether the key has operands of an operator of the user. A missing built-in one is of a newer
/// version.
fn is_without_operator(error: &shamba::Error) -> bool {
    let text = error.chain().to_string();
    error.kind() == ErrorKind::Unsupported
        && text.contains("has operands of the merge operator")
        && !text.contains("operator \"shamba.")
}

/// Hint for a keyspace whose compaction filter is code of a program.
const HINT_FILTER: &str = "the filter is code of the program that made this keyspace, and only that program can compact it; \
    reads and writes work";

/// Whether the call needs a compaction filter that this command does not have.
fn is_without_filter(error: &shamba::Error) -> bool {
    error.kind() == ErrorKind::Unsupported
        && error.chain().to_string().contains("was not given its compaction filter")
}

/// Exit code for an error of the engine.
pub fn code_of(error: &shamba::Error) -> u8 {
    match error.kind() {
        ErrorKind::Corruption => CORRUPTION,
        ErrorKind::Locked => 4,
        ErrorKind::Unsupported => 5,
        ErrorKind::NoSpace => 6,
        ErrorKind::ReadOnly => 7,
        ErrorKind::Stalled => 8,
        ErrorKind::Invalid => USAGE,
        ErrorKind::Io | ErrorKind::NotFound | ErrorKind::Gone => 3,
        // `Closed` cannot reach the command; kinds of later versions count as I/O failures.
        _ => 3,
    }
}

/// A hint for errors of this kind.
fn hint_of(kind: ErrorKind) -> Option<&'static str> {
    match kind {
        ErrorKind::Corruption => Some(
            "`shamba check DB` lists all damage; `shamba repair DB --out NEW` writes the readable data to a new database",
        ),
        ErrorKind::Unsupported => Some(
            "a newer version of Shamba wrote this file; use that version or a later one (nothing was changed)",
        ),
        ErrorKind::NoSpace => {
            Some("free some space on that file system and run the command again; data stored earlier is kept")
        }
        ErrorKind::ReadOnly => {
            Some("the database is not writable; read commands (get, scan, dump, ...) still work")
        }
        ErrorKind::Stalled => {
            Some("writes exceed the compaction throughput of the device; wait for compactions and try again")
        }
        _ => None,
    }
}

fn code_of_io(kind: io::ErrorKind) -> u8 {
    match kind {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => 6,
        io::ErrorKind::ReadOnlyFilesystem => 7,
        _ => 3,
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Engine(error) | Self::Advised(error, _) => error.chain().fmt(f),
            Self::Usage(text) | Self::Data(text) | Self::Missing(text) => f.write_str(text),
            Self::Io(what, error) => write!(f, "{what}: {error}"),
            Self::Reported(_) | Self::PipeClosed => Ok(()),
        }
    }
}

impl From<shamba::Error> for Failure {
    fn from(error: shamba::Error) -> Self {
        Self::Engine(error)
    }
}

/// Standard output is the only plain I/O without a file name.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::io("writing to standard output", error)
    }
}

impl From<shamba_workload::Error> for Failure {
    fn from(error: shamba_workload::Error) -> Self {
        match error {
            shamba_workload::Error::Options(text) => Self::Usage(text),
            shamba_workload::Error::Engine(error) => Self::Engine(error),
            shamba_workload::Error::Trace(TraceError::Io(path, error)) => {
                Self::io(path.display().to_string(), error)
            }
            shamba_workload::Error::Trace(error) => Self::Data(error.to_string()),
            shamba_workload::Error::File(what, error) => Self::io(what, error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_follow_the_table() {
        let io = |kind: io::ErrorKind| Failure::io("x", kind.into()).code();
        assert_eq!(io(io::ErrorKind::NotFound), 3);
        assert_eq!(io(io::ErrorKind::StorageFull), 6);
        assert_eq!(io(io::ErrorKind::ReadOnlyFilesystem), 7);
        assert_eq!(io(io::ErrorKind::BrokenPipe), 0);
        assert_eq!(Failure::Usage(String::new()).code(), 64);
        assert_eq!(Failure::Data(String::new()).code(), 65);
        assert_eq!(Failure::missing(Path::new("/x"), "nothing").code(), 3);
        assert_eq!(Failure::missing(Path::new("/x"), "nothing").to_string(), "no database at /x: nothing");
    }

    #[test]
    fn errors_of_the_engine_are_told_with_their_causes() {
        let dir = tempfile::tempdir().expect("a directory");
        let refused = |path: &Path| Failure::from(shamba::Db::open_read_only(path).expect_err("no database"));
        let missing = refused(dir.path());
        assert_eq!(missing.code(), 3);
        assert!(missing.to_string().contains("no database at"), "{missing}");
        let file = dir.path().join("file");
        std::fs::write(&file, "x").expect("written");
        let not_a_directory = refused(&file);
        let cause = std::fs::read_dir(&file).expect_err("a file").to_string();
        assert_eq!(not_a_directory.code(), 3);
        assert!(not_a_directory.to_string().ends_with(&format!(": {cause}")), "{not_a_directory}");
    }
}
