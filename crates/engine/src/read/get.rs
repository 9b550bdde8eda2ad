//! Point lookups, in phases; `explain` runs the same code with a recorder.
//!
//! One digest, made by the caller, serves everything below it. The phases: range tombstones (a filter's
//! "no" says nothing about them); memtables; the one candidate table of every run; all their filter lines
//! asked for at once; then test after test, newest first, stopping at the first entry found. An entry older
//! than the newest covering range tombstone is gone.
//!
//! With `hash_sharing` off each filter after the first hashes the key again just before its test: the
//! baseline, which differs in nothing else.
//!
//! A lookup walks the flat list of runs that the view prepared ([`RunPlan`]): no counted pointer is followed
//! and nothing is allocated until a value is found.
//!
//! Not here: which view and sequence ([`super::reader`]), many keys at once ([`super::multi_get`]), what the
//! steps look like to a person ([`super::explain`]).

use std::sync::Arc;

use shamba_env::Clock;
use shamba_filter::Question;
use shamba_key::{DigestFn, EntryKind, KeyDigest, SeqNo};
use shamba_table::{BlockNo, Entry, ReadCounters, TableReader, Value, ValueMode};

use super::explain::{Recorder, Step};
use crate::error::{Error, ErrorKind, Result};
use crate::memtable::Memtable;
use crate::metrics::LookupCounts;
use crate::planted::{Defect, is_planted};
use crate::view::{Places, Probe, RunPlan, View};

/// How lookups are done.
#[derive(Clone, Copy)]
pub(crate) struct LookupSettings<'a> {
    pub digest: DigestFn,
    pub hash_sharing: bool,
    pub prefetch: bool,
    /// With a clock, the parts of a lookup are timed.
    pub clock: Option<&'a dyn Clock>,
}

impl LookupSettings<'_> {
    /// The time if lookups are timed, else 0.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        self.clock.map_or(0, Clock::now_ns)
    }
}

/// Candidates are gathered in an array of this size on the stack; deeper trees go round again.
const CANDIDATES: usize = 16;

/// One key to look up: where, when and how.
#[derive(Clone, Copy)]
pub(crate) struct Lookup<'a> {
    pub view: &'a View,
    pub settings: LookupSettings<'a>,
    pub key: &'a [u8],
    pub digest: KeyDigest,
    pub seq: SeqNo,
    /// What is wanted of the value.
    pub mode: ValueMode,
}

/// A run's table that may hold the key, and the line of its filter, asked for.
#[derive(Clone, Copy)]
pub(super) struct Candidate<'a> {
    plan: &'a RunPlan,
    /// The table's number within the run.
    number: usize,
    reader: &'a Arc<TableReader>,
    /// `None` without a filter.
    question: Option<Question<'a>>,
}

impl<'a> Lookup<'a> {
    /// The newest visible value of the key. Everything but the digest, which the caller made and counted.
    #[inline]
    pub fn run<R: Recorder>(&self, counts: &mut LookupCounts, recorder: &mut R) -> Result<Option<Value>> {
        counts.lookups += 1;
        if is_planted(Defect::SecondHash) {
            let _ = self.settings.digest.digest(self.key);
        }
        let value = self.find(counts, recorder)?;
        counts.found += u64::from(value.is_some());
        Ok(value)
    }

    #[inline]
    fn find<R: Recorder>(&self, counts: &mut LookupCounts, recorder: &mut R) -> Result<Option<Value>> {
        let floor = self.floor(recorder); // Entries at or below it are gone.
        if let Some((entry, memtable)) = self.in_memtables(counts, recorder) {
            return visible_above(entry, floor, Home::Memtable(memtable), self.mode);
        }
        let places = self.view.places(self.key);
        let mut plans = self.view.plans().iter().enumerate();
        let mut consulted = 0; // Filters tested so far, over all rounds.
        loop {
            let mut candidates = [None; CANDIDATES];
            let gathered = self.gather(places, &mut plans, &mut candidates, recorder)?; // All cache misses at once...
            for candidate in candidates.iter().take(gathered).flatten() {
                // ...then the tests, newest first.
                if self.may_be_in(candidate, &mut consulted, counts, recorder)
                    && let Some(entry) = self.search(candidate, counts, recorder)?
                {
                    return visible_above(entry, floor, candidate.home(), self.mode);
                }
            }
            if gathered < CANDIDATES {
                return Ok(None);
            }
        }
    }

    /// The newest range tombstone over the key that a reader at this sequence sees; `ZERO` if there is none.
    #[inline]
    pub(super) fn floor<R: Recorder>(&self, recorder: &mut R) -> SeqNo {
        let mut floor = SeqNo::ZERO;
        for memtable in &self.view.memtables {
            if memtable.has_range_deletes() {
                floor = floor.max(memtable.range_tombstones().newest_covering(self.key, self.seq));
            }
        }
        if self.view.runs_have_range_deletes() {
            for RunPlan { run, .. } in self.view.plans() {
                if run.has_range_deletes() {
                    floor = floor.max(run.tombstones().newest_covering(self.key, self.seq));
                }
            }
        }
        recorder.floor(floor);
        floor
    }

    /// The newest entry of the key in a memtable.
    #[inline]
    pub(super) fn in_memtables<R: Recorder>(
        &self,
        counts: &mut LookupCounts,
        recorder: &mut R,
    ) -> Option<(Entry, &'a dyn Memtable)> {
        for (place, memtable) in self.view.memtables.iter().enumerate() {
            let entries = memtable.entries();
            let entry = if entries == 0 { None } else { memtable.get(self.digest, self.key, self.seq) };
            recorder.step(|| Step::memtable(place, entries, entry.as_ref()));
            if let Some(entry) = entry {
                counts.memtable_hits += 1;
                return Some((entry, memtable.as_ref()));
            }
        }
        None
    }

    /// Fills `candidates` from `plans`, asks for their filter lines, and says how many there are.
    #[inline(always)]
    fn gather<R: Recorder>(
        &self,
        places: Places<'_>,
        plans: &mut std::iter::Enumerate<std::slice::Iter<'a, RunPlan>>,
        candidates: &mut [Option<Candidate<'a>>],
        recorder: &mut R,
    ) -> Result<usize> {
        let mut gathered = 0;
        while let Some(place) = candidates.get_mut(gathered)
            && let Some((at, plan)) = plans.next()
        {
            let number = places.number(at, plan, self.key);
            if let Some(candidate) = self.candidate(plan, number, recorder)? {
                *place = Some(candidate);
                gathered += 1;
            }
        }
        Ok(gathered)
    }

    /// Table `number` of the run, whose range holds the key, its filter line asked for.
    #[inline(always)] // A candidate that came back through memory would be copied, and the copy waits for it.
    pub(super) fn candidate<R: Recorder>(
        &self,
        plan: &'a RunPlan,
        number: Option<usize>,
        recorder: &mut R,
    ) -> Result<Option<Candidate<'a>>> {
        let Some(number) = number else {
            recorder.step(|| Step::outside(plan.level, &plan.run));
            return Ok(None);
        };
        let Some(Probe { filter, reader: Some(reader) }) = plan.probes.get(number) else {
            return Err(Error::invalid(format!("table {number} of run {} is not open", plan.run.id)));
        };
        let question = filter.as_ref().map(|filter| {
            if self.settings.prefetch { filter.ask(self.digest) } else { filter.find(self.digest) }
        });
        Ok(Some(Candidate { plan, number, reader, question }))
    }

    /// Whether the candidate's filter lets the lookup through. `consulted` counts the filters asked.
    #[inline(always)]
    pub(super) fn may_be_in<R: Recorder>(
        &self,
        candidate: &Candidate<'_>,
        consulted: &mut u64,
        counts: &mut LookupCounts,
        recorder: &mut R,
    ) -> bool {
        let Some(question) = candidate.question else {
            recorder.step(|| Step::no_filter(candidate.plan, candidate.number));
            return true;
        };
        *consulted += 1;
        counts.filters += 1;
        counts.modules += 1;
        let maybe = if self.settings.clock.is_some() || !(self.settings.hash_sharing || *consulted == 1) {
            self.test_slowly(candidate, question, *consulted == 1, counts)
        } else {
            question.maybe()
        };
        recorder.step(|| Step::filter(candidate.plan, candidate.number, maybe));
        maybe
    }

    /// The test with a clock beside it, or without hash sharing, when each filter but the first hashes anew.
    #[cold]
    fn test_slowly(
        &self,
        candidate: &Candidate<'_>,
        question: Question<'_>,
        is_first: bool,
        counts: &mut LookupCounts,
    ) -> bool {
        let begin_ns = self.settings.now_ns();
        let again = if self.settings.hash_sharing || is_first {
            None
        } else {
            let filter = candidate.plan.probes.get(candidate.number).and_then(|probe| probe.filter.as_ref());
            let digest = self.settings.digest.digest(self.key);
            filter.map(|filter| filter.find(digest))
        };
        let hashed_ns = self.settings.now_ns();
        let maybe = again.unwrap_or(question).maybe();
        counts.hash_ns += hashed_ns.saturating_sub(begin_ns);
        counts.probe_ns += self.settings.now_ns().saturating_sub(hashed_ns);
        maybe
    }

    /// Searches the candidate's index and block.
    #[inline(never)] // The path that most lookups do not take: it would only spread the other apart.
    fn search<R: Recorder>(
        &self,
        candidate: &Candidate<'_>,
        counts: &mut LookupCounts,
        recorder: &mut R,
    ) -> Result<Option<Entry>> {
        let begin_ns = if R::RECORDS { self.settings.now_ns() } else { 0 };
        let mut io = self.read_counters();
        let block = candidate.reader.locate(self.key, self.seq, &mut io);
        let found = self.search_block(candidate, block, &mut io);
        counts.add_reads(&io);
        let entry = found?;
        let filtered = candidate.question.is_some();
        counts.false_positives += u64::from(entry.is_none() && filtered);
        recorder.step(|| {
            let ns = self.settings.now_ns().saturating_sub(begin_ns);
            Step::search(candidate.plan, candidate.number, &io, entry.as_ref(), ns, filtered)
        });
        Ok(entry)
    }

    /// What a search adds its reads up in.
    pub(super) fn read_counters(&self) -> ReadCounters {
        ReadCounters { timed: self.settings.clock.is_some(), ..ReadCounters::default() }
    }

    /// Searches the candidate's block that the index named.
    pub(super) fn search_block(
        &self,
        candidate: &Candidate<'_>,
        block: Option<BlockNo>,
        io: &mut ReadCounters,
    ) -> Result<Option<Entry>> {
        let Some(block) = block else { return Ok(None) };
        Ok(candidate.reader.get_at(block, self.key, self.seq, self.digest, self.mode, io)?)
    }
}

impl<'a> Candidate<'a> {
    /// The table.
    pub(super) fn reader(&self) -> &'a Arc<TableReader> {
        self.reader
    }

    /// Whether it has a filter, which said "maybe".
    pub(super) fn is_filtered(&self) -> bool {
        self.question.is_some()
    }

    /// Where its entries' large values are.
    pub(super) fn home(&self) -> Home<'a> {
        Home::Table(self.reader)
    }
}

/// Where an entry was found, and where its value is if that is large.
#[derive(Clone, Copy)]
pub(super) enum Home<'a> {
    Memtable(&'a dyn Memtable),
    Table(&'a TableReader),
}

impl Home<'_> {
    /// Puts a large value together.
    #[cold]
    fn read_large(self, place: &[u8]) -> Result<Value> {
        match self {
            Self::Table(reader) => Ok(reader.read_large(place)?.into()),
            Self::Memtable(memtable) => Ok(memtable.values().read_whole(place)?.into()),
        }
    }
}

/// The value of an entry that no range tombstone hides; an empty one where only its being there is wanted.
pub(super) fn visible_above(
    entry: Entry,
    floor: SeqNo,
    home: Home<'_>,
    mode: ValueMode,
) -> Result<Option<Value>> {
    if entry.seq <= floor {
        return Ok(None);
    }
    match entry.kind {
        EntryKind::Put => Ok(Some(entry.value)),
        EntryKind::ValueRef if mode == ValueMode::Absent => Ok(Some(Value::default())),
        EntryKind::ValueRef => home.read_large(&entry.value).map(Some),
        EntryKind::Delete | EntryKind::RangeDelete => Ok(None),
        kind @ (EntryKind::Merge | EntryKind::PutWithExpiry) => Err(Error::new(
            ErrorKind::Unsupported,
            format!("an entry of kind {kind:?}, which this build cannot read"),
        )),
    }
}
