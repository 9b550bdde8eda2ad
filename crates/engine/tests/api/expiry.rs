//! Tests of expiry: what readers see of entries whose time has come, that time never goes back,
//! that snapshots, iterators and transactions keep theirs, and that the space comes back.
//!
//! All in the deterministic environment: its clock moves only when a test sleeps on it. A database
//! that is opened in a new environment finds a clock that was set back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use shamba::env::{Env, MemFs, Rng, SeededRng};
use shamba::merge::Append;
use shamba::{
    Builder, Db, ErrorKind, Isolation, Keyspace, KeyspaceOptions, Outcome, Result, Slice, Snapshot,
    TransactionOptions, WriteOptions,
};

const DIR: &str = "/db";
const EVER: Duration = Duration::MAX;

pub(crate) fn builder(env: &Env) -> Builder {
    Db::builder(DIR).env(env.clone()).memory_budget(8 << 20).write_buffer(256 << 10)
}

pub(crate) fn environment(seed: u64) -> Env {
    Env::deterministic(Arc::new(MemFs::new()), seed)
}

pub(crate) fn after(ms: u64) -> WriteOptions {
    WriteOptions::new().time_to_live(Duration::from_millis(ms))
}

pub(crate) fn wait(env: &Env, ms: u64) {
    env.clock.sleep_us(ms * 1_000);
}

/// A value and the time from which it is gone, if there is one.
type Base = (Vec<u8>, Option<u64>);

/// The writes to a key that count: the last put, and the operands after it.
#[derive(Clone, Default)]
struct Written {
    base: Option<Base>,
    operands: Vec<Vec<u8>>,
}

impl Written {
    /// The time that the key has left.
    fn left(&self, now_ms: u64) -> Option<Duration> {
        let expiry = self.base.as_ref().and_then(|(_, expiry)| *expiry).filter(|_| self.operands.is_empty());
        let left = |expiry: u64| Duration::from_millis(expiry - now_ms);
        self.seen(now_ms).map(|_| expiry.map_or(EVER, left))
    }

    fn seen(&self, now_ms: u64) -> Option<Vec<u8>> {
        let base = self.base.as_ref().filter(|(_, expiry)| expiry.is_none_or(|expiry| expiry > now_ms));
        let base = base.map(|(value, _)| value.clone());
        if self.operands.is_empty() {
            return base;
        }
        let parts: Vec<Vec<u8>> = base.into_iter().chain(self.operands.iter().cloned()).collect();
        Some(parts.join(&b','))
    }
}

#[derive(Clone, Default)]
struct Model(BTreeMap<Vec<u8>, Written>);

impl Model {
    fn put(&mut self, key: &[u8], value: &[u8], expiry: Option<u64>) {
        let base = Some((value.to_vec(), expiry));
        self.0.insert(key.to_vec(), Written { base, operands: Vec::new() });
    }

    fn seen(&self, now_ms: u64) -> BTreeMap<Vec<u8>, Vec<u8>> {
        self.0.iter().filter_map(|(key, it)| Some((key.clone(), it.seen(now_ms)?))).collect()
    }
}

fn pairs(iter: &mut dyn Iterator<Item = Result<(Slice, Slice)>>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let pair = |entry: Result<(Slice, Slice)>| entry.map(|(key, value)| (key.to_vec(), value.to_vec()));
    iter.map(|entry| pair(entry).expect("readable")).collect()
}

/// Compares every kind of read with what the model shows at `now_ms`.
fn check(db: &Db, snapshot: Option<&Snapshot>, model: &Model, now_ms: u64, keys: &[Vec<u8>], what: &str) {
    let seen = model.seen(now_ms);
    let due: Vec<(Vec<u8>, Vec<u8>)> = seen.clone().into_iter().collect();
    let (forward, mut backward) = match snapshot {
        Some(at) => (pairs(&mut at.iter()), pairs(&mut at.iter().rev())),
        None => (pairs(&mut db.iter()), pairs(&mut db.iter().rev())),
    };
    backward.reverse();
    assert_eq!(forward.len(), due.len(), "{what}, forward: {:?}", differing(&forward, &due));
    assert_eq!(forward, due, "{what}, forward");
    assert_eq!(backward, due, "{what}, backward");
    let names = match snapshot {
        Some(at) => at.keys(..).collect::<Result<Vec<_>>>(),
        None => db.keys(..).collect(),
    };
    let names = names.expect("readable");
    assert!(names.iter().map(|key| &key[..]).eq(seen.keys()), "{what}, keys: {names:?}");
    // Twice: the second time the record cache may answer.
    for _ in 0..2 {
        let many = snapshot.map_or_else(|| db.multi_get(keys), |at| at.multi_get(keys));
        for (key, of_many) in keys.iter().zip(many.expect("readable")) {
            let due = seen.get(key).map(Vec::as_slice);
            let (one, is_there, explained) = match snapshot {
                Some(at) => (at.get(key), at.contains_key(key), at.explain(key)),
                None => (db.get(key), db.contains_key(key), db.explain(key)),
            };
            let (left, expires) = match snapshot {
                Some(at) => (at.time_to_live_of(key), at.expiry_ms_of(key)),
                None => (db.time_to_live_of(key), db.expiry_ms_of(key)),
            };
            let due_left = model.0.get(key).and_then(|it| it.left(now_ms));
            let due_at = due_left.and_then(|left| Some(now_ms + u64::try_from(left.as_millis()).ok()?));
            let expiry = (left.expect("readable"), expires.expect("readable"));
            assert_eq!(expiry, (due_left, due_at), "{what}, expiry of {key:?}");
            assert_eq!(one.expect("readable").as_deref(), due, "{what}, get of {key:?}");
            assert_eq!(of_many.as_deref(), due, "{what}, multi_get of {key:?}");
            assert_eq!(is_there.expect("readable"), due.is_some(), "{what}, contains_key of {key:?}");
            let found = match explained.expect("readable").outcome {
                Outcome::Found { value } => Some(value),
                _ => None,
            };
            assert_eq!(found.as_deref(), due, "{what}, explain of {key:?}");
        }
    }
}

/// The keys that only one of two lists has.
fn differing<'a>(
    one: &'a [(Vec<u8>, Vec<u8>)],
    other: &'a [(Vec<u8>, Vec<u8>)],
) -> Vec<std::borrow::Cow<'a, str>> {
    let only = |of: &'a [(Vec<u8>, Vec<u8>)], not: &'a [(Vec<u8>, Vec<u8>)]| {
        let is_only = |(key, _): &&(Vec<u8>, Vec<u8>)| !not.iter().any(|(there, _)| there == key);
        of.iter().filter(is_only).map(|(key, _)| String::from_utf8_lossy(key)).collect::<Vec<_>>()
    };
    [only(one, other), only(other, one)].concat()
}

#[test]
fn readers_see_what_a_model_shows_at_their_time() {
    let seed = shamba_testkit_seed();
    for round in 0..12 {
        run_round(seed.wrapping_add(round));
    }
}

/// A seed that the run prints.
fn shamba_testkit_seed() -> u64 {
    let seed = std::env::var("SHAMBA_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("SHAMBA_SEED={seed}");
    seed
}

struct Held {
    snapshot: Snapshot,
    model: Model,
    now_ms: u64,
}

fn run_round(seed: u64) {
    println!("round {seed}");
    let rng = SeededRng::new(seed);
    let below = |limit: u64| rng.next_u64() % limit;
    let mut env = environment(seed);
    let options = || KeyspaceOptions::new().merge_operator(Append::separated_by(","));
    let open = |env: &Env| builder(env).keyspace("default", options()).open().expect("opened");
    let mut db = open(&env);
    let keys: Vec<Vec<u8>> = (0..40).map(|number| format!("key-{number:02}").into_bytes()).collect();
    let (mut model, mut held): (Model, Vec<Held>) = Default::default();
    // By how much the time of the database is ahead of a clock that was set back. It is recorded
    // from the first expiry on.
    let mut ahead_ms = 0;
    db.put_with(&keys[0], "", after(0)).expect("written");
    for step in 0..600 {
        let now_ms = env.clock.unix_ms() + ahead_ms;
        let key = &keys[below(keys.len() as u64) as usize];
        let value = |step: u64| match below(40) {
            0 => vec![b'l'; 17_000],
            1 => vec![b'w'; 70_000 + step as usize],
            2 => Vec::new(),
            _ => format!("value-{step}").into_bytes(),
        };
        match below(100) {
            0..=24 => {
                let (value, ms) = (value(step), below(4_000));
                db.put_with(key, &value, after(ms)).expect("written");
                model.put(key, &value, Some(now_ms + ms));
            }
            25..=34 => {
                let value = value(step);
                db.put(key, &value).expect("written");
                model.put(key, &value, None);
            }
            35..=39 => {
                db.delete(key).expect("written");
                model.0.remove(key);
            }
            40..=51 => {
                let operand = format!("o{step}").into_bytes();
                db.merge(key, &operand).expect("written");
                model.0.entry(key.clone()).or_default().operands.push(operand);
            }
            52..=54 => {
                let other = &keys[below(keys.len() as u64) as usize];
                let (from, to) = (key.min(other), key.max(other));
                db.delete_range(from..to).expect("written");
                model.0.retain(|key, _| !(from <= key && key < to));
            }
            55..=60 => {
                let mut batch = db.batch();
                for (number, key) in keys.iter().enumerate().filter(|_| below(4) == 0) {
                    let (value, ms) = (format!("b{step}-{number}"), below(6_000));
                    batch.put_expiring(key, &value, Duration::from_millis(ms));
                    model.put(key, value.as_bytes(), Some(now_ms + ms));
                }
                batch.commit().expect("written");
            }
            61..=63 => {
                let mut transaction = db.transaction();
                transaction.put_expiring(key, "of a transaction", Duration::from_millis(700)).expect("taken");
                assert_eq!(transaction.get(key).expect("own").as_deref(), Some(&b"of a transaction"[..]));
                transaction.commit().expect("written");
                model.put(key, b"of a transaction", Some(now_ms + 700));
            }
            64..=78 => wait(&env, below(900)),
            79..=83 => db.flush().expect("flushed"),
            84..=86 => db.compact().expect("compacted"),
            87..=89 if held.len() < 4 => {
                held.push(Held { snapshot: db.snapshot(), model: model.clone(), now_ms });
            }
            90..=91 if !held.is_empty() => {
                _ = held.swap_remove(below(held.len() as u64) as usize);
            }
            92 => {
                held.clear();
                db.close().expect("closed");
                // The clock is set back: what has expired must not come back.
                env = Env::deterministic(Arc::clone(&env.vfs), seed ^ step);
                ahead_ms = now_ms.saturating_sub(env.clock.unix_ms());
                db = open(&env);
            }
            _ => {
                let what = format!("seed {seed}, step {step}");
                check(&db, None, &model, now_ms, &keys, &what);
                for held in &held {
                    check(&db, Some(&held.snapshot), &held.model, held.now_ms, &keys, &what);
                }
            }
        }
    }
    let now_ms = env.clock.unix_ms() + ahead_ms;
    check(&db, None, &model, now_ms, &keys, "at the end");
    held.clear();
    db.compact().expect("compacted");
    check(&db, None, &model, now_ms, &keys, "compacted");
    wait(&env, 200_000_000_000);
    db.compact().expect("compacted");
    let ever = u64::MAX - 1;
    check(&db, None, &model, ever, &keys, "when all has expired");
    db.verify().expect("sound");
}

#[test]
fn an_expired_version_hides_older_ones_wherever_it_lies() {
    let env = environment(1);
    let db = builder(&env).open().expect("opened");
    db.put("k", "old").expect("written");
    db.compact().expect("compacted");
    db.put_with("k", "new", after(1_000)).expect("written");
    assert_eq!(db.get("k").expect("readable").as_deref(), Some(&b"new"[..]));
    wait(&env, 1_000);
    for step in ["in a memtable", "in a table", "compacted"] {
        assert_eq!(db.get("k").expect("readable"), None, "{step}");
        assert_eq!(db.iter().count(), 0, "{step}");
        match step {
            "in a memtable" => db.flush().expect("flushed"),
            _ => db.compact().expect("compacted"),
        }
    }
    // A value of the same key that is written later is visible again.
    db.put_with("k", "later", WriteOptions::new().time_to_live(EVER)).expect("written");
    wait(&env, 1_000_000_000_000);
    assert_eq!(db.get("k").expect("readable").as_deref(), Some(&b"later"[..]));
}

#[test]
fn explain_says_that_an_entry_has_expired() {
    let env = environment(2);
    let db = builder(&env).open().expect("opened");
    db.put_with("k", "v", after(1_500)).expect("written");
    assert!(!db.explain("k").expect("readable").to_string().contains("expired"));
    wait(&env, 4_000);
    let text = db.explain("k").expect("readable").to_string();
    assert!(text.contains("the entry has expired, 2500 ms ago"), "{text}");
}

#[test]
fn snapshots_iterators_and_transactions_keep_their_time() {
    let env = environment(3);
    let db = builder(&env).open().expect("opened");
    for number in 0..200u32 {
        db.put_with(number.to_be_bytes(), [7; 100], after(1_000)).expect("written");
    }
    let snapshot = db.snapshot();
    let mut iter = db.iter();
    assert!(iter.next().is_some());
    let mut transaction = db.transaction();
    let mut loose = db.transaction_with(TransactionOptions::new().isolation(Isolation::Snapshot));
    wait(&env, 5_000);
    db.compact().expect("compacted");
    db.put("later", "v").expect("written");
    db.flush().expect("flushed");
    db.compact().expect("compacted");
    assert_eq!(db.iter().count(), 1);
    assert_eq!(snapshot.iter().count(), 200);
    assert_eq!(snapshot.get(7u32.to_be_bytes()).expect("readable").map(|value| value.len()), Some(100));
    assert_eq!(iter.count(), 199);
    for transaction in [&mut transaction, &mut loose] {
        assert_eq!(transaction.iter().count(), 200);
        assert!(transaction.get(9u32.to_be_bytes()).expect("readable").is_some());
        transaction.put("written", "v").expect("taken");
    }
    // What it read has expired, which is no conflict.
    loose.commit().expect("no conflict");
    drop(transaction);
    let mut transaction = db.transaction();
    db.put_with("k", "v", after(100)).expect("written");
    assert_eq!(transaction.get("k").expect("readable"), None);
    transaction.put("other", "v").expect("taken");
    assert_eq!(transaction.commit().expect_err("k was written").kind(), ErrorKind::Conflict);
    drop(snapshot);
    db.put("last", "v").expect("written");
    db.flush().expect("flushed");
    db.wait_idle().expect("idle");
    let entries: u64 = db.stats().levels.iter().map(|level| level.entries).sum();
    assert!(entries <= 5, "{entries} entries are left");
}

#[test]
fn a_keyspace_has_a_time_to_live_that_can_change() {
    let env = environment(4);
    let seconds = |seconds| KeyspaceOptions::new().time_to_live(Duration::from_secs(seconds));
    let db = builder(&env).keyspace("cache", seconds(10)).open().expect("opened");
    let cache = db.keyspace("cache").expect("opened");
    assert_eq!(cache.time_to_live(), Some(Duration::from_secs(10)));
    let get = |keyspace: &Keyspace, key: &str| keyspace.get(key).expect("readable").is_some();
    cache.put("short", "v").expect("written");
    cache.put_with("long", "v", after(60_000)).expect("written");
    cache.put_with("ever", "v", WriteOptions::new().time_to_live(EVER)).expect("written");
    assert!(cache.put_if_absent("absent", "v").expect("written").is_done());
    cache.ingest([("ingested", "v")]).expect("ingested");
    db.put("of another keyspace", "v").expect("written");
    let mut transaction = db.transaction();
    transaction.put_in(&cache, "of a transaction", "v").expect("taken");
    transaction.commit().expect("written");
    wait(&env, 9_999);
    assert_eq!(cache.iter().count(), 6);
    wait(&env, 1);
    assert_eq!(cache.iter().count(), 2);
    assert!(get(&cache, "long") && get(&cache, "ever"));
    assert!(cache.put_if_absent("short", "again").expect("written").is_done());
    db.close().expect("closed");
    // Recorded.
    let db = builder(&env).open().expect("opened");
    let cache = db.keyspace("cache").expect("opened");
    assert_eq!(cache.time_to_live(), Some(Duration::from_secs(10)));
    let cache = db.keyspace_with("cache", seconds(1)).expect("changed");
    cache.put("brief", "v").expect("written");
    wait(&env, 1_000);
    assert!(!get(&cache, "brief") && get(&cache, "short"));
    let cache = db.keyspace_with("cache", KeyspaceOptions::new().time_to_live(EVER)).expect("changed");
    assert_eq!(cache.time_to_live(), None);
    cache.put("lasting", "v").expect("written");
    wait(&env, 1_000_000_000_000);
    assert!(get(&cache, "lasting") && !get(&cache, "short"));
    assert_eq!(db.iter().count(), 1);
    db.close().expect("closed");
    let db = builder(&env).open().expect("opened");
    assert_eq!(db.keyspace("cache").expect("opened").time_to_live(), None);
}

#[test]
fn a_time_to_live_is_read_and_set_in_one_step() {
    let env = environment(11);
    let journal = KeyspaceOptions::new().merge_operator(Append::separated_by(","));
    let db = builder(&env).keyspace("default", journal).open().expect("opened");
    let ms = Duration::from_millis;
    let left = |key: &str| db.time_to_live_of(key).expect("readable");
    assert!(!db.set_time_to_live("a", ms(5)).expect("done"), "there is no value");
    assert_eq!((left("a"), db.stats().puts), (None, 0));
    let long = vec![7; 50_000];
    for (key, value) in [("a", &b"1"[..]), ("long", &long)] {
        db.put_with(key, value, after(1_000)).expect("written");
        wait(&env, 400);
        assert_eq!(left(key), Some(ms(600)));
        assert!(db.set_time_to_live(key, ms(2_000)).expect("done"));
        wait(&env, 1_500);
        assert_eq!((left(key), db.get(key).expect("readable").as_deref()), (Some(ms(500)), Some(value)));
        db.flush().expect("flushed");
        assert_eq!(left(key), Some(ms(500)));
        assert!(db.set_time_to_live(key, EVER).expect("done"));
        assert_eq!(left(key), Some(EVER));
        assert!(db.set_time_to_live_with(key, ms(10), shamba::Durability::Sync).expect("done"));
        wait(&env, 10);
        assert!(left(key).is_none() && !db.set_time_to_live(key, EVER).expect("done"), "it has expired");
        assert_eq!(db.get(key).expect("readable"), None);
    }
    let twice = db.set_time_to_live_with("a", ms(1), after(1)).expect_err("two of them");
    assert!(twice.kind() == ErrorKind::Invalid && twice.to_string().contains("twice"), "{twice}");
    // Operands last, whatever they are added to, until all of it is given a time.
    db.put_with("log", "1", after(100)).expect("written");
    db.merge("log", "2").expect("merged");
    assert_eq!(left("log"), Some(EVER));
    assert!(db.set_time_to_live("log", ms(200)).expect("done"));
    wait(&env, 150);
    assert_eq!(db.get("log").expect("readable").as_deref(), Some(&b"1,2"[..]));
    wait(&env, 50);
    assert_eq!((db.get("log").expect("readable"), left("log")), (None, None));
    // A transaction has one time, sees its own writes, and depends on what it has asked.
    db.put_with("b", "1", after(1_000)).expect("written");
    let mut transaction = db.transaction();
    wait(&env, 300);
    assert_eq!(left("b"), Some(ms(700)));
    assert_eq!(transaction.time_to_live_of("b").expect("readable"), Some(ms(1_000)));
    transaction.put_expiring("c", "2", ms(50)).expect("written");
    // It counts from the put, by the time of the transaction.
    assert_eq!(transaction.time_to_live_of("c").expect("readable"), Some(ms(350)));
    transaction.delete("b").expect("deleted");
    assert_eq!(transaction.time_to_live_of("b").expect("readable"), None);
    transaction.rollback();
    assert!(db.set_time_to_live("b", EVER).expect("done"));
    transaction.put("d", "3").expect("written");
    assert_eq!(transaction.commit().expect_err("b has changed").kind(), ErrorKind::Conflict);
}

#[test]
fn only_puts_have_a_time_to_live() {
    let env = environment(5);
    let options = KeyspaceOptions::new().merge_operator(Append::separated_by(","));
    let db = builder(&env).keyspace("default", options).open().expect("opened");
    let mut batch = db.batch();
    batch.put("k", "v");
    for refused in [
        db.delete_with("k", after(1)),
        db.delete_range_with("a".."b", after(1)),
        db.merge_with("k", "o", after(1)),
        batch.commit_with(after(1)),
        {
            let mut transaction = db.transaction();
            transaction.put("k", "v").expect("taken");
            transaction.commit_with(after(1))
        },
    ] {
        let error = refused.expect_err("no put");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("time to live"), "{error}");
    }
    assert_eq!(db.iter().count(), 0);
    db.update_with("k", |_| Some("v"), after(10)).expect("written");
    wait(&env, 10);
    assert_eq!(db.get("k").expect("readable"), None);
}

#[test]
fn tables_whose_entries_have_expired_are_dropped_without_reading_them() {
    let env = environment(7);
    let db = builder(&env).open().expect("opened");
    for day in 0..8u32 {
        for number in 0..2_000u32 {
            let key = [day.to_be_bytes(), number.to_be_bytes()].concat();
            db.put_with(key, [7; 100], after(1_000 * u64::from(day + 1))).expect("written");
        }
        db.flush().expect("flushed");
    }
    db.compact().expect("compacted");
    db.wait_idle().expect("idle");
    let before = db.stats();
    let bytes = || db.stats().levels.iter().map(|level| level.bytes).sum::<u64>();
    let full = bytes();
    wait(&env, 8_000);
    // Any wake-up of the background finds them.
    db.put("k", "v").expect("written");
    db.flush().expect("flushed");
    db.wait_idle().expect("idle");
    let after = db.stats();
    assert!(bytes() < full / 100, "{} bytes of {full} are left", bytes());
    assert_eq!(after.entries_expired - before.entries_expired, 16_000);
    let read = after.bytes_compaction_read - before.bytes_compaction_read;
    assert!(read < full / 10, "{read} bytes of {full} were read");
    assert_eq!(db.iter().count(), 1);
}

#[test]
fn a_table_is_rewritten_once_half_of_it_has_expired() {
    let env = environment(8);
    let db = builder(&env).open().expect("opened");
    for number in 0..4_000u32 {
        let options = if number % 3 == 0 { WriteOptions::new() } else { after(1_000 + u64::from(number)) };
        db.put_with(number.to_be_bytes(), [7; 100], options).expect("written");
    }
    db.compact().expect("compacted");
    let bytes = || db.stats().levels.iter().map(|level| level.bytes).sum::<u64>();
    let full = bytes();
    let settle = || {
        db.put("k", "v").expect("written");
        db.flush().expect("flushed");
        db.wait_idle().expect("idle");
    };
    wait(&env, 2_000);
    settle();
    assert!(bytes() > full * 9 / 10, "a sixth has expired, and {} of {full} bytes are left", bytes());
    wait(&env, 2_500);
    settle();
    assert!(bytes() < full * 6 / 10, "more than half has expired, and {} of {full} bytes are left", bytes());
    assert!(db.stats().entries_expired > 2_000, "{} expired", db.stats().entries_expired);
}

#[test]
fn compact_drops_what_has_expired_however_little() {
    let env = environment(10);
    let db = builder(&env).open().expect("opened");
    for number in 0..4_000u32 {
        let options = if number % 20 == 0 { after(1_000) } else { WriteOptions::new() };
        db.put_with(number.to_be_bytes(), [7; 100], options).expect("written");
    }
    db.compact().expect("compacted");
    let entries = || db.stats().levels.iter().map(|level| level.entries).sum::<u64>();
    assert_eq!(entries(), 4_000);
    let snapshot = db.snapshot();
    wait(&env, 1_000);
    db.compact().expect("compacted");
    assert_eq!((entries(), snapshot.iter().count()), (4_000, 4_000), "the snapshot sees them");
    drop(snapshot);
    db.compact().expect("compacted");
    assert_eq!((entries(), db.iter().count()), (3_800, 3_800));
    assert_eq!(db.stats().entries_expired, 200);
    let before = db.stats().bytes_compacted;
    db.compact().expect("compacted");
    assert_eq!(db.stats().bytes_compacted, before, "there is nothing to do");
    // A run that shares no keys with others is moved, unless something in it has expired.
    let other = db.keyspace("other").expect("created");
    for number in 0..40u32 {
        let options = if number % 20 == 0 { after(1_000) } else { WriteOptions::new() };
        other.put_with(number.to_be_bytes(), [7; 100], options).expect("written");
    }
    db.flush().expect("flushed");
    wait(&env, 1_000);
    db.compact().expect("compacted");
    assert_eq!(db.stats().entries_expired, 202);
}

#[test]
fn what_never_expires_leaves_the_manifest_as_it_was() {
    let env = environment(9);
    let db = builder(&env).open().expect("opened");
    db.put("k", "v").expect("written");
    db.flush().expect("flushed");
    db.close().expect("closed");
    let manifest = |env: &Env| {
        shamba::inspect::manifest_file(env, std::path::Path::new(DIR)).expect("readable").to_string()
    };
    assert!(!manifest(&env).contains(" time "));
    let db = builder(&env).open().expect("opened");
    db.put_with("k", "v", after(1)).expect("written");
    assert!(manifest(&env).contains(" time "), "{}", manifest(&env));
    drop(db);
}
