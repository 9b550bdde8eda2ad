//! Lookups of many keys: each phase of a lookup is done for a whole group of keys before the next.
//!
//! A single lookup waits for one memory line after another: the memtable's index, a filter, a
//! table's index, a block. Here the lines of all keys of a group are prefetched before the first is
//! read, so a group waits about as long as a single key. Tests, counters and results are those of
//! single lookups.
//!
//! Phases: digests, and prefetch of the memtables' lines; memtables; candidates of all runs, and
//! prefetch of their filter lines; filter tests, newest first, for each key up to its first
//! "maybe". Most absent keys end here. The others become `Pending`: the record cache is asked
//! for them, and then in rounds, until every key has its answer:
//!
//! 1. index searches, and prefetch of the first lines of cached blocks; index partitions that are
//!    not in memory are read in parallel if reads have been slow (`cold`);
//! 2. reads of the blocks that are not cached, in the same way;
//! 3. prefetch of the entries that tags point to;
//! 4. block searches;
//! 5. filter tests, for each key that was not found, up to its next "maybe".
//!
//! At last the values that are in value files are read (`aside`).
//!
//! The steps themselves are in [`super::get`].

use shamba_key::{KeyDigest, SeqNo};
use shamba_table::{Entry, Find, LoadedBlock, Located, ReadCounters, Value, ValueMode};

use super::aside::Aside;
use super::candidate::{Candidate, Verdict};
use super::cold::{Unlocated, Unread};
use super::explain::{Recorder, Silent};
use super::get::{Home, Lookup, LookupSettings};
use super::opened::OpenedTables;
use super::pool::ReadPool;
use super::sampler::Sampler;
use crate::counters::LookupCounts;
use crate::error::Result;
use crate::records::Cached;
use crate::slice::Slice;
use crate::view::View;

/// Keys of a group. 32 overlap about as many cache misses as the processor can; 64 gain nothing
/// more.
const GROUP: usize = 32;
/// Keys after which the tables opened for lookups are closed again.
const PART: usize = 8 * GROUP;
const _: () = assert!(PART % GROUP == 0, "a part consists of whole groups");

/// One key of a group that no filter has let through yet.
struct Asked<'a> {
    key: &'a [u8],
    digest: KeyDigest,
    /// Its position among the answers.
    place: usize,
    /// Its first candidate in the group's list. They end where those of the next key begin.
    from: usize,
}

/// Progress of one key of a group that a table may hold.
struct Pending<'a> {
    lookup: Lookup<'a>,
    /// Entries at or below it are deleted.
    floor: SeqNo,
    /// Its position among the answers.
    place: usize,
    walk: Walk,
    /// Result of the present candidate's filter.
    verdict: Verdict,
    /// Location of the block in its present candidate.
    block: Option<Located>,
    /// That block, if it was read and the cache does not keep it.
    loaded: Option<LoadedBlock>,
    state: BlockState,
    /// Whether its answer is worth a record in the record cache.
    is_wanted: bool,
    /// Set for the key that is sampled.
    sampler: Option<Sampler>,
}

/// A key's way through its candidates.
struct Walk {
    /// Its candidates not yet passed: a range of the group's list.
    from: usize,
    to: usize,
    /// Filters tested.
    consulted: u64,
}

/// Sampling of keys for statistics.
pub struct KeySampling<'a> {
    /// Given a number of keys, returns the index among them of the key to sample, if one is.
    pub next: &'a dyn Fn(u64) -> Option<u64>,
    /// Called with the sample of a key that no memtable answered.
    pub finish: &'a dyn Fn(Sampler),
}

/// The threads that read in parallel.
#[derive(Clone, Copy)]
pub struct ReadingThreads<'a> {
    /// For index partitions and blocks that are not in memory; `None`: they are read in turn.
    pub blocks: Option<&'a ReadPool>,
    /// For values in value files, if their reads are slow.
    pub values: Option<&'a ReadPool>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum BlockState {
    Cached,
    Cold,
    /// Read during this round, on behalf of this key.
    Loaded,
}

/// The values of `keys` in `view` at `seq`, in their order.
pub fn multi_get<K: AsRef<[u8]>>(
    view: &View,
    settings: LookupSettings<'_>,
    seq: SeqNo,
    keys: &[K],
    threads: ReadingThreads<'_>,
    samples: &KeySampling<'_>,
    counts: &mut LookupCounts,
) -> Result<Vec<Option<Slice>>> {
    let mut answers = Vec::with_capacity(keys.len());
    for part in keys.chunks(PART) {
        let opened = OpenedTables::default();
        let settings = LookupSettings { opened: &opened, ..settings };
        let mut group = Group {
            view,
            settings: &settings,
            seq,
            asked: Vec::with_capacity(GROUP.min(keys.len())),
            candidates: Vec::with_capacity(GROUP.min(keys.len()) * view.plans().len()),
            pending: Vec::new(),
            aside: Aside::default(),
            sampled: None,
        };
        for keys in part.chunks(GROUP) {
            let first_place = answers.len();
            group.begin(keys, first_place, counts);
            let sampled = (samples.next)(keys.len() as u64).map(|number| first_place + number as usize);
            answers.resize_with(first_place + keys.len(), || None);
            group.ask_memtables(&mut answers, counts)?;
            group.gather()?;
            group.test_first(sampled, counts)?;
            if settings.records.is_some() {
                group.ask_records(&mut answers)?;
            }
            while !group.pending.is_empty() {
                group.locate(threads.blocks, counts)?;
                if let Some(reads) = threads.blocks {
                    group.load_cold(reads, counts);
                }
                group.ask_for_entries();
                group.search(&mut answers, counts)?;
                group.test_filters(counts)?;
            }
            group.aside.read(threads.values, &mut answers, counts)?;
            // At most one key of a group is sampled.
            group.sampled.take().into_iter().for_each(samples.finish);
        }
    }
    assert_eq!(answers.len(), keys.len(), "one answer for each key");
    counts.found += answers.iter().flatten().count() as u64;
    Ok(answers.into_iter().map(|value| value.map(Slice::from_value)).collect())
}

struct Group<'a> {
    view: &'a View,
    settings: &'a LookupSettings<'a>,
    seq: SeqNo,
    asked: Vec<Asked<'a>>,
    /// Of all keys, in their order.
    candidates: Vec<Candidate<'a>>,
    pending: Vec<Pending<'a>>,
    /// The entries found whose values are in value files.
    aside: Aside<'a>,
    /// The sample of the sampled key, once the tree has answered it.
    sampled: Option<Sampler>,
}

impl<'a> Group<'a> {
    /// The lookup of one key.
    #[inline(always)]
    fn lookup(&self, asked: &Asked<'a>) -> Lookup<'a> {
        let (Self { view, settings, seq, .. }, Asked { key, digest, .. }) = (self, asked);
        Lookup { view, settings, key, digest: *digest, seq: *seq, mode: ValueMode::Copy }
    }

    /// Computes the digests and prefetches the first lines that the memtables read.
    fn begin<K: AsRef<[u8]>>(&mut self, keys: &'a [K], first_place: usize, counts: &mut LookupCounts) {
        debug_assert!(keys.len() <= GROUP, "a group of {} keys", keys.len());
        debug_assert!(self.pending.is_empty(), "{} keys of the group before are left", self.pending.len());
        self.asked.clear();
        self.candidates.clear();
        counts.lookups += keys.len() as u64;
        let (asked, digest) = (&mut self.asked, self.settings.digest);
        self.settings.hashing(counts, || {
            asked.extend(keys.iter().enumerate().map(|(number, key)| {
                let key = key.as_ref();
                Asked { key, digest: digest.digest(key), place: first_place + number, from: 0 }
            }));
        });
        if self.settings.prefetch {
            for memtable in self.view.memtables.iter().filter(|memtable| memtable.entries() > 0) {
                self.asked.iter().for_each(|asked| memtable.prefetch(asked.digest));
            }
        }
    }

    /// Searches the memtables. Keys that are answered leave the group.
    fn ask_memtables(&mut self, answers: &mut [Option<Value>], counts: &mut LookupCounts) -> Result<()> {
        if self.view.memtables.iter().all(|memtable| memtable.entries() == 0) {
            return Ok(());
        }
        let mut failed = None;
        let mut all = std::mem::take(&mut self.asked);
        all.retain(|asked| {
            let lookup = self.lookup(asked);
            let Some((entry, memtable)) = lookup.in_memtables(counts, &mut Silent) else {
                return true;
            };
            let floor = lookup.floor(&mut Silent);
            let home = Home::Memtable(memtable);
            match lookup.visible_above(entry, floor, home, None, counts, &mut Silent) {
                Ok(value) => answers[asked.place] = value,
                Err(error) => failed = Some(error),
            }
            false
        });
        self.asked = all;
        failed.map_or(Ok(()), Err)
    }

    /// Collects the candidates of every key and prefetches their filter lines.
    fn gather(&mut self) -> Result<()> {
        for at in 0..self.asked.len() {
            let Some(asked) = self.asked.get_mut(at) else { break };
            asked.from = self.candidates.len();
            let (key, digest) = (asked.key, asked.digest);
            let lookup = self.lookup(&Asked { key, digest, place: 0, from: 0 });
            lookup.prefetch_record();
            let places = self.view.places(key);
            for (at, plan) in self.view.plans().iter().enumerate() {
                let number = places.number(at, plan, key);
                if let Some(candidate) = lookup.candidate(plan, number, &mut Silent)? {
                    self.candidates.push(candidate);
                }
            }
        }
        Ok(())
    }

    /// Tests the filters of every key up to its first "maybe". Keys that have one become pending.
    /// The key at place `sampled` is sampled.
    fn test_first(&mut self, sampled: Option<usize>, counts: &mut LookupCounts) -> Result<()> {
        let mut pending = std::mem::take(&mut self.pending);
        let ends = self.asked.iter().skip(1).map(|next| next.from).chain([self.candidates.len()]);
        for (asked, to) in self.asked.iter().zip(ends) {
            debug_assert!(asked.from <= to, "candidates {} to {to}", asked.from);
            let lookup = self.lookup(asked);
            let mut walk = Walk { from: asked.from, to, consulted: 0 };
            let mut sampler = (sampled == Some(asked.place)).then(Sampler::default);
            let verdict = walk.next_maybe(&lookup, &self.candidates, sampler.as_mut(), counts)?;
            let Some(verdict) = verdict else {
                self.sampled = sampler.or(self.sampled);
                continue;
            };
            if pending.is_empty() {
                pending.reserve(self.asked.len());
            }
            pending.push(Pending {
                floor: lookup.floor(&mut Silent),
                lookup,
                place: asked.place,
                walk,
                verdict,
                block: None,
                loaded: None,
                state: BlockState::Cached,
                is_wanted: false,
                sampler,
            });
        }
        self.pending = pending;
        Ok(())
    }

    /// Asks the record cache for the keys that a table may hold. Keys that it answers leave the
    /// group.
    fn ask_records(&mut self, answers: &mut [Option<Value>]) -> Result<()> {
        let mut failed = None;
        let sampled = &mut self.sampled;
        self.pending.retain_mut(|pending| {
            let Some(access) = pending.lookup.settings.records else { return true };
            let lookup = pending.lookup;
            let cached = match &mut pending.sampler {
                None => lookup.ask_records(access, pending.floor, &mut Silent),
                Some(sampler) => lookup.ask_records(access, pending.floor, sampler),
            };
            match cached {
                Cached::Value { kind, value, .. } => match lookup.unexpired(kind, value, &mut Silent) {
                    Ok(value) => answers[pending.place] = value,
                    Err(error) => failed = Some(error),
                },
                Cached::Absent { .. } => {}
                Cached::Unknown { is_wanted } => {
                    pending.is_wanted = is_wanted;
                    return true;
                }
            }
            *sampled = pending.sampler.or(*sampled);
            false
        });
        failed.map_or(Ok(()), Err)
    }

    /// Moves every key to its next candidate that may hold it. Keys without one leave the group.
    fn test_filters(&mut self, counts: &mut LookupCounts) -> Result<()> {
        let (candidates, sampled) = (&self.candidates, &mut self.sampled);
        let mut failed = None;
        self.pending.retain_mut(|pending| match pending.advance(candidates, counts) {
            Ok(true) => true,
            Ok(false) => {
                if pending.is_wanted {
                    pending.lookup.write_record(None, pending.floor, pending.reads());
                }
                *sampled = pending.sampler.or(*sampled);
                false
            }
            Err(error) => {
                failed = Some(error);
                false
            }
        });
        failed.map_or(Ok(()), Err)
    }

    /// Locates every key's block in its present candidate, and prefetches it if it is cached. Index
    /// partitions that are not in memory are read together.
    fn locate(&mut self, reads: Option<&ReadPool>, counts: &mut LookupCounts) -> Result<()> {
        let mut unlocated = Unlocated::default();
        for (place, pending) in self.pending.iter_mut().enumerate() {
            debug_assert!(
                pending.walk.from < pending.walk.to && pending.walk.to <= self.candidates.len(),
                "a key waits at candidate {} of {} to {}",
                pending.walk.from,
                pending.walk.to,
                self.candidates.len()
            );
            debug_assert!(pending.verdict != Verdict::No, "a table is searched that cannot hold the key");
            let Some(candidate) = self.candidates.get(pending.walk.from) else { continue };
            let Lookup { key, seq, .. } = pending.lookup;
            let mut io = pending.lookup.read_counters();
            let found = candidate.reader().find(key, seq, &mut io);
            counts.add_reads(&io);
            match found? {
                Find::At(located) => pending.begin_search(candidate, Some(located)),
                Find::Beyond => pending.begin_search(candidate, None),
                Find::Absent(partition) => unlocated.add(place, candidate.reader(), partition),
            }
        }
        if unlocated.is_empty() {
            return Ok(());
        }
        let begin_ns = self.settings.now_ns();
        let (mut io, mut located) = (ReadCounters::default(), Vec::with_capacity(GROUP));
        let key_at = |place: usize| self.pending.get(place).map_or(&[][..], |pending| pending.lookup.key);
        let read = unlocated.locate(reads, key_at, self.seq, &mut io, |place, block| {
            located.push((place, block));
        });
        if self.settings.timer.is_some() {
            // The time of the step, however many reads were made at the same time.
            io.timed = true;
            io.index_ns = self.settings.elapsed_ns(begin_ns, self.settings.now_ns());
            io.timer_ns = 2 * self.settings.clock_read_ns();
        }
        counts.add_reads(&io);
        for (place, block) in located {
            let Some(pending) = self.pending.get_mut(place) else { continue };
            if let Some(candidate) = self.candidates.get(pending.walk.from) {
                pending.begin_search(candidate, Some(block));
            }
        }
        read
    }

    /// Reads the blocks that are not cached in parallel. A block that cannot be read now causes an
    /// error later, when the key's search reads it again.
    fn load_cold(&mut self, reads: &ReadPool, counts: &mut LookupCounts) {
        let is_cold = |pending: &Pending<'_>| pending.state == BlockState::Cold;
        if self.pending.iter().filter(|pending| is_cold(pending)).count() < 2 {
            return;
        }
        let mut unread = Unread::default();
        for (place, pending) in self.pending.iter_mut().enumerate().filter(|(_, pending)| is_cold(pending)) {
            let candidate = self.candidates.get(pending.walk.from);
            let Some((reader, located)) = candidate.map(Candidate::reader).zip(pending.block) else {
                continue;
            };
            if unread.add(place, reader, located) {
                pending.state = BlockState::Loaded;
            }
        }
        let mut io = ReadCounters::default();
        unread.load(reads, &mut io, |place, block| {
            if let Some(pending) = self.pending.get_mut(place) {
                pending.loaded = Some(block);
            }
        });
        counts.add_reads(&io);
    }

    /// Prefetches the entries that the searches will read; the tags of the blocks have arrived by
    /// now.
    fn ask_for_entries(&self) {
        let cached = self.pending.iter().filter(|pending| pending.state == BlockState::Cached);
        for pending in cached.filter(|pending| pending.lookup.settings.prefetch) {
            if let (Some(candidate), Some(block)) = (self.candidates.get(pending.walk.from), &pending.block) {
                candidate.reader().prefetch_entry(block, pending.lookup.digest);
            }
        }
    }

    /// Searches every key's block. Keys with an answer leave the group; the others go to their next
    /// candidate.
    fn search(&mut self, answers: &mut [Option<Value>], counts: &mut LookupCounts) -> Result<()> {
        let mut failed = None;
        let (sampled, aside) = (&mut self.sampled, &mut self.aside);
        self.pending.retain_mut(|pending| {
            let Some(candidate) = self.candidates.get(pending.walk.from) else { return false };
            match pending.search(candidate, counts) {
                Ok(Some(entry)) => {
                    if pending.is_wanted {
                        pending.lookup.write_record(Some(&entry), pending.floor, pending.reads());
                    }
                    *sampled = pending.sampler.or(*sampled);
                    let (floor, home) = (pending.floor, candidate.home());
                    if entry.kind.in_value_file() && entry.seq > floor {
                        let reads = pending.is_wanted.then(|| pending.reads());
                        let asked = (pending.lookup, pending.place);
                        failed = aside.add(asked, (entry, home), reads).err().or(failed.take());
                        return false;
                    }
                    // As if nothing had been read for it but the block at hand.
                    let reads = counts.searching_reads().saturating_sub(pending.reads());
                    let reads_before = pending.is_wanted.then_some(reads);
                    let lookup = pending.lookup;
                    match lookup.visible_above(entry, floor, home, reads_before, counts, &mut Silent) {
                        Ok(value) => answers[pending.place] = value,
                        Err(error) => failed = Some(error),
                    }
                    false
                }
                Ok(None) => {
                    debug_assert!(
                        pending.walk.from < pending.walk.to,
                        "a search beyond the key's candidates"
                    );
                    pending.walk.from += 1;
                    true
                }
                Err(error) => {
                    failed = Some(error);
                    false
                }
            }
        });
        failed.map_or(Ok(()), Err)
    }
}

impl Pending<'_> {
    /// Reads of the present candidate's block: one, or none if the block was cached.
    fn reads(&self) -> u64 {
        u64::from(self.state != BlockState::Cached)
    }

    /// Takes `located` as the present candidate's block, and prefetches it if it is cached.
    fn begin_search(&mut self, candidate: &Candidate<'_>, located: Option<Located>) {
        let is_cold = located.as_ref().is_some_and(|block| !candidate.reader().prefetch_block(block));
        self.block = located;
        self.loaded = None;
        self.state = if is_cold { BlockState::Cold } else { BlockState::Cached };
    }

    /// Searches the present candidate's block.
    fn search(&mut self, candidate: &Candidate<'_>, counts: &mut LookupCounts) -> Result<Option<Entry>> {
        let mut io = self.lookup.read_counters();
        let found = match (&self.loaded, self.block) {
            (Some(loaded), Some(located)) => self.lookup.search_loaded(candidate, loaded, located, &mut io),
            (_, located) => self.lookup.search_block(candidate, located, &mut io),
        };
        debug_assert!(
            self.state == BlockState::Loaded || self.loaded.is_none() || self.state == BlockState::Cold,
            "a cached block was read"
        );
        if self.state == BlockState::Loaded {
            // The read that filled the cache has been counted as a read.
            io.cache_hits = io.cache_hits.saturating_sub(1);
        }
        counts.add_reads(&io);
        let entry = found?;
        counts.false_positives += u64::from(entry.is_none() && self.verdict == Verdict::Maybe);
        if let Some(sampler) = &mut self.sampler {
            if let Some(located) = &self.block {
                sampler.partition(candidate.reader(), located.partition());
            }
            candidate.tell(self.verdict, entry.is_some(), sampler);
        }
        Ok(entry)
    }

    /// Moves to the next candidate that may hold the key; false if there is none.
    fn advance(&mut self, candidates: &[Candidate<'_>], counts: &mut LookupCounts) -> Result<bool> {
        let verdict = self.walk.next_maybe(&self.lookup, candidates, self.sampler.as_mut(), counts)?;
        self.verdict = verdict.unwrap_or(Verdict::No);
        Ok(verdict.is_some())
    }
}

impl Walk {
    /// Moves to the next candidate that may hold the key, and returns what its filter said; `None`
    /// if there is none.
    #[inline(always)]
    fn next_maybe(
        &mut self,
        lookup: &Lookup<'_>,
        candidates: &[Candidate<'_>],
        mut sampler: Option<&mut Sampler>,
        counts: &mut LookupCounts,
    ) -> Result<Option<Verdict>> {
        let own = candidates.get(self.from..self.to).unwrap_or_default();
        for candidate in own {
            let verdict = match &mut sampler {
                None => lookup.may_be_in(candidate, &mut self.consulted, counts, &mut Silent)?,
                Some(sampler) => lookup.may_be_in(candidate, &mut self.consulted, counts, *sampler)?,
            };
            if verdict != Verdict::No {
                return Ok(Some(verdict));
            }
            self.from += 1;
        }
        Ok(None)
    }
}
