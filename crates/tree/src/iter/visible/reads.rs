//! Reads of a scan from files, summed over its runs.

use super::VisibleIter;
use crate::counters::ReadsByKind;
use crate::iter::source::Source;

/// Reads of scans.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct ScanReads {
    /// Reads from files.
    pub reads: ReadsByKind,
    /// Data blocks found in the cache.
    pub cache_hits: u64,
}

impl ScanReads {
    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { reads: self.reads.plus(other.reads), cache_hits: self.cache_hits + other.cache_hits }
    }
}

impl VisibleIter {
    /// Adds to `sum` what was read since the last call.
    #[inline]
    pub fn take_reads(&mut self, sum: &mut ScanReads) {
        for source in self.merge.sources() {
            let Source::Run(run) = source else { continue };
            if let Some(io) = run.take_counters() {
                *sum = sum.plus(ScanReads { reads: io.into(), cache_hits: io.cache_hits });
            }
        }
    }
}
