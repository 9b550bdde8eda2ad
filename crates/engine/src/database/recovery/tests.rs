//! Tests of an open: of the files that it finds, what it makes of them, and what it records. They
//! open the core alone, so nothing that was set aside for a flush has been flushed yet.

mod cut_manifest;
mod damage;
mod logs;
mod replay;
mod stray;

use std::path::PathBuf;

use shamba_env::{Clock, InlineSpawner, ManualClock, MemFs, Spawner, ThreadSpawner, write_file_synced};
use shamba_log::wal::report::ReplayedLog;
use shamba_table::{table_file_name, value_file_name};

use super::*;
use crate::database::Db;
use crate::error::ErrorKind;

const DIR: &str = "/db";
const BUFFER: u64 = 64 << 10;

/// A replayed log with these valid and promised bytes.
pub(super) fn replayed_log(number: u64, valid_bytes: u64, promised: u64) -> ReplayedLog {
    ReplayedLog {
        number: LogNo(number),
        file_bytes: 900,
        valid_bytes,
        last_seq: SeqNo(10 * number),
        last_checksum: 7,
        promised,
        clean: false,
    }
}

/// Files in memory, and all else deterministic.
fn memory(seed: u64) -> Env {
    Env::deterministic(Arc::new(MemFs::new()), seed)
}

fn builder(env: &Env) -> Builder {
    Db::builder(DIR).env(env.clone()).write_buffer(BUFFER).info_log(false)
}

/// Runs `fill` on a database whose memtables are never full, whose process then ends without a
/// close.
fn killed_after(env: &Env, fill: impl FnOnce(&Db)) {
    let db = builder(env).write_buffer(8 << 20).open().expect("opened");
    fill(&db);
    drop(db);
}

fn path(name: &str) -> PathBuf {
    Path::new(DIR).join(name)
}

/// The names of the files that end so, in order.
fn names(env: &Env, ending: &str) -> Vec<String> {
    let entries = env.vfs.list(Path::new(DIR)).expect("the directory is there");
    let names = entries.into_iter().map(|entry| entry.name).filter(|name| name.ends_with(ending));
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// The state that the next open would find.
fn recorded(env: &Env) -> ManifestState {
    let loaded = ManifestReader::load(env, Path::new(DIR)).expect("readable");
    loaded.expect("a database").state
}

fn make(env: &Env, name: &str) {
    write_file_synced(env.vfs.as_ref(), &path(name), b"left over").expect("written");
}

#[test]
fn a_new_database_records_its_seed_and_promises_its_log() {
    let seeds = [1, 2].map(|seed| {
        let env = memory(seed);
        let core = open(builder(&env)).expect("opened");
        let (state, in_force) = (recorded(&env), core.catalog.state().expect("a state"));
        let (log, base_seq) = core.catalog.logs().oldest().expect("a log");
        let bytes = core.catalog.file_bytes(&path(&shamba_log::wal::log_file_name(log)));
        assert!(bytes > 0 && base_seq == SeqNo::ZERO);
        for state in [&state, &in_force] {
            assert_eq!((state.first_log, state.log_promise), (log, Some((log, bytes))));
        }
        Settings::from_pairs(&state.settings).expect("valid").digest_seed
    });
    assert_ne!(seeds[0], seeds[1], "nobody could foresee them");
}

#[test]
fn an_open_records_the_last_sequence_number_of_the_log_that_it_copied() {
    let env = memory(1);
    killed_after(&env, |db| (0..3).for_each(|at| db.put([at], "value").expect("put")));
    assert_eq!(recorded(&env).last_seq, SeqNo::ZERO, "the log has them");
    let core = open(builder(&env)).expect("opened");
    assert_eq!((recorded(&env).last_seq, core.reads.visible()), (SeqNo(3), SeqNo(3)));
    assert_eq!((names(&env, ".log").len(), names(&env, ".sst").len()), (1, 0));
}

#[test]
fn files_that_an_interrupted_process_left_over_are_removed_and_others_stay() {
    let env = memory(1);
    killed_after(&env, |db| {
        db.put("in a table", "value").expect("put");
        db.flush().expect("flushed");
        db.put("in the log", "value").expect("put");
    });
    let table = names(&env, ".sst");
    drop(open(builder(&env)).expect("opened"));
    assert!(recorded(&env).first_log > LogNo(1));
    let mut left_over = vec![
        table_file_name(TableId(900)),
        value_file_name(ValueFileId(901)),
        "000902.val".to_owned(),
        manifest_file_name(903),
        shamba_log::wal::log_file_name(LogNo(1)),
        STATISTICS_TEMPORARY.to_owned(),
        CURRENT_TEMPORARY.to_owned(),
    ];
    left_over.iter().for_each(|name| make(&env, name));
    make(&env, "notes.txt");
    env.vfs.create_dir_all(&path("a directory")).expect("created");
    let core = open(builder(&env)).expect("opened");
    let (log, _) = core.catalog.logs().oldest().expect("a log");
    let mut expected = vec![
        "notes.txt".to_owned(),
        "a directory".to_owned(),
        shamba_tree::version::current::CURRENT.to_owned(),
        crate::directory::LOCK.to_owned(),
        manifest_file_name(core.catalog.manifest_number().expect("a manifest")),
        shamba_log::wal::log_file_name(log),
    ];
    expected.extend(table);
    expected.sort();
    left_over.retain(|name| expected.contains(name));
    assert_eq!(left_over, Vec::<String>::new(), "their numbers are not given out again");
    assert_eq!(names(&env, ""), expected);
    assert_eq!(core.catalog.obsolete_files(), 0);
}

#[test]
fn a_database_is_made_beside_the_directory_of_lost_files_and_beside_no_other() {
    for (name, may_open) in [("lost+found", true), ("photos", false)] {
        let env = memory(1);
        env.vfs.create_dir_all(&path(name)).expect("created");
        let opened = open(builder(&env)).map(|_| ()).map_err(|error| error.kind());
        assert_eq!(opened, if may_open { Ok(()) } else { Err(ErrorKind::Invalid) }, "beside {name}");
    }
}

/// An environment whose clock moves only when a thread sleeps.
fn timed(spawner: Arc<dyn Spawner>) -> (Env, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new());
    (Env { clock: Arc::clone(&clock) as _, spawner, ..memory(1) }, clock)
}

#[test]
fn an_open_waits_for_its_floor_of_a_shared_budget_while_others_can_make_room() {
    let threads = || Arc::new(ThreadSpawner::new()) as Arc<dyn Spawner>;
    let budget = Budget::new(16 << 20);
    let (env, clock) = timed(threads());
    let first = join_budget(&env, &budget).expect("joined");
    let second = join_budget(&env, &budget).expect("joined");
    assert!(first.has_floor() && second.has_floor());
    assert_eq!(clock.now_us(), 0, "their floors were free");
    // Nobody makes room.
    let third = join_budget(&env, &budget).expect("joined");
    assert_eq!((third.has_floor(), clock.now_us()), (false, FLOOR_WAIT_US));
    drop(third);
    let (env, clock) = timed(Arc::new(InlineSpawner::new()));
    let third = join_budget(&env, &budget).expect("joined");
    assert_eq!((third.has_floor(), clock.now_us()), (false, 0), "without threads nobody could");
    drop((third, second));
    let again = join_budget(&env, &budget).expect("joined");
    assert_eq!((again.has_floor(), clock.now_us()), (true, 0));
}
