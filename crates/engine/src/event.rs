//! Events: what the engine tells whoever operates it, and the info log that writes them down.
//!
//! Every flush, merge, move, stall, warning and background failure is one typed [`Event`]. A listener gets
//! them on the thread where they happen and must be quick; a panic in it is caught and counted. The info
//! log is one more listener: a line an event in the file `LOG`, which each open goes on with, rotated at
//! 4 MiB, three old ones kept, best effort (its failures never fail an operation).

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use shamba_env::{Env, WriteFile, append_all};

use crate::sync::{Mutex, PoisonError};

/// Something that happened inside the engine.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum Event {
    /// The database is open.
    Opened {
        /// Where.
        path: PathBuf,
        /// Tables in all keyspaces.
        tables: u64,
        /// Batches replayed from the log.
        replayed_batches: u64,
    },
    /// Memtables are being written to tables.
    FlushBegin {
        /// Bytes in the memtables.
        bytes: u64,
    },
    /// They are in level 0.
    FlushEnd {
        /// Tables written.
        tables: u64,
        /// Their bytes.
        bytes: u64,
        /// How long it took.
        duration_us: u64,
    },
    /// A merge starts.
    MergeBegin {
        /// Keyspace.
        keyspace: String,
        /// Why and what, in words.
        reason: String,
        /// Bytes that go in.
        bytes: u64,
        /// Level that the output joins.
        target_level: u32,
    },
    /// A merge is done.
    MergeEnd {
        /// Keyspace.
        keyspace: String,
        /// Level that the output joined.
        target_level: u32,
        /// Bytes read.
        bytes_read: u64,
        /// Bytes written.
        bytes_written: u64,
        /// Entries that were dropped: shadowed versions and spent tombstones.
        entries_dropped: u64,
        /// How long it took.
        duration_us: u64,
    },
    /// A table changed its level without being rewritten.
    TrivialMove {
        /// Keyspace.
        keyspace: String,
        /// The level it went to.
        target_level: u32,
        /// Its bytes.
        bytes: u64,
    },
    /// Another design is in force; merges begin to move the tree there.
    Redesign {
        /// The design before.
        from: String,
        /// The design now.
        to: String,
        /// Who wanted it: a caller, the tuner, or an undo.
        by: &'static str,
        /// Why.
        reason: String,
        /// About how many bytes merges have to write for it, beyond what they owe anyway.
        bytes: u64,
        /// How many the trees hold.
        tree_bytes: u64,
    },
    /// What the tuner would do, when that has changed, and what it waits for.
    Advice(
        /// In words.
        String,
    ),
    /// A writer waits because flushes or merges are behind.
    StallBegin {
        /// What is behind.
        reason: String,
    },
    /// The writer goes on, or gives up.
    StallEnd {
        /// How long it waited.
        duration_us: u64,
    },
    /// A new log was begun.
    LogRotated {
        /// Its number.
        log: u64,
    },
    /// Something is wrong but every answer stays right: a damaged filter, a dropped log tail.
    Warning(
        /// What, with the file.
        String,
    ),
    /// Background work failed; it is retried or writes are off, as the message says.
    BackgroundError(
        /// What failed.
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
            Self::MergeBegin { keyspace, reason, bytes, target_level } => {
                write!(f, "merge begins in {keyspace:?}: {bytes} bytes to level {target_level} ({reason})")
            }
            Self::MergeEnd {
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

/// Gets every event of a database.
pub trait EventListener: Send + Sync {
    /// Called on the thread where it happened, which may be a writer's and hold the log: be quick, and do not
    /// write from here.
    fn event(&self, event: &Event);
}

/// Hands events to the listener and the info log.
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

    /// How often a listener panicked.
    #[cfg(test)]
    pub fn listener_panics(&self) -> u64 {
        self.listener_panics.load(Ordering::Relaxed)
    }
}

/// Where the info log rotates.
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
            // Best effort: a full disk must not fail what the event reports.
            self.file = None;
            self.bytes = 0;
        }
    }

    /// Goes on with the file that an earlier open has left, or begins one.
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
