//! The stream of changes: a replica that is built from it equals the database, whatever happens to
//! both; positions that a crash or a deletion of logs has made useless are refused.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use shamba::env::{Env, MemFs, SimFs, Vfs};
use shamba::merge::Append;
use shamba::{
    Builder, Change, ChangeOp, ChangePosition, Changes, ChangesOptions, Db, Durability, ErrorKind,
    KeyspaceOptions, Snapshot,
};

const DIR: &str = "/db";
/// The keyspace with a merge operator.
const JOURNAL: &str = "journal";
const NAMES: [&str; 4] = ["default", "users", "tags", JOURNAL];
const FOREVER: Duration = Duration::from_secs(1 << 30);

fn builder(files: &Arc<dyn Vfs>, seed: u64) -> Builder {
    let env = Env::deterministic(Arc::clone(files), seed);
    let journal = KeyspaceOptions::new().merge_operator(Append::separated_by(","));
    Db::builder(DIR)
        .env(env)
        .info_log(false)
        .memory_budget(8 << 20)
        .write_buffer(4 << 10)
        .keyspace(JOURNAL, journal)
}

fn in_memory() -> Arc<dyn Vfs> {
    Arc::new(MemFs::new())
}

type Content = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

/// All keyspaces of a snapshot that are not empty.
fn content(db: &Db, snapshot: &Snapshot) -> Content {
    let mut content = Content::new();
    for name in NAMES {
        let Some(keyspace) = db.get_keyspace(name).expect("asked") else { continue };
        for entry in snapshot.keyspace(&keyspace).iter() {
            let (key, value) = entry.expect("read");
            content.entry(name.to_owned()).or_default().insert(key.to_vec(), value.to_vec());
        }
    }
    content
}

/// A copy of a database that follows its changes.
struct Replica {
    content: Content,
    position: ChangePosition,
    options: ChangesOptions,
    changes: Option<Changes>,
    /// Changes that it has taken.
    taken: u64,
}

impl Replica {
    fn copy(db: &Db, options: ChangesOptions) -> Self {
        let snapshot = db.snapshot();
        let position = snapshot.change_position();
        Self { content: content(db, &snapshot), position, options, changes: None, taken: 0 }
    }

    /// Takes at most `count` changes. `Err` if the position is refused.
    fn follow(&mut self, db: &Db, count: usize) -> Result<(), shamba::Error> {
        if self.changes.is_none() {
            self.changes = Some(db.changes_since_with(self.position, self.options)?);
        }
        for _ in 0..count {
            let Some(change) = self.changes.as_mut().expect("a stream").try_next()? else { break };
            self.take(db, &change);
        }
        Ok(())
    }

    fn take(&mut self, db: &Db, change: &Change) {
        self.taken += 1;
        let before = std::mem::replace(&mut self.position, change.position());
        assert!(before.sequence < self.position.sequence, "{before} comes before {}", self.position);
        match change {
            Change::Batch(batch) => {
                assert_eq!(batch.first_sequence() + batch.len() - 1, batch.position().sequence);
                assert!(batch.first_sequence() > before.sequence, "a part of a batch came before");
                assert_eq!(batch.operations().count() as u64, batch.len());
                for (keyspace, op) in batch.operations() {
                    assert!(NAMES.contains(&keyspace), "{keyspace:?}");
                    apply(self.content.entry(keyspace.to_owned()).or_default(), op);
                }
            }
            Change::Ingested { keyspace, first, last, .. } => {
                // What a later change has made of it comes again.
                let Some(source) = db.get_keyspace(keyspace).expect("asked") else { return };
                let own = self.content.entry(keyspace.to_string()).or_default();
                let stale: Vec<Vec<u8>> =
                    own.range(first.clone()..=last.clone()).map(|(key, _)| key.clone()).collect();
                stale.iter().for_each(|key| _ = own.remove(key));
                for entry in source.range(&first[..]..=&last[..]) {
                    let (key, value) = entry.expect("read");
                    own.insert(key.to_vec(), value.to_vec());
                }
                // Nothing that was read may be lost, or it would stay in the replica.
                db.sync().expect("synced");
            }
            Change::KeyspaceCreated { keyspace, .. } => {
                let new = self.content.entry(keyspace.to_string()).or_default();
                assert!(new.is_empty(), "{keyspace:?} was created twice");
            }
            Change::KeyspaceDropped { keyspace, .. } => _ = self.content.remove(&**keyspace),
            other => panic!("{other:?}"),
        }
        self.content.retain(|_, entries| !entries.is_empty());
    }

    fn expect_equal(&mut self, db: &Db, context: &str) {
        self.follow(db, usize::MAX).unwrap_or_else(|error| panic!("{context}: {error:?}"));
        let snapshot = db.snapshot();
        let expected = content(db, &snapshot);
        for name in NAMES {
            let empty = BTreeMap::new();
            let sides = [&self.content, &expected].map(|content| content.get(name).unwrap_or(&empty));
            let mut keys = sides.iter().flat_map(|side| side.keys());
            let other = keys.find(|key| sides[0].get(*key) != sides[1].get(*key));
            assert_eq!(
                other.map(|key| key.escape_ascii().to_string()),
                None,
                "{context}: {name} at {}",
                self.position
            );
        }
        assert!(self.position.sequence <= snapshot.sequence());
    }
}

fn apply(entries: &mut BTreeMap<Vec<u8>, Vec<u8>>, op: ChangeOp<'_>) {
    match op {
        ChangeOp::Put { key, value, .. } => _ = entries.insert(key.to_vec(), value.to_vec()),
        ChangeOp::Delete { key, .. } => _ = entries.remove(key),
        ChangeOp::DeleteRange { start, end, .. } => {
            entries.retain(|key, _| &key[..] < start || end.is_some_and(|end| &key[..] >= end));
        }
        ChangeOp::Merge { key, operand, .. } => match entries.get_mut(key) {
            Some(value) => value.extend_from_slice(&[b",", operand].concat()),
            None => _ = entries.insert(key.to_vec(), operand.to_vec()),
        },
        other => panic!("{other:?}"),
    }
}

/// One random write.
fn write(db: &Db, rng: &mut fastrand::Rng) {
    let key = |rng: &mut fastrand::Rng| format!("key {:02}", rng.u8(..40));
    let value = |rng: &mut fastrand::Rng| vec![rng.u8(b'a'..b'z'); rng.usize(..300)];
    let keyspace = db.keyspace(NAMES[rng.usize(..NAMES.len())]).expect("a keyspace");
    let durability = [Durability::Buffered, Durability::NoSync, Durability::NoSync, Durability::Sync];
    let durability = durability[rng.usize(..4)];
    let mut batch = db.batch();
    for _ in 0..rng.usize(1..5) {
        match rng.u8(..10) {
            0..5 => _ = batch.put_in(&keyspace, key(rng), value(rng)),
            5 => _ = batch.delete_in(&keyspace, key(rng)),
            6 => {
                let (one, other) = (key(rng), key(rng));
                batch.delete_range_in(&keyspace, one.min(other.clone())..other);
            }
            7 => _ = batch.put(key(rng), value(rng)),
            8 => {
                let journal = db.keyspace(JOURNAL).expect("a keyspace");
                batch.merge_in(&journal, key(rng), value(rng));
            }
            _ => _ = batch.put_in(&keyspace, key(rng), vec![b'L'; 5_000]),
        }
    }
    batch.commit_with(durability).expect("committed");
}

#[test]
fn a_replica_equals_the_database_after_flushes_reopens_and_crashes() {
    let (mut refused, mut taken, mut crashes) = (0, 0, 0);
    for seed in 0..60 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut sim = SimFs::new();
        let files = |sim: &SimFs| Arc::new(sim.clone()) as Arc<dyn Vfs>;
        let open =
            |sim: &SimFs| builder(&files(sim), seed).keep_log(1 << 30, FOREVER).open().expect("opened");
        let mut db = open(&sim);
        let mut durable = Replica::copy(&db, ChangesOptions::new());
        let mut unsynced = Replica::copy(&db, ChangesOptions::new().include_unsynced(true));
        for step in 0..150 {
            let context = format!("seed {seed}, step {step}");
            match rng.u8(..60) {
                0..40 => write(&db, &mut rng),
                40..46 => {
                    let count = rng.usize(..30);
                    durable.follow(&db, count).unwrap_or_else(|error| panic!("{context}: {error:?}"));
                    unsynced.follow(&db, count).unwrap_or_else(|error| panic!("{context}: {error:?}"));
                }
                46..48 => (durable.changes, unsynced.changes) = (None, None),
                48..50 => db.flush().expect("flushed"),
                50 => db.compact().expect("compacted"),
                51 => db.sync().expect("synced"),
                52 => {
                    let users = db.keyspace("users").expect("a keyspace");
                    let begin = rng.u8(..20);
                    let pairs =
                        (begin..begin + rng.u8(1..9)).map(|key| (format!("key {key:02}"), "ingested"));
                    users.ingest(pairs).expect("ingested");
                }
                53 => {
                    let name = NAMES[rng.usize(1..3)];
                    if db.get_keyspace(name).expect("asked").is_some() {
                        db.drop_keyspace(name).expect("dropped");
                    }
                }
                54 => {
                    db.sync().expect("synced");
                    durable.expect_equal(&db, &context);
                    unsynced.expect_equal(&db, &context);
                }
                55..58 => {
                    (durable.changes, unsynced.changes) = (None, None);
                    db.close().expect("closed");
                    db = open(&sim);
                }
                58 => {
                    // A kill: all that is with the system survives.
                    (durable.changes, unsynced.changes) = (None, None);
                    drop(db);
                    db = open(&sim);
                    crashes += 1;
                    refused += u32::from(follow_or_copy(&mut unsynced, &db));
                }
                _ => {
                    unsynced.follow(&db, usize::MAX).unwrap_or_else(|error| panic!("{context}: {error:?}"));
                    (durable.changes, unsynced.changes) = (None, None);
                    drop(db);
                    let now = sim.op_count();
                    let policies = sim.policies_for(now, seed);
                    sim = sim.crash(now, rng.choice(&policies).expect("a policy"));
                    db = open(&sim);
                    crashes += 1;
                    refused += u32::from(follow_or_copy(&mut unsynced, &db));
                }
            }
        }
        db.sync().expect("synced");
        db.flush().expect("flushed");
        durable.expect_equal(&db, &format!("seed {seed}, the end"));
        unsynced.expect_equal(&db, &format!("seed {seed}, the end, unsynced"));
        taken += durable.taken + unsynced.taken;
    }
    assert!(refused > 10 && crashes > 100, "{refused} positions refused after {crashes} crashes");
    assert!(taken > 5_000, "{taken} changes");
}

/// Copies the database again if the position of a replica is refused; returns whether it was.
fn follow_or_copy(replica: &mut Replica, db: &Db) -> bool {
    match replica.follow(db, 0) {
        Ok(()) => false,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Gone, "{error:?}");
            *replica = Replica { taken: replica.taken, ..Replica::copy(db, replica.options) };
            true
        }
    }
}

/// The changes of a stream in a few words each.
fn told(changes: &mut Changes) -> Vec<String> {
    let mut told = Vec::new();
    while let Some(change) = changes.try_next().expect("read") {
        told.push(match &change {
            Change::Batch(batch) => {
                let ops = batch.operations().map(|(keyspace, op)| match op {
                    ChangeOp::Put { key, .. } => format!("{keyspace} put {}", key.escape_ascii()),
                    ChangeOp::Delete { key, .. } => format!("{keyspace} delete {}", key.escape_ascii()),
                    ChangeOp::Merge { key, operand, .. } => {
                        format!("{keyspace} merge {} {}", key.escape_ascii(), operand.escape_ascii())
                    }
                    ChangeOp::DeleteRange { start, end, .. } => {
                        let end = end.unwrap_or_default();
                        format!("{keyspace} delete {}..{}", start.escape_ascii(), end.escape_ascii())
                    }
                    other => format!("{other:?}"),
                });
                ops.collect::<Vec<_>>().join(", ")
            }
            Change::Ingested { keyspace, entries, first, last, .. } => {
                format!("{keyspace} ingested {entries} {}..={}", first.escape_ascii(), last.escape_ascii())
            }
            Change::KeyspaceCreated { keyspace, .. } => format!("created {keyspace}"),
            Change::KeyspaceDropped { keyspace, .. } => format!("dropped {keyspace}"),
            other => format!("{other:?}"),
        });
    }
    told
}

#[test]
fn batches_and_events_come_in_the_order_of_commits_also_from_an_older_log() {
    let files = in_memory();
    let open = || builder(&files, 1).keep_log(1 << 20, FOREVER).open().expect("opened");
    let db = open();
    let begin = db.change_position();
    let mut live = db.changes_since(begin).expect("a stream");
    let users = db.keyspace("users").expect("created");
    let mut batch = db.batch();
    batch.put("a", "1").put_in(&users, "b", "2").delete("c");
    batch.commit().expect("committed");
    users.delete_range("x".."y").expect("deleted");
    let expected = vec!["created users"];
    assert_eq!(told(&mut live), expected, "the rest is not durable");
    users.ingest([("m", "1"), ("n", "2")]).expect("ingested");
    db.keyspace(JOURNAL).expect("created").merge("k", "v").expect("merged");
    db.drop_keyspace("users").expect("dropped");
    db.keyspace("users").expect("created again").put("z", "1").expect("put");
    db.sync().expect("synced");
    let rest = [
        "default put a, users put b, default delete c",
        "users delete x..y",
        "users ingested 2 m..=n",
        "created journal",
        "journal merge k v",
        "dropped users",
        "created users",
        "users put z",
    ];
    assert_eq!(told(&mut live), rest);
    assert_eq!(live.position(), db.change_position());
    drop(live);
    db.flush().expect("flushed");
    db.close().expect("closed");
    // Everything is in tables, and what was dropped is gone.
    let db = open();
    let mut again = db.changes_since(begin).expect("the logs are kept");
    assert_eq!(told(&mut again), [&expected[..], &rest].concat());
    assert!(db.stats().kept_log_bytes > 0);
    assert!(db.verify().expect("checked").problems.is_empty());
    // A position between two batches continues there.
    let mut from_there = db.changes_since(begin).expect("a stream");
    let second = (0..2).map(|_| from_there.try_next().expect("read").expect("a change").position()).last();
    let mut rest_of_it = db.changes_since(second.expect("two")).expect("a stream");
    assert_eq!(told(&mut rest_of_it), rest[1..]);
}

#[test]
fn without_kept_logs_a_stream_may_fall_behind_and_is_told_the_oldest_position() {
    let files = in_memory();
    let db = builder(&files, 1).open().expect("opened");
    let begin = db.change_position();
    let mut slow = db.changes_since(begin).expect("a stream");
    db.put_with("a", "1", Durability::Sync).expect("put");
    db.flush().expect("flushed");
    db.put_with("b", "2", Durability::Sync).expect("put");
    // The log that it reads stays, and the next one is the newest.
    assert_eq!(told(&mut slow), ["default put a", "default put b"]);
    drop(slow);
    let mut slower = db.changes_since(db.change_position()).expect("a stream");
    for key in ["c", "d", "e"] {
        db.put(key, "3").expect("put");
        db.flush().expect("flushed");
    }
    let error = slower.try_next().expect_err("a log is gone");
    assert_eq!(error.kind(), ErrorKind::Gone);
    let oldest = db.oldest_change_position().expect("a stream");
    assert!(error.to_string().contains(&format!("the oldest position is {oldest}")), "{error}");
    assert_eq!(db.changes_since(begin).expect_err("it is older").kind(), ErrorKind::Gone);
    assert!(db.changes_since(oldest).is_ok());
    let beyond = ChangePosition { sequence: oldest.sequence + 1_000, ..oldest };
    assert_eq!(db.changes_since(beyond).expect_err("not reached").kind(), ErrorKind::Invalid);
    let other = ChangePosition { epoch: oldest.epoch + 1, ..oldest };
    assert_eq!(db.changes_since(other).expect_err("unknown").kind(), ErrorKind::Gone);
}

fn logs(files: &Arc<dyn Vfs>) -> Vec<String> {
    let names = files.list(DIR.as_ref()).expect("listed").into_iter().map(|entry| entry.name);
    names.filter(|name| name.ends_with(".log")).collect()
}

#[test]
fn kept_logs_stay_within_bytes_and_age_and_leave_when_the_option_is_off() {
    let files = in_memory();
    let fill = |db: &Db, flushes: u32| {
        for number in 0..flushes {
            db.put(format!("key {number}"), vec![7; 1_000]).expect("put");
            db.flush().expect("flushed");
        }
    };
    let db = builder(&files, 1).keep_log(5_000, FOREVER).open().expect("opened");
    fill(&db, 20);
    let kept = logs(&files);
    assert!((3..=6).contains(&kept.len()), "{kept:?}");
    assert!((2_000..=5_000).contains(&db.stats().kept_log_bytes), "{}", db.stats().kept_log_bytes);
    db.close().expect("closed");
    // They count as before after a reopen.
    let db = builder(&files, 2).keep_log(5_000, FOREVER).open().expect("opened");
    assert!((2_000..=5_000).contains(&db.stats().kept_log_bytes));
    fill(&db, 3);
    assert!((2_000..=5_000).contains(&db.stats().kept_log_bytes));
    db.close().expect("closed");
    let report = shamba::check_files(&builder_env(&files), DIR.as_ref()).expect("checked");
    assert!(report.problems.is_empty() && report.warnings.is_empty(), "{report:?}");
    // The age of a log counts across reopens.
    let env = builder_env(&files);
    let open = |age_s| {
        let builder = builder(&files, 3).env(env.clone());
        builder.keep_log(1 << 30, Duration::from_secs(age_s)).open().expect("opened")
    };
    env.clock.sleep_us(100_000_000);
    let db = open(30);
    assert_eq!(logs(&files).len(), 2, "that of the last open is obsolete since this one: {:?}", logs(&files));
    fill(&db, 3);
    env.clock.sleep_us(20_000_000);
    db.close().expect("closed");
    let db = open(30);
    fill(&db, 2);
    assert!(logs(&files).len() >= 6);
    env.clock.sleep_us(20_000_000);
    fill(&db, 1);
    assert!((3..=5).contains(&logs(&files).len()), "{:?}", logs(&files));
    db.close().expect("closed");
    let db = builder(&files, 4).keep_log(1 << 30, FOREVER).open().expect("opened");
    fill(&db, 5);
    let old = db.oldest_change_position().expect("a stream");
    assert!(logs(&files).len() >= 6);
    db.close().expect("closed");
    let db = builder(&files, 5).open().expect("opened");
    assert_eq!((logs(&files).len(), db.stats().kept_log_bytes), (1, 0));
    assert_eq!(db.changes_since(old).expect_err("deleted").kind(), ErrorKind::Gone);
}

fn builder_env(files: &Arc<dyn Vfs>) -> Env {
    Env::deterministic(Arc::clone(files), 9)
}

#[test]
fn positions_survive_clean_reopens_and_an_open_without_a_log_leaves_a_gap() {
    let files = in_memory();
    let open = |no_wal| {
        let builder = builder(&files, 1).keep_log(1 << 20, FOREVER);
        builder.experimental(|options| options.no_wal(no_wal)).open().expect("opened")
    };
    let db = open(false);
    db.put("a", "1").expect("put");
    let begin = db.change_position();
    db.close().expect("closed");
    let db = open(false);
    assert_eq!(db.change_position(), begin, "nothing was written");
    db.put("b", "2").expect("put");
    db.close().expect("closed");
    let db = open(true);
    for refused in [db.changes_since(begin).map(drop), db.oldest_change_position().map(drop)] {
        assert_eq!(refused.expect_err("no log").kind(), ErrorKind::Unsupported);
    }
    db.close().expect("closed");
    // It wrote nothing, so nothing is missing.
    let db = open(false);
    assert_eq!(told(&mut db.changes_since(begin).expect("a stream")), ["default put b"]);
    db.close().expect("closed");
    let db = open(true);
    db.put("unlogged", "3").expect("put");
    db.close().expect("closed");
    let db = open(false);
    assert_eq!(db.changes_since(begin).expect_err("a gap").kind(), ErrorKind::Gone);
    assert_eq!(told(&mut db.changes_since(db.change_position()).expect("a stream")), Vec::<String>::new());
    db.close().expect("closed");
    let db = builder(&files, 1).read_only(true).open().expect("opened");
    assert_eq!(db.changes_since(begin).expect_err("read-only").kind(), ErrorKind::Unsupported);
}

#[test]
fn a_checkpoint_continues_the_positions_of_the_database() {
    let files = in_memory();
    let db = builder(&files, 1).keep_log(1 << 20, FOREVER).open().expect("opened");
    db.put("a", "1").expect("put");
    db.checkpoint("/copy").expect("copied");
    let at_copy = db.change_position();
    db.put_with("b", "2", Durability::Sync).expect("put");
    let later = db.change_position();
    let copy = Db::builder("/copy").env(builder_env(&files)).open().expect("opened");
    assert_eq!(copy.get("a").expect("read").as_deref(), Some(&b"1"[..]));
    copy.put_with("other", "2", Durability::Sync).expect("put");
    assert_eq!(told(&mut copy.changes_since(at_copy).expect("a stream")), ["default put other"]);
    assert_eq!(copy.changes_since(later).expect_err("of the other").kind(), ErrorKind::Gone);
    assert_eq!(told(&mut db.changes_since(at_copy).expect("a stream")), ["default put b"]);
}

#[test]
fn a_waiting_stream_is_woken_by_a_sync_and_ends_with_the_database() {
    let dir = tempfile::tempdir().expect("a directory");
    let db = Db::open(dir.path().join("db")).expect("opened");
    let unsynced = ChangesOptions::new().include_unsynced(true);
    for options in [ChangesOptions::new(), unsynced] {
        let mut changes = db.changes_since_with(db.change_position(), options).expect("a stream");
        assert!(changes.next_timeout(Duration::from_millis(3)).expect("no failure").is_none());
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let mut keys = Vec::new();
                for _ in 0..50 {
                    let Some(Ok(Change::Batch(batch))) = changes.next() else { panic!("a batch") };
                    let first = batch.operations().next();
                    let Some((_, ChangeOp::Put { key, .. })) = first else { panic!("a put") };
                    keys.push(key.to_vec());
                }
                keys
            });
            for number in 0..50_u32 {
                db.put(number.to_be_bytes(), "value").expect("put");
                if options == ChangesOptions::new() && number % 10 == 9 {
                    db.sync().expect("synced");
                }
            }
            let keys = waiter.join().expect("no panic");
            assert_eq!(keys, (0..50_u32).map(|number| number.to_be_bytes().to_vec()).collect::<Vec<_>>());
        });
    }
    let streams = [ChangesOptions::new(), unsynced]
        .map(|options| db.changes_since_with(db.change_position(), options).expect("a stream"));
    std::thread::scope(|scope| {
        let waiters = streams.map(|changes| scope.spawn(move || changes.count()));
        std::thread::sleep(Duration::from_millis(5));
        db.clone().close().expect("closed");
        for waiter in waiters {
            assert_eq!(waiter.join().expect("no panic"), 0);
        }
    });
    assert_eq!(db.changes_since(db.change_position()).expect_err("closed").kind(), ErrorKind::Closed);
}

/// What a replica had at some moment.
struct Moment {
    /// Calls of the file system before it.
    calls: u64,
    content: Content,
    position: ChangePosition,
    options: ChangesOptions,
}

/// After each crash, each replica continues at the position of its last moment before the crash and
/// becomes equal; the position of an unsynced one may be refused instead.
#[test]
fn every_crash_leaves_positions_that_are_valid_or_refused() {
    let (mut continued, mut refused) = (0, 0);
    for seed in 0..6 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let sim = SimFs::new();
        let files: Arc<dyn Vfs> = Arc::new(sim.clone());
        let open = |files: &Arc<dyn Vfs>| {
            builder(files, seed).keep_log(1 << 30, FOREVER).write_buffer(1 << 10).open().expect("opened")
        };
        let mut db = open(&files);
        let first = sim.op_count();
        let mut replicas =
            [false, true].map(|on| Replica::copy(&db, ChangesOptions::new().include_unsynced(on)));
        let mut moments = Vec::new();
        for step in 0..14 {
            match step {
                4 => db
                    .keyspace("users")
                    .expect("created")
                    .ingest([("key 05", "i"), ("key 07", "i")])
                    .map(drop),
                6 => db.flush(),
                8 => {
                    replicas.iter_mut().for_each(|replica| replica.changes = None);
                    if rng.bool() {
                        db.close().expect("closed");
                    } else {
                        drop(db);
                    }
                    db = open(&files);
                    Ok(())
                }
                10 if db.get_keyspace("users").expect("asked").is_some() => db.drop_keyspace("users"),
                12 => db.sync(),
                _ => {
                    write(&db, &mut rng);
                    Ok(())
                }
            }
            .expect("done");
            for replica in &mut replicas {
                replica.follow(&db, usize::MAX).expect("followed");
                let (content, position) = (replica.content.clone(), replica.position);
                moments.push(Moment { calls: sim.op_count(), content, position, options: replica.options });
            }
        }
        replicas.iter_mut().for_each(|replica| replica.changes = None);
        drop(db);
        for (calls, policy) in sim.crash_points(first, seed).into_iter().filter(|_| rng.u8(..4) == 0) {
            let crashed: Arc<dyn Vfs> = Arc::new(sim.crash(calls, &policy));
            let db = open(&crashed);
            db.flush().expect("flushed"); // What was replayed is durable then.
            let before = |on| {
                let options = ChangesOptions::new().include_unsynced(on);
                moments.iter().rev().find(move |moment| moment.calls <= calls && moment.options == options)
            };
            for moment in [before(false), before(true)].into_iter().flatten() {
                let Moment { content, position, options, .. } = moment;
                let (content, position) = (content.clone(), *position);
                let mut replica = Replica { content, position, options: *options, changes: None, taken: 0 };
                let context = format!("seed {seed}, a crash after {calls} calls, {policy:?}, {options:?}");
                match replica.follow(&db, 0) {
                    Err(error) if *options != ChangesOptions::new() => {
                        assert_eq!(error.kind(), ErrorKind::Gone, "{context}: {error:?}");
                        refused += 1;
                    }
                    followed => {
                        followed.unwrap_or_else(|error| panic!("{context}: {error:?}"));
                        replica.expect_equal(&db, &context);
                        continued += 1;
                    }
                }
            }
        }
    }
    assert!(continued > 500 && refused > 20, "{continued} continued, {refused} refused");
}
