//! A pool that runs many independent cases on all processors.

use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Runs `work` on 0..count in parallel, and collects its results in the order of the numbers. After
/// the first failure no further case is started; the failure with the smallest number is returned.
///
/// # Errors
/// The failure of a case.
pub fn run<T: Send>(
    count: usize,
    work: impl Fn(usize) -> Result<T, String> + Sync,
) -> Result<Vec<T>, String> {
    let threads = std::thread::available_parallelism().map_or(2, NonZero::get).min(count.max(1));
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::with_capacity(count));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        return;
                    }
                    let result = work(index);
                    if result.is_err() {
                        next.store(count, Ordering::Relaxed);
                    }
                    results.lock().expect("no case panics while it holds the results").push((index, result));
                }
            });
        }
    });
    let mut results = results.into_inner().expect("no case panics while it holds the results");
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}
