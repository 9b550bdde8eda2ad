//! Summaries of sorted entries: the largest sequence number of each group.
//!
//! A scan below a range tombstone wants the next entry that is newer than the tombstone. Groups
//! whose largest sequence number is not above the tombstone's are passed over without a look at
//! their entries, and chunks without any newer entry at once.

use std::ops::Range;

use shamba_key::SeqNo;

/// Entries of a group in a chunk. With 64, a chunk of 500,000 entries has 8,000 groups, which take
/// some microseconds to look through and an eighth of a byte per entry.
pub(super) const CHUNK_GROUP: usize = 64;
const _: () = assert!(CHUNK_GROUP.is_power_of_two(), "the group of an entry is found by a shift");

/// The largest sequence number of each group of some entries.
#[derive(Debug)]
pub(super) struct Summary {
    /// Binary logarithm of the number of entries of a group.
    bits: u32,
    groups: Box<[SeqNo]>,
    /// Largest of all.
    largest: SeqNo,
}

/// A summary of groups of a chunk that is being made.
#[derive(Default)]
pub(super) struct SummaryBuilder {
    groups: Vec<SeqNo>,
    /// Entries added.
    entries: usize,
}

impl Summary {
    /// A summary of one group with all entries.
    pub fn of_one_group(largest: SeqNo) -> Self {
        Self { bits: usize::BITS - 1, groups: Box::new([largest]), largest }
    }

    /// The largest sequence number of all entries.
    pub fn largest(&self) -> SeqNo {
        self.largest
    }

    /// Memory besides the struct itself.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.groups)
    }

    /// Number of the first entry of `range` that is newer than `floor`; the end of `range` if there
    /// is none. `seq` returns the sequence number of an entry.
    pub fn first_newer(&self, range: Range<usize>, floor: SeqNo, seq: impl Fn(usize) -> SeqNo) -> usize {
        let mut at = range.start;
        while at < range.end && self.largest > floor {
            let group = at >> self.bits;
            let Some(passed) = self.groups[group..].iter().position(|largest| *largest > floor) else {
                break;
            };
            let from = at.max((group + passed) << self.bits);
            at = range.end.min((group + passed + 1) << self.bits);
            if let Some(found) = (from..at).find(|number| seq(*number) > floor) {
                return found;
            }
        }
        range.end
    }

    /// Number after the last entry of `range` that is newer than `floor`; the start of `range` if
    /// there is none. `seq` returns the sequence number of an entry.
    pub fn after_last_newer(&self, range: Range<usize>, floor: SeqNo, seq: impl Fn(usize) -> SeqNo) -> usize {
        let mut end = range.end;
        while end > range.start && self.largest > floor {
            let groups = ((end - 1) >> self.bits) + 1;
            let Some(group) = self.groups[..groups].iter().rposition(|largest| *largest > floor) else {
                break;
            };
            let to = end.min((group + 1) << self.bits);
            end = range.start.max(group << self.bits);
            if let Some(found) = (end..to).rev().find(|number| seq(*number) > floor) {
                return found + 1;
            }
        }
        range.start
    }
}

impl SummaryBuilder {
    /// A builder with room for `entries` entries.
    pub fn with_capacity(entries: usize) -> Self {
        Self { groups: Vec::with_capacity(entries.div_ceil(CHUNK_GROUP)), entries: 0 }
    }

    /// Adds an entry.
    #[inline]
    pub fn push(&mut self, seq: SeqNo) {
        match self.groups.last_mut().filter(|_| self.entries % CHUNK_GROUP != 0) {
            Some(largest) => *largest = (*largest).max(seq),
            None => self.groups.push(seq),
        }
        self.entries += 1;
    }

    /// The summary of all entries added.
    pub fn finish(self) -> Summary {
        let (groups, entries) = (self.groups.len(), self.entries);
        assert_eq!(groups, entries.div_ceil(CHUNK_GROUP), "groups of {entries} entries");
        let largest = self.groups.iter().copied().max().unwrap_or(SeqNo::ZERO);
        Summary { bits: CHUNK_GROUP.ilog2(), groups: self.groups.into(), largest }
    }
}

#[cfg(test)]
mod tests {
    use shamba_testkit::Dice;

    use super::*;

    #[test]
    fn a_summary_knows_the_largest_number_and_takes_eight_bytes_per_group() {
        for count in [1, 2, 63, 64, 65, 128, 500] {
            for place in [0, count / 2, count - 1] {
                let mut builder = SummaryBuilder::with_capacity(count);
                (0..count).for_each(|number| builder.push(SeqNo(if number == place { 900 } else { 7 })));
                let summary = builder.finish();
                assert_eq!(summary.largest(), SeqNo(900), "number {place} of {count}");
                assert_eq!(summary.bytes(), 8 * count.div_ceil(CHUNK_GROUP), "{count} entries");
            }
        }
        let summary = Summary::of_one_group(SeqNo(5));
        assert_eq!((summary.largest(), summary.bytes()), (SeqNo(5), 8));
    }

    #[test]
    fn a_search_looks_only_at_entries_of_groups_with_a_newer_one() {
        let floor = SeqNo(5);
        for seed in 0..100 {
            println!("seed {seed}");
            let dice = Dice::new(seed);
            let count = 1 + dice.below(800);
            // Many are exactly at the floor.
            let rare = 1 + dice.below(400);
            let seqs: Vec<SeqNo> = (0..count)
                .map(|_| SeqNo(if dice.one_in(rare) { 100 } else { dice.below(6) as u64 }))
                .collect();
            let mut builder = SummaryBuilder::with_capacity(count);
            seqs.iter().for_each(|seq| builder.push(*seq));
            let summary = builder.finish();
            let has_newer: Vec<bool> =
                seqs.chunks(CHUNK_GROUP).map(|group| group.iter().any(|seq| *seq > floor)).collect();
            for _ in 0..50 {
                let end = dice.below(count + 1);
                let range = dice.below(end + 1)..end;
                let seq = |number: usize| {
                    assert!(range.contains(&number), "entry {number} is not in {range:?}");
                    assert!(
                        has_newer[number / CHUNK_GROUP],
                        "entry {number} of {range:?} is in a passed group"
                    );
                    seqs[number]
                };
                summary.first_newer(range.clone(), floor, seq);
                summary.after_last_newer(range.clone(), floor, seq);
            }
        }
    }

    #[test]
    fn the_next_newer_entry_is_the_one_that_a_walk_finds() {
        for seed in 0..300 {
            println!("seed {seed}");
            let dice = Dice::new(seed);
            let count = 1 + dice.below(500);
            // Few newer entries, so that whole groups have none.
            let rare = 1 + dice.below(200);
            let seqs: Vec<SeqNo> = (0..count)
                .map(|_| SeqNo(dice.below(10) as u64 + if dice.one_in(rare) { 100 } else { 0 }))
                .collect();
            let mut grouped = SummaryBuilder::with_capacity(count);
            seqs.iter().for_each(|seq| grouped.push(*seq));
            for summary in [grouped.finish(), Summary::of_one_group(seqs.iter().copied().max().expect("one"))]
            {
                for _ in 0..100 {
                    let end = dice.below(count + 1);
                    let range = dice.below(end + 1)..end;
                    let floor = SeqNo(dice.below(112) as u64);
                    let newer = |number: &usize| seqs[*number] > floor;
                    let seq = |number: usize| seqs[number];
                    assert_eq!(
                        summary.first_newer(range.clone(), floor, seq),
                        range.clone().find(newer).unwrap_or(range.end),
                        "first in {range:?} above {floor}"
                    );
                    assert_eq!(
                        summary.after_last_newer(range.clone(), floor, seq),
                        range.clone().rev().find(newer).map_or(range.start, |last| last + 1),
                        "last in {range:?} above {floor}"
                    );
                }
            }
        }
    }
}
