//! Opens tables for reading, with the shared cache, ledger and limit of open files.
//!
//! Tables that the memory budget keeps closed refer to the [`Opener`]; so it holds nothing that
//! refers to a table.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use shamba_env::Env;
use shamba_key::DigestFn;
use shamba_table::{
    BirthId, BlockCache, CacheUnits, Ledger, OpenFiles, ReaderOptions, Residency, TableId, TableReader,
    ValueFile, ValueFileId, ValueFileOptions, open_files_within, table_file_name, value_file_name,
};
use shamba_tree::version::{OpenTables, TableMeta, ValueFileMeta, ValueUses};

use crate::options::settings::Settings;

/// Opens the tables of a database for reading.
pub(crate) struct Opener {
    env: Env,
    dir: PathBuf,
    digest: DigestFn,
    direct_io: bool,
    cache: Arc<BlockCache>,
    ledger: Arc<Ledger>,
    files: Arc<OpenFiles>,
    /// Number of tables opened for one use.
    opened_once: AtomicU64,
}

impl Opener {
    pub(super) fn new(
        env: &Env,
        dir: &Path,
        settings: &Settings,
        (cache, ledger): (Arc<BlockCache>, Arc<Ledger>),
    ) -> Self {
        let open_max = open_files_within(settings.max_open_files as usize, env.vfs.open_files_max());
        Self {
            env: env.clone(),
            dir: dir.to_path_buf(),
            digest: DigestFn::new(settings.digest, settings.digest_seed),
            direct_io: settings.direct_io,
            cache,
            ledger,
            files: Arc::new(OpenFiles::new(open_max)),
            opened_once: AtomicU64::new(0),
        }
    }

    pub(super) fn env(&self) -> &Env {
        &self.env
    }

    pub(super) fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    pub(super) fn path(&self, id: TableId) -> PathBuf {
        self.dir.join(table_file_name(id))
    }

    /// Number of tables opened for one use so far.
    pub fn opened_once(&self) -> u64 {
        self.opened_once.load(Ordering::Relaxed)
    }

    /// The error of opening the file at `path`, or `Corruption` if it is missing.
    fn missing(
        &self,
        error: shamba_table::Error,
        path: &Path,
        structure: &'static str,
    ) -> shamba_table::Error {
        match self.env.vfs.exists(path) {
            Ok(false) => {
                let detail = "the manifest names the file, but it is missing".to_owned();
                shamba_table::Error::Corruption { file: path.to_path_buf(), offset: 0, structure, detail }
            }
            _ => error,
        }
    }

    /// Opens a value file.
    ///
    /// # Errors
    /// Of opening the file; `Corruption`.
    pub(super) fn open_values(
        &self,
        id: ValueFileId,
        birth: BirthId,
    ) -> shamba_table::Result<Arc<ValueFile>> {
        let (ledger, files) = (Arc::clone(&self.ledger), Arc::clone(&self.files));
        let options = ValueFileOptions { id, birth, ledger, files, direct_io: self.direct_io };
        ValueFile::open(&self.env, &self.dir, options)
            .map_err(|error| self.missing(error, &self.dir.join(value_file_name(id)), "value file"))
    }

    /// The open files of these values. A file that is not open yet is opened, and stays open.
    ///
    /// # Errors
    /// Of opening a file; `Corruption`.
    pub(super) fn files_of(&self, values: &ValueUses) -> shamba_table::Result<Vec<Arc<ValueFile>>> {
        let file_of = |meta: &ValueFileMeta| {
            if let Some(file) = meta.file.get() {
                return Ok(Arc::clone(file));
            }
            let file = self.open_values(meta.id, meta.birth)?;
            meta.file.set(Arc::clone(&file));
            Ok(file)
        };
        values.files().iter().map(|of| file_of(&of.file)).collect()
    }

    /// Options of a reader that holds only the memory that every reader needs, and keeps no blocks
    /// in the cache.
    pub(super) fn minimal_options(
        &self,
        id: TableId,
        birth: BirthId,
        bounds: (Bytes, Option<Bytes>),
    ) -> ReaderOptions {
        ReaderOptions {
            id,
            birth,
            digest: self.digest,
            cache: Arc::clone(&self.cache),
            ledger: Arc::clone(&self.ledger),
            files: Arc::clone(&self.files),
            direct_io: self.direct_io,
            filter: Residency::Budgeted,
            index: Residency::Budgeted,
            units: CacheUnits::default(),
            keeps_blocks: false,
            bounds: Some(bounds),
            values: Vec::new(),
        }
    }
}

impl OpenTables for Opener {
    fn open(&self, meta: &TableMeta) -> shamba_table::Result<Arc<TableReader>> {
        self.opened_once.fetch_add(1, Ordering::Relaxed);
        let bounds = (meta.smallest.clone(), meta.upper.clone());
        let values = self.files_of(meta.values.get())?;
        let options = ReaderOptions { values, ..self.minimal_options(meta.id, meta.birth, bounds) };
        TableReader::open(&self.env, &self.dir, options)
            .map_err(|error| self.missing(error, &self.path(meta.id), "table"))
    }
}
