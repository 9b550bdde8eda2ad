//! Syncs beside the work: a file that is whole is made durable while its writer goes on with the next.
//!
//! A sync waits for the device and takes no processor, so a flush that does one after the other is as slow as
//! both together. Where there are no threads, or little to sync, it is done at once, in the order of the calls.
//!
//! Not here: when a result must be there: before the edit that relies on it ([`super::output`], `write::flush`).

use std::sync::Arc;

use shamba_env::{JoinHandle, Spawner};

use crate::error::{Error, ErrorKind, Result};
use crate::sync::Mutex;
use shamba_env::lock;

/// With less than this to sync, a thread would cost more than the wait.
const THREAD_BYTES_MIN: u64 = 1 << 20;

/// A sync that is done, or under way.
pub(crate) struct Syncing<T: Send + 'static> {
    result: Arc<Mutex<Option<Result<T>>>>,
    thread: Option<JoinHandle>,
}

impl<T: Send + 'static> Syncing<T> {
    /// Begins to `sync` a file of `bytes`.
    pub fn begin(
        spawner: &dyn Spawner,
        bytes: u64,
        sync: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Self {
        let result = Arc::new(Mutex::new(None));
        if spawner.is_inline() || bytes < THREAD_BYTES_MIN {
            *lock(&result) = Some(sync());
            return Self { result, thread: None };
        }
        // Where no thread can be had, the work must still be there.
        let work = Arc::new(Mutex::new(Some(sync)));
        let (thread_work, thread_result) = (Arc::clone(&work), Arc::clone(&result));
        let body = Box::new(move || {
            let sync = lock(&thread_work).take();
            if let Some(sync) = sync {
                let synced = sync();
                *lock(&thread_result) = Some(synced);
            }
        });
        let thread = spawner.spawn("shamba-write", body).ok();
        if thread.is_none() {
            let sync = lock(&work).take();
            *lock(&result) = sync.map(|sync| sync());
        }
        Self { result, thread }
    }

    /// Waits until it is done.
    ///
    /// # Errors
    /// What the sync failed with; `ReadOnly` if it panicked.
    pub fn finish(mut self) -> Result<T> {
        let ended = self.thread.take().map_or(Ok(()), JoinHandle::join);
        let panicked = |message: &str| Error::new(ErrorKind::ReadOnly, format!("a sync panicked: {message}"));
        ended.map_err(|message| panicked(&message))?;
        lock(&self.result).take().unwrap_or_else(|| Err(panicked("it left no result")))
    }
}

impl<T: Send + 'static> Drop for Syncing<T> {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // Nobody wants the result, but the file may be removed next.
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
