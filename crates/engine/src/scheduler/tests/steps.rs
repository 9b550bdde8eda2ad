//! Tests of steps, which are taken and done by hand in any order; three tests use threads.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use shamba_env::{Effect, FaultRule, MemFs, OpKind, lock};
use shamba_key::KeyspaceId;
use shamba_log::wal::OpRef;
use shamba_table::table_file_name;
use shamba_tree::version::{Change, ManifestEdit, VersionEdit};

use super::super::next::Step;
use super::super::*;
use super::alone::{Alone, alone, by_hand, settings};
use crate::catalog::DEFAULT_KEYSPACE;
use crate::error::{Error, ErrorKind};
use crate::event::{Event, EventListener};
use crate::sync::{Condvar, Mutex};
use crate::writer::WriteOptions;

fn number_of(step: &Step) -> (u64, Option<usize>) {
    match step {
        Step::Move(job) | Step::Begin(job, _) => (job.number, None),
        Step::Slice(job, slice, _) => (job.number, Some(*slice)),
        Step::End(number) => (*number, None),
    }
}

#[test]
fn disjoint_jobs_of_a_keyspace_run_at_once_and_conflicting_ones_do_not() {
    let alone = by_hand();
    (0..3).for_each(|_| alone.add_run(DEFAULT_KEYSPACE, 0..5));
    let (newest, middle) = (alone.tables_of_run(0), alone.tables_of_run(1));
    alone.request_rewrite(&newest);
    alone.request_rewrite(&middle);
    let (one, other) = (alone.next(), alone.next());
    assert_ne!(number_of(&one).0, number_of(&other).0);
    assert!(alone.scheduler.next_step().is_none(), "nothing else is requested");
    assert!(alone.scheduler.background.state.lock().running.len() == 2);
    // All of the tree conflicts with both.
    let full = alone.request_full();
    assert!(alone.scheduler.next_step().is_none(), "it waits for both");
    alone.scheduler.run(other).expect("the second one ends first");
    assert!(alone.scheduler.next_step().is_none(), "it waits for the other");
    alone.scheduler.run(one).expect("done");
    let whole = alone.next();
    alone.request_rewrite(&middle);
    assert!(alone.scheduler.next_step().is_none(), "its tables are inputs");
    alone.scheduler.run(whole).expect("its first slice");
    alone.finish();
    assert!(!alone.scheduler.background.state.lock().requests.has_any(&[full]));
    assert_eq!(alone.keyspace(DEFAULT_KEYSPACE).load().version.run_count(), 1);
}

#[test]
fn slices_are_installed_in_order_whichever_is_finished_first() {
    let alone = by_hand();
    (0..2).for_each(|_| alone.add_run(DEFAULT_KEYSPACE, 0..200));
    alone.request_full();
    let first = alone.next();
    alone.scheduler.run(first).expect("the first slice");
    assert_eq!(alone.slices(), 1);
    let (second, third) = (alone.next(), alone.next());
    assert_eq!((number_of(&second).1, number_of(&third).1), (Some(1), Some(2)));
    let before = alone.tree();
    alone.scheduler.run(third).expect("built");
    assert_eq!((alone.slices(), alone.tree()), (1, before), "it waits for the second one");
    alone.scheduler.run(second).expect("built");
    assert_eq!(alone.slices(), 3, "both are installed");
    alone.finish();
    let version = Arc::clone(&alone.keyspace(DEFAULT_KEYSPACE).load().version);
    version.check().expect("in order");
    assert_eq!(version.run_count(), 1);
    assert_eq!(version.tables().map(|(_, _, table)| table.meta.entries).sum::<u64>(), 200);
    assert!(alone.slices() > 4, "{} slices", alone.slices());
}

#[test]
fn slices_that_wait_for_their_turn_are_bounded() {
    let alone = by_hand();
    (0..2).for_each(|_| alone.add_run(DEFAULT_KEYSPACE, 0..400));
    alone.request_full();
    let first = alone.next();
    alone.scheduler.run(first).expect("the first slice");
    let held = alone.next();
    let mut built = 0;
    while let Some(step) = alone.scheduler.next_step() {
        alone.scheduler.run(step).expect("built");
        built += 1;
    }
    assert!((1..=2).contains(&built), "{built} slices ahead of one that is not done, for one worker");
    alone.scheduler.run(held).expect("built");
    alone.finish();
}

#[test]
fn a_slice_that_fails_leaves_the_tree_and_is_tried_again() {
    let alone = by_hand();
    (0..2).for_each(|_| alone.add_run(DEFAULT_KEYSPACE, 0..200));
    let number = alone.request_full();
    let first = alone.next();
    alone.scheduler.run(first).expect("the first slice");
    let (second, third) = (alone.next(), alone.next());
    let (before, files) = (alone.tree(), alone.files());
    alone.scheduler.run(third).expect("built");
    alone.faults.add_rule(FaultRule::nth(0, Effect::Enospc).on(&[OpKind::Append]).at_path(".sst"));
    assert!(alone.scheduler.run(second).is_err(), "the disk is full");
    assert_eq!(alone.tree(), before);
    assert!(alone.files().iter().all(|file| files.contains(file)), "the outputs of both slices are gone");
    {
        let state = alone.scheduler.background.state.lock();
        assert!(state.running.is_empty() && state.claims.is_empty(), "the job has ended");
        assert_eq!(state.compaction_failures.of(KeyspaceId::DEFAULT).failures, 1);
        assert!(state.requests.has_any(&[number]), "the request is still to be served");
    }
    alone.scheduler.run_inline();
    alone.finish();
    let state = alone.scheduler.background.state.lock();
    assert!(!state.requests.has_any(&[number]) && state.compaction_failures.of_all().error.is_none());
    drop(state);
    assert_eq!(alone.keyspace(DEFAULT_KEYSPACE).load().version.run_count(), 1);
}

#[test]
fn a_flush_that_fails_is_retried_after_a_back_off() {
    let alone = alone(Env { vfs: Arc::new(MemFs::new()), ..Env::real() }, settings(), None);
    let op = OpRef::Put { key: b"key", value: b"value" };
    alone.writer.commit_op(&alone.keyspace(DEFAULT_KEYSPACE), op, WriteOptions::new()).expect("written");
    alone.writer.seal().expect("sealed");
    let fails = FaultRule::nth(0, Effect::Eio).on(&[OpKind::Append]).at_path(".sst").sticky();
    alone.faults.add_rule(fails);
    let begun = Instant::now();
    alone.start();
    let failures = || alone.scheduler.background.state.lock().flush_failures.last;
    while failures() < 4 {
        std::thread::sleep(Duration::from_millis(1));
    }
    // After the first three failures; a slow machine only makes it longer.
    assert!(
        begun.elapsed() >= Duration::from_millis(20 + 40 + 80),
        "four tries within {:?}",
        begun.elapsed()
    );
    alone.faults.clear_rules();
    while !alone.scheduler.sealed.is_empty() {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(alone.keyspace(DEFAULT_KEYSPACE).load().version.run_count(), 1);
    alone.end();
}

/// A writer that seals often would otherwise retry a compaction that fails once for each memtable.
#[test]
fn a_sealed_memtable_does_not_end_the_back_off_of_compactions() {
    let alone = alone(Env { vfs: Arc::new(MemFs::new()), ..Env::real() }, settings(), None);
    let is_backing_off =
        || alone.scheduler.background.state.lock().compaction_failures.is_backing_off(KeyspaceId::DEFAULT, 0);
    let failed = Error::new(ErrorKind::Io, "planned");
    alone
        .scheduler
        .background
        .state
        .lock()
        .compaction_failures
        .add(KeyspaceId::DEFAULT, failed, |_| u64::MAX);
    let op = OpRef::Put { key: b"key", value: b"value" };
    alone.writer.commit_op(&alone.keyspace(DEFAULT_KEYSPACE), op, WriteOptions::new()).expect("written");
    alone.writer.seal().expect("sealed");
    assert!(is_backing_off());
    crate::writer::Background::retry(&*alone.scheduler);
    assert!(!is_backing_off());
}

/// The name of the oldest table of a keyspace.
fn table_file(alone: &Alone, keyspace: &str) -> String {
    let version = Arc::clone(&alone.keyspace(keyspace).load().version);
    table_file_name(version.level(0)[0].tables()[0].meta.id)
}

#[test]
fn a_damaged_keyspace_does_not_hold_up_others() {
    for with_threads in [false, true] {
        let env = match with_threads {
            false => Env::deterministic(Arc::new(MemFs::new()), 1),
            true => Env { vfs: Arc::new(MemFs::new()), ..Env::real() },
        };
        let alone = alone(env, settings(), None);
        alone.writer.make_keyspace("damaged", true, None).expect("created");
        (0..2).for_each(|_| alone.add_run("damaged", 0..200));
        (0..2).for_each(|_| alone.add_run(DEFAULT_KEYSPACE, 0..200));
        let unreadable = FaultRule::nth(0, Effect::Eio)
            .on(&[OpKind::Read])
            .at_path(&table_file(&alone, "damaged"))
            .sticky();
        alone.faults.add_rule(unreadable);
        if with_threads {
            alone.start();
        }
        let failed = alone.scheduler.compact_now(None).expect_err("one keyspace cannot be read");
        assert_eq!(failed.kind(), ErrorKind::Io, "{failed}");
        let runs = |name: &str| alone.keyspace(name).load().version.run_count();
        assert_eq!((runs(DEFAULT_KEYSPACE), runs("damaged")), (1, 2), "threads: {with_threads}");
        let damaged = alone.keyspace("damaged").id;
        let state = alone.scheduler.background.state.lock();
        assert!(state.compaction_failures.of(KeyspaceId::DEFAULT).error.is_none());
        let tries = state.compaction_failures.of(damaged).failures;
        assert!(with_threads || tries <= 2, "one try in the pass for each keyspace: {tries}");
        drop(state);
        alone.faults.clear_rules();
        alone.scheduler.compact_now(None).expect("all can be read");
        assert_eq!(runs("damaged"), 1);
        assert!(alone.scheduler.background.state.lock().compaction_failures.of(damaged).error.is_none());
        alone.end();
    }
}

#[test]
fn a_keyspace_that_is_dropped_during_a_job_leaves_no_output() {
    let alone = by_hand();
    alone.writer.make_keyspace("other", true, None).expect("created");
    let used = alone.files();
    (0..2).for_each(|_| alone.add_run("other", 0..200));
    let id = alone.keyspace("other").id;
    alone.scheduler.background.state.lock().requests.add_full(id);
    let first = alone.next();
    alone.scheduler.run(first).expect("the first slice");
    let (second, third) = (alone.next(), alone.next());
    alone.scheduler.run(third).expect("built");
    alone.writer.drop_keyspace("other").expect("dropped");
    alone.scheduler.run(second).expect("that is no failure");
    alone.finish();
    assert_eq!(alone.files(), used);
    assert_eq!(alone.scheduler.background.state.lock().compaction_failures.last(), 0);
}

#[test]
fn a_stop_ends_jobs_after_the_slices_in_progress() {
    let alone = by_hand();
    (0..2).for_each(|_| alone.add_run(DEFAULT_KEYSPACE, 0..200));
    alone.request_full();
    let first = alone.next();
    alone.scheduler.run(first).expect("the first slice");
    let (second, third) = (alone.next(), alone.next());
    alone.scheduler.run(third).expect("built");
    let (before, files) = (alone.tree(), alone.files().len());
    alone.scheduler.stop();
    assert!(alone.scheduler.next_step().is_none());
    alone.scheduler.run(second).expect("that is no failure");
    assert!(alone.scheduler.background.state.lock().running.is_empty());
    assert_eq!(alone.tree(), before, "the slice was abandoned");
    assert!(alone.files().len() < files, "the third slice's tables are gone");
}

#[test]
fn nothing_is_installed_against_a_tree_that_does_not_fit_the_claim() {
    let alone = by_hand();
    (0..2).for_each(|_| alone.add_run(DEFAULT_KEYSPACE, 0..200));
    alone.request_full();
    let first = alone.next();
    alone.scheduler.run(first).expect("the first slice");
    let second = alone.next();
    // An edit without a claim takes an input away.
    let version = Arc::clone(&alone.keyspace(DEFAULT_KEYSPACE).load().version);
    let run = &version.level(0)[1];
    let table = run.tables().last().expect("a table").meta.id;
    let changes = vec![Change::Remove { level: 0, run: run.id, table }];
    let edit = VersionEdit { keyspace: KeyspaceId::DEFAULT, changes };
    let edit = ManifestEdit { versions: vec![edit], ..ManifestEdit::default() };
    alone.catalog.install(&[], Vec::new(), |_| Ok(edit)).expect("installed");
    let before = alone.tree();
    let refused = alone.scheduler.run(second).expect_err("the claim does not fit");
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert!(refused.to_string().contains("would break the tree"), "{refused}");
    assert_eq!(alone.tree(), before);
}

#[test]
fn a_new_design_stops_a_job_after_its_slice() {
    let alone = by_hand();
    (0..2).for_each(|_| alone.add_run(DEFAULT_KEYSPACE, 0..200));
    let number = alone.request_full();
    let first = alone.next();
    let job = number_of(&first).0;
    alone.scheduler.run(first).expect("the first slice");
    let second = alone.next();
    let mut live = alone.scheduler.settings.live.get();
    live.tree.design.size_ratio += 1.0;
    alone.scheduler.settings.live.set(live);
    let slices = alone.slices();
    assert!(alone.scheduler.next_step().is_none(), "it takes no more slices, and occupies the tree");
    alone.scheduler.run(second).expect("the slice in progress is installed");
    assert_eq!(alone.slices(), slices + 1);
    assert!(alone.scheduler.background.state.lock().requests.has_any(&[number]));
    assert!(number_of(&alone.next()).0 > job, "the request gets another job");
}

#[test]
fn a_new_design_ends_a_job_that_no_thread_works_on() {
    let alone = by_hand();
    (0..2).for_each(|_| alone.add_run(DEFAULT_KEYSPACE, 0..200));
    alone.request_full();
    let first = alone.next();
    let job = number_of(&first).0;
    alone.scheduler.run(first).expect("the first slice");
    let mut live = alone.scheduler.settings.live.get();
    live.tree.design.size_ratio += 1.0;
    alone.scheduler.settings.live.set(live);
    let end = alone.next();
    assert!(matches!(end, Step::End(number) if number == job), "nobody else would end it");
    alone.scheduler.run(end).expect("no failure");
    assert!(alone.scheduler.background.state.lock().running.is_empty());
    assert!(number_of(&alone.next()).0 > job, "the request gets another job");
}

/// Holds compactions at their beginning until `expected` of them have begun.
struct Gate {
    expected: u64,
    begun: Mutex<u64>,
    changed: Condvar,
    is_late: AtomicBool,
    ended: AtomicU64,
}

impl EventListener for Gate {
    fn event(&self, event: &Event) {
        match event {
            Event::CompactionBegin { .. } => {
                let mut begun = lock(&self.begun);
                *begun += 1;
                self.changed.notify_all();
                while *begun < self.expected {
                    let (waiting, result) =
                        self.changed.wait_timeout(begun, Duration::from_secs(60)).expect("no panic");
                    begun = waiting;
                    if result.timed_out() {
                        self.is_late.store(true, Ordering::Relaxed);
                        return;
                    }
                }
            }
            Event::CompactionEnd { .. } => {
                _ = self.ended.fetch_add(1, Ordering::Relaxed);
            }
            _ => {}
        }
    }
}

#[test]
fn two_threads_run_two_jobs_of_one_keyspace_at_the_same_time() {
    let gate = Arc::new(Gate {
        expected: 2,
        begun: Mutex::default(),
        changed: Condvar::new(),
        is_late: AtomicBool::new(false),
        ended: AtomicU64::new(0),
    });
    let env = Env { vfs: Arc::new(MemFs::new()), ..Env::real() };
    let alone = alone(env, settings(), Some(Arc::clone(&gate) as Arc<dyn EventListener>));
    (0..2).for_each(|_| alone.add_run(DEFAULT_KEYSPACE, 0..5));
    let numbers = {
        let (newest, oldest) = (alone.tables_of_run(0), alone.tables_of_run(1));
        let mut state = alone.scheduler.background.state.lock();
        [newest, oldest].map(|tables| {
            let tables = tables.into_iter().collect();
            state.requests.add_filter_rewrite(KeyspaceId::DEFAULT, tables, true)
        })
    };
    alone.start();
    alone.scheduler.wait_for_requests(&numbers).expect("both are done");
    alone.end();
    let is_late = gate.is_late.load(Ordering::Relaxed);
    assert!(!is_late, "the first job waited for the second one in vain");
    assert_eq!(gate.ended.load(Ordering::Relaxed), 2);
}

#[test]
fn slices_of_one_job_are_shared_by_threads_and_all_data_stays() {
    let env = Env { vfs: Arc::new(MemFs::new()), ..Env::real() };
    let alone = alone(env, settings(), None);
    (0..2).for_each(|_| alone.add_run(DEFAULT_KEYSPACE, 0..400));
    let number = alone.request_full();
    alone.start();
    alone.scheduler.wait_for_requests(&[number]).expect("done");
    alone.end();
    let version = Arc::clone(&alone.keyspace(DEFAULT_KEYSPACE).load().version);
    version.check().expect("in order");
    assert_eq!(version.tables().map(|(_, _, table)| table.meta.entries).sum::<u64>(), 400);
    assert!(alone.slices() > 4);
}
