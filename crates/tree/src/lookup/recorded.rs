//! The record cache in a lookup: the question to it, and the record of what the tables hold.
//!
//! Not here: when a lookup asks ([`super::get`], [`super::multi_get`]); which records a reader may
//! use and write ([`crate::records`]).

use shamba_key::{EntryKind, SeqNo};
use shamba_table::{Entry, ValueMode};

use super::explain::{Recorder, Step};
use super::get::Lookup;
use crate::records::{Cached, RecordAccess};

impl Lookup<'_> {
    /// Prefetches what the question to the record cache reads first.
    #[inline]
    pub fn prefetch_record(&self) {
        if self.settings.prefetch {
            if let Some(access) = &self.settings.records {
                access.prefetch(self.digest);
            }
        }
    }

    /// Asks the record cache for the newest entry of the key in the tables. A reader whose time is
    /// that of an earlier answer uses no record that may be of a later time.
    #[inline(never)] // Absent keys do not get here.
    pub fn ask_records<R: Recorder>(
        &self,
        access: RecordAccess<'_>,
        floor: SeqNo,
        recorder: &mut R,
    ) -> Cached {
        let cached = access.ask(self.view.keyspace, self.digest, self.key, (self.seq, floor));
        if self.settings.time.is_behind() {
            return Cached::Unknown { is_wanted: false };
        }
        let found = match &cached {
            Cached::Value { .. } => true,
            Cached::Absent { seq, .. } => *seq > SeqNo::ZERO,
            Cached::Unknown { .. } => return cached,
        };
        recorder.recorded(found);
        recorder.step(|| Step::record(&cached));
        cached
    }

    /// Writes the record of the key, for which the tables hold this entry, or none. Only what does
    /// not depend on a range tombstone is written: the tombstone would have to outlive the record.
    /// The search took this many `reads`.
    #[inline(never)]
    pub fn write_record(&self, entry: Option<&Entry>, floor: SeqNo, reads: u64) {
        let Some(access) = self.settings.records else { return };
        let write = |seq, put: Option<(EntryKind, &[u8])>| {
            access.write(self.view.keyspace, (self.digest, self.key), (seq, put), reads);
        };
        match entry {
            None if floor == SeqNo::ZERO => write(SeqNo::ZERO, None),
            Some(entry) if entry.seq > floor => match entry.kind {
                EntryKind::Put | EntryKind::PutWithExpiry if self.mode != ValueMode::Absent => {
                    write(entry.seq, Some((entry.kind, &entry.value)));
                }
                EntryKind::Delete => write(entry.seq, None),
                // Large values stay where they are. Operands make a record once they are folded,
                // values in value files once they are read.
                _ => {}
            },
            _ => {}
        }
    }

    /// Writes the record of the key, for which the entries of the tables make a put of this
    /// sequence number, kind and payload: that of the newest operand, or one whose value is in a
    /// value file.
    pub(super) fn write_put(&self, (seq, kind): (SeqNo, EntryKind), payload: &[u8], reads: u64) {
        let Some(access) = self.settings.records else { return };
        debug_assert!(kind.is_put() && !kind.is_large(), "a record of the kind {kind:?}");
        access.write(self.view.keyspace, (self.digest, self.key), (seq, Some((kind, payload))), reads);
    }
}
