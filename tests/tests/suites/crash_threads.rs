//! Suite C with real threads: crashes of a life in which writers, flushes and compactions overlap.
//!
//! In the deterministic suite each flush ends before the next write. Here memtables and logs queue
//! up, groups form, and compactions run concurrently. The order of writes is not known from
//! outside, so the rule is checked as callers see it. Every batch is complete, and a prefix of each
//! writer's batches survives. If a synced batch was acknowledged before the crash, every batch of
//! any writer that was acknowledged before it began survives too.
//!
//! Each batch also adds one to two counters by merges: the counters must equal the numbers of
//! batches that survived, so no operand is lost and none counts twice.

use std::path::Path;
use std::sync::{Arc, Mutex};

use shamba::env::{CrashPolicy, Env, SimFs};
use shamba::merge::AddU64;
use shamba::{Db, Durability, KeyspaceOptions, MergePolicy, Stats};
use shamba_tests::acked::{Acked, durable};
use shamba_tests::pool;
use shamba_tests::seed;
use shamba_tests::tally::Tally;
use shamba_tests::vectors::{THRESHOLD_BYTES, Vector};

const HOME: &str = "/db";
const WRITERS: usize = 3;
const BATCHES: usize = 160;
const IMAGES: usize = 1_200;
/// The keyspace of the counters, and the counter of all batches.
const COUNTS: &str = "counts";
const ALL: &str = "all";

/// A life, and the times of its acknowledgements.
struct Life {
    fs: SimFs,
    vector: Vector,
    /// By writer, in the order of its batches.
    batches: Vec<Vec<Acked>>,
    /// The statistics of the database.
    stats: Stats,
}

fn keys(writer: usize, number: usize) -> [String; 2] {
    [format!("left/{writer}/{number:05}"), format!("right/{number:05}/{writer}")]
}

fn counter(writer: usize) -> String {
    format!("of/{writer}")
}

fn counting() -> KeyspaceOptions {
    KeyspaceOptions::new().merge_operator(AddU64)
}

/// The value of a counter, which a crash may have left without its keyspace.
fn number_at(db: &Db, key: &str) -> Result<u64, String> {
    let failed = |error: shamba::Error| format!("a counter cannot be read: {error}");
    let Some(counts) = db.get_keyspace(COUNTS).map_err(failed)? else { return Ok(0) };
    let value = counts.get(key).map_err(failed)?;
    Ok(value.map_or(0, |value| u64::from_le_bytes(value[..].try_into().expect("a number"))))
}

fn live(policy: MergePolicy, seed: u64) -> Life {
    let fs = SimFs::new();
    let env = Env { vfs: Arc::new(fs.clone()), ..Env::real() };
    let mut vector = Vector::plain(policy);
    vector.write_buffer = 3 << 10;
    vector.immutable = Some(3);
    vector.value_threshold = (policy == MergePolicy::Tiering).then_some(THRESHOLD_BYTES);
    let db = vector.builder(Path::new(HOME), &env).open().expect("open");
    let counts = db.keyspace_with(COUNTS, counting()).expect("the counters");
    let one = 1u64.to_le_bytes();
    let moments = Mutex::new(0usize);
    let moment = || {
        let mut moments = moments.lock().expect("nobody panics with it");
        *moments += 1;
        *moments
    };
    let batches = std::thread::scope(|scope| {
        let writers = (0..WRITERS).map(|writer| {
            let (db, counts, fs, moment) = (db.clone(), counts.clone(), &fs, &moment);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed ^ writer as u64);
                let mut acked = Vec::new();
                for number in 0..BATCHES {
                    let sync = rng.u8(..12) == 0;
                    let begun = moment();
                    let mut batch = db.batch();
                    for key in keys(writer, number) {
                        batch.put(key, "v".repeat(rng.usize(..200)));
                    }
                    batch.merge_in(&counts, counter(writer), one).merge_in(&counts, ALL, one);
                    batch
                        .commit_with(if sync { Durability::Sync } else { Durability::NoSync })
                        .expect("commit");
                    let calls = fs.op_count();
                    acked.push(Acked { begun, acked: moment(), calls, sync });
                }
                acked
            })
        });
        let writers = writers.collect::<Vec<_>>();
        while !writers.iter().all(|writer| writer.is_finished()) {
            db.flush().expect("flush");
            db.compact().expect("compact");
            env.clock.sleep_us(3_000);
        }
        writers.into_iter().map(|writer| writer.join().expect("a writer does not panic")).collect()
    });
    db.wait_idle().expect("wait_idle");
    let stats = db.stats();
    drop(db);
    Life { fs, vector, batches, stats }
}

impl Life {
    fn check(&self, k: u64, policy: &CrashPolicy) -> Result<u64, String> {
        let image = self.fs.crash(k, policy);
        let hash = image.image_hash();
        let env = Env::deterministic(Arc::new(image), 3);
        let opened = self.vector.builder(Path::new(HOME), &env).open();
        let db: Db = opened.map_err(|error| format!("recovery: {error:?}"))?;
        let failed = |error: shamba::Error| format!("a read failed: {error}");
        let mut all = 0;
        for (writer, durable) in durable(&self.batches, k).into_iter().enumerate() {
            let mut count = 0;
            for number in 0..BATCHES {
                let [left, right] = keys(writer, number);
                let (left, right) =
                    (db.contains_key(left).map_err(failed)?, db.contains_key(right).map_err(failed)?);
                if left != right {
                    return Err(format!("batch {number} of writer {writer} is there by half"));
                }
                if left && count < number {
                    return Err(format!("writer {writer}: batch {number} is there, batch {count} is not"));
                }
                count += usize::from(left);
            }
            let counted = number_at(&db, &counter(writer))?;
            if counted != count as u64 {
                return Err(format!("writer {writer}: {count} batches survived, and {counted} were counted"));
            }
            all += counted;
            if count < durable {
                return Err(format!("writer {writer}: {count} batches survived, {durable} were durable"));
            }
        }
        let counted = number_at(&db, ALL)?;
        if counted != all {
            return Err(format!("{all} batches survived, and {counted} were counted in all"));
        }
        let report = db.verify().map_err(failed)?;
        match report.problems.first() {
            None => Ok(hash),
            Some(problem) => Err(format!("verify reports {problem:?}")),
        }
    }
}

#[test]
fn crashes_of_overlapping_work_leave_a_legal_state() {
    let base = seed::base(0x7ead);
    let mut tally = Tally::default();
    for (index, policy) in
        [MergePolicy::Leveling, MergePolicy::Tiering, MergePolicy::LazyLeveling].into_iter().enumerate()
    {
        let life = live(policy, base.wrapping_add(index as u64));
        let calls = life.fs.op_count();
        let mut rng = fastrand::Rng::with_seed(base);
        let points = (0..IMAGES).map(|_| (rng.u64(..=calls), rng.u64(..))).collect::<Vec<_>>();
        let hashes = pool::run(points.len(), |point| {
            let (k, pick) = points[point];
            let policies = life.fs.policies_for(k, pick);
            let crash = policies[pick as usize % policies.len()];
            // Threads are scheduled differently next time, so the life cannot be reproduced: the
            // report must suffice.
            life.check(k, &crash).map_err(|error| {
                let from = k.saturating_sub(20);
                let calls = (from..=k)
                    .filter_map(|call| Some(format!("    call {call}: {}\n", life.fs.describe_op(call)?)))
                    .collect::<String>();
                format!("{policy}, seed {base}, crash behind call {k} under {crash:?}: {error}\n{calls}")
            })
        });
        let mut hashes = hashes.unwrap_or_else(|error| panic!("{error}"));
        hashes.sort_unstable();
        hashes.dedup();
        // Checked for each life: one in which nothing happened must not be hidden by the others.
        let stats = &life.stats;
        let of_life = Tally::of(&[
            ("distinct images", hashes.len() as u64),
            ("flushes", stats.flushes),
            ("compactions", stats.compactions),
            ("batches that another writer wrote", stats.batches - stats.commit_groups),
        ]);
        of_life.require(&[("distinct images", 400), ("flushes", 10), ("compactions", 1)]);
        tally.merge(&of_life);
        tally.add("calls", calls);
        let synced = life.batches.iter().flatten().filter(|batch| batch.sync).count();
        tally.add("synced batches", synced as u64);
    }
    tally.tell("crash-threads", &format!("suite C with threads, seed {base}"));
    tally.require(&[("distinct images", 1_000), ("synced batches", 10)]);
}
