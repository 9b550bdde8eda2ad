//! The entries of a table that expire: their number, and when they do.
//!
//! A compaction that would remove expired entries is chosen by them, and a table all of whose
//! entries are expired can be dropped without reading it. The times are kept as eighths: an eighth
//! of the entries expire between one bound and the next. So it is known for any later moment, to
//! about an eighth, how many have expired, also where long and short times to live are mixed.
//!
//! The bounds come from a sample that a mix of the entries' numbers chooses: a pattern in the order
//! of keys does not show in it. Whenever the sample is full, the half of it that a mix with one
//! more zero bit would not choose is dropped.

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
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// Bytes of the keys and values of all entries of the table.
    pub of_bytes: u64,
    /// The earliest expiry, the bounds between the eighths, and the latest expiry.
    pub bounds: [Expiry; PARTS + 1],
}

impl ExpiringEntries {
    /// Entries of a table without others, whose expiry times are spread evenly.
    pub fn evenly(count: u64, first: Expiry, last: Expiry) -> Self {
        let width = last.0.saturating_sub(first.0);
        let bound = |part: usize| {
            let offset = u128::from(width) * part as u128 / PARTS as u128;
            Expiry(first.0 + u64::try_from(offset).unwrap_or(width))
        };
        Self { count, bytes: count, of_bytes: count, bounds: std::array::from_fn(bound) }
    }

    /// The earliest expiry.
    pub fn first(&self) -> Expiry {
        self.bounds[0]
    }

    /// The latest expiry.
    pub fn last(&self) -> Expiry {
        self.bounds[PARTS]
    }

    /// Approximate share of the entries that are expired at `now_ms`.
    fn expired_share(&self, now_ms: u64) -> f64 {
        if self.last().is_past(now_ms) {
            return 1.0;
        }
        if !self.first().is_past(now_ms) {
            return 0.0;
        }
        // The first bound that is not past, from 1 to `PARTS`.
        let part = self.bounds.partition_point(|bound| bound.is_past(now_ms)).clamp(1, PARTS);
        let (from, to) = (self.bounds[part - 1].0, self.bounds[part].0);
        let within = now_ms.saturating_sub(from) as f64 / to.saturating_sub(from).max(1) as f64;
        ((part - 1) as f64 + within.min(1.0)) / PARTS as f64
    }

    /// Approximate share of the table's bytes that are expired at `now_ms`, as if long and short
    /// entries expired alike.
    pub fn expired_bytes_share(&self, now_ms: u64) -> f64 {
        self.expired_share(now_ms) * self.bytes as f64 / self.of_bytes.max(1) as f64
    }

    /// Checks the order of the bounds, and the number among `entries`.
    ///
    /// # Errors
    /// A phrase that describes the fault.
    pub fn check(&self, entries: u64) -> Result<(), String> {
        if self.count == 0 || self.count > entries {
            return Err(format!("{} expiring entries among {entries}", self.count));
        }
        if self.bytes > self.of_bytes {
            return Err(format!("{} bytes of expiring entries among {}", self.bytes, self.of_bytes));
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
    bytes: u64,
    first_ms: u64,
    last_ms: u64,
    /// Chosen times, each with the mix of its entry's number.
    sample: Vec<(u32, u64)>,
    /// Zero bits at the end of the mix of a chosen entry.
    zeros: u32,
}

impl ExpiryTimes {
    /// Adds an entry with this payload, whose key and value take `bytes`, if it expires.
    #[inline]
    pub(crate) fn add(&mut self, kind: EntryKind, payload: &[u8], bytes: u64) {
        if let Some(Expiry(ms)) = Expiry::of(kind, payload) {
            self.bytes += bytes;
            self.add_time(ms);
        }
    }

    #[inline(never)]
    fn add_time(&mut self, ms: u64) {
        if self.count == 0 {
            (self.first_ms, self.last_ms) = (ms, ms);
        }
        (self.first_ms, self.last_ms) = (self.first_ms.min(ms), self.last_ms.max(ms));
        let mix = mix(self.count);
        self.count += 1;
        if mix.trailing_zeros() < self.zeros {
            return;
        }
        if self.sample.len() == SAMPLE {
            self.zeros += 1;
            self.sample.retain(|(mix, _)| mix.trailing_zeros() >= self.zeros);
        }
        if mix.trailing_zeros() >= self.zeros {
            self.sample.push((mix, ms));
        }
    }

    /// Whether none was added.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The entries that were added, if any; all entries of the table take `of_bytes`.
    pub(crate) fn entries(&self, of_bytes: u64) -> Option<ExpiringEntries> {
        if self.is_empty() {
            return None;
        }
        let mut sample: Vec<u64> = self.sample.iter().map(|(_, ms)| *ms).collect();
        sample.sort_unstable();
        let bound = |part: usize| match part {
            0 => Expiry(self.first_ms),
            PARTS => Expiry(self.last_ms),
            _ => Expiry(sample.get(sample.len() * part / PARTS).copied().unwrap_or(self.first_ms)),
        };
        let bounds = std::array::from_fn(bound);
        Some(ExpiringEntries { count: self.count, bytes: self.bytes, of_bytes, bounds })
    }
}

/// Mixes a number, so that its last bits show no pattern of it (the finaliser of SplitMix64).
fn mix(number: u64) -> u32 {
    let mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((mixed ^ (mixed >> 31)) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(times: impl IntoIterator<Item = u64>) -> ExpiringEntries {
        let mut collected = ExpiryTimes::default();
        for ms in times {
            collected.add(EntryKind::PutWithExpiry, &Expiry(ms).encode(b"v"), 10);
            collected.add(EntryKind::Put, b"a plain value", 10);
        }
        let entries = collected.entries(collected.count * 20).expect("some");
        assert_eq!(entries.check(entries.count), Ok(()));
        entries
    }

    /// The largest error of the share of expired entries, at some moments.
    fn error(times: &[u64], moments: &[u64]) -> f64 {
        let entries = of(times.iter().copied());
        let error = |now_ms: &u64| {
            let expired = times.iter().filter(|ms| Expiry(**ms).is_past(*now_ms)).count();
            // Half of the bytes belong to expiring entries.
            (expired as f64 / times.len() as f64 - 2.0 * entries.expired_bytes_share(*now_ms)).abs()
        };
        moments.iter().map(error).fold(0.0, f64::max)
    }

    #[test]
    fn the_share_of_expired_ones_is_known_to_about_an_eighth() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        for round in 0..40 {
            let count = random.usize(1..5_000);
            let short = random.u64(1..1_000);
            // Short and long times to live, mixed in some share.
            let share = random.f64();
            let lifetime = |random: &mut fastrand::Rng| if random.f64() < share { short } else { 9_000_000 };
            let times: Vec<u64> = (0..count)
                .map(|_| {
                    let longest = lifetime(&mut random);
                    1_000 + random.u64(0..longest)
                })
                .collect();
            let entries = of(times.iter().copied());
            assert_eq!(entries.count, count as u64);
            assert_eq!(Some(entries.first().0), times.iter().min().copied());
            assert_eq!(Some(entries.last().0), times.iter().max().copied());
            let error = error(&times, &[0, 1_000, 1_000 + short, 100_000, 5_000_000, 9_001_000]);
            assert!(error < 0.3, "round {round}: an error of {error} for {count} entries");
        }
    }

    #[test]
    fn a_pattern_in_the_order_of_keys_does_not_mislead() {
        for period in [2, 3, 4, 7, 8, 16, 64] {
            for phase in 0..period {
                let late = |number: usize| number % period == phase;
                let times: Vec<u64> =
                    (0..20_000).map(|number| if late(number) { 9_000_000 } else { 2_000 }).collect();
                let error = error(&times, &[1_999, 2_000, 2_001, 1_000_000, 9_000_000]);
                assert!(error < 0.2, "an error of {error}: one in {period} lives long, from {phase}");
            }
        }
    }

    #[test]
    fn one_late_entry_does_not_hide_that_the_others_have_expired() {
        let entries = of((0..1_000).map(|number| if number == 500 { u64::MAX - 1 } else { 2_000 }));
        assert!(entries.expired_bytes_share(1_999) == 0.0);
        assert!(entries.expired_bytes_share(2_000) >= 0.43, "{}", entries.expired_bytes_share(2_000));
        assert!(entries.expired_bytes_share(u64::MAX) == 0.5);
        let one = ExpiringEntries { count: 1, bytes: 10, of_bytes: 20, bounds: [Expiry(7); PARTS + 1] };
        assert_eq!(of([7]), one);
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
        assert!(ExpiringEntries { bytes: 11, ..even }.check(10).is_err());
    }
}
