//! Where a scan keeps what can be taken from it: used by the scan during a call, free for others to take between two.
//!
//! A call holds the slot's lock from [`Slot::enter`] to [`Slot::leave`]. Whoever wants what is in there ([`Slot::revoke`])
//! tries the lock and takes it. If the scan is in the middle of a call, a note is left, which the scan reads when the call is
//! over, *after* it has let go of the lock: so either the note is seen, or another try finds the lock free. (Both sides
//! change the note in one step that reads it, too; a scan that looked at it before unlocking would miss the one that comes in between,
//! and an idle scan would keep an old view until its next call.)
//!
//! Not here: what lies in it, and who wants it ([`super::registry`]).

use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, MutexGuard, PoisonError};

/// A place for one `L`.
pub struct Slot<L> {
    live: Mutex<Option<L>>,
    /// Somebody wants it, or has taken it since the scan last began anew.
    wanted: AtomicBool,
}

impl<L> Default for Slot<L> {
    fn default() -> Self {
        Self { live: Mutex::new(None), wanted: AtomicBool::new(false) }
    }
}

impl<L> Slot<L> {
    /// Begins a call: nobody takes anything until [`Self::leave`].
    pub fn enter(&self) -> MutexGuard<'_, Option<L>> {
        // A slot is whole at every point where a panic could unwind past it: an iterator that panicked in a call is
        // sought anew before it is used again, or not used again.
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a call. What is in the slot comes out, to be dropped outside the lock, if somebody wants it or `gives_up`.
    pub fn leave(&self, mut live: MutexGuard<'_, Option<L>>, gives_up: bool) -> Option<L> {
        let given_up = if gives_up { live.take() } else { None };
        drop(live);
        // Acquire and release: whoever notes a wish after this finds the lock free.
        if self.wanted.swap(false, Ordering::AcqRel) { self.enter().take().or(given_up) } else { given_up }
    }

    /// Whether somebody wants what is here, or has taken it.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Acquire)
    }

    /// Forgets wishes so far. For a call that is about to put something into the slot that is newer than whatever they were
    /// about.
    pub fn forget_wishes(&self) {
        self.wanted.swap(false, Ordering::AcqRel);
    }

    /// Takes what is in the slot if it is `stale`; a scan in the middle of a call gives it up at the end, whatever it is.
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
            // Also where nothing is: what the scan has found ahead may be of a database that is closed now.
            self.wanted.store(true, Ordering::Release);
        }
        if is_fresh { None } else { live.take() }
    }

    /// Takes what is in the slot, if there is anything and the scan is idle.
    pub fn take_idle(&self) -> Option<L> {
        let mut live = self.live.try_lock().ok()?;
        let taken = live.take()?;
        self.wanted.store(true, Ordering::Release);
        Some(taken)
    }
}
