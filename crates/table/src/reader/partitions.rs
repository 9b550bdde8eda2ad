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

use shamba_key::SeqNo;

use super::cached::CacheClient;
use super::load::Loaded;
use crate::Result;
use crate::block::frame::FRAME_BYTES;
use crate::counters::ReadCounters;
use crate::file::TableFile;
use crate::index::{self, BlockNo, Find, Handle, Index, Listed, Located, Read};

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
            Find::Absent(partition) => self.locate_stored(partition, key, seq, io),
        };
        io.index_ns += self.cached.elapsed_ns(io, start_ns);
        found
    }

    /// As [`Self::locate`], in partition `number`, which is not in memory.
    #[inline(never)]
    fn locate_stored(
        self,
        number: usize,
        key: &[u8],
        seq: SeqNo,
        io: &mut ReadCounters,
    ) -> Result<Option<Located>> {
        let index = &self.loaded.index;
        self.look_at_stored(number, io, |read| {
            let (found, handle) = read.stored.find(key, seq, &read.bounds)?;
            Ok(Some(index.located(number, found.at, handle, found.goes_on)))
        })
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
        look: impl FnOnce(Read<'_>) -> std::result::Result<T, String>,
    ) -> Result<T> {
        if self.cached.is_whole() {
            return self.look_at_whole(number, io, look);
        }
        let (file, index) = self.index();
        let stored = index.stored_at(number);
        debug_assert!(number < index.partitions(), "partition {number} of {}", index.partitions());
        let bytes = stored.bytes as usize;
        let look = |read: Read<'_>| look(read).map_err(|detail| index.damaged(file, number, detail));
        let place = index.partition_slot(number);
        let Some((slot, key)) = place.and_then(|(slot, place)| Some((slot, self.cached.key(place)?))) else {
            io.index.note(stored.offset, stored.bytes.into());
            return file.read_briefly(stored.offset, bytes, index::PARTITION, |frame| {
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
                file.read_into(stored.offset, bytes, &mut fresh, index::PARTITION)?;
                let looked = look(index.read(file, number, fresh.get(..bytes).unwrap_or_default())?)?;
                fresh.publish(slot, key, bytes.saturating_sub(FRAME_BYTES));
                looked
            }
            None => file.read_briefly(stored.offset, bytes, index::PARTITION, |frame| {
                look(index.read(file, number, frame)?)
            })??,
        };
        self.cached.was_read(miss, bytes);
        Ok(looked)
    }
}
