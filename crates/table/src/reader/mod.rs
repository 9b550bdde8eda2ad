//! Reading a table: opening it, point lookups, and its metadata.
//!
//! [`TableReader::open`] reads header, footer, properties, the index's top level, range tombstones
//! and the filter's geometry, checks each and checks them against each other. With filter and index
//! in memory, a lookup then usually reads at most one data block, if the cache does not have it. A
//! reader can be shared between threads; only the resident parts of filter and index, and the
//! warnings, change.
//!
//! A reader owns three parts: what was loaded from the file ([`Loaded`], with the index), its
//! filter ([`TableFilter`]) and its access to the block cache ([`CacheClient`]). Each feature is a
//! type or a function over those of them that it needs:
//!
//! | feature | type | parts |
//! |---|---|---|
//! | searching the index | [`Partitions`] | loaded, cache |
//! | reading data blocks | [`Blocks`] | loaded, cache |
//! | a point lookup ([`lookup`]) | `TableLookup` | [`Blocks`] |
//! | iteration ([`iter`]), its index ([`walked`]) and read-ahead ([`ahead`]) | [`TableIter`] | a reader |
//! | samples of blocks ([`sample`]) | [`TableReader`] | a reader |
//! | sizes of key ranges ([`extent`]) | `Extent` | loaded, summary |
//! | values outside the blocks ([`values`]) | [`Loaded`] | loaded |
//! | the full check ([`verify`]), the check after writing ([`written`]) | `Check` | loaded, filter |
//!
//! The methods of [`TableReader`] forward to them ([`reads`], [`residency`]).
//!
//! Not here: the file ([`crate::file`]).

// The parts: what was loaded, the cache, the filter.
mod cached;
mod filter;
pub(crate) mod load;
mod resident;
mod values;

// Index partitions and data blocks.
mod blocks;
mod partitions;
mod whole;

// Features over them.
mod ahead;
mod extent;
mod iter;
mod lookup;
mod sample;
mod verify;
mod walked;
mod written;

// Forwarding methods of the reader.
mod reads;
mod residency;

use self::blocks::Blocks;
use self::cached::CacheClient;
use self::filter::TableFilter;
use self::partitions::Partitions;

pub use self::ahead::{AHEAD_BYTES, Walk};
pub use self::blocks::{BlockToTake, LoadedBlock};
pub use self::filter::Held;
pub(crate) use self::filter::{filter_meta_bytes, filter_whole_bytes};
pub use self::iter::{SEEK_STEPS, SeekRead, Seeking, TableIter};
pub(crate) use self::load::{Loaded, PROPERTIES, RANGE_TOMBSTONES, load, load_footer, load_footer_of};
pub use self::lookup::ValueMode;
pub use self::resident::{ResidentFilter, Unasked};
pub use self::verify::WRONG_FILTER;
pub(crate) use self::walked::ListedBlock;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use shamba_env::Env;
use shamba_key::{DigestFn, Prefix};

use crate::Result;
use crate::cache::BlockCache;
use crate::file::TableFile;
use crate::files::OpenFiles;
use crate::format::{FOOTER_BYTES, footer};
use crate::id::{BirthId, TableId, table_file_name};
use crate::ledger::{Charge, Ledger, LedgerPart};
use crate::range::RangeTombstone;
use crate::residency::{CacheUnit, CacheUnits, Residency};
use crate::summary::TableSummary;
use crate::value_file::ValueFile;
use crate::value_uses::TableValueUse;

/// Bytes of an open table without filter, index and keys: the reader, its path, its entries in the
/// list of open files and in the cache, and the allocator's overhead of a dozen allocations.
pub(crate) const OPEN_BYTES: usize = size_of::<TableReader>() + 512;

/// Memory of an open table for the value files that it names.
pub(crate) fn value_uses_bytes(files: usize) -> usize {
    files * (size_of::<TableValueUse>() + size_of::<Arc<ValueFile>>())
}

/// Options for opening a table.
#[derive(Clone, Debug)]
pub struct ReaderOptions {
    /// Number of the file.
    pub id: TableId,
    /// The birth id in the manifest: a file with another one was swapped.
    pub birth: BirthId,
    /// The database's key hash: a table with another hash would deny keys that it holds.
    pub digest: DigestFn,
    /// The block cache.
    pub cache: Arc<BlockCache>,
    /// The ledger that resident parts are charged to.
    pub ledger: Arc<Ledger>,
    /// Limits the number of open files.
    pub files: Arc<OpenFiles>,
    /// Whether to bypass the operating system's cache, if the file system supports it.
    pub direct_io: bool,
    /// Residency mode of the filter. A budgeted filter is absent until slices are made resident.
    pub filter: Residency,
    /// Residency mode of the index. A budgeted index has no resident partition at first.
    pub index: Residency,
    /// Caching units of filters and indexes that are held as blocks of the cache.
    pub units: CacheUnits,
    /// Whether blocks that are read may be cached. False for a reader that is used once.
    pub keeps_blocks: bool,
    /// The first key and the exclusive upper bound, if the caller already has them in memory: the
    /// table then shares them instead of keeping copies. Ignored if they differ from the file's.
    pub bounds: Option<(Bytes, Option<Bytes>)>,
    /// The value files that the table refers to, in any order; others are ignored. Empty for a tool
    /// that reads no values: references are then only decoded.
    pub values: Vec<Arc<ValueFile>>,
}

/// An open table.
#[derive(Debug)]
pub struct TableReader {
    loaded: Loaded,
    summary: TableSummary,
    digest: DigestFn,
    /// `None`: the table has no filter, or its geometry is damaged.
    filter: Option<TableFilter>,
    /// The cache for data blocks and index partitions.
    cached: CacheClient,
    /// Whether the table was released: no partition becomes resident any more.
    is_released: AtomicBool,
    charges: [Charge; 2],
}

impl TableReader {
    /// Opens `dir/NNNNNN.sst`.
    ///
    /// # Errors
    /// `Io` when the file is missing or cannot be read; `Unsupported` for a newer version or
    /// unknown required feature; `Corruption` for damage to anything but filter slices, for another
    /// birth id than expected, for another digest, and for value files that are not those of the
    /// table.
    pub fn open(env: &Env, dir: &Path, options: ReaderOptions) -> Result<Arc<Self>> {
        let path = dir.join(table_file_name(options.id));
        let file = TableFile::open(&env.vfs, &path, options.direct_io, &options.files)?;
        let mut loaded = load(file, Some(options.birth), options.index, &options.ledger)?;
        loaded.properties.share_bounds(options.bounds);
        if loaded.footer.digest != options.digest {
            let (found, expected) = (loaded.footer.digest, options.digest);
            return Err(loaded.file.damaged(
                loaded.file.bytes.saturating_sub(FOOTER_BYTES as u64),
                footer::STRUCTURE,
                format!(
                    "keys are hashed by {} with seed {:016x}, expected {} with seed {:016x}",
                    found.kind(),
                    found.seed(),
                    expected.kind(),
                    expected.seed()
                ),
            ));
        }
        loaded.take_value_files(options.values)?;
        let summary = TableSummary::of(options.id, options.birth, loaded.file.bytes, &loaded.properties);
        let client = CacheClient::new(options.cache, Arc::clone(&env.clock), Arc::clone(&options.ledger));
        let filter = loaded.filter.map(|stored| {
            let cached = client.clone();
            let is_cached = options.filter == Residency::Cached;
            let cached = if is_cached { cached.register(options.id, options.units.filter) } else { cached };
            TableFilter::new(stored, cached)
        });
        let filter_bytes = filter.as_ref().map_or(0, TableFilter::meta_bytes);
        let tombstone_bytes: usize = loaded.tombstones.iter().map(RangeTombstone::memory_bytes).sum();
        let charge = |part, bytes: usize| Charge::new(&options.ledger, part, bytes as u64);
        let charges = [
            charge(LedgerPart::Indexes, loaded.index.base_bytes()),
            charge(
                LedgerPart::TableMeta,
                OPEN_BYTES
                    + loaded.dictionary.as_ref().map_or(0, |dictionary| dictionary.bytes().len())
                    + loaded.properties.bounds_bytes()
                    + tombstone_bytes
                    + filter_bytes
                    + value_uses_bytes(loaded.properties.value_files.len()),
            ),
        ];
        let index_unit =
            if options.index == Residency::Cached { options.units.index } else { CacheUnit::Sliced };
        let cached = if options.keeps_blocks { client.register(options.id, index_unit) } else { client };
        let reader = Arc::new(Self {
            loaded,
            summary,
            digest: options.digest,
            filter,
            cached,
            is_released: AtomicBool::new(false),
            charges,
        });
        debug_assert!(
            options.filter == Residency::Cached
                || reader.filter.as_ref().is_none_or(|filter| !filter.is_whole()),
            "a filter is cached whole that is not cached"
        );
        if options.filter == Residency::Pinned {
            reader.hold_whole_filter()?;
        }
        Ok(reader)
    }

    /// Memory that the table holds while it is open, also when nothing of its filter and index is
    /// resident.
    pub fn fixed_bytes(&self) -> u64 {
        self.charges.iter().map(Charge::bytes).sum()
    }

    /// The table's metadata.
    pub fn summary(&self) -> &TableSummary {
        &self.summary
    }

    /// Number of the file.
    pub fn id(&self) -> TableId {
        self.summary.id
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.loaded.file.path
    }

    /// Whether reads bypass the operating system's cache: requested, and supported by the file
    /// system.
    pub fn is_direct(&self) -> bool {
        self.loaded.file.is_direct()
    }

    /// The extractor of the prefixes that the filter holds; `None`: it holds no prefixes.
    #[inline]
    pub fn prefix(&self) -> Option<Prefix> {
        self.loaded.properties.prefix
    }

    /// The key hash.
    pub fn digest_fn(&self) -> DigestFn {
        self.digest
    }

    /// The range tombstones, sorted by start, then newest first. Not fragmented: they may overlap.
    pub fn range_tombstones(&self) -> &[RangeTombstone] {
        &self.loaded.tombstones
    }

    /// The index partitions.
    #[inline]
    fn partitions(&self) -> Partitions<'_> {
        Partitions::new(&self.loaded, &self.cached)
    }

    /// The data blocks.
    #[inline]
    fn blocks(&self) -> Blocks<'_> {
        Blocks::new(&self.loaded, &self.cached)
    }
}

impl Drop for TableReader {
    fn drop(&mut self) {
        self.cached.close(self.summary.id);
        self.loaded.index.each_slots(|first, slots| self.cached.retire((first..).zip(slots)));
        if let Some(filter) = &self.filter {
            filter.close(self.summary.id);
        }
    }
}
