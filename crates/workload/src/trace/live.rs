//! A set of places below n with access by rank: a binary indexed tree over bits.
//!
//! Insertion, removal, rank and selection take time proportional to the logarithm of n; the set
//! takes four bytes per place. That is enough to draw from the live keys of a workload in key order
//! while keys are inserted and deleted.

/// A set of numbers below a bound.
#[derive(Clone, Debug, Default)]
pub(crate) struct LiveSet {
    members: Vec<bool>,
    /// `sums[i]` counts the members among the `i & -i` places that end before place `i`.
    sums: Vec<u32>,
    count: usize,
}

impl LiveSet {
    /// The set of the places at which `members` is true.
    pub fn new(members: Vec<bool>) -> Self {
        let mut sums: Vec<u32> =
            std::iter::once(0).chain(members.iter().map(|&member| u32::from(member))).collect();
        for at in 1..sums.len() {
            let above = at + (at & at.wrapping_neg());
            if above < sums.len() {
                sums[above] += sums[at];
            }
        }
        let count = members.iter().filter(|&&member| member).count();
        Self { members, sums, count }
    }

    /// Number of members.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether `place` is a member.
    pub fn contains(&self, place: usize) -> bool {
        self.members[place]
    }

    /// Adds `place`, if it is not a member.
    pub fn insert(&mut self, place: usize) {
        if !std::mem::replace(&mut self.members[place], true) {
            self.count += 1;
            self.change(place, |sum| sum + 1);
        }
    }

    /// Removes `place`, if it is a member.
    pub fn remove(&mut self, place: usize) {
        if std::mem::replace(&mut self.members[place], false) {
            self.count -= 1;
            self.change(place, |sum| sum - 1);
        }
    }

    /// Number of members below `place`.
    pub fn rank(&self, place: usize) -> usize {
        let mut at = place;
        let mut sum = 0;
        while at > 0 {
            sum += self.sums[at] as usize;
            at &= at - 1;
        }
        sum
    }

    /// The member with exactly `rank` members below it; there must be more than `rank` members.
    pub fn select(&self, rank: usize) -> usize {
        debug_assert!(rank < self.count);
        let mut at = 0;
        let mut left = rank;
        let mut step = self.sums.len().next_power_of_two();
        while step > 0 {
            let next = at + step;
            if next < self.sums.len() && self.sums[next] as usize <= left {
                left -= self.sums[next] as usize;
                at = next;
            }
            step /= 2;
        }
        at
    }

    /// The member at `place`, or the next one after it, cyclically; the set must not be empty.
    pub fn at_or_after(&self, place: usize) -> usize {
        if self.contains(place) { place } else { self.select(self.rank(place) % self.count) }
    }

    fn change(&mut self, place: usize, change: impl Fn(u32) -> u32) {
        let mut at = place + 1;
        while at < self.sums.len() {
            self.sums[at] = change(self.sums[at]);
            at += at & at.wrapping_neg();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use fastrand::Rng;

    use super::*;

    #[test]
    fn it_is_an_ordered_set() {
        let mut rng = Rng::with_seed(5);
        for n in [1, 2, 3, 7, 8, 9, 100] {
            let members: Vec<bool> = (0..n).map(|_| rng.bool()).collect();
            let mut model: BTreeSet<usize> = (0..n).filter(|&place| members[place]).collect();
            let mut set = LiveSet::new(members);
            for _ in 0..300 {
                let place = rng.usize(..n);
                if rng.bool() {
                    model.insert(place);
                    set.insert(place);
                } else {
                    model.remove(&place);
                    set.remove(place);
                }
                assert_eq!((set.len(), set.contains(place)), (model.len(), model.contains(&place)));
                assert_eq!(set.rank(place), model.range(..place).count());
                for (rank, &member) in model.iter().enumerate() {
                    assert_eq!(set.select(rank), member);
                }
                if let Some(&first) = model.first() {
                    let next = model.range(place..).next().copied().unwrap_or(first);
                    assert_eq!(set.at_or_after(place), next);
                }
            }
        }
    }
}
