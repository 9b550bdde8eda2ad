//! Tests of filter rewrites: when they pay, that they change only filters, and that they terminate.

use shamba_env::Env;

use super::*;
use crate::{Allocation, Builder, Db, MergePolicy, Sizing};

#[test]
fn better_filters_pay_where_they_are_asked_and_spare_bits_where_memory_is_dear() {
    let fpr = |bits: f64| 0.6f64.powf(bits);
    let dear = Worth { search_ns: 1_000.0, byte_ns_per_second: 10.0, rewrite_ns_per_byte: 20.0 };
    let free = Worth { byte_ns_per_second: 0.0, ..dear };
    let table = StaleFilter {
        bytes: 2 << 20,
        entries: 20_000,
        written_bits_per_key: 4.0,
        wanted_bits_per_key: 12.0,
        empty_probes_per_second: 10_000.0,
    };
    assert!(pays(table, free, fpr));
    assert!(!pays(StaleFilter { empty_probes_per_second: 1.0, ..table }, free, fpr), "hardly anybody asks");
    assert!(!pays(table, Worth { rewrite_ns_per_byte: 1e7, ..free }, fpr), "a very slow disk");
    assert!(!pays(StaleFilter { bytes: 2 << 40, ..table }, free, fpr), "too much to write");
    let spare = StaleFilter {
        written_bits_per_key: 12.0,
        wanted_bits_per_key: 4.0,
        empty_probes_per_second: 0.0,
        ..table
    };
    assert!(pays(spare, dear, fpr), "20 KB are worth more elsewhere");
    assert!(!pays(spare, free, fpr), "nobody wants the memory");
}

fn builder(env: &Env, bits_per_key: f64) -> Builder {
    Db::builder("/db")
        .env(env.clone())
        .memory_budget(16 << 20)
        .write_buffer(32 << 10)
        .experimental(|e| e.file_size(32 << 10))
        .merge_policy(MergePolicy::Tiering)
        .size_ratio(4.0)
        .experimental(|e| e.sizing(Sizing::Manual).filter_allocation(Allocation::Uniform))
        .bits_per_key(bits_per_key)
        .info_log(false)
}

fn key(number: u32) -> [u8; 4] {
    number.wrapping_mul(0x9e37_79b9).to_be_bytes()
}

/// Bits per key of every table in lookup order, with its level.
fn bits(db: &Db) -> Vec<(u32, f64)> {
    let keyspace = Arc::clone(db.core().catalog.keyspaces().values().next().expect("one"));
    let version = Arc::clone(&keyspace.load().version);
    version.tables().map(|(level, _, table)| (level, table.meta.bits_per_key)).collect()
}

#[test]
fn all_tables_get_their_bits_where_they_are_and_say_the_same_as_before() {
    let env = Env::deterministic(Arc::new(shamba_env::MemFs::new()), 1);
    let db = builder(&env, 5.0).open().expect("opens");
    let mut model = std::collections::BTreeMap::new();
    for number in 0..6_000u32 {
        let key = key(number % 4_000);
        if number % 7 == 3 {
            db.delete(key).expect("deleted");
            model.remove(&key);
        } else {
            db.put(key, number.to_be_bytes().repeat(8)).expect("put");
            model.insert(key, number);
        }
    }
    db.delete_range(key(10)..=key(10)).expect("deleted");
    model.remove(&key(10));
    db.flush().expect("flushed");
    db.close().expect("closed");
    let db = builder(&env, 12.0).experimental(|e| e.auto_compaction(false)).open().expect("opens");
    db.put(b"later", b"x").expect("put");
    // Level 0 is not empty.
    db.flush().expect("flushed");
    let before = bits(&db);
    assert!(before.iter().any(|(level, _)| *level == 0) && before.iter().any(|(level, _)| *level > 0));
    assert!(before.iter().filter(|(_, bits)| *bits < 6.0).count() > 4, "{before:?}");
    let keyspace = Arc::clone(db.core().catalog.keyspaces().values().next().expect("one"));
    let version = Arc::clone(&keyspace.load().version);
    let all: BTreeSet<TableId> = version.tables().map(|(_, _, table)| table.meta.id).collect();
    let tables_of = |job_bytes| {
        let job =
            shamba_tree::compaction::policy::pick_filter_rewrite(&version, &all, job_bytes).expect("a job");
        job.check(&version).expect("nothing passes anything");
        job.inputs.iter().map(|input| input.tables.len()).sum::<usize>()
    };
    let first_run = version.runs().next().map_or(0, |(_, run)| run.tables().len());
    assert_eq!((tables_of(1), tables_of(u64::MAX)), (1, first_run));
    db.core().scheduler.rewrite_filters_now().expect("refitted");
    let after = bits(&db);
    assert!(after.iter().all(|(_, bits)| (11.0..13.0).contains(bits)), "{after:?}");
    let levels = |bits: &[(u32, f64)]| bits.iter().map(|(level, _)| *level).collect::<BTreeSet<_>>();
    assert_eq!(levels(&before), levels(&after), "nothing moved");
    for number in 0..4_000 {
        let found = db.get(key(number)).expect("answers").map(|value| value.to_vec());
        let expected = model.get(&key(number)).map(|number| number.to_be_bytes().repeat(8));
        assert_eq!(found, expected, "{number}");
    }
    assert_eq!(db.get(b"later").expect("answers").as_deref(), Some(&b"x"[..]));
    db.verify().expect("sound");
    let written = db.stats().bytes_compacted;
    db.core().scheduler.rewrite_filters_now().expect("nothing to do");
    assert_eq!(db.stats().bytes_compacted, written);
}

#[test]
fn a_keyspace_that_was_dropped_meanwhile_is_waited_for_by_nobody() {
    let env = Env::deterministic(Arc::new(shamba_env::MemFs::new()), 1);
    let db = builder(&env, 5.0).open().expect("opens");
    let gone = db.keyspace("gone").expect("made");
    let core = db.core();
    let id = *core.catalog.keyspaces().keys().last().expect("two");
    let wanted = vec![(id, BTreeSet::from([TableId(1)]))];
    assert_eq!(
        core.scheduler
            .queue_filter_rewrites(&mut core.scheduler.background.state.lock(), wanted.clone(), false)
            .len(),
        1
    );
    drop(gone);
    db.drop_keyspace("gone").expect("dropped");
    assert!(!core.scheduler.background.state.lock().requests.has_filter_rewrite(), "taken off the list");
    assert!(
        core.scheduler
            .queue_filter_rewrites(&mut core.scheduler.background.state.lock(), wanted, true)
            .is_empty(),
        "not put on it"
    );
    assert!(!core.scheduler.background.state.lock().requests.has_filter_rewrite());
}
