//! A tail that a power loss takes: its numbers are given out again, and no stream takes the new
//! writes for those that were lost.

use std::sync::Arc;

use shamba::env::{SimFs, Vfs};
use shamba::{ChangePosition, ChangesOptions, Db, Durability, ErrorKind};

use super::{DIR, FOREVER, builder, in_memory, logs, told};

/// Puts `count` keys, and returns the position after each.
fn put(db: &Db, name: &str, count: usize, value_bytes: usize) -> Vec<ChangePosition> {
    let put = |number: usize| {
        db.put(format!("{name} {number}"), vec![b'v'; value_bytes]).expect("put");
        db.change_position()
    };
    (0..count).map(put).collect()
}

fn puts(name: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("default put {name} {number}")).collect()
}

#[test]
fn a_position_in_a_lost_tail_stays_refused_when_its_number_is_given_out_again() {
    let (mut refused, mut recovered_less, mut valid) = (0, 0, 0);
    for seed in 0..40 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut sim = SimFs::new();
        let is_kept = rng.bool();
        // Large enough now and then that the open defers the flush of what it has replayed.
        let (count, value_bytes) = (rng.usize(1..40), rng.usize(1..3_000));
        let open = |sim: &SimFs| {
            let files = Arc::new(sim.clone()) as Arc<dyn Vfs>;
            let builder = builder(&files, seed).write_buffer(1 << 20);
            let builder = if is_kept { builder.keep_log(1 << 30, FOREVER) } else { builder };
            builder.open().expect("opened")
        };
        let db = open(&sim);
        put(&db, "durable", rng.usize(1..10), value_bytes);
        db.sync().expect("synced");
        let durable = db.change_position();
        let options = ChangesOptions::new().include_unsynced(true);
        let mut unsynced = db.changes_since_with(durable, options).expect("a stream");
        let tail = put(&db, "tail", count, value_bytes);
        assert_eq!(told(&mut unsynced), puts("tail", count));
        assert_eq!(unsynced.position(), tail[count - 1]);
        drop(unsynced);
        drop(db);
        if rng.bool() {
            // A kill loses nothing, and leaves the tail with the system: a power loss after it may
            // recover less.
            let db = open(&sim);
            assert_eq!(db.change_position().sequence, tail[count - 1].sequence);
            assert!(tail.iter().all(|position| db.changes_since(*position).is_ok()), "seed {seed}");
        }
        let now = sim.op_count();
        sim = sim.crash(now, rng.choice(&sim.policies_for(now, seed)).expect("a policy"));
        let db = open(&sim);
        let recovered = db.change_position().sequence;
        assert!(recovered >= durable.sequence, "seed {seed}: durable writes are lost");
        let kept = usize::try_from(recovered - durable.sequence).expect("few");
        recovered_less += usize::from(kept < count);
        // More than were lost.
        put(&db, "new", 50, value_bytes);
        db.sync().expect("synced");
        let due = [puts("tail", kept), puts("new", 50)].concat();
        for (number, position) in std::iter::once(&durable).chain(&tail).enumerate() {
            let context = format!("seed {seed}, position {position}, {kept} of {count} were recovered");
            match db.changes_since(*position) {
                Ok(mut changes) => {
                    assert!(number <= kept, "{context}: it is in the tail that was lost");
                    assert_eq!(told(&mut changes), due[number..], "{context}");
                    valid += 1;
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Gone, "{context}: {error:?}");
                    assert!(number > kept, "{context}: {error:?}");
                    refused += 1;
                }
            }
        }
    }
    assert!(recovered_less > 5, "{recovered_less} crashes lost a part of the tail");
    assert!(refused > 100 && valid > 100, "{refused} positions refused, {valid} valid");
}

/// A recovery up to a point in time loses what the manifest has heard of: the number of the created
/// keyspace. Positions in the lost part are refused, and streams go on after it.
#[test]
fn positions_in_what_a_point_in_time_recovery_has_lost_are_refused() {
    let files = in_memory();
    let open = || builder(&files, 1).experimental(|e| e.recovery_point_in_time(true)).open().expect("opened");
    let db = open();
    let mut positions = Vec::new();
    for number in 0..20 {
        db.put(format!("key {number:02}"), "value").expect("put");
        positions.push(db.change_position());
    }
    drop(db.keyspace("users").expect("created"));
    positions.push(db.change_position());
    db.close().expect("closed");
    let [log] = &logs(&files)[..] else { panic!("one log") };
    let log = format!("{DIR}/{log}");
    let mut bytes = shamba::env::read_file(files.as_ref(), log.as_ref()).expect("read");
    let at = bytes.windows(6).position(|key| key == b"key 10").expect("it is in the log");
    bytes[at] ^= 1;
    files.unlink(log.as_ref()).expect("removed");
    let mut file = files.create(log.as_ref()).expect("created");
    shamba::env::append_all(file.as_mut(), &bytes).expect("written");
    drop(file);
    for round in 0..3 {
        let db = open();
        let kept = db.iter().count() - round;
        assert_eq!(kept, 10, "the damaged change is the first one that is lost");
        for (at, position) in positions.iter().enumerate().skip(kept) {
            let error = db.changes_since(*position).expect_err("lost");
            assert_eq!(error.kind(), ErrorKind::Gone, "position {at}: {error}");
        }
        let mut changes = db.changes_since(db.change_position()).expect("a stream");
        let key = format!("later {round}");
        db.put_with(&key, "value", Durability::Sync).expect("put");
        assert_eq!(told(&mut changes), [format!("default put {key}")]);
        // The next open copies the short log.
        db.put_with(format!("later {round}"), "again", Durability::Sync).expect("put");
        assert_eq!(told(&mut changes).len(), 1);
    }
}
