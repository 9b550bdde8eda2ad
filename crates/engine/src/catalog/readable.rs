//! The part of a keyspace that its scans keep: the newest view, and whether it may be used.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use shamba_tree::sampling::TreeStatistics;
use shamba_tree::view::{View, ViewSource};

use crate::catalog::published::Published;

/// The state of a keyspace that its readers need.
pub(crate) struct Readable {
    /// Name of the keyspace, for errors.
    pub name: String,
    /// The newest view.
    pub view: Published<View>,
    /// Whether the keyspace was dropped, or is one of another database.
    pub dropped: AtomicBool,
    /// Whether the database was closed.
    pub closed: Arc<AtomicBool>,
    /// Statistics of sampled lookups and seeks.
    pub statistics: TreeStatistics,
}

impl Readable {
    /// Whether the keyspace can be used.
    ///
    /// # Errors
    /// `Closed`; `Invalid` if it was dropped.
    #[inline]
    pub fn check(&self) -> shamba_tree::Result<()> {
        if self.closed.load(Ordering::Acquire) {
            return Err(shamba_tree::Error::closed());
        }
        if self.dropped.load(Ordering::Acquire) {
            let name = &self.name;
            let context = format!("keyspace {name:?} was dropped or belongs to another database");
            return Err(shamba_tree::Error::invalid(context));
        }
        Ok(())
    }
}

impl ViewSource for Readable {
    fn view(&self) -> shamba_tree::Result<Arc<View>> {
        let view = self.view.load_full();
        // After the view: a drop sets its mark before it publishes an empty one.
        self.check()?;
        Ok(view)
    }

    fn is_newest(&self, view: &Arc<View>) -> shamba_tree::Result<bool> {
        self.check()?;
        Ok(Arc::ptr_eq(view, &self.view.load()))
    }

    fn note_seek(&self) {
        self.statistics.count_seek();
    }

    fn note_lookup(&self, found: bool) {
        self.statistics.count_lookup(found);
    }
}
