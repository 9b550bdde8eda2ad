//! Settlement tests in whole databases without threads: file errors, and changes of the workload.
//!
//! Tests of the part alone are in [`alone`].

mod alone;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use shamba_env::{
    Clock, Effect, Env, FaultFs, FaultRule, JoinHandle, ManualClock, MemFs, OpKind, Spawner, ThreadSpawner,
    Vfs,
};
use shamba_model::memory::constants::WINDOW_US;
use shamba_table::{TableReader, Unasked};

use super::settle::Progress;
use crate::{Builder, Db, ErrorKind, Event, EventListener, FilterLayout, Modules};

fn faulty() -> (Arc<FaultFs>, Builder) {
    let faults = Arc::new(FaultFs::new(Arc::new(MemFs::new()), 1));
    let env = Env::deterministic(Arc::clone(&faults) as Arc<dyn Vfs>, 1);
    let builder = Db::builder("/db")
        .env(env)
        .memory_budget(16 << 20)
        .experimental(|e| e.auto_compaction(false))
        .info_log(false);
    (faults, builder)
}

/// Writes one table of level 0 for each of `runs`, all with the same keys.
fn fill(db: &Db, runs: u32) {
    for run in 0..runs {
        for number in 0..2_000u32 {
            db.put(number.wrapping_mul(0x9e37_79b9).to_be_bytes(), [run as u8; 100]).expect("put");
        }
        db.flush().expect("flushed");
    }
}

fn readers(db: &Db) -> Vec<Arc<TableReader>> {
    let core = db.core();
    let keyspace = Arc::clone(core.catalog.keyspaces().values().next().expect("one"));
    let view = keyspace.load_full();
    view.version.tables().map(|(_, _, table)| Arc::clone(table.meta.reader.get().expect("open"))).collect()
}

fn is_whole(reader: &TableReader) -> bool {
    super::survey::held_partitions(reader) == reader.index_partitions()
        && reader.filter().is_some_and(|filter| filter.absent_slices() == 0)
}

fn let_all_go(readers: &[Arc<TableReader>]) {
    for reader in readers {
        (0..reader.index_partitions()).for_each(|number| reader.drop_partition(number));
        reader.hold_filter(&[], Unasked::default()).expect("reads nothing");
    }
}

/// Counts warnings, and asks the database for figures during each.
#[derive(Default)]
struct Asking {
    warnings: AtomicU64,
    db: std::sync::OnceLock<std::sync::Weak<crate::database::core::Core>>,
}

impl EventListener for Asking {
    fn event(&self, event: &Event) {
        if matches!(event, Event::Warning(_)) {
            self.warnings.fetch_add(1, Ordering::Relaxed);
            if let Some(core) = self.db.get().and_then(std::sync::Weak::upgrade) {
                assert!(core.residency.report().ledger_bytes > 0);
            }
        }
    }
}

#[test]
fn a_table_that_cannot_be_read_keeps_no_other_from_memory_and_is_named_once() {
    let (faults, builder) = faulty();
    let listener = Arc::new(Asking::default());
    let db = builder.event_listener(Arc::clone(&listener) as Arc<dyn EventListener>).open().expect("opens");
    listener.db.set(Arc::downgrade(db.core())).expect("once");
    fill(&db, 3);
    let readers = readers(&db);
    assert!(readers.len() == 3 && readers.iter().all(|reader| is_whole(reader)));
    let before = listener.warnings.load(Ordering::Relaxed);
    for bad in &readers {
        let_all_go(&readers);
        let name = bad.path().file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
        faults.add_rule(FaultRule::storm(1.0, Effect::Eio).on(&[OpKind::Read]).at_path(&name));
        db.core().residency.settle_wholly();
        db.core().residency.settle_wholly();
        for reader in &readers {
            assert_eq!(is_whole(reader), !Arc::ptr_eq(reader, bad), "{name}: {}", reader.path().display());
        }
        faults.clear_rules();
    }
    assert_eq!(listener.warnings.load(Ordering::Relaxed) - before, 3, "{:?}", db.warnings());
    db.core().residency.settle_wholly();
    assert!(readers.iter().all(|reader| is_whole(reader)), "what failed is tried again");
}

const KEYS: u32 = 12_000;

fn key(number: u32) -> [u8; 4] {
    number.wrapping_mul(0x9e37_79b9).to_be_bytes()
}

/// Creates a database of one table with all of [`KEYS`]; returns memory that holds either its
/// filter or its index.
fn make_one_table(builder: Builder) -> u64 {
    let db = builder.open().expect("open");
    (0..KEYS).for_each(|number| db.put(key(number), [1; 100]).expect("put"));
    db.flush().expect("flushed");
    let [reader] = &readers(&db)[..] else { panic!("one table") };
    let filter_bytes = super::survey::filter_bytes(reader);
    let index_bytes = super::survey::whole_bytes(reader) - filter_bytes;
    let room_bytes = filter_bytes.max(index_bytes) + reader.index_base_bytes();
    db.close().expect("close");
    room_bytes
}

#[test]
fn filters_come_back_as_soon_as_lookups_turn() {
    let env = Env::deterministic(Arc::new(MemFs::new()), 1);
    let builder = || {
        Db::builder("/db")
            .env(env.clone())
            .experimental(|e| e.auto_compaction(false))
            .write_buffer(8 << 20)
            .info_log(false)
            .bits_per_key(3.0)
    };
    // Only the more valuable of the two fits.
    let room_bytes = make_one_table(builder());

    let db = builder().experimental(|e| e.resident_limit(room_bytes)).open().expect("open");
    let core = db.core();
    let lookups = |from: u32, count: u32| {
        for number in 0..count {
            let is_found = db.contains_key(key(from + number % KEYS)).expect("a lookup");
            assert_eq!(is_found, from == 0);
        }
    };
    let absent = || readers(&db)[0].filter().expect("a filter").absent_slices();
    let now_us = core.env.clock.now_us() + WINDOW_US;
    let mut worker = super::worker::Observations::new(&core.residency, now_us);
    lookups(0, 1_000_000);
    worker.look(&core.residency, now_us + WINDOW_US);
    let absent_before = absent();
    assert!(absent_before > 0, "one run, and every key is there: the index comes first");
    // A hundredth of all lookups so far, but all of the latest ones.
    lookups(KEYS, 10_000);
    worker.look(&core.residency, now_us + WINDOW_US * 17 / 16);
    worker.look(&core.residency, now_us + WINDOW_US * 21 / 16);
    assert!(absent() < absent_before, "not only when the window is over");
}

#[test]
fn index_partitions_come_back_when_seeks_come_and_go_when_lookups_of_absent_keys_do() {
    let clock = Arc::new(ManualClock::new());
    let env =
        Env { clock: Arc::clone(&clock) as Arc<dyn Clock>, ..Env::deterministic(Arc::new(MemFs::new()), 1) };
    let builder = || {
        let builder =
            Db::builder("/db").env(env.clone()).experimental(|e| e.auto_compaction(false)).info_log(false);
        builder.write_buffer(8 << 20).bits_per_key(5.0)
    };
    let room_bytes = make_one_table(builder());

    let db = builder().experimental(|e| e.resident_limit(room_bytes)).open().expect("open");
    let core = db.core();
    let mut worker = super::worker::Observations::new(&core.residency, clock.now_us());
    let mut windows = |count: u32, each: &dyn Fn(u32)| {
        for _ in 0..count {
            (0..2_000).for_each(each);
            clock.advance_us(WINDOW_US);
            worker.look(&core.residency, clock.now_us());
        }
        let [reader] = &readers(&db)[..] else { panic!("one table") };
        let absent = reader.filter().expect("a filter").absent_slices();
        (absent == 0, super::survey::held_partitions(reader) == reader.index_partitions())
    };
    let absent = |number: u32| assert!(!db.contains_key(key(KEYS + number)).expect("a lookup"));
    let seek = |number: u32| assert!(db.range(key(number)..).next().is_some());
    assert_eq!(windows(10, &absent), (true, false), "filters spare every search");
    assert_eq!(windows(60, &seek), (false, true), "no filter spares a seek anything");
    assert_eq!(windows(60, &absent), (true, false));
}

#[test]
fn a_read_is_priced_by_its_length_as_the_device_answers() {
    const KEYS_OF_LONG_FILTERS: u32 = 60_000;
    let clock = Arc::new(ManualClock::new());
    let slow = |inner: Arc<MemFs>| {
        let slow = shamba_env::SlowFs::new(inner, Arc::clone(&clock) as Arc<dyn Clock>, 100_000, 0);
        Arc::new(slow.reading_at(500_000_000))
    };
    let env = Env {
        clock: Arc::clone(&clock) as Arc<dyn Clock>,
        ..Env::deterministic(slow(Arc::new(MemFs::new())), 1)
    };
    let builder = || Db::builder("/db").env(env.clone()).info_log(false).write_buffer(8 << 20);
    let db = builder().open().expect("made");
    for number in 0..KEYS_OF_LONG_FILTERS {
        db.put(key(number), b"some value").expect("written");
    }
    db.flush().expect("flushed");
    db.close().expect("closed");

    // Slices of 37 KiB are read when the table is opened, blocks by lookups.
    let db = builder().open().expect("open");
    for number in (0..KEYS_OF_LONG_FILTERS).step_by(500) {
        assert!(db.contains_key(key(number)).expect("a lookup"));
    }
    let price = db.core().residency.read_price();
    let of = |bytes: u64| 100_000.0 + bytes as f64 * 2.0;
    for bytes in [4_096, 65_536] {
        let part = price.ns(bytes) / of(bytes);
        assert!(
            (0.9..1.1).contains(&part),
            "{bytes} bytes: {} ns, not {}: {price:?}",
            price.ns(bytes),
            of(bytes)
        );
    }
}

#[test]
fn a_filter_that_nobody_has_use_for_rests_where_there_is_room_and_comes_back_without_a_read() {
    let faults = Arc::new(FaultFs::new(Arc::new(MemFs::new()), 1));
    let clock = Arc::new(ManualClock::new());
    let env = Env {
        clock: Arc::clone(&clock) as Arc<dyn Clock>,
        ..Env::deterministic(Arc::clone(&faults) as Arc<dyn Vfs>, 1)
    };
    let three = Modules::equal(3).expect("three modules");
    let builder = || {
        let builder =
            Db::builder("/db").env(env.clone()).experimental(|e| e.auto_compaction(false)).info_log(false);
        // The first of three modules spares too little for its probes, whether or not the hit rate
        // may change.
        builder
            .write_buffer(8 << 20)
            .bits_per_key(3.0)
            .experimental(|e| e.filter_layout(FilterLayout::Modular(three)))
    };
    make_one_table(builder());

    let db = builder().open().expect("open");
    let core = db.core();
    let mut worker = super::worker::Observations::new(&core.residency, clock.now_us());
    let mut windows = |count: u32, lookups: u32, from: u32| {
        for _ in 0..count {
            for number in 0..lookups {
                let is_found = db.contains_key(key(from + number % KEYS)).expect("a lookup");
                assert_eq!(is_found, from == 0);
            }
            clock.advance_us(WINDOW_US);
            worker.look(&core.residency, clock.now_us());
        }
        let [reader] = &readers(&db)[..] else { panic!("one table") };
        assert!(is_whole(reader), "nothing was let go");
        (reader.filter().expect("a filter").asked() != 0, db.memory().levels[0].filter_dormant_bytes > 0)
    };
    assert_eq!(windows(2, 2_000, KEYS), (true, false));
    assert_eq!(
        windows(10, 40_000, 0),
        (false, true),
        "one run, and every key is there: filters only cost their probes"
    );
    let explained = db.explain(key(5)).expect("a lookup").to_string();
    assert!(explained.contains("in memory, but a probe costs more"), "{explained}");
    // Every block is cached by now: any further read is for the filter, and fails.
    faults.add_rule(FaultRule::storm(1.0, Effect::Eio).on(&[OpKind::Read]));
    assert_eq!(windows(60, 2_000, KEYS), (true, false), "lookups have turned");
    assert_eq!(db.warnings(), [] as [&str; 0]);
}

#[test]
fn a_settlement_pauses_and_is_continued() {
    let (faults, clock) = (Arc::new(FaultFs::new(Arc::new(MemFs::new()), 1)), Arc::new(ManualClock::new()));
    // A read takes longer than a settlement reads.
    let slow = shamba_env::SlowFs::new(
        Arc::clone(&faults) as Arc<dyn Vfs>,
        Arc::clone(&clock) as Arc<dyn Clock>,
        25_000_000,
        0,
    );
    let env = Env {
        clock: Arc::clone(&clock) as Arc<dyn Clock>,
        ..Env::deterministic(Arc::new(slow) as Arc<dyn Vfs>, 1)
    };
    let db = Db::builder("/db")
        .env(env)
        .memory_budget(16 << 20)
        .experimental(|e| e.auto_compaction(false))
        .info_log(false)
        .open()
        .expect("opens");
    fill(&db, 3);
    let residency = &db.core().residency;
    let readers = readers(&db);
    let whole_filters = || {
        let is_whole = |reader: &&Arc<TableReader>| reader.filter().expect("one").absent_slices() == 0;
        readers.iter().filter(is_whole).count()
    };
    let_all_go(&readers);
    let keyspace = Arc::clone(db.core().catalog.keyspaces().values().next().expect("one"));
    for read in 1..=3 {
        let before = keyspace.load_full();
        assert_eq!((residency.settle(), whole_filters()), (Progress::MoreToRead, read));
        assert!(!keyspace.load_full().is_like(&before), "lookups need not wait for the last one");
    }
    // Then the partitions of each table.
    for read in 1..=3 {
        let expected = if read < 3 { Progress::MoreToRead } else { Progress::Settled };
        assert_eq!(residency.settle(), expected);
        assert_eq!(readers.iter().filter(|reader| is_whole(reader)).count(), read);
    }

    // The thread goes on at once, and counts all of it: the next request waits in proportion.
    let_all_go(&readers);
    let mut worker = super::worker::Observations::new(residency, clock.now_us());
    clock.advance_us(WINDOW_US);
    for _ in 0..5 {
        assert_eq!(worker.look(residency, clock.now_us()), Progress::MoreToRead);
    }
    assert_eq!(worker.look(residency, clock.now_us()), Progress::Settled);
    assert!(readers.iter().all(|reader| is_whole(reader)));
    let_all_go(&readers);
    residency.wanted.store(true, Ordering::Release);
    clock.advance_us(WINDOW_US / 2);
    assert_eq!((worker.look(residency, clock.now_us()), whole_filters()), (Progress::Settled, 0));
    assert_eq!((residency.look(), whole_filters()), (Duration::ZERO, 1));
    residency.settle_wholly();

    // One that cannot be read keeps none from its turn, and is tried once.
    for bad in &readers {
        let_all_go(&readers);
        let name = bad.path().file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
        faults.add_rule(FaultRule::storm(1.0, Effect::Eio).on(&[OpKind::Read]).at_path(&name));
        let calls = (0..100).take_while(|_| residency.settle() == Progress::MoreToRead).count();
        assert_eq!(calls, 5, "{name}");
        for reader in &readers {
            assert_eq!(is_whole(reader), !Arc::ptr_eq(reader, bad), "{name}: {}", reader.path().display());
        }
        faults.clear_rules();
    }

    // While it pauses, memory can be had. What that took is read by the next settlement.
    let_all_go(&readers);
    assert_eq!((residency.settle(), whole_filters()), (Progress::MoreToRead, 1));
    residency.shrink_to(0);
    assert_eq!(whole_filters(), 0);
    residency.settle_wholly();
    assert_eq!(whole_filters(), 2);
    residency.settle_wholly();
    assert!(readers.iter().all(|reader| is_whole(reader)));

    let_all_go(&readers);
    residency.stop();
    assert_eq!(residency.settle(), Progress::Settled);
    let is_absent = |reader: &Arc<TableReader>| super::survey::held_partitions(reader) == 0;
    assert!(whole_filters() == 0 && readers.iter().all(is_absent), "a close waits for no more reads");
}

/// A spawner whose threads begin once the gate is open.
#[derive(Debug, Default)]
struct Gated {
    is_open: Mutex<bool>,
    opened: Condvar,
}

#[derive(Debug)]
struct GatedSpawner(Arc<Gated>);

/// Opens the gate when it is dropped, also by a failed assertion: a close waits for the threads.
struct Opening(Arc<Gated>);

impl Drop for Opening {
    fn drop(&mut self) {
        self.0.open();
    }
}

impl Gated {
    fn open(&self) {
        *self.is_open.lock().expect("no panic") = true;
        self.opened.notify_all();
    }
}

impl Spawner for GatedSpawner {
    fn is_inline(&self) -> bool {
        false
    }

    fn spawn(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> std::io::Result<JoinHandle> {
        let gate = Arc::clone(&self.0);
        let gated = move || {
            let is_open = gate.is_open.lock().expect("no panic");
            drop(gate.opened.wait_while(is_open, |is_open| !*is_open).expect("no panic"));
            work();
        };
        ThreadSpawner::new().spawn(name, Box::new(gated))
    }
}

/// A call that ends the first settlement: its name, whether the database is read-only, the call.
type Finishing<'a> = (&'a str, bool, &'a dyn Fn(&Db));

/// The upkeep thread loads them, or a call that says what is in memory.
#[test]
fn an_open_loads_nothing_and_the_upkeep_or_the_first_explanation_everything() {
    let vfs = Arc::new(MemFs::new());
    let made = Env::deterministic(Arc::clone(&vfs) as Arc<dyn Vfs>, 1);
    let builder = |env| Db::builder("/db").env(env).memory_budget(16 << 20).info_log(false);
    let db = builder(made).open().expect("open");
    fill(&db, 3);
    db.compact().expect("compacted");
    let levels = db.describe();
    db.close().expect("closed");
    let calls: [Finishing<'_>; 6] = [
        ("memory", true, &|db| assert!(db.memory().prices.filter_useful_bytes > 0)),
        ("explain", true, &|db| {
            let explained = db.snapshot().explain(0u32.to_be_bytes()).expect("explained").to_string();
            assert!(!explained.contains("not in memory"), "{explained}");
        }),
        ("explain_prefix", true, &|db| _ = db.explain_prefix("k").expect("explained")),
        ("verify", true, &|db| assert!(db.verify().expect("verified").is_clean())),
        ("wait_idle", false, &|db| db.wait_idle().expect("idle")),
        ("wait_idle, read-only", true, &|db| db.wait_idle().expect("idle")),
    ];
    for (name, read_only, call) in calls {
        let gate = Arc::new(Gated::default());
        let spawner = Arc::new(GatedSpawner(Arc::clone(&gate)));
        // Each settlement ends after one read: calls wait for all of them.
        let clock = Arc::new(ManualClock::new()) as Arc<dyn Clock>;
        let slow =
            shamba_env::SlowFs::new(Arc::clone(&vfs) as Arc<dyn Vfs>, Arc::clone(&clock), 60_000_000, 0);
        let env = Env { vfs: Arc::new(slow), clock, spawner, ..Env::real() };
        let db = builder(env.clone()).read_only(read_only).open().expect("open");
        let opening = Opening(gate);
        let readers = self::readers(&db);
        assert_eq!(db.describe(), levels);
        let is_absent = |reader: &Arc<TableReader>| {
            super::survey::held_partitions(reader) == 0
                && reader.filter().is_some_and(|filter| filter.held_bytes() == 0)
        };
        assert!(readers.iter().all(is_absent), "{name}: an open has loaded something");
        assert_eq!(db.get(0u32.to_be_bytes()).expect("read").as_deref(), Some(&[2; 100][..]));
        call(&db);
        assert!(readers.iter().all(|reader| is_whole(reader)), "{name}");
        drop(opening);
        db.clone().close().expect("closed");
        assert_eq!(db.wait_idle().expect_err("closed").kind(), ErrorKind::Closed);

        let db = builder(env).read_only(read_only).open().expect("open");
        let readers = self::readers(&db);
        let begin = Instant::now();
        while !readers.iter().all(|reader| is_whole(reader)) {
            assert!(begin.elapsed() < Duration::from_secs(60), "the upkeep thread loads nothing");
            std::thread::sleep(Duration::from_millis(1));
        }
        db.close().expect("closed");
    }
}
