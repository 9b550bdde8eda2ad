//! The commit of a transaction: a batch under conditions, and the reading of new tables that may
//! hold a change.

use std::sync::Arc;

use bytes::Bytes;
use shamba_key::{KeyspaceId, SeqNo};

use super::writes::KeyspaceWrites;
use super::{Isolation, Transaction};
use crate::error::{Error, Result};
use crate::metrics::WorkCounters;
use crate::writer::WriteOptions;
use crate::writer::conditions::{Conditions, KeyRead, RangeRead};

/// Maximum number of attempts at a commit that meets a new table each time: a flush would have to
/// end during each of them.
const ROUNDS_MAX: u32 = 32;

impl Transaction {
    /// Commits, and returns a sequence number that is not before the writes.
    pub(super) fn commit_at(mut self, options: WriteOptions) -> Result<SeqNo> {
        let options = options.without_time_to_live("a transaction as a whole")?;
        if self.writes.is_empty() {
            // It has read one state, which is all that it promises.
            return Ok(self.snapshot.seq());
        }
        self.check_usable()?;
        let mut operations = self.writes.operations()?;
        let mut conditions = Arc::new(self.take_conditions());
        // The operations have their place in memory.
        self.writes.clear();
        let core = self.db().core();
        let work = core.telemetry.work();
        let mut rounds = 1;
        loop {
            match core.writer.commit_if(&mut operations, options, Some(&conditions)) {
                Err(error)
                    if rounds < ROUNDS_MAX
                        && error.conflict().is_some_and(|conflict| !conflict.is_proved) => {}
                outcome => {
                    WorkCounters::add(&work.transactions, u64::from(outcome.is_ok()));
                    return outcome;
                }
            }
            match core.writer.proved_conflict(&conditions)? {
                Ok(from_here_on) => conditions = Arc::new(from_here_on),
                Err(conflict) => return Err(Error::of_conflict(conflict)),
            }
            WorkCounters::add(&work.conflicts_disproved, 1);
            rounds += 1;
        }
    }

    /// Whether every keyspace that is written can still be used.
    fn check_usable(&self) -> Result<()> {
        let keyspaces = self.db().core().catalog.keyspaces();
        let is_gone = |(id, _): &(KeyspaceId, &KeyspaceWrites)| !keyspaces.contains_key(id);
        match self.writes.iter().find(is_gone) {
            None => Ok(()),
            Some((id, _)) => Err(Error::invalid(format!(
                "keyspace {id} was dropped after the transaction had written to it"
            ))),
        }
    }

    /// The keys and ranges that must be unchanged when the transaction commits. The reads are taken
    /// out of it.
    fn take_conditions(&mut self) -> Conditions {
        let reads = std::mem::take(&mut self.noted.lock().reads);
        let (mut keys, mut ranges) = reads.into_conditions();
        if self.options.isolation == Isolation::Snapshot {
            let digest = self.db().core().reads.digest();
            for (keyspace, writes) in self.writes.iter() {
                let read = |key: &Bytes| KeyRead { keyspace, digest: digest.digest(key), key: key.clone() };
                keys.extend(writes.replaced().map(read));
                ranges.extend(writes.deleted().iter().map(|range| RangeRead { keyspace, range }));
            }
        }
        Conditions { since: self.snapshot.seq(), until: None, keys, ranges }
    }
}
