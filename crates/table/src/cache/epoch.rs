//! Grace periods (epoch-based reclamation): when no reader can hold a retired frame any more.
//!
//! A reader enters a section (it holds an epoch guard) and leaves it soon; sections never span I/O
//! or a caller's code. To reuse a frame, the holder of the cache's lock makes it unreachable,
//! records the phase, and reuses it two phases later:
//!
//! - There are two counts of readers, for even and odd phases, spread over cells so that threads
//!   rarely share one. A reader increments the count of the phase that it sees and loads the phase
//!   again: if the phase has advanced, it decrements and starts over. So a reader that is inside
//!   was counted while its phase was current.
//! - The phase advances from p to p + 1 only when the count of phase p - 1 is zero (p + 1 uses the
//!   same count). So while the phase is p, readers belong to p or p - 1.
//! - A frame that became unreachable in phase p can be held only by readers of p and p - 1, because
//!   a reader that saw phase p + 1 also saw the removal. At phase p + 2 all of those have left.
//!
//! No thread waits: a phase that cannot advance yet is tried again later. Nothing depends on time,
//! and threads need no registration. The choice of a cell affects contention, never correctness.

use shamba_env::{THREAD_GROUPS, thread_number};

use crate::sync::IS_EXPLORED;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Number of cells.
const CELLS: usize = if IS_EXPLORED { 1 } else { THREAD_GROUPS };

/// Phases between the removal of a frame and its reuse.
pub(super) const GRACE_PHASES: u64 = 2;

/// One cell of reader counts. Two cache lines, because processors prefetch lines in pairs.
#[derive(Default)]
#[repr(align(128))]
struct Readers {
    /// Readers of even and of odd phases.
    inside: [AtomicU64; 2],
}

/// The current phase and the readers inside.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Epoch {
    phase: AtomicU64,
    cells: [Readers; CELLS],
}

/// A reader inside a section, until dropped.
pub(super) struct Inside<'a>(&'a AtomicU64);

impl Epoch {
    /// Enters a section. Frames that are reachable from now on stay readable until the guard is
    /// dropped.
    #[inline]
    pub(super) fn enter(&self) -> Inside<'_> {
        let cell = &self.cells[thread_number() % CELLS];
        loop {
            let phase = self.phase.load(Ordering::Acquire);
            let inside = &cell.inside[(phase & 1) as usize];
            // Sequentially consistent, as are the loads below and in `try_advance`: either the
            // advancing thread sees this count, or this thread sees the advanced phase.
            inside.fetch_add(1, Ordering::SeqCst);
            if self.phase.load(Ordering::SeqCst) == phase {
                return Inside(inside);
            }
            inside.fetch_sub(1, Ordering::Release);
        }
    }

    /// The current phase. A frame made unreachable before this call may be reused [`GRACE_PHASES`]
    /// later.
    pub(super) fn phase(&self) -> u64 {
        self.phase.load(Ordering::SeqCst)
    }

    /// Advances the phase by one if no reader is in the previous one. Callers are serialized (by
    /// the cache's lock).
    pub(super) fn try_advance(&self) -> bool {
        let phase = self.phase.load(Ordering::SeqCst);
        let before = ((phase + 1) & 1) as usize;
        // Acquire: those readers' accesses happen before the caller's next use of the frames.
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
