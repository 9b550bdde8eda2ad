//! A call fails, the life continues, and then a power cut: the state after a fault must survive a
//! crash.
//!
//! The other suites crash lives without faults, or let faults end without a crash. Here each
//! writing call of a short life fails once, with no space or an I/O error, and the disk is cut at
//! several positions after it, under the simulation's policies. The same is done with each sync, of
//! a file or of the directory, which drops its pending data: a retry of it succeeds but has made
//! nothing durable. Every image must open, and hold a prefix of the writes that includes all
//! commits acknowledged as durable, each batch complete.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use shamba::env::{CrashPolicy, Effect, Env, FaultFs, FaultRule, FsyncFailure, OpKind, SimFs, Vfs};
use shamba::{Builder, Db, Durability, WriteOptions};
use shamba_tests::brief::is_brief;
use shamba_tests::seed::mixed;
use shamba_tests::tally::Tally;
use shamba_tests::vectors::BUDGET_BYTES;
use shamba_tests::{pool, seed};

/// Number of writes of a life; each puts its number under `LAST` and under a key of its own.
const WRITES: usize = 24;
const LAST: &str = "last";
/// A life is cut after each of this many writes from the fault on, and at this many positions at
/// its end.
const CUTS_AFTER: usize = 6;
const CUTS_AT_END: u64 = 4;
/// Approximate number of policies that are tried at each position.
const WAYS: usize = 3;
const CALLS: [OpKind; 7] = [
    OpKind::Append,
    OpKind::Create,
    OpKind::SyncData,
    OpKind::SyncAll,
    OpKind::SyncDir,
    OpKind::Rename,
    OpKind::Unlink,
];

fn value(number: usize) -> Vec<u8> {
    vec![number as u8; [10, 300, 70_000, 900][number % 4]]
}

fn builder(env: &Env, no_wal: bool) -> Builder {
    let builder =
        Db::builder("/db").env(env.clone()).experimental(|e| e.no_wal(no_wal)).durability(Durability::NoSync);
    let builder = builder.write_buffer(4 << 10).experimental(|e| e.file_size(1 << 10).block_bytes(128));
    // The longest two kinds of value are in value files, a shorter one in chunks of its table.
    builder
        .experimental(|e| e.large_values(200, 64))
        .experimental(|e| e.value_threshold(800))
        .memory_budget(BUDGET_BYTES)
        .info_log(false)
}

/// The failure in a life.
#[derive(Clone, Copy, Debug)]
enum Failing {
    /// The call of [`CALLS`] with this number, without any effect.
    Call(Effect, u64),
    /// The sync with this number, and the treatment of the pending data of its file, or of the
    /// names in its directory.
    Sync(FsyncFailure, u64),
}

impl Failing {
    fn nth(self) -> u64 {
        let (Self::Call(_, nth) | Self::Sync(_, nth)) = self;
        nth
    }
}

/// The promises of a life: after this many operations of the disk, this write is durable.
struct Life {
    disk: SimFs,
    start: u64,
    /// The positions at which the writes from the fault on ended.
    since_fault: Vec<u64>,
    durable: Vec<(u64, usize)>,
    acknowledged: Vec<usize>,
}

/// A life with a failure; `None` if it ends before that.
fn life(failing: Failing, no_wal: bool) -> Result<Option<Life>, String> {
    let failed = |error: shamba::Error| format!("before the fault: {error}");
    let disk = SimFs::new();
    let faults = Arc::new(FaultFs::new(Arc::new(disk.clone()), 1));
    let env = Env::deterministic(Arc::clone(&faults) as Arc<dyn Vfs>, 1);
    let db = builder(&env, no_wal).open().map_err(failed)?;
    db.put(LAST, value(0)).map_err(failed)?;
    db.close().map_err(failed)?;
    let mut life = Life {
        start: disk.op_count(),
        disk,
        since_fault: Vec::new(),
        durable: Vec::new(),
        acknowledged: Vec::new(),
    };
    let failing_sync = match failing {
        Failing::Call(effect, nth) => {
            faults.add_rule(FaultRule::nth(nth, effect).on(&CALLS));
            u64::MAX
        }
        Failing::Sync(failure, nth) => {
            let nth = life.disk.sync_count() + nth;
            life.disk.fail_sync(nth, failure);
            nth
        }
    };
    let has_failed = |disk: &SimFs| faults.faults_injected() > 0 || disk.sync_count() > failing_sync;
    // The open itself may be the call that fails, once.
    let db = builder(&env, no_wal).open().or_else(|_| builder(&env, no_wal).open());
    let db = db.map_err(|error| format!("second open: {error}"))?;
    let other = db.keyspace("other").ok();
    for number in 1..WRITES {
        let options: WriteOptions = match number {
            _ if no_wal => Durability::NoSync.into(),
            _ if number % 3 == 0 => Durability::Sync.into(),
            _ if number % 7 == 0 => Durability::Buffered.into(),
            _ => Durability::NoSync.into(),
        };
        let mut batch = db.batch();
        batch.put(LAST, value(number)).put(format!("k{number:03}"), value(number));
        if let Some(other) = other.as_ref().filter(|_| number % 5 == 0) {
            batch.put_in(other, format!("k{number:03}"), value(number));
        }
        if batch.commit_with(options).is_ok() {
            life.acknowledged.push(number);
            if number % 3 == 0 && !no_wal {
                life.durable.push((life.disk.op_count(), number));
            }
        }
        if has_failed(&life.disk) {
            life.since_fault.push(life.disk.op_count());
        }
        // Another suite checks whether these succeed; their effects must survive a crash.
        match number {
            10 => _ = db.sync(),
            11 | 20 if db.flush().is_ok() => {
                let last = life.acknowledged.last().copied().unwrap_or(0);
                life.durable.push((life.disk.op_count(), last));
            }
            15 => _ = db.drop_keyspace("other"),
            18 => _ = db.ingest([(b"zz".to_vec(), vec![1u8])]),
            _ => {}
        }
    }
    Ok(has_failed(&life.disk).then_some(life))
}

/// Checks the disk of `life` after `ops` operations.
fn check(life: &Life, ops: u64, image: SimFs) -> Result<(), String> {
    let env = Env::deterministic(Arc::new(image), 2);
    let builder = Db::builder("/db").env(env).info_log(false).memory_budget(BUDGET_BYTES);
    let db = builder.create_if_missing(false).open().map_err(|error| format!("open: {error}"))?;
    let get = |key: &str| db.get(key).map_err(|error| format!("get {key}: {error}"));
    let last = get(LAST)?.ok_or("the write before the fault is lost")?;
    let number = usize::from(last.first().copied().unwrap_or(0));
    if *last != *value(number) {
        return Err(format!("write {number} has {} bytes", last.len()));
    }
    let durable = life.durable.iter().filter(|(at, _)| *at <= ops).map(|(_, number)| *number).max();
    if durable.is_some_and(|durable| number < durable) {
        return Err(format!("write {durable:?} was durable, {number} is the last"));
    }
    let mut due: Vec<usize> = life.acknowledged.iter().copied().filter(|one| *one <= number).collect();
    due.extend((number > 0).then_some(number)); // Its batch came whole, acknowledged or not.
    for one in due {
        if get(&format!("k{one:03}"))?.as_deref() != Some(&value(one)[..]) {
            return Err(format!("write {one} is missing and {number} is there"));
        }
    }
    Ok(())
}

fn case(base: u64, failing: Failing, no_wal: bool) -> Result<Tally, String> {
    let (mut tally, nth) = (Tally::default(), failing.nth());
    let Some(life) = life(failing, no_wal)? else { return Ok(tally) };
    tally.add("lives", 1);
    if matches!(failing, Failing::Sync(..)) {
        tally.add("lives with a sync that dropped", 1);
    }
    let end = life.disk.op_count();
    let mut seen = HashSet::new();
    let at_end = (0..CUTS_AT_END).map(|cut| end.saturating_sub(cut * (1 + nth % 7)).max(life.start));
    for ops in life.since_fault.iter().copied().take(CUTS_AFTER).chain(at_end) {
        let policies = life.disk.policies_for(ops, mixed(base, nth << 32 | ops));
        let step = policies.len().div_ceil(WAYS).max(1);
        let some = policies.into_iter().skip(nth as usize % step).step_by(step);
        for policy in some.chain([CrashPolicy::None]) {
            let image = life.disk.crash(ops, &policy);
            if seen.insert(image.image_hash()) {
                tally.add("images", 1);
                check(&life, ops, image)
                    .map_err(|error| format!("cut at {ops} of {end}, {policy:?}: {error}"))?;
            }
        }
    }
    Ok(tally)
}

fn all_calls(base: u64, no_wal: bool, minima: &[(&str, u64)]) {
    /// More than any life has.
    const CALLS_MAX: usize = 600;
    const SYNCS_MAX: usize = 150;
    const WAYS_TO_FAIL: usize = 4;
    let of_syncs = [FsyncFailure::Drop, FsyncFailure::Revert];
    // In a brief run, only the syncs.
    let (ways, calls_max) = if is_brief() { (of_syncs.len(), SYNCS_MAX) } else { (WAYS_TO_FAIL, CALLS_MAX) };
    let failing = |index: usize, nth| match index % ways {
        2 => Failing::Call(Effect::Enospc, nth),
        3 => Failing::Call(Effect::Eio, nth),
        of_sync => Failing::Sync(of_syncs[of_sync], nth),
    };
    // The number of calls of a life, by the way in which one fails, once that is known: a life in
    // which no call fails is the same for every later number.
    let calls = [const { AtomicU64::new(u64::MAX) }; WAYS_TO_FAIL];
    let tallies = pool::run(ways * calls_max, |index| {
        let failing = failing(index, (index / ways) as u64);
        let calls = &calls[index % ways];
        if failing.nth() >= calls.load(Ordering::Relaxed) {
            return Ok(Tally::default());
        }
        let tally = case(base, failing, no_wal)
            .map_err(|error| format!("seed {base}, {failing:?}, no_wal {no_wal}: {error}"))?;
        if tally.get("lives") == 0 {
            calls.fetch_min(failing.nth(), Ordering::Relaxed);
        }
        Ok(tally)
    });
    let tallies = tallies.unwrap_or_else(|error| panic!("{error}"));
    let last = &tallies[tallies.len() - ways..];
    assert!(last.iter().all(|tally| tally.get("lives") == 0), "a life has more calls than are tried");
    let total = Tally::sum(&tallies);
    let name = if no_wal { "fault-then-crash-no-wal" } else { "fault-then-crash" };
    total.tell(name, &format!("suite D, seed {base}"));
    if !is_brief() {
        total.require(minima);
    }
}

#[test]
fn every_call_fails_and_then_the_power() {
    all_calls(
        seed::base(0xfc01),
        false,
        &[("lives", 300), ("lives with a sync that dropped", 60), ("images", 4_000)],
    );
}

#[test]
fn every_call_fails_without_a_log_and_then_the_power() {
    all_calls(
        seed::base(0xfc02),
        true,
        &[("lives", 200), ("lives with a sync that dropped", 40), ("images", 2_000)],
    );
}
