//! Suite D: every call of a scripted life fails once, and once permanently, in every way.
//!
//! "Fail call i" for i from 0 until a run has no fault: complete over the script by construction.
//! Pairs of faults are random. After the fault the contract for I/O errors must hold; see
//! `shamba_tests::fault`. There are also manifests that find no space, at every point that needs
//! some: nothing is lost and no reopen is needed.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use fastrand::Rng;
use shamba::env::{
    CrashPolicy, Effect, Env, FaultFs, FaultRule, FsyncFailure, OpKind, Persistence, SimFs, Vfs,
};
use shamba::{Compression, Db, Durability, ErrorKind, MergePolicy, Prefix};
use shamba_tests::brief::is_brief;
use shamba_tests::crash::orphans;
use shamba_tests::fault::{self, Fault};
use shamba_tests::pool;
use shamba_tests::runner::HOME;
use shamba_tests::seed::{self, Rerun, mixed};
use shamba_tests::tally::Tally;
use shamba_tests::vectors::{BUDGET_BYTES, THRESHOLD_BYTES, Vector};

/// Number of scripts, each with its vector.
const SCRIPTS: usize = 3;
/// Number of pairs of faults; `SHAMBA_FAULT_PAIRS` sets more.
const PAIRS: u64 = 2_500;
/// Approximate numbers of calls of these kinds in a script: a fault at a later number does not
/// occur.
const CALLS_OF_A_SCRIPT: u64 = 500;
const READS_OF_A_SCRIPT: u64 = 300;
const OPENS_OF_A_SCRIPT: u64 = 130;
const LONG_APPENDS_OF_A_SCRIPT: u64 = 140;
const SYNCS_OF_A_SCRIPT: u64 = 100;
const APPENDS_OF_A_SCRIPT: u64 = 200;

const EFFECTS: [(&str, Effect, Persistence); 10] = [
    ("EIO once", Effect::Eio, Persistence::Once),
    ("EIO for good", Effect::Eio, Persistence::Sticky),
    ("ENOSPC once", Effect::Enospc, Persistence::Once),
    ("ENOSPC for good", Effect::Enospc, Persistence::Sticky),
    ("short write once", Effect::ShortWrite, Persistence::Once),
    ("short write for good", Effect::ShortWrite, Persistence::Sticky),
    ("short read for good", Effect::ShortRead, Persistence::Sticky),
    ("EINTR once", Effect::Eintr, Persistence::Once),
    ("EMFILE once", Effect::Emfile, Persistence::Once),
    ("bit flipped on read once", Effect::FlipBitOnRead, Persistence::Once),
];

const SYNCS: [(&str, FsyncFailure, bool); 4] = [
    ("fsync fails once, pending kept", FsyncFailure::Keep, false),
    ("fsync fails once, pending dropped", FsyncFailure::Drop, false),
    ("fsync fails once, content reverted", FsyncFailure::Revert, false),
    ("fsync fails for good", FsyncFailure::Keep, true),
];

/// Appends that write only half, and the failure of the continuation.
const TORN: [(&str, Effect, Persistence); 3] = [
    ("half an append, then ENOSPC once", Effect::Enospc, Persistence::Once),
    ("half an append, then EIO once", Effect::Eio, Persistence::Once),
    ("half an append, then ENOSPC for good", Effect::Enospc, Persistence::Sticky),
];

fn vector(script: usize) -> Vector {
    let policies = [MergePolicy::Leveling, MergePolicy::Tiering, MergePolicy::LazyLeveling];
    let mut vector = Vector::plain(policies[script % 3]);
    match script {
        1 => {
            vector.durability = Durability::Sync;
            vector.combines = false;
            vector.value_threshold = Some(THRESHOLD_BYTES);
        }
        2 => {
            vector.compression = vec![Compression::Zstd];
            vector.dictionary_bytes = 256;
            vector.record_cache = Some(64 << 10);
            vector.prefix = Some(Prefix::Delimited(b'/'));
            vector.own_options = vec![("compression", "lz4"), ("policy", "tiering"), ("bits-per-key", "6.5")];
        }
        _ => {}
    }
    vector
}

/// In a brief run one short script suffices.
fn scripts() -> usize {
    if is_brief() { 1 } else { SCRIPTS }
}

/// In a brief run only every third effect is tried.
fn ways_step() -> usize {
    if is_brief() { 3 } else { 1 }
}

fn writes() -> usize {
    if is_brief() { 12 } else { 14 }
}

fn case(base: u64, index: usize) -> Result<Tally, String> {
    let (script, way) = (index % scripts(), index / scripts() * ways_step());
    let steps = fault::script(mixed(base, script as u64), writes());
    let (vector, steps) = (&vector(script), &steps);
    let result = if let Some((name, effect, persistence)) = EFFECTS.get(way) {
        fault::every(vector, steps, name, |nth| Fault::Call {
            nth,
            effect: *effect,
            persistence: *persistence,
        })
    } else if let Some((name, failure, sticky)) = SYNCS.get(way - EFFECTS.len()) {
        fault::every(vector, steps, name, |nth| Fault::Fsync { nth, failure: *failure, sticky: *sticky })
    } else {
        let (name, effect, persistence) = TORN[way - EFFECTS.len() - SYNCS.len()];
        fault::every(vector, steps, name, |nth| Fault::Torn { nth, effect, persistence })
    };
    result.map_err(|error| format!("script {script} of seed {base}: {error}"))
}

#[test]
fn every_call_fails_once() {
    let base = seed::base(0xfa17);
    for script in 0..SCRIPTS {
        let steps = fault::script(mixed(base, script as u64), writes());
        fault::run(&vector(script), &steps, &[])
            .unwrap_or_else(|error| panic!("script {script} without a fault: {error}"));
    }
    let ways = (EFFECTS.len() + SYNCS.len() + TORN.len()).div_ceil(ways_step());
    let count = scripts() * ways;
    let tallies = pool::run(count, |index| case(base, index)).unwrap_or_else(|error| panic!("{error}"));
    let total = Tally::sum(&tallies);
    total.tell("faults", &format!("suite D, seed {base}: {SCRIPTS} scripts"));
    if !is_brief() {
        total.require(&[
            ("single-fault runs", 5_000),
            ("engine calls that failed", 1_000),
            ("expired entries that were dropped", 5_000),
            ("lives that outlived all that expires", 500),
        ]);
    }
}

/// Number in CI; `SHAMBA_STORMS` sets another.
const STORMS: usize = 1_500;

#[test]
fn storms_of_faults() {
    let storms = seed::number("SHAMBA_STORMS").map_or(STORMS, |storms| storms as usize);
    let base = seed::base(0x5707);
    let effects = [Effect::Eio, Effect::Enospc, Effect::ShortWrite, Effect::Emfile, Effect::FlipBitOnRead];
    let only = seed::only_vector();
    let seen = pool::run(only.map_or(storms, |_| 1), |index| {
        let index = only.unwrap_or(index);
        let seed = mixed(base, index as u64);
        let steps = fault::script(mixed(base, index as u64 / 50), 24);
        let storm = Fault::Storm { effect: effects[index % 5], one_in: [10, 40, 150][index / 5 % 3], seed };
        fault::checked(&vector(index % SCRIPTS), &steps, &[storm]).map_err(|error| {
            let rerun = Rerun { test: "faults::storms_of_faults", seed: base, vector: index };
            format!("storm {index}: {error}\n  {rerun}")
        })
    });
    let seen = seen.unwrap_or_else(|error| panic!("{error}"));
    if only.is_some() {
        return;
    }
    let faults = seen.iter().map(|seen| seen.faults).sum::<u64>();
    Tally::of(&[("storms", storms as u64), ("faults", faults)])
        .tell("storms", &format!("suite D, seed {base}"));
    assert!(faults > 3 * storms as u64, "{faults} faults are no storms");
}

/// A failing call of a script, by its number and effect.
fn call(rng: &mut Rng) -> Fault {
    let (_, effect, persistence) = EFFECTS[rng.usize(..EFFECTS.len())];
    let calls = match effect {
        Effect::ShortRead | Effect::FlipBitOnRead => READS_OF_A_SCRIPT,
        Effect::Emfile => OPENS_OF_A_SCRIPT,
        Effect::ShortWrite => LONG_APPENDS_OF_A_SCRIPT,
        _ => CALLS_OF_A_SCRIPT,
    };
    Fault::Call { nth: rng.u64(..calls), effect, persistence }
}

/// Two faults in one life: the second may hit what the first has left: a retry, a truncated log, a
/// read-only database.
#[test]
fn pairs_of_faults() {
    let base = seed::base(0x9a12);
    let pairs = seed::number("SHAMBA_FAULT_PAIRS").unwrap_or(PAIRS) as usize;
    let only = seed::only_vector();
    let seen = pool::run(only.map_or(pairs, |_| 1), |index| {
        let index = only.unwrap_or(index);
        let mut rng = Rng::with_seed(mixed(base, index as u64));
        let steps = fault::script(mixed(base, index as u64 / 500), writes());
        let first = call(&mut rng);
        let second = match rng.u8(..3) {
            0 => {
                let (_, failure, sticky) = SYNCS[rng.usize(..SYNCS.len())];
                Fault::Fsync { nth: rng.u64(..SYNCS_OF_A_SCRIPT), failure, sticky }
            }
            1 => {
                let (_, effect, persistence) = TORN[rng.usize(..TORN.len())];
                Fault::Torn { nth: rng.u64(..APPENDS_OF_A_SCRIPT), effect, persistence }
            }
            _ => call(&mut rng),
        };
        fault::checked(&vector(index % SCRIPTS), &steps, &[first, second]).map_err(|error| {
            let rerun = Rerun { test: "faults::pairs_of_faults", seed: base, vector: index };
            format!("pair {index}: {error}\n  {rerun}")
        })
    });
    let seen = seen.unwrap_or_else(|error| panic!("{error}"));
    if only.is_some() {
        return;
    }
    let met = seen.iter().filter(|seen| seen.struck == 2).count() as u64;
    let failures = seen.iter().map(|seen| seen.failures).sum();
    let tally = Tally::of(&[("lives with two faults", met), ("engine calls that failed", failures)]);
    tally.tell("fault-pairs", &format!("suite D, seed {base}: {pairs} pairs"));
    tally.require(&[("lives with two faults", pairs as u64 * 2 / 5)]);
}

/// The calls that fail while the manifest is to be rewritten, until space is back: calls of a kind
/// on a path.
const NO_ROOM: [(&str, OpKind); 6] = [
    ("MANIFEST", OpKind::Create),
    ("MANIFEST", OpKind::Append),
    ("CURRENT.tmp", OpKind::SyncAll),
    ("CURRENT.tmp", OpKind::Create),
    ("CURRENT.tmp", OpKind::Append),
    ("nowhere", OpKind::Append),
];

/// A database on a disk that temporarily has no space for its manifest.
struct Cramped {
    sim: SimFs,
    faulty: FaultFs,
    env: Env,
    db: Db,
    /// The content, by keyspace and key.
    written: BTreeMap<(String, String), String>,
    round: u32,
    /// Calls that found no space.
    refused: u64,
}

/// The whole content of a database.
fn contents(db: &Db) -> Result<BTreeMap<(String, String), String>, String> {
    let failed = |error: shamba::Error| format!("reading: {error:?}");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut found = BTreeMap::new();
    for name in db.keyspaces() {
        for pair in db.keyspace(&name).map_err(failed)?.iter() {
            let (key, value) = pair.map_err(failed)?;
            found.insert((name.clone(), text(&key)), text(&value));
        }
    }
    Ok(found)
}

impl Cramped {
    fn begin() -> Result<Self, String> {
        let sim = SimFs::new();
        let env = Env::deterministic(Arc::new(sim.clone()), 3);
        let faulty = FaultFs::with_clock(Arc::new(sim.clone()), 5, env.clock.clone());
        let env = Env { vfs: Arc::new(faulty.clone()), ..env };
        let db = Self::open(&env)?;
        let mut cramped = Self { sim, faulty, env, db, written: BTreeMap::new(), round: 0, refused: 0 };
        cramped.round(false)?;
        Ok(cramped)
    }

    fn open(env: &Env) -> Result<Db, String> {
        let builder = Db::builder(HOME).env(env.clone()).info_log(false).memory_budget(BUDGET_BYTES);
        let opened = builder.write_buffer(16 << 10).size_ratio(2.0).open();
        opened.map_err(|error| format!("open: {error:?}"))
    }

    /// Checks a call that may fail with no space, but with no other error.
    fn may(&mut self, what: &str, result: shamba::Result<()>, is_cramped: bool) -> Result<bool, String> {
        match result {
            Ok(()) => Ok(true),
            Err(error) if is_cramped && error.kind() == ErrorKind::NoSpace => {
                self.refused += 1;
                Ok(false)
            }
            Err(error) => Err(format!("{what} in round {}: {}: {error}", self.round, error.kind())),
        }
    }

    /// Writes, and all operations that change the manifest.
    fn round(&mut self, is_cramped: bool) -> Result<(), String> {
        self.round += 1;
        let (round, other) = (self.round, format!("other{}", self.round));
        for number in 0..3 {
            let (key, value) = (format!("k{}", round % 2 * 3 + number), format!("{round}.{number}"));
            let put = self.db.put(&key, &value);
            // The log has space: writes to it do not depend on the manifest.
            self.may("a put", put, false)?;
            self.written.insert(("default".to_owned(), key), value);
        }
        let flushed = self.db.flush();
        self.may("a flush", flushed, is_cramped)?;
        let made = self.db.keyspace(&other);
        let keyspace = made.as_ref().ok().cloned();
        if self.may("a keyspace", made.map(drop), is_cramped)?
            && let Some(keyspace) = keyspace
        {
            let put = keyspace.put("alone", round.to_string());
            self.may("a put", put, false)?;
            self.written.insert((other.clone(), "alone".to_owned()), round.to_string());
        }
        let pair = (format!("i{round}"), round.to_string());
        let ingested = self.db.ingest([(pair.0.as_bytes(), pair.1.as_bytes())]).map(drop);
        if self.may("an ingest", ingested, is_cramped)? {
            self.written.insert(("default".to_owned(), pair.0), pair.1);
        }
        let before = format!("other{}", round.saturating_sub(1));
        if self.db.keyspaces().contains(&before) {
            let dropped = self.db.drop_keyspace(&before);
            if self.may("a drop", dropped, is_cramped)? {
                self.written.retain(|(keyspace, _), _| *keyspace != before);
            }
        }
        let compacted = self.db.compact();
        self.may("a merge", compacted, is_cramped)?;
        if contents(&self.db)? != self.written {
            return Err(format!("after round {round} it holds something else than was written"));
        }
        Ok(())
    }

    /// Checks that all writes survive a power cut after a sync.
    fn power_cut(&mut self) -> Result<(), String> {
        let synced = self.db.sync();
        self.may("a sync", synced, false)?;
        for policy in [CrashPolicy::None, CrashPolicy::All] {
            let cut = self.sim.crash(u64::MAX, &policy);
            let db = Self::open(&Env::deterministic(Arc::new(cut), 7))?;
            if contents(&db)? != self.written {
                return Err(format!("after a power cut ({policy:?}) in round {}", self.round));
            }
        }
        Ok(())
    }

    fn end(self) -> Result<u64, String> {
        let Self { sim, env, db, written, refused, .. } = self;
        db.close().map_err(|error| format!("close: {error:?}"))?;
        let db = Self::open(&env)?;
        if contents(&db)? != written {
            return Err("after a reopen it holds something else than was written".to_owned());
        }
        let report = db.verify().map_err(|error| error.to_string())?;
        if !report.is_clean() {
            return Err(format!("verify: {report:?}"));
        }
        orphans(&sim.list(Path::new(HOME)).map_err(|error| error.to_string())?, &report)?;
        Ok(refused)
    }
}

/// The `nth` append to a manifest finds no space, if `torn` half-way; then `place` has none.
fn cramped(nth: u64, torn: bool, place: (&str, OpKind)) -> Result<Option<u64>, String> {
    let mut cramped = Cramped::begin()?;
    let appends = |nth, effect| FaultRule::nth(nth, effect).on(&[OpKind::Append]).at_path("MANIFEST");
    if torn {
        cramped.faulty.add_rule(appends(nth, Effect::ShortWrite));
    }
    let full = FaultRule::nth(0, Effect::Enospc).on(&[place.1]).at_path(place.0).sticky();
    cramped.faulty.add_rule(appends(nth + u64::from(torn), Effect::Enospc));
    let before = cramped.faulty.faults_injected();
    let mut rounds = 0;
    while cramped.faulty.faults_injected() < before + 1 + u64::from(torn) {
        cramped.round(true)?;
        rounds += 1;
        if rounds > 4 {
            return Ok(None);
        }
    }
    cramped.power_cut()?;
    cramped.faulty.add_rule(full);
    cramped.round(true)?;
    cramped.round(true)?;
    cramped.power_cut()?;
    cramped.faulty.clear_rules();
    cramped.round(false)?;
    cramped.power_cut()?;
    cramped.round(false)?;
    cramped.end().map(Some)
}

#[test]
fn a_manifest_that_finds_no_space_is_written_anew_and_all_goes_on() {
    let mut tally = Tally::default();
    for place in NO_ROOM {
        for torn in [false, true] {
            for nth in 0.. {
                let refused = cramped(nth, torn, place).unwrap_or_else(|error| {
                    panic!("append {nth} to a manifest, torn: {torn}, then {place:?} without space: {error}")
                });
                let Some(refused) = refused else { break };
                tally.add("full disks at the manifest", 1);
                tally.add("calls that found no space", refused);
            }
        }
    }
    tally.tell("full-manifest", "suite D, the manifest without space");
    tally.require(&[("full disks at the manifest", 200), ("calls that found no space", 200)]);
}
