//! A pool of threads that read in parallel with the caller: several cold blocks in the time of one.
//!
//! This pays only on a slow device: a read from the page cache takes a microsecond or two, waking a
//! thread takes ten. [`ReadPool::pays`] decides by the duration of recent reads. Threads start when
//! first needed, sleep between calls, and end when the pool is dropped. In an environment without
//! threads the caller does all the work.
//!
//! The caller works as well, so the work gets done even if no thread could be started.
//! [`ReadPool::run`] returns when all of it is done; nothing outlives the call.
//!
//! The blocks to read are chosen in [`super::multi_get`].

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use shamba_env::{Env, JoinHandle, Spawner};

use crate::sync::{Condvar, Mutex, PoisonError};
use shamba_env::lock;

/// Average duration of a read from which parallel reads pay.
const SLOW_READ_NS: u64 = 20_000;
/// Maximum number of threads; more parallel reads gain nothing on one device.
const THREADS_MAX: usize = 16;
const _: () = assert!(THREADS_MAX > 0, "a pool without threads");

/// A pool of reading threads.
pub struct ReadPool {
    spawner: Arc<dyn Spawner>,
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle>>,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
}

#[derive(Default)]
struct Queue {
    batches: VecDeque<Arc<Batch>>,
    is_closed: bool,
}

/// Pieces of work, numbered from 0, and the number of those that are done.
struct Batch {
    work: Box<dyn Fn(usize) + Send + Sync>,
    count: usize,
    next: AtomicUsize,
    over: Mutex<usize>,
    all_over: Condvar,
    has_panicked: AtomicBool,
}

impl ReadPool {
    /// A pool without threads; they start when needed.
    pub fn new(env: &Env) -> Self {
        Self { spawner: Arc::clone(&env.spawner), shared: Arc::default(), threads: Mutex::default() }
    }

    /// Whether several reads that take `read_ns` each should be made in parallel.
    pub fn pays(&self, read_ns: u64) -> bool {
        read_ns >= SLOW_READ_NS && !self.spawner.is_inline()
    }

    /// Calls `work` with each number below `count`, in parallel, and returns when all calls are
    /// done.
    pub fn run(&self, count: usize, work: impl Fn(usize) + Send + Sync + 'static) {
        let batch = Arc::new(Batch {
            work: Box::new(work),
            count,
            next: AtomicUsize::new(0),
            over: Mutex::new(0),
            all_over: Condvar::new(),
            has_panicked: AtomicBool::new(false),
        });
        let helpers = count.saturating_sub(1);
        if helpers > 0 {
            self.start_threads(helpers.min(THREADS_MAX));
            lock(&self.shared.queue).batches.push_back(Arc::clone(&batch));
            for _ in 0..helpers.min(THREADS_MAX) {
                self.shared.wake.notify_one();
            }
        }
        while batch.do_next() {}
        lock(&self.shared.queue).batches.retain(|other| !Arc::ptr_eq(other, &batch));
        let mut over = lock(&batch.over);
        while *over < count {
            over = batch.all_over.wait(over).unwrap_or_else(PoisonError::into_inner);
        }
        debug_assert_eq!(*over, count, "more pieces of a batch are done than it has");
        assert!(!batch.has_panicked.load(Ordering::Relaxed), "a thread that reads has panicked");
    }

    /// Starts threads until there are `wanted`, as far as the system allows it.
    fn start_threads(&self, wanted: usize) {
        assert!(wanted <= THREADS_MAX, "{wanted} threads, at most {THREADS_MAX} allowed");
        let mut threads = lock(&self.threads);
        while threads.len() < wanted {
            let shared = Arc::clone(&self.shared);
            match self.spawner.spawn("read", Box::new(move || shared.serve())) {
                Ok(thread) => threads.push(thread),
                Err(_) => break, // The caller works alone, or with fewer.
            }
        }
    }
}

impl Drop for ReadPool {
    fn drop(&mut self) {
        lock(&self.shared.queue).is_closed = true;
        self.shared.wake.notify_all();
        for thread in lock(&self.threads).drain(..) {
            let _ = thread.join(); // A panic came out of `run`.
        }
    }
}

impl Shared {
    /// The loop of a thread, until the pool is dropped.
    fn serve(&self) {
        let mut queue = lock(&self.queue);
        loop {
            if let Some(batch) = queue.batches.front().cloned() {
                drop(queue);
                let had_work = batch.do_next();
                queue = lock(&self.queue);
                if !had_work {
                    queue.batches.retain(|other| !Arc::ptr_eq(other, &batch));
                }
            } else if queue.is_closed {
                return;
            } else {
                queue = self.wake.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

impl Batch {
    /// Does one piece of work; false if all are taken.
    fn do_next(&self) -> bool {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if number >= self.count {
            return false;
        }
        let call = std::panic::AssertUnwindSafe(|| (self.work)(number));
        if std::panic::catch_unwind(call).is_err() {
            self.has_panicked.store(true, Ordering::Relaxed);
        }
        let mut over = lock(&self.over);
        assert!(*over < self.count, "piece {number} of {} is done twice", self.count);
        *over += 1;
        if *over == self.count {
            self.all_over.notify_all();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shamba_env::{MemFs, ThreadSpawner};

    /// A pool in an environment without threads.
    fn inline() -> ReadPool {
        ReadPool::new(&Env::deterministic(Arc::new(MemFs::new()), 1))
    }

    fn threads() -> ReadPool {
        let env = Env::deterministic(Arc::new(MemFs::new()), 1);
        ReadPool::new(&Env { spawner: Arc::new(ThreadSpawner::new()), ..env })
    }

    /// Runs `count` pieces of work and returns how many times each was done.
    fn done(pool: &ReadPool, count: usize) -> Vec<usize> {
        let times: Arc<Vec<AtomicUsize>> = Arc::new((0..count).map(|_| AtomicUsize::new(0)).collect());
        let seen = Arc::clone(&times);
        pool.run(count, move |number| {
            seen[number].fetch_add(1, Ordering::Relaxed);
        });
        times.iter().map(|times| times.load(Ordering::Relaxed)).collect()
    }

    #[test]
    fn every_piece_is_done_once_whoever_asks() {
        let pool = threads();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for count in (0..40).chain([200]) {
                        assert_eq!(done(&pool, count), vec![1; count]);
                    }
                });
            }
        });
        assert!(lock(&pool.threads).len() <= THREADS_MAX);
        assert!(lock(&pool.shared.queue).batches.is_empty());
        let alone = inline();
        assert_eq!(done(&alone, 20), vec![1; 20]);
    }

    #[test]
    fn pieces_are_done_at_the_same_time() {
        let pool = threads();
        let here = std::sync::Barrier::new(8);
        pool.run(8, move |_| {
            here.wait(); // Lets nobody go on before all eight are here.
        });
    }

    #[test]
    fn it_pays_where_reads_are_slow_and_threads_can_be_had() {
        let pays = |pool: ReadPool| [0, 2_000, 100_000].map(|read_ns| pool.pays(read_ns));
        assert_eq!((pays(threads()), pays(inline())), ([false, false, true], [false; 3]));
    }

    #[test]
    fn a_panic_comes_out_and_the_pool_goes_on() {
        let pool = threads();
        let panics = std::panic::AssertUnwindSafe(|| pool.run(20, |number| assert!(number != 7, "seven")));
        assert!(std::panic::catch_unwind(panics).is_err());
        assert_eq!(done(&pool, 20), vec![1; 20]);
    }
}
