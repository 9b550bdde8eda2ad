//! The one public error: a kind that tells the caller how to react, and a context that says what
//! failed and where.
//!
//! Many internal causes map to twelve public kinds. A corruption always names file, offset and
//! structure. `Display` prints the context alone; the cause, if there is one, is `source()`. So a
//! program that prints the chain of sources prints nothing twice. [`Error::chain`] and `Debug`
//! print the context and all causes.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use shamba_env::FileError;
use shamba_tree::version::manifest::TornEdit;

/// Kind of an [`Error`], by how a caller should react.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Bytes on disk differ from those written. Run `check`; restore or repair.
    Corruption,
    /// A system call failed, or a file of the database is missing.
    Io,
    /// There is no database at the path: the directory does not exist, or contains none.
    NotFound,
    /// Another process, or another handle of this one, has the database open.
    Locked,
    /// The file or operation needs a version or feature that this build does not have.
    Unsupported,
    /// The disk is full. Writes resume automatically when space is available, unless
    /// [`Durability::Buffered`](crate::Durability::Buffered) writes were in memory: then they are
    /// off.
    NoSpace,
    /// Writes are off: the database was opened read-only, or a failure disabled them until a
    /// reopen.
    ReadOnly,
    /// Flushes or compactions are behind: a write reached its deadline, or a call that waits for
    /// background work saw no progress for `wait-timeout`.
    Stalled,
    /// An argument or option is wrong.
    Invalid,
    /// Another write has changed what a transaction depends on: begin it again, as
    /// [`Db::transact`](crate::Db::transact) does. [`Error::conflict`] names the key.
    Conflict,
    /// The changes after a position are not kept any more, or some before it were lost in a crash
    /// ([`Db::changes_since`](crate::Db::changes_since)): copy the database again.
    Gone,
    /// The handle was used after `close`.
    Closed,
}

impl ErrorKind {
    /// The name in messages and in the replies of `batch`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Corruption => "Corruption",
            Self::Io => "Io",
            Self::NotFound => "NotFound",
            Self::Locked => "Locked",
            Self::Unsupported => "Unsupported",
            Self::NoSpace => "NoSpace",
            Self::ReadOnly => "ReadOnly",
            Self::Stalled => "Stalled",
            Self::Invalid => "Invalid",
            Self::Conflict => "Conflict",
            Self::Gone => "Gone",
            Self::Closed => "Closed",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Location of damage.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    /// The damaged file.
    pub file: PathBuf,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Structure that contains the damage, such as "data block" or "log frame".
    pub structure: &'static str,
}

/// A key that a transaction depended on and another write has changed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Conflict {
    /// Name of the keyspace; empty if it was dropped.
    pub keyspace: String,
    /// The key that was written. If a range that was read or deleted has changed, a key of it that
    /// was written, or the first key of the part that was deleted.
    pub key: Vec<u8>,
    /// False if a table may hold such a change, and was not read.
    pub(crate) is_proved: bool,
}

/// Failure of a call. Cheap to clone: a background failure is returned to every later writer.
///
/// `Display` prints what failed and where. The cause is [`source`](StdError::source): the
/// [`io::Error`] of a failed system call, or the earlier error after which writes are off.
/// [`Error::chain`] prints both. So does `Debug`, after the kind, because `unwrap` and `main` print
/// `Debug`.
///
/// It converts into an [`io::Error`], which keeps it as its inner error.
#[derive(Clone)]
pub struct Error {
    inner: Arc<Inner>,
}

struct Inner {
    kind: ErrorKind,
    context: String,
    damage: Option<Damage>,
    conflict: Option<Conflict>,
    /// The file of a failed call.
    file: Option<PathBuf>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

/// The result of every fallible call.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn new(kind: ErrorKind, context: impl Into<String>) -> Self {
        Self {
            inner: Arc::new(Inner {
                kind,
                context: context.into(),
                damage: None,
                conflict: None,
                file: None,
                source: None,
            }),
        }
    }

    pub(crate) fn invalid(context: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, context)
    }

    pub(crate) fn closed() -> Self {
        Self::new(ErrorKind::Closed, "the database is closed")
    }

    /// An error for a missing database at `path`; `why` says what is missing.
    pub(crate) fn no_database(path: &Path, why: &str) -> Self {
        Self::new(ErrorKind::NotFound, format!("no database at {}: {why}", path.display()))
    }

    /// An operating-system error while doing `what` to `path`. A full disk or quota becomes
    /// [`ErrorKind::NoSpace`]. A file or directory that may not be created becomes
    /// [`ErrorKind::ReadOnly`]; one that may not be read stays [`ErrorKind::Io`].
    pub(crate) fn io(what: &str, path: &Path, source: impl Into<Arc<io::Error>>) -> Self {
        let source: Arc<io::Error> = source.into();
        let kind = match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::NoSpace,
            io::ErrorKind::ReadOnlyFilesystem => ErrorKind::ReadOnly,
            io::ErrorKind::PermissionDenied if what.starts_with("create") => ErrorKind::ReadOnly,
            _ => ErrorKind::Io,
        };
        let (context, file) = (format!("{what} {}", path.display()), Some(path.to_path_buf()));
        Self {
            inner: Arc::new(Inner {
                kind,
                context,
                damage: None,
                conflict: None,
                file,
                source: Some(source),
            }),
        }
    }

    pub(crate) fn with_source(
        kind: ErrorKind,
        context: impl Into<String>,
        source: impl StdError + Send + Sync + 'static,
    ) -> Self {
        Self::with_shared_source(kind, context.into(), Arc::new(source))
    }

    fn with_shared_source(kind: ErrorKind, context: String, source: Arc<dyn StdError + Send + Sync>) -> Self {
        let (damage, conflict, file) = (None, None, None);
        Self { inner: Arc::new(Inner { kind, context, damage, conflict, file, source: Some(source) }) }
    }

    pub(crate) fn corruption(
        file: &Path,
        offset: u64,
        structure: &'static str,
        detail: impl fmt::Display,
    ) -> Self {
        let context = format!("{}: damaged {structure} at offset {offset}: {detail}", file.display());
        let damage = Some(Damage { file: file.to_path_buf(), offset, structure });
        Self {
            inner: Arc::new(Inner {
                kind: ErrorKind::Corruption,
                context,
                damage,
                conflict: None,
                file: None,
                source: None,
            }),
        }
    }

    /// An open failed with `cause` in the state before `torn`: its edits are lost, and with them
    /// the files that belong to the state before.
    pub(crate) fn of_torn_manifest(torn: &TornEdit, cause: Self) -> Self {
        let TornEdit { path, offset, bytes, detail } = torn;
        let context = format!(
            "{}: damaged manifest edit at offset {offset}, {bytes} bytes before the end: {detail}; the state \
             before it does not open",
            path.display()
        );
        let damage = Some(Damage { file: path.clone(), offset: *offset, structure: "manifest edit" });
        let source: Arc<dyn StdError + Send + Sync> = Arc::new(cause);
        Self {
            inner: Arc::new(Inner {
                kind: ErrorKind::Corruption,
                context,
                damage,
                conflict: None,
                file: None,
                source: Some(source),
            }),
        }
    }

    /// The error of a write that depends on what `conflict` names.
    pub(crate) fn of_conflict(conflict: Conflict) -> Self {
        let (key, name) = (conflict.key.escape_ascii(), &conflict.keyspace);
        let context = match (name.is_empty(), conflict.is_proved) {
            (true, _) => format!("the keyspace of key \"{key}\" was dropped after the transaction began"),
            (false, true) => {
                format!("key \"{key}\" of keyspace {name:?} was written after the transaction began")
            }
            (false, false) => {
                format!(
                    "key \"{key}\" of keyspace {name:?} may have been written after the transaction began"
                )
            }
        };
        let kind = ErrorKind::Conflict;
        Self {
            inner: Arc::new(Inner {
                kind,
                context,
                damage: None,
                conflict: Some(conflict),
                file: None,
                source: None,
            }),
        }
    }

    /// Kind of the error, which says how to react.
    pub fn kind(&self) -> ErrorKind {
        self.inner.kind
    }

    /// The failure and its place, without the cause.
    pub fn context(&self) -> &str {
        &self.inner.context
    }

    /// The context and all its causes, joined by `": "` to one line.
    pub fn chain(&self) -> impl fmt::Display {
        Chain(self)
    }

    /// The key that has changed, for [`ErrorKind::Conflict`].
    pub fn conflict(&self) -> Option<&Conflict> {
        self.inner.conflict.as_ref()
    }

    /// The file that is damaged, or of which a call has failed.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.damage().map(|damage| damage.file.as_path()).or(self.inner.file.as_deref())
    }

    /// Location of the damage, for [`ErrorKind::Corruption`].
    pub fn damage(&self) -> Option<&Damage> {
        self.inner.damage.as_ref()
    }
}

/// An error with its causes.
struct Chain<'a>(&'a Error);

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.0, f)?;
        causes(self.0).try_for_each(|cause| write!(f, ": {cause}"))
    }
}

/// The causes of `error`, nearest first.
fn causes(error: &Error) -> impl Iterator<Item = &(dyn StdError + 'static)> {
    let mut next = error.source();
    std::iter::from_fn(move || {
        let cause = next?;
        next = cause.source();
        Some(cause)
    })
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.inner.context)
    }
}

/// The kind and the whole chain in one line: `Io: sync db/000007.log: Input/output error`.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind(), self.chain())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        let source = self.inner.source.as_ref()?;
        Some(source.as_ref())
    }
}

/// For callers that use the standard library's errors. The kind is the nearest one. The error
/// itself is the [`io::Error::get_ref`] of the new one, and its cause the `source`.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match error.kind() {
            ErrorKind::Corruption => io::ErrorKind::InvalidData,
            ErrorKind::Io => causes(&error)
                .find_map(|cause| cause.downcast_ref::<io::Error>())
                .map_or(io::ErrorKind::Other, io::Error::kind),
            ErrorKind::NotFound => io::ErrorKind::NotFound,
            ErrorKind::Locked => io::ErrorKind::WouldBlock,
            ErrorKind::Unsupported => io::ErrorKind::Unsupported,
            ErrorKind::NoSpace => io::ErrorKind::StorageFull,
            ErrorKind::ReadOnly => io::ErrorKind::ReadOnlyFilesystem,
            ErrorKind::Stalled => io::ErrorKind::TimedOut,
            ErrorKind::Invalid => io::ErrorKind::InvalidInput,
            ErrorKind::Conflict => io::ErrorKind::ResourceBusy,
            ErrorKind::Gone => io::ErrorKind::NotFound,
            ErrorKind::Closed => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

impl From<FileError> for Error {
    fn from(error: FileError) -> Self {
        match error {
            FileError::Io { file, op, source } => Self::io(&op, &file, source),
            FileError::Corruption { file, offset, structure, detail } => {
                Self::corruption(&file, offset, structure, detail)
            }
            FileError::Unsupported { file, detail } => {
                Self::new(ErrorKind::Unsupported, format!("{}: {detail}", file.display()))
            }
            FileError::Invalid(detail) => Self::invalid(detail),
        }
    }
}

impl From<shamba_tree::Error> for Error {
    fn from(error: shamba_tree::Error) -> Self {
        use shamba_tree::Cause;
        match error.into_cause() {
            Cause::File(error) => error.into(),
            Cause::Unsupported(detail) => Self::new(ErrorKind::Unsupported, detail),
            Cause::Closed => Self::closed(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn eio() -> io::Error {
        io::Error::from_raw_os_error(5)
    }

    #[test]
    fn the_cause_is_the_source_and_is_printed_once() {
        let cause = Error::io("sync", Path::new("db/000007.log"), eio());
        let io_error = cause.source().and_then(|source| source.downcast_ref::<io::Error>());
        assert_eq!(io_error.and_then(io::Error::raw_os_error), Some(5));
        assert_eq!(cause.to_string(), "sync db/000007.log");
        let top = Error::with_source(ErrorKind::ReadOnly, "writes are off", cause);
        assert_eq!(top.to_string(), "writes are off");
        let chain = format!("writes are off: sync db/000007.log: {}", eio());
        assert_eq!(top.chain().to_string(), chain);
        assert_eq!(format!("{top:?}"), format!("ReadOnly: {chain}"));
        let below = top.source().and_then(|source| source.downcast_ref::<Error>()).map(Error::kind);
        assert_eq!(below, Some(ErrorKind::Io));
        assert!(Error::invalid("a reason").source().is_none());
    }

    #[test]
    fn errors_of_tables_that_somebody_keeps_keep_their_cause() {
        let kept = FileError::Io { file: "db/000009.sst".into(), op: "read".into(), source: Arc::new(eio()) };
        let error = Error::from(kept.clone());
        let io_error = error.source().and_then(|source| source.downcast_ref::<io::Error>());
        assert_eq!((error.kind(), io_error.and_then(io::Error::raw_os_error)), (ErrorKind::Io, Some(5)));
        assert_eq!(error.chain().to_string(), format!("read db/000009.sst: {}", eio()));
        assert!(matches!(kept, FileError::Io { source, .. } if source.raw_os_error() == Some(5)));
    }

    #[test]
    fn errors_become_those_of_the_standard_library() {
        let path = Path::new("db");
        let kinds = [
            (Error::corruption(path, 1, "footer", "zeros"), io::ErrorKind::InvalidData),
            (Error::io("read", path, io::Error::from(io::ErrorKind::TimedOut)), io::ErrorKind::TimedOut),
            (Error::new(ErrorKind::Io, "no cause"), io::ErrorKind::Other),
            (Error::no_database(path, "there is none"), io::ErrorKind::NotFound),
            (Error::new(ErrorKind::Locked, ""), io::ErrorKind::WouldBlock),
            (
                Error::io("write", path, io::Error::from(io::ErrorKind::StorageFull)),
                io::ErrorKind::StorageFull,
            ),
            (Error::new(ErrorKind::Stalled, ""), io::ErrorKind::TimedOut),
            (Error::invalid(""), io::ErrorKind::InvalidInput),
            (Error::new(ErrorKind::Conflict, ""), io::ErrorKind::ResourceBusy),
        ];
        for (error, kind) in kinds {
            let (own, text) = (error.kind(), error.to_string());
            let converted = io::Error::from(error);
            assert_eq!((converted.kind(), converted.to_string()), (kind, text));
            let inner = converted.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
            assert_eq!(inner.map(Error::kind), Some(own));
        }
        let converted = io::Error::from(Error::io("read", path, eio()));
        let source = StdError::source(&converted).and_then(|source| source.downcast_ref::<io::Error>());
        assert_eq!(source.and_then(io::Error::raw_os_error), Some(5), "what `io::Error` shows is the cause");
    }
}
