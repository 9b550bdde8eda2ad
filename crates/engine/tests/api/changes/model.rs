//! A replica next to the database, with random operations and crashes.

use std::collections::BTreeMap;
use std::sync::Arc;

use shamba::env::{SimFs, Vfs};
use shamba::{
    Change, ChangeOp, ChangePosition, Changes, ChangesOptions, Db, Durability, ErrorKind, Snapshot,
};

use super::{FOREVER, JOURNAL, NAMES, builder};

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
    let value = |rng: &mut fastrand::Rng| vec![rng.u8(b'a'..=b'z'); rng.usize(..300)];
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

/// The state of a replica at some moment.
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
