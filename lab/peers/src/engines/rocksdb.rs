//! RocksDB and the variants of it that keep indexes and filters otherwise.
//!
//! The base leaves them to the open tables, as RocksDB does unless told: they are then outside of
//! the budget, which its resident size shows. `cached` and `partitioned` keep them in the block
//! cache, so that the budget holds all of it. Write buffers are charged to the block cache in every
//! variant. `compacted` merges all of a filled database into one run, where the others keep what a
//! fill leaves: up to three files in level 0. `undrained` does so too, and then gets five runs in
//! level 0.

use rust_rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, DB, DBCompressionType, DataBlockIndexType, Options,
    WaitForCompactOptions, WriteBufferManager, WriteOptions, properties,
};

use crate::peer::{
    BACKGROUND_THREADS, BITS_PER_KEY, BLOCK_BYTES, Compression, Engine, Io, LONG_VALUE_BYTES, Peer, Read,
    Result, SIZE_RATIO, Setup, Stated, VALUE_SPACE, stated,
};

/// Write buffers at once: one that takes writes, two that wait for their flush, as ours.
pub const WRITE_BUFFERS: u64 = 3;
/// Write buffers per level 1, as RocksDB's tuning guide recommends: as much as level 0 when it is
/// compacted.
const LEVEL_BASE_BUFFERS: u64 = 4;
/// RocksDB gives a quarter of its jobs, at least one, to flushes and the others to compactions: as
/// many as ours.
const BACKGROUND_JOBS: u32 = BACKGROUND_THREADS + 1;

/// Length of blob files, as of tables by default; they are 256 MiB by default, which is a budget.
const BLOB_FILE_BYTES: u64 = 64 << 20;
/// Bytes that a compaction reads ahead in blob files; none by default.
const BLOB_READ_AHEAD_BYTES: u64 = 2 << 20;

/// An open database.
pub struct RocksDb {
    db: DB,
    engine: Engine,
    plain: WriteOptions,
    synced: WriteOptions,
    stated: Vec<Stated>,
}

impl RocksDb {
    // Made at every call, so it must not allocate: that would be in this engine's times alone.
    fn failed(&self, call: &'static str) -> impl Fn(rust_rocksdb::Error) -> String {
        let engine = self.engine;
        move |error| Setup::failure(engine, call, error)
    }
}

/// Adds what the variant is about.
fn vary(engine: Engine, table: &mut BlockBasedOptions, stated_options: &mut Vec<Stated>) {
    let bits = f64::from(BITS_PER_KEY);
    let mut state = |name: &str, value: &str| stated_options.push(stated(name, value));
    if engine == Engine::RocksdbRibbon {
        table.set_ribbon_filter(bits);
        state("filter_policy", &format!("ribbon, as good as {BITS_PER_KEY} bits of Bloom"));
    } else {
        table.set_bloom_filter(bits, false);
        state("filter_policy", &format!("bloom, {BITS_PER_KEY} bits"));
    }
    if engine == Engine::RocksdbHash {
        table.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
        table.set_data_block_hash_ratio(0.75);
        state("data_block_index_type", "kDataBlockBinaryAndHash, ratio 0.75");
    }
    if engine == Engine::RocksdbPartitioned {
        table.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
        table.set_partition_filters(true);
        table.set_metadata_block_size(BLOCK_BYTES);
        table.set_pin_top_level_index_and_filter(true);
        state(
            "index_type",
            "kTwoLevelIndexSearch, partition_filters, metadata_block_size=4096, top level pinned",
        );
    }
    if matches!(engine, Engine::RocksdbCached | Engine::RocksdbPartitioned) {
        table.set_cache_index_and_filter_blocks(true);
        table.set_cache_index_and_filter_blocks_with_high_priority(true);
        table.set_pin_l0_filter_and_index_blocks_in_cache(true);
        state("cache_index_and_filter_blocks", "true, high priority, those of level 0 pinned");
        state("limits memory of", "block cache with indexes and filters, write buffers");
    } else {
        state("cache_index_and_filter_blocks", "false");
        state(
            "limits memory of",
            "block cache, write buffers; indexes and filters of open tables come on top",
        );
    }
}

/// Puts long values into blob files, which share the block cache.
fn separate(
    engine: Engine,
    options: &mut Options,
    cache: &Cache,
    compression: DBCompressionType,
    stated_options: &mut Vec<Stated>,
) {
    options.set_enable_blob_files(true);
    options.set_min_blob_size(LONG_VALUE_BYTES);
    options.set_blob_file_size(BLOB_FILE_BYTES);
    options.set_blob_compression_type(compression);
    options.set_enable_blob_gc(true);
    options.set_blob_cache(cache);
    options.set_blob_compaction_readahead_size(BLOB_READ_AHEAD_BYTES);
    let mut state = |name: &str, value: String| stated_options.push(stated(name, value));
    state("enable_blob_files", format!("true, from {LONG_VALUE_BYTES} bytes, files of {BLOB_FILE_BYTES}"));
    state("blob_cache", "the block cache".to_owned());
    state("blob_compaction_readahead_size", BLOB_READ_AHEAD_BYTES.to_string());
    if engine == Engine::RocksdbBlobTuned {
        // Whatever the age of a file. A fifth of garbage is a space of 1.25.
        let garbage = 1.0 - 1.0 / VALUE_SPACE;
        options.set_blob_gc_age_cutoff(1.0);
        options.set_blob_gc_force_threshold(garbage);
        state("enable_blob_garbage_collection", format!("true, age cutoff 1, force threshold {garbage}"));
    } else {
        state(
            "enable_blob_garbage_collection",
            "true, age cutoff 0.25 and force threshold 1 (defaults)".to_owned(),
        );
    }
}

/// `L0 2 files, L6 70 files` of the table that `rocksdb.levelstats` is.
fn files_by_level(levels: &str) -> String {
    let of_line = |line: &str| {
        let mut words = line.split_whitespace();
        let (level, files): (u32, u64) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        (files > 0).then(|| format!("L{level} {files} files"))
    };
    levels.lines().filter_map(of_line).collect::<Vec<_>>().join(", ")
}

impl Read for RocksDb {
    #[inline]
    fn get<R>(&self, key: &[u8], see: impl FnOnce(Option<&[u8]>) -> R) -> Result<R> {
        let value = self.db.get_pinned(key).map_err(self.failed("get"))?;
        Ok(see(value.as_deref()))
    }

    fn scan(&self, from: &[u8], entries: u64, mut see: impl FnMut(&[u8], &[u8])) -> Result<()> {
        let mut iterator = self.db.raw_iterator();
        iterator.seek(from);
        for place in 0..entries {
            if place > 0 {
                iterator.next();
            }
            let Some((key, value)) = iterator.item() else { break };
            see(key, value);
        }
        iterator.status().map_err(self.failed("scan"))
    }
}

impl Peer for RocksDb {
    type Reader<'a> = &'a Self;

    fn open(setup: &Setup) -> Result<Self> {
        let buffer_bytes = setup.write_buffer_bytes();
        let level_base_bytes = buffer_bytes * LEVEL_BASE_BUFFERS;
        // The one that RocksDB recommends over LRU; entries of no one size, for write buffers are
        // charged to it.
        let cache = Cache::new_hyper_clock_cache(setup.budget_bytes as usize, 0);
        let buffers_bytes = buffer_bytes * WRITE_BUFFERS;
        let manager = WriteBufferManager::new_write_buffer_manager_with_cache(
            buffers_bytes as usize,
            false,
            cache.clone(),
        );
        let mut table = BlockBasedOptions::default();
        table.set_block_cache(&cache);
        table.set_block_size(BLOCK_BYTES);
        let mut options = Options::default();
        let compression = match setup.compression {
            Compression::None => DBCompressionType::None,
            Compression::Lz4 => DBCompressionType::Lz4,
        };
        let is_direct = setup.io == Io::Direct;
        let mut stated_options = vec![
            stated(
                "block_cache",
                format!("HyperClockCache (entries of any size), {} bytes", setup.budget_bytes),
            ),
            stated("write_buffer_manager", format!("{buffers_bytes} bytes, charged to the block cache")),
            stated("write_buffer_size", buffer_bytes),
            stated("max_write_buffer_number", WRITE_BUFFERS),
            stated("max_bytes_for_level_base", level_base_bytes),
            stated("max_bytes_for_level_multiplier", SIZE_RATIO),
            stated("level_compaction_dynamic_level_bytes", "true (default)"),
            stated("target_file_size_base", setup.table_bytes()),
            stated("block_size", BLOCK_BYTES),
            stated("compression", setup.compression.name()),
            stated(
                "max_background_jobs",
                format!("{BACKGROUND_JOBS}: one flush, {BACKGROUND_THREADS} compactions"),
            ),
            stated("max_open_files", "-1 (default)"),
            stated("use_direct_reads", is_direct),
            stated("disable_auto_compactions", !setup.auto_compaction),
            stated("verify_checksums", "true (default)"),
            stated("durability", "log without sync (WriteOptions::sync=false); syncput: sync=true"),
        ];
        vary(setup.engine, &mut table, &mut stated_options);
        if matches!(setup.engine, Engine::RocksdbBlob | Engine::RocksdbBlobTuned) {
            let compression = if setup.compression == Compression::Lz4 {
                DBCompressionType::Lz4
            } else {
                DBCompressionType::None
            };
            separate(setup.engine, &mut options, &cache, compression, &mut stated_options);
        }
        options.create_if_missing(true);
        options.set_write_buffer_manager(&manager);
        options.set_write_buffer_size(buffer_bytes as usize);
        options.set_max_write_buffer_number(WRITE_BUFFERS as i32);
        options.set_max_bytes_for_level_base(level_base_bytes);
        options.set_max_bytes_for_level_multiplier(f64::from(SIZE_RATIO));
        options.set_target_file_size_base(setup.table_bytes());
        options.set_compression_type(compression);
        options.set_max_background_jobs(BACKGROUND_JOBS as i32);
        options.set_use_direct_reads(is_direct);
        options.set_disable_auto_compactions(!setup.auto_compaction);
        options.set_block_based_table_factory(&table);
        let db =
            DB::open(&options, &setup.dir).map_err(|error| Setup::failure(setup.engine, "open", error))?;
        let mut synced = WriteOptions::default();
        synced.set_sync(true);
        let plain = WriteOptions::default();
        Ok(Self { db, engine: setup.engine, plain, synced, stated: stated_options })
    }

    fn version(&self) -> String {
        "11.12.0 (crate rust-rocksdb 0.54.0)".to_owned()
    }

    fn options(&self) -> Vec<Stated> {
        self.stated.clone()
    }

    fn reader(&self) -> Result<&Self> {
        Ok(self)
    }

    #[inline]
    fn put(&self, key: &[u8], value: &[u8], sync: bool) -> Result<()> {
        let options = if sync { &self.synced } else { &self.plain };
        self.db.put_opt(key, value, options).map_err(self.failed("put"))
    }

    fn flush(&self) -> Result<()> {
        self.db.flush().map_err(self.failed("flush"))
    }

    fn compact(&self) -> Result<()> {
        self.db.compact_range::<&[u8], &[u8]>(None, None);
        Ok(())
    }

    fn finish_fill(&self) -> Result<()> {
        if matches!(self.engine, Engine::RocksdbCompacted | Engine::RocksdbUndrained) {
            self.compact()?;
        }
        Ok(())
    }

    fn runs(&self) -> Result<Option<String>> {
        let levels = self.db.property_value(properties::LEVELSTATS).map_err(self.failed("levelstats"))?;
        Ok(levels.map(|levels| files_by_level(&levels)))
    }

    fn settle(&self) -> Result<()> {
        self.db.wait_for_compact(&WaitForCompactOptions::default()).map_err(self.failed("wait_for_compact"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_without_files_are_not_told() {
        let levels = "Level Files Size(MB)\n--------------------\n  0        2        1\n  1        0        0\n  6       70      812\n";
        assert_eq!(files_by_level(levels), "L0 2 files, L6 70 files");
    }
}
