//! Interface of a measured engine, and the setup that it is opened with.
//!
//! [`Peer`] is an open database; [`Read`] are the reads of it, or of a view that it keeps for many
//! reads. Both are generic, not objects: a call costs the same as in a program that uses the engine
//! directly. Keys and values are bytes; a get lends the value to a closure, so that an engine that
//! can return a reference need not copy.
//!
//! Not here: the requests ([`crate::workload`]), the measurement ([`crate::child`]).

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Errors are for people: which engine, which call.
pub type Result<T> = std::result::Result<T, String>;

/// The name of an option and its value, as a result states them.
pub type Stated = (String, String);

/// Values of at least this length are in files of their own, in the variants that have these.
pub const LONG_VALUE_BYTES: u64 = 512;
/// Space of such files over that of their live values, in the variants that state it.
pub const VALUE_SPACE: f64 = 1.25;

/// Runs in level 0, over the compacted rest, of the variants that are not drained. Each holds as
/// many rewritten items as fill half of a write buffer.
pub const LEVEL_0_RUNS: u64 = 5;

/// Every engine and variant that can be built in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// This project's.
    Shamba,
    /// This project's, with values of [`LONG_VALUE_BYTES`] and more in value files.
    ShambaValues,
    /// This project's, with [`LEVEL_0_RUNS`] runs in level 0 that nothing compacts.
    ShambaUndrained,
    /// This project's, with `map-reads`: blocks are read where the system maps their files.
    ShambaMapped,
    /// RocksDB; indexes and filters belong to open tables, as by default.
    Rocksdb,
    /// RocksDB, merged into one run after the fill.
    RocksdbCompacted,
    /// The same, with [`LEVEL_0_RUNS`] runs in level 0 over that one, which nothing compacts.
    RocksdbUndrained,
    /// RocksDB; indexes and filters are blocks in the block cache, within the budget.
    RocksdbCached,
    /// RocksDB; indexes and filters in partitions, within the budget.
    RocksdbPartitioned,
    /// RocksDB with Ribbon filters in place of Bloom's.
    RocksdbRibbon,
    /// RocksDB with a hash index in data blocks.
    RocksdbHash,
    /// RocksDB with values of [`LONG_VALUE_BYTES`] and more in blob files, collected as by default.
    RocksdbBlob,
    /// The same, collected so that blob files take about [`VALUE_SPACE`] of the live values.
    RocksdbBlobTuned,
    /// LevelDB.
    Leveldb,
    /// fjall.
    Fjall,
    /// redb: a B-tree, copied on write.
    Redb,
    /// LMDB through heed: a B-tree, copied on write, in a memory map.
    Lmdb,
}

impl Engine {
    /// Every one, in the order of tables.
    pub const ALL: [Self; 17] = [
        Self::Shamba,
        Self::ShambaValues,
        Self::ShambaUndrained,
        Self::ShambaMapped,
        Self::Rocksdb,
        Self::RocksdbCompacted,
        Self::RocksdbUndrained,
        Self::RocksdbCached,
        Self::RocksdbPartitioned,
        Self::RocksdbRibbon,
        Self::RocksdbHash,
        Self::RocksdbBlob,
        Self::RocksdbBlobTuned,
        Self::Leveldb,
        Self::Fjall,
        Self::Redb,
        Self::Lmdb,
    ];

    /// The name on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Shamba => "shamba",
            Self::ShambaValues => "shamba-values",
            Self::ShambaUndrained => "shamba-undrained",
            Self::ShambaMapped => "shamba-mapped",
            Self::Rocksdb => "rocksdb",
            Self::RocksdbCompacted => "rocksdb-compacted",
            Self::RocksdbUndrained => "rocksdb-undrained",
            Self::RocksdbCached => "rocksdb-cached",
            Self::RocksdbPartitioned => "rocksdb-partitioned",
            Self::RocksdbRibbon => "rocksdb-ribbon",
            Self::RocksdbHash => "rocksdb-hash",
            Self::RocksdbBlob => "rocksdb-blob",
            Self::RocksdbBlobTuned => "rocksdb-blob-tuned",
            Self::Leveldb => "leveldb",
            Self::Fjall => "fjall",
            Self::Redb => "redb",
            Self::Lmdb => "lmdb",
        }
    }

    /// Whether this build holds it.
    pub fn is_built(self) -> bool {
        match self {
            Self::Shamba | Self::ShambaValues | Self::ShambaUndrained | Self::ShambaMapped => true,
            Self::Rocksdb
            | Self::RocksdbCompacted
            | Self::RocksdbUndrained
            | Self::RocksdbCached
            | Self::RocksdbPartitioned
            | Self::RocksdbRibbon
            | Self::RocksdbHash
            | Self::RocksdbBlob
            | Self::RocksdbBlobTuned => cfg!(feature = "rocksdb"),
            Self::Leveldb => cfg!(feature = "leveldb"),
            Self::Fjall => cfg!(feature = "fjall"),
            Self::Redb => cfg!(feature = "redb"),
            Self::Lmdb => cfg!(feature = "lmdb"),
        }
    }

    /// Whether it is measured only where it is named: a variant that stores long values in files of
    /// their own, of which short values show nothing, that is not compacted, or that maps tables.
    pub fn is_on_request(self) -> bool {
        self.is_undrained()
            || matches!(
                self,
                Self::ShambaValues | Self::ShambaMapped | Self::RocksdbBlob | Self::RocksdbBlobTuned
            )
    }

    /// Whether level 0 has [`LEVEL_0_RUNS`] runs when it is read, and compactions are off then.
    pub fn is_undrained(self) -> bool {
        matches!(self, Self::ShambaUndrained | Self::RocksdbUndrained)
    }

    /// Why it has no rows in a situation; `None` where it has.
    pub fn absence(self, io: Io, compression: Compression) -> Option<&'static str> {
        match (self, io) {
            (Self::Leveldb, Io::Direct) => Some("LevelDB reads through memory maps: it has no direct I/O"),
            (Self::Fjall, Io::Direct) => Some("fjall has no direct I/O"),
            (Self::Redb, Io::Direct) => Some("redb has no direct I/O"),
            (Self::ShambaUndrained | Self::RocksdbUndrained, Io::Direct) => {
                Some("undrained trees are read through the page cache only")
            }
            (Self::ShambaMapped, Io::Direct) => Some("mapped tables are in the page cache"),
            (Self::Lmdb, Io::Direct) => Some("LMDB is a memory map: direct I/O is impossible"),
            _ => match (self, compression) {
                (Self::Leveldb, Compression::Lz4) => Some("LevelDB has Snappy and Zstandard, not LZ4"),
                (Self::Redb | Self::Lmdb, Compression::Lz4) => Some("the B-trees do not compress"),
                _ => None,
            },
        }
    }

    /// Whether it reads files where the system maps them, without calls.
    pub fn maps_files(self) -> bool {
        matches!(self, Self::Lmdb | Self::Leveldb | Self::ShambaMapped)
    }

    /// Whether the memory budget means nothing to it, so that one row stands for all budgets.
    pub fn ignores_budget(self) -> bool {
        self == Self::Lmdb
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Engine {
    type Err = String;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|engine| engine.name() == name).ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            format!("unknown engine {name:?} (known: {known})")
        })
    }
}

/// How tables are read.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Io {
    /// Through the system's page cache, which is large: a miss in an engine's own cache costs a
    /// system call, not the device.
    PageCache,
    /// Past it: a miss costs the device.
    Direct,
}

impl Io {
    /// The name in options and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::PageCache => "page-cache",
            Self::Direct => "direct",
        }
    }
}

impl FromStr for Io {
    type Err = String;

    fn from_str(name: &str) -> Result<Self> {
        [Self::PageCache, Self::Direct]
            .into_iter()
            .find(|io| io.name() == name)
            .ok_or_else(|| format!("unknown way of reading {name:?} (known: page-cache, direct)"))
    }
}

/// How blocks are compressed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Compression {
    /// Not at all: the base.
    None,
    /// LZ4 on every level.
    Lz4,
}

impl Compression {
    /// The name in options and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lz4 => "lz4",
        }
    }
}

impl FromStr for Compression {
    type Err = String;

    fn from_str(name: &str) -> Result<Self> {
        [Self::None, Self::Lz4]
            .into_iter()
            .find(|compression| compression.name() == name)
            .ok_or_else(|| format!("unknown compression {name:?} (known: none, lz4)"))
    }
}

/// Setup of a database: the same for every engine, each of which states how it applies it
/// ([`Peer::options`]).
#[derive(Clone, Debug)]
pub struct Setup {
    /// The engine and its variant; only RocksDB has variants.
    #[cfg_attr(not(feature = "rocksdb"), allow(dead_code))]
    pub engine: Engine,
    /// Directory of the database.
    pub dir: PathBuf,
    /// Bytes for caches and write buffers together.
    pub budget_bytes: u64,
    /// How tables are read.
    pub io: Io,
    /// How blocks are compressed.
    pub compression: Compression,
    /// Whether level 0 is compacted.
    pub auto_compaction: bool,
}

/// Filter bits per key, where there are filters.
pub const BITS_PER_KEY: u32 = 10;
/// Bytes of a block, where there are blocks.
pub const BLOCK_BYTES: usize = 4096;
/// Threads that merge, where they can be set; one more flushes.
pub const BACKGROUND_THREADS: u32 = 2;
/// Ratio of levels, where it can be set.
pub const SIZE_RATIO: u32 = 10;
/// The largest write buffer, whatever the budget.
const WRITE_BUFFER_BYTES_MAX: u64 = 64 << 20;

impl Setup {
    /// Bytes of one write buffer: the same for all engines that have one, the largest that the
    /// budget has room for three of.
    pub fn write_buffer_bytes(&self) -> u64 {
        shamba_model::memtable_bytes_max(self.budget_bytes).min(WRITE_BUFFER_BYTES_MAX)
    }

    /// Target table size, where it can be set: Shamba's default.
    #[cfg(any(feature = "rocksdb", feature = "leveldb", feature = "fjall"))]
    pub fn table_bytes(&self) -> u64 {
        (self.budget_bytes / 16).clamp(2 << 20, 64 << 20)
    }

    /// A failure of `call`, with the engine's name before it.
    pub fn failure(engine: Engine, call: &str, error: impl fmt::Display) -> String {
        format!("{engine}: {call}: {error}")
    }
}

/// Reads.
pub trait Read {
    /// Lends the value of `key`, or nothing, to `see`.
    fn get<R>(&self, key: &[u8], see: impl FnOnce(Option<&[u8]>) -> R) -> Result<R>;

    /// Shows `see` up to `entries` entries in key order, from the first at or after `from`.
    fn scan(&self, from: &[u8], entries: u64, see: impl FnMut(&[u8], &[u8])) -> Result<()>;
}

impl<T: Read> Read for &T {
    fn get<R>(&self, key: &[u8], see: impl FnOnce(Option<&[u8]>) -> R) -> Result<R> {
        (**self).get(key, see)
    }

    fn scan(&self, from: &[u8], entries: u64, see: impl FnMut(&[u8], &[u8])) -> Result<()> {
        (**self).scan(from, entries, see)
    }
}

/// An open database.
///
/// Reads through the peer itself see every write before them. Those through [`Self::reader`] need
/// not: engines whose reads are transactions open one there and keep it, as a program with many
/// reads in a row would.
pub trait Peer: Read + Sized {
    /// View for many consecutive reads.
    type Reader<'a>: Read
    where
        Self: 'a;

    /// Puts of a fill that go into one transaction: 1, unless a transaction for each would be no
    /// use that anybody makes of the engine.
    const FILL_TRANSACTION: usize = 1;

    /// Opens the database, new or not.
    fn open(setup: &Setup) -> Result<Self>;

    /// The version of the engine that was built.
    fn version(&self) -> String;

    /// Applied options, and other facts that affect speed or durability.
    fn options(&self) -> Vec<Stated>;

    /// Something to read from many times in a row.
    fn reader(&self) -> Result<Self::Reader<'_>>;

    /// Sets a key. When it returns, the write survives the end of the process, or with `sync` that
    /// of the machine.
    fn put(&self, key: &[u8], value: &[u8], sync: bool) -> Result<()>;

    /// Puts of a fill, at most [`Self::FILL_TRANSACTION`] of them.
    fn fill<'e>(&self, entries: impl Iterator<Item = (&'e [u8], &'e [u8])>) -> Result<()> {
        for (key, value) in entries {
            self.put(key, value, false)?;
        }
        Ok(())
    }

    /// Waits for flushes and merges, where the engine has a call for that; the driver watches the
    /// process besides.
    fn settle(&self) -> Result<()> {
        Ok(())
    }

    /// Writes the memtable to a table, in the variants that are not drained.
    ///
    /// # Errors
    /// Of the engine; it has no such variant.
    fn flush(&self) -> Result<()> {
        Err("this engine has no undrained variant".to_owned())
    }

    /// Merges everything into one sorted run, in the engines that `rewrite` is measured for.
    ///
    /// # Errors
    /// Of the engine; it is not measured.
    fn compact(&self) -> Result<()> {
        Err("this engine is not measured compacted to one run".to_owned())
    }

    /// Work after the last put that is part of a fill; its time and bytes count as background work.
    fn finish_fill(&self) -> Result<()> {
        Ok(())
    }

    /// Sorted runs or files by level, where the engine tells: what a read has to look into.
    fn runs(&self) -> Result<Option<String>> {
        Ok(None)
    }

    /// Closes the database.
    fn close(self) -> Result<()> {
        Ok(())
    }
}

/// `name=value` of anything that can be shown.
pub fn stated(name: &str, value: impl fmt::Display) -> Stated {
    (name.to_owned(), value.to_string())
}
