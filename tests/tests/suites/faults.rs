//! Suite D: every call of a scripted life fails once, and once for good, in every way.
//!
//! "Fail call i" for i from 0 until a run meets no fault: complete over the script by construction. After the
//! fault is gone the contract for I/O errors must hold; see `shamba_tests::fault`.

use shamba::env::{Effect, FsyncFailure, Persistence};
use shamba::{Compression, Durability, MergePolicy};
use shamba_tests::fault::{self, Fault};
use shamba_tests::planted;
use shamba_tests::pool;
use shamba_tests::seed::{self, mixed};
use shamba_tests::tally::Tally;
use shamba_tests::vectors::Vector;

/// Scripts, each with its vector.
const SCRIPTS: usize = 3;

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

/// Appends that stop half-way, and how the rest of them fails.
const TORN: [(&str, Effect, Persistence); 3] = [
    ("half an append, then ENOSPC once", Effect::Enospc, Persistence::Once),
    ("half an append, then EIO once", Effect::Eio, Persistence::Once),
    ("half an append, then ENOSPC for good", Effect::Enospc, Persistence::Sticky),
];

fn vector(script: usize) -> Vector {
    let policies = [MergePolicy::Leveling, MergePolicy::Tiering, MergePolicy::LazyLeveling];
    let mut vector = Vector::plain(policies[script % 3]);
    match script {
        1 => vector.durability = Durability::Sync,
        2 => vector.compression = vec![Compression::Lz4],
        _ => {}
    }
    vector
}

/// Asked about a planted defect, one short script is enough.
fn scripts() -> usize {
    if planted::is_asked() { 1 } else { SCRIPTS }
}

/// And every third way.
fn ways_step() -> usize {
    if planted::is_asked() { 3 } else { 1 }
}

fn writes() -> usize {
    if planted::is_asked() { 12 } else { 24 }
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
        fault::run(&vector(script), &steps, Fault::None)
            .unwrap_or_else(|error| panic!("script {script} without a fault: {error}"));
    }
    let ways = (EFFECTS.len() + SYNCS.len() + TORN.len()).div_ceil(ways_step());
    let count = scripts() * ways;
    let tallies = pool::run(count, |index| case(base, index)).unwrap_or_else(|error| panic!("{error}"));
    let mut total = Tally::default();
    tallies.iter().for_each(|tally| total.merge(tally));
    total.tell("faults", &format!("suite D, seed {base}: {SCRIPTS} scripts"));
    if !planted::is_asked() {
        total.require(&[("single-fault runs", 5_000), ("engine calls that failed", 1_000)]);
    }
}

#[test]
fn storms_of_faults() {
    const STORMS: usize = 1_500;
    let base = seed::base(0x5707);
    let effects = [Effect::Eio, Effect::Enospc, Effect::ShortWrite, Effect::Emfile, Effect::FlipBitOnRead];
    let seen = pool::run(STORMS, |index| {
        let seed = mixed(base, index as u64);
        let steps = fault::script(mixed(base, index as u64 / 50), 24);
        let storm = Fault::Storm { effect: effects[index % 5], one_in: [10, 40, 150][index / 5 % 3], seed };
        fault::checked(&vector(index % SCRIPTS), &steps, storm)
            .map_err(|error| format!("storm {index} of seed {base}: {error}"))
    });
    let seen = seen.unwrap_or_else(|error| panic!("{error}"));
    let faults = seen.iter().map(|seen| seen.faults).sum::<u64>();
    Tally::of(&[("storms", STORMS as u64), ("faults", faults)])
        .tell("storms", &format!("suite D, seed {base}"));
    assert!(faults > 5_000, "{faults} faults are no storm");
}
