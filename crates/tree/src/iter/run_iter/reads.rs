//! Reads of the iterator over a run, in the tables that it has entered.

use shamba_table::ReadCounters;

use super::{RunIter, TableList};

impl<L: TableList> RunIter<L> {
    /// Moves the cost of the iteration since the last call to `sum`. That of a table which is
    /// closed, because the iterator starts again with another way to read, is lost if it was not
    /// moved before.
    #[inline]
    pub fn move_counters_to(&mut self, sum: &mut ReadCounters) {
        if let Some(open) = &mut self.open {
            open.iter.move_counters_to(sum);
        }
    }
}
