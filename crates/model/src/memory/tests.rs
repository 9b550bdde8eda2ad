//! Shares by example, and their properties over random inputs.

use super::constants::{BUFFER_WINDOWS, CACHE_FLOOR_PART};
use super::*;
use crate::value::{Prices, WriteBuffer};

const MIB: u64 = 1 << 20;
const BUDGET: u64 = 64 * MIB;
const STEP: u64 = BUDGET / STEP_PART;
/// Memory held by others that leaves 48 MiB to share.
const OTHERS: u64 = 14 * MIB;
const SHARED: u64 = 48 * MIB;

/// SplitMix64: reproducible numbers without a dependency.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % bound.max(1)
    }

    pub(super) fn share(&mut self) -> f64 {
        self.below(1_000_001) as f64 / 1e6
    }

    /// A number of any magnitude; in one case of eight an extreme one.
    pub(super) fn bytes(&mut self) -> u64 {
        match self.below(8) {
            0 => [0, 1, u64::MAX, u64::MAX / 2][self.below(4) as usize],
            _ => {
                let bits = self.below(44);
                self.below(1 << bits)
            }
        }
    }

    /// A value per byte, in one case of eight not a valid one.
    pub(super) fn value(&mut self) -> f64 {
        match self.below(8) {
            0 => [f64::NAN, f64::INFINITY, -1.0, f64::MAX][self.below(4) as usize],
            _ => self.share() * 10.0,
        }
    }

    fn consumer(&mut self) -> Consumer {
        Consumer {
            role: [Role::Share { first_part: self.below(9) }, Role::Rest, Role::Limit]
                [self.below(3) as usize],
            share_bytes: (self.below(3) > 0).then(|| self.bytes()),
            floor_bytes: self.bytes() / [1, 64][self.below(2) as usize],
            bytes_max: self.bytes(),
            useful_bytes: self.bytes(),
            every_windows: self.below(3),
            gain_per_byte: self.value(),
            loss_per_byte: self.value(),
        }
    }
}

/// The configured size of the write buffer in these tests.
const BUFFER: u64 = 8 * MIB;

fn buffer(pages_per_second: f64) -> WriteBuffer {
    let design = crate::Design::new(crate::MergePolicy::Leveling, 10.0, BUFFER, 10.0);
    let prices = Prices { write_ns: constants::WRITE_NS, ..Prices::COUNTING_IOS };
    WriteBuffer::new(&design, &prices, pages_per_second, 1.0, 0.0, 0.0).unwrap()
}

/// The engine's three consumers, and the state that is carried from window to window.
struct Database {
    cache_share_bytes: Option<u64>,
    buffer_share_bytes: Option<u64>,
    cache_bytes_max: u64,
    pool_bytes_max: u64,
    fixed_bytes: u64,
    others_bytes: u64,
    /// The write buffer neither gives nor takes memory.
    has_fixed_buffer: bool,
    last: Option<Window>,
}

const POOL: usize = 0;
const CACHE: usize = 1;
const WRITE_BUFFER: usize = 2;

impl Database {
    fn new() -> Self {
        Self {
            cache_share_bytes: None,
            buffer_share_bytes: None,
            cache_bytes_max: u64::MAX,
            pool_bytes_max: u64::MAX,
            fixed_bytes: 0,
            others_bytes: OTHERS,
            has_fixed_buffer: true,
            last: None,
        }
    }

    /// Half of the shared memory belongs to the cache.
    fn even() -> Self {
        Self { cache_share_bytes: Some(SHARED / 2), ..Self::new() }
    }

    fn shares(&self, plan: PlanValue, cache_gain: f64, buffer_value: WriteBuffer) -> Shares {
        let consumers = [
            filters_and_indexes(BUDGET, &plan, self.fixed_bytes, self.pool_bytes_max),
            block_cache(BUDGET, self.cache_share_bytes, self.cache_bytes_max, cache_gain),
            write_buffer(BUDGET, self.buffer_share_bytes, BUFFER, buffer_value, self.has_fixed_buffer),
        ];
        decide(&Inputs {
            budget_bytes: BUDGET,
            others_bytes: self.others_bytes,
            consumers: &consumers,
            last: self.last.as_ref(),
        })
    }

    /// One window, as the engine runs it.
    fn window(&mut self, plan: PlanValue, cache_gain: f64, buffer_value: WriteBuffer) -> Vec<u64> {
        let shares = self.shares(plan, cache_gain, buffer_value);
        self.cache_share_bytes = shares.moved(CACHE).or(self.cache_share_bytes);
        self.buffer_share_bytes = shares.moved(WRITE_BUFFER).or(self.buffer_share_bytes);
        self.last = Some(shares.window);
        shares.bytes
    }
}

/// Filters and indexes whose bytes are all worth this much.
fn worth(per_byte: f64) -> PlanValue {
    PlanValue { gain_per_byte: per_byte, loss_per_byte: per_byte, useful_bytes: u64::MAX, kept_bytes: 0 }
}

/// Runs windows in which a step more is worth `pool(bytes)` per byte to the pool and `cache(bytes)`
/// to the cache.
fn run(
    database: &mut Database,
    pool: impl Fn(u64) -> f64,
    cache: impl Fn(u64) -> f64,
    windows: u64,
) -> Vec<u64> {
    let mut bytes = database.shares(worth(0.0), 0.0, buffer(0.0)).bytes;
    for _ in 0..windows {
        let (gain_per_byte, loss_per_byte) = (pool(bytes[POOL]), pool(bytes[POOL].saturating_sub(STEP)));
        let plan = PlanValue { gain_per_byte, loss_per_byte, useful_bytes: u64::MAX, kept_bytes: 0 };
        bytes = database.window(plan, cache(bytes[CACHE]), buffer(0.0));
    }
    bytes
}

#[test]
fn before_the_first_decision_the_cache_has_an_eighth_of_what_is_shared() {
    let bytes = Database::new().shares(worth(0.0), 0.0, buffer(0.0)).bytes;
    assert_eq!(bytes, [SHARED / 8 * 7, SHARED / 8, BUFFER]);
}

#[test]
fn memory_goes_where_it_saves_more_and_stays_where_both_are_worth_the_same() {
    // Worth 1/bytes each, the pool three times as much: it gets three quarters.
    let end = run(&mut Database::even(), |bytes| 3e8 / bytes as f64, |bytes| 1e8 / bytes as f64, 200);
    let share = end[POOL] as f64 / SHARED as f64;
    assert!((0.6..0.85).contains(&share), "{share}");
    // The cache has no misses: the pool gets all but the floor.
    let end = run(&mut Database::even(), |_| 1.0, |_| 0.0, 200);
    assert_eq!(end[CACHE], BUDGET / CACHE_FLOOR_PART);
    // Every useful piece is resident: the cache gets the remainder.
    let mut database = Database { fixed_bytes: MIB, ..Database::even() };
    let end = run(&mut database, |_| 0.0, |_| 1.0, 200);
    assert_eq!((end[POOL], end[CACHE]), (MIB, SHARED - MIB));
}

#[test]
fn a_difference_within_the_margin_is_noise() {
    let end = run(&mut Database::even(), |_| 1.1, |_| 1.0, 50);
    assert_eq!((end[POOL], end[CACHE]), (SHARED / 2, SHARED / 2));
}

#[test]
fn the_write_buffer_follows_the_writes_once_a_minute_within_its_bounds() {
    let mut database = Database { has_fixed_buffer: false, ..Database::even() };
    let mut sizes = vec![BUFFER];
    for _ in 0..6 * BUFFER_WINDOWS {
        let bytes = database.window(worth(0.0), 0.0, buffer(100_000.0));
        if sizes.last() != Some(&bytes[WRITE_BUFFER]) {
            sizes.push(bytes[WRITE_BUFFER]);
        }
    }
    assert_eq!(
        sizes,
        [8, 10, 12, 14, 16].map(|mib| mib * MIB),
        "one step a minute, twice the design at most"
    );
    for _ in 0..10 * BUFFER_WINDOWS {
        sizes.push(database.window(worth(1e6), 0.0, buffer(1.0))[WRITE_BUFFER]);
    }
    assert_eq!(
        sizes.last(),
        Some(&(2 * MIB)),
        "reads need the memory more: a quarter of the design at least"
    );
}

#[test]
fn memory_in_which_filters_are_only_kept_is_worth_nothing_to_the_pool() {
    let buffer_after = |kept_bytes| {
        // The cache has nothing to give.
        let mut database =
            Database { cache_share_bytes: Some(0), has_fixed_buffer: false, ..Database::new() };
        let plan = PlanValue { loss_per_byte: 1e9, useful_bytes: u64::MAX, kept_bytes, gain_per_byte: 0.0 };
        let windows = (0..2 * BUFFER_WINDOWS).map(|_| database.window(plan, 0.0, buffer(100_000.0)));
        windows.last().unwrap()[WRITE_BUFFER]
    };
    assert_eq!(buffer_after(0), BUFFER);
    assert!(buffer_after(STEP) > BUFFER);
}

#[test]
fn dormant_filters_stay_until_the_cache_would_read_as_much_again_as_they_take() {
    // One read of 1,000 ns per additional 4 KiB, once in half a minute, and once in five seconds.
    let [seldom, often] = [30.0, 5.0].map(|seconds| 1_000.0 / 4096.0 / seconds);
    for gains in [[0.0, 0.0], [seldom; 2], [often, seldom], [seldom, often]] {
        assert!(!is_cache_worth_moving(gains), "{gains:?}");
    }
    assert!(is_cache_worth_moving([often; 2]));
}

#[test]
fn a_consumer_with_a_maximum_leaves_the_memory_beyond_it_to_the_others() {
    let mut database = Database { cache_bytes_max: 26 * MIB, ..Database::even() };
    let end = run(&mut database, |_| 0.0, |_| 1e6, 20);
    assert_eq!((end[POOL], end[CACHE]), (22 * MIB, 26 * MIB));
    // A share that was decided before the maximum was lowered, too: the cache could not use it.
    let database = Database { cache_bytes_max: MIB, ..Database::even() };
    let bytes = database.shares(worth(0.0), 1e6, buffer(0.0)).bytes;
    assert_eq!((bytes[POOL], bytes[CACHE]), (SHARED - MIB, MIB));
    // Filters at their maximum take no step, which they could not use.
    let mut database = Database { pool_bytes_max: 10 * MIB, ..Database::even() };
    let end = run(&mut database, |_| 1e6, |_| 0.0, 20);
    assert_eq!((end[POOL], end[CACHE], database.cache_share_bytes), (10 * MIB, 38 * MIB, Some(SHARED / 2)));
}

#[test]
fn filters_take_a_step_at_once_however_much_of_their_share_is_fixed() {
    // The pool saved nothing for long: it has only what cannot be evicted, 12 MiB. When it saves
    // again, its second window brings memory for a step of filters. With a floor of 0 its share
    // would have fallen to 0, and six steps would have passed before the first useful byte.
    let mut database = Database { fixed_bytes: 12 * MIB, ..Database::even() };
    let end = run(&mut database, |_| 0.0, |_| 1.0, 100);
    assert_eq!(end[POOL], 12 * MIB);
    let grown: Vec<u64> = (0..3).map(|_| database.window(worth(5.0), 0.0, buffer(0.0))[POOL]).collect();
    assert_eq!(grown, [12, 14, 16].map(|mib| mib * MIB));
}

#[test]
fn floors_beyond_the_shared_memory_are_granted_in_order() {
    let database = Database { fixed_bytes: 3 * MIB, others_bytes: 60 * MIB, ..Database::even() };
    let shares = database.shares(worth(0.0), 0.0, buffer(0.0));
    // 2 MiB are shared: a quarter of one is the cache's floor, and 1.25 are missing.
    let missing_bytes = 3 * MIB + MIB / 4 - 2 * MIB;
    assert_eq!(shares.outcome, Outcome::FloorsExceedBudget { missing_bytes });
    assert_eq!(shares.bytes[..2], [2 * MIB - MIB / 4, MIB / 4]);
    let none = Database { others_bytes: u64::MAX, ..database };
    let shares = none.shares(worth(0.0), 0.0, buffer(0.0));
    assert_eq!(shares.bytes[..2], [0, 0]);
    assert_eq!(shares.outcome, Outcome::FloorsExceedBudget { missing_bytes: 3 * MIB + MIB / 4 });
}

#[test]
fn any_input_has_an_answer_within_the_budget_with_floors_and_twice_the_same() {
    let mut outcomes = [0, 0];
    for seed in 0..20_000 {
        let mut dice = Dice(seed);
        let count = dice.below(6);
        let mut consumers: Vec<Consumer> = (0..count).map(|_| dice.consumer()).collect();
        if let Some(second) = consumers.iter().rposition(|of| of.role == Role::Rest) {
            // The first one counts.
            if consumers.iter().position(|of| of.role == Role::Rest) != Some(second) {
                consumers[second].role = Role::Limit;
            }
        }
        let rests = consumers.iter().filter(|of| of.role == Role::Rest).count();
        if rests > 1 {
            continue;
        }
        let (budget_bytes, others_bytes) = (dice.bytes(), dice.bytes());
        let mut last: Option<Window> = None;
        for window in 0..4 {
            let inputs = Inputs { budget_bytes, others_bytes, consumers: &consumers, last: last.as_ref() };
            let shares = decide(&inputs);
            assert_eq!(shares.bytes, decide(&inputs).bytes, "seed {seed}, window {window}");
            let in_shared = |of: &(&Consumer, &u64)| of.0.role != Role::Limit;
            let of_all = || consumers.iter().zip(&shares.bytes);
            let sum: u128 = of_all().filter(in_shared).map(|(_, bytes)| u128::from(*bytes)).sum();
            let shared = shared_bytes(budget_bytes, others_bytes);
            assert!(sum <= u128::from(shared), "seed {seed}, window {window}: {sum} of {shared}");
            assert!(u128::from(budget_bytes) >= sum + u128::from(others_bytes.min(budget_bytes - shared)));
            let floors: u128 = of_all().filter(in_shared).map(|(of, _)| u128::from(of.floor_bytes)).sum();
            match shares.outcome {
                Outcome::Divided => {
                    outcomes[0] += 1;
                    for (of, bytes) in of_all() {
                        assert!(*bytes >= of.floor_bytes, "seed {seed}, window {window}: {of:?}, {bytes}");
                        assert!(*bytes <= of.bytes_max.max(of.floor_bytes), "seed {seed}: {of:?}, {bytes}");
                    }
                }
                Outcome::FloorsExceedBudget { .. } => {
                    outcomes[1] += 1;
                    assert!(floors > u128::from(shared), "seed {seed}, window {window}");
                }
            }
            for (at, consumer) in consumers.iter_mut().enumerate() {
                consumer.share_bytes = shares.moved(at).or(consumer.share_bytes);
            }
            last = Some(shares.window);
        }
    }
    assert!(outcomes.iter().all(|count| *count > 1_000), "both outcomes are tried: {outcomes:?}");
}

/// Diminishing savings of random height, as a value per byte of a step. The scale is at least
/// `scale_mib`.
fn random_curve(dice: &mut Dice, scale_mib: u64) -> impl Fn(u64) -> f64 + use<> {
    let (height, scale) = (50.0 * dice.share(), (scale_mib + dice.below(64)) as f64 * MIB as f64);
    let saved = move |bytes: u64| height * scale * (1.0 - (-(bytes as f64) / scale).exp());
    move |bytes| (saved(bytes + STEP) - saved(bytes)) / STEP as f64
}

/// Savings of the pool, which may be steep, and of the cache. The loss of the cache is taken to be
/// its gain, so its savings must change by less than the margin within a step.
fn random_curves(dice: &mut Dice) -> (impl Fn(u64) -> f64 + use<>, impl Fn(u64) -> f64 + use<>) {
    (random_curve(dice, 1), random_curve(dice, 16))
}

#[test]
fn a_step_of_the_input_is_followed_within_the_stated_windows() {
    let mut largest = 0;
    for seed in 0..500 {
        let mut dice = Dice(seed);
        let mut database = Database { fixed_bytes: dice.below(4 * MIB), ..Database::even() };
        database.cache_share_bytes = Some(dice.below(SHARED));
        // The input is constant, changes once, and is constant again.
        for phase in 0..2 {
            let (pool, cache) = random_curves(&mut dice);
            let before = run(&mut database, &pool, &cache, CONVERGENCE_WINDOWS);
            for window in 0..40 {
                let now = run(&mut database, &pool, &cache, 1);
                assert_eq!(now, before, "seed {seed}, phase {phase}: moved {window} windows after the bound");
            }
            let (gain, loss) = (pool(before[POOL]), cache(before[CACHE]));
            let cost = MOVING_NS_PER_BYTE / PAYBACK_SECONDS;
            let is_at_end = before[CACHE] <= BUDGET / CACHE_FLOOR_PART;
            assert!(
                is_at_end || gain <= loss * (1.0 + MARGIN) + cost,
                "seed {seed}: {before:?}, {gain}, {loss}"
            );
            largest = largest.max(before[CACHE]);
        }
    }
    assert!(largest > SHARED / 2, "some cases move memory to the cache");
}

#[test]
fn memory_moves_one_way_and_then_stays_on_constant_inputs() {
    for seed in 0..500 {
        let mut dice = Dice(seed);
        let mut database = Database { cache_share_bytes: Some(dice.below(SHARED)), ..Database::new() };
        let (pool, cache) = random_curves(&mut dice);
        let mut sizes = vec![];
        for _ in 0..3 * CONVERGENCE_WINDOWS {
            sizes.push(run(&mut database, &pool, &cache, 1)[CACHE]);
        }
        let (grows, shrinks) = (
            sizes.windows(2).filter(|of| of[1] > of[0]).count(),
            sizes.windows(2).filter(|of| of[1] < of[0]).count(),
        );
        assert!(grows == 0 || shrinks == 0, "seed {seed}: {sizes:?}");
    }
}

#[test]
fn noise_within_the_margin_moves_nothing() {
    for seed in 0..200 {
        let mut dice = Dice(seed);
        let mut database = Database::even();
        for window in 0..100 {
            let mut noisy = || 10.0 * (1.0 + 0.2 * (dice.share() - 0.5));
            let bytes = database.window(worth(noisy()), noisy(), buffer(0.0));
            assert_eq!(bytes[CACHE], SHARED / 2, "seed {seed}, window {window}");
        }
    }
}

#[test]
fn parts_of_the_budget() {
    assert_eq!(shared_bytes(3200, 0), 3100);
    assert_eq!(shared_bytes(3200, 1100), 2000);
    assert_eq!(shared_bytes(3200, u64::MAX), 0);
    assert_eq!((missing_bytes(3200, 3000), missing_bytes(3200, 3150)), (0, 50));
    for (budget, max) in
        [(0, 0), (64 << 20, 8 << 20), ((128 << 20) - 8, (16 << 20) - 1), (256 << 20, 64 << 20)]
    {
        assert_eq!(memtable_bytes_max(budget), max);
    }
    for (budget, iterators) in [(64, 8), (256, 32), (512, 32), (1024, 32), (4096, 128)] {
        assert_eq!(iterator_bytes(budget * MIB), iterators * MIB);
    }
    assert_eq!(work_bytes(256 * MIB, 16 * MIB), 2 * ((384 << 10) + 4 * MIB));
    assert_eq!(
        (
            kept_free_bytes(10, 0, 4, false),
            kept_free_bytes(10, 0, 11, false),
            kept_free_bytes(10, 0, 0, true)
        ),
        (6, 0, 0)
    );
    assert_eq!(memtable_charge(6400, 800, 50), (800 + 100 + 100 + 96, 1096 + 100));
    assert_eq!((decayed_peak_bytes(0), decayed_peak_bytes(800)), (0, 700));
    assert_eq!(
        (write_buffer_bytes(8, None), write_buffer_bytes(8, Some(1)), write_buffer_bytes(8, Some(99))),
        (8, 2, 16)
    );
}

#[test]
fn the_cache_shrinks_at_once_and_grows_by_more_than_a_tolerance() {
    let changed = |capacity, share| is_capacity_changed(6400, capacity, share);
    assert!(changed(3200, 3199));
    assert!(!changed(3200, 3200) && !changed(3200, 3300) && changed(3200, 3301), "a 64th of the budget");
    assert!(!changed(150, 160) && changed(150, 161), "a 16th of a small share");
}

#[test]
fn recent_ratios_halve_the_weight_of_older_windows() {
    assert_eq!(recent_ratio(0.0, 64, 0), 0.5);
    assert_eq!(recent_ratio(0.5, 0, 1_000), 0.25);
    assert_eq!(recent_ratio(0.5, 63, 0), 0.5, "few events are no measurement");
}

/// A window of the record cache in which a share of the lookups is answered.
fn records(hit_share: f64, is_sample: bool) -> Measured {
    let records = RecordLookups {
        asked: 100_000,
        hits: (1e5 * hit_share) as u64,
        repeats: 1_000,
        repeat_reads: 500,
        repeat_bytes: MIB,
        is_sample,
    };
    Measured { seconds: 1.0, read_ns: 2_000.0, records, ..Measured::default() }
}

#[test]
fn a_record_saves_the_search_and_the_reads_that_repeated_keys_took() {
    // A repeat read half a block: 350 + 1,000 ns. Asking costs 60 ns.
    assert_eq!(records(0.5, true).records_save_ns(), 50_000.0 * 1_350.0 - 100_000.0 * 60.0);
    assert!(records(0.02, true).records_save_ns() < 0.0, "few hits do not repay the asking");
}

#[test]
fn a_sample_is_worth_what_a_step_for_all_keys_would_save() {
    let sample = records(0.5, true);
    let all_ns = sample.records_save_ns() * 8.0;
    assert_eq!(sample.record_gain_per_byte(BUDGET), all_ns / STEP as f64);
    // A cache that covers every key gains what repeats would have saved, and loses its last step.
    let whole = records(0.5, false);
    assert_eq!(whole.record_gain_per_byte(BUDGET), 1_000.0 * 1_350.0 / MIB as f64);
    assert_eq!(whole.record_loss_per_byte(BUDGET, 8 * STEP), whole.record_gain_per_byte(BUDGET));
    assert!(whole.record_loss_per_byte(BUDGET, STEP) > whole.record_gain_per_byte(BUDGET));
}

#[test]
fn a_record_cache_that_may_have_no_share_takes_part_in_no_move() {
    let consumer = record_cache(BUDGET, None, 0, (1e9, 1e9));
    assert_eq!((consumer.floor_bytes, consumer.bytes_max, consumer.every_windows), (0, 0, 0));
    let consumers = [filters_and_indexes(BUDGET, &worth(0.0), 0, u64::MAX), consumer];
    let inputs = Inputs { budget_bytes: BUDGET, others_bytes: OTHERS, consumers: &consumers, last: None };
    let first = decide(&inputs);
    let second = decide(&Inputs { last: Some(&first.window), ..inputs });
    assert_eq!(second.bytes, [SHARED, 0]);
    assert!(second.moves.is_empty());
}
