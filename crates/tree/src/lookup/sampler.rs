//! The recorder of a sampled lookup: it counts at each table what the lookup met there.
//!
//! Not here: the figures of the whole tree ([`crate::sampling`]).

use shamba_table::TableReader;

use super::candidate::Verdict;
use super::explain::Recorder;
use crate::view::RunPlan;

/// Recorder of a sampled lookup.
#[derive(Clone, Copy, Default, Debug)]
pub struct Sampler {
    found: bool,
}

impl Sampler {
    /// Whether a table held the key, by a search or by the record cache.
    pub fn found(&self) -> bool {
        self.found
    }
}

impl Recorder for Sampler {
    fn filter(&mut self, plan: &RunPlan, number: usize, verdict: Verdict) {
        if verdict == Verdict::No {
            if let Some(table) = plan.run.tables().get(number) {
                table.meta.statistics.count_empty();
            }
        }
    }

    fn recorded(&mut self, found: bool) {
        self.found |= found;
    }

    fn partition(&mut self, reader: &TableReader, number: usize) {
        reader.note_index_search(number);
    }

    fn searched(&mut self, plan: &RunPlan, number: usize, verdict: Verdict, found: bool) {
        debug_assert!(verdict != Verdict::No, "table {number} of run {} was denied", plan.run.id);
        debug_assert!(number < plan.run.tables().len(), "table {number} of run {}", plan.run.id);
        self.found |= found;
        let Some(table) = plan.run.tables().get(number) else { return };
        table.meta.statistics.count_searched(verdict == Verdict::Maybe, found);
    }
}
