//! Expiring entries in the suites.
//!
//! Most suites have no model of time: a part of the puts expires long after the run, and a part of
//! the deletes is written as a put that has expired at once. So logs, tables, crashes, checkpoints
//! and repairs meet entries of these kinds, and the oracle needs to know nothing of them.
//!
//! A runner, and a life with faults, may move its clock, in ticks. There a further part of the puts
//! expires at the beginning of one of the next ticks. What else takes time within a tick, such as
//! an inserted flush, does not change what is visible.

use std::time::Duration;

use shamba::env::Env;
use shamba::{Batch, Keyspace, WriteOptions};

/// Longer than any run: a hundred years.
const LONG: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// Length of a tick of the runner's clock in milliseconds: much longer than what happens in one.
pub const TICK_MS: u64 = 60_000;

/// The longest life of a put that expires within a run, in ticks.
pub const TICKS_MAX: u64 = 8;

fn mixed(value: &[u8]) -> u32 {
    value.iter().fold(value.len() as u32, |sum, byte| sum.wrapping_mul(31) ^ u32::from(*byte))
}

/// The time to live of a put of `value`: of a third of the values, as different as values are.
pub fn time_to_live(value: &[u8]) -> Option<Duration> {
    let extra = Duration::from_secs(u64::from(mixed(value) % 1_000));
    mixed(value).is_multiple_of(3).then_some(LONG + extra)
}

/// Whether a put of `value` expires after some ticks, where time passes.
pub fn is_fleeting(value: &[u8]) -> bool {
    mixed(value) % 6 == 1
}

/// The end of life of a put of `value` in the runner, which writes it at `now_ms`. To the values
/// with a [`time_to_live`] it adds, where time passes, a sixth that expire after some ticks.
pub fn ends_ms(value: &[u8], now_ms: u64, passes_time: bool) -> Option<u64> {
    if passes_time && is_fleeting(value) {
        return Some(after_ticks(1 + u64::from(mixed(value)) / 6 % TICKS_MAX, now_ms));
    }
    time_to_live(value).map(|time| now_ms + time.as_millis() as u64)
}

/// The time to live of a put of `value` at `now_ms`, where time passes.
pub fn time_to_live_at(value: &[u8], now_ms: u64) -> Option<Duration> {
    ends_ms(value, now_ms, true).map(|ends_ms| Duration::from_millis(ends_ms - now_ms))
}

/// Lets time pass until `ms`, if it is earlier.
pub fn advance_to(env: &Env, ms: u64) {
    env.clock.sleep_us(ms.saturating_sub(env.clock.unix_ms()) * 1_000);
}

/// The beginning of the tick that follows that of `now_ms` by `ticks`.
pub fn after_ticks(ticks: u64, now_ms: u64) -> u64 {
    (now_ms / TICK_MS + ticks) * TICK_MS
}

/// The options of a single put of `value`.
pub fn options(value: &[u8]) -> WriteOptions {
    options_for(time_to_live(value))
}

/// The options of a single put with a time to live.
pub fn options_for(time_to_live: Option<Duration>) -> WriteOptions {
    let mut options = WriteOptions::new();
    options.time_to_live = time_to_live;
    options
}

/// Adds a put of `value` to a batch, in the default keyspace or another one.
pub fn put<'b>(batch: &'b mut Batch, other: Option<&Keyspace>, key: &[u8], value: &[u8]) -> &'b mut Batch {
    put_for(batch, other, key, value, time_to_live(value))
}

/// The same with a time to live.
pub fn put_for<'b>(
    batch: &'b mut Batch,
    other: Option<&Keyspace>,
    key: &[u8],
    value: &[u8],
    time_to_live: Option<Duration>,
) -> &'b mut Batch {
    match (other, time_to_live) {
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
