//! The number of a thread, by which threads spread over the shards of shared state.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of this thread: threads are numbered in the order of their first calls. Threads of
/// different numbers, modulo a number of shards, do not contend for a shard. Nothing else may
/// depend on it.
#[inline]
pub fn thread_number() -> usize {
    // Not a schedule explorer's atomic: the number affects contention, never correctness.
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    NUMBER.with(|number| {
        if number.get() == usize::MAX {
            number.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        number.get()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_have_different_numbers_that_stay() {
        let own = thread_number();
        let others = [0; 3].map(|_| {
            let (first, again) =
                std::thread::spawn(|| (thread_number(), thread_number())).join().expect("no panic");
            assert_eq!(first, again);
            first
        });
        assert_eq!(thread_number(), own);
        assert!(others.iter().all(|other| *other != own));
        assert!(others.is_sorted() && others[0] != others[1] && others[1] != others[2]);
    }
}
