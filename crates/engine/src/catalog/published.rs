//! A shared value that readers load without a lock and writers replace.
//!
//! Memtables and trees change independently of each other (by a rotation, by an install), and both
//! are parts of one view. Code that changes one part therefore makes the new view from the newest
//! one, under a lock that readers never take, so that no change is lost.
//!
//! The published values are those of [`crate::view`].

use std::sync::Arc;

use crate::lock_order;
use crate::ranked::Ranked;
use crate::swap::{ArcSwap, Guard};

/// The newest value of type `V`.
pub(crate) struct Published<V> {
    newest: ArcSwap<V>,
    /// Held while the next value is made.
    publishing: Ranked<()>,
}

impl<V> Published<V> {
    /// Publishes `first`.
    pub fn new(first: V) -> Self {
        Self { newest: ArcSwap::from_pointee(first), publishing: Ranked::new(lock_order::PUBLISHING, ()) }
    }

    /// The newest value, without touching a shared reference count.
    #[inline]
    pub fn load(&self) -> Guard<Arc<V>> {
        self.newest.load()
    }

    /// The newest value, with a reference count.
    pub fn load_full(&self) -> Arc<V> {
        self.newest.load_full()
    }

    /// Replaces the newest value by the result of `change`.
    pub fn replace(&self, change: impl FnOnce(&V) -> V) {
        let _publishing = self.publishing.lock();
        let next = change(&self.newest.load());
        self.newest.store(Arc::new(next));
    }
}
