//! Tests of deletes that are physically gone: within a bound on their age, and where scans keep
//! passing them.
//!
//! All in the deterministic environment: its clock moves only when a test sleeps on it, and due
//! work runs inside the calls of the test. What is in tables is counted by `Stats::levels`.

use std::sync::Arc;
use std::time::Duration;

use shamba::{Builder, Db};
use shamba_env::{CrashPolicy, Env, MemFs, SimFs};

/// The bound of these tests, in seconds.
const BOUND_S: u64 = 10;
const ROWS: u64 = 300;

fn env() -> Env {
    Env::deterministic(Arc::new(MemFs::new()), 1)
}

fn unbounded(env: &Env) -> Builder {
    Db::builder("/db").env(env.clone()).memory_budget(4 << 20).info_log(false)
}

fn builder(env: &Env) -> Builder {
    unbounded(env).tombstone_age_max(Duration::from_secs(BOUND_S))
}

fn sleep_s(env: &Env, seconds: u64) {
    env.clock.sleep_us(seconds * 1_000_000);
}

fn key(number: u64) -> String {
    format!("key {number:05}")
}

/// Point tombstones, range tombstones and entries in all tables.
fn in_tables(db: &Db) -> (u64, u64, u64) {
    let levels = db.stats().levels;
    let sum = |count: fn(&shamba::LevelStats) -> u64| levels.iter().map(count).sum();
    (sum(|level| level.deletes), sum(|level| level.range_deletes), sum(|level| level.entries))
}

/// Rows on the last level; above them, in a table of level 0, 10 deletes and a range delete of 20.
fn with_deletes(db: &Db) -> shamba::Result<()> {
    for number in 0..ROWS {
        db.put(key(number), format!("value {number}"))?;
    }
    db.flush()?;
    db.compact()?;
    delete(db)
}

fn delete(db: &Db) -> shamba::Result<()> {
    for number in 0..10 {
        db.delete(key(number * 7))?;
    }
    db.delete_range(key(200)..key(220))?;
    db.flush()
}

/// A call in which due work runs. It drains no level 0, as `wait_idle` would.
fn tick(db: &Db) -> shamba::Result<()> {
    db.put("another", "write")
}

/// Rows that [`delete`] leaves.
const LEFT: u64 = ROWS - 10 - 20;

#[test]
fn a_delete_and_what_it_hides_are_gone_within_the_bound() -> shamba::Result<()> {
    let env = env();
    let db = builder(&env).open()?;
    with_deletes(&db)?;
    assert_eq!(in_tables(&db), (10, 1, ROWS + 10));
    sleep_s(&env, BOUND_S);
    tick(&db)?;
    assert_eq!(in_tables(&db), (10, 1, ROWS + 10), "they are not older than the bound");
    let stats = db.stats();
    assert_eq!(stats.oldest_tombstone_age_ms, Some(BOUND_S * 1_000));
    assert_eq!(stats.tombstone_compactions, 0);
    sleep_s(&env, 1);
    tick(&db)?;
    assert_eq!(in_tables(&db), (0, 0, LEFT));
    let stats = db.stats();
    assert_eq!(stats.oldest_tombstone_age_ms, None);
    assert!(stats.tombstone_compactions > 0);
    assert!(db.verify()?.is_clean());
    Ok(())
}

#[test]
fn without_a_bound_an_idle_database_stays_as_it_is() -> shamba::Result<()> {
    let env = env();
    let db = unbounded(&env).open()?;
    with_deletes(&db)?;
    sleep_s(&env, 1_000 * BOUND_S);
    tick(&db)?;
    assert_eq!(in_tables(&db), (10, 1, ROWS + 10));
    assert_eq!(db.stats().oldest_tombstone_age_ms, Some(1_000 * BOUND_S * 1_000));
    Ok(())
}

#[test]
fn a_delete_in_a_memtable_is_flushed_in_time() -> shamba::Result<()> {
    let env = env();
    let db = builder(&env).open()?;
    for number in 0..ROWS {
        db.put(key(number), "value")?;
    }
    db.flush()?;
    db.compact()?;
    sleep_s(&env, BOUND_S + 1);
    db.delete(key(3))?;
    sleep_s(&env, BOUND_S);
    tick(&db)?;
    assert_eq!(in_tables(&db), (0, 0, ROWS), "its age counts from the delete");
    sleep_s(&env, 1);
    tick(&db)?;
    assert_eq!(in_tables(&db), (0, 0, ROWS), "the row is gone, `another` is there");
    assert_eq!(db.get(key(3))?, None);
    // Without deletes nothing is flushed.
    let flushes = db.stats().flushes;
    tick(&db)?;
    sleep_s(&env, 5 * BOUND_S);
    tick(&db)?;
    assert_eq!(db.stats().flushes, flushes);
    Ok(())
}

#[test]
fn a_snapshot_that_needs_it_delays_a_delete() -> shamba::Result<()> {
    let env = env();
    let db = builder(&env).open()?;
    for number in 0..ROWS {
        db.put(key(number), format!("value {number}"))?;
    }
    db.flush()?;
    db.compact()?;
    let older = db.snapshot();
    delete(&db)?;
    let newer = db.snapshot();
    sleep_s(&env, 3 * BOUND_S);
    tick(&db)?;
    assert_eq!(in_tables(&db), (10, 1, ROWS + 10), "the older snapshot sees the rows");
    assert_eq!(older.get(key(7))?.as_deref(), Some(&b"value 7"[..]));
    drop(older);
    tick(&db)?;
    assert_eq!(in_tables(&db), (0, 0, LEFT), "the newer one sees only that they are gone");
    assert_eq!(newer.get(key(7))?, None);
    Ok(())
}

/// A database whose levels are so small that `ROWS_DEEP` rows make three of them.
fn deep(env: &Env) -> Builder {
    builder(env).write_buffer(4 << 10).size_ratio(4.0).experimental(|e| e.file_size(4 << 10))
}

const ROWS_DEEP: u64 = 4 * ROWS;

fn fill_deep(db: &Db) -> shamba::Result<()> {
    for number in 0..ROWS_DEEP {
        db.put(key(number), format!("value {number:80}"))?;
    }
    db.flush()?;
    db.wait_idle()?;
    assert!(db.stats().deepest_level >= 2, "{}", db.describe());
    Ok(())
}

/// A compaction on the way, and a reopen, hand on the time of the oldest tombstone.
#[test]
fn the_age_outlives_compactions_and_processes() -> shamba::Result<()> {
    let env = env();
    let open = || deep(&env).open();
    let db = open()?;
    fill_deep(&db)?;
    delete(&db)?;
    sleep_s(&env, BOUND_S / 2);
    // Level 0 is compacted to level 1, below which are older versions. The runs overlap: none is
    // moved as it is.
    for number in 0..3 {
        db.put(format!("later {number}"), "value")?;
        db.put(key(number), "again")?;
        db.flush()?;
    }
    db.wait_idle()?;
    let levels = db.stats().levels;
    assert!(levels[0].deletes == 0 && in_tables(&db).0 > 0, "{}", db.describe());
    assert_eq!(db.stats().oldest_tombstone_age_ms, Some(BOUND_S / 2 * 1_000));
    drop(db);
    sleep_s(&env, BOUND_S / 2);
    let db = open()?;
    assert_eq!(db.stats().oldest_tombstone_age_ms, Some(BOUND_S * 1_000), "closed time counts");
    assert!(in_tables(&db).0 > 0);
    sleep_s(&env, 1);
    tick(&db)?;
    assert_eq!((in_tables(&db).0, in_tables(&db).1), (0, 0), "{}", db.describe());
    db.check_invariants().expect("a valid tree");
    Ok(())
}

#[test]
fn deletes_in_a_log_tail_get_their_time_at_the_next_open() -> shamba::Result<()> {
    let env = env();
    let db = builder(&env).open()?;
    for number in 0..ROWS {
        db.put(key(number), "value")?;
    }
    db.compact()?;
    db.delete(key(3))?;
    // Many short sessions must not make the delete young again and again.
    drop(db);
    for _ in 0..4 {
        let db = builder(&env).open()?;
        tick(&db)?;
        drop(db);
        sleep_s(&env, BOUND_S / 3);
    }
    let db = builder(&env).open()?;
    tick(&db)?;
    assert_eq!(in_tables(&db).0, 0, "{}", db.describe());
    assert_eq!(db.stats().oldest_tombstone_age_ms, None);
    Ok(())
}

/// A crash at any call of the compactions that are due leaves every row, and a tree from which they
/// continue.
#[test]
fn a_crash_on_the_way_delays_nothing() -> shamba::Result<()> {
    let sim = SimFs::new();
    let env = Env::deterministic(Arc::new(sim.clone()), 1);
    let db = deep(&env).open()?;
    fill_deep(&db)?;
    delete(&db)?;
    let (began, before) = (sim.op_count(), db.stats());
    sleep_s(&env, BOUND_S + 1);
    tick(&db)?;
    assert_eq!((in_tables(&db).0, in_tables(&db).1), (0, 0), "{}", db.describe());
    // To level 1 the table may move as it is.
    let work = db.stats().since(&before);
    assert!(
        work.tombstone_compactions > 0 && work.tombstone_compactions + work.trivial_moves > 1,
        "{work:?}"
    );
    let ended = sim.op_count();
    drop(db);
    for call in began..=ended {
        for policy in [CrashPolicy::None, CrashPolicy::All] {
            let disk = Env::deterministic(Arc::new(sim.crash(call, &policy)), call);
            sleep_s(&disk, BOUND_S + 1);
            let db = deep(&disk).open()?;
            tick(&db)?;
            let left = in_tables(&db);
            assert_eq!((left.0, left.1), (0, 0), "call {call}, {policy:?}: {}", db.describe());
            // 30 rows were deleted, one was added.
            assert_eq!(db.iter().count() as u64, ROWS_DEEP - 29, "call {call}, {policy:?}");
        }
    }
    Ok(())
}

/// A checkpoint keeps the ages.
#[test]
fn a_checkpoint_knows_the_ages() -> shamba::Result<()> {
    let env = env();
    let db = builder(&env).open()?;
    with_deletes(&db)?;
    sleep_s(&env, 4);
    db.checkpoint("/copy")?;
    drop(db);
    sleep_s(&env, 4);
    let copy = Db::builder("/copy").env(env.clone()).read_only(true).open()?;
    assert_eq!(copy.stats().oldest_tombstone_age_ms, Some(8_000));
    Ok(())
}

/// A queue: puts at the tail, deletes at the head, scans from the start. Scans that pass tombstones
/// in tables pay for their removal.
#[test]
fn a_queue_that_is_scanned_from_the_start_sheds_its_tombstones() -> shamba::Result<()> {
    let env = env();
    let db = unbounded(&env).write_buffer(32 << 10).open()?;
    let (length, mut passed_most) = (100u64, 0);
    for number in 0..30_000u64 {
        db.put(key(number), format!("value {number}"))?;
        if number >= length {
            let first = db.iter().next().transpose()?.expect("a row");
            assert_eq!(&first.0[..], key(number - length).as_bytes());
            db.delete(&first.0)?;
            passed_most = passed_most.max(in_tables(&db).0);
        }
    }
    db.put("last", "write")?;
    let stats = db.stats();
    assert!(stats.tombstone_compactions > 0, "{stats:?}");
    assert!(passed_most < 3_000, "{passed_most} tombstones were in tables");
    db.check_invariants().expect("a valid tree");
    Ok(())
}

/// While a snapshot keeps older versions, a compaction leaves them in the last run. The next one
/// after the snapshot's drop removes them, although nothing was written since; then there is
/// nothing left to do. With a filter and without, and after a reopen.
#[test]
fn versions_of_a_dropped_snapshot_are_removed_by_the_next_compaction() -> shamba::Result<()> {
    let lives = [10.0, 0.0]
        .into_iter()
        .flat_map(|bits| (0..4).map(move |steps| (bits, steps & 1 > 0, steps & 2 > 0)));
    for (bits_per_key, reopens, was_compacted) in lives {
        let env = env();
        let open = || unbounded(&env).bits_per_key(bits_per_key).open();
        let mut db = open()?;
        let write = |db: &Db, text: &str| {
            (0..ROWS).try_for_each(|number| db.put(key(number), format!("{text} {number}")))
        };
        write(&db, "old")?;
        let snapshot = db.snapshot();
        write(&db, "new")?;
        db.flush()?;
        if was_compacted {
            db.compact()?;
        }
        assert_eq!(in_tables(&db), (0, 0, 2 * ROWS));
        assert_eq!(snapshot.get(key(7))?.as_deref(), Some(&b"old 7"[..]));
        drop(snapshot);
        if reopens {
            db.close()?;
            db = open()?;
        }
        db.compact()?;
        assert_eq!(in_tables(&db), (0, 0, ROWS), "{bits_per_key} bits, {reopens}, {was_compacted}");
        assert_eq!(db.get(key(7))?.as_deref(), Some(&b"new 7"[..]));
        let written = db.stats().bytes_compacted;
        db.compact()?;
        assert_eq!(db.stats().bytes_compacted, written, "nothing is left to remove");
        assert!(db.verify()?.is_clean());
    }
    Ok(())
}
