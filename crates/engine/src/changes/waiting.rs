//! How a stream of changes waits: the writer wakes it.
//!
//! A stream of durable changes is among the callbacks for durable writes. One of unsynced changes
//! also watches for the next visible write.

use std::sync::Arc;
use std::time::Duration;

use shamba_key::SeqNo;

use crate::lock_order;
use crate::ranked::Ranked;
use crate::sync::Condvar;
use crate::writer::{Owner, Watch, Writer};

/// Time after which a stream looks again at a writer that is busy. Such a writer commits, and then
/// there is more to read, or it ingests, which takes much longer.
const BUSY_LOOK: Duration = Duration::from_millis(1);

/// The event that ends a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Awaited {
    /// This sequence number is durable and visible.
    pub durable: SeqNo,
    /// A later write than this one is visible; `None` if only durable ones count.
    pub visible_after: Option<SeqNo>,
}

#[derive(Default)]
struct State {
    is_woken: bool,
    /// A callback for durable writes is set, and will come.
    waits_for_durable: bool,
    /// The writer has a watcher, which it will call.
    watches: bool,
}

/// Wakes a stream.
pub(super) struct Alarm {
    state: Ranked<State>,
    woken: Condvar,
    /// The owner of its callbacks.
    owner: Owner,
}

impl Alarm {
    /// An alarm for a stream of the database of `writer`.
    pub(super) fn new(writer: &Writer) -> Self {
        let state = Ranked::new(lock_order::CHANGES_WOKEN, State::default());
        Self { state, woken: Condvar::new(), owner: writer.durable().new_owner() }
    }

    /// Takes the callbacks back: the stream is dropped.
    pub(super) fn end(&self, writer: &Writer) {
        writer.durable().forget(self.owner);
    }

    /// Waits until `awaited` may have happened, at most `timeout`.
    pub(super) fn wait(self: &Arc<Self>, writer: &Writer, awaited: Awaited, timeout: Duration) {
        let mut timeout = timeout;
        // Loaded once: what becomes durable from here on ends the wait.
        let now = writer.durable().seq();
        let is_durable = awaited.durable <= now;
        // Also for a number to come: the end of the database, or of its writes, calls it.
        let durable = awaited.durable.max(now.next());
        if !std::mem::replace(&mut self.state.lock().waits_for_durable, true) {
            let alarm = Arc::clone(self);
            // The outcome does not matter: the stream looks for itself.
            let wake = Box::new(move |_| alarm.wake(|state| state.waits_for_durable = false));
            writer.durable().when(durable, Some(self.owner), wake);
        }
        // What is durable and not visible will be so when its writer has ended.
        let visible_after = awaited.visible_after.or(is_durable.then(|| SeqNo(awaited.durable.0 - 1)));
        if let Some(seq) = visible_after.filter(|_| !self.state.lock().watches) {
            let alarm = Arc::clone(self);
            self.state.lock().watches = true;
            let watch = writer.watch(seq, self.owner, move || alarm.wake(|state| state.watches = false));
            if !matches!(watch, Watch::Set) {
                self.state.lock().watches = false;
                timeout = timeout.min(BUSY_LOOK);
            }
            if matches!(watch, Watch::Ready) {
                return;
            }
        }
        let mut state = self.state.lock();
        while !std::mem::take(&mut state.is_woken) {
            let is_over;
            (state, is_over) = state.wait_timeout(&self.woken, timeout);
            if is_over {
                break;
            }
        }
    }

    fn wake(&self, note: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        note(&mut state);
        state.is_woken = true;
        drop(state);
        self.woken.notify_all();
    }
}
