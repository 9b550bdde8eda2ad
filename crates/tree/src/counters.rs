//! Counters of lookups: gathered on the stack, kept in shards that one thread writes.
//!
//! A lookup gathers its figures in a [`LookupCounts`] and adds them at its end to the shard of its thread. A
//! shard has one owner, so adding is a load and a store: no instruction that locks a cache line, and no line
//! that two threads write. Readers sum all shards at any time; what a thread added before it was joined (or
//! before anything else that orders the two) is in the sum, and what runs beside is in it as of a moment ago.
//! A thread finds its shard in a list of its own, where the last used one comes first; when a thread ends,
//! its shard keeps its figures and goes to the next thread that asks.
//!
//! In the shard is also the countdown to the thread's next *sampled* lookup ([`LookupCounters::next_sampled`]): the
//! distances are random from 33 to 95, so that no rhythm of the caller's is met, and follow from the database's seed
//! alone, so that runs that are alike sample alike.
//!
//! Not here: what the figures mean to callers ([`super::Stats`]).

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, PoisonError};

use shamba_table::{ReadCounters, Reads};

/// Reads of tables' files by what was read. In the log there are only values.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct ReadsByKind {
    /// Filter slices.
    pub filter: Reads,
    /// Index partitions.
    pub index: Reads,
    /// Data blocks.
    pub data: Reads,
    /// Pieces of large values, of tables or of the log.
    pub value: Reads,
}

impl ReadsByKind {
    /// All kinds together.
    pub fn all(&self) -> Reads {
        self.filter.plus(self.index).plus(self.data).plus(self.value)
    }

    /// The reads since `earlier`.
    #[must_use]
    pub fn saturating_sub(self, earlier: Self) -> Self {
        Self {
            filter: self.filter.saturating_sub(earlier.filter),
            index: self.index.saturating_sub(earlier.index),
            data: self.data.saturating_sub(earlier.data),
            value: self.value.saturating_sub(earlier.value),
        }
    }
}

macro_rules! lookup_counts {
    ($($field:ident,)*) => {
        /// Counts of one lookup. The fields mean what the statistics of the same name mean.
        #[derive(Clone, Copy, Default, Debug)]
        #[allow(missing_docs, reason = "documented where they are reported")]
        pub struct LookupCounts {
            $(pub $field: u64,)*
        }

        impl LookupCounts {
            const COUNT: usize = [$(stringify!($field)),*].len();

            #[inline]
            fn fields(&self) -> [u64; Self::COUNT] {
                [$(self.$field),*]
            }

            fn from_fields([$($field),*]: [u64; Self::COUNT]) -> Self {
                Self { $($field),* }
            }
        }
    };
}

// The first `OFTEN` are those that most lookups change.
lookup_counts! {
    lookups, hashes, filters, modules, found,
    memtable_hits, cache_hits, false_positives, filter_hits, modules_skipped,
    filter_reads, filter_bytes, filter_pages, filter_pages_touched,
    index_reads, index_bytes, index_pages, index_pages_touched,
    data_reads, data_bytes, data_pages, data_pages_touched,
    value_reads, value_bytes, value_pages, value_pages_touched,
    hash_ns, probe_ns, index_ns, data_ns, timer_ns, total_ns,
}

const OFTEN: usize = 5;

/// Between one sampled lookup of a thread and the next: more than are looked up together.
const LEAST_DISTANCE: u64 = 33;
const DISTANCES: u64 = 63;

/// A number below `most`.
fn below(most: u64, state: &mut u64) -> u64 {
    // SplitMix64.
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((mixed >> 32) * most) >> 32
}

/// From 33 to 95, 64 on average.
fn distance(state: &mut u64) -> u64 {
    LEAST_DISTANCE + below(DISTANCES, state)
}

/// A countdown of its own to what is sampled next, for whoever counts alone.
#[derive(Clone, Copy, Debug)]
pub struct Countdown {
    left: u64,
    random: u64,
}

impl Countdown {
    /// From the seed follows what is sampled. It begins as if it had gone on for ever: each of the first is sampled as often as
    /// any other, so that many countdowns that soon end sample as much as one that does not.
    pub fn new(seed: u64) -> Self {
        let mut random = seed;
        loop {
            let left = 1 + below(LEAST_DISTANCE + DISTANCES - 1, &mut random);
            if left <= distance(&mut random) {
                return Self { left, random };
            }
        }
    }

    /// Whether the next one is sampled.
    #[inline]
    pub fn is_sampled(&mut self) -> bool {
        self.left -= 1;
        if self.left == 0 {
            self.left = distance(&mut self.random);
            return true;
        }
        false
    }
}

impl LookupCounts {
    /// What a search of a table cost.
    pub fn add_reads(&mut self, io: &ReadCounters) {
        self.filter_hits += io.filter_hits;
        self.cache_hits += io.cache_hits;
        if io.has_reads() {
            self.add_file_reads(io);
        }
        self.index_ns += io.index_ns;
        self.data_ns += io.data_ns;
        self.timer_ns += io.timer_ns;
    }

    /// Rare beside lookups, and slow anyway.
    #[cold]
    fn add_file_reads(&mut self, io: &ReadCounters) {
        self.filter_reads += io.filter.count;
        self.filter_bytes += io.filter.bytes;
        self.filter_pages += io.filter.pages;
        self.filter_pages_touched += io.filter.pages_touched;
        self.index_reads += io.index.count;
        self.index_bytes += io.index.bytes;
        self.index_pages += io.index.pages;
        self.index_pages_touched += io.index.pages_touched;
        self.data_reads += io.data.count;
        self.data_bytes += io.data.bytes;
        self.data_pages += io.data.pages;
        self.data_pages_touched += io.data.pages_touched;
        self.value_reads += io.value.count;
        self.value_bytes += io.value.bytes;
        self.value_pages += io.value.pages;
        self.value_pages_touched += io.value.pages_touched;
    }

    /// Reads from files.
    pub fn reads(&self) -> ReadsByKind {
        ReadsByKind {
            filter: Reads {
                count: self.filter_reads,
                bytes: self.filter_bytes,
                pages: self.filter_pages,
                pages_touched: self.filter_pages_touched,
            },
            index: Reads {
                count: self.index_reads,
                bytes: self.index_bytes,
                pages: self.index_pages,
                pages_touched: self.index_pages_touched,
            },
            data: Reads {
                count: self.data_reads,
                bytes: self.data_bytes,
                pages: self.data_pages,
                pages_touched: self.data_pages_touched,
            },
            value: Reads {
                count: self.value_reads,
                bytes: self.value_bytes,
                pages: self.value_pages,
                pages_touched: self.value_pages_touched,
            },
        }
    }
}

/// The counters of one thread; whole pairs of cache lines, so that neighbours never share one.
#[repr(align(128))]
struct Shard {
    counts: [AtomicU64; LookupCounts::COUNT],
    /// Lookups up to the next sampled one, that one included.
    countdown: AtomicU64,
    /// What the next distance follows from.
    random: AtomicU64,
}

impl Shard {
    fn new(seed: u64) -> Self {
        let shard = Self {
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
            countdown: AtomicU64::new(0),
            random: AtomicU64::new(seed),
        };
        shard.countdown.store(shard.next_distance(), Ordering::Relaxed);
        shard
    }

    /// The number among the next `lookups`, which are counted by this, of the one that is sampled. Fewer than the least
    /// distance, so one at most. The mark is for the counters of this number.
    #[inline]
    fn count_down(&self, lookups: u64, number: u64) -> Option<u64> {
        let left = self.countdown.load(Ordering::Relaxed);
        if left > lookups + 1 {
            self.countdown.store(left - lookups, Ordering::Relaxed);
            return None;
        }
        self.sample(left, lookups, number)
    }

    /// The sampled lookup is among these, or the one after them.
    #[cold]
    fn sample(&self, left: u64, lookups: u64, number: u64) -> Option<u64> {
        let sampled = (left <= lookups).then(|| left.saturating_sub(1));
        let more = if sampled.is_some() { self.next_distance() } else { 0 };
        let left = (left + more).saturating_sub(lookups);
        self.countdown.store(left, Ordering::Relaxed);
        MARKED.set(if left == 1 { number + 1 } else { 0 });
        sampled
    }

    /// From 33 to 95, 64 on average.
    fn next_distance(&self) -> u64 {
        let mut state = self.random.load(Ordering::Relaxed);
        let distance = distance(&mut state);
        self.random.store(state, Ordering::Relaxed);
        distance
    }

    /// Adds one lookup's figures. Only the owner calls this, so nothing is lost between load and store.
    #[inline]
    fn add(&self, counts: &LookupCounts) {
        let fields = counts.fields();
        for (counter, value) in self.counts.iter().zip(fields).take(OFTEN) {
            counter.store(counter.load(Ordering::Relaxed).wrapping_add(value), Ordering::Relaxed);
        }
        if fields.iter().skip(OFTEN).fold(0, |any, value| any | value) != 0 {
            for (counter, value) in self.counts.iter().zip(fields).skip(OFTEN) {
                counter.store(counter.load(Ordering::Relaxed).wrapping_add(value), Ordering::Relaxed);
            }
        }
    }
}

/// A thread's claim on a shard; while it exists nobody else writes there.
struct Claim {
    /// Of the counters that the shard belongs to.
    counters: u64,
    shard: Arc<Shard>,
}

thread_local! {
    /// The last used one first.
    static CLAIMS: RefCell<Vec<Claim>> = const { RefCell::new(Vec::new()) };
    /// The number, plus 1, of the counters of which this thread's next lookup is to be sampled; 0: of none. Beside the
    /// countdown, so that who looks something up need not go to the shard twice. Two databases that one thread reads in
    /// turn may take each other's mark away: a sample less.
    static MARKED: Cell<u64> = const { Cell::new(0) };
}

static NEXT_COUNTERS: AtomicU64 = AtomicU64::new(0);

/// Lookup counters of a database, by thread.
pub struct LookupCounters {
    /// Tells these counters from those of another database.
    number: u64,
    /// What the distances between sampled lookups follow from.
    seed: u64,
    /// Held for moments only, while the thread's list of claims is borrowed: searches over schedules need not see it.
    shards: std::sync::Mutex<Vec<Arc<Shard>>>,
}

impl LookupCounters {
    /// Counters at zero. From the seed follows which lookups are sampled.
    pub fn new(seed: u64) -> Self {
        Self {
            number: NEXT_COUNTERS.fetch_add(1, Ordering::Relaxed),
            seed,
            shards: std::sync::Mutex::default(),
        }
    }

    /// Adds the figures of lookups; `alone`: of one that was not counted by [`Self::next_sampled`].
    #[inline]
    pub fn add(&self, counts: &LookupCounts, alone: bool) {
        self.with_shard(|shard| {
            shard.add(counts);
            if alone {
                shard.count_down(1, self.number);
            }
        });
    }

    /// Whether this thread's next lookup, if it comes alone, is to be sampled: one load.
    #[inline]
    pub fn is_next_sampled(&self) -> bool {
        MARKED.get() == self.number + 1
    }

    /// Of this thread's next `lookups`, 32 at most, the number of the one that is to be sampled, if one is.
    #[inline]
    pub fn next_sampled(&self, lookups: u64) -> Option<u64> {
        self.with_shard(|shard| shard.count_down(lookups, self.number)).flatten()
    }

    #[inline]
    fn with_shard<T>(&self, body: impl FnOnce(&Shard) -> T) -> Option<T> {
        // A thread that is ending has no list any more, and looks nothing up.
        let done = CLAIMS.try_with(|claims| {
            let mut claims = claims.borrow_mut();
            match claims.first() {
                Some(claim) if claim.counters == self.number => body(&claim.shard),
                _ => body(self.claim(&mut claims)),
            }
        });
        done.ok()
    }

    /// This thread's shard, which is first in `claims` afterwards.
    #[cold]
    fn claim<'c>(&self, claims: &'c mut Vec<Claim>) -> &'c Shard {
        match claims.iter().position(|claim| claim.counters == self.number) {
            Some(at) => claims.swap(0, at),
            None => {
                // A shard that nobody else holds belongs to counters that are gone.
                claims.retain(|claim| Arc::strong_count(&claim.shard) > 1);
                claims.insert(0, Claim { counters: self.number, shard: self.free_shard() });
            }
        }
        &claims[0].shard
    }

    /// A shard without an owner, be it that its thread ended or that it is new.
    fn free_shard(&self) -> Arc<Shard> {
        let mut shards = self.shards();
        if let Some(shard) = shards.iter().find(|shard| Arc::strong_count(shard) == 1) {
            // The last owner's stores come before it gave up its claim, which the count shows.
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
        let mut sums = [0u64; LookupCounts::COUNT];
        for shard in self.shards().iter() {
            for (sum, counter) in sums.iter_mut().zip(&shard.counts) {
                *sum = sum.wrapping_add(counter.load(Ordering::Relaxed));
            }
        }
        LookupCounts::from_fields(sums)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one() -> LookupCounts {
        LookupCounts { lookups: 1, hashes: 2, found: 1, data_reads: 3, ..Default::default() }
    }

    #[test]
    fn figures_of_several_counters_on_several_threads_add_up() {
        let all = [1, 2, 3].map(LookupCounters::new);
        for round in 1..=3 {
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        for number in 0..3000 {
                            all[number % 3].add(&one(), true);
                        }
                    });
                }
            });
            for counters in &all {
                let total = counters.total();
                let seen = (total.lookups, total.hashes, total.found, total.data_reads, total.filters);
                assert_eq!(seen, (4000 * round, 8000 * round, 4000 * round, 12_000 * round, 0));
                assert!(counters.shards().len() <= 4, "shards of threads that ended are used again");
            }
        }
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
        // However soon they end.
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
        // The same lookups, whatever else is looked up beside them, by whichever database, one by one or in groups.
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
