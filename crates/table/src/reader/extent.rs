//! Size of a key range in a table, and keys that cut the table into pieces.
//!
//! Compactions ask for sizes often, so sizes must not cost reads: the part of the index in memory
//! is exact enough. Cuts are keys of the index, so partitions that are not in memory are read for
//! them.
//!
//! Not here: how a compaction uses the pieces (crate `shamba-tree`, `compaction/policy/slices.rs`).

use bytes::Bytes;
use shamba_key::SeqNo;

use super::load::Loaded;
use crate::index::{BlockNo, Bounds, Handle, Listed};
use crate::summary::TableSummary;

/// Positions and sizes of the keys of a table in its file.
#[derive(Clone, Copy)]
pub(super) struct Extent<'a> {
    loaded: &'a Loaded,
    summary: &'a TableSummary,
}

impl<'a> Extent<'a> {
    /// The extent of the table in `loaded`, whose metadata is `summary`.
    pub(super) fn new(loaded: &'a Loaded, summary: &'a TableSummary) -> Self {
        Self { loaded, summary }
    }

    /// Approximate bytes of the file that belong to keys in `[lower, upper)`; for all keys, the
    /// whole file. A block belongs to the side on which it starts; index and filter are shared in
    /// proportion.
    pub(super) fn bytes_between(self, lower: &[u8], upper: Option<&[u8]>) -> u64 {
        let index = &self.loaded.index;
        let last = index.partitions().checked_sub(1).and_then(|last| index.bounds(last));
        let (Some(first), Some(last)) = (index.bounds(0), last) else {
            return self.summary.file_bytes;
        };
        let end = upper.map_or(last.end, |upper| self.data_before(upper, last.end));
        let between = end.saturating_sub(self.data_before(lower, last.end));
        let all = last.end.saturating_sub(first.start).max(1);
        let share = u128::from(between) * u128::from(self.summary.file_bytes) / u128::from(all);
        u64::try_from(share).unwrap_or(u64::MAX)
    }

    /// End of the blocks without any key from `key` on; `all_end` if those are all blocks. Reads
    /// nothing: in a partition that is not in memory, keys are assumed to be evenly distributed.
    fn data_before(self, key: &[u8], all_end: u64) -> u64 {
        let index = &self.loaded.index;
        let Some(number) = index.partition_for(key, SeqNo::MAX) else { return all_end };
        let Some(bounds) = index.bounds(number) else { return 0 };
        // The chunks of large values lie before the block that refers to them, and belong to it.
        let found = index.with_resident(number, |partition| {
            let listed = Listed::Decoded(partition);
            let before = listed.find(key, SeqNo::MAX).ok()?.checked_sub(1);
            before.map_or(Some(bounds.start), |before| listed.handle(before).ok().map(Handle::end))
        });
        found.flatten().unwrap_or_else(|| {
            let after = bounds.after.map_or(&self.summary.smallest[..], |(after, _)| after);
            let share = share_below(key, after, bounds.last.0);
            let bytes = bounds.end.saturating_sub(bounds.start);
            // `as` saturates.
            bounds.start.saturating_add((bytes as f64 * share) as u64).min(bounds.end)
        })
    }

    /// Keys that cut the table into pieces of about `every_bytes`, ascending, none of them the
    /// smallest key: piece i has the keys from cut i-1 up to cut i, exclusive.
    pub(super) fn split_keys(self, every_bytes: u64) -> Vec<Bytes> {
        let index = &self.loaded.index;
        let mut cuts: Vec<Bytes> = Vec::new();
        let mut since = 0;
        let mut cut_after = |block: Option<BlockNo>, since: &mut u64, key: &[u8]| {
            // There is nothing to cut after the last block.
            if block == index.last() {
                return;
            }
            let last: &[u8] = cuts.last().map_or(&self.summary.smallest, |cut| cut);
            if *since >= every_bytes && key > last {
                cuts.push(Bytes::copy_from_slice(key));
                *since = 0;
            }
        };
        for number in 0..index.partitions() {
            let Some(Bounds { mut start, end, last, .. }) = index.bounds(number) else { break };
            if since + end.saturating_sub(start) < every_bytes {
                // No cut falls into this partition, so it is not read.
                since += end.saturating_sub(start);
                continue;
            }
            let Ok(partition) = self.loaded.partition(number) else {
                // A failure here is not an error: the compaction will report the damage.
                since += end.saturating_sub(start);
                let next = index.first(number + 1);
                cut_after(next.map_or(index.last(), BlockNo::previous), &mut since, last.0);
                continue;
            };
            for block in self.loaded.blocks_of(number, &partition) {
                since += block.handle.end().saturating_sub(start);
                start = block.handle.end();
                if let Some((separator, _)) = block.separator {
                    cut_after(Some(block.number), &mut since, separator);
                }
            }
        }
        cuts
    }
}

/// The fraction of the keys from `lower` to `upper` that is below `key`, if they are evenly
/// distributed: computed from the eight bytes after the common prefix of the bounds.
fn share_below(key: &[u8], lower: &[u8], upper: &[u8]) -> f64 {
    let common = lower.iter().zip(upper).take_while(|(a, b)| a == b).count();
    let place = |bound: &[u8]| {
        let mut bytes = [0; 8];
        for (byte, of_bound) in bytes.iter_mut().zip(bound.iter().skip(common)) {
            *byte = *of_bound;
        }
        u64::from_be_bytes(bytes) as f64
    };
    if key <= lower {
        return 0.0;
    }
    if key >= upper {
        return 1.0;
    }
    let (from, to) = (place(lower), place(upper));
    debug_assert!(lower < upper, "a key lies between bounds that hold none");
    if to > from { ((place(key) - from) / (to - from)).clamp(0.0, 1.0) } else { 0.5 }
}

#[cfg(test)]
mod tests {
    use shamba_env::{Rng, SeededRng};

    use super::*;

    #[test]
    fn keys_between_two_bounds_are_taken_to_lie_evenly() {
        assert_eq!(share_below(b"key50", b"key00", b"key:0"), 0.5);
        assert_eq!(share_below(b"a", b"b", b"d"), 0.0);
        assert_eq!(share_below(b"d", b"b", b"d"), 1.0);
        assert_eq!(share_below(b"b\x80", b"b", b"c"), 0.5);
        let rng = SeededRng::new(7);
        for _ in 0..10_000 {
            let key = || -> Vec<u8> {
                (0..rng.next_u64() % 12).map(|_| b'a' + (rng.next_u64() % 3) as u8).collect()
            };
            let mut keys = [key(), key(), key(), key()];
            keys.sort();
            let [lower, left, right, upper] = &keys;
            let (left, right) = (share_below(left, lower, upper), share_below(right, lower, upper));
            assert!((0.0..=1.0).contains(&left) && left <= right, "{keys:?}: {left}, {right}");
        }
    }
}
