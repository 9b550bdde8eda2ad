//! Tests of the cache: it always returns the right block's bytes, and charges the bytes that it
//! holds.

mod stress;
mod twin;

use shamba_env::{Rng, SeededRng};

use self::twin::{Blocks, payload};
use super::*;
use crate::ledger::LedgerPart;

fn cache(capacity_bytes: u64) -> Arc<BlockCache> {
    Arc::new(BlockCache::new(capacity_bytes, Arc::new(Ledger::new())))
}

fn check_ledger(cache: &BlockCache) {
    assert_eq!(cache.bytes(), cache.frames.shelf.ledger.bytes(LedgerPart::BlockCache));
}

#[test]
fn what_fits_stays_and_what_is_asked_for_stays_longest() {
    let cache = cache(4 << 20);
    let blocks = Blocks::new(&cache, 1, 3_000);
    for number in 0..900 {
        assert!(!blocks.ask(&cache, number, 1));
    }
    assert!((0..900).all(|number| blocks.ask(&cache, number, 1)), "all of them fit");
    for number in 900..3_000 {
        blocks.ask(&cache, number, 1);
        assert!(blocks.ask(&cache, 7, 1), "the block in use was evicted at {number}");
        assert!(cache.bytes() <= 4 << 20);
        check_ledger(&cache);
    }
    let kept = (0..3_000).filter(|number| blocks.peek(&cache, *number)).count();
    assert!((900..1_024).contains(&kept), "{kept} of 1,024 frames hold a block");
}

#[test]
fn a_capacity_of_nothing_keeps_nothing() {
    for capacity in [0, 1, 10_000] {
        let cache = cache(capacity);
        let blocks = Blocks::new(&cache, 1, 4);
        for _ in 0..2 {
            assert!(!blocks.ask(&cache, 0, 1));
            assert!(!blocks.ask(&cache, 1, 3));
        }
        assert_eq!(cache.bytes(), 0);
    }
}

#[test]
fn tables_that_are_removed_or_closed_leave_nothing_behind() {
    let cache = cache(4 << 20);
    let mut tables: Vec<Blocks> = (1..=3).map(|id| Blocks::new(&cache, id, 300)).collect();
    for blocks in &tables {
        (0..300).for_each(|number| blocks.bring(&cache, number, if number % 50 == 0 { 2 } else { 1 }));
    }
    cache.remove_table(TableId(1));
    cache.remove_table(TableId(9));
    let kept = |blocks: &Blocks| (0..300).filter(|number| blocks.peek(&cache, *number)).count();
    assert_eq!(tables.iter().map(kept).collect::<Vec<_>>(), [0, 300, 300]);
    let pin = tables[1].pin(&cache, 0).expect("there");
    let pinned = payload(tables[1].table, 0, pin.len());
    let before = cache.bytes();
    let two = tables.remove(1);
    two.close(&cache);
    assert_eq!(*pin, *pinned, "a pin outlives its table");
    let after = cache.bytes();
    assert!(after < before, "large blocks of a closed table are freed");
    drop(pin);
    assert!(cache.bytes() < after, "and the pinned one when it is let go");
    // All frames of the other tables are free for new blocks: no block of table 3 is evicted.
    let four = Blocks::new(&cache, 4, 600);
    (0..600).for_each(|number| four.bring(&cache, number, 1));
    assert_eq!((kept(&tables[1]), kept(&four)), (300, 300));
    check_ledger(&cache);
}

#[test]
fn a_smaller_capacity_is_kept_at_once_except_for_pins() {
    let cache = cache(8 << 20);
    let blocks = Blocks::new(&cache, 1, 3_000);
    for number in 0..3_000 {
        blocks.ask(&cache, number, if number % 10 == 0 { 3 } else { 1 });
    }
    let pins: Vec<_> = (2_980..2_990).filter_map(|number| blocks.pin(&cache, number)).collect();
    assert!(!pins.is_empty());
    for capacity in [5 << 20, 1 << 20, 6 << 20, 300_000] {
        cache.set_capacity_bytes(capacity);
        assert!(cache.bytes() <= capacity.max(3 << 20), "{} of {capacity}", cache.bytes());
        for number in 0..3_000 {
            blocks.ask(&cache, number, if number % 10 == 0 { 3 } else { 1 });
        }
        check_ledger(&cache);
    }
    cache.set_capacity_bytes(0);
    assert!(cache.bytes() > 0, "pinned frames are still held");
    drop(pins);
    assert_eq!(cache.bytes(), 0);
    assert!((0..3_000).all(|number| !blocks.peek(&cache, number)));
    cache.set_capacity_bytes(1 << 20);
    assert!(!blocks.ask(&cache, 1, 1));
    assert!(blocks.ask(&cache, 1, 1), "it grows again");
}

#[test]
fn large_and_small_blocks_share_the_capacity_by_what_is_missed() {
    let cache = cache(8 << 20);
    let (small, large) = (Blocks::new(&cache, 1, 10_000), Blocks::new(&cache, 2, 10_000));
    (0..10_000).for_each(|number| small.bring(&cache, number, 1));
    let kept = |blocks: &Blocks| (0..10_000).filter(|number| blocks.peek(&cache, *number)).count();
    let all = kept(&small);
    for number in 0..3_000 {
        large.ask(&cache, number, 3);
        small.ask(&cache, number * 3, 1);
    }
    let (smalls, larges) = (kept(&small), kept(&large));
    assert!(larges * 3 > all / 2 && smalls > all / 8, "{smalls} small, {larges} large of {all}");
    (0..6_000).for_each(|number| small.bring(&cache, number % 5_000, 1));
    assert!(kept(&small) > all * 3 / 4, "small blocks come back: {}", kept(&small));
    assert!(!large.ask(&cache, 9_999, 400));
    assert!(!large.ask(&cache, 9_999, 400), "more than an eighth of the capacity stays out");
    check_ledger(&cache);
}

#[test]
fn a_section_holds_frames_back_and_the_read_goes_on_uncached() {
    let cache = cache(1 << 20);
    let blocks = Blocks::new(&cache, 1, 2_000);
    (0..500).for_each(|number| blocks.bring(&cache, number, 1));
    let table = blocks.table;
    let (slots, others) = blocks.slots.split_at(1_000);
    let kept = (0..1_000)
        .rev()
        .find(|number| cache.enter().find(&slots[*number], table.key(*number as u32)).is_some());
    let kept = kept.expect("some block");
    let section = cache.enter();
    let hit = section.find(&slots[kept], table.key(kept as u32)).expect("there");
    let mut refused = 0;
    for (number, slot) in others.iter().enumerate() {
        match cache.fresh(1) {
            Some(mut fresh) => {
                fresh.fill(0xee);
                fresh.publish(slot, table.key(1_000 + number as u32), 100);
            }
            None => refused += 1,
        }
    }
    assert!(refused > 500, "frames were reused below a reader: only {refused} refused");
    assert_eq!(hit.payload(), payload(table, kept as u32, hit.payload().len()), "what is looked at stays");
    drop(section);
    assert!(cache.fresh(1).is_some());
}

#[test]
fn a_random_life_agrees_with_the_twin() {
    for seed in 0..30 {
        random_life(seed);
    }
}

/// Runs all operations in random order on one thread. [`Blocks`] compares all bytes.
fn random_life(seed: u64) {
    let dice = SeededRng::new(seed);
    let below = |end: usize| (dice.next_u64() % end as u64) as usize;
    let mut capacity = [300_000, 2 << 20, 5 << 20][below(3)];
    let cache = cache(capacity);
    let mut tables: Vec<Blocks> = (1..=3).map(|id| Blocks::new(&cache, id, 400)).collect();
    let mut next_table = 4;
    let mut pins = Vec::new();
    let mut hits = 0;
    for step in 0..6_000 {
        let at = below(tables.len());
        match below(1_000) {
            0..10 => {
                capacity = below(6 << 20) as u64;
                cache.set_capacity_bytes(capacity);
            }
            10..15 => cache.remove_table(TableId(below(next_table) as u64)),
            15..20 => {
                tables.swap_remove(at).close(&cache);
                tables.push(Blocks::new(&cache, next_table as u64, 400));
                next_table += 1;
            }
            20..100 => {
                let number = below(400) as u32;
                if let Some(pin) = tables[at].pin(&cache, number) {
                    pins.push((tables[at].table, number, pin));
                }
            }
            100..180 if !pins.is_empty() => {
                let (table, number, pin) = pins.swap_remove(below(pins.len()));
                assert_eq!(*pin, *payload(table, number, pin.len()), "seed {seed} step {step}");
                let start = below(pin.len());
                let part = pin.clone().narrow(start..pin.len()).expect("inside");
                assert_eq!(part[..], pin[start..]);
                assert!(pin.clone().narrow(start..pin.len() + 1).is_none());
                drop(pin);
                drop(part);
            }
            180..200 => drop(cache.fresh(1 + below(20_000))),
            // Half of the lookups go to a tenth of the blocks.
            _ => {
                let number = if below(2) == 0 { below(40) } else { below(400) } as u32;
                let pages = if number % 10 == 3 { 2 + number as usize % 4 } else { 1 };
                hits += usize::from(tables[at].ask(&cache, number, pages));
            }
        }
        check_ledger(&cache);
        // A pinned small frame keeps its whole slab, of at most 64 frames here.
        let slack = pins.len() as u64 * 64 * 4_300;
        assert!(cache.bytes() <= capacity + slack, "seed {seed} step {step}: {}", cache.bytes());
    }
    assert!(hits > 100, "seed {seed}: {hits} hits");
    drop(pins);
    cache.set_capacity_bytes(0);
    assert_eq!(cache.bytes(), 0, "seed {seed}");
}

/// Filters of five levels, each four times as large as the one above, in a cache that has shrunk to
/// a fraction of its first capacity: it keeps the frequently read ones although small blocks are
/// admitted, too.
#[test]
fn a_cache_that_has_shrunk_keeps_large_blocks_as_well_as_an_lru_would() {
    for (capacity, first_capacity) in
        [(88_000_u64, 88_000), (88_000, 5 << 20), (253_000, 5 << 20), (500_000, 5 << 20)]
    {
        let cache = Arc::new(BlockCache::new(first_capacity, Arc::new(Ledger::new())).admitting_all());
        cache.set_capacity_bytes(capacity);
        let blocks = Blocks::new(&cache, 1, 1_000);
        let rng = SeededRng::new(3);
        let (mut misses, mut lru_misses) = (0, 0);
        let mut lru = std::collections::VecDeque::new();
        for round in 0..10_000 {
            let mut first = 0;
            for files in [1, 1, 4, 15, 61] {
                let number = first + (rng.next_u64() % files) as u32;
                first += files as u32;
                misses += u32::from(!blocks.ask(&cache, number, 4));
                let at = lru.iter().position(|known| *known == number);
                lru_misses += u32::from(at.is_none());
                at.map(|at| lru.remove(at));
                lru.push_front(number);
                lru.truncate((capacity / 16_384) as usize);
            }
            if round % 10 == 0 {
                blocks.bring(&cache, 100 + (rng.next_u64() % 900) as u32, 1);
            }
        }
        assert!(f64::from(misses) < f64::from(lru_misses) * 1.2, "{capacity}: {misses}, an LRU {lru_misses}");
        check_ledger(&cache);
    }
}

/// With timed reads, one in sixteen fast reads is admitted once the cache is full; with counted
/// reads, all.
#[test]
fn who_counts_reads_has_every_miss_kept() {
    let clock = shamba_env::Env::deterministic(Arc::new(shamba_env::MemFs::new()), 1).clock;
    let kept = |cache: BlockCache| {
        let cache = Arc::new(cache);
        let blocks = Blocks::new(&cache, 1, 1_000);
        (0..1_000).for_each(|number| blocks.bring(&cache, number, 1));
        (0..1_000).filter(|_| cache.missed(None, &*clock).keep).count()
    };
    let cache = || BlockCache::new(1 << 20, Arc::new(Ledger::new()));
    assert!((30..130).contains(&kept(cache())));
    assert_eq!(kept(cache().admitting_all()), 1_000);
}

#[test]
fn a_small_cache_keeps_the_largest_slice_of_a_filter() {
    let cache = cache(320 << 10);
    let blocks = Blocks::new(&cache, 1, 2);
    assert!(!blocks.ask(&cache, 0, 16) && blocks.ask(&cache, 0, 16), "64 KiB of 320");
    assert!(!blocks.ask(&cache, 1, 17) && !blocks.ask(&cache, 1, 17), "more than an eighth");
}
