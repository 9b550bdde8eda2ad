//! One immutable sorted file (a *table*): its writer, its reader, its cache.
//!
//! A table holds entries in internal order (user key ascending, then sequence number descending),
//! an index over its data blocks, a filter, range tombstones and properties. The bytes are
//! described in `docs/formats/table.md` and, structure by structure, in the modules that encode
//! them. [`TableWriter`] writes a table, [`TableReader`] opens it, [`TableIter`] iterates over it
//! in both directions, [`TableReader::verify`] checks every byte of it, and [`describe`] prints it.
//!
//! Long values may be in *value files* (`docs/formats/value-file.md`), to which entries refer:
//! [`ValueFileWriter`] writes one, [`ValueFile`] reads it.
//!
//! Damage never becomes an answer: whatever the bytes are, a call returns what was written or an
//! [`Error`] that names file, offset and structure. Every checksum is salted with the file's birth
//! id and the offset, so a block that was moved, or a file that was swapped for another, fails the
//! check. A damaged filter slice is not an error: it is left out ("may contain"), and a warning
//! reports it.
//!
//! Every file access goes through `shamba-env`. All types are `Send`; readers and caches can be
//! shared between threads.
//!
//! ```
//! use std::{path::Path, sync::Arc};
//! use shamba_env::{Env, MemFs};
//! use shamba_filter::FilterLayout;
//! use shamba_key::{DigestFn, DigestKind, EntryKind, SeqNo};
//! use shamba_table::*;
//!
//! let env = Env::deterministic(Arc::new(MemFs::new()), 1);
//! let (id, birth, digest) = (TableId(1), BirthId(99), DigestFn::new(DigestKind::Xxh3, 42));
//! let options = WriterOptions {
//!     id, birth, digest, compression: Compression::Lz4, bits_per_key: 10.0,
//!     filter_layout: FilterLayout::Blocked, prefix: None, block_bytes: 4096, block_tags: true,
//!     large_values: LargeValues::default(),
//! };
//! let mut writer = TableWriter::create(&env, Path::new("/"), options)?;
//! writer.add(b"apple", SeqNo(7), EntryKind::Put, b"red")?;
//! writer.finish()?;
//!
//! let ledger = Arc::new(Ledger::new());
//! let cache = Arc::new(BlockCache::new(1 << 20, Arc::clone(&ledger)));
//! let files = Arc::new(OpenFiles::new(1_000));
//! let (filter, index) = (Residency::Pinned, Residency::Pinned);
//! let options =
//!     ReaderOptions { id, birth, digest, cache, ledger, files, direct_io: false, filter, index,
//!         units: CacheUnits::default(), keeps_blocks: true, bounds: None, values: Vec::new() };
//! let table = TableReader::open(&env, Path::new("/"), options)?;
//! let (digest, mut cost) = (digest.digest(b"apple"), ReadCounters::default());
//! let found = table.get(b"apple", SeqNo::MAX, digest, ValueMode::Copy, &mut cost)?;
//! assert_eq!(found.expect("an apple").value, b"red"[..]);
//! # Ok::<(), Error>(())
//! ```
//!
//! Not here: which tables make up a tree, and whose versions are visible (package `shamba`); the
//! filter's bits (crate `shamba-filter`).
#![deny(missing_docs)]
#![deny(unsafe_code)]

// Names, checksums, memory accounts.
mod checksum;
mod compression;
mod counters;
mod id;
mod ledger;
mod residency;
mod slot;

// Blocks and what holds them.
mod block;
mod cache;
mod content;
mod copies;
mod entry;
mod expiring;
mod files;
mod fragments;
mod range;
mod value;
mod value_uses;

// Sections of a file.
mod entry_iter;
mod file;
mod filter_section;
mod format;
mod index;
mod output;
mod summary;
mod value_file;
mod values;
mod written;

// Whole tables.
mod reader;
mod writer;

// Tables that may be damaged, and descriptions.
mod describe;
mod salvage;

#[cfg(test)]
mod tests;

use shamba_env::sync;

pub use cache::{BlockCache, ReadTimes};
pub use checksum::checksum;
#[doc(hidden)]
pub use checksum::make_checksums_equal;
pub use compression::{
    Compression, DICTIONARY_BYTES_MAX, DICTIONARY_BYTES_MIN, DICTIONARY_SAMPLES, Dictionary,
};
pub use content::{ContentDigest, StreamedEntry};

pub use copies::{Copies, CopyEnd, CopyLimits, Ends};
pub use describe::{BlockDescription, TableDescription, describe};
pub use entry::{Entry, EntryView};
pub use entry_iter::EntryIter;
pub use expiring::ExpiringEntries;
pub use shamba_env::FileError as Error;
pub use shamba_key::internal_cmp;

/// The result of every fallible call of this crate.
pub type Result<T> = std::result::Result<T, Error>;
pub use counters::{ReadCounters, Reads};
pub use files::{OpenFiles, open_files_within};
pub use format::origin::Origin;
pub use format::{FIXED_BYTES, Section, SectionKind};
pub use fragments::{Cover, FragmentedTombstones, clip};
pub use id::{
    BirthId, TableId, ValueFileId, parse_table_file_name, parse_value_file_name, table_file_name,
    value_file_name,
};
pub use index::{AbsentPartition, Find, Located};
pub use ledger::{Charge, Ledger, LedgerPart};
pub use range::RangeTombstone;
pub use reader::{
    AHEAD_BYTES, BlockToTake, Held, LoadedBlock, ReaderOptions, ResidentFilter, SEEK_STEPS, SeekRead,
    Seeking, TableIter, TableReader, Unasked, ValueMode, WRONG_FILTER, Walk,
};
pub use residency::{CacheUnit, CacheUnits, Residency};
pub use salvage::{Gap, Salvage, SalvageWalk, SalvagedEntry, survey_damage};
pub use summary::TableSummary;
pub use value::{COPY_UP_TO_BYTES, INLINE_BYTES, Value};
pub use value_file::{
    ChunkDescription, UnsyncedValueFile, VALUE_FILE_FIXED_BYTES, VALUE_WRITER_BYTES, ValueFile,
    ValueFileDescription, ValueFileOptions, ValueFileRef, ValueFileSummary, ValueFileWriter,
    ValueFileWriterOptions, WrittenValues, describe_value_file,
};
pub use value_uses::TableValueUse;
pub use values::{LargeValues, ValueSource};
pub use writer::{TableWriter, UnsyncedTable, WriterOptions};
pub use written::WrittenBlocks;
