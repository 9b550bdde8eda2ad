//! One hash per lookup: proved by the counter inside the hashing function, in trees of one to eight
//! levels.
//!
//! With sharing on, a lookup computes exactly one digest, whatever it probes; with sharing off it
//! computes max(1, filters probed). The answers are the same. The injected defect `second-hash`
//! shows that a second hash would be detected.

use std::path::Path;
use std::sync::Arc;

use shamba::env::{Env, MemFs};
use shamba::{Db, MergePolicy, Stats};
use shamba_tests::vectors::Vector;

const LEVELS: u32 = 8;
const HOME: &str = "/db";

fn key(number: u32) -> Vec<u8> {
    // Spread over the key range, so that every run covers every key.
    format!("key/{:010}", number.wrapping_mul(2_654_435_761)).into_bytes()
}

fn absent(number: u32) -> Vec<u8> {
    let mut key = key(number);
    key.push(b'!');
    key
}

fn open(vector: &Vector, env: &Env) -> Db {
    vector.builder(Path::new(HOME), env).open().expect("the database opens")
}

/// Looks up present and absent keys one by one and checks each lookup's hashes. Returns the answers
/// and the total counters.
fn look_up(db: &Db, sharing: bool, count: u32) -> (Vec<Option<Vec<u8>>>, Stats) {
    let begin = db.stats();
    let mut before = begin.clone();
    let mut answers = Vec::new();
    for number in (0..count).step_by((count / 150).max(1) as usize) {
        for key in [key(number), absent(number)] {
            answers.push(db.get(&key).expect("get").map(|value| value.to_vec()));
            let now = db.stats();
            let one = now.since(&before);
            assert_eq!(one.lookups, 1);
            let expected = if sharing { 1 } else { one.filters_consulted.max(1) };
            assert_eq!(
                one.hashes,
                expected,
                "one lookup that consulted {} filters, sharing {sharing}:\n{}",
                one.filters_consulted,
                db.describe()
            );
            before = now;
        }
    }
    (answers, before.since(&begin))
}

/// The other lookup methods also compute one hash per key.
fn other_ways(db: &Db, count: u32) {
    let before = db.stats();
    let keys = (0..64).map(|number| if number % 2 == 0 { key(number % count) } else { absent(number) });
    db.multi_get(keys).expect("multi_get");
    db.contains_key(key(0)).expect("contains_key");
    db.get_with(key(0), <[u8]>::len).expect("get_with");
    db.snapshot().get(absent(1)).expect("get in a snapshot");
    let hashed = db.hash_key(key(1));
    let counted = db.stats().since(&before);
    assert_eq!((counted.lookups, counted.hashes), (67, 67), "multi_get, contains_key, get_with, snapshot");
    let before = db.stats();
    db.get_hashed(&hashed).expect("get_hashed");
    assert_eq!(db.stats().since(&before).hashes, 0, "the key came with its hash");
}

fn grow_through_all_levels(policy: MergePolicy) {
    let env = Env::deterministic(Arc::new(MemFs::new()), 3);
    let mut vector = Vector::plain(policy);
    vector.bits_per_key = 5.0;
    // Above 2, where the policies differ, but not much, so that eight levels stay small.
    vector.size_ratio = 2.2;
    vector.write_buffer = 6 << 10;
    vector.block_bytes = 4096;
    // Levels overflow file by file: small files leave data on every level.
    vector.file_size = 8 << 10;
    let mut count = 0;
    for level in 1..=LEVELS {
        vector.hash_sharing = true;
        let mut db = open(&vector, &env);
        // A new level may hold everything: continue until there are more runs to probe.
        let is_grown = |stats: &Stats| stats.deepest_level >= level && stats.runs >= u64::from(level.min(3));
        while !is_grown(&db.stats()) {
            db.put(key(count), format!("value {count} {}", "v".repeat(40))).expect("put");
            count += 1;
            assert!(count < 1_000_000, "{policy} reaches no level {level}:\n{}", db.describe());
        }
        let (shared, stats) = look_up(&db, true, count);
        assert_eq!(stats.hashes_per_get(), 1.0);
        other_ways(&db, count);
        db.close().expect("close");

        vector.hash_sharing = false;
        db = open(&vector, &env);
        let (unshared, without) = look_up(&db, false, count);
        assert!(shared == unshared, "{policy}, level {level}: answers differ with sharing off");
        let found = shared.iter().flatten().count();
        assert_eq!(found, shared.len() / 2, "{policy}, level {level}: every present key is found, no other");
        if level >= 4 {
            let spared = without.hashes_per_get();
            assert!(
                spared > 1.2,
                "{policy}, level {level}: {spared} hashes a lookup without sharing\n{}",
                db.describe()
            );
        }
        println!(
            "{policy}, {level} levels, {} runs: {:.2} filters a lookup, hashes {:.2} shared, {:.2} not",
            db.stats().runs,
            without.filters_per_get(),
            stats.hashes_per_get(),
            without.hashes_per_get()
        );
        db.close().expect("close");
    }
}

#[test]
fn one_hash_a_lookup() {
    for policy in [MergePolicy::Leveling, MergePolicy::Tiering, MergePolicy::LazyLeveling] {
        grow_through_all_levels(policy);
    }
}
