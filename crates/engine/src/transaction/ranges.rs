//! Sets of key ranges: what a transaction has deleted, and what it has read.
//!
//! Invariant: the ranges are not empty, and no two of them overlap or touch.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;
use shamba_tree::version::KeyRange;

/// Memory of one range besides its bounds: its slot in a map node that is two thirds full, and the
/// reference counts of two keys.
pub(super) const RANGE_BYTES: u64 = 160;

/// Disjoint key ranges.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct RangeSet {
    /// From the lower bound to the upper one; `None`: no end.
    ranges: BTreeMap<Bytes, Option<Bytes>>,
    bytes: u64,
}

/// A range that was added, joined with those that it overlapped or touched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Added {
    joined: KeyRange,
    replaced: Vec<KeyRange>,
}

impl Added {
    /// Memory of this value.
    pub fn bytes(&self) -> u64 {
        self.replaced.iter().chain([&self.joined]).map(range_bytes).sum()
    }
}

/// Memory of one range in a map.
pub(super) fn range_bytes(range: &KeyRange) -> u64 {
    (range.lower.len() + range.upper.as_ref().map_or(0, Bytes::len)) as u64 + RANGE_BYTES
}

impl RangeSet {
    /// Adds a range, which is not empty; `None` if the set contains all of it.
    pub fn add(&mut self, range: KeyRange) -> Option<Added> {
        debug_assert!(!range.is_empty(), "an empty range is added");
        if self.reaching(&range.lower).is_some_and(|found| found.covers(&range)) {
            return None;
        }
        let mut joined = range;
        let mut replaced = Vec::new();
        // The range before it may overlap or touch it; those behind do until one does not.
        let before = self.at_or_before(&joined.lower).filter(|before| touch(before, &joined));
        if let Some(before) = before {
            joined = joined.hull(&before);
            replaced.push(before);
        }
        let behind = (Bound::Excluded(joined.lower.clone()), Bound::Unbounded);
        for (lower, upper) in self.ranges.range::<Bytes, _>(behind) {
            let next = KeyRange { lower: lower.clone(), upper: upper.clone() };
            if !touch(&joined, &next) {
                break;
            }
            joined = joined.hull(&next);
            replaced.push(next);
        }
        replaced.iter().for_each(|range| self.remove(range));
        self.insert(joined.clone());
        Some(Added { joined, replaced })
    }

    /// Reverses the last change that was not reversed yet.
    pub fn undo(&mut self, added: Added) {
        self.remove(&added.joined);
        added.replaced.into_iter().for_each(|range| self.insert(range));
    }

    /// The range that contains `key`.
    pub fn covering(&self, key: &[u8]) -> Option<KeyRange> {
        self.reaching(key).filter(|range| range.is_above(key))
    }

    /// All ranges, ascending.
    pub fn iter(&self) -> impl Iterator<Item = KeyRange> + '_ {
        self.ranges.iter().map(|(lower, upper)| KeyRange { lower: lower.clone(), upper: upper.clone() })
    }

    /// Memory of the set.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The last range whose lower bound is at or before `key`, if it contains the key.
    fn reaching(&self, key: &[u8]) -> Option<KeyRange> {
        self.at_or_before(key).filter(|range| range.contains(key))
    }

    fn at_or_before(&self, key: &[u8]) -> Option<KeyRange> {
        let up_to = (Bound::Unbounded, Bound::Included(key));
        let (lower, upper) = self.ranges.range::<[u8], _>(up_to).next_back()?;
        Some(KeyRange { lower: lower.clone(), upper: upper.clone() })
    }

    fn insert(&mut self, range: KeyRange) {
        self.bytes += range_bytes(&range);
        let other = self.ranges.insert(range.lower, range.upper);
        debug_assert!(other.is_none(), "two ranges of a set begin at the same key");
    }

    fn remove(&mut self, range: &KeyRange) {
        let removed = self.ranges.remove(&range.lower);
        debug_assert_eq!(removed.as_ref(), Some(&range.upper), "another range is removed");
        if removed.is_some() {
            self.bytes -= range_bytes(range);
        }
    }
}

/// Whether no key lies between two ranges, the first of which begins first.
fn touch(first: &KeyRange, second: &KeyRange) -> bool {
    first.upper.as_ref().is_none_or(|upper| second.lower <= *upper)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(lower: u8, upper: Option<u8>) -> KeyRange {
        KeyRange {
            lower: Bytes::copy_from_slice(&[lower]),
            upper: upper.map(|upper| Bytes::copy_from_slice(&[upper])),
        }
    }

    #[test]
    fn ranges_that_overlap_or_touch_are_joined() {
        let mut set = RangeSet::default();
        assert!(set.add(range(3, Some(5))).is_some());
        assert!(set.add(range(7, Some(9))).is_some());
        assert!(set.add(range(3, Some(4))).is_none(), "it is contained");
        assert_eq!(set.iter().collect::<Vec<_>>(), [range(3, Some(5)), range(7, Some(9))]);
        assert!(set.add(range(5, Some(7))).is_some());
        assert_eq!(set.iter().collect::<Vec<_>>(), [range(3, Some(9))]);
        assert!(set.add(range(1, None)).is_some());
        assert_eq!(set.iter().collect::<Vec<_>>(), [range(1, None)]);
    }

    /// Against a set of single keys: additions, and their reversal in the opposite order.
    #[test]
    fn it_contains_what_was_added_and_not_undone() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..300 {
            let mut set = RangeSet::default();
            let mut history = vec![(set.clone(), [false; 24], None)];
            for _ in 0..random.usize(1..12) {
                let (lower, width) = (random.u8(0..20), random.u8(1..6));
                let upper = (random.u8(..16) > 0).then_some(lower + width);
                let (_, mut keys, _) = history.last().expect("the first").clone();
                let end = upper.map_or(keys.len(), |upper| usize::from(upper).min(keys.len()));
                keys[usize::from(lower)..end].fill(true);
                let added = set.add(range(lower, upper));
                for (key, is_in) in keys.iter().enumerate() {
                    assert_eq!(set.covering(&[key as u8]).is_some(), *is_in, "{key} of {set:?}");
                }
                let all: Vec<KeyRange> = set.iter().collect();
                assert!(all.windows(2).all(|pair| !touch(&pair[0], &pair[1])), "{all:?}");
                assert_eq!(set.bytes(), all.iter().map(range_bytes).sum::<u64>());
                history.push((set.clone(), keys, added));
            }
            while let Some((after, _, added)) = history.pop() {
                assert_eq!(set, after);
                if let Some(added) = added {
                    set.undo(added);
                }
            }
        }
    }
}
