//! Reading many values from value files: sorted by place, adjacent ones with one read, and the
//! reads in parallel where they are slow.
//!
//! Values of one origin that are neighbours by key are adjacent in their file. Values that lie
//! close together are therefore read with one read, and the bytes between them are read in vain.
//! The payloads of such a read share its buffer, unless they are compressed or of several chunks.
//!
//! A value that cannot be read affects no other: where a read of several values fails, each of them
//! is read alone.
//!
//! Not here: which values are wanted ([`super::multi_get`], [`crate::iter`]); the fingerprints,
//! which readers do not compare.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use shamba_table::{Error, Reads, Result, Value, ValueFile, ValueFileId, ValueFileRef};

use super::pool::ReadPool;
use crate::sync::Mutex;
use shamba_env::lock;

/// Maximum number of bytes between two values that are read with one read. Reading a page costs
/// less than another read.
const GAP_BYTES_MAX: u64 = 4 << 10;
/// Maximum length of a read of several values.
const READ_BYTES_MAX: u64 = 256 << 10;
/// A payload that is kept shares the buffer of its read if it is at least this part of it: 1/4.
const SHARING_PART: usize = 4;

/// A value to be read.
#[derive(Clone, Debug)]
pub struct WantedValue {
    /// The file that the reference names.
    pub file: Arc<ValueFile>,
    /// The place of the value.
    pub reference: ValueFileRef,
}

/// The payload of an entry.
#[derive(Clone, Debug)]
pub struct Payload {
    bytes: Bytes,
    /// Length of the buffer that it shares with other payloads; 0: it has one of its own.
    shared_bytes: usize,
}

/// The results of reading some values.
#[derive(Debug)]
pub struct ReadValues {
    /// The payload of each value, in the order in which the values were given.
    pub payloads: Vec<Result<Payload>>,
    /// The reads.
    pub cost: Reads,
    /// Bytes of all buffers that the payloads share.
    pub held_bytes: usize,
}

impl Payload {
    /// A payload with a buffer of its own.
    fn alone(bytes: impl Into<Bytes>) -> Self {
        Self { bytes: bytes.into(), shared_bytes: 0 }
    }

    /// The payload without its first `count` bytes.
    #[must_use]
    pub fn without_start(self, count: usize) -> Self {
        Self { bytes: self.bytes.slice(count.min(self.bytes.len())..), ..self }
    }

    /// The bytes, for a reader that holds the other payloads of the same read as well.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The bytes, to be kept: copied if they would keep alive a buffer of many times their length.
    pub fn into_value(self) -> Value {
        if self.bytes.len() < self.shared_bytes / SHARING_PART {
            return Value::copy_of(&self.bytes);
        }
        Value::from_bytes(self.bytes)
    }
}

/// Reads these values. With `pool`, reads that have been slow are made in parallel.
pub fn read_values(wanted: Vec<WantedValue>, pool: Option<&ReadPool>) -> ReadValues {
    let count = wanted.len();
    let mut work = Work { done: Mutex::new(Done::of(count)), ..Work::default() };
    let mut places = Vec::with_capacity(count);
    for (place, WantedValue { file, reference }) in wanted.into_iter().enumerate() {
        // Before a buffer of the length that the reference states is made.
        match file.check_reference(reference) {
            Ok(()) => places.push(Placed { file, reference, place }),
            Err(error) => lock(&work.done).set(place, Err(error)),
        }
    }
    places.sort_unstable_by_key(|value| (value.reference.file, value.reference.offset, value.place));
    work.reads = reads_of(&places);
    work.values = places;
    let work = Arc::new(work);
    match pool {
        Some(pool) => {
            let (count, work) = (work.reads.len(), Arc::clone(&work));
            pool.run_if_slow(count, move |number| work.do_read(number));
        }
        None => (0..work.reads.len()).for_each(|number| work.do_read(number)),
    }
    // A thread of the pool may still hold the work, but has done with it.
    let Done { payloads, cost, held_bytes } = std::mem::take(&mut *lock(&work.done));
    debug_assert_eq!(payloads.len(), count, "one result for each value");
    let missing = || Err(Error::Invalid("a value was not read".to_owned()));
    let payloads = payloads.into_iter().map(|payload| payload.unwrap_or_else(missing)).collect();
    ReadValues { payloads, cost, held_bytes }
}

/// Divides values, sorted by place, into reads: each is a range of them.
fn reads_of(values: &[Placed]) -> Vec<Range<usize>> {
    let mut reads: Vec<Range<usize>> = Vec::new();
    // File and bounds of the last read.
    let mut last: Option<(ValueFileId, u64, u64)> = None;
    for (number, Placed { reference, .. }) in values.iter().enumerate() {
        let (file, offset, end) = (reference.file, reference.offset, reference.end());
        match (&mut last, reads.last_mut()) {
            (Some((last_file, start, last_end)), Some(read))
                if *last_file == file
                    && offset <= last_end.saturating_add(GAP_BYTES_MAX)
                    && end.max(*last_end) - *start <= READ_BYTES_MAX =>
            {
                read.end = number + 1;
                *last_end = end.max(*last_end);
            }
            _ => {
                reads.push(number..number + 1);
                last = Some((file, offset, end));
            }
        }
    }
    reads
}

/// A value, and its number among those that were given.
struct Placed {
    file: Arc<ValueFile>,
    reference: ValueFileRef,
    place: usize,
}

/// Reads to be made, and their results.
#[derive(Default)]
struct Work {
    /// Sorted by file and offset.
    values: Vec<Placed>,
    /// Parts of `values`, each for one read.
    reads: Vec<Range<usize>>,
    done: Mutex<Done>,
}

#[derive(Default)]
struct Done {
    payloads: Vec<Option<Result<Payload>>>,
    cost: Reads,
    held_bytes: usize,
}

impl Done {
    fn of(count: usize) -> Self {
        Self { payloads: (0..count).map(|_| None).collect(), ..Self::default() }
    }

    fn set(&mut self, place: usize, payload: Result<Payload>) {
        if let Some(result) = self.payloads.get_mut(place) {
            debug_assert!(result.is_none(), "value {place} is read twice");
            *result = Some(payload);
        }
    }
}

impl Work {
    /// Makes read `number`.
    fn do_read(&self, number: usize) {
        let values = self.reads.get(number).and_then(|read| self.values.get(read.clone()));
        let mut cost = Reads::default();
        let payloads = match values.unwrap_or_default() {
            [value] => vec![read_alone(value, &mut cost)],
            values => read_together(values, &mut cost),
        };
        let mut done = lock(&self.done);
        done.cost = done.cost.plus(cost);
        done.held_bytes += held_bytes(&payloads);
        let values = values.unwrap_or_default();
        debug_assert_eq!(values.len(), payloads.len(), "one result for each value of a read");
        values.iter().zip(payloads).for_each(|(value, payload)| done.set(value.place, payload));
    }
}

/// Bytes of the buffers of one read's payloads.
fn held_bytes(payloads: &[Result<Payload>]) -> usize {
    let (mut own_bytes, mut shared_bytes) = (0, 0);
    for payload in payloads.iter().flatten() {
        match payload.shared_bytes {
            0 => own_bytes += payload.bytes.len(),
            bytes => shared_bytes = bytes,
        }
    }
    own_bytes + shared_bytes
}

/// Reads one value: with one read unless it is long.
fn read_alone(Placed { file, reference, .. }: &Placed, cost: &mut Reads) -> Result<Payload> {
    if u64::from(reference.stored_bytes) > READ_BYTES_MAX {
        return Ok(Payload::alone(file.read(*reference, cost)?));
    }
    let stored = Bytes::from(file.read_stored(reference.offset, reference.end(), cost)?);
    let payload = payload_in(file, *reference, &stored, &stored)?;
    Ok(Payload { shared_bytes: 0, ..payload })
}

/// Reads several values of one file with one read; each alone if that fails.
fn read_together(values: &[Placed], cost: &mut Reads) -> Vec<Result<Payload>> {
    let Some(Placed { file, reference: first, .. }) = values.first() else { return Vec::new() };
    let start = first.offset;
    let end = values.iter().map(|value| value.reference.end()).max().unwrap_or(start);
    match file.read_stored(start, end, cost).map(Bytes::from) {
        Ok(stored) => {
            let payload = |Placed { reference, .. }: &Placed| {
                payload_in(file, *reference, &stored, part_of(&stored, start, *reference)?)
            };
            values.iter().map(payload).collect()
        }
        Err(_) => values.iter().map(|value| read_alone(value, cost)).collect(),
    }
}

/// The stored bytes of a value in `stored`, which was read from offset `start`.
fn part_of(stored: &Bytes, start: u64, reference: ValueFileRef) -> Result<&[u8]> {
    let at = |offset: u64| usize::try_from(offset.saturating_sub(start)).unwrap_or(usize::MAX);
    let part = stored.get(at(reference.offset)..at(reference.end()));
    part.ok_or_else(|| Error::Invalid("a read that does not cover its values".to_owned()))
}

/// Decodes the payload of a value from `part`, its stored bytes, which are part of `stored`.
fn payload_in(file: &ValueFile, reference: ValueFileRef, stored: &Bytes, part: &[u8]) -> Result<Payload> {
    Ok(match file.decode(reference, part)? {
        Cow::Borrowed(payload) => Payload { bytes: stored.slice_ref(payload), shared_bytes: stored.len() },
        Cow::Owned(payload) => Payload::alone(payload),
    })
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
