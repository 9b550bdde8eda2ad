//! Tables that one or a few lookups have opened, because the memory budget keeps them closed.
//!
//! A lookup borrows readers and filters from its view. A table that it opens itself has to live as
//! long as that borrow. It is stored here, in a list in the caller's stack frame that only grows
//! and holds each table once. The list is short: a lookup searches one table of a run, and
//! `multi_get` begins a new list after some keys. Usually all tables are open; the list is then a
//! null pointer on the stack.

use std::cell::OnceCell;

use shamba_table::TableId;

use crate::error::Result;
use crate::version::TableMeta;
use crate::view::Probe;

/// Tables opened for lookups. They are closed when the list is dropped.
#[derive(Default)]
pub struct OpenedTables {
    first: OnceCell<Box<Opened>>,
}

struct Opened {
    table: TableId,
    probe: Probe,
    next: OnceCell<Box<Opened>>,
}

impl OpenedTables {
    /// Returns the table. Opens it if it is not in the list, and keeps it until the list is
    /// dropped.
    ///
    /// # Errors
    /// Errors of opening the table.
    #[cold]
    pub fn open(&self, meta: &TableMeta) -> Result<&Probe> {
        let mut place = &self.first;
        while let Some(opened) = place.get() {
            if opened.table == meta.id {
                return Ok(&opened.probe);
            }
            place = &opened.next;
        }
        let probe = Probe::of(Some(&meta.open()?));
        Ok(&place.get_or_init(|| Box::new(Opened { table: meta.id, probe, next: OnceCell::new() })).probe)
    }
}

impl Drop for OpenedTables {
    #[inline]
    fn drop(&mut self) {
        if let Some(first) = self.first.take() {
            close_all(first);
        }
    }
}

/// Drops a list. Iterative, not recursive: a batch may have opened many tables.
#[cold]
fn close_all(first: Box<Opened>) {
    let mut next = Some(first);
    while let Some(mut opened) = next {
        next = opened.next.take();
    }
}
