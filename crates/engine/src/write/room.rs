//! What writers remember of the pressure: how much they are slowed, so that a write that need not wait looks at one number
//! and takes no lock, and what time they owe.
//!
//! Whatever may change the pressure calls [`Room::changed`] afterwards: a memtable was sealed, a version installed. Who
//! asks anew reads the count of changes *before* it looks at what waits: so what it notes is never taken for what was
//! there after a later change.
//!
//! Not here: what the pressure is ([`super::stall`]).

use crate::sync::atomic::{AtomicU64, Ordering};

/// What is owed before a writer sleeps.
const SLEEP_NS: u64 = 1_000_000;

/// How much writers are slowed, as far as that is known, and what they owe.
#[derive(Default)]
pub(crate) struct Room {
    /// Counts the changes.
    changes: AtomicU64,
    /// The count at which a writer found that none has to stop, plus one, and the price of a byte then.
    known: AtomicU64,
    /// Time that writers owe.
    owed_ns: AtomicU64,
}

/// Bits of [`Room::known`] for the price.
const PRICE_BITS: u32 = 16;

impl Room {
    /// Something that the pressure depends on is another now.
    pub fn changed(&self) {
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// How many changes there have been.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// What a byte costs, if that is known.
    #[inline]
    pub fn ns_per_byte(&self) -> Option<u64> {
        let known = self.known.load(Ordering::Relaxed);
        let is_new = known >> PRICE_BITS == self.changes().wrapping_add(1) << PRICE_BITS >> PRICE_BITS;
        is_new.then_some(known & u64::from(u16::MAX))
    }

    /// A byte costs so much, by what was seen after `changes` was read.
    pub fn set_ns_per_byte(&self, changes: u64, ns_per_byte: u16) {
        self.known.store(changes.wrapping_add(1) << PRICE_BITS | u64::from(ns_per_byte), Ordering::Relaxed);
    }

    /// Adds to what is owed; gives what is to be slept off now.
    pub fn owe(&self, ns: u64) -> u64 {
        let owed_ns = self.owed_ns.fetch_add(ns, Ordering::Relaxed).saturating_add(ns);
        if owed_ns < SLEEP_NS { 0 } else { self.owed_ns.swap(0, Ordering::Relaxed) / 1_000 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_owed_until_a_sleep_is_worth_it() {
        let room = Room::default();
        assert_eq!(room.ns_per_byte(), None, "nobody has looked");
        room.set_ns_per_byte(room.changes(), 7);
        assert_eq!(room.ns_per_byte(), Some(7));
        room.changed();
        assert_eq!(room.ns_per_byte(), None, "what was known is old");
        assert_eq!((room.owe(600_000), room.owe(600_000), room.owe(600_000)), (0, 1_200, 0));
    }
}
