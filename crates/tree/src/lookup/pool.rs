//! Several reads in the time of one: by one call of the operating system ([`Vfs::read_batch`]), or
//! by a pool of threads that read in parallel with the caller.
//!
//! This pays only on a slow device: a read from the page cache takes a microsecond or two, waking a
//! thread takes ten. [`ReadPool::pays`] decides by the duration of recent reads, which the caller
//! knows; [`ReadPool::run_if_slow`] measures the work itself. Threads start when first needed,
//! sleep between calls, and end when the pool is dropped. In an environment without threads the
//! caller does all the work.
//!
//! The caller works as well, so the work gets done even if no thread could be started.
//! [`ReadPool::run`] returns when all of it is done; nothing outlives the call.
//!
//! The blocks to read are chosen in `cold` and, for seeks, in `iter/merge/cold.rs`; the values in
//! [`super::value_reads`].

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use shamba_env::{BatchRead, Clock, Env, JoinHandle, Spawner, Vfs};

use crate::sync::{Condvar, Mutex, PoisonError};
use shamba_env::lock;

/// Average duration of a read from which parallel reads pay.
const SLOW_READ_NS: u64 = 20_000;
/// Maximum number of threads; more parallel reads gain nothing on one device.
const THREADS_MAX: usize = 16;
const _: () = assert!(THREADS_MAX > 0, "a pool without threads");
/// One batch of reads in this many measures a read.
const MEASURED_IN: u64 = 16;
/// A measurement counts 1/8 in the average of the work that is measured.
const MEASURED_WEIGHT: u64 = 8;

/// A pool of reading threads.
pub struct ReadPool {
    spawner: Arc<dyn Spawner>,
    vfs: Arc<dyn Vfs>,
    /// Batches of reads so far.
    batches: AtomicU64,
    /// Durations of the work of [`Self::run_if_slow`].
    measured: Arc<Measured>,
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle>>,
}

/// The average duration of pieces of work.
struct Measured {
    clock: Arc<dyn Clock>,
    /// 0 before the first measurement.
    average_ns: AtomicU64,
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
        Self {
            spawner: Arc::clone(&env.spawner),
            vfs: Arc::clone(&env.vfs),
            batches: AtomicU64::new(0),
            measured: Arc::new(Measured { clock: Arc::clone(&env.clock), average_ns: AtomicU64::new(0) }),
            shared: Arc::default(),
            threads: Mutex::default(),
        }
    }

    /// Whether several reads that take `read_ns` each should be made in parallel.
    pub fn pays(&self, read_ns: u64) -> bool {
        read_ns >= SLOW_READ_NS && !self.spawner.is_inline()
    }

    /// Whether the work of [`Self::run_if_slow`] has been slow.
    pub fn is_slow(&self) -> bool {
        self.pays(self.measured.average_ns())
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

    /// Makes the reads that were not made yet, and returns all in their order: by the operating
    /// system at once, where it can, else by the threads. One call in 16 has the first read made
    /// alone by `read_timed`, which measures it.
    pub fn read(&self, mut reads: Vec<BatchRead>, read_timed: impl FnOnce(&mut BatchRead)) -> Vec<BatchRead> {
        if let Some(first) = reads.first_mut() {
            if self.batches.fetch_add(1, Ordering::Relaxed) % MEASURED_IN == 0 {
                read_timed(first);
            }
        }
        let is_left = |read: &&BatchRead| !read.is_made();
        if reads.iter().filter(is_left).count() > 1 {
            self.vfs.read_batch(&mut reads);
        }
        if reads.iter().filter(is_left).count() < 2 {
            // One alone is made when its bytes are asked for.
            return reads;
        }
        let count = reads.len();
        let reads: Arc<Vec<_>> = Arc::new(reads.into_iter().map(|read| Mutex::new(Some(read))).collect());
        let shared = Arc::clone(&reads);
        self.run(count, move |number| {
            let Some(place) = shared.get(number) else { return };
            // Taken, so that the lock is not held meanwhile.
            let read = lock(place).take();
            *lock(place) = read.map(|mut read| {
                read.read_now();
                read
            });
        });
        let made: Vec<BatchRead> = reads.iter().filter_map(|read| lock(read).take()).collect();
        assert_eq!(made.len(), count, "a read of a batch is lost");
        made
    }

    /// As [`Self::run`] if such pieces of work have been slow. Otherwise the caller does the first
    /// one, and then the others, in turn unless the first one was slow. Each call measures its
    /// first piece.
    pub fn run_if_slow(&self, count: usize, work: impl Fn(usize) + Send + Sync + 'static) {
        if self.spawner.is_inline() || count == 0 {
            return (0..count).for_each(work);
        }
        let measured = Arc::clone(&self.measured);
        let work = move |number| match number {
            0 => measured.measure(|| work(0)),
            _ => work(number),
        };
        if count > 1 && self.is_slow() {
            return self.run(count, work);
        }
        work(0);
        if count > 2 && self.is_slow() {
            self.run(count - 1, move |number| work(number + 1));
        } else {
            (1..count).for_each(work);
        }
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

impl Measured {
    fn average_ns(&self) -> u64 {
        self.average_ns.load(Ordering::Relaxed)
    }

    /// Runs `work` and adds its duration to the average. Concurrent measurements may be lost.
    fn measure(&self, work: impl FnOnce()) {
        let begin_ns = self.clock.now_ns();
        work();
        let ns = self.clock.now_ns().saturating_sub(begin_ns);
        let average_ns = match self.average_ns() {
            0 => ns,
            before_ns => before_ns.saturating_mul(MEASURED_WEIGHT - 1).saturating_add(ns) / MEASURED_WEIGHT,
        };
        self.average_ns.store(average_ns, Ordering::Relaxed);
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
pub(crate) mod testing {
    use super::*;

    /// A clock that moves on by the same time whenever it is read.
    #[derive(Debug)]
    pub(crate) struct Ticking {
        step_ns: u64,
        now_ns: AtomicU64,
    }

    impl Ticking {
        pub(crate) fn new(step_ns: u64) -> Self {
            Self { step_ns, now_ns: AtomicU64::new(0) }
        }
    }

    impl Clock for Ticking {
        fn now_us(&self) -> u64 {
            self.now_ns() / 1_000
        }

        fn now_ns(&self) -> u64 {
            self.now_ns.fetch_add(self.step_ns, Ordering::Relaxed)
        }

        fn unix_ms(&self) -> u64 {
            0
        }

        fn sleep_us(&self, _: u64) {}

        fn wait_ns(&self, _: u64) {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shamba_env::{MemFs, ThreadSpawner, write_file_synced};

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
    fn reads_come_back_made_and_in_their_order() {
        let dir = tempfile::tempdir().expect("a directory");
        let real = Env { vfs: Env::real().vfs, ..Env::deterministic(Arc::new(MemFs::new()), 1) };
        let real = Env { spawner: Arc::new(ThreadSpawner::new()), ..real };
        let memory = Env { vfs: Arc::new(MemFs::new()), ..real.clone() };
        for (env, path) in [(real, dir.path().join("file")), (memory, "/file".into())] {
            let content: Vec<u8> = (0..=255).collect();
            write_file_synced(env.vfs.as_ref(), &path, &content).expect("written");
            let file = env.vfs.open_read(&path).expect("opened");
            let pool = ReadPool::new(&env);
            for count in [0, 1, 2, 100] {
                // The last ones end beyond the end of the file.
                let reads = (0..count).map(|at| BatchRead::new(Arc::clone(&file), 3 * at, 10)).collect();
                let made = pool.read(reads, BatchRead::read_now);
                assert_eq!(made.len() as u64, count);
                for (at, read) in (0..).step_by(3).zip(made) {
                    match (read.into_bytes(), content.get(at..at + 10)) {
                        (Ok(read), Some(expected)) => assert_eq!(read[..], *expected),
                        (read, expected) => assert!(read.is_err() && expected.is_none(), "at {at}"),
                    }
                }
            }
        }
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
    fn work_that_was_slow_is_shared_and_other_work_is_not() {
        let pool_of = |read_ns: u64| {
            let env = Env::deterministic(Arc::new(MemFs::new()), 1);
            let clock = Arc::new(testing::Ticking::new(read_ns));
            ReadPool::new(&Env { spawner: Arc::new(ThreadSpawner::new()), clock, ..env })
        };
        let done = |pool: &ReadPool, count: usize| {
            let times: Arc<Vec<AtomicUsize>> = Arc::new((0..count).map(|_| AtomicUsize::new(0)).collect());
            let seen = Arc::clone(&times);
            pool.run_if_slow(count, move |number| {
                seen[number].fetch_add(1, Ordering::Relaxed);
            });
            times.iter().all(|times| times.load(Ordering::Relaxed) == 1)
        };
        let threads = |pool: &ReadPool| lock(&pool.threads).len();
        let (quick, slow) = (pool_of(SLOW_READ_NS - 1), pool_of(SLOW_READ_NS));
        for count in [0, 2, 1] {
            let slow = pool_of(SLOW_READ_NS);
            assert!(done(&quick, count) && done(&slow, count));
            assert_eq!(threads(&slow), 0, "the first piece was measured, and no two others are left");
        }
        assert!(done(&slow, 1) && done(&slow, 2) && threads(&slow) > 0, "the work before it was slow");
        let fresh = pool_of(SLOW_READ_NS);
        assert!(done(&fresh, 3) && threads(&fresh) > 0, "its first piece was slow");
        for count in [3, 40] {
            assert!(done(&quick, count) && done(&slow, count));
            assert!(done(&inline(), count));
        }
        assert_eq!(threads(&quick), 0);
    }

    #[test]
    fn a_panic_comes_out_and_the_pool_goes_on() {
        let pool = threads();
        let panics = std::panic::AssertUnwindSafe(|| pool.run(20, |number| assert!(number != 7, "seven")));
        assert!(std::panic::catch_unwind(panics).is_err());
        assert_eq!(done(&pool, 20), vec![1; 20]);
    }
}
