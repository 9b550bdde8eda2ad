//! Would a filter for ranges pay? Counts, for scans of short ranges, the runs without a key in
//! the range, and the share of them that a filter would leave out, by bits per key.
//!
//! Two filters. Grafite (Costa, Ferragina, Vinciguerra: "Grafite: Taming Adversarial Queries with
//! Optimal Range Filters", SIGMOD 2024, section 3) keeps `(h(x / r) + x) mod r` of each key `x`,
//! sorted, in 2 + log2(r / n) bits a key: n keys, and r chosen by the size. Its answers are
//! computed here from the sorted numbers, its size by that formula. The filter of prefixes is
//! what the engine has (decision 39): a blocked filter of the distinct prefixes. The engine asks
//! it if the range lies in one prefix; `two` also asks for both of two neighbours. The length of
//! the prefixes is the one that leaves out most.
//!
//! `exact` are the bits per key of a sorted list without errors, 2 + log2(universe / n). The
//! numbers in brackets compare with the block cache: how many times as many block reads a byte of
//! the filter saves as a byte of cached blocks of the same run, where reads are spread evenly
//! over its blocks.
//!
//! Limits of the model: keys are 64-bit numbers (longer keys would be cut, and ranges below the
//! cut could not be asked); a scan has both bounds; each false "maybe" is one block read.
//!
//! ```text
//! cargo run --release -p shamba-lab --example range_filters -- 42
//! ```
//!
//! The argument is the seed; without it, it is 42.

use std::collections::BTreeSet;

use fastrand::Rng;
use shamba_filter::{Filter, FilterLayout};
use shamba_key::{DigestFn, DigestKind};

/// Keys of the run above the last, and of the last, at size ratio 10.
const KEYS_ABOVE: usize = 90_000;
const KEYS_LAST: usize = 900_000;
const QUERIES: usize = 20_000;
/// Bytes of an entry in a block: 16 bytes of key, 100 of value.
const ENTRY_BYTES: f64 = 116.0;
const BITS: [u32; 5] = [6, 10, 14, 20, 44];
/// Bits of a key that a prefix has: whole bytes, as the engine has them.
const PREFIX_BITS: [u32; 6] = [16, 24, 32, 40, 48, 56];
/// More bits than this for a prefix deny nothing that fewer do not deny.
const BITS_FOR_PREFIX_MAX: f64 = 24.0;

/// A distribution of keys, and of the begins of ranges.
#[derive(Clone, Copy)]
enum Keys {
    /// 64 random bits.
    Uniform,
    /// One of 10,000 devices in the upper half, a second of 30 days in the lower.
    Devices,
}

impl Keys {
    fn draw(self, rng: &mut Rng) -> u64 {
        match self {
            Self::Uniform => rng.u64(..),
            Self::Devices => (u64::from(rng.u32(..10_000)) << 32) | u64::from(rng.u32(..30 * 86_400)),
        }
    }

    /// Size of the set that keys are drawn from.
    fn universe(self) -> f64 {
        match self {
            Self::Uniform => 2f64.powi(64),
            Self::Devices => 10_000.0 * 30.0 * 86_400.0,
        }
    }
}

fn run_of(keys: Keys, count: usize, rng: &mut Rng) -> Vec<u64> {
    let mut run = BTreeSet::new();
    while run.len() < count {
        run.insert(keys.draw(rng));
    }
    run.into_iter().collect()
}

/// Whether a sorted list has a number from `first` to `last`.
fn has(sorted: &[u64], first: u64, last: u64) -> bool {
    let place = sorted.partition_point(|number| *number < first);
    sorted.get(place).is_some_and(|number| *number <= last)
}

/// Grafite's set of reduced numbers.
struct Grafite {
    reduced: Vec<u64>,
    r: u64,
    hasher: DigestFn,
}

impl Grafite {
    fn new(run: &[u64], bits: u32, hasher: DigestFn) -> Self {
        let mut grafite =
            Self { reduced: Vec::new(), r: (run.len() as u64).saturating_mul(1 << (bits - 2)), hasher };
        grafite.reduced = run.iter().map(|key| grafite.reduce(*key)).collect();
        grafite.reduced.sort_unstable();
        grafite
    }

    fn reduce(&self, key: u64) -> u64 {
        let block = self.hasher.digest(&(key / self.r).to_be_bytes()).raw() % self.r;
        ((u128::from(block) + u128::from(key % self.r)) % u128::from(self.r)) as u64
    }

    /// Whether a key from `first` to `last` may be in the run.
    fn may_have(&self, first: u64, last: u64) -> bool {
        if last - first >= self.r {
            return true;
        }
        let in_block = |first: u64, last: u64| {
            let (from, to) = (self.reduce(first), self.reduce(last));
            if from <= to {
                has(&self.reduced, from, to)
            } else {
                has(&self.reduced, from, u64::MAX) || has(&self.reduced, 0, to)
            }
        };
        let begin_of_last = last / self.r * self.r;
        if first >= begin_of_last {
            in_block(first, last)
        } else {
            in_block(first, begin_of_last - 1) || in_block(begin_of_last, last)
        }
    }
}

/// A filter of the first bits of the keys.
struct Prefixes {
    filter: Filter,
    shift: u32,
    hasher: DigestFn,
}

impl Prefixes {
    fn new(run: &[u64], prefix_bits: u32, bits: u32, hasher: DigestFn) -> Option<Self> {
        let shift = 64 - prefix_bits;
        let mut prefixes: Vec<u64> = run.iter().map(|key| key >> shift).collect();
        prefixes.dedup();
        let bits_for_prefix = f64::from(bits) * run.len() as f64 / prefixes.len() as f64;
        let digests: Vec<_> = prefixes.iter().map(|prefix| hasher.digest(&prefix.to_be_bytes())).collect();
        let filter =
            Filter::build(&digests, FilterLayout::Blocked, bits_for_prefix.min(BITS_FOR_PREFIX_MAX))?;
        Some(Self { filter, shift, hasher })
    }

    /// Whether a key from `first` to `last` may be in the run; yes for more than `asked_max`
    /// prefixes.
    fn may_have(&self, first: u64, last: u64, asked_max: u64) -> bool {
        let (first, last) = (first >> self.shift, last >> self.shift);
        let has = |prefix: u64| self.filter.may_contain(self.hasher.digest(&prefix.to_be_bytes()));
        last - first >= asked_max || (first..=last).any(has)
    }
}

/// Ranges without a key of the run, and the share of all ranges that they are.
fn empty_ranges(keys: Keys, run: &[u64], length: u64, rng: &mut Rng) -> (Vec<(u64, u64)>, f64) {
    let ranges = (0..QUERIES).map(|_| {
        let first = keys.draw(rng);
        (first, first.saturating_add(length - 1))
    });
    let empty: Vec<(u64, u64)> = ranges.filter(|(first, last)| !has(run, *first, *last)).collect();
    let share = empty.len() as f64 / QUERIES as f64;
    (empty, share)
}

/// The share of `empty` that a filter denies.
fn denied(empty: &[(u64, u64)], may_have: impl Fn(u64, u64) -> bool) -> f64 {
    let denied = empty.iter().filter(|(first, last)| !may_have(*first, *last)).count();
    denied as f64 / empty.len().max(1) as f64
}

fn main() -> Result<(), String> {
    let seed = std::env::args().nth(1).map_or(Ok(42), |word| word.parse());
    let seed: u64 = seed.map_err(|error| format!("the seed: {error}"))?;
    let mut rng = Rng::with_seed(seed);
    let hasher = DigestFn::new(DigestKind::default(), seed);
    let all = (KEYS_ABOVE + KEYS_LAST) as f64;
    for (name, keys, lengths) in [
        (
            "uniform keys",
            Keys::Uniform,
            [1e-3, 0.1, 1.0]
                .map(|results: f64| (format!("{results} results"), (results * 2f64.powi(64) / all) as u64)),
        ),
        (
            "time stamps of devices",
            Keys::Devices,
            [("1 minute", 60), ("1 hour", 3_600), ("6 hours", 21_600)]
                .map(|(name, seconds)| (name.to_owned(), seconds)),
        ),
    ] {
        for (place, count) in [("above the last", KEYS_ABOVE), ("the last", KEYS_LAST)] {
            let run = run_of(keys, count, &mut rng);
            let exact = 2.0 + (keys.universe() / count as f64).log2();
            println!("\n**{name}, the run {place}: {count} keys, exact {exact:.0} bits**\n");
            println!("| range | empty | bits | Grafite | prefix | its bits | two | their bits |");
            println!("|---|---:|---:|---:|---:|---:|---:|---:|");
            for (length_name, length) in &lengths {
                let (empty, share) = empty_ranges(keys, &run, *length, &mut rng);
                for bits in BITS {
                    let grafite = Grafite::new(&run, bits, hasher);
                    let by_grafite = denied(&empty, |first, last| grafite.may_have(first, last));
                    let mut by_prefixes = [(0.0, 0); 2];
                    for prefix_bits in PREFIX_BITS {
                        let Some(prefixes) = Prefixes::new(&run, prefix_bits, bits, hasher) else { continue };
                        for (asked_max, best) in (1..).zip(&mut by_prefixes) {
                            let denied =
                                denied(&empty, |first, last| prefixes.may_have(first, last, asked_max));
                            if denied > best.0 {
                                *best = (denied, prefix_bits);
                            }
                        }
                    }
                    let cell = |denied: f64| {
                        let gain = share * denied * ENTRY_BYTES * 8.0 / f64::from(bits);
                        format!("{:.1} % ({gain:.0})", 100.0 * denied)
                    };
                    let [(one, one_bits), (two, two_bits)] = by_prefixes;
                    println!(
                        "| {length_name} | {:.1} % | {bits} | {} | {} | {one_bits} | {} | {two_bits} |",
                        100.0 * share,
                        cell(by_grafite),
                        cell(one),
                        cell(two),
                    );
                }
            }
        }
    }
    Ok(())
}
