//! Places in lookup order, and spans: what a job occupies while it runs.
//!
//! A place is a level and an age. Places are ordered as lookups visit runs: level 0 first, within a
//! level the newest run first. Unlike an index into the list of runs, a place stays valid while
//! other jobs install runs.
//!
//! Not here: who holds which span ([`super::claims`]).

use std::cmp::Ordering;
use std::fmt;

use shamba_key::Age;

use crate::version::KeyRange;

/// Position of a run in lookup order, whether the run exists or is being built.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RunPlace {
    /// Level of the run.
    pub level: u32,
    /// Age of the run among those of its level.
    pub age: Age,
}

impl RunPlace {
    /// The place of a new run of `level` whose age is not known yet: above every run of the level.
    pub fn newest_of(level: u32) -> Self {
        Self { level, age: Age(u64::MAX - 1) }
    }
}

impl Ord for RunPlace {
    /// Newer places are less.
    fn cmp(&self, other: &Self) -> Ordering {
        self.level.cmp(&other.level).then_with(|| other.age.cmp(&self.age))
    }
}

impl PartialOrd for RunPlace {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for RunPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.age {
            Age(age) if age >= u64::MAX - 1 => write!(f, "L{}@new", self.level),
            age => write!(f, "L{}@{age}", self.level),
        }
    }
}

/// Keys and places that a job occupies, both inclusive of all that it reads and writes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Span {
    /// Hull of the keys.
    pub keys: KeyRange,
    /// The first place in lookup order.
    pub newest: RunPlace,
    /// The last place in lookup order.
    pub oldest: RunPlace,
}

impl Span {
    /// Whether two jobs with these spans conflict: some key and some place lie in both.
    pub fn intersects(&self, other: &Self) -> bool {
        debug_assert!(self.newest <= self.oldest, "a span upside down: {self}");
        debug_assert!(other.newest <= other.oldest, "a span upside down: {other}");
        self.newest <= other.oldest && other.newest <= self.oldest && self.keys.overlaps(&other.keys)
    }

    /// Whether `place` lies between the newest and the oldest place.
    pub fn has_place(&self, place: RunPlace) -> bool {
        (self.newest..=self.oldest).contains(&place)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} from {} to {}", self.keys, self.newest, self.oldest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(level: u32, age: u64) -> RunPlace {
        RunPlace { level, age: Age(age) }
    }

    fn span(keys: &str, newest: RunPlace, oldest: RunPlace) -> Span {
        Span { keys: keys.parse().expect("a range"), newest, oldest }
    }

    #[test]
    fn places_are_in_lookup_order() {
        let order =
            [RunPlace::newest_of(0), place(0, 9), place(0, 8), place(1, 20), place(1, 3), place(2, 90)];
        assert!(order.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(RunPlace::newest_of(1) < place(1, 20) && RunPlace::newest_of(1) > place(0, 1));
    }

    #[test]
    fn spans_intersect_where_they_share_keys_and_places() {
        let base = span("c..m", place(1, 5), place(2, 3));
        for (keys, newest, oldest, intersects) in [
            ("a..z", place(0, 9), place(1, 6), false),
            ("a..z", place(0, 9), place(1, 5), true),
            ("a..z", place(2, 3), place(2, 3), true),
            ("a..z", place(2, 2), place(3, 1), false),
            ("a..c", place(1, 5), place(2, 3), false),
            ("m..", place(1, 5), place(2, 3), false),
            ("l..", place(1, 4), place(1, 4), true),
        ] {
            let other = span(keys, newest, oldest);
            assert_eq!(
                (base.intersects(&other), other.intersects(&base)),
                (intersects, intersects),
                "{other}"
            );
        }
    }
}
