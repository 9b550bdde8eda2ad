//! Tests of the order of compactions, step by step: nothing runs by itself, each flush and
//! compaction is requested.

use std::path::Path;
use std::sync::Arc;

use shamba_env::{Env, MemFs, Vfs};
use shamba_model::MergePolicy;

use super::state::BackgroundState;
use super::*;
use crate::database::Db;
use crate::error::{Error, ErrorKind};
use crate::event::Event;
use crate::event::EventListener;
use crate::sync::Mutex;
use crate::writer::Work;
use shamba_key::{KeyspaceId, RunId};
use shamba_tree::compaction::policy::Reason;

/// Keys that are overwritten repeatedly: the tree does not grow.
const KEYS: u32 = 400;

/// Number of flushes that make level 0 due.
const DUE: u64 = 4;

/// The start or end of a compaction.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Seen {
    begins: bool,
    target_level: u32,
    /// Slices of all compactions installed before.
    slices: u64,
}

/// Records the start and end of compactions.
#[derive(Default)]
struct Merges {
    seen: Mutex<Vec<Seen>>,
    /// If set, writes more keys whenever a compaction has ended: the database and its next key.
    writer: Mutex<Option<(Db, u32)>>,
}

impl EventListener for Merges {
    fn event(&self, event: &Event) {
        let (begins, target_level) = match event {
            Event::CompactionBegin { target_level, .. } => (true, *target_level),
            Event::CompactionEnd { target_level, .. } => (false, *target_level),
            _ => return,
        };
        let Some((db, next)) = &mut *lock(&self.writer) else { return };
        lock(&self.seen).push(Seen { begins, target_level, slices: db.stats().compaction_slices });
        if !begins {
            flush(db, next, DUE);
        }
    }
}

/// Writes the next keys until this many flushes are done.
fn flush(db: &Db, next: &mut u32, flushes: u64) {
    let before = db.stats().flushes;
    while db.stats().flushes < before + flushes {
        db.put(format!("key {:04}", *next * 37 % KEYS), [*next as u8; 100]).expect("put");
        *next += 1;
        while !db.core().scheduler.sealed.is_empty() {
            db.core().scheduler.flush_oldest().expect("flushed");
        }
    }
}

/// A compaction of a level 0 that is near a write slowdown gives compaction credit, which
/// compactions of levels spend. One of a level 0 with fewer runs gives none.
#[test]
fn merges_of_a_crowded_inbox_and_of_levels_take_turns() {
    let db = Db::builder(Path::new("/db"))
        .env(Env::deterministic(Arc::new(MemFs::new()), 1))
        .info_log(false)
        .merge_policy(MergePolicy::Leveling)
        .size_ratio(2.0)
        .write_buffer(4 << 10)
        .experimental(|e| e.file_size(1 << 10).block_bytes(512))
        .open()
        .expect("opened");
    let core = db.core();
    let keyspace = core.catalog.keyspace(KeyspaceId::DEFAULT).expect("the default one");
    let _by_hand = lock(&core.scheduler.inline_work);
    let credit_bytes = || keyspace.turns(core.scheduler.rules(false)).credit_bytes;
    let (mut next, mut owed, mut spent, mut with_room) = (0, 0, 0, 0);
    for round in 0..60 {
        // Every third round all due work is done, and then level 0 has few runs.
        flush(&db, &mut next, if round % 3 == 0 { 4 } else { 9 });
        loop {
            let rules = core.scheduler.rules(false);
            let version = Arc::clone(&keyspace.load().version);
            let was_l0_urgent = rules.is_l0_urgent(&version);
            let before_bytes = credit_bytes();
            let Some(next) = core.scheduler.picker.next_compaction(&lock(&core.scheduler.background.state))
            else {
                break;
            };
            let job = next.job.expect("a job");
            let (is_free, bytes) = (job.is_trivial_move(&version), job.input_bytes(&version));
            if was_l0_urgent && before_bytes == 0 {
                assert!(job.reason == Reason::Level0 || is_free, "{job}");
            }
            core.scheduler.compact_once().expect("merged");
            match job.reason {
                _ if is_free => assert_eq!(credit_bytes(), before_bytes, "{job}"),
                Reason::Level0 if was_l0_urgent => {
                    assert!((bytes..=4 * bytes).contains(&credit_bytes()), "{} of {bytes}", credit_bytes());
                    owed += 1;
                }
                Reason::Level0 => {
                    assert_eq!(credit_bytes(), 0);
                    with_room += 1;
                }
                _ if before_bytes > 0 => {
                    assert!(credit_bytes() < before_bytes, "{job}");
                    spent += 1;
                }
                _ => assert!(!was_l0_urgent, "{job}"),
            }
            if round % 3 > 0 && credit_bytes() == 0 {
                break;
            }
        }
    }
    assert!(owed > 20 && spent > 10 && with_room > 0, "{owed} {spent} {with_room}");
}

/// In-place compaction of the runs of a tiered last level may cover most of the database. It
/// continues to its end, slice by slice, while others write and flush, and other jobs compact the
/// flushed tables between its slices. Earlier it stopped after its first slice.
#[test]
fn a_long_merge_in_place_goes_on_while_it_has_company() {
    let merges = Arc::new(Merges::default());
    let db = Db::builder(Path::new("/db"))
        .env(Env::deterministic(Arc::new(MemFs::new()), 1))
        .info_log(false)
        .merge_policy(MergePolicy::Tiering)
        .size_ratio(4.0)
        .write_buffer(4 << 10)
        .experimental(|e| e.file_size(1 << 10).block_bytes(512))
        .event_listener(Arc::clone(&merges) as Arc<dyn EventListener>)
        .open()
        .expect("opened");
    let core = db.core();
    let keyspace = core.catalog.keyspace(KeyspaceId::DEFAULT).expect("the default one");
    // The holder of this lock does all background work.
    let _by_hand = lock(&core.scheduler.inline_work);
    let long_bytes = core.scheduler.rules(false).long_bytes;
    let next_compaction = || {
        core.scheduler
            .picker
            .next_compaction(&lock(&core.scheduler.background.state))
            .and_then(|next| next.job)
    };
    let mut next = 0;
    let long = loop {
        flush(&db, &mut next, 1);
        while let Some(job) = next_compaction() {
            let version = &keyspace.load().version;
            let is_in_place = job.inputs.iter().all(|input| input.level == job.target_level);
            if is_in_place && job.inputs.len() > 1 && job.input_bytes(version) >= long_bytes {
                break;
            }
            core.scheduler.compact_once().expect("merged");
        }
        if let Some(job) = next_compaction() {
            break job;
        }
        assert!(next < 20 * KEYS, "no long merge in place in {next} writes");
    };
    // By now level 0 has enough runs for a compaction, but not enough to precede the long one.
    flush(&db, &mut next, DUE);
    assert_eq!(next_compaction().as_ref(), Some(&long), "the long merge is the next one");

    *lock(&merges.writer) = Some((db.clone(), next));
    let before = db.stats();
    assert!(core.scheduler.compact_once().expect("merged"));
    let written = lock(&merges.writer).take().expect("it wrote").1 - next;
    let done = db.stats().since(&before);
    let seen = lock(&merges.seen).clone();
    assert_eq!(seen.first().map(|first| (first.begins, first.target_level)), Some((true, long.target_level)));
    assert_eq!(seen.iter().filter(|seen| seen.begins).count() * 2, seen.len(), "each merge ended");
    let beside = seen.len() as u64 / 2 - 1;
    assert_eq!(done.compactions, 1 + beside, "a merge that gave way is none");
    // Between two other jobs there were slices of the long compaction, and writes.
    let between = seen[1..].chunks_exact(2).zip(seen[3..].chunks_exact(2));
    let turns = between.filter(|(one, next)| next[0].slices > one[1].slices).count();
    assert!(turns >= 2, "{turns} times it went on after a merge beside it:\n{seen:?}");
    assert_eq!(done.flushes, DUE * (1 + beside), "every merge that ended was followed by flushes");

    let version = Arc::clone(&keyspace.load().version);
    let is_left = |input: &RunId| version.runs().any(|(_, run)| run.id == *input);
    let left: Vec<_> = long.inputs.iter().map(|input| input.run).filter(|run| is_left(run)).collect();
    assert!(left.len() <= 1, "all but the run that the others were merged into should be gone: {left:?}");
    db.check_invariants().expect("the tree has its shape");
    // Each key was last written by the last number that maps to it.
    for number in next + written - KEYS..next + written {
        let value = db.get(format!("key {:04}", number * 37 % KEYS)).expect("read").expect("it was written");
        assert_eq!(value[..], [number as u8; 100], "key of write {number}");
    }
}

/// A close may come between the last byte of a compaction's or flush's tables and their install.
/// The close removes these tables, although no edit named them.
#[test]
fn tables_that_a_close_forestalls_are_removed() {
    let vfs = MemFs::new();
    let db = Db::builder(Path::new("/db"))
        .env(Env::deterministic(Arc::new(vfs.clone()), 1))
        .info_log(false)
        .write_buffer(4 << 10)
        .experimental(|e| e.auto_compaction(false))
        .open()
        .expect("opened");
    let core = Arc::clone(db.core());
    let mut next = 0;
    flush(&db, &mut next, 3);
    let files = || {
        let listed = vfs.list(Path::new("/db")).expect("listed");
        let tables = listed.into_iter().map(|file| file.name).filter(|name| name.ends_with(".sst"));
        tables.collect::<Vec<String>>()
    };
    let used = files();
    db.put("one more", "is flushed").expect("put");
    {
        let _by_hand = lock(&core.scheduler.inline_work);
        core.writer.seal().expect("sealed");
    }
    // As `close` does first; the workers have not noticed it yet.
    core.lifecycle.close();
    let keyspace = core.catalog.keyspace(KeyspaceId::DEFAULT).expect("the default one");
    let job = {
        let version = &keyspace.load().version;
        let rules = core.scheduler.rules(true);
        shamba_tree::compaction::policy::pick(version, &rules).expect("a merge")
    };
    assert_eq!(
        core.scheduler.compactor.run(&keyspace, &job).expect_err("too late").kind(),
        ErrorKind::Closed
    );
    assert_eq!(core.scheduler.flush_oldest().expect_err("too late").kind(), ErrorKind::Closed);
    core.reads.release_stale_views(&core.catalog);
    assert_eq!(files(), used);
}

#[test]
fn who_waits_for_flushes_hears_nothing_of_merges_that_fail() {
    let error = |text: &str| Error::new(ErrorKind::NoSpace, text.to_owned());
    let text = |state: &BackgroundState, work, is_inline| {
        state.trouble(work, is_inline).error.as_ref().map(ToString::to_string)
    };
    let mut state = BackgroundState::default();
    (0..9).for_each(|_| state.compaction_failures.add(error("a merge")));
    for is_inline in [false, true] {
        assert_eq!(text(&state, Work::Flush, is_inline), None);
        assert_eq!(text(&state, Work::Merge, is_inline).as_deref(), Some("a merge"));
    }
    assert_eq!(
        (state.compaction_failures.failures, state.flush_failures.failures),
        (9, 0),
        "each has its own"
    );
    // A waiter gives up on a sequence of failures if it has seen one of them.
    assert_eq!(
        [0, 8, 9].map(|before| state.compaction_failures.should_give_up(before, 3)),
        [true, true, false]
    );
    let mut ended = state.compaction_failures.clone();
    ended.end();
    ended.add(error("once more"));
    assert!(ended.failures == 1 && !ended.should_give_up(9, 3) && ended.should_give_up(9, 0));
    // A single thread that does both cannot compact before the flush.
    state.flush_failures.add(error("a flush"));
    assert_eq!(text(&state, Work::Merge, false).as_deref(), Some("a merge"));
    assert_eq!(text(&state, Work::Merge, true).as_deref(), Some("a flush"));
}

#[test]
fn waits_begin_without_the_failures_of_the_past() {
    let env = Env { vfs: Arc::new(MemFs::new()), ..Env::real() };
    let db = Db::builder("/db")
        .env(env)
        .info_log(false)
        .experimental(|e| e.auto_compaction(false))
        .open()
        .expect("opened");
    for number in 0..20u32 {
        db.put(number.to_be_bytes(), [1; 100]).expect("put");
        {
            let mut state = lock(&db.core().scheduler.background.state);
            for _ in 0..9 {
                state.compaction_failures.add(Error::new(ErrorKind::NoSpace, "long ago"));
            }
        }
        if number % 2 == 0 {
            db.flush().expect("a flush waits for no merge");
        } else {
            db.compact().expect("what failed before succeeds now");
        }
    }
    assert_eq!(db.stats().runs, 1);
    db.close().expect("closed");
}

#[test]
fn what_a_merge_failed_with_is_forgotten_when_there_is_nothing_to_merge() {
    let env = Env::deterministic(Arc::new(MemFs::new()), 1);
    let db = Db::builder("/db").env(env).info_log(false).open().expect("opened");
    let trouble = || lock(&db.core().scheduler.background.state).compaction_failures.clone();
    lock(&db.core().scheduler.background.state)
        .compaction_failures
        .add(Error::new(ErrorKind::NoSpace, "a merge"));
    assert!(!db.core().scheduler.compact_once().expect("nothing to do"));
    assert!(trouble().error.is_none() && trouble().failures == 0);
}

/// If the budget has no memory for the design's write buffer, flushes are smaller, and levels are
/// sized by those.
#[test]
fn levels_are_sized_by_what_memory_lets_be_flushed() {
    let filled = |write_buffer: Option<u64>| {
        let env = Env::deterministic(Arc::new(MemFs::new()), 3);
        let builder = Db::builder("/db").env(env).experimental(|e| e.digest_seed(5)).memory_budget(4 << 20);
        let builder = write_buffer.into_iter().fold(builder, crate::Builder::write_buffer);
        let db = builder.open().expect("open");
        for number in 0..150_000_u32 {
            let key = number.wrapping_mul(0x9e37_79b9).to_be_bytes();
            db.put(key, [7; 200]).expect("put");
        }
        db.wait_idle().expect("idle");
        let stats = db.stats();
        let levels: Vec<_> = stats.levels.iter().map(|level| (level.level, level.bytes)).collect();
        (stats.flushes, stats.bytes_compacted, levels)
    };
    let (flushes, merged_bytes, levels) = filled(None);
    let deepest = levels.iter().filter(|(_, bytes)| *bytes > 0).map(|(level, _)| *level).max();
    assert!(flushes > 30 && deepest >= Some(2), "{flushes} flushes: {levels:?}");
    assert_eq!((flushes, merged_bytes, levels), filled(Some(512 << 10)));
}
