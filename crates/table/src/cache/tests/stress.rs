//! Stress test of many threads on one small cache: readers check every byte while others fill,
//! evict, pin, close tables and change the capacity.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use shamba_env::{Rng, SeededRng};

use super::cache;
use super::twin::{Blocks, payload};
use crate::id::TableId;

const THREADS: u64 = 4;
const STEPS: usize = 20_000;

#[test]
fn readers_see_whole_blocks_only_while_everything_changes() {
    let cache = cache(1 << 20);
    let tables: Vec<Blocks> = (1..=2).map(|id| Blocks::new(&cache, id, 400)).collect();
    let (hits, done) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|seed| {
                let (cache, tables, hits) = (&cache, &tables, &hits);
                scope.spawn(move || {
                    let dice = SeededRng::new(seed);
                    let below = |end: usize| (dice.next_u64() % end as u64) as usize;
                    let mut pins = Vec::new();
                    for _ in 0..STEPS {
                        let (blocks, number) = (&tables[below(2)], below(400) as u32);
                        let pages = if number % 10 == 3 { 2 } else { 1 };
                        if blocks.ask(cache, number, pages) {
                            hits.fetch_add(1, Ordering::Relaxed);
                        }
                        if below(8) == 0 {
                            if let Some(pin) = blocks.pin(cache, number) {
                                pins.push((blocks.table, number, pin));
                            }
                        }
                        if pins.len() > below(20) {
                            let (table, number, pin) = pins.swap_remove(below(pins.len()));
                            assert_eq!(*pin, *payload(table, number, pin.len()), "seed {seed}");
                        }
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            let dice = SeededRng::new(99);
            let mut capacity = 0;
            while !done.load(Ordering::Relaxed) {
                capacity = (capacity + 1) % 4;
                cache.set_capacity_bytes([1 << 20, 1_500_000, 500_000, 2 << 20][capacity]);
                let short_lived = Blocks::new(&cache, 3, 20);
                (0..20).for_each(|number| short_lived.bring(&cache, number, 1));
                short_lived.close(&cache);
                cache.remove_table(TableId(dice.next_u64() % 3));
                std::thread::yield_now();
            }
        });
        let ends: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        done.store(true, Ordering::Relaxed);
        ends.into_iter().for_each(|end| end.expect("no panic"));
    });
    let hits = hits.load(Ordering::Relaxed);
    assert!(hits > THREADS * STEPS as u64 / 20, "only {hits} hits");
    cache.set_capacity_bytes(0);
    assert_eq!(cache.bytes(), 0);
}
