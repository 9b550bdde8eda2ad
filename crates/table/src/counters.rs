//! Cost of reads of a table's file: counters that are passed down with each call.
//!
//! Each read is counted by its kind (filter, index, data, value), with its length in bytes and in
//! pages. Pages have 4 KiB, the unit of the SHaMBa slides' emulator: a read of 80 KB is 20 pages
//! there and 1 read here. [`Reads::pages`] is the length rounded up, which is exact for a piece
//! that begins at a page boundary; a short packed piece may span two pages, which
//! [`Reads::pages_touched`] counts.
//!
//! Not here: the sums over lookups (crate `shamba`, `Stats`); bytes in memory ([`crate::Ledger`]).

/// Size of a page.
const PAGE_BYTES: u64 = 4 << 10;

/// Reads of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Reads {
    /// Number of reads.
    pub count: u64,
    /// Sum of their lengths.
    pub bytes: u64,
    /// Sum of their lengths in pages of 4 KiB, each rounded up.
    pub pages: u64,
    /// Pages of 4 KiB of the file that they overlap.
    pub pages_touched: u64,
}

impl Reads {
    /// Counts a read of `bytes` at `offset`.
    pub fn note(&mut self, offset: u64, bytes: u64) {
        self.count += 1;
        self.bytes += bytes;
        self.pages += bytes.div_ceil(PAGE_BYTES);
        if bytes > 0 {
            let end = offset.saturating_add(bytes);
            debug_assert!(end >= offset, "a read of {bytes} bytes at {offset}");
            self.pages_touched += end.div_ceil(PAGE_BYTES) - offset / PAGE_BYTES;
        }
    }

    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            count: self.count + other.count,
            bytes: self.bytes + other.bytes,
            pages: self.pages + other.pages,
            pages_touched: self.pages_touched + other.pages_touched,
        }
    }

    /// The reads since `earlier`, a previous value of the same counters.
    #[must_use]
    pub fn saturating_sub(self, earlier: Self) -> Self {
        Self {
            count: self.count.saturating_sub(earlier.count),
            bytes: self.bytes.saturating_sub(earlier.bytes),
            pages: self.pages.saturating_sub(earlier.pages),
            pages_touched: self.pages_touched.saturating_sub(earlier.pages_touched),
        }
    }
}

/// Cost of reads. Passing the same value to several lookups adds up their cost.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ReadCounters {
    /// Index partitions read from the file. (None with [`crate::Residency::Pinned`], after the
    /// table was opened.)
    pub index: Reads,
    /// Data blocks read from the file. Of blocks that are read ahead together, each used block
    /// counts as one.
    pub data: Reads,
    /// Filter slices read from the file.
    pub filter: Reads,
    /// Pieces of large values read from the file.
    pub value: Reads,
    /// Filter slices found in the cache.
    pub filter_hits: u64,
    /// Data blocks found in the cache.
    pub cache_hits: u64,
    /// Time in the index, if [`Self::timed`].
    pub index_ns: u64,
    /// Time in data blocks, reads included, if [`Self::timed`].
    pub data_ns: u64,
    /// Time spent reading the clock, in neither of the two.
    pub timer_ns: u64,
    /// Whether to measure time.
    pub timed: bool,
    /// Nanoseconds of one clock read; subtracted from the measured times.
    pub clock_read_ns: u64,
}

impl ReadCounters {
    /// Moves the counts of reads, and of what was found in the cache, to `sum`. Not for counters
    /// that measure time.
    #[inline]
    pub fn move_to(&mut self, sum: &mut Self) {
        debug_assert!(!self.timed, "counters of a timed search are moved");
        sum.cache_hits += std::mem::take(&mut self.cache_hits);
        sum.filter_hits += std::mem::take(&mut self.filter_hits);
        if self.has_reads() {
            self.move_reads_to(sum);
        }
    }

    #[cold]
    fn move_reads_to(&mut self, sum: &mut Self) {
        let Self { index, data, filter, value, .. } = std::mem::take(self);
        sum.index = sum.index.plus(index);
        sum.data = sum.data.plus(data);
        sum.filter = sum.filter.plus(filter);
        sum.value = sum.value.plus(value);
    }

    /// Whether anything was read from the file.
    #[inline]
    pub fn has_reads(&self) -> bool {
        self.index.count + self.data.count + self.filter.count + self.value.count > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_of_lengths_and_pages_touched_are_of_places() {
        let mut reads = Reads::default();
        for (offset, bytes, pages, touched) in [
            (0, 1, 1, 1),
            (4096, 4096, 1, 1),
            (4095, 2, 1, 2),
            (100, 8192, 2, 3),
            (8000, 81_920, 20, 21),
            (5, 0, 0, 0),
        ] {
            let before = reads;
            reads.note(offset, bytes);
            let one = reads.saturating_sub(before);
            assert_eq!((one.count, one.bytes, one.pages, one.pages_touched), (1, bytes, pages, touched));
            assert_eq!(before.plus(one), reads);
        }
    }
}
