//! Which merge follows which, step by step: nothing happens by itself here, each flush and each merge is asked for.

use std::path::Path;
use std::sync::Arc;

use shamba_env::{Env, MemFs};
use shamba_model::MergePolicy;

use super::*;
use crate::db::Db;
use crate::event::EventListener;
use crate::ids::{KeyspaceId, RunId};
use crate::sync::Mutex;

/// Keys that are written over and over: the tree does not grow.
const KEYS: u32 = 400;

/// Merges as they begin and end, by their target levels.
#[derive(Default)]
struct Merges(Mutex<Vec<(bool, u32)>>);

impl EventListener for Merges {
    fn event(&self, event: &Event) {
        match event {
            Event::MergeBegin { target_level, .. } => lock(&self.0).push((true, *target_level)),
            Event::MergeEnd { target_level, .. } => lock(&self.0).push((false, *target_level)),
            _ => {}
        }
    }
}

/// Writes the next keys, and flushes so often.
fn flush(db: &Db, next: &mut u32, flushes: u64) {
    let before = db.stats().flushes;
    while db.stats().flushes < before + flushes {
        db.put(format!("key {:04}", *next * 37 % KEYS), [*next as u8; 100]).expect("put");
        *next += 1;
        while !lock(&db.core().background.state).immutables.is_empty() {
            db.core().flush_oldest().expect("flushed");
        }
    }
}

/// Runs of a tiered last level that are merged where they are may be most of the database. Such a merge goes on to its end, slice
/// by slice, while what was flushed meanwhile is merged beside it: it stopped after its first slice, once.
#[test]
fn a_long_merge_in_place_goes_on_while_it_has_company() {
    let merges = Arc::new(Merges::default());
    let db = Db::builder(Path::new("/db"))
        .env(Env::deterministic(Arc::new(MemFs::new()), 1))
        .info_log(false)
        .merge_policy(MergePolicy::Tiering)
        .size_ratio(4.0)
        .write_buffer(4 << 10)
        .file_size(1 << 10)
        .block_bytes(512)
        .event_listener(Arc::clone(&merges) as Arc<dyn EventListener>)
        .open()
        .expect("opened");
    let core = db.core();
    let keyspace = core.keyspace(KeyspaceId::DEFAULT).expect("the default one");
    // Whoever holds this does all background work.
    let _by_hand = lock(&core.inline_work);
    let long_bytes = core.rules(false).long_bytes;
    let next_merge = || core.next_merge(&lock(&core.background.state)).and_then(|next| next.job);
    let mut next = 0;
    let long = loop {
        flush(&db, &mut next, 1);
        while let Some(job) = next_merge() {
            let version = &keyspace.load().version;
            let is_in_place = job.inputs.iter().all(|input| input.level == job.target_level);
            if is_in_place && job.inputs.len() > 1 && job.input_bytes(version) >= long_bytes {
                break;
            }
            core.merge_once().expect("merged");
        }
        if let Some(job) = next_merge() {
            break job;
        }
        assert!(next < 20 * KEYS, "no long merge in place in {next} writes");
    };
    // As much as is merged at once waits in the inbox by now; it is not so full that it would go first.
    flush(&db, &mut next, 4);
    assert_eq!(next_merge().as_ref(), Some(&long), "the long merge is the next one");

    lock(&merges.0).clear();
    let before = db.stats();
    assert!(core.merge_once().expect("merged"));
    let done = db.stats().since(&before);
    let seen = lock(&merges.0).clone();
    assert_eq!(seen.first(), Some(&(true, long.target_level)));
    assert_eq!(seen.iter().filter(|(begins, _)| *begins).count() * 2, seen.len(), "each merge ended");
    let beside = seen.len() as u64 / 2 - 1;
    assert!(beside > 0, "nothing was merged beside it");
    assert_eq!(done.merges, 1 + beside, "a merge that gave way is none");
    assert!(done.merge_slices > 1 + beside, "{} slices of {} merges", done.merge_slices, 1 + beside);
    let version = Arc::clone(&keyspace.load().version);
    let is_left = |input: &RunId| version.runs().any(|(_, run)| run.id == *input);
    let left: Vec<_> = long.inputs.iter().map(|input| input.run).filter(|run| is_left(run)).collect();
    assert!(left.len() <= 1, "all but the run that the others were merged into should be gone: {left:?}");
    db.check_invariants().expect("the tree has its shape");
}
