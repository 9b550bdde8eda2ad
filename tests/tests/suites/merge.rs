//! Merge operators whose code an open does not have: a database of the model suite is opened
//! without the operator, written to, compacted, and opened with it again.
//!
//! Without the code a key with operands that are not folded is `Unsupported`, and the error
//! names the operator; every other key reads as the oracle says. No operand and no base is lost
//! meanwhile.
//!
//! Not here: random operations with an operator (`model`), crashes (`crash`, `crash_threads`),
//! and one operator in the place of another (`crates/engine/tests/api/merge.rs`).

use std::path::Path;
use std::sync::Arc;

use shamba::env::{Env, MemFs};
use shamba::{Db, Durability, ErrorKind};
use shamba_tests::brief::is_brief;
use shamba_tests::compare::{self, Spaces, everything, failed};
use shamba_tests::operators::{Apart, appending};
use shamba_tests::ops::{Generator, KeyShape, shown};
use shamba_tests::oracle::{Change, Oracle, SPACES};
use shamba_tests::pool;
use shamba_tests::runner::{HOME, Runner, caught};
use shamba_tests::seed::{self, Rerun, mixed};
use shamba_tests::tally::Tally;
use shamba_tests::vectors::Vector;

const CASES: usize = 60;
const OPERATIONS: usize = 700;
const TEST: &str = "merge::without_its_code_an_operator_loses_nothing";

/// Runs the model for a while, and drops the database without closing it.
fn filled(fs: &MemFs, vector: &Vector, seed: u64) -> Result<Oracle, String> {
    let shape = KeyShape { universe: 200, value_bytes: 60, huge_one_in: u32::MAX };
    let mut runner = Runner::new(vector.clone(), Arc::new(fs.clone()), seed)?;
    for op in Generator::new(seed, shape).ops(OPERATIONS) {
        runner.apply(&op).map_err(|error| format!("{op:?}: {error}"))?;
    }
    Ok(runner.oracle().clone())
}

/// Reads every key. Returns how many have operands that cannot be folded.
fn read_without_code(spaces: &Spaces, oracle: &Oracle) -> Result<u64, String> {
    let mut unfolded = 0;
    let now = oracle.issued();
    let refused = |error: &shamba::Error| {
        let names_it = error.to_string().contains(Apart::NAME);
        error.kind() == ErrorKind::Unsupported && names_it
    };
    for (space, name) in SPACES.iter().enumerate() {
        let Some(surface) = spaces.at(space) else { continue };
        for key in oracle.keys(space) {
            let wanted = oracle.get(space, key, now);
            match surface.read(key) {
                Ok(value) => compare::same_value("get", key, value.as_deref(), wanted)?,
                Err(error) if refused(&error) && wanted.is_some() => unfolded += 1,
                Err(error) => return Err(format!("keyspace {name}: get({}): {error:?}", shown(key))),
            }
            let has = surface.has(key).map_err(failed("contains_key"))?;
            if has != wanted.is_some() {
                return Err(format!("keyspace {name}: contains_key({}) gave {has}", shown(key)));
            }
        }
        let pairs = oracle.pairs(space, &everything(), now);
        let (mut forward, mut backward) = (surface.scan(&everything()), surface.scan(&everything()));
        let is_refused =
            |found: &Option<shamba::Result<_>>| matches!(found, Some(Err(error)) if refused(error));
        for pair in &pairs {
            let found = forward.next();
            if is_refused(&found) {
                break;
            }
            compare::same_pair("scan", found, Some(pair))?;
        }
        for pair in pairs.iter().rev() {
            let found = backward.next_back();
            if is_refused(&found) {
                break;
            }
            compare::same_pair("backward scan", found, Some(pair))?;
        }
    }
    Ok(unfolded)
}

/// Writes of all kinds, blind ones of keys that cannot be read among them.
fn write_without_code(spaces: &Spaces, oracle: &mut Oracle, seed: u64) -> Result<(), String> {
    let mut rng = fastrand::Rng::with_seed(seed);
    for space in 0..SPACES.len() {
        let keys: Vec<Vec<u8>> = oracle.keys(space).map(<[u8]>::to_vec).collect();
        for (number, key) in keys.into_iter().enumerate() {
            let value = format!("without {number}").into_bytes();
            let change = match rng.u8(..12) {
                0 => Change::Put { space, key, value },
                1 => Change::Delete { space, key },
                2..5 => Change::Merge { space, key, operand: value },
                _ => continue,
            };
            let mut batch = spaces.db.batch();
            let other = space.checked_sub(1).and_then(|at| spaces.others[at].as_ref());
            match (&change, other) {
                (Change::Put { key, value, .. }, None) => batch.put(key, value),
                (Change::Put { key, value, .. }, Some(other)) => batch.put_in(other, key, value),
                (Change::Delete { key, .. }, None) => batch.delete(key),
                (Change::Delete { key, .. }, Some(other)) => batch.delete_in(other, key),
                (Change::Merge { key, operand, .. }, None) => batch.merge(key, operand),
                (Change::Merge { key, operand, .. }, Some(other)) => batch.merge_in(other, key, operand),
                (Change::DeleteRange { .. }, _) => continue,
            };
            batch.commit().map_err(failed("a write"))?;
            oracle.commit(&[change]);
        }
    }
    Ok(())
}

fn verified(db: &Db) -> Result<(), String> {
    match db.verify().map_err(failed("verify"))?.problems.first() {
        None => Ok(()),
        Some(problem) => Err(format!("verify reports {problem:?}")),
    }
}

fn case(base: u64, index: usize) -> Result<Tally, String> {
    let seed = mixed(base, index as u64);
    let mut vector = Vector::numbered(base, index);
    (vector.no_wal, vector.durability, vector.combines) = (false, Durability::NoSync, false);
    let fs = MemFs::new();
    let mut tally = Tally::default();
    let mut oracle = filled(&fs, &vector, seed)?;
    let env = |life: u64| Env::deterministic(Arc::new(fs.clone()), mixed(seed, life));
    let spaces_of = |builder: shamba::Builder| {
        let db = builder.open().map_err(failed("open"))?;
        Spaces::existing(db).map_err(failed("keyspace"))
    };
    let path = Path::new(HOME);
    for life in 0..3 {
        let spaces = spaces_of(vector.builder_without_operators(path, &env(life)))?;
        tally.add("keys that need the code", read_without_code(&spaces, &oracle)?);
        write_without_code(&spaces, &mut oracle, seed + life)?;
        spaces.db.compact().map_err(failed("compact"))?;
        tally.add("keys that need it after a compaction", read_without_code(&spaces, &oracle)?);
        verified(&spaces.db)?;
        let Spaces { db, others } = spaces;
        drop(others);
        if life % 2 == 0 {
            db.close().map_err(failed("close"))?;
        }
    }
    let again = |error: String| format!("with the code again: {error}");
    let spaces = spaces_of(vector.builder(path, &env(3)))?;
    compare::everything_at(&spaces, &oracle, oracle.issued()).map_err(again)?;
    spaces.db.compact().map_err(failed("compact"))?;
    compare::everything_at(&spaces, &oracle, oracle.issued()).map_err(again)?;
    verified(&spaces.db)?;
    drop(spaces);
    // A compaction with the code has folded what it rewrote.
    let spaces = spaces_of(vector.builder_without_operators(path, &env(4)))?;
    tally.add("keys that need it after one with the code", read_without_code(&spaces, &oracle)?);
    Ok(tally)
}

#[test]
fn without_its_code_an_operator_loses_nothing() {
    let base = seed::base(0x3e_4e);
    let told = |index: usize| {
        let rerun = Rerun { test: TEST, seed: base, vector: index };
        caught(|| case(base, index)).map_err(|error| format!("case {index}: {error}\n  rerun: {rerun}"))
    };
    if let Some(index) = seed::only_vector() {
        told(index).unwrap_or_else(|error| panic!("{error}"));
        return;
    }
    let cases = if is_brief() { 6 } else { CASES };
    let tallies = pool::run(cases, told).unwrap_or_else(|error| panic!("{error}"));
    let mut total = Tally::sum(&tallies);
    total.add("databases", cases as u64);
    total.tell("merge", &format!("operators without their code, seed {base}"));
    if !is_brief() {
        total.require(&[("keys that need the code", 2_000), ("keys that need it after a compaction", 2_000)]);
        let [without, with] =
            ["keys that need it after a compaction", "keys that need it after one with the code"]
                .map(|name| total.get(name));
        assert!(with < without / 2, "{without} keys of three compactions, {with} of the one with the code");
    }
}

/// A built-in operator is found by its recorded name.
#[test]
fn a_built_in_operator_needs_no_code() {
    let seed = seed::base(0x3e_4f);
    println!("seed {seed}");
    for index in 0..6 {
        let mut vector = Vector::numbered(seed, index);
        (vector.no_wal, vector.durability, vector.combines) = (false, Durability::NoSync, true);
        let fs = MemFs::new();
        let oracle =
            filled(&fs, &vector, mixed(seed, index as u64)).unwrap_or_else(|error| panic!("{error}"));
        let env = Env::deterministic(Arc::new(fs), 1);
        let db = vector.builder_without_operators(Path::new(HOME), &env).open().expect("open");
        let spaces = Spaces::existing(db).expect("keyspaces");
        compare::everything_at(&spaces, &oracle, oracle.issued())
            .unwrap_or_else(|error| panic!("vector {index}: {error}"));
        // Nor does a later open that gives the same one again.
        drop(spaces);
        let open = |options| {
            let builder = vector.builder_without_operators(Path::new(HOME), &env);
            builder.keyspace(SPACES[1], options).open()
        };
        let given = open(appending(true));
        assert_eq!(given.map(drop).map_err(|error| error.kind()), Ok(()));
        let other = open(appending(false));
        assert_eq!(other.map(drop).map_err(|error| error.kind()), Err(ErrorKind::Invalid));
    }
}
