//! Threads, as a trait: start named work, wait for its end, report its panic.
//!
//! [`ThreadSpawner`] starts real threads. [`InlineSpawner`] starts none: callers check
//! [`Spawner::is_inline`] first and then run background work inside the calls that cause it, which
//! makes a run deterministic.
//!
//! Invariant: a panic in spawned work is never lost; [`JoinHandle::join`] returns it as text.
//!
//! Not here: queues and priorities of background work (the engine's scheduler).

use std::any::Any;
use std::fmt::Debug;
use std::io;

use crate::sync::thread;
use crate::system::lower_priority;

/// Starts threads.
pub trait Spawner: Send + Sync + Debug {
    /// Whether background work must run on the caller's thread; then [`Spawner::spawn`] always
    /// fails.
    fn is_inline(&self) -> bool;

    /// Starts `work` on a thread of this name.
    ///
    /// # Errors
    /// The error of the operating system when it cannot start a thread; `Unsupported` when inline.
    fn spawn(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle>;

    /// Starts `work` as [`Spawner::spawn`] does, on a thread of low priority: it gets little time
    /// when more threads are runnable than there are processors. If the priority cannot be set, the
    /// thread has the normal one.
    ///
    /// # Errors
    /// As [`Spawner::spawn`].
    fn spawn_background(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle> {
        self.spawn(name, work)
    }

    /// Number of threads that can run at once.
    fn parallelism(&self) -> usize {
        1
    }

    /// Whether databases that use this kind of spawner may share one thread pool per process.
    fn is_shared(&self) -> bool {
        false
    }
}

/// A started thread. Dropping it leaves the thread running.
#[derive(Debug)]
pub struct JoinHandle {
    thread: thread::JoinHandle<()>,
}

impl JoinHandle {
    /// Wraps a thread, for other implementations of [`Spawner`].
    pub fn new(thread: thread::JoinHandle<()>) -> Self {
        Self { thread }
    }

    /// Whether the work has ended, so that [`JoinHandle::join`] would not wait.
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for the end of the work.
    ///
    /// # Errors
    /// The panic's message, when the work panicked.
    pub fn join(self) -> Result<(), String> {
        self.thread.join().map_err(|payload| panic_message(payload.as_ref()))
    }
}

fn panic_message(payload: &(dyn Any + Send)) -> String {
    if let Some(text) = payload.downcast_ref::<&'static str>() {
        return (*text).to_owned();
    }
    match payload.downcast_ref::<String>() {
        Some(text) => text.clone(),
        None => "panic without a message".to_owned(),
    }
}

/// Starts a thread of the operating system for each piece of work.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThreadSpawner;

impl ThreadSpawner {
    /// A spawner; it has no state.
    pub fn new() -> Self {
        Self
    }
}

impl Spawner for ThreadSpawner {
    fn is_inline(&self) -> bool {
        false
    }

    fn spawn(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle> {
        thread::Builder::new().name(name.to_owned()).spawn(work).map(JoinHandle::new)
    }

    fn spawn_background(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle> {
        let yielding = Box::new(move || {
            lower_priority();
            work();
        });
        self.spawn(name, yielding)
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn parallelism(&self) -> usize {
        thread::available_parallelism().map_or(1, std::num::NonZero::get)
    }
}

/// Starts no thread: background work runs on the caller's thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct InlineSpawner;

impl InlineSpawner {
    /// A spawner; it has no state.
    pub fn new() -> Self {
        Self
    }
}

impl Spawner for InlineSpawner {
    fn is_inline(&self) -> bool {
        true
    }

    fn spawn(&self, name: &str, _work: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle> {
        Err(io::Error::new(io::ErrorKind::Unsupported, format!("no thread for {name}: work runs inline")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn work_runs_on_a_thread_of_the_given_name() {
        let (sender, receiver) = mpsc::channel();
        let work = Box::new(move || {
            let _ = sender.send(std::thread::current().name().map(str::to_owned));
        });
        ThreadSpawner::new().spawn("flush", work).expect("a thread").join().expect("no panic");
        assert_eq!(receiver.recv().expect("the name").as_deref(), Some("flush"));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn yielding_work_is_nicer_than_the_thread_that_started_it() {
        let nice = || rustix::process::getpriority_process(None).expect("a priority");
        let before = nice();
        let (sender, receiver) = mpsc::channel();
        let work = Box::new(move || {
            let _ = sender.send(nice());
        });
        ThreadSpawner::new().spawn_background("merge", work).expect("a thread").join().expect("no panic");
        assert_eq!(receiver.recv().expect("the priority"), crate::system::BACKGROUND_NICE.max(before));
        assert_eq!(nice(), before, "the priority is the thread's, not the process's");
        assert!(ThreadSpawner::new().parallelism() >= 1);
    }

    #[test]
    fn a_panic_comes_out_of_join_with_its_message() {
        let spawner = ThreadSpawner::new();
        let fixed = spawner.spawn("a", Box::new(|| panic!("fixed text"))).expect("a thread");
        assert_eq!(fixed.join(), Err("fixed text".to_owned()));
        let built = spawner.spawn("b", Box::new(|| panic!("number {}", 5))).expect("a thread");
        assert_eq!(built.join(), Err("number 5".to_owned()));
    }

    #[test]
    fn inline_starts_nothing() {
        let spawner = InlineSpawner::new();
        assert!(spawner.is_inline());
        let refused = spawner.spawn("flush", Box::new(|| ())).expect_err("no thread");
        assert_eq!(refused.kind(), io::ErrorKind::Unsupported);
    }
}
