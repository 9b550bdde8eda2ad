//! Suite M, the part within one process: a slow disk. The full disk and the few descriptors are
//! tested with the real binary (`crates/cli/tests/command/victim.rs`), memory under overload is
//! measured by `shamba-lab check overload`.
//!
//! Flushes are slower than writes, so writes stall. A write with a deadline fails with `Stalled`
//! and has no effect, one without waits; reads continue and are correct; memory stays within the
//! budget; no acknowledged write is lost.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use shamba::env::{Env, MemFs};
use shamba::{Db, ErrorKind, MergePolicy, WriteOptions};

const BUDGET_BYTES: u64 = 4 << 20;
const VALUE_BYTES: usize = 6 << 10;

fn open(env: &Env, policy: MergePolicy, write_us: f64) -> Db {
    let builder = Db::builder(Path::new("/db")).env(env.clone()).info_log(false).memory_budget(BUDGET_BYTES);
    let builder = builder
        .write_buffer(16 << 10)
        .experimental(|e| e.file_size(64 << 10))
        .size_ratio(3.0)
        .merge_policy(policy);
    let builder = builder.experimental(|e| e.l0_slowdown_runs(2).l0_stop_runs(3).max_immutable_memtables(1));
    builder.experimental(|e| e.device_write_us(write_us)).open().expect("open")
}

fn key(number: u64) -> String {
    format!("key{number:06}")
}

fn value(number: u64) -> Vec<u8> {
    let mut value = format!("{number}.").into_bytes();
    value.resize(VALUE_BYTES, number as u8);
    value
}

#[test]
fn a_slow_disk_stalls_writes_and_nothing_else() {
    for policy in [MergePolicy::Leveling, MergePolicy::Tiering] {
        let env = Env { vfs: Arc::new(MemFs::new()), ..Env::real() };
        let db = open(&env, policy, 3_000.0);
        let (stop, acked, reads) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
        let mut stored = Vec::new();
        let stalled = std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut number = 0;
                while !stop.load(Ordering::Acquire) {
                    // Writes acknowledged before the read are visible, whatever the state of their
                    // memtable.
                    let count = acked.load(Ordering::Acquire);
                    if count == 0 {
                        std::thread::yield_now();
                        continue;
                    }
                    number = (number * 7 + 3) % count;
                    let found = db.get(key(number)).expect("a read during a stall");
                    assert_eq!(found.as_deref(), Some(&value(number)[..]), "{policy}: {number} of {count}");
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
            let hasty = WriteOptions::new().deadline_ms(5);
            let (mut stalled, mut number) = (0, 0);
            while stalled < 20 && number < 4_000 {
                match db.put_with(key(number), value(number), hasty) {
                    Ok(()) => {}
                    Err(error) if error.kind() == ErrorKind::Stalled => {
                        stalled += 1;
                        assert!(!db.contains_key(key(number)).expect("read"), "it was refused");
                        // Without a deadline it waits, and then succeeds.
                        db.put(key(number), value(number)).expect("a write that waits");
                    }
                    Err(error) => panic!("{policy}: {error:?}"),
                }
                stored.push(number);
                number += 1;
                acked.store(number, Ordering::Release);
            }
            stop.store(true, Ordering::Release);
            stalled
        });
        assert!(stalled >= 20, "{policy}: {stalled} of {} writes stalled", stored.len());
        let (peak, reads) = (db.memory().peak_bytes, reads.into_inner());
        assert!(peak <= BUDGET_BYTES, "{policy}: {peak} bytes were counted");
        assert!(reads > 100, "{policy}: {reads} reads");
        println!("suite M, slow disk, {policy}: {} writes, {stalled} stalled, {reads} reads", stored.len());
        drop(db);
        let db = open(&env, policy, 0.0);
        for number in &stored {
            let found = db.get(key(*number)).expect("get");
            assert_eq!(found.as_deref(), Some(&value(*number)[..]), "{policy}: {number}");
        }
        assert_eq!(db.iter().count(), stored.len());
        assert!(db.verify().expect("verify").is_clean());
    }
}
