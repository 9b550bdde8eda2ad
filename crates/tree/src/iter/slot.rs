//! The slot of a scan: holds the scan's live iterators, which others may revoke between two calls.
//!
//! A call holds the slot's lock from [`Slot::enter`] to [`Slot::leave`]. [`Slot::revoke`] tries the
//! lock and takes the contents. During a call it sets the flag `Slot::wanted` instead and tries
//! the lock once more. The scan reads the flag at the end of the call, *after* it has released the
//! lock. So either the scan sees the flag, or the second try finds the lock free. Both sides change
//! the flag by a read-modify-write operation. A scan that read the flag before it unlocked could
//! miss a request in between; an idle scan would then keep an old view until its next call.
//!
//! The contents and the code that revokes them are in [`super::registry`].

use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, MutexGuard, PoisonError};

/// A place for one `L`.
pub struct Slot<L> {
    live: Mutex<Option<L>>,
    /// A revocation was requested or done since the scan last rebuilt its contents.
    wanted: AtomicBool,
}

impl<L> Default for Slot<L> {
    fn default() -> Self {
        Self { live: Mutex::new(None), wanted: AtomicBool::new(false) }
    }
}

impl<L> Slot<L> {
    /// Begins a call: nothing is revoked until [`Self::leave`].
    pub fn enter(&self) -> MutexGuard<'_, Option<L>> {
        // Ignoring the poison is sound: a panic leaves the slot valid. An iterator that panicked
        // during a call is sought again before its next use, or not used again.
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a call. Takes the contents out if a revocation was requested or `gives_up` is true; the
    /// caller drops them outside the lock.
    pub fn leave(&self, mut live: MutexGuard<'_, Option<L>>, gives_up: bool) -> Option<L> {
        let given_up = if gives_up { live.take() } else { None };
        drop(live);
        // Acquire and release: a revocation that sets the flag after this finds the lock free.
        if !self.wanted.swap(false, Ordering::AcqRel) {
            return given_up;
        }
        // Stays set, so that the scan returns no entry that it has read ahead: the database may be
        // closed now.
        self.wanted.store(true, Ordering::Release);
        self.enter().take().or(given_up)
    }

    /// Whether a revocation was requested or done.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Acquire)
    }

    /// Clears earlier requests. For a call that is about to store contents that are newer than
    /// anything that those requests were about.
    pub fn forget_wishes(&self) {
        self.wanted.swap(false, Ordering::AcqRel);
    }

    /// Takes the contents if they are `stale`. During a call of the scan they are given up at its
    /// end, stale or not.
    pub fn revoke(&self, stale: impl Fn(&L) -> bool) -> Option<L> {
        let mut live = match self.live.try_lock() {
            Ok(live) => live,
            Err(_) => {
                self.wanted.swap(true, Ordering::AcqRel);
                self.live.try_lock().ok()?
            }
        };
        let is_fresh = live.as_ref().is_some_and(|live| !stale(live));
        if !is_fresh {
            // Set for an empty slot as well: entries that the scan has read ahead may belong to a
            // database that is closed now.
            self.wanted.store(true, Ordering::Release);
        }
        if is_fresh { None } else { live.take() }
    }

    /// Takes the contents, if there are any and the scan is idle.
    pub fn take_idle(&self) -> Option<L> {
        let mut live = self.live.try_lock().ok()?;
        let taken = live.take()?;
        self.wanted.store(true, Ordering::Release);
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_during_a_call_takes_the_contents_at_its_end_and_stays_known() {
        let slot = Slot::default();
        let mut live = slot.enter();
        *live = Some(1);
        assert_eq!(slot.revoke(|_| true), None, "a call is using it");
        assert_eq!(slot.leave(live, false), Some(1));
        assert!(slot.is_wanted(), "entries that were read ahead are returned no more");
        slot.forget_wishes();
        assert!(!slot.is_wanted());
    }
}
