//! Grace periods: when has everybody left who could still be reading a frame?
//!
//! A reader enters a section and leaves it soon; sections never last over I/O or a caller's code. Whoever takes
//! a frame away makes it unreachable, notes the phase, and reuses it two phases later:
//!
//! - There are two counts of readers, for even and odd phases, spread over cells so that threads rarely share
//!   one. A reader adds itself to the count of the phase that it sees and looks again: if the phase has moved
//!   on, it takes itself off and starts over. So a reader that is inside was counted while its phase was current.
//! - The phase moves from p to p + 1 only when nobody is counted under p - 1 (whose count p + 1 takes over).
//!   So while the phase is p, readers are of p or p - 1.
//! - What was made unreachable while the phase was p can be held by readers of p and p - 1 only: one that saw
//!   phase p + 1 saw what came before it. At phase p + 2 all of those have left.
//!
//! Nobody waits: a phase that cannot move on yet is tried again later. Nothing depends on time, and a thread
//! needs no registration: which cell it uses changes who contends with whom, never what happens.

use std::cell::Cell;

use crate::sync::IS_EXPLORED;
use crate::sync::atomic::{AtomicU64, Ordering};

/// A power of two; more than the cores that fill one machine's memory bandwidth with block searches.
const CELLS: usize = if IS_EXPLORED { 1 } else { 32 };

/// How many phases after it was made unreachable a frame can be reused.
pub(super) const GRACE_PHASES: u64 = 2;

/// Two cache lines: neighbours are fetched together.
#[derive(Default)]
#[repr(align(128))]
struct Readers {
    /// Of even and of odd phases.
    inside: [AtomicU64; 2],
}

/// The phase, and who is inside.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Epoch {
    phase: AtomicU64,
    cells: [Readers; CELLS],
}

/// A reader that is inside until this is dropped.
pub(super) struct Inside<'a>(&'a AtomicU64);

impl Epoch {
    /// Enters. Whatever is reachable from now on stays readable until the guard is dropped.
    #[inline]
    pub(super) fn enter(&self) -> Inside<'_> {
        let cell = &self.cells[thread_cell()];
        loop {
            let phase = self.phase.load(Ordering::Acquire);
            let inside = &cell.inside[(phase & 1) as usize];
            // Sequentially consistent, as are the loads below and in `try_advance`: either the advancing thread
            // sees this count, or this thread sees the advanced phase.
            inside.fetch_add(1, Ordering::SeqCst);
            if self.phase.load(Ordering::SeqCst) == phase {
                return Inside(inside);
            }
            inside.fetch_sub(1, Ordering::Release);
        }
    }

    /// The phase now. What is made unreachable before this call may be reused [`GRACE_PHASES`] after it.
    pub(super) fn phase(&self) -> u64 {
        self.phase.load(Ordering::SeqCst)
    }

    /// Moves the phase on by one if nobody is in the last one. Callers take turns (they hold a lock).
    pub(super) fn try_advance(&self) -> bool {
        let phase = self.phase.load(Ordering::SeqCst);
        let before = ((phase + 1) & 1) as usize;
        // Acquire: what those readers did inside comes before whatever the caller does with frames now.
        if self.cells.iter().any(|cell| cell.inside[before].load(Ordering::SeqCst) != 0) {
            return false;
        }
        self.phase.store(phase + 1, Ordering::SeqCst);
        true
    }
}

impl Drop for Inside<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

/// This thread's cell: threads take them in turn.
#[inline]
fn thread_cell() -> usize {
    // Not one of a scheduler's: what it gives makes no difference.
    static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    thread_local! {
        static CELL: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    CELL.with(|cell| {
        if cell.get() == usize::MAX {
            cell.set(NEXT.fetch_add(1, Ordering::Relaxed) & (CELLS - 1));
        }
        cell.get()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_holds_the_second_phase_back_and_nobody_holds_it_for_ever() {
        let epoch = Epoch::default();
        for _ in 0..5 {
            let start = epoch.phase();
            let reader = epoch.enter();
            assert!(epoch.try_advance(), "nobody is in the phase before");
            assert!(!epoch.try_advance(), "the reader is");
            let later = epoch.enter();
            assert!(!epoch.try_advance());
            drop(reader);
            assert!(epoch.try_advance(), "the later reader is of the current phase");
            assert!(!epoch.try_advance());
            drop(later);
            assert!(epoch.try_advance());
            assert_eq!(epoch.phase(), start + 3);
        }
    }
}
