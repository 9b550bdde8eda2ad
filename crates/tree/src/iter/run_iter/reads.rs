//! Reads of the iterator over a run, in the tables that it has entered.

use shamba_table::ReadCounters;

use super::{RunIter, TableList};

impl<L: TableList> RunIter<L> {
    /// The reads since the last call; `None` if there were none. Those in a table that is closed
    /// because the iterator starts again with another way to read are lost, if they have not been
    /// taken before.
    #[inline]
    pub fn take_counters(&mut self) -> Option<ReadCounters> {
        self.open.as_mut()?.iter.take_counters()
    }
}
