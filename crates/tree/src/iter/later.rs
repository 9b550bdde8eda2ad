//! Values of a batch that are read once the batch is complete: those in value files.
//!
//! A scan does not read such a value when it finds the entry. It notes the reference, goes on, and
//! reads the values of all entries of the batch at once ([`crate::lookup::value_reads`]): adjacent
//! ones with one read, and the others in parallel where reads are slow. An entry whose value cannot
//! be read ends the batch before it.
//!
//! The bytes that one batch may wait for are limited, since a scan may end at any entry. The limit
//! grows from pass to pass ([`grown`]), as the number of entries does, while it pays to read more
//! values at once: some of them are adjacent, or reads are slow. Where each value is a read of its
//! own from the page cache, values that the scan does not come to are read in vain.
//!
//! Not here: the place of the values among the entries ([`super::batch`]).

use std::sync::Arc;

use shamba_table::{Error, Reads, ValueFile, ValueFileRef, Walk};

use crate::lookup::pool::ReadPool;
use crate::lookup::value_reads::{Payload, ReadValues, WantedValue, read_values};

/// Bytes for which the first passes of a scan wait. A value is read whatever its length.
const FIRST_BYTES: u64 = 16 << 10;

/// References to the values that the entries of a batch wait for, in the order of the entries.
#[derive(Default)]
pub struct Later {
    wanted: Vec<WantedValue>,
    /// For each, the bytes of its payload that are not part of the value.
    skips: Vec<u8>,
    /// Bytes of memory that all of them will take.
    bytes: u64,
    limit_bytes: u64,
}

/// Cost of reading values from value files.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct ValueCost {
    /// Number of values that were read.
    pub values: u64,
    /// The reads. Adjacent values are read with one.
    pub reads: Reads,
}

impl ValueCost {
    /// Whether values were adjacent, as far as is known: one value alone has no neighbours.
    pub fn is_joined(self) -> bool {
        self.values <= 1 || self.reads.count < self.values
    }

    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { values: self.values + other.values, reads: self.reads.plus(other.reads) }
    }
}

/// The values that were read.
pub struct Found {
    /// The values up to the first that could not be read, without their expiry.
    pub values: Vec<Payload>,
    /// Why the next one could not be read.
    pub error: Option<Error>,
    /// All reads, also those of values after the first that could not be read.
    pub cost: ValueCost,
    /// Bytes of memory that the values take.
    pub held_bytes: usize,
}

/// The limit of the next pass of a scan that goes on, after one of `bytes`; `None`: the scan
/// begins, or it does not pay to read more values at once. 0 reads the values one by one.
pub fn grown(bytes: Option<u64>, walk: Walk) -> u64 {
    let most = match walk {
        Walk::Parts { ahead_bytes, .. } => ahead_bytes,
        Walk::Whole { bytes } => bytes,
    };
    bytes.map_or(FIRST_BYTES, |bytes| bytes.saturating_mul(2)).min(most)
}

impl Later {
    /// Forgets all references. The next ones may have `limit_bytes`, and the one that exceeds it.
    pub fn begin(&mut self, limit_bytes: u64) {
        self.clear();
        self.limit_bytes = limit_bytes;
    }

    /// Forgets all references.
    pub fn clear(&mut self) {
        self.wanted.clear();
        self.skips.clear();
        self.bytes = 0;
    }

    /// Adds the value of the next entry, whose payload begins with `skip` bytes that are not part
    /// of the value.
    pub fn push(&mut self, file: Arc<ValueFile>, reference: ValueFileRef, skip: u8) {
        self.bytes = self.bytes.saturating_add(bytes_of(reference));
        self.wanted.push(WantedValue { file, reference });
        self.skips.push(skip);
        debug_assert_eq!(self.wanted.len(), self.skips.len(), "one for each value");
    }

    /// Removes the value of the last entry.
    pub fn pop(&mut self) {
        if let Some(WantedValue { reference, .. }) = self.wanted.pop() {
            self.bytes = self.bytes.saturating_sub(bytes_of(reference));
        }
        self.skips.pop();
    }

    /// Whether no more values should be added.
    pub fn is_full(&self) -> bool {
        self.bytes >= self.limit_bytes
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.wanted.is_empty()
    }

    /// Memory besides the struct itself, and that of the values once they are read.
    pub fn memory_bytes(&self) -> usize {
        let values_bytes = usize::try_from(self.bytes).unwrap_or(usize::MAX);
        let own_bytes = self.wanted.capacity() * size_of::<WantedValue>() + self.skips.capacity();
        own_bytes.saturating_add(values_bytes)
    }

    /// Reads the values; none are left to be read.
    pub fn read(&mut self, pool: Option<&ReadPool>) -> Found {
        let wanted = std::mem::take(&mut self.wanted);
        let ReadValues { payloads, cost: reads, held_bytes } = read_values(wanted, pool);
        let cost = ValueCost { values: payloads.len() as u64, reads };
        let mut found = Found { values: Vec::with_capacity(payloads.len()), error: None, cost, held_bytes };
        for (payload, skip) in payloads.into_iter().zip(&self.skips) {
            match payload {
                Ok(payload) => found.values.push(payload.without_start((*skip).into())),
                Err(error) => {
                    found.error = Some(error);
                    break;
                }
            }
        }
        self.clear();
        found
    }
}

/// Bytes of memory that a value takes while it is read, and once it is: it may be compressed.
fn bytes_of(reference: ValueFileRef) -> u64 {
    reference.stored_bytes.max(reference.value_bytes).into()
}

#[cfg(test)]
mod tests;
