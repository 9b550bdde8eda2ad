//! Framed logs, and the write-ahead log built on them.
//!
//! [`framing`] puts records into a file such that a reader can tell damage from a torn tail; the
//! write-ahead log, the manifest and the statistics file use it. [`wal`] is the write-ahead log of
//! a database: it appends batches, syncs, and replays a chain of logs after a crash.
//!
//! Errors are [`FileError`](shamba_env::FileError)s: each names the file, and corruption also names
//! the offset and the structure.
//!
//! Not here: group commit, and the application of batches to memtables (package `shamba`); the
//! meaning of manifest records (crate `shamba-tree`).
#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod framing;
pub mod wal;

pub use shamba_env::FileError as Error;

/// The result of every fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
