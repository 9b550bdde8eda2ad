//! Events: typed notifications about the engine's activity, and the listener that gets them.
//!
//! Every flush, compaction, move, stall, warning and background failure is one typed [`Event`]. A
//! listener is called without any lock of the database and must return quickly.
//!
//! Not here: passing events on, and the info log ([`crate::telemetry`]).

use std::fmt;
use std::path::PathBuf;

/// An event inside the engine.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum Event {
    /// The database is open.
    Opened {
        /// Its path.
        path: PathBuf,
        /// Tables in all keyspaces.
        tables: u64,
        /// Batches replayed from the log.
        replayed_batches: u64,
    },
    /// A flush of memtables begins.
    FlushBegin {
        /// Bytes in the memtables.
        bytes: u64,
    },
    /// A flush has ended; its tables are in level 0.
    FlushEnd {
        /// Tables written.
        tables: u64,
        /// Bytes of these tables.
        bytes: u64,
        /// Duration in microseconds.
        duration_us: u64,
    },
    /// A compaction begins.
    CompactionBegin {
        /// Keyspace.
        keyspace: String,
        /// Its reason and scope, in words.
        reason: String,
        /// Bytes of the inputs.
        bytes: u64,
        /// Target level.
        target_level: u32,
    },
    /// A compaction has ended.
    CompactionEnd {
        /// Keyspace.
        keyspace: String,
        /// Target level.
        target_level: u32,
        /// Bytes read.
        bytes_read: u64,
        /// Bytes written.
        bytes_written: u64,
        /// Dropped entries: obsolete versions, and tombstones that are no longer needed.
        entries_dropped: u64,
        /// Duration in microseconds.
        duration_us: u64,
    },
    /// A table was moved to another level without being rewritten.
    TrivialMove {
        /// Keyspace.
        keyspace: String,
        /// The new level.
        target_level: u32,
        /// Bytes of the table.
        bytes: u64,
    },
    /// The oldest tables of a FIFO keyspace were dropped without being read.
    TablesDropped {
        /// Keyspace.
        keyspace: String,
        /// Number of tables.
        tables: u64,
        /// Their bytes.
        bytes: u64,
    },
    /// Another design is in force; compactions begin to move the tree there.
    Redesign {
        /// The design before.
        from: String,
        /// The design now.
        to: String,
        /// Its origin: a caller, followed advice, the tuner, or an undo.
        by: &'static str,
        /// Why.
        reason: String,
        /// Estimated bytes that compactions have to write for it, beyond those already pending.
        bytes: u64,
        /// Bytes of all trees.
        tree_bytes: u64,
    },
    /// New advice of the tuner: the design that it would change to, and the condition that it waits
    /// for.
    Advice(
        /// In words.
        String,
    ),
    /// A writer stalls because flushes or compactions are behind.
    StallBegin {
        /// The work that is behind.
        reason: String,
    },
    /// The stalled writer continues, or fails.
    StallEnd {
        /// Duration of the stall in microseconds.
        duration_us: u64,
    },
    /// A new log file was created.
    LogRotated {
        /// Number of the file.
        log: u64,
    },
    /// A problem that does not affect results: a damaged filter, a dropped log tail.
    Warning(
        /// The problem, with the file.
        String,
    ),
    /// Background work failed; the message says whether it is retried or writes are off.
    BackgroundError(
        /// The failed work, with its error.
        String,
    ),
    /// The database is closed.
    Closed,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Opened { path, tables, replayed_batches } => {
                write!(f, "opened {}: {tables} tables, {replayed_batches} batches replayed", path.display())
            }
            Self::FlushBegin { bytes } => write!(f, "flush begins: {bytes} bytes of memtables"),
            Self::FlushEnd { tables, bytes, duration_us } => {
                write!(f, "flush done: {tables} tables, {bytes} bytes, {duration_us} us")
            }
            Self::CompactionBegin { keyspace, reason, bytes, target_level } => {
                write!(
                    f,
                    "compaction begins in {keyspace:?}: {bytes} bytes to level {target_level} ({reason})"
                )
            }
            Self::CompactionEnd {
                keyspace,
                target_level,
                bytes_read,
                bytes_written,
                entries_dropped,
                duration_us,
            } => {
                write!(
                    f,
                    "compaction done in {keyspace:?}: level {target_level}, {bytes_read} bytes read, {bytes_written} \
                     written, {entries_dropped} entries dropped, {duration_us} us"
                )
            }
            Self::TrivialMove { keyspace, target_level, bytes } => {
                write!(f, "moved {bytes} bytes in {keyspace:?} to level {target_level} without rewriting")
            }
            Self::TablesDropped { keyspace, tables, bytes } => {
                write!(f, "dropped the {tables} oldest tables of {keyspace:?}, {bytes} bytes")
            }
            Self::Redesign { from, to, by, reason, bytes, tree_bytes } => {
                write!(
                    f,
                    "redesign by {by} from {from} to {to}: compactions will write {bytes} bytes, the trees have {tree_bytes} ({reason})"
                )
            }
            Self::Advice(text) => write!(f, "advice: {text}"),
            Self::StallBegin { reason } => write!(f, "writes stall: {reason}"),
            Self::StallEnd { duration_us } => write!(f, "writes resume after {duration_us} us"),
            Self::LogRotated { log } => write!(f, "log {log} begins"),
            Self::Warning(text) => write!(f, "warning: {text}"),
            Self::BackgroundError(text) => write!(f, "background error: {text}"),
            Self::Closed => f.write_str("closed"),
        }
    }
}

/// Receives every event of a database.
pub trait EventListener: Send + Sync {
    /// Called for each event after it happened, without any lock of the database. As a rule it is
    /// called on the thread where the event happened, by several threads at a time if events happen
    /// on several. Each thread reports its own events in order, before its call returns; one that
    /// waited for work of another thread may return before that thread has reported it.
    ///
    /// A listener may read the database, ask for its statistics, and open others. It should return
    /// quickly, and not write: a write may wait for work that this very thread would do.
    fn event(&self, event: &Event);
}
