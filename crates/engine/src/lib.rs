//! Shamba: an embeddable key-value engine on a log-structured merge-tree.
//!
//! For services that read a lot from fast storage with little memory. A lookup computes *one*
//! digest of its key, which every filter, index and block uses. Merge policy, size ratio, write
//! buffer and filters form one design. Writes are atomic and ordered, and each chooses its
//! durability. [`Db::explain`] shows what a lookup did.
//!
//! Start at [`Db`] and [`Builder`]; [`Snapshot`], [`Batch`], [`Transaction`], [`Iter`], [`Cursor`]
//! and [`Keyspace`] are made from them. It is *not* a server, not a relational database, and not
//! replicated.
//!
//! # Example
//!
//! ```
//! # fn main() -> shamba::Result<()> {
//! # let dir = tempfile::tempdir().expect("a temporary directory");
//! # let path = dir.path().join("users.db");
//! use shamba::{Compression, Db, Durability};
//!
//! // Creates the database, a directory, if it is missing; `Db::open(&path)` has default options.
//! let db = Db::builder(&path)
//!     .memory_budget(64 << 20)
//!     .compression(Compression::Lz4)
//!     .durability(Durability::NoSync)
//!     .open()?;
//!
//! db.put("user:1", "Asha")?;
//! assert_eq!(db.get("user:1")?.as_deref(), Some(&b"Asha"[..]));
//!
//! // A batch is atomic and may span keyspaces; `Sync` puts it on stable storage.
//! let emails = db.keyspace("emails")?;
//! let mut batch = db.batch();
//! batch.put("user:2", "Baraka").put_in(&emails, "baraka@example.org", "user:2").delete("user:1");
//! batch.commit_with(Durability::Sync)?;
//!
//! // Snapshots and iterators read one moment: later writes do not show in them.
//! let snapshot = db.snapshot();
//! db.delete_range("user:".."user;")?;
//! assert_eq!(snapshot.get("user:2")?.as_deref(), Some(&b"Baraka"[..]));
//! assert_eq!(db.get("user:2")?, None);
//! for entry in snapshot.prefix("user:") {
//!     let (key, value) = entry?;
//!     println!("{} = {}", key.escape_ascii(), value.escape_ascii());
//! }
//!
//! // Many keys at once cost less per key; `explain` shows what a lookup touched and skipped.
//! assert_eq!(db.multi_get(["user:1", "user:2"])?, [None, None]);
//! println!("{}", db.explain("user:2")?);
//!
//! # drop(snapshot);
//! // Writes and syncs the log, and marks its end. Without it the next open recovers as after a
//! // crash.
//! db.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees
//!
//! | guarantee | meaning |
//! |---|---|
//! | atomic batches | a [`Batch`], across keyspaces too, is visible and survives a crash as a whole or not at all |
//! | prefix after a crash | the recovered state ends at a batch boundary: it holds every write before it, including all synced ones, and none after it |
//! | durability per write | [`Durability::Sync`]: on stable storage, with every earlier write; [`Durability::Interval`]: synced within that time; [`Durability::NoSync`] (default): survives the process; [`Durability::Buffered`]: in memory until a later sync |
//! | consistent reads | a [`Snapshot`], [`Iter`] or [`Cursor`] shows one moment, and blocks no writer |
//! | serializable transactions | what a [`Transaction`] that writes has read is unchanged when it commits, or it is refused, unless another [`Isolation`] was chosen; [`Db::transact`] begins again |
//! | operands count once | what [`Db::merge`] writes without reading is applied exactly once, in the order of the writes, wherever it lies ([`merge`](mod@merge)) |
//! | a stream of changes | [`Db::changes_since`] delivers every durable batch, whole and in order, also after a crash, as long as its log is kept |
//! | no silent corruption | every structure on disk has a checksum; after damage a read returns the right answer or [`ErrorKind::Corruption`], which names file and offset |
//! | one memory budget | caches, filters, indexes, memtables and compactions together stay within [`Builder::memory_budget`] (default 256 MiB, from 4 MiB; with a budget of a few MiB, thousands of tables take some 600 bytes each on top); the process takes up to 64 MiB more, mostly 10 to 35 |
//! | one writer process | held by a lock of the operating system: a second opener gets [`ErrorKind::Locked`] |
//!
//! `DURABILITY.md` in the source tree is the full contract, `ARCHITECTURE.md` shows how the parts
//! fit, `docs/formats/` describes the bytes.
//!
//! # Limits
//!
//! - A key has at most 65,535 bytes, a value at most 256 MiB.
//! - One process has a database open for writing, on a local file system.
//! - 64-bit little-endian processors. Tested on Linux (x86-64) only.
//! - Version 0.1: the functions may still change, and the change log names each change that breaks
//!   callers. Databases of each released version stay readable.
//!
//! # Threads and async
//!
//! Handles ([`Db`], [`Keyspace`], [`Snapshot`]) are `Clone + Send + Sync`; a clone is cheap and
//! refers to the same database. There is no async interface: calls block on locks and on files. A
//! lookup answered from memory takes about a microsecond. A lookup that reads from an SSD and a
//! synced write take about 0.1 ms, more under load, and a write that waits for compactions can take
//! much longer. In an async
//! program call through `spawn_blocking`, and move several operations into one such call: a batch
//! for writes, [`Db::multi_get`] for reads.
//!
//! ```ignore
//! let users = db.clone();
//! let found = tokio::task::spawn_blocking(move || users.multi_get(["user:1", "user:2"])).await??;
//! ```
//!
//! # Public dependencies
//!
//! Types of one dependency are part of the interface: `bytes`, version 1. [`Slice`] converts from
//! and into [`bytes::Bytes`], sharing the buffer of a large value and copying a small one, so that
//! a value can be passed to `hyper`, `axum` or `tonic` as it is. No type of another dependency
//! appears, so their versions do not matter to callers.
//!
//! # The environment
//!
//! [`env`](mod@env) is the crate `shamba-env`: files, clock, randomness and threads behind traits.
//! Most programs never name it. It is public for tests of programs that embed the engine:
//! [`Builder::env`] takes an [`Env`](env::Env), whose parts are the traits [`Vfs`](env::Vfs),
//! [`Clock`](env::Clock), [`Rng`](env::Rng) and [`Spawner`](env::Spawner). [`MemFs`](env::MemFs)
//! keeps a database in memory, [`SimFs`](env::SimFs) loses unsynced data in a simulated crash,
//! [`FaultFs`](env::FaultFs) makes calls fail, [`SlowFs`](env::SlowFs) adds a device's latency, and
//! [`Env::deterministic`](env::Env::deterministic) runs all background work inside the calls. Its
//! other items (aligned buffers, pages, `sync`) serve the engine and change without notice.
#![deny(unsafe_code)]
#![deny(missing_docs)]

/// Merge operators: how the value of a key is made from operands that were written without reading
/// it ([`Db::merge`]).
///
/// The built-in ones need no code at an open: the database finds them by their recorded names.
/// Others implement [`AssociativeMerge`](merge::AssociativeMerge) or
/// [`MergeOperator`](merge::MergeOperator).
pub mod merge {
    pub use shamba_tree::merging::builtin::{AddI64, AddU64, Append, Max, Min, NAMES, SetBit};
    pub use shamba_tree::merging::{AssociativeMerge, MergeOperator, MergeResult};
}

/// Compaction filters: code that compactions ask about the values that they rewrite
/// ([`KeyspaceOptions::compaction_filter`]).
pub mod filter {
    pub use shamba_tree::compaction::filter::{CompactionFilter, FilterEntry, Verdict};
}

/// Compiles the examples of the package's README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

// Types of the interface: errors, events, options, statistics. Locks and flags.
mod busy;
mod error;
mod event;
mod key_range;
mod lock_order;
mod metrics;
pub mod options;
mod swap;
mod tree_design;

// Telemetry: counters, timers, events, traces. Lifecycle: open, failed, closed. The thread pool.
mod lifecycle;
mod telemetry;
pub mod trace;
mod workers;

// Memory: the budget and its division.
mod memory;

// Trees: their newest versions, their files, their statistics.
mod catalog;
mod filter_bits;
mod statistics;
mod table_files;

// Reads: visible sequence numbers and views, resident filters and indexes, the observed workload.
mod reads;
mod residency;
mod workload;

// Writer: how a batch becomes durable and visible.
mod directory;
mod writer;

// Background work: flushes, compactions, filter rewrites.
mod scheduler;

// Tuning: advice on designs, and redesigns.
mod tuning;

// Whole databases: handles, opening, closing; copies, checks, repair.
mod admin;
mod database;

// Over whole databases: the stream of their changes, transactions.
mod changes;
mod transaction;

#[cfg(test)]
mod testing;

use shamba_env::{ranked, sync};

pub use admin::inspect;
pub use admin::repair::{Loss, LostRange, RepairReport, repair, repair_within};
pub use admin::verify::{CheckReport, Problem, check_files};
pub use changes::{Change, ChangeBatch, ChangeOp, ChangePosition, Changes, ChangesOptions};
pub use database::batch::Batch;
pub use database::builder::Builder;
pub use database::conditional::Swap;
pub use database::key_cursor::KeyCursor;
pub use database::ticket::Ticket;
pub use database::{Db, Keyspace, Reader, Snapshot};
pub use error::{Conflict, Damage, Error, ErrorKind, Result};
pub use event::{Event, EventListener};
pub use key_range::{KeyRange, PrefixRange};
pub use memory::Budget;
pub use metrics::{LevelMemory, LevelStats, MemoryPrices, MemoryReport, Stats, TableStats};
pub use options::experimental::Experimental;
pub use options::fifo::Fifo;
pub use options::keyspace::KeyspaceOptions;
pub use options::settings::{Durability, Tuning};
pub use options::values::ValueThreshold;
pub use reads::cursor::{Cursor, Iter, Keys};
pub use reads::options::{HashedKey, ReadOptions};
pub use shamba_table::Reads;
pub use shamba_tree::counters::ReadsByKind;
pub use shamba_tree::lookup::explain::{Action, Explanation, ModuleStep, Outcome, Place, SkipReason, Step};
pub use shamba_tree::lookup::explain_prefix::PrefixExplanation;
pub use shamba_tree::slice::Slice;
pub use trace::{Recorded, Recording};
pub use transaction::{Isolation, Savepoint, Transaction, TransactionIter, TransactionOptions};
pub use tree_design::TreeDesign;
pub use tuning::advise::{Advice, Better, Prediction};
pub use tuning::history::{Redesigned, RedesignedBy};
pub use workers::Workers;
pub use workload::Workload;
pub use writer::WriteOptions;

pub use shamba_env as env;
pub use shamba_filter::{FilterLayout, Modules};
pub use shamba_key::{DigestKind, Prefix};
#[doc(hidden)]
pub use shamba_model::allocation::Allocation;
pub use shamba_model::skip::Skipping;
pub use shamba_model::{Design, MergePolicy, Sizing};
pub use shamba_table::{CacheUnit, Compression, Residency};
