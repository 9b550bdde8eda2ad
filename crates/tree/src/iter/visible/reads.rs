//! Reads of a scan from tables, summed over its runs.

use shamba_table::ReadCounters;

use super::VisibleIter;
use crate::iter::source::Source;

impl VisibleIter {
    /// Moves what was read in tables since the last call to `sum`. Values in value files and logs
    /// are read by others.
    #[inline]
    pub fn move_counters_to(&mut self, sum: &mut ReadCounters) {
        for source in self.merge.sources() {
            if let Source::Run(run) = source {
                run.move_counters_to(sum);
            }
        }
    }
}
