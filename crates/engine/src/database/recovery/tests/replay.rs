//! Tests of the place to which an open moves what it has replayed: the new log, memtables that are
//! flushed later, or tables; and of the memory that it charges meanwhile.

use std::time::Duration;

use shamba_env::{Effect, FaultFs, FaultRule, OpKind};
use shamba_memtable::{ChunkedMemtable, Memtable};
use shamba_table::LedgerPart;

use super::super::rebuild::replay_logs;
use super::*;
use crate::catalog::DEFAULT_KEYSPACE;
use crate::writer::apply_op;
use shamba_log::wal::OpRef;

const VALUE: [u8; 1_000] = [b'v'; 1_000];
/// Entries of a batch of [`put_batches`], somewhat over 8 KiB.
const ENTRIES: usize = 8;

/// Puts `count` batches into a keyspace.
fn put_batches(db: &Db, keyspace: &str, count: usize) {
    let into = db.keyspace(keyspace).expect("a keyspace");
    for number in 0..count {
        let mut batch = db.batch();
        for entry in 0..ENTRIES {
            batch.put_in(&into, format!("{number:05} {entry}"), VALUE);
        }
        batch.commit().expect("committed");
    }
}

/// A database of that many batches, whose process has ended without a close.
fn killed(batches: usize) -> Env {
    let env = memory(1);
    killed_after(&env, |db| put_batches(db, DEFAULT_KEYSPACE, batches));
    env
}

fn memtables(core: &Core, keyspace: &str) -> Vec<Arc<dyn Memtable>> {
    core.catalog.named(keyspace).expect("a keyspace").load().memtables.clone()
}

fn entries(core: &Core, keyspace: &str) -> u64 {
    memtables(core, keyspace).iter().map(|memtable| memtable.entries()).sum()
}

/// The number of memtables, of tables and of logs after an open.
fn places(env: &Env, core: &Core) -> (usize, usize, usize) {
    (memtables(core, DEFAULT_KEYSPACE).len(), names(env, ".sst").len(), names(env, ".log").len())
}

fn open_with_generations(env: &Env, count: u32) -> Arc<Core> {
    open(builder(env).experimental(|e| e.max_immutable_memtables(count))).expect("opened")
}

#[test]
fn a_tail_of_at_most_half_a_write_buffer_stays_in_the_log() {
    let env = killed(3);
    let core = open(builder(&env)).expect("opened");
    assert_eq!(places(&env, &core), (1, 0, 1), "copied: the old log is gone");
    assert_eq!(entries(&core, DEFAULT_KEYSPACE), 3 * ENTRIES as u64);
    // Less than a write buffer, more than half of one.
    let env = killed(5);
    let core = open(builder(&env)).expect("opened");
    assert_eq!(places(&env, &core), (2, 0, 2), "to be flushed: the old log is needed");
    assert!(memtables(&core, DEFAULT_KEYSPACE)[0].is_empty());
    assert_eq!(entries(&core, DEFAULT_KEYSPACE), 5 * ENTRIES as u64);
}

#[test]
fn a_log_of_several_write_buffers_waits_in_generations_as_many_as_writes_may_have() {
    // Two and a half write buffers; the active memtable is empty.
    let env = killed(20);
    let core = open_with_generations(&env, 3);
    assert_eq!(places(&env, &core), (4, 0, 2));
    let sizes: Vec<u64> =
        memtables(&core, DEFAULT_KEYSPACE).iter().map(|memtable| memtable.entries()).collect();
    assert_eq!((sizes[0], sizes.iter().sum::<u64>()), (0, 20 * ENTRIES as u64));
    assert!(sizes.iter().all(|entries| entries % ENTRIES as u64 == 0), "half a batch in one: {sizes:?}");
    assert!(sizes[1] < sizes[2], "the newest first, and the older ones full: {sizes:?}");
    drop(core);
    for count in [1, 2] {
        let env = killed(20);
        let core = open_with_generations(&env, count);
        let (memtables, tables, logs) = places(&env, &core);
        assert_eq!((memtables, logs), (1, 1), "at most {count} may wait, so all of it is in tables");
        assert!(tables > 0 && entries(&core, DEFAULT_KEYSPACE) == 0);
    }
}

#[test]
fn memtables_that_fill_the_write_buffer_together_are_set_aside_together() {
    let env = memory(1);
    killed_after(&env, |db| {
        // Three quarters of a write buffer in each.
        for _ in 0..6 {
            put_batches(db, DEFAULT_KEYSPACE, 1);
            put_batches(db, "other", 1);
        }
    });
    let core = open_with_generations(&env, 4);
    for keyspace in [DEFAULT_KEYSPACE, "other"] {
        assert_eq!(memtables(&core, keyspace).len(), 3, "two generations of {keyspace}");
        assert_eq!(entries(&core, keyspace), 6 * ENTRIES as u64);
    }
    assert_eq!(names(&env, ".sst").len(), 0);
}

/// The generations of a second replay of the same logs, whatever the open has made of the first.
#[test]
fn no_generation_is_empty_also_if_the_last_batch_filled_one() {
    let mut filled = 0;
    for batches in 5..=12 {
        let env = killed(batches);
        let (state, files) = (recorded(&env), names(&env, ""));
        let core = open_with_generations(&env, 4);
        let (rebuilt, report) = replay_logs(&core, &state, &files).expect("replayed");
        let finished = rebuilt.finish(&report, report.last_seq, ManifestEdit::default());
        let (edit, place) = finished.expect("moved");
        assert_eq!(edit.last_seq, None, "the old logs account for it");
        let Place::Deferred(generations, predecessor) = place else { panic!("{batches} batches") };
        assert_eq!(predecessor.last_seq, report.last_seq);
        let bytes = |members: &[(KeyspaceId, Arc<dyn Memtable>)]| -> u64 {
            members.iter().map(|(_, memtable)| memtable.bytes()).sum()
        };
        let bytes: Vec<u64> = generations.iter().map(|generation| bytes(&generation.members)).collect();
        assert!(bytes.iter().all(|bytes| *bytes > 0), "{batches} batches: {bytes:?}");
        filled += usize::from(bytes.last().is_some_and(|bytes| *bytes >= BUFFER));
    }
    assert!(filled > 0, "no last batch filled a memtable");
}

#[test]
fn without_a_log_everything_replayed_goes_to_tables() {
    for batches in [3, 5, 20] {
        let env = killed(batches);
        let core = open(builder(&env).experimental(|e| e.no_wal(true))).expect("opened");
        let (memtables, tables, logs) = places(&env, &core);
        assert_eq!((memtables, logs), (1, 1), "{batches} batches: the old log is not needed");
        assert!(tables > 0 && entries(&core, DEFAULT_KEYSPACE) == 0);
    }
}

#[test]
fn a_read_only_open_keeps_everything_in_memtables_and_charges_them() {
    let env = killed(20);
    let before = names(&env, "");
    let core = open(builder(&env).read_only(true)).expect("opened");
    let all = memtables(&core, DEFAULT_KEYSPACE);
    assert_eq!(all.len(), 3, "each of about a write buffer");
    assert_eq!(entries(&core, DEFAULT_KEYSPACE), 20 * ENTRIES as u64);
    let bytes: u64 = all.iter().map(|memtable| memtable.bytes()).sum();
    let charged = core.memory.ledger().bytes(LedgerPart::Memtables);
    assert!((bytes..=bytes + BUFFER / 16).contains(&charged), "{charged} bytes for {bytes}");
    assert_eq!(names(&env, ""), before, "it writes nothing");
}

/// The charge goes ahead by a sixteenth of the write buffer, and grows again only when the
/// memtables exceed it.
#[test]
fn the_charge_of_a_replay_grows_in_steps() {
    let core = open(builder(&memory(1))).expect("opened");
    let (memtable, digest) = (ChunkedMemtable::new(core.settings.memtable_index), core.reads.digest());
    let mut seq = SeqNo::ZERO;
    let mut put = |value: &[u8]| {
        seq = seq.next();
        let op = OpRef::Put { key: &[seq.0 as u8], value };
        apply_op(&memtable, |key| digest.digest(key), seq, op);
        memtable.bytes()
    };
    // Five puts, of which the last one takes all that the first one has charged.
    let [first, second] = [put(&VALUE), put(&VALUE)];
    let per_put = second - first;
    let charge = first + BUFFER / 16;
    put(&VALUE);
    let left = charge - put(&VALUE);
    let last = vec![b'v'; VALUE.len() + left as usize - per_put as usize];
    assert_eq!(put(&last), charge);
    for (count, more) in [(1, 0), (4, 0), (5, 0), (5, 1)] {
        let env = memory(1);
        killed_after(&env, |db| {
            (1..=count.min(4)).for_each(|key| db.put([key], VALUE).expect("put"));
            if count == 5 {
                db.put([5], [&last[..], &VALUE[..more]].concat()).expect("put");
            }
        });
        let core = open(builder(&env).read_only(true)).expect("opened");
        let bytes: u64 = memtables(&core, DEFAULT_KEYSPACE).iter().map(|memtable| memtable.bytes()).sum();
        let expected = if bytes > charge { bytes + BUFFER / 16 } else { charge };
        let charged = core.memory.ledger().bytes(LedgerPart::Memtables);
        assert_eq!(charged, expected, "after {count} puts, {more} bytes more than the first charge");
        assert_eq!(bytes > charge, more > 0);
    }
}

#[test]
fn batches_of_dropped_keyspaces_are_copied_only_behind_one_that_is_needed() {
    let drop_one = |db: &Db| {
        put_batches(db, "dropped", 1);
        db.drop_keyspace("dropped").expect("dropped");
    };
    let env = memory(1);
    killed_after(&env, drop_one);
    let core = open(builder(&env)).expect("opened");
    let (_, base_seq) = core.catalog.logs().oldest().expect("a log");
    assert!(base_seq > SeqNo(ENTRIES as u64) && base_seq == core.reads.visible(), "nothing is copied");
    drop(core);
    let env = memory(1);
    let mut dropped = SeqNo::ZERO;
    killed_after(&env, |db| {
        drop_one(db);
        dropped = db.core().reads.visible();
        db.put("needed", "value").expect("put");
        drop_one(db);
    });
    let core = open(builder(&env)).expect("opened");
    assert_eq!(core.catalog.logs().oldest().map(|(_, base_seq)| base_seq), Some(dropped));
    assert_eq!(entries(&core, DEFAULT_KEYSPACE), 1);
}

#[test]
fn with_a_bound_on_the_age_of_tombstones_none_is_copied_from_log_to_log() {
    let bounded = |env: &Env| open(builder(env).tombstone_age_max(Duration::from_secs(60))).expect("opened");
    for (first, has_tombstone) in [("put", false), ("delete", true), ("delete of a range", true)] {
        let fill = |db: &Db| {
            let filled = match first {
                "put" => db.put("key", "value"),
                "delete" => db.delete("key"),
                _ => db.delete_range("a".."b"),
            };
            filled.expect("written");
        };
        let env = memory(1);
        killed_after(&env, |db| {
            fill(db);
            db.put("later", "value").expect("put");
        });
        let expected = if has_tombstone { (2, 0, 2) } else { (1, 0, 1) };
        assert_eq!(places(&env, &bounded(&env)), expected, "after a {first}");
        let env = memory(1);
        killed_after(&env, fill);
        assert_eq!(places(&env, &open(builder(&env)).expect("opened")), (1, 0, 1), "without a bound");
    }
}

/// An open that has to write tables and fails removes what it wrote: on a full disk, the next one
/// needs the space.
#[test]
fn an_open_without_space_leaves_no_file() {
    for (place, refused_min) in [(".sst", 5), (".values", 3), (".log", 2), ("MANIFEST", 3)] {
        let mut refused = 0;
        for nth in 0.. {
            let env = killed(60);
            let logs = names(&env, ".log");
            let faults = FaultFs::new(Arc::clone(&env.vfs), 1);
            let faulty = Env { vfs: Arc::new(faults.clone()), ..env.clone() };
            let calls = [OpKind::Create, OpKind::Append, OpKind::SyncData, OpKind::SyncAll];
            faults.add_rule(FaultRule::nth(nth, Effect::Enospc).on(&calls).at_path(place));
            // Of the logs that are kept for streams of changes, all but the newest could go.
            let builder = builder(&faulty).keep_log(1, Duration::ZERO);
            let opened = open(builder.experimental(|e| e.max_immutable_memtables(2).value_threshold(500)));
            let left_over = || [names(&env, ".sst"), names(&env, ".values")];
            match opened {
                Ok(_) => {
                    assert!(left_over().iter().all(|names| !names.is_empty()), "{:?}", left_over());
                    if !faults.rules_struck().contains(&true) {
                        break;
                    }
                }
                Err(error) => {
                    assert!(left_over().iter().all(Vec::is_empty), "{error}: {:?}", left_over());
                    assert_eq!(names(&env, ".log"), logs, "{error}");
                    let core = open(self::builder(&env)).expect("opened without a fault");
                    assert_eq!(core.reads.visible(), SeqNo(60 * ENTRIES as u64), "{error}");
                    refused += 1;
                }
            }
        }
        assert!(refused >= refused_min, "{refused} opens are refused for {place}");
    }
}

/// Likewise for the new log, which begins with what is not in tables.
#[test]
fn an_open_without_space_leaves_no_copy_of_a_log() {
    // The longer one is flushed after the open.
    for (place, batches) in [(".log", 3), ("MANIFEST", 3), ("MANIFEST", 5)] {
        let mut refused = 0;
        for nth in 0.. {
            let env = killed(batches);
            let logs = names(&env, ".log");
            let faults = FaultFs::new(Arc::clone(&env.vfs), 1);
            let faulty = Env { vfs: Arc::new(faults.clone()), ..env.clone() };
            let calls = [OpKind::Create, OpKind::Append, OpKind::SyncData, OpKind::SyncAll];
            faults.add_rule(FaultRule::nth(nth, Effect::Enospc).on(&calls).at_path(place));
            let Err(error) = open(builder(&faulty)) else { break };
            assert_eq!(names(&env, ".log"), logs, "{error}");
            let core = open(builder(&env)).expect("opened without a fault");
            assert_eq!(entries(&core, DEFAULT_KEYSPACE), (batches * ENTRIES) as u64, "{error}");
            refused += 1;
        }
        assert!(refused >= 2, "{refused} opens are refused for {place}");
    }
}
