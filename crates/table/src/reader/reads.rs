//! Reads of an open table, as its users call them: each forwards to the feature that does it.
//!
//! Not here: the residency of filter and index ([`super::residency`]).

use std::sync::Arc;

use bytes::Bytes;
use shamba_env::BatchRead;
use shamba_key::{EntryKind, KeyDigest, SeqNo};

use super::blocks::{BlockToTake, LoadedBlock};
use super::extent::Extent;
use super::lookup::{TableLookup, ValueMode};
use super::verify::CheckedTable;
use super::{AHEAD_BYTES, TableIter, TableReader, Walk, written};
use crate::counters::ReadCounters;
use crate::entry::Entry;
use crate::index::{AbsentPartition, Find, Located};
use crate::value_file::{ValueFile, ValueFileRef};
use crate::written::WrittenBlocks;
use crate::{Error, Result};

impl TableReader {
    /// The newest version of `key` that is not newer than `seq`, tombstones included. Tests neither
    /// the filter nor the range tombstones. `digest` is the key's digest.
    ///
    /// # Errors
    /// `Io` or `Corruption` from reading.
    pub fn get(
        &self,
        key: &[u8],
        seq: SeqNo,
        digest: KeyDigest,
        mode: ValueMode,
        io: &mut ReadCounters,
    ) -> Result<Option<Entry>> {
        match self.locate(key, seq, io)? {
            Some(located) => self.get_at(located, key, seq, digest, mode, io),
            None => Ok(None),
        }
    }

    /// The block that [`Self::get_at`] has to search; `None` if no block can have the key. Searches
    /// the index only.
    ///
    /// # Errors
    /// `Io` or `Corruption`, if the index has to be read.
    #[inline]
    pub fn locate(&self, key: &[u8], seq: SeqNo, io: &mut ReadCounters) -> Result<Option<Located>> {
        self.partitions().locate(key, seq, io)
    }

    /// As [`Self::locate`], in the part of the index that is in memory: if the answer is not in it,
    /// names the partition for [`Self::locate_all`].
    ///
    /// # Errors
    /// `Corruption` of a cached partition.
    #[inline]
    pub fn find(&self, key: &[u8], seq: SeqNo, io: &mut ReadCounters) -> Result<Find> {
        self.partitions().find(key, seq, io)
    }

    /// The read of an index partition, which the caller makes for [`Self::locate_in`]; `None` if
    /// the index is cached as a whole, or the partition is too long for a batch.
    ///
    /// # Errors
    /// `Io` when the file cannot be opened again.
    pub fn partition_to_read(&self, partition: AbsentPartition) -> Result<Option<BatchRead>> {
        self.partitions().to_read(partition)
    }

    /// As [`Self::locate_all`], in a partition that was read.
    ///
    /// # Errors
    /// `Io` or `Corruption` from the read.
    pub fn locate_in<K: AsRef<[u8]>>(
        &self,
        partition: AbsentPartition,
        read: BatchRead,
        keys: &[K],
        seq: SeqNo,
        io: &mut ReadCounters,
    ) -> Result<Vec<Located>> {
        self.partitions().locate_in(partition, read, keys, seq, io)
    }

    /// As [`Self::locate`] for several keys of one partition, which is read once.
    ///
    /// # Errors
    /// As [`Self::locate`].
    pub fn locate_all<K: AsRef<[u8]>>(
        &self,
        partition: AbsentPartition,
        keys: &[K],
        seq: SeqNo,
        io: &mut ReadCounters,
    ) -> Result<Vec<Located>> {
        self.partitions().locate_all(partition, keys, seq, io)
    }

    /// [`Self::get`], starting at the block that [`Self::locate`] returned.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn get_at(
        &self,
        located: Located,
        key: &[u8],
        seq: SeqNo,
        digest: KeyDigest,
        mode: ValueMode,
        io: &mut ReadCounters,
    ) -> Result<Option<Entry>> {
        TableLookup { key, seq, tag: digest.block_tag(), mode }.at(self.blocks(), located, io)
    }

    /// [`Self::get_at`] in a block that [`Self::take_block`] returned.
    ///
    /// # Errors
    /// As [`Self::get`].
    #[expect(clippy::too_many_arguments, reason = "those of `get_at`, and the block")]
    pub fn get_from(
        &self,
        block: &LoadedBlock,
        located: Located,
        key: &[u8],
        seq: SeqNo,
        digest: KeyDigest,
        mode: ValueMode,
        io: &mut ReadCounters,
    ) -> Result<Option<Entry>> {
        TableLookup { key, seq, tag: digest.block_tag(), mode }.from(block, self.blocks(), located, io)
    }

    /// Whether the block was cached when it was located and still is; if so, prefetches its first
    /// lines.
    pub fn prefetch_block(&self, located: &Located) -> bool {
        self.blocks().prefetch(located)
    }

    /// Prefetches the entry that a search of the block for this digest will look at first, if the
    /// block is cached. Call it some time after [`Self::prefetch_block`], whose lines it reads.
    pub fn prefetch_entry(&self, located: &Located, digest: KeyDigest) {
        self.blocks().prefetch_entry(located, digest);
    }

    /// Makes a read of this table, and counts its time in the average of reads.
    pub fn read_timed(&self, read: &mut BatchRead) {
        let bytes = read.bytes();
        self.cached.timed(bytes, || read.read_now());
    }

    /// The read of the block, which the caller makes, and what [`Self::take_block`] needs then;
    /// `None` if the block is cached, or too long for a batch.
    ///
    /// # Errors
    /// `Io` or `Corruption` from reading the index.
    pub fn block_to_read(
        &self,
        located: &Located,
        io: &mut ReadCounters,
    ) -> Result<Option<(BlockToTake, BatchRead)>> {
        self.blocks().to_read(located, true, io)
    }

    /// Takes a block that was read: into the cache if a frame is free and the block has a slot.
    /// Otherwise it is returned, for [`Self::get_from`].
    ///
    /// # Errors
    /// `Io` or `Corruption` from the read.
    pub fn take_block(
        &self,
        block: &BlockToTake,
        read: BatchRead,
        io: &mut ReadCounters,
    ) -> Result<Option<LoadedBlock>> {
        self.blocks().take(block, read, io)
    }

    /// The answer of filter module `module` for the key of `digest`, from the block cache or from
    /// the file; a damaged slice answers "maybe".
    ///
    /// # Errors
    /// `Io` when reading fails.
    #[cold]
    pub fn fetch_module(&self, digest: KeyDigest, module: usize, io: &mut ReadCounters) -> Result<bool> {
        match &self.filter {
            Some(filter) => filter.fetch(&self.loaded.file, digest, module, io),
            None => Ok(true),
        }
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

    /// The value file in which the value of an entry of this table, of this kind and payload, is
    /// stored, and the reference to it; `None` if it is not in a value file.
    ///
    /// # Errors
    /// `Corruption` if the reference is invalid; `Invalid` if the table was opened without its
    /// value files.
    pub fn separated(
        &self,
        kind: EntryKind,
        payload: &[u8],
    ) -> Result<Option<(&Arc<ValueFile>, ValueFileRef)>> {
        self.loaded.separated(kind, payload)
    }

    /// Length of the value that a large entry of this table, of this kind and payload, refers to.
    ///
    /// # Errors
    /// `Corruption` if the reference is invalid.
    pub fn large_value_bytes(&self, kind: EntryKind, payload: &[u8]) -> Result<u64> {
        self.loaded.large_value_bytes(kind, payload)
    }

    /// Passes the value that a large entry of this table, of this kind and payload, refers to, to
    /// `sink` in pieces.
    ///
    /// # Errors
    /// `Io` or `Corruption` from reading, or the error of `sink`; `sink` then got only a part of
    /// the value. `Invalid` if the table was opened without its value files.
    pub fn read_large_into(
        &self,
        kind: EntryKind,
        payload: &[u8],
        io: &mut ReadCounters,
        sink: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        self.loaded.read_large_into(kind, payload, io, sink)
    }

    /// The value that a large entry of this table, of this kind and payload, refers to.
    ///
    /// # Errors
    /// `Io` or `Corruption` from reading; `Invalid` if the table was opened without its value
    /// files.
    pub fn read_large(&self, kind: EntryKind, payload: &[u8], io: &mut ReadCounters) -> Result<Vec<u8>> {
        self.loaded.read_large(kind, payload, io)
    }

    /// Approximate bytes of the file that belong to keys in `[lower, upper)`; for all keys, the
    /// whole file. A block belongs to the side on which it starts; index and filter are shared in
    /// proportion.
    pub fn bytes_between(&self, lower: &[u8], upper: Option<&[u8]>) -> u64 {
        Extent::new(&self.loaded, &self.summary).bytes_between(lower, upper)
    }

    /// Keys that cut the table into pieces of about `every_bytes`, ascending, none of them the
    /// smallest key: piece i has the keys from cut i-1 up to cut i, exclusive.
    pub fn split_keys(&self, every_bytes: u64) -> Vec<Bytes> {
        Extent::new(&self.loaded, &self.summary).split_keys(every_bytes)
    }

    /// Reads every byte of every section and reports all damage; empty if there is none. It checks
    /// checksums, structure, padding, the order of entries and separators, sequence and key bounds,
    /// counts, the content digest, and that every key passes the filter. If the table was opened
    /// with its value files, it also reads every value in them and compares its fingerprint. Hashes
    /// every key, so it is not for use inside a counted lookup.
    pub fn verify(&self) -> Vec<Error> {
        let (loaded, summary, filter) = (&self.loaded, &self.summary, self.filter.as_ref());
        CheckedTable { loaded, summary, digest: self.digest, filter }.damage()
    }

    /// Reads back all data of a table that was written with the samples `blocks`.
    ///
    /// # Errors
    /// `Corruption` for the first frame with a wrong checksum, sample with other entries than were
    /// written, or another number of entries in all; `Io` when reading fails.
    pub fn check_written(&self, blocks: &WrittenBlocks) -> Result<()> {
        written::check_written(&self.loaded, self.filter.as_ref(), self.filter_warnings(), blocks)
    }
}
