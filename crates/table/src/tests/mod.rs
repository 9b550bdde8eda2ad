//! Tests of whole tables, and their shared helpers: an in-memory environment, a plain list as the
//! oracle.

mod ahead;
mod damage;
#[cfg(feature = "zstd")]
mod dictionaries;
mod faults;
mod files;
mod forged;
mod future;
mod large;
mod laws;
mod limits;
mod operands;
mod page;
mod placed;
mod prefixes;
mod residency;
mod salvage;
mod separated;
mod value_page;
mod whole;
mod written;

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use shamba_env::{Env, MemFs, SeededRng, WriteFile, append_all};
use shamba_filter::FilterLayout;
use shamba_key::{DigestFn, DigestKind, EntryKind, MAX_OPERAND_BYTES, Operand, SeqNo};

use crate::*;

/// One entry of the oracle.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Row {
    key: Vec<u8>,
    seq: SeqNo,
    kind: EntryKind,
    value: Vec<u8>,
}

fn row(key: impl AsRef<[u8]>, seq: u64, value: impl AsRef<[u8]>) -> Row {
    let (key, value) = (key.as_ref().to_vec(), value.as_ref().to_vec());
    Row { key, seq: SeqNo(seq), kind: EntryKind::Put, value }
}

fn tombstone(start: &str, end: Option<&str>, seq: u64) -> RangeTombstone {
    let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
    RangeTombstone { start: bytes(start), end: end.map(bytes), seq: SeqNo(seq) }
}

/// Sorts by internal order and keeps one row for each (key, sequence number).
fn sorted(mut rows: Vec<Row>) -> Vec<Row> {
    rows.sort_by(|a, b| internal_cmp(&a.key, a.seq, &b.key, b.seq));
    rows.dedup_by(|a, b| a.key == b.key && a.seq == b.seq);
    rows
}

/// An in-memory directory with the options of one table.
struct Rig {
    env: Env,
    options: WriterOptions,
    dictionary: Option<Dictionary>,
    ledger: Arc<Ledger>,
    cache: Arc<BlockCache>,
    files: Arc<OpenFiles>,
    direct_io: bool,
    /// Residency mode of the index.
    hold: Residency,
    /// Residency mode of the filter.
    filter: Residency,
    units: CacheUnits,
    /// The value files that readers get.
    values: Vec<Arc<ValueFile>>,
}

const DIR: &str = "/db";

impl Rig {
    fn new(compression: Compression, block_bytes: usize) -> Self {
        let vfs = Arc::new(MemFs::new());
        let env = Env::deterministic(vfs, 1);
        env.vfs.create_dir_all(Path::new(DIR)).expect("a directory");
        let ledger = Arc::new(Ledger::new());
        let cache = Arc::new(BlockCache::new(1 << 20, Arc::clone(&ledger)));
        let options = WriterOptions {
            id: TableId(7),
            birth: BirthId(0x0123_4567_89ab_cdef),
            digest: DigestFn::new(DigestKind::Xxh3, 42),
            compression,
            bits_per_key: 10.0,
            filter_layout: FilterLayout::Blocked,
            prefix: None,
            block_bytes,
            block_tags: true,
            large_values: LargeValues::default(),
        };
        let (files, hold) = (Arc::new(OpenFiles::new(10)), Residency::Pinned);
        let (filter, units) = (Residency::Pinned, CacheUnits::default());
        Self {
            env,
            options,
            dictionary: None,
            ledger,
            cache,
            files,
            direct_io: false,
            hold,
            filter,
            units,
            values: Vec::new(),
        }
    }

    fn path(&self) -> std::path::PathBuf {
        Path::new(DIR).join(table_file_name(self.options.id))
    }

    /// Writes a table of these rows, which are in order.
    fn write(&self, rows: &[Row], tombstones: &[RangeTombstone]) -> TableSummary {
        let dictionary = self.dictionary.as_ref();
        let mut writer =
            TableWriter::create_with(&self.env, Path::new(DIR), self.options, dictionary).expect("created");
        for tombstone in tombstones {
            writer.add_range_tombstone(tombstone.clone()).expect("added");
        }
        for row in rows {
            writer.add(&row.key, row.seq, row.kind, &row.value).expect("added");
        }
        writer.finish().expect("finished")
    }

    fn open(&self) -> Result<Arc<TableReader>> {
        self.open_in(Path::new(DIR))
    }

    fn open_in(&self, dir: &Path) -> Result<Arc<TableReader>> {
        let (id, birth, digest) = (self.options.id, self.options.birth, self.options.digest);
        let (cache, ledger) = (Arc::clone(&self.cache), Arc::clone(&self.ledger));
        let (files, direct_io) = (Arc::clone(&self.files), self.direct_io);
        self.cache.remove_table(id);
        let (filter, index, bounds) = (self.filter, self.hold, None);
        let options = ReaderOptions {
            id,
            birth,
            digest,
            cache,
            ledger,
            files,
            direct_io,
            filter,
            index,
            units: self.units,
            keeps_blocks: true,
            bounds,
            values: self.values.clone(),
        };
        TableReader::open(&self.env, dir, options)
    }

    /// The table's bytes.
    fn bytes(&self) -> Vec<u8> {
        shamba_env::read_file(self.env.vfs.as_ref(), &self.path()).expect("read")
    }

    /// Replaces the table's file by a new one with other bytes.
    fn replace(&self, bytes: &[u8]) {
        if self.env.vfs.exists(&self.path()).expect("asked") {
            self.env.vfs.unlink(&self.path()).expect("unlinked");
        }
        let mut file = self.env.vfs.create(&self.path()).expect("created");
        append_all(file.as_mut(), bytes).expect("written");
    }

    /// Overwrites the bytes of the table's file, so that open readers see the change.
    fn damage_in_place(&self, bytes: &[u8]) -> Box<dyn WriteFile> {
        let mut file = self.env.vfs.open_append(&self.path()).expect("opened");
        file.truncate(0).expect("emptied");
        append_all(file.as_mut(), bytes).expect("written");
        file
    }

    /// Looks up a key; the result has the value itself, also if it is large.
    fn get(&self, table: &TableReader, key: &[u8], seq: SeqNo) -> Result<Option<Entry>> {
        let found = table.get(
            key,
            seq,
            self.options.digest.digest(key),
            ValueMode::Copy,
            &mut ReadCounters::default(),
        )?;
        match found {
            Some(Entry { seq, kind, value }) if kind.is_large() => {
                let bytes = table.large_value_bytes(kind, &value)?;
                let value = Value::from(table.read_large(kind, &value, &mut ReadCounters::default())?);
                assert_eq!(value.len() as u64, bytes);
                Ok(Some(Entry { seq, kind: kind.whole(), value }))
            }
            found => Ok(found),
        }
    }
}

/// The offset of a corruption error; panics on other errors.
fn offset_of(error: Error) -> u64 {
    match error {
        Error::Corruption { offset, .. } => offset,
        other => panic!("{other:?}"),
    }
}

/// The offsets at which verification finds damage, ascending.
fn damaged_offsets(table: &TableReader) -> Vec<u64> {
    let mut found: Vec<u64> = table.verify().into_iter().map(offset_of).collect();
    found.sort_unstable();
    found
}

/// Random numbers, reproducible from a printed seed.
struct Dice(SeededRng);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(SeededRng::new(seed))
    }

    fn below(&self, end: usize) -> usize {
        use shamba_env::Rng;
        (self.0.next_u64() % end as u64) as usize
    }
}

/// The expected result of a lookup.
fn newest<'a>(rows: &'a [Row], key: &[u8], seq: SeqNo) -> Option<&'a Row> {
    rows.iter().find(|row| row.key == key && row.seq <= seq)
}

/// The row at an iterator; its value must be readable.
fn current(iter: &TableIter) -> Option<Row> {
    try_current(iter).expect("a value")
}

/// The row at an iterator.
fn try_current(iter: &TableIter) -> Result<Option<Row>> {
    if !iter.valid() {
        return Ok(None);
    }
    assert_eq!(iter.value_bytes(), iter.value());
    let mut value = Vec::new();
    iter.read_value(&mut |piece| {
        value.extend_from_slice(piece);
        Ok(())
    })?;
    assert_eq!(iter.value_bytes_len()?, value.len() as u64);
    let kind = iter.kind().whole();
    Ok(Some(Row { key: iter.key().to_vec(), seq: iter.seq(), kind, value }))
}
