//! Tickets: when writes are durable, who is told, and that one sync serves many of them.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use shamba::env::{Effect, Env, FaultFs, FaultRule, MemFs, OpKind, SimFs, Vfs};
use shamba::{Db, Durability, ErrorKind, Ticket};

fn open_on(files: &Arc<dyn Vfs>) -> Db {
    let env = Env::deterministic(Arc::clone(files), 1);
    Db::builder("/db").env(env).info_log(false).open().expect("opened")
}

fn open() -> Db {
    let files: Arc<dyn Vfs> = Arc::new(MemFs::new());
    open_on(&files)
}

fn appended(db: &Db, key: &str) -> Ticket {
    let mut batch = db.batch();
    batch.put(key, "value");
    batch.commit_ticket().expect("committed")
}

/// A callback's name and the kind of its error.
type Outcome = (&'static str, Option<ErrorKind>);

/// The outcomes of callbacks, in the order in which they were called.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<Outcome>>>);

impl Told {
    fn wait_for(&self, name: &'static str, ticket: Ticket) {
        let told = self.clone();
        ticket.on_durable(move |outcome| {
            told.0.lock().expect("no panic").push((name, outcome.err().map(|error| error.kind())));
        });
    }

    fn take(&self) -> Vec<Outcome> {
        std::mem::take(&mut self.0.lock().expect("no panic"))
    }
}

#[test]
fn one_sync_serves_all_tickets_before_it() {
    let db = open();
    let before = db.stats().wal_syncs;
    let tickets: Vec<Ticket> = (0..20).map(|number| appended(&db, &format!("key {number}"))).collect();
    assert!(tickets.iter().all(|ticket| !ticket.is_durable()));
    assert!(tickets.windows(2).all(|pair| pair[0].sequence() < pair[1].sequence()));
    tickets[10].wait().expect("synced");
    assert!(tickets.iter().all(Ticket::is_durable));
    tickets.iter().for_each(|ticket| ticket.wait().expect("durable"));
    assert_eq!(db.stats().wal_syncs, before + 1);
    // A later write is not covered, until something makes it durable.
    let later = appended(&db, "later");
    assert!(!later.is_durable());
    db.put_with("synced", "value", Durability::Sync).expect("put");
    assert!(later.is_durable());
    db.put("last", "value").expect("put");
    let all = db.ticket();
    assert!(!all.is_durable());
    db.flush().expect("flushed");
    assert!(all.is_durable(), "it is in a table");
    let mut transaction = db.transaction();
    transaction.put("in a transaction", "value").expect("put");
    let ticket = transaction.commit_ticket().expect("committed");
    assert_eq!((ticket.is_durable(), ticket.sequence()), (false, db.sequence()));
    db.sync().expect("synced");
    assert!(ticket.is_durable());
}

#[test]
fn callbacks_are_called_once_and_may_read_the_database() {
    let db = open();
    let told = Told::default();
    told.wait_for("a", appended(&db, "a"));
    let calls = Arc::new(AtomicUsize::new(0));
    let (other, counted) = (db.clone(), Arc::clone(&calls));
    appended(&db, "b").on_durable(move |outcome| {
        outcome.expect("durable");
        assert!(other.contains_key("b").expect("read"));
        counted.fetch_add(1, Ordering::Relaxed);
    });
    assert_eq!(told.take(), []);
    db.sync().expect("synced");
    assert_eq!((told.take(), calls.load(Ordering::Relaxed)), (vec![("a", None)], 1));
    told.wait_for("durable already", appended(&db, "c"));
    db.close().expect("closed");
    assert_eq!(told.take(), [("durable already", None)]);
    assert_eq!(calls.load(Ordering::Relaxed), 1);
}

#[test]
fn callbacks_are_told_when_a_write_can_not_become_durable() {
    let faults = FaultFs::new(Arc::new(MemFs::new()), 1);
    let files: Arc<dyn Vfs> = Arc::new(faults.clone());
    let db = open_on(&files);
    let told = Told::default();
    told.wait_for("before the failure", appended(&db, "a"));
    let waiting = appended(&db, "b");
    faults.add_rule(FaultRule::nth(0, Effect::Eio).on(&[OpKind::SyncData]).at_path(".log"));
    let error = waiting.wait().expect_err("the sync fails");
    assert_eq!(error.kind(), ErrorKind::Io);
    assert_eq!(told.take(), [("before the failure", Some(ErrorKind::Io))]);
    told.wait_for("after the failure", waiting.clone());
    assert_eq!(told.take(), [("after the failure", Some(ErrorKind::Io))]);
    assert!(!waiting.is_durable());
    drop((waiting, db));

    let db = open();
    told.wait_for("dropped", appended(&db, "a"));
    drop(db);
    assert_eq!(told.take(), [("dropped", Some(ErrorKind::Closed))]);
}

#[test]
fn without_a_log_a_flush_makes_writes_durable() {
    let files: Arc<dyn Vfs> = Arc::new(MemFs::new());
    let env = Env::deterministic(files, 1);
    let db = Db::builder("/db").env(env).experimental(|e| e.no_wal(true)).open().expect("opened");
    let ticket = appended(&db, "a");
    assert!(!ticket.is_durable());
    ticket.wait().expect("flushed");
    assert!(ticket.is_durable() && db.stats().flushes == 1);
    db.ingest([("b", "1"), ("c", "1")]).expect("ingested");
    assert!(db.ticket().is_durable());
}

#[test]
fn what_an_open_finds_in_tables_is_durable() {
    let files: Arc<dyn Vfs> = Arc::new(MemFs::new());
    let db = open_on(&files);
    let ticket = appended(&db, "a");
    db.flush().expect("flushed");
    assert!(ticket.is_durable());
    drop(ticket);
    db.close().expect("closed");
    assert!(open_on(&files).ticket().is_durable());
}

/// The thread that syncs the log may be the last user of a database, by what a callback has
/// captured.
#[test]
fn a_callback_may_drop_the_last_handle() {
    let env = Env { vfs: Arc::new(MemFs::new()), ..Env::real() };
    let db = Db::builder("/db").env(env.clone()).info_log(false).open().expect("opened");
    let (told, wait) = std::sync::mpsc::channel();
    let mut batch = db.batch();
    batch.put("a", "1");
    let soon = Durability::Interval { ms: 1, bytes: u64::MAX };
    let ticket = batch.commit_ticket_with(soon).expect("committed");
    drop(batch);
    ticket.on_durable(move |outcome| {
        drop(db);
        told.send(outcome.is_ok()).expect("the test waits");
    });
    assert!(wait.recv().expect("called"));
    // The lock of the directory is free again.
    let db = Db::builder("/db").env(env).open().expect("opened again");
    assert!(db.contains_key("a").expect("read"));
}

/// After a power loss, everything is there whose ticket said that it was durable.
#[test]
fn a_durable_ticket_keeps_its_word_after_a_power_loss() {
    for seed in 0..40 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let sim = SimFs::new();
        let files: Arc<dyn Vfs> = Arc::new(sim.clone());
        let env = Env::deterministic(Arc::clone(&files), seed);
        let db = Db::builder(Path::new("/db")).env(env).write_buffer(8 << 10).open().expect("opened");
        let mut tickets = Vec::new();
        for number in 0..rng.u32(1..300) {
            let mut batch = db.batch();
            batch.put(number.to_be_bytes(), vec![7; rng.usize(..200)]);
            tickets.push((number, batch.commit_ticket().expect("committed")));
            match rng.u8(..40) {
                0 => {
                    let (number, ticket) = rng.choice(&tickets).expect("one");
                    ticket.wait().expect("synced");
                    assert!(ticket.is_durable(), "seed {seed}: {number} is not durable after the wait");
                }
                1 => db.flush().expect("flushed"),
                _ => {}
            }
        }
        let durable: Vec<u32> =
            tickets.iter().filter(|(_, ticket)| ticket.is_durable()).map(|(number, _)| *number).collect();
        let now = sim.op_count();
        for policy in sim.policies_for(now, seed) {
            let crashed: Arc<dyn Vfs> = Arc::new(sim.crash(now, &policy));
            let db = open_on(&crashed);
            for number in &durable {
                let is_there = db.contains_key(number.to_be_bytes()).expect("read");
                assert!(is_there, "seed {seed}, {policy:?}: {number} is lost");
            }
        }
    }
}
