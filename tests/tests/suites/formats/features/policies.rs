//! The database with every policy: `tests/data/golden-policies`.
//!
//! Three keyspaces, one compacted by each policy, with entries of all kinds in several runs and in
//! the log: short values, values in value files (of the tiered keyspace, in chunks instead),
//! operands, entries that expire, tombstones, range tombstones. Written by the first build that had
//! all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use shamba::env::MemFs;
use shamba::merge::Append;
use shamba::{Compression, Db, KeyspaceOptions, MergePolicy, Prefix, WriteOptions};
use shamba_tests::files::files_of;

use super::super::builder;
use super::{check, golden};

const POLICIES: [(&str, MergePolicy); 3] = [
    ("leveling", MergePolicy::Leveling),
    ("tiering", MergePolicy::Tiering),
    ("lazy", MergePolicy::LazyLeveling),
];
/// Runs that are written of each keyspace; the last one stays in the log.
const ROUNDS: u32 = 7;
const KEYS: u32 = 60;

/// A write of one round.
enum Op {
    Put(Vec<u8>),
    PutExpiring(Vec<u8>),
    Append(String),
    Delete,
    /// Of the keys from this one to the other.
    DeleteRange(String),
}

fn key(number: u32) -> String {
    format!("group{}:{number:03}", number / 10)
}

fn bytes(number: u32, round: u32, len: u32) -> Vec<u8> {
    (0..len).map(|at| (at * 13 + number * 7 + round) as u8).collect()
}

/// The writes of a round, each with its key.
fn ops(round: u32) -> Vec<(String, Op)> {
    let mut ops = Vec::new();
    for number in (0..KEYS).filter(|number| !(number + round).is_multiple_of(3)) {
        let op = match number % 6 {
            0 => Op::Put(bytes(number, round, 20)),
            1 => Op::Put(bytes(number, round, 300 + number)),
            2 => Op::Append(format!("round {round}")),
            3 => Op::PutExpiring(bytes(number, round, 30 + number)),
            4 if round % 2 == 1 => Op::Delete,
            4 => Op::Put(bytes(number, round, 10)),
            _ => Op::Put(bytes(number, round, if number == 29 { 2_000 } else { 60 })),
        };
        ops.push((key(number), op));
    }
    if round.is_multiple_of(2) {
        let first = round * 5;
        ops.push((key(first), Op::DeleteRange(key(first + 4))));
    }
    ops
}

/// The content after all rounds.
fn model() -> BTreeMap<String, Vec<u8>> {
    let mut content = BTreeMap::new();
    for (key, op) in (0..ROUNDS).flat_map(ops) {
        match op {
            Op::Put(value) | Op::PutExpiring(value) => drop(content.insert(key, value)),
            Op::Append(text) => {
                let list: &mut Vec<u8> = content.entry(key).or_default();
                if !list.is_empty() {
                    list.push(b'+');
                }
                list.extend_from_slice(text.as_bytes());
            }
            Op::Delete => drop(content.remove(&key)),
            Op::DeleteRange(end) => {
                content.retain(|at, _| !(key.as_str()..end.as_str()).contains(&at.as_str()))
            }
        }
    }
    content
}

/// Fills the keyspaces; dropped without a close, so that the last round stays in the log.
fn write(fs: &MemFs) -> shamba::Result<()> {
    let century = WriteOptions::new().time_to_live(Duration::from_secs(100 * 365 * 86_400));
    let mut open = builder(fs).experimental(|e| e.large_values(900, 400));
    for (name, policy) in POLICIES {
        let options = KeyspaceOptions::new()
            .merge_policy(policy)
            .merge_operator(Append::separated_by("+"))
            .prefix(Prefix::Delimited(b':'))
            .compression([Compression::None, Compression::Lz4, Compression::Zstd]);
        let is_tiered = policy == MergePolicy::Tiering;
        open = open.keyspace(name, if is_tiered { options } else { options.value_threshold(250) });
    }
    let db = open.open()?;
    for round in 0..ROUNDS {
        for (name, _) in POLICIES {
            let keyspace = db.keyspace(name)?;
            for (key, op) in ops(round) {
                match op {
                    Op::Put(value) => keyspace.put(&key, value)?,
                    Op::PutExpiring(value) => keyspace.put_with(&key, value, century)?,
                    Op::Append(text) => keyspace.merge(&key, text)?,
                    Op::Delete => keyspace.delete(&key)?,
                    Op::DeleteRange(end) => keyspace.delete_range(key..end)?,
                }
            }
        }
        match round {
            2 => db.compact()?,
            _ if round + 1 < ROUNDS => db.flush()?,
            _ => {}
        }
    }
    db.sync()
}

#[test]
fn all_kinds_under_every_policy_stay_readable() {
    let fs = golden("policies", write);
    let model = model();
    let content = |db: &Db| -> shamba::Result<()> {
        for (name, _) in POLICIES {
            let keyspace = db.get_keyspace(name)?.expect("a keyspace of each policy");
            for number in 0..KEYS {
                let (key, found) = (key(number), keyspace.get(key(number))?);
                assert_eq!(found.as_deref(), model.get(&key).map(Vec::as_slice), "{name} {key}");
            }
            let all = keyspace.iter().collect::<shamba::Result<Vec<_>>>()?;
            let expected = model.iter().map(|(key, value)| (key.as_bytes(), value.as_slice()));
            assert!(all.iter().map(|(key, value)| (&key[..], &value[..])).eq(expected), "a scan of {name}");
            let of_group = keyspace.prefix("group3:").count();
            assert_eq!(of_group, model.keys().filter(|key| key.starts_with("group3:")).count(), "{name}");
        }
        Ok(())
    };
    check_kinds(&fs).and_then(|()| check(&fs, builder, content)).unwrap_or_else(|error| panic!("{error}"));
}

/// Requires that the files have what they are kept for.
fn check_kinds(fs: &MemFs) -> shamba::Result<()> {
    assert!(files_of(fs).keys().any(|name| name.ends_with(".values")), "no value file");
    let db = builder(fs).read_only(true).open()?;
    let tree = db.describe();
    // References to value files, deletes, range tombstones, entries that expire.
    for kind in [" val=", " del=", " rdel=", " exp="] {
        assert!(tree.contains(kind), "no table with{kind}\n{tree}");
    }
    for (name, policy) in POLICIES {
        let keyspace = db.get_keyspace(name)?.expect("a keyspace of each policy");
        let recorded = keyspace.own_options().into_iter().find(|(option, _)| *option == "policy");
        assert_eq!(recorded.map(|(_, value)| value), Some(policy.to_string()), "{name}");
        let tables = keyspace.tables();
        let runs = tables.iter().map(|table| (table.level, table.run)).collect::<BTreeSet<_>>();
        let least = if policy == MergePolicy::Tiering { 2 } else { 1 };
        assert!(runs.len() >= least, "{name}: {} runs", runs.len());
    }
    Ok(())
}
