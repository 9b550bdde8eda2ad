//! The index partitions of an open table, and the search for a key's block in them: in memory, in
//! the cache, or in the file.
//!
//! The result of a search of the index ([`Located`]) is kept with the block, so that later steps of
//! the same lookup do not search again. An absent partition is read into a buffer of the thread and
//! searched in its stored form, without decoding. A lookup reads it only once, with two rare
//! exceptions: the versions of the key continue in the next block, or a resident partition was
//! dropped after the block was located and before the block is read.
//!
//! [`Partitions`] is a view of two parts of a reader, passed by value in two registers.
//!
//! Not here: the index itself ([`crate::index`]), iterators ([`super::walked`]).

use shamba_env::{BatchRead, ReadBytes};
use shamba_key::SeqNo;

use super::blocks::BATCH_READ_BYTES_MAX;
use super::cached::CacheClient;
use super::load::Loaded;
use crate::Result;
use crate::block::frame::FRAME_BYTES;
use crate::counters::ReadCounters;
use crate::file::TableFile;
use crate::index::{self, AbsentPartition, BlockNo, Find, Handle, Index, Listed, Located, Read};

/// The partitions of an index: those in memory, those in the cache, and those in the file.
#[derive(Clone, Copy)]
pub(super) struct Partitions<'a> {
    loaded: &'a Loaded,
    cached: &'a CacheClient,
}

impl<'a> Partitions<'a> {
    /// The partitions of the table in `loaded`, whose blocks are cached by `cached`.
    #[inline]
    pub(super) fn new(loaded: &'a Loaded, cached: &'a CacheClient) -> Self {
        Self { loaded, cached }
    }

    /// The file and the part of the index that is in memory.
    #[inline]
    pub(super) fn index(self) -> (&'a TableFile, &'a Index) {
        (&self.loaded.file, &self.loaded.index)
    }

    /// The cache for partitions that are not in memory.
    #[inline]
    pub(super) fn cached(self) -> &'a CacheClient {
        self.cached
    }

    /// The block that a lookup of `(key, seq)` has to search; `None` if no block can have the key.
    ///
    /// # Errors
    /// `Io` or `Corruption`, if the index has to be read.
    #[inline]
    pub(super) fn locate(self, key: &[u8], seq: SeqNo, io: &mut ReadCounters) -> Result<Option<Located>> {
        let start_ns = self.cached.now_ns(io);
        let found = match self.loaded.index.find(key, seq) {
            Find::At(located) => Ok(Some(located)),
            Find::Beyond => Ok(None),
            Find::Absent(partition) => self.locate_stored(partition, key, seq, io).map(Some),
        };
        io.index_ns += self.cached.elapsed_ns(io, start_ns);
        found
    }

    /// As [`Self::locate`], in the partitions in memory and in the cache.
    #[inline]
    pub(super) fn find(self, key: &[u8], seq: SeqNo, io: &mut ReadCounters) -> Result<Find> {
        let start_ns = self.cached.now_ns(io);
        let found = match self.loaded.index.find(key, seq) {
            Find::Absent(partition) if self.is_cached(partition) => {
                self.locate_stored(partition, key, seq, io).map(Find::At)
            }
            found => Ok(found),
        };
        io.index_ns += self.cached.elapsed_ns(io, start_ns);
        found
    }

    /// Whether the cache holds `partition`, which is not in memory otherwise.
    fn is_cached(self, partition: AbsentPartition) -> bool {
        let number = if self.cached.is_whole() { 0 } else { partition.0 };
        let slot = self.cached.keyed(self.loaded.index.partition_slot(number));
        slot.is_some_and(|(slot, key)| self.cached.enter().find(slot, key).is_some())
    }

    /// As [`Self::locate`] for several keys, all in one partition, which is read once.
    pub(super) fn locate_all<K: AsRef<[u8]>>(
        self,
        partition: AbsentPartition,
        keys: &[K],
        seq: SeqNo,
        io: &mut ReadCounters,
    ) -> Result<Vec<Located>> {
        let start_ns = self.cached.now_ns(io);
        let found = self.look_at_stored(partition.0, io, |read| {
            keys.iter().map(|key| self.find_stored(partition, &read, key.as_ref(), seq)).collect()
        });
        io.index_ns += self.cached.elapsed_ns(io, start_ns);
        found
    }

    /// The read of `partition`, for [`Self::locate_in`]; `None` if it is not to be read alone, or
    /// long.
    pub(super) fn to_read(self, partition: AbsentPartition) -> Result<Option<BatchRead>> {
        let (file, index) = self.index();
        let stored = index.stored_at(partition.0);
        if self.cached.is_whole() || stored.bytes > BATCH_READ_BYTES_MAX {
            return Ok(None);
        }
        file.batch_read(stored.offset, stored.bytes as usize, index::PARTITION).map(Some)
    }

    /// As [`Self::locate_all`], in a partition that was read.
    pub(super) fn locate_in<K: AsRef<[u8]>>(
        self,
        partition: AbsentPartition,
        read: BatchRead,
        keys: &[K],
        seq: SeqNo,
        io: &mut ReadCounters,
    ) -> Result<Vec<Located>> {
        let (file, index) = self.index();
        let frame = self.bytes_of(partition, read, io)?;
        let read = index.read(file, partition.0, &frame)?;
        let located = keys.iter().map(|key| self.find_stored(partition, &read, key.as_ref(), seq));
        let located = located.collect::<std::result::Result<_, String>>();
        let located = located.map_err(|detail| index.damaged(file, partition.0, detail))?;
        self.keep(partition, &frame);
        Ok(located)
    }

    /// The frame of `partition`, which was read as `read`.
    pub(super) fn bytes_of(
        self,
        partition: AbsentPartition,
        read: BatchRead,
        io: &mut ReadCounters,
    ) -> Result<ReadBytes> {
        let (file, index) = self.index();
        let stored = index.stored_at(partition.0);
        io.index.note(stored.offset, stored.bytes.into());
        file.bytes_of(read, stored.offset, index::PARTITION)
    }

    /// Gives `frame`, which was read and checked, to the cache, if it caches partitions and admits
    /// this one.
    pub(super) fn keep(self, partition: AbsentPartition, frame: &[u8]) {
        debug_assert!(!self.cached.is_whole(), "a partition is read alone, the index is cached as a whole");
        let slot = self.cached.keyed(self.loaded.index.partition_slot(partition.0));
        let Some((slot, key)) = slot.filter(|(_, key)| self.cached.missed(Some(*key)).keep) else { return };
        if let Some(mut fresh) = self.cached.fresh(frame.len()) {
            if let Some(into) = fresh.get_mut(..frame.len()) {
                into.copy_from_slice(frame);
                fresh.publish(slot, key, frame.len().saturating_sub(FRAME_BYTES));
            }
        }
    }

    /// As [`Self::locate`], in a partition that is not in memory.
    #[inline(never)]
    fn locate_stored(
        self,
        partition: AbsentPartition,
        key: &[u8],
        seq: SeqNo,
        io: &mut ReadCounters,
    ) -> Result<Located> {
        self.look_at_stored(partition.0, io, |read| self.find_stored(partition, &read, key, seq))
    }

    /// The block that a lookup of `(key, seq)` has to search, according to `partition`, which was
    /// read as `read`; a description of any damage.
    pub(super) fn find_stored(
        self,
        partition: AbsentPartition,
        read: &Read<'_>,
        key: &[u8],
        seq: SeqNo,
    ) -> std::result::Result<Located, String> {
        let (found, handle) = read.stored.find(key, seq, &read.bounds)?;
        Ok(self.loaded.index.located(partition.0, found.at, handle, found.goes_on))
    }

    /// Block `number`, for a lookup of `key` that continues in it; `None` past the last.
    #[cold]
    pub(super) fn locate_next(
        self,
        number: BlockNo,
        key: &[u8],
        io: &mut ReadCounters,
    ) -> Result<Option<Located>> {
        let index = &self.loaded.index;
        let Some((partition, within)) = index.partition_of(number) else { return Ok(None) };
        self.look_at(partition, io, |listed| {
            let goes_on = listed.goes_on(within, key)?;
            Ok(Some(index.located(partition, within, listed.handle(within)?, goes_on)))
        })
    }

    /// The place of a block.
    pub(super) fn handle_of(self, located: &Located, io: &mut ReadCounters) -> Result<Handle> {
        match (located.handle, self.loaded.index.partition_of(located.number)) {
            (Some(handle), _) => Ok(handle),
            (None, Some((partition, within))) => self.look_at(partition, io, |listed| listed.handle(within)),
            (None, None) => Err(self.loaded.file.damaged(0, index::TOP, "a block is missing")),
        }
    }

    /// Calls `look` with partition `number`; `look` returns a description of any damage.
    fn look_at<T>(
        self,
        number: usize,
        io: &mut ReadCounters,
        look: impl Fn(Listed<'_>) -> std::result::Result<T, String>,
    ) -> Result<T> {
        debug_assert!(number < self.loaded.index.partitions(), "partition {number} is beyond the last");
        let (file, index) = self.index();
        match index.with_resident(number, |partition| look(Listed::Decoded(partition))) {
            Some(looked) => looked.map_err(|detail| index.damaged(file, number, detail)),
            None => self.look_at_stored(number, io, |read| look(Listed::Stored(read.stored, read.bounds))),
        }
    }

    /// Calls `look` with partition `number`, from the cache or the file; `look` returns a
    /// description of any damage.
    fn look_at_stored<T>(
        self,
        number: usize,
        io: &mut ReadCounters,
        look: impl Fn(Read<'_>) -> std::result::Result<T, String>,
    ) -> Result<T> {
        if self.cached.is_whole() {
            return self.look_at_whole(number, io, look);
        }
        let (file, index) = self.index();
        let stored = index.stored_at(number);
        debug_assert!(number < index.partitions(), "partition {number} of {}", index.partitions());
        let bytes = stored.bytes as usize;
        let look = |read: Read<'_>| look(read).map_err(|detail| index.damaged(file, number, detail));
        let Some((slot, key)) = self.cached.keyed(index.partition_slot(number)) else {
            io.index.note(stored.offset, stored.bytes.into());
            return file.look_at_frame(stored.offset, bytes, index::PARTITION, |frame| {
                look(index.read(file, number, frame)?)
            })?;
        };
        {
            let section = self.cached.enter();
            if let Some(hit) = section.find(slot, key) {
                return look(index.view(file, number, hit.payload())?);
            }
        }
        io.index.note(stored.offset, stored.bytes.into());
        let miss = self.cached.missed(Some(key));
        let looked = match miss.keep.then(|| self.cached.fresh(bytes)).flatten() {
            Some(mut fresh) => {
                file.read_frame_into(stored.offset, bytes, &mut fresh, index::PARTITION)?;
                let looked = look(index.read(file, number, fresh.get(..bytes).unwrap_or_default())?)?;
                fresh.publish(slot, key, bytes.saturating_sub(FRAME_BYTES));
                looked
            }
            None => file.look_at_frame(stored.offset, bytes, index::PARTITION, |frame| {
                look(index.read(file, number, frame)?)
            })??,
        };
        self.cached.was_read(miss, bytes);
        Ok(looked)
    }
}
