//! This project's engine.
//!
//! Everything as a new user has it, but for what is equal among all: budget, write buffer, filter
//! bits, block size, threads. The budget holds caches, write buffers, filters and indexes, and
//! tables that are being built.

use shamba::{Compression as Codec, Db, Durability, ValueThreshold, WriteOptions};

use crate::peer::{
    BACKGROUND_THREADS, BITS_PER_KEY, BLOCK_BYTES, Compression, Engine, Io, LONG_VALUE_BYTES, Peer, Read,
    Result, SIZE_RATIO, Setup, Stated, VALUE_SPACE, stated,
};
use crate::process;

/// An open database.
pub struct Shamba {
    db: Db,
    io: Io,
}

fn failed(call: &'static str) -> impl Fn(shamba::Error) -> String {
    move |error| Setup::failure(Engine::Shamba, call, error.chain())
}

impl Read for Shamba {
    #[inline]
    fn get<R>(&self, key: &[u8], see: impl FnOnce(Option<&[u8]>) -> R) -> Result<R> {
        let value = self.db.get(key).map_err(failed("get"))?;
        Ok(see(value.as_deref()))
    }

    fn scan(&self, from: &[u8], entries: u64, mut see: impl FnMut(&[u8], &[u8])) -> Result<()> {
        let mut cursor = self.db.cursor();
        cursor.seek(from).map_err(failed("seek"))?;
        for place in 0..entries {
            if place > 0 {
                cursor.next().map_err(failed("next"))?;
            }
            let Some((key, value)) = cursor.entry() else { break };
            see(key, value);
        }
        Ok(())
    }
}

impl Peer for Shamba {
    type Reader<'a> = &'a Self;

    fn open(setup: &Setup) -> Result<Self> {
        let codec = match setup.compression {
            Compression::None => Codec::None,
            Compression::Lz4 => Codec::Lz4,
        };
        let threshold = match setup.engine {
            Engine::ShambaValues => ValueThreshold::from(LONG_VALUE_BYTES as u32),
            _ => ValueThreshold::Off,
        };
        let db = Db::builder(&setup.dir)
            .memory_budget(setup.budget_bytes)
            .write_buffer(setup.write_buffer_bytes())
            .size_ratio(f64::from(SIZE_RATIO))
            .bits_per_key(f64::from(BITS_PER_KEY))
            .experimental(|e| {
                e.block_bytes(BLOCK_BYTES)
                    .value_threshold(threshold)
                    .value_space(VALUE_SPACE)
                    .auto_compaction(setup.auto_compaction)
                    .map_reads(setup.engine == Engine::ShambaMapped)
            })
            .compression(codec)
            .durability(Durability::NoSync)
            .background_threads(BACKGROUND_THREADS)
            .direct_io(setup.io == Io::Direct)
            .open()
            .map_err(failed("open"))?;
        Ok(Self { db, io: setup.io })
    }

    fn version(&self) -> String {
        // The workspace's, which the engine's package takes over.
        let manifest = include_str!("../../../../Cargo.toml");
        let version = manifest.lines().find_map(|line| line.strip_prefix("version = "));
        version.map_or("unknown", |version| version.trim_matches('"')).to_owned()
    }

    fn options(&self) -> Vec<Stated> {
        let mut options = vec![
            stated("limits memory of", "caches, write buffers, filters, indexes, tables being built"),
            stated("durability", "log handed to the system at every write (NoSync); syncput: Sync"),
            stated("threads", process::thread_names()),
            stated("direct-io", self.io == Io::Direct),
        ];
        options.extend(self.db.settings().into_iter().filter(|(name, _)| name != "digest-seed"));
        options
    }

    fn reader(&self) -> Result<&Self> {
        Ok(self)
    }

    #[inline]
    fn put(&self, key: &[u8], value: &[u8], sync: bool) -> Result<()> {
        if sync {
            let options = WriteOptions::from(Durability::Sync);
            return self.db.put_with(key, value, options).map_err(failed("put"));
        }
        self.db.put(key, value).map_err(failed("put"))
    }

    fn flush(&self) -> Result<()> {
        self.db.flush().map_err(failed("flush"))
    }

    fn compact(&self) -> Result<()> {
        self.db.compact().map_err(failed("compact"))
    }

    fn runs(&self) -> Result<Option<String>> {
        let levels = self.db.stats().levels;
        let of_level = |level: &shamba::LevelStats| format!("L{} {} runs", level.level, level.runs);
        Ok(Some(levels.iter().filter(|level| level.runs > 0).map(of_level).collect::<Vec<_>>().join(", ")))
    }

    fn settle(&self) -> Result<()> {
        self.db.wait_idle().map_err(failed("wait_idle"))
    }

    fn close(self) -> Result<()> {
        self.db.close().map_err(failed("close"))
    }
}
