//! A lookup that meets an operand of a merge operator: collects the operands below it and folds
//! them ([`crate::merging`]).
//!
//! It walks the versions of the key once more, from the newest on, through the memtables and then
//! the tables. A long chain in a memtable ends at a folded value that an earlier reader has left;
//! this one leaves its own. Below the memtables the record cache may have the value of the tables,
//! and is given it.

use shamba_key::{EntryKind, SeqNo};
use shamba_memtable::Memtable;
use shamba_table::{Entry, Value, ValueMode};

use super::candidate::Verdict;
use super::explain::{Recorder, Step};
use super::get::{Home, Lookup};
use crate::counters::LookupCounts;
use crate::error::Result;
use crate::merging::chain::{Chain, Link};
use crate::records::Cached;

/// How a chain ended, or did not.
enum Found {
    /// The chain goes on in older places.
    More,
    /// It ended at this value, or without one.
    Base(Option<Value>),
}

impl Lookup<'_> {
    /// The value of the key, whose newest visible entry is an operand. `reads_before` is set if the
    /// value that the tables make is worth a record: the reads before the search for it.
    #[cold]
    #[inline(never)]
    pub(super) fn fold<R: Recorder>(
        &self,
        floor: SeqNo,
        reads_before: Option<u64>,
        counts: &mut LookupCounts,
        recorder: &mut R,
    ) -> Result<Option<Value>> {
        if self.mode == ValueMode::Absent {
            // An operator always makes a value.
            return Ok(Some(Value::default()));
        }
        let mut chain = Chain::default();
        let mut base = Found::More;
        for memtable in self.view.memtables.iter().filter(|memtable| memtable.entries() > 0) {
            base = self.walk_memtable(memtable.as_ref(), floor, &mut chain, counts)?;
            if matches!(base, Found::Base(_)) {
                break;
            }
        }
        let in_memtables = chain.len();
        if matches!(base, Found::More) {
            base = self.walk_tables(floor, &mut chain, counts, recorder)?;
        }
        let base = match base {
            Found::Base(base) => base,
            Found::More => None,
        };
        let merging = self.view.merging();
        let value = chain.fold(merging, self.key, base.as_deref())?;
        recorder.step(|| Step::folded(chain.len(), base.is_some(), merging));
        if let (Some(newest), Some(memtable)) = (chain.newest(), self.view.memtables.first()) {
            if chain.is_long() && in_memtables > 0 {
                memtable.folded().set(self.key, newest, &value);
            }
            if let (0, Some(before)) = (in_memtables, reads_before) {
                self.write_folded(newest, &value, counts.searching_reads() - before);
            }
        }
        Ok(Some(Value::from_bytes(value)))
    }

    /// Offers the versions in a memtable to the chain.
    fn walk_memtable(
        &self,
        memtable: &dyn Memtable,
        floor: SeqNo,
        chain: &mut Chain,
        counts: &mut LookupCounts,
    ) -> Result<Found> {
        let mut folded = None;
        let mut outcome = Ok((Link::Operand, None));
        memtable.versions(self.digest, self.key, self.seq, &mut |entry: Entry| {
            if chain.is_long() && folded.is_none() {
                folded = Some(self.folded(floor));
            }
            if let Some(Some((seq, value))) = &folded {
                if entry.seq <= *seq {
                    chain.cut_at(*seq);
                    let entry = Entry { seq: *seq, kind: EntryKind::Put, value: value.clone() };
                    outcome = Ok((Link::Base, Some(entry)));
                    return false;
                }
            }
            let offered = chain.offer((entry.seq, entry.kind), &entry.value, floor);
            let goes_on = matches!(offered, Ok(Link::Operand));
            outcome = offered.map(|link| (link, Some(entry)));
            goes_on
        });
        match outcome? {
            (Link::Base, Some(entry)) => self.base(entry, Home::Memtable(memtable), counts),
            (Link::NoBase, _) => Ok(Found::Base(None)),
            _ => Ok(Found::More),
        }
    }

    /// The newest folded value that an earlier reader has left for a reader at this sequence
    /// number.
    fn folded(&self, floor: SeqNo) -> Option<(SeqNo, Value)> {
        let memtables = self.view.memtables.iter();
        let mut values = memtables.filter_map(|memtable| memtable.folded().get(self.key));
        let (seq, value) = values.find(|(seq, _)| *seq <= self.seq && *seq > floor)?;
        Some((seq, Value::from_bytes(value)))
    }

    /// Offers the versions in the tables to the chain.
    fn walk_tables<R: Recorder>(
        &self,
        floor: SeqNo,
        chain: &mut Chain,
        counts: &mut LookupCounts,
        recorder: &mut R,
    ) -> Result<Found> {
        if let (Some(access), true) = (self.settings.records, chain.len() > 0) {
            match self.ask_records(access, floor, recorder) {
                Cached::Value { value, .. } => return Ok(Found::Base(Some(value))),
                Cached::Absent { .. } => return Ok(Found::Base(None)),
                Cached::Unknown { .. } => {}
            }
        }
        let places = self.view.places(self.key);
        // The key's digest was computed: filters of a database that shares none hash again.
        let mut consulted = 1;
        for (at, plan) in self.view.plans().iter().enumerate() {
            let number = places.number(at, plan, self.key);
            let Some(candidate) = self.candidate(plan, number, recorder)? else { continue };
            let mut verdict = self.may_be_in(&candidate, &mut consulted, counts, recorder)?;
            if verdict == Verdict::No {
                continue;
            }
            loop {
                let seq = match (chain.len(), chain.next_seq()) {
                    (0, _) => self.seq,
                    (_, Some(seq)) => seq,
                    // The oldest possible entry was taken.
                    (_, None) => return Ok(Found::Base(None)),
                };
                let older = Self { seq, ..*self };
                let Some(entry) = older.search(&candidate, verdict, counts, recorder)? else { break };
                match chain.offer((entry.seq, entry.kind), &entry.value, floor)? {
                    Link::Operand => {}
                    Link::Base => return self.base(entry, candidate.home(), counts),
                    Link::NoBase => return Ok(Found::Base(None)),
                }
                // Another search that finds nothing is no false positive of the filter.
                verdict = Verdict::Unasked;
            }
        }
        Ok(Found::Base(None))
    }

    /// The value of the put that ends the chain.
    fn base(&self, entry: Entry, home: Home<'_>, counts: &mut LookupCounts) -> Result<Found> {
        let value = match entry.kind {
            EntryKind::ValueRef => home.read_large(&entry.value, counts)?,
            _ => entry.value,
        };
        Ok(Found::Base(Some(value)))
    }
}
