//! Events: notifications about the engine's activity, and the info log that records them.
//!
//! Every flush, compaction, move, stall, warning and background failure is one typed [`Event`]. A
//! listener is called on the thread where the event happens and must return quickly; a panic in it
//! is caught and counted. The info log writes one line per event to the file `LOG`. Each open
//! appends to it; it is rotated at 4 MiB, and three old files are kept. Failures of the info log
//! never fail an operation.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use shamba_env::{Env, WriteFile, append_all};

use crate::sync::{Mutex, PoisonError};

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
                write!(f, "merge begins in {keyspace:?}: {bytes} bytes to level {target_level} ({reason})")
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
                    "merge done in {keyspace:?}: level {target_level}, {bytes_read} bytes read, {bytes_written} \
                     written, {entries_dropped} entries dropped, {duration_us} us"
                )
            }
            Self::TrivialMove { keyspace, target_level, bytes } => {
                write!(f, "moved {bytes} bytes in {keyspace:?} to level {target_level} without rewriting")
            }
            Self::Redesign { from, to, by, reason, bytes, tree_bytes } => {
                write!(
                    f,
                    "redesign by {by} from {from} to {to}: merges will write {bytes} bytes, the trees hold {tree_bytes} ({reason})"
                )
            }
            Self::Advice(text) => write!(f, "advice: {text}"),
            Self::StallBegin { reason } => write!(f, "writes stall: {reason}"),
            Self::StallEnd { duration_us } => write!(f, "writes go on after {duration_us} us"),
            Self::LogRotated { log } => write!(f, "log {log} begins"),
            Self::Warning(text) => write!(f, "warning: {text}"),
            Self::BackgroundError(text) => write!(f, "background error: {text}"),
            Self::Closed => f.write_str("closed"),
        }
    }
}

/// Receives every event of a database.
pub trait EventListener: Send + Sync {
    /// Called on the thread where the event happened, which may be a writer's that holds the log:
    /// return quickly, and do not write to the database from here.
    fn event(&self, event: &Event);
}

/// Passes events to the listener and the info log.
pub(crate) struct Events {
    listener: Option<Arc<dyn EventListener>>,
    log: Option<Mutex<InfoLog>>,
    listener_panics: AtomicU64,
}

impl Events {
    /// `log`: whether to write `LOG` in `dir`.
    pub fn new(env: &Env, dir: &Path, listener: Option<Arc<dyn EventListener>>, log: bool) -> Self {
        let log = log
            .then(|| Mutex::new(InfoLog { env: env.clone(), dir: dir.to_path_buf(), file: None, bytes: 0 }));
        Self { listener, log, listener_panics: AtomicU64::new(0) }
    }

    pub fn emit(&self, event: &Event) {
        if let Some(log) = &self.log {
            log.lock().unwrap_or_else(PoisonError::into_inner).write(event);
        }
        if let Some(listener) = &self.listener {
            if catch_unwind(AssertUnwindSafe(|| listener.event(event))).is_err() {
                self.listener_panics.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Number of caught panics of the listener.
    #[cfg(test)]
    pub fn listener_panics(&self) -> u64 {
        self.listener_panics.load(Ordering::Relaxed)
    }
}

/// Size at which the info log rotates.
const INFO_LOG_BYTES: u64 = 4 << 20;
/// `LOG.1` (newest) to `LOG.3`.
const OLD_INFO_LOGS: u32 = 3;

struct InfoLog {
    env: Env,
    dir: PathBuf,
    file: Option<Box<dyn WriteFile>>,
    bytes: u64,
}

impl InfoLog {
    fn write(&mut self, event: &Event) {
        if self.file.is_none() {
            self.open();
        }
        if self.bytes > INFO_LOG_BYTES {
            self.rotate();
        }
        let Some(file) = &mut self.file else { return };
        let line = format!("{} {event}\n", self.env.clock.unix_ms());
        self.bytes += line.len() as u64;
        if append_all(file.as_mut(), line.as_bytes()).is_err() {
            // Best effort: a full disk must not fail the operation that the event reports.
            self.file = None;
            self.bytes = 0;
        }
    }

    /// Opens the file left by an earlier open for appending, or creates it.
    fn open(&mut self) {
        let path = self.dir.join("LOG");
        self.bytes = self.env.vfs.open_read(&path).and_then(|file| file.len()).unwrap_or(0);
        let appended = self.env.vfs.open_append(&path);
        self.file = appended.or_else(|_| self.env.vfs.create(&path)).ok();
    }

    fn rotate(&mut self) {
        let name = |n: u32| if n == 0 { self.dir.join("LOG") } else { self.dir.join(format!("LOG.{n}")) };
        for n in (0..OLD_INFO_LOGS).rev() {
            if self.env.vfs.exists(&name(n)).unwrap_or(false) {
                let _ = self.env.vfs.rename(&name(n), &name(n + 1));
            }
        }
        self.file = self.env.vfs.create(&name(0)).ok();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Panics;
    impl EventListener for Panics {
        fn event(&self, _: &Event) {
            panic!("a user's bug");
        }
    }

    #[test]
    fn a_panicking_listener_is_contained_and_counted() {
        let env = Env::deterministic(Arc::new(shamba_env::MemFs::new()), 1);
        let events = Events::new(&env, Path::new("db"), Some(Arc::new(Panics)), false);
        events.emit(&Event::Closed);
        events.emit(&Event::Closed);
        assert_eq!(events.listener_panics(), 2);
    }

    fn names(env: &Env, dir: &Path) -> Vec<String> {
        env.vfs.list(dir).unwrap().into_iter().map(|entry| entry.name).collect()
    }

    #[test]
    fn an_open_goes_on_with_the_info_log() {
        let env = Env::deterministic(Arc::new(shamba_env::MemFs::new()), 1);
        let dir = Path::new("db");
        env.vfs.create_dir_all(dir).unwrap();
        for _ in 0..6 {
            Events::new(&env, dir, None, true).emit(&Event::Closed);
        }
        assert_eq!(names(&env, dir), ["LOG"]);
        let text = shamba_env::read_file(env.vfs.as_ref(), &dir.join("LOG")).unwrap();
        assert_eq!(text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count(), 6);
    }

    #[test]
    fn a_long_info_log_rotates_and_three_old_ones_stay() {
        let env = Env::deterministic(Arc::new(shamba_env::MemFs::new()), 1);
        let dir = Path::new("db");
        env.vfs.create_dir_all(dir).unwrap();
        let long = Event::Warning("x".repeat(INFO_LOG_BYTES as usize));
        for _ in 0..6 {
            Events::new(&env, dir, None, true).emit(&long);
        }
        assert_eq!(names(&env, dir), ["LOG", "LOG.1", "LOG.2", "LOG.3"]);
    }
}
