//! Parallel syncs: a complete file is made durable while its writer continues with the next.
//!
//! A sync waits for the device and takes no CPU time, so a flush that writes and syncs in sequence
//! takes as long as both together. Without threads, or with little to sync, the sync is done at
//! once, in the order of the calls.
//!
//! Not here: the time by which the result is needed, before the edit that relies on it
//! ([`super::output`], `flush`).

use std::sync::Arc;

use shamba_env::{JoinHandle, Spawner};

use crate::error::{Error, ErrorKind, Result};
use crate::lock_order;
use crate::ranked::Ranked;

/// Minimum bytes of a sync on another thread: with less, little is done meanwhile. Tables and logs
/// of the smallest write buffer, 1 MiB, have more.
const THREAD_BYTES_MIN: u64 = 256 << 10;

/// A sync that is done or running.
pub(crate) struct Syncing<T: Send + 'static> {
    result: Arc<Ranked<Option<Result<T>>>>,
    thread: Option<JoinHandle>,
}

impl<T: Send + 'static> Syncing<T> {
    /// Begins to `sync` a file of `bytes`.
    pub fn begin(
        spawner: &dyn Spawner,
        bytes: u64,
        sync: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Self {
        let result = Arc::new(Ranked::new(lock_order::SYNC_RESULT, None));
        if spawner.is_inline() || bytes < THREAD_BYTES_MIN {
            *result.lock() = Some(sync());
            return Self { result, thread: None };
        }
        // If no thread can be started, the work must still be available here.
        let work = Arc::new(Ranked::new(lock_order::SYNC_WORK, Some(sync)));
        let (thread_work, thread_result) = (Arc::clone(&work), Arc::clone(&result));
        let body = Box::new(move || {
            let sync = thread_work.lock().take();
            if let Some(sync) = sync {
                let synced = sync();
                *thread_result.lock() = Some(synced);
            }
        });
        let thread = spawner.spawn("shamba-write", body).ok();
        if thread.is_none() {
            let sync = work.lock().take();
            *result.lock() = sync.map(|sync| sync());
        }
        Self { result, thread }
    }

    /// Waits until the sync is done.
    ///
    /// # Errors
    /// The failure of the sync; `ReadOnly` if it panicked.
    pub fn finish(mut self) -> Result<T> {
        let ended = self.thread.take().map_or(Ok(()), JoinHandle::join);
        let panicked = |message: &str| Error::new(ErrorKind::ReadOnly, format!("a sync panicked: {message}"));
        ended.map_err(|message| panicked(&message))?;
        self.result.lock().take().unwrap_or_else(|| Err(panicked("it left no result")))
    }
}

impl<T: Send + 'static> Drop for Syncing<T> {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            // The result is not needed, but the file may be removed next.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shamba_env::{InlineSpawner, ThreadSpawner};

    #[test]
    fn the_result_comes_wherever_the_sync_was_done() {
        let threads = ThreadSpawner::new();
        for (spawner, bytes, beside) in [
            (&InlineSpawner::new() as &dyn Spawner, u64::MAX, false),
            (&threads, 10, false),
            (&threads, u64::MAX, true),
        ] {
            let name = || std::thread::current().name().map(str::to_owned);
            let here = name();
            let syncing = Syncing::begin(spawner, bytes, move || Ok(name()));
            let there = syncing.finish().expect("synced");
            assert_eq!(there != here, beside);
            let failing = Syncing::<()>::begin(spawner, bytes, || Err(Error::invalid("no")));
            assert_eq!(failing.finish().expect_err("it failed").to_string(), "no");
        }
        let panicking = Syncing::<()>::begin(&threads, u64::MAX, || panic!("text"));
        assert!(panicking.finish().expect_err("it panicked").to_string().contains("text"));
    }
}
