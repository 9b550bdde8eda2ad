//! fjall: an LSM engine in Rust.
//!
//! Its cache holds blocks, and those indexes and filters that it does not pin; write buffers are
//! additional, so the cache gets the budget minus two of them.

use fjall::compaction::Leveled;
use fjall::config::{
    BlockSizePolicy, BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry,
};
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use crate::peer::{
    BACKGROUND_THREADS, BITS_PER_KEY, BLOCK_BYTES, Compression, Engine, Peer, Read, Result, Setup, Stated,
    stated,
};

/// Write buffers that are counted: one that takes writes, one that is flushed.
const WRITE_BUFFERS: u64 = 2;
/// Its threads do both, so they are as many as the others' that flush and that merge.
const WORKERS: u32 = BACKGROUND_THREADS + 1;

/// An open database.
pub struct Fjall {
    entries: Keyspace,
    db: Database,
    stated: Vec<Stated>,
}

fn failed(call: &'static str) -> impl Fn(fjall::Error) -> String {
    move |error| Setup::failure(Engine::Fjall, call, format!("{error:?}"))
}

impl Read for Fjall {
    #[inline]
    fn get<R>(&self, key: &[u8], see: impl FnOnce(Option<&[u8]>) -> R) -> Result<R> {
        let value = self.entries.get(key).map_err(failed("get"))?;
        Ok(see(value.as_deref()))
    }

    fn scan(&self, from: &[u8], entries: u64, mut see: impl FnMut(&[u8], &[u8])) -> Result<()> {
        for entry in self.entries.range(from..).take(entries as usize) {
            let (key, value) = entry.into_inner().map_err(failed("scan"))?;
            see(&key, &value);
        }
        Ok(())
    }
}

impl Peer for Fjall {
    type Reader<'a> = &'a Self;

    fn open(setup: &Setup) -> Result<Self> {
        let buffer_bytes = setup.write_buffer_bytes();
        let cache_bytes = setup.budget_bytes - WRITE_BUFFERS * buffer_bytes;
        let codec = match setup.compression {
            Compression::None => CompressionType::None,
            Compression::Lz4 => CompressionType::Lz4,
        };
        let stated = vec![
            stated("limits memory of", "cache of blocks, indexes and filters; write buffers"),
            stated(
                "cache_size",
                format!("{cache_bytes}: the budget without two write buffers, at all times"),
            ),
            stated("max_memtable_size", buffer_bytes),
            stated("table_target_size", setup.table_bytes()),
            stated("filter_policy", format!("bloom, {BITS_PER_KEY} bits on every level")),
            stated("data_block_size", BLOCK_BYTES),
            stated(
                "pinning, partitioning",
                "default: level 0's filters and indexes and level 1's indexes pinned, partitions from level 3",
            ),
            stated("compression", setup.compression.name()),
            stated("journal_compression", "none"),
            stated("worker_threads", format!("{WORKERS}, each flushes and merges")),
            stated("max_journaling_size", "512 MiB (default)"),
            stated("level ratio", "10 (default)"),
            stated("durability", "journal handed to the system at every write; syncput: persist(SyncData)"),
        ];
        let db = Database::builder(&setup.dir)
            .cache_size(cache_bytes)
            .worker_threads(WORKERS as usize)
            .journal_compression(CompressionType::None)
            .open()
            .map_err(failed("open"))?;
        let filter = FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(BITS_PER_KEY as f32));
        let table_bytes = setup.table_bytes();
        let options = || {
            KeyspaceCreateOptions::default()
                .max_memtable_size(buffer_bytes)
                .data_block_size_policy(BlockSizePolicy::all(BLOCK_BYTES as u32))
                .data_block_compression_policy(CompressionPolicy::all(codec))
                .index_block_compression_policy(CompressionPolicy::all(CompressionType::None))
                .filter_policy(FilterPolicy::all(filter))
                .compaction_strategy(std::sync::Arc::new(
                    Leveled::default().with_table_target_size(table_bytes),
                ))
        };
        let entries = db.keyspace("default", options).map_err(failed("keyspace"))?;
        Ok(Self { entries, db, stated })
    }

    fn version(&self) -> String {
        "3.1.13 (lsm-tree 3.1.10)".to_owned()
    }

    fn options(&self) -> Vec<Stated> {
        self.stated.clone()
    }

    fn reader(&self) -> Result<&Self> {
        Ok(self)
    }

    #[inline]
    fn put(&self, key: &[u8], value: &[u8], sync: bool) -> Result<()> {
        self.entries.insert(key, value).map_err(failed("insert"))?;
        if sync {
            self.db.persist(PersistMode::SyncData).map_err(failed("persist"))?;
        }
        Ok(())
    }
}
