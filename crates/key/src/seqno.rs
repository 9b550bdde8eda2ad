//! Sequence numbers: the order of all writes of a database, across keyspaces.
//!
//! Each operation of a batch gets the next number. No write has the number 0: as a reader's
//! sequence it means "the empty database". The maximum is 2^56 - 1, so that a number and a kind fit
//! in eight bytes.

use std::fmt;

/// The position of one write in the order of all writes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct SeqNo(pub u64);

impl SeqNo {
    /// Before every write.
    pub const ZERO: Self = Self(0);
    /// At or after every write: used to search for the newest version.
    pub const MAX: Self = Self((1 << 56) - 1);

    /// The number after this one. Saturates, far above [`Self::MAX`], so that no number read from a
    /// file can cause a panic.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for SeqNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_order_and_print_plainly() {
        assert!(SeqNo::ZERO < SeqNo::ZERO.next() && SeqNo(7).next() == SeqNo(8));
        assert_eq!(SeqNo(42).to_string(), "42");
        // A number and a kind fit in eight bytes.
        assert_eq!(SeqNo::MAX.0 << 8 >> 8, SeqNo::MAX.0);
        assert_eq!(SeqNo::MAX.next().0 << 8, 0);
    }
}
