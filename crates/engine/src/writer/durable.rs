//! The sequence number up to which everything is durable, and the callbacks that wait for it.
//!
//! It advances when the logs are synced, and when a flush has written a generation to tables. A
//! callback is called once, when its number is reached, or when that has become impossible: writes
//! were turned off, or the database was closed without a sync. Callbacks are code of the user: like
//! event listeners, they are called without any lock ([`crate::telemetry::call_unlocked`]).
//!
//! Streams of changes also watch for the next visible write. A stream that is dropped takes its
//! callbacks back ([`Durable::forget`]): there may be no write that would call them.
//!
//! Invariant: a callback in the list waits for a number beyond the durable one.

use std::sync::atomic::{AtomicU64, Ordering};

use shamba_key::SeqNo;

use crate::error::{Error, Result};
use crate::lock_order;
use crate::ranked::Ranked;
use crate::telemetry::call_unlocked;

/// A function that is called once with the outcome.
pub(crate) type OnDurable = Box<dyn FnOnce(Result<()>) + Send>;

/// A function that is called once when a later write is visible.
pub(crate) type OnVisible = Box<dyn FnOnce() + Send>;

/// The owner of callbacks that may be taken back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Owner(u64);

struct Callback {
    seq: SeqNo,
    owner: Option<Owner>,
    call: OnDurable,
}

#[derive(Default)]
struct Waiting {
    callbacks: Vec<Callback>,
    watchers: Vec<(Owner, OnVisible)>,
    owners: u64,
    /// The reason why nothing more becomes durable.
    end: Option<Error>,
}

/// The last durable sequence number and the callbacks that wait for later ones.
pub(crate) struct Durable {
    seq: AtomicU64,
    waiting: Ranked<Waiting>,
}

impl Default for Durable {
    fn default() -> Self {
        Self { seq: AtomicU64::new(0), waiting: Ranked::new(lock_order::DURABLE_WAITING, Waiting::default()) }
    }
}

impl Durable {
    /// A new owner of callbacks.
    pub fn new_owner(&self) -> Owner {
        let mut waiting = self.waiting.lock();
        waiting.owners += 1;
        Owner(waiting.owners)
    }

    /// Removes the callbacks of `owner`, which are not called any more.
    pub fn forget(&self, owner: Owner) {
        let mut waiting = self.waiting.lock();
        waiting.callbacks.retain(|callback| callback.owner != Some(owner));
        waiting.watchers.retain(|(of, _)| *of != owner);
    }

    /// Whether every write up to `seq` is durable.
    pub fn has(&self, seq: SeqNo) -> bool {
        seq.0 <= self.seq.load(Ordering::Acquire)
    }

    /// Every write up to this one is durable.
    pub fn seq(&self) -> SeqNo {
        SeqNo(self.seq.load(Ordering::Acquire))
    }

    /// Notes that every write up to `seq` is durable.
    pub fn advance(&self, seq: SeqNo) {
        if self.seq.fetch_max(seq.0, Ordering::AcqRel) >= seq.0 {
            return;
        }
        let mut waiting = self.waiting.lock();
        let all = std::mem::take(&mut waiting.callbacks);
        let (reached, later) = all.into_iter().partition::<Vec<_>, _>(|callback| callback.seq <= seq);
        waiting.callbacks = later;
        drop(waiting);
        for Callback { call, .. } in reached {
            call_unlocked(Box::new(move || call(Ok(()))));
        }
    }

    /// Calls `call` when every write up to `seq` is durable, or cannot become so; at once if that
    /// is known. An `owner` may take it back.
    pub fn when(&self, seq: SeqNo, owner: Option<Owner>, call: OnDurable) {
        let outcome = {
            let mut waiting = self.waiting.lock();
            // Under the lock: an advance that comes later finds the callback.
            match (self.has(seq), &waiting.end) {
                (true, _) => Ok(()),
                (false, Some(end)) => Err(end.clone()),
                (false, None) => {
                    waiting.callbacks.push(Callback { seq, owner, call });
                    return;
                }
            }
        };
        call_unlocked(Box::new(move || call(outcome)));
    }

    /// Adds a watcher for [`Self::published`].
    pub fn watch(&self, owner: Owner, watcher: OnVisible) {
        self.waiting.lock().watchers.push((owner, watcher));
    }

    /// Calls the watchers: a later write is visible.
    pub fn published(&self) {
        let watchers = std::mem::take(&mut self.waiting.lock().watchers);
        watchers.into_iter().for_each(|(_, watcher)| call_unlocked(watcher));
    }

    /// Notes that nothing more becomes durable, because of `error`.
    pub fn end(&self, error: &Error) {
        let mut waiting = self.waiting.lock();
        waiting.end.get_or_insert_with(|| error.clone());
        let all = std::mem::take(&mut waiting.callbacks);
        drop(waiting);
        for Callback { seq, call, .. } in all {
            // An advance may have raised the number, and not come to the list yet.
            let outcome = if self.has(seq) { Ok(()) } else { Err(error.clone()) };
            call_unlocked(Box::new(move || call(outcome)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn each_callback_is_called_once_when_its_number_is_reached() {
        let durable = Durable::default();
        let called = Arc::new(Mutex::new(Vec::new()));
        let wait = |seq| {
            let called = Arc::clone(&called);
            let callback = move |outcome: Result<()>| called.lock().unwrap().push((seq, outcome.is_ok()));
            durable.when(SeqNo(seq), None, Box::new(callback));
        };
        let take = || std::mem::take(&mut *called.lock().unwrap());
        wait(0);
        assert_eq!(take(), [(0, true)]);
        wait(5);
        wait(3);
        durable.advance(SeqNo(2));
        assert_eq!(take(), []);
        durable.advance(SeqNo(4));
        durable.advance(SeqNo(1));
        assert_eq!(take(), [(3, true)]);
        assert!(durable.has(SeqNo(4)) && !durable.has(SeqNo(5)));
        wait(4);
        assert_eq!(take(), [(4, true)]);
        durable.end(&Error::closed());
        assert_eq!(take(), [(5, false)]);
        wait(6);
        wait(2);
        assert_eq!(take(), [(6, false), (2, true)]);
    }

    #[test]
    fn a_callback_waits_until_its_thread_holds_no_lock() {
        let durable = Durable::default();
        let called = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&called);
        durable.when(SeqNo(1), None, Box::new(move |_| seen.store(1, Ordering::Relaxed)));
        let held = crate::telemetry::hold_events();
        durable.advance(SeqNo(1));
        assert_eq!(called.load(Ordering::Relaxed), 0);
        drop(held);
        assert_eq!(called.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn an_owner_takes_its_callbacks_back_and_no_others() {
        let durable = Durable::default();
        let (one, other) = (durable.new_owner(), durable.new_owner());
        let called = Arc::new(Mutex::new(Vec::new()));
        for owner in [Some(one), Some(other), None] {
            let (durably, visibly) = (Arc::clone(&called), Arc::clone(&called));
            durable.when(SeqNo(1), owner, Box::new(move |_| durably.lock().unwrap().push((owner, 'd'))));
            if let Some(owner) = owner {
                durable.watch(owner, Box::new(move || visibly.lock().unwrap().push((Some(owner), 'v'))));
            }
        }
        assert_eq!(Arc::strong_count(&called), 1 + 5);
        durable.forget(one);
        assert_eq!(Arc::strong_count(&called), 1 + 3, "they are freed without a write");
        durable.published();
        durable.advance(SeqNo(1));
        assert_eq!(*called.lock().unwrap(), [(Some(other), 'v'), (Some(other), 'd'), (None, 'd')]);
    }
}
