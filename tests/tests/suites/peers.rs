//! Failures of other engines, as reported by their users, each tried here: they must not occur in
//! Shamba.
//!
//! Each test is named after the report, with a line on the failure. The tests are small lives on
//! the simulated disk and complement the suites that search for such failures by enumeration. They
//! document the reasons for the code that guards against each failure. Writes are numbered, and a
//! database must hold those up to some number, each complete.
//!
//! Not here: the guards themselves (crate `shamba`: `wal`, `version`, `write`).

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use shamba::env::{
    CrashPolicy, Effect, Env, FaultFs, FaultRule, MemFs, OpKind, SimFs, Vfs, append_all, read_file,
};
use shamba::{Builder, Db, Durability, ErrorKind, MergePolicy, WriteOptions, inspect};
use shamba_tests::files::{disk_of, files_of};
use shamba_tests::tally::Tally;
use shamba_tests::vectors::BUDGET_BYTES;

const HOME: &str = "/db";

fn builder(vfs: Arc<dyn Vfs>) -> Builder {
    let env = Env::deterministic(vfs, 1);
    let builder = Db::builder(HOME).env(env).durability(Durability::NoSync).info_log(false);
    builder
        .memory_budget(BUDGET_BYTES)
        .write_buffer(4 << 10)
        .experimental(|e| e.file_size(2 << 10).block_bytes(256))
        .merge_policy(MergePolicy::Tiering)
}

/// Write `number`: a batch of two keys, and the newest number.
fn write(db: &Db, number: u64, options: impl Into<WriteOptions>) -> shamba::Result<()> {
    let mut batch = db.batch();
    batch.put(format!("left/{number:06}"), number.to_string());
    batch.put(format!("right/{number:06}"), vec![number as u8; 40 + (number as usize * 37) % 400]);
    batch.put("newest", number.to_string());
    batch.commit_with(options)
}

/// The newest write; every one before it must be present and complete, except those in `but`.
fn newest(db: &Db, but: &BTreeSet<u64>) -> Result<u64, String> {
    let said = |error: shamba::Error| error.to_string();
    let newest = db.get("newest").map_err(said)?.map_or(0, |value| {
        std::str::from_utf8(&value).ok().and_then(|text| text.parse().ok()).unwrap_or(u64::MAX)
    });
    let rows = |prefix: &str| -> Result<Vec<u64>, String> {
        let rows = db.prefix(prefix).map(|pair| {
            let (key, _) = pair.map_err(said)?;
            let text = String::from_utf8_lossy(&key[prefix.len()..]).into_owned();
            text.parse::<u64>().map_err(|error| format!("{text}: {error}"))
        });
        rows.collect()
    };
    let expected: Vec<u64> = (1..=newest).filter(|number| !but.contains(number)).collect();
    for prefix in ["left/", "right/"] {
        let found = rows(prefix)?;
        if found != expected {
            return Err(format!("{prefix} has {found:?}, the newest is {newest}"));
        }
    }
    Ok(newest)
}

fn reopened(vfs: Arc<dyn Vfs>) -> Result<u64, String> {
    let db = builder(vfs).open().map_err(|error| error.to_string())?;
    newest(&db, &BTreeSet::new())
}

/// Every crash after every call of `disk` from `first` on leaves at least the write that `least`
/// returns for that call.
fn every_crash(disk: &SimFs, first: u64, least: impl Fn(u64) -> u64) -> u64 {
    let points = disk.crash_points(first, 7);
    // Many crashes leave the same disk.
    let mut known: HashMap<u64, u64> = HashMap::new();
    for (k, policy) in &points {
        let image = disk.crash(*k, policy);
        let found = *known.entry(image.image_hash()).or_insert_with(|| {
            reopened(Arc::new(image)).unwrap_or_else(|why| panic!("crash after call {k}, {policy:?}: {why}"))
        });
        let least = least(*k);
        assert!(found >= least, "crash after call {k}, {policy:?}: {found} of {least} writes are left");
    }
    assert!(points.len() > 100, "{} crashes are few", points.len());
    points.len() as u64
}

fn files_named(fs: &dyn Vfs, ending: &str) -> Vec<PathBuf> {
    let files = fs.list(Path::new(HOME)).expect("list").into_iter().map(|entry| entry.name);
    let mut files: Vec<_> =
        files.filter(|name| name.ends_with(ending)).map(|name| Path::new(HOME).join(name)).collect();
    files.sort();
    files
}

fn rewrite(fs: &dyn Vfs, path: &Path, bytes: &[u8]) {
    fs.unlink(path).expect("unlink");
    append_all(&mut *fs.create(path).expect("create"), bytes).expect("append");
}

fn copy(fs: &dyn Vfs) -> MemFs {
    disk_of(&files_of(fs))
}

/// A database that was killed with several live logs: memtables are sealed, but no table can be
/// written.
fn with_several_logs() -> (MemFs, u64) {
    let fs = MemFs::new();
    let faults = Arc::new(FaultFs::new(Arc::new(fs.clone()), 1));
    let db = builder(faults.clone()).experimental(|e| e.max_immutable_memtables(8)).open().expect("create");
    faults.add_rule(FaultRule::nth(0, Effect::Enospc).on(&[OpKind::Create]).at_path(".sst").sticky());
    let mut acked = 0;
    for number in 1..=60 {
        let options = WriteOptions::from(Durability::Sync).deadline_ms(0);
        match write(&db, number, options) {
            Ok(()) => acked = number,
            Err(_) => break,
        }
    }
    drop(db);
    assert!(files_named(&fs, ".log").len() >= 3, "{:?}", files_named(&fs, ".log"));
    (fs, acked)
}

/// LevelDB 193 and 1081, RocksDB 13169, 11149 and 12489: the unsynced tail of an old log was lost
/// while a newer log survived: a hole in history.
#[test]
fn leveldb_193_no_hole_between_an_old_log_and_a_newer_one() {
    let disk = SimFs::new();
    let db = builder(Arc::new(disk.clone())).open().expect("create");
    let start = disk.op_count();
    let mut durable = Vec::new();
    for number in 1..=48 {
        // Synced writes are in later logs than many unsynced ones before them.
        let is_synced = number % 20 == 0;
        write(&db, number, if is_synced { Durability::Sync } else { Durability::NoSync }).expect("write");
        if is_synced {
            durable.push((disk.op_count(), number));
        }
    }
    drop(db);
    let least = |k| durable.iter().rev().find(|(at, _)| *at <= k).map_or(0, |(_, number)| *number);
    let crashes = every_crash(&disk, start, least);
    Tally::of(&[("images", crashes)]).tell("peers-logs", "crashes between logs");
}

/// RocksDB 7701: a log truncated exactly between two records looked complete.
#[test]
fn rocksdb_7701_an_older_log_cut_between_records_is_damage() {
    let (fs, acked) = with_several_logs();
    assert_eq!(reopened(Arc::new(copy(&fs))), Ok(acked));
    let logs = files_named(&fs, ".log");
    let env = Env::deterministic(Arc::new(fs.clone()), 1);
    let (none, mut cuts) = (BTreeSet::new(), 0);
    for log in &logs[..logs.len() - 1] {
        let described = inspect::wal_file(&env, log).expect("a log");
        let bytes = read_file(&fs, log).expect("read");
        for record in &described.records[1..] {
            let cut = copy(&fs);
            rewrite(&cut, log, &bytes[..record.offset as usize]);
            let opened = builder(Arc::new(cut)).open();
            // A promise at the end has no write.
            let Err(error) = opened else {
                let found = opened.map_err(|error| error.to_string()).and_then(|db| newest(&db, &none));
                assert_eq!(found, Ok(acked), "{} cut at {}", log.display(), record.offset);
                continue;
            };
            assert_eq!(error.kind(), ErrorKind::Corruption, "{error:?}");
            assert!(error.to_string().contains(".log"), "{error}");
            cuts += 1;
        }
    }
    assert!(cuts > 5, "{cuts} cuts");
}

/// RocksDB 6288: a read error during log replay was treated as the end of the log, and the rest was
/// discarded.
#[test]
fn rocksdb_6288_a_read_error_in_recovery_is_not_the_end_of_the_log() {
    let (fs, acked) = with_several_logs();
    let mut failed = 0;
    for nth in 0.. {
        let disk = copy(&fs);
        let faults = Arc::new(FaultFs::new(Arc::new(disk.clone()), 1));
        faults.add_rule(FaultRule::nth(nth, Effect::Eio).on(&[OpKind::Read, OpKind::Len]).at_path(".log"));
        let opened = builder(faults.clone()).open();
        if faults.faults_injected() == 0 {
            break;
        }
        let error = opened.map(|_| ()).expect_err("an open that could not read a log");
        assert_eq!(error.kind(), ErrorKind::Io, "{error:?}");
        failed += 1;
        assert_eq!(reopened(Arc::new(disk)), Ok(acked), "after read {nth} had failed");
    }
    assert!(failed > 3, "{failed} reads");
}

/// RocksDB 12995 and 13903: after a failed log write the engine resumed by itself and split a
/// batch. fjall 304 and 308: a partial record stayed in the log, and writes acknowledged after it
/// could not be read.
#[test]
fn rocksdb_12995_fjall_304_nothing_follows_a_record_that_failed_half_way() {
    let (mut went_on, mut faults_seen) = (0, 0);
    for effect in [Effect::Enospc, Effect::Eio, Effect::ShortWrite] {
        for nth in 0..40 {
            let disk = SimFs::new();
            let faults = Arc::new(FaultFs::new(Arc::new(disk.clone()), 1));
            let db = builder(faults.clone()).open().expect("create");
            // A short write first, so that a part of the record is written when the rest fails.
            faults.add_rule(FaultRule::nth(nth, Effect::ShortWrite).on(&[OpKind::Append]).at_path(".log"));
            faults.add_rule(FaultRule::nth(nth + 1, effect).on(&[OpKind::Append]).at_path(".log"));
            let mut failed = BTreeSet::new();
            let mut acked = 0;
            for number in 1..=50 {
                match write(&db, number, Durability::NoSync) {
                    Ok(()) => acked = number,
                    Err(_) => _ = failed.insert(number),
                }
            }
            faults_seen += faults.faults_injected();
            assert_eq!(newest(&db, &failed), Ok(acked), "{effect:?} at {nth}, while it is open");
            went_on += u64::from(failed.iter().next().is_some_and(|first| *first < acked));
            drop(db);
            let db = builder(Arc::new(disk.clone())).open().expect("a reopen");
            // A failed write may be present as a whole, if nothing came after it; the others are
            // present if and only if they were acknowledged.
            let found = db.get("newest").expect("get");
            let found: u64 =
                found.map_or(0, |value| String::from_utf8_lossy(&value).parse().expect("a number"));
            let but: BTreeSet<u64> = failed.iter().copied().filter(|number| *number != found).collect();
            assert_eq!(newest(&db, &but), Ok(found), "{effect:?} at {nth}, reopened; failed {failed:?}");
            assert!(found >= acked, "{effect:?} at {nth}: {found} of {acked}");
        }
    }
    assert!(
        faults_seen > 100 && went_on > 10,
        "{faults_seen} faults, after {went_on} of them writes went on"
    );
}

/// RocksDB 12918: the stale tail of a recycled log was replayed. Shamba does not recycle logs; a
/// log in another's place is refused.
#[test]
fn rocksdb_12918_a_log_in_anothers_place_is_not_replayed() {
    let (fs, acked) = with_several_logs();
    let logs = files_named(&fs, ".log");
    let mut tried = 0;
    for from in &logs {
        for to in logs.iter().filter(|to| *to != from) {
            let disk = copy(&fs);
            let (stale, own) = (read_file(&fs, from).expect("read"), read_file(&fs, to).expect("read"));
            let half = own.len() / 2;
            let tail = [&own[..half], &stale[stale.len().min(half)..]].concat();
            for bytes in [&stale, &tail] {
                rewrite(&disk, to, bytes);
                match builder(Arc::new(copy(&disk))).open() {
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Corruption, "{error:?}"),
                    // The newest log has no later promises to check it. A stale one looks like the
                    // remains of a file that was never synced: it is dropped, with a warning.
                    Ok(db) => {
                        assert_eq!(Some(to), logs.last(), "{from:?} in its place");
                        assert!(!db.warnings().is_empty());
                        let found = newest(&db, &BTreeSet::new()).expect("a prefix");
                        assert!(found <= acked, "{found} of {acked}");
                    }
                }
                tried += 1;
            }
        }
    }
    assert!(tried >= 12, "{tried} pairs");
}

/// LevelDB 195: files were unlinked before the rename of CURRENT that made them obsolete was
/// durable.
#[test]
fn leveldb_195_nothing_is_unlinked_before_what_replaces_it_is_durable() {
    let disk = SimFs::new();
    let open = || builder(Arc::new(disk.clone())).open().expect("open");
    let db = open();
    let start = disk.op_count();
    let mut durable = Vec::new();
    for number in 1..=30 {
        write(&db, number, Durability::Sync).expect("write");
        durable.push((disk.op_count(), number));
        if number % 10 == 0 {
            db.flush().expect("flush");
            db.compact().expect("compact");
        }
    }
    db.close().expect("close");
    // An open writes another manifest and removes the old one.
    for _ in 0..2 {
        open().close().expect("close");
    }
    let least = |k| durable.iter().rev().find(|(at, _)| *at <= k).map_or(0, |(_, number)| *number);
    let crashes = every_crash(&disk, start, least);
    Tally::of(&[("images", crashes)]).tell("peers-names", "crashes around renames and removals");
}

/// LevelDB 251: rot in the middle of the log silently cut off everything after it, and zeros in it
/// were accepted. In RocksDB and others an option decides; in Shamba the synced promise does.
#[test]
fn leveldb_251_rot_below_a_promise_is_damage_and_zeros_above_it_are_a_tail() {
    let fs = MemFs::new();
    let db = builder(Arc::new(fs.clone())).write_buffer(1 << 20).open().expect("create");
    for number in 1..=6 {
        write(&db, number, Durability::NoSync).expect("write");
    }
    db.sync().expect("sync");
    let log = files_named(&fs, ".log").pop().expect("a log");
    let synced_bytes = read_file(&fs, &log).expect("read").len();
    for number in 7..=12 {
        write(&db, number, Durability::NoSync).expect("write");
    }
    drop(db);
    let bytes = read_file(&fs, &log).expect("read");
    let refuses = |damaged: &[u8]| {
        let disk = copy(&fs);
        rewrite(&disk, &log, damaged);
        builder(Arc::new(disk)).open()
    };
    let (mut refused, mut tails) = (0, 0);
    for at in (0..bytes.len()).step_by(13) {
        let mut damaged = bytes.clone();
        let zeros = (at + 32).min(bytes.len());
        damaged[at..zeros].fill(0);
        if damaged == bytes {
            continue;
        }
        match refuses(&damaged) {
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corruption, "{error:?}");
                assert!(at < synced_bytes, "zeros at {at}, above the {synced_bytes} synced bytes: {error}");
                refused += 1;
            }
            Ok(db) => {
                let found = newest(&db, &BTreeSet::new()).expect("a prefix");
                assert!(found >= 6, "zeros at {at}: {found} writes are left");
                if found < 12 {
                    assert!(at + 32 > synced_bytes, "zeros at {at} cut what was synced");
                    assert!(!db.warnings().is_empty(), "zeros at {at} cut the log in silence");
                    tails += 1;
                }
            }
        }
    }
    assert!(refused > 10 && tails > 10, "{refused} refused, {tails} tails");
}

/// Pebble 5142: a checkpoint copied a log that was being written.
#[test]
fn pebble_5142_a_checkpoint_beside_a_writer_is_a_whole_prefix() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let open = |path: &Path| {
        Db::builder(path).write_buffer(64 << 10).durability(Durability::NoSync).info_log(false).open()
    };
    let db = open(&dir.path().join("db")).expect("create");
    let (acked, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for number in 1.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                write(&db, number, Durability::NoSync).expect("write");
                acked.store(number, Ordering::Release);
            }
        });
        for number in 0..12 {
            let (copy, before) = (dir.path().join(format!("copy-{number}")), acked.load(Ordering::Acquire));
            db.checkpoint(&copy).expect("checkpoint");
            let after = acked.load(Ordering::Acquire) + 1;
            let copied = open(&copy).expect("a checkpoint opens");
            assert_eq!(copied.warnings(), [""; 0], "checkpoint {number}");
            let found = newest(&copied, &BTreeSet::new()).expect("a prefix");
            assert!((before..=after).contains(&found), "{found} of {before} to {after} writes were copied");
            assert!(copied.verify().expect("verify").is_clean());
        }
        stop.store(true, Ordering::Relaxed);
        writer.join().expect("the writer");
    });
    assert!(acked.into_inner() > 100);
}

/// Pebble 1212 and 3865: a crash between the new log and the manifest, in the middle of an open,
/// left a log that the next open considered damaged.
#[test]
fn pebble_1212_a_crash_at_any_call_of_an_open_loses_nothing() {
    let disk = SimFs::new();
    let db = builder(Arc::new(disk.clone())).open().expect("create");
    for number in 1..=12 {
        write(&db, number, Durability::NoSync).expect("write");
    }
    db.sync().expect("sync");
    drop(db);
    let killed = disk.crash(disk.op_count(), &CrashPolicy::None);
    let mut crashes = 0;
    let mut known = HashSet::new();
    // Opens that crash, nested, and a last one that completes.
    let mut outer = vec![killed];
    for depth in 0..2 {
        let mut inner = Vec::new();
        for image in outer {
            let before = image.op_count();
            assert_eq!(reopened(Arc::new(image.clone())), Ok(12), "depth {depth}");
            for (k, policy) in image.crash_points(before, 3) {
                let crashed = image.crash(k, &policy);
                if known.insert(crashed.image_hash()) {
                    assert_eq!(reopened(Arc::new(crashed)), Ok(12), "depth {depth}: {k}, {policy:?}");
                }
                crashes += 1;
                if depth == 0 && crashes % 7 == 0 {
                    inner.push(image.crash(k, &policy));
                }
            }
        }
        outer = inner;
    }
    assert!(crashes > 300, "{crashes} crashes of opens");
    Tally::of(&[("images", crashes)]).tell("peers-opens", "crashes of opens");
}

/// RocksDB, notes on format 6: a block in another's place had a correct checksum.
#[test]
fn rocksdb_format_6_a_block_in_anothers_place_is_damage() {
    let fs = MemFs::new();
    let db = builder(Arc::new(fs.clone())).open().expect("create");
    for number in 1..=40 {
        // Equal lengths, so that blocks have equal lengths too.
        db.put(format!("key/{number:06}"), vec![number as u8; 120]).expect("put");
    }
    db.flush().expect("flush");
    db.compact().expect("compact");
    db.close().expect("close");
    let env = Env::deterministic(Arc::new(fs.clone()), 1);
    let mut swaps = 0;
    let tables = files_named(&fs, ".sst");
    for table in &tables {
        let bytes = read_file(&fs, table).expect("read");
        let blocks = inspect::table_file(&env, table).expect("a table").blocks;
        for [a, b] in blocks.array_windows().filter(|[a, b]| a.bytes == b.bytes) {
            let (a, b, len) = (a.offset as usize, b.offset as usize, a.bytes as usize);
            let mut swapped = bytes.clone();
            swapped[a..a + len].copy_from_slice(&bytes[b..b + len]);
            swapped[b..b + len].copy_from_slice(&bytes[a..a + len]);
            let disk = copy(&fs);
            rewrite(&disk, table, &swapped);
            let db = builder(Arc::new(disk)).open().expect("no block is read");
            let mut refused = 0;
            for number in 1..=40 {
                match db.get(format!("key/{number:06}")) {
                    Ok(value) => assert_eq!(value.as_deref(), Some(&[number as u8; 120][..])),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Corruption, "{error:?}");
                        refused += 1;
                    }
                }
            }
            assert!(refused > 0, "two blocks of {} changed places", table.display());
            swaps += 1;
        }
    }
    assert!(swaps > 0, "no two blocks have one length");
    // The same for whole files.
    for [a, b] in tables.array_windows() {
        let disk = copy(&fs);
        rewrite(&disk, a, &read_file(&fs, b).expect("read"));
        rewrite(&disk, b, &read_file(&fs, a).expect("read"));
        let error = match builder(Arc::new(disk)).open() {
            Err(error) => error,
            Ok(db) => db.iter().find_map(Result::err).expect("tables that changed places"),
        };
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error:?}");
    }
}
