//! Point lookups, in phases. `explain` runs the same code with a recorder.
//!
//! One digest, computed by the caller, is used by all phases:
//!
//! 1. The memtables are searched, newest first.
//! 2. In every run the one table that may hold the key becomes a candidate, and the first filter
//!    lines of all candidates are prefetched.
//! 3. The filters are tested and the tables searched, newest first, until an entry is found. Before
//!    the first search the record cache is asked ([`crate::records`]), if it is on.
//!
//! An entry older than the newest range tombstone over the key, of any memtable or run, is deleted.
//! The tombstones are searched once, before the first use of an entry: a key without any needs none
//! of them. Those that are added meanwhile are newer than the lookup's sequence number.
//!
//! With `hash_sharing` off each filter after the first hashes the key again just before its test,
//! and the test depends on that hash. This is the baseline and differs in nothing else: its filter
//! lines are prefetched as well, by the shared digest.
//!
//! A lookup walks the flat list of runs that the view has prepared ([`RunPlan`]). It follows no
//! reference-counted pointer and allocates nothing until a value is found.
//!
//! The candidates and the tests of their filters are in [`super::candidate`], the choice of view
//! and sequence number in `reader`, lookups of many keys in [`super::multi_get`], the presentation
//! of the steps in [`super::explain`], values in value files in `separated`.

use std::ops::ControlFlow;

use shamba_key::{DigestFn, EntryKind, Expiry, KeyDigest, SeqNo};
use shamba_table::{Entry, LoadedBlock, Located, ReadCounters, TableReader, Value, ValueMode};

use super::candidate::{Candidate, Verdict};
use super::explain::{Recorder, Step};
use super::opened::OpenedTables;
use super::timer::Timer;
use crate::counters::LookupCounts;
use crate::error::{Error, Result};
use crate::expiry::{ReadTime, kind_at};
use crate::records::{Cached, RecordAccess};
use crate::view::{RunPlan, View};
use shamba_memtable::Memtable;

/// Settings of a lookup.
#[derive(Clone, Copy)]
pub struct LookupSettings<'a> {
    /// Digest function of the database.
    pub digest: DigestFn,
    /// Whether all filters share one digest.
    pub hash_sharing: bool,
    /// Whether cache lines are prefetched.
    pub prefetch: bool,
    /// If set, the parts of a lookup are timed.
    pub timer: Option<&'a Timer>,
    /// Tables that were closed in the view and have been opened for this lookup.
    pub opened: &'a OpenedTables,
    /// The record cache, from before the view was loaded; `None` while it is off.
    pub records: Option<RecordAccess<'a>>,
    /// The time by which the lookups judge expiry.
    pub time: &'a ReadTime<'a>,
}

impl LookupSettings<'_> {
    /// The time if lookups are timed, else 0.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        self.timer.map_or(0, |timer| timer.now_ns())
    }

    /// Nanoseconds per read of the clock; 0 if lookups are not timed.
    #[inline]
    pub fn clock_read_ns(&self) -> u64 {
        self.timer.map_or(0, Timer::read_ns)
    }

    /// Nanoseconds from `begin_ns` to `end_ns`, two readings of the clock, without the time of
    /// reading it.
    #[inline]
    pub fn elapsed_ns(&self, begin_ns: u64, end_ns: u64) -> u64 {
        end_ns.saturating_sub(begin_ns).saturating_sub(self.clock_read_ns())
    }

    /// Whether all filters share one digest and no part is timed.
    #[inline(always)]
    pub(super) fn shares_untimed(&self) -> bool {
        self.hash_sharing && self.timer.is_none()
    }

    /// The digest of the key. Its time is counted if lookups are timed.
    #[inline]
    pub fn digest_of(&self, key: &[u8], counts: &mut LookupCounts) -> KeyDigest {
        self.hashing(counts, || self.digest.digest(key))
    }

    /// Runs `hash`. Its time is counted as that of hashing if lookups are timed.
    #[inline]
    pub(super) fn hashing<T>(&self, counts: &mut LookupCounts, hash: impl FnOnce() -> T) -> T {
        if self.timer.is_none() {
            return hash();
        }
        let begin_ns = self.now_ns();
        let hashed = hash();
        let times = counts.rare();
        times.hash_ns += self.elapsed_ns(begin_ns, self.now_ns());
        times.timer_ns += 2 * self.clock_read_ns();
        hashed
    }
}

/// Size of the array on the stack for candidates; deeper trees take several rounds.
const CANDIDATES: usize = 16;

/// One lookup: key, view, sequence number and settings.
#[derive(Clone, Copy)]
pub struct Lookup<'a> {
    /// View to read.
    pub view: &'a View,
    /// How the lookup is done.
    pub settings: &'a LookupSettings<'a>,
    /// User key.
    pub key: &'a [u8],
    /// Digest of the key.
    pub digest: KeyDigest,
    /// Sequence number to read at.
    pub seq: SeqNo,
    /// The form in which the value is wanted.
    pub mode: ValueMode,
}

/// Progress of a lookup through the tables.
struct Search<'a> {
    /// Filters tested so far.
    consulted: u64,
    /// The record cache, until it has been asked.
    records: Option<RecordAccess<'a>>,
    /// Set if the answer is worth a record: the reads before the first search.
    reads_before: Option<u64>,
    /// Entries at or below it are deleted; `None` until an entry may have been found.
    floor: Option<SeqNo>,
}

impl Search<'_> {
    /// The floor of the lookup, computed once.
    #[inline]
    fn floor<R: Recorder>(&mut self, lookup: &Lookup<'_>, recorder: &mut R) -> SeqNo {
        *self.floor.get_or_insert_with(|| lookup.floor(recorder))
    }
}

impl<'a> Lookup<'a> {
    /// Returns the newest visible value of the key. The caller has computed and counted the digest.
    #[inline]
    pub fn run<R: Recorder>(&self, counts: &mut LookupCounts, recorder: &mut R) -> Result<Option<Value>> {
        counts.lookups += 1;
        let value = self.find(counts, recorder)?;
        counts.found += u64::from(value.is_some());
        Ok(value)
    }

    #[inline]
    fn find<R: Recorder>(&self, counts: &mut LookupCounts, recorder: &mut R) -> Result<Option<Value>> {
        let mut search =
            Search { consulted: 0, records: self.settings.records, reads_before: None, floor: None };
        if R::RECORDS {
            search.floor(self, recorder);
        }
        if let Some((entry, memtable)) = self.in_memtables(counts, recorder) {
            let floor = search.floor(self, recorder);
            return self.visible_above(entry, floor, Home::Memtable(memtable), None, counts, recorder);
        }
        self.prefetch_record();
        let found = match self.view.plans() {
            // The candidate of a single run stays in registers.
            [plan] => match self.candidate(plan, plan.run.number_for(self.key), recorder)? {
                Some(candidate) => self.consider(&candidate, &mut search, counts, recorder)?,
                None => ControlFlow::Continue(()),
            },
            plans => self.find_in_runs(plans, &mut search, counts, recorder)?,
        };
        if let ControlFlow::Break(value) = found {
            return Ok(value);
        }
        if let Some(before) = search.reads_before {
            self.write_record(None, search.floor(self, recorder), counts.searching_reads() - before);
        }
        Ok(None)
    }

    /// Looks in the candidates of all runs, from the newest to the oldest.
    #[inline(never)] // Keeps the code for a single run short.
    fn find_in_runs<R: Recorder>(
        &self,
        plans: &'a [RunPlan],
        search: &mut Search<'a>,
        counts: &mut LookupCounts,
        recorder: &mut R,
    ) -> Result<ControlFlow<Option<Value>>> {
        let places = self.view.places(self.key);
        let mut plans = plans.iter().enumerate();
        loop {
            let mut candidates = [None; CANDIDATES];
            // The cache misses of all candidates overlap; the tests below go from the newest to the
            // oldest.
            let gathered = self.gather(places, &mut plans, &mut candidates, recorder)?;
            debug_assert!(gathered <= CANDIDATES, "{gathered} candidates of a round of {CANDIDATES}");
            for candidate in candidates.iter().take(gathered).flatten() {
                let considered = self.consider(candidate, search, counts, recorder)?;
                if considered.is_break() {
                    return Ok(considered);
                }
            }
            if gathered < CANDIDATES {
                return Ok(ControlFlow::Continue(()));
            }
        }
    }

    /// Tests the candidate's filter. If it says "maybe", looks in the candidate, or in the record
    /// cache before the first one. Breaks with the answer of the lookup.
    #[inline(always)]
    fn consider<R: Recorder>(
        &self,
        candidate: &Candidate<'a>,
        search: &mut Search<'a>,
        counts: &mut LookupCounts,
        recorder: &mut R,
    ) -> Result<ControlFlow<Option<Value>>> {
        let verdict = self.may_be_in(candidate, &mut search.consulted, counts, recorder)?;
        if verdict == Verdict::No {
            return Ok(ControlFlow::Continue(()));
        }
        let floor = search.floor(self, recorder);
        if let Some(access) = search.records.take() {
            match self.ask_records(access, floor, recorder) {
                Cached::Value { kind, value, .. } => {
                    return self.unexpired(kind, value, recorder).map(ControlFlow::Break);
                }
                Cached::Absent { .. } => return Ok(ControlFlow::Break(None)),
                Cached::Unknown { is_wanted } => {
                    search.reads_before = is_wanted.then(|| counts.searching_reads());
                }
            }
        }
        let Some(entry) = self.search(candidate, verdict, counts, recorder)? else {
            return Ok(ControlFlow::Continue(()));
        };
        if let Some(before) = search.reads_before {
            self.write_record(Some(&entry), floor, counts.searching_reads() - before);
        }
        let reads_before = search.reads_before;
        self.visible_above(entry, floor, candidate.home(), reads_before, counts, recorder)
            .map(ControlFlow::Break)
    }

    /// The newest range tombstone over the key that is visible at this sequence number; `ZERO` if
    /// none.
    #[inline]
    pub fn floor<R: Recorder>(&self, recorder: &mut R) -> SeqNo {
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
        debug_assert!(
            floor <= self.seq,
            "the range tombstone {floor} is newer than the reader at {}",
            self.seq
        );
        recorder.floor(floor);
        floor
    }

    /// The newest entry of the key in a memtable.
    #[inline]
    pub fn in_memtables<R: Recorder>(
        &self,
        counts: &mut LookupCounts,
        recorder: &mut R,
    ) -> Option<(Entry, &'a dyn Memtable)> {
        for (place, memtable) in self.view.memtables.iter().enumerate() {
            let entries = memtable.entries();
            let entry = if entries == 0 { None } else { memtable.get(self.digest, self.key, self.seq) };
            recorder.step(|| Step::memtable(place, entries, entry.as_ref()));
            if let Some(entry) = entry {
                debug_assert!(
                    entry.seq <= self.seq,
                    "a memtable gives {} to a reader at {}",
                    entry.seq,
                    self.seq
                );
                counts.memtable_hits += 1;
                return Some((entry, memtable.as_ref()));
            }
        }
        None
    }

    /// Searches the candidate's index and block.
    // Not inlined: most lookups do not get here, and it would lengthen the code of those that do
    // not.
    #[inline(never)]
    pub(super) fn search<R: Recorder>(
        &self,
        candidate: &Candidate<'_>,
        verdict: Verdict,
        counts: &mut LookupCounts,
        recorder: &mut R,
    ) -> Result<Option<Entry>> {
        let begin_ns = if R::RECORDS { self.settings.now_ns() } else { 0 };
        let mut io = self.read_counters();
        let located = candidate.reader.locate(self.key, self.seq, &mut io);
        if let Ok(Some(located)) = &located {
            recorder.partition(candidate.reader, located.partition());
        }
        let found = located.map_err(Error::from).and_then(|at| self.search_block(candidate, at, &mut io));
        counts.add_reads(&io);
        let entry = found?;
        let filtered = verdict == Verdict::Maybe;
        debug_assert!(verdict != Verdict::No, "a table is searched that cannot hold the key");
        debug_assert!(
            entry.as_ref().is_none_or(|entry| entry.seq <= self.seq),
            "a lookup at {} returns a newer entry",
            self.seq
        );
        counts.false_positives += u64::from(entry.is_none() && filtered);
        candidate.tell(verdict, entry.is_some(), recorder);
        recorder.step(|| {
            let ns = self.settings.now_ns().saturating_sub(begin_ns);
            Step::search(candidate.plan, candidate.number, &io, entry.as_ref(), ns, filtered)
        });
        Ok(entry)
    }

    /// Counters for the reads of a search.
    pub fn read_counters(&self) -> ReadCounters {
        ReadCounters {
            timed: self.settings.timer.is_some(),
            clock_read_ns: self.settings.clock_read_ns(),
            ..ReadCounters::default()
        }
    }

    /// Searches the candidate's block that the index has located.
    pub fn search_block(
        &self,
        candidate: &Candidate<'_>,
        located: Option<Located>,
        io: &mut ReadCounters,
    ) -> Result<Option<Entry>> {
        let Some(located) = located else { return Ok(None) };
        Ok(candidate.reader.get_at(located, self.key, self.seq, self.digest, self.mode, io)?)
    }

    /// As [`Self::search_block`], in a block that has already been read.
    pub fn search_loaded(
        &self,
        candidate: &Candidate<'_>,
        block: &LoadedBlock,
        located: Located,
        io: &mut ReadCounters,
    ) -> Result<Option<Entry>> {
        let Self { key, seq, digest, mode, .. } = *self;
        Ok(candidate.reader.get_from(block, located, key, seq, digest, mode, io)?)
    }

    /// The value of an entry, unless a range tombstone hides it; of an operand, what its operator
    /// makes of it. Empty if only the key's existence is wanted. `reads_before` is set if the value
    /// of operands, or one in a value file, is worth a record.
    #[inline]
    pub(super) fn visible_above<R: Recorder>(
        &self,
        entry: Entry,
        floor: SeqNo,
        home: Home<'_>,
        reads_before: Option<u64>,
        counts: &mut LookupCounts,
        recorder: &mut R,
    ) -> Result<Option<Value>> {
        if entry.seq <= floor {
            return Ok(None);
        }
        match entry.kind {
            EntryKind::Put => Ok(Some(entry.value)),
            EntryKind::ValueRef if self.mode == ValueMode::Absent => Ok(Some(Value::default())),
            EntryKind::ValueRef => home.read_large(entry.kind, &entry.value, counts).map(Some),
            EntryKind::PutWithExpiry => self.unexpired(entry.kind, entry.value, recorder),
            EntryKind::ValueRefWithExpiry => self.unexpired_large(&entry, home, counts, recorder),
            EntryKind::ValueFileRef | EntryKind::ValueFileRefWithExpiry => {
                self.separated(&entry, home, reads_before, counts, recorder)
            }
            EntryKind::Delete | EntryKind::RangeDelete => Ok(None),
            EntryKind::Merge => self.fold(floor, reads_before, counts, recorder),
        }
    }
}

impl Lookup<'_> {
    /// The value of a put, which has this payload, unless it has expired.
    #[inline]
    pub(super) fn unexpired<R: Recorder>(
        &self,
        kind: EntryKind,
        payload: Value,
        recorder: &mut R,
    ) -> Result<Option<Value>> {
        if !kind.has_expiry() {
            return Ok(Some(payload));
        }
        let is_visible = !self.has_expired(kind, &payload, recorder)?;
        Ok(is_visible.then(|| payload.without_start(Expiry::STORED_BYTES)))
    }

    /// As [`Self::unexpired`], for a large entry.
    #[cold]
    #[inline(never)]
    fn unexpired_large<R: Recorder>(
        &self,
        entry: &Entry,
        home: Home<'_>,
        counts: &mut LookupCounts,
        recorder: &mut R,
    ) -> Result<Option<Value>> {
        if self.has_expired(entry.kind, &entry.value, recorder)? {
            return Ok(None);
        }
        if self.mode == ValueMode::Absent {
            return Ok(Some(Value::default()));
        }
        let payload = home.read_large(entry.kind, &entry.value, counts)?;
        Ok(Some(payload.without_start(Expiry::STORED_BYTES)))
    }

    /// Whether an entry with this payload has expired for the lookup's reader.
    #[cold]
    #[inline(never)]
    pub(super) fn has_expired<R: Recorder>(
        &self,
        kind: EntryKind,
        payload: &[u8],
        recorder: &mut R,
    ) -> Result<bool> {
        let time = self.settings.time;
        let has_expired = kind_at(self.key, kind, payload, || time.ms())? == EntryKind::Delete;
        match Expiry::of(kind, payload) {
            Some(expiry) if has_expired => recorder.step(|| Step::expired(expiry, time.ms())),
            Some(expiry) => recorder.expires(expiry),
            None => {}
        }
        Ok(has_expired)
    }
}

/// The place where an entry was found. A large value is read from there.
#[derive(Clone, Copy)]
pub enum Home<'a> {
    /// A memtable.
    Memtable(&'a dyn Memtable),
    /// A table.
    Table(&'a TableReader),
}

impl Home<'_> {
    /// Reads the value of a large entry of this kind and payload.
    #[cold]
    pub(super) fn read_large(
        self,
        kind: EntryKind,
        payload: &[u8],
        counts: &mut LookupCounts,
    ) -> Result<Value> {
        let mut io = ReadCounters::default();
        let value = match self {
            Self::Table(reader) => reader.read_large(kind, payload, &mut io)?,
            Self::Memtable(memtable) => {
                memtable.values().read_whole(kind.location(payload), &mut io.value)?
            }
        };
        counts.add_reads(&io);
        Ok(value.into())
    }
}

#[cfg(test)]
mod tests;
