//! Tests of the order of compactions, step by step: nothing runs by itself, each flush and
//! compaction is requested.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use shamba_env::{Env, MemFs, Vfs};
use shamba_model::MergePolicy;
use shamba_table::{Ledger, LedgerPart};

mod alone;
mod paying;
mod steps;

use super::next::Step;
use super::state::BackgroundState;
use crate::database::Db;
use crate::error::{Error, ErrorKind};
use crate::options::fifo::Fifo;
use crate::options::keyspace::KeyspaceOptions;
use crate::writer::Work;
use shamba_key::{KeyspaceId, RunId};
use shamba_tree::compaction::filter::{CompactionFilter, FilterEntry, Verdict};
use shamba_tree::compaction::policy::Reason;
use shamba_tree::merging::builtin::Append;

/// Keys that are overwritten repeatedly: the tree does not grow.
const KEYS: u32 = 400;

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

/// In-place compaction of the runs of a tiered last level may cover most of the database. It
/// continues to its end, slice by slice, while others write and flush, and other jobs compact the
/// flushed tables between its slices.
#[test]
fn a_long_compaction_goes_on_while_others_compact_what_is_flushed() {
    let db = Db::builder(Path::new("/db"))
        .env(Env::deterministic(Arc::new(MemFs::new()), 1))
        .info_log(false)
        .merge_policy(MergePolicy::Tiering)
        .size_ratio(4.0)
        .write_buffer(4 << 10)
        .experimental(|e| e.file_size(1 << 10).block_bytes(512))
        .open()
        .expect("opened");
    let core = db.core();
    let keyspace = core.catalog.keyspace(KeyspaceId::DEFAULT).expect("the default one");
    // The holder of this does all background work.
    let _by_hand = core.scheduler.begin_inline().expect("free");
    let long_bytes = core.scheduler.rules_in(&keyspace, false).long_bytes;
    let mut next = 0;
    let long = 'found: loop {
        flush(&db, &mut next, 1);
        while let Some(step) = core.scheduler.next_step() {
            if let Step::Begin(job, _) = &step {
                let compaction = &job.job;
                let is_in_place =
                    compaction.inputs.iter().all(|input| input.level == compaction.target_level);
                if is_in_place
                    && compaction.inputs.len() > 1
                    && compaction.input_bytes(&job.version) >= long_bytes
                {
                    let job = Arc::clone(job);
                    core.scheduler.run(step).expect("its first slice");
                    break 'found job;
                }
            }
            core.scheduler.run(step).expect("compacted");
        }
        assert!(next < 20 * KEYS, "no long compaction in place in {next} writes");
    };
    assert!(long.slices().len() > 8, "{} slices", long.slices().len());
    let (mut other_jobs, mut turns, mut was_long) = (0, 0, true);
    loop {
        let is_running = core.scheduler.background.state.lock().running(long.number).is_some();
        if !is_running {
            break;
        }
        if keyspace.load().version.level(0).len() < 16 {
            flush(&db, &mut next, 1);
        }
        let step = core.scheduler.next_step().expect("the rest of the long one");
        let is_long = matches!(&step, Step::Slice(job, ..) if job.number == long.number);
        other_jobs += u64::from(matches!(&step, Step::Begin(..)));
        turns += u64::from(is_long && !was_long);
        was_long = is_long;
        core.scheduler.run(step).expect("compacted");
    }
    assert!(other_jobs >= 2 && turns >= 2, "{other_jobs} other jobs, {turns} times it went on after one");

    let version = Arc::clone(&keyspace.load().version);
    let is_left = |input: &RunId| version.runs().any(|(_, run)| run.id == *input);
    let left: Vec<_> = long.job.inputs.iter().map(|input| input.run).filter(|run| is_left(run)).collect();
    assert!(left.len() <= 1, "all but the run that the others were merged into should be gone: {left:?}");
    while core.scheduler.run_next_step().expect("compacted") {}
    db.check_invariants().expect("the tree has its shape");
    // Each key was last written by the last number that maps to it.
    for number in next - KEYS..next {
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
        let _by_hand = core.scheduler.begin_inline().expect("free");
        core.writer.seal().expect("sealed");
    }
    // As `close` does first; the workers have not noticed it yet.
    core.lifecycle.close();
    core.scheduler.background.state.lock().requests.add_full(KeyspaceId::DEFAULT);
    assert_eq!(core.scheduler.run_next_step().expect_err("too late").kind(), ErrorKind::Closed);
    assert_eq!(core.scheduler.flush_oldest().expect_err("too late").kind(), ErrorKind::Closed);
    core.reads.release_stale_views(&core.catalog);
    assert_eq!(files(), used);
}

/// Limits may change between the choice of a drop and its install.
#[test]
fn a_drop_that_is_not_due_any_more_is_not_installed() {
    for options in [KeyspaceOptions::new().no_fifo(), KeyspaceOptions::new().fifo(Fifo::bytes(1 << 30))] {
        let db = Db::builder(Path::new("/db"))
            .env(Env::deterministic(Arc::new(MemFs::new()), 1))
            .info_log(false)
            .keyspace("default", KeyspaceOptions::new().fifo(Fifo::bytes(5_000)))
            .open()
            .expect("opened");
        let core = db.core();
        // The holder of this does all background work.
        let _by_hand = core.scheduler.begin_inline().expect("free");
        for number in 0..3u8 {
            db.put([number], [number; 4_000]).expect("put");
            core.writer.seal().expect("sealed");
            core.scheduler.flush_oldest().expect("flushed");
        }
        let drop = core.scheduler.next_step().expect("a drop is due");
        assert!(matches!(&drop, Step::Move(job) if job.job.reason == Reason::Fifo));
        db.keyspace_with("default", options).expect("recorded");
        core.scheduler.run(drop).expect("nothing fails");
        assert_eq!((db.iter().count(), db.stats().tables_dropped), (3, 0));
        let next = core.scheduler.next_step();
        assert!(!matches!(&next, Some(Step::Move(job)) if job.job.reason == Reason::Fifo));
    }
}

/// Removes values `base`.
struct WithoutBases;

impl CompactionFilter for WithoutBases {
    fn name(&self) -> &str {
        "test.bases"
    }

    fn filter(&self, entry: &FilterEntry<'_>) -> Verdict {
        if entry.value().is_some_and(|value| value == b"base") { Verdict::Remove } else { Verdict::Keep }
    }
}

/// A filter removes the base below operands in memory. Reads that have folded a long chain of them
/// see the base until the operands are flushed, and all reads see the same.
#[test]
fn values_folded_in_memory_keep_their_base_until_the_flush() {
    for (operands, is_read) in [(3, true), (40, false), (40, true)] {
        let options = KeyspaceOptions::new().merge_operator(Append::separated_by(","));
        let db = Db::builder(Path::new("/db"))
            .env(Env::deterministic(Arc::new(MemFs::new()), 1))
            .info_log(false)
            .keyspace("default", options.compaction_filter(WithoutBases))
            .open()
            .expect("opened");
        let core = db.core();
        let _by_hand = core.scheduler.begin_inline().expect("free");
        let flush = || {
            core.writer.seal().expect("sealed");
            core.scheduler.flush_oldest().expect("flushed");
        };
        let read = || {
            let got = db.get("k").expect("readable").map(|value| value.to_vec());
            let scanned = db.iter().map(|entry| entry.expect("readable").1.to_vec()).next();
            assert_eq!(got, scanned, "{operands} operands");
            String::from_utf8(got.expect("it has operands")).expect("text")
        };
        db.put("k", "base").expect("put");
        flush();
        (0..operands).for_each(|_| db.merge("k", "x").expect("merged"));
        let without = vec!["x"; operands].join(",");
        let with = format!("base,{without}");
        if is_read {
            assert_eq!(read(), with);
        }
        core.scheduler.background.state.lock().requests.add_full(KeyspaceId::DEFAULT);
        while core.scheduler.run_next_step().expect("compacted") {}
        assert_eq!(db.stats().entries_filtered, 1);
        assert_eq!(read(), if is_read && operands >= 32 { with } else { without.clone() });
        flush();
        assert_eq!(read(), without, "{operands} operands in a table");
    }
}

#[test]
fn who_waits_for_flushes_hears_nothing_of_merges_that_fail() {
    let error = |text: &str| Error::new(ErrorKind::NoSpace, text.to_owned());
    let text = |state: &BackgroundState, work, is_inline| {
        state.trouble(work, is_inline).error.as_ref().map(ToString::to_string)
    };
    let mut state = BackgroundState::default();
    (0..9).for_each(|_| state.compaction_failures.add(KeyspaceId::DEFAULT, error("a merge"), |_| 0));
    for is_inline in [false, true] {
        assert_eq!(text(&state, Work::Flush, is_inline), None);
        assert_eq!(text(&state, Work::Merge(None), is_inline).as_deref(), Some("a merge"));
    }
    assert_eq!(
        (state.compaction_failures.of_all().failures, state.flush_failures.failures),
        (9, 0),
        "each has its own"
    );
    // A waiter gives up on a sequence of failures if it has seen one of them.
    assert_eq!(
        [0, 8, 9].map(|before| state.compaction_failures.of_all().should_give_up(before, 3)),
        [true, true, false]
    );
    let mut ended = state.compaction_failures.of_all();
    ended.end();
    ended.add_next(error("once more"));
    assert!(ended.failures == 1 && !ended.should_give_up(9, 3) && ended.should_give_up(9, 0));
    // A single thread that does both cannot compact before the flush.
    state.flush_failures.add_next(error("a flush"));
    assert_eq!(text(&state, Work::Merge(None), false).as_deref(), Some("a merge"));
    assert_eq!(text(&state, Work::Merge(None), true).as_deref(), Some("a flush"));
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
            let mut state = db.core().scheduler.background.state.lock();
            for _ in 0..9 {
                let failed = Error::new(ErrorKind::NoSpace, "long ago");
                state.compaction_failures.add(KeyspaceId::DEFAULT, failed, |_| 0);
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
    let state = || db.core().scheduler.background.state.lock();
    let trouble = || state().compaction_failures.of_all();
    let failed = Error::new(ErrorKind::NoSpace, "a merge");
    state().compaction_failures.add(KeyspaceId::DEFAULT, failed, |_| 0);
    assert!(!db.core().scheduler.run_next_step().expect("nothing to do"));
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

/// A job keeps the tables that it replaces until it ends. The block cache has their memory when
/// those who wait for the job go on.
#[test]
fn the_cache_has_the_memory_of_replaced_tables_when_a_job_ends() {
    let env = Env::deterministic(Arc::new(MemFs::new()), 3);
    let db = Db::builder("/db").env(env).memory_budget(4 << 20).open().expect("open");
    for number in 0..50_000_u32 {
        db.put(number.wrapping_mul(0x9e37_79b9).to_be_bytes(), [7; 100]).expect("put");
    }
    db.compact().expect("compacted");
    let memory = &db.core().memory;
    let cache_bytes = memory.cache().capacity_bytes();
    memory.balance();
    assert_eq!(cache_bytes, memory.cache().capacity_bytes(), "memory was free that the cache did not have");
}

/// Notes the most memory that flushes and compactions held at any call; keeps all entries.
#[derive(Clone, Default)]
struct AtWork {
    ledger: Arc<OnceLock<Arc<Ledger>>>,
    bytes: Arc<AtomicU64>,
}

impl CompactionFilter for AtWork {
    fn name(&self) -> &str {
        "test.at-work"
    }

    fn filter(&self, _entry: &FilterEntry<'_>) -> Verdict {
        let bytes = self.ledger.get().map_or(0, |ledger| ledger.bytes(LedgerPart::WriteBuffers));
        self.bytes.fetch_max(bytes, Ordering::Relaxed);
        Verdict::Keep
    }
}

/// The lists of a compaction, those of open tables, and the fragments of a run.
#[test]
fn range_tombstones_are_charged_wherever_they_are_in_memory() {
    const TOMBSTONES: u64 = 20_000;
    // In a list; as fragments, which are disjoint.
    let (list_bytes, fragments_bytes) = (TOMBSTONES * 72, TOMBSTONES * 170);
    let at_work = AtWork::default();
    let options = KeyspaceOptions::new().compaction_filter(at_work.clone());
    let db = Db::builder(Path::new("/db"))
        .env(Env::deterministic(Arc::new(MemFs::new()), 1))
        .info_log(false)
        .keyspace("default", options)
        .open()
        .expect("opened");
    let ledger = Arc::clone(db.core().memory.ledger());
    let held_bytes = || ledger.bytes(LedgerPart::TableMeta);
    assert!(at_work.ledger.set(Arc::clone(&ledger)).is_ok());
    let key = |number: u64| format!("key {number:06}");
    for number in 0..TOMBSTONES {
        db.delete_range(key(number).as_bytes()..[key(number).as_bytes(), b"a"].concat().as_slice())
            .expect("deleted");
    }
    db.put("kept", "value").expect("put");
    let before = held_bytes();
    db.flush().expect("flushed");
    let unread_bytes = held_bytes() - before;
    assert_eq!(db.get("kept").expect("read").as_deref(), Some(&b"value"[..]));
    let read_bytes = held_bytes() - before;
    assert!(read_bytes >= list_bytes + fragments_bytes, "{read_bytes} bytes");
    assert!(read_bytes < unread_bytes, "{read_bytes} bytes, at most {unread_bytes} were expected");
    db.compact().expect("compacted");
    let at_work_bytes = at_work.bytes.load(Ordering::Relaxed);
    assert!(at_work_bytes >= fragments_bytes, "{at_work_bytes} bytes while it merges");
    assert!(held_bytes() - before < list_bytes, "nothing is left of them");
    assert_eq!(ledger.bytes(LedgerPart::WriteBuffers), 0);
}
