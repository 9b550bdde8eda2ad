//! Shamba: an embeddable key-value engine on a log-structured merge-tree.
//!
//! For services that read a lot from fast storage with little memory. A lookup computes *one* digest of its
//! key, and everything that needs a hash uses it; merge policy, size ratio, buffer and filters are one
//! design; writes are atomic, ordered and as durable as each asks; [`Db::explain`] says what a lookup did.
//!
//! ```
//! # fn main() -> shamba::Result<()> {
//! # let dir = tempfile::tempdir().expect("a temporary directory");
//! # let path = dir.path().join("db");
//! use shamba::Db;
//!
//! let db = Db::open(&path)?;
//! db.put("user:1", "Asha")?;
//! db.put("user:2", "Baraka")?;
//! assert_eq!(db.get("user:1")?.as_deref(), Some(&b"Asha"[..]));
//! for entry in db.prefix("user:") {
//!     let (key, value) = entry?;
//!     println!("{} = {}", key.escape_ascii(), value.escape_ascii());
//! }
//! db.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! It is *not* a server, not a relational database, and not replicated. What is promised about crashes is in
//! `DURABILITY.md`, how the parts fit in `ARCHITECTURE.md`, the bytes in `docs/formats/`.
//!
//! Start at [`Db`] and [`Builder`]; [`Snapshot`], [`Batch`], [`Iter`], [`Cursor`] and [`Keyspace`] come from
//! there.
#![deny(unsafe_code)]
#![deny(missing_docs)]

/// The examples of the project's front page are compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

mod advise;
mod allocation;
mod background;
mod builder;
mod compaction;
mod core;
mod db;
mod error;
mod event;
mod garbage;
mod handle;
mod ids;
pub mod inspect;
mod install;
mod introspect;
mod key_range;
mod log;
mod maintenance;
mod memory;
mod memtable;
mod metrics;
mod published;
mod range_delete;
mod read;
mod recovery;
mod redesign;
mod refit;
mod repair;
mod residency;
mod settings;
mod slice;
mod snapshot;
mod statistics;
mod swap;
pub mod trace;
mod tuner;
mod verify;
mod version;
mod view;
mod wal;
mod workload;
mod write;

use shamba_env::sync;

/// The policy on paper, for whoever compares formulas with it.
#[doc(hidden)]
pub use compaction::simulate::fill as simulate;

pub use advise::{Advice, Better, Prediction};
pub use builder::Builder;
pub use db::{Db, Keyspace, Reader, Snapshot};
pub use error::{Damage, Error, ErrorKind, Result};
pub use event::{Event, EventListener};
pub use key_range::KeyRange;
pub use memory::MemoryReport;
pub use metrics::{LevelStats, Stats, TableStats};
pub use read::cursor::{Cursor, Iter};
pub use read::explain::{Action, Explanation, ModuleStep, Outcome, Place, SkipReason, Step};
pub use read::reader::{HashedKey, ReadOptions};
pub use redesign::{Redesigned, RedesignedBy, TreeDesign};
pub use repair::{Loss, LostRange, RepairReport, repair, repair_within};
pub use residency::{LevelMemory, MemoryPrices};
pub use settings::Durability;
pub use slice::Slice;
pub use trace::{Recorded, Recording};
pub use tuner::Tuning;
pub use verify::{CheckReport, Problem, check_files};
pub use workload::Workload;
pub use write::batch::{Batch, WriteOptions};

pub use shamba_env as env;
pub use shamba_filter::{FilterLayout, Modules};
pub use shamba_key::DigestKind;
#[doc(hidden)]
pub use shamba_key::planted;
pub use shamba_model::allocation::Allocation;
pub use shamba_model::skip::Skipping;
pub use shamba_model::{Design, MergePolicy, Sizing};
pub use shamba_table::{Compression, Residency};
