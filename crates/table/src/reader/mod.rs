//! Reading a table: opening it, point lookups, and its metadata.
//!
//! [`TableReader::open`] reads header, footer, properties, index, range tombstones and filter,
//! checks each and checks them against each other. With filter and index in memory, a lookup then
//! usually reads at most one data block, if the cache does not have it. A reader can be shared
//! between threads; only the resident parts of filter and index, and the warnings, change.
//!
//! Not here: the file ([`crate::file`]), loading ([`load`]), the filter ([`filter`]), lookups
//! ([`lookup`]) and reading their blocks ([`blocks`]), iteration ([`iter`]) and its read-ahead
//! ([`ahead`]), sizes of key ranges ([`extent`]), large values ([`large`]), the check of a table
//! just written ([`written`]) and the full check ([`verify`]).

mod ahead;
mod blocks;
mod extent;
mod filter;
mod iter;
mod large;
pub(crate) mod load;
mod lookup;
mod place;
mod residency;
mod resident;
mod verify;
mod walked;
mod whole;
mod window;
mod written;

pub use self::ahead::{AHEAD_BYTES, Walk};
pub use self::blocks::LoadedBlock;
pub use self::filter::Held;
use self::filter::{TableFilter, warning};
pub use self::iter::TableIter;
pub(crate) use self::load::{Loaded, PROPERTIES, RANGE_TOMBSTONES, load, load_footer};
pub use self::lookup::ValueMode;
pub use self::resident::{ResidentFilter, Unasked};
pub(crate) use self::walked::ListedBlock;
pub use self::whole::{CacheUnit, CacheUnits};

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use shamba_env::{Clock, Env};
use shamba_key::DigestFn;

use crate::block::frame::{FRAME_BYTES, unseal};
use crate::block::{DataBlock, LARGEST_PAYLOAD_BYTES};
use crate::cache::{BlockCache, CachedTable};
use crate::compression::Compression;
use crate::counters::ReadCounters;
use crate::file::TableFile;
use crate::files::OpenFiles;
use crate::format::properties::Properties;
use crate::format::{FOOTER_BYTES, footer};
use crate::id::{BirthId, TableId, table_file_name};
use crate::index::{Handle, Located};
use crate::ledger::{Charge, Ledger, LedgerPart};
use crate::range::RangeTombstone;
use crate::residency::Residency;
use crate::summary::TableSummary;
use crate::sync::Mutex;
use crate::{Error, Result};

/// Bytes of an open table besides its filter, its index and its keys: the reader, its path, its
/// entries in the open files and in the cache, and the allocator's overhead for a dozen
/// allocations.
pub(crate) const OPEN_BYTES: usize = size_of::<TableReader>() + 512;

/// Name of a data block in errors.
const DATA_BLOCK: &str = "data block";

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
}

/// An open table.
#[derive(Debug)]
pub struct TableReader {
    loaded: Loaded,
    summary: TableSummary,
    digest: DigestFn,
    filter: Option<TableFilter>,
    /// Damage found in the filter.
    warnings: Mutex<Vec<String>>,
    cache: Arc<BlockCache>,
    /// The table's number in the cache; `None`: no block is cached.
    cached: Option<CachedTable>,
    clock: Arc<dyn Clock>,
    ledger: Arc<Ledger>,
    /// Whether the table was released: nothing more becomes resident.
    is_released: AtomicBool,
    /// Whether the index is cached as one block.
    is_index_whole: bool,
    _charges: [Charge; 2],
}

impl TableReader {
    /// Opens `dir/NNNNNN.sst`.
    ///
    /// # Errors
    /// `Io` when the file is missing or cannot be read; `Unsupported` for a newer version or
    /// unknown required feature; `Corruption` for damage to anything but filter slices, for another
    /// birth id than expected, and for another digest.
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
        let summary = TableSummary::of(options.id, options.birth, loaded.file.bytes, &loaded.properties);
        let warnings = Mutex::new(loaded.filter_damage.iter().map(warning).collect());
        let held = |stored| {
            TableFilter::new(stored, (options.filter, options.units.filter), &options.cache, options.id)
        };
        let filter = loaded.filter.map(held);
        let filter_bytes = filter.as_ref().map_or(0, TableFilter::meta_bytes);
        let tombstone_bytes: usize = loaded
            .tombstones
            .iter()
            .map(|one| size_of_val(one) + one.start.len() + one.end.as_ref().map_or(0, Bytes::len))
            .sum();
        let charge = |part, bytes: usize| Charge::new(&options.ledger, part, bytes as u64);
        let charges = [
            charge(LedgerPart::Indexes, loaded.index.base_bytes()),
            charge(
                LedgerPart::TableMeta,
                OPEN_BYTES + loaded.properties.bounds_bytes() + tombstone_bytes + filter_bytes,
            ),
        ];
        let reader = Arc::new(Self {
            loaded,
            summary,
            digest: options.digest,
            filter,
            warnings,
            cached: if options.keeps_blocks { options.cache.add_table(options.id) } else { None },
            cache: options.cache,
            clock: Arc::clone(&env.clock),
            ledger: options.ledger,
            is_released: AtomicBool::new(false),
            is_index_whole: options.index == Residency::Cached && options.units.index == CacheUnit::Whole,
            _charges: charges,
        });
        if options.filter == Residency::Pinned {
            reader.hold_whole_filter()?;
        }
        Ok(reader)
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

    /// The range tombstones, sorted by start, then newest first. Not fragmented: they may overlap.
    pub fn range_tombstones(&self) -> &[RangeTombstone] {
        &self.loaded.tombstones
    }

    /// Iterates over the entries. With `fill_cache`, blocks that are read may be admitted to the
    /// cache.
    pub fn iter(self: &Arc<Self>, fill_cache: bool) -> TableIter {
        self.walk(Walk::Parts { fill_cache, ahead_bytes: AHEAD_BYTES })
    }

    /// Iterates over the entries, reading as `walk` says.
    pub fn walk(self: &Arc<Self>, walk: Walk) -> TableIter {
        TableIter::new(Arc::clone(self), walk)
    }

    /// The error for damage that an access to a block found.
    #[cold]
    fn damaged_block(&self, located: &Located, detail: String) -> Error {
        match self.handle_of(located, &mut ReadCounters::default()) {
            Ok(handle) => self.loaded.file.damaged(handle.offset, DATA_BLOCK, detail),
            Err(error) => error,
        }
    }

    fn now_ns(&self, io: &ReadCounters) -> u64 {
        if io.timed { self.clock.now_ns() } else { 0 }
    }

    /// Nanoseconds since `start_ns`, without the time of two clock reads.
    fn elapsed_ns(&self, io: &mut ReadCounters, start_ns: u64) -> u64 {
        io.timer_ns += 2 * io.clock_read_ns;
        self.now_ns(io).saturating_sub(start_ns).saturating_sub(io.clock_read_ns)
    }
}

impl Drop for TableReader {
    fn drop(&mut self) {
        if let Some(table) = self.cached {
            self.cache.close_table(self.summary.id, table);
            self.loaded.index.each_slots(|first, slots| {
                self.cache.retire_blocks(table, (first..).zip(slots));
            });
        }
        if let Some(filter) = &self.filter {
            filter.close(&self.cache, self.summary.id);
        }
    }
}

impl Loaded {
    /// Decodes the data block whose frame is `bytes`: its payload, with the header checked, and its
    /// compression.
    pub(crate) fn decode_block(&self, handle: Handle, bytes: Vec<u8>) -> Result<(Bytes, Compression)> {
        let damaged = |detail: String| -> Error { self.file.damaged(handle.offset, DATA_BLOCK, detail) };
        let limit_bytes = payload_limit_bytes(&self.properties, handle);
        let (payload, compression) =
            unseal(self.file.birth, handle.offset, bytes, limit_bytes).map_err(damaged)?;
        let entries = DataBlock::view(&payload).map_err(damaged)?.len();
        if entries != handle.entries as usize {
            return Err(damaged(format!("{entries} entries, expected {}", handle.entries)));
        }
        Ok((payload, compression))
    }
}

/// Maximum decompressed length of a data block: a single entry may exceed the block size, several
/// share a block.
fn payload_limit_bytes(properties: &Properties, handle: Handle) -> usize {
    if handle.entries == 1 {
        LARGEST_PAYLOAD_BYTES
    } else {
        usize::try_from(properties.block_bytes).unwrap_or(usize::MAX).saturating_sub(FRAME_BYTES)
    }
}
