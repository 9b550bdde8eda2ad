//! Suite C with transactions: power losses of a life in which threads run the workloads of
//! [`shamba_tests::invariants`], while flushes and compactions overlap.
//!
//! Every state that a crash leaves keeps all invariants, and contains every transaction that was
//! durable ([`shamba_tests::acked`]). Transactions on the recovered database keep them too.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use shamba::env::{CrashPolicy, Env, SimFs};
use shamba::{Durability, MergePolicy, Stats};
use shamba_tests::acked::{Acked, durable};
use shamba_tests::brief::is_brief;
use shamba_tests::invariants::World;
use shamba_tests::pool;
use shamba_tests::runner::HOME;
use shamba_tests::seed::{self, mixed};
use shamba_tests::tally::Tally;
use shamba_tests::vectors::{THRESHOLD_BYTES, Vector};

const WORKERS: usize = 3;
const TRANSACTIONS: u64 = 160;
const IMAGES: usize = 500;

/// A life, and the times of its acknowledgements.
struct Life {
    fs: SimFs,
    vector: Vector,
    /// Number of calls of the disk when the workloads began.
    begun: u64,
    /// By worker, in the order of its transactions.
    commits: Vec<Vec<Acked>>,
    stats: Stats,
}

fn live(policy: MergePolicy, seed: u64) -> Life {
    let fs = SimFs::new();
    let env = Env { vfs: Arc::new(fs.clone()), ..Env::real() };
    let mut vector = Vector::plain(policy);
    vector.write_buffer = 2 << 10;
    vector.immutable = Some(3);
    vector.value_threshold = (policy == MergePolicy::LazyLeveling).then_some(THRESHOLD_BYTES);
    let db = vector.builder(Path::new(HOME), &env).open().expect("open");
    let world = World::open(db).expect("the accounts");
    let begun = fs.op_count();
    let moments = AtomicUsize::new(0);
    let moment = || moments.fetch_add(1, Ordering::SeqCst);
    let commits = std::thread::scope(|scope| {
        let (world, fs, moment) = (&world, &fs, &moment);
        let workers = (0..WORKERS).map(|worker| {
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(mixed(seed, worker as u64));
                let mut acked = Vec::new();
                for count in 1..=TRANSACTIONS {
                    let sync = rng.u8(..12) == 0;
                    let durability = if sync { Durability::Sync } else { Durability::NoSync };
                    let begun = moment();
                    world.work(worker, count, durability, &mut rng).expect("a transaction");
                    let calls = fs.op_count();
                    acked.push(Acked { begun, acked: moment(), calls, sync });
                }
                acked
            })
        });
        let workers = workers.collect::<Vec<_>>();
        while !workers.iter().all(|worker| worker.is_finished()) {
            world.db().flush().expect("flush");
            env.clock.sleep_us(2_000);
        }
        workers.into_iter().map(|worker| worker.join().expect("a worker does not panic")).collect()
    });
    world.db().wait_idle().expect("wait_idle");
    let whole = world.check(WORKERS).expect("the invariants hold before any crash");
    assert_eq!(whole, [TRANSACTIONS; WORKERS]);
    let stats = world.db().stats();
    Life { fs, vector, begun, commits, stats }
}

impl Life {
    fn check(&self, k: u64, policy: &CrashPolicy, seed: u64) -> Result<u64, String> {
        let image = self.fs.crash(k, policy);
        let hash = image.image_hash();
        let env = Env::deterministic(Arc::new(image), 3);
        let opened = self.vector.builder(Path::new(HOME), &env).open();
        let db = opened.map_err(|error| format!("recovery: {error:?}"))?;
        let failed = |error: shamba::Error| format!("after recovery: {error}");
        let world = World::open(db).map_err(failed)?;
        let found = world.check(WORKERS)?;
        for (worker, durable) in durable(&self.commits, k).into_iter().enumerate() {
            let begun = self.commits[worker].len() as u64;
            if found[worker] < durable as u64 || found[worker] > begun {
                let found = found[worker];
                return Err(format!(
                    "worker {worker}: {found} transactions survived, {durable} were durable"
                ));
            }
        }
        // Transactions go on from the recovered state.
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut counts = found;
        for _ in 0..6 {
            let worker = rng.usize(..WORKERS);
            counts[worker] += 1;
            world.work(worker, counts[worker], Durability::NoSync, &mut rng).map_err(failed)?;
        }
        world.check(WORKERS).map_err(|error| format!("after more transactions: {error}"))?;
        let report = world.db().verify().map_err(failed)?;
        match report.problems.first() {
            None => Ok(hash),
            Some(problem) => Err(format!("verify reports {problem:?}")),
        }
    }
}

#[test]
fn crashes_leave_whole_transactions() {
    let base = seed::base(0x7ead_0002);
    let mut tally = Tally::default();
    let (lives, images) = if is_brief() { (1, IMAGES / 2) } else { (3, IMAGES) };
    let policies = [MergePolicy::Tiering, MergePolicy::Leveling, MergePolicy::LazyLeveling];
    for (index, policy) in policies.into_iter().enumerate().take(lives) {
        let life = live(policy, base.wrapping_add(index as u64));
        let calls = life.fs.op_count();
        let mut rng = fastrand::Rng::with_seed(base);
        let points = (0..images).map(|_| (rng.u64(life.begun..=calls), rng.u64(..))).collect::<Vec<_>>();
        let hashes = pool::run(points.len(), |point| {
            let (k, pick) = points[point];
            let policies = life.fs.policies_for(k, pick);
            let crash = policies[pick as usize % policies.len()];
            // Threads are scheduled differently next time: the report must suffice.
            life.check(k, &crash, pick).map_err(|error| {
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
        let stats = &life.stats;
        let of_life = Tally::of(&[
            ("distinct images", hashes.len() as u64),
            ("transactions", stats.transactions),
            ("transactions tried again", stats.transaction_retries),
            ("flushes", stats.flushes),
            ("compactions", stats.compactions),
            ("batches that another writer wrote", stats.batches - stats.commit_groups),
        ]);
        of_life.require(&[("distinct images", 100), ("flushes", 10), ("compactions", 1)]);
        tally.merge(&of_life);
        let synced = life.commits.iter().flatten().filter(|commit| commit.sync).count();
        tally.add("synced transactions", synced as u64);
    }
    tally.tell("crash-transactions", &format!("suite C with transactions, seed {base}"));
    tally.require(&[("synced transactions", 10), ("transactions tried again", 5)]);
}
