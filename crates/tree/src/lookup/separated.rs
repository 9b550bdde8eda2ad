//! Lookups of values that are in value files.
//!
//! Such a value takes one read more than the search for its entry, of exactly its stored bytes
//! unless it is long. Nothing is read for an entry that has expired, or if only the key's existence
//! is wanted. A value that is short enough for the record cache is recorded like that of a put in a
//! table: a record saves the read of the value as well.
//!
//! Not here: the values of many keys at once ([`super::multi_get`]).

use std::sync::Arc;

use shamba_key::Expiry;
use shamba_table::{Entry, Reads, Value, ValueFile, ValueFileRef, ValueMode};

use super::explain::{Recorder, Step};
use super::get::{Home, Lookup};
use crate::counters::LookupCounts;
use crate::error::{Error, Result};

impl Lookup<'_> {
    /// The value of an entry whose value is in a value file, unless it has expired. `reads_before`
    /// as in [`Self::visible_above`].
    #[inline(never)] // Not in the code of lookups of other entries.
    pub(super) fn separated<R: Recorder>(
        &self,
        entry: &Entry,
        home: Home<'_>,
        reads_before: Option<u64>,
        counts: &mut LookupCounts,
        recorder: &mut R,
    ) -> Result<Option<Value>> {
        if entry.kind.has_expiry() && self.has_expired(entry.kind, &entry.value, recorder)? {
            return Ok(None);
        }
        if self.mode == ValueMode::Absent {
            return Ok(Some(Value::default()));
        }
        let (file, reference) = home.separated(entry)?;
        let begin_ns = if R::RECORDS { self.settings.now_ns() } else { 0 };
        let mut cost = Reads::default();
        let payload = file.read(reference, &mut cost);
        counts.add_value_reads(cost);
        let payload = Value::from(payload?);
        recorder.step(|| {
            let ns = self.settings.now_ns().saturating_sub(begin_ns);
            Step::value(reference, cost.count, ns)
        });
        let reads = reads_before.map(|before| counts.searching_reads() - before + cost.count);
        Ok(Some(self.value_of(entry, payload, reads)))
    }

    /// The value of an entry whose payload was read from a value file. Writes its record if it took
    /// `reads`, and is worth one.
    pub(super) fn value_of(&self, entry: &Entry, payload: Value, reads: Option<u64>) -> Value {
        if let Some(reads) = reads {
            self.write_put((entry.seq, entry.kind.whole()), &payload, reads);
        }
        if !entry.kind.has_expiry() {
            return payload;
        }
        payload.without_start(Expiry::STORED_BYTES)
    }
}

impl<'a> Home<'a> {
    /// The place of the value of an entry that was found here, and whose value is in a value file.
    pub(super) fn separated(self, entry: &Entry) -> Result<(&'a Arc<ValueFile>, ValueFileRef)> {
        let found = match self {
            Self::Table(reader) => reader.separated(entry.kind, &entry.value)?,
            Self::Memtable(_) => None,
        };
        found.ok_or_else(|| Error::invalid("a value in a value file, of a source that has none"))
    }
}

#[cfg(test)]
mod tests;
