//! The entries of a table that expire: their number, and when they do.
//!
//! A compaction that would remove expired entries is chosen by them, and a table all of whose
//! entries are expired can be dropped without reading it. The times are kept as eighths: an eighth
//! of the entries expire between one bound and the next. So it is known for any later moment, to
//! about an eighth, how many have expired, also where long and short times to live are mixed.
//!
//! The bounds come from a sample of every `stride`-th entry. Whenever the sample is full, every
//! other time is dropped and the stride doubles.

use shamba_key::{EntryKind, Expiry};

/// Parts of the entries, with as many expiry times in each.
pub const PARTS: usize = 8;
/// Times in a full sample.
const SAMPLE: usize = 256;

/// The entries of a table that expire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExpiringEntries {
    /// Their number.
    pub count: u64,
    /// The earliest expiry, the bounds between the eighths, and the latest expiry.
    pub bounds: [Expiry; PARTS + 1],
}

impl ExpiringEntries {
    /// Entries whose expiry times are spread evenly.
    pub fn evenly(count: u64, first: Expiry, last: Expiry) -> Self {
        let width = last.0.saturating_sub(first.0);
        let bound = |part: usize| {
            let offset = u128::from(width) * part as u128 / PARTS as u128;
            Expiry(first.0 + u64::try_from(offset).unwrap_or(width))
        };
        Self { count, bounds: std::array::from_fn(bound) }
    }

    /// The earliest expiry.
    pub fn first(&self) -> Expiry {
        self.bounds[0]
    }

    /// The latest expiry.
    pub fn last(&self) -> Expiry {
        self.bounds[PARTS]
    }

    /// Approximate number of those that are expired at `now_ms`.
    pub fn about_expired(&self, now_ms: u64) -> u64 {
        if self.last().is_past(now_ms) {
            return self.count;
        }
        if !self.first().is_past(now_ms) {
            return 0;
        }
        // The first bound that is not past, from 1 to `PARTS`.
        let part = self.bounds.partition_point(|bound| bound.is_past(now_ms)).clamp(1, PARTS);
        let (from, to) = (self.bounds[part - 1].0, self.bounds[part].0);
        let within = now_ms.saturating_sub(from) as f64 / to.saturating_sub(from).max(1) as f64;
        (self.count as f64 * ((part - 1) as f64 + within.min(1.0)) / PARTS as f64) as u64
    }

    /// Checks the order of the bounds, and the number among `entries`.
    ///
    /// # Errors
    /// A phrase that describes the fault.
    pub fn check(&self, entries: u64) -> Result<(), String> {
        if self.count == 0 || self.count > entries {
            return Err(format!("{} expiring entries among {entries}", self.count));
        }
        if !self.bounds.is_sorted() {
            return Err(format!("the expiry times {:?} do not ascend", self.bounds.map(|bound| bound.0)));
        }
        Ok(())
    }
}

/// Collects the expiry times of entries.
#[derive(Clone, Default, Debug)]
pub(crate) struct ExpiryTimes {
    count: u64,
    first_ms: u64,
    last_ms: u64,
    sample: Vec<u64>,
    /// Entries between two of the sample, as a power of two.
    stride_log: u32,
}

impl ExpiryTimes {
    /// Adds an entry with this payload, if it expires.
    #[inline]
    pub(crate) fn add(&mut self, kind: EntryKind, payload: &[u8]) {
        if let Some(Expiry(ms)) = Expiry::of(kind, payload) {
            self.add_time(ms);
        }
    }

    #[inline(never)]
    fn add_time(&mut self, ms: u64) {
        if self.count == 0 {
            (self.first_ms, self.last_ms) = (ms, ms);
        }
        (self.first_ms, self.last_ms) = (self.first_ms.min(ms), self.last_ms.max(ms));
        if self.count.trailing_zeros() >= self.stride_log {
            if self.sample.len() == SAMPLE {
                let mut number = 0;
                self.sample.retain(|_| {
                    number += 1;
                    number % 2 == 1
                });
                self.stride_log += 1;
            }
            if self.count.trailing_zeros() >= self.stride_log {
                self.sample.push(ms);
            }
        }
        self.count += 1;
    }

    /// Whether none was added.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The entries that were added, if any.
    pub(crate) fn entries(&self) -> Option<ExpiringEntries> {
        if self.is_empty() {
            return None;
        }
        let mut sample = self.sample.clone();
        sample.sort_unstable();
        let bound = |part: usize| match part {
            0 => Expiry(self.first_ms),
            PARTS => Expiry(self.last_ms),
            _ => Expiry(sample[sample.len() * part / PARTS]),
        };
        Some(ExpiringEntries { count: self.count, bounds: std::array::from_fn(bound) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(times: impl IntoIterator<Item = u64>) -> ExpiringEntries {
        let mut collected = ExpiryTimes::default();
        for ms in times {
            collected.add(EntryKind::PutWithExpiry, &Expiry(ms).encode(b"v"));
            collected.add(EntryKind::Put, b"a plain value");
        }
        let entries = collected.entries().expect("some");
        assert_eq!(entries.check(entries.count), Ok(()));
        entries
    }

    #[test]
    fn the_number_of_expired_ones_is_known_to_about_an_eighth() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        for round in 0..40 {
            let count = random.usize(1..5_000);
            let short = random.u64(1..1_000);
            // Short and long times to live, mixed in some share.
            let share = random.f64();
            let times: Vec<u64> = (0..count)
                .map(|_| {
                    1_000 + if random.f64() < share { random.u64(0..short) } else { random.u64(0..9_000_000) }
                })
                .collect();
            let entries = of(times.iter().copied());
            assert_eq!(entries.count, count as u64);
            assert_eq!(Some(entries.first().0), times.iter().min().copied());
            assert_eq!(Some(entries.last().0), times.iter().max().copied());
            for now_ms in [0, 1_000, 1_000 + short, 100_000, 5_000_000, 9_001_000] {
                let expired = times.iter().filter(|ms| Expiry(**ms).is_past(now_ms)).count() as f64;
                let about = entries.about_expired(now_ms) as f64;
                let error = (expired - about).abs() / count as f64;
                assert!(error < 0.25, "round {round}: {about} of {count} at {now_ms}, not {expired}");
            }
        }
    }

    #[test]
    fn one_late_entry_does_not_hide_that_the_others_have_expired() {
        let entries = of((0..1_000).map(|number| if number == 500 { u64::MAX - 1 } else { 2_000 }));
        assert_eq!(entries.about_expired(1_999), 0);
        assert!(entries.about_expired(2_000) >= 875, "{}", entries.about_expired(2_000));
        assert_eq!(entries.about_expired(u64::MAX), 1_000);
        assert_eq!(of([7]), ExpiringEntries { count: 1, bounds: [Expiry(7); PARTS + 1] });
    }

    #[test]
    fn false_entries_are_refused() {
        let even = ExpiringEntries::evenly(10, Expiry(100), Expiry(900));
        assert_eq!(even.bounds.map(|bound| bound.0), [100, 200, 300, 400, 500, 600, 700, 800, 900]);
        assert_eq!(even.check(10), Ok(()));
        assert!(even.check(9).is_err());
        let mut unordered = even;
        unordered.bounds.swap(3, 4);
        assert!(unordered.check(10).is_err() && ExpiringEntries { count: 0, ..even }.check(10).is_err());
    }
}
