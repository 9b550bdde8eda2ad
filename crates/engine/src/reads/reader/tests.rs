//! Tests of lookups of many keys against single lookups: the same answers and counts, whatever is
//! cached, and with or without reading threads.

use std::path::Path;
use std::sync::Arc;

use shamba_env::{Env, MemFs, ThreadSpawner};

use crate::{Db, Stats};
use shamba_testkit::Dice;

/// A tree of several levels with deletes, range deletes and a filled memtable.
fn filled(env: &Env, dice: &Dice, memory_budget_bytes: u64) -> Db {
    let builder = Db::builder(Path::new("/db")).env(env.clone()).create_if_missing(true);
    let builder = builder
        .memory_budget(memory_budget_bytes)
        .write_buffer(8 << 10)
        .experimental(|e| e.file_size(8 << 10).record_cache(0));
    let db = builder.size_ratio(3.0).bits_per_key(4.0).open().expect("open");
    for number in 0..3_000usize {
        match dice.below(40) {
            0 => db.delete(key(dice.below(1_000))).expect("delete"),
            1 if number % 3 == 0 => {
                let from = dice.below(1_000);
                db.delete_range(key(from)..key(from + dice.below(5))).expect("delete_range");
            }
            _ => {
                // Inline, copied, and some that fill a block each.
                let bytes = [5, 60, 60, 60, 1_200][dice.below(5)];
                db.put(key(dice.below(1_000)), vec![number as u8; bytes]).expect("put");
            }
        }
    }
    // A compaction between two readings of the counters would change them.
    db.wait_idle().expect("idle");
    db
}

fn key(number: usize) -> Vec<u8> {
    format!("key {:08}", number.wrapping_mul(7_919) % 100_000).into_bytes()
}

/// The counts that must be equal. Whether a block was read or cached depends on the order.
fn counted(before: &Stats, after: &Stats) -> [u64; 8] {
    let s = after.since(before);
    let blocks = s.reads.data.count + s.cache_hits;
    [
        s.lookups,
        s.hashes,
        s.filters_consulted,
        s.modules_tested,
        s.false_positives,
        s.memtable_hits,
        s.found,
        blocks,
    ]
}

fn compare(env: &Env, seed: u64, memory_budget_bytes: u64, slow_reads: bool) -> u64 {
    println!("seed {seed}, budget {memory_budget_bytes}, slow reads {slow_reads}");
    let dice = Dice::new(seed);
    let db = filled(env, &dice, memory_budget_bytes);
    let mut reads = 0;
    for _ in 0..40 {
        if slow_reads {
            for _ in 0..20 {
                db.core().memory.cache().note_read(4_096, 1_000_000);
            }
            assert!(db.core().reads.reading_threads().is_some());
        }
        let keys: Vec<Vec<u8>> = (0..dice.below(100)).map(|_| key(dice.below(1_400))).collect();
        let before = db.stats();
        let together = db.multi_get(&keys).expect("multi_get");
        let between = db.stats();
        let alone: Vec<_> = keys.iter().map(|key| db.get(key).expect("get")).collect();
        let after = db.stats();
        assert_eq!(together, alone);
        assert_eq!(counted(&before, &between), counted(&between, &after));
        reads += between.since(&before).reads.data.count;
    }
    db.close().expect("close");
    reads
}

#[test]
fn many_keys_at_once_are_as_many_single_lookups() {
    for seed in 0..4 {
        let inline = || Env::deterministic(Arc::new(MemFs::new()), seed);
        let threads = || Env { spawner: Arc::new(ThreadSpawner::new()), ..inline() };
        compare(&inline(), seed, 64 << 20, false);
        for memory_budget_bytes in [4 << 20, 64 << 20] {
            let reads = compare(&threads(), seed, memory_budget_bytes, true);
            assert!(reads > 0, "blocks were read");
        }
    }
}
