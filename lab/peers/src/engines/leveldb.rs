//! LevelDB, the C++ one, through a crate that bundles its sources.
//!
//! Overhead of the crate per call: read and write options are allocated, and a value is copied by
//! LevelDB's C interface, as for every user of that interface. Indexes and filters belong to open
//! tables and are not part of the budget. Tables are memory maps, whose blocks do not enter the
//! block cache: the budget limits almost nothing, and the resident size includes pages of the
//! system's cache. Block checksums are not verified, which is LevelDB's default; the crate builds
//! it without a fast CRC-32C.

use leveldb::database::Database;
use leveldb::database::cache::Cache;
use leveldb::database::slice::Slice;
use leveldb::iterator::{Context, EntryType, Forward, Iterable, Iterator as Walk, LevelDBIterator, Policy};
use leveldb::kv::KV;
use leveldb::options::{Compression as Codec, Options, ReadOptions, WriteOptions};

use crate::peer::{BITS_PER_KEY, BLOCK_BYTES, Engine, Peer, Read, Result, Setup, Stated, stated};

/// Write buffers at once: LevelDB has one that takes writes and one that is flushed.
const WRITE_BUFFERS: u64 = 2;
/// Tables that stay open: all of them, as RocksDB's and ours do.
const OPEN_FILES: i32 = 10_000;

/// An open database.
pub struct LevelDb {
    db: Database,
    stated: Vec<Stated>,
}

/// Iterators that go on from where they were sought to, to the end.
struct FromHere;

impl Policy for FromHere {
    fn should_continue(&self, _context: &dyn Context<'_>) -> bool {
        true
    }

    fn should_seek_begin(&self) -> bool {
        false
    }
}

fn failed(call: &'static str) -> impl Fn(leveldb::error::Error) -> String {
    move |error| Setup::failure(Engine::Leveldb, call, error)
}

impl Read for LevelDb {
    #[inline]
    fn get<R>(&self, key: &[u8], see: impl FnOnce(Option<&[u8]>) -> R) -> Result<R> {
        let options = ReadOptions::new();
        let value = self.db.get(options, Slice::from(key)).map_err(failed("get"))?;
        Ok(see(value.as_ref().map(Slice::as_bytes)))
    }

    fn scan(&self, from: &[u8], entries: u64, mut see: impl FnMut(&[u8], &[u8])) -> Result<()> {
        let options = ReadOptions::new();
        let mut iterator: Walk<'_, EntryType, Forward, FromHere> =
            self.db.iter_with_policy(options, FromHere);
        iterator.seek(&Slice::from(from));
        for _ in 0..entries {
            let Some((key, value)) = iterator.next() else { break };
            see(key.as_bytes(), value.as_bytes());
        }
        iterator.get_error().map_or(Ok(()), |error| Err(failed("scan")(error)))
    }
}

impl Peer for LevelDb {
    type Reader<'a> = &'a Self;

    fn open(setup: &Setup) -> Result<Self> {
        let buffer_bytes = setup.write_buffer_bytes();
        let cache_bytes = setup.budget_bytes - WRITE_BUFFERS * buffer_bytes;
        let mut options = Options::new();
        options.create_if_missing = true;
        options.write_buffer_size = Some(buffer_bytes as usize);
        options.block_size = Some(BLOCK_BYTES);
        options.cache = Some(Cache::new(cache_bytes as usize));
        options.compression = Codec::No;
        options.max_file_size = Some(setup.table_bytes() as usize);
        options.max_open_files = Some(OPEN_FILES);
        options.set_bloom_filter(BITS_PER_KEY as i32);
        let stated = vec![
            stated(
                "limits memory of",
                "write buffers; its block cache only what is not mapped: the first 1,000 open tables are, and their pages count for no budget; indexes and filters come on top",
            ),
            stated("write_buffer_size", buffer_bytes),
            stated("block_cache", format!("{cache_bytes} bytes: the budget without two write buffers")),
            stated("block_size", BLOCK_BYTES),
            stated("filter_policy", format!("bloom, {BITS_PER_KEY} bits")),
            stated("max_file_size", setup.table_bytes()),
            stated("max_open_files", OPEN_FILES),
            stated("compression", "none"),
            stated("verify_checksums", "false (default)"),
            stated("background threads", "1 (fixed)"),
            stated("level ratio", "10 (fixed)"),
            stated("durability", "log without sync; syncput: sync=true"),
        ];
        let db = Database::open(&setup.dir, options).map_err(failed("open"))?;
        Ok(Self { db, stated })
    }

    fn version(&self) -> String {
        "1.23 and later, main at ac69108 (crate leveldb-rs-binding 2.1.0)".to_owned()
    }

    fn options(&self) -> Vec<Stated> {
        self.stated.clone()
    }

    fn reader(&self) -> Result<&Self> {
        Ok(self)
    }

    #[inline]
    fn put(&self, key: &[u8], value: &[u8], sync: bool) -> Result<()> {
        self.db.put(WriteOptions { sync }, Slice::from(key), Slice::from(value)).map_err(failed("put"))
    }
}
