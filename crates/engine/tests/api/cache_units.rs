//! Tests of filters and indexes cached in slices or as a whole: lookups agree with a sorted map for
//! any cache size, and the statistics count reads of whole units.

use std::collections::BTreeMap;
use std::sync::Arc;

use shamba::env::{Env, MemFs};
use shamba::{CacheUnit, Db, Residency};

/// Every layout with every residency and unit, with a cache that holds everything and one that
/// holds little.
#[test]
fn answers_are_a_sorted_maps_whatever_the_units() {
    let seed = std::env::var("SHAMBA_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let mut rng = fastrand::Rng::with_seed(seed);
    println!("seed {seed}");
    for layout in ["blocked", "modular:2", "modular:3"] {
        let env = Env { vfs: Arc::new(MemFs::new()), ..Env::real() };
        let builder = || {
            Db::builder("/db")
                .env(env.clone())
                .info_log(false)
                .set_option("filter-layout", layout)
                .expect("known")
        };
        let mut oracle = BTreeMap::new();
        let db = builder().open().expect("made");
        for _ in 0..30_000 {
            let key = format!("{:06}", rng.u32(..60_000));
            let value = rng.u64(..).to_string();
            db.put(&key, &value).expect("written");
            oracle.insert(key, value);
        }
        db.compact().expect("compacted");
        db.close().expect("closed");
        for residency in Residency::ALL {
            for (filters, indexes) in
                CacheUnit::ALL.into_iter().flat_map(|one| CacheUnit::ALL.map(|other| (one, other)))
            {
                for cache_bytes in [16 << 10, 64 << 20] {
                    let db = builder()
                        .experimental(|e| {
                            e.filter_residency(residency)
                                .cache_limit(cache_bytes)
                                .count_ios(true)
                                .filter_partition(filters)
                                .index_partition(indexes)
                        })
                        .read_only(true)
                        .open()
                        .expect("opened");
                    for _ in 0..600 {
                        let key = format!("{:06}", rng.u32(..60_000));
                        let found = db.get(&key).expect("read").map(|value| value.to_vec());
                        let wanted = oracle.get(&key).map(|value| value.clone().into_bytes());
                        assert_eq!(found, wanted, "seed {seed}, {layout}, {residency}, {filters}, {indexes}");
                    }
                    let reads = db.stats().reads;
                    if residency == Residency::Cached && cache_bytes > 1 << 20 {
                        let (tables, whole) = (db.tables().len() as u64, CacheUnit::Whole);
                        assert!(indexes != whole || reads.index.count <= tables, "each index is read once");
                        // The maximum for all layouts of this test.
                        let modules = 3 * tables;
                        assert!(
                            filters != whole || reads.filter.count <= modules,
                            "each module is read once"
                        );
                        assert!(reads.index.count > 0 && reads.filter.count > 0);
                    }
                }
            }
        }
    }
}

#[test]
fn unknown_switches_are_refused_with_those_that_there_are() {
    let set = |value: &str| Db::builder("/db").set_option("experimental", value).map(|_| ());
    set("filter-partition=whole").expect("known");
    for (wrong, known) in [
        ("filter-partition", "filter-partition must be sliced or whole"),
        ("index-partition=4KiB", "sliced or whole, not \"4KiB\""),
        ("partition=whole", "index-partition, "),
        ("memory-budget=8388608", "no experimental option \"memory-budget\""),
    ] {
        let error = set(wrong).expect_err(wrong).to_string();
        assert!(error.contains(known), "{error}");
    }
}
