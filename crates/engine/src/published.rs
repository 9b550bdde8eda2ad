//! A value that readers load without a lock, replaced by one made from it.
//!
//! Memtables and trees change independently of each other (a rotation, an install), and both are parts of one view. So
//! whoever changes one part makes the new whole from the newest, under a lock that readers never take: no change is lost.
//!
//! Not here: what is published ([`shamba_tree::view`]).

use std::sync::Arc;

use crate::swap::{ArcSwap, Guard};
use crate::sync::{Mutex, PoisonError};

/// The newest `V`.
pub(crate) struct Published<V> {
    newest: ArcSwap<V>,
    /// Held by whoever makes the next one.
    publishing: Mutex<()>,
}

impl<V> Published<V> {
    /// Begins with `first`.
    pub fn new(first: V) -> Self {
        Self { newest: ArcSwap::from_pointee(first), publishing: Mutex::new(()) }
    }

    /// The newest, without touching a shared reference count.
    #[inline]
    pub fn load(&self) -> Guard<Arc<V>> {
        self.newest.load()
    }

    /// The newest, counted.
    pub fn load_full(&self) -> Arc<V> {
        self.newest.load_full()
    }

    /// Replaces the newest by one made from it.
    pub fn replace(&self, change: impl FnOnce(&V) -> V) {
        let _publishing = self.publishing.lock().unwrap_or_else(PoisonError::into_inner);
        let next = change(&self.newest.load());
        self.newest.store(Arc::new(next));
    }
}
