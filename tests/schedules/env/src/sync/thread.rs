//! Threads that shuttle's scheduler runs, one at a time.

use std::fmt;
use std::io;
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::spawn::{self, Spawner};

/// Parallelism reported to the engine: enough for a helper concurrent with the compaction worker.
const PARALLELISM: usize = 2;

/// As in the standard library.
#[derive(Debug, Default)]
pub struct Builder(Option<String>);

/// As in the standard library.
pub struct JoinHandle<T> {
    thread: shuttle::thread::JoinHandle<T>,
    is_over: Arc<AtomicBool>,
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").field("is_over", &self.is_over).finish_non_exhaustive()
    }
}

impl Builder {
    /// A thread without a name.
    pub fn new() -> Self {
        Self::default()
    }

    /// Names it.
    #[must_use]
    pub fn name(self, name: String) -> Self {
        Self(Some(name))
    }

    /// Starts it.
    ///
    /// # Errors
    /// None; the standard library has some.
    pub fn spawn<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<T>> {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let body = move || {
            let result = work();
            over.store(true, Ordering::Release);
            result
        };
        let builder = shuttle::thread::Builder::new().name(self.0.unwrap_or_default());
        builder.spawn(body).map(|thread| JoinHandle { thread, is_over })
    }
}

impl<T> JoinHandle<T> {
    /// Whether it has ended.
    pub fn is_finished(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// The payload of its panic.
    pub fn join(self) -> std::thread::Result<T> {
        self.thread.join()
    }
}

pub use shuttle::thread::ThreadId;

/// The calling thread.
pub fn current_id() -> ThreadId {
    shuttle::thread::current().id()
}

/// Number of threads that can run at once.
///
/// # Errors
/// None; the standard library has some.
pub fn available_parallelism() -> io::Result<NonZero<usize>> {
    NonZero::new(PARALLELISM).ok_or_else(|| io::Error::from(io::ErrorKind::Unsupported))
}

/// Starts threads of the scheduler. None has a lower priority: the scheduler decides.
#[derive(Clone, Copy, Debug)]
pub struct ScheduledSpawner;

impl Spawner for ScheduledSpawner {
    fn is_inline(&self) -> bool {
        false
    }

    fn spawn(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> io::Result<spawn::JoinHandle> {
        Builder::new().name(name.to_owned()).spawn(work).map(spawn::JoinHandle::new)
    }

    fn parallelism(&self) -> usize {
        PARALLELISM
    }
}
