//! A lookup that meets an operand of a merge operator: collects the operands below it and folds
//! them ([`crate::merging`]).
//!
//! It walks the versions of the key once more, from the newest on, through the memtables. A long
//! chain there ends at a folded value that an earlier lookup has left; this one leaves its own, in
//! the memtable of the newest operand. Otherwise the value of the tables is the base of the chain:
//! the record cache may have it, or else their operands are folded first, and it is given the
//! result.

use shamba_key::{EntryKind, Expiry, SeqNo};
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
    /// It ended at this base.
    Ended(Base),
}

/// The value that the operands of a chain apply to.
struct Base {
    /// `None` if there is none, or it was deleted or has expired.
    value: Option<Value>,
    /// Whether it has an expiry. The folded value then is right at this reader's time only.
    is_of_time: bool,
}

impl Base {
    const NOTHING: Self = Self { value: None, is_of_time: false };

    fn value(value: Value) -> Self {
        Self { value: Some(value), is_of_time: false }
    }
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
        // The memtable of the newest operand.
        let mut home: Option<&dyn Memtable> = None;
        for memtable in self.view.memtables.iter().filter(|memtable| memtable.entries() > 0) {
            base = self.walk_memtable(memtable.as_ref(), floor, &mut chain, (counts, recorder))?;
            home = home.or((chain.len() > 0).then_some(memtable.as_ref()));
            if matches!(base, Found::Ended(_)) {
                break;
            }
        }
        let base = match base {
            Found::Ended(base) => base,
            Found::More => self.below_memtables(&chain, floor, reads_before, counts, recorder)?,
        };
        let Base { value: base, is_of_time } = base;
        let Some(newest) = chain.newest() else { return Ok(base) };
        let merging = self.view.merging();
        let value = chain.fold(merging, self.key, base.as_deref())?;
        recorder.step(|| Step::folded(chain.len(), base.is_some(), merging));
        if let (true, Some(home)) = (chain.is_long() && !is_of_time, home) {
            // It goes with the operands: elsewhere it could meet them combined with newer ones.
            home.folded().set(self.key, newest, &value);
        }
        Ok(Some(Value::from_bytes(value)))
    }

    /// The value that the tables make of the key, below the operands of `chain`.
    fn below_memtables<R: Recorder>(
        &self,
        chain: &Chain,
        floor: SeqNo,
        mut reads_before: Option<u64>,
        counts: &mut LookupCounts,
        recorder: &mut R,
    ) -> Result<Base> {
        if let (Some(access), true) = (self.settings.records, chain.len() > 0) {
            match self.ask_records(access, floor, recorder) {
                Cached::Value { kind, value, .. } => {
                    let value = self.unexpired(kind, value, recorder)?;
                    return Ok(Base { value, is_of_time: kind.has_expiry() });
                }
                Cached::Absent { .. } => return Ok(Base::NOTHING),
                Cached::Unknown { is_wanted } => {
                    reads_before = is_wanted.then(|| counts.searching_reads());
                }
            }
        }
        let from = match (chain.len(), chain.next_seq()) {
            (0, _) => self.seq,
            (_, Some(seq)) => seq,
            // The oldest possible entry was taken.
            (_, None) => return Ok(Base::NOTHING),
        };
        // A chain of its own, so that the record cache can have what the tables hold.
        let mut tables = Chain::default();
        let base = Self { seq: from, ..*self }.walk_tables(floor, &mut tables, counts, recorder)?;
        let Some(newest) = tables.newest() else { return Ok(base) };
        let Base { value: base, is_of_time } = base;
        let merging = self.view.merging();
        let value = tables.fold(merging, self.key, base.as_deref())?;
        recorder.step(|| Step::folded(tables.len(), base.is_some(), merging));
        if let (Some(before), false) = (reads_before, is_of_time) {
            self.write_put((newest, EntryKind::Put), &value, counts.searching_reads() - before);
        }
        Ok(Base { value: Some(Value::from_bytes(value)), is_of_time })
    }

    /// Offers the versions in a memtable to the chain.
    fn walk_memtable<R: Recorder>(
        &self,
        memtable: &dyn Memtable,
        floor: SeqNo,
        chain: &mut Chain,
        (counts, recorder): (&mut LookupCounts, &mut R),
    ) -> Result<Found> {
        let mut folded = None;
        let mut outcome = Ok((Link::Operand, None));
        memtable.versions(self.digest, self.key, self.seq, &mut |entry: Entry| {
            if chain.is_long() && folded.is_none() {
                let left = self.view.folded(self.key, self.seq, floor);
                folded = Some(left.filter(|_| !self.settings.time.is_behind()));
            }
            if let Some(Some((seq, value))) = &folded {
                // Operands in memtables are single ones, so none is contained in part.
                if entry.seq <= *seq && chain.cut_at(*seq) {
                    let entry =
                        Entry { seq: *seq, kind: EntryKind::Put, value: Value::from_bytes(value.clone()) };
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
            (Link::Base, Some(entry)) => {
                self.base(entry, Home::Memtable(memtable), counts, recorder).map(Found::Ended)
            }
            (Link::NoBase, _) => Ok(Found::Ended(Base::NOTHING)),
            _ => Ok(Found::More),
        }
    }

    /// Offers the versions in the tables to the chain. Returns the value that ends it, if one does.
    fn walk_tables<R: Recorder>(
        &self,
        floor: SeqNo,
        chain: &mut Chain,
        counts: &mut LookupCounts,
        recorder: &mut R,
    ) -> Result<Base> {
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
                    (_, None) => return Ok(Base::NOTHING),
                };
                let older = Self { seq, ..*self };
                let Some(entry) = older.search(&candidate, verdict, counts, recorder)? else { break };
                match chain.offer((entry.seq, entry.kind), &entry.value, floor)? {
                    Link::Operand => {}
                    Link::Base => return self.base(entry, candidate.home(), counts, recorder),
                    Link::NoBase => return Ok(Base::NOTHING),
                }
                // Another search that finds nothing is no false positive of the filter.
                verdict = Verdict::Unasked;
            }
        }
        Ok(Base::NOTHING)
    }

    /// The base that the put which ends the chain is.
    fn base<R: Recorder>(
        &self,
        entry: Entry,
        home: Home<'_>,
        counts: &mut LookupCounts,
        recorder: &mut R,
    ) -> Result<Base> {
        let is_of_time = entry.kind.has_expiry();
        if is_of_time && self.has_expired(entry.kind, &entry.value, recorder)? {
            return Ok(Base { value: None, is_of_time });
        }
        let payload = match entry.kind {
            kind if kind.is_large() => home.read_large(kind, &entry.value, counts)?,
            _ => entry.value,
        };
        let expiry_bytes = if is_of_time { Expiry::STORED_BYTES } else { 0 };
        Ok(Base { is_of_time, ..Base::value(payload.without_start(expiry_bytes)) })
    }
}
