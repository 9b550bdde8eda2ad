//! Expiring entries in the suites, without a model of time: a part of the puts expires long after
//! the run, and a part of the deletes is written as a put that has expired at once. So logs,
//! tables, crashes, checkpoints and repairs meet entries of these kinds, and the oracle needs to
//! know nothing of them.

use std::time::Duration;

use shamba::{Batch, Keyspace, WriteOptions};

/// Longer than any run: a hundred years.
const LONG: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// The time to live of a put of `value`: of a third of the values, as different as values are.
pub fn time_to_live(value: &[u8]) -> Option<Duration> {
    let mixed = value.iter().fold(value.len() as u32, |sum, byte| sum.wrapping_mul(31) ^ u32::from(*byte));
    let extra = Duration::from_secs(u64::from(mixed % 1_000));
    (mixed % 3 == 0).then_some(LONG + extra)
}

/// The options of a single put of `value`.
pub fn options(value: &[u8]) -> WriteOptions {
    let mut options = WriteOptions::new();
    options.time_to_live = time_to_live(value);
    options
}

/// Adds a put of `value` to a batch, in the default keyspace or another one.
pub fn put<'b>(batch: &'b mut Batch, other: Option<&Keyspace>, key: &[u8], value: &[u8]) -> &'b mut Batch {
    match (other, time_to_live(value)) {
        (None, None) => batch.put(key, value),
        (Some(other), None) => batch.put_in(other, key, value),
        (None, Some(ttl)) => batch.put_expiring(key, value, ttl),
        (Some(other), Some(ttl)) => batch.put_expiring_in(other, key, value, ttl),
    }
}

/// In place of a third of the deletes: a value that has expired when it is written. `number` is
/// that of the write.
pub fn instead_of_delete(number: u64) -> Option<Vec<u8>> {
    let bytes = if number.is_multiple_of(30) { 20_000 } else { 10 };
    number.is_multiple_of(3).then(|| vec![b'x'; bytes])
}
