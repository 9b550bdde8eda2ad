//! Listeners that call the database: an event is delivered without any lock, so reads, statistics
//! and opens of other databases never wait for the thread that called the listener.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use shamba::env::{Effect, Env, FaultFs, FaultRule, MemFs, OpKind, Vfs};
use shamba::{Builder, Db, Design, Durability, ErrorKind, Event, EventListener, MergePolicy, TreeDesign};

/// A deadlock is a test that takes longer than this.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs `body` on a thread of its own, and panics if it does not end.
fn without_deadlock(body: impl FnOnce() + Send + 'static) {
    let (done, end) = channel();
    let thread = std::thread::spawn(move || {
        body();
        let _ = done.send(());
    });
    // An error here means that the thread has ended, by a panic too.
    if end.recv_timeout(LIMIT) != Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    } else {
        panic!("the database and its listener wait for each other");
    }
}

/// Calls what a listener may call, and opens another database.
#[derive(Default)]
struct Curious {
    db: Mutex<Option<Db>>,
    seen: Mutex<BTreeSet<&'static str>>,
    begun: AtomicU64,
    done: AtomicU64,
}

impl Curious {
    fn ask(&self, db: &Db) {
        let is_closed = |error: &shamba::Error| error.kind() == ErrorKind::Closed;
        assert!(db.get("key 000").as_ref().map_or_else(is_closed, |_| true));
        assert!(db.contains_key("none").as_ref().map_or_else(is_closed, |_| true));
        let first = db.iter().next();
        assert!(first.is_none_or(|entry| entry.as_ref().map_or_else(is_closed, |_| true)));
        let snapshot = db.snapshot();
        assert!(snapshot.get("key 001").as_ref().map_or_else(is_closed, |_| true));
        let (_, _, _) = (db.stats(), db.tables(), db.memory());
        let (_, _, _) = (db.warnings(), db.redesigns(), db.describe());
        let (_, _, _) = (db.workload(), db.settings(), db.keyspaces());
        assert!(db.advise().as_ref().map_or_else(is_closed, |_| true));
    }

    fn open_another(&self) {
        let number = self.begun.load(Ordering::Relaxed);
        let env = Env::deterministic(Arc::new(MemFs::new()), number);
        let other = Db::builder("/other").env(env).info_log(false).open().expect("opened");
        other.put("k", "v").expect("written");
        other.flush().expect("flushed");
        other.close().expect("closed");
    }
}

impl EventListener for Curious {
    fn event(&self, event: &Event) {
        self.begun.fetch_add(1, Ordering::Relaxed);
        let text = format!("{event:?}");
        let name = text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
        self.seen.lock().expect("no panic").insert(match name {
            "LogRotated" => "LogRotated",
            "FlushBegin" => "FlushBegin",
            "FlushEnd" => "FlushEnd",
            "CompactionBegin" => "CompactionBegin",
            "CompactionEnd" => "CompactionEnd",
            "Redesign" => "Redesign",
            "Warning" => "Warning",
            "BackgroundError" => "BackgroundError",
            "Closed" => "Closed",
            _ => "other",
        });
        let db = self.db.lock().expect("no panic").clone();
        if let Some(db) = db {
            self.ask(&db);
        }
        self.open_another();
        // A panic in a listener is caught: this number shows that there was none.
        self.done.fetch_add(1, Ordering::Relaxed);
    }
}

fn open(env: &Env, listener: &Arc<Curious>, set: impl FnOnce(Builder) -> Builder) -> Db {
    let builder = Db::builder("/db").env(env.clone()).info_log(false);
    let builder = builder.event_listener(Arc::clone(listener) as Arc<dyn EventListener>);
    let db = set(builder).open().expect("opened");
    *listener.db.lock().expect("no panic") = Some(db.clone());
    db
}

/// Waits until the listener has been told of what is expected and has returned from all calls:
/// another thread may be about to call it when the work that it did for a caller has ended.
fn check(listener: &Curious, expected: &[&'static str]) {
    let is_told = || {
        let seen = listener.seen.lock().expect("no panic");
        expected.iter().all(|name| seen.contains(name))
    };
    let calls = || (listener.begun.load(Ordering::Relaxed), listener.done.load(Ordering::Relaxed));
    for _ in 0..6_000 {
        if is_told() && calls().0 == calls().1 {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(is_told(), "not all of {expected:?} are among {:?}", listener.seen.lock().expect("no panic"));
    let (begun, done) = calls();
    assert_eq!(begun, done, "calls of a listener panicked");
}

/// Rotations, flushes, compactions, redesigns, ingests, keyspaces and the close.
fn everything(env: Env) {
    let listener = Arc::new(Curious::default());
    let db = open(&env, &listener, |builder| {
        builder.write_buffer(4 << 10).experimental(|e| e.file_size(4 << 10).block_bytes(512))
    });
    for number in 0..300u32 {
        db.put(format!("key {:03}", number * 7 % 200), [7; 100]).expect("written");
    }
    db.flush().expect("flushed");
    let users = db.keyspace("users").expect("created");
    users.put("amina", "v").expect("written");
    db.ingest((0..100u8).map(|n| ([b'z', n], [n; 50]))).expect("ingested");
    db.compact().expect("compacted");
    let design = Design::new(MergePolicy::Tiering, 4.0, 8 << 10, 6.5);
    let target = TreeDesign { design, allocation: shamba::Allocation::Uniform, ..TreeDesign::default() };
    db.redesign(&target).expect("redesigned");
    db.undo_redesign().expect("undone");
    db.put_with("key 000", "synced", Durability::Sync).expect("written");
    drop(users);
    db.drop_keyspace("users").expect("dropped");
    db.wait_idle().expect("idle");
    db.close().expect("closed");
    drop(listener.db.lock().expect("no panic").take());
    let expected =
        ["LogRotated", "FlushBegin", "FlushEnd", "CompactionBegin", "CompactionEnd", "Redesign", "Closed"];
    check(&listener, &expected);
}

#[test]
fn a_listener_may_call_the_database_during_all_work() {
    without_deadlock(|| everything(Env::deterministic(Arc::new(MemFs::new()), 3)));
    without_deadlock(|| everything(Env { vfs: Arc::new(MemFs::new()), ..Env::real() }));
}

fn faulty(is_inline: bool) -> (FaultFs, Env) {
    let faults = FaultFs::new(Arc::new(MemFs::new()), 1);
    let vfs = Arc::new(faults.clone()) as Arc<dyn Vfs>;
    let env = if is_inline { Env::deterministic(vfs, 3) } else { Env { vfs, ..Env::real() } };
    (faults, env)
}

/// Writes are turned off under the writer's lock, and under the install lock.
#[test]
fn a_listener_is_told_of_failures_after_the_locks_are_free() {
    for (is_inline, kind, path) in [
        (true, OpKind::SyncData, ".log"),
        (false, OpKind::SyncData, ".log"),
        (true, OpKind::Append, "MANIFEST"),
        (false, OpKind::Append, "MANIFEST"),
    ] {
        without_deadlock(move || {
            let (faults, env) = faulty(is_inline);
            let listener = Arc::new(Curious::default());
            let db = open(&env, &listener, |builder| builder.write_buffer(4 << 10));
            db.put("key 000", "first").expect("written");
            faults.add_rule(FaultRule::nth(0, Effect::Eio).on(&[kind]).at_path(path));
            let outcome = match kind {
                OpKind::SyncData => db.put_with("key 001", "lost", Durability::Sync),
                _ => db.flush(),
            };
            assert!(outcome.is_err(), "{kind:?} of {path}");
            assert_eq!(faults.faults_injected(), 1, "{kind:?} of {path}");
            check(&listener, &["BackgroundError"]);
            let refused = db.put("key 002", "v").map_err(|error| error.kind());
            assert_eq!(refused, Err(ErrorKind::ReadOnly));
            drop(listener.db.lock().expect("no panic").take());
        });
    }
}

/// A recording that cannot be written ends during a commit, which holds its lock and the writer's.
#[test]
fn a_listener_is_told_of_a_broken_recording_after_the_commit() {
    without_deadlock(|| {
        let (faults, env) = faulty(true);
        let listener = Arc::new(Curious::default());
        let db = open(&env, &listener, |builder| builder);
        let recording = db.record_trace(Path::new("/trace")).expect("begun");
        faults.add_rule(FaultRule::nth(0, Effect::Enospc).on(&[OpKind::Append]).at_path("trace"));
        for number in 0..2_000u32 {
            db.put(format!("{:0100}", number), "v").expect("written");
        }
        check(&listener, &["Warning"]);
        assert_eq!(recording.finish().map_err(|error| error.kind()), Err(ErrorKind::NoSpace));
        drop(listener.db.lock().expect("no panic").take());
    });
}

/// Counts events, and causes another one during each call.
#[derive(Default)]
struct Writing {
    db: Mutex<Option<Db>>,
    events: AtomicU64,
    depth: AtomicU64,
    depth_max: AtomicU64,
}

impl EventListener for Writing {
    fn event(&self, _: &Event) {
        let depth = self.depth.fetch_add(1, Ordering::Relaxed) + 1;
        self.depth_max.fetch_max(depth, Ordering::Relaxed);
        let number = self.events.fetch_add(1, Ordering::Relaxed);
        let db = self.db.lock().expect("no panic").clone();
        if let Some(db) = db.filter(|_| number < 50) {
            db.put([0; 20], [0; 3_000]).expect("written");
        }
        self.depth.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Without threads a write in a listener waits for nobody.
#[test]
fn events_that_a_listener_causes_come_after_it_has_returned() {
    let env = Env::deterministic(Arc::new(MemFs::new()), 3);
    let listener = Arc::new(Writing::default());
    let builder = Db::builder("/db").env(env).info_log(false).write_buffer(4 << 10);
    let db = builder.event_listener(Arc::clone(&listener) as Arc<dyn EventListener>).open().expect("opened");
    *listener.db.lock().expect("no panic") = Some(db.clone());
    while listener.events.load(Ordering::Relaxed) < 50 {
        db.put("key", [0; 1_000]).expect("written");
    }
    assert_eq!(listener.depth_max.load(Ordering::Relaxed), 1, "a call of the listener began inside another");
    drop(listener.db.lock().expect("no panic").take());
}

/// The iterator of an ingest runs under the writer's lock: it may read, and use other databases.
#[test]
fn the_iterator_of_an_ingest_may_write_to_another_database() {
    without_deadlock(|| {
        let open = |path| Db::builder(path).env(Env::deterministic(Arc::new(MemFs::new()), 3)).open();
        let (db, other) = (open("/db").expect("opened"), open("/other").expect("opened"));
        db.put("a", "v").expect("written");
        let pairs = (0..100u8).map(|number| {
            assert!(db.contains_key("a").expect("read"));
            other.put([number], "v").expect("written");
            ([b'b', number], [number])
        });
        assert_eq!(db.ingest(pairs).expect("ingested"), 100);
        assert_eq!(other.iter().count(), 100);
    });
}
