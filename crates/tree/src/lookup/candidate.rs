//! The candidates of a lookup, and the tests of their filters.
//!
//! In each run at most one table can hold the key: the candidate. The first line of its filter is
//! prefetched when it is found, and tested when the lines of all candidates are on their way.
//!
//! Not here: the order of the tests and the searches ([`super::get`], [`super::multi_get`]).

use std::sync::Arc;

use shamba_filter::Question;
use shamba_key::KeyDigest;
use shamba_table::{ReadCounters, ResidentFilter, TableReader};

use super::explain::{ModuleStep, Recorder, Step};
use super::get::{Home, Lookup};
use crate::counters::LookupCounts;
use crate::error::{Error, Result};
use crate::view::{Places, Probe, RunPlan};

/// A run's table that may hold the key, and the prefetched line of its filter.
#[derive(Clone, Copy)]
pub struct Candidate<'a> {
    pub(super) plan: &'a RunPlan,
    /// The table's number within the run.
    pub(super) number: usize,
    pub(super) reader: &'a Arc<TableReader>,
    /// `None` without a filter.
    filter: Option<&'a ResidentFilter>,
    /// The test of the filter's first module; unanswerable without one in memory.
    question: Question<'a>,
}

/// Result of a candidate's filter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The key is certainly not in the table.
    No,
    /// The key may be in the table.
    Maybe,
    /// Nothing was tested: there is no filter, or no module of it in memory.
    Unasked,
}

/// Result of a filter test and the number of modules tested.
pub(super) struct Tested {
    pub(super) modules: u64,
    pub(super) maybe: bool,
}

impl Tested {
    pub(super) fn verdict(&self) -> Verdict {
        debug_assert!(self.maybe || self.modules > 0, "a filter denies the key without a test");
        match (self.maybe, self.modules) {
            (false, _) => Verdict::No,
            (true, 0) => Verdict::Unasked,
            (true, _) => Verdict::Maybe,
        }
    }
}

impl<'a> Lookup<'a> {
    /// Fills `candidates` from `plans` and prefetches their filter lines. Returns their number.
    #[inline(always)]
    pub(super) fn gather<R: Recorder>(
        &self,
        places: Places<'_>,
        plans: &mut std::iter::Enumerate<std::slice::Iter<'a, RunPlan>>,
        candidates: &mut [Option<Candidate<'a>>],
        recorder: &mut R,
    ) -> Result<usize> {
        let mut gathered = 0;
        while let Some(place) = candidates.get_mut(gathered) {
            let Some((at, plan)) = plans.next() else { break };
            let number = places.number(at, plan, self.key);
            if let Some(candidate) = self.candidate(plan, number, recorder)? {
                *place = Some(candidate);
                gathered += 1;
            }
        }
        debug_assert!(
            gathered == candidates.len() || plans.len() == 0,
            "a run is passed over: {gathered} candidates, {} runs are left",
            plans.len()
        );
        Ok(gathered)
    }

    /// Opens table `number` of the run for this lookup; the view holds it closed.
    #[cold]
    #[inline(never)]
    fn open_closed(
        &self,
        plan: &RunPlan,
        number: usize,
    ) -> Result<(&'a Option<ResidentFilter>, &'a Arc<TableReader>)> {
        let missing = || Error::invalid(format!("table {number} of run {} does not exist", plan.run.id));
        let table = plan.run.tables().get(number).ok_or_else(missing)?;
        let Probe { filter, reader } = self.settings.opened.open(&table.meta)?;
        Ok((filter, reader.as_ref().ok_or_else(missing)?))
    }

    /// Makes table `number` of the run, whose range holds the key, a candidate. Prefetches its
    /// filter line.
    // Inlined: a candidate returned through memory would be copied, and the copy waits for that
    // memory.
    #[inline(always)]
    pub fn candidate<R: Recorder>(
        &self,
        plan: &'a RunPlan,
        number: Option<usize>,
        recorder: &mut R,
    ) -> Result<Option<Candidate<'a>>> {
        let Some(number) = number else {
            recorder.step(|| Step::outside(plan.level, &plan.run));
            return Ok(None);
        };
        let (filter, reader) = match plan.probes.get(number) {
            Some(Probe { filter, reader: Some(reader) }) => (filter, reader),
            _ => self.open_closed(plan, number)?,
        };
        let filter = filter.as_ref();
        debug_assert!(
            plan.run.tables().get(number).is_some_and(|table| table.range.contains(self.key)),
            "table {number} of run {} is asked for a key outside its range",
            plan.run.id
        );
        let question = filter.map(|filter| filter.ask(self.digest, self.settings.prefetch));
        let question = question.unwrap_or_else(Question::unanswerable);
        Ok(Some(Candidate { plan, number, reader, filter, question }))
    }

    /// Tests the candidate's filter. `consulted` counts the filters tested.
    #[inline(always)]
    pub fn may_be_in<R: Recorder>(
        &self,
        candidate: &Candidate<'_>,
        consulted: &mut u64,
        counts: &mut LookupCounts,
        recorder: &mut R,
    ) -> Result<Verdict> {
        // Nine of ten candidates that do not hold the key end at their first module.
        let is_first_tested = candidate.question.is_answerable() && self.settings.shares_untimed();
        if is_first_tested && !candidate.question.maybe() {
            *consulted += 1;
            counts.filters += 1;
            counts.modules += 1;
            recorder.module(|| ModuleStep::held(0, false));
            recorder.filter(candidate.plan, candidate.number, Verdict::No);
            return Ok(Verdict::No);
        }
        self.test_filter(candidate, is_first_tested, consulted, counts, recorder)
    }

    /// Tests the candidate's filter. `is_first_maybe`: the first module has already been tested and
    /// says "maybe".
    #[inline(never)]
    fn test_filter<R: Recorder>(
        &self,
        candidate: &Candidate<'_>,
        is_first_maybe: bool,
        consulted: &mut u64,
        counts: &mut LookupCounts,
        recorder: &mut R,
    ) -> Result<Verdict> {
        let Some(filter) = candidate.filter else {
            recorder.step(|| Step::no_filter(candidate.plan, candidate.number));
            return Ok(Verdict::Unasked);
        };
        let is_shared = self.settings.hash_sharing || *consulted == 0;
        let tested = if is_first_maybe {
            let mut tested = Tested { modules: 1, maybe: true };
            recorder.module(|| ModuleStep::held(0, true));
            if filter.has_more() {
                test_modules(candidate.reader, filter, self.digest, &mut tested, counts, recorder)?;
            }
            tested
        } else if is_shared && self.settings.timer.is_none() {
            self.test(candidate, filter, candidate.question, self.digest, counts, recorder)?
        } else {
            self.test_otherwise(candidate, filter, is_shared, counts, recorder)?
        };
        counts.modules += tested.modules;
        debug_assert!(
            tested.modules as usize <= filter.geometry().modules().len(),
            "{} modules tested of {}",
            tested.modules,
            filter.geometry().modules().len()
        );
        if tested.modules > 0 {
            *consulted += 1;
            counts.filters += 1;
        }
        let verdict = tested.verdict();
        recorder.filter(candidate.plan, candidate.number, verdict);
        Ok(verdict)
    }

    /// Tests the modules one by one, up to the first "no".
    #[inline(always)]
    fn test<R: Recorder>(
        &self,
        candidate: &Candidate<'_>,
        filter: &ResidentFilter,
        first: Question<'_>,
        digest: KeyDigest,
        counts: &mut LookupCounts,
        recorder: &mut R,
    ) -> Result<Tested> {
        let mut tested = Tested { modules: 0, maybe: true };
        if first.is_answerable() {
            tested = Tested { modules: 1, maybe: first.maybe() };
            recorder.module(|| ModuleStep::held(0, tested.maybe));
        }
        if tested.maybe && (filter.has_more() || tested.modules == 0) {
            test_modules(candidate.reader, filter, digest, &mut tested, counts, recorder)?;
        }
        Ok(tested)
    }

    /// [`Self::test`] with a digest that is not shared, which is computed again, or timed.
    #[cold]
    #[inline(never)]
    fn test_otherwise<R: Recorder>(
        &self,
        candidate: &Candidate<'a>,
        filter: &ResidentFilter,
        is_shared: bool,
        counts: &mut LookupCounts,
        recorder: &mut R,
    ) -> Result<Tested> {
        let settings = &self.settings;
        let (mut question, mut digest) = (candidate.question, self.digest);
        // A shared digest costs no time here.
        let begin_ns = if is_shared { 0 } else { settings.now_ns() };
        if !is_shared {
            digest = settings.digest.digest(self.key);
            // The probe waits for the new digest.
            question = question.asked_by(self.digest, digest);
        }
        let hashed_ns = settings.now_ns();
        let tested = self.test(candidate, filter, question, digest, counts, recorder);
        if settings.timer.is_none() {
            return tested;
        }
        let end_ns = settings.now_ns();
        let times = counts.rare();
        times.probe_ns += settings.elapsed_ns(hashed_ns, end_ns);
        times.timer_ns += 2 * settings.clock_read_ns();
        if !is_shared {
            times.hash_ns += settings.elapsed_ns(begin_ns, hashed_ns);
            times.timer_ns += settings.clock_read_ns();
        }
        tested
    }
}

/// Tests the modules that remain after those tested. A module in memory is tested unless it is
/// dormant. A module that the residency plan fetches is read. Any other module is skipped.
pub(super) fn test_modules<R: Recorder>(
    reader: &TableReader,
    filter: &ResidentFilter,
    digest: KeyDigest,
    tested: &mut Tested,
    counts: &mut LookupCounts,
    recorder: &mut R,
) -> Result<()> {
    let modules = filter.geometry().modules().len();
    debug_assert!(tested.maybe, "a denied key is tested further");
    debug_assert!(tested.modules <= 1, "the first module was tested {} times", tested.modules);
    for module in tested.modules as usize..modules {
        let maybe = match filter.module(digest, module) {
            Some(maybe) => {
                recorder.module(|| ModuleStep::held(module, maybe));
                maybe
            }
            None if filter.fetches(module) => {
                let mut io = ReadCounters::default();
                let maybe = reader.fetch_module(digest, module, &mut io)?;
                recorder.module(|| ModuleStep::fetched(module, maybe, &io));
                counts.add_reads(&io);
                maybe
            }
            None => {
                counts.modules_skipped += 1;
                recorder.module(|| ModuleStep::skipped(module, filter));
                continue;
            }
        };
        tested.modules += 1;
        tested.maybe = maybe;
        if !maybe {
            break;
        }
    }
    Ok(())
}

impl<'a> Candidate<'a> {
    /// The table.
    pub fn reader(&self) -> &'a Arc<TableReader> {
        self.reader
    }

    /// Passes the result of a search, and the filter's verdict before it, to the recorder.
    #[inline(always)]
    pub fn tell<R: Recorder>(&self, verdict: Verdict, found: bool, recorder: &mut R) {
        recorder.searched(self.plan, self.number, verdict, found);
    }

    /// The place of its entries' large values.
    pub fn home(&self) -> Home<'a> {
        Home::Table(self.reader)
    }
}
