//! Tests of merge operators: what a reader sees of operands wherever they lie, which operator an
//! open may have, and what happens without it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use shamba::env::{Env, MemFs, Rng, SeededRng};
use shamba::merge::{AddU64, Append, AssociativeMerge, MergeResult};
use shamba::{Builder, Db, ErrorKind, Isolation, Keyspace, KeyspaceOptions, Result, Snapshot};

use super::support::Apart;

const DIR: &str = "/db";

fn builder(env: &Env) -> Builder {
    Db::builder(DIR).env(env.clone()).memory_budget(8 << 20).write_buffer(256 << 10)
}

fn environment(seed: u64) -> Env {
    Env::deterministic(Arc::new(MemFs::new()), seed)
}

/// Fails for operands that say so, and panics for others.
struct Fussy;

impl AssociativeMerge for Fussy {
    fn name(&self) -> &str {
        "fussy"
    }

    fn check(&self, _key: &[u8], operand: &[u8]) -> MergeResult<()> {
        if operand == b"refused" { Err("it is refused".into()) } else { Ok(()) }
    }

    fn merge(&self, _key: &[u8], older: &[u8], newer: &[u8]) -> MergeResult<Vec<u8>> {
        match newer {
            b"fail" => Err("it was told to".into()),
            b"panic" => panic!("as it was told"),
            _ => Ok([older, newer].concat()),
        }
    }
}

fn appending() -> KeyspaceOptions {
    KeyspaceOptions::new().merge_operator(Append::separated_by(","))
}

fn apart() -> KeyspaceOptions {
    KeyspaceOptions::new().merge_operator(Apart)
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn merged(model: &mut Model, key: &[u8], operand: &[u8]) {
    match model.get_mut(key) {
        Some(value) => {
            value.push(b',');
            value.extend_from_slice(operand);
        }
        None => _ = model.insert(key.to_vec(), operand.to_vec()),
    }
}

/// Compares every kind of read of a keyspace with the model.
fn check_reads(
    keyspace: &Keyspace,
    snapshot: Option<&Snapshot>,
    model: &Model,
    keys: &[Vec<u8>],
    what: &str,
) {
    let pairs = |iter: &mut dyn Iterator<Item = Result<(shamba::Slice, shamba::Slice)>>| {
        iter.map(|entry| entry.expect("readable"))
            .map(|(key, value)| (key.to_vec(), value.to_vec()))
            .collect::<Vec<_>>()
    };
    let due: Vec<(Vec<u8>, Vec<u8>)> = model.clone().into_iter().collect();
    let at = snapshot.map(|snapshot| snapshot.keyspace(keyspace));
    let (forward, mut backward) = match &at {
        Some(at) => (pairs(&mut at.iter()), pairs(&mut at.iter().rev())),
        None => (pairs(&mut keyspace.iter()), pairs(&mut keyspace.iter().rev())),
    };
    backward.reverse();
    assert_eq!(forward, due, "{what}, forward");
    assert_eq!(backward, due, "{what}, backward");
    let many = match &at {
        Some(at) => at.multi_get(keys).expect("readable"),
        None => keyspace.multi_get(keys).expect("readable"),
    };
    for (key, of_many) in keys.iter().zip(many) {
        let (one, is_there) = match &at {
            Some(at) => (at.get(key).expect("readable"), at.contains_key(key).expect("readable")),
            None => (keyspace.get(key).expect("readable"), keyspace.contains_key(key).expect("readable")),
        };
        let due = model.get(key).map(Vec::as_slice);
        assert_eq!(one.as_deref(), due, "{what}, get of {key:?}");
        assert_eq!(of_many.as_deref(), due, "{what}, multi_get of {key:?}");
        assert_eq!(is_there, due.is_some(), "{what}, contains_key of {key:?}");
        if snapshot.is_none() {
            let explained = keyspace.explain(key).expect("readable");
            let found = match explained.outcome {
                shamba::Outcome::Found { value } => Some(value),
                _ => None,
            };
            assert_eq!(found.as_deref(), due, "{what}, explain of {key:?}");
        }
    }
}

#[test]
fn every_reader_sees_what_a_map_would_hold() {
    for seed in 0..60 {
        println!("seed {seed}");
        let env = environment(seed);
        let rng = SeededRng::new(seed);
        let below = |sides: u64| rng.next_u64() % sides;
        let options = || if seed % 2 == 0 { appending() } else { apart() };
        let open = || builder(&env).keyspace("lists", options()).open().expect("opens");
        let mut db = open();
        let mut lists = db.keyspace("lists").expect("made");
        let keys: Vec<Vec<u8>> = (0..6u8).map(|number| vec![b'k', number]).collect();
        let mut model = Model::new();
        let mut snapshots: Vec<(Snapshot, Model)> = Vec::new();
        for step in 0..300u64 {
            let key = &keys[below(6) as usize];
            let operand = format!("{step}").into_bytes();
            match below(40) {
                0..20 => {
                    lists.merge(key, &operand).expect("merged");
                    merged(&mut model, key, &operand);
                }
                20..23 => {
                    // A long value stays in the log, and in chunks in a table.
                    let long = vec![b'v'; if below(4) == 0 { 40_000 } else { 3 }];
                    lists.put(key, &long).expect("put");
                    model.insert(key.clone(), long);
                }
                23..25 => {
                    lists.delete(key).expect("deleted");
                    model.remove(key);
                }
                25 => {
                    lists.delete_range(key..&keys[5]).expect("deleted");
                    model.retain(|at, _| at < key || at >= &keys[5]);
                }
                26..29 => {
                    let mut batch = db.batch();
                    batch
                        .merge_in(&lists, key, &operand)
                        .merge_in(&lists, key, "b")
                        .delete_in(&lists, &keys[0]);
                    batch.merge_in(&lists, &keys[0], "c");
                    batch.commit().expect("committed");
                    merged(&mut model, key, &operand);
                    merged(&mut model, key, b"b");
                    model.remove(&keys[0]);
                    merged(&mut model, &keys[0], b"c");
                }
                29..31 => {
                    let mut transaction = db.transaction();
                    transaction.merge_in(&lists, key, &operand).expect("merged");
                    let mut within = model.clone();
                    merged(&mut within, key, &operand);
                    let read = transaction.get_in(&lists, key).expect("readable");
                    assert_eq!(
                        read.as_deref(),
                        within.get(key).map(Vec::as_slice),
                        "seed {seed}, step {step}"
                    );
                    transaction.commit().expect("nothing else writes");
                    model = within;
                }
                31..33 => lists.flush_all(&db),
                33 => db.compact().expect("compacted"),
                34..37 => snapshots.push((db.snapshot(), model.clone())),
                37 => snapshots.truncate(1),
                38 if below(3) == 0 => {
                    snapshots.clear();
                    drop(lists);
                    if below(2) == 0 {
                        db.close().expect("closed");
                    } else {
                        drop(db);
                    }
                    db = open();
                    lists = db.keyspace("lists").expect("there");
                }
                _ => {}
            }
            if step % 20 == 19 {
                check_reads(&lists, None, &model, &keys, &format!("seed {seed}, step {step}"));
                for (number, (snapshot, then)) in snapshots.iter().enumerate() {
                    let what = format!("seed {seed}, step {step}, snapshot {number}");
                    check_reads(&lists, Some(snapshot), then, &keys, &what);
                }
            }
        }
    }
}

trait FlushAll {
    fn flush_all(&self, db: &Db);
}

impl FlushAll for Keyspace {
    fn flush_all(&self, db: &Db) {
        db.flush().expect("flushed");
    }
}

#[test]
fn a_transaction_reads_its_own_operands_mixed_in() {
    let env = environment(1);
    let db = builder(&env).keyspace("default", appending()).open().expect("opens");
    db.put("a", "1").expect("put");
    db.merge("c", "3").expect("merged");
    let mut transaction = db.transaction();
    for key in ["a", "b", "c"] {
        transaction.merge(key, "x").expect("merged");
        transaction.merge(key, "y").expect("merged");
    }
    let savepoint = transaction.savepoint();
    transaction.delete("a").expect("deleted");
    transaction.merge("a", "z").expect("merged");
    let due = [("a", "z"), ("b", "x,y"), ("c", "3,x,y")];
    let all = |entries: Vec<(shamba::Slice, shamba::Slice)>| {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        entries.iter().map(|(key, value)| (text(key), text(value))).collect::<Vec<_>>()
    };
    let due: Vec<_> = due.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let forward = transaction.iter().collect::<Result<Vec<_>>>().expect("readable");
    let mut backward = transaction.iter().rev().collect::<Result<Vec<_>>>().expect("readable");
    backward.reverse();
    assert_eq!((all(forward), all(backward)), (due.clone(), due));
    let many = transaction.multi_get(["c", "a", "d"]).expect("readable");
    assert_eq!(
        many.iter().map(Option::as_deref).collect::<Vec<_>>(),
        [Some(&b"3,x,y"[..]), Some(b"z"), None]
    );
    transaction.rollback_to(savepoint).expect("rolled back");
    assert_eq!(transaction.get("a").expect("readable").as_deref(), Some(&b"1,x,y"[..]));
    transaction.commit().expect("nothing else writes");
    assert_eq!(db.get("a").expect("readable").as_deref(), Some(&b"1,x,y"[..]));
}

#[test]
fn many_operands_in_a_transaction_take_memory_and_time_for_each_once() {
    const MANY: usize = 20_000;
    let env = environment(7);
    let counting = KeyspaceOptions::new().merge_operator(AddU64);
    let db = builder(&env).keyspace("default", counting).open().expect("opens");
    let mut transaction = db.transaction_with(shamba::TransactionOptions::new().memory_bytes(8 << 20));
    let one = 1u64.to_le_bytes();
    let read = |transaction: &shamba::Transaction| {
        transaction
            .get("k")
            .expect("readable")
            .map(|value| u64::from_le_bytes(value[..].try_into().expect("8")))
    };
    transaction.merge("k", one).expect("merged");
    let savepoint = transaction.savepoint();
    for _ in 0..MANY {
        transaction.merge("k", one).expect("within the memory");
    }
    assert_eq!(read(&transaction), Some(1 + MANY as u64));
    transaction.rollback_to(savepoint).expect("rolled back");
    assert_eq!(read(&transaction), Some(1));
    for _ in 0..MANY {
        transaction.merge("k", one).expect("within the memory");
    }
    transaction.commit().expect("nothing else writes");
    assert_eq!(db.get("k").expect("readable").as_deref(), Some(&(1 + MANY as u64).to_le_bytes()[..]));
}

#[test]
fn options_of_the_open_hold_for_a_keyspace_that_is_made_later() {
    let env = environment(8);
    let db = builder(&env).keyspace("later", apart()).open().expect("opens");
    assert_eq!(db.keyspace_with("later", appending()).expect_err("another").kind(), ErrorKind::Invalid);
    let later = db.keyspace_with("later", KeyspaceOptions::new()).expect("made");
    later.merge("k", "1").expect("the operator of the open");
    assert_eq!(later.merge_operator().as_deref(), Some("apart"));
}

#[test]
fn the_record_cache_has_what_operands_in_tables_make() {
    let env = environment(9);
    let open = builder(&env).keyspace("default", apart()).experimental(|e| e.record_cache(64 << 10));
    let db = open.open().expect("opens");
    db.put("k", "0").expect("put");
    for number in 1..=5 {
        db.merge("k", number.to_string()).expect("merged");
    }
    db.flush().expect("flushed");
    let hits = |db: &Db| db.stats().record_hits;
    let read =
        |db: &Db| db.get("k").expect("readable").map(|value| String::from_utf8_lossy(&value).into_owned());
    for _ in 0..20 {
        assert_eq!(read(&db).as_deref(), Some("0,1,2,3,4,5"));
    }
    let before = hits(&db);
    assert!(before > 0, "operands in tables are folded each time");
    // Operands in a memtable apply to the record.
    db.merge("k", "6").expect("merged");
    assert_eq!(read(&db).as_deref(), Some("0,1,2,3,4,5,6"));
    assert!(hits(&db) > before);
    db.flush().expect("flushed");
    for _ in 0..5 {
        assert_eq!(read(&db).as_deref(), Some("0,1,2,3,4,5,6"));
    }
    db.delete("k").expect("deleted");
    db.flush().expect("flushed");
    db.merge("k", "7").expect("merged");
    assert_eq!(read(&db).as_deref(), Some("7"));
}

#[test]
fn a_blind_merge_conflicts_with_nothing_and_a_read_before_it_does() {
    for isolation in [Isolation::Serializable, Isolation::Snapshot] {
        let env = environment(2);
        let db = builder(&env).keyspace("default", appending()).open().expect("opens");
        let mut blind = db.transaction_with(isolation);
        blind.merge("k", "1").expect("merged");
        let mut reads = db.transaction_with(isolation);
        assert_eq!(reads.get_for_update("k").expect("readable"), None);
        reads.merge("k", "never").expect("merged");
        db.merge("k", "0").expect("merged");
        blind.commit().expect("it has read nothing");
        assert_eq!(reads.commit().expect_err("the key has changed").kind(), ErrorKind::Conflict);
        assert_eq!(db.get("k").expect("readable").as_deref(), Some(&b"0,1"[..]));
    }
}

#[test]
fn a_long_chain_in_a_memtable_is_folded_once() {
    let env = environment(3);
    let counting = KeyspaceOptions::new().merge_operator(AddU64);
    let db = builder(&env).keyspace("default", counting).open().expect("opens");
    let number = |value: u64| value.to_le_bytes();
    let read = |db: &Db| db.get("k").expect("readable").map(|value| value.to_vec());
    for _ in 0..1_000 {
        db.merge("k", number(1)).expect("merged");
    }
    let old = db.snapshot();
    assert_eq!(read(&db), Some(number(1_000).to_vec()));
    for _ in 0..10 {
        db.merge("k", number(1)).expect("merged");
    }
    // The second reader folds what is new, and what the first one has left.
    let folded = |db: &Db| {
        let steps = db.explain("k").expect("readable").steps;
        steps.iter().find_map(|step| match step.action {
            shamba::Action::Folded { operands, has_base, .. } => Some((operands, has_base)),
            _ => None,
        })
    };
    let (operands, has_base) = folded(&db).expect("operands were folded");
    assert!(operands < 64 && has_base, "{operands} operands, base {has_base}");
    assert_eq!(read(&db), Some(number(1_010).to_vec()));
    assert_eq!(old.get("k").expect("readable").as_deref(), Some(&number(1_000)[..]));
    assert_eq!(db.iter().next().expect("an entry").expect("readable").1, number(1_010)[..]);
    db.delete_range("a".."z").expect("deleted");
    assert_eq!(read(&db), None, "a range tombstone covers what was folded");
    db.merge("k", number(5)).expect("merged");
    assert_eq!(read(&db), Some(number(5).to_vec()));
    assert_eq!(old.get("k").expect("readable").as_deref(), Some(&number(1_000)[..]));
}

/// Of a folded value that a reader has left, a later range tombstone leaves nothing, however long
/// the chain above it is.
#[test]
fn a_folded_value_ends_at_a_range_tombstone() {
    let env = environment(7);
    let counting = KeyspaceOptions::new().merge_operator(AddU64);
    let db = builder(&env).keyspace("default", counting).open().expect("opens");
    let add = |count: u64| {
        for _ in 0..count {
            db.merge("k", 1u64.to_le_bytes()).expect("merged");
        }
    };
    add(100);
    assert_eq!(db.get("k").expect("readable").as_deref(), Some(&100u64.to_le_bytes()[..]));
    db.delete_range("a".."z").expect("deleted");
    add(50);
    for _ in 0..2 {
        assert_eq!(db.get("k").expect("readable").as_deref(), Some(&50u64.to_le_bytes()[..]));
        let (_, scanned) = db.iter().next_back().expect("an entry").expect("readable");
        assert_eq!(scanned[..], 50u64.to_le_bytes());
    }
}

#[test]
fn flush_and_compaction_fold_what_no_reader_needs_apart() {
    let env = environment(4);
    let counting = KeyspaceOptions::new().merge_operator(AddU64);
    let db = builder(&env).keyspace("default", counting).open().expect("opens");
    let entries = |db: &Db| db.tables().iter().map(|table| table.entries).sum::<u64>();
    for _ in 0..100 {
        db.merge("k", 1u64.to_le_bytes()).expect("merged");
    }
    db.flush().expect("flushed");
    assert_eq!(entries(&db), 1, "one combined operand");
    let snapshot = db.snapshot();
    for _ in 0..100 {
        db.merge("k", 1u64.to_le_bytes()).expect("merged");
    }
    db.compact().expect("compacted");
    assert_eq!(entries(&db), 2, "one for the snapshot, one on top of it");
    assert_eq!(snapshot.get("k").expect("readable").as_deref(), Some(&100u64.to_le_bytes()[..]));
    drop(snapshot);
    db.merge("k", 1u64.to_le_bytes()).expect("merged");
    db.compact().expect("compacted");
    assert_eq!(entries(&db), 1);
    assert!(
        db.explain("k")
            .expect("readable")
            .steps
            .iter()
            .all(|step| { !matches!(step.action, shamba::Action::Folded { .. }) }),
        "a put is left"
    );
    assert_eq!(db.get("k").expect("readable").as_deref(), Some(&201u64.to_le_bytes()[..]));
    assert_eq!(db.stats().merge_operations, 201);
}

#[test]
fn the_operator_is_recorded_and_must_stay() {
    let env = environment(5);
    let db = builder(&env).open().expect("opens");
    let refused = db.merge("k", "1").expect_err("no operator");
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert!(refused.to_string().contains("\"default\" has no merge operator"), "{refused}");
    let lists = db.keyspace_with("lists", apart()).expect("made");
    lists.merge("k", "1").expect("merged");
    lists.merge("k", "2").expect("merged");
    lists.put("plain", "value").expect("put");
    assert_eq!(db.keyspace_with("lists", appending()).expect_err("another").kind(), ErrorKind::Invalid);
    // An operator joins a keyspace that has none.
    db.put("n", 1u64.to_le_bytes()).expect("put");
    db.keyspace_with("default", KeyspaceOptions::new().merge_operator(AddU64)).expect("joined");
    db.merge("n", 2u64.to_le_bytes()).expect("merged");
    drop((lists, db));

    let refused = builder(&env).keyspace("lists", appending()).open().expect_err("another operator");
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert!(refused.to_string().contains("\"apart\"") && refused.to_string().contains("lists"), "{refused}");

    // Without the code: all works but reads of what is not folded.
    let db = builder(&env).open().expect("opens");
    assert_eq!(db.get("n").expect("built in").as_deref(), Some(&3u64.to_le_bytes()[..]));
    let lists = db.keyspace("lists").expect("there");
    lists.merge("k", "3").expect("merged");
    for _ in 0..2 {
        for error in [
            lists.get("k").expect_err("no code"),
            lists.multi_get(["plain", "k"]).expect_err("no code"),
            lists.iter().find_map(Result::err).expect("no code"),
            lists.iter().rev().find_map(Result::err).expect("no code"),
        ] {
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(
                error.to_string().contains("\"apart\"") && error.to_string().contains("\"k\""),
                "{error}"
            );
        }
        assert!(lists.contains_key("k").expect("it has operands"));
        let transaction = db.transaction();
        assert!(transaction.contains_key_in(&lists, "k").expect("it has operands"));
        drop(transaction);
        assert_eq!(lists.get("plain").expect("readable").as_deref(), Some(&b"value"[..]));
        db.compact().expect("compacted");
    }
    drop(lists);
    let lists = db.keyspace_with("lists", apart()).expect("given now");
    assert_eq!(lists.get("k").expect("readable").as_deref(), Some(&b"1,2,3"[..]));
    drop((lists, db));
    let db = builder(&env).keyspace("lists", apart()).open().expect("opens");
    let lists = db.keyspace("lists").expect("there");
    // A compaction has something to do only where something is new.
    lists.put("k0", "new").expect("put");
    lists.delete("k").expect("deleted");
    lists.merge("k", "1,2").expect("merged");
    lists.merge("k", "3").expect("merged");
    db.compact().expect("compacted");
    assert_eq!(lists.get("k").expect("readable").as_deref(), Some(&b"1,2,3"[..]));
    drop(lists);
    db.close().expect("closed");
    // A put is all that is left, and needs no operator.
    let db = builder(&env).open().expect("opens");
    let lists = db.get_keyspace("lists").expect("open").expect("there");
    assert_eq!(lists.get("k").expect("readable").as_deref(), Some(&b"1,2,3"[..]));
}

#[test]
fn a_failing_operator_fails_the_read_and_loses_nothing() {
    let env = environment(6);
    let fussy = || KeyspaceOptions::new().merge_operator(Fussy);
    let db = builder(&env).keyspace("default", fussy()).open().expect("opens");
    let refused = db.merge("k", "refused").expect_err("checked");
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert!(refused.to_string().contains("it is refused"), "{refused}");
    assert_eq!(db.merge("k", vec![0; 65_536]).expect_err("too long").kind(), ErrorKind::Invalid);
    let mut batch = db.batch();
    batch.merge("other", "1").merge("k", "refused");
    assert_eq!(batch.commit().expect_err("checked").kind(), ErrorKind::Invalid);
    db.put("before", "1").expect("put");
    db.put("zulu", "2").expect("put");
    for told in ["fail", "panic"] {
        db.put(told, "base").expect("put");
        db.merge(told, told).expect("merged");
    }
    for _ in 0..2 {
        for (told, cause) in [("fail", "it was told to"), ("panic", "it panicked: as it was told")] {
            for error in [
                db.get(told).expect_err("it fails"),
                db.range(told..).next().expect("an entry").expect_err("it fails"),
                db.range(..=told).next_back().expect("an entry").expect_err("it fails"),
            ] {
                assert_eq!(error.kind(), ErrorKind::Invalid);
                let text = error.to_string();
                assert!(text.contains("\"fussy\"") && text.contains(told) && text.contains(cause), "{text}");
            }
        }
        assert_eq!(db.get("before").expect("readable").as_deref(), Some(&b"1"[..]));
        db.compact().expect("it keeps the operands");
    }
    // The operands and what they apply to are still there, for an operator that is mended.
    drop((batch, db));
    struct Mended;
    impl AssociativeMerge for Mended {
        fn name(&self) -> &str {
            "fussy"
        }
        fn merge(&self, _key: &[u8], older: &[u8], newer: &[u8]) -> MergeResult<Vec<u8>> {
            Ok([older, newer].concat())
        }
    }
    let mended = KeyspaceOptions::new().merge_operator(Mended);
    let db = builder(&env).keyspace("default", mended).open().expect("opens");
    assert_eq!(db.get("fail").expect("readable").as_deref(), Some(&b"basefail"[..]));
    assert_eq!(db.get("panic").expect("readable").as_deref(), Some(&b"basepanic"[..]));
}

#[test]
fn many_threads_count_together() {
    const THREADS: u64 = 8;
    const EACH: u64 = 2_000;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path: &Path = &dir.path().join("db");
    let counting = || KeyspaceOptions::new().merge_operator(AddU64);
    let open =
        || Db::builder(path).memory_budget(8 << 20).write_buffer(64 << 10).keyspace("default", counting());
    let db = open().open().expect("opens");
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for number in 0..EACH {
                    db.merge("hot", 1u64.to_le_bytes()).expect("merged");
                    db.merge((number % 50).to_le_bytes(), 1u64.to_le_bytes()).expect("merged");
                }
            });
        }
        // Readers never see a count go down.
        scope.spawn(|| {
            let mut before = 0;
            while before < THREADS * EACH {
                let value =
                    db.get("hot").expect("readable").map_or([0; 8], |value| value[..].try_into().expect("8"));
                assert!(u64::from_le_bytes(value) >= before, "a count goes down");
                before = u64::from_le_bytes(value);
            }
        });
    });
    let count_of = |db: &Db, key: &[u8]| {
        db.get(key).expect("readable").map(|value| u64::from_le_bytes(value[..].try_into().expect("8 bytes")))
    };
    for turn in 0..2 {
        assert_eq!(count_of(&db, b"hot"), Some(THREADS * EACH), "turn {turn}");
        for number in 0..50u64 {
            assert_eq!(
                count_of(&db, &number.to_le_bytes()),
                Some(THREADS * EACH / 50),
                "{number}, turn {turn}"
            );
        }
        db.compact().expect("compacted");
    }
    drop(db);
    assert_eq!(count_of(&open().open().expect("opens"), b"hot"), Some(THREADS * EACH));
}
