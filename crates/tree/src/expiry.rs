//! The time by which readers and compactions judge whether an entry has expired.
//!
//! [`ExpiryClock`] is the wall clock of a database, made to never go back: it begins at the larger
//! of the wall clock and the time that the manifest records. So an entry that was expired stays
//! expired, although the system's clock may be set back; after a crash, as far as the manifest
//! knows. Nor does it stand still then: it goes on by the monotonic clock from the latest time that
//! it gave. An entry that was written while the wall clock was ahead therefore expires after its
//! time to live, as long as the database is open.
//!
//! It is not in use for expiry, and the manifest does not record it, until an entry with an expiry
//! is written for the first time. FIFO keyspaces take the ages of their tables from it in any case,
//! and record times of their own.
//!
//! A reader has one time for all that it reads ([`ReadTime`]): that of its snapshot, or the time at
//! which it first meets an entry with an expiry.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use shamba_env::Clock;
use shamba_key::{EntryKind, Expiry};

use crate::error::{Error, Result};

/// The wall clock of a database, which never goes back.
pub struct ExpiryClock {
    clock: Arc<dyn Clock>,
    /// The largest lead so far over the monotonic clock, in microseconds.
    lead_us: AtomicU64,
    is_used: AtomicBool,
    /// The latest time that [`Self::dropping_ms`] gave.
    dropping_ms: AtomicU64,
}

impl ExpiryClock {
    /// A clock after the time that is `recorded`; `None` if it was never used.
    pub fn new(clock: Arc<dyn Clock>, recorded: Option<u64>) -> Self {
        let is_used = AtomicBool::new(recorded.is_some());
        let (lead_us, dropping_ms) = (AtomicU64::new(0), AtomicU64::new(0));
        let expiry = Self { clock, lead_us, is_used, dropping_ms };
        expiry.advance_to(recorded.unwrap_or(0));
        expiry
    }

    /// The time now, in milliseconds since 1970-01-01 UTC.
    pub fn now_ms(&self) -> u64 {
        // The wall clock first: a pause between the two must not put the time ahead.
        self.advance_to(self.clock.unix_ms())
    }

    /// Makes the time now at least `ms`, and returns it.
    pub fn advance_to(&self, ms: u64) -> u64 {
        let now_us = self.clock.now_us();
        let lead_us = ms.saturating_mul(1_000).saturating_sub(now_us);
        let lead_us = self.lead_us.fetch_max(lead_us, Ordering::AcqRel).max(lead_us);
        now_us.saturating_add(lead_us) / 1_000
    }

    /// Whether an entry with an expiry may have been written.
    #[inline]
    pub fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Acquire)
    }

    /// Notes that entries with an expiry are written from now on.
    pub fn begin_use(&self) {
        self.is_used.store(true, Ordering::Release);
    }

    /// The time now if it is used, else 0, at which nothing has expired. Readers of what was
    /// written before the first use see no entry with an expiry.
    #[inline]
    pub fn if_used_ms(&self) -> u64 {
        if self.is_used() { self.now_ms() } else { 0 }
    }

    /// [`Self::if_used_ms`] for a compaction, which drops what has expired at that time.
    pub fn dropping_ms(&self) -> u64 {
        let now_ms = self.if_used_ms();
        self.dropping_ms.fetch_max(now_ms, Ordering::AcqRel);
        now_ms
    }
}

impl fmt::Debug for ExpiryClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExpiryClock").field("lead_us", &self.lead_us).finish_non_exhaustive()
    }
}

/// The time of one reader.
#[derive(Debug)]
pub struct ReadTime<'a> {
    clock: &'a ExpiryClock,
    /// 0 until it is needed.
    ms: AtomicU64,
    is_fixed: bool,
}

impl<'a> ReadTime<'a> {
    /// The time `fixed_ms`; if that is 0, the time at which it is first asked for.
    #[inline]
    pub fn new(clock: &'a ExpiryClock, fixed_ms: u64) -> Self {
        Self { clock, ms: AtomicU64::new(fixed_ms), is_fixed: fixed_ms != 0 }
    }

    /// Whether another reader may have left a result, which was got before this call, of tables
    /// without entries that this reader sees. The time was read in the course of the reading, so
    /// compactions do not know of it, and one that began later drops what has expired since.
    pub fn is_behind(&self) -> bool {
        let ms = self.ms.load(Ordering::Relaxed);
        !self.is_fixed && ms != 0 && ms < self.clock.dropping_ms.load(Ordering::Acquire)
    }

    /// The time in milliseconds since 1970-01-01 UTC, the same at each call.
    #[cold]
    pub fn ms(&self) -> u64 {
        match self.ms.load(Ordering::Relaxed) {
            0 => {
                let now_ms = self.clock.now_ms();
                match self.ms.compare_exchange(0, now_ms, Ordering::Relaxed, Ordering::Relaxed) {
                    Ok(_) => now_ms,
                    Err(known) => known,
                }
            }
            known => known,
        }
    }
}

/// The kind that an entry of `key` with this payload has for a reader at `now_ms`: one that has
/// expired is as good as a tombstone.
///
/// # Errors
/// `Invalid` if the payload has no expiry, though the kind says so.
#[inline]
pub fn kind_at(
    key: &[u8],
    kind: EntryKind,
    payload: &[u8],
    now_ms: impl FnOnce() -> u64,
) -> Result<EntryKind> {
    if !kind.has_expiry() {
        return Ok(kind);
    }
    let of_key = |detail| Error::invalid(format!("key \"{}\": {detail}", key.escape_ascii()));
    let (expiry, _) = Expiry::split(payload).map_err(of_key)?;
    Ok(if expiry.is_past(now_ms()) { EntryKind::Delete } else { kind })
}

#[cfg(test)]
mod tests {
    use shamba_env::ManualClock;

    use super::*;

    #[test]
    fn time_never_goes_back() {
        let manual = Arc::new(ManualClock::new());
        let start_ms = manual.unix_ms();
        let unused = ExpiryClock::new(Arc::clone(&manual) as Arc<dyn Clock>, None);
        assert!(!unused.is_used());
        assert_eq!((unused.if_used_ms(), unused.now_ms()), (0, start_ms));
        unused.begin_use();
        assert_eq!(unused.if_used_ms(), start_ms);
        // Recorded while the clock was ahead.
        let clock = ExpiryClock::new(Arc::clone(&manual) as Arc<dyn Clock>, Some(start_ms + 5_000));
        assert!(clock.is_used());
        assert_eq!(clock.if_used_ms(), start_ms + 5_000);
        // It does not stand still until the clock catches up.
        manual.advance_us(2_000_000);
        assert_eq!(clock.now_ms(), start_ms + 7_000);
        assert_eq!(clock.advance_to(start_ms), start_ms + 7_000);
        assert_eq!(clock.advance_to(start_ms + 8_000), start_ms + 8_000);
        manual.advance_us(4_000_000);
        assert_eq!(clock.now_ms(), start_ms + 12_000);
        assert_eq!(unused.now_ms(), start_ms + 6_000);
    }

    #[test]
    fn a_reader_has_one_time() {
        let manual = Arc::new(ManualClock::new());
        let clock = ExpiryClock::new(Arc::clone(&manual) as Arc<dyn Clock>, None);
        let time = ReadTime::new(&clock, 0);
        let fixed = ReadTime::new(&clock, 77);
        manual.advance_us(1_000_000);
        clock.begin_use();
        clock.dropping_ms();
        assert!(!time.is_behind(), "it has no time yet");
        let first_ms = time.ms();
        assert_eq!(first_ms, manual.unix_ms());
        manual.advance_us(1_000_000);
        assert!(!time.is_behind());
        clock.dropping_ms();
        assert!(time.is_behind() && !fixed.is_behind());
        assert_eq!((time.ms(), fixed.ms()), (first_ms, 77));
    }

    #[test]
    fn an_expired_entry_is_a_tombstone() {
        let stored = Expiry(500).encode(b"v");
        let kind = |kind, now_ms| kind_at(b"k", kind, &stored, || now_ms).expect("valid");
        assert_eq!(kind(EntryKind::PutWithExpiry, 499), EntryKind::PutWithExpiry);
        assert_eq!(kind(EntryKind::ValueRefWithExpiry, 500), EntryKind::Delete);
        assert_eq!(kind(EntryKind::Put, 500), EntryKind::Put);
        let error = kind_at(b"k", EntryKind::PutWithExpiry, b"short", || 0).expect_err("no expiry");
        assert!(error.to_string().contains("key \"k\"") && error.to_string().contains("5 bytes"), "{error}");
    }
}
