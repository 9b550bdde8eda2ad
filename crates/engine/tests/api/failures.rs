//! Tests of the state and the promises after failures: one small case for each defect that a review
//! of the engine's core found. The suites of the workspace's `tests` enumerate failures; these
//! cases are specific.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use shamba::env::{CrashPolicy, Effect, Env, FaultFs, FaultRule, MemFs, OpKind, SimFs, Vfs};
use shamba::{Builder, Db, Durability, ErrorKind, Event, EventListener, Result, WriteOptions};

fn builder(env: &Env) -> Builder {
    Db::builder("/db")
        .env(env.clone())
        .write_buffer(1 << 20)
        .experimental(|e| e.file_size(1 << 10))
        .info_log(false)
}

fn faulty(inner: Arc<dyn Vfs>) -> (Arc<FaultFs>, Env) {
    let faults = Arc::new(FaultFs::new(inner, 1));
    let env = Env::deterministic(Arc::clone(&faults) as Arc<dyn Vfs>, 1);
    (faults, env)
}

/// Injects one failure of the creation of the `nth` table.
fn fail_table(faults: &FaultFs, nth: u64) {
    faults.clear_rules();
    faults.add_rule(FaultRule::nth(nth, Effect::Eio).on(&[OpKind::Create]).at_path(".sst"));
}

fn tables(env: &Env) -> u64 {
    let names = env.vfs.list(Path::new("/db")).expect("the directory is there");
    names.iter().filter(|entry| entry.name.ends_with(".sst")).count() as u64
}

/// Writes entries to two keyspaces, enough for several tables in the first and one in the second.
fn put_some(db: &Db) -> Result<()> {
    (0..100).try_for_each(|i| db.put(format!("key{i:05}"), [b'v'; 100]))?;
    db.keyspace("other")?.put("k", "v")
}

fn kind<T>(result: Result<T>) -> std::result::Result<(), ErrorKind> {
    result.map(|_| ()).map_err(|error| error.kind())
}

/// If the creation of any table fails, the tables written before it, of this keyspace or another,
/// are removed.
#[test]
fn a_failed_flush_leaves_no_tables_and_the_next_one_succeeds() -> Result<()> {
    let mut nth = 0;
    loop {
        let (faults, env) = faulty(Arc::new(MemFs::new()));
        let db = builder(&env).experimental(|e| e.auto_compaction(false)).open()?;
        put_some(&db)?;
        fail_table(&faults, nth);
        let flushed = db.flush();
        if faults.faults_injected() == 0 {
            assert!(flushed.is_ok() && nth == tables(&env) && nth > 3, "{nth} tables: {flushed:?}");
            return Ok(());
        }
        assert_eq!(kind(flushed), Err(ErrorKind::Io));
        assert_eq!(tables(&env), 0, "after table {nth} failed");
        db.flush()?;
        assert!(db.contains_key("key00099")? && db.keyspace("other")?.contains_key("k")?);
        nth += 1;
    }
}

/// Entries that a flush leaves out count once it is installed, however often it was tried.
#[test]
fn a_failed_flush_drops_no_entries() -> Result<()> {
    let (faults, env) = faulty(Arc::new(MemFs::new()));
    let db = builder(&env).experimental(|e| e.auto_compaction(false)).open()?;
    db.put("k", "1")?;
    db.put("k", "2")?;
    for _ in 0..2 {
        fail_table(&faults, 0);
        assert_eq!(kind(db.flush()), Err(ErrorKind::Io));
        assert_eq!(db.stats().entries_dropped, 0);
    }
    db.flush()?;
    assert_eq!((db.stats().entries_dropped, db.get("k")?.as_deref()), (1, Some(&b"2"[..])));
    Ok(())
}

/// The same for the tables that an open writes from replayed logs.
#[test]
fn a_failed_recovery_leaves_no_tables_and_the_next_one_succeeds() -> Result<()> {
    let mut nth = 0;
    loop {
        let (faults, env) = faulty(Arc::new(MemFs::new()));
        let db = builder(&env).open()?;
        put_some(&db)?;
        drop(db);
        fail_table(&faults, nth);
        // Without a log, all replayed entries must go to tables.
        let opened = builder(&env).experimental(|e| e.auto_compaction(false).no_wal(true)).open();
        if faults.faults_injected() == 0 {
            assert!(opened.is_ok() && nth == tables(&env) && nth > 3);
            return Ok(());
        }
        assert_eq!(kind(opened), Err(ErrorKind::Io));
        assert_eq!(tables(&env), 0, "after table {nth} failed");
        let db = builder(&env).open()?;
        assert!(db.contains_key("key00099")? && db.keyspace("other")?.contains_key("k")?);
        nth += 1;
    }
}

/// A read error after the first block of an input must not be taken for its end: unread entries
/// would be lost with the inputs.
#[test]
fn a_read_error_in_the_middle_of_a_merge_loses_nothing() -> Result<()> {
    const ENTRIES: usize = 3_000;
    let key = |number: usize| format!("key{number:05}");
    let mut failed = 0;
    for nth in 0.. {
        let (faults, env) = faulty(Arc::new(MemFs::new()));
        let db = builder(&env)
            .memory_budget(4 << 20)
            .experimental(|e| e.file_size(4 << 20).auto_compaction(false))
            .open()?;
        for half in 0..2 {
            (half..ENTRIES).step_by(2).try_for_each(|number| db.put(key(number), [b'v'; 100]))?;
            db.flush()?;
        }
        faults.clear_rules();
        faults.add_rule(FaultRule::nth(nth, Effect::Eio).on(&[OpKind::Read]).at_path(".sst"));
        let merged = db.compact();
        let struck = faults.faults_injected() > 0;
        // A failed read of a filter for memory does not fail the compaction: lookups work without
        // the filter.
        assert!(struck || merged.is_ok(), "read {nth}: {merged:?}");
        failed += u32::from(merged.is_err());
        faults.clear_rules();
        assert_eq!(db.iter().filter(std::result::Result::is_ok).count(), ENTRIES, "read {nth}");
        db.compact()?;
        assert!((0..ENTRIES).all(|number| matches!(db.contains_key(key(number)), Ok(true))), "read {nth}");
        if !struck {
            assert!(failed > 6, "{failed} reads failed: the inputs are too short to fail in the middle");
            break;
        }
    }
    Ok(())
}

/// A lookup with a failed read returns an error, never "not found".
#[test]
fn a_failed_read_is_an_error_however_a_key_is_looked_up() -> Result<()> {
    let (faults, env) = faulty(Arc::new(MemFs::new()));
    put_some(&builder(&env).open()?)?;
    let db = builder(&env).open()?;
    db.flush()?;
    faults.add_rule(FaultRule::nth(0, Effect::Eio).on(&[OpKind::Read]).at_path(".sst").sticky());
    assert_eq!(kind(db.get("key00050")), Err(ErrorKind::Io));
    assert_eq!(kind(db.contains_key("key00050")), Err(ErrorKind::Io));
    assert_eq!(kind(db.multi_get(["key00050", "key00099"])), Err(ErrorKind::Io));
    assert_eq!(kind(db.get_with("key00050", <[u8]>::len)), Err(ErrorKind::Io));
    assert_eq!(kind(db.snapshot().get("key00050")), Err(ErrorKind::Io));
    assert!(db.iter().any(|entry| kind(entry) == Err(ErrorKind::Io)));
    faults.clear_rules();
    assert!(db.contains_key("key00050")? && db.multi_get(["key00099"])?[0].is_some());
    Ok(())
}

/// After a failed sync the database stays read-only, because the state of the disk is unknown.
#[test]
fn no_write_is_taken_after_a_failed_sync() -> Result<()> {
    let (faults, env) = faulty(Arc::new(MemFs::new()));
    let db = builder(&env).open()?;
    faults.add_rule(FaultRule::nth(0, Effect::Eio).on(&[OpKind::SyncData]).at_path(".log"));
    assert_eq!(kind(db.put_with("unknown", "1", Durability::Sync)), Err(ErrorKind::Io));
    assert_eq!((kind(db.flush()), kind(db.sync())), (Err(ErrorKind::ReadOnly), Err(ErrorKind::ReadOnly)));
    for durability in [Durability::Sync, Durability::NoSync, Durability::Buffered] {
        assert_eq!(kind(db.put_with("refused", "2", durability)), Err(ErrorKind::ReadOnly));
    }
    assert!(!db.contains_key("unknown")? && !db.contains_key("refused")?);
    Ok(())
}

/// Nobody knows what is in a log whose sync has failed: no sync of it may be believed afterwards.
#[test]
fn a_flush_that_cannot_sync_its_log_turns_writes_off() -> Result<()> {
    let (faults, env) = faulty(Arc::new(MemFs::new()));
    let db = builder(&env).open()?;
    db.put("a", "1")?;
    assert!(db.stats().unsynced_bytes > 0);
    faults.add_rule(FaultRule::nth(0, Effect::Eio).on(&[OpKind::SyncData]).at_path(".log"));
    assert_eq!(kind(db.flush()), Err(ErrorKind::ReadOnly));
    assert_eq!(faults.faults_injected(), 1);
    for durability in [Durability::Sync, Durability::NoSync] {
        assert_eq!(kind(db.put_with("refused", "2", durability)), Err(ErrorKind::ReadOnly));
    }
    assert!(db.contains_key("a")? && !db.contains_key("refused")?);
    Ok(())
}

/// On a file system without links, a checkpoint copies: it must be whole after a power cut,
/// too.
#[test]
fn a_checkpoint_of_copies_is_durable() -> Result<()> {
    let disk = SimFs::new();
    let (faults, env) = faulty(Arc::new(disk.clone()));
    let db = builder(&env).open()?;
    put_some(&db)?;
    faults.add_rule(FaultRule::nth(0, Effect::Eio).on(&[OpKind::Link]).sticky());
    db.checkpoint("/copy")?;
    assert!(faults.faults_injected() > 0, "tables are linked");
    let env = Env::deterministic(Arc::new(disk.crash(disk.op_count(), &CrashPolicy::None)), 2);
    let copy = Db::builder("/copy").env(env).open()?;
    assert_eq!(copy.iter().count(), 100);
    assert!(copy.keyspace("other")?.contains_key("k")?);
    let report = copy.verify()?;
    assert!(report.problems.is_empty(), "{report:?}");
    Ok(())
}

/// A checkpoint that fails, wherever that is, removes what it has copied, and the next one can have
/// the same directory.
#[test]
fn a_failed_checkpoint_leaves_nothing_in_the_way() -> Result<()> {
    use OpKind::{Append, Create, Rename, SyncAll, SyncData, SyncDir};
    let kinds = [Append, Create, Rename, SyncAll, SyncData, SyncDir];
    let mut failed = 0;
    for (kind_of_op, is_linked) in kinds.iter().flat_map(|kind| [(*kind, true), (*kind, false)]) {
        for nth in 0.. {
            let (faults, env) = faulty(Arc::new(MemFs::new()));
            let db = builder(&env).open()?;
            put_some(&db)?;
            db.flush()?;
            if !is_linked {
                faults.add_rule(FaultRule::nth(0, Effect::Eio).on(&[OpKind::Link]).sticky());
            }
            faults.add_rule(FaultRule::nth(nth, Effect::Enospc).on(&[kind_of_op]).at_path("/copy"));
            let case = format!("{kind_of_op:?} number {nth}, linked: {is_linked}");
            let Err(error) = db.checkpoint("/copy") else { break };
            failed += 1;
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{case}: {error}");
            let names = env.vfs.list(Path::new("/copy")).unwrap_or_default();
            assert!(names.iter().all(|entry| entry.name == "LOCK"), "{case}: {names:?}");
            db.checkpoint("/copy")?;
            assert_eq!(Db::builder("/copy").env(env.clone()).open()?.iter().count(), 100, "{case}");
            assert!(db.checkpoint("/copy").is_err(), "{case}: twice");
        }
    }
    assert!(failed >= 15, "{failed} checkpoints failed");
    Ok(())
}

/// The log was sealed for lack of space, and no write followed: close must still sync it.
#[test]
fn close_syncs_a_log_that_was_sealed_for_lack_of_space() -> Result<()> {
    let disk = SimFs::new();
    let (faults, env) = faulty(Arc::new(disk.clone()));
    let db = builder(&env).open()?;
    db.put("kept", "1")?;
    faults.add_rule(FaultRule::nth(0, Effect::Enospc).on(&[OpKind::Append]).at_path(".log"));
    assert_eq!(kind(db.put("refused", "2")), Err(ErrorKind::NoSpace));
    db.close()?;
    let env = Env::deterministic(Arc::new(disk.crash(disk.op_count(), &CrashPolicy::None)), 2);
    let db = builder(&env).open()?;
    assert!(db.contains_key("kept")? && !db.contains_key("refused")?);
    Ok(())
}

/// A drop is durable at once, so earlier writes must be durable, too.
#[test]
fn a_dropped_keyspace_takes_no_earlier_write_along() -> Result<()> {
    let disk = SimFs::new();
    let env = Env::deterministic(Arc::new(disk.clone()), 1);
    let db = builder(&env).open()?;
    db.keyspace("doomed")?.put("k", "1")?;
    db.put_with("before", "1", Durability::Buffered)?;
    db.drop_keyspace("doomed")?;
    let env = Env::deterministic(Arc::new(disk.crash(disk.op_count(), &CrashPolicy::None)), 2);
    let db = builder(&env).open()?;
    assert!(db.contains_key("before")?);
    assert_eq!(db.keyspaces(), ["default"]);
    Ok(())
}

/// Without a log, too: then only tables are durable.
#[test]
fn a_dropped_or_new_keyspace_takes_no_earlier_write_along_without_a_log() -> Result<()> {
    let disk = SimFs::new();
    let env = Env::deterministic(Arc::new(disk.clone()), 1);
    let db = builder(&env).experimental(|e| e.no_wal(true)).open()?;
    db.keyspace("doomed")?.put("k", "1")?;
    db.put("moved", "1")?;
    db.drop_keyspace("doomed")?;
    db.put("before", "1")?;
    db.keyspace("made")?;
    db.put("after", "1")?;
    let env = Env::deterministic(Arc::new(disk.crash(disk.op_count(), &CrashPolicy::None)), 2);
    let db = builder(&env).experimental(|e| e.no_wal(true)).open()?;
    assert_eq!(db.keyspaces(), ["default", "made"]);
    assert!(db.contains_key("moved")? && db.contains_key("before")? && !db.contains_key("after")?);
    Ok(())
}

/// Drops a keyspace at the end of a flush, after its data has moved to another one.
#[derive(Default)]
struct Mover(OnceLock<Db>);

impl EventListener for Mover {
    fn event(&self, event: &Event) {
        if let (Event::FlushEnd { .. }, Some(db)) = (event, self.0.get()) {
            if db.get_keyspace("from").expect("asked").is_some() {
                db.put("moved", "v").expect("put");
                db.drop_keyspace("from").expect("dropped");
            }
        }
    }
}

/// A copy is the state at one moment, whatever is written and dropped while memtables are flushed
/// for it.
#[test]
fn a_checkpoint_has_what_was_written_before_a_drop_that_it_knows() -> Result<()> {
    let env = Env::deterministic(Arc::new(MemFs::new()), 1);
    let mover = Arc::new(Mover::default());
    let db = builder(&env).event_listener(Arc::clone(&mover) as Arc<dyn EventListener>).open()?;
    db.keyspace("from")?.put("k", "v")?;
    assert!(mover.0.set(db.clone()).is_ok());
    db.checkpoint("/copy")?;
    assert_eq!(db.keyspaces(), ["default"], "the keyspace was not dropped");
    let copy = Db::builder("/copy").env(env.clone()).open()?;
    assert!(copy.keyspaces() == ["default", "from"] || copy.contains_key("moved")?, "{:?}", copy.keyspaces());
    Ok(())
}

/// A write may specify an interval other than that of the database; a later write performs the sync
/// when it is due.
#[test]
fn an_interval_of_one_write_is_kept() -> Result<()> {
    let env = Env::deterministic(Arc::new(MemFs::new()), 1);
    let db = builder(&env).open()?;
    let interval: WriteOptions = Durability::Interval { ms: 10, bytes: 1 << 20 }.into();
    db.put_with("a", "1", interval)?;
    env.clock.sleep_us(9_999);
    db.put_with("b", "2", Durability::Interval { ms: 50, bytes: 1 << 20 })?;
    assert!(db.stats().unsynced_bytes > 0, "9 ms are not 10");
    env.clock.sleep_us(1);
    db.put_with("c", "3", interval)?;
    assert_eq!(db.stats().unsynced_bytes, 0);
    Ok(())
}

/// A listener that reads statistics while writes stall.
#[derive(Default)]
struct Curious {
    db: OnceLock<Db>,
    stalls: std::sync::atomic::AtomicU64,
}

impl EventListener for Curious {
    fn event(&self, event: &Event) {
        if let (Event::StallBegin { .. }, Some(db)) = (event, self.db.get()) {
            self.stalls.fetch_max(db.stats().stalls, std::sync::atomic::Ordering::SeqCst);
        }
    }
}

#[test]
fn a_listener_may_ask_for_statistics_during_a_stall() -> Result<()> {
    let (faults, env) = faulty(Arc::new(MemFs::new()));
    let listener = Arc::new(Curious::default());
    let small = builder(&env).write_buffer(1 << 10).experimental(|e| e.max_immutable_memtables(1));
    let db = small.event_listener(Arc::clone(&listener) as Arc<dyn EventListener>).open()?;
    let _ = listener.db.set(db.clone());
    faults.add_rule(FaultRule::nth(0, Effect::Enospc).on(&[OpKind::Append]).at_path(".sst").sticky());
    let refused = (0..100).find_map(|i| db.put(format!("key{i:05}"), [b'v'; 100]).err());
    assert_eq!(refused.map(|error| error.kind()), Some(ErrorKind::NoSpace));
    assert_eq!(listener.stalls.load(std::sync::atomic::Ordering::SeqCst), 1);
    faults.clear_rules();
    db.put("writes resume", "by themselves")?;
    assert!(db.contains_key("key00000")?);
    Ok(())
}

/// A new manifest whose first promise finds no space is in force all the same, and takes no edit:
/// the next edit is refused, and a further manifest replaces it.
#[test]
fn a_manifest_that_replaces_one_without_space_may_find_none_either() -> Result<()> {
    let mut refused = Vec::new();
    for further in 1..8 {
        let (faults, env) = faulty(Arc::new(MemFs::new()));
        let db = builder(&env).open()?;
        db.put("before", "1")?;
        // The first edit finds no space; the appends after it belong to the new manifest.
        for nth in [0, further] {
            faults.add_rule(FaultRule::nth(nth, Effect::Enospc).on(&[OpKind::Append]).at_path("MANIFEST"));
        }
        let mut failures = 0;
        for round in 0..8u32 {
            db.put(format!("key{round}"), "1")?;
            let flushed = kind(db.flush());
            assert!(matches!(flushed, Ok(()) | Err(ErrorKind::NoSpace)), "{further}, {round}: {flushed:?}");
            failures += u32::from(flushed.is_err());
        }
        assert_eq!(faults.faults_injected(), 2, "append {further}");
        refused.push(failures);
        db.flush()?;
        db.close()?;
        let db = builder(&env).open()?;
        assert_eq!(db.iter().count(), 9, "append {further}");
        assert!(db.verify()?.is_clean(), "append {further}");
    }
    assert!(refused.contains(&2), "no new manifest refused an edit: {refused:?}");
    Ok(())
}

/// Without compactions a slowdown would never end.
#[test]
fn writes_are_not_slowed_where_nothing_merges() -> Result<()> {
    let env = Env::deterministic(Arc::new(MemFs::new()), 1);
    let db = builder(&env).experimental(|e| e.auto_compaction(false)).open()?;
    for i in 0..20u8 {
        db.put([i], "v")?;
        db.flush()?;
    }
    assert_eq!((db.stats().levels[0].runs, db.stats().stalls), (20, 0));
    Ok(())
}

#[test]
fn a_snapshot_shows_nothing_of_another_database() -> Result<()> {
    let env = Env::deterministic(Arc::new(MemFs::new()), 1);
    let (db, other) = (builder(&env).open()?, Db::builder("/other").env(env.clone()).open()?);
    let users = other.keyspace("users")?;
    users.put("k", "v")?;
    let snapshot = db.snapshot().keyspace(&users);
    assert_eq!(kind(snapshot.get("k")), Err(ErrorKind::Invalid));
    assert_eq!(snapshot.iter().map(kind).collect::<Vec<_>>(), [Err(ErrorKind::Invalid)]);
    Ok(())
}

/// Ingested pairs are newer than everything written before, in memtables or tables.
#[test]
fn ingested_pairs_are_newer_than_what_was_there_and_older_than_what_follows() -> Result<()> {
    let env = Env::deterministic(Arc::new(MemFs::new()), 1);
    let open = || builder(&env).open();
    let db = open()?;
    db.put("a", "old")?;
    db.put("b", "old")?;
    let before = db.snapshot();
    assert_eq!(db.ingest([("a", "new"), ("c", "new")])?, 2);
    db.put("c", "newer")?;
    let check = |db: &Db| -> Result<()> {
        let entries = db.iter().collect::<Result<Vec<_>>>()?;
        let text = |slice: &[u8]| slice.escape_ascii().to_string();
        let entries: Vec<String> = entries.iter().map(|(k, v)| text(k) + "=" + &text(v)).collect();
        assert_eq!(entries, ["a=new", "b=old", "c=newer"]);
        Ok(())
    };
    check(&db)?;
    assert_eq!(kind(db.ingest([("x", "1"), ("x", "2")])), Err(ErrorKind::Invalid));
    assert!(!db.contains_key("x")?);
    assert_eq!(before.get("a")?.as_deref(), Some(&b"old"[..]));
    assert_eq!(before.get("c")?, None);
    drop(before);
    // Like a killed process: a no-op in the log reserves the sequence number of the pairs.
    drop(db);
    let db = open()?;
    check(&db)?;
    db.compact()?;
    check(&db)
}

/// Writers fill and seal memtables concurrently, also between the steps of an ingest. The sealed
/// memtables must not hide the ingested pairs, and the ingest must not deadlock with a flush that
/// waits for it.
#[test]
fn ingest_beside_writers_wins_over_what_was_written_before() -> Result<()> {
    let env = Env { vfs: Arc::new(MemFs::new()), ..Env::real() };
    let db = builder(&env).write_buffer(2 << 10).open()?;
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..2 {
            let (db, done) = (&db, &done);
            scope.spawn(move || {
                for i in 0..1_000_000u64 {
                    if done.load(std::sync::atomic::Ordering::SeqCst) {
                        return;
                    }
                    db.put(format!("writer{writer}-{:03}", i % 500), [b'v'; 100]).expect("a write");
                }
            });
        }
        let rounds = || -> Result<()> {
            for round in 0..30 {
                db.put("k", format!("old{round}"))?;
                let new = format!("new{round}");
                db.ingest([("k", &new)])?;
                assert_eq!(db.get("k")?.as_deref(), Some(new.as_bytes()));
            }
            Ok(())
        };
        let outcome = rounds();
        done.store(true, std::sync::atomic::Ordering::SeqCst);
        outcome
    })?;
    db.wait_idle()?;
    assert_eq!(db.get("k")?.as_deref(), Some(&b"new29"[..]));
    db.close()
}

/// While no new log can be created, the memtables grow to at most twice their size; then writes
/// fail.
#[test]
fn memtables_do_not_grow_without_end_while_no_log_can_be_made() -> Result<()> {
    let (faults, env) = faulty(Arc::new(MemFs::new()));
    let db = builder(&env).write_buffer(4 << 10).open()?;
    faults.add_rule(FaultRule::nth(0, Effect::Emfile).on(&[OpKind::Create]).at_path(".log").sticky());
    let taken = (0..1_000).take_while(|i| db.put(format!("key{i:05}"), [b'v'; 100]).is_ok()).count();
    assert!((20..100).contains(&taken), "{taken} writes of 100 bytes and more");
    faults.clear_rules();
    db.put("writes go on", "")?;
    assert!(db.contains_key("key00000")? && db.contains_key(format!("key{:05}", taken - 1))?);
    assert!(!db.contains_key(format!("key{taken:05}"))?);
    Ok(())
}

/// The name of the next log must be durable before a manifest names it, even if creating the
/// previous one failed.
#[test]
fn no_space_for_the_first_write_and_a_power_loss_leave_a_database() -> Result<()> {
    let disk = SimFs::new();
    let (faults, env) = faulty(Arc::new(disk.clone()));
    let open = || builder(&env).durability(Durability::NoSync).open();
    let db = open()?;
    db.put_with("kept", "1", Durability::Sync)?;
    db.close()?;
    let db = open()?;
    faults.add_rule(FaultRule::nth(0, Effect::Enospc).on(&[OpKind::Append]).at_path(".log"));
    assert_eq!(kind(db.put("refused", "2")), Err(ErrorKind::NoSpace));
    db.put("later", "3")?;
    for ops in 0..=disk.op_count() {
        let env = Env::deterministic(Arc::new(disk.crash(ops, &CrashPolicy::None)), 2);
        let opened = builder(&env).open().unwrap_or_else(|error| panic!("after {ops} operations: {error}"));
        assert!(ops < disk.op_count() || opened.contains_key("kept")?);
    }
    Ok(())
}

/// If any read of a large value fails, the result is the value or an error, never its reference.
#[test]
fn a_read_error_on_the_way_back_to_a_large_value_shows_no_reference() -> Result<()> {
    let (faults, env) = faulty(Arc::new(MemFs::new()));
    let open = || {
        builder(&env).experimental(|e| e.large_values(200, 64).block_bytes(128).auto_compaction(false)).open()
    };
    let db = open()?;
    let value = |i: usize| vec![i as u8; 300 + i];
    for round in 0..2 {
        for i in (round..40).step_by(2) {
            db.put(format!("key{i:03}"), value(i))?;
        }
        db.flush()?;
    }
    db.close()?;
    let mut failed = 0;
    for i in 0..40 {
        for nth in 0.. {
            let db = open()?;
            faults.clear_rules();
            let before = faults.faults_injected();
            faults.add_rule(FaultRule::nth(nth, Effect::Eio).on(&[OpKind::Read]).at_path(".sst"));
            let mut cursor = db.cursor();
            match cursor.seek_for_prev(format!("key{i:03}")) {
                Ok(found) => {
                    assert!(found, "key {i}, read {nth}");
                    assert_eq!(cursor.value(), Some(&value(i)[..]), "key {i}, read {nth}");
                }
                Err(_) => failed += 1,
            }
            let was_hit = faults.faults_injected() > before;
            faults.clear_rules();
            if !was_hit {
                break;
            }
        }
    }
    assert!(failed > 40, "{failed} seeks met an error");
    Ok(())
}
