//! Runs that a scan leaves out, because their filters deny the prefix of its keys.
//!
//! Only their entries are left out. The range tombstones of the view ([`super::Tombstones`]) are
//! those of all its runs.

use super::VisibleIter;
use crate::iter::source::Source;
use crate::lookup::candidate::Verdict;
use crate::lookup::explain::Silent;
use crate::lookup::prefix::{AskedFilters, RangeQuestion};
use crate::lookup::sampler::Sampler;

impl VisibleIter {
    /// Leaves out the runs that have no key of the range, by their prefix filters, until the next
    /// restart. The iterator must be sought afterwards. With `samples` the answers are counted as
    /// those for a sampled lookup of the prefix. `None`: no filter could answer.
    #[inline]
    pub fn leave_out_runs(&mut self, samples: bool) -> Option<AskedFilters> {
        let is_worth_asking = RangeQuestion::is_worth_asking(&self.range, &self.view);
        is_worth_asking.then(|| self.ask_filters(samples))
    }

    fn ask_filters(&mut self, samples: bool) -> AskedFilters {
        let mut question = RangeQuestion::new(&self.range);
        let memtables = self.view.memtables.len();
        for (plan, source) in self.view.plans().iter().zip(self.merge.sources().skip(memtables)) {
            let Source::Run(run) = source else { continue };
            let verdict = match samples {
                false => question.ask(plan, &mut Silent),
                true => question.ask(plan, &mut Sampler::default()),
            };
            match verdict {
                Some(Verdict::No) => run.leave_out(),
                Some(verdict) if samples => run.note_lookup(verdict),
                _ => {}
            }
        }
        question.asked()
    }
}
