//! Table files: how the tables and value files of a database are created, and opened for reading.
//!
//! [`TableFiles`] owns what all tables share: the block cache, the ledger of memory, and the limit
//! of open files. [`output`] writes the sorted entries of a flush, compaction or ingest as tables,
//! and [`separated`] their long values as value files.
//! A table that the memory budget keeps closed is opened for one use each time ([`opener`]).

mod opener;
pub(crate) mod output;
pub(crate) mod separated;
pub(crate) mod syncing;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use shamba_env::Env;
use shamba_table::{
    BirthId, BlockCache, Compression, Ledger, ReaderOptions, TableId, TableReader, TableWriter, ValueFile,
    ValueFileId, ValueFileWriter, ValueFileWriterOptions, WriterOptions, value_file_name,
};
use shamba_tree::version::ValueUses;

pub(crate) use self::opener::Opener;
use self::output::OutputOptions;
use crate::catalog::Catalog;
use crate::error::Result;
use crate::options::settings::Settings;
use crate::telemetry::Telemetry;

/// Creates and opens the tables of a database.
pub(crate) struct TableFiles {
    settings: Arc<Settings>,
    opener: Arc<Opener>,
    catalog: Arc<Catalog>,
    telemetry: Arc<Telemetry>,
    /// The direct-I/O fallback warning was emitted.
    has_warned_direct_io: AtomicBool,
}

impl TableFiles {
    /// The tables of the database of `catalog`, whose memory is that of `cache` and `ledger`.
    pub fn new(
        env: &Env,
        settings: Arc<Settings>,
        memory: (Arc<BlockCache>, Arc<Ledger>),
        catalog: Arc<Catalog>,
        telemetry: Arc<Telemetry>,
    ) -> Self {
        let opener = Arc::new(Opener::new(env, catalog.dir(), &settings, memory));
        Self { settings, opener, catalog, telemetry, has_warned_direct_io: AtomicBool::new(false) }
    }

    fn env(&self) -> &Env {
        self.opener.env()
    }

    fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    fn ledger(&self) -> &Arc<Ledger> {
        self.opener.ledger()
    }

    /// The path of the table with this number.
    pub fn path(&self, id: TableId) -> PathBuf {
        self.opener.path(id)
    }

    /// The path of the value file with this number.
    pub fn values_path(&self, id: ValueFileId) -> PathBuf {
        self.catalog.dir().join(value_file_name(id))
    }

    /// Opens tables that the memory budget keeps closed, for one use each.
    pub fn opener(&self) -> &Arc<Opener> {
        &self.opener
    }

    /// Creates a table with a new number.
    fn create(&self, options: &OutputOptions) -> Result<TableWriter> {
        let (origin, oldest_tombstone_ms) = (options.origin.clone(), options.oldest_tombstone_ms);
        let dictionary = options.dictionary.as_ref();
        let options = WriterOptions {
            id: self.catalog.new_table_id(),
            birth: self.catalog.new_birth(),
            digest: options.digest,
            compression: options.compression,
            bits_per_key: options.bits.about_bits_per_key(),
            filter_layout: options.filter_layout,
            prefix: options.prefix,
            block_bytes: options.block_bytes,
            block_tags: options.block_tags,
            large_values: self.settings.large_values,
        };
        let mut writer = TableWriter::create_with(self.env(), self.catalog.dir(), options, dictionary)?;
        writer.note_origin(origin);
        writer.note_oldest_tombstone(oldest_tombstone_ms);
        Ok(writer)
    }

    /// Creates a value file with a new number, for values of this keyspace.
    fn create_values(&self, keyspace: u32, compression: Compression) -> Result<ValueFileWriter> {
        let options = ValueFileWriterOptions {
            id: self.catalog.new_value_file_id(),
            birth: self.catalog.new_birth(),
            keyspace,
            compression,
            chunk_bytes: self.settings.large_values.chunk_bytes,
        };
        Ok(ValueFileWriter::create(self.env(), self.catalog.dir(), options)?)
    }

    /// Opens a value file for reading.
    ///
    /// # Errors
    /// Of opening the file; `Corruption`.
    pub fn open_values(&self, id: ValueFileId, birth: BirthId) -> Result<Arc<ValueFile>> {
        Ok(self.opener.open_values(id, birth)?)
    }

    /// Opens a table for reading, which refers to `values`, in files that are open; it shares the
    /// caller's copy of its bounds.
    ///
    /// # Errors
    /// Of opening the file; `Corruption`.
    pub fn open(
        &self,
        id: TableId,
        birth: BirthId,
        (smallest, upper): (&Bytes, Option<&Bytes>),
        values: &ValueUses,
    ) -> Result<Arc<TableReader>> {
        let bounds = (smallest.clone(), upper.cloned());
        let options = ReaderOptions {
            filter: self.settings.filter_residency,
            index: self.settings.filter_residency,
            units: self.settings.cache_units(),
            keeps_blocks: true,
            values: self.opener.files_of(values)?,
            ..self.opener.minimal_options(id, birth, bounds)
        };
        let reader = TableReader::open(self.env(), self.catalog.dir(), options)?;
        if self.settings.direct_io
            && !reader.is_direct()
            && !self.has_warned_direct_io.swap(true, Ordering::Relaxed)
        {
            let path = reader.path().display();
            self.telemetry.warn(format!(
                "direct I/O is not available for {path}: tables are read through the page cache"
            ));
        }
        Ok(reader)
    }
}
