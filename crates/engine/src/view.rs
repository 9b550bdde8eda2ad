//! What one reader sees: the memtables and the version of one keyspace, taken together.
//!
//! A view is immutable; a new one is published whenever a memtable rotates or a version is installed. A
//! reader loads it without a contended reference count (`arc-swap`'s thread-local slots) and filters what
//! it finds by its sequence number, so one view serves readers of any sequence that is still protected.
//!
//! Invariant: `memtables[0]` is the one that takes writes; everything in a later memtable is older than
//! everything in an earlier one, and everything in the version is older than all of them.

use std::sync::Arc;

use crate::error::Result;
use crate::ids::KeyspaceId;
use crate::memtable::Memtable;
use crate::version::Version;

/// Memtables and tree of one keyspace at one moment.
pub(crate) struct View {
    /// The keyspace.
    pub keyspace: KeyspaceId,
    /// Newest first; the first one takes writes.
    pub memtables: Vec<Arc<dyn Memtable>>,
    /// The tree.
    pub version: Arc<Version>,
}

/// Where iterators get a fresh view after theirs was taken away.
pub(crate) trait ViewSource: Send + Sync {
    /// The newest view.
    ///
    /// # Errors
    /// `Closed` after the database was closed; `Invalid` when the keyspace was dropped.
    fn view(&self) -> Result<Arc<View>>;
}
