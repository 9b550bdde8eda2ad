//! Whole filters and whole indexes as blocks of the cache: the papers' baseline, for experiments.
//!
//! With [`crate::Residency::Cached`], a lookup that misses a slice of a filter, or a partition of
//! an index, reads and caches that piece alone. With [`crate::CacheUnit::Whole`] it reads the whole
//! module, or the whole index, in one read, and the cache holds and evicts it as one block. The
//! file format is the same: slices of a module and partitions of an index are
//! contiguous, each with its checksum. A unit with a damaged piece is not cached; its undamaged
//! pieces are still used.
//!
//! A unit has the cache key and the slot of its first piece.
//!
//! Not here: single pieces ([`super::filter`], [`super::partitions`]).

use super::filter::TableFilter;
use super::partitions::Partitions;
use crate::Result;
use crate::block::frame::FRAME_BYTES;
use crate::counters::ReadCounters;
use crate::file::TableFile;
use crate::filter_section::{CHECKSUM_BYTES, SLICE};
use crate::index::{self, Read};

impl TableFilter {
    /// The answer of `test` for slice `slice` of module `module`, which is cached as a whole.
    /// `None` if the slice is damaged; the damage is then reported.
    ///
    /// # Errors
    /// `Io` when reading fails.
    pub(super) fn fetch_whole_module(
        &self,
        file: &TableFile,
        (module, slice): (usize, usize),
        test: impl Fn(&[u8]) -> bool,
        io: &mut ReadCounters,
    ) -> Result<Option<bool>> {
        let slices = self.geometry().slices_of(module);
        let (Some(first), Some(place)) = (self.place_of(slices.start), self.place_of(slice)) else {
            return Ok(Some(true));
        };
        debug_assert!(
            slices.contains(&slice),
            "slice {slice} is not of module {module}, which has {slices:?}"
        );
        let within = slice - slices.start;
        let lines = within * place.bytes..(within + 1) * place.bytes;
        let slot = self.slot(slices.start);
        if let Some((slot, key)) = slot {
            let section = self.cached().enter();
            let hit = section.find(slot, key);
            if let Some(answer) = hit.and_then(|hit| hit.payload().get(lines).map(&test)) {
                io.filter_hits += 1;
                return Ok(Some(answer));
            }
        }
        if self.is_damaged(slice) {
            return Ok(None);
        }
        let stored_bytes = place.bytes + CHECKSUM_BYTES;
        let unit_bytes = slices.len() * stored_bytes;
        io.filter.note(first.offset, unit_bytes as u64);
        let mut fresh = slot.and_then(|_| self.cached().fresh(slices.len() * place.bytes));
        let mut answer = None;
        let mut damage = Vec::new();
        let mut take = |bytes: &[u8]| {
            for (number, stored) in slices.clone().zip(bytes.chunks(stored_bytes)) {
                match self.check_slice(file, number, stored) {
                    Ok(undamaged) => {
                        let at = (number - slices.start) * place.bytes;
                        let to = fresh.as_mut().and_then(|fresh| fresh.get_mut(at..at + undamaged.len()));
                        if let Some(to) = to {
                            to.copy_from_slice(undamaged);
                        }
                        if number == slice {
                            answer = Some(test(undamaged));
                        }
                    }
                    Err(error) => damage.push((number, error)),
                }
            }
        };
        self.cached().timed(unit_bytes, || file.read_briefly(first.offset, unit_bytes, SLICE, &mut take))?;
        if damage.is_empty() {
            if let (Some(fresh), Some((slot, key))) = (fresh, slot) {
                fresh.publish(slot, key, slices.len() * place.bytes);
            }
        }
        for (number, error) in damage {
            self.note_damaged_slice(number, &error);
        }
        Ok(answer)
    }
}

impl Partitions<'_> {
    /// As `look_at_stored`, for an index that is cached as a whole.
    ///
    /// # Errors
    /// `Io` when reading fails, `Corruption` for damage to partition `number`.
    pub(super) fn look_at_whole<T>(
        self,
        number: usize,
        io: &mut ReadCounters,
        look: impl Fn(Read<'_>) -> std::result::Result<T, String>,
    ) -> Result<T> {
        let (file, index) = self.index();
        let look = |read: Read<'_>| look(read).map_err(|detail| index.damaged(file, number, detail));
        let count = index.partitions();
        let begin = index.stored_at(0).offset;
        let bytes = index.stored_at(count.saturating_sub(1)).end().saturating_sub(begin) as usize;
        debug_assert!(number < count, "partition {number} of {count}");
        let range_of = |number: usize| {
            let handle = index.stored_at(number);
            let from = handle.offset.saturating_sub(begin) as usize;
            from..from + handle.bytes as usize
        };
        let slot = self.cached().keyed(index.partition_slot(0));
        if let Some((slot, key)) = slot {
            let section = self.cached().enter();
            if let Some(hit) = section.find(slot, key) {
                let frame = hit.payload().get(range_of(number)).unwrap_or_default();
                // Its checksum was compared before it was published.
                let payload = frame.get(..frame.len().saturating_sub(FRAME_BYTES)).unwrap_or_default();
                return look(index.view(file, number, payload)?);
            }
        }
        io.index.note(begin, bytes as u64);
        let miss = self.cached().missed(slot.map(|(_, key)| key));
        let fresh =
            slot.filter(|_| miss.keep).and_then(|(slot, key)| Some((self.cached().fresh(bytes)?, slot, key)));
        let looked = match fresh {
            Some((mut fresh, slot, key)) => {
                file.read_into(begin, bytes, &mut fresh, index::PARTITION)?;
                let frame_of = |number| fresh.get(range_of(number)).unwrap_or_default();
                let looked = look(index.read(file, number, frame_of(number))?)?;
                if (0..count).all(|other| index.read(file, other, frame_of(other)).is_ok()) {
                    fresh.publish(slot, key, bytes);
                }
                looked
            }
            None => file.read_briefly(begin, bytes, index::PARTITION, |frames| {
                look(index.read(file, number, frames.get(range_of(number)).unwrap_or_default())?)
            })??,
        };
        self.cached().was_read(miss, bytes);
        Ok(looked)
    }
}
