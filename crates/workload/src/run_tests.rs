//! Every workload on a small database in memory: counts, found shares, and figures that add up.

use std::sync::Arc;

use shamba::Db;
use shamba::env::{Env, MemFs};

use super::*;

fn open() -> Db {
    let env = Env::deterministic(Arc::new(MemFs::new()), 7);
    Db::builder("/bench")
        .env(env)
        .write_buffer(64 << 10)
        .size_ratio(3.0)
        .info_log(false)
        .open()
        .expect("opens")
}

fn options() -> Options {
    Options { num: 3000, reads: 2000, ..Options::default() }
}

fn run_on(db: &Db, workload: Workload, options: &Options) -> BenchResult {
    let progress = Progress::default();
    let result = run(db, workload, options, &progress).unwrap_or_else(|error| panic!("{workload}: {error}"));
    assert_eq!(progress.read().0, progress.read().1, "{workload} reports all of its progress");
    result
}

#[test]
fn fills_write_every_item_once_and_in_their_order() {
    for (workload, shape) in [
        (Workload::FillSeq, KeyShape::Sequential),
        (Workload::FillSeq, KeyShape::Random),
        (Workload::FillRandom, KeyShape::Path),
    ] {
        let db = open();
        let options = Options { key_shape: shape, ..options() };
        let result = run_on(&db, workload, &options);
        assert_eq!(result.ops, 3000);
        assert_eq!(db.iter().count(), 3000, "{workload} {shape}");
        assert_eq!(db.stats().puts, 3000);
        assert!(result.bytes_written > 0 && result.seconds > 0.0 && result.p999_ns >= result.p50_ns);
    }
}

#[test]
fn reads_find_exactly_what_they_should() {
    let db = open();
    run_on(&db, Workload::FillRandom, &options());
    for distribution in Distribution::ALL {
        let result = run_on(&db, Workload::ReadRandom, &Options { distribution, ..options() });
        assert_eq!((result.ops, result.found_share), (2000, 1.0), "{distribution}");
        assert_eq!(result.hashes_per_get, 1.0);
    }
    let missing = run_on(&db, Workload::ReadMissing, &options());
    assert_eq!((missing.found_share, missing.expected_found_share), (0.0, Some(0.0)));
    for multi_get in [1, 7, 32, 1000] {
        let options = Options { multi_get, ..options() };
        assert_eq!(run_on(&db, Workload::MultiReadRandom, &options).found_share, 1.0, "{multi_get}");
        assert_eq!(run_on(&db, Workload::MultiReadMissing, &options).found_share, 0.0, "{multi_get}");
    }
    let half = run_on(&db, Workload::ReadRandom, &Options { empty_fraction: 0.5, ..options() });
    assert!((0.4..0.6).contains(&half.found_share));
    assert_eq!(Some(half.found_share), half.expected_found_share);
    let seek = run_on(&db, Workload::SeekRandom, &options());
    assert_eq!(seek.found_share, 1.0);
}

/// Workloads that insert have indices of more digits than the fill.
#[test]
fn workloads_that_insert_read_the_keys_of_the_fill() {
    for key_shape in [KeyShape::Path, KeyShape::Url] {
        let options = Options { num: 300, reads: 300, key_shape, ..options() };
        let db = open();
        run_on(&db, Workload::FillRandom, &options);
        for workload in [Workload::YcsbE, Workload::YcsbD] {
            assert_eq!(run_on(&db, workload, &options).found_share, 1.0, "{workload} {key_shape}");
        }
    }
}

#[test]
fn walks_stop_at_the_end_of_the_data() {
    let db = open();
    run_on(&db, Workload::FillSeq, &options());
    for workload in [Workload::ReadSeq, Workload::ReadReverse] {
        assert_eq!(run_on(&db, workload, &options()).ops, 2000);
        let longer = Options { reads: 5000, ..options() };
        let result = run(&db, workload, &longer, &Progress::default()).expect("runs");
        assert_eq!(result.ops, 3000, "{workload} meets the end");
    }
}

#[test]
fn deletes_overwrites_and_queues_change_what_is_there() {
    let db = open();
    run_on(&db, Workload::FillRandom, &options());
    run_on(&db, Workload::Overwrite, &options());
    assert_eq!(db.iter().count(), 3000, "overwriting adds nothing");
    let queue = run(&db, Workload::Queue, &options(), &Progress::default()).expect("runs");
    assert_eq!((queue.ops, queue.found_share), (6000, 1.0), "every take finds the head");
    assert_eq!(db.iter().count(), 3000, "the queue ends empty");
    run_on(&db, Workload::DeleteRandom, &options());
    let left = db.iter().count();
    assert!((1000..2200).contains(&left), "{left} items left of 3,000 after 2,000 draws");
    let share = run_on(&db, Workload::ReadRandom, &Options { reads: 20_000, ..options() }).found_share;
    assert!((share - left as f64 / 3000.0).abs() < 0.05);
}

#[test]
fn scans_of_memtables_find_their_entry() {
    let db = open();
    run_on(&db, Workload::FillRandom, &options());
    let seeks = run_on(&db, Workload::SeekAfterPuts, &options());
    assert_eq!((seeks.ops, seeks.found_share), (2000, 1.0));
    assert_eq!(db.iter().count(), 3000, "all of its puts are of existing items");
    for workload in [Workload::ScanDeletedRange, Workload::ScanDeletedKeys] {
        let scans = run_on(&db, workload, &options());
        assert_eq!((scans.ops, scans.found_share), (100, 1.0), "{workload}");
        assert_eq!(db.iter().count(), 1, "{workload} leaves the entry behind the deleted ones");
        let refused = Options { threads: 2, ..options() }.check(workload).expect_err("two threads");
        assert!(refused.to_string().contains("--threads"), "{refused}");
    }
}

#[test]
fn ycsb_mixes_are_what_they_say() {
    let db = open();
    run_on(&db, Workload::FillRandom, &options());
    for (workload, gets, puts) in [
        (Workload::YcsbA, 1000.0, 1000.0),
        (Workload::YcsbB, 1900.0, 100.0),
        (Workload::YcsbC, 2000.0, 0.0),
        (Workload::YcsbD, 1900.0, 100.0),
        (Workload::YcsbE, 0.0, 100.0),
        (Workload::YcsbF, 2000.0, 1000.0),
    ] {
        let before = db.stats();
        let result = run_on(&db, workload, &options());
        let stats = db.stats().since(&before);
        let near = |count: u64, expected: f64| (count as f64 - expected).abs() <= expected * 0.3;
        assert!(near(stats.lookups, gets), "{workload}: {} gets", stats.lookups);
        assert!(near(stats.puts, puts), "{workload}: {} puts", stats.puts);
        assert_eq!(result.found_share, 1.0, "{workload} finds what it or the fill wrote");
    }
}

#[test]
fn threads_share_the_work() {
    let env = Env { vfs: Arc::new(MemFs::new()), ..Env::real() };
    let db = Db::builder("/bench").env(env).info_log(false).open().expect("opens");
    let options = Options { threads: 3, ..options() };
    assert_eq!(run_on(&db, Workload::FillRandom, &options).ops, 3000);
    assert_eq!(db.iter().count(), 3000);
    assert_eq!(run_on(&db, Workload::ReadRandom, &options).found_share, 1.0);
    assert_eq!(run_on(&db, Workload::ReadWhileWriting, &options).found_share, 1.0);
    let queue = run(&db, Workload::Queue, &options, &Progress::default()).expect("runs");
    assert_eq!((queue.ops, queue.found_share), (6000, 1.0));
}

#[test]
fn the_same_seed_does_the_same() {
    let contents = |seed, turn| {
        let db = open();
        let options = Options { seed, turn, ..options() };
        run_on(&db, Workload::FillRandom, &options);
        run_on(&db, Workload::DeleteRandom, &options);
        db.iter().map(|entry| entry.expect("reads")).collect::<Vec<_>>()
    };
    assert_eq!(contents(5, 0), contents(5, 0));
    assert_ne!(contents(5, 0), contents(6, 0));
    assert_ne!(contents(5, 0), contents(5, 1));
}

#[test]
fn options_that_cannot_be_met_are_refused_before_anything_is_done() {
    let db = open();
    for (options, word) in [
        (Options { num: 0, ..options() }, "--num"),
        (Options { reads: 0, ..options() }, "--reads"),
        (Options { threads: 0, ..options() }, "--threads"),
        (Options { empty_fraction: 1.5, ..options() }, "--empty-fraction"),
        (Options { key_size: Some(1), ..options() }, "--key-size"),
        (Options { value_size: 1 << 30, ..options() }, "--value-size"),
        (Options { multi_get: 0, ..options() }, "--multi-get"),
    ] {
        let error = run(&db, Workload::FillSeq, &options, &Progress::default()).expect_err(word);
        assert!(matches!(&error, Error::Options(text) if text.contains(word)), "{error}");
    }
    assert_eq!(db.sequence(), 0);
}
