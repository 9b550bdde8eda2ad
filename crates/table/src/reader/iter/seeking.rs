//! A seek in steps, so that the cache misses of seeks in several tables overlap.
//!
//! In a database larger than the processor's caches a seek waits for memory some six times in a
//! row: for the record of the index partition, its separators, the frame's record with the block's
//! header, the entries that the search compares first, those that it compares last, and the entry.
//! A merge of several runs takes each step for all of them before the next. Each step prefetches
//! what the next one reads.
//!
//! A [`Seeking`] belongs to one iterator, key and sequence number. It is only a short cut: a step
//! that would read from the file, or that finds damage, is left to [`TableIter::seek_from_step`].
//!
//! Not here: the order of the steps among runs (the merging iterator's).

use shamba_key::SeqNo;

use super::TableIter;
use crate::Result;
use crate::block::Window;
use crate::entry_iter::EntryIter;
use crate::index::{BlockNo, Find};

/// Number of steps that [`TableIter::seek_step`] takes.
pub const SEEK_STEPS: usize = 5;

/// Knowledge of the place at which a seek ends.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seeking(Known);

#[derive(Clone, Copy, Debug, Default)]
enum Known {
    /// Nothing yet.
    #[default]
    Nothing,
    /// Nothing, and no further step finds more.
    Unknown,
    /// The index partition, whose record was prefetched.
    Partition(usize),
    /// The index partition, whose separators were prefetched.
    Separators(usize),
    /// The block, whose frame was prefetched.
    Block(BlockNo, u32),
    /// The block, which is the iterator's current one.
    Entered(BlockNo),
    /// The block, which is the current one, and the entries among which the place is.
    Window(BlockNo, Window),
}

impl Seeking {
    /// Whether the steps have come to the block.
    pub fn has_block(&self) -> bool {
        matches!(self.0, Known::Entered(_) | Known::Window(..))
    }
}

impl TableIter {
    /// Takes the next step of a seek to `(key, seq)`. Reads nothing from the file. The iterator is
    /// invalid afterwards.
    pub fn seek_step(&mut self, key: &[u8], seq: SeqNo, seeking: &mut Seeking) {
        self.entry.leave();
        let index = &self.table.loaded.index;
        seeking.0 = match seeking.0 {
            Known::Nothing if self.ahead.is_whole() => Known::Unknown,
            Known::Nothing => match index.partition_for(key, seq) {
                Some(partition) => {
                    index.prefetch_partition(partition);
                    Known::Partition(partition)
                }
                None => Known::Unknown,
            },
            Known::Partition(partition) => {
                index.prefetch_separators(partition);
                Known::Separators(partition)
            }
            Known::Separators(partition) => match index.find_prefetched(partition, key, seq) {
                Find::At(located) => match located.frame {
                    Some(frame) => {
                        self.table.cached.prefetch_frame(frame);
                        Known::Block(located.number, frame)
                    }
                    None => Known::Unknown,
                },
                Find::Beyond | Find::Absent(_) => Known::Unknown,
            },
            Known::Block(number, frame) => {
                // Damage is found again, and reported, by the seek.
                if self.is_in(number) || self.enter_cached(number, Some(frame)).unwrap_or(false) {
                    if let Some(held) = &self.block {
                        self.entry.prefetch_search(&held.payload);
                    }
                    Known::Entered(number)
                } else {
                    Known::Unknown
                }
            }
            Known::Entered(number) => {
                let narrowed = self.block.as_ref().map(|held| self.entry.narrow(&held.payload, key, seq));
                match narrowed {
                    Some(Ok(window)) => Known::Window(number, window),
                    _ => Known::Unknown,
                }
            }
            Known::Window(..) | Known::Unknown => return,
        };
    }

    /// Seeks `(key, seq)`, from where the steps of that seek have come.
    ///
    /// # Errors
    /// As [`EntryIter::seek`].
    pub fn seek_from_step(&mut self, key: &[u8], seq: SeqNo, seeking: Seeking) -> Result<()> {
        let (Known::Window(number, window), Some(held)) = (seeking.0, &self.block) else {
            return self.seek(key, seq);
        };
        debug_assert!(held.number == number, "a seek in block {number:?} ends in {:?}", held.number);
        let place = self.entry.bound_in(&held.payload, window, key, seq);
        let place = place.map_err(|detail| self.damaged_here(detail))?;
        self.settle(number, self.entry.count(), place)
    }
}
