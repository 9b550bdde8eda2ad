//! Prefix filters: the runs that a scan of keys with one prefix can leave out.
//!
//! A table that was written with a prefix extractor has the prefixes of its keys in its filter. If
//! its own extractor gives every key of the scan's range the same prefix, the filter is tested for
//! that prefix, module by module as for a key: in memory, or fetched where the residency plan
//! fetches for lookups. A table without prefixes, or that is closed, is not asked.
//!
//! The unit is the run. A run has usually one table in the range of a prefix. If there are several,
//! the range holds a bound between two tables, and bounds are mostly keys: then the run has keys of
//! the range. So a run is left out if the filters of all its tables in the range deny the prefix,
//! and the first other answer ends the questions.
//!
//! The range tombstones of a run that is left out still count: they hide entries of other runs.
//!
//! Not here: the rule when a range fixes a prefix ([`Prefix::of_range`]).

use std::sync::Arc;

use shamba_key::{KeyDigest, Prefix};
use shamba_table::TableReader;

use super::candidate::{Tested, Verdict, test_modules};
use super::explain::{Recorder, Step};
use crate::counters::LookupCounts;
use crate::version::KeyRange;
use crate::view::{Probe, RunPlan, View};

/// The question whether runs may have a key of one range.
pub struct RangeQuestion<'r> {
    range: &'r KeyRange,
    /// The extractor that was used last, and the digest of the prefix that it gives to the range,
    /// which all runs share; `None`: the range does not fix a prefix.
    last: Option<(Prefix, Option<KeyDigest>)>,
    asked: AskedFilters,
}

/// Work of asking filters for one range.
#[derive(Clone, Copy, Default, Debug)]
pub struct AskedFilters {
    /// Filters tested.
    pub filters: u64,
    /// Runs left out.
    pub runs_skipped: u64,
    /// Digests of prefixes computed.
    pub hashes: u64,
    /// Modules and reads.
    pub counts: LookupCounts,
}

impl<'r> RangeQuestion<'r> {
    /// The question about `range`.
    pub fn new(range: &'r KeyRange) -> Self {
        Self { range, last: None, asked: AskedFilters::default() }
    }

    /// Whether a filter of the view could answer it.
    #[inline]
    pub fn is_worth_asking(range: &KeyRange, view: &View) -> bool {
        // Every extractor gives a prefix of at least one byte.
        view.has_prefixes() && Prefix::Fixed(1).of_range(&range.lower, range.upper.as_deref()).is_some()
    }

    /// The work so far.
    pub fn asked(&self) -> AskedFilters {
        self.asked
    }

    /// Asks the filters of a run. `No`: the run has no key of the range, tombstones of keys
    /// included. `None`: they hold nothing that could answer.
    pub fn ask<R: Recorder>(&mut self, plan: &RunPlan, recorder: &mut R) -> Option<Verdict> {
        if !plan.has_prefixes && !R::RECORDS {
            return None;
        }
        let first = plan.run.first_reaching(&self.range.lower);
        let rest = plan.run.tables().get(first..).unwrap_or_default();
        let mut is_reached = false;
        for (number, table) in (first..).zip(rest) {
            if !self.range.is_above(&table.range.lower) {
                break;
            }
            is_reached = true;
            let verdict = self.ask_table(plan, number, recorder);
            if verdict != Some(Verdict::No) {
                return verdict;
            }
        }
        if !is_reached {
            recorder.step(|| Step::without_prefix(plan.level, &plan.run));
            return Some(Verdict::No);
        }
        self.asked.runs_skipped += 1;
        Some(Verdict::No)
    }

    fn ask_table<R: Recorder>(&mut self, plan: &RunPlan, number: usize, recorder: &mut R) -> Option<Verdict> {
        let Some(Probe { filter, reader: Some(reader) }) = plan.probes.get(number) else {
            recorder.step(|| Step::closed(plan, number));
            return None;
        };
        let Some(filter) = filter else {
            recorder.step(|| Step::no_filter(plan, number));
            return None;
        };
        // The extractor of the table, whatever that of the keyspace is now.
        let Some(extractor) = reader.prefix() else {
            recorder.step(|| Step::no_prefixes(plan, number));
            return None;
        };
        let Some(digest) = self.digest_by(extractor, reader) else {
            recorder.step(|| Step::prefix_not_fixed(plan, number, extractor));
            return None;
        };
        let mut tested = Tested { modules: 0, maybe: true };
        // A module that cannot be read denies nothing. The scan goes on as without it, and meets
        // the failure where it reads what it needs.
        let _ = test_modules(reader, filter, digest, &mut tested, &mut self.asked.counts, recorder);
        self.asked.counts.modules += tested.modules;
        self.asked.filters += u64::from(tested.modules > 0);
        let verdict = tested.verdict();
        recorder.filter(plan, number, verdict);
        Some(verdict)
    }

    /// The digest of the prefix that `extractor` gives to every key of the range; `None` if there
    /// is no such prefix.
    fn digest_by(&mut self, extractor: Prefix, reader: &Arc<TableReader>) -> Option<KeyDigest> {
        match self.last {
            Some((last, digest)) if last == extractor => digest,
            _ => {
                let prefix = extractor.of_range(&self.range.lower, self.range.upper.as_deref());
                let digest = prefix.map(|prefix| reader.digest_fn().digest(prefix));
                self.asked.hashes += u64::from(digest.is_some());
                self.last = Some((extractor, digest));
                digest
            }
        }
    }
}
