//! The union of key ranges, for many questions about the same ranges.
//!
//! A compaction asks for each delete whether a deeper table may hold its key. A large tree has
//! thousands of such tables, so the ranges are joined and sorted once, and a question is a binary
//! search.
//!
//! Invariant: the ranges ascend, none is empty, and between two of them are keys that neither
//! contains.

use super::edit::KeyRange;
use super::range::cmp_upper;

/// The keys in any of several ranges.
#[derive(Debug)]
pub struct RangeUnion {
    ranges: Vec<KeyRange>,
}

impl RangeUnion {
    /// The union of these ranges, given in any order.
    pub fn of(mut ranges: Vec<KeyRange>) -> Self {
        ranges.retain(|range| !range.is_empty());
        ranges.sort_unstable_by(|a, b| a.lower.cmp(&b.lower));
        ranges.dedup_by(|next, last| {
            let is_joined = last.upper.as_ref().is_none_or(|upper| next.lower <= *upper);
            if is_joined && cmp_upper(last.upper.as_ref(), next.upper.as_ref()).is_lt() {
                last.upper = next.upper.take();
            }
            is_joined
        });
        debug_assert!(
            ranges.is_sorted_by(|left, right| !left.is_above(&right.lower)),
            "joined ranges share keys: {ranges:?}"
        );
        Self { ranges }
    }

    /// The union as ranges that ascend and do not touch.
    pub fn into_ranges(self) -> Vec<KeyRange> {
        self.ranges
    }

    /// Whether one of the ranges contains `key`.
    pub fn contains(&self, key: &[u8]) -> bool {
        let next = self.ranges.partition_point(|range| range.lower.as_ref() <= key);
        next.checked_sub(1).and_then(|at| self.ranges.get(at)).is_some_and(|range| range.is_above(key))
    }

    /// Whether one of the ranges shares keys with `range`, which is not empty.
    pub fn overlaps(&self, range: &KeyRange) -> bool {
        debug_assert!(!range.is_empty(), "{range:?} is empty");
        let first = self.ranges.partition_point(|other| !other.is_above(&range.lower));
        self.ranges.get(first).is_some_and(|other| other.overlaps(range))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    /// Keys of two letters, so that ranges touch and share bounds often; a tenth has no end.
    fn random_range(rng: &mut fastrand::Rng) -> KeyRange {
        let mut key = || Bytes::from(format!("{}{}", rng.char('a'..='c'), rng.char('a'..='e')));
        let (lower, upper) = (key(), key());
        KeyRange { lower, upper: (rng.u8(..10) > 0).then_some(upper) }
    }

    #[test]
    fn the_union_answers_as_its_ranges_do() {
        let seed = 2_611;
        let mut rng = fastrand::Rng::with_seed(seed);
        let (mut inside, mut outside) = (0, 0);
        for _ in 0..3_000 {
            let count = rng.usize(..8);
            let ranges: Vec<KeyRange> = (0..count).map(|_| random_range(&mut rng)).collect();
            let union = RangeUnion::of(ranges.clone());
            assert!(union.ranges.len() <= count, "{ranges:?}");
            for _ in 0..20 {
                let asked = random_range(&mut rng);
                let key = asked.lower.as_ref();
                let is_inside = ranges.iter().any(|range| range.contains(key));
                assert_eq!(union.contains(key), is_inside, "seed {seed}: {key:?} in {ranges:?}");
                if !asked.is_empty() {
                    let shares = ranges.iter().any(|range| !range.is_empty() && range.overlaps(&asked));
                    assert_eq!(union.overlaps(&asked), shares, "seed {seed}: {asked:?} and {ranges:?}");
                    inside += u32::from(shares);
                    outside += u32::from(!shares);
                }
            }
        }
        assert!(inside > 1_000 && outside > 1_000, "{inside} share keys, {outside} do not");
    }

    #[test]
    fn ranges_that_share_keys_or_touch_become_one() {
        let range = |lower: &'static str, upper: &'static str| KeyRange {
            lower: Bytes::from_static(lower.as_bytes()),
            upper: Some(Bytes::from_static(upper.as_bytes())),
        };
        let union = RangeUnion::of(vec![range("m", "p"), range("a", "c"), range("c", "e"), range("b", "d")]);
        assert_eq!(union.ranges, [range("a", "e"), range("m", "p")]);
        let whole = RangeUnion::of(vec![range("m", "p"), KeyRange::everything(), range("q", "r")]);
        assert_eq!(whole.ranges, [KeyRange::everything()]);
    }
}
