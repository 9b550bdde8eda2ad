//! Expiry times of puts, in the form in which logs, memtables and tables hold them.
//!
//! ```text
//! expiry u64   milliseconds since 1970-01-01 UTC, little-endian
//! value        the rest; in an entry of the kind ValueRefWithExpiry, the location of expiry and
//!              value
//! ```
//!
//! From its expiry on an entry is as good as a tombstone: it is not visible, and hides what is
//! older.

use std::time::Duration;

use crate::EntryKind;

/// The time from which an entry is no longer visible, in milliseconds since 1970-01-01 UTC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Expiry(pub u64);

impl Expiry {
    /// Length of the time in a stored form.
    pub const STORED_BYTES: usize = size_of::<u64>();

    /// The expiry of what is written at `now_ms` and lives for `time_to_live`; `None` if it lives
    /// for ever, which is every time that ends after the last one that can be stored.
    pub fn after(now_ms: u64, time_to_live: Duration) -> Option<Self> {
        let ms = u64::try_from(time_to_live.as_millis()).ok()?;
        now_ms.checked_add(ms).filter(|ms| *ms < u64::MAX).map(Self)
    }

    /// Whether the entry is no longer visible at `now_ms`.
    #[inline]
    pub fn is_past(self, now_ms: u64) -> bool {
        self.0 <= now_ms
    }

    /// The stored form of the expiry and `value`.
    pub fn encode(self, value: &[u8]) -> Vec<u8> {
        let mut stored = Vec::with_capacity(Self::STORED_BYTES + value.len());
        stored.extend_from_slice(&self.0.to_le_bytes());
        stored.extend_from_slice(value);
        stored
    }

    /// The expiry at the start of a stored form, and what follows it.
    ///
    /// # Errors
    /// A phrase that describes the fault.
    #[inline]
    pub fn split(stored: &[u8]) -> Result<(Self, &[u8]), String> {
        match stored.split_first_chunk() {
            Some((ms, value)) => Ok((Self(u64::from_le_bytes(*ms)), value)),
            None => Err(format!("a value with an expiry time has {} bytes", stored.len())),
        }
    }

    /// The expiry of an entry with this payload, if it has one that can be read.
    #[inline]
    pub fn of(kind: EntryKind, payload: &[u8]) -> Option<Self> {
        if !kind.has_expiry() {
            return None;
        }
        payload.first_chunk().map(|ms| Self(u64::from_le_bytes(*ms)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_visible_before_its_expiry_only() {
        assert_eq!(Expiry::after(1_000, Duration::from_secs(2)), Some(Expiry(3_000)));
        assert_eq!(Expiry::after(1_000, Duration::ZERO), Some(Expiry(1_000)));
        for ever in [Duration::MAX, Duration::from_millis(u64::MAX), Duration::from_millis(u64::MAX - 1_000)]
        {
            assert_eq!(Expiry::after(1_000, ever), None, "{ever:?}");
        }
        assert!(!Expiry(3_000).is_past(2_999));
        assert!(Expiry(3_000).is_past(3_000));
    }

    #[test]
    fn stored_forms_round_trip() {
        for value in [&b""[..], b"x", &[7; 100]] {
            let stored = Expiry(1 << 40).encode(value);
            assert_eq!(Expiry::split(&stored), Ok((Expiry(1 << 40), value)));
            assert_eq!(Expiry::of(EntryKind::PutWithExpiry, &stored), Some(Expiry(1 << 40)));
            assert_eq!(Expiry::of(EntryKind::Put, &stored), None);
        }
        assert!(Expiry::split(&[1; 7]).is_err());
        assert_eq!(Expiry::of(EntryKind::PutWithExpiry, &[1; 7]), None);
    }
}
