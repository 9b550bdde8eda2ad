//! Entries of a group of keys whose values are in value files: set aside when they are found, and
//! read together once the search for all keys of the group has ended.
//!
//! So values that lie close together take one read, and the others are read in parallel where reads
//! are slow ([`super::value_reads`]).

use shamba_table::{Entry, Value};

use super::explain::Silent;
use super::get::{Home, Lookup};
use super::pool::ReadPool;
use super::value_reads::{ReadValues, WantedValue, read_values};
use crate::counters::LookupCounts;
use crate::error::Result;

/// The entries that were set aside.
#[derive(Default)]
pub(super) struct Aside<'a> {
    found: Vec<Found<'a>>,
    wanted: Vec<WantedValue>,
}

/// An entry that its reader sees.
struct Found<'a> {
    lookup: Lookup<'a>,
    /// Its position among the answers.
    place: usize,
    entry: Entry,
    /// If set, it is worth a record in the record cache, and this many reads found it.
    reads: Option<u64>,
}

impl<'a> Aside<'a> {
    /// Sets an entry aside that no range tombstone hides, unless it has expired. `reads` is set if
    /// it is worth a record: the number of reads that found it.
    #[cold]
    pub(super) fn add(
        &mut self,
        (lookup, place): (Lookup<'a>, usize),
        (entry, home): (Entry, Home<'_>),
        reads: Option<u64>,
    ) -> Result<()> {
        debug_assert!(entry.kind.in_value_file(), "an entry of kind {:?} is set aside", entry.kind);
        if entry.kind.has_expiry() && lookup.has_expired(entry.kind, &entry.value, &mut Silent)? {
            return Ok(());
        }
        let (file, reference) = home.separated(&entry)?;
        self.wanted.push(WantedValue { file: file.clone(), reference });
        self.found.push(Found { lookup, place, entry, reads });
        Ok(())
    }

    /// Reads the values of all entries into their places among the answers.
    pub(super) fn read(
        &mut self,
        pool: Option<&ReadPool>,
        answers: &mut [Option<Value>],
        counts: &mut LookupCounts,
    ) -> Result<()> {
        if self.found.is_empty() {
            return Ok(());
        }
        let ReadValues { payloads, cost, .. } = read_values(std::mem::take(&mut self.wanted), pool);
        counts.add_value_reads(cost);
        debug_assert_eq!(payloads.len(), self.found.len(), "one payload for each entry");
        for (Found { lookup, place, entry, reads }, payload) in self.found.drain(..).zip(payloads) {
            // The value takes one read, even if others were read with it.
            let reads = reads.map(|reads| reads + 1);
            let value = lookup.value_of(&entry, payload?.into_value(), reads);
            if let Some(answer) = answers.get_mut(place) {
                *answer = Some(value);
            }
        }
        Ok(())
    }
}
