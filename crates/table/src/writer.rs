//! The table writer: writes a table in one pass from its first byte to its last.
//!
//! Entries come in internal order and are cut into blocks. A block is written as soon as it is
//! full, its separator as soon as the next key is known. A large value is written in chunks while
//! it arrives, before the block with its entry ([`crate::values`]). Digests of the distinct keys,
//! separators and range tombstones are kept until [`TableWriter::finish`], which writes index,
//! filter, tombstones, properties and footer and syncs the file. The caller makes its name durable
//! by syncing the directory.
//!
//! A writer that is dropped unfinished, or whose `finish` fails, tries to remove its file.
//!
//! Not here: large values ([`large`]) and references to value files ([`reference`]); the choice of
//! entries (the engine's flush and compaction); the layout ([`crate::format`]).

mod finish;
mod large;
mod reference;

pub use self::finish::UnsyncedTable;
use self::reference::ValueUses;

use std::path::Path;

use bytes::Bytes;
use shamba_env::Env;
use shamba_filter::{Filter, FilterLayout};
use shamba_key::{DigestFn, EntryKind, Expiry, KeyDigest, MAX_KEY_BYTES, MAX_VALUE_BYTES, Prefix, SeqNo};

use crate::block::frame::FRAME_BYTES;
use crate::block::{DataBlockBuilder, NewEntry, shared_bytes};
use crate::compression::{Compression, Compressor, Dictionary};
use crate::content::ContentDigest;
use crate::expiring::ExpiryTimes;
use crate::format::header::Header;
use crate::format::origin::Origin;
use crate::format::placement::Placement;
use crate::format::{BLOCK_BYTES_ALLOWED, FEATURE_DICTIONARY, FEATURE_TAGGED_BLOCKS};
use crate::id::{BirthId, TableId, table_file_name};
use crate::index::{Handle, IndexBuilder, separator};
use crate::output::Output;
use crate::range::RangeTombstone;
use crate::summary::TableSummary;
use crate::values::{ChunkCutter, LargeValues};
use crate::written::WrittenBlocks;
use crate::{Error, Result};

/// Length of a write call; each starts at a multiple of it. A call per block would cost more than
/// the copy. The system keeps an aligned write as one piece of its page cache. Reading 4 KiB from
/// such a piece takes two thirds of the time of a read from single pages, and larger pieces gain
/// little more.
const GATHER_BYTES: usize = 256 << 10;

/// Options for writing a table.
#[derive(Clone, Copy, Debug)]
pub struct WriterOptions {
    /// Number of the file.
    pub id: TableId,
    /// Random id of the file, new for each file.
    pub birth: BirthId,
    /// The key hash, for filter and tags.
    pub digest: DigestFn,
    /// Compression of blocks.
    pub compression: Compression,
    /// Filter bits per distinct key; 0 writes no filter.
    pub bits_per_key: f64,
    /// The family of the filter, and its modules.
    pub filter_layout: FilterLayout,
    /// The extractor of the prefixes that the filter holds in addition to the keys.
    pub prefix: Option<Prefix>,
    /// Maximum decompressed length of a block with several entries, in bytes, including header,
    /// compression byte and checksum; 64 to 65,536, usually 4,096.
    pub block_bytes: usize,
    /// Whether entries of a block have tags of their keys' digests; if not, blocks are searched by
    /// key.
    pub block_tags: bool,
    /// Which values are stored in chunks outside the blocks.
    pub large_values: LargeValues,
}

/// Relation of an entry to the previous one.
#[derive(Clone, Copy, Debug)]
struct Order {
    /// Length of the common prefix of the two keys.
    shared_bytes: usize,
    /// Whether the keys differ.
    is_new_key: bool,
}

/// Writer of one table.
pub struct TableWriter {
    env: Env,
    options: WriterOptions,
    out: Output,
    /// Compresses blocks, with the table's dictionary.
    compressor: Compressor,
    /// Compresses chunks of large values in a table with a dictionary; `None`: `compressor` does.
    chunk_compressor: Option<Compressor>,
    /// Offset of the first section.
    start: u64,
    block: DataBlockBuilder,
    /// The payload of a block that is compressed.
    payload: Vec<u8>,
    index: IndexBuilder,
    /// The block written last, until the next key determines its separator.
    unlisted: Option<Handle>,
    /// Buffer for separators.
    separator: Vec<u8>,
    /// Digests of the distinct keys, and of their distinct prefixes.
    digests: Vec<KeyDigest>,
    /// Number of prefixes among the digests.
    prefixes: u64,
    /// Length of the last prefix; `None`: the last key has none.
    last_prefix_bytes: Option<usize>,
    tombstones: Vec<RangeTombstone>,
    first_key: Option<Bytes>,
    last_key: Vec<u8>,
    last_digest: KeyDigest,
    last_seq: SeqNo,
    seqs: Option<(SeqNo, SeqNo)>,
    entries: u64,
    deletes: u64,
    data_blocks: u64,
    raw_key_bytes: u64,
    raw_value_bytes: u64,
    content: ContentDigest,
    /// Value of `content` at the start of the open block.
    content_before: ContentDigest,
    written: WrittenBlocks,
    chunks: ChunkCutter,
    has_values: bool,
    has_operands: bool,
    /// References to value files.
    value_uses: ValueUses,
    /// Distinct keys so far.
    keys: u64,
    expiring: ExpiryTimes,
    /// Whether chunks were written without an entry that refers to them.
    is_torn: bool,
    origin: Option<Origin>,
    oldest_tombstone_ms: Option<u64>,
    placement: Placement,
    keep: bool,
}

impl std::fmt::Debug for TableWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TableWriter").field("path", &self.out.path).field("entries", &self.entries).finish()
    }
}

impl TableWriter {
    /// Creates the file `dir/NNNNNN.sst`.
    ///
    /// # Errors
    /// `Invalid` for options out of bounds; `Io` when the file cannot be created (also if the name
    /// is taken).
    pub fn create(env: &Env, dir: &Path, options: WriterOptions) -> Result<Self> {
        Self::create_with(env, dir, options, None)
    }

    /// [`Self::create`] with a dictionary for the compression of blocks. It has no effect with
    /// another compression than zstd.
    ///
    /// # Errors
    /// As [`Self::create`].
    pub fn create_with(
        env: &Env,
        dir: &Path,
        options: WriterOptions,
        dictionary: Option<&Dictionary>,
    ) -> Result<Self> {
        if !BLOCK_BYTES_ALLOWED.contains(&options.block_bytes) {
            let (least, most) = BLOCK_BYTES_ALLOWED.into_inner();
            let asked = options.block_bytes;
            return Err(Error::Invalid(format!("block_bytes is {asked}, expected {least} to {most}")));
        }
        if !options.bits_per_key.is_finite() || options.bits_per_key < 0.0 {
            return Err(Error::Invalid(format!("bits_per_key is {}", options.bits_per_key)));
        }
        options.large_values.check().map_err(Error::Invalid)?;
        options.prefix.map_or(Ok(()), Prefix::check).map_err(Error::Invalid)?;
        let path = dir.join(table_file_name(options.id));
        let dictionary = dictionary.filter(|_| options.compression == Compression::Zstd);
        let of_codec = |error| Error::io(&path, "compress", error);
        let compressor = Compressor::with_dictionary(options.compression, dictionary).map_err(of_codec)?;
        let chunk_compressor = dictionary.map(|_| Compressor::new(options.compression));
        let chunk_compressor = chunk_compressor.transpose().map_err(of_codec)?;
        let dictionary_bytes = dictionary.map_or(0, |dictionary| dictionary.bytes().len() + FRAME_BYTES);
        let header = Header {
            required: FEATURE_TAGGED_BLOCKS | if dictionary.is_some() { FEATURE_DICTIONARY } else { 0 },
            optional: 0,
            birth: options.birth,
            table: options.id,
            // At most 64 KiB and a frame.
            dictionary_frame_bytes: dictionary_bytes as u32,
        };
        let mut out = Output::create(env, &path, options.birth, header.encode(), GATHER_BYTES)?;
        if let Some(dictionary) = dictionary {
            out.frame(dictionary.bytes(), Compression::None)?;
        }
        debug_assert_eq!(out.offset(), header.end(), "the first section does not follow the dictionary");
        Ok(Self {
            env: env.clone(),
            options,
            out,
            compressor,
            chunk_compressor,
            start: header.end(),
            block: DataBlockBuilder::new(options.block_tags),
            payload: Vec::new(),
            index: IndexBuilder::default(),
            unlisted: None,
            separator: Vec::new(),
            digests: Vec::new(),
            prefixes: 0,
            last_prefix_bytes: None,
            tombstones: Vec::new(),
            first_key: None,
            last_key: Vec::new(),
            last_digest: KeyDigest::from_raw(0),
            last_seq: SeqNo::ZERO,
            seqs: None,
            entries: 0,
            deletes: 0,
            data_blocks: 0,
            raw_key_bytes: 0,
            raw_value_bytes: 0,
            content: ContentDigest::new(),
            content_before: ContentDigest::new(),
            written: WrittenBlocks::default(),
            chunks: ChunkCutter::new(options.large_values),
            has_values: false,
            has_operands: false,
            value_uses: ValueUses::default(),
            keys: 0,
            expiring: ExpiryTimes::default(),
            is_torn: false,
            origin: None,
            oldest_tombstone_ms: None,
            placement: Placement::default(),
            keep: false,
        })
    }

    /// Appends an entry, which must come after the last one in internal order.
    ///
    /// # Errors
    /// `Invalid` for an entry out of order or too large, or a range delete; `Io` when writing
    /// fails. After an I/O error the writer can only be abandoned.
    pub fn add(&mut self, key: &[u8], seq: SeqNo, kind: EntryKind, value: &[u8]) -> Result<()> {
        self.add_counted(key, None, seq, kind, value).map(|_| ())
    }

    /// [`Self::add`] for a key whose digest by [`WriterOptions::digest`] the caller may know, so
    /// that it is not hashed again. Returns the content digest of the entry, which is computed
    /// once.
    ///
    /// # Errors
    /// As [`Self::add`].
    #[inline]
    pub fn add_counted(
        &mut self,
        key: &[u8],
        digest: Option<KeyDigest>,
        seq: SeqNo,
        kind: EntryKind,
        value: &[u8],
    ) -> Result<ContentDigest> {
        if kind.large() != kind && value.len() >= self.options.large_values.from_bytes {
            let expiry = Expiry::of(kind, value);
            return self.add_large((key, seq, expiry), digest, value.len() as u64, &mut |sink| sink(value));
        }
        let order = self.check_entry(key, seq, kind, value.len() as u64)?;
        self.push_entry(key, digest, seq, kind, value, order)?;
        let content = ContentDigest::of(key, seq, kind, value);
        self.content.merge(content);
        self.raw_value_bytes += value.len() as u64;
        self.expiring.add(kind, value, (key.len() + value.len()) as u64);
        self.count(key, seq, kind, order);
        Ok(content)
    }

    /// Adds a checked entry to the open block, or to a new one if it does not fit.
    #[inline]
    fn push_entry(
        &mut self,
        key: &[u8],
        digest: Option<KeyDigest>,
        seq: SeqNo,
        kind: EntryKind,
        value: &[u8],
        order: Order,
    ) -> Result<()> {
        let tag = self.hash(key, digest, order).block_tag();
        let entry = NewEntry { key, shared_bytes: order.shared_bytes, seq, kind, value, tag };
        if !self.block.push(&entry, self.payload_limit_bytes()) {
            self.cut_block()?;
            self.block.push(&entry, 0);
            assert_eq!(self.block.len(), 1, "an entry does not fit into an empty block");
        }
        Ok(())
    }

    /// Records the table's keyspace in its properties.
    pub fn note_origin(&mut self, origin: Origin) {
        self.origin = Some(origin);
    }

    /// Records the time of the oldest tombstone in the table's properties, in milliseconds since
    /// 1970-01-01 UTC. A table without tombstones does not keep it.
    pub fn note_oldest_tombstone(&mut self, unix_ms: Option<u64>) {
        self.oldest_tombstone_ms = unix_ms;
    }

    /// Maximum payload of a block with several entries.
    fn payload_limit_bytes(&self) -> usize {
        debug_assert!(
            BLOCK_BYTES_ALLOWED.contains(&self.options.block_bytes),
            "blocks of {}",
            self.options.block_bytes
        );
        self.options.block_bytes - FRAME_BYTES
    }

    /// The digest of the key of a checked entry; keeps it for the filter.
    #[inline]
    fn hash(&mut self, key: &[u8], known: Option<KeyDigest>, order: Order) -> KeyDigest {
        if order.is_new_key && (self.options.bits_per_key > 0.0 || self.options.block_tags) {
            self.last_digest = known.unwrap_or_else(|| self.options.digest.digest(key));
            if self.options.bits_per_key > 0.0 {
                self.digests.push(self.last_digest);
                if let Some(extractor) = self.options.prefix {
                    self.hash_prefix(extractor, key, order);
                }
            }
        }
        self.last_digest
    }

    /// Keeps the digest of the prefix of a new key for the filter, once for each prefix: the keys
    /// that have it follow each other.
    fn hash_prefix(&mut self, extractor: Prefix, key: &[u8], order: Order) {
        let prefix = extractor.of(key);
        let last_bytes = std::mem::replace(&mut self.last_prefix_bytes, prefix.map(<[u8]>::len));
        let Some(prefix) = prefix else { return };
        let is_last = last_bytes == Some(prefix.len()) && order.shared_bytes >= prefix.len();
        // The digest of a key that is its own prefix is there already.
        if !is_last && prefix.len() < key.len() {
            self.digests.push(self.options.digest.digest(prefix));
            self.prefixes += 1;
        }
    }

    /// Counts an entry that was added to the open block, and adds the previous block to the index
    /// if it was just cut.
    #[inline]
    fn count(&mut self, key: &[u8], seq: SeqNo, kind: EntryKind, order: Order) {
        debug_assert!(!self.block.is_empty(), "an entry is counted that is in no block");
        if let Some(handle) = self.unlisted.take() {
            if order.is_new_key {
                let between = separator(&self.last_key, key, &mut self.separator);
                self.index.push(between, SeqNo::ZERO, handle);
            } else {
                self.index.push(&self.last_key, self.last_seq, handle);
            }
        }
        self.keys += u64::from(order.is_new_key);
        if self.first_key.is_none() {
            self.first_key = Some(Bytes::copy_from_slice(key));
        }
        // The common prefix with the last key is already there.
        debug_assert_eq!(
            self.last_key.get(..order.shared_bytes),
            key.get(..order.shared_bytes),
            "the common prefix of two keys is shorter than stated"
        );
        self.last_key.truncate(order.shared_bytes);
        self.last_key.extend_from_slice(&key[order.shared_bytes..]);
        self.last_seq = seq;
        self.count_seq(seq);
        debug_assert_eq!(self.last_key, key, "the last key is not that of the last entry");
        self.entries += 1;
        self.deletes += u64::from(kind == EntryKind::Delete);
        self.has_operands |= kind == EntryKind::Merge;
        self.raw_key_bytes += key.len() as u64;
    }

    /// Adds a range tombstone. It can be called at any time and in any order.
    ///
    /// # Errors
    /// `Invalid` for a tombstone that covers no key or whose bounds are too long.
    pub fn add_range_tombstone(&mut self, tombstone: RangeTombstone) -> Result<()> {
        // A bound may be the successor of the longest key.
        let longest = MAX_KEY_BYTES + 1;
        if tombstone.start.len() > longest || tombstone.end.as_ref().is_some_and(|end| end.len() > longest) {
            return Err(Error::Invalid(format!(
                "a bound of a range tombstone is longer than {longest} bytes"
            )));
        }
        if tombstone.is_empty() {
            return Err(Error::Invalid("a range tombstone that covers no key".to_owned()));
        }
        if tombstone.seq > SeqNo::MAX {
            return Err(Error::Invalid(format!("sequence number {} is too large", tombstone.seq)));
        }
        self.count_seq(tombstone.seq);
        self.tombstones.push(tombstone);
        Ok(())
    }

    /// Approximate length of the file if it ended now, without filter and footer.
    pub fn file_bytes(&self) -> u64 {
        self.out.offset() + (self.block.about_payload_bytes() + self.index.bytes()) as u64
    }

    /// Approximate memory of the writer, for the ledger.
    pub fn memory_bytes(&self) -> u64 {
        let digests = self.digests.capacity() * size_of::<KeyDigest>();
        let buffers = self.out.memory_bytes()
            + self.chunks.memory_bytes()
            + self.block.memory_bytes()
            + self.payload.capacity()
            + self.index.bytes()
            + self.value_uses.memory_bytes();
        (digests + buffers + self.tombstones.capacity() * size_of::<RangeTombstone>()) as u64
    }

    /// Approximate maximum memory of the writer during the next [`Self::SOON_ENTRIES`] entries and
    /// `finish`: the amount that a caller charges before it adds them.
    pub fn memory_bytes_soon(&self) -> u64 {
        let digest_bytes = size_of::<KeyDigest>() as u64;
        let digests_of_key = if self.options.prefix.is_some() { 2 } else { 1 };
        let soon = Self::SOON_ENTRIES * digests_of_key;
        let growing = self.digests.len() + soon > self.digests.capacity();
        // A growing vector is in memory twice, and the new buffer has twice the capacity.
        let grown = if growing { self.digests.capacity().max(soon) as u64 * 2 * digest_bytes } else { 0 };
        let (keys, WriterOptions { bits_per_key, filter_layout, .. }) = (self.digests.len(), self.options);
        let filter = (keys as f64 * bits_per_key / 8.0) as u64;
        let scratch = Filter::scratch_bytes(keys, filter_layout, bits_per_key);
        self.memory_bytes() + grown + filter + scratch + GATHER_BYTES as u64
    }

    /// Number of entries that [`Self::memory_bytes_soon`] looks ahead.
    pub const SOON_ENTRIES: usize = 256;

    /// Entries so far.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Changes the filter bits per key; possible until the table is finished. No effect if the
    /// writer started with 0 bits, because it has then kept no digests.
    pub fn set_bits_per_key(&mut self, bits_per_key: f64) {
        if self.options.bits_per_key > 0.0 && bits_per_key.is_finite() {
            self.options.bits_per_key = bits_per_key.max(0.0);
        }
    }

    /// The key of the first entry.
    pub fn first_key(&self) -> Option<&[u8]> {
        self.first_key.as_deref()
    }

    /// The key of the last entry.
    pub fn last_key(&self) -> Option<&[u8]> {
        (self.entries > 0).then_some(&self.last_key)
    }

    /// Whether there is neither an entry nor a range tombstone.
    pub fn is_empty(&self) -> bool {
        self.entries == 0 && self.tombstones.is_empty()
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.out.path
    }

    fn check_entry(&self, key: &[u8], seq: SeqNo, kind: EntryKind, value_bytes: u64) -> Result<Order> {
        if key.len() > MAX_KEY_BYTES || value_bytes > MAX_VALUE_BYTES as u64 {
            let key_bytes = key.len();
            return Err(Error::Invalid(format!(
                "a key of {key_bytes} bytes with a value of {value_bytes}, at most {MAX_KEY_BYTES} and {MAX_VALUE_BYTES} allowed",
            )));
        }
        if self.is_torn {
            return Err(Error::Invalid("a table with part of a value".to_owned()));
        }
        if kind == EntryKind::RangeDelete || kind.is_large() || seq > SeqNo::MAX {
            return Err(Error::Invalid(format!(
                "a {kind:?} at sequence number {seq} is no entry of a block"
            )));
        }
        let shared_bytes = shared_bytes(&self.last_key, key);
        let is_after = match (self.last_key.get(shared_bytes), key.get(shared_bytes)) {
            (Some(last), Some(byte)) => last < byte,
            (None, Some(_)) => true,
            (Some(_), None) => false,
            (None, None) => seq < self.last_seq,
        };
        if self.entries > 0 && !is_after {
            return Err(self.out_of_order(key, seq));
        }
        let is_new_key = self.entries == 0 || shared_bytes < key.len() || shared_bytes < self.last_key.len();
        Ok(Order { shared_bytes, is_new_key })
    }

    #[cold]
    fn out_of_order(&self, key: &[u8], seq: SeqNo) -> Error {
        Error::Invalid(format!(
            "\"{}\" at {seq} does not come after \"{}\" at {}",
            key.escape_ascii(),
            self.last_key.escape_ascii(),
            self.last_seq
        ))
    }

    fn count_seq(&mut self, seq: SeqNo) {
        let (smallest, largest) = self.seqs.unwrap_or((seq, seq));
        self.seqs = Some((smallest.min(seq), largest.max(seq)));
    }

    /// Writes the open block, if it has entries.
    fn cut_block(&mut self) -> Result<()> {
        if self.block.is_empty() {
            return Ok(());
        }
        assert!(self.unlisted.is_none(), "a block is cut while the one before has no separator");
        let entries = self.block.len() as u32;
        let (offset, bytes) = if self.options.compression == Compression::None {
            let frame_bytes = || (self.block.payload_bytes() + FRAME_BYTES) as u64;
            let start = self.placement.next(self.out.offset(), self.options.block_bytes, frame_bytes);
            self.out.pad_to(start);
            self.out.frame_of(&mut self.block)?
        } else {
            self.payload.clear();
            self.block.finish_into(&mut self.payload);
            let compressed = self.compressor.compress(&self.payload);
            let (stored, compression) =
                compressed.map_err(|error| Error::io(&self.out.path, "compress", error))?;
            if compression == Compression::None {
                let frame_bytes = || (stored.len() + FRAME_BYTES) as u64;
                let start = self.placement.next(self.out.offset(), self.options.block_bytes, frame_bytes);
                self.out.pad_to(start);
            }
            self.out.frame(stored, compression)?
        };
        debug_assert!(
            offset + u64::from(bytes) == self.out.offset(),
            "the block at {offset} does not end the file"
        );
        self.unlisted = Some(Handle { offset, bytes, entries });
        if self.written.wants(self.data_blocks) {
            self.written.remember(offset, self.content.without(self.content_before));
        }
        self.content_before = self.content;
        self.data_blocks += 1;
        debug_assert!(self.block.is_empty(), "a cut block keeps entries");
        Ok(())
    }

    /// Places uncompressed blocks by another rule: that of older writers, or an invalid one.
    #[cfg(test)]
    pub(crate) fn begin_blocks_by(&mut self, rule: fn(u64, usize) -> u64) {
        self.placement.rule = Some(rule);
    }
}

impl Drop for TableWriter {
    fn drop(&mut self) {
        if !self.keep {
            // Best effort: a file that remains belongs to no version and is removed at the next
            // open.
            let _ = self.env.vfs.unlink(&self.out.path);
        }
    }
}
