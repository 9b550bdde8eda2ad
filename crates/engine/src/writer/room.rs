//! The cached back-pressure state of writers: the slowdown per byte, and the delay that has
//! accumulated.
//!
//! On the fast path a write loads two atomic numbers and takes no lock. Whatever may change the
//! back-pressure (a sealed or a flushed generation, an installed version, a dropped keyspace) calls
//! [`Room::changed`] afterwards, which invalidates the cached slowdown. A writer that computes it
//! again reads the change count *before* it looks at the backlog. A result from before a later
//! change is therefore never taken for current.
//!
//! The computation of the slowdown is in [`super::pressure`].

use crate::sync::atomic::{AtomicU64, Ordering};

/// Accumulated delay at which a writer sleeps.
const SLEEP_NS: u64 = 1_000_000;

/// The slowdown of writers, as far as it is known, and the accumulated delay.
#[derive(Default)]
pub(crate) struct Room {
    /// Number of changes.
    changes: AtomicU64,
    /// The change count at which the slowdown was computed, plus one, and in the low [`PRICE_BITS`]
    /// bits the delay per byte.
    known: AtomicU64,
    /// Delay that writers have not slept yet.
    owed_ns: AtomicU64,
}

/// Low bits of [`Room::known`] that hold the delay per byte.
const PRICE_BITS: u32 = 16;

impl Room {
    /// Notes that the backlog or its limits have changed.
    pub fn changed(&self) {
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// Number of changes so far.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// The delay per byte, if it is up to date.
    #[inline]
    pub fn ns_per_byte(&self) -> Option<u64> {
        let known = self.known.load(Ordering::Relaxed);
        let is_new = known >> PRICE_BITS == self.changes().wrapping_add(1) << PRICE_BITS >> PRICE_BITS;
        is_new.then_some(known & u64::from(u16::MAX))
    }

    /// Stores the delay per byte, computed after the count `changes` was read.
    pub fn set_ns_per_byte(&self, changes: u64, ns_per_byte: u16) {
        self.known.store(changes.wrapping_add(1) << PRICE_BITS | u64::from(ns_per_byte), Ordering::Relaxed);
    }

    /// Adds to the accumulated delay. Returns the microseconds to sleep now; 0 while the delay is
    /// below a millisecond.
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
        let room = Room::default();
        assert_eq!((room.owe(999_999), room.owe(1)), (0, 1_000), "a millisecond is worth a sleep");
        assert_eq!((room.owe(1_000_000), room.owe(0)), (1_000, 0), "and is slept once");
    }
}
