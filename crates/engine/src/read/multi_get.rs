//! Many keys at once: the phases of a lookup, each for a whole group before the next.
//!
//! A single lookup waits for one line of memory after another: the memtable's index, a filter, an index, a
//! block. Here all keys of a group ask for theirs before the first is looked at, so that a group waits about
//! as long as one key does alone. What is asked, counted and found is what single lookups would.
//!
//! Phases: digests, and the memtables' lines; memtables; candidates of all runs, and their filter lines; filter
//! tests, newest first, each key up to its first "maybe"; searches. A key whose search was in vain goes on alone.
//!
//! Not here: the steps themselves ([`super::get`]).

use shamba_key::SeqNo;
use shamba_table::Value;

use super::explain::Silent;
use super::get::{Candidate, Home, Lookup, LookupSettings, visible_above};
use crate::error::Result;
use crate::metrics::LookupCounts;
use crate::planted::{Defect, is_planted};
use crate::slice::Slice;
use crate::view::View;

/// Keys of a group: 32 overlap about all that the processor can; 64 gain nothing more.
const GROUP: usize = 32;

/// How far one key of a group is.
struct Pending<'a> {
    lookup: Lookup<'a>,
    /// Entries at or below it are gone.
    floor: SeqNo,
    /// Its place among the answers.
    place: usize,
    /// The candidates that are still to be asked, in the group's list.
    from: usize,
    to: usize,
    /// Filters tested.
    consulted: u64,
}

/// The values of `keys` in `view` at `seq`, in their order.
pub(super) fn multi_get<K: AsRef<[u8]>>(
    view: &View,
    settings: LookupSettings<'_>,
    seq: SeqNo,
    keys: &[K],
    counts: &mut LookupCounts,
) -> Result<Vec<Option<Slice>>> {
    let mut answers = Vec::with_capacity(keys.len());
    let mut group = Group { pending: Vec::with_capacity(GROUP), candidates: Vec::new() };
    for keys in keys.chunks(GROUP) {
        group.begin(view, settings, seq, keys, answers.len(), counts);
        answers.resize_with(answers.len() + keys.len(), || None);
        group.ask_memtables(&mut answers, counts)?;
        group.gather(view)?;
        group.test_filters(counts);
        group.search(&mut answers, counts)?;
    }
    counts.found += answers.iter().flatten().count() as u64;
    Ok(answers.into_iter().map(|value| value.map(Slice::from_value)).collect())
}

struct Group<'a> {
    pending: Vec<Pending<'a>>,
    candidates: Vec<Candidate<'a>>,
}

impl<'a> Group<'a> {
    /// Digests, and the lines at which memtables look first.
    fn begin<K: AsRef<[u8]>>(
        &mut self,
        view: &'a View,
        settings: LookupSettings<'a>,
        seq: SeqNo,
        keys: &'a [K],
        first_place: usize,
        counts: &mut LookupCounts,
    ) {
        self.pending.clear();
        self.candidates.clear();
        counts.lookups += keys.len() as u64;
        let begin_ns = settings.now_ns();
        for (number, key) in keys.iter().enumerate() {
            let key = key.as_ref();
            let digest = settings.digest.digest(key);
            if is_planted(Defect::SecondHash) {
                let _ = settings.digest.digest(key);
            }
            let lookup = Lookup { view, settings, key, digest, seq };
            let place = first_place + number;
            self.pending.push(Pending { lookup, floor: SeqNo::ZERO, place, from: 0, to: 0, consulted: 0 });
        }
        counts.hash_ns += settings.now_ns().saturating_sub(begin_ns);
        if settings.prefetch {
            for memtable in view.memtables.iter().filter(|memtable| memtable.entries() > 0) {
                self.pending.iter().for_each(|pending| memtable.prefetch(pending.lookup.digest));
            }
        }
    }

    /// Keys that a memtable answers leave the group.
    fn ask_memtables(&mut self, answers: &mut [Option<Value>], counts: &mut LookupCounts) -> Result<()> {
        let mut failed = None;
        self.pending.retain_mut(|pending| {
            pending.floor = pending.lookup.floor(&mut Silent);
            let Some(entry) = pending.lookup.in_memtables(counts, &mut Silent) else { return true };
            match visible_above(entry, pending.floor, Home::Memtable) {
                Ok(value) => answers[pending.place] = value,
                Err(error) => failed = Some(error),
            }
            false
        });
        failed.map_or(Ok(()), Err)
    }

    /// The candidates of every key, their filter lines asked for.
    fn gather(&mut self, view: &'a View) -> Result<()> {
        for pending in &mut self.pending {
            pending.from = self.candidates.len();
            for plan in view.plans() {
                self.candidates.extend(pending.lookup.candidate(plan, &mut Silent)?);
            }
            pending.to = self.candidates.len();
        }
        Ok(())
    }

    /// Takes every key to its first candidate that may hold it; keys without one leave the group.
    fn test_filters(&mut self, counts: &mut LookupCounts) {
        let candidates = &self.candidates;
        self.pending.retain_mut(|pending| pending.advance(candidates, counts));
    }

    fn search(&mut self, answers: &mut [Option<Value>], counts: &mut LookupCounts) -> Result<()> {
        for pending in &mut self.pending {
            loop {
                let found = match self.candidates.get(pending.from) {
                    Some(candidate) => pending
                        .lookup
                        .search(candidate, counts, &mut Silent)?
                        .map(|entry| (entry, candidate.home())),
                    None => None,
                };
                if let Some((entry, home)) = found {
                    answers[pending.place] = visible_above(entry, pending.floor, home)?;
                    break;
                }
                pending.from += 1;
                if !pending.advance(&self.candidates, counts) {
                    break;
                }
            }
        }
        Ok(())
    }
}

impl Pending<'_> {
    /// Goes on, from where it is, to a candidate that may hold the key; false if there is none.
    fn advance(&mut self, candidates: &[Candidate<'_>], counts: &mut LookupCounts) -> bool {
        while let Some(candidate) = candidates.get(self.from).filter(|_| self.from < self.to) {
            if self.lookup.may_be_in(candidate, &mut self.consulted, counts, &mut Silent) {
                return true;
            }
            self.from += 1;
        }
        false
    }
}
