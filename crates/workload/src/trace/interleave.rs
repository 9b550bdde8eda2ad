//! Order of a mix's operations: random, in proportion to the remaining number of each class, so
//! that all classes are spread over the whole mix.
//!
//! As in the K-V-Workload-Generator, operations other than inserts start after a part of the
//! inserts. If a class is currently impossible, the class before it in the list is used instead,
//! down to inserts.

use fastrand::Rng;

/// A class of operations. The order matters: an impossible class is replaced by the one before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Class {
    Insert,
    Update,
    Delete,
    RangeDelete,
    Lookup,
    Scan,
}

impl Class {
    pub const ALL: [Self; 6] =
        [Self::Insert, Self::Update, Self::Delete, Self::RangeDelete, Self::Lookup, Self::Scan];

    /// Fraction of the mix's inserts that must precede this class.
    fn threshold(self) -> f64 {
        match self {
            Self::Insert => 0.0,
            Self::Update | Self::Delete | Self::Scan => 0.1,
            Self::Lookup => 0.4,
            Self::RangeDelete => 0.75,
        }
    }
}

/// Remaining operations of a mix.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Left {
    /// Remaining operations by class, in the order of [`Class::ALL`].
    pub counts: [u64; 6],
    /// Remaining deletes and lookups of absent keys, among those.
    pub empty_deletes: u64,
    pub empty_lookups: u64,
    /// Whether range deletes remove live keys.
    pub range_deletes_take: bool,
    /// Number of inserts of the whole mix.
    pub inserts: u64,
}

impl Left {
    pub fn of(&self, class: Class) -> u64 {
        self.counts[class as usize]
    }

    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The next class, with `live` keys in the database; `None` if no remaining operation is
    /// possible.
    pub fn next(&self, rng: &mut Rng, live: u64) -> Option<Class> {
        let mut at = rng.u64(..self.total().max(1));
        let mut chosen = 0;
        while chosen + 1 < Class::ALL.len() && at >= self.counts[chosen] {
            at -= self.counts[chosen];
            chosen += 1;
        }
        let able = |class: &&Class| self.can(**class, live);
        Class::ALL[..=chosen].iter().rev().find(able).or_else(|| Class::ALL.iter().find(able)).copied()
    }

    fn can(&self, class: Class, live: u64) -> bool {
        let inserted = (self.inserts - self.of(Class::Insert)) as f64;
        if self.of(class) == 0 || inserted < class.threshold() * self.inserts as f64 {
            return false;
        }
        let others_need_the_last = self.of(Class::Update) > 0 || self.of(Class::Lookup) > self.empty_lookups;
        let is_last = live == 1 && self.of(Class::Insert) == 0;
        match class {
            Class::Insert | Class::Scan => true,
            Class::Update => live > 0,
            Class::Lookup => live > 0 || self.empty_lookups > 0,
            Class::Delete => self.empty_deletes > 0 || (live > 0 && !(is_last && others_need_the_last)),
            Class::RangeDelete => {
                let others_need_the_last =
                    others_need_the_last || self.of(Class::Delete) > self.empty_deletes;
                !(self.range_deletes_take && is_last && others_need_the_last)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_a_mix_comes_and_nothing_before_its_time() {
        let mut rng = Rng::with_seed(8);
        let counts = [100, 50, 40, 5, 200, 30];
        let mut left =
            Left { counts, empty_deletes: 10, empty_lookups: 100, range_deletes_take: false, inserts: 100 };
        let mut live = 0;
        while left.total() > 0 {
            let class = left.next(&mut rng, live).expect("something can be done");
            let inserted = 100 - left.of(Class::Insert);
            assert!(inserted as f64 >= 100.0 * class.threshold(), "{class:?} after {inserted} inserts");
            left.counts[class as usize] -= 1;
            match class {
                Class::Insert => live += 1,
                Class::Delete if left.empty_deletes > 0 => left.empty_deletes -= 1,
                Class::Delete => live -= 1,
                Class::Lookup if left.empty_lookups > 0 => left.empty_lookups -= 1,
                _ => {}
            }
        }
        assert_eq!(live, 70);
    }

    #[test]
    fn the_last_key_stays_for_those_who_need_it() {
        let mut rng = Rng::with_seed(8);
        let left = Left {
            counts: [0, 1, 1, 1, 0, 0],
            empty_deletes: 0,
            empty_lookups: 0,
            range_deletes_take: true,
            inserts: 0,
        };
        assert!((0..50).all(|_| left.next(&mut rng, 1) == Some(Class::Update)));
        let nothing = Left { counts: [0, 1, 0, 0, 0, 0], ..left };
        assert_eq!(nothing.next(&mut rng, 0), None);
    }
}
