//! Framed logs, and the write-ahead log made of them.
//!
//! [`framing`] puts records into a file so that damage can be told from a torn tail; the write-ahead
//! log, the manifest and the statistics file use it. [`wal`] is the write-ahead log of a database:
//! it appends batches, syncs, and replays a chain of logs after a crash.
//!
//! Errors are [`FileError`](shamba_env::FileError)s: each names the file, and damage also names the
//! offset and the structure.
//!
//! Not here: which caller syncs for a group of writers, and what a batch does to memtables (package
//! `shamba`); the meaning of manifest records (crate `shamba-tree`).
#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod framing;
pub mod wal;

pub use shamba_env::FileError as Error;

/// The result of every fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
