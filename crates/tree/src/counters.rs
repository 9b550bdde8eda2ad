//! Lookup counters: gathered on the stack, accumulated in shards that each have one writing thread.
//!
//! A lookup gathers its counts in a [`LookupCounts`] and adds them at its end to the shard of its
//! thread. A shard has one owner, so an addition is a load and a store, without a locked
//! instruction, and no two threads write to one cache line. A reader can sum all shards at any
//! time. The sum includes everything that a thread added before it was joined (or before any other
//! event that orders the two). Of concurrent lookups it includes a recent state.
//!
//! A thread finds its shard in a thread-local list, with the last used one first. When a thread
//! ends, its shard keeps the counts and is reused by the next thread that needs one.
//!
//! The shard also holds the countdown to the thread's next *sampled* lookup
//! ([`LookupCounters::next_sampled`]). The distances are random, from 33 to 95, so that sampling
//! does not align with a pattern of the caller. They depend only on the database's seed, so equal
//! runs sample equal lookups.
//!
//! Not here: the meaning of the counts to callers (`Stats` of package `shamba`).

mod counts;

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, PoisonError};

use self::counts::{COMMON, RARE};
pub use self::counts::{LookupCounts, RareCounts, ReadsByKind};

/// The number of first common fields that most lookups change.
const OFTEN: usize = 6;
const _: () = assert!(OFTEN <= COMMON, "the first fields of the counts");

/// Minimum distance between two sampled lookups of a thread: more than the 32 keys of one group.
const DISTANCE_MIN: u64 = 33;
const DISTANCES: u64 = 63;

/// A random number below `most`.
fn below(most: u64, state: &mut u64) -> u64 {
    // SplitMix64.
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    debug_assert!(most > 0 && most <= u64::from(u32::MAX), "a number below {most}");
    ((mixed >> 32) * most) >> 32
}

/// A random distance from 33 to 95, 64 on average.
fn distance(state: &mut u64) -> u64 {
    DISTANCE_MIN + below(DISTANCES, state)
}

/// A separate countdown to the next sample, for callers that do not use the shards.
#[derive(Clone, Copy, Debug)]
pub struct Countdown {
    left: u64,
    random: u64,
}

impl Countdown {
    /// Creates a countdown; the seed decides which calls are sampled. It starts in the stationary
    /// state: each of the first calls is sampled with the same probability as any later one. So
    /// many short-lived countdowns sample the same share as one long-lived one.
    pub fn new(seed: u64) -> Self {
        let mut random = seed;
        loop {
            let left = 1 + below(DISTANCE_MIN + DISTANCES - 1, &mut random);
            if left <= distance(&mut random) {
                return Self { left, random };
            }
        }
    }

    /// Counts one call, and returns whether it is sampled.
    #[inline]
    pub fn is_sampled(&mut self) -> bool {
        debug_assert!(self.left > 0, "a countdown that has ended");
        self.left -= 1;
        if self.left == 0 {
            self.left = distance(&mut self.random);
            return true;
        }
        false
    }
}

/// The counters of one thread. The alignment to pairs of cache lines prevents false sharing between
/// shards.
#[repr(align(128))]
struct Shard {
    common: [AtomicU64; COMMON],
    /// Number of lookups up to and including the next sampled one.
    countdown: AtomicU64,
    /// State of the random number generator for the distances.
    random: AtomicU64,
    rare: [AtomicU64; RARE],
}

impl Shard {
    fn new(seed: u64) -> Self {
        let shard = Self {
            common: std::array::from_fn(|_| AtomicU64::new(0)),
            countdown: AtomicU64::new(0),
            random: AtomicU64::new(seed),
            rare: std::array::from_fn(|_| AtomicU64::new(0)),
        };
        shard.countdown.store(shard.next_distance(), Ordering::Relaxed);
        shard
    }

    /// Counts the next `lookups` lookups and returns the index among them of the sampled one, if
    /// any. `lookups` is less than the minimum distance, so there is at most one. `number`
    /// identifies the counters for `MARKED`.
    #[inline]
    fn count_down(&self, lookups: u64, number: u64) -> Option<u64> {
        let left = self.countdown.load(Ordering::Relaxed);
        if left > lookups + 1 {
            self.countdown.store(left - lookups, Ordering::Relaxed);
            return None;
        }
        self.sample(left, lookups, number)
    }

    /// The slow path: the sampled lookup is among these, or is the one after them.
    #[cold]
    fn sample(&self, left: u64, lookups: u64, number: u64) -> Option<u64> {
        let sampled = (left <= lookups).then(|| left.saturating_sub(1));
        let more = if sampled.is_some() { self.next_distance() } else { 0 };
        debug_assert!(left + more >= lookups, "a sample is passed over by {lookups} lookups");
        let left = (left + more).saturating_sub(lookups);
        self.countdown.store(left, Ordering::Relaxed);
        MARKED.set(if left == 1 { number + 1 } else { 0 });
        sampled
    }

    /// The next random distance, from 33 to 95, 64 on average.
    fn next_distance(&self) -> u64 {
        let mut state = self.random.load(Ordering::Relaxed);
        let distance = distance(&mut state);
        self.random.store(state, Ordering::Relaxed);
        debug_assert!(
            (DISTANCE_MIN..DISTANCE_MIN + DISTANCES).contains(&distance),
            "a distance of {distance} lookups"
        );
        distance
    }

    /// Adds the counts of a lookup. Only the owner calls this, so nothing is lost between load and
    /// store.
    #[inline]
    fn add(&self, counts: &LookupCounts) {
        let common = counts.common();
        let often = common.iter().take(OFTEN);
        self.common.iter().zip(often).for_each(|(counter, value)| add_alone(counter, *value));
        let any = common.iter().skip(OFTEN).fold(0, |any, value| any | value);
        if any != 0 || counts.rare.is_some() {
            self.add_seldom(counts);
        }
    }

    /// Adds the counts after the first [`OFTEN`].
    #[inline(never)]
    fn add_seldom(&self, counts: &LookupCounts) {
        let seldom = self.common.iter().zip(counts.common()).skip(OFTEN);
        seldom.for_each(|(counter, value)| add_alone(counter, value));
        if let Some(rare) = &counts.rare {
            self.rare.iter().zip(rare.fields()).for_each(|(counter, value)| add_alone(counter, value));
        }
    }
}

/// Adds to a counter that no other thread writes.
#[inline(always)]
fn add_alone(counter: &AtomicU64, value: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(value), Ordering::Relaxed);
}

/// A thread's claim on a shard; while it exists, no other thread writes to the shard.
struct ShardClaim {
    /// Number of the counters that the shard belongs to.
    counters: u64,
    shard: Arc<Shard>,
}

thread_local! {
    /// The thread's claims, the last used one first.
    static CLAIMS: RefCell<Vec<ShardClaim>> = const { RefCell::new(Vec::new()) };
    /// The number, plus 1, of the counters whose next lookup on this thread is to be sampled; 0 if
    /// there are none. It duplicates a part of the countdown, so that a lookup need not access the
    /// shard twice. Two databases that one thread reads alternately may overwrite each other's
    /// mark, which loses a sample.
    static MARKED: Cell<u64> = const { Cell::new(0) };
}

static NEXT_COUNTERS: AtomicU64 = AtomicU64::new(0);

/// The lookup counters of a database, sharded by thread.
pub struct LookupCounters {
    /// Distinguishes these counters from those of another database.
    number: u64,
    /// Seed of the distances between sampled lookups.
    seed: u64,
    /// Held only briefly, while the thread's list of claims is borrowed, so schedule exploration
    /// does not need to model it.
    shards: std::sync::Mutex<Vec<Arc<Shard>>>,
}

impl LookupCounters {
    /// Creates counters at zero. The seed decides which lookups are sampled.
    pub fn new(seed: u64) -> Self {
        Self {
            number: NEXT_COUNTERS.fetch_add(1, Ordering::Relaxed),
            seed,
            shards: std::sync::Mutex::default(),
        }
    }

    /// Adds the counts of lookups. `alone` means one lookup that [`Self::next_sampled`] did not
    /// count.
    #[inline]
    pub fn add(&self, counts: &LookupCounts, alone: bool) {
        self.with_shard(|shard| {
            shard.add(counts);
            if alone {
                shard.count_down(1, self.number);
            }
        });
    }

    /// Whether this thread's next lookup, if it is a single one, is to be sampled. One load.
    #[inline]
    pub fn is_next_sampled(&self) -> bool {
        MARKED.get() == self.number + 1
    }

    /// Counts this thread's next `lookups` lookups, at most 32, and returns the index of the one to
    /// sample, if any.
    #[inline]
    pub fn next_sampled(&self, lookups: u64) -> Option<u64> {
        debug_assert!(lookups < DISTANCE_MIN, "{lookups} lookups may contain two samples");
        let sampled = self.with_shard(|shard| shard.count_down(lookups, self.number)).flatten();
        debug_assert!(sampled.is_none_or(|at| at < lookups), "lookup {sampled:?} of {lookups} is sampled");
        sampled
    }

    #[inline]
    fn with_shard<T>(&self, body: impl FnOnce(&Shard) -> T) -> Option<T> {
        // A thread that is ending has no list of claims any more, and performs no lookups.
        let done = CLAIMS.try_with(|claims| {
            let mut claims = claims.borrow_mut();
            match claims.first() {
                Some(claim) if claim.counters == self.number => body(&claim.shard),
                _ => body(self.claim(&mut claims)),
            }
        });
        done.ok()
    }

    /// Returns this thread's shard and moves its claim to the front of `claims`.
    #[cold]
    fn claim<'c>(&self, claims: &'c mut Vec<ShardClaim>) -> &'c Shard {
        match claims.iter().position(|claim| claim.counters == self.number) {
            Some(at) => claims.swap(0, at),
            None => {
                // A shard without any other reference belongs to counters that were dropped.
                claims.retain(|claim| Arc::strong_count(&claim.shard) > 1);
                claims.insert(0, ShardClaim { counters: self.number, shard: self.free_shard() });
            }
        }
        debug_assert_eq!(claims[0].counters, self.number, "a thread counts for another database");
        &claims[0].shard
    }

    /// Returns a shard without an owner: one whose thread has ended, or a new one.
    fn free_shard(&self) -> Arc<Shard> {
        let mut shards = self.shards();
        if let Some(shard) = shards.iter().find(|shard| Arc::strong_count(shard) == 1) {
            // The last owner's stores happen before it dropped its claim, which the reference count
            // shows.
            fence(Ordering::Acquire);
            return Arc::clone(shard);
        }
        let shard = Arc::new(Shard::new(self.seed.wrapping_add(shards.len() as u64)));
        shards.push(Arc::clone(&shard));
        shard
    }

    fn shards(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Shard>>> {
        self.shards.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sum over all shards.
    pub fn total(&self) -> LookupCounts {
        let (mut common, mut rare) = ([0u64; COMMON], [0u64; RARE]);
        for shard in self.shards().iter() {
            let sums = common.iter_mut().chain(&mut rare);
            for (sum, counter) in sums.zip(shard.common.iter().chain(&shard.rare)) {
                *sum = sum.wrapping_add(counter.load(Ordering::Relaxed));
            }
        }
        LookupCounts::from_fields(common, RareCounts::from_fields(rare))
    }
}

#[cfg(test)]
mod tests {
    use shamba_table::ReadCounters;

    use super::*;

    fn one() -> LookupCounts {
        let rare = RareCounts { data_reads: 3, ..RareCounts::default() };
        LookupCounts { lookups: 1, hashes: 2, found: 1, rare: Some(rare), ..LookupCounts::default() }
    }

    #[test]
    fn figures_of_several_counters_on_several_threads_add_up() {
        let all = [1, 2, 3].map(LookupCounters::new);
        for round in 1..=3 {
            std::thread::scope(|scope| {
                let count = || (0..3000).for_each(|number| all[number % 3].add(&one(), true));
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(count)).collect();
                // The end of a scope does not wait for destructors of threads, which return shards.
                threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
            });
            for counters in &all {
                let total = counters.total();
                let seen =
                    (total.lookups, total.hashes, total.found, total.reads().data.count, total.filters);
                assert_eq!(seen, (4000 * round, 8000 * round, 4000 * round, 12_000 * round, 0));
                assert!(counters.shards().len() <= 4, "shards of threads that ended are used again");
            }
        }
    }

    #[test]
    fn no_count_is_lost_if_it_is_the_only_one() {
        type Change = fn(&mut LookupCounts);
        let changes: [(&str, Change); 9] = [
            ("memtable hits", |counts| counts.memtable_hits = 7),
            ("false positives", |counts| counts.false_positives = 7),
            ("filter hits", |counts| counts.filter_hits = 7),
            ("modules skipped", |counts| counts.modules_skipped = 7),
            ("cache hits", |counts| counts.cache_hits = 7),
            ("slices", |counts| counts.rare().filter_reads = 7),
            ("partitions", |counts| counts.rare().index_reads = 7),
            ("values", |counts| counts.rare().value_reads = 7),
            ("time", |counts| counts.rare().total_ns = 7),
        ];
        for (name, change) in changes {
            let counters = LookupCounters::new(1);
            let mut counts = LookupCounts::default();
            change(&mut counts);
            counters.add(&counts, true);
            counters.add(&counts, false);
            let total = counters.total();
            let rare = total.rare_so_far();
            assert_eq!(total.common().iter().chain(&rare.fields()).sum::<u64>(), 14, "{name}: {total:?}");
            change(&mut counts);
            let twice = total.common().iter().zip(counts.common()).all(|(sum, one)| *sum == 2 * one)
                && rare.fields().iter().zip(counts.rare_so_far().fields()).all(|(sum, one)| *sum == 2 * one);
            assert!(twice, "{name} is added to another count: {total:?}");
        }
    }

    #[test]
    fn reads_of_files_and_times_are_added_only_if_there_were_any() {
        let mut counts = LookupCounts::default();
        counts.add_reads(&ReadCounters { cache_hits: 1, filter_hits: 2, ..ReadCounters::default() });
        assert!(counts.rare.is_none(), "a cached hit sets up the counts of reads");
        assert_eq!((counts.cache_hits, counts.filter_hits, counts.searching_reads()), (1, 2, 0));
        let mut io = ReadCounters::default();
        io.value.note(0, 4096);
        io.index.note(0, 100);
        counts.add_reads(&io);
        assert_eq!((counts.reads().value.count, counts.searching_reads()), (1, 1));
        let timed = ReadCounters { timed: true, data_ns: 30, ..ReadCounters::default() };
        counts.add_reads(&timed);
        assert_eq!((counts.rare_so_far().data_ns, counts.cache_hits), (30, 1));
    }

    #[test]
    fn a_countdown_samples_one_in_64() {
        let sampled = |seed| {
            let mut countdown = Countdown::new(seed);
            (0..64_000).filter(|_| countdown.is_sampled()).collect::<Vec<_>>()
        };
        let seen = sampled(1);
        assert!((950..1050).contains(&seen.len()), "{}", seen.len());
        assert!(seen.windows(2).all(|pair| (33..=95).contains(&(pair[1] - pair[0]))));
        assert_eq!(seen, sampled(1));
        assert_ne!(seen, sampled(2));
        // The rate does not depend on the lifetime of the countdowns.
        for lifetime in [1, 5, 40, 100] {
            let countdowns = 640_000 / lifetime;
            let sampled: usize = (0..countdowns)
                .map(|seed| {
                    let mut countdown = Countdown::new(seed * 0x1234_5677);
                    (0..lifetime).filter(|_| countdown.is_sampled()).count()
                })
                .sum();
            assert!((9_500..10_500).contains(&sampled), "{lifetime}: {sampled}");
        }
    }

    #[test]
    fn one_lookup_in_64_is_sampled_at_irregular_distances_that_the_seed_decides() {
        let sampled = |seed: u64, at_once: u64| -> Vec<u64> {
            let counters = LookupCounters::new(seed);
            let alone = |_| {
                let is_sampled = counters.is_next_sampled();
                counters.add(&one(), true);
                is_sampled.then_some(0)
            };
            let together = |_| counters.next_sampled(at_once);
            let next = |group| if at_once == 1 { alone(group) } else { together(group) };
            let groups =
                (0..64_000 / at_once).filter_map(|group| next(group).map(|number| group * at_once + number));
            groups.collect()
        };
        let one_by_one = sampled(7, 1);
        assert!((900..1100).contains(&one_by_one.len()), "{}", one_by_one.len());
        let distances: Vec<u64> = one_by_one.array_windows().map(|[a, b]| b - a).collect();
        assert!(distances.iter().all(|distance| (33..=95).contains(distance)));
        assert!((33..=95).all(|distance| distances.contains(&distance)), "every distance comes about");
        // The same lookups are sampled, independent of lookups in other databases, and of grouping.
        assert_eq!(sampled(7, 1), one_by_one);
        assert_eq!(sampled(7, 32), one_by_one);
        assert_ne!(sampled(8, 1), one_by_one);
    }

    #[test]
    fn claims_on_counters_that_are_gone_are_given_up() {
        for _ in 0..100 {
            let counters = LookupCounters::new(1);
            counters.add(&one(), true);
            counters.add(&one(), true);
            assert_eq!(counters.total().lookups, 2);
        }
        CLAIMS.with_borrow(|claims| assert!(claims.len() <= 2, "{} claims", claims.len()));
    }
}
