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
//! Not here: which view and sequence ([`crate::db`]), what the steps look like to a person ([`super::explain`]).

use shamba_env::Clock;
use shamba_key::{DigestFn, EntryKind, KeyDigest, SeqNo, hashes_on_this_thread};
use shamba_table::{Entry, ReadCounters, TableReader, Value};

use super::explain::{Recorder, Step};
use crate::error::{Error, ErrorKind, Result};
use crate::metrics::LookupCounts;
use crate::planted::{Defect, is_planted};
use crate::version::{Run, TableUse};
use crate::view::View;

/// How lookups are done.
#[derive(Clone, Copy)]
pub(crate) struct LookupSettings<'a> {
    pub digest: DigestFn,
    pub hash_sharing: bool,
    pub prefetch: bool,
    /// With a clock, the parts of a lookup are timed.
    pub clock: Option<&'a dyn Clock>,
}

/// Candidates are gathered in an array of this size on the stack; deeper trees go round again.
const CANDIDATES: usize = 24;

/// A run's table that may hold the key.
#[derive(Clone, Copy)]
struct Candidate<'v> {
    level: u32,
    run: &'v Run,
    table: &'v TableUse,
    reader: &'v TableReader,
}

/// The newest visible value of `key` in `view` at `seq`, in phases.
pub(crate) fn get<R: Recorder>(
    view: &View,
    settings: LookupSettings<'_>,
    key: &[u8],
    digest: KeyDigest,
    seq: SeqNo,
    counts: &mut LookupCounts,
    recorder: &mut R,
) -> Result<Option<Value>> {
    let hashes_before = hashes_on_this_thread();
    let begin_ns = settings.clock.map_or(0, Clock::now_ns);
    counts.lookups += 1;
    if is_planted(Defect::SecondHash) {
        let _ = settings.digest.digest(key);
    }
    let found = find(view, settings, key, digest, seq, counts, recorder);
    counts.hashes += hashes_on_this_thread().wrapping_sub(hashes_before);
    counts.total_ns += settings.clock.map_or(0, Clock::now_ns).saturating_sub(begin_ns);
    let value = found?;
    counts.found += u64::from(value.is_some());
    Ok(value)
}

fn find<R: Recorder>(
    view: &View,
    settings: LookupSettings<'_>,
    key: &[u8],
    digest: KeyDigest,
    seq: SeqNo,
    counts: &mut LookupCounts,
    recorder: &mut R,
) -> Result<Option<Value>> {
    let floor = range_delete_floor(view, key, seq, recorder); // Entries at or below it are gone.
    for (place, memtable) in view.memtables.iter().enumerate() {
        let entry = memtable.get(digest, key, seq);
        recorder.step(|| Step::memtable(place, memtable.entries(), entry.as_ref()));
        if let Some(entry) = entry {
            counts.memtable_hits += 1;
            return visible_above(entry, floor);
        }
    }
    let mut runs = view.version.runs();
    let mut consulted = 0u64; // Filters tested so far, over all rounds.
    loop {
        let mut candidates: [Option<Candidate<'_>>; CANDIDATES] = [None; CANDIDATES];
        let gathered = gather(&mut runs, key, &mut candidates, recorder)?;
        if settings.prefetch {
            prefetch_filters(&candidates, digest); // All cache misses at once...
        }
        for candidate in candidates.iter().flatten() {
            // ...then the tests, newest first.
            if !may_contain(candidate, settings, key, digest, &mut consulted, counts, recorder) {
                continue;
            }
            if let Some(entry) = search(candidate, settings, key, digest, seq, counts, recorder)? {
                return visible_above(entry, floor);
            }
        }
        if gathered < CANDIDATES {
            return Ok(None);
        }
    }
}

/// The newest range tombstone over `key` that a reader at `seq` sees; `ZERO` if there is none.
fn range_delete_floor<R: Recorder>(view: &View, key: &[u8], seq: SeqNo, recorder: &mut R) -> SeqNo {
    let mut floor = SeqNo::ZERO;
    for memtable in &view.memtables {
        if memtable.has_range_deletes() {
            floor = floor.max(memtable.range_tombstones().newest_covering(key, seq));
        }
    }
    for (_, run) in view.version.runs() {
        if run.has_range_deletes() {
            floor = floor.max(run.tombstones().newest_covering(key, seq));
        }
    }
    recorder.floor(floor);
    floor
}

/// Fills `candidates` from `runs` and says how many there are.
fn gather<'v, R: Recorder>(
    runs: &mut impl Iterator<Item = (u32, &'v std::sync::Arc<Run>)>,
    key: &[u8],
    candidates: &mut [Option<Candidate<'v>>; CANDIDATES],
    recorder: &mut R,
) -> Result<usize> {
    let mut gathered = 0;
    while gathered < CANDIDATES
        && let Some((level, run)) = runs.next()
    {
        let Some(table) = run.table_for(key) else {
            recorder.step(|| Step::outside(level, run));
            continue;
        };
        let Some(reader) = table.meta.reader.get() else {
            return Err(Error::invalid(format!("table {} is not open", table.meta.id)));
        };
        candidates[gathered] = Some(Candidate { level, run, table, reader });
        gathered += 1;
    }
    Ok(gathered)
}

fn prefetch_filters(candidates: &[Option<Candidate<'_>>], digest: KeyDigest) {
    for candidate in candidates.iter().flatten() {
        if let Some(filter) = candidate.reader.filter() {
            filter.ask(digest);
        }
    }
}

/// Whether the candidate's filter lets the lookup through.
fn may_contain<R: Recorder>(
    candidate: &Candidate<'_>,
    settings: LookupSettings<'_>,
    key: &[u8],
    digest: KeyDigest,
    consulted: &mut u64,
    counts: &mut LookupCounts,
    recorder: &mut R,
) -> bool {
    let Some(filter) = candidate.reader.filter() else {
        recorder.step(|| Step::no_filter(candidate.level, candidate.run, candidate.table));
        return true;
    };
    let begin_ns = settings.clock.map_or(0, Clock::now_ns);
    let mut hashed_ns = begin_ns;
    let digest = if settings.hash_sharing || *consulted == 0 {
        digest
    } else {
        let again = settings.digest.digest(key);
        hashed_ns = settings.clock.map_or(0, Clock::now_ns);
        again
    };
    let maybe = filter.may_contain(digest);
    *consulted += 1;
    counts.filters += 1;
    counts.modules += 1;
    if let Some(clock) = settings.clock {
        counts.hash_ns += hashed_ns.saturating_sub(begin_ns);
        counts.probe_ns += clock.now_ns().saturating_sub(hashed_ns);
    }
    recorder.step(|| Step::filter(candidate.level, candidate.run, candidate.table, maybe));
    maybe
}

/// Searches the candidate's index and block.
fn search<R: Recorder>(
    candidate: &Candidate<'_>,
    settings: LookupSettings<'_>,
    key: &[u8],
    digest: KeyDigest,
    seq: SeqNo,
    counts: &mut LookupCounts,
    recorder: &mut R,
) -> Result<Option<Entry>> {
    let mut io = ReadCounters { timed: settings.clock.is_some(), ..ReadCounters::default() };
    let begin_ns = if R::RECORDS { settings.clock.map_or(0, Clock::now_ns) } else { 0 };
    let found = candidate.reader.get(key, seq, digest, &mut io);
    counts.filter_reads += io.filter_reads;
    counts.index_reads += io.index_reads;
    counts.data_reads += io.data_reads;
    counts.cache_hits += io.cache_hits;
    counts.index_ns += io.index_ns;
    counts.data_ns += io.data_ns;
    let entry = found?;
    let filtered = candidate.reader.filter().is_some();
    if entry.is_none() && filtered {
        counts.false_positives += 1;
    }
    recorder.step(|| {
        let ns = settings.clock.map_or(0, Clock::now_ns).saturating_sub(begin_ns);
        Step::search(candidate.level, candidate.run, candidate.table, &io, entry.as_ref(), ns, filtered)
    });
    Ok(entry)
}

/// The value of an entry that no range tombstone hides.
fn visible_above(entry: Entry, floor: SeqNo) -> Result<Option<Value>> {
    if entry.seq <= floor {
        return Ok(None);
    }
    match entry.kind {
        EntryKind::Put => Ok(Some(entry.value)),
        EntryKind::Delete | EntryKind::RangeDelete => Ok(None),
        kind @ (EntryKind::Merge | EntryKind::ValueRef | EntryKind::PutWithExpiry) => Err(Error::new(
            ErrorKind::Unsupported,
            format!("an entry of kind {kind:?}, which this build cannot read"),
        )),
    }
}
