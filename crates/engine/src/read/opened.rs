//! Tables that one lookup has opened, because the memory budget keeps them closed.
//!
//! A lookup borrows readers and filters from its view. What it opens for itself has to live as long as
//! that borrow: here, in a list in the caller's frame that only grows. Where all tables are open, which
//! is the rule, it costs a null pointer on the stack.

use std::sync::OnceLock;

use crate::error::Result;
use crate::version::TableMeta;
use crate::view::Probe;

/// Tables opened for one lookup; closed when it is dropped.
#[derive(Default)]
pub(crate) struct OpenedTables {
    first: OnceLock<Box<Opened>>,
}

struct Opened {
    probe: Probe,
    next: OnceLock<Box<Opened>>,
}

impl OpenedTables {
    /// Opens the table and keeps it until the lookup ends.
    ///
    /// # Errors
    /// What opening says.
    #[cold]
    pub fn open(&self, meta: &TableMeta) -> Result<&Probe> {
        let mut place = &self.first;
        while let Some(opened) = place.get() {
            place = &opened.next;
        }
        let probe = Probe::of(Some(&meta.open()?));
        Ok(&place.get_or_init(|| Box::new(Opened { probe, next: OnceLock::new() })).probe)
    }
}

impl Drop for OpenedTables {
    fn drop(&mut self) {
        // A batch may have opened many: not by recursion.
        let mut next = self.first.take();
        while let Some(mut opened) = next {
            next = opened.next.take();
        }
    }
}
