//! Each call judges expiry by one time, also if the time moves on, and a compaction runs, in the
//! middle of it.
//!
//! Not here: what readers see at their time (`expiry.rs`).

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use shamba::env::{Clock, Env, ManualClock, MemFs};
use shamba::merge::Append;
use shamba::{Builder, Db, KeyspaceOptions};

use crate::expiry::after;

/// An action between two readings of the clock, and the number of readings before it.
type Due = (u32, Box<dyn FnOnce() + Send>);

/// A clock that runs an action right after one of its readings by a reader of expiring entries,
/// which read the wall clock and then the counter.
#[derive(Default)]
struct Interrupting {
    clock: ManualClock,
    due: Mutex<Option<Due>>,
    wall_is_read: AtomicBool,
}

impl fmt::Debug for Interrupting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Interrupting").field(&self.clock).finish()
    }
}

impl Clock for Interrupting {
    fn now_us(&self) -> u64 {
        let now_us = self.clock.now_us();
        if self.wall_is_read.swap(false, Ordering::SeqCst) {
            let mut due = self.due.lock().expect("no panic");
            match due.take() {
                Some((0, action)) => {
                    drop(due);
                    action();
                }
                Some((readings, action)) => *due = Some((readings - 1, action)),
                None => {}
            }
        }
        now_us
    }

    fn unix_ms(&self) -> u64 {
        self.wall_is_read.store(true, Ordering::SeqCst);
        self.clock.unix_ms()
    }

    fn sleep_us(&self, us: u64) {
        self.clock.sleep_us(us);
    }

    fn wait_ns(&self, ns: u64) {
        self.clock.wait_ns(ns);
    }
}

impl Interrupting {
    /// Runs `action` after one reading more than `readings`.
    fn interrupt(&self, readings: u32, action: impl FnOnce() + Send + 'static) {
        *self.due.lock().expect("no panic") = Some((readings, Box::new(action)));
    }

    /// Whether no action waits.
    fn is_done(&self) -> bool {
        self.due.lock().expect("no panic").is_none()
    }
}

/// A database whose operands are appended, and its clock. Without filters, so that every lookup
/// asks the record cache.
fn open() -> (Builder, Arc<Interrupting>) {
    let clock = Arc::new(Interrupting::default());
    let env = Env::deterministic(Arc::new(MemFs::new()), 1);
    let env = Env { clock: Arc::clone(&clock) as _, ..env };
    let builder = Db::builder("/db")
        .env(env)
        .memory_budget(16 << 20)
        .bits_per_key(0.0)
        .keyspace("default", KeyspaceOptions::new().merge_operator(Append::separated_by(",")));
    (builder, clock)
}

#[test]
fn another_time_to_live_keeps_no_base_that_has_expired() {
    let mut kept = Vec::new();
    for (in_tables, readings) in [false, true].into_iter().flat_map(|it| (0..6).map(move |at| (it, at))) {
        let (builder, clock) = open();
        let db = builder.open().expect("opened");
        db.put_with("k", "base", after(1_000)).expect("written");
        let expiry_ms = db.expiry_ms_of("k").expect("read").expect("it expires");
        db.merge("k", "0").expect("written");
        if in_tables {
            db.flush().expect("flushed");
        }
        let moved = Arc::clone(&clock);
        clock.interrupt(readings, move || moved.clock.advance_us(1_000_000));
        assert!(db.set_time_to_live("k", Duration::from_secs(60)).expect("written"));
        let written_ms = db.expiry_ms_of("k").expect("read").expect("it expires") - 60_000;
        let value = db.get("k").expect("read");
        let due: &[u8] = if written_ms < expiry_ms { b"base,0" } else { b"0" };
        let which = format!("after {readings} readings, in tables: {in_tables}");
        assert_eq!(value.as_deref(), Some(due), "{which}: written at {written_ms}, expires at {expiry_ms}");
        kept.push(due.len() > 1);
    }
    assert!(kept.contains(&true) && kept.contains(&false), "the base expired in time: {kept:?}");
}

#[test]
fn the_record_cache_answers_at_the_time_of_the_call() {
    let (builder, clock) = open();
    let db = builder.experimental(|e| e.record_cache(1 << 20)).open().expect("opened");
    for key in ["a", "b"] {
        db.put_with(key, "base", after(1_000)).expect("written");
    }
    db.merge("b", "0").expect("written");
    db.flush().expect("flushed");
    let value = |db: &Db, key: &str| db.get(key).expect("read").map(|value| value.to_vec());
    let others = db.clone();
    let moved = Arc::clone(&clock);
    // The call has found "a" and has its time. Now both bases expire, the compaction drops them,
    // and other readers record the operands without it.
    clock.interrupt(0, move || {
        moved.clock.advance_us(1_000_000);
        others.compact().expect("compacted");
        for _ in 0..3 {
            assert_eq!((value(&others, "a"), value(&others, "b")), (None, Some(b"0".to_vec())));
        }
        let before = others.stats().record_hits;
        assert_eq!(value(&others, "b"), Some(b"0".to_vec()));
        assert_eq!(others.stats().record_hits, before + 1, "\"b\" has a record");
    });
    // More than a group of keys, which ask the cache together.
    let keys: Vec<String> = ["a".into()].into_iter().chain((0..40).map(|n| format!("a{n}"))).collect();
    let keys = keys.iter().map(String::as_str).chain(["b"]);
    let values = db.multi_get(keys).expect("read");
    assert!(clock.is_done(), "the call read the time");
    let ends = [values.first(), values.last()].map(|value| value.and_then(|it| it.as_deref()));
    assert_eq!(ends, [Some(&b"base"[..]), Some(&b"base,0"[..])]);
}
