//! Tests of compaction filters: what readers, snapshots and caches see of them, which filter an
//! open may have, and what happens without it.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use shamba::env::{Env, MemFs, Rng, SeededRng, SimFs};
use shamba::filter::{CompactionFilter, FilterEntry, Verdict};
use shamba::{Builder, Db, Durability, ErrorKind, KeyspaceOptions, MergePolicy, Place, Snapshot};

use super::support::Warnings;

const DIR: &str = "/db";

fn builder(env: &Env) -> Builder {
    Db::builder(DIR).env(env.clone()).info_log(false).memory_budget(8 << 20).write_buffer(64 << 10)
}

fn environment(seed: u64) -> Env {
    Env::deterministic(Arc::new(MemFs::new()), seed)
}

/// Removes keys with the prefix `tmp:` and values that begin with `drop`; changes `v1` at the
/// beginning of a value to `v2`.
struct Rules;

/// The value that [`Rules`] leaves of an entry; `None` if it removes it.
fn ruled(key: &[u8], value: &[u8]) -> Option<Vec<u8>> {
    if key.starts_with(b"tmp:") || value.starts_with(b"drop") {
        return None;
    }
    Some(match value.strip_prefix(b"v1") {
        Some(rest) => [b"v2", rest].concat(),
        None => value.to_vec(),
    })
}

impl CompactionFilter for Rules {
    fn name(&self) -> &str {
        "test.rules"
    }

    fn filter(&self, entry: &FilterEntry<'_>) -> Verdict {
        if entry.key().starts_with(b"tmp:") {
            // Without a look at the value, which may be long.
            return Verdict::Remove;
        }
        let value = entry.value().expect("no value is that long");
        assert_eq!(entry.value_len(), value.len() as u64);
        match ruled(entry.key(), value) {
            None => Verdict::Remove,
            Some(new) if new == value => Verdict::Keep,
            Some(new) => Verdict::Replace(new),
        }
    }
}

fn ruling() -> KeyspaceOptions {
    KeyspaceOptions::new().compaction_filter(Rules)
}

/// A key as it was written, and whether it has been seen as the filter leaves it.
#[derive(Clone, Default)]
struct Written {
    value: Option<Vec<u8>>,
    is_settled: bool,
}

type Model = BTreeMap<Vec<u8>, Written>;
type Seen = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// Compares what was read of a key with the model. It may be there as it was written, or as the
/// filter leaves it, but not the first after the second.
fn check(key: &[u8], written: &mut Written, seen: Option<&[u8]>, is_compacted: bool, what: &str) {
    let after = written.value.as_deref().and_then(|value| ruled(key, value));
    let is_after = seen == after.as_deref();
    assert!(is_after || seen == written.value.as_deref(), "{what}: {key:?} is {seen:?}");
    assert!(is_after || !written.is_settled, "{what}: {key:?} was filtered, and is as it was before");
    assert!(is_after || !is_compacted, "{what}: {key:?} is not filtered");
    written.is_settled = is_after;
}

/// All that a snapshot sees, by point reads and by a scan.
fn seen_by(snapshot: &Snapshot, keys: &[Vec<u8>], what: &str) -> Seen {
    let get = |key: &Vec<u8>| snapshot.get(key).expect("readable").map(|value| value.to_vec());
    let seen: Seen = keys.iter().map(|key| (key.clone(), get(key))).collect();
    let scanned = snapshot.iter().map(|entry| entry.expect("readable"));
    let scanned: Vec<_> = scanned.map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
    let due = seen.iter().filter_map(|(key, value)| Some((key.clone(), value.clone()?)));
    assert_eq!(scanned, due.collect::<Vec<_>>(), "{what}");
    seen
}

#[test]
fn every_value_is_seen_as_written_until_it_is_seen_filtered() {
    let (mut filtered, mut stayed) = (0, 0);
    for seed in 0..60 {
        println!("seed {seed}");
        let env = environment(seed);
        let rng = SeededRng::new(seed);
        let below = |sides: u64| rng.next_u64() % sides;
        let policy =
            [MergePolicy::Leveling, MergePolicy::Tiering, MergePolicy::LazyLeveling][seed as usize % 3];
        let open = || {
            let builder = builder(&env).merge_policy(policy).size_ratio(3.0).keyspace("default", ruling());
            let builder = if seed % 2 == 0 { builder } else { builder.bits_per_key(0.0) };
            builder.experimental(|e| e.record_cache(1 << 20)).open().expect("opens")
        };
        let mut db = open();
        let mut keys: Vec<Vec<u8>> = (0..5u8).map(|number| vec![b'k', number]).collect();
        keys.extend([b"tmp:1".to_vec(), b"tmp:2".to_vec()]);
        let mut model: Model = keys.iter().map(|key| (key.clone(), Written::default())).collect();
        let mut snapshots: Vec<(Snapshot, Seen)> = Vec::new();
        for step in 0..250u64 {
            let what = format!("seed {seed}, step {step}");
            let key = &keys[below(keys.len() as u64) as usize];
            match below(24) {
                0..11 => {
                    let mut value = [&b"v1"[..], b"drop", b"keep"][below(3) as usize].to_vec();
                    value.extend_from_slice(format!("{step}").as_bytes());
                    // A long value lies in chunks in a table.
                    value.resize(value.len() + if below(6) == 0 { 40_000 } else { 0 }, b'.');
                    db.put(key, &value).expect("put");
                    model.insert(key.clone(), Written { value: Some(value), is_settled: false });
                }
                11 => {
                    db.delete(key).expect("deleted");
                    model.insert(key.clone(), Written::default());
                }
                12 if below(2) == 0 => {
                    db.delete_range(key..&keys[4]).expect("deleted");
                    let range = key.clone()..keys[4].clone();
                    model
                        .iter_mut()
                        .filter(|(at, _)| range.contains(*at))
                        .for_each(|(_, w)| *w = Written::default());
                }
                13..16 => db.flush().expect("flushed"),
                16 => {
                    db.compact().expect("compacted");
                    let newest = snapshots.last().map(|(snapshot, _)| snapshot.sequence());
                    for (key, written) in &mut model {
                        let value = db.get(key).expect("readable");
                        check(key, written, value.as_deref(), newest.is_none(), &what);
                    }
                }
                17..20 => {
                    let snapshot = db.snapshot();
                    let seen = seen_by(&snapshot, &keys, &what);
                    snapshots.push((snapshot, seen));
                }
                20 => snapshots.truncate(1),
                21 => snapshots.clear(),
                22 if below(4) == 0 => {
                    snapshots.clear();
                    if below(2) == 0 {
                        db.close().expect("closed")
                    } else {
                        drop(db)
                    }
                    db = open();
                }
                _ => {
                    // Twice: the second time the record cache answers.
                    for key in keys.iter().chain(&keys) {
                        let value = db.get(key).expect("readable");
                        check(key, model.get_mut(key).expect("known"), value.as_deref(), false, &what);
                    }
                    let many = db.multi_get(&keys).expect("readable");
                    let scanned: BTreeMap<Vec<u8>, Vec<u8>> = db
                        .iter()
                        .map(|entry| entry.expect("readable"))
                        .map(|(key, value)| (key.to_vec(), value.to_vec()))
                        .collect();
                    for (key, value) in keys.iter().zip(many) {
                        let written = model.get_mut(key).expect("known");
                        check(key, written, value.as_deref(), false, &what);
                        check(key, written, scanned.get(key).map(Vec::as_slice), false, &what);
                    }
                }
            }
            if step % 10 == 9 {
                for (number, (snapshot, seen)) in snapshots.iter().enumerate() {
                    let what = format!("{what}, snapshot {number}");
                    assert_eq!(&seen_by(snapshot, &keys, &what), seen, "{what}");
                    stayed += 1;
                }
            }
        }
        snapshots.clear();
        db.compact().expect("compacted");
        for (key, written) in &mut model {
            let value = db.get(key).expect("readable");
            check(key, written, value.as_deref(), true, &format!("seed {seed}, at the end"));
        }
        filtered += db.stats().entries_filtered;
    }
    assert!(filtered > 200 && stayed > 500, "{filtered} filtered, {stayed} checks of snapshots");
}

/// Stops in the filter until it is told to go on.
struct Stopping {
    reached: Mutex<Sender<()>>,
    go_on: Mutex<Receiver<()>>,
}

impl CompactionFilter for Stopping {
    fn name(&self) -> &str {
        "test.stopping"
    }

    fn filter(&self, _entry: &FilterEntry<'_>) -> Verdict {
        let _ = self.reached.lock().expect("no panic").send(());
        let _ = self.go_on.lock().expect("no panic").recv();
        Verdict::Remove
    }
}

#[test]
fn a_reader_that_begins_during_a_compaction_sees_no_change() {
    let env = Env { vfs: Arc::new(MemFs::new()), ..Env::real() };
    let ((reached, is_reached), (go, go_on)) = (channel(), channel());
    let filter = Stopping { reached: Mutex::new(reached), go_on: Mutex::new(go_on) };
    let options = KeyspaceOptions::new().compaction_filter(filter);
    let builder = builder(&env).keyspace("default", options).experimental(|e| e.auto_compaction(false));
    let db = builder.open().expect("opens");
    db.put("k", "value").expect("put");
    let compacting = db.clone();
    let compaction = std::thread::spawn(move || compacting.compact());
    is_reached.recv().expect("the filter is asked");
    let (snapshot, mut iter) = (db.snapshot(), db.iter());
    let mut transaction = db.transaction();
    assert!(transaction.get("k").expect("readable").is_some());
    // The slice is built again without the filter: it is not asked any more.
    go.send(()).expect("it waits");
    compaction.join().expect("no panic").expect("compacted");
    assert_eq!(snapshot.get("k").expect("readable").as_deref(), Some(&b"value"[..]));
    assert_eq!(iter.next().expect("there").expect("readable").1.to_vec(), b"value");
    assert!(transaction.get("k").expect("readable").is_some());
    transaction.put("other", "1").expect("put");
    transaction.commit().expect("a filter is no conflict");
    assert!(is_reached.try_recv().is_err() && db.stats().entries_filtered == 0);
    drop((snapshot, iter));
    drop(go);
    db.compact().expect("compacted");
    assert_eq!(db.get("k").expect("readable"), None);
    assert_eq!(db.stats().entries_filtered, 2);
}

#[test]
fn records_of_changed_keys_are_erased() {
    let env = Env { vfs: Arc::new(MemFs::new()), ..Env::real() };
    let builder = builder(&env).bits_per_key(0.0).experimental(|e| e.record_cache(1 << 20));
    let db = builder.open().expect("opens");
    for (key, value) in [("a", "drop"), ("b", "v1"), ("c", "keep")] {
        db.put(key, value).expect("put");
    }
    db.flush().expect("flushed");
    let is_cached =
        |key: &str| db.explain(key).expect("explained").steps.iter().any(|step| step.place == Place::Records);
    for key in ["a", "b", "c"].iter().cycle().take(9) {
        db.get(key).expect("readable");
    }
    assert!(is_cached("a") && is_cached("b") && is_cached("c"));
    db.keyspace_with("default", ruling()).expect("attached");
    db.compact().expect("compacted");
    assert_eq!(db.get("a").expect("readable"), None);
    assert_eq!(db.get("b").expect("readable").as_deref(), Some(&b"v2"[..]));
    assert!(is_cached("c"), "a record of another key was erased");
}

/// Keeps all, under any name.
struct Named(&'static str);

impl CompactionFilter for Named {
    fn name(&self) -> &str {
        self.0
    }

    fn filter(&self, _entry: &FilterEntry<'_>) -> Verdict {
        Verdict::Keep
    }
}

#[test]
fn the_name_is_recorded_until_it_is_removed() {
    let env = environment(2);
    let named = |name| KeyspaceOptions::new().compaction_filter(Named(name));
    let db = builder(&env).keyspace("logs", named("one")).open().expect("opens");
    assert_eq!(db.keyspace("logs").expect("made").compaction_filter().as_deref(), Some("one"));
    assert_eq!(db.keyspace("plain").expect("made").compaction_filter(), None);
    let refused = db.keyspace_with("logs", named("two")).expect_err("another one");
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert!(refused.to_string().contains("\"one\"") && refused.to_string().contains("\"two\""), "{refused}");
    db.keyspace_with("plain", named("late")).expect("attached");
    db.close().expect("closed");
    let refused = builder(&env).keyspace("plain", named("two")).open().expect_err("another one");
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    let db = builder(&env)
        .keyspace("plain", KeyspaceOptions::new().no_compaction_filter())
        .keyspace("logs", named("two").no_compaction_filter())
        .open()
        .expect("opens");
    assert_eq!(db.keyspace("plain").expect("there").compaction_filter(), None);
    assert_eq!(db.keyspace("logs").expect("there").compaction_filter().as_deref(), Some("two"));
    db.compact().expect("compacted");
    drop(db);
    // By a drop and by a close, and by a read-only open, which records nothing.
    let db = builder(&env).read_only(true).keyspace("plain", named("other")).open().expect("opens");
    assert_eq!(
        db.get_keyspace("plain").expect("open").expect("there").compaction_filter().as_deref(),
        Some("other")
    );
    assert_eq!(db.warnings(), [""; 0]);
    drop(db);
    let db = builder(&env).open().expect("opens");
    assert_eq!(db.keyspace("plain").expect("there").compaction_filter(), None);
    db.keyspace_with("logs", KeyspaceOptions::new().no_compaction_filter()).expect("removed");
    db.compact().expect("compacted");
    drop(db);
    let db = builder(&env).open().expect("opens");
    assert_eq!(db.keyspace("logs").expect("there").compaction_filter(), None);
    assert_eq!(db.warnings(), [""; 0]);
}

#[test]
fn a_keyspace_without_its_filter_is_not_compacted_and_takes_writes() {
    let env = environment(3);
    let db = builder(&env).keyspace("logs", ruling()).open().expect("opens");
    db.keyspace("logs").expect("made").put("tmp:0", "a").expect("put");
    db.close().expect("closed");
    let few = |builder: Builder| {
        builder.experimental(|e| e.l0_compaction_trigger(2).l0_slowdown_runs(3).l0_stop_runs(4))
    };
    let db = few(builder(&env)).open().expect("opens");
    let warnings = db.warnings();
    assert!(
        warnings.iter().any(|text| text.contains("\"logs\"") && text.contains("\"test.rules\"")),
        "{warnings:?}"
    );
    let logs = db.keyspace("logs").expect("there");
    for number in 0..12 {
        logs.put(format!("tmp:{number}"), "a").expect("no write waits for a compaction");
        db.put(format!("k{number}"), "a").expect("put");
        db.flush().expect("flushed");
    }
    assert!(logs.stats().runs >= 12, "{} runs", logs.stats().runs);
    let refused = db.compact().expect_err("a filter is missing");
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    assert!(refused.to_string().contains("\"test.rules\""), "{refused}");
    assert_eq!((db.stats().levels[0].runs, logs.stats().runs >= 12), (0, true), "the other is compacted");
    assert_eq!(logs.iter().count(), 12);
    assert_eq!(db.stats().debt_bytes, 0);
    db.keyspace_with("logs", ruling()).expect("attached");
    db.compact().expect("compacted");
    assert_eq!((logs.iter().count(), logs.stats().runs), (0, 0));
}

/// Panics for keys that say so, and removes the others.
struct Fussy;

impl CompactionFilter for Fussy {
    fn name(&self) -> &str {
        "test.fussy"
    }

    fn filter(&self, entry: &FilterEntry<'_>) -> Verdict {
        assert!(!entry.key().starts_with(b"panic"), "as it was told");
        Verdict::Remove
    }
}

#[test]
fn a_panic_keeps_the_entry_and_is_named_once() {
    let env = environment(4);
    let warnings = Arc::new(Warnings::default());
    let options = KeyspaceOptions::new().compaction_filter(Fussy);
    let builder = builder(&env).keyspace("default", options);
    let db = builder.event_listener(Arc::clone(&warnings) as _).open().expect("opens");
    for number in 0..50 {
        db.put(format!("panic {number:02}"), "a").expect("put");
        db.put(format!("k {number:02}"), "a").expect("put");
    }
    db.compact().expect("compacted");
    assert_eq!(db.iter().count(), 50);
    let warnings = warnings.0.lock().expect("no panic");
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    for part in ["\"test.fussy\"", "panic 00", "as it was told", "49 more"] {
        assert!(warnings[0].contains(part), "{warnings:?}");
    }
}

#[test]
fn long_values_are_removed_by_key_and_not_shown() {
    struct Long;
    impl CompactionFilter for Long {
        fn name(&self) -> &str {
            "test.long"
        }
        fn filter(&self, entry: &FilterEntry<'_>) -> Verdict {
            match entry.value() {
                Some(value) => Verdict::Replace(vec![value[0]; 2]),
                None if entry.key() == b"gone" => Verdict::Remove,
                None => Verdict::Keep,
            }
        }
    }
    let env = environment(5);
    let options = KeyspaceOptions::new().compaction_filter(Long);
    let db = builder(&env).keyspace("default", options).open().expect("opens");
    for (key, bytes) in [("gone", 300_000), ("long", 300_000), ("read", 200_000), ("short", 5)] {
        db.put(key, vec![b'a'; bytes]).expect("put");
    }
    db.compact().expect("compacted");
    let lengths: Vec<usize> = db.iter().map(|entry| entry.expect("readable").1.len()).collect();
    assert_eq!(lengths, [300_000, 2, 2]);
}

/// Crashes at random points of a workload: what was acknowledged is there, as it was written or
/// filtered, and what was filtered before stays so.
#[test]
fn no_crash_undoes_a_verdict_or_uncovers_an_older_value() {
    let mut crashes = 0;
    for seed in 0..6 {
        let disk = SimFs::new();
        let rng = SeededRng::new(seed);
        let below = |sides: u64| rng.next_u64() % sides;
        let open = |disk: &SimFs| {
            let env = Env::deterministic(Arc::new(disk.clone()), seed);
            let builder = builder(&env).merge_policy(MergePolicy::Tiering).size_ratio(3.0);
            builder.durability(Durability::Sync).keyspace("default", ruling()).open()
        };
        let db = open(&disk).expect("opens");
        let keys = [b"k1".to_vec(), b"k2".to_vec(), b"k3".to_vec(), b"tmp:1".to_vec()];
        let mut model: Model = keys.iter().map(|key| (key.clone(), Written::default())).collect();
        // The state after each operation, and the operations on files so far.
        let mut states = vec![(disk.op_count(), model.clone())];
        for step in 0..60u64 {
            let key = &keys[below(4) as usize];
            match below(8) {
                0..5 => {
                    let value = format!("{}{step}", ["v1", "drop", "keep"][below(3) as usize]).into_bytes();
                    db.put(key, &value).expect("put");
                    model.insert(key.clone(), Written { value: Some(value), is_settled: false });
                }
                5 | 6 => db.flush().expect("flushed"),
                _ => db.compact().expect("compacted"),
            }
            for (key, written) in &mut model {
                let value = db.get(key).expect("readable");
                check(key, written, value.as_deref(), false, &format!("seed {seed}, step {step}"));
            }
            states.push((disk.op_count(), model.clone()));
        }
        drop(db);
        let first = states[0].0;
        for (at, policy) in disk.crash_points(first, seed).into_iter().filter(|_| below(12) == 0) {
            let crashed = disk.crash(at, &policy);
            let db = open(&crashed).expect("recovered");
            let done = states.partition_point(|(ops, _)| *ops <= at).saturating_sub(1);
            for key in &keys {
                let what = format!("seed {seed}, crash at {at} with {policy:?}, after {done} operations");
                let value = db.get(key).expect("readable");
                let mut before = states[done].1[key].clone();
                let next = states.get(done + 1).map(|(_, model)| model[key].clone());
                // The operation that the crash interrupts may be in force.
                match next.filter(|next| next.value != before.value) {
                    Some(mut next) if value.as_deref() != before.value.as_deref() => {
                        let after = before.value.as_deref().and_then(|value| ruled(key, value));
                        if value.as_deref() != after.as_deref() {
                            next.is_settled = false;
                            check(key, &mut next, value.as_deref(), false, &what);
                        }
                    }
                    _ => check(key, &mut before, value.as_deref(), false, &what),
                }
            }
            db.compact().expect("compacted");
            crashes += 1;
        }
    }
    assert!(crashes > 50, "{crashes} crashes");
}
